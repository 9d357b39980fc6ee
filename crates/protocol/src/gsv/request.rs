//! Reads the parameters of each method.

use super::fields::Fields;
use super::{Fault, Method, channel, chat, cron, heartbeat, node, pairing, session, settings, skill, tool, workspace};
use crate::json::Json;

/// What a connected peer asks for, with its parameters. `connect` is read by [`super::connect::Connect::read`].
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each is called as its method is, which says what it does")]
pub enum Request {
    ChatSend(chat::Send),
    ConfigGet(settings::Get),
    ConfigSet(settings::Set),
    ToolsList,
    ToolInvoke(tool::Invoke),
    ToolResult(tool::Outcome),
    ToolRequest(tool::Ask),
    NodeProbeResult(node::Probed),
    NodeExecEvent(node::ExecReport),
    LogsGet(node::LogsGet),
    LogsResult(node::LogsResult),
    SessionsList(session::List),
    SessionGet(session::Of),
    SessionStats(session::Of),
    SessionReset(session::Of),
    SessionPatch(session::Patch),
    SessionCompact(session::Compact),
    SessionHistory(session::Of),
    SessionPreview(session::Preview),
    ChannelsList,
    ChannelInbound(Box<channel::Inbound>),
    ChannelStart(channel::Account),
    ChannelStop(channel::Account),
    ChannelStatus(channel::Account),
    ChannelLogin(channel::Account),
    ChannelLogout(channel::Account),
    HeartbeatStatus,
    HeartbeatStart,
    HeartbeatTrigger(heartbeat::Trigger),
    CronStatus,
    CronList(cron::List),
    CronAdd(Box<cron::Create>),
    CronUpdate(Box<cron::Update>),
    CronRemove(cron::Remove),
    CronRun(cron::Run),
    CronRuns(cron::Runs),
    PairList,
    PairApprove(pairing::Decide),
    PairReject(pairing::Decide),
    SkillsStatus(skill::Of),
    SkillsUpdate(skill::Update),
    WorkspaceList(workspace::List),
    WorkspaceRead(workspace::File),
    WorkspaceWrite(workspace::Write),
    WorkspaceDelete(workspace::File),
}

impl Request {
    /// Reads the parameters of a request.
    ///
    /// # Errors
    /// What is missing or wrong, in the words that clients know; for a second `connect` that it is one.
    pub fn read(method: Method, params: Option<&Json>) -> Result<Self, Fault> {
        let mut fields = match method {
            // A result may be very large, and is passed on as it was written. An event is taken whatever it is.
            Method::ToolResult | Method::NodeExecEvent => Fields::none(),
            _ => Fields::of(params)?,
        };
        Ok(match method {
            Method::Connect => return Err(Fault::invalid("Already connected")),
            Method::ChatSend => Self::ChatSend(chat::Send::read(fields)?),
            Method::ConfigGet => Self::ConfigGet(settings::Get::read(fields)?),
            Method::ConfigSet => Self::ConfigSet(settings::Set::read(fields)?),
            Method::ToolsList => Self::ToolsList,
            Method::ToolInvoke => Self::ToolInvoke(tool::Invoke::read(fields)?),
            Method::ToolResult => Self::ToolResult(tool::Outcome::read(params)?),
            Method::ToolRequest => Self::ToolRequest(tool::Ask::read(fields)?),
            Method::NodeProbeResult => Self::NodeProbeResult(node::Probed::read(fields)?),
            Method::NodeExecEvent => Self::NodeExecEvent(node::ExecReport::read(Fields::of(params))),
            Method::LogsGet => Self::LogsGet(node::LogsGet::read(fields)?),
            Method::LogsResult => Self::LogsResult(node::LogsResult::read(fields)?),
            Method::SessionsList => Self::SessionsList(session::List::read(fields)?),
            Method::SessionGet => Self::SessionGet(session::Of::read(fields)?),
            Method::SessionStats => Self::SessionStats(session::Of::read(fields)?),
            Method::SessionReset => Self::SessionReset(session::Of::read(fields)?),
            Method::SessionPatch => Self::SessionPatch(session::Patch::read(fields)?),
            Method::SessionCompact => Self::SessionCompact(session::Compact::read(fields)?),
            Method::SessionHistory => Self::SessionHistory(session::Of::read(fields)?),
            Method::SessionPreview => Self::SessionPreview(session::Preview::read(fields)?),
            Method::ChannelsList => Self::ChannelsList,
            Method::ChannelInbound => Self::ChannelInbound(Box::new(channel::Inbound::read(fields)?)),
            Method::ChannelStart => Self::ChannelStart(channel::Account::read(fields)?),
            Method::ChannelStop => Self::ChannelStop(channel::Account::read(fields)?),
            Method::ChannelStatus => Self::ChannelStatus(channel::Account::read(fields)?),
            Method::ChannelLogin => Self::ChannelLogin(channel::Account::read(fields)?),
            Method::ChannelLogout => Self::ChannelLogout(channel::Account::read(fields)?),
            Method::HeartbeatStatus => Self::HeartbeatStatus,
            Method::HeartbeatStart => Self::HeartbeatStart,
            Method::HeartbeatTrigger => Self::HeartbeatTrigger(heartbeat::Trigger::read(fields)?),
            Method::CronStatus => Self::CronStatus,
            Method::CronList => Self::CronList(cron::List::read(fields)?),
            Method::CronAdd => Self::CronAdd(Box::new(cron::Create::read(fields)?)),
            Method::CronUpdate => Self::CronUpdate(Box::new(cron::Update::read(fields)?)),
            Method::CronRemove => Self::CronRemove(cron::Remove::read(fields)?),
            Method::CronRun => Self::CronRun(cron::Run::read(fields)?),
            Method::CronRuns => Self::CronRuns(cron::Runs::read(fields)?),
            Method::PairList => Self::PairList,
            Method::PairApprove => Self::PairApprove(pairing::Decide::read(fields)?),
            Method::PairReject => Self::PairReject(pairing::Decide::read(fields)?),
            Method::SkillsStatus => Self::SkillsStatus(skill::Of::read(&mut fields)?),
            Method::SkillsUpdate => Self::SkillsUpdate(skill::Update::read(fields)?),
            Method::WorkspaceList => Self::WorkspaceList(workspace::List::read(fields)?),
            Method::WorkspaceRead => Self::WorkspaceRead(workspace::File::read(&mut fields)?),
            Method::WorkspaceWrite => Self::WorkspaceWrite(workspace::Write::read(fields)?),
            Method::WorkspaceDelete => Self::WorkspaceDelete(workspace::File::read(&mut fields)?),
        })
    }
}
