//! Cluster: the record in PostgreSQL, an answer through another node, and a takeover. A server of its own is started for it.

use std::{path::Path, time::Instant};

use anyhow::{Context as _, anyhow};
use countersign_core::{id::Lsn, time::Millis};
use countersign_store::{Batch, Log as _, LogRecord, Partition, PostgresLog, PostgresOptions};
use futures_util::future::try_join_all;
use serde_json::json;
use tokio_postgres::{Client, NoTls};

use super::{
    FigureSuite,
    agent_gate::time_turns,
    figure::{BenchFigure, FigureGroup, FigureUnit, median},
    lazy_measurement,
    postgres_server::PostgresServer,
};
use crate::fixture::{
    gateway::{self, GatewayProcess, RULES},
    scratch::ScratchFolder,
    socket::{self, TextSocket, tool_request},
    web::BlockingHttpClient,
};

/// Rounds. The first one warms up.
const ROUNDS: usize = 3;
/// Appends of a round, and how many of them are in flight at once.
const APPENDS: u64 = 6_400;
const IN_FLIGHT: usize = 64;
/// Token of the agent at the other node.
const OTHER_TOKEN: &str = "token-of-the-other-agent";
/// Kills of an owner.
const TAKEOVERS: usize = 5;
/// Bytes of facts of each record.
const FACTS: usize = 300;

/// One record written without a log: a transaction for each.
const RAW_INSERT: &str = "INSERT INTO raw_records (lsn, at, kind, facts, chain) VALUES ($1, $2, $3, $4, $5)";

/// Measures every figure that the suite selects. Without PostgreSQL there is a line in their place.
pub(super) fn measure_all(binary: &Path, suite: &mut FigureSuite<'_>) {
    suite.group = FigureGroup::Cluster;
    let figures = [
        "cluster: appends to PostgreSQL, 64 in flight",
        "cluster: an allowed call, one at a time, record in PostgreSQL",
        "cluster: an allowed call through another node, over the owner",
        "cluster: kill of the owner to the first answer, lease of 3 s",
    ];
    if !figures.iter().any(|name| suite.options.selects_figure(name)) {
        return;
    }
    let Some(server) = PostgresServer::start(&[], |_| {}) else { return };
    let [appends, allowed, relayed, takeover] = figures;
    suite.measure(BenchFigure::new(appends, FigureUnit::PerSecond).target_yardsticks(0.6), &mut || {
        measure_appends(&server)
    });
    let calls = lazy_measurement(|| measure_calls(binary, &server));
    // The yardstick is a frame and its echo, an HTTP call, two transactions.
    suite.measure(BenchFigure::new(allowed, FigureUnit::Millis).target_yardsticks(1.5), &mut || {
        let calls = calls.get_result()?;
        Ok((calls.owner, Some(calls.raw)))
    });
    // The yardstick is the same call at the owner.
    suite.measure(BenchFigure::new(relayed, FigureUnit::Millis).with_target(2.0), &mut || {
        let calls = calls.get_result()?;
        Ok((calls.relayed - calls.owner, Some(calls.owner)))
    });
    suite.measure(BenchFigure::new(takeover, FigureUnit::Seconds).with_target(5.0), &mut || {
        Ok((measure_takeover(binary, &server)?, None))
    });
}

/// Returns appends per second, and transactions with as many bytes, of which as many are open at once, each on a connection of its own.
fn measure_appends(server: &PostgresServer) -> anyhow::Result<(f64, Option<f64>)> {
    let name = server.make_database();
    let url = server.url("postgres", &name);
    let runtime = tokio::runtime::Runtime::new()?;
    // Opened outside of the runtime, since opening blocks.
    let log = PostgresLog::open(PostgresOptions::new(&url))?;
    let rates = runtime.block_on(async {
        let mut raw = Vec::new();
        for _ in 0..IN_FLIGHT {
            raw.push(connect_raw(&url).await?);
        }
        let epoch = log.take_over(Partition::ZERO).await?;
        let mut head = log.head(Partition::ZERO).await?.lsn;
        let (mut appended, mut written) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let begun = Instant::now();
            let mut pending = std::collections::VecDeque::new();
            for _ in 0..APPENDS {
                if pending.len() == IN_FLIGHT
                    && let Some(oldest) = pending.pop_front()
                {
                    let oldest: countersign_store::PendingAppend = oldest;
                    oldest.await?;
                }
                pending.push_back(log.submit_batch(Partition::ZERO, epoch, head, Batch(vec![record()])).await);
                head = Lsn(head.0 + 1);
            }
            for append in pending {
                append.await?;
            }
            let took = begun.elapsed().as_secs_f64();
            let raw_took = write_raw(&raw, round).await?;
            if round > 0 {
                appended.push(rate(took));
                written.push(rate(raw_took));
            }
        }
        log.close().await;
        anyhow::Ok((median(appended).context("nothing was measured")?, median(written)))
    });
    drop(log);
    rates
}

#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
fn rate(seconds: f64) -> f64 {
    APPENDS as f64 / seconds
}

fn record() -> LogRecord {
    LogRecord {
        at: Millis(1_000),
        session: None,
        key: None,
        kind: "bench".into(),
        version: 1,
        facts: format!(r#"{{"text":"{}"}}"#, "x".repeat(FACTS)).into(),
        content: None,
    }
}

async fn connect_raw(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    client
        .batch_execute(
            "CREATE TABLE IF NOT EXISTS raw_records \
             (lsn bigint PRIMARY KEY, at bigint, kind text, facts text, chain bytea)",
        )
        .await?;
    Ok(client)
}

/// Returns the seconds of as many transactions, one at a time on each connection.
async fn write_raw(clients: &[Client], round: usize) -> anyhow::Result<f64> {
    let (facts, first) = (record().facts, i64::try_from(round)? * 1_000_000);
    let mut statements = Vec::new();
    for client in clients {
        statements.push(client.prepare(RAW_INSERT).await?);
    }
    let begun = Instant::now();
    let share = i64::try_from(APPENDS)?.div_euclid(i64::try_from(clients.len())?);
    let writers = clients.iter().zip(&statements).zip(0_i64..).map(async |((client, statement), index)| {
        for number in index * share..(index + 1) * share {
            insert_raw(client, statement, first + number, &facts).await?;
        }
        anyhow::Ok(())
    });
    try_join_all(writers).await?;
    Ok(begun.elapsed().as_secs_f64())
}

async fn insert_raw(
    client: &Client,
    statement: &tokio_postgres::Statement,
    lsn: i64,
    facts: &str,
) -> Result<u64, tokio_postgres::Error> {
    let chain = [7_u8; 32];
    client.execute(statement, &[&lsn, &1_000_i64, &"bench", &facts, &chain.as_slice()]).await
}

/// Medians of allowed calls, in milliseconds.
struct CallFigures {
    owner: f64,
    relayed: f64,
    /// A frame and its echo, an HTTP call and two transactions, one after the other.
    raw: f64,
}

fn measure_calls(binary: &Path, server: &PostgresServer) -> anyhow::Result<CallFigures> {
    let name = server.make_database();
    let url = server.url("postgres", &name);
    let service = gateway::start_service()?;
    let first = start_node(binary, service, &url, "a")?;
    let mut owner = TextSocket::connect_agent(&first.address)?;
    call_once(&mut owner, 0)?;
    let second = start_node(binary, service, &url, "b")?;
    let mut relayed = TextSocket::connect_small_agent(&second.address, OTHER_TOKEN)?;
    let mut echo = TextSocket::connect(&socket::start_echo()?.to_string())?;
    let mut http = BlockingHttpClient::connect(service)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let raw_name = server.make_database();
    let raw = runtime.block_on(connect_raw(&server.url("postgres", &raw_name)))?;
    let statement = runtime.block_on(raw.prepare(RAW_INSERT))?;
    let (mut ids, mut lsns, facts) = (1_u64.., 1_i64.., record().facts);
    let (mut at_owner, mut at_other, mut parts) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let owned = time_turns(|| call_once(&mut owner, ids.next().unwrap_or_default()))?;
        let passed = time_turns(|| call_once(&mut relayed, ids.next().unwrap_or_default()))?;
        let bare = time_turns(|| {
            echo.send_text(tool_request(1, "look", &json!({ "thing": "lamp" })))?;
            echo.read_text()?;
            http.get("/look/lamp")?;
            for _ in 0..2 {
                let lsn = lsns.next().unwrap_or_default();
                runtime.block_on(insert_raw(&raw, &statement, lsn, &facts))?;
            }
            Ok(())
        })?;
        if round > 0 {
            at_owner.extend(owned);
            at_other.extend(passed);
            parts.extend(bare);
        }
    }
    let nothing = || anyhow!("nothing was measured");
    Ok(CallFigures {
        owner: median(at_owner).ok_or_else(nothing)?,
        relayed: median(at_other).ok_or_else(nothing)?,
        raw: median(parts).ok_or_else(nothing)?,
    })
}

/// Returns the median of the seconds from the kill of the owner to the first answer at the other node.
fn measure_takeover(binary: &Path, server: &PostgresServer) -> anyhow::Result<f64> {
    let name = server.make_database();
    let url = server.url("postgres", &name);
    let service = gateway::start_service()?;
    let mut owner = start_node(binary, service, &url, "n0")?;
    call_once(&mut TextSocket::connect_agent(&owner.address)?, 0)?;
    let mut took = Vec::new();
    for round in 1..=TAKEOVERS {
        let other = start_node(binary, service, &url, &format!("n{round}"))?;
        // It relays, so it knows the owner.
        call_once(&mut TextSocket::connect_agent(&other.address)?, 0)?;
        let begun = Instant::now();
        drop(owner);
        call_once(&mut TextSocket::connect_agent(&other.address)?, 1)?;
        took.push(begun.elapsed().as_secs_f64());
        owner = other;
    }
    median(took).context("nothing was measured")
}

fn call_once(agent: &mut TextSocket, id: u64) -> anyhow::Result<()> {
    agent.send_text(tool_request(id, "look", &json!({ "thing": "lamp" })))?;
    agent.expect_executed()
}

fn start_node(binary: &Path, service: std::net::SocketAddr, url: &str, name: &str) -> anyhow::Result<GatewayProcess> {
    let config = format!(
        "{}agent: {{ token: {} }}
agents: [ {{ id: other, token: {OTHER_TOKEN} }} ]
rate_limit: {{ max_requests_per_minute: 1000000000 }}
storage: {{ type: postgres, url: '{url}' }}
cluster: {{ name: {name}, advertise: 'http://127.0.0.1:0', secret: a-secret-of-the-bench, lease: 3s }}
",
        gateway::service_config(service),
        socket::TOKEN
    );
    GatewayProcess::start_in(binary, ScratchFolder::new(name)?, &config, RULES)
}
