//! Meaning of the reasons that providers give for the end of an answer.
//!
//! It must not know a wire: the words of all of them are read together, in upper and lower case, as gateways pass on
//! the words of their providers.

use super::{FailureKind, ModelFailure, excerpt};
use crate::FinishReason;

/// Regular ends of an answer: after its last word, at a stop word of the request, or to continue later.
const REGULAR: [&str; 20] = [
    "stop",
    "stopped",
    "stop_sequence",
    "stop_token",
    "stop_word",
    "word",
    "eos",
    "eos_token",
    "eos_token_found",
    "end",
    "ended",
    "end_turn",
    "end_of_turn",
    "pause_turn",
    "complete",
    "completed",
    "done",
    "finish",
    "finished",
    "success",
];
/// Ended with calls.
const CALLS: [&str; 5] = ["tool_use", "tool_call", "tool_calls", "function_call", "function_calls"];
/// Reached the cap of the answer or the window of the model.
const LENGTH: [&str; 9] = [
    "length",
    "max_tokens",
    "max_output_tokens",
    "max_completion_tokens",
    "token_limit",
    "limit",
    "model_length",
    "model_context_window_exceeded",
    "context_length_exceeded",
];
/// Held back: the same request is held back again.
const WITHHELD: [&str; 18] = [
    "content_filter",
    "content_filtered",
    "refusal",
    "safety",
    "sensitive",
    "recitation",
    "language",
    "blocklist",
    "prohibited_content",
    "spii",
    "image_safety",
    "image_recitation",
    "image_prohibited_content",
    "guardrail_intervened",
    "model_armor",
    "moderation",
    "content_policy",
    "content_policy_violation",
];
/// The model failed at writing its answer, and may succeed the next time.
const BROKE_OFF: [&str; 6] = [
    "malformed_function_call",
    "malformed_tool_call",
    "malformed_response",
    "unexpected_tool_call",
    "too_many_tool_calls",
    "other",
];
/// The provider failed.
const FAILED: [&str; 10] = [
    "error",
    "failed",
    "network_error",
    "server_error",
    "internal_error",
    "abort",
    "aborted",
    "cancelled",
    "canceled",
    "insufficient_system_resource",
];

/// Reports whether a provider's name of an error says that it held the answer back: a reason for such an end, or a name of the same
/// kind.
pub(super) fn is_withheld(name: &str) -> bool {
    const KIND: [&str; 6] =
        ["content_filter", "content_policy", "policy_violation", "policyviolation", "moderation", "guardrail"];
    let name = name.to_lowercase();
    WITHHELD.contains(&name.as_str()) || KIND.iter().any(|word| name.contains(word)) || name == "flagged_input"
}

/// Prefix of the message of a failure whose cause is that the provider held the answer back.
pub(super) const HELD_BACK: &str = "the provider withheld the answer";

/// Reads the reason that a provider gives for the end of an answer. `detail` is its own word or sentence about it. A word
/// that is not known is no success.
pub(crate) fn read_ending(reason: &str, detail: Option<&str>) -> AnswerEnding {
    known_ending(reason, detail).unwrap_or_else(|| {
        let message = format!(
            "the answer ended for an unknown reason (terminated): {}",
            reason_text(reason, distinct_detail(reason, detail))
        );
        AnswerEnding::Failed(ModelFailure::new(FailureKind::Broken, message))
    })
}

/// Reads a reason as [`ending`] does. `None` for a word that is not known.
pub(crate) fn known_ending(reason: &str, detail: Option<&str>) -> Option<AnswerEnding> {
    let is_one_of = |words: &[&str]| words.iter().any(|word| reason.eq_ignore_ascii_case(word));
    let detail = distinct_detail(reason, detail);
    let text = reason_text(reason, detail);
    let failed = |kind, message| AnswerEnding::Failed(ModelFailure::new(kind, message));
    let ending = if is_one_of(&REGULAR) {
        AnswerEnding::Stopped(FinishReason::Stop)
    } else if is_one_of(&CALLS) {
        AnswerEnding::Stopped(FinishReason::ToolUse)
    } else if is_one_of(&LENGTH) {
        AnswerEnding::Stopped(FinishReason::Length)
    } else if is_one_of(&WITHHELD) {
        failed(FailureKind::Refused, format!("{HELD_BACK}: {text}"))
    } else if reason.eq_ignore_ascii_case("missing_thought_signature") {
        failed(FailureKind::Refused, format!("the provider refused the conversation: {text}"))
    } else if is_one_of(&BROKE_OFF) {
        failed(FailureKind::Broken, format!("the model failed to finish its answer (terminated): {text}"))
    } else if is_one_of(&FAILED) {
        // The gateway's provider may have given the reason, in a word of this list.
        match detail.and_then(|detail| known_ending(detail, None)) {
            Some(AnswerEnding::Failed(behind)) if behind.kind != FailureKind::Server => {
                failed(behind.kind, format!("provider returned error: {}", behind.message))
            }
            Some(AnswerEnding::Failed(_) | AnswerEnding::Stopped(_)) | None => {
                failed(FailureKind::Server, format!("provider returned error: {text}"))
            }
        }
    } else {
        return None;
    };
    Some(ending)
}

/// Returns the detail, if it says more than the reason.
fn distinct_detail<'a>(reason: &str, detail: Option<&'a str>) -> Option<&'a str> {
    detail.map(str::trim).filter(|detail| !detail.is_empty() && !detail.eq_ignore_ascii_case(reason))
}

fn reason_text(reason: &str, detail: Option<&str>) -> String {
    excerpt(&detail.map_or_else(|| reason.to_owned(), |detail| format!("{reason}: {detail}")))
}

/// End of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AnswerEnding {
    /// The answer is complete as far as it goes.
    Stopped(FinishReason),
    /// The answer failed.
    Failed(ModelFailure),
}

/// Prefix of the message of a failure whose cause is an answer without text and without calls.
pub const EMPTY_ANSWER: &str = "the model gave an empty answer";

/// Returns the failure of an answer that ended without text and without calls. `word` is the provider's own word for its end,
/// if it is more than a plain end of the answer.
pub(crate) fn empty_answer(word: Option<&str>) -> ModelFailure {
    let mut message = EMPTY_ANSWER.to_owned();
    if let Some(word) = word.filter(|word| !word.trim().is_empty()) {
        message.push_str(": ");
        message.push_str(&excerpt(word));
    }
    ModelFailure::new(FailureKind::Empty, message)
}

/// Returns the failure of an answer that ended for calls of which none came. The model may write them the next time.
pub(crate) fn without_calls() -> ModelFailure {
    ModelFailure::new(FailureKind::Broken, "the answer ended with a reason for tool calls, but has none (terminated)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_an_end_or_a_failure_that_names_it() {
        for (reason, detail, want) in [
            ("stop", None, Ok(FinishReason::Stop)),
            ("end_turn", None, Ok(FinishReason::Stop)),
            ("MAX_TOKENS", None, Ok(FinishReason::Length)),
            ("tool_calls", Some("whatever"), Ok(FinishReason::ToolUse)),
            ("COMPLETE", None, Ok(FinishReason::Stop)),
            (
                "Fell_Over",
                Some("at the end"),
                Err((
                    FailureKind::Broken,
                    "the answer ended for an unknown reason (terminated): Fell_Over: at the end",
                )),
            ),
            ("", None, Err((FailureKind::Broken, "the answer ended for an unknown reason (terminated): "))),
            ("failed", None, Err((FailureKind::Server, "provider returned error: failed"))),
            ("SAFETY", None, Err((FailureKind::Refused, "the provider withheld the answer: SAFETY"))),
            (
                "error",
                Some("MALFORMED_FUNCTION_CALL"),
                Err((
                    FailureKind::Broken,
                    "provider returned error: the model failed to finish its answer (terminated): MALFORMED_FUNCTION_CALL",
                )),
            ),
            (
                "error",
                Some("PROHIBITED_CONTENT"),
                Err((
                    FailureKind::Refused,
                    "provider returned error: the provider withheld the answer: PROHIBITED_CONTENT",
                )),
            ),
            ("error", Some("BOOM"), Err((FailureKind::Server, "provider returned error: error: BOOM"))),
            ("error", None, Err((FailureKind::Server, "provider returned error: error"))),
            (
                "insufficient_system_resource",
                None,
                Err((FailureKind::Server, "provider returned error: insufficient_system_resource")),
            ),
        ] {
            let got = read_ending(reason, detail);
            let want = match want {
                Ok(stop) => AnswerEnding::Stopped(stop),
                Err((kind, message)) => AnswerEnding::Failed(ModelFailure::new(kind, message)),
            };
            assert_eq!(got, want, "{reason} {detail:?}");
        }
    }

    #[test]
    fn an_empty_answer_is_requested_again() {
        assert_eq!(empty_answer(None).message, "the model gave an empty answer");
        assert_eq!(empty_answer(Some("OTHER")).message, "the model gave an empty answer: OTHER");
        assert_eq!(empty_answer(None).kind, FailureKind::Empty);
        assert!(empty_answer(None).kind.is_retryable());
    }
}
