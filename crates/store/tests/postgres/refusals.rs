//! What a server or its address lacks is named.

use std::{net::TcpListener, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use countersign_core::id::Lsn;
use countersign_store::{
    DatabaseError, PostgresLog, PostgresOptions,
    suite::{append_as_owner, text_batch},
};

use crate::{database::Database, server::PostgresServer};

const CERTIFICATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../testkit/src/process/data/cert.pem");
const KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../testkit/src/process/data/key.pem");

fn refusal(options: PostgresOptions) -> DatabaseError {
    let options = PostgresOptions { connect_timeout: Duration::from_secs(5), ..options };
    PostgresLog::open(options).map(drop).unwrap_err()
}

#[tokio::test]
async fn a_newer_schema_and_newer_events_are_refused_and_left_alone() {
    let Some(database) = Database::new() else { return };
    let log = database.open();
    append_as_owner(&log, Lsn(0), text_batch(&["one"])).await.unwrap();
    drop(log);
    let admin = database.admin().await;
    for (key, text) in [("schema_version", "schema version 99"), ("event_format", "event format 99")] {
        admin.execute("UPDATE countersign.meta SET value = 99 WHERE key = $1", &[&key]).await.unwrap();
        for result in [PostgresLog::open(database.options()), PostgresLog::open_read_only(database.options())] {
            let error = result.map(drop).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
        admin.execute("UPDATE countersign.meta SET value = 1 WHERE key = $1", &[&key]).await.unwrap();
    }
    drop(database.open());
}

#[tokio::test]
async fn a_database_without_a_log_is_refused_to_readers() {
    let Some(database) = Database::new() else { return };
    let result = PostgresLog::open_read_only(database.options());
    assert!(matches!(result, Err(DatabaseError::NoLog { .. })), "{result:?}");
}

#[tokio::test]
async fn a_wrong_address_role_or_database_is_named() {
    let Some(database) = Database::new() else { return };
    let server = database.server;
    let error = refusal(PostgresOptions::new(server.url("nobody_here", &database.name)));
    assert!(matches!(error, DatabaseError::Login { .. }), "{error:?}");
    let error = refusal(PostgresOptions::new(server.url("postgres", "no_such_database")));
    assert!(matches!(error, DatabaseError::NoDatabase { .. }), "{error:?}");
    let error = refusal(PostgresOptions::new("host=/nowhere user=postgres dbname=log"));
    assert!(matches!(error, DatabaseError::Unreachable { .. }), "{error:?}");
    let error = refusal(PostgresOptions::new("mysql://ana@db/log"));
    assert!(matches!(error, DatabaseError::Address { .. }), "{error:?}");
    let error = refusal(PostgresOptions { ca_file: Some("/nowhere/ca.pem".into()), ..database.options() });
    assert!(matches!(error, DatabaseError::CaFile { .. }), "{error:?}");
}

#[tokio::test]
async fn a_server_that_loses_commits_is_refused() {
    let Some(database) = Database::new() else { return };
    let admin = database.admin().await;
    admin.batch_execute(&format!("ALTER DATABASE {} SET synchronous_commit = off", database.name)).await.unwrap();
    let error = refusal(database.options());
    assert!(
        matches!(&error, DatabaseError::NotDurable { setting: "synchronous_commit", value, .. } if value == "off"),
        "{error:?}"
    );
    let Some(unsafe_server) = PostgresServer::start(&["fsync=off"], |_| {}) else { return };
    let name = unsafe_server.make_database();
    let error = refusal(PostgresOptions::new(unsafe_server.url("postgres", &name)));
    assert!(matches!(error, DatabaseError::NotDurable { setting: "fsync", .. }), "{error:?}");
}

#[tokio::test]
async fn a_database_in_another_encoding_is_refused() {
    let Some(server) = PostgresServer::shared() else { return };
    server.run_sql("postgres", "CREATE DATABASE latin ENCODING LATIN1 TEMPLATE template0");
    let error = refusal(PostgresOptions::new(server.url("postgres", "latin")));
    assert!(matches!(&error, DatabaseError::Encoding { found, .. } if found == "LATIN1"), "{error:?}");
}

#[tokio::test]
async fn tls_needs_a_certificate_of_the_trusted_authority() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let copy = |folder: &Path| {
        for (from, to) in [(CERTIFICATE, "server.crt"), (KEY, "server.key")] {
            std::fs::copy(from, folder.join(to)).unwrap();
            std::fs::set_permissions(folder.join(to), std::fs::Permissions::from_mode(0o600)).unwrap();
        }
    };
    let settings = [
        "ssl=on".to_owned(),
        "ssl_cert_file=../server.crt".to_owned(),
        "ssl_key_file=../server.key".to_owned(),
        "listen_addresses=127.0.0.1".to_owned(),
        format!("port={port}"),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let Some(server) = PostgresServer::start(&settings, copy) else { return };
    let socket = format!("host={} port={port} user=postgres dbname=postgres", server.folder.display());
    while tokio_postgres::connect(&socket, tokio_postgres::NoTls).await.is_err() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    let at = |host: &str| PostgresOptions::new(format!("host={host} port={port} user=postgres dbname=postgres"));
    let trusted = PostgresOptions { ca_file: Some(CERTIFICATE.into()), ..at("localhost") };
    let log = PostgresLog::open(trusted).unwrap();
    append_as_owner(&log, Lsn(0), text_batch(&["one"])).await.unwrap();
    drop(log);

    let required = PostgresOptions::new(format!("postgres://postgres@localhost:{port}/postgres?sslmode=require"));
    let error = refusal(required);
    assert!(matches!(error, DatabaseError::Tls { .. } | DatabaseError::Trust { .. }), "{error:?}");
    let another = PostgresOptions { ca_file: Some(CERTIFICATE.into()), ..at("db.example.com hostaddr=127.0.0.1") };
    let error = refusal(another);
    assert!(matches!(error, DatabaseError::Tls { .. }), "{error:?}");
}
