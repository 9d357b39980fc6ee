//! Agents that may connect, found by token and by session. A lookup costs the same however many there are: each connection and each
//! call makes some.

use std::{
    collections::{HashMap, HashSet},
    hash::{Hash, Hasher},
    sync::Arc,
};

use countersign_core::id::{PrincipalId, SessionId};
use countersign_http::limits::SlidingWindow;
use countersign_view::principals;
use secrecy::ExposeSecret as _;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::AgentCredentials;

/// Prefix of the id of an agent's session, before the agent's own id.
const SESSION_PREFIX: &str = "agent:";

/// Agent that the adapter serves.
pub(super) struct RegisteredAgent {
    pub(super) id: String,
    pub(super) principal: PrincipalId,
    pub(super) session: SessionId,
    pub(super) window: parking_lot::Mutex<SlidingWindow>,
}

/// All agents of a gateway.
#[derive(Default)]
pub(super) struct RegisteredAgents {
    all: Vec<Arc<RegisteredAgent>>,
    by_token: HashMap<TokenDigest, Arc<RegisteredAgent>>,
    sessions: HashSet<SessionId>,
}

/// SHA-256 of a token.
#[derive(Clone, Copy, Debug, Eq)]
struct TokenDigest([u8; 32]);

impl TokenDigest {
    fn of_token(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }
}

impl PartialEq for TokenDigest {
    fn eq(&self, other: &Self) -> bool {
        #[cfg(test)]
        tests::COMPARED.set(tests::COMPARED.get() + 1);
        self.0.ct_eq(&other.0).into()
    }
}

impl Hash for TokenDigest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl RegisteredAgents {
    /// Registers agents with so many requests in any 60 seconds.
    pub(super) fn new(credentials: Vec<AgentCredentials>, per_minute: u32) -> Self {
        let mut agents = Self::default();
        for AgentCredentials { id, token } in credentials {
            let agent = Arc::new(RegisteredAgent {
                principal: principals::of_agent(&id),
                session: SessionId::new(format!("{SESSION_PREFIX}{id}")),
                id,
                window: parking_lot::Mutex::new(SlidingWindow::new(per_minute)),
            });
            agents.by_token.insert(TokenDigest::of_token(token.expose_secret()), Arc::clone(&agent));
            agents.sessions.insert(agent.session.clone());
            agents.all.push(agent);
        }
        agents
    }

    /// Returns the agent with this token.
    ///
    /// The time of the lookup reveals nothing: a caller that does not know the token cannot choose a digest that resembles its digest.
    pub(super) fn with_token(&self, token: &str) -> Option<&Arc<RegisteredAgent>> {
        self.by_token.get(&TokenDigest::of_token(token))
    }

    /// Returns the id of the agent with this session.
    pub(super) fn id_of_session<'a>(&self, session: &'a SessionId) -> Option<&'a str> {
        session.as_str().strip_prefix(SESSION_PREFIX).filter(|_| self.sessions.contains(session))
    }

    /// Returns all agents, in the order of the configuration.
    pub(super) fn as_slice(&self) -> &[Arc<RegisteredAgent>] {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// Number of compared digests.
        pub(super) static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    fn registered(count: usize) -> RegisteredAgents {
        let credentials = (0..count)
            .map(|number| AgentCredentials { id: format!("a{number}"), token: format!("token {number}").into() });
        RegisteredAgents::new(credentials.collect(), 60)
    }

    #[test]
    fn a_token_is_compared_with_one_agents_however_many_there_are() {
        for count in [10, 1_000, 100_000] {
            let agents = registered(count);
            COMPARED.set(0);
            let found = agents.with_token(&format!("token {}", count - 1)).map(|agent| agent.id.as_str());
            assert_eq!(found, Some(&*format!("a{}", count - 1)));
            assert!(agents.with_token("unknown token").is_none());
            // The map compares the whole digests only of keys whose short hashes are equal, which happens by chance too.
            assert!(COMPARED.get() <= 3, "{} of {count} were compared", COMPARED.get());
        }
    }

    #[test]
    fn a_session_names_its_agent_if_that_is_registered() {
        let agents = registered(2);
        for (session, want) in [("agent:a1", Some("a1")), ("agent:a2", None), ("a1", None)] {
            assert_eq!(agents.id_of_session(&SessionId::new(session)), want, "{session}");
        }
    }
}
