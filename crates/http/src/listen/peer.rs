//! Identity of the other end of a connection from this machine: a command that an agent of ours runs, or another program.
//!
//! Commands of agents have the rights of the gateway's user, and the logins of people lie open to them. So no descendant
//! of this process decides anything over its own port or socket; nor does a descendant of a node or another adapter on this machine;
//! nor does this process itself, which connects for commands that use its proxy. A process must be found that has the other end open
//! and is none of these: one that did not wait for the answer, or hides the socket until it comes, counts as one of them.

mod local;
mod socket;
mod socket_owner;
mod users;

use std::{
    collections::BTreeSet,
    fs, io,
    net::{IpAddr, SocketAddr, UdpSocket},
    path::Path,
    sync::Arc,
};

use countersign_runtime::tools::{exec, is_own_address};

pub use local::LocalPeer;
use nix::{
    errno::Errno,
    unistd::{geteuid, getpid},
};
use socket::{PeerSocket, find_socket};
use socket_owner::{SearchScope, find_socket_owner};
use tokio::sync::{OnceCell, Semaphore};

/// Text for a refused caller over a socket of this machine.
pub const REFUSED_HERE: &str = "This comes from a command of an agent, which may not decide, or from a program that ended before \
    the gateway could look at it, or that it cannot look at now";
/// Text for an agent of others, or a command of it, that would decide.
pub const REFUSED_GUARDED: &str = "This comes from an agent that asks this gateway before its calls, or from a command of it: it may not \
    decide. Use a terminal that the agent did not start";
/// Text for a refused caller over the port.
pub const REFUSED: &str = "This comes from a command of an agent, which may not decide, or from a program of this machine that \
    the gateway cannot look into, such as a tunnel of its own user: `countersign gates` can decide";

/// The other end of a TCP connection. It is looked at when that matters, until it may decide. One without addresses decides nothing.
#[derive(Clone, Debug, Default)]
pub struct TcpPeer {
    ends: Option<(SocketAddr, SocketAddr)>,
    /// Findings of the node of the cluster that the client connected to: whether it may decide, and whether it is guarded.
    relayed: Option<(bool, bool)>,
    /// A refusal is not kept: its cause may be over soon, such as a lack of descriptors.
    may_decide: Arc<OnceCell<()>>,
}

impl TcpPeer {
    /// Makes the peer of a connection from `theirs` to `ours`.
    pub fn new(theirs: SocketAddr, ours: SocketAddr) -> Self {
        Self { ends: Some((theirs, ours)), relayed: None, may_decide: Arc::default() }
    }

    /// Makes the peer of a connection that another node relays, with what that node found out.
    pub fn relayed(may_decide: bool, is_guarded: bool) -> Self {
        Self { ends: None, relayed: Some((may_decide, is_guarded)), may_decide: Arc::default() }
    }

    /// Reports whether it is none of the commands that agents run.
    pub async fn may_decide(&self) -> bool {
        if let Some((may_decide, _)) = self.relayed {
            return may_decide;
        }
        let Some((theirs, ours)) = self.ends else { return false };
        let look = || async move {
            if run_lookup(move || is_trusted_peer(theirs, ours, SearchScope::Known)).await == Some(true) {
                return Ok(());
            }
            // All are searched one after the other: many connections at once have one processor busy, and do not delay
            // those that were seen before.
            let turn = TURN.acquire().await.map_err(drop)?;
            let look = move || {
                // Also if the caller no longer waits for it.
                let _turn = turn;
                is_trusted_peer(theirs, ours, SearchScope::All)
            };
            if run_lookup(look).await == Some(true) { Ok(()) } else { Err(()) }
        };
        self.may_decide.get_or_try_init(look).await.is_ok()
    }
}

impl TcpPeer {
    /// Reports whether it is an agent of others that asks this gateway before its calls, or a command of one.
    pub async fn is_guarded(&self) -> bool {
        if let Some((_, is_guarded)) = self.relayed {
            return is_guarded;
        }
        let Some((theirs, ours)) = self.ends else { return false };
        let look = move || {
            let Ok(Some(socket)) = find_socket(theirs, ours) else { return false };
            let owner = find_socket_owner(&format!("socket:[{}]", socket.inode), SearchScope::All);
            owner.is_some_and(|owner| exec::is_guarded(owner.pid))
        };
        // What cannot be found out is left to the other checks.
        run_lookup(look).await == Some(true)
    }
}

/// Reports whether a process is an agent of others that asks this gateway before its calls, or a command of one.
pub async fn is_guarded(pid: Option<i32>) -> bool {
    let Some(pid) = pid else { return false };
    run_lookup(move || exec::is_guarded(pid)).await != Some(false)
}

/// Remembers the program that started the hook process `pid`.
pub async fn remember_hook(pid: Option<i32>) {
    if let Some(pid) = pid {
        run_lookup(move || exec::remember_hook(pid)).await;
    }
}

/// Remembers the proxy `pid`, whose agent runs below it.
pub async fn remember_proxy(pid: Option<i32>) {
    if let Some(pid) = pid {
        run_lookup(move || exec::remember_proxy(pid)).await;
    }
}

/// Held while all processes are gone through.
static TURN: Semaphore = Semaphore::const_new(1);

/// Most searches at the same time: other users of a thread, or a descriptor, do not wait for a flood of connections.
const MOST_LOOKS: usize = 8;
static LOOKS: Semaphore = Semaphore::const_new(MOST_LOOKS);

/// Looks on a thread of its own. `None` if that ended badly.
async fn run_lookup<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let place = LOOKS.acquire().await.ok()?;
    let look = move || {
        let _place = place;
        look()
    };
    tokio::task::spawn_blocking(look).await.ok()
}

fn is_trusted_peer(theirs: SocketAddr, ours: SocketAddr, among: SearchScope) -> bool {
    let socket = match find_socket(theirs, ours) {
        Ok(Some(socket)) => socket,
        Ok(None) if !is_of_this_machine(theirs) => return true,
        _ if among == SearchScope::Known => return false,
        // It was here and has gone: a caller that decides waits for the answer.
        Ok(None) => return false,
        Err(error) => {
            tracing::warn!(%error, "failed to identify the process of a connection from this machine");
            return !is_of_this_machine(theirs);
        }
    };
    let socket_link = format!("socket:[{}]", socket.inode);
    is_a_persons(socket, geteuid().as_raw(), &socket_link, among)
        && find_socket(theirs, ours).is_ok_and(|found| found.is_some_and(|found| found.inode == socket.inode))
}

/// Reports whether a process that acts for no agent has a socket of this machine open, as far as a process of the user `us` can see.
fn is_a_persons(socket: PeerSocket, us: u32, socket_link: &str, among: SearchScope) -> bool {
    // A command's socket has the command's user: ours unless we are root, who can become any user, or one that our user may become.
    if us != 0 && socket.user != us && !users::may_be_a_commands(socket.user) {
        let is_nobodys = || exec::acting_processes().is_ok_and(|acting| is_open_in_none(&acting, socket, socket_link));
        return among == SearchScope::All && socket.inode != 0 && is_nobodys();
    }
    match find_socket_owner(socket_link, among) {
        // Its own connections are those of commands.
        Some(held) if held.pid == getpid().as_raw() => !exec::has_begun(),
        // It still has it after the look: its number has not come to mean another process.
        Some(held) => exec::acts_for_agent(held.pid) == Some(false) && held.is_there(socket_link),
        // It is open in none while it is on its way from one process to another, and in none that we can see if that is in another
        // namespace or forbids the look. Without a command it can only be another program.
        None => among == SearchScope::All && exec::nobody_acts(),
    }
}

/// Reports whether it is certain that none of these has a socket open.
fn is_open_in_none(acting: &BTreeSet<i32>, socket: PeerSocket, socket_link: &str) -> bool {
    // A process without privileges has one user in all of its threads: those of others need not be gone through.
    let may = |pid: &i32| is_of(Path::new(&format!("/proc/{pid}")), socket.user);
    !acting.iter().any(|pid| may(pid) && holds_socket(*pid, socket_link, socket.user))
}

/// Reports whether an address may be one of this machine's: a command chooses freely from which of them it connects.
fn is_of_this_machine(address: SocketAddr) -> bool {
    let mut own = match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, 0),
        // One of a link only counts together with its interface.
        IpAddr::V6(_) => address,
    };
    own.set_port(0);
    // Only this answer says that no interface has it. Any other failure, such as no descriptors left, says nothing.
    let is_taken = UdpSocket::bind(own).map_or_else(|error| error.kind() != io::ErrorKind::AddrNotAvailable, |_| true);
    // If any address can be bound, as with some load balancers, that proves nothing either.
    is_taken && (!is_any_bound(own) || own.ip().is_loopback() || is_own_address(own.ip()))
}

fn is_any_bound(address: SocketAddr) -> bool {
    let version = if address.is_ipv4() { "ipv4" } else { "ipv6" };
    let setting = fs::read_to_string(format!("/proc/sys/net/{version}/ip_nonlocal_bind"));
    setting.is_ok_and(|value| value.trim() != "0")
}

/// Reports whether a process has a socket open, in any of its threads; and if it hides that, whether it could.
fn holds_socket(pid: i32, socket_link: &str, user: u32) -> bool {
    let threads = match fs::read_dir(format!("/proc/{pid}/task")) {
        Ok(threads) => threads,
        Err(error) => return !has_gone(&error),
    };
    for thread in threads.flatten() {
        let place = thread.path();
        match has_open(&place, socket_link) {
            Ok(true) => return true,
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                // An ended process has nothing open, and forbids the look either.
                if !has_ended(&place) && is_of(&place, user) {
                    return true;
                }
            }
            // It ended while it was looked at; or that is unknown.
            Err(error) if has_gone(&error) => {}
            Err(_) => return true,
        }
    }
    false
}

/// Reports whether a failed look means that the process has ended.
fn has_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ESRCH as i32)
}

fn has_open(place: &Path, socket_link: &str) -> io::Result<bool> {
    let open = fs::read_dir(place.join("fd"))?;
    Ok(open.flatten().any(|one| fs::read_link(one.path()).is_ok_and(|target| target.as_os_str() == socket_link)))
}

fn has_ended(place: &Path) -> bool {
    match fs::read_to_string(place.join("stat")) {
        Ok(stat) => stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X'])),
        Err(error) => has_gone(&error),
    }
}

/// Reports whether a thread has, or had, the rights of `user`.
fn is_of(place: &Path, user: u32) -> bool {
    let status = fs::read_to_string(place.join("status")).unwrap_or_default();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    users.is_none_or(|users| users.split_ascii_whitespace().any(|one| one.parse() == Ok(user)))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{IoSlice, Read as _},
        net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
        os::{fd::AsRawFd as _, unix::net::UnixStream},
    };

    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
    use tokio::{io::AsyncWriteExt as _, net::TcpSocket};

    use super::{SearchScope, TcpPeer, find_socket, holds_socket, is_a_persons, is_of_this_machine, is_trusted_peer};

    /// A command that runs below this process until it is dropped.
    struct SleepCommand(std::process::Child);

    impl SleepCommand {
        fn start() -> Self {
            Self(std::process::Command::new("sleep").arg("600").spawn().unwrap())
        }
    }

    impl Drop for SleepCommand {
        fn drop(&mut self) {
            // It may have ended.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

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
    async fn a_local_connection_that_resets_after_its_requests_counts_as_a_command() {
        let _command = SleepCommand::start();
        for ip in own_addresses() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let client = TcpSocket::new_v4().unwrap();
            client.bind(SocketAddr::new(ip, 0)).unwrap();
            let mut client = client.connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut server, theirs) = listener.accept().unwrap();
            let ours = server.local_addr().unwrap();
            assert_eq!(theirs.ip(), ip);
            // The beginning of another request hides the end of the line from a reader of the first.
            let request = b"POST /api/v1/gates/g/allow HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\nGET / HT";
            client.write_all(request).await.unwrap();
            client.set_zero_linger().unwrap();
            drop(client);
            // Its bytes can be read still, and the system knows nothing of it any more.
            let mut received = vec![0; request.len()];
            server.read_exact(&mut received).unwrap();
            assert_eq!(find_socket(theirs, ours).unwrap(), None, "{ip}");
            assert!(!is_trusted_peer(theirs, ours, SearchScope::All), "{ip}");
        }
    }

    #[test]
    fn what_no_interface_has_is_elsewhere() {
        let _command = SleepCommand::start();
        // These are for documentation alone. One goes on to the other's form when a port listens to both.
        for elsewhere in ["198.51.100.7:4000", "[::ffff:198.51.100.7]:4000"] {
            let elsewhere = elsewhere.parse().unwrap();
            assert!(!is_of_this_machine(elsewhere), "{elsewhere}");
            assert!(is_trusted_peer(elsewhere, "127.0.0.1:1".parse().unwrap(), SearchScope::All), "{elsewhere}");
        }
        for here in ["127.0.0.1:4000", "127.3.2.1:4000", "[::ffff:127.0.0.1]:4000"] {
            assert!(is_of_this_machine(here.parse().unwrap()), "{here}");
        }
    }

    #[test]
    fn a_socket_of_our_user_that_is_on_its_way_between_processes_is_a_commands() {
        let _command = SleepCommand::start();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, theirs) = listener.accept().unwrap();
        let ours = server.local_addr().unwrap();
        // This process has begun no command here, and so is trusted.
        assert!(is_trusted_peer(theirs, ours, SearchScope::All));
        let (here, _there) = UnixStream::pair().unwrap();
        let given = [client.as_raw_fd()];
        let given = [ControlMessage::ScmRights(&given)];
        sendmsg::<()>(here.as_raw_fd(), &[IoSlice::new(b"x")], &given, MsgFlags::empty(), None).unwrap();
        drop(client);
        let socket = find_socket(theirs, ours).unwrap().unwrap();
        assert!(socket.inode != 0 && !is_trusted_peer(theirs, ours, SearchScope::All));
        // A socket that another user's program opened is not a command's, unless this one is root.
        let socket_link = format!("socket:[{}]", socket.inode);
        for (us, expected) in [(socket.user, false), (0, false), (socket.user + 1, true)] {
            assert_eq!(is_a_persons(socket, us, &socket_link, SearchScope::All), expected, "{us}");
        }
    }

    #[tokio::test]
    async fn a_line_without_addresses_decides_nothing() {
        assert!(!TcpPeer::default().may_decide().await);
    }

    #[test]
    fn the_process_behind_a_connection_is_found_until_it_goes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, theirs) = listener.accept().unwrap();
        let ours = server.local_addr().unwrap();
        let socket = find_socket(theirs, ours).unwrap().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(holds_socket(own, &format!("socket:[{}]", socket.inode), socket.user));
        assert!(!holds_socket(own, "socket:[0]", socket.user));
        drop(client);
        let after = find_socket(theirs, ours).unwrap();
        assert!(after.is_none_or(|after| after.inode == 0), "{after:?}");
    }
}
