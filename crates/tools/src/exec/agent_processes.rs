//! Finds the processes of this machine that act for agents: those below this process, below another gateway, adapter or node of
//! ours, or below an exec child, started by any process.
//!
//! A command can change its own name and arguments, and those of its exec child, and it can kill that. The process above the exec
//! child adopts the orphans and lets no command look into it ([`become_subreaper`](super::become_subreaper)), so all processes
//! below it count; and an exec child has a [`mark`] that all of its commands keep, also if even a node that ran them is gone. It
//! must not know what acting processes may do.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::Path,
    time::{Duration, Instant},
};

use nix::{errno::Errno, sys::signal::kill, unistd::Pid};

use super::{
    ExecLauncher,
    descendants::{ProcessInfo, all_pids, read_proc_file, read_process, says_nothing_is_there},
    mark,
    reaper::was_before,
};

/// Subcommands under which our program runs commands for agents.
const GATEWAY_COMMANDS: [&[u8]; 5] = [b"serve", b"node", b"omp", b"gjc", b"demo"];
/// Flags that have a value, and may precede the subcommand.
const WITH_VALUE: [&[u8]; 2] = [b"--config", b"--data"];

/// Returns all processes that act for agents, in no order; also ended ones that were not waited for.
///
/// # Errors
/// They cannot be listed, as when no descriptor is left: that does not mean that there are none.
pub fn acting_processes() -> io::Result<BTreeSet<i32>> {
    let mut table = ProcessTable::read_processes()?;
    let pids: Vec<i32> = table.all.keys().copied().collect();
    Ok(pids.into_iter().filter(|pid| table.acts_for_agent(*pid)).collect())
}

/// Returns true if a process is a gateway, adapter or node of ours that acts for no agent itself.
pub fn is_gateway_process(pid: i32) -> bool {
    process_kind(pid, Pid::this().as_raw()).is_ok_and(|kind| kind == ProcessKind::Gateway)
        && acts_for_agent(pid) == Some(false)
}

/// Returns true if `pid` acts for an agent, or if that cannot be found out. `None` if there is no such process any more.
pub fn acts_for_agent(pid: i32) -> Option<bool> {
    acts_by(pid, Instant::now() + PATIENCE)
}

/// Returns true if it is sure that no process acts: where `/proc` hides processes from their own user, that cannot be found out.
pub fn nobody_acts() -> bool {
    !hides_processes() && acting_processes().is_ok_and(|acting| acting.is_empty())
}

/// Returns true if `/proc` is mounted so that it hides processes, or if that cannot be found out.
fn hides_processes() -> bool {
    let Ok(mounts) = fs::read_to_string("/proc/self/mounts") else { return true };
    is_proc_hiding(&mounts)
}

/// Reads `DEVICE PLACE KIND OPTIONS …`. Of several at one place the last counts.
fn is_proc_hiding(mounts: &str) -> bool {
    let at_proc = |line: &&str| line.split(' ').nth(1) == Some("/proc");
    let options = mounts.lines().rfind(at_proc).and_then(|line| line.split(' ').nth(3));
    options.is_none_or(|options| {
        options.split(',').any(|one| one.strip_prefix("hidepid=").is_some_and(|how| !matches!(how, "0" | "off")))
    })
}

/// Returns true if there is such a process, and its user hides its details from others.
pub fn is_hidden(pid: i32) -> bool {
    read_process(pid).is_ok_and(|process| process.is_none()) && kill(Pid::from_raw(pid), None) == Err(Errno::EPERM)
}

/// Does the same as [`acts_for_agent`], with a deadline for ancestors that are going.
fn acts_by(pid: i32, end: Instant) -> Option<bool> {
    let own = Pid::this().as_raw();
    loop {
        match walk_ancestors(pid, own) {
            Ok(AncestorWalk::Says(acts)) => return Some(acts),
            Ok(AncestorWalk::Gone) => return None,
            Err(_) => return Some(true),
            Ok(AncestorWalk::Changing) if Instant::now() >= end => return Some(true),
            Ok(AncestorWalk::Changing) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Most listings of all processes until no new one has come.
const MOST_ROUNDS: usize = 32;

/// Longest time that an ancestor may take to go before it counts as one for which commands run.
const PATIENCE: Duration = Duration::from_secs(1);

/// Result of a walk over the ancestors of a process.
enum AncestorWalk {
    Says(bool),
    Gone,
    /// An ancestor is going: the processes below it have another parent then.
    Changing,
}

fn walk_ancestors(pid: i32, own: i32) -> io::Result<AncestorWalk> {
    if mark::is_on(pid)? {
        return Ok(AncestorWalk::Says(true));
    }
    let (mut at, mut child) = (pid, pid);
    while at > 0 {
        // Its subcommand comes first: an ending process has lost its arguments, and then shows that it ends.
        let kind = process_kind(at, own)?;
        let is_self = at == pid;
        let Some(process) = read_process(at)? else {
            return Ok(match kill(Pid::from_raw(at), None) {
                Err(Errno::ESRCH) if is_self => AncestorWalk::Gone,
                // It is another user's and hides its details, as `/proc` can be set to: none of ours.
                Err(Errno::EPERM) if !is_self => AncestorWalk::Says(false),
                _ => AncestorWalk::Changing,
            });
        };
        if kind == ProcessKind::Exec || (kind == ProcessKind::Gateway && !is_self && !(at == own && was_before(child)))
        {
            return Ok(AncestorWalk::Says(true));
        }
        if process.is_ending && !is_self {
            return Ok(AncestorWalk::Changing);
        }
        child = at;
        at = process.parent;
    }
    Ok(AncestorWalk::Says(false))
}

/// All processes, as they were read one after the other.
struct ProcessTable {
    own: i32,
    all: BTreeMap<i32, (ProcessKind, ProcessInfo)>,
    /// Known answers: true if the processes below a process act.
    below: BTreeMap<i32, bool>,
    /// Deadline for all processes that are going, together.
    end: Instant,
}

impl ProcessTable {
    fn read_processes() -> io::Result<Self> {
        let (own, mut all, mut seen) = (Pid::this().as_raw(), BTreeMap::new(), BTreeSet::new());
        for _ in 0..MOST_ROUNDS {
            // A new process may be the heir of a listed one, and be gone before it was examined.
            let come: Vec<i32> = all_pids()?.into_iter().filter(|pid| seen.insert(*pid)).collect();
            if come.is_empty() {
                return Ok(Self { own, all, below: BTreeMap::new(), end: Instant::now() + PATIENCE });
            }
            for pid in come {
                // In this order, as in `walk_ancestors`.
                let kind = if mark::is_on(pid)? { ProcessKind::Exec } else { process_kind(pid, own)? };
                if let Some(process) = read_process(pid)? {
                    all.insert(pid, (kind, process));
                }
            }
        }
        Err(io::Error::other("processes start and end too fast to be listed"))
    }

    fn acts_for_agent(&mut self, pid: i32) -> bool {
        let Some((kind, process)) = self.all.get(&pid) else { return acts_by(pid, self.end).unwrap_or(true) };
        if *kind == ProcessKind::Exec {
            return true;
        }
        let (mut at, mut child, mut passed) = (process.parent, pid, Vec::new());
        let acts = loop {
            if let Some(known) = self.below.get(&at).filter(|_| at != self.own) {
                break *known;
            }
            match self.all.get(&at) {
                _ if at <= 0 => break false,
                Some((ProcessKind::Gateway, process)) if at == self.own && was_before(child) => {
                    (at, child) = (process.parent, at);
                    // Processes that existed before are not all that are below.
                    continue;
                }
                Some((ProcessKind::Gateway | ProcessKind::Exec, _)) => break true,
                Some((ProcessKind::Other, process)) if !process.is_ending => {
                    passed.push(at);
                    (at, child) = (process.parent, at);
                }
                // It has another parent by now, or its ancestors are not visible.
                Some(_) | None => {
                    passed.push(at);
                    break acts_by(child, self.end).unwrap_or(true);
                }
            }
        };
        self.below.extend(passed.into_iter().map(|at| (at, acts)));
        acts
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessKind {
    /// Runs commands for agents; what is below it acts for them. A person's host starts it, so that it itself does not.
    Gateway,
    /// Holds such commands, or is one that is known by its mark.
    Exec,
    Other,
}

fn process_kind(pid: i32, own: i32) -> io::Result<ProcessKind> {
    if pid == own {
        return Ok(ProcessKind::Gateway);
    }
    let line = read_proc_file(pid, "cmdline")?.unwrap_or_default();
    let mut arguments = line.split(|byte| *byte == 0);
    let program = arguments.next().unwrap_or_default();
    if arguments.clone().next() == Some(ExecLauncher::ARGUMENT.as_bytes()) {
        return Ok(ProcessKind::Exec);
    }
    while let Some(argument) = arguments.next() {
        if WITH_VALUE.contains(&argument) {
            arguments.next();
        } else if !argument.starts_with(b"-") {
            let is_door = GATEWAY_COMMANDS.contains(&argument) && is_ours(pid, program)?;
            return Ok(if is_door { ProcessKind::Gateway } else { ProcessKind::Other });
        }
    }
    Ok(ProcessKind::Other)
}

/// Returns true if a process runs our program.
pub(super) fn is_our_program(pid: i32) -> bool {
    let line = read_proc_file(pid, "cmdline").ok().flatten().unwrap_or_default();
    is_ours(pid, line.split(|byte| *byte == 0).next().unwrap_or_default()).unwrap_or(false)
}

/// Returns true if a process runs our program: this file, or one of its name. The file of a process that hides its details is not
/// known.
fn is_ours(pid: i32, program: &[u8]) -> io::Result<bool> {
    let name = Path::new(OsStr::from_bytes(program)).file_name().unwrap_or_default();
    let own = std::env::current_exe().ok().and_then(|own| own.file_name().map(OsString::from));
    if name == "countersign" || own.is_some_and(|own| own == name) {
        return Ok(true);
    }
    let file = |path: &str| match fs::metadata(path) {
        Ok(found) => Ok(Some((found.dev(), found.ino()))),
        Err(error) if says_nothing_is_there(&error) => Ok(None),
        Err(error) => Err(error),
    };
    let theirs = file(&format!("/proc/{pid}/exe"))?;
    Ok(theirs.is_some() && theirs == file("/proc/self/exe")?)
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
        sys::{
            resource::{Resource, getrlimit, setrlimit},
            signal::{Signal, kill},
        },
        unistd::Pid,
    };

    use super::{ProcessKind, acting_processes, acts_for_agent, is_gateway_process, is_proc_hiding, process_kind};

    /// Starts a shell under a name and with arguments, which runs one command in the background and prints its number.
    fn started(program: &str, arguments: &[&str]) -> (tempfile::TempDir, Child, i32) {
        let place = tempfile::tempdir().unwrap();
        let shell = place.path().join(program);
        symlink("/bin/sh", &shell).unwrap();
        // The shell reads the script of this name.
        fs::write(place.path().join(arguments[0]), "sleep 600 & echo $!; wait").unwrap();
        let mut child = Command::new(&shell);
        child.args(arguments).current_dir(place.path()).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (place, child, line.trim().parse().unwrap())
    }

    #[test]
    fn processes_of_an_adapter_or_an_exec_child_act_for_agents() {
        for (program, arguments, expected) in [
            ("sh", &["__exec"][..], ProcessKind::Exec),
            ("countersign", &["node", "--url", "ws://a/ws"], ProcessKind::Gateway),
            ("countersign", &["omp", "--mode", "rpc"], ProcessKind::Gateway),
            ("countersign", &["gates", "node"], ProcessKind::Other),
            ("other", &["node"], ProcessKind::Other),
        ] {
            let (_place, mut child, command) = started(program, arguments);
            let pid = child.id().cast_signed();
            assert_eq!(process_kind(pid, 0).unwrap(), expected, "{program} {arguments:?}");
            kill(Pid::from_raw(command), Signal::SIGKILL).unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn a_proc_that_hides_processes_is_known() {
        let plain = "sysfs /sys sysfs rw 0 0\nproc /proc proc rw,nosuid,nodev,noexec,relatime 0 0\n";
        for (mounts, want) in [
            (plain.to_owned(), false),
            (format!("{plain}proc /proc proc rw,relatime,gid=4,hidepid=invisible 0 0\n"), true),
            (format!("{plain}proc /proc proc rw,hidepid=1 0 0\n"), true),
            (format!("{plain}proc /proc proc rw,hidepid=off 0 0\n"), false),
            ("tmpfs /tmp tmpfs rw 0 0\n".to_owned(), true),
        ] {
            assert_eq!(is_proc_hiding(&mounts), want, "{mounts}");
        }
    }

    #[test]
    fn if_processes_cannot_be_inspected_all_act_for_agents() {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let inputs = 3;
        setrlimit(Resource::RLIMIT_NOFILE, inputs, hard).unwrap();
        let found = (acting_processes().is_err(), acts_for_agent(1), is_gateway_process(1));
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
        assert_eq!(found, (true, Some(true), false));
        assert_eq!(acts_for_agent(1), Some(false));
    }

    #[test]
    fn all_that_hangs_below_this_process_acts_until_it_is_gone_and_nobody_above_does() {
        let (_place, mut child, command) = started("sh", &["script"]);
        let pid = child.id().cast_signed();
        let found = acting_processes().unwrap();
        for pid in [pid, command] {
            assert!(acts_for_agent(pid) == Some(true) && found.contains(&pid), "{pid}");
        }
        let own = Pid::this().as_raw();
        assert!(acts_for_agent(own) == Some(false) && !found.contains(&own));
        assert!(acts_for_agent(1) == Some(false) && !found.contains(&1));
        kill(Pid::from_raw(command), Signal::SIGKILL).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(acts_for_agent(pid), None);
        assert!(!acting_processes().unwrap().contains(&pid));
    }
}
