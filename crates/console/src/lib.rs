//! The console: the pages on which one person sees everything that waits, decides it, and understands what happened.
//!
//! It decides nothing: an answer is a command of the engine, and what is shown is read from the engine and its log.

mod answers;
mod assets;
mod card;
mod conversation;
mod decision;
mod effect;
mod explain;
mod figures;
mod fit;
mod gates;
mod history;
mod live;
mod machines;
mod page;
mod picture;
mod planned;
mod policy;
mod record;
mod saving;
mod sessions;
mod stream;
mod transcript;
mod trial;
mod wanted;
mod words;

use std::sync::Arc;

use axum::{Router, extract::Path, response::Redirect};
use countersign_config::Config;
use countersign_conversations::chats::Chats;
use countersign_core::{gate::IdentityMap, id::Lsn, time::Millis};
use countersign_http::web::{Auth, Caller, Routes};
use countersign_policy_admin::{household::Household, rulebook::Rulebook};
use countersign_runtime::{Clock, InboxLane, OwnerHandle, services::ServiceClient};
use countersign_telegram::Reporter;
use countersign_view::connected::{AgentStatus, PeerStatus};
use tokio::sync::Semaphore;

use self::{history::History, live::Live, page::Trouble};

/// The parts of a gateway that the pages show.
pub struct ConsoleContext {
    /// The owner of the record.
    pub handle: OwnerHandle,
    /// The gateway's own conversations.
    pub chats: Arc<Chats>,
    /// Logins and tokens.
    pub auth: Arc<Auth>,
    /// The time.
    pub clock: Clock,
    /// When the gateway started.
    pub started_at: Millis,
    /// The configuration.
    pub config: Arc<Config>,
    /// Agents, tools, people and folders that rules are about.
    pub household: Household,
    /// The file of rules.
    pub rulebook: Arc<Rulebook>,
    /// Permit to verify the whole chain, which one caller may do at a time.
    pub verifying: Arc<Semaphore>,
    /// The services that agents ask for.
    pub services: Arc<ServiceClient>,
    /// The agents of agent-gate.
    pub agents: Arc<dyn AgentStatus>,
    /// The nodes and the accounts of chat networks.
    pub peers: Arc<dyn PeerStatus>,
    /// Reports how the messenger is, if there is one.
    pub telegram: Option<Reporter>,
    /// The address at which the gateway listens.
    pub address: String,
}

/// What every page works with.
struct Console {
    context: Arc<ConsoleContext>,
    live: Arc<Live>,
    history: History,
}

/// What every page shows beside its own.
struct Look {
    caller: Caller,
    /// How many gates wait.
    waiting: usize,
    /// The last record that is part of what is shown.
    head: Lsn,
    now: Millis,
    people: IdentityMap,
}

impl Console {
    async fn look(&self, caller: Caller) -> Result<Look, Trouble> {
        let read = |engine: &countersign_core::engine::Engine| {
            let state = engine.state();
            (state.pending_gates().count(), state.head_lsn(), engine.rules().people.clone())
        };
        let read = self.context.handle.source(InboxLane::Request).read_state(read).await;
        let ((waiting, head, people), _) = read.ok_or_else(Trouble::closing)?;
        Ok(Look { caller, waiting, head, now: self.context.clock.now(), people })
    }
}

/// What is nowhere.
async fn nothing(Path(path): Path<String>) -> Trouble {
    Trouble::missing(format!("page /console/{path}"))
}

/// The routes. `/` is the console's unless a front end of the user's is served there.
pub fn routes(context: &Arc<ConsoleContext>) -> Router {
    let console = Arc::new(Console {
        context: Arc::clone(context),
        live: Live::follow(context.handle.clone(), context.clock.clone()),
        history: History::default(),
    });
    let mut routes = Routes::new(&context.auth);
    if context.config.webui.is_none() {
        routes = routes.at("GET", "/", || async { Redirect::to("/console/") });
    }
    routes
        .at("GET", "/console", || async { Redirect::to("/console/") })
        .at("GET", "/console/", gates::inbox)
        .at("GET", "/console/style.css", assets::style)
        .at("GET", "/console/app.js", assets::script)
        .at("GET", "/console/live", stream::open)
        .at("GET", "/console/gates/{id}", gates::one)
        .at("POST", "/console/gates/{id}", answers::one)
        .at("POST", "/console/answers", answers::several)
        .at("GET", "/console/sessions", sessions::list)
        .at("POST", "/console/sessions", sessions::open)
        .at("GET", "/console/sessions/{id}", conversation::show)
        .at("POST", "/console/sessions/{id}/say", conversation::say)
        .at("POST", "/console/sessions/{id}/stop", conversation::stop)
        .at("POST", "/console/sessions/{id}/unsay", conversation::unsay)
        .at("POST", "/console/sessions/{id}/model", conversation::use_model)
        .at("GET", "/console/record", record::list)
        .at("POST", "/console/record", record::verify)
        .at("GET", "/console/record/{id}", decision::show)
        .at("GET", "/console/figures", figures::show)
        .at("GET", "/console/policy", policy::show)
        .at("GET", "/console/explain", explain::show)
        .at("GET", "/console/try", trial::show)
        .at("GET", "/console/rules", || async { Redirect::to("/console/policy") })
        .at("POST", "/console/rules", saving::save)
        .at("GET", "/console/{*rest}", nothing)
        .at("POST", "/console/revoke/{id}", policy::revoke)
        .at("POST", "/console/reload", policy::reload)
        .at("GET", "/console/agents", machines::show)
        .with_state(console)
}
