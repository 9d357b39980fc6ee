//! What commands may touch, whatever their text says: settings, what is never theirs, and what one call asks for beyond.
//!
//! It must not know who decides about a call. The kernel holds what is decided here: a shell and all that it starts are
//! under landlock and seccomp before they run anything. Landlock only allows, so a tree that is kept out of a writable
//! one leaves a rule for each of its neighbours: what is new beside it, or on the way to it, cannot be made.

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

/// How far commands are held back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SandboxMode {
    /// They have the rights of the user.
    #[default]
    Off,
    /// They may write wherever the user may, but to what is the gateway's own.
    Guard,
    /// They may write in the working folder, folders for temporary files and what the settings name.
    Workspace,
}

/// Whether commands reach other machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetworkAccess {
    /// They make no socket but those of this machine's own kind, `AF_UNIX`.
    Off,
    /// Some, through the gateway: they are in a network of their own, in which there is nothing else.
    Hosts(Vec<HostPattern>),
    /// As the user.
    #[default]
    On,
}

/// What becomes of a host that a command wants and that is not listed, where hosts are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnlistedHosts {
    /// A person is asked while the command waits, wherever one can be.
    #[default]
    Ask,
    /// It is refused.
    Refuse,
}

/// What becomes of commands where the kernel cannot hold them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissingKernel {
    /// They are not run.
    #[default]
    Refuse,
    /// They are run, and it is said so.
    Warn,
}

/// The settings. Paths may begin with `~/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxSettings {
    /// How far commands are held back.
    pub mode: SandboxMode,
    /// What they may write beyond what the mode gives.
    pub write: Vec<PathBuf>,
    /// Folders for temporary files, which they may write; none means `TMPDIR`, `/tmp`, `/var/tmp` and `/dev/shm`.
    pub temporary: Option<Vec<PathBuf>>,
    /// What they may read beside what they may write and the system's folders; none means everything.
    pub read: Option<Vec<PathBuf>>,
    /// Whether they reach other machines.
    pub network: NetworkAccess,
    /// What becomes of hosts that are not listed.
    pub unlisted: UnlistedHosts,
    /// What becomes of them where the kernel cannot hold them.
    pub on_missing: OnMissingKernel,
}

/// What one call asks for beyond what every call has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct CallNeeds {
    /// Files and folders to be written, absolute or relative to the folder of the command.
    #[serde(default)]
    pub write: Vec<String>,
    /// Whether other machines are to be reached.
    #[serde(default)]
    pub network: bool,
    /// Hosts to be reached, each a name or an address and perhaps a port.
    #[serde(default)]
    pub hosts: Vec<String>,
}

impl SandboxMode {
    /// What the settings call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Guard => "guard",
            Self::Workspace => "workspace",
        }
    }

    /// The one of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Off, Self::Guard, Self::Workspace].into_iter().find(|mode| mode.name() == name)
    }
}

impl NetworkAccess {
    /// What the settings call it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Hosts(_) => "hosts",
            Self::On => "on",
        }
    }

    /// The one of a name; hosts are not named by one.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Off, Self::On].into_iter().find(|network| network.name() == name)
    }

    /// The same and `hosts`.
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
    /// What the settings call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Refuse => "refuse",
        }
    }

    /// The one of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Ask, Self::Refuse].into_iter().find(|unlisted| unlisted.name() == name)
    }
}

impl OnMissingKernel {
    /// What the settings call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Warn => "warn",
        }
    }

    /// The one of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Refuse, Self::Warn].into_iter().find(|what| what.name() == name)
    }
}

impl CallNeeds {
    /// Whether it asks for nothing.
    pub const fn is_empty(&self) -> bool {
        self.write.is_empty() && !self.network && self.hosts.is_empty()
    }

    /// Which hosts it names.
    ///
    /// # Errors
    /// [`HostError`]. What stands for many is none of them: a person decides about exactly what is asked for.
    pub(crate) fn parse_hosts(&self) -> Result<Vec<HostPattern>, HostError> {
        self.hosts.iter().map(|text| HostPattern::parse_exact(text)).collect()
    }
}

/// Why no command can be run as it was asked for. Nothing was run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    /// The kernel cannot hold it, and the settings refuse that.
    #[error(
        "no command is run here: the settings ask for a sandbox (sandbox.on_missing: refuse) and {0}. Tell the person; `countersign doctor` says what to do"
    )]
    Missing(String),
    /// A file was asked for that cannot be made.
    #[error("needs.write: {} is not there and cannot be made ({why}): name a folder that is there", .path.display())]
    Absent {
        /// Which.
        path: PathBuf,
        /// Why not.
        why: std::io::ErrorKind,
    },
    /// What was asked for leads elsewhere, which nobody saw who would allow it.
    #[error("needs.write: {} leads through a link to {}: ask for that, if it is what the command needs", .path.display(), .real.display())]
    Link {
        /// As it was asked for.
        path: PathBuf,
        /// Where that leads.
        real: PathBuf,
    },
    /// Something was asked for that is never given.
    #[error("{} is the gateway's own: no command may write to it", .0.display())]
    Reserved(PathBuf),
    /// A host was asked for in words that name none.
    #[error("needs.hosts: {0}")]
    Host(#[from] HostError),
}

/// A sandbox: settings, and the trees that are nobody's to touch. Clones share them.
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
    /// Commands are held back as `settings` say; none of them writes to `protected`, or reads `unreadable`.
    pub fn new(settings: SandboxSettings, protected: Vec<PathBuf>, unreadable: Vec<PathBuf>) -> Self {
        Self(Arc::new(SandboxInner { settings, protected, unreadable, kernel: None }))
    }

    /// The same on another kernel.
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

    /// Whether commands are held back at all.
    pub fn is_on(&self) -> bool {
        self.0.settings.mode != SandboxMode::Off
    }

    /// What the kernel lacks for it, if it lacks something.
    pub fn missing_support(&self) -> Option<String> {
        if self.is_on() { self.0.kernel.unwrap_or_else(KernelSupport::running_kernel).missing_support() } else { None }
    }

    /// Which network commands have.
    pub fn network(&self) -> &NetworkAccess {
        if self.is_on() { &self.0.settings.network } else { &NetworkAccess::On }
    }

    /// What becomes of hosts that are not listed.
    pub fn unlisted(&self) -> UnlistedHosts {
        self.0.settings.unlisted
    }

    /// Looks at what a call says that it needs, before anybody is asked about it: whether it can be given, as far as that can be told.
    ///
    /// # Errors
    /// What is wrong, for the model.
    pub(crate) fn check_needs(&self, needs: Option<&Value>) -> Result<(), String> {
        if let Some(lacks) =
            self.missing_support().filter(|_| self.is_on() && self.0.settings.on_missing == OnMissingKernel::Refuse)
        {
            return Err(SandboxError::Missing(lacks).to_string());
        }
        let Some(named) = needs.and_then(|needs| needs.get("hosts")) else { return Ok(()) };
        let hosts: Vec<String> = Vec::deserialize(named)
            .map_err(|_| format!("needs.hosts: expected a list, each {}", HostPattern::EXPECTED))?;
        let needs = CallNeeds { hosts, ..CallNeeds::default() };
        needs.parse_hosts().map_err(|error| format!("needs.hosts: {error}"))?;
        if !needs.is_empty() && *self.network() == NetworkAccess::On {
            return Err(
                "needs.hosts is not necessary: commands reach every host here. Call again without it".to_owned()
            );
        }
        Ok(())
    }

    /// Looks at the paths that a call asks to write, named from the folder `from`.
    ///
    /// # Errors
    /// What is wrong, for the model.
    pub(crate) fn check_written(
        &self,
        from: &Path,
        environment: &CommandEnvironment,
        needs: &CallNeeds,
    ) -> Result<(), SandboxError> {
        if self.is_on() { self.requested_paths(from, environment, needs).map(drop) } else { Ok(()) }
    }

    /// Looks at the folder that a call with `needs` named as `given` and that led to `real`, from which its paths are named.
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

    /// What holds a command for which `needs` was granted, named from the folder `from`; `None` where nothing does.
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
                OnMissingKernel::Warn => tracing::warn!(lacks, "commands are held by less than the settings ask for"),
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

    /// What holds every command.
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

    /// Why a tool that runs in this process may not write to `path`, which is real, if it may not.
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
        Some(format!("it lies outside of what the sandbox lets tools write: {}", self.writable_summary(cwd)))
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
