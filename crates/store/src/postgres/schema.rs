//! The tables of a log, and their version.
//!
//! It must not know the rows of the tables.

use tokio_postgres::Client;

use crate::database_error::DatabaseError;

/// Statements that bring the tables from each version to the next.
const MIGRATIONS: [&str; 1] = [include_str!("schema/1.sql")];

/// The version that this program reads and writes.
const VERSION: i64 = MIGRATIONS.len() as i64;

/// State of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    /// Without a log. There may be a schema for it.
    Blank { has_schema: bool },
    /// With a log of a version that this program knows.
    Log { version: i64, event_format: i64 },
}

/// Checks that there is a log that can be read.
pub(super) async fn check_log(client: &Client, server: &str, event_format: u32) -> Result<(), DatabaseError> {
    match identify_database(client, server, event_format).await? {
        Identity::Blank { .. } => Err(DatabaseError::NoLog { server: server.to_owned() }),
        Identity::Log { version, .. } if version < VERSION => {
            let problem =
                format!("its tables have version {version}: start the gateway once to bring them to {VERSION}");
            Err(DatabaseError::Failed { server: server.to_owned(), problem, full: false })
        }
        Identity::Log { .. } => Ok(()),
    }
}

/// Checks that the role may write the log, or make its tables.
pub(super) async fn check_privileges(client: &Client, server: &str, event_format: u32) -> Result<(), DatabaseError> {
    let sql = match identify_database(client, server, event_format).await? {
        Identity::Blank { has_schema: false } => {
            "SELECT has_database_privilege(current_database(), 'CREATE'), 'CREATE on the database'"
        }
        Identity::Blank { has_schema: true } => {
            "SELECT has_schema_privilege('countersign', 'CREATE'), 'CREATE on the schema countersign'"
        }
        Identity::Log { .. } => {
            "SELECT has_table_privilege('countersign.events', 'INSERT') AND has_table_privilege('countersign.partitions', 'UPDATE'),
                    'INSERT and UPDATE on the tables of the schema countersign'"
        }
    };
    let row = client.query_one(sql, &[]).await.map_err(|error| DatabaseError::of_statement(server, &error))?;
    if row.get(0) {
        return Ok(());
    }
    Err(DatabaseError::Privilege { server: server.to_owned(), problem: format!("{} is needed", row.get::<_, &str>(1)) })
}

/// Makes the tables, or brings them to today's version, and marks them with the format of the events to come.
pub(super) async fn prepare_log(client: &Client, server: &str, event_format: u32) -> Result<(), DatabaseError> {
    let (has_schema, version) = match identify_database(client, server, event_format).await? {
        Identity::Log { version: VERSION, event_format: found } if found == i64::from(event_format) => return Ok(()),
        Identity::Log { version, .. } => (true, version),
        Identity::Blank { has_schema } => (has_schema, 0),
    };
    let due = MIGRATIONS.iter().skip(usize::try_from(version).unwrap_or_default());
    let mut script = String::from("BEGIN;");
    if !has_schema {
        script.push_str("CREATE SCHEMA countersign;");
    }
    due.for_each(|migration| script.push_str(migration));
    script.push_str(&format!(
        "INSERT INTO countersign.meta (key, value) VALUES ('schema_version', {VERSION}), ('event_format', {event_format})
         ON CONFLICT (key) DO UPDATE SET value = excluded.value;
         COMMIT;"
    ));
    client.batch_execute(&script).await.map_err(|error| DatabaseError::of_statement(server, &error))
}

/// Reports whether the database has the tables of a log, of any version.
pub(super) async fn has_log(client: &Client, server: &str) -> Result<bool, DatabaseError> {
    let row = client
        .query_one("SELECT to_regclass('countersign.meta') IS NOT NULL", &[])
        .await
        .map_err(|error| DatabaseError::of_statement(server, &error))?;
    Ok(row.get(0))
}

async fn identify_database(client: &Client, server: &str, event_format: u32) -> Result<Identity, DatabaseError> {
    let failed = |error: tokio_postgres::Error| DatabaseError::of_statement(server, &error);
    let row = client
        .query_one(
            "SELECT to_regnamespace('countersign') IS NOT NULL, to_regclass('countersign.meta') IS NOT NULL",
            &[],
        )
        .await
        .map_err(failed)?;
    if !row.get::<_, bool>(1) {
        return Ok(Identity::Blank { has_schema: row.get(0) });
    }
    let row = client
        .query_one(
            "SELECT (SELECT value FROM countersign.meta WHERE key = 'schema_version'),
                    (SELECT value FROM countersign.meta WHERE key = 'event_format')",
            &[],
        )
        .await
        .map_err(failed)?;
    let server = server.to_owned();
    let (Some(version), Some(found)) = (row.get::<_, Option<i64>>(0), row.get::<_, Option<i64>>(1)) else {
        let problem = "the schema countersign holds something else than a log".to_owned();
        return Err(DatabaseError::Failed { server, problem, full: false });
    };
    if version > VERSION {
        return Err(DatabaseError::NewerSchema { server, found: version, known: VERSION });
    }
    if found > i64::from(event_format) {
        return Err(DatabaseError::NewerEvents { server, found, known: event_format });
    }
    Ok(Identity::Log { version, event_format: found })
}
