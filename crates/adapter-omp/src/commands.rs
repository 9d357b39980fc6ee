//! Handlers of the commands of the wire: their engine commands, and their answers.

pub mod conversation;
mod exported_page;
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

pub async fn handle_command(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, command: OmpCommand) {
    let name = command.name();
    match command {
        OmpCommand::Prompt { message, images, streaming_behavior } => {
            prompting::submit_prompt(adapter, id, message, images, streaming_behavior).await;
        }
        OmpCommand::Steer { message, images } => prompting::queue_steering(adapter, id, message, images).await,
        OmpCommand::FollowUp { message, images } => prompting::follow_up(adapter, id, message, images).await,
        OmpCommand::Abort => abort_run(adapter, id).await,
        OmpCommand::AbortAndPrompt { message, images } => {
            prompting::abort_and_prompt(adapter, id, message, images).await
        }
        OmpCommand::AbortRetry => abort_retry(adapter, id).await,
        OmpCommand::AbortBash => abort_bash(adapter, id).await,
        OmpCommand::Bash { command } => run_bash(adapter, id, command).await,
        OmpCommand::Compact { custom_instructions } => {
            sessions::start_compaction(adapter, id, custom_instructions).await
        }
        OmpCommand::NewSession { parent_session } => sessions::new_session(adapter, id, parent_session).await,
        OmpCommand::SwitchSession { session_path } => sessions::switch_session(adapter, id, session_path).await,
        OmpCommand::Branch { entry_id } | OmpCommand::Fork { entry_id } => {
            sessions::branch_session(adapter, id, name, entry_id).await
        }
        OmpCommand::Clone => sessions::clone_session(adapter, id).await,
        OmpCommand::SetSessionName { name } => sessions::set_name(adapter, id, name).await,
        OmpCommand::ExportHtml { output_path } => sessions::export_html(adapter, id, output_path).await,
        OmpCommand::GetState => conversation::get_state(adapter, id).await,
        OmpCommand::GetMessages => conversation::get_messages(adapter, id).await,
        OmpCommand::GetMessagesPage { cursor, limit } => pages::get_messages_page(adapter, id, cursor, limit).await,
        OmpCommand::GetBranchMessages | OmpCommand::GetForkMessages => {
            conversation::branch_messages(adapter, id, name).await
        }
        OmpCommand::GetLastAssistantText => conversation::last_text(adapter, id).await,
        OmpCommand::GetSessionStats => conversation::get_session_stats(adapter, id).await,
        OmpCommand::GetAvailableModels => settings::available_models(adapter, id),
        OmpCommand::SetModel { provider, model_id } => settings::set_model(adapter, id, provider, model_id).await,
        OmpCommand::CycleModel => settings::cycle_model(adapter, id).await,
        OmpCommand::SetThinkingLevel { level } => settings::set_thinking(adapter, id, level).await,
        OmpCommand::CycleThinkingLevel => settings::cycle_thinking(adapter, id).await,
        OmpCommand::SetSteeringMode { mode } => {
            settings::set_mode(adapter, id, name, settings::ModeSetting::Steering, mode).await
        }
        OmpCommand::SetFollowUpMode { mode } => {
            settings::set_mode(adapter, id, name, settings::ModeSetting::FollowUp, mode).await
        }
        OmpCommand::SetInterruptMode { mode } => {
            settings::set_mode(adapter, id, name, settings::ModeSetting::Interrupt, mode).await;
        }
        OmpCommand::SetAutoCompaction { enabled } => settings::set_auto_compaction(adapter, id, enabled).await,
        OmpCommand::SetAutoRetry { enabled } => settings::set_auto_retry(adapter, id, enabled).await,
        OmpCommand::GetAvailableThinkingLevels => settings::available_levels(adapter, id).await,
        OmpCommand::GetAvailableCommands | OmpCommand::GetCommands => {
            protocol_features::slash_commands(adapter, id, name)
        }
        OmpCommand::NegotiateProtocol { version } => protocol_features::negotiate_protocol(adapter, id, version),
        OmpCommand::SetFastMode { enabled } => protocol_features::set_fast_mode(adapter, id, enabled),
        OmpCommand::SetSubagentSubscription { level } => {
            protocol_features::set_subagent_subscription(adapter, id, level)
        }
        OmpCommand::GetSubagents => protocol_features::get_subagents(adapter, id),
        OmpCommand::GetSubagentMessages { subagent } => protocol_features::subagent_messages(adapter, id, subagent),
        OmpCommand::NotServed { name, reason } => adapter.write_frame(&OmpResponse::failure(id, name, reason)),
    }
}

/// Does a command of omp's own protocol, those of later versions among them.
pub async fn handle_own(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, command: gjc::GjcCommand) {
    match command {
        gjc::GjcCommand::Shared(command) => handle_command(adapter, id, command).await,
        gjc::GjcCommand::Adopted(AdoptedCommand::Handoff { .. }) if adapter.encoder.is_running() => {
            let problem = "Cannot hand off while a response is in progress";
            adapter.write_frame(&OmpResponse::failure(id, command.name(), problem));
        }
        later => {
            if adapter.dialect.hooks.admit_command(adapter, id.as_ref(), &later).await {
                match later {
                    gjc::GjcCommand::Adopted(command) => handle_adopted(adapter, id, command).await,
                    other => {
                        adapter.write_frame(&OmpResponse::unknown_command_with_id(id, Some(other.name().to_owned())))
                    }
                }
            }
        }
    }
}

/// Does a command that later versions of omp have in the form of the dialect of gjc.
pub async fn handle_adopted(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, command: AdoptedCommand) {
    match command {
        AdoptedCommand::SetTodos { phases } => todos::set_todos(adapter, id, phases).await,
        AdoptedCommand::SetHostTools { tools } => host::set_tools(adapter, id, tools).await,
        AdoptedCommand::SetHostUriSchemes { schemes } => host::set_uri_schemes(adapter, id, schemes).await,
        AdoptedCommand::Handoff { custom_instructions } => handoff::hand_off(adapter, id, custom_instructions).await,
        AdoptedCommand::GetLoginProviders => login::login_providers(adapter, id),
        AdoptedCommand::Login { provider_id } => login::login_to_provider(adapter, id, provider_id),
    }
}

/// Maximum number of waiting commands if an abort is to wait for its turn as well.
const MOST_WAITING: usize = 1024;

/// Answers with nothing but that it is done, or with why not.
pub(super) fn write_ack(
    adapter: &mut OmpAdapter,
    id: Option<OmpRequestId>,
    name: &'static str,
    replied: Result<EngineReply, OwnerError>,
) {
    match replied {
        Ok(_) => adapter.write_frame(&OmpResponse::ack(id, name)),
        Err(refused) => adapter.write_frame(&OmpResponse::failure(id, name, refusal_message(&refused))),
    }
}

/// Stops the run, the compaction, and earlier requests that have not begun; answered when all has ended.
async fn abort_run(adapter: &mut OmpAdapter, id: Option<OmpRequestId>) {
    adapter.give_up();
    if adapter.begins_later() {
        // Current work is stopped at once. Later work is stopped by the same in its turn.
        stop_all(adapter, Box::new(|_, _| ())).await;
        if adapter.waiting.len() >= MOST_WAITING {
            return adapter.write_frame(&OmpResponse::failure(id, "abort", "too many commands are waiting"));
        }
        return adapter.stop_again(id);
    }
    abort_again(adapter, id).await;
}

/// Stops what works by now.
pub(super) async fn abort_again(adapter: &mut OmpAdapter, id: Option<OmpRequestId>) {
    stop_all(
        adapter,
        Box::new(move |adapter, stopped| match stopped {
            Ok(()) => adapter.write_frame(&OmpResponse::ack(id, "abort")),
            Err(refused) => adapter.write_frame(&OmpResponse::failure(id, "abort", refusal_message(&refused))),
        }),
    )
    .await;
}

/// Callback after a stop, or after a failed one: then its end is not recorded.
pub(super) type StopCallback = Box<dyn FnOnce(&mut OmpAdapter, Result<(), OwnerError>) + Send>;

/// Stops the run of the session and what summarises its context, and then does `then`.
pub(super) async fn stop_all(adapter: &mut OmpAdapter, then: StopCallback) {
    let not_stopped = Arc::new(OnceLock::new());
    // A compaction that was requested just now has no event yet, or has still to begin.
    let is_beginning = match &mut adapter.operation {
        ActiveOperation::ToCompact { is_given_up } => {
            *is_given_up = true;
            true
        }
        _ => false,
    };
    if (is_beginning || adapter.encoder.is_compacting())
        && let Some(seat) = adapter.current_session()
    {
        let session = seat.id.clone();
        let command = countersign_core::session::Command::AbortCompaction;
        let not_stopped = Arc::clone(&not_stopped);
        // One that is over already is as good as stopped.
        adapter
            .send_command(EngineCommand::Session(session, command), move |adapter, replied| {
                if let Err(refused) = replied {
                    halt_models(adapter);
                    let _ = not_stopped.set(refused);
                }
            })
            .await;
    }
    stop_run(
        adapter,
        Box::new(move |adapter, stopped| match stopped.and_then(|()| not_stopped.get().cloned().map_or(Ok(()), Err)) {
            Ok(()) => {
                let ended: AdapterCallback = Box::new(move |adapter| then(adapter, Ok(())));
                adapter.run_after(
                    WaitUntil::CompactionEnded,
                    Box::new(move |adapter| adapter.run_after(WaitUntil::RunEnded, ended)),
                );
            }
            refused => then(adapter, refused),
        }),
    )
    .await;
}

/// Stops what works for the session where that cannot be recorded.
fn halt_models(adapter: &OmpAdapter) {
    if let Some(seat) =
        adapter.current_session().filter(|_| adapter.encoder.is_running() || adapter.encoder.is_compacting())
    {
        seat.environment.halt_models();
    }
}

/// Stops the run of the session, and then does `then`: at once, if there is none.
///
/// A log that takes nothing has no end of the run: then what works for it is stopped all the same.
pub(super) async fn stop_run(adapter: &mut OmpAdapter, then: StopCallback) {
    let Some(seat) = adapter.current_session() else { return then(adapter, Err(OwnerError::Closed)) };
    let command = EngineCommand::Run(run::Command::Abort { session: seat.id.clone() });
    adapter.stops += 1;
    adapter
        .send_command(command, move |adapter, replied| {
            adapter.stops -= 1;
            match replied {
                // One that waits for a compaction begins after it, and ends; if nothing runs, it may be a compaction that was stopped.
                Ok(EngineReply::Stopping(_) | EngineReply::Done) => {
                    let ended: AdapterCallback = Box::new(move |adapter| then(adapter, Ok(())));
                    adapter.run_after(
                        WaitUntil::CompactionEnded,
                        Box::new(move |adapter| adapter.run_after(WaitUntil::RunEnded, ended)),
                    );
                }
                Ok(_) => then(adapter, Ok(())),
                Err(refused) => {
                    halt_models(adapter);
                    then(adapter, Err(refused));
                }
            }
        })
        .await;
}

/// Returns the reason why a command could not be sent on.
pub(super) const fn not_sent(adapter: &OmpAdapter) -> &'static str {
    if adapter.is_closing { "the session is closing" } else { "too many commands are waiting" }
}

async fn abort_retry(adapter: &mut OmpAdapter, id: Option<OmpRequestId>) {
    let Some(seat) = adapter.current_session() else { return };
    let command = EngineCommand::Run(run::Command::AbortRetry { session: seat.id.clone() });
    adapter.send_command(command, move |adapter, replied| write_ack(adapter, id, "abort_retry", replied)).await;
}

/// Ends the running command, and those that wait for it: they have the same result, without having begun.
async fn abort_bash(adapter: &mut OmpAdapter, id: Option<OmpRequestId>) {
    let Some(seat) = adapter.current_session() else { return };
    let command = EngineCommand::Call(call::Command::Abort { session: seat.id.clone() });
    let waiting = std::mem::take(&mut adapter.waiting);
    let (ended, waiting): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|waiting| is_bash(&waiting.command));
    adapter.waiting = waiting.into();
    adapter
        .send_command(command, move |adapter, replied| {
            write_ack(adapter, id, "abort_bash", replied);
            for QueuedCommand { id, .. } in ended {
                let result = bash_result(&BashMessage { cancelled: true, ..BashMessage::default() });
                adapter.write_frame(&OmpResponse::success(id, "bash", &result));
            }
        })
        .await;
}

async fn run_bash(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, command: String) {
    let Some(seat) = adapter.current_session() else { return };
    let mut arguments = Map::new();
    arguments.insert("command".to_owned(), Value::String(command.clone()));
    let run = call::Command::Run {
        session: seat.id.clone(),
        tool: "bash".into(),
        arguments,
        signature: format!("bash({command})"),
        executor: call::Executor::Shell,
    };
    adapter.operation = ActiveOperation::ToCommand;
    adapter
        .send_command(EngineCommand::Call(run), move |adapter, replied| match replied {
            Ok(EngineReply::Running(call)) => adapter.operation = ActiveOperation::Command(call, id),
            Ok(_) => {
                adapter.operation = ActiveOperation::Free;
                adapter.write_frame(&OmpResponse::failure(id, "bash", "the command was not started"));
            }
            Err(refused) => {
                adapter.operation = ActiveOperation::Free;
                adapter.write_frame(&OmpResponse::failure(id, "bash", refusal_message(&refused)));
            }
        })
        .await;
}
