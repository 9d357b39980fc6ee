//! Encodes outcomes as results of tools. A refusal is a result too: models read it, and few hosts show errors of the protocol.

use countersign_foreign_calls::{CallOutcome, CallProblem};
use rmcp::model::{CallToolResult, ContentBlock, ResultType};
use serde_json::{Map, Value, json};

/// Form of the result of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AnswerForm {
    /// The data of a service.
    Data,
    /// The result of a tool of another MCP server, as that returned it.
    Result,
    /// A decision.
    Decision,
    /// Answer of a person.
    Words,
    /// The contract of Claude Code for a call with this input.
    Permission(Map<String, Value>),
}

impl AnswerForm {
    /// Encodes the outcome of a call.
    pub(super) fn encode_outcome(&self, outcome: &CallOutcome) -> CallToolResult {
        let (is_done, reason) = (outcome.is_done(), outcome.reason());
        match self {
            Self::Data if is_done => data_result(&outcome.content),
            Self::Result if is_done => server_result(&outcome.content),
            Self::Words if is_done => words_result(&outcome.content),
            Self::Data | Self::Result | Self::Words => error_result(reason),
            Self::Decision if is_done => {
                let mut decision = json!({ "decision": "allow" });
                if let Some(gate) = outcome.gate {
                    decision["gate"] = gate.to_string().into();
                }
                decision_result("approved", decision)
            }
            Self::Permission(input) if is_done => {
                permission_result(&json!({ "behavior": "allow", "updatedInput": input }))
            }
            Self::Decision | Self::Permission(_) => self.encode_refusal(reason),
        }
    }

    /// Encodes a refusal before or without an outcome.
    pub(super) fn encode_refusal(&self, reason: &str) -> CallToolResult {
        match self {
            Self::Data | Self::Result | Self::Words => error_result(reason),
            Self::Decision => {
                decision_result(&format!("not approved: {reason}"), json!({ "decision": "deny", "reason": reason }))
            }
            Self::Permission(_) => permission_result(&json!({ "behavior": "deny", "message": reason })),
        }
    }

    /// Encodes a problem.
    pub(super) fn encode_problem(&self, problem: &CallProblem) -> CallToolResult {
        self.encode_refusal(&problem.to_string())
    }
}

/// Returns the result of a tool that failed, with the reason for the model.
pub(super) fn error_result(reason: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(reason)])
}

/// Returns the JSON text of a service as a result.
fn data_result(content: &str) -> CallToolResult {
    let data: Option<Value> = serde_json::from_str(content).ok();
    let text = match &data {
        Some(Value::String(text)) => text,
        // Contents can be removed from the record; the action stays done.
        None if content.is_empty() => "null",
        _ => content,
    };
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = data.filter(Value::is_object);
    result
}

/// Returns the result of a tool of another server. That one may speak a version in which results have no type.
fn server_result(content: &str) -> CallToolResult {
    let Ok(mut result) = serde_json::from_str::<CallToolResult>(content) else { return data_result(content) };
    result.result_type = Some(ResultType::COMPLETE);
    result
}

fn words_result(content: &str) -> CallToolResult {
    let details: Value = serde_json::from_str(content).unwrap_or_default();
    let question = &details["results"][0];
    let chosen = question["selectedOptions"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let words: Vec<&str> = chosen.chain(question["customInput"].as_str()).collect();
    if words.is_empty() {
        return error_result(details["text"].as_str().unwrap_or("No answer"));
    }
    CallToolResult::success(vec![ContentBlock::text(words.join(", "))])
}

fn decision_result(text: &str, decision: Value) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(decision);
    result
}

/// Returns one text that is the JSON of the answer, and nothing else: Claude Code denies anything that it cannot read.
fn permission_result(answer: &Value) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(answer.to_string())])
}

#[cfg(test)]
mod tests {
    use countersign_core::{
        call::CallEnd,
        id::{CallId, GateId},
    };
    use serde_json::{Map, Value, json};
    use uuid::Uuid;

    use super::{AnswerForm, CallOutcome};

    const DONE: CallEnd = CallEnd::Done { error: false };

    fn encode(form: &AnswerForm, end: CallEnd, content: &str) -> Value {
        let gate = Some(GateId::new(Uuid::from_u128(2)));
        let outcome = CallOutcome { call: CallId::new(Uuid::from_u128(1)), gate, end, content: content.into() };
        let mut result = serde_json::to_value(form.encode_outcome(&outcome)).unwrap();
        result.as_object_mut().unwrap().remove("resultType");
        result
    }

    fn text(text: &str, is_error: bool) -> Value {
        json!({ "content": [{ "type": "text", "text": text }], "isError": is_error })
    }

    #[test]
    fn data_is_text_and_an_object_is_structured_too() {
        for (content, want) in [
            ("[1]", text("[1]", false)),
            ("\"on\"", text("on", false)),
            ("", text("null", false)),
            (
                r#"{"a":1}"#,
                json!({ "content": [{ "type": "text", "text": "{\"a\":1}" }], "structuredContent": { "a": 1 }, "isError": false }),
            ),
        ] {
            assert_eq!(encode(&AnswerForm::Data, DONE, content), want, "{content}");
        }
    }

    #[test]
    fn a_result_of_another_server_has_a_type_whatever_version_that_server_speaks() {
        let outcome = |content: &str| CallOutcome {
            call: CallId::new(Uuid::from_u128(1)),
            gate: None,
            end: DONE,
            content: content.into(),
        };
        let image = json!({ "type": "image", "data": "aGFs", "mimeType": "image/png" });
        let result = AnswerForm::Result.encode_outcome(&outcome(&json!({ "content": [image] }).to_string()));
        assert_eq!(
            serde_json::to_value(result).unwrap(),
            json!({ "resultType": "complete", "content": [image] }),
            "the server handler removes the type for older clients"
        );
        let removed = AnswerForm::Result.encode_outcome(&outcome(""));
        assert_eq!(serde_json::to_value(removed).unwrap()["content"][0]["text"], "null");
    }

    #[test]
    fn a_failure_and_a_denial_say_why() {
        for (end, content, want) in [
            (CallEnd::Done { error: true }, "gone", "gone"),
            (CallEnd::Failed, "Not run: no such host", "Not run: no such host"),
            (CallEnd::Denied, "Denied by policy: rule 3", "Denied by policy: rule 3"),
            (CallEnd::Refused, "Denied by local:0: no", "Denied by local:0: no"),
            (CallEnd::Expired, "", "Approval timed out"),
            (CallEnd::Limited, "Too many pending approvals", "Too many pending approvals"),
            (CallEnd::Unknown, "", "Outcome unknown"),
        ] {
            assert_eq!(encode(&AnswerForm::Data, end, content), text(want, true), "{end:?}");
            assert_eq!(encode(&AnswerForm::Words, end, content), text(want, true), "{end:?}");
        }
    }

    #[test]
    fn a_denied_approval_is_no_failure_of_the_tool() {
        let gate = GateId::new(Uuid::from_u128(2)).to_string();
        let allowed = encode(&AnswerForm::Decision, DONE, "");
        assert_eq!(allowed["structuredContent"], json!({ "decision": "allow", "gate": gate }));
        let denied = encode(&AnswerForm::Decision, CallEnd::Refused, "no");
        assert_eq!(denied["structuredContent"], json!({ "decision": "deny", "reason": "no" }));
        assert_eq!((&allowed["isError"], &denied["isError"]), (&json!(false), &json!(false)));
    }

    #[test]
    fn a_permission_is_exactly_the_text_that_claude_code_reads() {
        let form = AnswerForm::Permission(Map::from_iter([("command".to_owned(), json!("ls"))]));
        let allowed = text(r#"{"behavior":"allow","updatedInput":{"command":"ls"}}"#, false);
        assert_eq!(encode(&form, DONE, ""), allowed);
        assert_eq!(encode(&form, CallEnd::Denied, "no"), text(r#"{"behavior":"deny","message":"no"}"#, false));
    }

    #[test]
    fn an_answer_is_the_words_of_the_person() {
        for (details, want) in [
            (json!({"results": [{"selectedOptions": ["a", "b"], "customInput": "c"}]}), text("a, b, c", false)),
            (
                json!({"text": "(nobody answered in time)", "results": [{"selectedOptions": []}]}),
                text("(nobody answered in time)", true),
            ),
        ] {
            assert_eq!(encode(&AnswerForm::Words, DONE, &details.to_string()), want);
        }
    }
}
