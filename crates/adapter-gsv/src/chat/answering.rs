//! What a message means while something waits for an answer, or did a moment ago.

use std::sync::Arc;

use countersign_core::{
    engine::{Command, CommandError, EngineReply},
    gate::{self, AnswerError, ApprovalScope, GateReply},
    id::RunId,
    reply_parser::{self, AllowReach, DecidedGate, ReplyAnswer, ReplyContext, ReplyIntent, WaitingGate},
};
use countersign_protocol::gsv::{
    GsvError,
    chat::{ChatSendResult, Directives},
    command::failure_text,
};
use countersign_runtime::{InboxLane, OwnerError};

use super::{
    super::{Door, channels::media, registry::session_of},
    card::{resolved, token},
    cards::in_chat,
    seen::{Asked, Seen},
    send::{Speaker, Spoken},
};

/// What a message is told that is none, or came too late.
fn told(command: &'static str, response: impl Into<String>) -> Option<ChatSendResult> {
    Some(ChatSendResult::Command { command, response: Some(response.into()), error: None })
}

fn wrong(command: &'static str, error: impl Into<String>) -> Option<ChatSendResult> {
    Some(ChatSendResult::Command { command, response: None, error: Some(error.into()) })
}

/// What is said to a message that comes while something else is awaited.
pub(super) fn awaited(asked: &Asked, speaker: &Speaker) -> String {
    if !speaker.may_answer(asked) {
        return "Somebody else's answer is awaited first. This message waits behind it.".to_owned();
    }
    let token = token(asked.gate);
    format!("An answer to {token} is awaited first: `yes`, `no`, or `/stop`. This message waits behind it.")
}

/// Takes a message for an answer. `None` if it is a message.
///
/// # Errors
/// As those of [`media::keep_for_words()`]: then it answers nothing, and may come again.
pub(super) async fn answer(
    door: &Arc<Door>,
    seen: &Seen,
    spoken: &Spoken<'_>,
    run: &str,
    speaker: &Speaker,
) -> Result<Option<ChatSendResult>, GsvError> {
    let session = session_of(&seen.key);
    let place = if speaker.origin.is_some() { in_chat(&session) } else { session };
    let is_shown = |asked: &Asked| door.cards.was_shown(&place, asked.gate, speaker.came);
    let for_speaker = seen.waiting.as_ref().filter(|asked| speaker.may_answer(asked));
    // What was said before a question was asked does not answer it.
    if let Some(asked) = for_speaker.filter(|asked| asked.is_question && is_shown(asked)) {
        let more = media::keep_for_words(door, &seen.key, spoken.media).await?;
        let said =
            Some(spoken.text).filter(|text| !text.trim().is_empty()).into_iter().chain(more.iter().map(String::as_str));
        let said = said.collect::<Vec<_>>().join("\n");
        return Ok(decide(door, asked, GateReply::Say(vec![said]), "answer", run, speaker).await);
    }
    Ok(at_a_gate(door, seen, spoken.text, run, speaker, is_shown).await)
}

/// The same where no question waits.
async fn at_a_gate(
    door: &Arc<Door>,
    seen: &Seen,
    text: &str,
    run: &str,
    speaker: &Speaker,
    is_shown: impl Fn(&Asked) -> bool,
) -> Option<ChatSendResult> {
    let for_speaker = seen.waiting.as_ref().filter(|asked| speaker.may_answer(asked));
    let waiting = for_speaker.filter(|asked| !asked.is_question);
    let waiting = waiting.map(|asked| (token(asked.gate), is_shown(asked)));
    let decided = seen.decided.as_ref().filter(|asked| speaker.may_answer(asked));
    let decided = decided.and_then(|asked| Some((token(asked.gate), asked.decided.as_ref()?, asked.run)));
    let now = door.context.clock.now();
    let situation = ReplyContext {
        waiting: waiting.as_ref().map(|(token, is_shown)| WaitingGate { token, is_shown: *is_shown }),
        decided: decided.as_ref().map(|(token, outcome, _)| DecidedGate {
            token,
            ago: now.since(outcome.at),
            spoken_since: seen.row.last_said_at > outcome.at.0,
            is_elsewhere: outcome.by.as_ref() != Some(&speaker.by),
        }),
    };
    // Who names a token has seen its card: none is named before.
    let shown = waiting.as_ref().filter(|(_, is_shown)| *is_shown);
    let hint = shown.map_or_else(String::new, |(waiting, _)| {
        format!(" {waiting} waits now: `/approve {waiting}` or `/deny {waiting}`.")
    });
    // Its name is the one that an answer gave to the run: the same answer came again.
    let is_repeated = seen.working.as_ref().is_some_and(|working| {
        let of_run = |of: &Option<RunId>| *of == Some(working.run);
        working.called == run
            && decided.as_ref().is_some_and(|(_, outcome, of)| of_run(of) && outcome.by.as_ref() == Some(&speaker.by))
    });
    let names_it =
        waiting.as_ref().is_some_and(|(token, _)| text.to_ascii_lowercase().contains(&token.to_ascii_lowercase()));
    let is_denial = text.trim_start().to_ascii_lowercase().starts_with("/deny");
    let command = if is_denial { "deny" } else { "approve" };
    match reply_parser::parse_reply(text, situation) {
        ReplyIntent::Message => None,
        ReplyIntent::Late | ReplyIntent::NotShown if is_repeated => Some(started(run)),
        ReplyIntent::Answer(_) if is_repeated && !names_it => {
            wrong(command, format!("The run is called so already, so this may be an answer that came twice.{hint}"))
        }
        ReplyIntent::Answer(words) => {
            let command = if matches!(words, ReplyAnswer::Deny { .. }) { "deny" } else { "approve" };
            let answer = match words {
                ReplyAnswer::Allow(AllowReach::Once) => GateReply::Allow(ApprovalScope::Once),
                ReplyAnswer::Allow(AllowReach::Session) => GateReply::Allow(ApprovalScope::Session),
                ReplyAnswer::Allow(AllowReach::Always) => GateReply::Allow(ApprovalScope::Always),
                ReplyAnswer::Deny { reason } => GateReply::Deny { reason },
            };
            decide(door, for_speaker?, answer, command, run, speaker).await
        }
        ReplyIntent::Late => {
            let (_, outcome, _) = decided?;
            told(command, format!("Too late: {}{hint}", outcome.text))
        }
        ReplyIntent::NotShown => {
            wrong(command, format!("What waits was not asked about yet when this was said.{hint}"))
        }
        ReplyIntent::NothingWaits if seen.waiting.is_some() => wrong(command, "That is for somebody else to answer."),
        ReplyIntent::NothingWaits => wrong(command, "Nothing waits for an answer."),
        ReplyIntent::OtherToken(token) => {
            let waits = shown.map_or_else(String::new, |(waiting, _)| format!(" {waiting} does."));
            wrong(command, format!("{token} does not wait for an answer.{waits}"))
        }
        ReplyIntent::Unclear(rest) => {
            wrong(command, format!("Not understood: {rest}. Usage: /approve [#token] [once|session|always]"))
        }
    }
}

/// What is said to an answer that counts.
fn started(run: &str) -> ChatSendResult {
    ChatSendResult::Started { run_id: run.to_owned(), queued: false, directives: Directives::default() }
}

async fn decide(
    door: &Arc<Door>,
    asked: &Asked,
    answer: GateReply,
    command: &'static str,
    run: &str,
    speaker: &Speaker,
) -> Option<ChatSendResult> {
    let source = door.context.handle.source(InboxLane::Result);
    let (by, reference, key) = (speaker.by.clone(), run.to_owned(), speaker.key());
    let answer = gate::Command::AnswerAs { gate: asked.gate, answer, by, reference, key };
    let answered = source.send_command(Command::Gate(answer)).await;
    match answered.map(|reply| reply.outcome) {
        Ok(EngineReply::Voted { have, need }) => {
            told(command, format!("Your approval of {} counts: {have} of {need}.", token(asked.gate)))
        }
        Ok(_) => Some(started(run)),
        Err(OwnerError::Refusal(CommandError::Answer(AnswerError::AlreadyResolved { gate, resolution, by }))) => {
            told(command, format!("Too late: {}", resolved(gate, &resolution, by.as_ref())))
        }
        Err(refused) => wrong(command, failure_text(&refused.to_string())),
    }
}
