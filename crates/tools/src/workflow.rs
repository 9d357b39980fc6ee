//! Questions in an interview, a plan to approve, an execution to sign off. Here are their descriptions for the model.
//!
//! It must not ask, as `ask` does not: the engine opens the gates, puts the answers into a result and never runs these tools.

use countersign_core::tool::{CallConcurrency, RepeatMode, ToolEffect, ToolSpec};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

use crate::{
    ask,
    outcome::{CallFailure, CallOutput},
    tool::{AgentTool, CallRoute, ToolContext},
};

/// One of the tools of a workflow, for its spec.
pub struct WorkflowTool {
    spec: ToolSpec,
}

impl WorkflowTool {
    /// Creates `workflow_interview`, `workflow_plan` and `workflow_execution`.
    pub fn all_tools() -> [Self; 3] {
        [interview_tool(), plan_tool(), execution_tool()].map(|(name, description, schema)| Self {
            spec: ToolSpec {
                name: name.to_owned(),
                description: description.to_owned(),
                schema,
                concurrency: CallConcurrency::Exclusive,
                repeat: RepeatMode::Once,
                effect: ToolEffect::Reads,
                signature: &[],
            },
        })
    }
}

type ToolDescription = (&'static str, &'static str, Value);

fn interview_tool() -> ToolDescription {
    let round = json!({"type": "object", "required": ["number", "component", "dimension", "ambiguity"], "properties": {
        "id": {"type": "string", "description": "Your name for the round"},
        "number": {"type": "integer", "minimum": 0, "description": "Counts the rounds"},
        "component": {"type": "string", "description": "The part of the work that the question is about"},
        "dimension": {"type": "string", "description": "The side of it, such as goal or constraints"},
        "ambiguity": {"type": "number", "minimum": 0, "maximum": 1, "description": "How much is still open, from 0 to 1"},
    }, "description": "Where in the interview the question stands"});
    let mut schema = ask::questions_schema();
    schema["properties"]["questions"]["items"]["properties"]["round"] = round;
    let description = "Asks the person questions in an interview before the work, round by round, and waits for the answers. Say with \
                       each where in the interview it stands.";
    ("workflow_interview", description, schema)
}

fn plan_tool() -> ToolDescription {
    let description = "Puts a plan to the person and waits until it is approved, changes are requested, or it is rejected. Carry it \
                       out only once it is approved; revise it and ask again where changes are requested.";
    ("workflow_plan", description, sign_off("plan", "The whole plan, in Markdown"))
}

fn execution_tool() -> ToolDescription {
    let description = "Asks the person to sign off an execution, and waits for it. Go on only once it is approved.";
    let text = "What is to be done or was done, and how it was verified, in Markdown";
    ("workflow_execution", description, sign_off("execution", text))
}

fn sign_off(name: &str, text: &str) -> Value {
    let mut schema = json!({"type": "object", "required": [name], "properties": {
        "title": {"type": "string", "description": "One line"},
        "summary": {"type": "string", "description": "What there is to know, in a few sentences"},
        "artifacts": {"type": "array", "items": {"type": "string"}, "description": "Paths of files that belong to it"},
        "language": {"type": "string", "description": "The language to answer in, such as en"},
    }});
    schema["properties"][name] = json!({"type": "string", "description": text});
    schema
}

impl AgentTool for WorkflowTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn check_arguments(&self, arguments: &Value) -> Result<Map<String, Value>, CallFailure> {
        ask::check_known_fields(&self.spec, arguments)
    }

    fn route_call(&self, _: &mut Map<String, Value>) -> Result<CallRoute, CallFailure> {
        Ok(CallRoute::Person)
    }

    fn run<'a>(&'a self, _: Map<String, Value>, _: &'a ToolContext) -> BoxFuture<'a, Result<CallOutput, CallFailure>> {
        Box::pin(async { Err(CallFailure::NotBegun("no user can answer questions here".to_owned())) })
    }
}
