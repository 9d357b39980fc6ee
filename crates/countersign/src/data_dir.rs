//! Place of a gateway's data.
//!
//! It must not open or make anything there.

use std::path::{Path, PathBuf};

use countersign_config as config;
use countersign_config::ConfigFlags;

/// The data directory of one gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DataDir {
    /// The data directory.
    pub(crate) folder: PathBuf,
    /// The record in it.
    pub(crate) log: PathBuf,
}

impl DataDir {
    /// Finds the place from `--config` and `--data`, by the same rules as `serve` finds its own.
    pub(crate) fn find(config: Option<&Path>, data: Option<&Path>) -> anyhow::Result<Self> {
        let flags = ConfigFlags { data: data.map(Path::to_owned), ..ConfigFlags::default() };
        let storage = config::load_storage(config, &flags, &|name| std::env::var(name).ok())
            .map_err(|errors| anyhow::anyhow!("Configuration error: {errors}"))?;
        Ok(Self { folder: storage.folder, log: storage.log })
    }
}
