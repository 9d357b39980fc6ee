//! Reads the tools that a host offers, and speaks with it about calls of them.
//!
//! It must not know which calls are open. Source: the RPC reference of gjc, Host Tool Sub-Protocol;
//! docs/protocol/gjc.md, Host tools.

use serde::{Deserialize, Serialize};

use crate::json::{RawJson, wire_values};
use crate::omp::message::{OmpContentBlock, ToolOutput};

/// The tool that no host may offer: it is how the agent asks people.
const RESERVED: &str = "ask";

/// Text for the model whose call lost its host.
pub const DISCONNECTED: &str = "RPC client disconnected before host tool execution completed";

/// A tool of the host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostTool {
    /// Name under which the model calls it.
    pub name: String,
    /// Label for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Description for the model.
    pub description: String,
    /// The JSON Schema of its arguments: an object.
    pub parameters: RawJson,
    /// True if it is only there to be switched on later.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

/// Why a set of tools is refused. Nothing changes then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolsError {
    /// One has no name.
    #[error("Host tool at index {0} must provide a non-empty name")]
    Name(usize),
    /// One has no description.
    #[error("Host tool \"{0}\" must provide a non-empty description")]
    Description(String),
    /// One does not say what arguments it takes.
    #[error("Host tool \"{0}\" must provide a JSON Schema object")]
    Parameters(String),
    /// Whether one is hidden is neither true nor false.
    #[error("Host tool \"{0}\": hidden must be true or false")]
    Hidden(String),
    /// One is called as a tool that no host may offer.
    #[error("RPC host tool \"{0}\" is reserved and cannot be supplied by the host")]
    Reserved(String),
    /// Two have one name.
    #[error("RPC host tool names must be unique")]
    Twice,
    /// One is called as a tool that is there.
    #[error("RPC host tool \"{0}\" conflicts with an existing tool")]
    Conflict(String),
}

/// Reads the tools of `set_host_tools`; names, labels and descriptions are trimmed.
///
/// # Errors
/// [`ToolsError`], the first by the order of the list; a duplicate name comes after those.
pub fn read_tools(definitions: &[RawJson]) -> Result<Vec<HostTool>, ToolsError> {
    let tools: Vec<HostTool> =
        definitions.iter().enumerate().map(|(at, definition)| read_tool(at, definition)).collect::<Result<_, _>>()?;
    let twice = |(at, tool): (usize, &HostTool)| tools[..at].iter().any(|before| before.name == tool.name);
    if tools.iter().enumerate().any(twice) {
        return Err(ToolsError::Twice);
    }
    Ok(tools)
}

/// Checks that no tool is called as one that is there already and not the host's.
///
/// # Errors
/// [`ToolsError::Conflict`] for the first.
pub fn check_conflicts(tools: &[HostTool], exists: impl Fn(&str) -> bool) -> Result<(), ToolsError> {
    match tools.iter().find(|tool| exists(&tool.name)) {
        Some(tool) => Err(ToolsError::Conflict(tool.name.clone())),
        None => Ok(()),
    }
}

/// The members of a definition as they came: each is judged by itself, so that the error names it.
#[derive(Deserialize)]
struct HostToolDefinition {
    name: Option<RawJson>,
    label: Option<RawJson>,
    description: Option<RawJson>,
    parameters: Option<RawJson>,
    hidden: Option<RawJson>,
}

fn read_tool(at: usize, definition: &RawJson) -> Result<HostTool, ToolsError> {
    let given: HostToolDefinition = definition.decode_as().map_err(|_| ToolsError::Name(at))?;
    let text = |json: Option<&RawJson>| {
        let text = json.and_then(|json| json.decode_as::<String>().ok()).unwrap_or_default();
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let name = text(given.name.as_ref()).ok_or(ToolsError::Name(at))?;
    let Some(description) = text(given.description.as_ref()) else { return Err(ToolsError::Description(name)) };
    let parameters = given.parameters.filter(|json| json.as_text().starts_with('{'));
    let Some(parameters) = parameters else { return Err(ToolsError::Parameters(name)) };
    if name == RESERVED {
        return Err(ToolsError::Reserved(name));
    }
    let Some(hidden) = read_flag(given.hidden.as_ref()) else { return Err(ToolsError::Hidden(name)) };
    Ok(HostTool { name, label: text(given.label.as_ref()), description, parameters, hidden })
}

/// Reads a flag that is false where it is absent or null. `None` for anything else than true and false.
pub(super) fn read_flag(given: Option<&RawJson>) -> Option<bool> {
    match given.map(RawJson::as_text) {
        None | Some("null" | "false") => Some(false),
        Some("true") => Some(true),
        Some(_) => None,
    }
}

/// Data of `set_host_tools`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolNames {
    /// In the order in which they were given.
    pub tool_names: Vec<String>,
}

/// A frame that asks the host to do a call, or to stop one.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum HostToolFrame {
    /// Asks for a call. The arguments fit the tool's schema.
    HostToolCall {
        /// Names the call; see [`frame_id`].
        id: String,
        /// Id of the call in the assistant message.
        tool_call_id: String,
        /// Name of the tool.
        tool_name: String,
        /// An object.
        arguments: RawJson,
    },
    /// Cancels a call: its result is not needed any more.
    HostToolCancel {
        /// Names the frame.
        id: String,
        /// Names the call.
        target_id: String,
    },
}

/// Returns the id of a frame that asks the host for something: 16 hex digits.
pub fn frame_id(bits: u64) -> String {
    format!("{bits:016x}")
}

/// Returns the text for the model about a call that was stopped.
pub fn aborted_text(tool: &str) -> String {
    format!("Host tool \"{tool}\" was aborted")
}

/// Result or update of a call of a host tool.
#[derive(Clone, Debug, PartialEq)]
pub enum HostToolAnswer {
    /// All output so far; the call continues.
    Update(ToolOutput),
    /// The call ended well.
    Done(ToolOutput),
    /// The call failed, with the text for the model.
    Failed(String),
}

/// A result as it came: `content` is a list of objects with a string `type` each.
#[derive(Deserialize)]
struct RawToolResult {
    content: Vec<RawJson>,
    #[serde(default)]
    details: Option<RawJson>,
}

impl HostToolAnswer {
    /// Reads `partialResult` of an update. Details are always there.
    pub(crate) fn from_update(partial_result: &RawJson) -> Option<Self> {
        let mut output = read_output(partial_result)?;
        output.details.get_or_insert_with(|| serde_json::json!({}).into());
        Some(Self::Update(output))
    }

    /// Reads `result` of a result.
    pub(crate) fn from_result(result: &RawJson, is_error: bool) -> Option<Self> {
        let output = read_output(result)?;
        Some(if is_error { Self::Failed(failure_text(&output)) } else { Self::Done(output) })
    }
}

fn read_output(json: &RawJson) -> Option<ToolOutput> {
    #[derive(Deserialize)]
    struct TypedBlock {
        #[serde(rename = "type")]
        _kind: String,
    }
    let given: RawToolResult = json.decode_as().ok()?;
    let block = |item: &RawJson| {
        item.as_text().starts_with('{').then_some(())?;
        item.decode_as::<TypedBlock>().ok()?;
        // A block of a known type in another form is passed on as it is, as the original does.
        Some(item.decode_as().unwrap_or_else(|_| OmpContentBlock::Other(item.clone())))
    };
    let content = given.content.iter().map(block).collect::<Option<_>>()?;
    Some(ToolOutput { content, details: given.details.filter(|json| json.as_text() != "null") })
}

fn failure_text(output: &ToolOutput) -> String {
    let text = |block: &OmpContentBlock| match block {
        OmpContentBlock::Text(text) => Some(text.text.clone()),
        OmpContentBlock::Image(_) | OmpContentBlock::Other(_) => None,
    };
    let text = output.content.iter().filter_map(text).collect::<Vec<_>>().join("\n");
    match text.trim() {
        "" => "Host tool execution failed".to_owned(),
        text => text.to_owned(),
    }
}

wire_values! { HostTool, ToolNames, HostToolFrame }

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(definitions: Value) -> Result<Vec<HostTool>, String> {
        let definitions: Vec<RawJson> = definitions.as_array().unwrap().iter().cloned().map(RawJson::from).collect();
        read_tools(&definitions).map_err(|error| error.to_string())
    }

    fn tool(name: &str) -> Value {
        json!({"name": name, "description": "d", "parameters": {}})
    }

    #[test]
    fn each_fault_of_a_definition_is_named() {
        for (definitions, want) in [
            (json!([tool("a"), {}]), "Host tool at index 1 must provide a non-empty name"),
            (json!([tool("  ")]), "Host tool at index 0 must provide a non-empty name"),
            (json!([{"name": 5}]), "Host tool at index 0 must provide a non-empty name"),
            (json!(["a"]), "Host tool at index 0 must provide a non-empty name"),
            (json!([{"name": " a "}]), "Host tool \"a\" must provide a non-empty description"),
            (json!([{"name": "a", "description": " "}]), "Host tool \"a\" must provide a non-empty description"),
            (json!([{"name": "a", "description": "d"}]), "Host tool \"a\" must provide a JSON Schema object"),
            (
                json!([{"name": "a", "description": "d", "parameters": []}]),
                "Host tool \"a\" must provide a JSON Schema object",
            ),
            (json!([tool("ask")]), "RPC host tool \"ask\" is reserved and cannot be supplied by the host"),
            (json!([tool("a"), tool(" a")]), "RPC host tool names must be unique"),
        ] {
            assert_eq!(read(definitions.clone()), Err(want.to_owned()), "{definitions}");
        }
        let tools = read(json!([tool("a"), tool("read")])).unwrap();
        let conflict = check_conflicts(&tools, |name| name == "read").unwrap_err().to_string();
        assert_eq!(conflict, "RPC host tool \"read\" conflicts with an existing tool");
        assert_eq!(check_conflicts(&tools, |_| false), Ok(()));
    }

    #[test]
    fn a_definition_is_trimmed() {
        let given = json!([{"name": " a ", "label": " A ", "description": " d ", "parameters": {"type": "object"}, "hidden": true}]);
        let want = HostTool {
            name: "a".to_owned(),
            label: Some("A".to_owned()),
            description: "d".to_owned(),
            parameters: json!({"type": "object"}).into(),
            hidden: true,
        };
        assert_eq!(read(given), Ok(vec![want]));
    }

    #[test]
    fn a_failure_is_its_texts() {
        for (content, want) in [
            (json!([{"type": "text", "text": " a "}, {"type": "image"}, {"type": "text", "text": "b\n"}]), "a \nb"),
            (json!([]), "Host tool execution failed"),
            (json!([{"type": "text", "text": "  "}]), "Host tool execution failed"),
            (json!([{"type": "text"}]), "Host tool execution failed"),
        ] {
            let result = json!({"content": content}).into();
            assert_eq!(
                HostToolAnswer::from_result(&result, true),
                Some(HostToolAnswer::Failed(want.to_owned())),
                "{content}"
            );
        }
    }

    #[test]
    fn a_result_holds_typed_objects() {
        for result in [
            json!(null),
            json!("done"),
            json!({}),
            json!({"content": "done"}),
            json!({"content": ["done"]}),
            json!({"content": [{"text": "done"}]}),
            json!({"content": [{"type": 1}]}),
            json!({"content": [["type"]]}),
        ] {
            assert_eq!(HostToolAnswer::from_result(&result.clone().into(), false), None, "{result}");
            assert_eq!(HostToolAnswer::from_update(&result.clone().into()), None, "{result}");
        }
        let Some(HostToolAnswer::Update(output)) = HostToolAnswer::from_update(&json!({"content": []}).into()) else {
            panic!("not read")
        };
        assert_eq!(output.details.unwrap().as_text(), "{}");
    }
}
