//! Which agents are connected: one connection each, so that two never read each other's replies.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

/// How long a connection has to show that it lives.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a connection is told by another one of the same agent.
#[derive(Debug)]
pub(super) enum ConnectionSignal {
    /// Is anybody there? Whoever lives answers.
    AreYouThere(oneshot::Sender<()>),
    /// It is taken for dead: its place is another's now.
    Replaced,
}

#[derive(Debug)]
struct ConnectedAgent {
    number: u64,
    signal_sender: mpsc::UnboundedSender<ConnectionSignal>,
}

/// Who is connected.
#[derive(Debug, Default)]
pub(super) struct AgentRoster {
    agents: Mutex<BTreeMap<String, ConnectedAgent>>,
    next: AtomicU64,
}

impl AgentRoster {
    /// Takes the place of an agent. `None` if another connection of it lives.
    pub(super) async fn connect_agent(
        &self,
        agent: &str,
        signal_sender: mpsc::UnboundedSender<ConnectionSignal>,
    ) -> Option<u64> {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let before = {
                let mut agents = self.agents.lock();
                match agents.get(agent) {
                    None => {
                        agents.insert(agent.to_owned(), ConnectedAgent { number, signal_sender });
                        return Some(number);
                    }
                    Some(connected) => (connected.number, connected.signal_sender.clone()),
                }
            };
            let (tx, rx) = oneshot::channel();
            let lives = before.1.send(ConnectionSignal::AreYouThere(tx)).is_ok()
                && matches!(tokio::time::timeout(PATIENCE, rx).await, Ok(Ok(())));
            if lives {
                return None;
            }
            self.disconnect_agent(agent, before.0);
            let _ = before.1.send(ConnectionSignal::Replaced);
        }
    }

    /// Whether an agent has its place.
    pub(super) fn is_connected(&self, agent: &str) -> bool {
        self.agents.lock().contains_key(agent)
    }

    /// Gives a place up, if it is still the connection's own.
    pub(super) fn disconnect_agent(&self, agent: &str, number: u64) {
        let mut agents = self.agents.lock();
        if agents.get(agent).is_some_and(|connected| connected.number == number) {
            agents.remove(agent);
        }
    }
}
