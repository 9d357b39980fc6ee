//! Tools of nodes: what a node offers, under which names agents see it, and calls of it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

use super::GsvError;
use super::fields::ParamFields;
use crate::json::{RawJson, wire_values};

/// Prefix of the names of our own tools.
pub const NATIVE: &str = "gsv";
/// Beginning of the names of tools of MCP servers, as an id of a node would be.
pub const MCP_SERVERS: &str = "mcp";

/// Most tools that a node may offer.
pub const MOST_TOOLS: usize = 256;

/// Largest description of a node's tools, in bytes.
pub const LARGEST_TOOLS: usize = 1 << 20;

/// Longest name of a tool, in bytes.
pub const LONGEST_NAME: usize = 128;

/// A tool as it is listed and registered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolDefinition {
    /// Its name: the node's own when it registers, the full one in lists.
    pub name: String,
    /// Description.
    pub description: String,
    /// Schema of its arguments, as JSON Schema.
    pub input_schema: Map<String, Value>,
}

/// Reads the tools that a node offers.
pub(super) fn read_definitions(tools: Vec<Value>) -> Result<Vec<ToolDefinition>, GsvError> {
    if tools.len() > MOST_TOOLS {
        return Err(GsvError::bad_request(format!(
            "Invalid tools: {} of them, at most {MOST_TOOLS} are taken",
            tools.len()
        )));
    }
    let bytes: usize = tools.iter().map(|tool| tool.to_string().len()).sum();
    if bytes > LARGEST_TOOLS {
        let what = format!("Invalid tools: {bytes} bytes of them, at most {LARGEST_TOOLS} are taken");
        return Err(GsvError::bad_request(what));
    }
    let mut read: Vec<ToolDefinition> = Vec::with_capacity(tools.len());
    for (place, tool) in tools.into_iter().enumerate() {
        let within = format!("tools[{place}]");
        let mut fields = ParamFields::from_item(tool, &within).map_err(invalid_tools)?;
        let name = fields.require_text("name", &format!("{within}.name required")).map_err(invalid_tools)?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.len() > LONGEST_NAME || !name.chars().all(is_plain) {
            let what = format!("{within}.name must be at most {LONGEST_NAME} letters, digits, _, - and .");
            return Err(invalid_tools(GsvError::bad_request(what)));
        }
        let description = fields.take_text("description").map_err(invalid_tools)?.unwrap_or_default();
        let input_schema = fields.take_object("inputSchema").map_err(invalid_tools)?.unwrap_or_default();
        read.push(ToolDefinition { name, description, input_schema });
    }
    Ok(read)
}

/// Returns the first tool whose name another one has.
pub(super) fn duplicate_name(tools: &[ToolDefinition]) -> Option<&str> {
    let is_known = |at: usize| tools[..at].iter().any(|before| before.name == tools[at].name);
    (0..tools.len()).find(|at| is_known(*at)).map(|at| tools[at].name.as_str())
}

fn invalid_tools(fault: GsvError) -> GsvError {
    GsvError { message: format!("Invalid tools: {}", fault.message), ..fault }
}

/// Reason that a node cannot have this id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeIdError {
    /// Names of its tools could be read in two ways.
    #[error("the id of a node must not contain \"__\" nor end with \"_\": {0}")]
    Separator(String),
    /// Its tools would have the names of the gateway's own, or of those of MCP servers.
    #[error("the id {0} is taken")]
    Taken(&'static str),
}

/// Decides whether a node can have this id.
///
/// # Errors
/// If names of its tools could be mistaken.
pub fn check_node(id: &str) -> Result<(), NodeIdError> {
    if let Some(taken) = [NATIVE, MCP_SERVERS].into_iter().find(|taken| id.eq_ignore_ascii_case(taken)) {
        return Err(NodeIdError::Taken(taken));
    }
    if id.contains("__") || id.ends_with('_') {
        return Err(NodeIdError::Separator(id.to_owned()));
    }
    Ok(())
}

/// A full name, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsedToolName<'a> {
    /// One of our own.
    Native(&'a str),
    /// One of a node.
    OfNode {
        /// The node's id.
        node: &'a str,
        /// The node's own name of it.
        tool: &'a str,
    },
    /// Neither.
    Bare(&'a str),
}

impl<'a> ParsedToolName<'a> {
    /// Takes `node__Tool` apart, or `node:Tool`, which the protocol's document writes.
    pub fn parse_name(name: &'a str) -> Self {
        let parts = name.split_once("__").or_else(|| name.split_once(':'));
        match parts.filter(|(node, tool)| !node.is_empty() && !tool.is_empty()) {
            Some((NATIVE, tool)) => Self::Native(tool),
            Some((node, tool)) => Self::OfNode { node, tool },
            None => Self::Bare(name),
        }
    }

    /// Returns the name as agents see it.
    pub fn of_node(node: &str, tool: &str) -> String {
        format!("{node}__{tool}")
    }
}

/// Parameters of `tool.invoke`.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolInvokeParams {
    /// The full name.
    pub tool: String,
    /// The arguments.
    pub args: Map<String, Value>,
}

impl ToolInvokeParams {
    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        let tool = fields.require_text("tool", "tool required")?;
        Ok(Self { tool, args: fields.take_object("args")?.unwrap_or_default() })
    }
}

/// The answer to `tool.invoke`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ToolInvokeResult {
    /// Result from the node.
    pub result: RawJson,
}

/// Parameters of `tool.request`.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolRequestParams {
    /// Id of the call.
    pub call_id: String,
    /// The full name.
    pub tool: String,
    /// The arguments.
    pub args: Map<String, Value>,
    /// The session that it is for.
    pub session_key: String,
}

impl ToolRequestParams {
    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        const MISSING: &str = "callId, tool, and sessionKey required";
        Ok(Self {
            call_id: fields.require_text("callId", MISSING)?,
            tool: fields.require_text("tool", MISSING)?,
            session_key: fields.require_text("sessionKey", MISSING)?,
            args: fields.take_object("args")?.unwrap_or_default(),
        })
    }
}

/// The answer to `tool.request`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ToolRequestResult {
    status: SentStatus,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum SentStatus {
    #[default]
    Sent,
}

/// The event `tool.invoke`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolInvokeEvent {
    /// Id of the call, which the result repeats.
    pub call_id: String,
    /// The node's own name of the tool.
    pub tool: String,
    /// The arguments.
    pub args: RawJson,
}

/// The event `tool.resume` (ours): what became of a call that was sent over an earlier connection?
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResumeEvent {
    /// The call. It is answered with `tool.result`.
    pub call_id: String,
}

/// Reason that a node that is asked again about a call has no result (ours).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoResultReason {
    /// The call never began, and never will under its id.
    NotBegun,
    /// The call began and broke off.
    Unknown,
}

/// Parameters of `tool.result`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResultParams {
    /// The call.
    pub call_id: String,
    /// Result of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<RawJson>,
    /// Error text. If it is present, it counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Reason that there is no result and will be none. Only of a node that keeps a journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fate: Option<NoResultReason>,
}

impl ToolResultParams {
    pub(super) fn from_params(params: Option<&RawJson>) -> Result<Self, GsvError> {
        let (mut fields, result) = ParamFields::with_raw_member(params, "result")?;
        let call_id = fields.require_text("callId", "callId required")?;
        let error = fields.take_text("error")?.filter(|error| !error.is_empty());
        let fates = [("not_begun", NoResultReason::NotBegun), ("unknown", NoResultReason::Unknown)];
        let fate = fields.take_choice("fate", &fates)?;
        Ok(Self { call_id, result, error, fate })
    }

    /// Returns the text for the model: text as it is, anything else as JSON, an error with a word in front.
    pub fn model_text(&self) -> String {
        match (&self.error, &self.result) {
            (Some(error), _) => format!("Error: {error}"),
            (None, Some(result)) => result.decode_as::<String>().unwrap_or_else(|_| result.as_text().to_owned()),
            (None, None) => "null".to_owned(),
        }
    }
}

/// Returns the call of a result that cannot be read, if the result names it.
pub fn call_of(params: &RawJson) -> Option<String> {
    let members: HashMap<String, &RawValue> = serde_json::from_str(params.as_text()).ok()?;
    serde_json::from_str(members.get("callId")?.get()).ok()
}

/// The answer to every input of a node or channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckResult {
    /// Always true.
    pub ok: bool,
    /// True if the result was not awaited any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<bool>,
}

impl AckResult {
    /// Taken.
    pub const TAKEN: Self = Self { ok: true, dropped: None };
    /// Kept, but not awaited any more.
    pub const DROPPED: Self = Self { ok: true, dropped: Some(true) };
}

/// The answer to `tools.list`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolsListResult {
    /// Ours first, then those of nodes, each by its full name.
    pub tools: Vec<ToolDefinition>,
}

wire_values! {
    ToolDefinition, ToolInvokeResult, ToolRequestResult, ToolInvokeEvent, ToolResumeEvent, ToolResultParams, AckResult,
    ToolsListResult,
}
