//! Access of commands, independent of their text: settings, paths that are never theirs, and additional needs of one call.
//!
//! It must not know who decides about a call. The kernel enforces the decisions made here: a shell and all that it starts are
//! under landlock and seccomp before they run anything. Landlock only allows, so a tree excluded from a writable one leaves a
//! rule for each of its neighbours: nothing new can be made next to it, or on the way to it.

pub(crate) mod bounds;
mod devices;
pub(crate) mod hosts;
mod kernel;
mod messages;
mod requested_path;
mod rights;
mod syscalls;
mod trees;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::environment::CommandEnvironment;
pub(crate) use bounds::SandboxBounds;
pub use hosts::{HostError, HostPattern};
pub use kernel::KernelSupport;
use requested_path::{MissingFile, RequestedPath};
use trees::expand_home;

/// Confinement of commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SandboxMode {
    /// Commands have the rights of the user.
    #[default]
    Off,
    /// Commands may write wherever the user may, except to the gateway's own files.
    Guard,
    /// Commands may write in the working folder, folders for temporary files and the paths of the settings.
    Workspace,
}

/// Access of commands to other machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetworkAccess {
    /// Commands make no socket but those of this machine's own kind, `AF_UNIX`.
    Off,
    /// Some, through the gateway: they are in a network of their own, in which there is nothing else.
    Hosts(Vec<HostPattern>),
    /// The same access as the user.
    #[default]
    On,
}

/// Treatment of unlisted hosts that a command tries to reach, if hosts are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnlistedHosts {
    /// A person is asked while the command waits, if one can be.
    #[default]
    Ask,
    /// The host is refused.
    Refuse,
}

/// Treatment of commands if the kernel cannot confine them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissingKernel {
    /// Commands are not run.
    #[default]
    Refuse,
    /// Commands are run, with a warning.
    Warn,
}

/// The settings. Paths may begin with `~/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxSettings {
    /// Confinement of commands.
    pub mode: SandboxMode,
    /// Paths that they may write in addition to those of the mode.
    pub write: Vec<PathBuf>,
    /// Folders for temporary files, which they may write; none means `TMPDIR`, `/tmp`, `/var/tmp` and `/dev/shm`.
    pub temporary: Option<Vec<PathBuf>>,
    /// Paths that they may read in addition to the writable ones and the system's folders; none means everything.
    pub read: Option<Vec<PathBuf>>,
    /// Access to other machines.
    pub network: NetworkAccess,
    /// Treatment of unlisted hosts.
    pub unlisted: UnlistedHosts,
    /// Treatment of commands if the kernel cannot confine them.
    pub on_missing: OnMissingKernel,
}

/// Needs of one call in addition to the access of every call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct CallNeeds {
    /// Files and folders to be written, absolute or relative to the folder of the command.
    #[serde(default)]
    pub write: Vec<String>,
    /// True if other machines are to be reached.
    #[serde(default)]
    pub network: bool,
    /// Hosts to be reached, each a name or an address and perhaps a port.
    #[serde(default)]
    pub hosts: Vec<String>,
}

impl SandboxMode {
    /// Returns its name in the settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Guard => "guard",
            Self::Workspace => "workspace",
        }
    }

    /// Returns the value with this name in the settings.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Off, Self::Guard, Self::Workspace].into_iter().find(|mode| mode.name() == name)
    }
}

impl NetworkAccess {
    /// Returns its name in the settings.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Hosts(_) => "hosts",
            Self::On => "on",
        }
    }

    /// Returns the value with this name in the settings; hosts have no name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Off, Self::On].into_iter().find(|network| network.name() == name)
    }

    /// Returns the same needs with `hosts`.
    fn with_hosts(&self, hosts: Vec<HostPattern>) -> Self {
        match self {
            Self::On => Self::On,
            Self::Off if hosts.is_empty() => Self::Off,
            Self::Off => Self::Hosts(hosts),
            Self::Hosts(own) => Self::Hosts(own.iter().cloned().chain(hosts).collect()),
        }
    }
}

impl UnlistedHosts {
    /// Returns its name in the settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Refuse => "refuse",
        }
    }

    /// Returns the value with this name in the settings.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Ask, Self::Refuse].into_iter().find(|unlisted| unlisted.name() == name)
    }
}

impl OnMissingKernel {
    /// Returns its name in the settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Warn => "warn",
        }
    }

    /// Returns the value with this name in the settings.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Refuse, Self::Warn].into_iter().find(|what| what.name() == name)
    }
}

impl CallNeeds {
    /// Returns true if it has no needs.
    pub const fn is_empty(&self) -> bool {
        self.write.is_empty() && !self.network && self.hosts.is_empty()
    }

    /// Returns the hosts that it names.
    ///
    /// # Errors
    /// [`HostError`]. A pattern for many hosts is not allowed: a person decides about exactly the requested ones.
    pub(crate) fn parse_hosts(&self) -> Result<Vec<HostPattern>, HostError> {
        self.hosts.iter().map(|text| HostPattern::parse_exact(text)).collect()
    }
}

/// Reason that a command cannot be run as requested. Nothing was run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    /// The kernel cannot hold it, and the settings refuse that.
    #[error(
        "no command is run here: the settings require a sandbox (sandbox.on_missing: refuse), and {0}. Tell the person; `countersign doctor` suggests a fix"
    )]
    Missing(String),
    /// A requested file cannot be made.
    #[error("needs.write: {} does not exist and cannot be created ({why}): name an existing folder", .path.display())]
    Absent {
        /// Path of the file.
        path: PathBuf,
        /// Kind of the error.
        why: std::io::ErrorKind,
    },
    /// A requested path leads elsewhere, which its approver did not see.
    #[error("needs.write: {} leads through a symlink to {}: request that path instead if the command needs it", .path.display(), .real.display())]
    Link {
        /// Path as requested.
        path: PathBuf,
        /// Path that it leads to.
        real: PathBuf,
    },
    /// A requested path is never given.
    #[error("{} belongs to the gateway: no command may write to it", .0.display())]
    Reserved(PathBuf),
    /// A requested host has no valid form.
    #[error("needs.hosts: {0}")]
    Host(#[from] HostError),
}

/// A sandbox: settings, and the trees that no command may touch. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Sandbox(Arc<SandboxInner>);

#[derive(Debug, Default)]
struct SandboxInner {
    settings: SandboxSettings,
    protected: Vec<PathBuf>,
    unreadable: Vec<PathBuf>,
    kernel: Option<KernelSupport>,
}

impl Sandbox {
    /// Creates a sandbox with `settings`; no command writes to `protected`, or reads `unreadable`.
    pub fn new(settings: SandboxSettings, protected: Vec<PathBuf>, unreadable: Vec<PathBuf>) -> Self {
        Self(Arc::new(SandboxInner { settings, protected, unreadable, kernel: None }))
    }

    /// Returns the same sandbox on another kernel.
    #[must_use]
    pub fn on_kernel(&self, kernel: KernelSupport) -> Self {
        let SandboxInner { settings, protected, unreadable, .. } = &*self.0;
        Self(Arc::new(SandboxInner {
            settings: settings.clone(),
            protected: protected.clone(),
            unreadable: unreadable.clone(),
            kernel: Some(kernel),
        }))
    }

    /// Returns the same sandbox with more folders that no command touches.
    #[must_use]
    pub fn with_closed(&self, folders: &[PathBuf]) -> Self {
        let SandboxInner { settings, protected, unreadable, kernel } = &*self.0;
        Self(Arc::new(SandboxInner {
            settings: settings.clone(),
            protected: [protected, folders].concat(),
            unreadable: [unreadable, folders].concat(),
            kernel: *kernel,
        }))
    }

    /// Returns true if commands are confined at all.
    pub fn is_on(&self) -> bool {
        self.0.settings.mode != SandboxMode::Off
    }

    /// Describes the kernel features that it lacks, if any.
    pub fn missing_support(&self) -> Option<String> {
        if self.is_on() { self.0.kernel.unwrap_or_else(KernelSupport::running_kernel).missing_support() } else { None }
    }

    /// Returns the network access of commands.
    pub fn network(&self) -> &NetworkAccess {
        if self.is_on() { &self.0.settings.network } else { &NetworkAccess::On }
    }

    /// Returns the treatment of unlisted hosts.
    pub fn unlisted(&self) -> UnlistedHosts {
        self.0.settings.unlisted
    }

    /// Checks the declared needs of a call before any approval, as far as they can be checked.
    ///
    /// # Errors
    /// Error text for the model.
    pub(crate) fn check_needs(&self, needs: Option<&Value>) -> Result<(), String> {
        if let Some(lacks) =
            self.missing_support().filter(|_| self.is_on() && self.0.settings.on_missing == OnMissingKernel::Refuse)
        {
            return Err(SandboxError::Missing(lacks).to_string());
        }
        let Some(named) = needs.and_then(|needs| needs.get("hosts")) else { return Ok(()) };
        let hosts: Vec<String> = Vec::deserialize(named)
            .map_err(|_| format!("needs.hosts: expected a list in which each item is {}", HostPattern::EXPECTED))?;
        let needs = CallNeeds { hosts, ..CallNeeds::default() };
        needs.parse_hosts().map_err(|error| format!("needs.hosts: {error}"))?;
        if !needs.is_empty() && *self.network() == NetworkAccess::On {
            return Err(
                "needs.hosts is not necessary: commands can reach every host here. Call again without it".to_owned()
            );
        }
        Ok(())
    }

    /// Checks the paths that a call requests to write, relative to the folder `from`.
    ///
    /// # Errors
    /// Error text, for the model.
    pub(crate) fn check_written(
        &self,
        from: &Path,
        environment: &CommandEnvironment,
        needs: &CallNeeds,
    ) -> Result<(), SandboxError> {
        if self.is_on() { self.requested_paths(from, environment, needs).map(drop) } else { Ok(()) }
    }

    /// Checks the folder that a call with `needs` named as `given` and that led to `real`, from which its paths are named.
    ///
    /// # Errors
    /// [`SandboxError::Link`].
    pub(crate) fn check_folder(&self, given: &Path, real: &Path, needs: &CallNeeds) -> Result<(), SandboxError> {
        let is_named_from = self.0.settings.mode == SandboxMode::Workspace && !needs.write.is_empty();
        if is_named_from { requested_path::check_leads_to(given, real) } else { Ok(()) }
    }

    fn requested_paths(
        &self,
        from: &Path,
        environment: &CommandEnvironment,
        needs: &CallNeeds,
    ) -> Result<Vec<RequestedPath>, SandboxError> {
        // Most calls ask for nothing, and what is the gateway's own need not be looked for then.
        if needs.write.is_empty() {
            return Ok(Vec::new());
        }
        let home = environment.get("HOME").map(PathBuf::from);
        let requested: Vec<RequestedPath> =
            needs.write.iter().map(|path| RequestedPath::new(Path::new(path), from, home.as_deref())).collect();
        let protected: Vec<PathBuf> = self.0.protected.iter().map(|path| trees::real_path(path)).collect();
        for one in &requested {
            if protected.iter().any(|own| one.real_path().starts_with(own)) {
                return Err(SandboxError::Reserved(one.real_path().to_owned()));
            }
            if self.0.settings.mode == SandboxMode::Workspace {
                one.check_link()?;
            }
        }
        Ok(requested)
    }

    /// Returns the bounds of a command for which `needs` was granted, with paths relative to the folder `from`; `None` if nothing
    /// confines it.
    ///
    /// # Errors
    /// [`SandboxError`], which is for the model and for people.
    pub(crate) fn widened_bounds(
        &self,
        cwd: &Path,
        from: &Path,
        environment: &CommandEnvironment,
        needs: &CallNeeds,
    ) -> Result<Option<SandboxBounds>, SandboxError> {
        let SandboxInner { settings, protected, unreadable, .. } = &*self.0;
        if settings.mode == SandboxMode::Off {
            return Ok(None);
        }
        if let Some(lacks) = self.missing_support() {
            match settings.on_missing {
                OnMissingKernel::Refuse => return Err(SandboxError::Missing(lacks)),
                OnMissingKernel::Warn => tracing::warn!(
                    lacks,
                    "the kernel lacks support for the sandbox: commands are confined less than the settings require"
                ),
            }
        }
        let home = environment.get("HOME").map(PathBuf::from);
        let protected: Vec<PathBuf> = protected.iter().map(|path| trees::real_path(path)).collect();
        // The working folder may lie in the data directory; what is written in addition may not.
        let is_own = |path: &PathBuf| protected.iter().any(|own| path.starts_with(own));
        let mut extra: Vec<PathBuf> = settings.write.iter().map(|path| expand_home(path, home.as_deref())).collect();
        extra.retain(|path| !is_own(path));
        let requested = self.requested_paths(from, environment, needs)?;
        // All of them were looked at, and only here the kernel needs them to be there.
        if settings.mode == SandboxMode::Workspace {
            let gaps = requested.iter().map(RequestedPath::missing_file).collect::<Result<Vec<_>, _>>()?;
            gaps.iter().flatten().try_for_each(MissingFile::create_file)?;
        }
        extra.extend(requested.iter().map(|path| path.real_path().to_owned()));
        let write = match settings.mode {
            SandboxMode::Off | SandboxMode::Guard => vec![PathBuf::from("/")],
            SandboxMode::Workspace => self.temporary_folders(environment).chain(extra).collect(),
        };
        let read =
            settings.read.as_ref().map(|read| read.iter().map(|path| expand_home(path, home.as_deref())).collect());
        Ok(Some(SandboxBounds {
            workspace: (settings.mode == SandboxMode::Workspace).then(|| trees::real_path(cwd)),
            write,
            read,
            protected,
            unreadable: unreadable.iter().map(|path| trees::real_path(path)).collect(),
            network: if needs.network { NetworkAccess::On } else { settings.network.with_hosts(needs.parse_hosts()?) },
            must_hold: settings.on_missing == OnMissingKernel::Refuse,
        }))
    }

    /// Returns the bounds of every command.
    ///
    /// # Errors
    /// [`SandboxError::Missing`].
    pub(crate) fn base_bounds(
        &self,
        cwd: &Path,
        environment: &CommandEnvironment,
    ) -> Result<Option<SandboxBounds>, SandboxError> {
        self.widened_bounds(cwd, cwd, environment, &CallNeeds::default())
    }

    /// Returns the reason that a tool that runs in this process may not write to `path`, which is real; none if it may.
    pub(crate) fn forbids_writing(&self, path: &Path, cwd: &Path, environment: &CommandEnvironment) -> Option<String> {
        let settings = &self.0.settings;
        if settings.mode != SandboxMode::Workspace {
            return None;
        }
        let home = environment.get("HOME").map(PathBuf::from);
        let own = [trees::real_path(cwd)].into_iter().chain(self.temporary_folders(environment));
        let mut open = own.chain(settings.write.iter().map(|path| expand_home(path, home.as_deref())));
        if open.any(|tree| path.starts_with(tree)) {
            return None;
        }
        Some(format!("the sandbox lets tools write only in {}", self.writable_summary(cwd)))
    }

    /// Folders for temporary files.
    fn temporary_folders(&self, environment: &CommandEnvironment) -> impl Iterator<Item = PathBuf> + use<> {
        let own = || environment.get("TMPDIR").map(PathBuf::from).filter(|path| path.is_absolute());
        let usual = || own().into_iter().chain(["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from)).collect();
        self.0.settings.temporary.clone().unwrap_or_else(usual).into_iter().map(|path| trees::real_path(&path))
    }
}

#[cfg(test)]
mod tests;
