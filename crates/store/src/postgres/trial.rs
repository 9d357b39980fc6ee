//! Trials of whether the database takes entries, which leave nothing in its tables.
//!
//! It must not know why an append was refused.

use tokio_postgres::Client;

use super::{session::PARTITION, statements::Statements};
use crate::database_error::{DatabaseError, StatementError};

/// Sorts 1 MiB with little memory, so that the server writes it to a temporary file on the disk of the tables.
const USE_SPACE: &str = "SET LOCAL work_mem = '64kB'; SET LOCAL temp_tablespaces = '';
    SELECT count(*) FROM (
        SELECT repeat(md5(number::text), 32) AS text FROM generate_series(1, 1024) AS number ORDER BY text
    ) AS sorted";

/// Inserts a row where no entry is.
const INSERT: &str = "INSERT INTO countersign.events (partition, lsn, at, session, kind, version, facts, chain, key)
    VALUES ($1, -1, 0, sha256(''), 'trial', 0, '', sha256(''), sha256(''))";

/// Tries what an append needs: space, and the right to insert.
pub(super) fn try_append(statements: Statements<'_>) -> Result<(), StatementError> {
    match statements.run_trial(|| statements.run_script(USE_SPACE)) {
        // The server may limit temporary files; that says nothing about its disk.
        Err(StatementError::Refused(error)) if !error.full => {}
        tried => tried?,
    }
    statements.run_trial(|| statements.execute(INSERT, &[&PARTITION])).map(drop)
}

/// Checks that the disk of the database has space.
pub(super) async fn check_space(client: &Client, server: &str) -> Result<(), DatabaseError> {
    let tried = client.batch_execute(&format!("BEGIN; {USE_SPACE}; ROLLBACK")).await;
    let failed = tried.err().map(|error| DatabaseError::of_statement(server, &error));
    failed.filter(DatabaseError::is_full).map_or(Ok(()), Err)
}
