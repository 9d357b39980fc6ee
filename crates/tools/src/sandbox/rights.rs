//! Privileges of a superuser's commands beyond its files.
//!
//! It must not know settings: they are the same in every mode that confines commands.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

/// Capabilities that stay, if present: files of other users and their owners, ports below 1024. Without the others no command
/// looks into processes past landlock (since Linux 6.13 `CAP_PERFMON` and `CAP_SYS_ADMIN` read their memory), captures the
/// network or changes the machine.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// Drops all others, for the calling thread and every process that it starts from now on, irrevocably.
///
/// # Errors
/// Errors of the system, after which nothing may be started.
pub(super) fn give_up() -> io::Result<()> {
    let had = capabilities(None)?;
    for other in CapabilitySet::all().difference(KEPT).iter() {
        // Capabilities unknown to the kernel are in no set.
        if capability_is_in_bounding_set(other).unwrap_or(false) && had.effective.contains(CapabilitySet::SETPCAP) {
            remove_capability_from_bounding_set(other)?;
        }
    }
    // An old kernel has none.
    let _ = clear_ambient_capability_set();
    let left = |set: CapabilitySet| set.intersection(KEPT);
    let CapabilitySets { effective, permitted, inheritable } = had;
    let sets =
        CapabilitySets { effective: left(effective), permitted: left(permitted), inheritable: left(inheritable) };
    Ok(set_capabilities(None, sets)?)
}
