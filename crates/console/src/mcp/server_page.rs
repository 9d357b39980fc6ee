//! Page of one MCP server.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, Query, State},
    http::StatusCode,
    response::Response,
};
use countersign_http::web::HttpCaller;
use countersign_view::mcp_server_status::{McpActivity, McpApproval, McpServerRow, McpToolRow, McpToolState};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::{
    PATH, agents_tabs, server_path,
    server_state::{ServerHistory, ServerState},
};
use crate::{
    ConsoleState, PageContext,
    console_card::{CardContext, CardPlace},
    gates::fresh_key,
    history::{CallVerdict, PastCall},
    labels::{
        capitalise, count_text, duration_text, escape_line, escape_rest_lines, plain_text, principal_name, time_ago,
        time_element, url_path,
    },
    page::{ConsoleTab, PageError, render_page_with, render_table},
};

/// Action that was just done.
#[derive(Deserialize)]
pub(crate) struct ServerQuery {
    #[serde(default)]
    done: String,
}

pub(crate) async fn show_server(
    State(console): State<Arc<ConsoleState>>,
    Extension(caller): Extension<HttpCaller>,
    Path(name): Path<String>,
    Query(query): Query<ServerQuery>,
) -> Result<Response, PageError> {
    let ctx = console.page_context(caller).await?;
    let notice = match query.done.as_str() {
        "revoked" => Some("Approval withdrawn. The tools of the server are offered no longer."),
        "requested" => Some("Approval requested. An approver answers it here, in the inbox or in a messenger."),
        "tested" => Some("The server runs and lists its tools."),
        "restarted" => Some("The server was restarted and lists its tools."),
        _ => None,
    };
    console.server_page(&ctx, &name, notice.map(|text| ServerNotice { is_good: true, text: text.to_owned() })).await
}

/// Notice above the page of a server.
pub(super) struct ServerNotice {
    pub(super) is_good: bool,
    pub(super) text: String,
}

impl ConsoleState {
    /// Finds a configured server.
    pub(super) async fn find_server(&self, name: &str) -> Result<McpServerRow, PageError> {
        let listed = Arc::clone(&self.context.mcp_servers).list_servers().await;
        let servers = listed.map_err(|problem| PageError::new(StatusCode::INTERNAL_SERVER_ERROR, problem))?;
        let found = servers.into_iter().find(|server| server.name == name);
        found.ok_or_else(|| PageError::not_found(format!("MCP server {name} in the configuration")))
    }

    pub(super) async fn server_page(
        &self,
        ctx: &PageContext,
        name: &str,
        notice: Option<ServerNotice>,
    ) -> Result<Response, PageError> {
        let server = self.find_server(name).await?;
        let history = {
            let past = self.history.upto_now(&self.context.handle).await.map_err(PageError::unreadable_record)?;
            ServerHistory::read(&past, &server)
        };
        let state = ServerState::new(&server, &history);
        let card = match history.pending(state).and_then(|call| call.gate) {
            Some(gate) => self.load_gate(gate).await?.filter(|(card, _)| card.is_pending()),
            None => None,
        };
        let key = fresh_key();
        let reader = CardContext {
            now: ctx.now,
            csrf: ctx.caller.csrf_token(),
            key: &key,
            place: CardPlace::Page,
            notice: None,
        };
        let body = html! {
            p.back { a href=(PATH) { "← MCP servers" } }
            h1 { (escape_line(&server.name)) " " (state.render_badge()) }
            (agents_tabs(""))
            @if let Some(notice) = &notice {
                div.(if notice.is_good { "told" } else { "problem" }) role=(if notice.is_good { "status" } else { "alert" }) { pre.prose { (escape_rest_lines(&notice.text)) } }
            }
            // The time since the start is among the facts.
            @if let Some(note) = state.note(&server).filter(|_| state != ServerState::Running) { p.lead { (escape_rest_lines(&capitalise(&note))) } }
            @if let Some((card, answered)) = &card { div.list #cards.alone { (card.render_card(&reader, answered)) } }
            (facts(ctx, &server, &history))
            section aria-label="Actions" { (actions(ctx, &server, state)) }
            section aria-labelledby="calls" {
                h2 #calls { "Last calls" }
                (calls_table(ctx, &history.calls))
            }
            (tools(&server))
        };
        let status = notice.filter(|notice| !notice.is_good).map_or(StatusCode::OK, |_| StatusCode::CONFLICT);
        Ok(render_page_with(status, ctx, ConsoleTab::Agents, &plain_text(&server.name), None, &body))
    }
}

fn facts(ctx: &PageContext, server: &McpServerRow, history: &ServerHistory) -> Markup {
    html! {
        dl.facts.panel {
            div { dt { "Transport" } dd { (server.transport) } }
            div { dt { (if server.transport == "http" { "Address" } else { "Command" }) } dd { code { (escape_line(&server.address)) } } }
            @if let McpActivity::Running { protocol, program, since } = &server.activity {
                div { dt { "Protocol" } dd { (escape_line(protocol)) } }
                @if let Some(program) = program { div { dt { "Program" } dd { (escape_rest_lines(program)) } } }
                div { dt { "Uptime" } dd { (duration_text(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))) } }
            }
            div { dt { "Time limit" } dd { (duration_text(u64::try_from(server.call_timeout.as_millis()).unwrap_or(u64::MAX))) " for a call" } }
            div { dt { "Approved" } dd { (approval_text(ctx, &server.approval, history.approved())) } }
        }
    }
}

/// Renders the time of the approval and its author, with a link to the decision.
fn approval_text(ctx: &PageContext, approval: &McpApproval, decision: Option<&PastCall>) -> Markup {
    let (at, by) = match approval {
        McpApproval::Approved { at, by } => (at, by),
        McpApproval::OtherDefinition => return html! { "with another definition" },
        McpApproval::Denied => return html! { "no, denied" },
        McpApproval::Missing => return html! { "no" },
    };
    html! {
        @match at { Some(at) => { (time_element(*at)) }, None => "yes" }
        @match (by, decision) {
            (Some(by), _) => { " by " (principal_name(&ctx.people, by)) },
            (None, Some(call)) => {
                @match (&call.by, call.verdict) {
                    (Some(by), _) => { " by " (principal_name(&ctx.people, by)) },
                    (None, CallVerdict::Rule) => " by a rule",
                    (None, _) => "",
                }
                ", " a href=(decision_path(call)) { "the decision in the record" }
            }
            (None, None) => "",
        }
    }
}

fn actions(ctx: &PageContext, server: &McpServerRow, state: ServerState) -> Markup {
    if state == ServerState::Disabled {
        return html! {};
    }
    let form = |content: Markup| {
        html! {
            form method="post" action=(server_path(&server.name)) {
                input type="hidden" name="csrf" value=(ctx.caller.csrf_token());
                (content)
            }
        }
    };
    let is_approved = matches!(server.approval, McpApproval::Approved { .. });
    html! {
        @if is_approved {
            (form(html! {
                div.inline {
                    button type="submit" name="action" value="test" { "Test" }
                    button type="submit" name="action" value="restart" { "Restart" }
                }
                p.note { "Both start the server if it does not run. Its tools are compared with the approved ones at each start. A restart ends running calls, whose outcome is unknown then." }
            }))
            details {
                summary { "Withdraw the approval" }
                p { "The tools of the server are offered no longer, and the gateway ends its connection. A program that the gateway started ends with it. Running calls end too, and pending approvals of calls are withdrawn. The change is recorded under your name." }
                (form(html! { button.danger type="submit" name="action" value="revoke" { "Withdraw the approval" } }))
            }
        } @else if matches!(state, ServerState::NotApproved | ServerState::StartFailed | ServerState::Denied) {
            (form(html! {
                button.primary type="submit" name="action" value="request" { "Request approval" }
                p.note { "This opens the pending approval of the server, unless a rule decides. For 15 minutes after a denial by an approver the request is denied again, unless that denial is lifted under Policy. To see its tools before you approve, run " code { "countersign mcp-servers approve " (plain_text(&server.name)) } "." }
            }))
        }
    }
}

fn tools(server: &McpServerRow) -> Markup {
    html! {
        section aria-labelledby="tools" {
            h2 #tools { @if server.tools.is_empty() { "Tools" } @else { (count_text(server.tools.len() as u64, "tool")) } }
            @if server.tools.is_empty() { p.empty { "Its tools are known once it was approved and has started." } }
            @for tool in &server.tools { (tool_panel(tool)) }
            @if !server.left_out.is_empty() {
                h3 { "Left out" }
                ul.changed { @for (tool, problem) in &server.left_out { li { code { (escape_rest_lines(tool)) } ": " (escape_rest_lines(problem)) } } }
            }
        }
    }
}

fn tool_panel(tool: &McpToolRow) -> Markup {
    let badge = match &tool.state {
        McpToolState::Approved => None,
        McpToolState::New => Some("new: not approved"),
        McpToolState::Changed { .. } => Some("changed since it was approved"),
        McpToolState::Gone => Some("approved, not offered any more"),
    };
    html! {
        article.call {
            p.head { code { (escape_line(&tool.name)) } @if let Some(badge) = badge { " " span.badge.ask { (badge) } } }
            @if !tool.description.is_empty() { pre.prose { "\n" (escape_rest_lines(&tool.description)) } }
            @if let McpToolState::Changed { differences } = &tool.state {
                ul.changed { @for difference in differences { li { (escape_rest_lines(difference)) } } }
            }
            @let hints = hint_texts(tool);
            @if !hints.is_empty() { p.note { "The server says, and this grants nothing: " (escape_line(&hints.join(", "))) "." } }
        }
    }
}

fn hint_texts(tool: &McpToolRow) -> Vec<String> {
    let says = |hint: &str, yes: &str, no: &str| {
        let said = tool.hints.get(hint).and_then(Value::as_bool)?;
        Some(if said { yes } else { no }.to_owned())
    };
    let title = tool.hints.get("title").and_then(Value::as_str).map(|title| format!("title “{title}”"));
    [
        title,
        says("readOnlyHint", "only reads", "changes something"),
        says("destructiveHint", "may destroy data", "destroys no data"),
        says("idempotentHint", "a repeated call has no further effect", "a repeated call has a further effect"),
        says("openWorldHint", "reaches outside systems", "reaches no outside systems"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn calls_table(ctx: &PageContext, calls: &[PastCall]) -> Markup {
    if calls.is_empty() {
        return html! { p.empty { "No call of its tools is in the recent record." } };
    }
    render_table(
        &["Call", "Caller", "Time", "Outcome"],
        calls.iter().map(|call| {
            let (class, word) = outcome_badge(call);
            html! {
                td { a href=(decision_path(call)) { code { (escape_line(&call.signature)) } } }
                td data-label="Caller" { (plain_text(&call.asker)) }
                td data-label="Time" { (time_ago(call.at, ctx.now)) }
                td { span.badge.(class) { (word) } }
            }
        }),
    )
}

fn decision_path(call: &PastCall) -> String {
    url_path("/console/record/", &call.id.to_string())
}

fn outcome_badge(call: &PastCall) -> (&'static str, &'static str) {
    use countersign_core::call::CallEnd;
    match (call.end, call.verdict) {
        (None, CallVerdict::Open) => ("ask", "pending"),
        (None, _) => ("still", "running"),
        (Some(CallEnd::Done { error: false }), _) => ("good", "done"),
        (Some(CallEnd::Done { error: true }), _) => ("bad", "done, with an error"),
        (Some(CallEnd::Failed), _) => ("bad", "failed"),
        (Some(CallEnd::Denied | CallEnd::Refused), _) => ("bad", "denied"),
        (Some(CallEnd::Expired), _) => ("bad", "expired"),
        (Some(CallEnd::Limited), _) => ("bad", "limit reached"),
        (Some(CallEnd::Unknown), _) => ("bad", "outcome unknown"),
        (Some(CallEnd::Skipped), _) => ("still", "skipped"),
        (Some(CallEnd::Cancelled), _) => ("still", "cancelled"),
    }
}
