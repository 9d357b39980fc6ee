//! Properties of a tool for the engine: its name, its arguments, and whether its calls run alone. Other crates run it.

pub(crate) use countersign_shell_analysis::is_shell_in_rules;
pub use countersign_shell_analysis::{ForeignTool, ShellInput, ShellMachine};
use serde_json::{Map, Value};

/// Concurrency of a call with the other calls of the same model message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CallConcurrency {
    /// Parallel to other shared calls.
    Shared,
    /// Alone, in the order of the message.
    Exclusive,
}

/// Repetition of a call with an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RepeatMode {
    /// Twice has the effect of once.
    Idempotent,
    /// Never run again automatically.
    Once,
}

/// Effect of a tool outside the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ToolEffect {
    /// Reads only.
    Reads,
    /// May change files, machines or services.
    Changes,
}

/// A tool as the model, the policy and the person see it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// The name that the model calls.
    pub name: String,
    /// Description of the tool, for the model.
    pub description: String,
    /// JSON Schema of the arguments object.
    pub schema: Value,
    /// Concurrency of its calls.
    pub concurrency: CallConcurrency,
    /// Repeat mode: whether it may be repeated.
    pub repeat: RepeatMode,
    /// Effect: whether it changes anything.
    pub effect: ToolEffect,
    /// The arguments that its signature names, in order; empty means all, sorted by key.
    pub signature: &'static [&'static str],
}

impl ToolSpec {
    /// Writes the signature that rules match and an approver is shown: the name and the named arguments, such as
    /// `grep(needle, src)`.
    ///
    /// An argument that is absent is the empty string; a tool without arguments is its bare name.
    pub fn signature_of(&self, arguments: &Map<String, Value>) -> String {
        call_signature(&self.name, self.signature.iter().copied(), arguments)
    }
}

/// Writes the signature of a call of `tool` whose signature names the arguments `named`, in order; none means all, sorted by key.
pub(crate) fn call_signature<'n>(
    tool: &str,
    named: impl Iterator<Item = &'n str>,
    arguments: &Map<String, Value>,
) -> String {
    let mut values: Vec<String> = named.map(|key| arguments.get(key).map(value_text).unwrap_or_default()).collect();
    if values.is_empty() {
        let mut keys: Vec<&String> = arguments.keys().collect();
        keys.sort_unstable();
        values = keys.into_iter().map(|key| value_text(&arguments[key])).collect();
    }
    if values.is_empty() { tool.to_owned() } else { format!("{tool}({})", values.join(", ")) }
}

/// Returns the text of a value in signatures of runs: texts unchanged, all else as JSON.
pub(crate) fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{CallConcurrency, RepeatMode, ToolEffect, ToolSpec};

    #[test]
    fn a_signature_names_the_arguments_that_the_tool_declares() {
        let spec = |signature| ToolSpec {
            name: "grep".to_owned(),
            description: String::new(),
            schema: json!({}),
            concurrency: CallConcurrency::Shared,
            repeat: RepeatMode::Idempotent,
            effect: ToolEffect::Reads,
            signature,
        };
        let arguments = json!({"path": "src", "pattern": "a, b", "limit": 3});
        let arguments = arguments.as_object().unwrap();
        assert_eq!(spec(&["pattern", "path"]).signature_of(arguments), "grep(a, b, src)");
        assert_eq!(spec(&[]).signature_of(arguments), "grep(3, src, a, b)");
        assert_eq!(spec(&[]).signature_of(&serde_json::Map::new()), "grep");
    }
}
