//! Description of a node when it connects.
//!
//! It must not know its connection.

use std::collections::BTreeMap;

use countersign_protocol::gsv::{
    connect::{ConnectAuth, ConnectClient, ConnectParams, PeerMode},
    runtime::{HostRole, MachineCapability, RuntimeInfo},
    tool::ToolDefinition,
};
use countersign_tools::node::{NodeCapability, NodeToolOffer, OFFERED};
use serde_json::{Map, Value};

/// Content of the handshake except the token.
pub(crate) struct NodeHandshake {
    id: String,
    tools: Vec<ToolDefinition>,
    runtime: RuntimeInfo,
    journal: String,
}

impl NodeHandshake {
    /// Creates the handshake of a node whose commands start with variables of these names, and whose journal has this number.
    pub(crate) fn new(id: &str, mut variables: Vec<String>, journal: u64) -> Self {
        variables.sort();
        let tools = OFFERED.iter().map(tool_definition).collect();
        let needs = |offer: &NodeToolOffer| offer.needs.iter().map(|need| host_capability(*need)).collect::<Vec<_>>();
        let tool_capabilities: BTreeMap<_, _> =
            OFFERED.iter().map(|offer| (offer.spec.name.clone(), needs(offer))).collect();
        let all = [
            NodeCapability::List,
            NodeCapability::Read,
            NodeCapability::Write,
            NodeCapability::Edit,
            NodeCapability::Search,
            NodeCapability::Exec,
        ];
        let runtime = RuntimeInfo {
            host_role: Some(HostRole::Execution),
            host_capabilities: all.map(host_capability).to_vec(),
            tool_capabilities,
            host_os: Some(std::env::consts::OS.to_owned()),
            host_env: variables,
            host_bin_status: BTreeMap::new(),
            host_bin_status_updated_at: None,
        };
        Self { id: id.to_owned(), tools, runtime, journal: format!("{journal:016x}") }
    }

    /// Returns the parameters of `connect`.
    pub(crate) fn connect_params<'a>(&'a self, token: Option<&'a str>) -> ConnectParams<'a> {
        ConnectParams {
            min_protocol: 1,
            max_protocol: 1,
            client: ConnectClient {
                id: &self.id,
                version: env!("CARGO_PKG_VERSION"),
                platform: std::env::consts::OS,
                mode: PeerMode::Node,
            },
            tools: Some(&self.tools),
            node_runtime: Some(&self.runtime),
            journal: Some(true),
            journal_id: Some(&self.journal),
            auth: token.map(|token| ConnectAuth { token }),
        }
    }
}

fn tool_definition(offer: &NodeToolOffer) -> ToolDefinition {
    let schema = match &offer.spec.schema {
        Value::Object(schema) => schema.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    };
    ToolDefinition { name: offer.spec.name.clone(), description: offer.spec.description.clone(), input_schema: schema }
}

const fn host_capability(need: NodeCapability) -> MachineCapability {
    match need {
        NodeCapability::List => MachineCapability::FilesystemList,
        NodeCapability::Read => MachineCapability::FilesystemRead,
        NodeCapability::Write => MachineCapability::FilesystemWrite,
        NodeCapability::Edit => MachineCapability::FilesystemEdit,
        NodeCapability::Search => MachineCapability::TextSearch,
        NodeCapability::Exec => MachineCapability::ShellExec,
    }
}
