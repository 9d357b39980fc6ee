//! The answer to a command of a person.

use countersign_core::message::BashMessage;
use countersign_protocol::omp::state::BashResult;
use serde_json::Value;

/// Returns the answer to a user's command, from its message: a cut output is added in full, any other is in the message.
pub(crate) fn bash_result(bash: &BashMessage) -> BashResult {
    let cut = bash.meta.as_ref().and_then(|meta| meta.get("truncation"));
    let count = |key: &str, whole: usize| {
        let count = cut.and_then(|cut| cut.get(key)).and_then(Value::as_u64);
        count.and_then(|count| usize::try_from(count).ok()).unwrap_or(whole)
    };
    let lines = if bash.output.is_empty() { 0 } else { bash.output.matches('\n').count() + 1 };
    let bytes = bash.output.len();
    BashResult {
        exit_code: bash.exit_code,
        cancelled: bash.cancelled,
        output: bash.output.clone(),
        truncated: bash.truncated,
        total_lines: count("totalLines", lines),
        total_bytes: count("totalBytes", bytes),
        output_lines: count("outputLines", lines),
        output_bytes: count("outputBytes", bytes),
        artifact_id: cut.and_then(|cut| cut.get("artifact")).and_then(Value::as_str).map(str::to_owned),
    }
}
