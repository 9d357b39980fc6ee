//! Tools that a server offers: read, checked, named for models, and identified by a digest.
//!
//! It must not know which of them are approved.

use std::collections::BTreeMap;

use countersign_core::digest::{Digest, canonical_json};
use rmcp::model::{ClientRequest, ListToolsRequest};
use serde_json::{Map, Value, json};

use crate::{
    connection::Connection,
    definition::ServerDefinition,
    error::McpError,
    pages::{PageRequest, read_entries},
    schema_check::check_schema,
    text::{is_format, printable_excerpt},
};

/// Longest name of a tool that all providers of models take.
const LONGEST_NAME: usize = 64;
/// Longest description, in bytes.
const LONGEST_DESCRIPTION: usize = 16 << 10;
/// Hints that a tool may give about itself. They grant nothing.
const HINTS: [&str; 5] = ["title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"];

const TOOLS: PageRequest = PageRequest {
    method: "tools/list",
    member: "tools",
    request: |params| ClientRequest::ListToolsRequest(ListToolsRequest { params, ..ListToolsRequest::default() }),
};

/// A tool as its server offers it.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerTool {
    /// Name of the server.
    pub server: String,
    /// Name that the server knows.
    pub name: String,
    /// Name that models call: `mcp__SERVER__TOOL`.
    pub offered_name: String,
    /// Description for the model, with hidden characters written out. Empty if there is none.
    pub description: String,
    /// JSON Schema of the arguments, an object.
    pub schema: Value,
    /// JSON Schema of structured results, if the server has one.
    pub output_schema: Option<Value>,
    /// Hints of the server about the tool, an object. They grant nothing.
    pub annotations: Value,
    /// Digest of name, description, schemas and annotations as the server sent them.
    pub digest: Digest,
}

/// A tool that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolProblem {
    /// Its name, escaped and cut; empty if it has none.
    pub tool: String,
    /// The reason.
    pub problem: String,
}

/// The tools of a server at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerListing {
    /// Name of the server.
    pub server: String,
    /// Usable tools, in the order of the server.
    pub tools: Vec<ServerTool>,
    /// Tools that are left out.
    pub problems: Vec<ToolProblem>,
}

impl ServerListing {
    /// Sorts out what a server lists.
    pub(crate) fn from_entries(server: &str, entries: &[Value]) -> Self {
        let mut listing = Self { server: server.to_owned(), tools: Vec::new(), problems: Vec::new() };
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for name in entries.iter().filter_map(|entry| entry.get("name")?.as_str()) {
            *counts.entry(name).or_default() += 1;
        }
        for entry in entries {
            let name = entry.get("name").and_then(Value::as_str);
            let is_twice = name.is_some_and(|name| counts.get(name).is_some_and(|count| *count > 1));
            let read = if is_twice {
                Err("the server has several tools of this name".to_owned())
            } else {
                ServerTool::from_entry(server, entry)
            };
            match read {
                Ok(tool) => listing.tools.push(tool),
                Err(problem) => {
                    let tool = printable_excerpt(name.unwrap_or_default());
                    tracing::debug!(server, tool, problem, "a tool of an MCP server is left out");
                    listing.problems.push(ToolProblem { tool, problem });
                }
            }
        }
        listing
    }

    /// Returns the tool that the server knows as `name`.
    pub fn get(&self, name: &str) -> Option<&ServerTool> {
        self.tools.iter().find(|tool| tool.name == name)
    }
}

impl ServerTool {
    fn from_entry(server: &str, entry: &Value) -> Result<Self, String> {
        let name = entry.get("name").and_then(Value::as_str).ok_or("it has no name")?;
        let offered_name = offered_name(server, name)?;
        let description = match entry.get("description") {
            None | Some(Value::Null) => "",
            Some(Value::String(text)) => text,
            Some(_) => return Err("its description is no text".to_owned()),
        };
        if description.len() > LONGEST_DESCRIPTION {
            return Err(format!("its description is longer than {LONGEST_DESCRIPTION} bytes"));
        }
        let schema = entry.get("inputSchema").ok_or("it has no inputSchema")?;
        check_schema(schema).map_err(|problem| format!("its inputSchema cannot be used: {problem}"))?;
        let output_schema = entry.get("outputSchema").filter(|schema| !schema.is_null());
        let annotations = known_hints(entry.get("annotations"));
        let digest = tool_digest(name, description, schema, output_schema, &annotations);
        Ok(Self {
            server: server.to_owned(),
            name: name.to_owned(),
            offered_name,
            description: show_hidden(description),
            schema: schema.clone(),
            output_schema: output_schema.cloned(),
            annotations,
            digest,
        })
    }
}

/// Reads the tools of a server.
///
/// # Errors
/// As those of [`read_entries`].
pub(crate) async fn read_listing(
    connection: &Connection,
    definition: &ServerDefinition,
) -> Result<ServerListing, McpError> {
    if !connection.has_tools() {
        return Ok(ServerListing::from_entries(&definition.name, &[]));
    }
    let entries = read_entries(connection, definition, &TOOLS).await?;
    Ok(ServerListing::from_entries(&definition.name, &entries))
}

/// Returns the name under which models call a tool of a server.
///
/// # Errors
/// The reason that it has none: providers of models take letters, digits, `_` and `-`, at most 64 of them.
pub fn offered_name(server: &str, tool: &str) -> Result<String, String> {
    if tool.is_empty() {
        return Err("its name is empty".to_owned());
    }
    if tool.chars().any(|letter| letter.is_control() || is_format(letter)) {
        return Err("its name has control characters".to_owned());
    }
    let name = format!("mcp__{server}__{tool}");
    if name.len() > LONGEST_NAME {
        return Err(format!("its name with that of the server has {} characters, of {LONGEST_NAME}", name.len()));
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') {
        return Err("its name has characters other than a-z, A-Z, 0-9, _ and -".to_owned());
    }
    Ok(name)
}

/// Returns the known hints of a tool that have the right form.
fn known_hints(annotations: Option<&Value>) -> Value {
    let mut known = Map::new();
    for name in HINTS {
        let Some(value) = annotations.and_then(|annotations| annotations.get(name)) else { continue };
        if value.is_boolean() || (name == "title" && value.is_string()) {
            known.insert(name.to_owned(), value.clone());
        }
    }
    Value::Object(known)
}

fn tool_digest(
    name: &str,
    description: &str,
    schema: &Value,
    output_schema: Option<&Value>,
    annotations: &Value,
) -> Digest {
    let described = json!({
        "name": name,
        "description": description,
        "inputSchema": schema,
        "outputSchema": output_schema,
        "annotations": annotations,
    });
    Digest::hash_bytes(canonical_json(&described).as_bytes())
}

/// Writes characters out that a reader would not see. Line ends and tabs stay.
pub(crate) fn show_hidden(text: &str) -> String {
    let is_hidden = |letter: char| (letter.is_control() && !matches!(letter, '\n' | '\r' | '\t')) || is_format(letter);
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_hidden(letter) {
            shown.extend(letter.escape_unicode());
        } else {
            shown.push(letter);
        }
    }
    shown
}

#[cfg(test)]
mod tests;
