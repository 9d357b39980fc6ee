//! State of a server in one word, from its activity and from what approvers decided about it.

use countersign_core::{call::CallEnd, id::SessionId};
use countersign_view::mcp_server_status::{
    APPROVAL_SESSION, McpActivity, McpApproval, McpServerRow, McpToolState, SERVER_TOOL, TOOLS_TOOL,
};
use maud::{Markup, html};

use crate::{
    history::{CallVerdict, HistoryState, PastCall},
    labels::{count_text, duration_text},
};

/// Most calls of a server that are shown.
const MOST: usize = 10;

/// Calls in the record that are about a server.
#[derive(Default)]
pub(super) struct ServerHistory {
    /// Last request to start it as it is configured.
    pub(super) start: Option<PastCall>,
    /// Last request to offer its tools as they were then.
    pub(super) tools: Option<PastCall>,
    /// Last calls of its tools, the newest first.
    pub(super) calls: Vec<PastCall>,
}

impl ServerHistory {
    pub(super) fn read(past: &HistoryState, server: &McpServerRow) -> Self {
        let prefix = format!("mcp__{}__", server.name);
        let mut found = Self::default();
        for call in past.calls().rev() {
            if call.tool.starts_with(&prefix) && found.calls.len() < MOST {
                found.calls.push(call.clone());
            } else if is_approval(&call.session) && is_about(call, server) {
                let last = if &*call.tool == SERVER_TOOL { &mut found.start } else { &mut found.tools };
                last.get_or_insert_with(|| call.clone());
            }
        }
        found
    }

    /// Returns the request whose gate is pending, if the state has one.
    pub(super) fn pending(&self, state: ServerState) -> Option<&PastCall> {
        let requests = [(ServerState::WaitsForApproval, &self.start), (ServerState::ToolsWait, &self.tools)];
        requests.into_iter().find(|(of, _)| *of == state).and_then(|(_, call)| call.as_ref())
    }

    /// Returns the last request that was allowed and carried out.
    pub(super) fn approved(&self) -> Option<&PastCall> {
        let is_done = |call: &&PastCall| call.end == Some(CallEnd::Done { error: false });
        [&self.start, &self.tools].into_iter().flatten().filter(is_done).max_by_key(|call| call.at)
    }
}

fn is_approval(session: &SessionId) -> bool {
    let session = session.as_str();
    session.split_once('#').map_or(session, |(session, _)| session) == APPROVAL_SESSION
}

/// Reports whether a request is about a server: to start it exactly as it is configured, or to offer its tools.
fn is_about(call: &PastCall, server: &McpServerRow) -> bool {
    let Some(subject) = &call.subject else { return false };
    match &*call.tool {
        SERVER_TOOL => subject.arguments == server.request,
        TOOLS_TOOL => subject.arguments.get("server").and_then(|name| name.as_str()) == Some(&server.name),
        _ => false,
    }
}

fn is_pending(call: &PastCall) -> bool {
    call.gate.is_some() && call.verdict == CallVerdict::Open
}

const fn is_denied(call: &PastCall) -> bool {
    matches!(call.verdict, CallVerdict::RefusedByPerson | CallVerdict::RefusedByRule)
}

const fn has_failed(call: &PastCall) -> bool {
    matches!(call.end, Some(CallEnd::Done { error: true } | CallEnd::Failed | CallEnd::Unknown))
}

/// State of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerState {
    /// The configuration switches it off.
    Disabled,
    /// Its gate is pending.
    WaitsForApproval,
    /// An approver or a rule denied it.
    Denied,
    /// It is not approved, and no approval is pending.
    NotApproved,
    /// It was allowed, and then it could not be started.
    StartFailed,
    /// The gate of its changed tools is pending.
    ToolsWait,
    /// Its tools are not those that were approved.
    ToolsChanged,
    Starting,
    Running,
    Failed,
    /// It starts when it is needed.
    Idle,
}

impl ServerState {
    pub(super) fn new(server: &McpServerRow, history: &ServerHistory) -> Self {
        if server.activity == McpActivity::Disabled {
            return Self::Disabled;
        }
        if !matches!(server.approval, McpApproval::Approved { .. }) {
            return match &history.start {
                Some(call) if is_pending(call) => Self::WaitsForApproval,
                // It is allowed, and its tools are being listed.
                Some(call) if call.end.is_none() => Self::Starting,
                Some(call) if is_denied(call) => Self::Denied,
                Some(call) if has_failed(call) => Self::StartFailed,
                // The request is older than the history.
                None if server.approval == McpApproval::Denied => Self::Denied,
                Some(_) | None => Self::NotApproved,
            };
        }
        if history.tools.as_ref().is_some_and(is_pending) {
            return Self::ToolsWait;
        }
        match &server.activity {
            McpActivity::Disabled => Self::Disabled,
            McpActivity::Idle => Self::Idle,
            McpActivity::Starting => Self::Starting,
            McpActivity::Failed { .. } => Self::Failed,
            McpActivity::Running { .. } if changed_count(server) > 0 => Self::ToolsChanged,
            McpActivity::Running { .. } => Self::Running,
        }
    }

    pub(super) fn render_badge(self) -> Markup {
        let (class, word) = match self {
            Self::Disabled => ("still", "switched off"),
            Self::WaitsForApproval => ("ask", "waiting for approval"),
            Self::Denied => ("bad", "denied"),
            Self::NotApproved => ("ask", "not approved"),
            Self::ToolsWait => ("ask", "changed tools waiting"),
            Self::ToolsChanged => ("ask", "tools changed"),
            Self::Starting => ("still", "starting"),
            Self::Running => ("good", "running"),
            Self::Failed | Self::StartFailed => ("bad", "failed"),
            Self::Idle => ("still", "not started"),
        };
        html! { span.badge.(class) { (word) } }
    }

    /// Returns what else there is to say about the state.
    pub(super) fn note(self, server: &McpServerRow) -> Option<String> {
        Some(match self {
            Self::Disabled => format!("mcp.servers.{}.enabled is false.", server.name),
            Self::WaitsForApproval => "It starts once an approver allows it.".to_owned(),
            Self::Denied => {
                "After a denial by an approver it is not requested again by itself until its definition changes."
                    .to_owned()
            }
            Self::NotApproved if server.approval == McpApproval::OtherDefinition => {
                "Its definition is not the one that was approved.".to_owned()
            }
            Self::NotApproved => "It does not start, and none of its tools is offered.".to_owned(),
            Self::StartFailed => {
                let reason = match &server.activity {
                    McpActivity::Failed { reason, .. } => format!(": {reason}"),
                    McpActivity::Disabled | McpActivity::Idle | McpActivity::Starting | McpActivity::Running { .. } => {
                        String::new()
                    }
                };
                format!("It was allowed, but could not be started{reason}. It is not approved.")
            }
            Self::ToolsWait | Self::ToolsChanged => {
                let changed = count_text(changed_count(server) as u64, "tool");
                format!("{changed} new, changed or gone. A changed tool is not called until it is approved again.")
            }
            Self::Idle => "It starts when one of its tools is first called.".to_owned(),
            Self::Starting => return None,
            Self::Running | Self::Failed => return activity_note(&server.activity),
        })
    }
}

/// Returns the number of tools that are not as they were approved.
pub(super) fn changed_count(server: &McpServerRow) -> usize {
    server.tools.iter().filter(|tool| tool.state != McpToolState::Approved).count()
}

fn activity_note(activity: &McpActivity) -> Option<String> {
    let millis = |time: &std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    match activity {
        McpActivity::Running { since, .. } => Some(format!("For {}.", duration_text(millis(since)))),
        McpActivity::Failed { reason, retry_in } if retry_in.is_zero() => {
            Some(format!("{reason}. It starts again when it is needed."))
        }
        McpActivity::Failed { reason, retry_in } => {
            Some(format!("{reason}. It can start again in {}.", duration_text(millis(retry_in) + 1000)))
        }
        McpActivity::Disabled | McpActivity::Idle | McpActivity::Starting => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use countersign_view::mcp_server_status::{McpActivity, McpApproval, McpServerRow, McpToolRow, McpToolState};

    use super::{ServerHistory, ServerState};

    fn server(approval: McpApproval, activity: McpActivity, state: McpToolState) -> McpServerRow {
        McpServerRow {
            name: "files".to_owned(),
            transport: "stdio",
            address: "server".to_owned(),
            call_timeout: Duration::from_secs(300),
            approval,
            activity,
            tools: vec![McpToolRow {
                name: "mcp__files__read".to_owned(),
                description: String::new(),
                hints: serde_json::Map::new(),
                state,
            }],
            left_out: Vec::new(),
            request: serde_json::Map::new(),
        }
    }

    #[test]
    fn without_requests_the_state_follows_from_approval_and_activity() {
        let running =
            || McpActivity::Running { protocol: "2025-06-18".to_owned(), program: None, since: Duration::ZERO };
        let failed =
            |seconds| McpActivity::Failed { reason: "it ended".to_owned(), retry_in: Duration::from_secs(seconds) };
        let approved = || McpApproval::Approved { at: None, by: None };
        let as_approved = || McpToolState::Approved;
        for (approval, activity, tool, want, note) in [
            (approved(), McpActivity::Disabled, as_approved(), ServerState::Disabled, "enabled is false"),
            (McpApproval::Missing, McpActivity::Idle, as_approved(), ServerState::NotApproved, "does not start"),
            (McpApproval::Denied, McpActivity::Idle, as_approved(), ServerState::Denied, "not requested again"),
            (
                McpApproval::OtherDefinition,
                McpActivity::Idle,
                as_approved(),
                ServerState::NotApproved,
                "not the one that was approved",
            ),
            (approved(), McpActivity::Idle, as_approved(), ServerState::Idle, "first called"),
            (approved(), McpActivity::Starting, as_approved(), ServerState::Starting, ""),
            (approved(), running(), as_approved(), ServerState::Running, "For 0 s."),
            (approved(), running(), McpToolState::New, ServerState::ToolsChanged, "1 tool new"),
            (approved(), failed(0), as_approved(), ServerState::Failed, "it ended. It starts again when"),
            (approved(), failed(8), as_approved(), ServerState::Failed, "again in 9 s"),
        ] {
            let row = server(approval, activity, tool);
            let state = ServerState::new(&row, &ServerHistory::default());
            let shown = state.note(&row).unwrap_or_default();
            assert!(state == want && shown.contains(note), "{row:?}: {state:?} {shown}");
        }
    }
}
