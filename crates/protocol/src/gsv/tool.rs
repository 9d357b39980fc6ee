//! Tools of nodes: what a node offers, under which names agents see it, and calls of it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

use super::Fault;
use super::fields::Fields;
use crate::json::{Json, Wire};

/// What stands in front of our own tools.
pub const NATIVE: &str = "gsv";

/// How many tools a node may offer.
pub const MOST_TOOLS: usize = 256;

/// How many bytes all that a node says of its tools may have.
pub const LARGEST_TOOLS: usize = 1 << 20;

/// How many bytes the name of a tool may have.
pub const LONGEST_NAME: usize = 128;

/// A tool as it is listed and registered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Definition {
    /// Its name: the node's own when it registers, the full one in lists.
    pub name: String,
    /// What it does.
    pub description: String,
    /// What its arguments look like, as JSON Schema.
    pub input_schema: Map<String, Value>,
}

impl Wire for Definition {}

/// Reads the tools that a node offers.
pub(super) fn definitions(tools: Vec<Value>) -> Result<Vec<Definition>, Fault> {
    if tools.len() > MOST_TOOLS {
        return Err(Fault::invalid(format!("Invalid tools: {} of them, at most {MOST_TOOLS} are taken", tools.len())));
    }
    let bytes: usize = tools.iter().map(|tool| tool.to_string().len()).sum();
    if bytes > LARGEST_TOOLS {
        let what = format!("Invalid tools: {bytes} bytes of them, at most {LARGEST_TOOLS} are taken");
        return Err(Fault::invalid(what));
    }
    let mut read: Vec<Definition> = Vec::with_capacity(tools.len());
    for (place, tool) in tools.into_iter().enumerate() {
        let within = format!("tools[{place}]");
        let mut fields = Fields::item(tool, &within).map_err(invalid)?;
        let name = fields.required("name", &format!("{within}.name required")).map_err(invalid)?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.len() > LONGEST_NAME || !name.chars().all(is_plain) {
            let what = format!("{within}.name must be at most {LONGEST_NAME} letters, digits, _, - and .");
            return Err(invalid(Fault::invalid(what)));
        }
        let description = fields.text("description").map_err(invalid)?.unwrap_or_default();
        let input_schema = fields.object("inputSchema").map_err(invalid)?.unwrap_or_default();
        read.push(Definition { name, description, input_schema });
    }
    Ok(read)
}

/// The first tool whose name another one has.
pub(super) fn twice(tools: &[Definition]) -> Option<&str> {
    let is_known = |at: usize| tools[..at].iter().any(|before| before.name == tools[at].name);
    (0..tools.len()).find(|at| is_known(*at)).map(|at| tools[at].name.as_str())
}

fn invalid(fault: Fault) -> Fault {
    Fault { message: format!("Invalid tools: {}", fault.message), ..fault }
}

/// Why a node cannot have this id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeIdError {
    /// Names of its tools could be read in two ways.
    #[error("the id of a node must not contain \"__\" nor end with \"_\": {0}")]
    Separator(String),
    /// Its tools would have the names of ours.
    #[error("the id {NATIVE} is taken")]
    Taken,
}

/// Decides whether a node can have this id.
///
/// # Errors
/// If names of its tools could be mistaken.
pub fn check_node(id: &str) -> Result<(), NodeIdError> {
    if id.eq_ignore_ascii_case(NATIVE) {
        return Err(NodeIdError::Taken);
    }
    if id.contains("__") || id.ends_with('_') {
        return Err(NodeIdError::Separator(id.to_owned()));
    }
    Ok(())
}

/// A full name, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name<'a> {
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

impl<'a> Name<'a> {
    /// Takes `node__Tool` apart, or `node:Tool`, which the protocol's document writes.
    pub fn read(name: &'a str) -> Self {
        let parts = name.split_once("__").or_else(|| name.split_once(':'));
        match parts.filter(|(node, tool)| !node.is_empty() && !tool.is_empty()) {
            Some((NATIVE, tool)) => Self::Native(tool),
            Some((node, tool)) => Self::OfNode { node, tool },
            None => Self::Bare(name),
        }
    }

    /// The name as agents see it.
    pub fn of_node(node: &str, tool: &str) -> String {
        format!("{node}__{tool}")
    }
}

/// Parameters of `tool.invoke`.
#[derive(Clone, Debug, PartialEq)]
pub struct Invoke {
    /// The full name.
    pub tool: String,
    /// The arguments.
    pub args: Map<String, Value>,
}

impl Invoke {
    pub(super) fn read(mut fields: Fields) -> Result<Self, Fault> {
        let tool = fields.required("tool", "tool required")?;
        Ok(Self { tool, args: fields.object("args")?.unwrap_or_default() })
    }
}

/// The answer to `tool.invoke`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Invoked {
    /// What the node gave.
    pub result: Json,
}

impl Wire for Invoked {}

/// Parameters of `tool.request`.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// What the call is known by.
    pub call_id: String,
    /// The full name.
    pub tool: String,
    /// The arguments.
    pub args: Map<String, Value>,
    /// The session that it is for.
    pub session_key: String,
}

impl Ask {
    pub(super) fn read(mut fields: Fields) -> Result<Self, Fault> {
        const MISSING: &str = "callId, tool, and sessionKey required";
        Ok(Self {
            call_id: fields.required("callId", MISSING)?,
            tool: fields.required("tool", MISSING)?,
            session_key: fields.required("sessionKey", MISSING)?,
            args: fields.object("args")?.unwrap_or_default(),
        })
    }
}

/// The answer to `tool.request`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Asked {
    status: Sent,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Sent {
    #[default]
    Sent,
}

impl Wire for Asked {}

/// The event `tool.invoke`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    /// To be given back with the result.
    pub call_id: String,
    /// The node's own name of the tool.
    pub tool: String,
    /// The arguments.
    pub args: Json,
}

impl Wire for Call {}

/// The event `tool.resume` (ours): what became of a call that was sent over an earlier connection?
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resume {
    /// The call. It is answered with `tool.result`.
    pub call_id: String,
}

impl Wire for Resume {}

/// Why a node that is asked again about a call has no result of it (ours).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It never began, and never will under its id.
    NotBegun,
    /// It began, and broke off.
    Unknown,
}

/// Parameters of `tool.result`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The call.
    pub call_id: String,
    /// What came of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    /// What went wrong. If it is there, it counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// That there is no result and will be none. Only of a node that keeps a journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fate: Option<Fate>,
}

impl Wire for Outcome {}

impl Outcome {
    pub(super) fn read(params: Option<&Json>) -> Result<Self, Fault> {
        let (mut fields, result) = Fields::with_one_apart(params, "result")?;
        let call_id = fields.required("callId", "callId required")?;
        let error = fields.text("error")?.filter(|error| !error.is_empty());
        let fates = [("not_begun", Fate::NotBegun), ("unknown", Fate::Unknown)];
        let fate = fields.word("fate", &fates)?;
        Ok(Self { call_id, result, error, fate })
    }

    /// What the model reads: text as it is, anything else as JSON, an error with a word in front.
    pub fn text(&self) -> String {
        match (&self.error, &self.result) {
            (Some(error), _) => format!("Error: {error}"),
            (None, Some(result)) => result.read::<String>().unwrap_or_else(|_| result.text().to_owned()),
            (None, None) => "null".to_owned(),
        }
    }
}

/// The call that a result is of which cannot be read, if it says so much.
pub fn call_of(params: &Json) -> Option<String> {
    let members: HashMap<String, &RawValue> = serde_json::from_str(params.text()).ok()?;
    serde_json::from_str(members.get("callId")?.get()).ok()
}

/// The answer to whatever a node or channel hands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// Always true.
    pub ok: bool,
    /// True if nobody waited for it any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<bool>,
}

impl Wire for Ack {}

impl Ack {
    /// It was taken.
    pub const TAKEN: Self = Self { ok: true, dropped: None };
    /// It was kept, but nobody waited for it.
    pub const DROPPED: Self = Self { ok: true, dropped: Some(true) };
}

/// The answer to `tools.list`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listed {
    /// Ours first, then those of nodes, each by its full name.
    pub tools: Vec<Definition>,
}

impl Wire for Listed {}
