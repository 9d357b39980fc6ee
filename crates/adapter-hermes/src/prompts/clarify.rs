//! Questions: what waits, every change of it, and what people say.

use std::sync::Arc;

use axum::{http::StatusCode, response::Response};
use countersign_conversations::chats::sayable;
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
use countersign_view::{GateRequest, Lines, escape};
use serde_json::{Value, json};

use super::{
    super::fields::{self, Rejection},
    Closed, Found, Prompts,
    form::{Form, FormError},
    nameless::Post,
    queue::{Line, Queued},
};

/// What is said to whoever answers what waits no longer.
const STALE: &str = "Clarification prompt expired or not found. The agent may have already proceeded.";
/// What stands between labels where several are chosen.
const BETWEEN: [&str; 4] = [", ", ",", "\r\n", "\n"];

/// An answer to a question.
pub(super) struct QuestionAnswer {
    session: SessionId,
    /// The question that it names.
    named: Option<String>,
    said: String,
}

impl Queued for QuestionAnswer {
    const LINE: Line = Line::Questions;
}

impl Form for QuestionAnswer {
    fn read(body: &BodyFields, _: &HttpCaller) -> Result<Self, FormError> {
        let session = fields::session(body)?;
        let named = fields::text(body, "clarify_id")?.map(str::to_owned);
        let said = said(body).ok_or_else(|| Rejection::bad("response is required"))?;
        sayable(&said, "response").map_err(|why| Rejection::bad(why.to_string()))?;
        Ok(Self { session, named, said })
    }

    async fn act(
        self,
        prompts: &Arc<Prompts>,
        caller: &HttpCaller,
        body: &BodyFields,
    ) -> Result<Response, HttpProblem> {
        let Self { session, named, said } = self;
        let told = match named {
            Some(named) => answer(prompts, &session, Some(&named), &said, caller).await,
            None => {
                // What is posted twice is one answer: the oldest is another question by then.
                let post = Post::new(caller, &session, body);
                let (of, said, by) = (Arc::clone(prompts), said.clone(), caller.clone());
                let answer = async move { answer(&of, &session, None, &said, &by).await };
                prompts.nameless_words.once(&post, answer, |told| matches!(told, Ok(Ok(())))).await
            }
        };
        Ok(match told? {
            Ok(()) => reply::ok(&json!({ "ok": true, "response": said })),
            Err(Unsaid { status, told }) => reply::json(status, &told),
        })
    }
}

/// Why something was not said, as it is told.
#[derive(Clone)]
pub(super) struct Unsaid {
    status: StatusCode,
    told: Value,
}

/// What a body says, under any of its names; `None` if that is nothing.
fn said(body: &BodyFields) -> Option<String> {
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

async fn answer(
    prompts: &Prompts,
    session: &SessionId,
    named: Option<&str>,
    said: &str,
    caller: &HttpCaller,
) -> Result<Result<(), Unsaid>, Closed> {
    let stale = || Unsaid { status: StatusCode::CONFLICT, told: json!({ "ok": false, "stale": true, "error": STALE }) };
    let refused = |status, why: &str| Unsaid { status, told: json!({ "ok": false, "error": why }) };
    loop {
        let Found::Gate(gate, shown) = prompts.find(session, named, Line::Questions).await? else {
            return Ok(Err(stale()));
        };
        let answer = GateReply::Say(shown.map_or_else(|| vec![said.to_owned()], |shown| words(&shown, said)));
        let key = format!("web:{}:say:{}", caller.principal, Digest::hash_bytes(said.as_bytes()));
        let Err(problem) = prompts.answer(&gate, answer, &caller.principal, key).await else { return Ok(Ok(())) };
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

/// What an answer to a question means: its choices where it names them, else somebody's own words.
pub(super) fn words(request: &GateRequest, said: &str) -> Vec<String> {
    let Some(question) = request.question() else { return vec![said.to_owned()] };
    let own = || vec![said.to_owned()];
    let shown = |label: &str| escape(label, Lines::One).into_owned();
    let labels: Vec<(&str, String)> =
        question.choices.iter().map(|choice| (choice.label.as_str(), shown(&choice.label))).collect();
    let is = |(label, shown): &&(&str, String)| *label == said || label.trim() == said || shown == said;
    if let Some((label, _)) = labels.iter().find(is) {
        return vec![(*label).to_owned()];
    }
    if question.is_multi { listed(&labels, said).unwrap_or_else(own) } else { own() }
}

/// The labels that make up `said`, one behind the other, each once. Labels may hold what stands between them.
fn listed(labels: &[(&str, String)], said: &str) -> Option<Vec<String>> {
    let longest = |(label, shown): &(&str, String)| label.len().max(shown.len()) + BETWEEN[0].len();
    if said.len() > labels.iter().map(longest).sum() {
        return None;
    }
    // How each end of a label was reached: where that label began and which it was.
    let mut reached: Vec<Option<(usize, usize)>> = vec![None; said.len() + 1];
    for at in 0..said.len() {
        let begins = if at == 0 {
            vec![0]
        } else if reached[at].is_some() {
            BETWEEN.iter().filter(|sign| said[at..].starts_with(**sign)).map(|sign| at + sign.len()).collect()
        } else {
            continue;
        };
        for begin in begins {
            for (index, (label, shown)) in labels.iter().enumerate() {
                for text in [*label, shown.as_str()] {
                    if !text.is_empty() && said[begin..].starts_with(text) {
                        reached[begin + text.len()].get_or_insert((at, index));
                    }
                }
            }
        }
    }
    let mut chosen = Vec::new();
    let mut end = said.len();
    while end > 0 {
        let (before, index) = reached[end]?;
        if chosen.contains(&index) {
            return None;
        }
        chosen.push(index);
        end = before;
    }
    // In the order of the question, as every door hands them on.
    chosen.sort_unstable();
    Some(chosen.into_iter().map(|index| labels[index].0.to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use countersign_core::gate::{GateChoice, GateContent};

    use super::words;

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
        for (multi, said, want) in [
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
            assert_eq!(words(&content(multi).into(), said), want, "{multi} {said:?}");
        }
    }
}
