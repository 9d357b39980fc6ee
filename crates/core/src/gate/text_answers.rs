//! Answers in words: their validation, and their stored form.
//!
//! The text of an answer in the log is a JSON array of words, or `{"said": […], "form": …}` if it came in the form of an adapter.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    command::GateReply,
    event::{ApprovalScope, Kind},
    sign_off,
};

/// Returns the words of an answer to a gate that takes words; nothing if the person declined to answer.
///
/// # Errors
/// The problem with the answer.
pub(crate) fn answer_words(kind: Kind, answer: &GateReply) -> Result<Option<Vec<String>>, &'static str> {
    let is_sign_off = matches!(kind, Kind::Plan | Kind::Execution);
    let texts = match answer.without_form() {
        GateReply::Say(texts) => texts,
        GateReply::Form(form) => return answer_words(kind, &form.answer),
        GateReply::Decline => return Ok(None),
        GateReply::Deny { reason } if is_sign_off => {
            let label = if kind == Kind::Plan { sign_off::REJECT } else { sign_off::DECLINE };
            let reason = reason.clone().filter(|reason| !reason.trim().is_empty());
            return Ok(Some([label.to_owned()].into_iter().chain(reason).collect()));
        }
        GateReply::Deny { .. } => return Ok(None),
        GateReply::Allow(ApprovalScope::Once) if is_sign_off => return Ok(Some(vec![sign_off::APPROVE.to_owned()])),
        GateReply::Allow(_) | GateReply::Grant(_) if is_sign_off => return Err("this reach is not offered"),
        GateReply::Allow(_) | GateReply::Grant(_) => return Err("a question is not allowed or denied"),
    };
    if texts.is_empty() || texts.iter().any(|text| text.trim().is_empty()) {
        return Err("an answer is empty");
    }
    if is_sign_off { sign_off::normalise_words(kind, texts).map(Some) } else { Ok(Some(texts.clone())) }
}

/// Returns the text under which the log keeps an answer in words.
pub(crate) fn words_text(texts: Vec<String>, answer: &GateReply) -> Arc<str> {
    let text = match answer {
        GateReply::Form(form) => json!({ "said": texts, "form": form.form }),
        GateReply::Allow(_) | GateReply::Grant(_) | GateReply::Deny { .. } | GateReply::Say(_) | GateReply::Decline => {
            json!(texts)
        }
    };
    text.to_string().into()
}

/// Parses the words out of the text of an answer in words. None for any other text.
pub fn parse_words(text: &str) -> Option<Vec<String>> {
    let mut text: Value = serde_json::from_str(text).ok()?;
    let texts = if text.is_object() { text["said"].take() } else { text };
    serde_json::from_value(texts).ok()
}

/// Parses the form, word for word, out of the text of an answer in words, if it came in one.
pub fn parse_form(text: &str) -> Option<Value> {
    let mut text: Value = serde_json::from_str(text).ok()?;
    text.as_object_mut()?.remove("form")
}
