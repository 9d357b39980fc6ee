//! Sessions over HTTP of clients that initialize, each with the principal that began it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::http::HeaderMap;
use countersign_core::id::PrincipalId;
use countersign_http::web::{AuthMethod, TokenScope, WebAuth};
use parking_lot::Mutex;
use rmcp::transport::streamable_http_server::session::{SessionManager as _, local::SessionConfig};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::session_manager::HttpSessionManager;

/// Most sessions of one principal. A further one ends the one without open requests that was idle for longest.
pub(super) const MOST_SESSIONS: usize = 64;
/// Interval of the check whether tokens are still valid.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Shortest time without messages after which a session ends.
const SHORTEST_IDLE: Duration = Duration::from_secs(3600);
/// Error of calls whose session ends with its token.
const NO_TOKEN: &str = "the session has ended: its token was removed or has expired; to get the outcome of the call, repeat it with a \
                        valid token of the same name";

/// Sessions over HTTP.
pub(super) struct HttpSessions {
    pub(super) manager: Arc<HttpSessionManager>,
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
        Arc::new(Self { manager: Arc::new(HttpSessionManager::new(config)), known: Mutex::default() })
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

    /// Adds a session that a principal has begun. False if each of its sessions has an open request: the new one has ended then.
    pub(super) async fn add(&self, session: &str, principal: PrincipalId, shown: HeaderMap) -> bool {
        let (is_added, surplus) = {
            let mut known = self.known.lock();
            known.retain(|id, one| one.principal != principal || self.manager.is_known(id));
            let own = known.iter().filter(|(_, one)| one.principal == principal);
            let mut own: Vec<_> = own.map(|(id, one)| (one.used_at, id.clone())).collect();
            own.sort_unstable();
            let has_room = own.len() < MOST_SESSIONS;
            // A call that waits for approval must not lose its reply.
            let idle = own.into_iter().map(|(_, id)| id).find(|id| !has_room && self.manager.stop_if_idle(id));
            let is_added = has_room || idle.is_some();
            if is_added {
                known.insert(session.to_owned(), HttpSession { principal, shown, used_at: Instant::now() });
            }
            idle.iter().for_each(|id| drop(known.remove(id)));
            (is_added, if is_added { idle } else { Some(session.to_owned()) })
        };
        if let Some(surplus) = surplus {
            self.close(&surplus).await;
        }
        is_added
    }

    async fn close(&self, session: &str) {
        // One that has ended by itself is none any more.
        let _ = self.manager.close_session(&session.into()).await;
    }

    /// Ends a session whose token is removed or out of date. Its calls get that as their error.
    pub(super) async fn end_unauthorized(&self, session: &str) {
        self.known.lock().remove(session);
        // As above.
        let _ = self.manager.end_session(&session.into(), NO_TOKEN).await;
    }

    /// Ends sessions whose token is removed or out of date, until `end`.
    pub(super) async fn watch_tokens(self: Arc<Self>, auth: Arc<WebAuth>, end: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
                () = end.cancelled() => return,
            }
            let ended: Vec<String> = {
                let known = self.known.lock();
                let is_over = |one: &HttpSession| !may_call(&auth, &one.shown, &one.principal);
                known.iter().filter(|(_, one)| is_over(one)).map(|(id, _)| id.clone()).collect()
            };
            for session in ended {
                self.end_unauthorized(&session).await;
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

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use axum::http::HeaderMap;
    use countersign_core::id::PrincipalId;
    use rmcp::{model::RequestId, transport::streamable_http_server::session::SessionManager as _};

    use super::{HttpSessions, MOST_SESSIONS};

    async fn begin(sessions: &HttpSessions, principal: &str) -> (Arc<str>, bool) {
        let (session, _) = sessions.manager.create_session().await.unwrap();
        let is_added = sessions.add(&session, PrincipalId::new(principal), HeaderMap::new()).await;
        (session, is_added)
    }

    #[tokio::test(start_paused = true)]
    async fn a_further_session_ends_the_idle_one_and_never_one_with_an_open_request() {
        let sessions = HttpSessions::new(Duration::from_secs(1));
        let (principal, id) = (PrincipalId::new("token:ci"), RequestId::Number(1));
        let mut all = Vec::new();
        for _ in 0..MOST_SESSIONS {
            all.push(begin(&sessions, "token:ci").await.0);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(sessions.manager.admit(&all[0], &id, None).await.is_ok());
        let (newest, is_added) = begin(&sessions, "token:ci").await;
        let known = |session: &Arc<str>| sessions.is_of(session, &principal) && sessions.manager.is_known(session);
        assert!(is_added && known(&newest));
        assert_eq!((known(&all[0]), known(&all[1]), known(&all[2])), (true, false, true));
        for session in all[2..].iter().chain([&newest]) {
            assert!(sessions.manager.admit(session, &id, None).await.is_ok());
        }
        let (refused, is_added) = begin(&sessions, "token:ci").await;
        assert!(!is_added && !known(&refused) && known(&all[0]));
        assert!(begin(&sessions, "token:other").await.1, "sessions of another principal do not count");
    }

    #[tokio::test]
    async fn a_session_that_ends_takes_no_further_request() {
        let sessions = HttpSessions::new(Duration::from_secs(1));
        let (session, _) = begin(&sessions, "token:ci").await;
        assert!(sessions.manager.stop_if_idle(&session));
        assert!(sessions.manager.admit(&session, &RequestId::Number(1), None).await.is_err());
    }
}
