//! Answers in words: what counts as one, and how it is kept.
//!
//! The text of an answer in the log is a JSON array of what was said, or `{"said": […], "form": …}` where it came in the form of a door.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    command::Answer,
    event::{Kind, Scope},
    sign_off,
};

/// What an answer says to a gate that takes words; nothing where whoever was asked does not want to answer.
///
/// # Errors
/// What does not fit.
pub(crate) fn of(kind: Kind, answer: &Answer) -> Result<Option<Vec<String>>, &'static str> {
    let is_sign_off = matches!(kind, Kind::Plan | Kind::Execution);
    let said = match answer.plain() {
        Answer::Say(said) => said,
        Answer::Form(form) => return of(kind, &form.answer),
        Answer::Decline => return Ok(None),
        Answer::Deny { reason } if is_sign_off => {
            let label = if kind == Kind::Plan { sign_off::REJECT } else { sign_off::DECLINE };
            let reason = reason.clone().filter(|reason| !reason.trim().is_empty());
            return Ok(Some([label.to_owned()].into_iter().chain(reason).collect()));
        }
        Answer::Deny { .. } => return Ok(None),
        Answer::Allow(Scope::Once) if is_sign_off => return Ok(Some(vec![sign_off::APPROVE.to_owned()])),
        Answer::Allow(_) | Answer::Grant(_) if is_sign_off => return Err("this reach is not offered"),
        Answer::Allow(_) | Answer::Grant(_) => return Err("a question is not allowed or denied"),
    };
    if said.is_empty() || said.iter().any(|said| said.trim().is_empty()) {
        return Err("an answer is empty");
    }
    if is_sign_off { sign_off::ordered(kind, said).map(Some) } else { Ok(Some(said.clone())) }
}

/// The text under which the log keeps an answer in words.
pub(crate) fn text(said: Vec<String>, answer: &Answer) -> Arc<str> {
    let text = match answer {
        Answer::Form(form) => json!({ "said": said, "form": form.form }),
        Answer::Allow(_) | Answer::Grant(_) | Answer::Deny { .. } | Answer::Say(_) | Answer::Decline => json!(said),
    };
    text.to_string().into()
}

/// What was said, of the text of an answer in words. None for any other text.
pub fn said(text: &str) -> Option<Vec<String>> {
    let mut text: Value = serde_json::from_str(text).ok()?;
    let said = if text.is_object() { text["said"].take() } else { text };
    serde_json::from_value(said).ok()
}

/// The form that an answer in words came in, word for word, if it came in one.
pub fn form(text: &str) -> Option<Value> {
    let mut text: Value = serde_json::from_str(text).ok()?;
    text.as_object_mut()?.remove("form")
}
