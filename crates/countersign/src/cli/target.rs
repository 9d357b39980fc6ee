//! `--config` and `--data`, before or after the subcommand.

use std::path::{Path, PathBuf};

use clap::Args;
use countersign_config::find_config;

use crate::{audit::OutputFormat, data_dir::DataDir};

/// Heading of the flags about the gateway.
pub(super) const PLACE: &str = "Gateway";

/// Before the subcommand.
#[derive(Args, Default)]
pub(super) struct GlobalArgs {
    /// Path of the configuration file
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Path of the data directory
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
}

/// Which gateway is meant, and for whom the answer is.
#[derive(Args)]
pub(super) struct TargetArgs {
    /// Path of the gateway's configuration, whose `storage` selects the data directory, else `data` next to it [default
    /// without --data: config.yaml in this folder, if it exists]
    #[arg(long, global = true, value_name = "FILE", help_heading = PLACE)]
    pub(super) config: Option<PathBuf>,
    /// Path of its data directory [default without a configuration: $XDG_DATA_HOME/countersign]
    #[arg(long, global = true, value_name = "DIR", help_heading = PLACE)]
    pub(super) data: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
}

/// Returns the configuration that a gateway reads where none is named, if it is there. `agentpass` reads the same.
pub(super) fn default_config() -> Option<PathBuf> {
    find_config(Path::new(""))
}

impl GlobalArgs {
    /// Reports whether there is nothing to hand on.
    pub(super) fn is_empty(&self) -> bool {
        self.config.is_none() && self.data.is_none()
    }
}

impl TargetArgs {
    /// Merges the flags before the subcommand; those after it have precedence.
    pub(super) fn merge_globals(self, before: GlobalArgs) -> Self {
        Self { config: self.config.or(before.config), data: self.data.or(before.data), json: self.json }
    }

    /// Returns the path of the configuration. A data directory alone selects no other one.
    pub(super) fn config_path(&self) -> Option<PathBuf> {
        self.config.clone().or_else(|| if self.data.is_none() { default_config() } else { None })
    }

    /// Returns the data directory that the flags name, or the user's. A configuration in the current folder does not count: it may be
    /// that of a foreign repository.
    pub(super) fn named_data_dir(&self) -> anyhow::Result<DataDir> {
        let is_known = |name: &str| std::env::var_os(name).is_some_and(|folder| !folder.is_empty());
        if self.config.is_none() && self.data.is_none() && !is_known("HOME") && !is_known("XDG_DATA_HOME") {
            anyhow::bail!("HOME is not set: select the data directory with --data");
        }
        DataDir::find(self.config.as_deref(), self.data.as_deref())
    }

    /// Fails if the configuration lists realms, or is of the working folder, without a flag that names it, and another program's.
    pub(super) fn check_found_config(&self) -> anyhow::Result<()> {
        if let Some(file) = self.config_path() {
            countersign_config::check_one_gateway(&file)
                .map_err(|errors| anyhow::anyhow!("Configuration error: {errors}"))?;
        }
        let found = if self.config.is_none() { self.config_path() } else { None };
        match found {
            // Faults of `storage` are for those who need it.
            Some(file) if countersign_config::check_sections(&file).is_err() => DataDir::find_here(&file).map(drop),
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn data_dir(&self) -> anyhow::Result<DataDir> {
        let place = match (&self.config, self.config_path()) {
            (None, Some(here)) => DataDir::find_here(&here)?,
            (_, config) => DataDir::find(config.as_deref(), self.data.as_deref())?,
        };
        if place.folder.is_file() {
            anyhow::bail!("{} is a file, not a folder: select a data directory with --data", place.folder.display());
        }
        Ok(place)
    }

    pub(super) const fn output_format(&self) -> OutputFormat {
        if self.json { OutputFormat::Json } else { OutputFormat::Text }
    }
}
