//! Page of agents, services, messengers, models, and the gateway itself, with their status.

use std::{path::Path, sync::Arc, time::Duration};

use axum::{Extension, extract::State, response::Response};
use countersign_core::{engine::Engine, id::SessionId, time::Millis};
use countersign_http::web::HttpCaller;
use countersign_runtime::{
    InboxLane,
    store::{Log as _, Partition},
};
use countersign_view::connection_status::{ChannelAccountStatus, NodeStatus};
use futures_util::future::join_all;
use maud::{Markup, html};

use super::{
    ConsoleState,
    labels::{duration_text, entry_count_text, escape_line, plain_text, time_ago, url_path},
    mcp,
    page::{ConsoleTab, PageError, render_page, render_table},
    planned_jobs,
    policy::ago_or_never,
};

/// Longest wait of a page for the health of a service.
const PATIENCE: Duration = Duration::from_secs(2);

/// One agent.
struct AgentRow {
    id: String,
    session: SessionId,
    is_connected: bool,
    open: usize,
    results: usize,
    seen: Option<Millis>,
}

pub(super) async fn show_agents(
    State(console): State<Arc<ConsoleState>>,
    Extension(caller): Extension<HttpCaller>,
) -> Result<Response, PageError> {
    let ctx = console.page_context(caller).await?;
    let context = &console.context;
    let agents = console.agent_rows().await?;
    let services = context.config.services.iter().map(|service| async move {
        let health = tokio::time::timeout(PATIENCE, context.services.check_health(&service.name)).await;
        let health = health.map(|health| health.map_err(|unwell| unwell.to_string()));
        (service, health.unwrap_or_else(|_| Err("timed out".to_owned())))
    });
    let services = join_all(services).await;
    let (planned, count) = console.planned_jobs().await?;
    let nodes = Arc::clone(&console.context.peers).list_nodes().await.map_err(PageError::unreadable_record)?;
    let accounts = Arc::clone(&console.context.peers).list_accounts().await.ok_or_else(PageError::gateway_closing)?;
    let head = context.handle.log().head(Partition::ZERO).await.map_err(PageError::unreadable_record)?;
    // Recent records are in the file next to it.
    let beside = format!("{}-wal", context.config.storage.log.display());
    let size = file_size(&context.config.storage.log).await + file_size(beside.as_ref()).await;
    let body = html! {
        h1 { "Agents and nodes" }
        (mcp::agents_tabs("/console/agents"))
        section aria-labelledby="agents" {
            h2 #agents { "Agents" }
            @if agents.is_empty() { p.empty { "No agents are configured, so no agent can connect." } }
            @else { (render_table(&["Agent", "State", "Last request", "Open requests", "Undelivered results"], agents.iter().map(|agent| html! {
                td { a href=(url_path("/console/sessions/", agent.session.as_str())) { (plain_text(&agent.id)) } }
                td { (state_badge(agent.is_connected, "connected", "disconnected")) }
                td data-label="Last request" { (ago_or_never(agent.seen, ctx.now)) }
                td.number data-label="Open requests" { (agent.open) }
                td.number data-label="Undelivered results" { (agent.results) }
            }))) }
        }
        (planned_jobs::planned_section(&planned, count, ctx.now))
        section aria-labelledby="nodes" {
            h2 #nodes { "Nodes" }
            @if nodes.is_empty() { p.empty { "No node has connected yet. Start one with " code { "countersign node" } "." } }
            @else { (self::node_table(&nodes, ctx.now)) }
        }
        section aria-labelledby="services" {
            h2 #services { "Services" }
            @if services.is_empty() { p.empty { "No service is configured." } }
            @else { (render_table(&["Service", "State", "Address", "Tools"], services.iter().map(|(service, health)| html! {
                td { (plain_text(&service.name)) }
                td { (state_badge(health.is_ok(), "healthy", "unhealthy")) @if let Err(why) = health { p.note { (escape_line(why)) } } }
                td { code { (plain_text(&service.url)) } }
                td.number data-label="Tools" { (service.tools.len()) }
            }))) }
        }
        section aria-labelledby="messengers" {
            h2 #messengers { "Messengers" }
            (messenger_table(&console, ctx.now))
            @if !accounts.is_empty() { (self::account_table(&accounts, ctx.now)) }
        }
        section aria-labelledby="models" {
            h2 #models { "Models" }
            @let usual = context.chats.models().default_model();
            (render_table(&["Model", "Provider", "Context"], context.chats.models().entries().map(|entry| html! {
                td { (plain_text(&entry.name)) " " code { (plain_text(&entry.id)) } @if usual.as_ref().is_some_and(|usual| usual.id == entry.id && usual.provider == entry.provider) { " " span.bound { "default" } } }
                td data-label="Provider" { (plain_text(&entry.provider)) }
                td.number data-label="Context" { (entry.context_window) }
            })))
            @if usual.is_none() { p.note { "No default model is configured: choose a model for each chat." } }
        }
        section aria-labelledby="gateway" {
            h2 #gateway { "This gateway" }
            dl.facts.panel {
                div { dt { "Address" } dd { code { (plain_text(&context.address)) } } }
                div { dt { "Login" } dd { @if context.auth.is_guarded() { "required" } @else { "not required; only this machine can connect" } } }
                div { dt { "Uptime" } dd { (duration_text(ctx.now.0.saturating_sub(context.started_at.0))) } }
                div { dt { "Version" } dd { (env!("CARGO_PKG_VERSION")) } }
                div { dt { "Record" } dd {
                    @if context.config.storage.database.is_some() { "PostgreSQL, " (entry_count_text(head.lsn.0)) }
                    @else { code { (plain_text(&context.config.storage.log.display().to_string())) } ", " (entry_count_text(head.lsn.0)) ", " (size >> 10) " KiB" }
                } }
                div { dt { "Head" } dd { code.head { (head.lsn) ":" (head.chain) } } }
                div { dt { "Rules" } dd { code { (plain_text(&context.config.permissions.display().to_string())) } } }
            }
        }
    };
    Ok(render_page(&ctx, ConsoleTab::Agents, "Agents and nodes", &body))
}

impl ConsoleState {
    async fn agent_rows(&self) -> Result<Vec<AgentRow>, PageError> {
        let known = self.context.agents.all_agents();
        let queried = known.clone();
        let read = move |engine: &Engine| -> Vec<(usize, usize)> {
            let of = |session: &SessionId| {
                let requester = engine.state().session(session).and_then(|session| session.agent_requests());
                requester.map_or((0, 0), |requester| (requester.open_requests().len(), requester.results().len()))
            };
            queried.iter().map(|(_, session)| of(session)).collect()
        };
        let counts = self
            .context
            .handle
            .source(InboxLane::Request)
            .read_state(read)
            .await
            .ok_or_else(PageError::gateway_closing)?
            .0;
        let past = self.history.upto_now(&self.context.handle).await.map_err(PageError::unreadable_record)?;
        let agent = |((id, session), (open, results)): ((String, SessionId), (usize, usize))| AgentRow {
            is_connected: self.context.agents.is_connected(&session),
            seen: past.last_request(&session),
            id,
            session,
            open,
            results,
        };
        Ok(known.into_iter().zip(counts).map(agent).collect())
    }
}

/// Returns the size of a file, in bytes; nothing if it does not exist.
async fn file_size(file: &Path) -> u64 {
    tokio::fs::metadata(file).await.map_or(0, |file| file.len())
}

fn messenger_table(console: &ConsoleState, now: Millis) -> Markup {
    let Some(report) = console.context.telegram.as_ref().map(|report| report()) else {
        return html! { p.empty { "No messenger is configured. You can decide here, on the command line and in connected clients." } };
    };
    let is_well = report.is_well();
    render_table(
        &["Messenger", "State", "Last success", "Last error"],
        std::iter::once(html! {
            td { "Telegram" }
            td { (state_badge(is_well, "healthy", "unhealthy")) }
            td data-label="Last success" { (ago_or_never(report.worked, now)) }
            td data-label="Last error" { @match &report.failed { Some((at, why)) => { (escape_line(why)) ", " (time_ago(*at, now)) }, None => "none" } }
        }),
    )
}

fn node_table(nodes: &[NodeStatus], now: Millis) -> Markup {
    render_table(
        &["Node", "State", "Last change", "Platform", "Tools"],
        nodes.iter().map(|node| {
            html! {
                td { (plain_text(&node.id)) }
                td {
                    (state_badge(node.is_connected, "connected", "disconnected"))
                    @if !node.keeps_journal { p.note { "No journal: calls interrupted by a disconnect end as unknown." } }
                }
                td data-label="Last change" { (time_ago(node.seen, now)) }
                td data-label="Platform" { (escape_line(node.platform.as_deref().unwrap_or("unknown"))) @if let Some(version) = &node.version { " " span.bound { (escape_line(version)) } } }
                td.number data-label="Tools" { (node.tools) }
            }
        }),
    )
}

fn account_table(accounts: &[ChannelAccountStatus], now: Millis) -> Markup {
    render_table(
        &["Account", "State", "Last message", "Queued messages"],
        accounts.iter().map(|account| {
            html! {
                td { (plain_text(&account.network)) " " code { (plain_text(&account.name)) } }
                td {
                    (state_badge(account.is_connected, "connected", "disconnected"))
                    @if let Some(problem) = &account.problem { p.note { (escape_line(problem)) } }
                }
                td data-label="Last message" { (ago_or_never(account.last_inbound, now)) }
                td.number data-label="Queued messages" { (account.waiting) }
            }
        }),
    )
}

fn state_badge(is_well: bool, well: &str, ill: &str) -> Markup {
    html! { span.badge.(if is_well { "good" } else { "still" }) { (if is_well { well } else { ill }) } }
}
