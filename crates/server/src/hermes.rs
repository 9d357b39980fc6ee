//! The hermes door: HTTP and server-sent events, for browsers and phones. Source: docs/protocol/hermes.md.
//!
//! It turns requests into commands and what happens into events; it decides nothing about calls, gates or runs.

mod absent;
mod awaited;
mod chat;
mod conversation;
mod export;
mod fields;
mod files;
mod journal;
mod journals;
mod preferences;
mod prompts;
mod sessions;
mod settings;
mod teller;
mod traffic;
mod transcript;
mod unread;
mod webui;

pub(crate) use webui::files as front_end;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use axum::{Router, extract::Request, http::StatusCode, middleware::from_fn_with_state, response::Response};
use countersign_core::{id::SessionId, session::ModelRef};
use tokio::sync::{Mutex, MutexGuard};

use crate::{site::Site, web::Problem};
use journals::Journals;
use traffic::Traffic;

/// The door.
pub(crate) struct Door {
    site: Arc<Site>,
    journals: Arc<Journals>,
    traffic: Arc<Traffic>,
    starts: Starts,
    preferences: Arc<preferences::Preferences>,
    summaries: conversation::Summaries,
}

/// Has turns of one conversation begin one after the other: each may bring a model that it is for.
struct Starts([Mutex<()>; 64]);

impl Starts {
    /// Waits for the turn of a conversation. Some share theirs.
    async fn turn(&self, session: &SessionId) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        session.hash(&mut hasher);
        self.0[usize::try_from(hasher.finish() % 64).unwrap_or_default()].lock().await
    }
}

/// Opens the door. `None` if the gateway closes.
pub(crate) async fn open(site: &Arc<Site>) -> Option<Router> {
    let prompts = prompts::Prompts::open(site).await?;
    let journals = Journals::open(site.handle.clone()).await?;
    let traffic = Arc::new(Traffic::new(site.clock.clone()));
    let door = Arc::new(Door {
        site: Arc::clone(site),
        journals,
        traffic: Arc::clone(&traffic),
        starts: Starts(std::array::from_fn(|_| Mutex::new(()))),
        preferences: preferences::Preferences::open(&site.config.storage.folder),
        summaries: conversation::Summaries::default(),
    });
    let mut router = chat::routes(&door).merge(sessions::routes(&door)).merge(settings::routes(&door));
    router = router.merge(conversation::routes(&door)).merge(export::routes(&door)).merge(files::routes(&door));
    router = router.merge(preferences::routes(&door)).merge(absent::routes(&door));
    router = router.merge(prompts::routes(site, &prompts));
    if let Some(folder) = site.webui().and_then(|folder| webui::files(folder).ok()) {
        router = router.merge(webui::routes(&door, folder));
    }
    Some(router.layer(from_fn_with_state(traffic, traffic::count)))
}

/// Answers what no route takes. Clients read it as a feature that the gateway does not have.
pub(crate) async fn nothing(request: Request) -> Response {
    let path = request.uri().path();
    if path.starts_with("/api/") {
        return Problem::new(StatusCode::NOT_FOUND, "not found").reply(path);
    }
    Problem::new(StatusCode::NOT_FOUND, "There is nothing here.").reply(path)
}

/// Whether a model can be asked to think.
fn thinks(site: &Site, model: &ModelRef) -> bool {
    let mut entries = site.chats.models().entries();
    entries.any(|entry| entry.provider == model.provider && entry.id == model.id && entry.reasoning)
}

/// A problem in this door's words.
fn problem(status: StatusCode, text: impl Into<String>) -> Response {
    Problem::new(status, text).reply("/api/")
}
