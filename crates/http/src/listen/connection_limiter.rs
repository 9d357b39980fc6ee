//! Limit of connections, and the choice of those to close when there are too many: unauthenticated ones, from the
//! address that has the most of them, the oldest first; and if there are none, the new one.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::connection_quota::ConnectionQuota;
use crate::limits::network_prefix;

/// Time that a new connection waits for closed ones to leave.
const LEAVING: Duration = Duration::from_secs(2);

/// Everybody who is connected to one port.
pub(super) struct ConnectionLimiter {
    quota: ConnectionQuota,
    strangers: Mutex<UnauthenticatedSet>,
    /// Number of connections that have a place.
    count: watch::Sender<usize>,
}

/// Unauthenticated connections.
#[derive(Default)]
struct UnauthenticatedSet {
    next: u64,
    waiting: BTreeMap<u64, Unauthenticated>,
    /// Connections of each party in the order in which they came.
    of_party: BTreeMap<IpAddr, BTreeSet<u64>>,
    /// Number of connections of each party, and its oldest: the last one here gives up its oldest.
    crowded: BTreeSet<(usize, Reverse<u64>, IpAddr)>,
}

struct Unauthenticated {
    party: IpAddr,
    gone: CancellationToken,
}

impl UnauthenticatedSet {
    fn add(&mut self, party: IpAddr) -> (u64, CancellationToken) {
        let number = self.next;
        self.next += 1;
        let gone = CancellationToken::new();
        self.waiting.insert(number, Unauthenticated { party, gone: gone.clone() });
        self.update_party(party, |numbers| {
            numbers.insert(number);
        });
        (number, gone)
    }

    fn remove(&mut self, number: u64) -> Option<Unauthenticated> {
        let stranger = self.waiting.remove(&number)?;
        self.update_party(stranger.party, |numbers| {
            numbers.remove(&number);
        });
        Some(stranger)
    }

    /// Changes the connections of a party, and updates the order of parties.
    fn update_party(&mut self, party: IpAddr, change: impl FnOnce(&mut BTreeSet<u64>)) {
        let numbers = self.of_party.entry(party).or_default();
        let rank = |numbers: &BTreeSet<u64>| numbers.first().map(|oldest| (numbers.len(), Reverse(*oldest), party));
        if let Some(before) = rank(numbers) {
            self.crowded.remove(&before);
        }
        change(numbers);
        match rank(numbers) {
            Some(after) => drop(self.crowded.insert(after)),
            None => drop(self.of_party.remove(&party)),
        }
    }

    /// Returns the connection to close next.
    fn eviction_candidate(&self) -> Option<u64> {
        self.crowded.last().map(|(_, Reverse(oldest), _)| *oldest)
    }
}

/// The place of one connection, for as long as any part of it exists.
pub struct ConnectionPermit {
    crowd: Arc<ConnectionLimiter>,
    number: u64,
    gone: CancellationToken,
    /// Descriptor of the connection, which it has until it has left.
    room: Option<OwnedSemaphorePermit>,
}

impl ConnectionLimiter {
    /// Makes a limiter with `quota`.
    pub(super) fn new(quota: ConnectionQuota) -> Arc<Self> {
        Arc::new(Self { quota, strangers: Mutex::default(), count: watch::Sender::new(0) })
    }

    /// Gives a place to a connection of which only the address is known yet, once there is a descriptor for
    /// it. `None` if all places are taken by authenticated ones, or none was left in time.
    ///
    /// Dropped before, it leaves nothing reserved.
    pub(super) async fn acquire_permit(self: &Arc<Self>, from: IpAddr) -> Option<Arc<ConnectionPermit>> {
        let mut place = self.reserve_permit(network_prefix(from))?;
        place.room = timeout(LEAVING, self.quota.acquire_descriptor()).await.ok()?;
        place.room.is_some().then(|| Arc::new(place))
    }

    fn reserve_permit(self: &Arc<Self>, party: IpAddr) -> Option<ConnectionPermit> {
        let mut strangers = self.strangers.lock();
        let (number, gone) = strangers.add(party);
        self.count.send_modify(|count| *count += 1);
        if *self.count.borrow() > self.quota.max_connections() {
            // It counts among the strangers of its own party, so it takes the place of one of these where they are the most.
            self.send_away(&mut strangers);
        }
        drop(strangers);
        let is_refused = gone.is_cancelled();
        let place = ConnectionPermit { crowd: Arc::clone(self), number, gone, room: None };
        (!is_refused).then_some(place)
    }

    /// Closes an unauthenticated connection. False if there is none.
    pub(super) fn make_room(&self) -> bool {
        self.send_away(&mut self.strangers.lock())
    }

    fn send_away(&self, strangers: &mut UnauthenticatedSet) -> bool {
        let Some(Unauthenticated { gone, .. }) =
            strangers.eviction_candidate().and_then(|number| strangers.remove(number))
        else {
            return false;
        };
        // Under the lock: no connection is kept and closed at once. Its place is another's now, however long it takes to leave.
        gone.cancel();
        self.count.send_modify(|count| *count -= 1);
        true
    }

    /// Waits until everybody is gone.
    pub(super) async fn wait_until_empty(&self) {
        // The sender is ours, so it cannot be gone.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl ConnectionPermit {
    /// Marks the connection as authenticated: it keeps its place from now on. False if it was just closed.
    pub fn mark_authenticated(&self) -> bool {
        self.crowd.strangers.lock().remove(self.number);
        !self.gone.is_cancelled()
    }

    /// Waits until the place is another's.
    pub async fn wait_revoked(&self) {
        self.gone.cancelled().await;
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut strangers = self.crowd.strangers.lock();
        strangers.remove(self.number);
        if !self.gone.is_cancelled() {
            self.crowd.count.send_modify(|count| *count -= 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, sync::Arc};

    use super::{ConnectionLimiter, ConnectionPermit, ConnectionQuota};

    fn crowd(most: usize) -> Arc<ConnectionLimiter> {
        ConnectionLimiter::new(ConnectionQuota::of_this_process(most))
    }

    fn at(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    async fn enter(crowd: &Arc<ConnectionLimiter>, last: u8) -> Arc<ConnectionPermit> {
        crowd.acquire_permit(at(last)).await.unwrap()
    }

    #[tokio::test]
    async fn if_all_places_are_taken_the_oldest_unauthenticated_connection_is_closed_and_then_the_newest() {
        let crowd = crowd(3);
        let [first, second, third] = [enter(&crowd, 1).await, enter(&crowd, 1).await, enter(&crowd, 1).await];
        assert!(first.mark_authenticated());
        let fourth = enter(&crowd, 1).await;
        assert!(second.gone.is_cancelled() && !third.gone.is_cancelled());
        assert!(!second.mark_authenticated(), "who was sent away does not become known");
        assert!(third.mark_authenticated() && fourth.mark_authenticated());
        assert!(crowd.acquire_permit(at(1)).await.is_none());
        assert!(!crowd.make_room(), "nobody who is known goes");
        // A closed connection had no place any more to give up.
        drop(second);
        assert!(crowd.acquire_permit(at(1)).await.is_none());
        drop(first);
        assert!(crowd.acquire_permit(at(1)).await.is_some());
    }

    #[tokio::test]
    async fn the_address_with_the_most_strangers_gives_up_its_oldest() {
        for (case, there, comes, goes) in [
            ("another's crowd", &[1, 2, 2][..], 3, Some(1)),
            ("its own crowd", &[1, 2, 2], 2, Some(1)),
            ("all alike", &[1, 2, 3], 4, Some(0)),
            ("it makes the crowd", &[1, 2, 3], 2, Some(1)),
            ("it makes one of two", &[1, 1, 2], 2, Some(0)),
        ] {
            let crowd = crowd(there.len());
            let mut places = Vec::new();
            for last in there {
                places.push(enter(&crowd, *last).await);
            }
            let _comes = enter(&crowd, comes).await;
            assert_eq!(places.iter().position(|place| place.gone.is_cancelled()), goes, "{case}");
        }
    }

    #[tokio::test]
    async fn those_who_are_known_do_not_make_their_address_a_crowd() {
        let crowd = crowd(4);
        for _ in 0..2 {
            let known = enter(&crowd, 1).await;
            assert!(known.mark_authenticated());
            std::mem::forget(known);
        }
        let (flood, other) = (enter(&crowd, 2).await, enter(&crowd, 2).await);
        let fresh = enter(&crowd, 1).await;
        assert!(flood.gone.is_cancelled() && !other.gone.is_cancelled() && fresh.mark_authenticated());
    }

    #[tokio::test(start_paused = true)]
    async fn a_descriptor_is_free_once_its_connection_has_ended() {
        let crowd = crowd(1);
        let stays = enter(&crowd, 1).await;
        // The rest of them belongs to other processes.
        let mut held = Vec::new();
        while let Some(room) = crowd.quota.try_acquire_descriptor() {
            held.push(room);
        }
        assert!(crowd.acquire_permit(at(2)).await.is_none(), "nobody has left in time");
        assert!(stays.gone.is_cancelled());
        let mut coming = std::pin::pin!(crowd.acquire_permit(at(2)));
        assert!(futures_util::poll!(&mut coming).is_pending());
        drop(stays);
        assert!(coming.await.is_some());
    }

    #[tokio::test]
    async fn it_is_empty_once_the_last_one_left() {
        let crowd = crowd(2);
        let [one, other] = [enter(&crowd, 1).await, enter(&crowd, 1).await];
        assert!(one.mark_authenticated());
        let mut empty = std::pin::pin!(crowd.wait_until_empty());
        assert!(futures_util::poll!(&mut empty).is_pending());
        drop(one);
        assert!(futures_util::poll!(&mut empty).is_pending());
        drop(other);
        empty.await;
    }
}
