//! The requests for the summaries of a compaction, as a host writes them.

use countersign_core::message::{StoredMessage, SummaryMessage};
use serde_json::Value;

/// The requests for one summary.
#[derive(Clone, Debug)]
pub struct SummaryRequests {
    /// The system prompt.
    pub system: String,
    /// The request for the summary of everything before the cut, if there is something whole.
    pub history: Option<String>,
    /// The request for the summary of the first part of a turn that the cut goes through.
    pub turn: Option<String>,
    /// Facts for a program: files that were read and changed.
    pub details: Value,
}

/// The texts of summaries: the requests to a model, and the joining of its answers.
pub trait SummaryPrompts: Send + Sync {
    /// Returns the requests for a summary of `history` and of the first part of a turn, `turn`.
    fn build_requests(
        &self,
        history: &[StoredMessage],
        turn: &[StoredMessage],
        previous: Option<&SummaryMessage>,
        instructions: Option<&str>,
    ) -> SummaryRequests;

    /// Returns how many bytes of a request `message` takes.
    fn request_size(&self, message: &StoredMessage) -> usize {
        serde_json::to_string(message).map_or(0, |text| text.len())
    }

    /// Returns a summary put together from the answers to [`SummaryPrompts::build_requests`].
    fn join_summaries(&self, history: &str, turn: Option<&str>, details: &Value) -> String;
}

/// The texts of a host that never compacts: no request is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSummaries;

impl SummaryPrompts for NoSummaries {
    fn build_requests(
        &self,
        _: &[StoredMessage],
        _: &[StoredMessage],
        _: Option<&SummaryMessage>,
        _: Option<&str>,
    ) -> SummaryRequests {
        SummaryRequests { system: String::new(), history: None, turn: None, details: Value::Null }
    }

    fn join_summaries(&self, history: &str, _: Option<&str>, _: &Value) -> String {
        history.to_owned()
    }
}
