//! `storage`.

use std::{path::PathBuf, process::ExitCode};

use clap::{Subcommand, ValueEnum};

use super::target::TargetArgs;
use crate::storage::{StorageKind, migrate_record};

/// Where the record goes.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum TargetStorage {
    /// To the database of `storage.url`
    Postgres,
    /// To a file
    Sqlite,
}

#[derive(Subcommand)]
pub(super) enum StorageCommand {
    /// Copy the record between a file and a PostgreSQL database, with its hash chain unchanged
    ///
    /// The configuration must name the database. Verifies both chains, and continues after an interruption. Refused while a gateway
    /// uses the file or the database. The source is not changed.
    Migrate {
        /// Storage to copy to
        #[arg(long, value_enum, value_name = "STORAGE")]
        to: TargetStorage,
        /// File of the record [default: countersign.db in the data directory]
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

pub(super) fn run(what: StorageCommand, at: &TargetArgs) -> anyhow::Result<ExitCode> {
    let StorageCommand::Migrate { to, file } = what;
    let kind = match to {
        TargetStorage::Postgres => StorageKind::Postgres,
        TargetStorage::Sqlite => StorageKind::Sqlite,
    };
    migrate_record(&at.data_dir()?, kind, file, at.output_format())
}
