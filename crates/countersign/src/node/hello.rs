//! What a node says of itself when it connects.
//!
//! It must not know its connection.

use std::collections::BTreeMap;

use countersign_protocol::gsv::{
    connect::{Client, ConnectParams, Mode, Token},
    runtime::{Capability, HostRole, RuntimeInfo},
    tool::Definition,
};
use countersign_tools::node::{Need, OFFERED, Offer};
use serde_json::{Map, Value};

/// Everything that the gateway is told but the token.
pub(crate) struct Hello {
    id: String,
    tools: Vec<Definition>,
    runtime: RuntimeInfo,
    journal: String,
}

impl Hello {
    /// Of a node whose commands start with variables of these names, and whose journal has this number.
    pub(crate) fn new(id: &str, mut variables: Vec<String>, journal: u64) -> Self {
        variables.sort();
        let tools = OFFERED.iter().map(definition).collect();
        let needs = |offer: &Offer| offer.needs.iter().map(|need| capability(*need)).collect::<Vec<_>>();
        let tool_capabilities: BTreeMap<_, _> =
            OFFERED.iter().map(|offer| (offer.spec.name.clone(), needs(offer))).collect();
        let all = [Need::List, Need::Read, Need::Write, Need::Edit, Need::Search, Need::Exec];
        let runtime = RuntimeInfo {
            host_role: Some(HostRole::Execution),
            host_capabilities: all.map(capability).to_vec(),
            tool_capabilities,
            host_os: Some(std::env::consts::OS.to_owned()),
            host_env: variables,
            host_bin_status: BTreeMap::new(),
            host_bin_status_updated_at: None,
        };
        Self { id: id.to_owned(), tools, runtime, journal: format!("{journal:016x}") }
    }

    /// The parameters of `connect`.
    pub(crate) fn params<'a>(&'a self, token: Option<&'a str>) -> ConnectParams<'a> {
        ConnectParams {
            min_protocol: 1,
            max_protocol: 1,
            client: Client {
                id: &self.id,
                version: env!("CARGO_PKG_VERSION"),
                platform: std::env::consts::OS,
                mode: Mode::Node,
            },
            tools: Some(&self.tools),
            node_runtime: Some(&self.runtime),
            journal: Some(true),
            journal_id: Some(&self.journal),
            auth: token.map(|token| Token { token }),
        }
    }
}

fn definition(offer: &Offer) -> Definition {
    let schema = match &offer.spec.schema {
        Value::Object(schema) => schema.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    };
    Definition { name: offer.spec.name.clone(), description: offer.spec.description.clone(), input_schema: schema }
}

const fn capability(need: Need) -> Capability {
    match need {
        Need::List => Capability::FilesystemList,
        Need::Read => Capability::FilesystemRead,
        Need::Write => Capability::FilesystemWrite,
        Need::Edit => Capability::FilesystemEdit,
        Need::Search => Capability::TextSearch,
        Need::Exec => Capability::ShellExec,
    }
}
