//! Prerequisites of a node: its folders, its token and its rules, checked before anything begins.
//!
//! It must not connect or run anything.

use std::{
    fs::{self, DirBuilder, File},
    io::ErrorKind,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use countersign_config as config;
use countersign_core::policy::{CompiledRules, RuleLayer};
use countersign_tools::{node::compile_node_rules, regular};
use countersign_view::shell_quote;
use nix::fcntl::{Flock, FlockArg};

/// Default variable of the token.
const TOKEN: &str = "COUNTERSIGN_NODE_TOKEN";
/// The longest token.
const LONGEST: u64 = 4096;

/// Source of the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeTokenSource {
    /// In a variable.
    Variable(String),
    /// In a file.
    File(PathBuf),
    /// There is none, which a gateway without a token takes from its own machine.
    Nowhere,
}

impl NodeTokenSource {
    /// Returns the source that the options name.
    pub(crate) fn from_options(variable: Option<String>, file: Option<PathBuf>) -> anyhow::Result<Self> {
        match (variable, file) {
            (_, Some(file)) => Ok(Self::File(std::path::absolute(&file)?)),
            (Some(name), None) => {
                if std::env::var_os(&name).is_none() {
                    bail!("--token-env {name}: the variable is not set");
                }
                Ok(Self::Variable(name))
            }
            (None, None) if std::env::var_os(TOKEN).is_some() => Ok(Self::Variable(TOKEN.to_owned())),
            (None, None) => Ok(Self::Nowhere),
        }
    }

    /// Returns the token, without white space around it.
    pub(crate) fn read_token(&self) -> anyhow::Result<Option<String>> {
        let (text, place) = match self {
            Self::Nowhere => return Ok(None),
            Self::Variable(name) => {
                let value = std::env::var(name).with_context(|| format!("the token in {name} cannot be read"))?;
                (value, name.clone())
            }
            Self::File(path) => {
                let unreadable = || format!("the token in {} cannot be read", path.display());
                (regular::read_text(path, LONGEST).with_context(unreadable)?, path.display().to_string())
            }
        };
        let token = text.trim();
        if token.is_empty() || token.chars().any(char::is_control) {
            bail!("{place} contains no token: expected one line, and nothing else");
        }
        Ok(Some(token.to_owned()))
    }

    /// Reports whether commands must not see this variable.
    pub(crate) fn hides_variable(&self, name: &str) -> bool {
        name == TOKEN || matches!(self, Self::Variable(variable) if variable == name)
    }

    /// Returns a warning for the owner of the file.
    pub(crate) fn warning(&self) -> Option<String> {
        let Self::File(path) = self else { return None };
        let open = fs::metadata(path).is_ok_and(|found| found.mode() & 0o077 != 0);
        open.then(|| format!("others on this machine can read the token: chmod 600 {}", shell_quote(path.display())))
    }
}

/// The data directory of a node, which this process alone uses.
#[derive(Debug)]
pub(crate) struct NodeDataDir {
    folder: PathBuf,
    _lock: Flock<File>,
}

impl NodeDataDir {
    /// Opens or makes it.
    pub(crate) fn open(given: Option<&Path>, id: &str) -> anyhow::Result<Self> {
        let folder = match given {
            Some(folder) => std::path::absolute(folder)?,
            None => default_folder(id)?,
        };
        let unusable = || format!("the data directory {} cannot be used", folder.display());
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).with_context(unusable)?;
        let folder = folder.canonicalize().with_context(unusable)?;
        let lock = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(folder.join("node.lock"))
            .with_context(unusable)?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
            nix::errno::Errno::EWOULDBLOCK => {
                anyhow::anyhow!("another node runs with the data directory {}", folder.display())
            }
            error => anyhow::Error::from(error).context(unusable()),
        })?;
        Ok(Self { folder, _lock: lock })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn journal_path(&self) -> PathBuf {
        self.folder.join("node.db")
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.folder.join("node.log")
    }
}

/// Returns the default folder of a node's data.
fn default_folder(id: &str) -> anyhow::Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    let base = base.context("no home directory is set: pass a folder for the journal with --data")?;
    Ok(base.join("countersign/nodes").join(id))
}

/// Returns the folder that agents work in, without links.
pub(crate) fn resolve_workspace(given: &Path) -> anyhow::Result<PathBuf> {
    let folder = match given.canonicalize() {
        Ok(folder) => folder,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("--workspace {} does not exist: create the folder first", given.display())
        }
        Err(error) => return Err(error).with_context(|| format!("--workspace {}: cannot open it", given.display())),
    };
    if !folder.is_dir() {
        bail!("--workspace {} is not a folder", given.display());
    }
    Ok(folder)
}

/// Returns the rules of the node: those of `given`, which has to be there, else those in the data directory.
pub(crate) fn load_rules(given: Option<&Path>, data: &NodeDataDir) -> anyhow::Result<(CompiledRules, PathBuf)> {
    let path = given.map_or_else(|| data.folder().join("permissions.yaml"), Path::to_owned);
    let path = std::path::absolute(path)?;
    let read = config::read_permissions(&path, RuleLayer::Main).map_err(|errors| anyhow::anyhow!("{errors}"))?;
    if read.is_none() && given.is_some() {
        bail!("--permissions {} does not exist", path.display());
    }
    let compiled = compile_node_rules(read.map(|read| read.source)).map_err(|unfit| anyhow::anyhow!("{unfit}"))?;
    Ok((compiled, path))
}
