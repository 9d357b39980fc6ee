//! Console: pages on which one person sees every pending gate, decides it, and understands the past.
//!
//! It decides nothing: an answer is a command of the engine, and pages are read from the engine and its log.

mod answers;
mod assets;
mod charts;
mod console_card;
mod conversation;
mod decision;
mod effect;
mod explain;
mod figures;
mod gates;
mod history;
mod labels;
mod live;
mod machines;
mod mcp;
mod page;
mod planned_jobs;
mod policy;
mod record;
mod rule_fit;
mod rule_form;
mod save_rule;
mod sessions;
mod stream;
mod transcript;
mod trial;

use std::sync::Arc;

use axum::{Router, extract::Path, response::Redirect};
use countersign_config::Config;
use countersign_conversations::chats::Conversations;
use countersign_core::{gate::IdentityMap, id::Lsn, time::Millis};
use countersign_http::web::{GuardedRoutes, HttpCaller, WebAuth};
use countersign_policy_admin::{rules_file::RulesFile, tool_inventory::ToolInventory};
use countersign_runtime::{Clock, InboxLane, OwnerHandle, services::ServiceClient};
use countersign_telegram::HealthProbe;
use countersign_view::{
    connection_status::{AgentStatus, PeerStatus},
    mcp_server_status::McpServerStatus,
};
use tokio::sync::Semaphore;

use self::{history::CallHistory, live::ConsoleBroadcast, page::PageError};

/// Parts of a gateway that the pages show.
pub struct ConsoleContext {
    /// Owner of the record.
    pub handle: OwnerHandle,
    /// Conversations of the gateway.
    pub chats: Arc<Conversations>,
    /// Logins and tokens.
    pub auth: Arc<WebAuth>,
    /// Clock.
    pub clock: Clock,
    /// Start time of the gateway.
    pub started_at: Millis,
    /// Configuration.
    pub config: Arc<Config>,
    /// Agents, tools, approvers and folders that rules name.
    pub tool_inventory: ToolInventory,
    /// Rules file.
    pub rules_file: Arc<RulesFile>,
    /// Permit to verify the whole chain, which one caller may do at a time.
    pub verifying: Arc<Semaphore>,
    /// Services that agents use.
    pub services: Arc<ServiceClient>,
    /// Agents of agent-gate.
    pub agents: Arc<dyn AgentStatus>,
    /// Nodes and accounts of chat networks.
    pub peers: Arc<dyn PeerStatus>,
    /// MCP servers.
    pub mcp_servers: Arc<dyn McpServerStatus>,
    /// Health probe of the messenger, if there is one.
    pub telegram: Option<HealthProbe>,
    /// Address at which the gateway listens.
    pub address: String,
}

/// State that every page works with.
struct ConsoleState {
    context: Arc<ConsoleContext>,
    live: Arc<ConsoleBroadcast>,
    history: CallHistory,
}

/// Context of every page.
struct PageContext {
    caller: HttpCaller,
    /// Number of pending gates.
    waiting: usize,
    /// Last record that is part of the page.
    head: Lsn,
    now: Millis,
    people: IdentityMap,
}

impl ConsoleState {
    async fn page_context(&self, caller: HttpCaller) -> Result<PageContext, PageError> {
        let read = |engine: &countersign_core::engine::Engine| {
            let state = engine.state();
            (state.pending_gates().count(), state.head_lsn(), engine.rules().people.clone())
        };
        let read = self.context.handle.source(InboxLane::Request).read_state(read).await;
        let ((waiting, head, people), _) = read.ok_or_else(PageError::gateway_closing)?;
        Ok(PageContext { caller, waiting, head, now: self.context.clock.now(), people })
    }
}

/// Answers a path without a page.
async fn missing_page(Path(path): Path<String>) -> PageError {
    PageError::not_found(format!("page /console/{path}"))
}

/// Returns the routes. `/` is the console's unless a front end of the user's is served there.
pub fn routes(context: &Arc<ConsoleContext>) -> Router {
    let console = Arc::new(ConsoleState {
        context: Arc::clone(context),
        live: ConsoleBroadcast::start_following(context.handle.clone(), context.clock.clone()),
        history: CallHistory::default(),
    });
    let mut routes = GuardedRoutes::new(&context.auth);
    if context.config.webui.is_none() {
        routes = routes.add_route("GET", "/", || async { Redirect::to("/console/") });
    }
    routes
        .add_route("GET", "/console", || async { Redirect::to("/console/") })
        .add_route("GET", "/console/", gates::show_inbox)
        .add_route("GET", "/console/style.css", assets::serve_style)
        .add_route("GET", "/console/app.js", assets::serve_script)
        .add_route("GET", "/console/live", stream::open_stream)
        .add_route("GET", "/console/gates/{id}", gates::show_gate)
        .add_route("POST", "/console/gates/{id}", answers::answer_gate)
        .add_route("POST", "/console/answers", answers::answer_several)
        .add_route("GET", "/console/sessions", sessions::list_sessions)
        .add_route("POST", "/console/sessions", sessions::open_session)
        .add_route("GET", "/console/sessions/{id}", conversation::show_conversation)
        .add_route("POST", "/console/sessions/{id}/say", conversation::send_message)
        .add_route("POST", "/console/sessions/{id}/stop", conversation::stop_run)
        .add_route("POST", "/console/sessions/{id}/unsay", conversation::take_back_messages)
        .add_route("POST", "/console/sessions/{id}/model", conversation::use_model)
        .add_route("GET", "/console/record", record::list_entries)
        .add_route("POST", "/console/record", record::verify_chain)
        .add_route("GET", "/console/record/{id}", decision::show_decision)
        .add_route("GET", "/console/figures", figures::show_figures)
        .add_route("GET", "/console/policy", policy::show_policy)
        .add_route("GET", "/console/explain", explain::show_explanation)
        .add_route("GET", "/console/try", trial::show_trial)
        .add_route("GET", "/console/rules", || async { Redirect::to("/console/policy") })
        .add_route("POST", "/console/rules", save_rule::save_rule)
        .add_route("GET", "/console/{*rest}", missing_page)
        .add_route("POST", "/console/revoke/{id}", policy::revoke_grant)
        .add_route("POST", "/console/reload", policy::reload_rules)
        .add_route("GET", "/console/agents", machines::show_agents)
        .add_route("GET", "/console/mcp", mcp::list_servers)
        .add_route("GET", "/console/mcp/{server}", mcp::show_server)
        .add_route("POST", "/console/mcp/{server}", mcp::act_on_server)
        .with_state(console)
}
