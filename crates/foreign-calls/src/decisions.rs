//! Requests that are only decided, and the keys by which the same call is found again.

use std::sync::Arc;

use countersign_core::{
    call::{AgentRequest, CallDetails, RequestContent, RequestExecutor},
    digest::{Digest, canonical_json},
    policy::join_folder,
    tool::{RepeatMode, ToolEffect},
};
use countersign_view::Protocol;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::{requester::Requester, shared_tools::names_folder};

/// Largest arguments of a call, in bytes of JSON. Approvers are shown all of them.
pub const LARGEST_ARGUMENTS: usize = 1 << 20;
/// Tool of commands.
const SHELL: &str = "bash";
/// Arguments of a command that are words for people, and its folder, which a key has apart.
const WORDS: [&str; 3] = ["description", "justification", "cwd"];
/// Beginning of the ids of requests that are only decided.
const DECISION_PREFIX: &str = "\"decision-";
/// Beginning of the ids of all other requests.
const CALL_PREFIX: &str = "\"call-";

/// Reports whether a call is decided and then run by its requester: the gateway has nothing to do for it.
pub fn is_decision_only(content: &CallDetails) -> bool {
    let is_foreign = |request: &RequestContent| {
        let service = request.service.as_deref().filter(|service| request.door.as_deref() == Some(*service));
        service.is_some_and(|service| Protocol::FOREIGN.iter().any(|protocol| protocol.name() == service))
    };
    // A service of the configuration may have the name of a protocol, but no client chooses an id.
    content.request.as_deref().is_some_and(is_foreign) && content.tool_call_id.starts_with(DECISION_PREFIX)
}

/// Returns a new id for a call that the gateway runs.
pub fn own_call_id() -> Arc<str> {
    new_id(CALL_PREFIX)
}

fn new_id(prefix: &str) -> Arc<str> {
    format!("{prefix}{}\"", Uuid::now_v7().simple()).into()
}

/// Reports whether a request is only decided here.
pub(crate) fn is_decision(request: &AgentRequest) -> bool {
    request.wire.starts_with(DECISION_PREFIX)
}

/// Returns the beginning of the keys of all requests that a call that ran may have had: with this tool and these arguments, and in this
/// folder if the call can name one. A program without such an argument reports the folder after the call.
pub fn run_prefix(request: &AgentRequest) -> String {
    let folder = if names_folder(&request.door) { folder_part(request) } else { String::new() };
    format!("{}{folder}", call_prefix(request))
}

/// Returns the part of a key for the folder of a call. Relative paths mean other files in another folder.
fn folder_part(request: &AgentRequest) -> String {
    if request.cwd.is_empty() {
        return String::new();
    }
    format!("{}:", Digest::hash_bytes(join_folder("/", &request.cwd).as_bytes()))
}

/// Returns the beginning of the keys of all requests with this tool and these arguments, in any folder.
fn call_prefix(request: &AgentRequest) -> String {
    let is_decision = is_decision(request);
    // A model describes the same command in other words when it repeats it.
    let counts = |name: &str| !is_decision || &*request.tool != SHELL || !WORDS.contains(&name);
    let arguments: Map<String, Value> = request
        .arguments
        .iter()
        .filter(|(name, _)| counts(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let same = json!([is_decision, request.service, &*request.tool, arguments]);
    format!("{}:{}:", request.door, Digest::hash_bytes(canonical_json(&same).as_bytes()))
}

/// Returns the beginning of the keys of all requests that are the same call.
pub fn key_prefix(request: &AgentRequest) -> String {
    let mut prefix = format!("{}{}", call_prefix(request), folder_part(request));
    if &*request.door != Protocol::Mcp.name() {
        // An agent below another one takes none of its decisions.
        prefix.push_str(&format!("{}:", Digest::hash_bytes(request.principal.as_str().as_bytes())));
    }
    if is_decision(request) {
        // A decision is about the files to which the paths led when it was made.
        let files = json!([&request.paths, request.leads_to.as_deref()]);
        prefix.push_str(&format!("{}:", Digest::hash_bytes(canonical_json(&files).as_bytes())));
    }
    prefix
}

/// Checks the size of arguments.
///
/// # Errors
/// Their size and the limit.
pub fn check_size(arguments: &Map<String, Value>) -> Result<(), String> {
    let length = serde_json::to_vec(arguments).map_or(usize::MAX, |text| text.len());
    if length > LARGEST_ARGUMENTS {
        return Err(format!("Arguments too large ({length} bytes, at most {LARGEST_ARGUMENTS})"));
    }
    Ok(())
}

/// Returns a request that is decided here and run by the program.
pub fn new_decision(
    requester: &Requester,
    tool: &str,
    arguments: Map<String, Value>,
    signature: String,
) -> AgentRequest {
    AgentRequest {
        wire: new_id(DECISION_PREFIX),
        service: Some(requester.protocol.name().into()),
        // Nothing runs here, so a restart decides it again and repeats no effect.
        repeat: RepeatMode::Idempotent,
        ..new_request(requester, tool, arguments, signature)
    }
}

/// Returns a request of a requester, without an id.
pub fn new_request(
    requester: &Requester,
    tool: &str,
    arguments: Map<String, Value>,
    signature: String,
) -> AgentRequest {
    AgentRequest {
        session: requester.session.clone(),
        principal: requester.principal.clone(),
        door: requester.protocol.name().into(),
        wire: "".into(),
        key: None,
        tool: tool.into(),
        arguments,
        signatures: vec![signature],
        named: Vec::new(),
        undeclared: Vec::new(),
        service: None,
        executor: RequestExecutor::Service,
        paths: Vec::new(),
        for_principals: Vec::new(),
        cwd: String::new(),
        leads_to: None,
        effect: ToolEffect::Changes,
        repeat: RepeatMode::Once,
    }
}
