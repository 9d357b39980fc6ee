//! Measurements that link the engine instead of talking to the product binary. `bench` starts each as a hidden command of this
//! program, so that it has a process of its own.
//!
//! | command | prints |
//! |---|---|
//! | `__bench-yardstick FILE` | one line, once FILE is open as a log would open it |
//! | `__bench fill FILE SESSIONS RECORDS` | `{"records":…}`, once the new log FILE has so many sessions at rest, and about so many records |
//! | `__bench owner` | `{"events_per_second":…,"yardstick_per_second":…}` |
//! | `__bench policy` | `{"yardstick_us":…,"at_10_us":…,"at_1000_us":…,"at_10000_us":…}` |
//! | `__bench restart` | `{"whole_ms":…,"ready_ms":…,"yardstick_ms":…,"decode_ms":…,"fold_ms":…,"events":…,"pending_gates":…}` |
//!
//! The commands are no interface: their output may change with the figures. They measure the crates that this program was built
//! with, not the binary that `--binary` names.

pub(crate) const YARDSTICK: &str = "__bench-yardstick";
pub(crate) const BENCH: &str = "__bench";
/// Command of [`BENCH`] that makes a log.
pub(crate) const FILL: &str = "fill";

mod environment;
mod fill;
mod history;
mod owner;
mod policy;
mod restart;

use std::{path::Path, process::ExitCode, sync::Arc, time::Duration};

use anyhow::bail;
use countersign_core::engine::{ActiveRules, ResumeMode};
use countersign_runtime::{Clock, OwnerOptions, system_entropy};

use crate::{fixture::scratch::ScratchFolder, in_process::environment::IdleEnvironment};

/// Stack of a worker in bytes, as the product binary has it: the grammar of shell lines recurses.
const STACK: usize = 32 << 20;

/// Runs `__bench NAME` in a scratch folder.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    let scratch = ScratchFolder::new("in-process")?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).thread_stack_size(STACK).enable_all().build()?;
    let report = match arguments {
        [name, file, sessions, records] if name == FILL => {
            runtime.block_on(fill::fill_log(Path::new(file), sessions.parse()?, records.parse()?))?
        }
        [name] if name == "owner" => runtime.block_on(owner::measure(scratch.path()))?,
        [name] if name == "restart" => runtime.block_on(restart::measure(scratch.path()))?,
        [name] if name == "policy" => policy::measure()?,
        _ => bail!("{BENCH} owner|policy|restart, or {BENCH} {FILL} FILE SESSIONS RECORDS"),
    };
    println!("{report}");
    Ok(ExitCode::SUCCESS)
}

/// Runs `__bench-yardstick FILE`: what a process costs that opens such a file and prints a line, and does nothing else.
pub(crate) fn run_yardstick(arguments: &[String]) -> anyhow::Result<ExitCode> {
    let [file] = arguments else { bail!("{YARDSTICK} FILE") };
    let connection = rusqlite::Connection::open(file)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "secure_delete", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "synchronous", "full")?;
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    println!("open, version {version}");
    Ok(ExitCode::SUCCESS)
}

/// Returns the options of an owner whose host has no work.
fn owner_options(rules: ActiveRules, folder: &Path) -> anyhow::Result<OwnerOptions> {
    Ok(OwnerOptions {
        rules,
        resume: ResumeMode::Wait,
        clock: Clock::system(),
        entropy: system_entropy(),
        environment: Arc::new(IdleEnvironment::new(folder)?),
        merge: Duration::ZERO,
        idle: None,
    })
}

/// Returns the middle of what was measured.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
