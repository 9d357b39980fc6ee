//! The socket at the other end of a connection from this machine, as the system knows it.
//!
//! The kernel is queried for the one socket; its table of all is read only if it does not answer that, because the table of a busy
//! gateway has tens of thousands of rows. It must not know processes.

use std::{
    fs, io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    os::fd::AsRawFd as _,
};

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

/// One end of a connection, as the system lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeerSocket {
    pub(super) user: u32,
    /// 0 where no process has it open.
    pub(super) inode: u64,
}

/// Finds the socket at the other end of a connection, if it is on this machine.
///
/// # Errors
/// The system says nothing of its sockets.
pub(super) fn find_socket(theirs: SocketAddr, ours: SocketAddr) -> io::Result<Option<PeerSocket>> {
    match query_kernel(theirs, ours) {
        Ok(None) => {}
        answered => return answered.or_else(|_| find_in_table(theirs, ours)),
    }
    // The kernel answers the same for an unknown socket. That it knows this end of the connection shows that it answers at all.
    match query_kernel(ours, theirs) {
        Ok(Some(_)) => Ok(None),
        Ok(None) | Err(_) => find_in_table(theirs, ours),
    }
}

/// Asks the kernel for one socket.
fn query_kernel(theirs: SocketAddr, ours: SocketAddr) -> io::Result<Option<PeerSocket>> {
    let kernel =
        socket(AddressFamily::Netlink, SockType::Datagram, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkSockDiag)?;
    let question = diag_request(canonical_address(theirs), canonical_address(ours));
    send(kernel.as_raw_fd(), &question, MsgFlags::empty())?;
    let mut answer = [0; 1024];
    let length = recv(kernel.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    read_reply(answer.get(..length).unwrap_or_default(), canonical_address(theirs), canonical_address(ours))
}

const HEAD: usize = 16;
const BY_FAMILY: u16 = 20;
const ERROR: u16 = 2;

/// Encodes the request: `nlmsghdr`, then `inet_diag_req_v2`: family, protocol, nothing more, any state, and `inet_diag_sockid`.
fn diag_request(theirs: SocketAddr, ours: SocketAddr) -> Vec<u8> {
    const LENGTH: u32 = 72;
    const REQUEST: u16 = 1;
    const TCP: u8 = 6;
    let mut text = Vec::with_capacity(LENGTH as usize);
    text.extend(LENGTH.to_ne_bytes());
    text.extend(BY_FAMILY.to_ne_bytes());
    text.extend(REQUEST.to_ne_bytes());
    text.extend([0; 8]);
    text.extend([address_family(theirs), TCP, 0, 0]);
    text.extend(u32::MAX.to_ne_bytes());
    text.extend(encode_socket_id(theirs, ours));
    // Any interface, and no cookie of it.
    text.extend(0_u32.to_ne_bytes());
    text.extend([0xff; 8]);
    text
}

fn address_family(address: SocketAddr) -> u8 {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    u8::try_from(family as i32).unwrap_or_default()
}

/// Encodes the beginning of `inet_diag_sockid`: both ports and both addresses as they are on the wire, 16 bytes each.
fn encode_socket_id(theirs: SocketAddr, ours: SocketAddr) -> Vec<u8> {
    let mut text: Vec<u8> = [theirs.port().to_be_bytes(), ours.port().to_be_bytes()].concat();
    for address in [theirs.ip(), ours.ip()] {
        let until = text.len() + 16;
        match address {
            IpAddr::V4(address) => text.extend(address.octets()),
            IpAddr::V6(address) => text.extend(address.octets()),
        }
        text.resize(until, 0);
    }
    text
}

/// Reads `nlmsghdr`, then `inet_diag_msg`: family, state, timer, retransmits, `inet_diag_sockid`, expiry, two queues, user, inode.
fn read_reply(answer: &[u8], theirs: SocketAddr, ours: SocketAddr) -> io::Result<Option<PeerSocket>> {
    let number = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let short = || io::Error::other("the kernel's answer is too short");
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes).ok_or_else(short)?;
    match kind {
        ERROR => {
            let error = io::Error::from_raw_os_error(number(HEAD).ok_or_else(short)?.cast_signed().wrapping_neg());
            if error.kind() == io::ErrorKind::NotFound { Ok(None) } else { Err(error) }
        }
        BY_FAMILY => {
            // If no connection has these ends, the answer may name a listener that has one of them.
            if answered_ends(answer.get(HEAD..).unwrap_or_default()) != Some((theirs, ours)) {
                return Ok(None);
            }
            let user = number(HEAD + 64).ok_or_else(short)?;
            let inode = number(HEAD + 68).ok_or_else(short)?;
            Ok(Some(PeerSocket { user, inode: inode.into() }))
        }
        _ => Err(io::Error::other("unexpected kind of answer from the kernel")),
    }
}

/// Reads both ends of `inet_diag_msg`, an IPv4 address in IPv6 form as the IPv4 address: a dual-stack socket has the mapped form where
/// the question had the plain one.
fn answered_ends(message: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    const PORTS: usize = 4;
    const ADDRESSES: usize = PORTS + 4;
    let family = i32::from(*message.first()?);
    let end = |number: usize| {
        let port = message.get(PORTS + number * 2..)?.first_chunk().copied().map(u16::from_be_bytes)?;
        let address = message.get(ADDRESSES + number * 16..)?.first_chunk::<16>()?;
        let ip = if family == AddressFamily::Inet6 as i32 {
            Ipv6Addr::from(*address).to_canonical()
        } else {
            IpAddr::from(*address.first_chunk::<4>()?)
        };
        Some(SocketAddr::new(ip, port))
    };
    Some((end(0)?, end(1)?))
}

/// Looks the socket up in the system's table of all.
fn find_in_table(theirs: SocketAddr, ours: SocketAddr) -> io::Result<Option<PeerSocket>> {
    let ends = (canonical_address(theirs), canonical_address(ours));
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        let text = match fs::read_to_string(table) {
            Ok(text) => text,
            // Without IPv6 there is no table of it.
            Err(error) if error.kind() == io::ErrorKind::NotFound && table.ends_with('6') => continue,
            Err(error) => return Err(error),
        };
        let found = text.lines().skip(1).filter_map(parse_row).find(|(local, remote, _)| (*local, *remote) == ends);
        if let Some((.., socket)) = found {
            return Ok(Some(socket));
        }
    }
    Ok(None)
}

/// Returns an address of the fourth version in the form of the sixth as the same one.
fn canonical_address(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Reads `sl local remote state queues timer retransmits uid timeout inode …`.
fn parse_row(line: &str) -> Option<(SocketAddr, SocketAddr, PeerSocket)> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (local, remote) = (parse_address(fields.next()?)?, parse_address(fields.next()?)?);
    let user = fields.nth(4)?.parse().ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    Some((local, remote, PeerSocket { user, inode }))
}

/// Reads `0100007F:1F90`: words of four bytes as the machine has them in memory, then the port.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match ip.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(at)?);
            }
            Ipv6Addr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use super::{PeerSocket, find_in_table, find_socket, parse_row, query_kernel};

    #[test]
    fn the_kernel_reports_one_socket_as_in_its_table_of_all() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            // Not every machine has the sixth version.
            let Ok(listener) = TcpListener::bind(at) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, theirs) = listener.accept().unwrap();
            let ours = server.local_addr().unwrap();
            let (one, of_all) = (query_kernel(theirs, ours).unwrap(), find_in_table(theirs, ours).unwrap());
            assert!(one.is_some_and(|one| one.inode != 0) && one == of_all, "{one:?} {of_all:?}");
            assert_ne!(query_kernel(ours, theirs).unwrap(), one);
            drop(client);
            let after = query_kernel(theirs, ours).unwrap();
            assert!(after.is_none_or(|after| after.inode == 0), "{after:?}");
        }
    }

    /// Makes a connection whose ends have the forms that `server` and `client` name: an address of IPv4 can be bound as `::ffff:a.b.c.d`.
    fn connected(server: &str, client: &str) -> Option<(TcpStream, TcpStream)> {
        let [server, client] = [server, client].map(|at| at.parse::<SocketAddr>().unwrap());
        // Not every machine has the sixth version.
        let listener = TcpListener::bind(server).ok()?;
        let port = listener.local_addr().unwrap().port();
        let sent_to = SocketAddr::new(client.ip(), port);
        let connected = TcpStream::connect(sent_to).ok()?;
        Some((connected, listener.accept().unwrap().0))
    }

    #[test]
    fn a_dual_stack_socket_is_found_whichever_end_has_the_mapped_form() {
        let (plain, mapped, any) = ("127.0.0.1:0", "[::ffff:127.0.0.1]:0", "[::]:0");
        let mut checked = 0;
        for (server, client) in
            [(plain, plain), (plain, mapped), (any, plain), (any, mapped), (mapped, mapped), (mapped, plain)]
        {
            let Some((client_end, server_end)) = connected(server, client) else { continue };
            checked += 1;
            let (theirs, ours) = (server_end.peer_addr().unwrap(), server_end.local_addr().unwrap());
            for (theirs, ours) in [(theirs, ours), (ours, theirs)] {
                let (one, of_all) = (query_kernel(theirs, ours).unwrap(), find_in_table(theirs, ours).unwrap());
                assert!(one.is_some_and(|one| one.inode != 0), "{server} {client}: {one:?}");
                assert_eq!(one, of_all, "{server} {client}");
            }
            drop(client_end);
        }
        // Without IPv6 only the first pair connects.
        let has_ipv6 = TcpListener::bind("[::]:0").is_ok();
        assert!(checked >= if has_ipv6 { 2 } else { 1 }, "{checked} pairs were checked");
    }

    #[test]
    fn a_listener_is_no_end_of_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let nobody = "127.0.0.1:9".parse().unwrap();
        assert_eq!(find_socket(listener.local_addr().unwrap(), nobody).unwrap(), None);
    }

    #[test]
    fn a_row_of_the_systems_table_is_read() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let loopback = u32::from_ne_bytes([127, 0, 0, 1]);
        let other = u32::from_ne_bytes([10, 1, 2, 3]);
        let line = format!(
            "   1: {loopback:08X}:1F90 {other:08X}:C350 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 20 4 30 10 -1"
        );
        let want = (at("127.0.0.1:8080"), at("10.1.2.3:50000"), PeerSocket { user: 1000, inode: 4711 });
        assert_eq!(parse_row(&line), Some(want));
        let mapped = u32::from_ne_bytes([0, 0, 0xff, 0xff]);
        let long = format!("{:08X}{:08X}{mapped:08X}{loopback:08X}", 0, 0);
        let one = u32::from_ne_bytes([0, 0, 0, 1]);
        let line = format!("0: {long}:0001 {:08X}{:08X}{:08X}{one:08X}:0002 06 0:0 0:0 0 0 0 0", 0, 0, 0);
        let want = (at("127.0.0.1:1"), at("[::1]:2"), PeerSocket { user: 0, inode: 0 });
        assert_eq!(parse_row(&line), Some(want));
        assert_eq!(parse_row("  sl  local_address rem_address   st"), None);
    }
}
