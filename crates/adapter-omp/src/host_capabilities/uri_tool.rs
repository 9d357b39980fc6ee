//! The agent's own tools for files, where a path may be a URI of the host.
//!
//! What looks like a URI is never a path of this machine, whether or not the host has its scheme: a scheme that it had before a
//! restart must not become a file. Source: docs/protocol/gjc.md, Host URIs.

use std::sync::Arc;

use countersign_core::{
    id::PeerId,
    policy::Class,
    tool::{ShellInput, ToolSpec},
};
use countersign_protocol::gjc::host_uri::{normalize_url, not_writable};
use countersign_runtime::tools::{AgentTool, CallFailure, CallOutput, CallRoute, PeerRoute, ToolContext};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};

use super::SchemeMap;

/// Arguments that name a place.
const PLACES: [&str; 3] = ["path", "rename", "move"];

/// Use of a URI by a tool.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UriUse {
    Reads,
    Writes,
    Edits,
    Nothing,
}

/// A tool for files around which URIs are looked for.
pub(super) struct UriAwareTool {
    inner: Arc<dyn AgentTool>,
    spec: ToolSpec,
    at_uris: UriUse,
    schemes: Arc<SchemeMap>,
    peer: PeerId,
}

impl UriAwareTool {
    /// Returns the tool itself, if it takes no path.
    pub(super) fn wrap_tool(inner: &Arc<dyn AgentTool>, schemes: &Arc<SchemeMap>, peer: &PeerId) -> Arc<dyn AgentTool> {
        let mut spec = inner.spec().clone();
        let at_uris = match spec.name.as_str() {
            "read" => UriUse::Reads,
            "write" => UriUse::Writes,
            "edit" => UriUse::Edits,
            "ls" | "grep" | "find" => UriUse::Nothing,
            _ => return Arc::clone(inner),
        };
        let usable = schemes.values().filter(|scheme| match at_uris {
            UriUse::Reads => true,
            UriUse::Writes => scheme.writable,
            UriUse::Edits | UriUse::Nothing => false,
        });
        let named: Vec<String> = usable
            .map(|scheme| match &scheme.description {
                Some(text) => format!("{}:// ({text})", scheme.scheme),
                None => format!("{}://", scheme.scheme),
            })
            .collect();
        if !named.is_empty() {
            let done = if at_uris == UriUse::Reads { "read" } else { "written" };
            spec.description.push_str(&format!(" The host has URIs that can be {done}: {}.", named.join(", ")));
        }
        Arc::new(Self { inner: Arc::clone(inner), spec, at_uris, schemes: Arc::clone(schemes), peer: peer.clone() })
    }
}

impl AgentTool for UriAwareTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn check_arguments(&self, arguments: &Value) -> Result<Map<String, Value>, CallFailure> {
        self.inner.check_arguments(arguments)
    }

    fn route_call(&self, arguments: &mut Map<String, Value>) -> Result<CallRoute, CallFailure> {
        let found = PLACES.iter().find_map(|name| {
            let given = arguments.get(*name).and_then(Value::as_str)?;
            Some((*name, normalize_url(given)?))
        });
        let Some((member, (scheme, url))) = found else { return self.inner.route_call(arguments) };
        let class = match self.at_uris {
            UriUse::Reads => Class::HostUriRead,
            UriUse::Writes => Class::HostUriWrite,
            UriUse::Edits => {
                return Err(CallFailure::NotBegun(format!(
                    "{url} cannot be edited in place: read it and write the whole"
                )));
            }
            UriUse::Nothing => {
                let name = &self.spec.name;
                let text = format!("{url} is a URI of the host: {name} works on files of this machine");
                return Err(CallFailure::NotBegun(text));
            }
        };
        let known = self.schemes.get(&scheme);
        let Some(known) = known else { return Err(CallFailure::NotBegun(unknown_scheme(class, &url, &scheme))) };
        if class == Class::HostUriWrite && !known.writable {
            return Err(CallFailure::NotBegun(not_writable(&scheme)));
        }
        arguments.insert(member.to_owned(), Value::String(url));
        Ok(CallRoute::Peer(PeerRoute { peer: self.peer.clone(), class, shell: ShellInput::Nothing }))
    }

    fn run<'a>(
        &'a self,
        arguments: Map<String, Value>,
        cx: &'a ToolContext,
    ) -> BoxFuture<'a, Result<CallOutput, CallFailure>> {
        self.inner.run(arguments, cx)
    }
}

/// Returns the error text for a URI whose scheme the host has not.
pub(crate) fn unknown_scheme(class: Class, url: &str, scheme: &str) -> String {
    let done = if class == Class::HostUriWrite { "written" } else { "read" };
    format!("{url} was not {done}: the host has no URIs of the scheme {scheme}")
}
