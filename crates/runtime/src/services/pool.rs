//! Connections that wait for their next request.

use std::{collections::HashMap, fmt, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{address::UrlOrigin, connection::HttpConnection, tls::LazyTlsConnector};

/// Shorter than any server's usual patience: a request on a connection that is just being closed is in doubt.
const IDLE_LIMIT: Duration = Duration::from_millis(1_500);

/// Most waiting connections of one origin.
const MOST: usize = 128;

#[derive(Default)]
pub(super) struct ConnectionPool {
    pub(super) tls: LazyTlsConnector,
    idle: Mutex<HashMap<UrlOrigin, Vec<IdleConnection>>>,
}

struct IdleConnection {
    since: Instant,
    connection: HttpConnection,
}

impl ConnectionPool {
    /// Takes the connection that has waited least, if one can still be used.
    pub(super) fn take_idle(&self, origin: &UrlOrigin) -> Option<HttpConnection> {
        let now = Instant::now();
        let mut idle = self.idle.lock();
        sweep_expired(&mut idle, now);
        let waiting = idle.get_mut(origin)?;
        while let Some(mut one) = waiting.pop() {
            if one.connection.is_usable() {
                return Some(one.connection);
            }
        }
        None
    }

    /// Keeps `connection` for the next request, if it can be used for one.
    pub(super) fn put_idle(&self, origin: UrlOrigin, mut connection: HttpConnection) {
        if !connection.is_usable() {
            return;
        }
        let since = Instant::now();
        let mut idle = self.idle.lock();
        sweep_expired(&mut idle, since);
        let waiting = idle.entry(origin).or_default();
        if waiting.len() < MOST {
            waiting.push(IdleConnection { since, connection });
        }
    }
}

fn sweep_expired(idle: &mut HashMap<UrlOrigin, Vec<IdleConnection>>, now: Instant) {
    idle.retain(|_, waiting| {
        waiting.retain(|one| now.duration_since(one.since) < IDLE_LIMIT);
        !waiting.is_empty()
    });
}

impl fmt::Debug for ConnectionPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionPool").finish_non_exhaustive()
    }
}
