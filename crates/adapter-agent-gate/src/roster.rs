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
pub(super) enum Knock {
    /// Is anybody there? Whoever lives answers.
    AreYouThere(oneshot::Sender<()>),
    /// It is taken for dead: its place is another's now.
    Replaced,
}

#[derive(Debug)]
struct Seat {
    number: u64,
    knock: mpsc::UnboundedSender<Knock>,
}

/// Who is connected.
#[derive(Debug, Default)]
pub(super) struct Roster {
    seats: Mutex<BTreeMap<String, Seat>>,
    next: AtomicU64,
}

impl Roster {
    /// Takes the place of an agent. `None` if another connection of it lives.
    pub(super) async fn enter(&self, agent: &str, knock: mpsc::UnboundedSender<Knock>) -> Option<u64> {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let before = {
                let mut seats = self.seats.lock();
                match seats.get(agent) {
                    None => {
                        seats.insert(agent.to_owned(), Seat { number, knock });
                        return Some(number);
                    }
                    Some(seat) => (seat.number, seat.knock.clone()),
                }
            };
            let (tx, rx) = oneshot::channel();
            let lives = before.1.send(Knock::AreYouThere(tx)).is_ok()
                && matches!(tokio::time::timeout(PATIENCE, rx).await, Ok(Ok(())));
            if lives {
                return None;
            }
            self.leave(agent, before.0);
            let _ = before.1.send(Knock::Replaced);
        }
    }

    /// Whether an agent has its place.
    pub(super) fn holds(&self, agent: &str) -> bool {
        self.seats.lock().contains_key(agent)
    }

    /// Gives a place up, if it is still the connection's own.
    pub(super) fn leave(&self, agent: &str, number: u64) {
        let mut seats = self.seats.lock();
        if seats.get(agent).is_some_and(|seat| seat.number == number) {
            seats.remove(agent);
        }
    }
}
