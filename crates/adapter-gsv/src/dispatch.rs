//! Brings each request to the part that answers it, within the time that its method has.

use std::{sync::Arc, time::Duration};

use countersign_http::listen::peer;
use countersign_protocol::gsv::{
    GsvError, GsvRequest, Method, code,
    cron::CronRunParams,
    method::{MethodDeadline, MethodScope},
};
use tokio::time::timeout;

use super::{
    GsvAdapter, automation, channels, chat, config, method_result::MethodResult, nodes, peer::ConnectedPeer, skills,
    workspace,
};

/// Answers one request of a peer that is permitted, which came at this moment.
pub(super) async fn dispatch_request(
    door: Arc<GsvAdapter>,
    peer: Arc<ConnectedPeer>,
    method: Method,
    request: GsvRequest,
    came: chat::CardMoment,
) -> MethodResult {
    check_may_act(&peer, method).await?;
    let within = match method.table_row().deadline {
        MethodDeadline::Tool => Some(door.settings.tool_timeout()),
        MethodDeadline::Milliseconds(milliseconds) => Some(Duration::from_millis(milliseconds)),
        // These methods limit their time themselves.
        MethodDeadline::AtOnce | MethodDeadline::FromRequest | MethodDeadline::Run => None,
    };
    let work = route_request(&door, &peer, method, request, came);
    match within {
        Some(within) => timeout(within, work).await.unwrap_or_else(|_| Err(GsvError::timed_out())),
        None => work.await,
    }
}

/// Refuses a request that acts, if a command of an agent sent it.
async fn check_may_act(peer: &ConnectedPeer, method: Method) -> Result<(), GsvError> {
    let acts = matches!(method.table_row().scope, MethodScope::Chat | MethodScope::Admin | MethodScope::Channel);
    if acts && !peer.end.may_decide().await {
        return Err(GsvError::new(code::FORBIDDEN, peer::REFUSED));
    }
    Ok(())
}

/// Starts the jobs of a `cron.run` of a peer that is permitted. Their ends are waited for apart.
///
/// # Errors
/// 403 for a command of an agent, 500 with the reason why none was started.
pub(super) async fn start_jobs(
    door: &Arc<GsvAdapter>,
    peer: &ConnectedPeer,
    run: &CronRunParams,
) -> Result<automation::StartedJobs, GsvError> {
    check_may_act(peer, Method::CronRun).await?;
    automation::begin_run(door, run).await
}

async fn route_request(
    door: &Arc<GsvAdapter>,
    peer: &Arc<ConnectedPeer>,
    method: Method,
    request: GsvRequest,
    came: chat::CardMoment,
) -> MethodResult {
    match request {
        GsvRequest::ChatSend(_)
        | GsvRequest::SessionsList(_)
        | GsvRequest::SessionGet(_)
        | GsvRequest::SessionStats(_)
        | GsvRequest::SessionReset(_)
        | GsvRequest::SessionPatch(_)
        | GsvRequest::SessionCompact(_)
        | GsvRequest::SessionHistory(_)
        | GsvRequest::SessionPreview(_) => chat::handle_request(door, peer, method, request, came).await,
        GsvRequest::ToolsList
        | GsvRequest::ToolInvoke(_)
        | GsvRequest::ToolResult(_)
        | GsvRequest::ToolRequest(_)
        | GsvRequest::NodeProbeResult(_)
        | GsvRequest::NodeExecEvent(_)
        | GsvRequest::LogsGet(_)
        | GsvRequest::LogsResult(_) => nodes::handle_request(door, peer, method, request).await,
        GsvRequest::ChannelsList
        | GsvRequest::ChannelInbound(_)
        | GsvRequest::ChannelStart(_)
        | GsvRequest::ChannelStop(_)
        | GsvRequest::ChannelStatus(_)
        | GsvRequest::ChannelLogin(_)
        | GsvRequest::ChannelLogout(_)
        | GsvRequest::PairList
        | GsvRequest::PairApprove(_)
        | GsvRequest::PairReject(_) => channels::handle_request(door, peer, method, request, came).await,
        GsvRequest::HeartbeatStatus
        | GsvRequest::HeartbeatStart
        | GsvRequest::HeartbeatTrigger(_)
        | GsvRequest::CronStatus
        | GsvRequest::CronList(_)
        | GsvRequest::CronAdd(_)
        | GsvRequest::CronUpdate(_)
        | GsvRequest::CronRemove(_)
        | GsvRequest::CronRun(_)
        | GsvRequest::CronRuns(_) => automation::handle_request(door, method, request).await,
        GsvRequest::WorkspaceList(_)
        | GsvRequest::WorkspaceRead(_)
        | GsvRequest::WorkspaceWrite(_)
        | GsvRequest::WorkspaceDelete(_) => workspace::handle_request(door, peer, method, request).await,
        GsvRequest::SkillsStatus(_) | GsvRequest::SkillsUpdate(_) => {
            skills::handle_request(door, peer, method, request).await
        }
        GsvRequest::ConfigGet(_) | GsvRequest::ConfigSet(_) => {
            config::handle_request(door, peer, method, request).await
        }
    }
}
