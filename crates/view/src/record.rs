//! Entries of the record, for people and programs: their subjects, texts and filters.
//!
//! It must not decide anything, nor know where a record is kept or who reads it.

mod channels;
mod contract;
mod filter;
mod jobs;
mod record_context;
mod record_formatter;

use countersign_core::engine::Event;
use countersign_runtime::store::StoredRecord;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

pub use filter::{RecordFilter, has_id, time_of};
pub use record_context::{RecordOutcome, RecordSubject, event_name};
pub use record_formatter::resolution_text;
pub use record_formatter::{RecordFormatter, end_text};

use crate::time::format_iso;

/// One entry of the record. *Shape:* members in this order.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Entry")]
pub struct RecordEntry {
    /// Its position in the record.
    pub lsn: u64,
    /// Time of the record.
    #[schemars(extend("format" = "date-time"))]
    pub at: String,
    /// Session of the entry; the session of an agent is agent:ID.
    pub session: Option<String>,
    /// The kind of its event.
    #[schemars(extend("enum" = Event::KINDS))]
    pub kind: String,
    /// The name of its event within the kind.
    pub event: String,
    /// Id of the call.
    pub call: Option<String>,
    /// Id of the gate.
    pub gate: Option<String>,
    /// The tool of the call.
    pub tool: Option<String>,
    /// The text that rules were matched against, or the question.
    pub subject: Option<String>,
    /// Outcome of the decision or of the call, if the record has one.
    pub outcome: Option<RecordOutcome>,
    /// Approver or program that decided.
    pub by: Option<String>,
    /// Cause of the decision, such as a rule with its line.
    pub why: Option<String>,
    /// The event as text, in one line.
    pub text: String,
}

impl RecordEntry {
    /// Builds the entry of a record that is about `about`, in the words `text`.
    pub fn new(stored: &StoredRecord, about: &RecordSubject, text: &str) -> Self {
        Self {
            lsn: stored.lsn.0,
            at: format_iso(stored.at),
            session: stored.session.as_ref().map(ToString::to_string),
            kind: stored.kind.to_string(),
            event: event_name(stored).to_owned(),
            call: about.call.map(|id| id.to_string()),
            gate: about.gate.map(|id| id.to_string()),
            tool: about.tool.as_deref().map(str::to_owned),
            subject: about.subject.as_deref().map(str::to_owned),
            outcome: about.outcome,
            by: about.by.as_deref().map(str::to_owned),
            why: about.why.as_deref().map(str::to_owned),
            text: text.to_owned(),
        }
    }
}

/// Builds one entry as an object, for programs.
pub fn entry_json(stored: &StoredRecord, about: &RecordSubject, text: &str) -> Value {
    json!(RecordEntry::new(stored, about, text))
}
