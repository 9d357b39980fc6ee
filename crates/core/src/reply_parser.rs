//! Reads what a person's words in a chat mean while something waits for an answer, or did a moment ago.
//!
//! It must not know which chat: a text and what is waited for go in. Whether that person may answer is the gate's to say.

use std::time::Duration;

/// How long after it was decided a bare word (`yes`, `no`) still counts as an answer to it, and not as a message.
pub const LATE: Duration = Duration::from_secs(60);

/// How far an allow reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowReach {
    /// This once.
    Once,
    /// For the session.
    Session,
    /// For good.
    Always,
}

/// An answer in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyAnswer {
    /// It may be done.
    Allow(AllowReach),
    /// It may not, with what that person said.
    Deny {
        /// Absent if nothing was said.
        reason: Option<String>,
    },
}

/// What there was before a text came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyContext<'a> {
    /// The gate that waits. One is asked about at a time.
    pub waiting: Option<WaitingGate<'a>>,
    /// The gate that was decided last, if there was one.
    pub decided: Option<DecidedGate<'a>>,
}

/// A gate that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingGate<'a> {
    /// The token that its card shows.
    pub token: &'a str,
    /// Whether its card was shown before the text came. Nobody answers what they have not seen.
    pub is_shown: bool,
}

/// A gate that is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecidedGate<'a> {
    /// The token that its card shows.
    pub token: &'a str,
    /// How long ago.
    pub ago: Duration,
    /// Whether a message was said since.
    pub spoken_since: bool,
    /// Whether somebody else decided it: whoever said the text may not know that yet.
    pub is_elsewhere: bool,
}

/// What a text means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyIntent {
    /// It answers the gate that waits.
    Answer(ReplyAnswer),
    /// It answers the gate that was decided last, and is told who did so.
    Late,
    /// It is an answer, and the card of what waits was not shown yet when it was said.
    NotShown,
    /// It is a message. If a gate waits, whoever said it is told so, and it queues.
    Message,
    /// It is `/approve` or `/deny`, and nothing waits.
    NothingWaits,
    /// It names a gate by a token that is neither of the gate that waits nor of the last.
    OtherToken(String),
    /// It is `/approve` with something behind it that says neither how far it reaches nor for which gate.
    Unclear(String),
}

/// A text that may be an answer, by itself.
struct ParsedReply {
    words: ReplyAnswer,
    token: Option<String>,
    /// With a slash: never a message.
    is_command: bool,
}

/// Decides what `text` means in this situation.
///
/// Answers are `yes`, `y`, `allow`, `no`, `n` and `deny`, each alone or with the token of the card behind it; the token
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
            // Who names it has seen it.
            _ if reply.token.is_some() => ReplyIntent::Answer(reply.words),
            Some(decided) if !waiting.is_shown || is_for_another(decided) => ReplyIntent::Late,
            _ if !waiting.is_shown => ReplyIntent::NotShown,
            _ => ReplyIntent::Answer(reply.words),
        };
    }
    match late {
        // Who names the gate, or commands, surely does not chat.
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

/// A token at the beginning, `#` and at least four digits or letters, and what is behind it.
fn split_token(text: &str) -> (Option<String>, &str) {
    let (first, rest) = text.split_once(char::is_whitespace).map_or((text, ""), |(first, rest)| (first, rest.trim()));
    if is_token(first) { (Some(first.to_owned()), rest) } else { (None, text) }
}

/// Whether a word has the form of a token: `#` and at least four letters or digits.
pub fn is_token(word: &str) -> bool {
    word.strip_prefix('#').is_some_and(|rest| rest.len() >= 4 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}
