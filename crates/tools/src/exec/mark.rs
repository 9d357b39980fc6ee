//! A mark that no command of an agent can remove: its hard limit of bytes in message queues is lower than this process's.
//!
//! A process without privileges lowers such a limit and never raises it, and every process that it starts inherits it. So a
//! process that has lost all its ancestors, perhaps by killing them, is still recognised as a command. It must not know its
//! callers.

use std::{io, sync::OnceLock};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::descendants::read_proc_file;

const LIMIT: Resource = Resource::RLIMIT_MSGQUEUE;
/// Limit of a process that was given no other one, in bytes.
const USUAL: u64 = 819_200;

/// Marks this process and all that it starts.
///
/// # Errors
/// Errors of the system.
pub(super) fn put_on() -> io::Result<()> {
    let (soft, hard) = getrlimit(LIMIT)?;
    // Below nothing there is nothing: then only the ancestors decide.
    let marked = hard.min(USUAL).saturating_sub(1);
    Ok(setrlimit(LIMIT, soft.min(marked), marked)?)
}

/// Returns the limit of this process, as it was first read: a command of the same user can lower it later.
pub(super) fn unmarked_limit() -> u64 {
    static HARD: OnceLock<u64> = OnceLock::new();
    // If this cannot be found out, no process is marked.
    *HARD.get_or_init(|| getrlimit(LIMIT).map_or(0, |(_, hard)| hard.min(USUAL)))
}

/// Returns true if a process is marked.
///
/// # Errors
/// It cannot be found out.
pub(super) fn is_on(pid: i32) -> io::Result<bool> {
    let text = read_proc_file(pid, "limits")?.unwrap_or_default();
    Ok(parse_hard_limit(&String::from_utf8_lossy(&text)).is_some_and(|hard| hard < unmarked_limit()))
}

/// Reads `Max msgqueue size   SOFT   HARD   bytes`.
fn parse_hard_limit(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max msgqueue size"))?;
    match line.split_ascii_whitespace().nth(1)? {
        "unlimited" => Some(u64::MAX),
        bytes => bytes.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::{is_on, parse_hard_limit, unmarked_limit};

    #[test]
    fn the_limit_of_a_process_is_read() {
        let text = "Limit  Soft Limit  Hard Limit  Units\nMax pending signals  9  9  signals\nMax msgqueue size         819200               819199               bytes     \n";
        assert_eq!(parse_hard_limit(text), Some(819_199));
        assert_eq!(parse_hard_limit("Max msgqueue size  1  unlimited  bytes"), Some(u64::MAX));
        assert_eq!(parse_hard_limit("Max msgqueue size  1"), None);
        assert!(unmarked_limit() > 0 && !is_on(std::process::id().cast_signed()).unwrap());
    }
}
