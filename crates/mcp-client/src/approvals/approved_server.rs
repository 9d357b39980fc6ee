//! A server as it was approved, with its tools and the times since which they are so.

use std::collections::BTreeMap;

use countersign_core::{digest::Digest, time::Millis};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::changes::ApprovalNote;
use crate::{
    definition::ServerDefinition,
    listing::{ServerTool, offered_name},
};

/// Times since which servers and tools are approved as they are now. Those of earlier versions have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApprovalTimes {
    /// By the name of the server.
    pub servers: BTreeMap<String, Millis>,
    /// By the name under which the tool is called.
    pub tools: BTreeMap<String, Millis>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ApprovedServer {
    pub(super) definition: Digest,
    /// Absent in files of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) approved: Option<ApprovalNote>,
    /// Time at which the server was first approved under this definition; absent in files of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Millis>,
    pub(super) tools: BTreeMap<String, ApprovedTool>,
}

/// A tool as it was approved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovedTool {
    /// Digest of the tool as the server sent it.
    pub digest: Digest,
    /// Description for the model.
    pub description: String,
    /// JSON Schema of the arguments.
    pub schema: Value,
    /// JSON Schema of structured results; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Hints of the server.
    pub annotations: Value,
    /// Time since which it is approved in this form; absent in files of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Millis>,
}

impl ApprovedServer {
    /// Creates the approval of a server with those of `tools` that are its own.
    pub(super) fn new(definition: &ServerDefinition, tools: &[ServerTool], note: ApprovalNote) -> Self {
        let since = Some(note.at);
        let tools = tools.iter().filter(|tool| tool.server == definition.name);
        let tools = tools.map(|tool| (tool.name.clone(), ApprovedTool::from_server_tool(tool, note.at))).collect();
        Self { definition: definition.digest(), approved: Some(note), since, tools }
    }

    /// Takes the times of what is as it was in an earlier approval.
    pub(super) fn keep_times(&mut self, earlier: &Self) {
        if earlier.definition != self.definition {
            return;
        }
        self.since = earlier.since;
        for (name, tool) in &mut self.tools {
            if let Some(before) = earlier.tools.get(name).filter(|before| before.digest == tool.digest) {
                tool.since = before.since;
            }
        }
    }

    /// Adds the times since which the server and its tools are approved as they are.
    pub(super) fn add_times(&self, server: &str, times: &mut ApprovalTimes) {
        times.servers.extend(self.since.map(|since| (server.to_owned(), since)));
        let tools = self.tools.iter().filter_map(|(name, tool)| Some((offered_name(server, name).ok()?, tool.since?)));
        times.tools.extend(tools);
    }
}

impl ApprovedTool {
    fn from_server_tool(tool: &ServerTool, since: Millis) -> Self {
        Self {
            digest: tool.digest,
            description: tool.description.clone(),
            schema: tool.schema.clone(),
            output_schema: tool.output_schema.clone(),
            annotations: tool.annotations.clone(),
            since: Some(since),
        }
    }

    /// Returns the tool as it was approved; none if its name cannot be offered.
    pub(super) fn to_server_tool(&self, server: &str, name: &str) -> Option<ServerTool> {
        Some(ServerTool {
            server: server.to_owned(),
            name: name.to_owned(),
            offered_name: offered_name(server, name).ok()?,
            description: self.description.clone(),
            schema: self.schema.clone(),
            output_schema: self.output_schema.clone(),
            annotations: self.annotations.clone(),
            digest: self.digest,
        })
    }
}
