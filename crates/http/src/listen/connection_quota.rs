//! Number of connections that this process has descriptors for. Those that it needs itself, for its record, its workspaces and its
//! calls, are set aside, so that no number of connections takes them.

use std::sync::Arc;

use nix::sys::resource::{Resource, getrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Descriptors that the gateway itself has open when it does little.
const OWN: usize = 40;
/// The most that is set aside, and the most that is kept for connections that were sent away and have not left yet.
const MOST_ASIDE: usize = 96;
/// Descriptors of a connection that is served here.
const SERVED: usize = 1;
/// Descriptors of a connection at a node of a cluster, which may have to relay it: those of the client and of the tunnel.
const RELAYED: usize = 2;
/// Below so many descriptors few can be served at once.
const FEW: usize = 1000;

/// Quota of connections: places for those who stay, and the descriptors of each that is open still.
#[derive(Clone, Debug)]
pub struct ConnectionQuota {
    descriptors: Arc<Semaphore>,
    most: usize,
    limit: QuotaLimit,
}

/// Source of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuotaLimit {
    /// `rate_limit.max_connections`.
    Configured,
    /// The limit of the process.
    Descriptors,
}

impl QuotaLimit {
    /// Returns the name of the place where it is set.
    pub(super) const fn source_text(self) -> &'static str {
        match self {
            Self::Configured => "its limit (rate_limit.max_connections)",
            Self::Descriptors => "as many as its descriptors allow (ulimit -n, LimitNOFILE)",
        }
    }
}

impl ConnectionQuota {
    /// Makes a quota for at most `most` connections that stay, of a process with as many descriptors as the system lets this one have.
    pub fn of_this_process(most: usize) -> Self {
        Self::for_descriptors(descriptor_limit(), most, SERVED)
    }

    /// Makes the same quota for a node of a cluster. Each connection counts as one that is relayed.
    pub fn of_node(most: usize) -> Self {
        Self::for_descriptors(descriptor_limit(), most, RELAYED)
    }

    fn for_descriptors(allowed: usize, most: usize, per_connection: usize) -> Self {
        let room = allowed.saturating_sub((OWN + allowed / 32).min(MOST_ASIDE)) / per_connection;
        let room = room.min(Semaphore::MAX_PERMITS);
        // A closed connection takes a moment to leave, and meanwhile another has its place.
        let stay = (room - (room / 4).min(MOST_ASIDE)).max(1);
        let (most, limit) = if most <= stay { (most, QuotaLimit::Configured) } else { (stay, QuotaLimit::Descriptors) };
        Self { descriptors: Arc::new(Semaphore::new(room)), most, limit }
    }

    /// Sets some of the places aside for another port: at most `most`, and at most a quarter.
    pub fn split_off(self, most: usize) -> (Self, Self) {
        let aside = most.min(self.most / 4).max(1);
        let rest = self.most.saturating_sub(aside).max(1);
        let aside = Self { most: aside, limit: QuotaLimit::Descriptors, descriptors: Arc::clone(&self.descriptors) };
        (Self { most: rest, ..self }, aside)
    }

    /// Returns the number of connections that may stay.
    pub(super) const fn max_connections(&self) -> usize {
        self.most
    }

    pub(super) const fn limit(&self) -> QuotaLimit {
        self.limit
    }

    /// Waits for the descriptors of a connection.
    pub(super) async fn acquire_descriptor(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.descriptors).acquire_owned().await.ok()
    }

    /// Takes the descriptors of a connection, if there are enough now.
    pub(super) fn try_acquire_descriptor(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.descriptors).try_acquire_owned().ok()
    }
}

/// Returns a warning for the start if this process may have few descriptors.
pub fn few_descriptors_warning() -> Option<String> {
    few_warning(SERVED)
}

/// Returns the same warning for a node of a cluster.
pub fn few_descriptors_warning_of_node() -> Option<String> {
    few_warning(RELAYED)
}

fn few_warning(per_connection: usize) -> Option<String> {
    let allowed = descriptor_limit();
    (allowed < FEW).then(|| {
        let most = ConnectionQuota::for_descriptors(allowed, usize::MAX, per_connection).most;
        format!(
            "the limit of {allowed} file descriptors allows {most} connections at once; raise `ulimit -n`, or LimitNOFILE of the unit"
        )
    })
}

/// Returns the number of descriptors that this process may have.
fn descriptor_limit() -> usize {
    let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(FEW as u64, |(soft, _)| soft);
    usize::try_from(soft).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::{ConnectionQuota, QuotaLimit, RELAYED, SERVED};

    #[test]
    fn what_the_gateway_needs_itself_is_set_aside_from_its_descriptors() {
        for (allowed, most, want, stay, limit) in [
            (64, 20_000, 22, 17, QuotaLimit::Descriptors),
            (128, 20_000, 84, 63, QuotaLimit::Descriptors),
            (1024, 20_000, 952, 856, QuotaLimit::Descriptors),
            (20_000, 20_000, 19_904, 19_808, QuotaLimit::Descriptors),
            (65_536, 20_000, 65_440, 20_000, QuotaLimit::Configured),
            (1024, 5, 952, 5, QuotaLimit::Configured),
            (30, 20_000, 0, 1, QuotaLimit::Descriptors),
        ] {
            let rooms = ConnectionQuota::for_descriptors(allowed, most, SERVED);
            assert_eq!(
                (rooms.descriptors.available_permits(), rooms.most, rooms.limit),
                (want, stay, limit),
                "{allowed}"
            );
        }
        let unbounded = ConnectionQuota::for_descriptors(usize::MAX, 20_000, SERVED);
        assert_eq!((unbounded.most, unbounded.limit), (20_000, QuotaLimit::Configured));
    }

    #[test]
    fn a_connection_of_a_node_counts_with_the_tunnel_that_it_may_need() {
        let alone = ConnectionQuota::for_descriptors(1024, 20_000, SERVED);
        let node = ConnectionQuota::for_descriptors(1024, 20_000, RELAYED);
        assert_eq!((alone.descriptors.available_permits(), alone.most), (952, 856));
        assert_eq!((node.descriptors.available_permits(), node.most), (476, 380));
    }

    #[test]
    fn another_port_shares_the_descriptors_and_has_places_of_its_own() {
        let (rest, aside) = ConnectionQuota::for_descriptors(128, 20_000, SERVED).split_off(64);
        assert_eq!((rest.most, aside.most), (48, 15));
        let held = rest.try_acquire_descriptor().unwrap();
        assert_eq!(aside.descriptors.available_permits(), 83);
        drop(held);
        let (rest, aside) = ConnectionQuota::for_descriptors(20_000, 1000, SERVED).split_off(64);
        assert_eq!((rest.most, aside.most), (936, 64));
    }
}
