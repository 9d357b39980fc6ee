//! Questions: pending ones, every change of them, and the answers of users.

use std::sync::Arc;

use axum::{http::StatusCode, response::Response};
use countersign_conversations::chats::check_message;
use countersign_core::{
    digest::Digest,
    engine::CommandError,
    gate::{AnswerError, GateReply},
    id::SessionId,
};
use countersign_http::{
    reply::{self, HttpProblem},
    web::{BodyFields, HttpCaller},
};
use countersign_runtime::OwnerError;
use countersign_view::{GateRequest, LineMode, escape};
use serde_json::{Value, json};

use super::{
    super::fields::{self, RequestRejection},
    OwnerClosed, PromptLookup, SessionPrompts,
    answer_dedup::PostedAnswer,
    form::{FormError, PromptForm},
    queue::{HasPromptKind, PromptKind},
};

/// Reply to an answer that comes too late.
const STALE: &str = "Clarification prompt expired or not found. The agent may have already proceeded.";
/// Separators between labels of a multiple choice.
const BETWEEN: [&str; 4] = [", ", ",", "\r\n", "\n"];

/// Answer to a question.
pub(super) struct QuestionAnswer {
    session: SessionId,
    /// Question that it names.
    named: Option<String>,
    text: String,
}

impl HasPromptKind for QuestionAnswer {
    const KIND: PromptKind = PromptKind::Questions;
}

impl PromptForm for QuestionAnswer {
    fn from_body(body: &BodyFields, _: &HttpCaller) -> Result<Self, FormError> {
        let session = fields::session_field(body)?;
        let named = fields::text_field(body, "clarify_id")?.map(str::to_owned);
        let text = answer_text(body).ok_or_else(|| RequestRejection::bad("response is required"))?;
        check_message(&text, "response").map_err(|why| RequestRejection::bad(why.to_string()))?;
        Ok(Self { session, named, text })
    }

    async fn apply_form(
        self,
        prompts: &Arc<SessionPrompts>,
        caller: &HttpCaller,
        body: &BodyFields,
    ) -> Result<Response, HttpProblem> {
        let Self { session, named, text } = self;
        let outcome = match named {
            Some(named) => answer_question(prompts, &session, Some(&named), &text, caller).await,
            None => {
                // A repetition is one answer: the oldest gate is another question by then.
                let post = PostedAnswer::new(caller, &session, body);
                let (of, text, by) = (Arc::clone(prompts), text.clone(), caller.clone());
                let answer = async move { answer_question(&of, &session, None, &text, &by).await };
                prompts.text_answers.answer_once(&post, answer, |outcome| matches!(outcome, Ok(Ok(())))).await
            }
        };
        Ok(match outcome? {
            Ok(()) => reply::ok(&json!({ "ok": true, "response": text })),
            Err(AnswerRejection { status, error_body }) => reply::json(status, &error_body),
        })
    }
}

/// Reason why an answer was refused, as the client gets it.
#[derive(Clone)]
pub(super) struct AnswerRejection {
    status: StatusCode,
    error_body: Value,
}

/// Returns the answer of a body, under any of its names; `None` if it is empty.
fn answer_text(body: &BodyFields) -> Option<String> {
    let value = ["response", "answer", "choice"].iter().find_map(|name| match body.0.get(*name) {
        None | Some(Value::Null) => None,
        Some(value) => Some(value),
    })?;
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Array(parts) if parts.iter().all(Value::is_string) => {
            let parts: Vec<&str> = parts.iter().filter_map(Value::as_str).map(str::trim).collect();
            parts.join(", ")
        }
        other => other.to_string(),
    };
    Some(text).filter(|text| !text.is_empty())
}

async fn answer_question(
    prompts: &SessionPrompts,
    session: &SessionId,
    named: Option<&str>,
    text: &str,
    caller: &HttpCaller,
) -> Result<Result<(), AnswerRejection>, OwnerClosed> {
    let stale = || AnswerRejection {
        status: StatusCode::CONFLICT,
        error_body: json!({ "ok": false, "stale": true, "error": STALE }),
    };
    let refused = |status, why: &str| AnswerRejection { status, error_body: json!({ "ok": false, "error": why }) };
    loop {
        let PromptLookup::Gate(gate, shown) = prompts.find_gate(session, named, PromptKind::Questions).await? else {
            return Ok(Err(stale()));
        };
        let answer = GateReply::Say(shown.map_or_else(|| vec![text.to_owned()], |shown| answer_words(&shown, text)));
        let key = format!("web:{}:say:{}", caller.principal, Digest::hash_bytes(text.as_bytes()));
        let Err(problem) = prompts.answer_gate(&gate, answer, &caller.principal, key).await else { return Ok(Ok(())) };
        return Ok(Err(match problem {
            OwnerError::Refusal(CommandError::Answer(
                AnswerError::AlreadyResolved { .. } | AnswerError::Unknown(_),
            )) => {
                if named.is_none() {
                    continue;
                }
                stale()
            }
            OwnerError::Refusal(CommandError::Answer(refusal @ AnswerError::NotAllowed { .. })) => {
                refused(StatusCode::FORBIDDEN, &refusal.to_string())
            }
            OwnerError::TooLarge | OwnerError::Refusal(CommandError::TooLong { .. }) => {
                refused(StatusCode::PAYLOAD_TOO_LARGE, &problem.to_string())
            }
            OwnerError::Refusal(refusal) => refused(StatusCode::CONFLICT, &refusal.to_string()),
            problem => refused(StatusCode::SERVICE_UNAVAILABLE, &problem.to_string()),
        }));
    }
}

/// Returns the meaning of an answer: its choices if it names them, else the user's own text.
pub(super) fn answer_words(request: &GateRequest, answer: &str) -> Vec<String> {
    let Some(question) = request.question() else { return vec![answer.to_owned()] };
    let own = || vec![answer.to_owned()];
    let shown = |label: &str| escape(label, LineMode::One).into_owned();
    let labels: Vec<(&str, String)> =
        question.choices.iter().map(|choice| (choice.label.as_str(), shown(&choice.label))).collect();
    let is = |(label, shown): &&(&str, String)| *label == answer || label.trim() == answer || shown == answer;
    if let Some((label, _)) = labels.iter().find(is) {
        return vec![(*label).to_owned()];
    }
    if question.is_multi { split_labels(&labels, answer).unwrap_or_else(own) } else { own() }
}

/// Splits `answer` into labels, each once. Labels may contain the separators.
fn split_labels(labels: &[(&str, String)], answer: &str) -> Option<Vec<String>> {
    let longest = |(label, shown): &(&str, String)| label.len().max(shown.len()) + BETWEEN[0].len();
    if answer.len() > labels.iter().map(longest).sum() {
        return None;
    }
    // For each end of a label: the start of that label, and its index.
    let mut reached: Vec<Option<(usize, usize)>> = vec![None; answer.len() + 1];
    for at in 0..answer.len() {
        let begins = if at == 0 {
            vec![0]
        } else if reached[at].is_some() {
            BETWEEN.iter().filter(|sign| answer[at..].starts_with(**sign)).map(|sign| at + sign.len()).collect()
        } else {
            continue;
        };
        for begin in begins {
            for (index, (label, shown)) in labels.iter().enumerate() {
                for text in [*label, shown.as_str()] {
                    if !text.is_empty() && answer[begin..].starts_with(text) {
                        reached[begin + text.len()].get_or_insert((at, index));
                    }
                }
            }
        }
    }
    let mut chosen = Vec::new();
    let mut end = answer.len();
    while end > 0 {
        let (before, index) = reached[end]?;
        if chosen.contains(&index) {
            return None;
        }
        chosen.push(index);
        end = before;
    }
    // In the order of the question, as every adapter sends them.
    chosen.sort_unstable();
    Some(chosen.into_iter().map(|index| labels[index].0.to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use countersign_core::gate::{GateChoice, GateContent};

    use super::answer_words;

    #[test]
    fn an_answer_is_a_label_a_list_of_labels_or_somebodys_own_words() {
        let content = |multi| GateContent::Question {
            id: "q".to_owned(),
            question: "Which?".to_owned(),
            choices: ["a", "b, c", "a, b", "h\u{202e}i"].map(|label| GateChoice { label: label.to_owned() }).to_vec(),
            multi,
            recommended: None,
            about: serde_json::Map::new(),
        };
        for (multi, answer, want) in [
            (false, "a", vec!["a"]),
            (false, "b, c", vec!["b, c"]),
            (false, "h\\u{202e}i", vec!["h\u{202e}i"]),
            (false, "a, b, c", vec!["a, b, c"]),
            (false, "something else", vec!["something else"]),
            (true, "b, c", vec!["b, c"]),
            (true, "b, c, a", vec!["a", "b, c"]),
            (true, "a\nh\\u{202e}i", vec!["a", "h\u{202e}i"]),
            (true, "a, b, b, c", vec!["b, c", "a, b"]),
            (true, "a, a", vec!["a, a"]),
            (true, "a, d", vec!["a, d"]),
            (true, "a,", vec!["a,"]),
            (true, ", a", vec![", a"]),
        ] {
            assert_eq!(answer_words(&content(multi).into(), answer), want, "{multi} {answer:?}");
        }
    }
}
