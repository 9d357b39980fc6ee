//! Reads what a person's words in a chat mean while something waits for an answer, or did a moment ago.
//!
//! It must not know which chat: a text and what is waited for go in. Whether that person may answer is the gate's to say.

use std::time::Duration;

/// How long after it was decided a bare word (`yes`, `no`) still counts as an answer to it, and not as a message.
pub const LATE: Duration = Duration::from_secs(60);

/// How far an allow reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// This once.
    Once,
    /// For the session.
    Session,
    /// For good.
    Always,
}

/// An answer in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Words {
    /// It may be done.
    Allow(Reach),
    /// It may not, with what that person said.
    Deny {
        /// Absent if nothing was said.
        reason: Option<String>,
    },
}

/// What there was before a text came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Situation<'a> {
    /// The gate that waits. One is asked about at a time.
    pub waiting: Option<Waiting<'a>>,
    /// The gate that was decided last, if there was one.
    pub decided: Option<Decided<'a>>,
}

/// A gate that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting<'a> {
    /// The token that its card shows.
    pub token: &'a str,
    /// Whether its card was shown before the text came. Nobody answers what they have not seen.
    pub is_shown: bool,
}

/// A gate that is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided<'a> {
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
pub enum Meaning {
    /// It answers the gate that waits.
    Answer(Words),
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
struct Said {
    words: Words,
    token: Option<String>,
    /// With a slash: never a message.
    is_command: bool,
}

/// Decides what `text` means in this situation.
///
/// Answers are `yes`, `y`, `allow`, `no`, `n` and `deny`, each alone or with the token of the card behind it; the token
/// alone, which allows once; `/approve [token] [once|session|always]` and `/deny [token] [reason]`. Only a whole text
/// is an answer: a sentence that begins with yes is a message.
pub fn read(text: &str, situation: Situation<'_>) -> Meaning {
    let text = text.trim();
    let Situation { waiting, decided } = situation;
    let known = |word: &str| {
        let is = |token: &str| token.eq_ignore_ascii_case(word);
        waiting.is_some_and(|waiting| is(waiting.token)) || decided.is_some_and(|decided| is(decided.token))
    };
    let said = match said(text, known) {
        Ok(Some(said)) => said,
        Ok(None) => return Meaning::Message,
        Err(rest) => return rest,
    };
    let is_named = |token: &str| said.token.as_ref().is_none_or(|named| named.eq_ignore_ascii_case(token));
    let late = decided.filter(|decided| is_named(decided.token));
    if let Some(waiting) = waiting.filter(|waiting| is_named(waiting.token)) {
        let is_for_another =
            |decided: Decided<'_>| decided.is_elsewhere && decided.ago <= LATE && !decided.spoken_since;
        return match late {
            // Who names it has seen it.
            _ if said.token.is_some() => Meaning::Answer(said.words),
            Some(decided) if !waiting.is_shown || is_for_another(decided) => Meaning::Late,
            _ if !waiting.is_shown => Meaning::NotShown,
            _ => Meaning::Answer(said.words),
        };
    }
    match late {
        // Who names the gate, or commands, surely does not chat.
        Some(_) if said.is_command || said.token.is_some() => Meaning::Late,
        Some(decided) if waiting.is_none() && decided.ago <= LATE && !decided.spoken_since => Meaning::Late,
        Some(_) | None => match said.token {
            Some(token) => Meaning::OtherToken(token),
            None if said.is_command => Meaning::NothingWaits,
            None => Meaning::Message,
        },
    }
}

fn said(text: &str, known: impl Fn(&str) -> bool) -> Result<Option<Said>, Meaning> {
    let (first, rest) = text.split_once(char::is_whitespace).map_or((text, ""), |(first, rest)| (first, rest.trim()));
    let command = first.to_ascii_lowercase();
    match command.as_str() {
        "/approve" => return approve(rest).map(Some),
        "/deny" => {
            let (token, reason) = named(rest);
            let reason = (!reason.is_empty()).then(|| reason.to_owned());
            return Ok(Some(Said { words: Words::Deny { reason }, token, is_command: true }));
        }
        _ => {}
    }
    let word = command.trim_end_matches(['.', '!']);
    let words = match word {
        "yes" | "y" | "allow" => Words::Allow(Reach::Once),
        "no" | "n" | "deny" => Words::Deny { reason: None },
        _ if rest.is_empty() && known(first) => {
            let token = Some(first.to_owned());
            return Ok(Some(Said { words: Words::Allow(Reach::Once), token, is_command: false }));
        }
        _ => return Ok(None),
    };
    match rest {
        "" => Ok(Some(Said { words, token: None, is_command: false })),
        token if known(token) => Ok(Some(Said { words, token: Some(token.to_owned()), is_command: false })),
        // A sentence.
        _ => Ok(None),
    }
}

fn approve(rest: &str) -> Result<Said, Meaning> {
    let (token, rest) = named(rest);
    let reach = match rest.to_ascii_lowercase().as_str() {
        "" | "once" => Reach::Once,
        "session" => Reach::Session,
        "always" => Reach::Always,
        _ => return Err(Meaning::Unclear(rest.to_owned())),
    };
    Ok(Said { words: Words::Allow(reach), token, is_command: true })
}

/// A token at the beginning, `#` and at least four digits or letters, and what is behind it.
fn named(text: &str) -> (Option<String>, &str) {
    let (first, rest) = text.split_once(char::is_whitespace).map_or((text, ""), |(first, rest)| (first, rest.trim()));
    if is_token(first) { (Some(first.to_owned()), rest) } else { (None, text) }
}

/// Whether a word has the form of a token: `#` and at least four letters or digits.
pub fn is_token(word: &str) -> bool {
    word.strip_prefix('#').is_some_and(|rest| rest.len() >= 4 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}
