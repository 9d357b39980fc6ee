//! What a record says, for people and programs: what each entry is about, in words, and which entries are meant.
//!
//! It must not decide anything, nor know where a record is kept or who is told.

mod contract;
mod filter;
mod networks;
mod planned;
mod trail;
mod words;

use countersign_runtime::store::Stored;
use serde_json::{Value, json};

pub use filter::{Filter, names, time_of};
pub use trail::{About, Outcome, name};
pub use words::resolved;
pub use words::{Narrator, ended};

use crate::time::iso;

/// One entry as an object, for programs.
pub fn told(stored: &Stored, about: &About, text: &str) -> Value {
    json!({
        "lsn": stored.lsn.0,
        "at": iso(stored.at),
        "session": stored.session,
        "kind": stored.kind,
        "event": name(stored),
        "call": about.call.map(|id| id.to_string()),
        "gate": about.gate.map(|id| id.to_string()),
        "tool": about.tool,
        "subject": about.subject,
        "outcome": about.outcome.map(Outcome::word),
        "by": about.by,
        "why": about.why,
        "text": text,
    })
}
