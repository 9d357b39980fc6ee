//! The one connection that writes a log, and the proof that no other one does.
//!
//! It must not know records. A session lock of the server names the process that writes. A number in the row of the partition
//! fences the connections before: each connection takes the next number, under the lock that an append needs, so that whatever
//! an older one had sent is either written by then, or never.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use countersign_core::{digest::Digest, id::Lsn};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_postgres::{Client, Row, Statement};

use super::{
    connect::{Connected, Connector, NODE_NAME},
    known_head::{has_entry, log_loss},
    leases::LeaseClaim,
    schema,
    statements::PreparedStatements,
};
use crate::{
    database_error::DatabaseError,
    record::{Epoch, LogHead},
};

/// The partition's number in the tables.
pub(super) const PARTITION: i32 = 0;

/// First key of the session lock; the second is the partition. "CSGN".
const LOCK: i32 = 0x4353_474e;

/// Time that a process which just ended gets until the server notices.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// A connection that may write.
pub(super) struct WriterSession {
    pub(super) client: Arc<Client>,
    pub(super) append: Statement,
    pub(super) prepared: PreparedStatements,
    /// The number that appends of this connection carry.
    pub(super) number: i64,
    /// True if the database lacks an entry that it had confirmed: nothing is appended until the log is taken over again.
    pub(super) has_lost_entries: bool,
    warnings: Arc<AtomicU64>,
    driver: JoinHandle<()>,
    /// Its process at the server, and when that began.
    backend: (i32, String),
}

/// Where a partition stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartitionState {
    pub(super) epoch: Epoch,
    pub(super) head: LogHead,
}

/// What is known of a connection that was given up.
pub(super) struct FormerSession {
    pub(super) epoch: Epoch,
    /// Newest entry that the database has confirmed.
    confirmed: LogHead,
    backend: (i32, String),
}

impl WriterSession {
    /// Connects for the first time: locks the partition, prepares the tables, takes the next number.
    pub(super) async fn open(
        connector: &Connector,
        event_format: u32,
        lease: Option<&LeaseClaim>,
    ) -> Result<(Self, PartitionState), DatabaseError> {
        let connected = connector.connect().await?;
        if let Some(lease) = lease {
            end_former_owner(&connected.client, &connector.server, lease).await?;
        }
        lock_partition(&connected.client, &connector.server).await?;
        schema::prepare_log(&connected.client, &connector.server, event_format).await?;
        let number = take_number(&connected.client, &connector.server, None).await?;
        Self::begin(connector, connected, number.unwrap_or_default()).await
    }

    /// Connects again. An owner that was taken over meanwhile gets a connection that can only find that out.
    pub(super) async fn reopen(
        connector: &Connector,
        event_format: u32,
        former: &FormerSession,
    ) -> Result<(Self, PartitionState), DatabaseError> {
        let connected = connector.connect().await?;
        let (client, server) = (&connected.client, &connector.server);
        schema::check_log(client, server, event_format).await?;
        let number = take_number(client, server, Some(former.epoch)).await?;
        if number.is_some() {
            // Nothing of it is under way any more, but the server may not have noticed yet that it is gone.
            end_backend(client, server, &former.backend).await?;
            lock_partition(client, server).await?;
        }
        let found = has_entry(client, former.confirmed).await;
        let has_lost_entries = !found.map_err(|error| DatabaseError::of_statement(server, &error))?;
        if has_lost_entries {
            log_loss(server, former.confirmed);
        }
        let (session, state) = Self::begin(connector, connected, number.unwrap_or_default()).await?;
        Ok((Self { has_lost_entries, ..session }, state))
    }

    async fn begin(
        connector: &Connector,
        connected: Connected,
        number: i64,
    ) -> Result<(Self, PartitionState), DatabaseError> {
        let Connected { client, driver, warnings } = connected;
        let failed = |error: tokio_postgres::Error| DatabaseError::of_statement(&connector.server, &error);
        let append = client.prepare(include_str!("append.sql")).await.map_err(failed)?;
        let row = client
            .query_one("SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()", &[])
            .await
            .map_err(failed)?;
        let backend = (row.get(0), row.get::<_, Option<String>>(1).unwrap_or_default());
        let state = read_state(&client).await.map_err(failed)?;
        let session = Self {
            client,
            append,
            prepared: PreparedStatements::default(),
            number,
            has_lost_entries: false,
            warnings,
            driver,
            backend,
        };
        Ok((session, state))
    }

    /// Counts the warnings of the server.
    pub(super) fn warnings(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.warnings)
    }

    /// Gives the connection up. Nothing is waited for.
    pub(super) fn abandon(self, epoch: Epoch, confirmed: LogHead) -> FormerSession {
        self.driver.abort();
        FormerSession { epoch, confirmed, backend: self.backend }
    }

    /// Ends the connection, so that another process can lock the partition at once.
    pub(super) async fn close(self) {
        let limit = Duration::from_secs(1);
        // An unreachable server notices the end of the connection by itself.
        let _ = timeout(limit, self.client.batch_execute("SELECT pg_advisory_unlock_all()")).await;
        drop(self.client);
        let _ = timeout(limit, self.driver).await;
    }
}

/// Reads epoch and head. With the row locked by the caller, or by nobody, they are final.
pub(super) async fn read_state(client: &Client) -> Result<PartitionState, tokio_postgres::Error> {
    let row = client
        .query_one(
            "SELECT p.epoch, e.lsn, e.chain FROM countersign.partitions AS p
             LEFT JOIN LATERAL (
                 SELECT lsn, chain FROM countersign.events WHERE partition = p.partition ORDER BY lsn DESC LIMIT 1
             ) AS e ON true
             WHERE p.partition = $1",
            &[&PARTITION],
        )
        .await?;
    let epoch = Epoch(row.get::<_, i64>(0).cast_unsigned());
    Ok(PartitionState { epoch, head: head_of(&row, 1)? })
}

/// Reads position and chain from two columns, NULL without records.
pub(super) fn head_of(row: &Row, column: usize) -> Result<LogHead, tokio_postgres::Error> {
    let (Some(lsn), Some(chain)) =
        (row.try_get::<_, Option<i64>>(column)?, row.try_get::<_, Option<&[u8]>>(column + 1)?)
    else {
        return Ok(LogHead::EMPTY);
    };
    let chain = chain.try_into().map(Digest::from_bytes).unwrap_or(crate::chain::GENESIS);
    Ok(LogHead { lsn: Lsn(lsn.cast_unsigned()), chain })
}

/// Takes the next number of a connection; none if the epoch is not `only_in` any more.
async fn take_number(client: &Client, server: &str, only_in: Option<Epoch>) -> Result<Option<i64>, DatabaseError> {
    let epoch = only_in.map(|epoch| epoch.0.cast_signed());
    let row = client
        .query_opt(
            "UPDATE countersign.partitions SET writer = writer + 1
             WHERE partition = $1 AND ($2::bigint IS NULL OR epoch = $2) RETURNING writer",
            &[&PARTITION, &epoch],
        )
        .await
        .map_err(|error| DatabaseError::of_statement(server, &error))?;
    Ok(row.map(|row| row.get(0)))
}

async fn lock_partition(client: &Client, server: &str) -> Result<(), DatabaseError> {
    let failed = |error: tokio_postgres::Error| DatabaseError::of_statement(server, &error);
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        let row =
            client.query_one("SELECT pg_try_advisory_lock($1, $2)", &[&LOCK, &PARTITION]).await.map_err(failed)?;
        if row.get(0) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let owner = lock_holder(client).await.map_err(failed)?;
            return Err(DatabaseError::Owned { server: server.to_owned(), owner });
        }
        sleep(LOCK_PAUSE).await;
    }
}

/// Ends the connection of the node that holds the lock, if `lease` is in force: that node has lost the realm. A gateway without a lease
/// keeps the lock, and so does a command that writes.
async fn end_former_owner(client: &Client, server: &str, lease: &LeaseClaim) -> Result<(), DatabaseError> {
    // One statement, so that a node that was stopped in between ends nobody's connection.
    let row = client
        .query_one(
            "WITH held AS MATERIALIZED (
                 SELECT term FROM countersign.leases
                 WHERE realm = $3 AND process = $4 AND term = $5 AND until > clock_timestamp()
             )
             SELECT (SELECT count(*) FROM held), (
                 SELECT count(pg_terminate_backend(l.pid))
                 FROM held, pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
                 WHERE a.application_name LIKE $6 || ' %' AND l.locktype = 'advisory' AND l.granted
                 AND l.classid = $1::integer::oid AND l.objid = $2::integer::oid
                 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
             )",
            &[&LOCK, &PARTITION, &lease.realm, &lease.process, &lease.term.cast_signed(), &NODE_NAME],
        )
        .await
        .map_err(|error| DatabaseError::of_statement(server, &error))?;
    if row.get::<_, i64>(0) == 0 {
        return Err(DatabaseError::NoLease { server: server.to_owned(), realm: lease.realm.clone() });
    }
    Ok(())
}

/// Names the process that holds the lock.
async fn lock_holder(client: &Client) -> Result<String, tokio_postgres::Error> {
    let row = client
        .query_opt(
            "SELECT a.application_name, coalesce(host(a.client_addr), 'the server itself')
             FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
             WHERE l.locktype = 'advisory' AND l.classid = $1::integer::oid AND l.objid = $2::integer::oid AND l.granted
             AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            &[&LOCK, &PARTITION],
        )
        .await?;
    let named = row.and_then(|row| Some((row.get::<_, Option<String>>(0)?, row.get::<_, Option<String>>(1)?)));
    Ok(named.map_or_else(|| "another process".to_owned(), |(name, address)| format!("{name} on {address}")))
}

async fn end_backend(client: &Client, server: &str, (pid, start): &(i32, String)) -> Result<(), DatabaseError> {
    client
        .query_opt(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_start::text = $2",
            &[pid, start],
        )
        .await
        .map(drop)
        .map_err(|error| DatabaseError::of_statement(server, &error))
}
