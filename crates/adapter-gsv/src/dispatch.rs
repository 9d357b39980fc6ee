//! Brings each request to the part that answers it, within the time that its method has.

use std::{sync::Arc, time::Duration};

use countersign_http::listen::peer;
use countersign_protocol::gsv::{
    Fault, Method, Request, code,
    method::{Deadline, Scope},
};
use tokio::time::timeout;

use super::{Door, answer::Answer, automation, channels, chat, config, nodes, peer::Peer, skills, workspace};

/// Answers one request of a peer that may make it, which came at this moment.
pub(super) async fn answer(
    door: Arc<Door>,
    peer: Arc<Peer>,
    method: Method,
    request: Request,
    came: chat::Moment,
) -> Answer {
    let row = method.row();
    let acts = matches!(row.scope, Scope::Chat | Scope::Admin | Scope::Channel);
    if acts && !peer.end.may_decide().await {
        return Err(Fault::new(code::FORBIDDEN, peer::REFUSED));
    }
    let within = match row.deadline {
        Deadline::Tool => Some(door.settings.tool_timeout()),
        Deadline::Milliseconds(milliseconds) => Some(Duration::from_millis(milliseconds)),
        // Those know themselves how long they may take.
        Deadline::AtOnce | Deadline::Asked | Deadline::Run => None,
    };
    let work = route(&door, &peer, method, request, came);
    match within {
        Some(within) => timeout(within, work).await.unwrap_or_else(|_| Err(Fault::timed_out())),
        None => work.await,
    }
}

async fn route(door: &Arc<Door>, peer: &Arc<Peer>, method: Method, request: Request, came: chat::Moment) -> Answer {
    match request {
        Request::ChatSend(_)
        | Request::SessionsList(_)
        | Request::SessionGet(_)
        | Request::SessionStats(_)
        | Request::SessionReset(_)
        | Request::SessionPatch(_)
        | Request::SessionCompact(_)
        | Request::SessionHistory(_)
        | Request::SessionPreview(_) => chat::answer(door, peer, method, request, came).await,
        Request::ToolsList
        | Request::ToolInvoke(_)
        | Request::ToolResult(_)
        | Request::ToolRequest(_)
        | Request::NodeProbeResult(_)
        | Request::NodeExecEvent(_)
        | Request::LogsGet(_)
        | Request::LogsResult(_) => nodes::answer(door, peer, method, request).await,
        Request::ChannelsList
        | Request::ChannelInbound(_)
        | Request::ChannelStart(_)
        | Request::ChannelStop(_)
        | Request::ChannelStatus(_)
        | Request::ChannelLogin(_)
        | Request::ChannelLogout(_)
        | Request::PairList
        | Request::PairApprove(_)
        | Request::PairReject(_) => channels::answer(door, peer, method, request, came).await,
        Request::HeartbeatStatus
        | Request::HeartbeatStart
        | Request::HeartbeatTrigger(_)
        | Request::CronStatus
        | Request::CronList(_)
        | Request::CronAdd(_)
        | Request::CronUpdate(_)
        | Request::CronRemove(_)
        | Request::CronRun(_)
        | Request::CronRuns(_) => automation::answer(door, peer, method, request).await,
        Request::WorkspaceList(_)
        | Request::WorkspaceRead(_)
        | Request::WorkspaceWrite(_)
        | Request::WorkspaceDelete(_) => workspace::answer(door, peer, method, request).await,
        Request::SkillsStatus(_) | Request::SkillsUpdate(_) => skills::answer(door, peer, method, request).await,
        Request::ConfigGet(_) | Request::ConfigSet(_) => config::answer(door, peer, method, request).await,
    }
}
