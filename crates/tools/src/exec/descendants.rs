//! Everything that this process started, directly or not, found in `/proc` and killed.
//!
//! It must not know why. The process has to be a subreaper: then an orphan of a descendant is its child, and the set is
//! complete. Of an exec child that is dead the session is what is left to find its descendants by.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Longest time that a killed process may take to go before it is left to the kernel.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Sends `signal` to every living descendant and reports whether there was one.
pub(super) fn signal_all(signal: Signal) -> bool {
    let found = living_descendants();
    for pid in &found {
        // It may have ended meanwhile.
        let _ = kill(*pid, signal);
    }
    !found.is_empty()
}

/// Kills every descendant, also those that are born meanwhile, and is back when none lives.
pub(super) fn kill_all() {
    let started = Instant::now();
    while signal_all(Signal::SIGKILL) && started.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Reports whether any descendant lives.
pub(super) fn any_living() -> bool {
    !living_descendants().is_empty()
}

/// Kills all processes of the session that `leader` led, also those born meanwhile. The leader must not have been waited for:
/// until then its number means no other process. A process that began a session of its own is not found.
pub(crate) fn kill_session(leader: i32) {
    let started = Instant::now();
    loop {
        let left: Vec<i32> = all_processes()
            .iter()
            .filter(|process| process.session == leader && !process.ended)
            .map(|process| process.pid)
            .collect();
        if left.is_empty() || started.elapsed() >= PATIENCE {
            return;
        }
        for pid in left {
            // It may have ended meanwhile.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A child of this process.
pub(super) struct ChildInfo {
    pub(super) pid: Pid,
    /// True if it ended and was not waited for yet.
    pub(super) ended: bool,
}

/// Returns the processes of which this one is the parent, also those that hide their details.
pub(super) fn child_processes() -> Vec<ChildInfo> {
    let own = Pid::this().as_raw();
    let children = all_processes().into_iter().filter(|process| process.parent == own);
    let mut found: Vec<ChildInfo> =
        children.map(|process| ChildInfo { pid: Pid::from_raw(process.pid), ended: process.ended }).collect();
    for pid in named_as_children() {
        if found.iter().all(|child| child.pid != pid) {
            found.push(ChildInfo { pid, ended: false });
        }
    }
    found
}

/// Returns the children of this process by name alone, which `/proc` shows even if it hides the details of processes.
pub(super) fn named_as_children() -> Vec<Pid> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let texts = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    texts
        .flat_map(|text| text.split(' ').filter_map(|pid| pid.parse().ok()).map(Pid::from_raw).collect::<Vec<_>>())
        .collect()
}

/// Reads a process. `None` for one that does not exist or is not visible.
///
/// # Errors
/// It cannot be read, as when no descriptor is left.
pub(super) fn read_process(pid: i32) -> io::Result<Option<ProcessInfo>> {
    Ok(read_proc_file(pid, "stat")?.and_then(|stat| parse_stat(pid, &String::from_utf8_lossy(&stat))))
}

/// Most bytes read of a `/proc` file of a process: its arguments can be as long as it likes.
const MOST: u64 = 64 * 1024;

/// Reads the file of a process in `/proc` under a name, from its beginning. `None` if there is no such process, or the file is
/// not visible.
///
/// # Errors
/// It cannot be read, as when no descriptor is left.
pub(super) fn read_proc_file(pid: i32, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let read = || fs::File::open(format!("/proc/{pid}/{name}"))?.take(MOST).read_to_end(&mut bytes);
    match { read }() {
        Ok(_) => Ok(Some(bytes)),
        Err(error) if says_nothing_is_there(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns true if a failure to look into a process means that it has gone, or is another user's.
pub(super) fn says_nothing_is_there(error: &io::Error) -> bool {
    let known = [Errno::ENOENT, Errno::ESRCH, Errno::EACCES, Errno::EPERM].map(|errno| errno as i32);
    error.raw_os_error().is_some_and(|number| known.contains(&number))
}

fn living_descendants() -> Vec<Pid> {
    let mut found = descendants_of(Pid::this().as_raw(), &all_processes());
    let more = child_processes().into_iter().filter(|child| !child.ended).map(|child| child.pid);
    let more: Vec<Pid> = more.filter(|pid| !found.contains(pid)).collect();
    found.extend(more);
    found
}

/// Returns all visible processes.
pub(super) fn all_processes() -> Vec<ProcessInfo> {
    all_pids().unwrap_or_default().into_iter().filter_map(|pid| read_process(pid).ok()?).collect()
}

/// Returns the numbers of all processes that this one may see.
///
/// # Errors
/// They cannot be listed.
pub(super) fn all_pids() -> io::Result<Vec<i32>> {
    let names = fs::read_dir("/proc")?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    Ok(names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect())
}

pub(super) struct ProcessInfo {
    pub(super) pid: i32,
    pub(super) parent: i32,
    session: i32,
    ended: bool,
    /// True if it is ending: its arguments are gone by now, and its children will have another parent. Not so if other threads
    /// continue after the first.
    pub(super) is_ending: bool,
}

/// Reads `pid (name) state parent group session terminal its-group flags …`, of which the 20th is the number of threads; the name
/// may hold anything, parentheses too. `None` for one that is just being released: the kernel gives 0 for its parent then, which
/// is no process.
fn parse_stat(pid: i32, stat: &str) -> Option<ProcessInfo> {
    const ENDING: u32 = 4;
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let ended = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok().filter(|session| *session >= 0)?;
    let flags: u32 = fields.nth(2)?.parse().ok()?;
    let threads: u32 = fields.nth(10).and_then(|threads| threads.parse().ok()).unwrap_or(1);
    let goes_on = ended && threads > 1;
    Some(ProcessInfo { pid, parent, session, ended, is_ending: flags & ENDING != 0 && !goes_on })
}

fn descendants_of(root: i32, processes: &[ProcessInfo]) -> Vec<Pid> {
    let mut children: BTreeMap<i32, Vec<&ProcessInfo>> = BTreeMap::new();
    for process in processes {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut ahead = vec![root];
    while let Some(parent) = ahead.pop() {
        for process in children.remove(&parent).into_iter().flatten() {
            ahead.push(process.pid);
            if !process.ended {
                found.push(Pid::from_raw(process.pid));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use nix::unistd::Pid;

    use super::{descendants_of, parse_stat};

    #[test]
    fn descendants_are_all_that_hang_below_and_live() {
        let stats = [
            (2, "2 (sh) S 1 2 2 0 -1 4194560"),
            (3, "3 (a) b) (c) R 2 2 2 0 -1 4194304"),
            (4, "4 (gone) Z 2 2 2 0 -1 4194564"),
            (5, "5 (other) S 9 2 2 0 -1 4194304"),
            (6, "6 (under the dead) S 4 2 2 0 -1 4194304"),
            (7, "7 (let go of) X 0 -1 -1 0 -1 4194564"),
            (8, "8 (without its first thread) Z 9 2 2 0 -1 4194564 0 0 0 0 0 0 0 0 20 0 2 0 99"),
            (9, "9 (gone) Z 1 2 2 0 -1 4194564 0 0 0 0 0 0 0 0 20 0 1 0 99"),
        ];
        let processes: Vec<_> = stats.iter().filter_map(|(pid, stat)| parse_stat(*pid, stat)).collect();
        let mut found = descendants_of(1, &processes);
        found.sort_unstable();
        // Processes below one that has ended live.
        assert_eq!(found, [2, 3, 5, 6].map(Pid::from_raw));
        // It has no parent any more: it cannot be excluded that it is below a process.
        assert!(processes.iter().all(|process| process.pid != 7));
        let ending: Vec<i32> =
            processes.iter().filter(|process| process.is_ending).map(|process| process.pid).collect();
        assert_eq!(ending, [4, 9]);
    }
}
