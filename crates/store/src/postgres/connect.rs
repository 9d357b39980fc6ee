//! Connections to the database: their address, limits and TLS, and the demands on the server.
//!
//! It must not know the tables.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use futures_util::future::poll_fn;
use tokio::{task::JoinHandle, time::timeout};
use tokio_postgres::{
    AsyncMessage, Client, Config,
    config::{Host, SslMode, TargetSessionAttrs},
};
use tracing::debug;

use super::{PostgresOptions, tls::TrustedTls};
use crate::database_error::DatabaseError;

/// The oldest version of the server that can hold a log.
const OLDEST: u32 = 14;

/// Name of a node of a cluster in the list of connections, before the id of its process.
pub(super) const NODE_NAME: &str = "countersign node of a cluster, process";

/// Time that a silent server gets beyond the longest statement.
const SILENCE: Duration = Duration::from_secs(5);

/// Purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// To a server that can be written.
    Write,
    /// To any server.
    Read,
}

/// Makes connections to one database.
pub(super) struct Connector {
    config: Config,
    tls: TrustedTls,
    access: Access,
    /// Hosts, ports and database, without a password.
    pub(super) server: String,
    pub(super) connect_timeout: Duration,
    statement_timeout: Duration,
}

/// A connection, and the task that drives it.
pub(super) struct Connected {
    pub(super) client: Arc<Client>,
    pub(super) driver: JoinHandle<()>,
    /// Number of warnings of the server. A commit that ends with one may not be on a standby.
    pub(super) warnings: Arc<AtomicU64>,
}

impl Connector {
    /// Reads the address.
    pub(super) fn new(options: &PostgresOptions, access: Access) -> Result<Self, DatabaseError> {
        let mut config = parse_address(&options.url)?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(DatabaseError::Address { problem: "no host in it".to_owned() });
        }
        let chosen = options.url.contains("sslmode=");
        if options.ca_file.is_some() || !chosen && config.get_hosts().iter().any(|host| !is_of_this_machine(host)) {
            config.ssl_mode(SslMode::Require);
        }
        if access == Access::Write {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let statement_timeout = options.statement_timeout;
        let limit = statement_timeout.as_millis();
        let settings = format!(
            "{} -c statement_timeout={limit} -c lock_timeout={limit} -c idle_in_transaction_session_timeout={limit} \
             -c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3 -c client_min_messages=warning",
            config.get_options().unwrap_or_default()
        );
        config
            .options(settings)
            .application_name(match &options.lease {
                Some(_) => format!("{NODE_NAME} {}", std::process::id()),
                None => format!("countersign process {}", std::process::id()),
            })
            .connect_timeout(options.connect_timeout)
            .keepalives_idle(Duration::from_secs(10))
            .tcp_user_timeout(statement_timeout + SILENCE);
        Ok(Self {
            server: server_name(&config),
            tls: TrustedTls::new(options.ca_file.as_deref())?,
            config,
            access,
            connect_timeout: options.connect_timeout,
            statement_timeout,
        })
    }

    /// Longest time that an answer of the server may take.
    pub(super) fn answer_timeout(&self) -> Duration {
        self.statement_timeout + SILENCE
    }

    /// Connects on the current runtime, and checks that the server can hold a log.
    pub(super) async fn connect(&self) -> Result<Connected, DatabaseError> {
        let connecting = self.config.connect(self.tls.clone());
        let (client, mut connection) = match timeout(self.connect_timeout, connecting).await {
            Ok(Ok(connected)) => connected,
            Ok(Err(error)) => return Err(DatabaseError::of_connect(&self.server, &error)),
            Err(_) => {
                let problem = format!("no answer within {} s", self.connect_timeout.as_secs_f32());
                return Err(DatabaseError::Unreachable { server: self.server.clone(), problem });
            }
        };
        let warnings = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&warnings);
        let driver = tokio::spawn(async move {
            while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
                match message {
                    Ok(AsyncMessage::Notice(notice)) => {
                        debug!(%notice, "a notice of the database");
                        counted.fetch_add(1, Ordering::AcqRel);
                    }
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
        });
        let connected = Connected { client: Arc::new(client), driver, warnings };
        match timeout(self.connect_timeout, self.check_server(&connected.client)).await {
            Ok(checked) => checked?,
            Err(_) => {
                let problem = "no answer to the first query".to_owned();
                return Err(DatabaseError::Unreachable { server: self.server.clone(), problem });
            }
        }
        Ok(connected)
    }

    async fn check_server(&self, client: &Client) -> Result<(), DatabaseError> {
        let row = client
            .query_one(
                "SELECT current_setting('server_version_num'), current_setting('server_version'), \
                        current_setting('server_encoding'), pg_is_in_recovery(), \
                        current_setting('fsync'), current_setting('synchronous_commit')",
                &[],
            )
            .await
            .map_err(|error| DatabaseError::of_statement(&self.server, &error))?;
        let facts = ServerFacts {
            version: row.get::<_, &str>(0).parse().unwrap_or_default(),
            version_text: row.get(1),
            encoding: row.get(2),
            standby: row.get(3),
            fsync: row.get(4),
            synchronous_commit: row.get(5),
        };
        facts.check(&self.server, self.access)
    }

    /// Returns a pool of `size` connections for reads. Each is made when it is needed.
    pub(super) fn pool(&self, size: usize) -> Result<Pool, DatabaseError> {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        Pool::builder(Manager::from_config(self.config.clone(), self.tls.clone(), recycling))
            .max_size(size.max(1))
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(self.answer_timeout()))
            .create_timeout(Some(self.connect_timeout))
            .build()
            .map_err(|error| DatabaseError::Address { problem: error.to_string() })
    }
}

/// Reads an address. Every certificate is verified, so `verify-ca` and `verify-full` are no more than `require`.
fn parse_address(url: &str) -> Result<Config, DatabaseError> {
    let url = url.replace("sslmode=verify-full", "sslmode=require").replace("sslmode=verify-ca", "sslmode=require");
    url.parse().map_err(|error: tokio_postgres::Error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        DatabaseError::Address { problem: cause.unwrap_or_else(|| error.to_string()) }
    })
}

fn is_of_this_machine(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        Host::Unix(_) => true,
    }
}

fn server_name(config: &Config) -> String {
    let mut hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .enumerate()
        .map(|(index, host)| {
            let ports = config.get_ports();
            let port = ports.get(index).or_else(|| ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) => format!("{name}:{port}"),
                Host::Unix(folder) => format!("{}:{port}", folder.display()),
            }
        })
        .collect();
    if hosts.is_empty() {
        hosts = config.get_hostaddrs().iter().map(ToString::to_string).collect();
    }
    format!("{}/{}", hosts.join(","), config.get_dbname().or_else(|| config.get_user()).unwrap_or_default())
}

/// What a server says about itself.
#[derive(Clone, Debug)]
struct ServerFacts {
    version: u32,
    version_text: String,
    encoding: String,
    standby: bool,
    fsync: String,
    synchronous_commit: String,
}

impl ServerFacts {
    /// Decides whether the server can hold a log.
    fn check(self, server: &str, access: Access) -> Result<(), DatabaseError> {
        let server = server.to_owned();
        if self.version < OLDEST * 10_000 {
            return Err(DatabaseError::OldServer { server, found: self.version_text, needed: OLDEST });
        }
        if self.encoding != "UTF8" {
            return Err(DatabaseError::Encoding { server, found: self.encoding });
        }
        if access == Access::Read {
            return Ok(());
        }
        if self.standby {
            return Err(DatabaseError::Standby { server });
        }
        for (setting, value) in [("fsync", self.fsync), ("synchronous_commit", self.synchronous_commit)] {
            if value == "off" {
                return Err(DatabaseError::NotDurable { server, setting, value });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Access, Connector, DatabaseError, PostgresOptions, ServerFacts, SslMode};

    fn facts() -> ServerFacts {
        ServerFacts {
            version: 150_018,
            version_text: "15.18".to_owned(),
            encoding: "UTF8".to_owned(),
            standby: false,
            fsync: "on".to_owned(),
            synchronous_commit: "remote_apply".to_owned(),
        }
    }

    #[test]
    fn a_server_that_is_old_or_loses_commits_is_refused() {
        let server = "db:5432/log".to_owned();
        let off = "off".to_owned();
        for (facts, access, want) in [
            (facts(), Access::Write, Ok(())),
            (
                ServerFacts { version: 130_011, version_text: "13.11".to_owned(), ..facts() },
                Access::Read,
                Err(DatabaseError::OldServer { server: server.clone(), found: "13.11".to_owned(), needed: 14 }),
            ),
            (
                ServerFacts { encoding: "LATIN1".to_owned(), ..facts() },
                Access::Read,
                Err(DatabaseError::Encoding { server: server.clone(), found: "LATIN1".to_owned() }),
            ),
            (
                ServerFacts { standby: true, ..facts() },
                Access::Write,
                Err(DatabaseError::Standby { server: server.clone() }),
            ),
            (ServerFacts { standby: true, fsync: off.clone(), ..facts() }, Access::Read, Ok(())),
            (
                ServerFacts { fsync: off.clone(), ..facts() },
                Access::Write,
                Err(DatabaseError::NotDurable { server: server.clone(), setting: "fsync", value: off.clone() }),
            ),
            (
                ServerFacts { synchronous_commit: off.clone(), ..facts() },
                Access::Write,
                Err(DatabaseError::NotDurable {
                    server: server.clone(),
                    setting: "synchronous_commit",
                    value: off.clone(),
                }),
            ),
        ] {
            assert_eq!(facts.check(&server, access), want);
        }
    }

    #[test]
    fn a_server_elsewhere_is_reached_by_tls_unless_the_address_says_otherwise() {
        for (url, want) in [
            ("postgres://ana:secret@localhost/log", SslMode::Prefer),
            ("postgres://ana:secret@127.0.0.1:5433/log", SslMode::Prefer),
            ("host=/run/postgresql dbname=log", SslMode::Prefer),
            ("postgres://ana:secret@db.example.com/log", SslMode::Require),
            ("postgres://ana:secret@db.example.com/log?sslmode=disable", SslMode::Disable),
            ("postgres://ana:secret@localhost/log?sslmode=verify-full", SslMode::Require),
        ] {
            let connector = Connector::new(&PostgresOptions::new(url), Access::Write).unwrap();
            assert_eq!(connector.config.get_ssl_mode(), want, "{url}");
            assert!(!connector.server.contains("secret"), "{url}");
        }
    }

    #[test]
    fn an_address_of_something_else_is_refused_without_its_password() {
        for url in ["mysql://ana:secret@db/log", "postgres://ana:secret@/log", "", "postgres://ana:secret@db:port/log"]
        {
            match Connector::new(&PostgresOptions::new(url), Access::Read).map(drop) {
                Err(error @ DatabaseError::Address { .. }) => assert!(!error.to_string().contains("secret"), "{error}"),
                other => panic!("{url}: {other:?}"),
            }
        }
    }
}
