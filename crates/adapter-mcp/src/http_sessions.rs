//! Sessions over HTTP of clients that initialize, each with the principal that began it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::http::HeaderMap;
use countersign_core::id::PrincipalId;
use countersign_http::web::{AuthMethod, TokenScope, WebAuth};
use parking_lot::Mutex;
use rmcp::transport::streamable_http_server::session::{
    SessionManager as _,
    local::{LocalSessionManager, SessionConfig},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Most sessions of one principal. A further one ends the one that was idle for longest.
const MOST_SESSIONS: usize = 64;
/// Interval of the check whether tokens are still valid.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Shortest time without messages after which a session ends.
const SHORTEST_IDLE: Duration = Duration::from_secs(3600);

/// Sessions over HTTP.
pub(super) struct HttpSessions {
    pub(super) manager: Arc<LocalSessionManager>,
    known: Mutex<HashMap<String, HttpSession>>,
}

/// One session.
struct HttpSession {
    principal: PrincipalId,
    /// Headers that identify the principal.
    shown: HeaderMap,
    used_at: Instant,
}

impl HttpSessions {
    /// Makes sessions that outlive a wait of `longest` without a message.
    pub(super) fn new(longest: Duration) -> Arc<Self> {
        let mut config = SessionConfig::default();
        config.keep_alive = Some(SHORTEST_IDLE.max(longest.saturating_mul(2)));
        // A lost reply is fetched by the same call, repeated: it is not kept for a resumed stream.
        config.sse_retry = None;
        config.completed_cache_ttl = Duration::ZERO;
        let mut manager = LocalSessionManager::default();
        manager.session_config = config;
        Arc::new(Self { manager: Arc::new(manager), known: Mutex::default() })
    }

    /// Reports whether a principal began a session, and counts this use.
    pub(super) fn is_of(&self, session: &str, principal: &PrincipalId) -> bool {
        let mut known = self.known.lock();
        let Some(session) = known.get_mut(session).filter(|session| session.principal == *principal) else {
            return false;
        };
        session.used_at = Instant::now();
        true
    }

    /// Adds a session that a principal has begun.
    pub(super) async fn add(&self, session: &str, principal: PrincipalId, shown: HeaderMap) {
        let surplus = {
            let mut known = self.known.lock();
            let own = known.iter().filter(|(_, one)| one.principal == principal);
            let idle = own.clone().min_by_key(|(_, one)| one.used_at).map(|(id, _)| id.clone());
            let surplus = idle.filter(|_| own.count() >= MOST_SESSIONS);
            surplus.iter().for_each(|id| drop(known.remove(id)));
            known.insert(session.to_owned(), HttpSession { principal, shown, used_at: Instant::now() });
            surplus
        };
        if let Some(surplus) = surplus {
            self.close(&surplus).await;
        }
    }

    async fn close(&self, session: &str) {
        // One that has ended by itself is none any more.
        let _ = self.manager.close_session(&session.into()).await;
    }

    /// Ends sessions whose token is removed or out of date, until `end`.
    pub(super) async fn watch_tokens(self: Arc<Self>, auth: Arc<WebAuth>, end: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
                () = end.cancelled() => return,
            }
            let ended: Vec<String> = {
                let mut known = self.known.lock();
                let is_over = |_: &String, one: &mut HttpSession| !may_call(&auth, &one.shown, &one.principal);
                known.extract_if(is_over).map(|(id, _)| id).collect()
            };
            for session in ended {
                self.close(&session).await;
            }
            self.forget_ended().await;
        }
    }

    async fn forget_ended(&self) {
        let all: Vec<String> = self.known.lock().keys().cloned().collect();
        for session in all {
            if !self.manager.has_session(&session.as_str().into()).await.unwrap_or_default() {
                self.known.lock().remove(&session);
            }
        }
    }
}

fn may_call(auth: &WebAuth, shown: &HeaderMap, principal: &PrincipalId) -> bool {
    auth.find_caller(shown).is_some_and(|caller| {
        caller.principal == *principal
            && matches!(&caller.via, AuthMethod::Token { scopes } if scopes.contains(&TokenScope::Call))
    })
}
