//! What each command of the wire asks of the engine, and how it is answered.

pub mod conversation;
mod later;
mod login;
mod pages;
mod prompting;
mod sessions;
pub mod settings;
mod todos;

use std::sync::{Arc, OnceLock};

use countersign_core::{
    call,
    engine::{Command as EngineCommand, EngineReply},
    message::BashMessage,
    run,
};
use countersign_protocol::{
    gjc,
    omp::{AdoptedCommand, OmpCommand, OmpRequestId, OmpResponse},
};
use countersign_runtime::OwnerError;
use serde_json::{Map, Value};

use super::{
    bash_result::bash_result,
    command_kind::is_bash,
    door::{Door, Lane, Then, Until, Waiting},
    handoff, host,
    refusal_text::problem,
};

pub(super) use sessions::switch;

pub async fn handle(door: &mut Door, id: Option<OmpRequestId>, command: OmpCommand) {
    let name = command.name();
    match command {
        OmpCommand::Prompt { message, images, streaming_behavior } => {
            prompting::prompt(door, id, message, images, streaming_behavior).await;
        }
        OmpCommand::Steer { message, images } => prompting::steer(door, id, message, images).await,
        OmpCommand::FollowUp { message, images } => prompting::follow_up(door, id, message, images).await,
        OmpCommand::Abort => abort(door, id).await,
        OmpCommand::AbortAndPrompt { message, images } => prompting::abort_and_prompt(door, id, message, images).await,
        OmpCommand::AbortRetry => abort_retry(door, id).await,
        OmpCommand::AbortBash => abort_bash(door, id).await,
        OmpCommand::Bash { command } => bash(door, id, command).await,
        OmpCommand::Compact { custom_instructions } => sessions::compact(door, id, custom_instructions).await,
        OmpCommand::NewSession { parent_session } => sessions::new_session(door, id, parent_session).await,
        OmpCommand::SwitchSession { session_path } => sessions::switch_session(door, id, session_path).await,
        OmpCommand::Branch { entry_id } | OmpCommand::Fork { entry_id } => {
            sessions::branch(door, id, name, entry_id).await
        }
        OmpCommand::Clone => sessions::clone(door, id).await,
        OmpCommand::SetSessionName { name } => sessions::set_name(door, id, name).await,
        OmpCommand::ExportHtml { output_path } => sessions::export_html(door, id, output_path).await,
        OmpCommand::GetState => conversation::state(door, id).await,
        OmpCommand::GetMessages => conversation::messages(door, id).await,
        OmpCommand::GetMessagesPage { cursor, limit } => pages::page(door, id, cursor, limit).await,
        OmpCommand::GetBranchMessages | OmpCommand::GetForkMessages => {
            conversation::branch_messages(door, id, name).await
        }
        OmpCommand::GetLastAssistantText => conversation::last_text(door, id).await,
        OmpCommand::GetSessionStats => conversation::stats(door, id).await,
        OmpCommand::GetAvailableModels => settings::available_models(door, id),
        OmpCommand::SetModel { provider, model_id } => settings::set_model(door, id, provider, model_id).await,
        OmpCommand::CycleModel => settings::cycle_model(door, id).await,
        OmpCommand::SetThinkingLevel { level } => settings::set_thinking(door, id, level).await,
        OmpCommand::CycleThinkingLevel => settings::cycle_thinking(door, id).await,
        OmpCommand::SetSteeringMode { mode } => {
            settings::set_mode(door, id, name, settings::Mode::Steering, mode).await
        }
        OmpCommand::SetFollowUpMode { mode } => {
            settings::set_mode(door, id, name, settings::Mode::FollowUp, mode).await
        }
        OmpCommand::SetInterruptMode { mode } => {
            settings::set_mode(door, id, name, settings::Mode::Interrupt, mode).await;
        }
        OmpCommand::SetAutoCompaction { enabled } => settings::set_auto_compaction(door, id, enabled).await,
        OmpCommand::SetAutoRetry { enabled } => settings::set_auto_retry(door, id, enabled).await,
        OmpCommand::GetAvailableThinkingLevels => settings::available_levels(door, id).await,
        OmpCommand::GetAvailableCommands | OmpCommand::GetCommands => later::slash_commands(door, id, name),
        OmpCommand::NegotiateProtocol { version } => later::negotiate(door, id, version),
        OmpCommand::SetFastMode { enabled } => later::set_fast_mode(door, id, enabled),
        OmpCommand::SetSubagentSubscription { level } => later::subscribe(door, id, level),
        OmpCommand::GetSubagents => later::subagents(door, id),
        OmpCommand::GetSubagentMessages { subagent } => later::subagent_messages(door, id, subagent),
        OmpCommand::NotServed { name, reason } => door.write(&OmpResponse::failure(id, name, reason)),
    }
}

/// Does a command of omp's own protocol, those of later versions among them.
pub async fn handle_own(door: &mut Door, id: Option<OmpRequestId>, command: gjc::GjcCommand) {
    match command {
        gjc::GjcCommand::Shared(command) => handle(door, id, command).await,
        gjc::GjcCommand::Adopted(AdoptedCommand::Handoff { .. }) if door.teller.is_running() => {
            let problem = "Cannot hand off while a response is in progress";
            door.write(&OmpResponse::failure(id, command.name(), problem));
        }
        later => {
            if door.dialect.hooks.admit(door, id.as_ref(), &later).await {
                match later {
                    gjc::GjcCommand::Adopted(command) => handle_adopted(door, id, command).await,
                    other => door.write(&OmpResponse::unknown_command_with_id(id, Some(other.name().to_owned()))),
                }
            }
        }
    }
}

/// Does a command that later versions of omp have in the form of the dialect of gjc.
pub async fn handle_adopted(door: &mut Door, id: Option<OmpRequestId>, command: AdoptedCommand) {
    match command {
        AdoptedCommand::SetTodos { phases } => todos::set(door, id, phases).await,
        AdoptedCommand::SetHostTools { tools } => host::set_tools(door, id, tools).await,
        AdoptedCommand::SetHostUriSchemes { schemes } => host::set_uri_schemes(door, id, schemes).await,
        AdoptedCommand::Handoff { custom_instructions } => handoff::hand_off(door, id, custom_instructions).await,
        AdoptedCommand::GetLoginProviders => login::login_providers(door, id),
        AdoptedCommand::Login { provider_id } => login::login(door, id, provider_id),
    }
}

/// How many commands may wait where an abort is to wait for its turn as well.
const MOST_WAITING: usize = 1024;

/// Answers with nothing but that it is done, or with why not.
pub(super) fn acknowledge(
    door: &mut Door,
    id: Option<OmpRequestId>,
    name: &'static str,
    replied: Result<EngineReply, OwnerError>,
) {
    match replied {
        Ok(_) => door.write(&OmpResponse::ack(id, name)),
        Err(refused) => door.write(&OmpResponse::failure(id, name, problem(&refused))),
    }
}

/// Stops the run, what summarises its context, and what was asked for before and has not begun; answered when all has ended.
async fn abort(door: &mut Door, id: Option<OmpRequestId>) {
    door.give_up();
    if door.begins_later() {
        // What works is stopped at once. What begins later is, by the same in its turn.
        stop_all(door, Box::new(|_, _| ())).await;
        if door.waiting.len() >= MOST_WAITING {
            return door.write(&OmpResponse::failure(id, "abort", "too many commands are waiting"));
        }
        return door.stop_again(id);
    }
    abort_again(door, id).await;
}

/// Stops what works by now.
pub(super) async fn abort_again(door: &mut Door, id: Option<OmpRequestId>) {
    stop_all(
        door,
        Box::new(move |door, stopped| match stopped {
            Ok(()) => door.write(&OmpResponse::ack(id, "abort")),
            Err(refused) => door.write(&OmpResponse::failure(id, "abort", problem(&refused))),
        }),
    )
    .await;
}

/// What is done once something was stopped, or could not be: then its end is not recorded.
pub(super) type Stopped = Box<dyn FnOnce(&mut Door, Result<(), OwnerError>) + Send>;

/// Stops the run of the session and what summarises its context, and then does `then`.
pub(super) async fn stop_all(door: &mut Door, then: Stopped) {
    let not_stopped = Arc::new(OnceLock::new());
    // A compaction that was asked for just now is not told of yet, or has still to begin.
    let is_beginning = match &mut door.lane {
        Lane::ToCompact { is_given_up } => {
            *is_given_up = true;
            true
        }
        _ => false,
    };
    if (is_beginning || door.teller.is_compacting())
        && let Some(seat) = door.seat()
    {
        let session = seat.id.clone();
        let command = countersign_core::session::Command::AbortCompaction;
        let not_stopped = Arc::clone(&not_stopped);
        // One that is over already is as good as stopped.
        door.ask(EngineCommand::Session(session, command), move |door, replied| {
            if let Err(refused) = replied {
                halt(door);
                let _ = not_stopped.set(refused);
            }
        })
        .await;
    }
    stop_run(
        door,
        Box::new(move |door, stopped| match stopped.and_then(|()| not_stopped.get().cloned().map_or(Ok(()), Err)) {
            Ok(()) => {
                let ended: Then = Box::new(move |door| then(door, Ok(())));
                door.after(Until::CompactionEnded, Box::new(move |door| door.after(Until::RunEnded, ended)));
            }
            refused => then(door, refused),
        }),
    )
    .await;
}

/// Stops what works for the session where that cannot be recorded.
fn halt(door: &Door) {
    if let Some(seat) = door.seat().filter(|_| door.teller.is_running() || door.teller.is_compacting()) {
        seat.workshop.halt();
    }
}

/// Stops the run of the session, and then does `then`: at once, if there is none.
///
/// A log that takes nothing has no end of the run: then what works for it is stopped all the same.
pub(super) async fn stop_run(door: &mut Door, then: Stopped) {
    let Some(seat) = door.seat() else { return then(door, Err(OwnerError::Closed)) };
    let command = EngineCommand::Run(run::Command::Abort { session: seat.id.clone() });
    door.stops += 1;
    door.ask(command, move |door, replied| {
        door.stops -= 1;
        match replied {
            // One that waits for a compaction begins behind it, and ends; where nothing runs, it may be a compaction that was stopped.
            Ok(EngineReply::Stopping(_) | EngineReply::Done) => {
                let ended: Then = Box::new(move |door| then(door, Ok(())));
                door.after(Until::CompactionEnded, Box::new(move |door| door.after(Until::RunEnded, ended)));
            }
            Ok(_) => then(door, Ok(())),
            Err(refused) => {
                halt(door);
                then(door, Err(refused));
            }
        }
    })
    .await;
}

/// Why a command could not be sent on.
pub(super) const fn not_sent(door: &Door) -> &'static str {
    if door.is_closing { "the session is closing" } else { "too many commands are waiting" }
}

async fn abort_retry(door: &mut Door, id: Option<OmpRequestId>) {
    let Some(seat) = door.seat() else { return };
    let command = EngineCommand::Run(run::Command::AbortRetry { session: seat.id.clone() });
    door.ask(command, move |door, replied| acknowledge(door, id, "abort_retry", replied)).await;
}

/// Ends the command that works, and those that wait behind it: they come to the same, without having begun.
async fn abort_bash(door: &mut Door, id: Option<OmpRequestId>) {
    let Some(seat) = door.seat() else { return };
    let command = EngineCommand::Call(call::Command::Abort { session: seat.id.clone() });
    let waiting = std::mem::take(&mut door.waiting);
    let (ended, waiting): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|waiting| is_bash(&waiting.command));
    door.waiting = waiting.into();
    door.ask(command, move |door, replied| {
        acknowledge(door, id, "abort_bash", replied);
        for Waiting { id, .. } in ended {
            let result = bash_result(&BashMessage { cancelled: true, ..BashMessage::default() });
            door.write(&OmpResponse::success(id, "bash", &result));
        }
    })
    .await;
}

async fn bash(door: &mut Door, id: Option<OmpRequestId>, command: String) {
    let Some(seat) = door.seat() else { return };
    let mut arguments = Map::new();
    arguments.insert("command".to_owned(), Value::String(command.clone()));
    let run = call::Command::Run {
        session: seat.id.clone(),
        tool: "bash".into(),
        arguments,
        signature: format!("bash({command})"),
        executor: call::Executor::Shell,
    };
    door.lane = Lane::ToCommand;
    door.ask(EngineCommand::Call(run), move |door, replied| match replied {
        Ok(EngineReply::Running(call)) => door.lane = Lane::Command(call, id),
        Ok(_) => {
            door.lane = Lane::Free;
            door.write(&OmpResponse::failure(id, "bash", "the command was not started"));
        }
        Err(refused) => {
            door.lane = Lane::Free;
            door.write(&OmpResponse::failure(id, "bash", problem(&refused)));
        }
    })
    .await;
}
