//! Sliding windows: how much happened in the last 60 seconds.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use countersign_core::time::Millis;

const MINUTE: Duration = Duration::from_secs(60);
/// Most addresses that are watched.
const ADDRESSES: usize = 65_536;

/// At most so many in any 60 seconds.
#[derive(Debug)]
pub struct SlidingWindow {
    most: usize,
    at: VecDeque<Millis>,
}

impl SlidingWindow {
    pub fn new(most: u32) -> Self {
        Self { most: usize::try_from(most).unwrap_or(usize::MAX), at: VecDeque::new() }
    }

    /// Counts one, if there is room.
    pub fn try_count(&mut self, now: Millis) -> bool {
        self.drop_expired(now);
        let has_room = self.at.len() < self.most;
        if has_room {
            self.at.push_back(now);
        }
        has_room
    }

    fn is_full(&mut self, now: Millis) -> bool {
        self.drop_expired(now);
        self.at.len() >= self.most
    }

    fn drop_expired(&mut self, now: Millis) {
        while self.at.front().is_some_and(|at| *at + MINUTE <= now) {
            self.at.pop_front();
        }
    }
}

/// Failed authentications by address, bounded so that the memory cannot be filled.
///
/// A successful authentication makes its address a known one. A flood of wrong ones from anywhere pushes out only
/// the notes about unknown addresses, the longest quiet of them first.
#[derive(Debug)]
pub struct FailedAuth {
    most: u32,
    /// Most addresses that are watched. Half of them may be known ones.
    room: usize,
    by_address: BTreeMap<IpAddr, WatchedAddress>,
    /// Unknown addresses in the order of their last activity.
    strangers: BTreeMap<u64, IpAddr>,
    known: BTreeMap<u64, IpAddr>,
    next: u64,
}

#[derive(Debug)]
struct WatchedAddress {
    window: SlidingWindow,
    turn: u64,
    is_known: bool,
}

impl FailedAuth {
    pub fn new(most: u32) -> Self {
        Self::for_addresses(most, ADDRESSES)
    }

    fn for_addresses(most: u32, room: usize) -> Self {
        Self { most, room, by_address: BTreeMap::new(), strangers: BTreeMap::new(), known: BTreeMap::new(), next: 0 }
    }

    /// Reports whether an address has failed too often to be served.
    pub fn is_limited(&mut self, from: IpAddr, now: Millis) -> bool {
        self.by_address.get_mut(&network_prefix(from)).is_some_and(|watched| watched.window.is_full(now))
    }

    /// Counts a failure.
    pub fn record_failure(&mut self, from: IpAddr, now: Millis) {
        let is_known = self.by_address.get(&network_prefix(from)).is_some_and(|watched| watched.is_known);
        self.touch_address(network_prefix(from), is_known).window.try_count(now);
        self.make_room();
    }

    /// Notes a successful authentication from this address. Earlier failures still count.
    pub fn record_success(&mut self, from: IpAddr) {
        self.touch_address(network_prefix(from), true);
        // Otherwise those who are known would be the flood.
        while self.known.len() > self.room.div_ceil(2) {
            let Some((turn, oldest)) = self.known.pop_first() else { break };
            self.strangers.insert(turn, oldest);
            if let Some(watched) = self.by_address.get_mut(&oldest) {
                watched.is_known = false;
            }
        }
        self.make_room();
    }

    /// Returns the notes about an address, which is the latest of its kind from now on.
    fn touch_address(&mut self, from: IpAddr, is_known: bool) -> &mut WatchedAddress {
        let turn = self.next;
        self.next += 1;
        let most = self.most;
        let watched = self.by_address.entry(from).or_insert_with(|| WatchedAddress {
            window: SlidingWindow::new(most),
            turn,
            is_known,
        });
        self.strangers.remove(&watched.turn);
        self.known.remove(&watched.turn);
        let order = if is_known { &mut self.known } else { &mut self.strangers };
        order.insert(turn, from);
        (watched.turn, watched.is_known) = (turn, is_known);
        watched
    }

    fn make_room(&mut self) {
        while self.by_address.len() > self.room {
            let Some((_, gone)) = self.strangers.pop_first().or_else(|| self.known.pop_first()) else { return };
            self.by_address.remove(&gone);
        }
    }
}

/// Returns the part that one party has: an address, or of IPv6 the half that names its network.
pub fn network_prefix(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::{FailedAuth, Millis, SlidingWindow};

    #[test]
    fn a_window_slides() {
        let mut window = SlidingWindow::new(2);
        let took: Vec<bool> =
            [0, 30_000, 59_999, 60_000, 60_001, 90_000].map(|at| window.try_count(Millis(at))).into_iter().collect();
        assert_eq!(took, [true, true, false, true, false, true]);
        assert!(!SlidingWindow::new(0).try_count(Millis(1)));
    }

    #[test]
    fn one_address_does_not_limit_another() {
        let (one, other) = (Ipv4Addr::new(10, 0, 0, 1).into(), Ipv4Addr::new(10, 0, 0, 2).into());
        let mut failed = FailedAuth::new(1);
        failed.record_failure(one, Millis(1));
        assert!(failed.is_limited(one, Millis(2)) && !failed.is_limited(other, Millis(2)));
        assert!(!failed.is_limited(one, Millis(60_001)));
    }

    #[test]
    fn a_flood_pushes_out_strangers_the_longest_quiet_first_and_nobody_who_is_known() {
        let at = |last: u8| -> IpAddr { Ipv4Addr::new(10, 0, 0, last).into() };
        // Below and above all of the flood, since an order by address would push out one of them first.
        let (known, quiet, loud) = (at(0), at(1), at(255));
        let mut failed = FailedAuth::for_addresses(1, 4);
        failed.record_success(known);
        for from in [known, quiet, loud] {
            failed.record_failure(from, Millis(0));
        }
        let limited =
            |failed: &mut FailedAuth, now: u64| [known, quiet, loud].map(|from| failed.is_limited(from, Millis(now)));
        for (case, from, now, want) in [
            ("there is room", at(20), 1, [true, true, true]),
            ("the first stranger goes", at(21), 2, [true, false, true]),
            ("who goes on failing stays", loud, 3, [true, false, true]),
            ("of the flood itself", at(22), 4, [true, false, true]),
            ("again", at(23), 5, [true, false, true]),
            ("then the next", at(24), 6, [true, false, false]),
            ("a minute later", at(25), 60_000, [false, false, false]),
        ] {
            failed.record_failure(from, Millis(now));
            assert_eq!(limited(&mut failed, now), want, "{case}");
            assert!(failed.by_address.len() <= 4, "{case}");
            assert_eq!(failed.by_address.len(), failed.strangers.len() + failed.known.len(), "{case}");
        }
        assert!(failed.by_address.contains_key(&known), "it keeps its place for what it does next");
    }

    #[test]
    fn those_who_are_known_fill_no_more_than_half_and_the_latest_of_them_stay() {
        let at = |last: u8| -> IpAddr { Ipv4Addr::new(10, 0, 0, last).into() };
        let mut failed = FailedAuth::for_addresses(1, 4);
        (0..200).for_each(|last| failed.record_success(at(last)));
        (200..=255).for_each(|last| failed.record_failure(at(last), Millis(0)));
        let left: Vec<IpAddr> = failed.by_address.keys().copied().collect();
        assert_eq!(left, [198, 199, 254, 255].map(at));
    }

    #[test]
    fn a_network_is_one_party_whatever_address_it_takes() {
        let mut failed = FailedAuth::new(1);
        failed.record_failure("2001:db8:0:1::1".parse().unwrap(), Millis(1));
        for (address, want) in [
            ("2001:db8:0:1:ffff::2", true),
            ("2001:db8:0:2::1", false),
            ("::ffff:10.0.0.1", false),
            ("10.0.0.1", false),
        ] {
            assert_eq!(failed.is_limited(address.parse().unwrap(), Millis(2)), want, "{address}");
        }
    }
}
