//! Who sits at the other end of a connection from this machine: a command that an agent of ours runs, or somebody else.
//!
//! Commands of agents have the rights of the gateway's user, and what a person would answer with lies open to them. So
//! whatever descends from this process decides nothing over its own port or socket; nor does what a node on this machine, or another
//! door, runs for its agents; nor does this process itself, which connects where commands ask its proxy to. Where the system cannot tell any more who that was, because it did not wait
//! for its answer, it counts as one of them.

use std::{
    collections::BTreeSet,
    fs, io,
    net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket},
    path::Path,
    sync::Arc,
};

use countersign_runtime::tools::exec;
use tokio::sync::OnceCell;

/// How often it is looked for processes that began meanwhile.
const MOST_ROUNDS: usize = 64;
/// What whoever is refused is told.
pub(crate) const REFUSED: &str = "This comes from a command of an agent, which may not decide";

/// The other end of a TCP connection. It is looked at when that matters, and once. One without addresses decides nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peer {
    ends: Option<(SocketAddr, SocketAddr)>,
    may_decide: Arc<OnceCell<bool>>,
}

impl Peer {
    /// Of a connection from `theirs` to `ours`.
    pub(crate) fn new(theirs: SocketAddr, ours: SocketAddr) -> Self {
        Self { ends: Some((theirs, ours)), may_decide: Arc::default() }
    }

    /// Whether it is none of the commands that agents run.
    pub(crate) async fn may_decide(&self) -> bool {
        let Some((theirs, ours)) = self.ends else { return false };
        let look = || async move { tokio::task::spawn_blocking(move || look(theirs, ours)).await.unwrap_or(false) };
        *self.may_decide.get_or_init(look).await
    }
}

/// Whether whoever connected to a local socket is none of the commands that agents run. `pid` is as the system says it.
pub(crate) fn may_decide(pid: Option<i32>) -> bool {
    match pid {
        // It is in no namespace of ours, and so none of ours.
        Some(0) => true,
        Some(pid) if exec::is_command(pid) => false,
        Some(pid) => !exec::has_begun() || exec::descends(pid) == Some(false),
        None => !exec::has_begun(),
    }
}

/// Notes that a node came from this address: on this machine it runs commands of agents that are none of our descendants.
pub(crate) fn node_came(theirs: SocketAddr) {
    if is_of_this_machine(theirs) {
        exec::begins_elsewhere();
    }
}

fn look(theirs: SocketAddr, ours: SocketAddr) -> bool {
    // Without a command there is nobody whom this could be.
    (!exec::has_begun() || is_no_descendant(theirs, ours))
        && (!exec::has_begun_elsewhere() || is_no_command(theirs, ours))
}

/// Whether no command that others run on this machine for agents has the other end of a connection open. Who did not wait for the answer
/// may be one. One that cannot be looked at, because it is of another user, is not taken for the one.
fn is_no_command(theirs: SocketAddr, ours: SocketAddr) -> bool {
    let socket = match find(theirs, ours) {
        Ok(Some(socket)) => socket,
        Ok(None) | Err(_) => return !is_of_this_machine(theirs),
    };
    if socket.inode == 0 {
        return false;
    }
    let wanted = format!("socket:[{}]", socket.inode);
    let has_it = |pid: i32| {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        threads.into_iter().any(|thread| has_open(&thread.path(), &wanted).unwrap_or(false))
    };
    // Somebody has it still, then, and no command did.
    !exec::commands().into_iter().any(has_it)
        && find(theirs, ours).is_ok_and(|found| found.is_some_and(|found| found.inode == socket.inode))
}

fn is_no_descendant(theirs: SocketAddr, ours: SocketAddr) -> bool {
    let socket = match find(theirs, ours) {
        Ok(Some(socket)) => socket,
        // It is elsewhere, or was here and has gone.
        Ok(None) => return !is_of_this_machine(theirs),
        Err(error) => {
            tracing::warn!(%error, "it cannot be told who connects from this machine");
            return !is_of_this_machine(theirs);
        }
    };
    // Nobody has it any more.
    if socket.inode == 0 {
        return false;
    }
    let wanted = format!("socket:[{}]", socket.inode);
    // Its own connections are those of commands. What cannot be looked at may be one.
    if has_open(Path::new("/proc/self"), &wanted).unwrap_or(true) {
        return false;
    }
    let mut known = BTreeSet::new();
    for _ in 0..MOST_ROUNDS {
        let new: Vec<i32> = exec::descendants().into_iter().filter(|pid| known.insert(*pid)).collect();
        if new.is_empty() {
            // Somebody has it, then, and none of ours.
            return find(theirs, ours).is_ok_and(|found| found.is_some_and(|found| found.inode == socket.inode));
        }
        if new.into_iter().any(|pid| holds(pid, &wanted, socket.user)) {
            return false;
        }
    }
    false
}

/// Whether an address may be one of this machine's: a command chooses freely from which of them it connects.
fn is_of_this_machine(address: SocketAddr) -> bool {
    let mut own = match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, 0),
        // One of a link only counts together with its interface.
        IpAddr::V6(_) => address,
    };
    own.set_port(0);
    // Only this answer says that no interface has it. Any other failure, such as no descriptors left, says nothing.
    UdpSocket::bind(own).map_or_else(|error| error.kind() != io::ErrorKind::AddrNotAvailable, |_| true)
}

/// One end of a connection, as the system lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Socket {
    user: u32,
    /// 0 where no process has it open.
    inode: u64,
}

/// The socket at the other end of a connection, if it is on this machine.
fn find(theirs: SocketAddr, ours: SocketAddr) -> io::Result<Option<Socket>> {
    let ends = (plain(theirs), plain(ours));
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        let text = match fs::read_to_string(table) {
            Ok(text) => text,
            // Without IPv6 there is no table of it.
            Err(error) if error.kind() == io::ErrorKind::NotFound && table.ends_with('6') => continue,
            Err(error) => return Err(error),
        };
        let found = text.lines().skip(1).filter_map(row).find(|(local, remote, _)| (*local, *remote) == ends);
        if let Some((.., socket)) = found {
            return Ok(Some(socket));
        }
    }
    Ok(None)
}

/// An address of the fourth version in the form of the sixth is the same one.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Reads `sl local remote state queues timer retransmits uid timeout inode …`.
fn row(line: &str) -> Option<(SocketAddr, SocketAddr, Socket)> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (local, remote) = (address(fields.next()?)?, address(fields.next()?)?);
    let user = fields.nth(4)?.parse().ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    Some((local, remote, Socket { user, inode }))
}

/// Reads `0100007F:1F90`: words of four bytes as the machine has them in memory, then the port.
fn address(text: &str) -> Option<SocketAddr> {
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

/// Whether a process has a socket open, in any of its threads; and if it does not let that be seen, whether it could.
fn holds(pid: i32, wanted: &str, user: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    for thread in threads.flatten() {
        let place = thread.path();
        match has_open(&place, wanted) {
            Ok(true) => return true,
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                // What has ended has nothing open, and lets nobody look either.
                if !has_ended(&place) && is_of(&place, user) {
                    return true;
                }
            }
            // It ended while it was looked at.
            Err(_) => {}
        }
    }
    false
}

fn has_open(place: &Path, wanted: &str) -> io::Result<bool> {
    let open = fs::read_dir(place.join("fd"))?;
    Ok(open.flatten().any(|one| fs::read_link(one.path()).is_ok_and(|target| target.as_os_str() == wanted)))
}

fn has_ended(place: &Path) -> bool {
    let stat = fs::read_to_string(place.join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// Whether a thread has, or had, the rights of `user`.
fn is_of(place: &Path, user: u32) -> bool {
    let status = fs::read_to_string(place.join("status")).unwrap_or_default();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    users.is_none_or(|users| users.split_ascii_whitespace().any(|one| one.parse() == Ok(user)))
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read as _,
        net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    };

    use tokio::{io::AsyncWriteExt as _, net::TcpSocket};

    use super::{Peer, Socket, find, holds, is_no_command, is_no_descendant, is_of_this_machine, row};

    /// Addresses of this machine from which its port on the loopback can be reached.
    fn own_addresses() -> Vec<IpAddr> {
        let mut found: Vec<IpAddr> = ["127.0.0.1", "127.0.0.2"].map(|ip| ip.parse().unwrap()).into();
        // Nothing is sent; the system only chooses an address. Without a network it has none.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("198.51.100.1:9").is_ok() {
            found.push(socket.local_addr().unwrap().ip());
        }
        found
    }

    #[tokio::test]
    async fn whoever_resets_the_line_behind_its_requests_counts_as_a_command_from_any_address_of_this_machine() {
        for ip in own_addresses() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let client = TcpSocket::new_v4().unwrap();
            client.bind(SocketAddr::new(ip, 0)).unwrap();
            let mut client = client.connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut server, theirs) = listener.accept().unwrap();
            let ours = server.local_addr().unwrap();
            assert_eq!(theirs.ip(), ip);
            // The beginning of another request hides the end of the line from whoever reads the first.
            let said = b"POST /api/v1/gates/g/allow HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\nGET / HT";
            client.write_all(said).await.unwrap();
            client.set_zero_linger().unwrap();
            drop(client);
            // What it said can be read still, and the system knows nothing of it any more.
            let mut heard = vec![0; said.len()];
            server.read_exact(&mut heard).unwrap();
            assert_eq!(find(theirs, ours).unwrap(), None, "{ip}");
            assert!(!is_no_descendant(theirs, ours) && !is_no_command(theirs, ours), "{ip}");
        }
    }

    #[test]
    fn what_no_interface_has_is_elsewhere() {
        // These are for documentation alone. One goes on to the other's form when a port listens to both.
        for elsewhere in ["198.51.100.7:4000", "[::ffff:198.51.100.7]:4000"] {
            let elsewhere = elsewhere.parse().unwrap();
            assert!(!is_of_this_machine(elsewhere), "{elsewhere}");
            assert!(is_no_descendant(elsewhere, "127.0.0.1:1".parse().unwrap()), "{elsewhere}");
        }
        for here in ["127.0.0.1:4000", "127.3.2.1:4000", "[::ffff:127.0.0.1]:4000"] {
            assert!(is_of_this_machine(here.parse().unwrap()), "{here}");
        }
    }

    #[test]
    fn what_this_process_connects_itself_decides_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, theirs) = listener.accept().unwrap();
        assert!(!is_no_descendant(theirs, server.local_addr().unwrap()));
        drop(client);
    }

    #[tokio::test]
    async fn a_line_without_addresses_decides_nothing() {
        assert!(!Peer::default().may_decide().await);
    }

    #[test]
    fn a_row_of_the_systems_table_is_read() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let loopback = u32::from_ne_bytes([127, 0, 0, 1]);
        let other = u32::from_ne_bytes([10, 1, 2, 3]);
        let line = format!(
            "   1: {loopback:08X}:1F90 {other:08X}:C350 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 20 4 30 10 -1"
        );
        let want = (at("127.0.0.1:8080"), at("10.1.2.3:50000"), Socket { user: 1000, inode: 4711 });
        assert_eq!(row(&line), Some(want));
        let mapped = u32::from_ne_bytes([0, 0, 0xff, 0xff]);
        let long = format!("{:08X}{:08X}{mapped:08X}{loopback:08X}", 0, 0);
        let one = u32::from_ne_bytes([0, 0, 0, 1]);
        let line = format!("0: {long}:0001 {:08X}{:08X}{:08X}{one:08X}:0002 06 0:0 0:0 0 0 0 0", 0, 0, 0);
        let want = (at("127.0.0.1:1"), at("[::1]:2"), Socket { user: 0, inode: 0 });
        assert_eq!(row(&line), Some(want));
        assert_eq!(row("  sl  local_address rem_address   st"), None);
    }

    #[test]
    fn the_process_behind_a_connection_is_found_until_it_goes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, theirs) = listener.accept().unwrap();
        let ours = server.local_addr().unwrap();
        let socket = find(theirs, ours).unwrap().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(holds(own, &format!("socket:[{}]", socket.inode), socket.user));
        assert!(!holds(own, "socket:[0]", socket.user));
        drop(client);
        let after = find(theirs, ours).unwrap();
        assert!(after.is_none_or(|after| after.inode == 0), "{after:?}");
    }
}
