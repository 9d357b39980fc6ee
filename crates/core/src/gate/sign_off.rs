//! What can be said to a plan or to an execution, and what it means.
//!
//! Only an exact [`APPROVE`] lets anything go on. Words of somebody's own, with no decision before them, are what speaks against it.

use super::event::Kind;

/// It may be carried out, or is signed off.
pub const APPROVE: &str = "approve";
/// The plan must be changed first, as the words behind it say.
pub const CHANGE: &str = "request-changes";
/// The plan is off.
pub const REJECT: &str = "reject";
/// The execution is not signed off.
pub const DECLINE: &str = "decline";

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It may be carried out, or is signed off.
    Approve,
    /// The plan must be changed first.
    Change,
    /// The plan is off, or the execution is not signed off.
    Refuse,
}

/// The choices of a gate of this kind; none for other kinds.
pub(crate) const fn choices(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Plan => &[APPROVE, CHANGE, REJECT],
        Kind::Execution => &[APPROVE, DECLINE],
        Kind::Approval | Kind::Question | Kind::Pairing | Kind::Budget => &[],
    }
}

/// What words that counted mean, and what was said beside the decision.
pub fn decision(said: &[String]) -> Option<(Decision, Option<&str>)> {
    let (first, rest) = said.split_first()?;
    let decision = match first.as_str() {
        APPROVE => Decision::Approve,
        CHANGE => Decision::Change,
        REJECT | DECLINE => Decision::Refuse,
        _ => return None,
    };
    Some((decision, rest.first().map(String::as_str)))
}

/// Puts words into the order in which they are recorded: a decision, then what was said beside it.
pub(super) fn ordered(kind: Kind, said: &[String]) -> Result<Vec<String>, &'static str> {
    let is_label = |word: &String| choices(kind).contains(&word.as_str());
    let said: Vec<String> = match said {
        [label] if is_label(label) => vec![label.clone()],
        [label, words] if is_label(label) && !is_label(words) => vec![label.clone(), words.clone()],
        [words] => vec![if kind == Kind::Plan { CHANGE } else { DECLINE }.to_owned(), words.clone()],
        _ => return Err("it takes one decision, and words beside it"),
    };
    if said == [CHANGE] { Err("changes have to be named") } else { Ok(said) }
}
