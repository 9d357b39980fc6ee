//! Which processes of this machine act for agents: what hangs below this process, below another gateway, door or node of ours, or below
//! an exec child, whoever started that.
//!
//! A command can change its own name and arguments, and those of its exec child, and it can kill that. What is above the exec child
//! takes in what is left and lets no command look into it ([`take_in`](super::take_in)), so all that is below it counts. It must not know
//! what acting processes may do.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fs,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::Path,
    time::Instant,
};

use nix::unistd::Pid;

use super::{
    Launcher,
    descendants::{PATIENCE, all, one},
};

/// What our program is told to be when it runs commands for agents.
const DOORS: [&[u8]; 5] = [b"serve", b"node", b"omp", b"gjc", b"demo"];
/// The flags that have a value, and may stand before what it is told to be.
const WITH_VALUE: [&[u8]; 2] = [b"--config", b"--data"];

/// All that act for agents, in no order; also what has ended and nobody waited for.
pub fn acting() -> BTreeSet<i32> {
    let own = Pid::this().as_raw();
    let parents: BTreeMap<i32, i32> = all().iter().map(|process| (process.pid, process.parent)).collect();
    let kinds: BTreeMap<i32, Kind> = parents.keys().map(|pid| (*pid, kind(*pid, own))).collect();
    let acts = |pid: &i32| {
        let mut at = *pid;
        while at > 0 {
            let kind = kinds.get(&at).copied().unwrap_or(Kind::Other);
            if kind == Kind::Exec || (kind == Kind::Door && at != *pid) {
                return true;
            }
            // One whose parent ended while all this was read belongs to another parent by now.
            let Some(parent) = parents.get(&at) else { return acts(*pid).unwrap_or(true) };
            at = *parent;
        }
        false
    };
    parents.keys().copied().filter(acts).collect()
}

/// Other gateways, doors and nodes of ours on this machine that act for no agent themselves.
pub fn doors() -> Vec<i32> {
    let own = Pid::this().as_raw();
    let others = all().into_iter().map(|process| process.pid).filter(|pid| *pid != own);
    others.filter(|pid| kind(*pid, own) == Kind::Door && acts(*pid) == Some(false)).collect()
}

/// Whether `pid` acts for an agent. `None` if there is no such process any more.
pub fn acts(pid: i32) -> Option<bool> {
    let own = Pid::this().as_raw();
    let started = Instant::now();
    'again: while started.elapsed() < PATIENCE {
        let mut at = pid;
        while at > 0 {
            let kind = kind(at, own);
            if kind == Kind::Exec || (kind == Kind::Door && at != pid) {
                return Some(true);
            }
            let Some(process) = one(at) else {
                // What lost its parent has another one.
                if at == pid {
                    return None;
                }
                continue 'again;
            };
            at = process.parent;
        }
        return Some(false);
    }
    Some(true)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Runs commands for agents; what is below it acts for them. A person's host starts it, so that it itself does not.
    Door,
    /// Holds such commands.
    Exec,
    Other,
}

fn kind(pid: i32, own: i32) -> Kind {
    if pid == own {
        return Kind::Door;
    }
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut arguments = line.split(|byte| *byte == 0);
    let program = arguments.next().unwrap_or_default();
    if arguments.clone().next() == Some(Launcher::ARGUMENT.as_bytes()) {
        return Kind::Exec;
    }
    while let Some(argument) = arguments.next() {
        if WITH_VALUE.contains(&argument) {
            arguments.next();
        } else if !argument.starts_with(b"-") {
            return if DOORS.contains(&argument) && is_ours(pid, program) { Kind::Door } else { Kind::Other };
        }
    }
    Kind::Other
}

/// Whether a process runs our program: this file, or one of its name. The file of one that lets nobody look is not known.
fn is_ours(pid: i32, program: &[u8]) -> bool {
    let name = Path::new(OsStr::from_bytes(program)).file_name().unwrap_or_default();
    let own = std::env::current_exe().ok().and_then(|own| own.file_name().map(OsString::from));
    let file = |path: &str| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let is_this_file =
        || file(&format!("/proc/{pid}/exe")).is_some_and(|theirs| file("/proc/self/exe") == Some(theirs));
    name == "countersign" || own.is_some_and(|own| own == name) || is_this_file()
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{BufRead as _, BufReader},
        os::unix::fs::symlink,
        process::{Child, Command, Stdio},
    };

    use nix::{
        sys::signal::{Signal, kill},
        unistd::Pid,
    };

    use super::{Kind, acting, acts, kind};

    /// A shell under a name and with arguments, that runs one command in the background and says its number.
    fn started(program: &str, arguments: &[&str]) -> (tempfile::TempDir, Child, i32) {
        let place = tempfile::tempdir().unwrap();
        let shell = place.path().join(program);
        symlink("/bin/sh", &shell).unwrap();
        // The shell reads the script of this name.
        fs::write(place.path().join(arguments[0]), "sleep 600 & echo $!; wait").unwrap();
        let mut child = Command::new(&shell);
        child.args(arguments).current_dir(place.path()).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        (place, child, said.trim().parse().unwrap())
    }

    #[test]
    fn what_a_door_or_an_exec_child_runs_acts_for_agents_whoever_started_it() {
        for (program, arguments, expected) in [
            ("sh", &["__exec"][..], Kind::Exec),
            ("countersign", &["node", "--url", "ws://a/ws"], Kind::Door),
            ("countersign", &["omp", "--mode", "rpc"], Kind::Door),
            ("countersign", &["gates", "node"], Kind::Other),
            ("other", &["node"], Kind::Other),
        ] {
            let (_place, mut child, command) = started(program, arguments);
            let pid = child.id().cast_signed();
            assert_eq!(kind(pid, 0), expected, "{program} {arguments:?}");
            kill(Pid::from_raw(command), Signal::SIGKILL).unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn all_that_hangs_below_this_process_acts_until_it_is_gone_and_nobody_above_does() {
        let (_place, mut child, command) = started("sh", &["script"]);
        let pid = child.id().cast_signed();
        let found = acting();
        for pid in [pid, command] {
            assert!(acts(pid) == Some(true) && found.contains(&pid), "{pid}");
        }
        let own = Pid::this().as_raw();
        assert!(acts(own) == Some(false) && !found.contains(&own));
        assert!(acts(1) == Some(false) && !found.contains(&1));
        kill(Pid::from_raw(command), Signal::SIGKILL).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(acts(pid), None);
        assert!(!acting().contains(&pid));
    }
}
