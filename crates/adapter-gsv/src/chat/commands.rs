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
    super::Door,
    lives::{self, Word},
    methods,
    seen::{Seen, Whole, see, see_whole},
    send::{Speaker, heard_of},
};

/// Does what a command asks for. Whatever goes wrong is part of the answer.
pub(super) async fn answer(door: &Arc<Door>, seen: Seen, command: ChatCommand, speaker: &Speaker) -> ChatSendResult {
    let name = command.name();
    match work(door, seen, command, speaker).await {
        Ok(Ok(reply)) => {
            ChatSendResult::Command { command: name, response: Some(reply.to_text(speaker.style)), error: None }
        }
        Ok(Err(error)) => ChatSendResult::Command { command: name, response: None, error: Some(error) },
        Err(fault) => {
            ChatSendResult::Command { command: name, response: None, error: Some(failure_text(&fault.message)) }
        }
    }
}

async fn work(
    door: &Arc<Door>,
    seen: Seen,
    command: ChatCommand,
    speaker: &Speaker,
) -> Result<Result<CommandReply, String>, GsvError> {
    let word = Word { by: speaker.by.clone(), heard: heard_of(door, &seen.key, speaker) };
    Ok(match command {
        ChatCommand::Help => Ok(CommandReply::Help),
        ChatCommand::Status => Ok(status(&see_whole(door, &seen.key).await?)),
        ChatCommand::Stop => Ok(stop(door, &seen, word).await?),
        ChatCommand::Reset => {
            let renewed = lives::renew(door, seen, word).await?;
            Ok(CommandReply::Reset { archived: renewed.archived })
        }
        ChatCommand::Compact { keep: Err(error) } => Err(error.to_owned()),
        ChatCommand::Compact { keep: Ok(keep) } => {
            let whole = see_whole(door, &seen.key).await?;
            let (kept, archived, _) = lives::trim(door, &whole, keep, word).await?;
            Ok(CommandReply::Compacted { kept, archived })
        }
        ChatCommand::Model { selector: None } => Ok(CommandReply::CurrentModel(model(door, &seen))),
        ChatCommand::Model { selector: Some(selector) } => {
            match ModelSelector::from_text(&selector, &model(door, &seen).provider) {
                None => Err(ModelSelector::invalid_message(&selector)),
                Some(model) => {
                    let id = lives::open(door, &seen.key).await?;
                    lives::set(door, &id, SessionSetting::Model(door.settings.reference(&door.context, &model)))
                        .await?;
                    let mut profile = see(door, &seen.key).await?.profile;
                    profile.model = Some((model.provider.clone(), model.id.clone()));
                    let set =
                        session::Command::Set { setting: SessionSetting::Profile(Box::new(profile)), entry: None };
                    lives::ask(door, word.over(engine::Command::Session(id, set))).await?;
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
                let id = lives::open(door, &seen.key).await?;
                let setting = SessionSetting::Thinking(Some(level.display_name().to_owned()));
                let set = session::Command::Set { setting, entry: None };
                lives::ask(door, word.over(engine::Command::Session(id, set))).await?;
                Ok(CommandReply::LevelSet(level))
            }
        },
    })
}

fn model(door: &Door, seen: &Seen) -> ModelSelector {
    seen.model.clone().unwrap_or_else(|| door.settings.model())
}

/// How a session stands.
pub(super) fn status(seen: &Whole) -> CommandReply {
    CommandReply::Status(StatusReply {
        session: seen.key.clone(),
        messages: seen.lines.len(),
        tokens: seen.row.tokens(),
        model: seen.model.clone().unwrap_or(ModelSelector { provider: String::new(), id: String::new() }),
        thinking: seen.thinking.as_deref().and_then(ThinkLevel::from_text),
        reset: seen.profile.renewal.map(|renewal| methods::policy(renewal).mode),
    })
}

/// Stops the run that works. What is asked about is withdrawn with it, and the queue goes on.
async fn stop(door: &Arc<Door>, seen: &Seen, word: Word) -> Result<CommandReply, GsvError> {
    if seen.working.is_none() && !seen.exists {
        return Ok(CommandReply::NothingRuns);
    }
    // Where nothing runs, a summary may be made behind which the agent would go on by itself.
    let session = super::super::registry::session_of(&seen.key);
    let abort = word.over(engine::Command::Run(run::Command::Abort { session }));
    let stopped = door.context.handle.source(InboxLane::Result).send_command(abort).await;
    Ok(match (stopped.map_err(|refused| lives::refusal(&refused))?.outcome, &seen.awaited) {
        (engine::EngineReply::Stopping(run), _) => {
            let working = seen.working.as_ref().filter(|working| working.run == run);
            let working = working.map(|working| (working.called.clone(), working.calls));
            // It may have begun since it was looked.
            let begun = || (seen.awaited.clone().unwrap_or_else(|| run.to_string()), 0);
            let (run, cancelled) = working.unwrap_or_else(begun);
            CommandReply::Stopped { run, cancelled }
        }
        (engine::EngineReply::Done, Some(awaited)) => CommandReply::Stopped { run: awaited.clone(), cancelled: 0 },
        (engine::EngineReply::Done, None) => CommandReply::SummaryStopped,
        _ => CommandReply::NothingRuns,
    })
}
