//! Place of a gateway's data.
//!
//! It must not open or make anything there.

use std::path::{Path, PathBuf};

use countersign_config as config;
use countersign_config::{ConfigErrors, ConfigFault, ConfigFlags, DatabaseSettings};
use countersign_gateway::control::FILE;
use countersign_view::shell_quote;

use crate::record_location::RecordLocation;

/// Most keys of a file of another program that its error lists.
const MOST_KEYS: usize = 5;

/// The data directory of one gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DataDir {
    /// The data directory.
    pub(crate) folder: PathBuf,
    /// The record in it, unless it is in a database.
    pub(crate) log: PathBuf,
    /// The database of the record, if it is in one.
    pub(crate) database: Option<DatabaseSettings>,
    origin: DataDirOrigin,
}

/// Source of the path of a data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DataDirOrigin {
    /// `--data`.
    Flag,
    /// The configuration that a flag or a file names.
    Named(PathBuf),
    /// The configuration in the working folder, which no flag names.
    Found(PathBuf),
    /// The default of the user.
    User,
}

impl DataDir {
    /// Finds the place from `--config` and `--data`, by the same rules as `serve` finds its own.
    pub(crate) fn find(config: Option<&Path>, data: Option<&Path>) -> anyhow::Result<Self> {
        let origin = match (data, config) {
            (Some(_), _) => DataDirOrigin::Flag,
            (None, Some(file)) => DataDirOrigin::Named(file.to_owned()),
            (None, None) => DataDirOrigin::User,
        };
        Self::read(config, data, origin).map_err(|errors| anyhow::anyhow!("Configuration error: {errors}"))
    }

    /// Finds the place from the configuration `file` of the working folder, which no flag names. A file with unknown sections is probably
    /// that of another program, unless a gateway runs with its data directory.
    pub(crate) fn find_here(file: &Path) -> anyhow::Result<Self> {
        let place = Self::read(Some(file), None, DataDirOrigin::Found(file.to_owned()));
        match (place, config::check_sections(file)) {
            (Ok(place), Ok(())) => Ok(place),
            (Ok(place), Err(_)) if place.folder.join(FILE).exists() => Ok(place),
            (_, Err(errors)) | (Err(errors), Ok(())) => Err(explain_foreign(file, &errors)),
        }
    }

    /// Returns the flags with which `countersign serve` uses this place from any folder, with a space before each.
    pub(crate) fn serve_flags(&self) -> String {
        let flag = |name: &str, path: &Path| format!(" --{name} {}", shell_quote(absolute_text(path)));
        match &self.origin {
            DataDirOrigin::Named(file) | DataDirOrigin::Found(file) => flag("config", file),
            DataDirOrigin::Flag if !self.is_default() => flag("data", &self.folder),
            DataDirOrigin::Flag | DataDirOrigin::User => String::new(),
        }
    }

    fn is_default(&self) -> bool {
        Self::find(None, None).is_ok_and(|default| absolute_text(&default.folder) == absolute_text(&self.folder))
    }

    fn read(config: Option<&Path>, data: Option<&Path>, origin: DataDirOrigin) -> Result<Self, ConfigErrors> {
        let flags = ConfigFlags { data: data.map(Path::to_owned), ..ConfigFlags::default() };
        let storage = config::load_storage(config, &flags, &|name| std::env::var(name).ok())?;
        Ok(Self { folder: storage.folder, log: storage.log, database: storage.database, origin })
    }

    /// Returns the place of the record.
    pub(crate) fn record(&self) -> RecordLocation {
        match &self.database {
            Some(settings) => RecordLocation::Database(settings.clone()),
            None => RecordLocation::File(self.log.clone()),
        }
    }

    /// Returns the text for a gateway that does not run, without advice.
    pub(crate) fn no_gateway(&self) -> String {
        let absent = if self.folder.exists() { "" } else { ", which does not exist" };
        let origin = match &self.origin {
            DataDirOrigin::Flag => "from --data".to_owned(),
            DataDirOrigin::Named(file) => format!("from {}", file.display()),
            DataDirOrigin::Found(file) => format!("from {} in this folder", file.display()),
            DataDirOrigin::User => "the default of this user".to_owned(),
        };
        format!("no gateway runs with the data directory {}{absent} ({origin})", absolute_text(&self.folder))
    }
}

/// Returns a path as it is from any folder, for messages.
pub(crate) fn absolute_text(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// Explains that the configuration of the working folder cannot be used.
fn explain_foreign(file: &Path, errors: &ConfigErrors) -> anyhow::Error {
    let advice = format!(
        "{} was read because it is in this folder: select another gateway with --config or --data",
        absolute_text(file)
    );
    let is_unknown = errors.0.iter().all(|problem| matches!(problem.fault, ConfigFault::UnknownKey(_)));
    if !is_unknown {
        return anyhow::anyhow!("Configuration error: {errors}; {advice}");
    }
    let keys: Vec<String> = errors.0.iter().take(MOST_KEYS).map(|problem| format!("`{}`", problem.key)).collect();
    let more = if errors.0.len() > MOST_KEYS { ", …" } else { "" };
    anyhow::anyhow!(
        "{} is no configuration of Countersign, or has an error: unknown sections {}{more}; {advice}",
        file.display(),
        keys.join(", ")
    )
}
