//! Slash commands in a session.

use std::sync::Arc;

use countersign_core::{
    engine, run,
    session::{self, SessionSetting},
};
use countersign_protocol::gsv::{
    GsvError,
    chat::ChatSendResult,
    command::{ChatCommand, CommandReply, StatusReply, failure_text},
    directive::{ModelSelector, ThinkLevel},
};
use countersign_runtime::InboxLane;

use super::{
    super::GsvAdapter,
    methods,
    send::{MessageAuthor, inbound_message},
    session_lifecycle::{self, Initiator},
    session_snapshot::{SessionDetail, SessionSnapshot, read_session, read_session_detail},
};

/// Runs a command. A failure becomes part of the answer.
pub(super) async fn run_command(
    door: &Arc<GsvAdapter>,
    seen: SessionSnapshot,
    command: ChatCommand,
    speaker: &MessageAuthor,
) -> ChatSendResult {
    let name = command.name();
    match execute_command(door, seen, command, speaker).await {
        Ok(Ok(reply)) => {
            ChatSendResult::Command { command: name, response: Some(reply.to_text(speaker.style)), error: None }
        }
        Ok(Err(error)) => ChatSendResult::Command { command: name, response: None, error: Some(error) },
        Err(fault) => {
            ChatSendResult::Command { command: name, response: None, error: Some(failure_text(&fault.message)) }
        }
    }
}

async fn execute_command(
    door: &Arc<GsvAdapter>,
    seen: SessionSnapshot,
    command: ChatCommand,
    speaker: &MessageAuthor,
) -> Result<Result<CommandReply, String>, GsvError> {
    let word = Initiator { by: speaker.by.clone(), inbound: inbound_message(door, &seen.key, speaker) };
    Ok(match command {
        ChatCommand::Help => Ok(CommandReply::Help),
        ChatCommand::Status => Ok(status_reply(&read_session_detail(door, &seen.key).await?)),
        ChatCommand::Stop => Ok(stop_run(door, &seen, word).await?),
        ChatCommand::Reset => {
            let renewed = session_lifecycle::renew_session(door, seen, word).await?;
            Ok(CommandReply::Reset { archived: renewed.archived })
        }
        ChatCommand::Compact { keep: Err(error) } => Err(error.to_owned()),
        ChatCommand::Compact { keep: Ok(keep) } => {
            let whole = read_session_detail(door, &seen.key).await?;
            let (kept, archived, _) = session_lifecycle::trim_session(door, &whole, keep, word).await?;
            Ok(CommandReply::Compacted { kept, archived })
        }
        ChatCommand::Model { selector: None } => Ok(CommandReply::CurrentModel(session_model(door, &seen))),
        ChatCommand::Model { selector: Some(selector) } => {
            match ModelSelector::from_text(&selector, &session_model(door, &seen).provider) {
                None => Err(ModelSelector::invalid_message(&selector)),
                Some(model) => {
                    let id = session_lifecycle::open_session(door, &seen.key).await?;
                    session_lifecycle::set_setting(
                        door,
                        &id,
                        SessionSetting::Model(door.settings.model_ref(&door.context, &model)),
                    )
                    .await?;
                    let mut profile = read_session(door, &seen.key).await?.profile;
                    profile.model = Some((model.provider.clone(), model.id.clone()));
                    let set =
                        session::Command::Set { setting: SessionSetting::Profile(Box::new(profile)), entry: None };
                    session_lifecycle::send_command(door, word.wrap_command(engine::Command::Session(id, set))).await?;
                    Ok(CommandReply::ModelSet(model))
                }
            }
        }
        ChatCommand::Think { level: None } => {
            Ok(CommandReply::CurrentLevel(seen.thinking.as_deref().and_then(ThinkLevel::from_text)))
        }
        ChatCommand::Think { level: Some(level) } => match ThinkLevel::from_text(&level) {
            None => Err(ThinkLevel::invalid_message(&level)),
            Some(level) => {
                let id = session_lifecycle::open_session(door, &seen.key).await?;
                let setting = SessionSetting::Thinking(Some(level.display_name().to_owned()));
                let set = session::Command::Set { setting, entry: None };
                session_lifecycle::send_command(door, word.wrap_command(engine::Command::Session(id, set))).await?;
                Ok(CommandReply::LevelSet(level))
            }
        },
    })
}

fn session_model(door: &GsvAdapter, seen: &SessionSnapshot) -> ModelSelector {
    seen.model.clone().unwrap_or_else(|| door.settings.default_model())
}

/// Describes the state of a session.
pub(super) fn status_reply(seen: &SessionDetail) -> CommandReply {
    CommandReply::Status(StatusReply {
        session: seen.key.clone(),
        messages: seen.lines.len(),
        tokens: seen.row.token_counts(),
        model: seen.model.clone().unwrap_or(ModelSelector { provider: String::new(), id: String::new() }),
        thinking: seen.thinking.as_deref().and_then(ThinkLevel::from_text),
        reset: seen.profile.renewal.map(|renewal| methods::to_reset_policy(renewal).mode),
    })
}

/// Stops the run that works. Its pending gates are withdrawn, and the queue continues.
async fn stop_run(door: &Arc<GsvAdapter>, seen: &SessionSnapshot, word: Initiator) -> Result<CommandReply, GsvError> {
    if seen.working.is_none() && !seen.exists {
        return Ok(CommandReply::NothingRuns);
    }
    // Without a run, a summary may be under way after which the agent would continue by itself.
    let session = super::super::registry::session_of(&seen.key);
    let abort = word.wrap_command(engine::Command::Run(run::Command::Abort { session }));
    let stopped = door.context.handle.source(InboxLane::Result).send_command(abort).await;
    Ok(match (stopped.map_err(|refused| session_lifecycle::refusal_error(&refused))?.outcome, &seen.awaited) {
        (engine::EngineReply::Stopping(run), _) => {
            let working = seen.working.as_ref().filter(|working| working.run == run);
            let working = working.map(|working| (working.called.clone(), working.calls));
            // It may have begun since the snapshot.
            let begun = || (seen.awaited.clone().unwrap_or_else(|| run.to_string()), 0);
            let (run, cancelled) = working.unwrap_or_else(begun);
            CommandReply::Stopped { run, cancelled }
        }
        (engine::EngineReply::Done, Some(awaited)) => CommandReply::Stopped { run: awaited.clone(), cancelled: 0 },
        (engine::EngineReply::Done, None) => CommandReply::SummaryStopped,
        _ => CommandReply::NothingRuns,
    })
}
