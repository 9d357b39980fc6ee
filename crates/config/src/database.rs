//! `storage` of type `postgres`: the database of the record.
//!
//! It must not connect to it.

use std::{fmt, path::PathBuf, time::Duration};

use countersign_runtime::store::PostgresOptions;
use secrecy::{ExposeSecret as _, SecretString};

use super::{config_field::ConfigField, typed_values::parse_span};

/// Most connections for reads that the gateway may hold.
const MOST_CONNECTIONS: i64 = 100;

/// Database that holds the record instead of a file.
#[derive(Clone)]
pub struct DatabaseSettings {
    url: SecretString,
    ca_file: Option<PathBuf>,
    connections: Option<usize>,
    statement_timeout: Option<Duration>,
}

impl DatabaseSettings {
    /// Returns the options with which the store opens the record.
    pub fn to_options(&self) -> PostgresOptions {
        let usual = PostgresOptions::new(self.url.expose_secret());
        PostgresOptions {
            ca_file: self.ca_file.clone(),
            readers: self.connections.unwrap_or(usual.readers),
            statement_timeout: self.statement_timeout.unwrap_or(usual.statement_timeout),
            ..usual
        }
    }
}

impl PartialEq for DatabaseSettings {
    fn eq(&self, other: &Self) -> bool {
        self.url.expose_secret() == other.url.expose_secret()
            && (&self.ca_file, self.connections, self.statement_timeout)
                == (&other.ca_file, other.connections, other.statement_timeout)
    }
}

impl Eq for DatabaseSettings {}

/// Without the address, since it may hold a password.
impl fmt::Debug for DatabaseSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseSettings").field("ca_file", &self.ca_file).finish_non_exhaustive()
    }
}

/// Reads the database that `storage` names, if its type is `postgres`. Keys of the other type are refused.
pub(super) fn read_database(place: &ConfigField<'_>) -> Option<DatabaseSettings> {
    place.check_mapping(&["type", "path", "url", "ca_file", "connections", "statement_timeout"]);
    let kind = place.at("type");
    match kind.text().as_deref() {
        None | Some("sqlite") => {
            for key in ["url", "ca_file", "connections", "statement_timeout"] {
                if place.has_key(key) {
                    place.at(key).report_refusal("belongs to a database: set storage.type to 'postgres'");
                }
            }
            None
        }
        Some("postgres") => {
            if place.has_key("path") {
                place.at("path").report_refusal(
                    "belongs to storage.type 'sqlite': the record is in the database, and --data names the data directory",
                );
            }
            read_settings(place)
        }
        Some(other) => {
            kind.report_refusal(format!("Unsupported storage type: '{other}' (must be 'sqlite' or 'postgres')"));
            None
        }
    }
}

fn read_settings(place: &ConfigField<'_>) -> Option<DatabaseSettings> {
    let connections = place.at("connections").integer_in(1, MOST_CONNECTIONS);
    let span = place.at("statement_timeout");
    let statement_timeout = span.text().and_then(|text| {
        let found = parse_span(&text);
        if found.is_none() {
            span.report_refusal(format!("expected a span such as 30s, found '{text}'"));
        }
        found
    });
    let url = place.at("url");
    let address = url.needed_secret()?;
    let text = address.expose_secret();
    if !["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme)) && !text.contains("host=") {
        url.report_refusal(
            "expected postgres://USER:PASSWORD@HOST:PORT/DATABASE or host=HOST dbname=DATABASE user=USER",
        );
    }
    Some(DatabaseSettings {
        url: address,
        ca_file: place.at("ca_file").path(),
        connections: connections.and_then(|count| usize::try_from(count).ok()),
        statement_timeout,
    })
}
