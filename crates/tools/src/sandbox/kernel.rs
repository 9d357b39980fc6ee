//! Kernel features for the confinement of commands.
//!
//! It must not restrict anything.

use std::{fs, sync::OnceLock};

use landlock::{ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _, Scope};

/// Features of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSupport {
    /// The first version of landlock's interface with all that it has; 0 is no landlock. Only 1, 3, 4 and 6 are distinguished.
    pub landlock: u8,
    /// True if system calls can be refused.
    pub seccomp: bool,
}

impl KernelSupport {
    /// Without either.
    pub const NONE: Self = Self { landlock: 0, seccomp: false };

    /// Returns the features of the running kernel, which are read once.
    pub fn running_kernel() -> Self {
        static HERE: OnceLock<KernelSupport> = OnceLock::new();
        *HERE.get_or_init(|| {
            let actions = fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
            Self { landlock: landlock_version(), seccomp: actions.split_whitespace().any(|action| action == "errno") }
        })
    }

    /// Describes the missing features, if any, in words that follow "and".
    pub fn missing_support(self) -> Option<String> {
        let landlock = match self.landlock {
            0 => Some("this kernel has no landlock (it came with Linux 5.13, and can be turned off at boot)"),
            1 | 2 => Some("the landlock of this kernel is too old (version 3 came with Linux 6.2)"),
            _ => None,
        };
        let seccomp = (!self.seccomp).then_some("this kernel cannot filter system calls (seccomp is missing)");
        let all: Vec<&str> = landlock.into_iter().chain(seccomp).collect();
        (!all.is_empty()).then(|| all.join(", and "))
    }
}

fn landlock_version() -> u8 {
    let strict = || Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let files = |version| strict().handle_access(AccessFs::from_all(version)).and_then(Ruleset::create).is_ok();
    let network = || strict().handle_access(AccessNet::from_all(ABI::V4)).and_then(Ruleset::create).is_ok();
    let scopes = || strict().scope(Scope::from_all(ABI::V6)).and_then(Ruleset::create).is_ok();
    match () {
        () if !files(ABI::V1) => 0,
        () if !files(ABI::V3) => 1,
        () if !network() => 3,
        () if !scopes() => 4,
        () => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::KernelSupport;

    #[test]
    fn a_kernel_lacks_what_does_not_hold() {
        for (landlock, seccomp, want) in [
            (6, true, None),
            (3, true, None),
            (1, true, Some("too old")),
            (0, true, Some("no landlock")),
            (6, false, Some("seccomp is missing")),
        ] {
            let got = KernelSupport { landlock, seccomp }.missing_support();
            assert_eq!(got.is_some(), want.is_some(), "{landlock} {seccomp}");
            assert!(want.is_none_or(|want| got.unwrap().contains(want)), "{landlock} {seccomp}");
        }
    }
}
