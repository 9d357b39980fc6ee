//! What holds one exec child: made in the gateway, put on by the child before it has a second thread.
//!
//! It must not know settings.

use std::{
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, PathBeneath, Ruleset, RulesetAttr as _, RulesetCreated,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, make_bitflags,
};
use nix::{
    fcntl::{OFlag, open, readlink},
    sys::stat::Mode,
};
use serde::{Deserialize, Serialize};

use super::{NetworkAccess, devices, rights, syscalls, trees};

/// What may be done in a folder that may be written to. No devices are made.
const WRITE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    WriteFile | Truncate | RemoveDir | RemoveFile | MakeDir | MakeReg | MakeSock | MakeFifo | MakeSym | Refer
});
/// Of that, what can be done with a file.
const WRITE_FILE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{WriteFile | Truncate});
/// What reading is, where only some may be read.
const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{Execute | ReadFile | ReadDir});
/// Of that, what can be done with a file.
const READ_FILE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{Execute | ReadFile});

/// Devices that programs write to.
const DEVICES: &[&str] =
    &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"];
/// Where the terminals of people are, beside those that a program makes: whoever may open one draws on it what a person would believe,
/// and reads what is typed.
const TERMINALS: &str = "/dev/pts";
/// What programs cannot do without.
const SYSTEM: &[&str] = &[
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/proc", "/sys", "/dev",
    "/run",
];

/// What a child and everything that it starts may touch. Paths are real.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SandboxBounds {
    /// The working folder, which may lie in a protected one.
    pub(crate) workspace: Option<PathBuf>,
    /// What else may be written.
    pub(crate) write: Vec<PathBuf>,
    /// What may be read beside that; none is everything.
    pub(crate) read: Option<Vec<PathBuf>>,
    /// What of all that may not be written.
    pub(crate) protected: Vec<PathBuf>,
    /// What of all that may not be read.
    pub(crate) unreadable: Vec<PathBuf>,
    /// Whether other machines are reached.
    pub(crate) network: NetworkAccess,
    /// Whether to give up where it does not hold.
    pub(crate) must_hold: bool,
}

/// Why a child is not held.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BoundsError {
    #[error("landlock: {0}")]
    Landlock(#[from] RulesetError),
    #[error("landlock does not hold, whatever the kernel said before")]
    NotHeld,
    #[error("seccomp: {0}")]
    Seccomp(#[from] seccompiler::Error),
    #[error("the superuser's rights cannot be given up: {0}")]
    Rights(#[from] std::io::Error),
}

impl SandboxBounds {
    /// Holds the calling thread and whatever it starts from now on, for good.
    ///
    /// # Errors
    /// [`BoundsError`], after which nothing may be started.
    pub(crate) fn put_on(&self) -> Result<(), BoundsError> {
        rights::give_up()?;
        let held = self.restrict_files()?;
        if self.must_hold && !held {
            return Err(BoundsError::NotHeld);
        }
        match syscalls::refuse_syscalls(&self.network) {
            Err(error) if self.must_hold => Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, "no system call is refused to commands");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn restrict_files(&self) -> Result<bool, RulesetError> {
        let mut unreadable = self.unreadable.clone();
        if !self.write.iter().any(|tree| Path::new(TERMINALS).starts_with(tree)) {
            unreadable.push(PathBuf::from(TERMINALS));
        }
        let is_meant = |device: &PathBuf| {
            self.write.iter().any(|tree| tree.starts_with(devices::FOLDER) && device.starts_with(tree))
        };
        let mut raw = devices::raw_devices();
        raw.retain(|device| !is_meant(device));
        let is_read_held = self.read.is_some() || !unreadable.is_empty() || !raw.is_empty();
        let listed = self.read.is_some();
        // Where all but a few may be read, only the reading of files is held: folders show their names.
        let (read, read_file) = match (is_read_held, listed) {
            (false, _) => (BitFlags::empty(), BitFlags::empty()),
            (true, false) => (AccessFs::ReadFile.into(), AccessFs::ReadFile.into()),
            (true, true) => (READ, READ_FILE),
        };
        let making = AccessFs::MakeChar | AccessFs::MakeBlock;
        let mut ruleset = Ruleset::default().handle_access(WRITE | making | read)?.scope(Scope::Signal)?;
        if self.network == NetworkAccess::Off {
            ruleset = ruleset.handle_access(AccessNet::from_all(ABI::V4))?;
        }
        if self.network != NetworkAccess::On {
            ruleset = ruleset.scope(Scope::AbstractUnixSocket)?;
        }
        let mut rules = LandlockRules(ruleset.create()?);
        for tree in self.workspace.iter().chain(&self.write) {
            let own: Vec<PathBuf> = self.excluded_within(tree, &self.protected, &raw);
            for part in trees::without_trees(tree, &own) {
                rules = rules.allow_path(&part, WRITE, WRITE_FILE)?;
            }
        }
        for device in DEVICES {
            rules = rules.allow_path(Path::new(device), WRITE_FILE, WRITE_FILE)?;
        }
        if is_read_held {
            let everything = vec![PathBuf::from("/")];
            let system = SYSTEM.iter().map(|path| trees::real_path(Path::new(path)));
            let named = self.read.as_ref().map(|read| {
                read.iter().cloned().chain(system).chain(self.workspace.clone()).chain(self.write.clone()).collect()
            });
            // A workspace inside of what may not be read is the exception that it is for writing.
            let mut trees_read: Vec<PathBuf> = named.unwrap_or(everything);
            trees_read.extend(self.workspace.clone());
            for tree in trees_read {
                let own = self.excluded_within(&tree, &unreadable, &raw);
                for part in trees::without_trees(&tree, &own) {
                    rules = rules.allow_path(&part, read, read_file)?;
                }
            }
        }
        let status = rules.0.restrict_self()?;
        Ok(status.ruleset != RulesetStatus::NotEnforced)
    }

    /// What of `own` counts for `tree`: for the working folder only what lies inside. The `raw` devices do where it holds all of
    /// them.
    fn excluded_within(&self, tree: &PathBuf, own: &[PathBuf], raw: &[PathBuf]) -> Vec<PathBuf> {
        let is_workspace = self.workspace.as_ref() == Some(tree);
        let of_own = own.iter().filter(|path| !is_workspace || (path.starts_with(tree) && *path != tree));
        let raw = if Path::new(devices::FOLDER).starts_with(tree) { raw } else { &[] };
        of_own.chain(raw).cloned().collect()
    }
}

struct LandlockRules(RulesetCreated);

impl LandlockRules {
    /// Allows something in the tree at `path`, or with the file there; what is not there is passed over.
    fn allow_path(self, path: &Path, tree: BitFlags<AccessFs>, file: BitFlags<AccessFs>) -> Result<Self, RulesetError> {
        let Some(found) = open_real(path) else { return Ok(self) };
        let rights = if path.is_dir() { tree } else { file };
        Ok(Self(self.0.add_rule(PathBeneath::new(found, rights))?))
    }
}

/// Opens what is at `path`, which is real, without following a link that was put there, or in the place of a folder above it, meanwhile.
fn open_real(path: &Path) -> Option<OwnedFd> {
    let found = open(path, OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW, Mode::empty()).ok()?;
    let is_link =
        nix::sys::stat::fstat(&found).is_ok_and(|stat| stat.st_mode & nix::libc::S_IFMT == nix::libc::S_IFLNK);
    let at = readlink(format!("/proc/self/fd/{}", found.as_raw_fd()).as_str()).ok()?;
    (!is_link && Path::new(&at) == path).then_some(found)
}
