//! A process that has a socket open: looked for where the ones before were found, before all processes are gone through.
//!
//! A process with ten thousand open descriptors, such as a proxy before the gateway, would otherwise cost as many looks for each
//! connection. It must not know what a holder may do.

use std::{collections::VecDeque, ffi::OsStr, fs, os::fd::AsFd as _};

use countersign_runtime::tools::exec;
use nix::fcntl::readlinkat;
use parking_lot::Mutex;

/// Processes that had searched sockets open, with the descriptors, the newest first. A process takes its lowest free number, so that
/// those of connections that ended come again.
static BEFORE: Mutex<VecDeque<(i32, u32)>> = Mutex::new(VecDeque::new());
/// Number of these that are tried.
const MOST_BEFORE: usize = 2048;
/// Number of descriptors that are tried above the highest of these: a process that opens one connection after the other takes them next.
const ABOVE: u32 = 256;

/// Processes to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchScope {
    /// Earlier owners: a matter of a millisecond at most.
    Known,
    /// All processes that act for no agent.
    All,
}

/// A process that has a socket open, and under which number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SocketOwner {
    pub(super) pid: i32,
    number: u32,
}

impl SocketOwner {
    /// Reports whether it still has it.
    pub(super) fn is_there(self, socket_link: &str) -> bool {
        ProcessFds::for_pid(self.pid).is_some_and(|process| process.has_link(self.number, OsStr::new(socket_link)))
    }
}

/// Finds a process that has a socket open, lets that be seen, and acted for no agent when it was looked for first. It may by now.
pub(super) fn find_socket_owner(socket_link: &str, among: SearchScope) -> Option<SocketOwner> {
    let link = OsStr::new(socket_link);
    let at = find_known(link).or_else(|| if among == SearchScope::All { find_among_all(link) } else { None })?;
    let mut before = BEFORE.lock();
    before.retain(|known| *known != at);
    before.push_front(at);
    before.truncate(MOST_BEFORE);
    Some(SocketOwner { pid: at.0, number: at.1 })
}

/// Finds the socket among the earlier owners, and above it. Processes that have ended are taken out.
fn find_known(link: &OsStr) -> Option<(i32, u32)> {
    let before = BEFORE.lock().clone();
    let mut pids = Vec::new();
    for (pid, _) in &before {
        if !pids.contains(pid) {
            pids.push(*pid);
        }
    }
    pids.into_iter().find_map(|pid| {
        let Some(process) = ProcessFds::for_pid(pid) else {
            BEFORE.lock().retain(|(of, _)| *of != pid);
            return None;
        };
        let numbers = before.iter().filter(|(of, _)| *of == pid).map(|(_, number)| *number);
        let highest = numbers.clone().max().unwrap_or_default();
        let above = highest.saturating_add(1)..=highest.saturating_add(ABOVE);
        Some((pid, numbers.chain(above).find(|number| process.has_link(*number, link))?))
    })
}

/// Finds the socket in any process that acts for no agent, the youngest first: a client with one request has just begun. A command that
/// has very many open delays no other.
fn find_among_all(link: &OsStr) -> Option<(i32, u32)> {
    let acting = exec::acting_processes().ok()?;
    let pids = numeric_entries("/proc")?.filter_map(|pid| i32::try_from(pid).ok());
    let mut pids: Vec<i32> = pids.filter(|pid| !acting.contains(pid)).collect();
    pids.sort_unstable_by(|one, other| other.cmp(one));
    pids.into_iter().find_map(|pid| {
        let process = ProcessFds::for_pid(pid)?;
        numeric_entries(&format!("/proc/{pid}/fd"))?
            .find(|number| process.has_link(*number, link))
            .map(|number| (pid, number))
    })
}

/// Open descriptors of a process.
struct ProcessFds(fs::File);

impl ProcessFds {
    /// Opens the list of a process. `None` if it has ended, or forbids the look.
    fn for_pid(pid: i32) -> Option<Self> {
        fs::File::open(format!("/proc/{pid}/fd")).ok().map(Self)
    }

    fn has_link(&self, number: u32, link: &OsStr) -> bool {
        readlinkat(self.0.as_fd(), number.to_string().as_str()).is_ok_and(|target| target == link)
    }
}

/// Returns the names in a folder that are numbers.
fn numeric_entries(folder: &str) -> Option<impl Iterator<Item = u32>> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    Some(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::fd::{AsRawFd as _, OwnedFd},
        os::unix::net::UnixStream,
        process::{Command, Stdio},
    };

    use super::{ABOVE, SearchScope, find_socket_owner};

    fn name(number: i32) -> String {
        fs::read_link(format!("/proc/self/fd/{number}")).unwrap().into_os_string().into_string().unwrap()
    }

    #[test]
    fn a_socket_is_found_under_a_new_number_a_higher_one_and_one_that_was_free_again_until_nobody_has_it() {
        let own = i32::try_from(std::process::id()).unwrap();
        let mut kept = Vec::new();
        for round in 0..3 {
            let (one, other) = UnixStream::pair().unwrap();
            let socket_link = name(one.as_raw_fd());
            let held = find_socket_owner(&socket_link, SearchScope::All).unwrap();
            assert_eq!((held.pid, held.is_there(&socket_link)), (own, true), "{round}");
            assert_eq!(find_socket_owner(&socket_link, SearchScope::Known), Some(held), "{round}");
            drop(one);
            assert!(!held.is_there(&socket_link), "{round}");
            assert_eq!(find_socket_owner(&socket_link, SearchScope::All), None, "{round}");
            kept.push(other);
            // More than are tried above the highest.
            kept.extend((0..ABOVE / 2).flat_map(|_| <[_; 2]>::from(UnixStream::pair().unwrap())));
        }
    }

    #[test]
    fn a_command_that_was_given_a_socket_is_not_looked_into() {
        let (one, other) = UnixStream::pair().unwrap();
        let socket_link = name(one.as_raw_fd());
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(find_socket_owner(&socket_link, SearchScope::All).map(|held| held.pid), Some(own));
        // The builder has it as long as it lives.
        let child = Command::new("cat").stdin(Stdio::from(OwnedFd::from(one))).stdout(Stdio::null()).spawn();
        let mut child = child.unwrap();
        assert_eq!(find_socket_owner(&socket_link, SearchScope::All), None);
        drop(other);
        child.wait().unwrap();
    }
}
