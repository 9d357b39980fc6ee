//! `ask`: questions to the person. Here is what the model is told of it.
//!
//! It must not ask: the engine opens one gate a question, puts the answers into a result and never runs this tool.

use countersign_core::tool::{Effect, Lane, Repeat, Spec};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

use crate::tool::{Context, Failure, Output, Route, Tool};

/// The tool `ask`, for its spec.
pub struct Ask {
    spec: Spec,
}

/// JSON Schema of questions.
pub(crate) fn schema() -> Value {
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

impl Default for Ask {
    fn default() -> Self {
        Self {
            spec: Spec {
                name: "ask".to_owned(),
                description: "Asks the person one or more questions and waits for the answers. Ask only what you cannot find out yourself.".to_owned(),
                schema: schema(),
                lane: Lane::Exclusive,
                repeat: Repeat::Once,
                effect: Effect::Reads,
                signature: &[],
            },
        }
    }
}

impl Tool for Ask {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn route(&self, _: &mut Map<String, Value>) -> Result<Route, Failure> {
        Ok(Route::Person)
    }

    fn run<'a>(&'a self, _: Map<String, Value>, _: &'a Context) -> BoxFuture<'a, Result<Output, Failure>> {
        Box::pin(async { Err(Failure::NotBegun("there is nobody to ask here".to_owned())) })
    }
}
