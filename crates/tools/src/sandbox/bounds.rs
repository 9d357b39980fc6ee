//! Bounds of one exec child: made in the gateway, applied by the child before it has a second thread.
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

/// Access rights to a writable folder. No devices are made.
const WRITE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    WriteFile | Truncate | RemoveDir | RemoveFile | MakeDir | MakeReg | MakeSock | MakeFifo | MakeSym | Refer
});
/// The rights of these that apply to a file.
const WRITE_FILE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{WriteFile | Truncate});
/// Access rights for reading, if reading is confined.
const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{Execute | ReadFile | ReadDir});
/// The rights of these that apply to a file.
const READ_FILE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{Execute | ReadFile});

/// Devices that programs write to.
const DEVICES: &[&str] =
    &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"];
/// Folder of people's terminals, next to those that programs make: a process that may open one draws on it a text that a person
/// would believe, and reads the typed input.
const TERMINALS: &str = "/dev/pts";
/// Paths that programs need.
const SYSTEM: &[&str] = &[
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/proc", "/sys", "/dev",
    "/run",
];

/// Bounds of a child and all processes that it starts. Paths are real.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SandboxBounds {
    /// The working folder, which may lie in a protected one.
    pub(crate) workspace: Option<PathBuf>,
    /// Other writable paths.
    pub(crate) write: Vec<PathBuf>,
    /// Readable paths in addition; none is everything.
    pub(crate) read: Option<Vec<PathBuf>>,
    /// Paths among these that may not be written.
    pub(crate) protected: Vec<PathBuf>,
    /// Paths among these that may not be read.
    pub(crate) unreadable: Vec<PathBuf>,
    /// Access to other machines.
    pub(crate) network: NetworkAccess,
    /// True to fail if the bounds cannot be enforced.
    pub(crate) must_hold: bool,
}

/// Reason that a child cannot be confined.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BoundsError {
    #[error("landlock: {0}")]
    Landlock(#[from] RulesetError),
    #[error("the kernel does not enforce landlock, although it reported support")]
    NotHeld,
    #[error("seccomp: {0}")]
    Seccomp(#[from] seccompiler::Error),
    #[error("cannot drop the capabilities of the superuser: {0}")]
    Rights(#[from] std::io::Error),
}

impl SandboxBounds {
    /// Confines the calling thread and every process that it starts from now on, irrevocably.
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
                tracing::warn!(%error, "cannot install the system call filter: commands may use every system call");
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
        // Where all but a few may be read, only the reading of files is confined: folders show their names.
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

    /// Returns the paths of `own` to exclude from `tree`: for the working folder only those inside it. The `raw` devices are
    /// excluded if it contains all of them.
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
