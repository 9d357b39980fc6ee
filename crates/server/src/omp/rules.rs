//! The rules of a stdio door: where they come from, and what they protect.

use std::path::{Path, PathBuf};

use countersign_core::{
    engine::Rules,
    policy::{self, Grant, Layer, Posture, Source, Surroundings},
};

use crate::agent_dir::AgentDir;

/// Why rules were not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RulesError {
    /// A file cannot be read.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is not what a file of rules is.
    #[error("{path}: {problem}", path = .path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong, with its line where that is known.
        problem: String,
    },
    /// Rules contradict themselves or cannot be compiled.
    #[error("{0}")]
    Compile(String),
}

/// The rules in force, and what a person should know about them.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) rules: Rules,
    pub(crate) warnings: Vec<String>,
}

/// The file of a repository's own rules, below its working folder. It can only tighten.
const PROJECT: &str = ".countersign/permissions.yaml";

/// Reads the rules of a stdio door: `--permissions`, or those of the agent directory, and the working folder's own.
///
/// # Errors
/// [`RulesError`] for the first file with something wrong in it: without rules that were understood nothing starts.
pub(crate) fn load(
    folder: &AgentDir,
    cwd: &Path,
    named: Option<&Path>,
    temporary: &Path,
) -> Result<Loaded, RulesError> {
    let usual = folder.permissions();
    let main = named.map_or_else(|| usual.clone(), |named| cwd.join(named));
    let project = cwd.join(PROJECT);
    let mut sources = Vec::new();
    for (path, layer, must) in [(&main, Layer::Main, named.is_some()), (&project, Layer::Tighten, false)] {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !must => continue,
            Err(source) => return Err(RulesError::Io { path: path.clone(), source }),
        };
        let rules = serde_saphyr::from_str::<Option<policy::Rules>>(&text)
            .map_err(|error| RulesError::Form { path: path.clone(), problem: error.to_string() })?
            .unwrap_or_default();
        sources.push(Source { name: path.display().to_string(), layer, rules });
    }
    let compiled = policy::compile(sources).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        RulesError::Compile(lines.join("\n"))
    })?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let surroundings = Surroundings {
        home: Some(text(folder.home())),
        temporary: vec![text(temporary), "/tmp".to_owned(), "/var/tmp".to_owned()],
        protected: protected(folder, cwd, named).iter().map(|path| text(path)).collect(),
    };
    Ok(Loaded {
        warnings: compiled.warnings().iter().map(ToString::to_string).collect(),
        rules: Rules { compiled, posture: Posture::Stdio, contract: None, surroundings },
    })
}

/// What no governed tool may write to.
pub(crate) fn protected(folder: &AgentDir, cwd: &Path, named: Option<&Path>) -> Vec<PathBuf> {
    let mut protected = vec![folder.root().to_owned(), cwd.join(".countersign")];
    protected.extend(named.map(|named| cwd.join(named)));
    protected
}

/// The grants that outlive their sessions. Lines that cannot be read are passed over: a grant that is lost is asked for again.
pub(crate) fn grants(path: &Path) -> Vec<Grant> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Adds a grant to those that outlive their sessions.
///
/// # Errors
/// What the system said. The grant then holds for its session only.
pub(crate) fn keep_grant(path: &Path, grant: &Grant) -> std::io::Result<()> {
    use std::io::Write as _;

    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let mut line = serde_json::to_vec(grant)?;
    line.push(b'\n');
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path)?;
    file.lock()?;
    file.write_all(&line)?;
    file.sync_data()
}
