//! Slash commands in a session.

use std::sync::Arc;

use countersign_core::{
    engine, run,
    session::{self, SessionSetting},
};
use countersign_protocol::gsv::{
    Fault,
    chat::Sent,
    command::{Command, Reply, Status, failed},
    directive::{Level, Model},
};
use countersign_runtime::Lane;

use super::{
    super::Door,
    lives::{self, Word},
    methods,
    seen::{Seen, Whole, see, see_whole},
    send::{Speaker, heard_of},
};

/// Does what a command asks for. Whatever goes wrong is part of the answer.
pub(super) async fn answer(door: &Arc<Door>, seen: Seen, command: Command, speaker: &Speaker) -> Sent {
    let name = command.name();
    match work(door, seen, command, speaker).await {
        Ok(Ok(reply)) => Sent::Command { command: name, response: Some(reply.text(speaker.style)), error: None },
        Ok(Err(error)) => Sent::Command { command: name, response: None, error: Some(error) },
        Err(fault) => Sent::Command { command: name, response: None, error: Some(failed(&fault.message)) },
    }
}

async fn work(
    door: &Arc<Door>,
    seen: Seen,
    command: Command,
    speaker: &Speaker,
) -> Result<Result<Reply, String>, Fault> {
    let word = Word { by: speaker.by.clone(), heard: heard_of(door, &seen.key, speaker) };
    Ok(match command {
        Command::Help => Ok(Reply::Help),
        Command::Status => Ok(status(&see_whole(door, &seen.key).await?)),
        Command::Stop => Ok(stop(door, &seen, word).await?),
        Command::Reset => {
            let renewed = lives::renew(door, seen, word).await?;
            Ok(Reply::Reset { archived: renewed.archived })
        }
        Command::Compact { keep: Err(error) } => Err(error.to_owned()),
        Command::Compact { keep: Ok(keep) } => {
            let whole = see_whole(door, &seen.key).await?;
            let (kept, archived, _) = lives::trim(door, &whole, keep, word).await?;
            Ok(Reply::Compacted { kept, archived })
        }
        Command::Model { selector: None } => Ok(Reply::CurrentModel(model(door, &seen))),
        Command::Model { selector: Some(selector) } => match Model::read(&selector, &model(door, &seen).provider) {
            None => Err(Model::invalid(&selector)),
            Some(model) => {
                let id = lives::open(door, &seen.key).await?;
                lives::set(door, &id, SessionSetting::Model(door.settings.reference(&door.context, &model))).await?;
                let mut profile = see(door, &seen.key).await?.profile;
                profile.model = Some((model.provider.clone(), model.id.clone()));
                let set = session::Command::Set { setting: SessionSetting::Profile(Box::new(profile)), entry: None };
                lives::ask(door, word.over(engine::Command::Session(id, set))).await?;
                Ok(Reply::ModelSet(model))
            }
        },
        Command::Think { level: None } => Ok(Reply::CurrentLevel(seen.thinking.as_deref().and_then(Level::read))),
        Command::Think { level: Some(level) } => match Level::read(&level) {
            None => Err(Level::invalid(&level)),
            Some(level) => {
                let id = lives::open(door, &seen.key).await?;
                let setting = SessionSetting::Thinking(Some(level.shown().to_owned()));
                let set = session::Command::Set { setting, entry: None };
                lives::ask(door, word.over(engine::Command::Session(id, set))).await?;
                Ok(Reply::LevelSet(level))
            }
        },
    })
}

fn model(door: &Door, seen: &Seen) -> Model {
    seen.model.clone().unwrap_or_else(|| door.settings.model())
}

/// How a session stands.
pub(super) fn status(seen: &Whole) -> Reply {
    Reply::Status(Status {
        session: seen.key.clone(),
        messages: seen.lines.len(),
        tokens: seen.row.tokens(),
        model: seen.model.clone().unwrap_or(Model { provider: String::new(), id: String::new() }),
        thinking: seen.thinking.as_deref().and_then(Level::read),
        reset: seen.profile.renewal.map(|renewal| methods::policy(renewal).mode),
    })
}

/// Stops the run that works. What is asked about is withdrawn with it, and the queue goes on.
async fn stop(door: &Arc<Door>, seen: &Seen, word: Word) -> Result<Reply, Fault> {
    if seen.working.is_none() && !seen.exists {
        return Ok(Reply::NothingRuns);
    }
    // Where nothing runs, a summary may be made behind which the agent would go on by itself.
    let session = super::super::registry::session_of(&seen.key);
    let abort = word.over(engine::Command::Run(run::Command::Abort { session }));
    let stopped = door.context.handle.source(Lane::Result).ask(abort).await;
    Ok(match (stopped.map_err(|refused| lives::refusal(&refused))?.outcome, &seen.awaited) {
        (engine::EngineReply::Stopping(run), _) => {
            let working = seen.working.as_ref().filter(|working| working.run == run);
            let working = working.map(|working| (working.called.clone(), working.calls));
            // It may have begun since it was looked.
            let begun = || (seen.awaited.clone().unwrap_or_else(|| run.to_string()), 0);
            let (run, cancelled) = working.unwrap_or_else(begun);
            Reply::Stopped { run, cancelled }
        }
        (engine::EngineReply::Done, Some(awaited)) => Reply::Stopped { run: awaited.clone(), cancelled: 0 },
        (engine::EngineReply::Done, None) => Reply::SummaryStopped,
        _ => Reply::NothingRuns,
    })
}
