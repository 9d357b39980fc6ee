//! What a message means while something waits for an answer, or did a moment ago.

use std::sync::Arc;

use countersign_core::{
    engine::{Command, Refusal, Reply},
    gate::{self, Answer, AnswerRefusal, Scope},
    reading::{self, Decided, Meaning, Reach, Situation, Words},
    run,
};
use countersign_protocol::gsv::{
    chat::{Directives, Sent},
    command::failed,
};
use countersign_runtime::{Lane, Refused};

use super::{
    super::Door,
    card::{resolved, token},
    seen::{Asked, Seen},
    send::Speaker,
};

/// What a message is told that is none, or came too late.
fn told(command: &'static str, response: impl Into<String>) -> Option<Sent> {
    Some(Sent::Command { command, response: Some(response.into()), error: None })
}

fn wrong(command: &'static str, error: impl Into<String>) -> Option<Sent> {
    Some(Sent::Command { command, response: None, error: Some(error.into()) })
}

/// What is said to a message that comes while something else is awaited.
pub(super) fn awaited(asked: &Asked) -> String {
    let token = token(asked.gate);
    format!("An answer to {token} is awaited first: `yes`, `no`, or `/stop`. This message waits behind it.")
}

/// Takes a message for an answer. `None` if it is a message.
pub(super) async fn answer(door: &Arc<Door>, seen: &Seen, text: &str, run: &str, speaker: &Speaker) -> Option<Sent> {
    if let Some(asked) = seen.waiting.as_ref().filter(|asked| asked.is_question) {
        return decide(door, asked, Answer::Say(vec![text.to_owned()]), "answer", run, speaker).await;
    }
    let waiting = seen.waiting.as_ref().map(|asked| token(asked.gate));
    let decided = seen.decided.as_ref().and_then(|asked| Some((token(asked.gate), asked.decided.as_ref()?)));
    let now = door.site.clock.now();
    let situation = Situation {
        waiting: waiting.as_deref(),
        decided: decided.as_ref().map(|(token, (at, _))| Decided {
            token,
            ago: now.since(*at),
            spoken_since: seen.row.last_said_at > at.0,
        }),
    };
    let is_denial = text.trim_start().to_ascii_lowercase().starts_with("/deny");
    let command = if is_denial { "deny" } else { "approve" };
    match reading::read(text, situation) {
        Meaning::Message => None,
        Meaning::Answer(words) => {
            let command = if matches!(words, Words::Deny { .. }) { "deny" } else { "approve" };
            let answer = match words {
                Words::Allow(Reach::Once) => Answer::Allow(Scope::Once),
                Words::Allow(Reach::Session) => Answer::Allow(Scope::Session),
                Words::Allow(Reach::Always) => Answer::Allow(Scope::Always),
                Words::Deny { reason } => Answer::Deny { reason },
            };
            decide(door, seen.waiting.as_ref()?, answer, command, run, speaker).await
        }
        Meaning::Late => {
            let (_, (_, who)) = decided?;
            told(command, format!("Too late: {who}"))
        }
        Meaning::NothingWaits => wrong(command, "Nothing waits for an answer."),
        Meaning::OtherToken(token) => {
            let waits = waiting.map_or_else(String::new, |waiting| format!(" {waiting} does."));
            wrong(command, format!("{token} does not wait for an answer.{waits}"))
        }
        Meaning::Unclear(rest) => {
            wrong(command, format!("Not understood: {rest}. Usage: /approve [#token] [once|session|always]"))
        }
    }
}

async fn decide(
    door: &Arc<Door>,
    asked: &Asked,
    answer: Answer,
    command: &'static str,
    run: &str,
    speaker: &Speaker,
) -> Option<Sent> {
    let source = door.site.handle.source(Lane::Result);
    // First what the run is called from now on: nothing that it says behind the answer may go out under the old name.
    let referred = match asked.run {
        Some(of) => {
            let refer = run::Command::Refer { run: of, gate: asked.gate, reference: run.to_owned() };
            Some(source.send(Command::Run(refer)).await)
        }
        None => None,
    };
    let by = speaker.by.clone();
    let answered = source.ask(Command::Gate(gate::Command::Answer { gate: asked.gate, answer, by, key: None })).await;
    if let Some(referred) = referred {
        // Refused only where the gate was decided before, which the answer says too.
        let _ = referred.await;
    }
    match answered.map(|reply| reply.outcome) {
        Ok(Reply::Voted { have, need }) => {
            told(command, format!("Your approval of {} counts: {have} of {need}.", token(asked.gate)))
        }
        Ok(_) => {
            let directives = Directives::default();
            Some(Sent::Started { run_id: run.to_owned(), queued: false, directives })
        }
        Err(Refused::Refusal(Refusal::Answer(AnswerRefusal::AlreadyResolved { gate, resolution, by }))) => {
            told(command, format!("Too late: {}", resolved(gate, &resolution, by.as_ref())))
        }
        Err(refused) => wrong(command, failed(&refused.to_string())),
    }
}
