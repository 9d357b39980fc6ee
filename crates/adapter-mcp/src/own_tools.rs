//! Tools of the adapter itself: approvals and questions for people, and gates.

use rmcp::model::Tool;
use serde_json::{Map, Value, json};

use crate::answers::AnswerForm;

/// Tool of the adapter itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnTool {
    AskHuman,
    RequestApproval,
    PermissionPrompt,
    GateStatus,
    GateWait,
}

impl OwnTool {
    /// All of them, in the order of the list.
    pub(super) const ALL: [Self; 5] =
        [Self::AskHuman, Self::RequestApproval, Self::PermissionPrompt, Self::GateStatus, Self::GateWait];

    /// Returns its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::AskHuman => "ask_human",
            Self::RequestApproval => "request_approval",
            Self::PermissionPrompt => "permission_prompt",
            Self::GateStatus => "gate_status",
            Self::GateWait => "gate_wait",
        }
    }

    /// Returns the tool with this name.
    pub(super) fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Returns the form of a refusal before its arguments are known.
    pub(super) fn refusal_form(self) -> AnswerForm {
        match self {
            Self::RequestApproval => AnswerForm::Decision,
            Self::PermissionPrompt => AnswerForm::Permission(Map::new()),
            Self::AskHuman => AnswerForm::Words,
            Self::GateStatus | Self::GateWait => AnswerForm::Data,
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::AskHuman => {
                "Asks a person a question and waits for the answer. Offer options if only some answers make sense. The \
                 same call repeated after a timeout waits for the same answer."
            }
            Self::RequestApproval => {
                "Requests an approval of an action that you are about to take yourself, and waits for the decision. \
                 Describe exactly what you will do. Act only if the decision is allow, and only once. The same call \
                 repeated after a timeout waits for the same decision."
            }
            Self::PermissionPrompt => {
                "Decides whether a host may run a call of one of its own tools. For hosts: `--permission-prompt-tool` of \
                 Claude Code."
            }
            Self::GateStatus => "Shows whether an approval or question of yours is pending, and how it was decided.",
            Self::GateWait => "Waits until an approval or question of yours is decided, and shows how.",
        }
    }

    fn schema(self) -> Value {
        let gate = json!({ "type": "string", "description": "Id of the gate, such as gate_0190…" });
        match self {
            Self::AskHuman => json!({
                "type": "object",
                "properties": {
                    "question": { "type": "string", "description": "Full text of the question" },
                    "options": { "type": "array", "items": { "type": "string" }, "description": "Answers to choose from; free text is accepted too" },
                    "multiple": { "type": "boolean", "description": "True if several options may be chosen" }
                },
                "required": ["question"],
                "additionalProperties": false
            }),
            Self::RequestApproval => json!({
                "type": "object",
                "properties": {
                    "action": { "type": "string", "description": "The action, in one line" },
                    "details": { "type": ["string", "object"], "description": "Everything that a person needs to decide" },
                    "reason": { "type": "string", "description": "Why it is needed" }
                },
                "required": ["action"],
                "additionalProperties": false
            }),
            Self::PermissionPrompt => json!({
                "type": "object",
                "properties": {
                    "tool_name": { "type": "string" },
                    "input": { "type": "object" },
                    "tool_use_id": { "type": "string" }
                },
                "required": ["tool_name", "input"]
            }),
            Self::GateStatus => json!({
                "type": "object", "properties": { "gate": gate }, "required": ["gate"], "additionalProperties": false
            }),
            Self::GateWait => json!({
                "type": "object",
                "properties": {
                    "gate": gate,
                    "seconds": { "type": "number", "minimum": 0, "description": "Longest wait; 60 if absent" }
                },
                "required": ["gate"],
                "additionalProperties": false
            }),
        }
    }

    /// Returns its definition. It has no annotations: hosts skip their own confirmations for some.
    pub(super) fn definition(self) -> Tool {
        let Value::Object(schema) = self.schema() else { unreachable!("each schema above is an object") };
        Tool::new(self.name(), self.description(), schema)
    }

    /// Checks arguments against the schema: required, known and of their type.
    ///
    /// # Errors
    /// The reason for the model.
    pub(super) fn check_arguments(self, arguments: &Map<String, Value>) -> Result<(), String> {
        let schema = self.schema();
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !arguments.contains_key(name) {
                return Err(format!("Missing required argument: {name}"));
            }
        }
        for (name, value) in arguments {
            let Some(declared) = schema["properties"].get(name) else {
                if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
                    return Err(format!("Unknown argument: {name}"));
                }
                continue;
            };
            let types = match &declared["type"] {
                Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
                one => one.as_str().into_iter().collect::<Vec<_>>(),
            };
            if !types.contains(&json_type(value)) {
                return Err(format!("Invalid value for {name}: expected {}", types.join(" or ")));
            }
            if let (Some("string"), Value::Array(items)) = (declared["items"]["type"].as_str(), value)
                && !items.iter().all(Value::is_string)
            {
                return Err(format!("Invalid value for {name}: expected texts"));
            }
        }
        Ok(())
    }
}

const fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::OwnTool;

    #[test]
    fn arguments_of_another_type_are_refused() {
        for (tool, arguments, want) in [
            (OwnTool::AskHuman, json!({"question": "x", "options": ["a"], "multiple": true}), None),
            (OwnTool::AskHuman, json!({}), Some("Missing required argument: question")),
            (OwnTool::AskHuman, json!({"question": 1}), Some("Invalid value for question: expected string")),
            (
                OwnTool::AskHuman,
                json!({"question": "x", "options": [1]}),
                Some("Invalid value for options: expected texts"),
            ),
            (OwnTool::RequestApproval, json!({"action": "x", "details": {"a": 1}}), None),
            (
                OwnTool::RequestApproval,
                json!({"action": "x", "details": 1}),
                Some("Invalid value for details: expected string or object"),
            ),
            (OwnTool::RequestApproval, json!({"action": "x", "allow": true}), Some("Unknown argument: allow")),
            (OwnTool::PermissionPrompt, json!({"tool_name": "Bash", "input": {}, "new": 1}), None),
            (
                OwnTool::GateWait,
                json!({"gate": "x", "seconds": "1"}),
                Some("Invalid value for seconds: expected number"),
            ),
        ] {
            assert_eq!(tool.check_arguments(arguments.as_object().unwrap()).err().as_deref(), want, "{arguments}");
        }
    }

    #[test]
    fn no_tool_tells_a_host_that_it_needs_no_confirmation() {
        assert!(OwnTool::ALL.iter().all(|tool| tool.definition().annotations.is_none()));
    }
}
