//! Parses a person's words in a chat while a gate waits for an answer, or was decided a moment ago.
//!
//! It must not know which chat: the input is a text and the pending gate. The gate decides whether that person may answer.

use std::time::Duration;

/// Time after the decision in which a bare word (`yes`, `no`) still counts as an answer to it, and not as a message.
pub const LATE: Duration = Duration::from_secs(60);

/// Reach of an allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowReach {
    /// For this call only.
    Once,
    /// For the rest of the session.
    Session,
    /// Permanently.
    Always,
}

/// An answer in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyAnswer {
    /// The action is allowed.
    Allow(AllowReach),
    /// The action is denied, with the person's reason.
    Deny {
        /// The reason, if there is one.
        reason: Option<String>,
    },
}

/// Situation before a text came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyContext<'a> {
    /// The pending gate. One is shown at a time.
    pub waiting: Option<WaitingGate<'a>>,
    /// The gate that was decided last, if there was one.
    pub decided: Option<DecidedGate<'a>>,
}

/// A pending gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingGate<'a> {
    /// The token that its card shows.
    pub token: &'a str,
    /// True if its card was shown before the text came. An answer to an unseen card does not count.
    pub is_shown: bool,
}

/// A gate that is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecidedGate<'a> {
    /// The token that its card shows.
    pub token: &'a str,
    /// Time since the decision.
    pub ago: Duration,
    /// True if a message was sent since.
    pub spoken_since: bool,
    /// True if it was decided elsewhere: the sender of the text may not know that yet.
    pub is_elsewhere: bool,
}

/// Meaning of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyIntent {
    /// Answer to the pending gate.
    Answer(ReplyAnswer),
    /// Answer to the gate that was decided last; the reply names the decider.
    Late,
    /// Answer that was sent before the card of the pending gate was shown.
    NotShown,
    /// Message. If a gate is pending, the sender is notified of it, and the message queues.
    Message,
    /// `/approve` or `/deny` without a pending gate.
    NothingWaits,
    /// Token of a gate that is neither the pending nor the last.
    OtherToken(String),
    /// `/approve` with a text after it that is neither a reach nor a gate.
    Unclear(String),
}

/// A text that may be an answer, by itself.
struct ParsedReply {
    words: ReplyAnswer,
    token: Option<String>,
    /// True if it begins with a slash: never a message.
    is_command: bool,
}

/// Decides the meaning of `text` in this situation.
///
/// Answers are `yes`, `y`, `allow`, `no`, `n` and `deny`, each alone or with the token of the card after it; the token
/// alone, which allows once; `/approve [token] [once|session|always]` and `/deny [token] [reason]`. Only a whole text
/// is an answer: a sentence that begins with yes is a message.
pub fn parse_reply(text: &str, situation: ReplyContext<'_>) -> ReplyIntent {
    let text = text.trim();
    let ReplyContext { waiting, decided } = situation;
    let known = |word: &str| {
        let is = |token: &str| token.eq_ignore_ascii_case(word);
        waiting.is_some_and(|waiting| is(waiting.token)) || decided.is_some_and(|decided| is(decided.token))
    };
    let reply = match parse_answer(text, known) {
        Ok(Some(reply)) => reply,
        Ok(None) => return ReplyIntent::Message,
        Err(rest) => return rest,
    };
    let is_named = |token: &str| reply.token.as_ref().is_none_or(|named| named.eq_ignore_ascii_case(token));
    let late = decided.filter(|decided| is_named(decided.token));
    if let Some(waiting) = waiting.filter(|waiting| is_named(waiting.token)) {
        let is_for_another =
            |decided: DecidedGate<'_>| decided.is_elsewhere && decided.ago <= LATE && !decided.spoken_since;
        return match late {
            // A sender who names it has seen it.
            _ if reply.token.is_some() => ReplyIntent::Answer(reply.words),
            Some(decided) if !waiting.is_shown || is_for_another(decided) => ReplyIntent::Late,
            _ if !waiting.is_shown => ReplyIntent::NotShown,
            _ => ReplyIntent::Answer(reply.words),
        };
    }
    match late {
        // A sender who names the gate, or uses a command, surely does not chat.
        Some(_) if reply.is_command || reply.token.is_some() => ReplyIntent::Late,
        Some(decided) if waiting.is_none() && decided.ago <= LATE && !decided.spoken_since => ReplyIntent::Late,
        Some(_) | None => match reply.token {
            Some(token) => ReplyIntent::OtherToken(token),
            None if reply.is_command => ReplyIntent::NothingWaits,
            None => ReplyIntent::Message,
        },
    }
}

fn parse_answer(text: &str, known: impl Fn(&str) -> bool) -> Result<Option<ParsedReply>, ReplyIntent> {
    let (first, rest) = text.split_once(char::is_whitespace).map_or((text, ""), |(first, rest)| (first, rest.trim()));
    let command = first.to_ascii_lowercase();
    match command.as_str() {
        "/approve" => return parse_approve(rest).map(Some),
        "/deny" => {
            let (token, reason) = split_token(rest);
            let reason = (!reason.is_empty()).then(|| reason.to_owned());
            return Ok(Some(ParsedReply { words: ReplyAnswer::Deny { reason }, token, is_command: true }));
        }
        _ => {}
    }
    let word = command.trim_end_matches(['.', '!']);
    let words = match word {
        "yes" | "y" | "allow" => ReplyAnswer::Allow(AllowReach::Once),
        "no" | "n" | "deny" => ReplyAnswer::Deny { reason: None },
        _ if rest.is_empty() && known(first) => {
            let token = Some(first.to_owned());
            return Ok(Some(ParsedReply { words: ReplyAnswer::Allow(AllowReach::Once), token, is_command: false }));
        }
        _ => return Ok(None),
    };
    match rest {
        "" => Ok(Some(ParsedReply { words, token: None, is_command: false })),
        token if known(token) => Ok(Some(ParsedReply { words, token: Some(token.to_owned()), is_command: false })),
        // A sentence.
        _ => Ok(None),
    }
}

fn parse_approve(rest: &str) -> Result<ParsedReply, ReplyIntent> {
    let (token, rest) = split_token(rest);
    let reach = match rest.to_ascii_lowercase().as_str() {
        "" | "once" => AllowReach::Once,
        "session" => AllowReach::Session,
        "always" => AllowReach::Always,
        _ => return Err(ReplyIntent::Unclear(rest.to_owned())),
    };
    Ok(ParsedReply { words: ReplyAnswer::Allow(reach), token, is_command: true })
}

/// Splits off a token at the beginning, `#` and at least four digits or letters, from the rest.
fn split_token(text: &str) -> (Option<String>, &str) {
    let (first, rest) = text.split_once(char::is_whitespace).map_or((text, ""), |(first, rest)| (first, rest.trim()));
    if is_token(first) { (Some(first.to_owned()), rest) } else { (None, text) }
}

/// Reports whether a word has the form of a token: `#` and at least four letters or digits.
pub fn is_token(word: &str) -> bool {
    word.strip_prefix('#').is_some_and(|rest| rest.len() >= 4 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}
