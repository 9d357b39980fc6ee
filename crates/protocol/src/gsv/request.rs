//! Reads the parameters of each method.

use super::fields::ParamFields;
use super::{
    GsvError, Method, channel, chat, cron, heartbeat, node, pairing, session, settings, skill, tool, workspace,
};
use crate::json::RawJson;

/// Request of a connected peer, with its parameters. `connect` is read by [`super::connect::ConnectingPeer::from_params`].
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each is called as its method is, which says what it does")]
pub enum GsvRequest {
    ChatSend(chat::ChatSendParams),
    ConfigGet(settings::ConfigGetParams),
    ConfigSet(settings::ConfigSetParams),
    ToolsList,
    ToolInvoke(tool::ToolInvokeParams),
    ToolResult(tool::ToolResultParams),
    ToolRequest(tool::ToolRequestParams),
    NodeProbeResult(node::NodeProbeResult),
    NodeExecEvent(node::ExecReport),
    LogsGet(node::LogsGet),
    LogsResult(node::LogsResult),
    SessionsList(session::SessionsListParams),
    SessionGet(session::SessionParams),
    SessionStats(session::SessionParams),
    SessionReset(session::SessionParams),
    SessionPatch(session::SessionPatchParams),
    SessionCompact(session::SessionCompactParams),
    SessionHistory(session::SessionParams),
    SessionPreview(session::SessionPreviewParams),
    ChannelsList,
    ChannelInbound(Box<channel::ChannelInboundParams>),
    ChannelStart(channel::ChannelAccountParams),
    ChannelStop(channel::ChannelAccountParams),
    ChannelStatus(channel::ChannelAccountParams),
    ChannelLogin(channel::ChannelAccountParams),
    ChannelLogout(channel::ChannelAccountParams),
    HeartbeatStatus,
    HeartbeatStart,
    HeartbeatTrigger(heartbeat::HeartbeatTriggerParams),
    CronStatus,
    CronList(cron::CronListParams),
    CronAdd(Box<cron::CronAddParams>),
    CronUpdate(Box<cron::CronUpdateParams>),
    CronRemove(cron::CronRemoveParams),
    CronRun(cron::CronRunParams),
    CronRuns(cron::CronRunsParams),
    PairList,
    PairApprove(pairing::PairDecisionParams),
    PairReject(pairing::PairDecisionParams),
    SkillsStatus(skill::SkillsStatusParams),
    SkillsUpdate(skill::SkillsUpdateParams),
    WorkspaceList(workspace::WorkspaceListParams),
    WorkspaceRead(workspace::WorkspaceFileParams),
    WorkspaceWrite(workspace::WorkspaceWriteParams),
    WorkspaceDelete(workspace::WorkspaceFileParams),
}

impl GsvRequest {
    /// Reads the parameters of a request.
    ///
    /// # Errors
    /// Missing or wrong parameters, in the words that clients know; and a second `connect`.
    pub fn from_params(method: Method, params: Option<&RawJson>) -> Result<Self, GsvError> {
        let mut fields = match method {
            // A result may be very large, and is passed on as it was written. An event of any content is taken.
            Method::ToolResult | Method::NodeExecEvent => ParamFields::no_params(),
            _ => ParamFields::from_params(params)?,
        };
        Ok(match method {
            Method::Connect => return Err(GsvError::bad_request("Already connected")),
            Method::ChatSend => Self::ChatSend(chat::ChatSendParams::from_fields(fields)?),
            Method::ConfigGet => Self::ConfigGet(settings::ConfigGetParams::from_fields(fields)?),
            Method::ConfigSet => Self::ConfigSet(settings::ConfigSetParams::from_fields(fields)?),
            Method::ToolsList => Self::ToolsList,
            Method::ToolInvoke => Self::ToolInvoke(tool::ToolInvokeParams::from_fields(fields)?),
            Method::ToolResult => Self::ToolResult(tool::ToolResultParams::from_params(params)?),
            Method::ToolRequest => Self::ToolRequest(tool::ToolRequestParams::from_fields(fields)?),
            Method::NodeProbeResult => Self::NodeProbeResult(node::NodeProbeResult::from_fields(fields)?),
            Method::NodeExecEvent => {
                Self::NodeExecEvent(node::ExecReport::from_fields(ParamFields::from_params(params)))
            }
            Method::LogsGet => Self::LogsGet(node::LogsGet::from_fields(fields)?),
            Method::LogsResult => Self::LogsResult(node::LogsResult::from_fields(fields)?),
            Method::SessionsList => Self::SessionsList(session::SessionsListParams::from_fields(fields)?),
            Method::SessionGet => Self::SessionGet(session::SessionParams::from_fields(fields)?),
            Method::SessionStats => Self::SessionStats(session::SessionParams::from_fields(fields)?),
            Method::SessionReset => Self::SessionReset(session::SessionParams::from_fields(fields)?),
            Method::SessionPatch => Self::SessionPatch(session::SessionPatchParams::from_fields(fields)?),
            Method::SessionCompact => Self::SessionCompact(session::SessionCompactParams::from_fields(fields)?),
            Method::SessionHistory => Self::SessionHistory(session::SessionParams::from_fields(fields)?),
            Method::SessionPreview => Self::SessionPreview(session::SessionPreviewParams::from_fields(fields)?),
            Method::ChannelsList => Self::ChannelsList,
            Method::ChannelInbound => {
                Self::ChannelInbound(Box::new(channel::ChannelInboundParams::from_fields(fields)?))
            }
            Method::ChannelStart => Self::ChannelStart(channel::ChannelAccountParams::from_fields(fields)?),
            Method::ChannelStop => Self::ChannelStop(channel::ChannelAccountParams::from_fields(fields)?),
            Method::ChannelStatus => Self::ChannelStatus(channel::ChannelAccountParams::from_fields(fields)?),
            Method::ChannelLogin => Self::ChannelLogin(channel::ChannelAccountParams::from_fields(fields)?),
            Method::ChannelLogout => Self::ChannelLogout(channel::ChannelAccountParams::from_fields(fields)?),
            Method::HeartbeatStatus => Self::HeartbeatStatus,
            Method::HeartbeatStart => Self::HeartbeatStart,
            Method::HeartbeatTrigger => Self::HeartbeatTrigger(heartbeat::HeartbeatTriggerParams::from_fields(fields)?),
            Method::CronStatus => Self::CronStatus,
            Method::CronList => Self::CronList(cron::CronListParams::from_fields(fields)?),
            Method::CronAdd => Self::CronAdd(Box::new(cron::CronAddParams::from_fields(fields)?)),
            Method::CronUpdate => Self::CronUpdate(Box::new(cron::CronUpdateParams::from_fields(fields)?)),
            Method::CronRemove => Self::CronRemove(cron::CronRemoveParams::from_fields(fields)?),
            Method::CronRun => Self::CronRun(cron::CronRunParams::from_fields(fields)?),
            Method::CronRuns => Self::CronRuns(cron::CronRunsParams::from_fields(fields)?),
            Method::PairList => Self::PairList,
            Method::PairApprove => Self::PairApprove(pairing::PairDecisionParams::from_fields(fields)?),
            Method::PairReject => Self::PairReject(pairing::PairDecisionParams::from_fields(fields)?),
            Method::SkillsStatus => Self::SkillsStatus(skill::SkillsStatusParams::from_fields(&mut fields)?),
            Method::SkillsUpdate => Self::SkillsUpdate(skill::SkillsUpdateParams::from_fields(fields)?),
            Method::WorkspaceList => Self::WorkspaceList(workspace::WorkspaceListParams::from_fields(fields)?),
            Method::WorkspaceRead => Self::WorkspaceRead(workspace::WorkspaceFileParams::from_fields(&mut fields)?),
            Method::WorkspaceWrite => Self::WorkspaceWrite(workspace::WorkspaceWriteParams::from_fields(fields)?),
            Method::WorkspaceDelete => Self::WorkspaceDelete(workspace::WorkspaceFileParams::from_fields(&mut fields)?),
        })
    }
}
