//! The rules of a stdio door: where they come from, and what they protect.

use std::path::{Path, PathBuf};

use countersign_core::{
    engine::Rules,
    policy::{self, Layer, Posture, Source, Surroundings},
};
use countersign_runtime::tools::regular;

use super::paths;
use crate::agent_dir::{AgentDir, LARGEST};

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

/// Reads the rules of a stdio door: `--permissions`, or those of the agent directory, and the working folder's own. `sessions` is the folder of `--session-dir`.
///
/// # Errors
/// [`RulesError`] for the first file with something wrong in it: without rules that were understood nothing starts.
pub(crate) fn load(
    folder: &AgentDir,
    cwd: &Path,
    named: Option<&Path>,
    sessions: Option<&Path>,
    temporary: &Path,
) -> Result<Loaded, RulesError> {
    let usual = folder.permissions();
    let main = named.map_or_else(|| usual.clone(), |named| cwd.join(named));
    let project = cwd.join(PROJECT);
    let mut sources = Vec::new();
    for (path, layer, must) in [(&main, Layer::Main, named.is_some()), (&project, Layer::Tighten, false)] {
        let text = match regular::read_text(path, LARGEST) {
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
        protected: protected(folder, cwd, named, sessions).iter().map(|path| text(path)).collect(),
        unreadable: paths::both(folder.root().to_owned()).map(|path| text(&path)).collect(),
    };
    Ok(Loaded {
        warnings: compiled.warnings().iter().map(ToString::to_string).collect(),
        rules: Rules { compiled, posture: Posture::Stdio, contract: None, surroundings },
    })
}

/// What no governed tool may write to, each as it is named and as it really lies: the gateway's own files, the rules, and the sessions.
pub(crate) fn protected(folder: &AgentDir, cwd: &Path, named: Option<&Path>, sessions: Option<&Path>) -> Vec<PathBuf> {
    let ours = [folder.root().to_owned(), folder.sessions(), folder.blobs(), cwd.join(".countersign")];
    let named = named.into_iter().chain(sessions).map(|named| cwd.join(named));
    let mut protected: Vec<PathBuf> = ours.into_iter().chain(named).flat_map(paths::both).collect();
    protected.sort_unstable();
    protected.dedup();
    protected
}

#[cfg(test)]
mod tests {
    use std::{path::Path, process::Command};

    use super::{PROJECT, load, protected};
    use crate::agent_dir::{AgentDir, Environment, Product};

    #[test]
    fn what_is_protected_is_so_by_every_name() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        std::os::unix::fs::symlink("real", root.join("agent")).unwrap();
        let agent = root.join("agent").display().to_string();
        let environment: Environment = [("PI_CODING_AGENT_DIR", agent.as_str())].into_iter().collect();
        let folder = AgentDir::resolve(Product::Omp, &environment, &root, |_| false).unwrap();
        let got = protected(&folder, &root.join("work"), None, Some(Path::new("../kept")));
        let below = |top: &str| ["", "blobs", "sessions"].map(|name| root.join(top).join(name));
        let work = ["work/.countersign", "work/../kept"].map(|name| root.join(name));
        let mut want: Vec<_> = below("agent").into_iter().chain(below("real")).chain(work).collect();
        want.sort_unstable();
        assert_eq!(got, want);
    }

    #[test]
    fn rules_that_are_no_regular_file_are_not_waited_for() {
        let cwd = tempfile::tempdir().unwrap();
        let environment: Environment = [("HOME", "/nowhere")].into_iter().collect();
        let folder = AgentDir::resolve(Product::Omp, &environment, cwd.path(), |_| false).unwrap();
        let refused = |named| {
            let error = load(&folder, cwd.path(), named, None, Path::new("/tmp")).unwrap_err().to_string();
            assert!(error.ends_with(": it is not a regular file"), "{error}");
        };
        refused(Some(Path::new("/dev/null")));
        let project = cwd.path().join(PROJECT);
        std::fs::create_dir(project.parent().unwrap()).unwrap();
        assert!(Command::new("mkfifo").arg(&project).status().unwrap().success());
        refused(None);
    }
}
