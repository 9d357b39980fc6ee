//! Hidden commands that `cargo xtask bench` calls: figures that only the program itself can take.
//!
//! | command | prints |
//! |---|---|
//! | `__bench-yardstick sqlite FILE` | one line, once FILE is open as a log would open it |
//! | `__bench owner` | `{"events_per_second":…,"yardstick_per_second":…}` |
//! | `__bench policy` | `{"yardstick_us":…,"at_10_us":…,"at_1000_us":…,"at_10000_us":…}` |
//! | `__bench restart` | `{"whole_ms":…,"ready_ms":…,"yardstick_ms":…,"decode_ms":…,"fold_ms":…,"events":…,"pending_gates":…}` |
//!
//! They are no interface: what they print may change with the figures.

pub(crate) const YARDSTICK: &str = "__bench-yardstick";
pub(crate) const BENCH: &str = "__bench";

mod history;
mod owner;
mod policy;
mod restart;

use std::{io::Write as _, path::Path, process::ExitCode, sync::Arc, time::Duration};

use anyhow::bail;
use countersign_core::engine::{Resume, Rules};
use countersign_runtime::{Clock, Options, system_dice};

use crate::{
    cli,
    demo::{
        house::{House, Pace},
        scratch::{Keep, Scratch},
    },
};

/// Runs `__bench NAME` in a folder of its own below the working folder.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    cli::ended(measured(arguments))
}

fn measured(arguments: &[String]) -> anyhow::Result<ExitCode> {
    let scratch = Scratch::new(Path::new("."), "bench", Keep::No)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(crate::STACK)
        .enable_all()
        .build()?;
    let report = match arguments {
        [name] if name == "owner" => runtime.block_on(owner::measure(scratch.path()))?,
        [name] if name == "restart" => runtime.block_on(restart::measure(scratch.path()))?,
        [name] if name == "policy" => policy::measure()?,
        _ => bail!("{BENCH} owner|policy|restart"),
    };
    writeln!(std::io::stdout().lock(), "{report}")?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `__bench-yardstick sqlite FILE`: what a process costs that opens such a file and prints a line, and does nothing else.
pub(crate) fn yardstick(arguments: &[String]) -> ExitCode {
    let opened = || {
        let [kind, file] = arguments else { bail!("{YARDSTICK} sqlite FILE") };
        if kind != "sqlite" {
            bail!("{YARDSTICK} sqlite FILE");
        }
        let connection = rusqlite::Connection::open(file)?;
        connection.busy_timeout(Duration::from_secs(5))?;
        connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.pragma_update(None, "secure_delete", true)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        connection.pragma_update(None, "synchronous", "full")?;
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        writeln!(std::io::stdout().lock(), "open, version {version}")?;
        Ok(ExitCode::SUCCESS)
    };
    cli::ended(opened())
}

/// What an owner is opened with whose host is asked for nothing.
fn options(rules: Rules, folder: &Path) -> anyhow::Result<Options> {
    Ok(Options {
        rules,
        resume: Resume::Wait,
        clock: Clock::system(),
        dice: system_dice(),
        host: Arc::new(House::new(&std::env::current_exe()?, folder, Pace::AtOnce)?),
        merge: Duration::ZERO,
        idle: None,
    })
}

/// The middle of what was measured.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
