//! Agents that others run, and that ask this process before their calls: they and the processes below them must not decide.
//!
//! An agent is found as the program that started a hook, and a proxy stands above the agent that it runs. A process is known by its id
//! and the time of its start, so that a later process with the same id is none of them. A command that leaves its agent's tree is
//! not found any more. It must not know what an agent asks.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use parking_lot::Mutex;

use super::{
    agent_processes::is_our_program,
    descendants::{read_proc_file, read_process},
};

/// Most agents that are kept. Those that have ended go first.
const MOST: usize = 4096;
/// Most ancestors of a process that are looked at.
const MOST_ANCESTORS: usize = 256;
/// Shells that are known where the system lists none.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ksh", "fish"];
/// List of the shells of this system.
const SYSTEM_SHELLS: &str = "/etc/shells";

/// Part of a tree of processes that must not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AgentTree {
    /// The agent and all below it.
    WithRoot,
    /// All below a proxy, which itself acts for the person at it.
    BelowRoot,
}

/// Agents that have asked, by process and the time of its start.
static AGENTS: Mutex<BTreeMap<(i32, u64), AgentTree>> = Mutex::new(BTreeMap::new());

/// Remembers the program that started the hook process `pid`. A person's shell is none.
pub fn remember_hook(pid: i32) {
    if let Some(agent) = agent_of_hook(pid) {
        remember(agent, AgentTree::WithRoot);
    }
}

/// Remembers the proxy `pid`, whose agent runs below it.
pub fn remember_proxy(pid: i32) {
    // Others only ask, as a test does.
    if is_our_program(pid) {
        remember(pid, AgentTree::BelowRoot);
    }
}

/// Reports whether a process is an agent that has asked, or is below one.
pub fn is_guarded(pid: i32) -> bool {
    let known = AGENTS.lock().clone();
    if known.is_empty() {
        return false;
    }
    ancestors(pid).any(|(at, start)| match known.get(&(at, start)) {
        Some(AgentTree::WithRoot) => true,
        Some(AgentTree::BelowRoot) => at != pid,
        None => false,
    })
}

fn remember(pid: i32, tree: AgentTree) {
    let Some(start) = start_time(pid) else { return };
    let mut agents = AGENTS.lock();
    if agents.len() >= MOST {
        agents.retain(|(pid, start), _| start_time(*pid) == Some(*start));
    }
    agents.insert((pid, start), tree);
}

/// Returns the program that started a hook: its nearest ancestor that is no shell with a text to run. At a shell that has none a person
/// or a script started it.
fn agent_of_hook(pid: i32) -> Option<i32> {
    let shells = known_shells();
    for (at, _) in ancestors(pid).skip(1).filter(|(at, _)| *at > 1) {
        let line = read_proc_file(at, "cmdline").ok()??;
        let mut words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let name = words.next().unwrap_or_default();
        // The shell of a login has a dash in front of its name.
        let name =
            Path::new(name.trim_start_matches('-')).file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !shells.contains(&name) {
            return Some(at);
        }
        let is_wrapper =
            words.take_while(|word| word.starts_with('-')).any(|word| !word.starts_with("--") && word.contains('c'));
        if !is_wrapper {
            return None;
        }
    }
    None
}

fn known_shells() -> BTreeSet<String> {
    let listed = fs::read_to_string(SYSTEM_SHELLS).unwrap_or_default();
    let listed = listed.lines().filter_map(|line| line.strip_prefix('/')?.rsplit('/').next());
    listed.chain(SHELLS).map(str::to_owned).collect()
}

/// Returns a process and those above it, each with the time of its start.
fn ancestors(pid: i32) -> impl Iterator<Item = (i32, u64)> {
    let mut next = Some(pid);
    let step = move || {
        let at = next.take().filter(|at| *at > 0)?;
        let process = read_process(at).ok()??;
        next = Some(process.parent);
        Some((at, start_time(at)?))
    };
    std::iter::from_fn(step).take(MOST_ANCESTORS)
}

/// Returns the time at which a process started, in ticks since the start of the machine.
fn start_time(pid: i32) -> Option<u64> {
    /// Position of the time behind the name of the program, which may have anything in it.
    const POSITION: usize = 19;
    let stat = read_proc_file(pid, "stat").ok()??;
    let text = String::from_utf8_lossy(&stat);
    text.rsplit_once(") ")?.1.split_ascii_whitespace().nth(POSITION)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader},
        process::{Child, Command, Stdio},
    };

    use super::{AgentTree, agent_of_hook, is_guarded, remember, remember_hook, remember_proxy};

    /// Processes of which each started the next, the first of which is killed at the end.
    struct Chain(Child, Vec<i32>);

    impl Chain {
        /// Starts an "agent" with a hook below a shell, and a command of its own.
        fn start(script: &str) -> Self {
            let mut command = Command::new("python3");
            command.args(["-c", script]).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            let pids = line.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
            Self(child, pids)
        }
    }

    impl Drop for Chain {
        fn drop(&mut self) {
            for pid in &self.1 {
                let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(*pid), nix::sys::signal::Signal::SIGKILL);
            }
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    const AGENT: &str = "
import subprocess
hook = subprocess.Popen(['sh', '-c', 'sleep 600 & echo $!; wait'], stdout=subprocess.PIPE, text=True)
command = subprocess.Popen(['sleep', '600'])
print(int(hook.stdout.readline()), hook.pid, command.pid, flush=True)
hook.wait()
";

    #[test]
    fn the_agent_of_a_hook_and_all_below_it_are_guarded_and_nothing_above() {
        let chain = Chain::start(AGENT);
        let agent = chain.0.id().cast_signed();
        let (hook, command) = (chain.1[0], chain.1[2]);
        assert_eq!(agent_of_hook(hook), Some(agent));
        assert!(!is_guarded(command));
        remember_hook(hook);
        for pid in [hook, command, agent, chain.1[1]] {
            assert!(is_guarded(pid), "{pid}");
        }
        let own = std::process::id().cast_signed();
        assert!(!is_guarded(own) && !is_guarded(1));
    }

    #[test]
    fn a_hook_that_a_shell_without_a_text_started_has_no_agent() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, "sleep 600 & echo $!; wait").unwrap();
        let mut child = Command::new("sh").arg(&script).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let chain = Chain(child, vec![line.trim().parse().unwrap()]);
        assert_eq!(agent_of_hook(chain.1[0]), None);
    }

    #[test]
    fn a_proxy_may_decide_and_the_agent_below_it_not() {
        let chain = Chain::start(AGENT);
        let proxy = chain.0.id().cast_signed();
        remember_proxy(proxy);
        assert!(!is_guarded(chain.1[0]), "only a program of ours is a proxy");
        remember(proxy, AgentTree::BelowRoot);
        assert!(!is_guarded(proxy));
        assert!(chain.1.iter().all(|pid| is_guarded(*pid)));
    }
}
