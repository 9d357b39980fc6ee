//! The one table of methods: who may call what, and which answers come later.

use super::connect::PeerMode;
use super::{GsvError, code};

/// Permission that the caller of a method needs, in addition to a connection in the right mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MethodScope {
    /// Nothing: it opens the connection or keeps it alive.
    Presence,
    /// See sessions, jobs, files, logs and states.
    Read,
    /// Speak in sessions and have things done, as far as policy lets them.
    Chat,
    /// Change settings, files, jobs, channels and who is trusted.
    Admin,
    /// Be a machine that offers tools.
    Node,
    /// Be a chat network.
    Channel,
}

/// Time limit of an answer; after it the answer is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodDeadline {
    /// Answered as soon as the request is recorded.
    AtOnce,
    /// The value of `timeouts.toolMs`.
    Tool,
    /// So many milliseconds.
    Milliseconds(u64),
    /// The value in the request.
    FromRequest,
    /// The duration of the run that it starts.
    Run,
}

impl MethodDeadline {
    /// Returns true if the answer comes later, from another peer or a run.
    pub const fn is_deferred(self) -> bool {
        !matches!(self, Self::AtOnce)
    }
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodRow {
    /// The method.
    pub method: Method,
    /// Its name on the wire.
    pub name: &'static str,
    /// Modes in which a peer may call it.
    pub modes: &'static [PeerMode],
    /// Permission that the caller needs.
    pub scope: MethodScope,
    /// Deadline of the answer.
    pub deadline: MethodDeadline,
}

macro_rules! methods {
    ($($method:ident $name:literal $modes:ident $scope:ident $deadline:expr;)*) => {
        /// Something that a peer can ask for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Method {
            $(#[doc = concat!("`", $name, "`")] $method,)*
        }

        /// All methods.
        pub const TABLE: &[MethodRow] = &[
            $(MethodRow {
                method: Method::$method, name: $name, modes: $modes, scope: MethodScope::$scope, deadline: $deadline,
            },)*
        ];

        impl Method {
            /// Returns the name on the wire.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$method => $name,)* }
            }

            /// Returns the method of this name.
            pub fn named(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$method),)* _ => None }
            }
        }
    };
}

const ANY: &[PeerMode] = &[PeerMode::Client, PeerMode::Node, PeerMode::Channel];
const CLIENT: &[PeerMode] = &[PeerMode::Client];
const NODE: &[PeerMode] = &[PeerMode::Node];
const CHANNEL: &[PeerMode] = &[PeerMode::Channel];
const CLIENT_AND_NODE: &[PeerMode] = &[PeerMode::Client, PeerMode::Node];

/// Time limit of a node for its log, in milliseconds.
const LOGS: MethodDeadline = MethodDeadline::Milliseconds(20_000);

use MethodDeadline::{AtOnce, FromRequest, Run, Tool};

methods! {
    Connect "connect" ANY Presence AtOnce;
    ChatSend "chat.send" CLIENT Chat AtOnce;
    ConfigGet "config.get" CLIENT Admin AtOnce;
    ConfigSet "config.set" CLIENT Admin AtOnce;
    // A node keeps its connection alive with it.
    ToolsList "tools.list" CLIENT_AND_NODE Presence AtOnce;
    ToolInvoke "tool.invoke" CLIENT Chat Tool;
    ToolResult "tool.result" NODE Node AtOnce;
    ToolRequest "tool.request" CLIENT Chat AtOnce;
    NodeProbeResult "node.probe.result" NODE Node AtOnce;
    // It may overtake the result that announces its execution.
    NodeExecEvent "node.exec.event" NODE Node FromRequest;
    LogsGet "logs.get" CLIENT Read LOGS;
    LogsResult "logs.result" NODE Node AtOnce;
    SessionsList "sessions.list" CLIENT Read AtOnce;
    SessionGet "session.get" CLIENT Read AtOnce;
    SessionStats "session.stats" CLIENT Read AtOnce;
    SessionReset "session.reset" CLIENT Chat AtOnce;
    SessionPatch "session.patch" CLIENT Chat AtOnce;
    SessionCompact "session.compact" CLIENT Chat AtOnce;
    SessionHistory "session.history" CLIENT Read AtOnce;
    SessionPreview "session.preview" CLIENT Read AtOnce;
    ChannelsList "channels.list" CLIENT Read AtOnce;
    ChannelInbound "channel.inbound" CHANNEL Channel AtOnce;
    ChannelStart "channel.start" CLIENT Admin AtOnce;
    ChannelStop "channel.stop" CLIENT Admin AtOnce;
    ChannelStatus "channel.status" CLIENT Read AtOnce;
    ChannelLogin "channel.login" CLIENT Admin AtOnce;
    ChannelLogout "channel.logout" CLIENT Admin AtOnce;
    HeartbeatStatus "heartbeat.status" CLIENT Read AtOnce;
    HeartbeatStart "heartbeat.start" CLIENT Admin AtOnce;
    HeartbeatTrigger "heartbeat.trigger" CLIENT Chat AtOnce;
    CronStatus "cron.status" CLIENT Read AtOnce;
    CronList "cron.list" CLIENT Read AtOnce;
    CronAdd "cron.add" CLIENT Admin AtOnce;
    CronUpdate "cron.update" CLIENT Admin AtOnce;
    CronRemove "cron.remove" CLIENT Admin AtOnce;
    CronRun "cron.run" CLIENT Chat Run;
    CronRuns "cron.runs" CLIENT Read AtOnce;
    PairList "pair.list" CLIENT Admin AtOnce;
    PairApprove "pair.approve" CLIENT Admin AtOnce;
    PairReject "pair.reject" CLIENT Admin AtOnce;
    SkillsStatus "skills.status" CLIENT Read AtOnce;
    SkillsUpdate "skills.update" CLIENT Read FromRequest;
    WorkspaceList "workspace.list" CLIENT Read AtOnce;
    WorkspaceRead "workspace.read" CLIENT Read AtOnce;
    WorkspaceWrite "workspace.write" CLIENT Admin AtOnce;
    WorkspaceDelete "workspace.delete" CLIENT Admin AtOnce;
}

impl Method {
    /// Its row of the table.
    pub fn table_row(self) -> &'static MethodRow {
        // The table has the methods in the order of their declaration.
        &TABLE[self as usize]
    }

    /// Decides whether a peer connected in `mode` may call it.
    ///
    /// # Errors
    /// 403 with what its clients expect.
    pub fn check_allowed(self, mode: PeerMode) -> Result<(), GsvError> {
        if self.table_row().modes.contains(&mode) {
            return Ok(());
        }
        Err(GsvError::new(code::FORBIDDEN, format!("Method {} not allowed for mode", self.name())))
    }
}

/// Resolves a request for `method` of a peer that is connected in `mode`, or not yet.
///
/// # Errors
/// In this order: 101 for any request before `connect`, 404 for a name that no method has, 403 for a mode that may not.
pub fn dispatch_method(method: &str, mode: Option<PeerMode>) -> Result<Method, GsvError> {
    let named = Method::named(method);
    let Some(mode) = mode else {
        return named.filter(|method| *method == Method::Connect).ok_or_else(GsvError::not_connected);
    };
    let method = named.ok_or_else(|| GsvError::unknown_method(method))?;
    method.check_allowed(mode)?;
    Ok(method)
}
