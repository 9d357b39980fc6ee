//! Sliding windows: how much happened in the last 60 seconds.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use countersign_core::time::Millis;

const MINUTE: Duration = Duration::from_secs(60);
/// How many addresses are watched at most.
const ADDRESSES: usize = 65_536;

/// At most so many in any 60 seconds.
#[derive(Debug)]
pub(crate) struct Window {
    most: usize,
    at: VecDeque<Millis>,
}

impl Window {
    pub(crate) fn new(most: u32) -> Self {
        Self { most: usize::try_from(most).unwrap_or(usize::MAX), at: VecDeque::new() }
    }

    /// Counts one, if there is room.
    pub(crate) fn take(&mut self, now: Millis) -> bool {
        self.forget(now);
        let has_room = self.at.len() < self.most;
        if has_room {
            self.at.push_back(now);
        }
        has_room
    }

    fn is_full(&mut self, now: Millis) -> bool {
        self.forget(now);
        self.at.len() >= self.most
    }

    fn forget(&mut self, now: Millis) {
        while self.at.front().is_some_and(|at| *at + MINUTE <= now) {
            self.at.pop_front();
        }
    }
}

/// Failed authentications by address.
#[derive(Debug)]
pub(crate) struct FailedAuth {
    most: u32,
    by_address: BTreeMap<IpAddr, Window>,
}

impl FailedAuth {
    pub(crate) fn new(most: u32) -> Self {
        Self { most, by_address: BTreeMap::new() }
    }

    /// Whether an address has failed too often to be heard.
    pub(crate) fn is_limited(&mut self, from: IpAddr, now: Millis) -> bool {
        self.by_address.get_mut(&network(from)).is_some_and(|window| window.is_full(now))
    }

    /// Counts a failure.
    pub(crate) fn failed(&mut self, from: IpAddr, now: Millis) {
        let from = network(from);
        if self.by_address.len() >= ADDRESSES && !self.by_address.contains_key(&from) {
            self.by_address.retain(|_, window| {
                window.forget(now);
                !window.at.is_empty()
            });
            while self.by_address.len() >= ADDRESSES {
                self.by_address.pop_first();
            }
        }
        self.by_address.entry(from).or_insert_with(|| Window::new(self.most)).take(now);
    }
}

/// What one party has: an address, or of IPv6 the half of it that names its network.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::{FailedAuth, Millis, Window};

    #[test]
    fn a_window_slides() {
        let mut window = Window::new(2);
        let took: Vec<bool> =
            [0, 30_000, 59_999, 60_000, 60_001, 90_000].map(|at| window.take(Millis(at))).into_iter().collect();
        assert_eq!(took, [true, true, false, true, false, true]);
        assert!(!Window::new(0).take(Millis(1)));
    }

    #[test]
    fn one_address_does_not_limit_another() {
        let (one, other) = (Ipv4Addr::new(10, 0, 0, 1).into(), Ipv4Addr::new(10, 0, 0, 2).into());
        let mut failed = FailedAuth::new(1);
        failed.failed(one, Millis(1));
        assert!(failed.is_limited(one, Millis(2)) && !failed.is_limited(other, Millis(2)));
        assert!(!failed.is_limited(one, Millis(60_001)));
    }

    #[test]
    fn a_network_is_one_party_whatever_address_it_takes() {
        let mut failed = FailedAuth::new(1);
        failed.failed("2001:db8:0:1::1".parse().unwrap(), Millis(1));
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
