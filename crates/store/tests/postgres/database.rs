//! A database of its own for each test.

use countersign_store::{PostgresLog, PostgresOptions};
use tokio_postgres::{Client, NoTls};

use crate::server::PostgresServer;

/// An empty database of the shared server.
pub(crate) struct Database {
    pub(crate) server: &'static PostgresServer,
    pub(crate) name: String,
}

impl Database {
    /// Makes one; none where PostgreSQL is not installed.
    pub(crate) fn new() -> Option<Self> {
        let server = PostgresServer::shared()?;
        Some(Self { server, name: server.make_database() })
    }

    pub(crate) fn options(&self) -> PostgresOptions {
        PostgresOptions::new(self.server.url("postgres", &self.name))
    }

    pub(crate) fn open(&self) -> PostgresLog {
        PostgresLog::open(self.options()).unwrap()
    }

    /// Connects as the administrator.
    pub(crate) async fn admin(&self) -> Client {
        self.connect_as("postgres").await
    }

    /// Connects as a role.
    pub(crate) async fn connect_as(&self, role: &str) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.server.url(role, &self.name), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}
