//! `ask`: questions to the person, as described to the model.
//!
//! It must not ask: the engine opens one gate per question, puts the answers into a result and never runs this tool.

use countersign_core::tool::{CallConcurrency, RepeatMode, ToolEffect, ToolSpec};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

use crate::{
    outcome::{CallFailure, CallOutput},
    schema::{keep_known, validate_arguments},
    tool::{AgentTool, CallRoute, ToolContext},
};

/// The tool `ask`, for its spec.
pub struct AskTool {
    spec: ToolSpec,
}

/// Returns the JSON Schema of questions.
pub(crate) fn questions_schema() -> Value {
    let option = json!({"type": "object", "required": ["label"], "properties": {"label": {"type": "string", "description": "Short text"}}});
    let question = json!({"type": "object", "required": ["id", "question", "options"], "properties": {
        "id": {"type": "string", "description": "Your name for the question"},
        "question": {"type": "string", "description": "Text"},
        "options": {"type": "array", "items": option, "description": "What can be chosen; empty for an answer in words"},
        "multi": {"type": "boolean", "description": "More than one may be chosen"},
        "recommended": {"type": "integer", "minimum": 0, "description": "Index of the option that you recommend, from 0"},
    }});
    json!({"type": "object", "required": ["questions"], "properties": {
        "questions": {"type": "array", "items": question, "description": "At least one"},
    }})
}

/// Returns the JSON Schema of questions that may name the part of a workflow they belong to, in the words of the original's
/// skills.
fn schema_of_workflows() -> Value {
    let round = json!({"type": "object", "required": ["round", "component", "dimension", "ambiguity"], "properties": {
        "round_id": {"type": "string", "description": "Your name for the round"},
        "round": {"type": "integer", "minimum": 0, "description": "Counts the rounds"},
        "component": {"type": "string", "description": "The part of the work that the question is about"},
        "dimension": {"type": "string", "description": "The side of it, such as goal or constraints"},
        "ambiguity": {"type": "number", "minimum": 0, "maximum": 1, "description": "How much is still open, from 0 to 1"},
    }, "description": "Where in an interview the question stands"});
    let gate = json!({"type": "object", "required": ["stage", "kind"], "properties": {
        "stage": {"type": "string", "enum": ["deep-interview", "ralplan", "ultragoal"]},
        "kind": {"type": "string", "enum": ["question", "approval", "execution"]},
    }, "description": "The stage and the kind of the gate. For an approval the label of the option that approves begins with the word Approve"});
    let mut schema = questions_schema();
    schema["properties"]["questions"]["items"]["properties"]["deepInterview"] = round;
    schema["properties"]["questions"]["items"]["properties"]["workflowGate"] = gate;
    schema
}

/// Checks the arguments of a call that asks. Unknown fields are left out: skills bring some of their own.
pub(crate) fn check_known_fields(spec: &ToolSpec, arguments: &Value) -> Result<Map<String, Value>, CallFailure> {
    validate_arguments(spec, &keep_known(&spec.schema, arguments))
}

impl AskTool {
    /// Creates the same tool for sessions with a workflow: a question may name the stage and the kind of its gate.
    pub fn for_workflow() -> Self {
        let mut ask = Self::default();
        ask.spec.schema = schema_of_workflows();
        ask
    }
}

impl Default for AskTool {
    fn default() -> Self {
        Self {
            spec: ToolSpec {
                name: "ask".to_owned(),
                description: "Asks the person one or more questions and waits for the answers. Ask only what you cannot find out yourself.".to_owned(),
                schema: questions_schema(),
                concurrency: CallConcurrency::Exclusive,
                repeat: RepeatMode::Once,
                effect: ToolEffect::Reads,
                signature: &[],
            },
        }
    }
}

impl AgentTool for AskTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn check_arguments(&self, arguments: &Value) -> Result<Map<String, Value>, CallFailure> {
        check_known_fields(&self.spec, arguments)
    }

    fn route_call(&self, _: &mut Map<String, Value>) -> Result<CallRoute, CallFailure> {
        Ok(CallRoute::Person)
    }

    fn run<'a>(&'a self, _: Map<String, Value>, _: &'a ToolContext) -> BoxFuture<'a, Result<CallOutput, CallFailure>> {
        Box::pin(async { Err(CallFailure::NotBegun("no user can answer questions here".to_owned())) })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::AskTool;
    use crate::{outcome::CallFailure, tool::AgentTool as _};

    fn checked(ask: &AskTool, question: Value) -> Result<Value, String> {
        match ask.check_arguments(&json!({"_i": "asking", "questions": [question], "mode": "x"})) {
            Ok(mut arguments) => Ok(arguments["questions"][0].take()),
            Err(CallFailure::Invalid(problem)) => Err(problem),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_field_that_nobody_knows_is_left_out() {
        let question =
            json!({"id": "q", "question": "Which?", "options": [{"label": "a", "icon": "x"}], "allow_empty": true});
        let want = json!({"id": "q", "question": "Which?", "options": [{"label": "a"}]});
        for ask in [AskTool::default(), AskTool::for_workflow()] {
            assert_eq!(checked(&ask, question.clone()), Ok(want.clone()));
        }
    }

    #[test]
    fn a_question_may_name_the_stage_and_the_kind_of_its_gate() {
        let with = |name: &str, value: Value| {
            let mut question = json!({"id": "q", "question": "Go?", "options": []});
            question[name] = value;
            question
        };
        let round = json!({"round": 1, "component": "api", "dimension": "goal", "ambiguity": 0.4});
        let mut given = round.clone();
        given["confused_terms"] = json!(["gate"]);
        let gate = json!({"stage": "ralplan", "kind": "approval"});
        let ask = AskTool::for_workflow();
        assert_eq!(checked(&ask, with("deepInterview", given)), Ok(with("deepInterview", round)));
        assert_eq!(checked(&ask, with("workflowGate", gate.clone())), Ok(with("workflowGate", gate.clone())));
        let plain = json!({"id": "q", "question": "Go?", "options": []});
        assert_eq!(checked(&AskTool::default(), with("workflowGate", gate)), Ok(plain));
        for (name, value, want) in [
            ("workflowGate", json!({"stage": "team", "kind": "question"}), "workflowGate.stage must be one of"),
            ("workflowGate", json!({"stage": "", "kind": "question"}), "workflowGate.stage must be one of"),
            ("workflowGate", json!({"stage": "ralplan", "kind": 1}), "workflowGate.kind must be one of"),
            ("workflowGate", json!({"stage": "ralplan"}), "workflowGate.kind is required"),
            ("workflowGate", json!("ralplan"), "workflowGate must be an object"),
            ("deepInterview", json!({"round": 1}), "deepInterview.component is required"),
            ("deepInterview", json!(true), "deepInterview must be an object"),
        ] {
            let problem = checked(&ask, with(name, value.clone())).unwrap_err();
            assert!(problem.contains(want), "{value}: {problem}");
        }
    }
}
