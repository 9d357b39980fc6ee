//! Addresses that a name may resolve to: those of the public network, and never one of this machine.
//!
//! It must not know which names are listed. The owner of a listed name could otherwise direct a command to machines in the
//! gateway's private network, so such an address is reached only if it was written as one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns true for an address of the public network.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    const CLOSED: &[(Ipv4Addr, u32)] = &[
        (Ipv4Addr::new(0, 0, 0, 0), 8),
        (Ipv4Addr::new(10, 0, 0, 0), 8),
        (Ipv4Addr::new(100, 64, 0, 0), 10),
        (Ipv4Addr::new(127, 0, 0, 0), 8),
        // The metadata service that gives a cloud machine its keys is here.
        (Ipv4Addr::new(169, 254, 0, 0), 16),
        (Ipv4Addr::new(172, 16, 0, 0), 12),
        (Ipv4Addr::new(192, 0, 0, 0), 24),
        (Ipv4Addr::new(192, 0, 2, 0), 24),
        (Ipv4Addr::new(192, 88, 99, 0), 24),
        (Ipv4Addr::new(192, 168, 0, 0), 16),
        (Ipv4Addr::new(198, 18, 0, 0), 15),
        (Ipv4Addr::new(198, 51, 100, 0), 24),
        (Ipv4Addr::new(203, 0, 113, 0), 24),
        // Multicast, reserved and broadcast addresses.
        (Ipv4Addr::new(224, 0, 0, 0), 3),
        // A service of one cloud to its machines.
        (Ipv4Addr::new(168, 63, 129, 16), 32),
    ];
    let is_in = |(network, length): &(Ipv4Addr, u32)| (address.to_bits() ^ network.to_bits()) >> (32 - length) == 0;
    !CLOSED.iter().any(is_in)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let inner = Ipv4Addr::from_bits((u32::from(g) << 16) | u32::from(h));
    match (a, b) {
        // Those of version 4 in the form of version 6, and what a translator makes of them.
        (0, 0) if (c, d, e, f) == (0, 0, 0, 0xffff) => is_public_v4(inner),
        (0x64, 0xff9b) if (c, d, e, f) == (0, 0, 0, 0) => is_public_v4(inner),
        // Tunnels, whose other end may be anywhere; documentation; what protocols keep for themselves.
        (0x2001, 0..=0x1ff | 0xdb8) | (0x2002, _) | (0x3fff, 0..=0xfff) => false,
        (0x2000..=0x3fff, _) => true,
        _ => false,
    }
}

/// Returns true for an address of this machine; also if that cannot be found out.
pub fn is_ours(address: IpAddr) -> bool {
    let Ok(all) = nix::ifaddrs::getifaddrs() else { return true };
    let plain = address.to_canonical();
    all.filter_map(|one| one.address).any(|one| {
        let v4 = one.as_sockaddr_in().map(|found| IpAddr::V4(found.ip()));
        let v6 = one.as_sockaddr_in6().map(|found| IpAddr::V6(found.ip()));
        v4.or(v6) == Some(plain)
    })
}

#[cfg(test)]
mod tests {
    use super::{is_ours, is_public};

    #[test]
    fn only_addresses_of_the_public_network_are_reached_by_name() {
        for (address, want) in [
            ("1.1.1.1", true),
            ("151.101.2.132", true),
            ("223.255.255.255", true),
            ("0.0.0.0", false),
            ("10.1.2.3", false),
            ("100.64.0.1", false),
            ("100.128.0.1", true),
            ("127.0.0.1", false),
            ("127.255.0.1", false),
            ("168.63.129.16", false),
            ("169.254.169.254", false),
            ("172.15.0.1", true),
            ("172.31.0.1", false),
            ("172.32.0.1", true),
            ("192.168.1.1", false),
            ("198.19.0.1", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("2606:4700::1111", true),
            ("2a04:4e42::644", true),
            ("2001:4860:4860::8888", true),
            ("::", false),
            ("::1", false),
            ("::ffff:10.0.0.1", false),
            ("::ffff:1.1.1.1", true),
            ("::7f00:1", false),
            ("64:ff9b::a9fe:a9fe", false),
            ("64:ff9b:1::1", false),
            ("2001::1", false),
            ("2001:db8::1", false),
            ("2002:7f00:1::", false),
            ("fc00::1", false),
            ("fd00:ec2::254", false),
            ("fe80::1", false),
            ("fec0::1", false),
            ("ff02::1", false),
        ] {
            assert_eq!(is_public(address.parse().unwrap()), want, "{address}");
        }
    }

    #[test]
    fn this_machine_knows_its_own_addresses() {
        assert!(is_ours("127.0.0.1".parse().unwrap()));
        assert!(is_ours("::ffff:127.0.0.1".parse().unwrap()));
        assert!(!is_ours("192.0.2.77".parse().unwrap()));
    }
}
