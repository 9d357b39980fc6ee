//! Calls of clients at nodes: a person's own acts, which rules can deny and which need no approval.

use std::sync::Arc;

use countersign_core::{
    call::{Command as CallCommand, PeerAction},
    engine::{Command, CommandError},
    id::{CallId, SessionId},
    policy::Class,
    session,
};
use countersign_protocol::{
    RawJson,
    gsv::{
        GsvError, code,
        tool::{NoResultReason, ToolInvokeParams, ToolInvokeResult, ToolRequestParams, ToolRequestResult},
    },
};
use countersign_runtime::{InboxLane, OwnerError, tools::AgentTool as _};
use countersign_view::protocol::peer_of;
use serde_json::{Map, Value};

use super::{
    super::{GsvAdapter, chat::ADAPTER_NAME, method_result::MethodResult, peer::ConnectedPeer},
    node_registry,
    node_tool::NodeTool,
    node_tools,
    results::{NEVER_BEGAN, NOT_KNOWN},
};

/// Prefix of the ids of the sessions that hold the calls of clients. Older records have one session for each client.
const ACTS: &str = "gsv-tools:";
/// Session of the calls of all clients. Command lines connect under another id each time, and their calls are no
/// conversation to list; each call has its caller.
const ALL: &str = "gsv-tools:clients";
/// Longest id of a call that a client may give, in bytes.
const LONGEST_CALL: usize = 256;

/// Reports whether a session holds calls of clients, and no conversation.
pub(crate) fn is_acts(session: &SessionId) -> bool {
    session.as_str().starts_with(ACTS)
}

/// Handles `tool.invoke`: the client waits for the result of the node.
pub(super) async fn invoke_tool(
    door: &Arc<GsvAdapter>,
    peer: &Arc<ConnectedPeer>,
    params: ToolInvokeParams,
) -> MethodResult {
    let tool = find_tool(door, &params.tool).await?;
    let call = fresh_call_id(door)?;
    let mut client = door.nodes.call_waiters.wait_for_call(call, tool.node_id(), peer);
    begin_call(door, peer, &tool, params.args, CallIdentity { call, wire: None, intent: None }).await?;
    let outcome = tokio::select! {
        biased;
        outcome = client.wait_result() => outcome?,
        // The call continues without a waiter.
        () = peer.wait_gone() => return Err(GsvError::new(code::UNAVAILABLE, "the connection is gone")),
    };
    let failed = |otherwise: &str| GsvError::new(code::FAILED, outcome.error.as_deref().unwrap_or(otherwise));
    match (outcome.fate, &outcome.error) {
        (Some(NoResultReason::NotBegun), _) => Err(failed(NEVER_BEGAN)),
        (Some(NoResultReason::Unknown), _) => Err(failed(NOT_KNOWN)),
        (None, Some(error)) => Err(GsvError::new(code::FAILED, error.as_str())),
        (None, None) => {
            let result = outcome.result.unwrap_or_else(|| Value::Null.into());
            Ok(RawJson::from_wire(&ToolInvokeResult { result }))
        }
    }
}

/// Handles `tool.request`: the call is sent under the client's own id, without a waiter.
pub(super) async fn request_tool(
    door: &Arc<GsvAdapter>,
    peer: &ConnectedPeer,
    params: ToolRequestParams,
) -> MethodResult {
    let tool = find_tool(door, &params.tool).await?;
    if params.call_id.len() > LONGEST_CALL {
        return Err(GsvError::bad_request(format!("callId has at most {LONGEST_CALL} bytes")));
    }
    // Ids of our own calls have this prefix.
    let (call, wire) = (fresh_call_id(door)?, Arc::<str>::from(params.call_id));
    if wire.starts_with("call_") || !door.nodes.calls.reserve_id(&wire, call) {
        return Err(GsvError::bad_request(format!("callId is taken: {wire}")));
    }
    let own = CallIdentity { call, wire: Some(wire), intent: Some(format!("for {}", params.session_key).into()) };
    let begun = begin_call(door, peer, &tool, params.args, own).await;
    if begun.is_err() {
        door.nodes.calls.release_id(call);
    }
    begun?;
    Ok(RawJson::from_wire(&ToolRequestResult::default()))
}

/// Ids of a call, and its purpose.
struct CallIdentity {
    call: CallId,
    wire: Option<Arc<str>>,
    intent: Option<Arc<str>>,
}

async fn begin_call(
    door: &Arc<GsvAdapter>,
    peer: &ConnectedPeer,
    tool: &NodeTool,
    arguments: Map<String, Value>,
    own: CallIdentity,
) -> Result<(), GsvError> {
    let session = SessionId::new(ALL);
    let spec = tool.spec();
    let act = PeerAction {
        call: own.call,
        session: session.clone(),
        by: peer.principal_id(),
        peer: peer_of(tool.node_id()),
        class: Class::HostToolInvoke,
        shell: tool.shell_for(&arguments),
        tool: spec.name.as_str().into(),
        wire: own.wire,
        intent: own.intent,
        signature: spec.signature_of(&arguments),
        named: spec.signature.iter().map(|name| (*name).to_owned()).collect(),
        arguments,
    };
    let source = door.context.handle.source(InboxLane::Request);
    let act = Command::Call(CallCommand::Act(Box::new(act)));
    let result = match source.send_command(act.clone()).await {
        Err(OwnerError::Refusal(CommandError::NoSession(_))) => {
            open_session(door, session).await?;
            source.send_command(act).await
        }
        other => other,
    };
    match result {
        Ok(_) => Ok(()),
        Err(OwnerError::Refusal(CommandError::Denied(why))) => Err(GsvError::new(code::FORBIDDEN, why)),
        Err(OwnerError::Refusal(CommandError::PeerAway(_))) => Err(GsvError::node_disconnected(tool.node_id())),
        Err(refused) => Err(GsvError::new(code::FAILED, refused.to_string())),
    }
}

/// Opens the session that holds the calls of clients in the record. It is listed with the others, and has no messages.
async fn open_session(door: &Arc<GsvAdapter>, id: SessionId) -> Result<(), GsvError> {
    let failed = |error: String| GsvError::new(code::FAILED, error);
    let agent = door.settings.default_agent();
    let cwd = door.context.chats.workspace_folder(Some(&agent)).await.map_err(|error| failed(error.to_string()))?;
    let open = session::Command::Open {
        cwd: cwd.display().to_string(),
        name: Some("Tools that clients called".to_owned()),
        parent: None,
        door: Some(ADAPTER_NAME.to_owned()),
        settings: Box::new(door.settings.session_settings(&door.context, &agent)),
    };
    match door.context.handle.source(InboxLane::Request).send_command(Command::Session(id, open)).await {
        Ok(_) | Err(OwnerError::Refusal(CommandError::SessionExists(_))) => Ok(()),
        Err(refused) => Err(failed(refused.to_string())),
    }
}

/// Finds the tool of a node by name.
///
/// # Errors
/// 404 if no node has it, 503 if its node is not connected.
async fn find_tool(door: &GsvAdapter, name: &str) -> Result<Arc<NodeTool>, GsvError> {
    if let Some(tool) = door.toolbox.find_tool(name) {
        return Ok(tool);
    }
    for (node, tool) in node_tools::name_parts(name) {
        let known = node_registry::find_node(door.context.handle.log(), node).await;
        if known.is_some_and(|known| known.registration.tools.iter().any(|of| of.name == tool))
            && door.roster.find_node(node).is_none()
        {
            return Err(GsvError::new(code::UNAVAILABLE, "Node not connected"));
        }
    }
    Err(GsvError::no_node(name))
}

/// Returns an id that no call has had.
fn fresh_call_id(door: &GsvAdapter) -> Result<CallId, GsvError> {
    let mut bits = [0; 10];
    getrandom::fill(&mut bits).map_err(|error| GsvError::new(code::FAILED, error.to_string()))?;
    let id = uuid::Builder::from_unix_timestamp_millis(door.context.clock.now().0, &bits).into_uuid();
    Ok(CallId::new(id))
}
