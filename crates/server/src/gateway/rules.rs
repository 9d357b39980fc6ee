//! The rules of a gateway: one file, and what stands where it says nothing.

use std::path::{Path, PathBuf};

use countersign_core::{
    engine::Rules,
    policy::{self, Layer, Posture, Source, Surroundings},
};
use countersign_runtime::tools::regular;

use crate::agent_dir::LARGEST;

/// Why rules were not taken.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file is not what a file of rules is, or its rules cannot be compiled.
    #[error("{}: {problem}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong, with its line where that is known.
        problem: String,
    },
}

/// Rules, and what a person should know about them.
#[derive(Debug)]
pub struct Loaded {
    /// The rules.
    pub rules: Rules,
    /// One line each.
    pub warnings: Vec<String>,
}

/// Reads the file at `path`. Where there is none, people are asked about everything.
///
/// # Errors
/// [`RulesError`]: rules that were not understood are not in force.
pub fn load(path: &Path) -> Result<Loaded, RulesError> {
    let form = |problem: String| RulesError::Form { path: path.to_owned(), problem };
    let rules = match regular::read_text(path, LARGEST) {
        Ok(text) => serde_saphyr::from_str::<Option<policy::Rules>>(&text).map_err(|error| form(error.to_string()))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(source) => return Err(RulesError::Io { path: path.to_owned(), source }),
    };
    let source = Source { name: path.display().to_string(), layer: Layer::Main, rules: rules.unwrap_or_default() };
    let compiled = policy::compile(vec![source])
        .map_err(|errors| form(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")))?;
    Ok(Loaded {
        warnings: compiled.warnings().iter().map(ToString::to_string).collect(),
        rules: Rules { compiled, posture: Posture::Gateway, contract: None, surroundings: Surroundings::default() },
    })
}
