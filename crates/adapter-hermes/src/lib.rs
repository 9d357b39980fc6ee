//! The hermes adapter: HTTP and server-sent events, for browsers and phones. Source: docs/protocol/hermes.md.
//!
//! It turns requests into commands and facts into events; it decides nothing about calls, gates or runs.

mod absent;
mod chat;
mod conversation;
mod export;
mod fields;
mod files;
mod preferences;
mod prompts;
mod request_stats;
mod sessions;
mod settings;
mod transcript;
mod turn_encoder;
mod turn_stream;
mod turn_streams;
mod unread_turns;
mod webui;
mod wire;

use countersign_config::Config;
use countersign_conversations::chats::Conversations;
use countersign_core::time::Millis;
use countersign_http::web::WebAuth;
use countersign_runtime::{Clock, OwnerHandle};
pub use webui::find_front_end as front_end;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use axum::{Router, extract::Request, http::StatusCode, middleware::from_fn_with_state, response::Response};
use countersign_core::{id::SessionId, session::ModelRef};
use tokio::sync::{Mutex, MutexGuard};

use countersign_http::reply::HttpProblem;
use request_stats::RequestStats;
use turn_streams::TurnStreams;

/// Parts of a gateway that the adapter works with.
pub struct HermesContext {
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
}

/// Adapter.
pub struct HermesAdapter {
    context: Arc<HermesContext>,
    journals: Arc<TurnStreams>,
    traffic: Arc<RequestStats>,
    starts: StartLocks,
    preferences: Arc<preferences::UserPreferences>,
    summaries: conversation::RequestedSummaries,
}

/// Locks for starts of turns, so that those of one conversation begin one after the other: each may set its own model.
struct StartLocks([Mutex<()>; 64]);

impl StartLocks {
    /// Waits for the lock of a conversation. Some share theirs.
    async fn lock_session(&self, session: &SessionId) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        session.hash(&mut hasher);
        self.0[usize::try_from(hasher.finish() % 64).unwrap_or_default()].lock().await
    }
}

/// Opens the adapter. `None` if the gateway closes.
pub async fn open(context: &Arc<HermesContext>) -> Option<Router> {
    let prompts = prompts::SessionPrompts::open(context).await?;
    let journals = TurnStreams::open(context.handle.clone()).await?;
    let traffic = Arc::new(RequestStats::new(context.clock.clone()));
    let door = Arc::new(HermesAdapter {
        context: Arc::clone(context),
        journals,
        traffic: Arc::clone(&traffic),
        starts: StartLocks(std::array::from_fn(|_| Mutex::new(()))),
        preferences: preferences::UserPreferences::open(&context.config.storage.folder),
        summaries: conversation::RequestedSummaries::default(),
    });
    let mut router = chat::routes(&door).merge(sessions::routes(&door)).merge(settings::routes(&door));
    router = router.merge(conversation::routes(&door)).merge(export::routes(&door)).merge(files::routes(&door));
    router = router.merge(preferences::routes(&door)).merge(absent::routes(&door));
    router = router.merge(prompts::routes(context, &prompts));
    if let Some(folder) = context.config.webui.as_ref().and_then(|folder| webui::find_front_end(folder).ok()) {
        router = router.merge(webui::routes(&door, folder));
    }
    Some(router.layer(from_fn_with_state(traffic, request_stats::count_request)))
}

/// Answers requests without a route. Clients read it as a feature that the gateway does not have.
pub async fn unknown_route(request: Request) -> Response {
    let path = request.uri().path();
    if path.starts_with("/api/") {
        return HttpProblem::new(StatusCode::NOT_FOUND, "not found").response_for(path);
    }
    HttpProblem::new(StatusCode::NOT_FOUND, "There is nothing here.").response_for(path)
}

/// Reports whether a model supports reasoning.
fn supports_thinking(context: &HermesContext, model: &ModelRef) -> bool {
    let mut entries = context.chats.models().entries();
    entries.any(|entry| entry.provider == model.provider && entry.id == model.id && entry.reasoning)
}

/// Returns an error in the form of this adapter.
fn problem(status: StatusCode, text: impl Into<String>) -> Response {
    HttpProblem::new(status, text).response_for("/api/")
}
