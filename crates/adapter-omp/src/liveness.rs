//! Liveness of the process of a host.

use std::{fs, path::Path};

/// Reports whether a process exists and has not ended. If the system has no list of them, every one counts as alive.
pub fn is_alive(process: u32) -> bool {
    let processes = Path::new("/proc");
    if !processes.join("self").exists() {
        return true;
    }
    let Ok(stat) = fs::read_to_string(processes.join(process.to_string()).join("stat")) else { return false };
    // Its name may hold anything, brackets too. One that has ended without a wait is a Z.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}
