//! Filters of the command line over a long record.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context as _, ensure};
use rusqlite::Connection;

use crate::{
    bench::{
        FigureSuite,
        figure::{BenchFigure, FigureGroup, FigureUnit, median},
        lazy_measurement, scale, to_millis,
    },
    fixture::scratch::ScratchFolder,
};

const RECORDS: usize = 1_000_000;
const SESSIONS: usize = 100_000;
const ROUNDS: usize = 3;

/// Milliseconds of each filter, of a run that ends without a search, and of the plain read.
struct AuditFigures {
    kind: f64,
    session: f64,
    nothing: f64,
    plain_read: f64,
}

/// Measures filters that find nothing, so that no search can end early.
pub(super) fn measure_all(binary: &Path, suite: &mut FigureSuite<'_>) {
    suite.group = FigureGroup::Record;
    let audit = lazy_measurement(|| measure_filters(binary));
    suite.measure(
        BenchFigure::new("audit tail, a kind that none of 1,000,000 records has", FigureUnit::Millis)
            .target_yardsticks(3.0),
        &mut || audit.get_result().map(|audit| (audit.kind, Some(audit.plain_read))),
    );
    suite.measure(
        BenchFigure::new("audit tail, a session that none of 1,000,000 records has", FigureUnit::Millis)
            .target_yardsticks(2.0),
        &mut || audit.get_result().map(|audit| (audit.session, Some(audit.nothing))),
    );
}

fn measure_filters(binary: &Path) -> anyhow::Result<AuditFigures> {
    let scratch = ScratchFolder::new("audit")?;
    let log = scale::fill_log(&scratch, SESSIONS, RECORDS)?;
    let tail = |filter: &[&str]| time_tail(binary, &log, filter);
    Ok(AuditFigures {
        kind: tail(&["--kind", "unattended"])?,
        session: tail(&["--session", "none"])?,
        nothing: tail(&["-n", "0"])?,
        plain_read: time_plain_read(&log)?,
    })
}

/// Returns the milliseconds of `audit tail` with a filter that finds nothing.
fn time_tail(binary: &Path, log: &Path, filter: &[&str]) -> anyhow::Result<f64> {
    let turn = || {
        let begun = Instant::now();
        let output = Command::new(binary).args(["audit", "tail", "--log"]).arg(log).args(filter).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        ensure!(output.stdout.is_empty(), "found: {}", String::from_utf8_lossy(&output.stdout));
        Ok(to_millis(begun.elapsed()))
    };
    let rounds = std::iter::repeat_with(turn).take(ROUNDS).collect::<anyhow::Result<Vec<f64>>>()?;
    median(rounds).context("nothing was measured")
}

/// Returns the milliseconds in which SQLite reads the facts of all records once.
fn time_plain_read(log: &PathBuf) -> anyhow::Result<f64> {
    let connection = Connection::open(log)?;
    let turn = || {
        let begun = Instant::now();
        let length: i64 = connection.query_row("SELECT sum(length(facts)) FROM events", [], |row| row.get(0))?;
        ensure!(length > 0, "the record is empty");
        Ok(to_millis(begun.elapsed()))
    };
    let rounds = std::iter::repeat_with(turn).take(ROUNDS).collect::<anyhow::Result<Vec<f64>>>()?;
    median(rounds).context("nothing was measured")
}
