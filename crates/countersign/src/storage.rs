//! `storage migrate`: the record from a file to a database, or back, with its chain as it is.
//!
//! It must not change the configuration.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use countersign_config::DatabaseSettings;
use countersign_store::{Log as _, LogOptions, PostgresLog, RawLog, SqliteLog, TransferReport, copy_records};
use serde_json::json;

use crate::{
    audit::{OutputFormat, block_on, open_record},
    control_client::ControlClient,
    data_dir::DataDir,
    record_location::{EVENT_FORMAT, database_options},
    style::{ColourMode, TextStyle},
};

/// Entries between two lines of progress.
const PROGRESS: u64 = 50_000;

/// Kind of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StorageKind {
    Sqlite,
    Postgres,
}

/// Runs `storage migrate`. `file` is the file of the record, the default one if absent.
pub(crate) fn migrate_record(
    place: &DataDir,
    to: StorageKind,
    file: Option<PathBuf>,
    form: OutputFormat,
) -> anyhow::Result<ExitCode> {
    let Some(settings) = &place.database else {
        bail!(
            "the configuration names no database: set storage.type to 'postgres' and storage.url in it, then run this again with --config"
        );
    };
    if ControlClient::connect(&place.folder).is_some() {
        bail!("a gateway runs with the data directory {}: stop it first", place.folder.display());
    }
    let file = file.unwrap_or_else(|| place.log.clone());
    if to == StorageKind::Postgres {
        // Says in words of its own why there is nothing to copy.
        drop(open_record(&file)?);
    }
    // Both are opened for writing, which fails while a gateway writes either.
    let sqlite = SqliteLog::open(&file, LogOptions { event_format: EVENT_FORMAT, ..LogOptions::default() })?;
    let postgres = PostgresLog::open(database_options(settings))?;
    let report = block_on(async {
        let report = match to {
            StorageKind::Postgres => copy_with_progress(&sqlite, &postgres).await,
            StorageKind::Sqlite => copy_with_progress(&postgres, &sqlite).await,
        };
        sqlite.close().await;
        postgres.close().await;
        report
    })?;
    print_report(&report, to, &file, form)?;
    Ok(ExitCode::SUCCESS)
}

/// Copies the record of a database, which may have a gateway, into the file at `path`.
pub(crate) fn copy_from_database(settings: &DatabaseSettings, path: &Path) -> anyhow::Result<TransferReport> {
    let postgres = PostgresLog::open_read_only(database_options(settings))?;
    let sqlite = SqliteLog::open(path, LogOptions { event_format: EVENT_FORMAT, ..LogOptions::default() })?;
    let report = block_on(async {
        let report = copy_records(&postgres, &sqlite, |_| {}).await;
        sqlite.close().await;
        Ok(report?)
    });
    drop(sqlite);
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    match std::fs::remove_file(&lock) {
        // A record without entries makes no file.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        removed => removed.with_context(|| format!("cannot remove {}", Path::new(&lock).display()))?,
    }
    report
}

/// Copies the record in the file at `path` into a database that holds none, or the beginning of this one.
pub(crate) fn copy_to_database(path: &Path, settings: &DatabaseSettings) -> anyhow::Result<TransferReport> {
    let sqlite = SqliteLog::open_read_only(path, EVENT_FORMAT)?;
    let postgres = PostgresLog::open(database_options(settings))?;
    block_on(async {
        let report = copy_records(&sqlite, &postgres, |_| {}).await;
        sqlite.close().await;
        postgres.close().await;
        Ok(report?)
    })
}

async fn copy_with_progress(from: &impl RawLog, to: &impl RawLog) -> anyhow::Result<TransferReport> {
    let mut next = PROGRESS;
    let report = copy_records(from, to, |lsn| {
        if lsn.0 >= next {
            next = lsn.0 + PROGRESS;
            // Nobody may read it.
            let _ = writeln!(std::io::stderr(), "copied up to entry {lsn}");
        }
    });
    Ok(report.await?)
}

fn print_report(report: &TransferReport, to: StorageKind, file: &Path, form: OutputFormat) -> anyhow::Result<()> {
    let head = format!("{}:{}", report.head.lsn, report.head.chain);
    let mut out = std::io::stdout().lock();
    if form == OutputFormat::Json {
        let summary = json!({ "head": head, "records": report.resumed + report.copied, "copied": report.copied,
            "resumed": report.resumed, "redacted": report.redacted });
        writeln!(out, "{summary}")?;
        return Ok(());
    }
    let paint = ColourMode::for_stdout();
    let chains = paint.apply_style(TextStyle::Good, "both chains verified");
    let before = match report.resumed {
        0 => String::new(),
        count => format!(", {count} were there before"),
    };
    writeln!(out, "copied    {} entries{before}", report.copied)?;
    writeln!(out, "chain     {chains}, {} of the entries redacted", report.redacted)?;
    writeln!(out, "head      {head}")?;
    match to {
        StorageKind::Postgres => {
            writeln!(out, "next      start `countersign serve`; {} is not used any more", file.display())?;
        }
        StorageKind::Sqlite => {
            writeln!(
                out,
                "next      set storage.type to 'sqlite' and storage.path to {} in the configuration, then start `countersign serve`",
                file.display()
            )?;
        }
    }
    Ok(())
}
