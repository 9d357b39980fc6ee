//! Writes of the one writer that are no appends of records by an owner.
//!
//! It must not know groups of appends.

use countersign_core::{digest::Digest, id::Lsn};

use super::LogWriter;
use crate::{
    database_error::ServerError,
    error::{ErrorCause, LogWriteError},
    postgres::{import, query::sql_position, session::PARTITION, trial},
    record::{LogHead, Snapshot},
    transfer::RawRecord,
};

impl LogWriter {
    pub(super) fn redact_contents(&mut self, lsns: &[Lsn]) -> Result<usize, LogWriteError> {
        let positions: Vec<i64> = lsns.iter().map(|lsn| sql_position(*lsn)).collect();
        self.connect().map_err(LogWriteError::from)?;
        let head = self.state.head;
        let removed = self.run_write(|statements, views| {
            statements.transaction(|| {
                let removed = statements.execute(
                    "UPDATE countersign.contents SET salt = NULL, bytes = NULL
                     WHERE partition = $1 AND lsn = ANY($2) AND bytes IS NOT NULL",
                    &[&PARTITION, &positions],
                )?;
                if removed > 0 {
                    views.forget_contents(statements, head)?;
                }
                Ok(removed)
            })
        })?;
        if removed > 0 {
            // Until then the old bytes stand in the tables.
            self.run_write(|statements, _| statements.run_script("VACUUM countersign.contents, countersign.views"))
                .map_err(|error| LogWriteError::Lingers(ErrorCause::new(error)))?;
        }
        Ok(usize::try_from(removed).unwrap_or(usize::MAX))
    }

    pub(super) fn save_snapshot(&mut self, snapshot: &Snapshot) -> Result<(), LogWriteError> {
        self.run_write(|statements, _| {
            statements
                .execute(
                    "INSERT INTO countersign.snapshots (partition, lsn, chain, version, digest, bytes)
                     VALUES ($1, $2, $3, $4, $5, $6)
                     ON CONFLICT (partition) DO UPDATE SET lsn = excluded.lsn, chain = excluded.chain,
                     version = excluded.version, digest = excluded.digest, bytes = excluded.bytes",
                    &[
                        &PARTITION,
                        &sql_position(snapshot.lsn),
                        &snapshot.chain.as_bytes().as_slice(),
                        &i64::from(snapshot.version),
                        &Digest::hash_bytes(&snapshot.bytes).as_bytes().as_slice(),
                        &&*snapshot.bytes,
                    ],
                )
                .map(drop)
        })
    }

    pub(super) fn import_raw(&mut self, expected: LogHead, records: &[RawRecord]) -> Result<(), LogWriteError> {
        self.refresh()?;
        if self.state.head != expected {
            let moved = ServerError::new("the log was written by another process meanwhile");
            return Err(LogWriteError::Io(ErrorCause::new(moved)));
        }
        self.run_write(|statements, _| statements.transaction(|| import::insert_records(statements, records)))?;
        self.refresh().map_err(LogWriteError::from)
    }

    /// Updates a row that every log has. After a refused append that is not enough: on a full disk it succeeds, because the
    /// server reuses the space of an older version of the row.
    pub(super) fn probe_write(&mut self) -> Result<(), LogWriteError> {
        let was_refused = self.was_refused;
        self.run_write(|statements, _| {
            if was_refused {
                trial::try_append(statements)?;
            }
            statements
                .execute("UPDATE countersign.partitions SET probes = probes + 1 WHERE partition = $1", &[&PARTITION])
                .map(drop)
        })?;
        self.was_refused = false;
        Ok(())
    }
}
