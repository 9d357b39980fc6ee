//! Whether the process of a host is still there.

use std::{fs, path::Path};

/// Whether a process is there and has not ended. Where the system has no list of them, every one is taken to be.
pub fn is_alive(process: u32) -> bool {
    let processes = Path::new("/proc");
    if !processes.join("self").exists() {
        return true;
    }
    let Ok(stat) = fs::read_to_string(processes.join(process.to_string()).join("stat")) else { return false };
    // Its name may hold anything, brackets too. One that has ended and that nobody waited for is a Z.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}
