//! Agents, services, messengers, models, and the gateway itself: what is there and how it is doing.

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
    Console,
    page::{Tab, Trouble, page, table},
    planned,
    policy::ago_or_never,
    words::{ago, counted, one, path, plain, span},
};

/// How long a page waits for a service to say how it is.
const PATIENCE: Duration = Duration::from_secs(2);

/// One agent.
struct Agent {
    id: String,
    session: SessionId,
    is_connected: bool,
    open: usize,
    results: usize,
    seen: Option<Millis>,
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    Extension(caller): Extension<HttpCaller>,
) -> Result<Response, Trouble> {
    let look = console.look(caller).await?;
    let context = &console.context;
    let agents = console.agents().await?;
    let services = context.config.services.iter().map(|service| async move {
        let health = tokio::time::timeout(PATIENCE, context.services.check_health(&service.name)).await;
        let health = health.map(|health| health.map_err(|unwell| unwell.to_string()));
        (service, health.unwrap_or_else(|_| Err("it did not answer in time".to_owned())))
    });
    let services = join_all(services).await;
    let (planned, count) = console.planned().await?;
    let nodes = Arc::clone(&console.context.peers).list_nodes().await.map_err(Trouble::unread)?;
    let accounts = Arc::clone(&console.context.peers).list_accounts().await.ok_or_else(Trouble::closing)?;
    let head = context.handle.log().head(Partition::ZERO).await.map_err(Trouble::unread)?;
    // What was recorded lately lies beside it.
    let beside = format!("{}-wal", context.config.storage.log.display());
    let size = size(&context.config.storage.log).await + size(beside.as_ref()).await;
    let body = html! {
        h1 { "Agents and machines" }
        section aria-labelledby="agents" {
            h2 #agents { "Agents" }
            @if agents.is_empty() { p.empty { "No agent is configured, so their door is closed." } }
            @else { (table(&["Agent", "State", "Last asked", "Open", "Results not received"], agents.iter().map(|agent| html! {
                td { a href=(path("/console/sessions/", agent.session.as_str())) { (plain(&agent.id)) } }
                td { (state(agent.is_connected, "connected", "away")) }
                td data-label="Last asked" { (ago_or_never(agent.seen, look.now)) }
                td.number data-label="Open" { (agent.open) }
                td.number data-label="Results not received" { (agent.results) }
            }))) }
        }
        (planned::section(&planned, count, look.now))
        section aria-labelledby="nodes" {
            h2 #nodes { "Nodes" }
            @if nodes.is_empty() { p.empty { "No machine has connected as a node: " code { "countersign node" } " makes one of it." } }
            @else { (self::nodes(&nodes, look.now)) }
        }
        section aria-labelledby="services" {
            h2 #services { "Services" }
            @if services.is_empty() { p.empty { "No service is configured." } }
            @else { (table(&["Service", "State", "Address", "Tools"], services.iter().map(|(service, health)| html! {
                td { (plain(&service.name)) }
                td { (state(health.is_ok(), "well", "not well")) @if let Err(why) = health { p.note { (one(why)) } } }
                td { code { (plain(&service.url)) } }
                td.number data-label="Tools" { (service.tools.len()) }
            }))) }
        }
        section aria-labelledby="messengers" {
            h2 #messengers { "Messengers" }
            (messengers(&console, look.now))
            @if !accounts.is_empty() { (self::accounts(&accounts, look.now)) }
        }
        section aria-labelledby="models" {
            h2 #models { "Models" }
            @let usual = context.chats.models().default_model();
            (table(&["Model", "Provider", "Context"], context.chats.models().entries().map(|entry| html! {
                td { (plain(&entry.name)) " " code { (plain(&entry.id)) } @if usual.as_ref().is_some_and(|usual| usual.id == entry.id && usual.provider == entry.provider) { " " span.bound { "the usual one" } } }
                td data-label="Provider" { (plain(&entry.provider)) }
                td.number data-label="Context" { (entry.context_window) }
            })))
            @if usual.is_none() { p.note { "No model is configured as the usual one: each chat has to choose." } }
        }
        section aria-labelledby="gateway" {
            h2 #gateway { "This gateway" }
            dl.facts.panel {
                div { dt { "Address" } dd { code { (plain(&context.address)) } } }
                div { dt { "Login" } dd { @if context.auth.is_guarded() { "people log in" } @else { "nothing is asked for; only this machine can reach it" } } }
                div { dt { "Runs for" } dd { (span(look.now.0.saturating_sub(context.started_at.0))) } }
                div { dt { "Version" } dd { (env!("CARGO_PKG_VERSION")) } }
                div { dt { "Record" } dd { code { (plain(&context.config.storage.log.display().to_string())) } ", " (counted(head.lsn.0, "record")) ", " (size >> 10) " KiB" } }
                div { dt { "Head" } dd { code.head { (head.lsn) ":" (head.chain) } } }
                div { dt { "Rules" } dd { code { (plain(&context.config.permissions.display().to_string())) } } }
            }
        }
    };
    Ok(page(&look, Tab::Agents, "Agents and machines", &body))
}

impl Console {
    async fn agents(&self) -> Result<Vec<Agent>, Trouble> {
        let known = self.context.agents.all_agents();
        let asked = known.clone();
        let read = move |engine: &Engine| -> Vec<(usize, usize)> {
            let of = |session: &SessionId| {
                let requester = engine.state().session(session).and_then(|session| session.agent_requests());
                requester.map_or((0, 0), |requester| (requester.open_requests().len(), requester.results().len()))
            };
            asked.iter().map(|(_, session)| of(session)).collect()
        };
        let counts =
            self.context.handle.source(InboxLane::Request).read_state(read).await.ok_or_else(Trouble::closing)?.0;
        let past = self.history.upto_now(&self.context.handle).await.map_err(Trouble::unread)?;
        let agent = |((id, session), (open, results)): ((String, SessionId), (usize, usize))| Agent {
            is_connected: self.context.agents.is_connected(&session),
            seen: past.asked(&session),
            id,
            session,
            open,
            results,
        };
        Ok(known.into_iter().zip(counts).map(agent).collect())
    }
}

/// How large a file is, in bytes; nothing if it is not there.
async fn size(file: &Path) -> u64 {
    tokio::fs::metadata(file).await.map_or(0, |file| file.len())
}

fn messengers(console: &Console, now: Millis) -> Markup {
    let Some(report) = console.context.telegram.as_ref().map(|report| report()) else {
        return html! { p.empty { "No messenger is configured: decisions are made here, at the terminal and by the doors." } };
    };
    let is_well = report.is_well();
    table(
        &["Messenger", "State", "Last worked", "Last error"],
        std::iter::once(html! {
            td { "Telegram" }
            td { (state(is_well, "well", "not well")) }
            td data-label="Last worked" { (ago_or_never(report.worked, now)) }
            td data-label="Last error" { @match &report.failed { Some((at, why)) => { (one(why)) ", " (ago(*at, now)) }, None => "none" } }
        }),
    )
}

fn nodes(nodes: &[NodeStatus], now: Millis) -> Markup {
    table(
        &["Node", "State", "Last came or went", "Runs on", "Tools"],
        nodes.iter().map(|node| {
            html! {
                td { (plain(&node.id)) }
                td {
                    (state(node.is_connected, "connected", "away"))
                    @if !node.keeps_journal { p.note { "Keeps no journal: what a cut line leaves open stays unknown." } }
                }
                td data-label="Last came or went" { (ago(node.seen, now)) }
                td data-label="Runs on" { (one(node.platform.as_deref().unwrap_or("not said"))) @if let Some(version) = &node.version { " " span.bound { (one(version)) } } }
                td.number data-label="Tools" { (node.tools) }
            }
        }),
    )
}

fn accounts(accounts: &[ChannelAccountStatus], now: Millis) -> Markup {
    table(
        &["Account", "State", "Last heard", "Letters that wait"],
        accounts.iter().map(|account| {
            html! {
                td { (plain(&account.network)) " " code { (plain(&account.name)) } }
                td {
                    (state(account.is_connected, "connected", "away"))
                    @if let Some(problem) = &account.problem { p.note { (one(problem)) } }
                }
                td data-label="Last heard" { (ago_or_never(account.last_inbound, now)) }
                td.number data-label="Letters that wait" { (account.waiting) }
            }
        }),
    )
}

fn state(is_well: bool, well: &str, ill: &str) -> Markup {
    html! { span.badge.(if is_well { "good" } else { "still" }) { (if is_well { well } else { ill }) } }
}
