//! Connections that wait for their next request.

use std::{collections::HashMap, fmt, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{address::Origin, connection::Connection, tls::Tls};

/// Shorter than any server's usual patience: a request on a connection that is just being closed is in doubt.
const IDLE_LIMIT: Duration = Duration::from_millis(1_500);

/// So many wait for one origin.
const MOST: usize = 128;

#[derive(Default)]
pub(super) struct Pool {
    pub(super) tls: Tls,
    idle: Mutex<HashMap<Origin, Vec<Idle>>>,
}

struct Idle {
    since: Instant,
    connection: Connection,
}

impl Pool {
    /// The connection that has waited least, if one can still be used.
    pub(super) fn take(&self, origin: &Origin) -> Option<Connection> {
        let now = Instant::now();
        let mut idle = self.idle.lock();
        sweep(&mut idle, now);
        let waiting = idle.get_mut(origin)?;
        while let Some(mut one) = waiting.pop() {
            if one.connection.is_usable() {
                return Some(one.connection);
            }
        }
        None
    }

    /// Keeps `connection` for the next request, if it can be used for one.
    pub(super) fn put(&self, origin: Origin, mut connection: Connection) {
        if !connection.is_usable() {
            return;
        }
        let since = Instant::now();
        let mut idle = self.idle.lock();
        sweep(&mut idle, since);
        let waiting = idle.entry(origin).or_default();
        if waiting.len() < MOST {
            waiting.push(Idle { since, connection });
        }
    }
}

fn sweep(idle: &mut HashMap<Origin, Vec<Idle>>, now: Instant) {
    idle.retain(|_, waiting| {
        waiting.retain(|one| now.duration_since(one.since) < IDLE_LIMIT);
        !waiting.is_empty()
    });
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}
