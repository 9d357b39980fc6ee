//! The database of the record: whether it can be reached and written, and what to do if not.

use countersign_config::DatabaseSettings;
use countersign_store::{DatabaseError, PostgresLog};

use super::DoctorCheck;
use crate::record_location::database_options;

/// Checks that the database could hold the record. `None` if it could.
pub(super) fn check_database(settings: &DatabaseSettings) -> Option<DoctorCheck> {
    let error = PostgresLog::check_server(&database_options(settings)).err()?;
    Some(DoctorCheck::fix("record", error.to_string(), database_advice(&error)))
}

/// Returns what to do about an error of the database.
pub(super) fn database_advice(error: &DatabaseError) -> String {
    match error {
        DatabaseError::Address { .. } => "correct storage.url".to_owned(),
        DatabaseError::CaFile { .. } => "set storage.ca_file to a readable file with certificates in PEM".to_owned(),
        DatabaseError::Trust { .. } => "set storage.ca_file".to_owned(),
        DatabaseError::Unreachable { .. } => {
            "start the server, or correct host and port in storage.url; `pg_isready` tells whether it answers".to_owned()
        }
        DatabaseError::Tls { .. } => {
            "set storage.ca_file to the authority that signed the server's certificate, and use the host name in it; without TLS \
             in a private network, add sslmode=disable to storage.url"
                .to_owned()
        }
        DatabaseError::Login { .. } => {
            "correct user and password in storage.url, or let the role in with pg_hba.conf".to_owned()
        }
        DatabaseError::NoDatabase { .. } => "create it with `createdb`, or correct its name in storage.url".to_owned(),
        DatabaseError::Privilege { .. } => {
            "let the role own the schema: CREATE SCHEMA countersign AUTHORIZATION ROLE; see docs/operations.md".to_owned()
        }
        DatabaseError::OldServer { needed, .. } => format!("upgrade the server to PostgreSQL {needed} or newer"),
        DatabaseError::Standby { .. } => {
            "name the primary in storage.url; several hosts, separated by commas, are tried in turn".to_owned()
        }
        DatabaseError::NotDurable { setting, .. } => {
            format!("set {setting} to on for the server, the database and the role: a crash would lose decisions")
        }
        DatabaseError::Encoding { .. } => "create a database with ENCODING 'UTF8'".to_owned(),
        DatabaseError::NewerSchema { .. } | DatabaseError::NewerEvents { .. } => {
            "a newer version of countersign wrote it: use that version".to_owned()
        }
        DatabaseError::NoLog { .. } => "start `countersign serve` once, which makes the tables".to_owned(),
        DatabaseError::Owned { .. } => "stop the other gateway, or use another database".to_owned(),
        DatabaseError::NoLease { .. } => "`countersign cluster status` names the node that serves the realm".to_owned(),
        DatabaseError::NodeExists { .. } => "give each node a cluster.name of its own".to_owned(),
        DatabaseError::Failed { full: true, .. } => {
            "free space on the disk of the database: until then requests are refused".to_owned()
        }
        DatabaseError::Failed { .. } => "see the log of the server".to_owned(),
    }
}
