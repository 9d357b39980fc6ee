//! Nodes of a cluster, and the leases of its realms, by the clock of the database.
//!
//! It must not know what a node does with a realm.

use std::{fmt, net::IpAddr, time::Duration};

use tokio::{sync::Mutex, time::timeout};
use tokio_postgres::{Client, Row, types::ToSql};

use super::{
    PostgresOptions,
    connect::{Access, Connected, Connector},
    known_head::KnownHead,
    schema,
    statements::silence,
};
use crate::database_error::DatabaseError;

/// Version of the tables that this program reads and writes.
const VERSION: i64 = 1;

/// Attempts to make the tables, since two nodes may make them at once.
const ATTEMPTS: usize = 5;

/// Process of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    /// Name of the node, distinct in its cluster.
    pub name: String,
    /// Id of this process, random and therefore different after each start.
    pub process: String,
    /// URL at which other nodes reach it.
    pub advertise: String,
    /// Version of the program.
    pub program: String,
    /// Addresses of its machine, without loopback.
    pub addresses: Vec<IpAddr>,
    /// Length of its leases.
    pub lease: Duration,
}

/// Node as the database has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    /// Name of the node.
    pub name: String,
    /// Id of its process.
    pub process: String,
    /// URL at which other nodes reach it.
    pub advertise: String,
    /// Version of its program.
    pub program: String,
    /// Addresses of its machine, without loopback.
    pub addresses: Vec<IpAddr>,
    /// Time since its last sign of life.
    pub seen: Duration,
    /// True if that is not longer ago than its lease.
    pub is_alive: bool,
    /// True if it takes no realm any more, until it starts again.
    pub is_draining: bool,
}

/// Lease of a realm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRow {
    /// Realm.
    pub realm: String,
    /// Name and process of the last owner; none if there was never one.
    pub owner: Option<(String, String)>,
    /// Number of the lease: it grows with each change of the owner.
    pub term: u64,
    /// Time since the owner took it, in a lease that has not ended.
    pub age: Duration,
    /// Time until the lease ends; zero if it has ended.
    pub remaining: Duration,
    /// Node that is to own the realm next, if a user named one.
    pub next_owner: Option<String>,
}

impl LeaseRow {
    /// Reports whether `process` owns the realm now.
    pub fn is_held_by(&self, process: &str) -> bool {
        !self.remaining.is_zero() && self.owner.as_ref().is_some_and(|(_, owner)| owner == process)
    }
}

/// State of a cluster at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterRows {
    /// Nodes, by name.
    pub nodes: Vec<NodeRow>,
    /// Leases, by realm.
    pub leases: Vec<LeaseRow>,
}

impl ClusterRows {
    /// Returns the node that owns `realm` now, if it is alive.
    pub fn owner_of(&self, realm: &str) -> Option<&NodeRow> {
        let lease = self.leases.iter().find(|lease| lease.realm == realm && !lease.remaining.is_zero())?;
        let (_, process) = lease.owner.as_ref()?;
        self.nodes.iter().find(|node| node.process == *process)
    }
}

/// Proof with which a log may be opened for writing: the process holds the lease of the realm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseClaim {
    /// Realm.
    pub realm: String,
    /// Id of the process.
    pub process: String,
    /// Number of the lease.
    pub term: u64,
}

/// Tables of a cluster in the database of its record. One connection, which is made again after a failure.
pub struct ClusterTables {
    connector: Connector,
    event_format: u32,
    known_head: KnownHead,
    connected: Mutex<Option<Connected>>,
}

impl ClusterTables {
    /// Reads the address. Nothing is connected yet. No answer is waited for longer than the limits of `options`.
    ///
    /// # Errors
    /// [`DatabaseError`]: the address or the certificates cannot be used.
    pub fn new(options: &PostgresOptions) -> Result<Self, DatabaseError> {
        let connector = Connector::new(options, Access::Write)?;
        let known_head = options.known_head.clone();
        Ok(Self { connector, event_format: options.event_format, known_head, connected: Mutex::default() })
    }

    /// Makes the tables of a cluster, and those of the log if there is none. It changes no tables that are there.
    ///
    /// # Errors
    /// [`DatabaseError`]
    pub async fn prepare(&self) -> Result<(), DatabaseError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            match self.with_client(async |client, server| prepare_tables(client, server, self.event_format).await).await
            {
                // Another node may have made them meanwhile.
                Err(DatabaseError::Failed { .. }) if attempt < ATTEMPTS => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                done => return done,
            }
        }
    }

    /// Adds the process as a node, and as a candidate for `realms`. A node that was drained takes realms again.
    ///
    /// # Errors
    /// [`DatabaseError::NodeExists`] if another process has the name and is alive.
    pub async fn join(&self, node: &NodeIdentity, realms: &[String]) -> Result<(), DatabaseError> {
        let lease = seconds(node.lease);
        let sql = "WITH joined AS (
                 INSERT INTO countersign.nodes AS n (name, process, advertise, program, lease, seen, addresses)
                 VALUES ($1, $2, $3, $4, make_interval(secs => $5), clock_timestamp(), $7)
                 ON CONFLICT (name) DO UPDATE SET process = excluded.process, advertise = excluded.advertise,
                     program = excluded.program, addresses = excluded.addresses, lease = excluded.lease, seen = excluded.seen, draining = false
                 WHERE n.process = excluded.process OR n.seen + n.lease < clock_timestamp()
                 RETURNING name
             ), realms AS (
                 INSERT INTO countersign.leases (realm) SELECT unnest($6::text[]) FROM joined ON CONFLICT (realm) DO NOTHING
             )
             SELECT count(*) FROM joined";
        let addresses = node.addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" ");
        let values: [&(dyn ToSql + Sync); 7] =
            [&node.name, &node.process, &node.advertise, &node.program, &lease, &realms, &addresses];
        let joined: i64 = self.query(sql, &values).await?.first().map_or(0, |row| row.get(0));
        if joined == 0 {
            return Err(DatabaseError::NodeExists { server: self.connector.server.clone(), node: node.name.clone() });
        }
        Ok(())
    }

    /// Says that the node is alive, extends the leases that it holds if `extends`, and returns the cluster as it is then.
    ///
    /// A lease that has ended is not extended, even if no other node has taken it yet.
    ///
    /// # Errors
    /// [`DatabaseError`]; [`DatabaseError::NodeExists`] if another process has the name now.
    pub async fn renew(&self, node: &NodeIdentity, extends: bool) -> Result<ClusterRows, DatabaseError> {
        let sql = "WITH alive AS (
                 UPDATE countersign.nodes SET seen = clock_timestamp() WHERE name = $1 AND process = $2 RETURNING name
             ), renewed AS (
                 UPDATE countersign.leases SET until = clock_timestamp() + make_interval(secs => $3)
                 FROM alive WHERE process = $2 AND until > clock_timestamp() AND $4 RETURNING realm
             )
             SELECT (SELECT count(*) FROM alive), (SELECT count(*) FROM renewed)";
        let values: [&(dyn ToSql + Sync); 4] = [&node.name, &node.process, &seconds(node.lease), &extends];
        let alive: i64 = self.query(sql, &values).await?.first().map_or(0, |row| row.get(0));
        if alive == 0 {
            return Err(DatabaseError::NodeExists { server: self.connector.server.clone(), node: node.name.clone() });
        }
        self.read().await
    }

    /// Takes the lease of `realm` if it has ended and no other node is named for it. Returns the number of the lease if the node has it now.
    ///
    /// # Errors
    /// [`DatabaseError`]
    pub async fn take(&self, node: &NodeIdentity, realm: &str) -> Result<Option<u64>, DatabaseError> {
        let sql = "UPDATE countersign.leases SET node = $1, process = $2, term = term + 1, taken = clock_timestamp(),
                 until = clock_timestamp() + make_interval(secs => $3), next_owner = NULL
             WHERE realm = $4 AND until <= clock_timestamp()
             AND (next_owner IS NULL OR next_owner = $1 OR next_owner_until <= clock_timestamp() OR NOT EXISTS (
                 SELECT 1 FROM countersign.nodes AS n
                 WHERE n.name = next_owner AND n.seen + n.lease > clock_timestamp() AND NOT n.draining
             ))
             RETURNING term";
        let values: [&(dyn ToSql + Sync); 4] = [&node.name, &node.process, &seconds(node.lease), &realm];
        Ok(self.query(sql, &values).await?.first().map(|row| row.get::<_, i64>(0).cast_unsigned()))
    }

    /// Gives the lease of `realm` up, if the node has it.
    ///
    /// # Errors
    /// [`DatabaseError`]
    pub async fn release(&self, node: &NodeIdentity, realm: &str) -> Result<(), DatabaseError> {
        let sql = "UPDATE countersign.leases SET until = clock_timestamp() WHERE realm = $1 AND process = $2
             AND until > clock_timestamp()";
        self.query(sql, &[&realm, &node.process]).await.map(drop)
    }

    /// Removes the node, which has ended.
    ///
    /// # Errors
    /// [`DatabaseError`]
    pub async fn leave(&self, node: &NodeIdentity) -> Result<(), DatabaseError> {
        let sql = "DELETE FROM countersign.nodes WHERE name = $1 AND process = $2";
        self.query(sql, &[&node.name, &node.process]).await.map(drop)
    }

    /// Tells a node to give its realms up and to take none. Returns whether there is such a node.
    ///
    /// # Errors
    /// [`DatabaseError`]
    pub async fn drain(&self, node: &str) -> Result<bool, DatabaseError> {
        let sql = "UPDATE countersign.nodes SET draining = true WHERE name = $1 RETURNING name";
        Ok(!self.query(sql, &[&node]).await?.is_empty())
    }

    /// Names the node that is to own `realm` next, unless it owns it now. For `patience` no other node takes the realm while that node is
    /// alive. Returns whether there is such a realm.
    ///
    /// # Errors
    /// [`DatabaseError`]
    pub async fn move_realm(&self, realm: &str, node: &str, patience: Duration) -> Result<bool, DatabaseError> {
        let sql = "UPDATE countersign.leases SET next_owner_until = clock_timestamp() + make_interval(secs => $3),
                 next_owner = CASE WHEN node = $2 AND until > clock_timestamp() THEN NULL ELSE $2 END
             WHERE realm = $1 RETURNING realm";
        Ok(!self.query(sql, &[&realm, &node, &seconds(patience)]).await?.is_empty())
    }

    /// Returns nodes and leases. Both are empty where no cluster was ever started.
    ///
    /// # Errors
    /// [`DatabaseError`]
    pub async fn read(&self) -> Result<ClusterRows, DatabaseError> {
        let has = self.query("SELECT to_regclass('countersign.leases') IS NOT NULL", &[]).await?;
        if !has.first().is_some_and(|row| row.get(0)) {
            return Ok(ClusterRows::default());
        }
        let nodes = self
            .query(
                "SELECT name, process, advertise, program,
                     extract(epoch FROM greatest(clock_timestamp() - seen, interval '0'))::float8,
                     seen + lease > clock_timestamp(), draining, addresses
                 FROM countersign.nodes ORDER BY name",
                &[],
            )
            .await?;
        let leases = self
            .query(
                "SELECT realm, node, process, term,
                     CASE WHEN until > clock_timestamp()
                         THEN extract(epoch FROM clock_timestamp() - taken)::float8 ELSE 0 END,
                     CASE WHEN until > clock_timestamp()
                         THEN extract(epoch FROM until - clock_timestamp())::float8 ELSE 0 END,
                     CASE WHEN next_owner_until > clock_timestamp() THEN next_owner END
                 FROM countersign.leases ORDER BY realm",
                &[],
            )
            .await?;
        Ok(ClusterRows { nodes: nodes.iter().map(node_row).collect(), leases: leases.iter().map(lease_row).collect() })
    }

    /// Returns the time of the database's clock, since 1970.
    ///
    /// # Errors
    /// [`DatabaseError`]
    pub async fn time(&self) -> Result<Duration, DatabaseError> {
        let rows = self.query("SELECT extract(epoch FROM clock_timestamp())::float8", &[]).await?;
        Ok(rows.first().map_or(Duration::ZERO, |row| span(row.get(0))))
    }

    /// Returns hosts, ports and name of the database, without a password.
    pub fn server(&self) -> &str {
        &self.connector.server
    }

    async fn query(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, DatabaseError> {
        self.with_client(async |client, server| {
            client.query(sql, values).await.map_err(|error| DatabaseError::of_statement(server, &error))
        })
        .await
    }

    /// Uses the connection, which is given up after a failure or a silence.
    async fn with_client<T>(
        &self,
        work: impl AsyncFnOnce(&Client, &str) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        let mut place = self.connected.lock().await;
        // A future that is dropped must not leave a statement behind on the connection.
        let connected = match place.take().filter(|connected| !connected.client.is_closed()) {
            Some(connected) => connected,
            None => {
                let connected = self.connector.connect().await?;
                // Whatever role the node has now, it may have written entries before.
                let checking = self.known_head.report_loss(&connected.client, &self.connector.server);
                let _ = timeout(self.connector.answer_timeout(), checking).await;
                connected
            }
        };
        let server = &self.connector.server;
        let limit = self.connector.answer_timeout();
        let done = match timeout(limit, work(&connected.client, server)).await {
            Ok(done) => done,
            Err(_) => {
                let problem = silence(limit).to_string();
                Err(DatabaseError::Unreachable { server: server.clone(), problem })
            }
        };
        if done.is_ok() {
            *place = Some(connected);
        }
        done
    }
}

impl fmt::Debug for ClusterTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterTables").field("server", &self.connector.server).finish_non_exhaustive()
    }
}

async fn prepare_tables(client: &Client, server: &str, event_format: u32) -> Result<(), DatabaseError> {
    if !schema::has_log(client, server).await? {
        schema::prepare_log(client, server, event_format).await?;
    }
    let failed = |error: tokio_postgres::Error| DatabaseError::of_statement(server, &error);
    client.batch_execute(include_str!("cluster_tables.sql")).await.map_err(failed)?;
    let row = client
        .query_one("SELECT value FROM countersign.meta WHERE key = 'cluster_version'", &[])
        .await
        .map_err(failed)?;
    let found: i64 = row.get(0);
    if found > VERSION {
        return Err(DatabaseError::NewerSchema { server: server.to_owned(), found, known: VERSION });
    }
    Ok(())
}

fn node_row(row: &Row) -> NodeRow {
    NodeRow {
        name: row.get(0),
        process: row.get(1),
        advertise: row.get(2),
        program: row.get(3),
        seen: span(row.get(4)),
        is_alive: row.get(5),
        is_draining: row.get(6),
        addresses: row.get::<_, &str>(7).split(' ').filter_map(|address| address.parse().ok()).collect(),
    }
}

fn lease_row(row: &Row) -> LeaseRow {
    LeaseRow {
        realm: row.get(0),
        owner: row.get::<_, Option<String>>(1).zip(row.get::<_, Option<String>>(2)),
        term: row.get::<_, i64>(3).cast_unsigned(),
        age: span(row.get(4)),
        remaining: span(row.get(5)),
        next_owner: row.get(6),
    }
}

fn seconds(span: Duration) -> f64 {
    span.as_secs_f64()
}

fn span(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
