//! Handlers of the commands of the wire: their engine commands, and their answers.

pub mod conversation;
mod login;
mod pages;
mod prompting;
mod protocol_features;
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
    adapter::{ActiveOperation, AdapterCallback, OmpAdapter, QueuedCommand, WaitUntil},
    bash_result::bash_result,
    command_kind::is_bash,
    handoff, host,
    refusal_text::refusal_message,
};

pub(super) use sessions::finish_switch;

pub async fn handle_command(door: &mut OmpAdapter, id: Option<OmpRequestId>, command: OmpCommand) {
    let name = command.name();
    match command {
        OmpCommand::Prompt { message, images, streaming_behavior } => {
            prompting::submit_prompt(door, id, message, images, streaming_behavior).await;
        }
        OmpCommand::Steer { message, images } => prompting::queue_steering(door, id, message, images).await,
        OmpCommand::FollowUp { message, images } => prompting::follow_up(door, id, message, images).await,
        OmpCommand::Abort => abort_run(door, id).await,
        OmpCommand::AbortAndPrompt { message, images } => prompting::abort_and_prompt(door, id, message, images).await,
        OmpCommand::AbortRetry => abort_retry(door, id).await,
        OmpCommand::AbortBash => abort_bash(door, id).await,
        OmpCommand::Bash { command } => run_bash(door, id, command).await,
        OmpCommand::Compact { custom_instructions } => sessions::start_compaction(door, id, custom_instructions).await,
        OmpCommand::NewSession { parent_session } => sessions::new_session(door, id, parent_session).await,
        OmpCommand::SwitchSession { session_path } => sessions::switch_session(door, id, session_path).await,
        OmpCommand::Branch { entry_id } | OmpCommand::Fork { entry_id } => {
            sessions::branch_session(door, id, name, entry_id).await
        }
        OmpCommand::Clone => sessions::clone_session(door, id).await,
        OmpCommand::SetSessionName { name } => sessions::set_name(door, id, name).await,
        OmpCommand::ExportHtml { output_path } => sessions::export_html(door, id, output_path).await,
        OmpCommand::GetState => conversation::get_state(door, id).await,
        OmpCommand::GetMessages => conversation::get_messages(door, id).await,
        OmpCommand::GetMessagesPage { cursor, limit } => pages::get_messages_page(door, id, cursor, limit).await,
        OmpCommand::GetBranchMessages | OmpCommand::GetForkMessages => {
            conversation::branch_messages(door, id, name).await
        }
        OmpCommand::GetLastAssistantText => conversation::last_text(door, id).await,
        OmpCommand::GetSessionStats => conversation::get_session_stats(door, id).await,
        OmpCommand::GetAvailableModels => settings::available_models(door, id),
        OmpCommand::SetModel { provider, model_id } => settings::set_model(door, id, provider, model_id).await,
        OmpCommand::CycleModel => settings::cycle_model(door, id).await,
        OmpCommand::SetThinkingLevel { level } => settings::set_thinking(door, id, level).await,
        OmpCommand::CycleThinkingLevel => settings::cycle_thinking(door, id).await,
        OmpCommand::SetSteeringMode { mode } => {
            settings::set_mode(door, id, name, settings::ModeSetting::Steering, mode).await
        }
        OmpCommand::SetFollowUpMode { mode } => {
            settings::set_mode(door, id, name, settings::ModeSetting::FollowUp, mode).await
        }
        OmpCommand::SetInterruptMode { mode } => {
            settings::set_mode(door, id, name, settings::ModeSetting::Interrupt, mode).await;
        }
        OmpCommand::SetAutoCompaction { enabled } => settings::set_auto_compaction(door, id, enabled).await,
        OmpCommand::SetAutoRetry { enabled } => settings::set_auto_retry(door, id, enabled).await,
        OmpCommand::GetAvailableThinkingLevels => settings::available_levels(door, id).await,
        OmpCommand::GetAvailableCommands | OmpCommand::GetCommands => protocol_features::slash_commands(door, id, name),
        OmpCommand::NegotiateProtocol { version } => protocol_features::negotiate_protocol(door, id, version),
        OmpCommand::SetFastMode { enabled } => protocol_features::set_fast_mode(door, id, enabled),
        OmpCommand::SetSubagentSubscription { level } => protocol_features::set_subagent_subscription(door, id, level),
        OmpCommand::GetSubagents => protocol_features::get_subagents(door, id),
        OmpCommand::GetSubagentMessages { subagent } => protocol_features::subagent_messages(door, id, subagent),
        OmpCommand::NotServed { name, reason } => door.write_frame(&OmpResponse::failure(id, name, reason)),
    }
}

/// Does a command of omp's own protocol, those of later versions among them.
pub async fn handle_own(door: &mut OmpAdapter, id: Option<OmpRequestId>, command: gjc::GjcCommand) {
    match command {
        gjc::GjcCommand::Shared(command) => handle_command(door, id, command).await,
        gjc::GjcCommand::Adopted(AdoptedCommand::Handoff { .. }) if door.encoder.is_running() => {
            let problem = "Cannot hand off while a response is in progress";
            door.write_frame(&OmpResponse::failure(id, command.name(), problem));
        }
        later => {
            if door.dialect.hooks.admit_command(door, id.as_ref(), &later).await {
                match later {
                    gjc::GjcCommand::Adopted(command) => handle_adopted(door, id, command).await,
                    other => door.write_frame(&OmpResponse::unknown_command_with_id(id, Some(other.name().to_owned()))),
                }
            }
        }
    }
}

/// Does a command that later versions of omp have in the form of the dialect of gjc.
pub async fn handle_adopted(door: &mut OmpAdapter, id: Option<OmpRequestId>, command: AdoptedCommand) {
    match command {
        AdoptedCommand::SetTodos { phases } => todos::set_todos(door, id, phases).await,
        AdoptedCommand::SetHostTools { tools } => host::set_tools(door, id, tools).await,
        AdoptedCommand::SetHostUriSchemes { schemes } => host::set_uri_schemes(door, id, schemes).await,
        AdoptedCommand::Handoff { custom_instructions } => handoff::hand_off(door, id, custom_instructions).await,
        AdoptedCommand::GetLoginProviders => login::login_providers(door, id),
        AdoptedCommand::Login { provider_id } => login::login_to_provider(door, id, provider_id),
    }
}

/// Maximum number of waiting commands if an abort is to wait for its turn as well.
const MOST_WAITING: usize = 1024;

/// Answers with nothing but that it is done, or with why not.
pub(super) fn write_ack(
    door: &mut OmpAdapter,
    id: Option<OmpRequestId>,
    name: &'static str,
    replied: Result<EngineReply, OwnerError>,
) {
    match replied {
        Ok(_) => door.write_frame(&OmpResponse::ack(id, name)),
        Err(refused) => door.write_frame(&OmpResponse::failure(id, name, refusal_message(&refused))),
    }
}

/// Stops the run, the compaction, and earlier requests that have not begun; answered when all has ended.
async fn abort_run(door: &mut OmpAdapter, id: Option<OmpRequestId>) {
    door.give_up();
    if door.begins_later() {
        // Current work is stopped at once. Later work is stopped by the same in its turn.
        stop_all(door, Box::new(|_, _| ())).await;
        if door.waiting.len() >= MOST_WAITING {
            return door.write_frame(&OmpResponse::failure(id, "abort", "too many commands are waiting"));
        }
        return door.stop_again(id);
    }
    abort_again(door, id).await;
}

/// Stops what works by now.
pub(super) async fn abort_again(door: &mut OmpAdapter, id: Option<OmpRequestId>) {
    stop_all(
        door,
        Box::new(move |door, stopped| match stopped {
            Ok(()) => door.write_frame(&OmpResponse::ack(id, "abort")),
            Err(refused) => door.write_frame(&OmpResponse::failure(id, "abort", refusal_message(&refused))),
        }),
    )
    .await;
}

/// Callback after a stop, or after a failed one: then its end is not recorded.
pub(super) type StopCallback = Box<dyn FnOnce(&mut OmpAdapter, Result<(), OwnerError>) + Send>;

/// Stops the run of the session and what summarises its context, and then does `then`.
pub(super) async fn stop_all(door: &mut OmpAdapter, then: StopCallback) {
    let not_stopped = Arc::new(OnceLock::new());
    // A compaction that was requested just now has no event yet, or has still to begin.
    let is_beginning = match &mut door.operation {
        ActiveOperation::ToCompact { is_given_up } => {
            *is_given_up = true;
            true
        }
        _ => false,
    };
    if (is_beginning || door.encoder.is_compacting())
        && let Some(seat) = door.current_session()
    {
        let session = seat.id.clone();
        let command = countersign_core::session::Command::AbortCompaction;
        let not_stopped = Arc::clone(&not_stopped);
        // One that is over already is as good as stopped.
        door.send_command(EngineCommand::Session(session, command), move |door, replied| {
            if let Err(refused) = replied {
                halt_models(door);
                let _ = not_stopped.set(refused);
            }
        })
        .await;
    }
    stop_run(
        door,
        Box::new(move |door, stopped| match stopped.and_then(|()| not_stopped.get().cloned().map_or(Ok(()), Err)) {
            Ok(()) => {
                let ended: AdapterCallback = Box::new(move |door| then(door, Ok(())));
                door.run_after(
                    WaitUntil::CompactionEnded,
                    Box::new(move |door| door.run_after(WaitUntil::RunEnded, ended)),
                );
            }
            refused => then(door, refused),
        }),
    )
    .await;
}

/// Stops what works for the session where that cannot be recorded.
fn halt_models(door: &OmpAdapter) {
    if let Some(seat) = door.current_session().filter(|_| door.encoder.is_running() || door.encoder.is_compacting()) {
        seat.environment.halt_models();
    }
}

/// Stops the run of the session, and then does `then`: at once, if there is none.
///
/// A log that takes nothing has no end of the run: then what works for it is stopped all the same.
pub(super) async fn stop_run(door: &mut OmpAdapter, then: StopCallback) {
    let Some(seat) = door.current_session() else { return then(door, Err(OwnerError::Closed)) };
    let command = EngineCommand::Run(run::Command::Abort { session: seat.id.clone() });
    door.stops += 1;
    door.send_command(command, move |door, replied| {
        door.stops -= 1;
        match replied {
            // One that waits for a compaction begins after it, and ends; if nothing runs, it may be a compaction that was stopped.
            Ok(EngineReply::Stopping(_) | EngineReply::Done) => {
                let ended: AdapterCallback = Box::new(move |door| then(door, Ok(())));
                door.run_after(
                    WaitUntil::CompactionEnded,
                    Box::new(move |door| door.run_after(WaitUntil::RunEnded, ended)),
                );
            }
            Ok(_) => then(door, Ok(())),
            Err(refused) => {
                halt_models(door);
                then(door, Err(refused));
            }
        }
    })
    .await;
}

/// Returns the reason why a command could not be sent on.
pub(super) const fn not_sent(door: &OmpAdapter) -> &'static str {
    if door.is_closing { "the session is closing" } else { "too many commands are waiting" }
}

async fn abort_retry(door: &mut OmpAdapter, id: Option<OmpRequestId>) {
    let Some(seat) = door.current_session() else { return };
    let command = EngineCommand::Run(run::Command::AbortRetry { session: seat.id.clone() });
    door.send_command(command, move |door, replied| write_ack(door, id, "abort_retry", replied)).await;
}

/// Ends the running command, and those that wait for it: they have the same result, without having begun.
async fn abort_bash(door: &mut OmpAdapter, id: Option<OmpRequestId>) {
    let Some(seat) = door.current_session() else { return };
    let command = EngineCommand::Call(call::Command::Abort { session: seat.id.clone() });
    let waiting = std::mem::take(&mut door.waiting);
    let (ended, waiting): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|waiting| is_bash(&waiting.command));
    door.waiting = waiting.into();
    door.send_command(command, move |door, replied| {
        write_ack(door, id, "abort_bash", replied);
        for QueuedCommand { id, .. } in ended {
            let result = bash_result(&BashMessage { cancelled: true, ..BashMessage::default() });
            door.write_frame(&OmpResponse::success(id, "bash", &result));
        }
    })
    .await;
}

async fn run_bash(door: &mut OmpAdapter, id: Option<OmpRequestId>, command: String) {
    let Some(seat) = door.current_session() else { return };
    let mut arguments = Map::new();
    arguments.insert("command".to_owned(), Value::String(command.clone()));
    let run = call::Command::Run {
        session: seat.id.clone(),
        tool: "bash".into(),
        arguments,
        signature: format!("bash({command})"),
        executor: call::Executor::Shell,
    };
    door.operation = ActiveOperation::ToCommand;
    door.send_command(EngineCommand::Call(run), move |door, replied| match replied {
        Ok(EngineReply::Running(call)) => door.operation = ActiveOperation::Command(call, id),
        Ok(_) => {
            door.operation = ActiveOperation::Free;
            door.write_frame(&OmpResponse::failure(id, "bash", "the command was not started"));
        }
        Err(refused) => {
            door.operation = ActiveOperation::Free;
            door.write_frame(&OmpResponse::failure(id, "bash", refusal_message(&refused)));
        }
    })
    .await;
}
