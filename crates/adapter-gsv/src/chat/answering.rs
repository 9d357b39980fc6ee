//! Interprets messages while a gate waits for an answer, or shortly after.

use std::sync::Arc;

use countersign_core::{
    channel::MessageOrigin,
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
    super::{GsvAdapter, channels::media, registry::session_of},
    chat_card::{gate_token, resolution_text},
    send::{MessageAuthor, MessageInput},
    session_snapshot::{SessionGate, SessionSnapshot},
    shown_cards::in_chat,
};

/// Returns the reply to a message that is a late or invalid answer.
fn command_reply(command: &'static str, response: impl Into<String>) -> Option<ChatSendResult> {
    Some(ChatSendResult::Command { command, response: Some(response.into()), error: None })
}

fn command_error(command: &'static str, error: impl Into<String>) -> Option<ChatSendResult> {
    Some(ChatSendResult::Command { command, response: None, error: Some(error.into()) })
}

/// Returns the notice to the sender of a message that waits behind a gate. `origin` is that of a message from a chat network.
pub(super) fn awaiting_text(gate: &SessionGate, origin: Option<&MessageOrigin>) -> String {
    if origin.is_some_and(|origin| !gate.may_be_answered_by(origin)) {
        return "Somebody else's answer is awaited first. This message waits behind it.".to_owned();
    }
    let token = gate_token(gate.id);
    format!("An answer to {token} is awaited first: `yes`, `no`, or `/stop`. This message waits behind it.")
}

/// Takes a message for an answer. `None` if it is a message.
///
/// # Errors
/// As those of [`media::store_media_as_text()`]: then it answers nothing, and may come again.
pub(super) async fn try_answer(
    door: &Arc<GsvAdapter>,
    seen: &SessionSnapshot,
    spoken: &MessageInput<'_>,
    run: &str,
    speaker: &MessageAuthor,
) -> Result<Option<ChatSendResult>, GsvError> {
    let session = session_of(&seen.key);
    let place = if speaker.origin.is_some() { in_chat(&session) } else { session };
    let is_shown = |gate: &SessionGate| door.cards.was_shown(&place, gate.id, speaker.came);
    let for_speaker = seen.waiting.as_ref().filter(|gate| speaker.may_answer(gate));
    // A message sent before a question was shown does not answer it.
    if let Some(gate) = for_speaker.filter(|gate| gate.is_question && is_shown(gate)) {
        let more = media::store_media_as_text(door, &seen.key, spoken.media).await?;
        let texts = Some(spoken.reply)
            .filter(|text| !text.trim().is_empty())
            .into_iter()
            .chain(more.iter().map(String::as_str));
        let text = texts.collect::<Vec<_>>().join("\n");
        return Ok(send_answer(door, gate, GateReply::Say(vec![text]), "answer", run, speaker).await);
    }
    Ok(answer_gate(door, seen, spoken.reply, run, speaker, is_shown).await)
}

/// Does the same where no question waits.
async fn answer_gate(
    door: &Arc<GsvAdapter>,
    seen: &SessionSnapshot,
    text: &str,
    run: &str,
    speaker: &MessageAuthor,
    is_shown: impl Fn(&SessionGate) -> bool,
) -> Option<ChatSendResult> {
    let for_speaker = seen.waiting.as_ref().filter(|gate| speaker.may_answer(gate));
    let waiting = for_speaker.filter(|gate| !gate.is_question);
    let waiting = waiting.map(|gate| (gate_token(gate.id), is_shown(gate)));
    let decided = seen.decided.as_ref().filter(|gate| speaker.may_answer(gate));
    let decided = decided.and_then(|gate| Some((gate_token(gate.id), gate.decided.as_ref()?, gate.run)));
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
    // A sender who names a token has seen its card: no token is shown before.
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
        ReplyIntent::Late | ReplyIntent::NotShown if is_repeated => Some(started_reply(run)),
        ReplyIntent::Answer(_) if is_repeated && !names_it => command_error(
            command,
            format!("The run is called so already, so this may be an answer that came twice.{hint}"),
        ),
        ReplyIntent::Answer(words) => {
            let command = if matches!(words, ReplyAnswer::Deny { .. }) { "deny" } else { "approve" };
            let answer = match words {
                ReplyAnswer::Allow(AllowReach::Once) => GateReply::Allow(ApprovalScope::Once),
                ReplyAnswer::Allow(AllowReach::Session) => GateReply::Allow(ApprovalScope::Session),
                ReplyAnswer::Allow(AllowReach::Always) => GateReply::Allow(ApprovalScope::Always),
                ReplyAnswer::Deny { reason } => GateReply::Deny { reason },
            };
            send_answer(door, for_speaker?, answer, command, run, speaker).await
        }
        ReplyIntent::Late => {
            let (_, outcome, _) = decided?;
            command_reply(command, format!("Too late: {}{hint}", outcome.text))
        }
        ReplyIntent::NotShown => {
            command_error(command, format!("What waits was not asked about yet when this was said.{hint}"))
        }
        ReplyIntent::NothingWaits if seen.waiting.is_some() => {
            command_error(command, "That is for somebody else to answer.")
        }
        ReplyIntent::NothingWaits => command_error(command, "Nothing waits for an answer."),
        ReplyIntent::OtherToken(token) => {
            let waits = shown.map_or_else(String::new, |(waiting, _)| format!(" {waiting} does."));
            command_error(command, format!("{token} does not wait for an answer.{waits}"))
        }
        ReplyIntent::Unclear(rest) => {
            command_error(command, format!("Not understood: {rest}. Usage: /approve [#token] [once|session|always]"))
        }
    }
}

/// Returns the reply to an answer that counts.
fn started_reply(run: &str) -> ChatSendResult {
    ChatSendResult::Started { run_id: run.to_owned(), queued: false, directives: Directives::default() }
}

async fn send_answer(
    door: &Arc<GsvAdapter>,
    gate: &SessionGate,
    answer: GateReply,
    command: &'static str,
    run: &str,
    speaker: &MessageAuthor,
) -> Option<ChatSendResult> {
    let source = door.context.handle.source(InboxLane::Result);
    let (by, reference, key) = (speaker.by.clone(), run.to_owned(), speaker.answer_key());
    let answer = gate::Command::AnswerAs { gate: gate.id, answer, by, reference, key };
    let answered = source.send_command(Command::Gate(answer)).await;
    match answered.map(|reply| reply.outcome) {
        Ok(EngineReply::Voted { have, need }) => {
            command_reply(command, format!("Your approval of {} counts: {have} of {need}.", gate_token(gate.id)))
        }
        Ok(_) => Some(started_reply(run)),
        Err(OwnerError::Refusal(CommandError::Answer(AnswerError::AlreadyResolved { gate, resolution, by }))) => {
            command_reply(command, format!("Too late: {}", resolution_text(gate, &resolution, by.as_ref())))
        }
        Err(refused) => command_error(command, failure_text(&refused.to_string())),
    }
}
