//! Statements of the writer's thread, one after the other, each with a limit of time.
//!
//! It must not know what they say.

use std::{cell::RefCell, collections::HashMap, time::Duration};

use tokio::{runtime::Runtime, time::timeout};
use tokio_postgres::{Client, Row, Statement, types::ToSql};

use super::session::WriterSession;
use crate::database_error::{ServerError, StatementError};

/// Statements that the server of one connection knows.
#[derive(Default)]
pub(super) struct PreparedStatements(RefCell<HashMap<&'static str, Statement>>);

/// Runs statements and waits for them.
#[derive(Clone, Copy)]
pub(super) struct Statements<'a> {
    runtime: &'a Runtime,
    client: &'a Client,
    prepared: &'a PreparedStatements,
    limit: Duration,
}

impl<'a> Statements<'a> {
    pub(super) fn new(runtime: &'a Runtime, session: &'a WriterSession, limit: Duration) -> Self {
        Self { runtime, client: &session.client, prepared: &session.prepared, limit }
    }

    pub(super) fn query(
        &self,
        sql: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StatementError> {
        let statement = self.prepare(sql)?;
        self.wait_for(self.client.query(&statement, parameters))
    }

    pub(super) fn execute(&self, sql: &'static str, parameters: &[&(dyn ToSql + Sync)]) -> Result<u64, StatementError> {
        let statement = self.prepare(sql)?;
        self.wait_for(self.client.execute(&statement, parameters))
    }

    /// Runs statements without parameters.
    pub(super) fn run_script(&self, sql: &str) -> Result<(), StatementError> {
        self.wait_for(self.client.batch_execute(sql))
    }

    /// Does `work` in one transaction.
    pub(super) fn transaction<T>(&self, work: impl FnOnce() -> Result<T, StatementError>) -> Result<T, StatementError> {
        self.run_script("BEGIN")?;
        match work() {
            Ok(done) => {
                self.run_script("COMMIT")?;
                Ok(done)
            }
            Err(error) => {
                // The first error is the one to report.
                let _ = self.run_script("ROLLBACK");
                Err(error)
            }
        }
    }

    /// Does `work` in a transaction that is always rolled back.
    pub(super) fn run_trial<T>(&self, work: impl FnOnce() -> Result<T, StatementError>) -> Result<T, StatementError> {
        self.run_script("BEGIN")?;
        let tried = work();
        self.run_script("ROLLBACK")?;
        tried
    }

    fn prepare(&self, sql: &'static str) -> Result<Statement, StatementError> {
        if let Some(known) = self.prepared.0.borrow().get(sql).cloned() {
            return Ok(known);
        }
        let statement = self.wait_for(self.client.prepare(sql))?;
        self.prepared.0.borrow_mut().insert(sql, statement.clone());
        Ok(statement)
    }

    fn wait_for<T>(&self, answer: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, StatementError> {
        self.runtime.block_on(async {
            match timeout(self.limit, answer).await {
                Ok(result) => result.map_err(StatementError::from),
                Err(_) => Err(StatementError::Lost(silence(self.limit))),
            }
        })
    }
}

/// The error of a server that did not answer within `limit`.
pub(super) fn silence(limit: Duration) -> ServerError {
    ServerError::new(format!("the database did not answer within {} s", limit.as_secs_f32()))
}
