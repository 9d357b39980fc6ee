//! Everything that this process started, directly or not, found in `/proc` and killed.
//!
//! It must not know why. The process has to be a subreaper: then an orphan of a descendant is its child, and the set is
//! complete. Of an exec child that is dead the session is what is left to find its descendants by.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// How long a killed process may take to go before it is left to the kernel.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sends `signal` to every living descendant and says whether there was one.
pub(super) fn signal_all(signal: Signal) -> bool {
    let found = living();
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

/// Whether any descendant lives.
pub(super) fn any_living() -> bool {
    !living().is_empty()
}

/// Kills all that is left of the session that `leader` led, also what is born meanwhile. Nobody may have waited for the
/// leader yet: until then its number means nobody else. What began a session of its own is not found.
pub(crate) fn kill_session(leader: i32) {
    let started = Instant::now();
    loop {
        let left: Vec<i32> = all()
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

/// Those of which this process is the parent and that have ended without that anybody waited for them.
pub(super) fn unburied() -> Vec<Pid> {
    let own = Pid::this().as_raw();
    let ended = all().into_iter().filter(|process| process.parent == own && process.ended);
    ended.map(|process| Pid::from_raw(process.pid)).collect()
}

/// Everything that this process started, directly or not, in no order; also what has ended and nobody waited for.
pub fn descendants() -> Vec<i32> {
    let processes = all();
    let parents: BTreeMap<i32, i32> = processes.iter().map(|process| (process.pid, process.parent)).collect();
    let own = Pid::this().as_raw();
    let is_ours = |pid: &i32| {
        let mut at = *pid;
        while at > 1 {
            // One whose parent ended while all this was read belongs to another parent by now.
            let Some(parent) = parents.get(&at) else { return descends(*pid).unwrap_or(false) };
            if *parent == own {
                return true;
            }
            at = *parent;
        }
        false
    };
    parents.keys().copied().filter(is_ours).collect()
}

/// Whether this process started `pid`, directly or not. `None` if there is no such process any more.
pub fn descends(pid: i32) -> Option<bool> {
    let own = Pid::this().as_raw();
    let started = Instant::now();
    'again: while started.elapsed() < PATIENCE {
        let mut at = pid;
        while at > 1 {
            let Some(process) = one(at) else {
                // What lost its parent has another one.
                if at == pid {
                    return None;
                }
                continue 'again;
            };
            if process.parent == own {
                return Some(true);
            }
            at = process.parent;
        }
        return Some(false);
    }
    None
}

/// Whether `pid` is an exec child, of whichever process, or descends from one: what a node or another door runs for its agents.
pub fn is_command(pid: i32) -> bool {
    let mut at = pid;
    while at > 1 {
        if is_exec_child(at) {
            return true;
        }
        // What lost its parent meanwhile belongs to another, which is looked at by the next.
        let Some(process) = one(at) else { return false };
        at = process.parent;
    }
    false
}

/// All that [`is_command`] is true of, in no order.
pub fn commands() -> Vec<i32> {
    let processes = all();
    let begins: Vec<i32> = processes.iter().map(|process| process.pid).filter(|pid| is_exec_child(*pid)).collect();
    let below = begins.iter().flat_map(|child| below(*child, &processes)).map(Pid::as_raw);
    begins.iter().copied().chain(below).collect()
}

/// An exec child is known by its first argument, which nothing below it can change.
fn is_exec_child(pid: i32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).nth(1) == Some(super::Launcher::ARGUMENT.as_bytes())
}

fn one(pid: i32) -> Option<Process> {
    parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn living() -> Vec<Pid> {
    below(Pid::this().as_raw(), &all())
}

fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(one).collect()
}

struct Process {
    pid: i32,
    parent: i32,
    session: i32,
    ended: bool,
}

/// Reads `pid (name) state parent group session …`; the name may hold anything, parentheses too.
fn parse(pid: i32, stat: &str) -> Option<Process> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let ended = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some(Process { pid, parent, session, ended })
}

fn below(root: i32, processes: &[Process]) -> Vec<Pid> {
    let mut children: BTreeMap<i32, Vec<&Process>> = BTreeMap::new();
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
    use std::{
        io::{BufRead as _, BufReader},
        process::{Command, Stdio},
    };

    use nix::{
        sys::signal::{Signal, kill},
        unistd::Pid,
    };

    use super::{below, commands, descendants, descends, is_command, parse};

    #[test]
    fn what_an_exec_child_runs_is_a_command_whoever_started_it() {
        let place = tempfile::tempdir().unwrap();
        // A shell reads the script of this name, and so has the argument by which an exec child is known.
        std::fs::write(place.path().join("__exec"), "sleep 600 & echo $!; wait").unwrap();
        let mut child = Command::new("sh");
        child.arg("__exec").current_dir(place.path()).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let command: i32 = said.trim().parse().unwrap();
        let found = commands();
        for pid in [child.id().cast_signed(), command] {
            assert!(is_command(pid) && found.contains(&pid), "{pid}");
        }
        let own = Pid::this().as_raw();
        assert!(!is_command(own) && !found.contains(&own) && !is_command(1));
        child.kill().unwrap();
        child.wait().unwrap();
        kill(Pid::from_raw(command), Signal::SIGKILL).unwrap();
    }

    #[test]
    fn what_this_process_started_descends_from_it_until_it_is_gone() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id().cast_signed();
        assert_eq!(descends(pid), Some(true));
        assert!(descendants().contains(&pid));
        assert_eq!(descends(1), Some(false));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(descends(pid), None);
        assert!(!descendants().contains(&pid));
    }

    #[test]
    fn descendants_are_all_that_hang_below_and_live() {
        let stats = [
            (2, "2 (sh) S 1 2 2"),
            (3, "3 (a) b) (c) R 2 2 2"),
            (4, "4 (gone) Z 2 2 2"),
            (5, "5 (other) S 9 2 2"),
            (6, "6 (under the dead) S 4 2 2"),
        ];
        let processes: Vec<_> = stats.iter().filter_map(|(pid, stat)| parse(*pid, stat)).collect();
        let mut found = below(1, &processes);
        found.sort_unstable();
        assert_eq!(found, [2, 3, 6].map(Pid::from_raw));
    }
}
