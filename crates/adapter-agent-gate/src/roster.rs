//! Connected agents: one connection each, so that two never read each other's replies.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

/// Time in which a connection has to show that it lives.
const PATIENCE: Duration = Duration::from_secs(1);

/// Signal from another connection of the same agent.
#[derive(Debug)]
pub(super) enum ConnectionSignal {
    /// Sign of life requested. A live connection answers.
    AreYouThere(oneshot::Sender<()>),
    /// Replaced connection: it counts as dead, and another one has its slot now.
    Replaced,
}

#[derive(Debug)]
struct ConnectedAgent {
    number: u64,
    signal_sender: mpsc::UnboundedSender<ConnectionSignal>,
}

/// Connected agents.
#[derive(Debug, Default)]
pub(super) struct AgentRoster {
    agents: Mutex<BTreeMap<String, ConnectedAgent>>,
    next: AtomicU64,
}

impl AgentRoster {
    /// Takes the slot of an agent. `None` if another connection of it lives.
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

    /// Reports whether an agent has a connection.
    pub(super) fn is_connected(&self, agent: &str) -> bool {
        self.agents.lock().contains_key(agent)
    }

    /// Releases a slot, if it is still the connection's own.
    pub(super) fn disconnect_agent(&self, agent: &str, number: u64) {
        let mut agents = self.agents.lock();
        if agents.get(agent).is_some_and(|connected| connected.number == number) {
            agents.remove(agent);
        }
    }
}
