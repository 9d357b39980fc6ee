//! Events per second through an owner with a log on disk, compared with the same records written straight to such a log.

use std::{path::Path, sync::Arc, time::Instant};

use anyhow::ensure;
use countersign_core::{
    engine::Command,
    id::{Lsn, SessionId},
    message::{InputMessage as Spoken, MessageBlock, StoredMessage, estimate_tokens},
    session::{self, MessageContent, MessageQueue, Settings},
};
use countersign_runtime::{InboxLane, OwnerHandle};
use countersign_store::{
    AnyLog, Batch, Log as _, LogOptions as StoreOptions, LogRecord, Partition, SqliteLog, StoredContent,
};
use serde_json::{Value, json};

use super::{environment::bench_rules, median, owner_options};

/// Events of one round.
const EVENTS: usize = 20_000;
/// Number of sources that send commands at the same time.
const SOURCES: usize = 4;
/// Number of events that an owner takes at once while its sources are full, so that its batches are of this size.
const BATCH: usize = 256;
const ROUNDS: usize = 3;
/// The length of a message.
const LENGTH: usize = 200;

pub(super) async fn measure(folder: &Path) -> anyhow::Result<Value> {
    let (mut through, mut straight) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let log = open_log(folder, &format!("owner-{round}.db"))?;
        through.push(events_per_second(time_owner(folder, &log).await?));
        let log: AnyLog = SqliteLog::open_read_only(folder.join(format!("owner-{round}.db")), 1)?.into();
        let records = recorded_events(&log).await?;
        straight
            .push(events_per_second(time_write(&open_log(folder, &format!("straight-{round}.db"))?, records).await?));
    }
    Ok(json!({
        "events_per_second": median(through).round(),
        "yardstick_per_second": median(straight).round(),
        "events": EVENTS,
        "sources": SOURCES,
        "batch": BATCH,
    }))
}

fn open_log(folder: &Path, name: &str) -> anyhow::Result<AnyLog> {
    Ok(SqliteLog::open(folder.join(name), StoreOptions::default())?.into())
}

/// Seconds from the first command to the last reply.
async fn time_owner(folder: &Path, log: &AnyLog) -> anyhow::Result<f64> {
    let handle = OwnerHandle::open(log.clone(), owner_options(bench_rules(&folder.join("owner.db"))?, folder)?).await?;
    let session = SessionId::new("bench");
    let requests = handle.source(InboxLane::Request);
    let open = session::Command::Open {
        cwd: folder.display().to_string(),
        name: None,
        parent: None,
        door: None,
        settings: Box::new(Settings::default()),
    };
    requests.send_command(Command::Session(session.clone(), open)).await?;
    // The first message makes the file.
    requests.send_command(Command::Session(session.clone(), queue_command()?)).await?;
    let message = queue_command()?;
    let begun = Instant::now();
    let lines = (0..SOURCES).map(|_| {
        let (source, session, message) = (handle.source(InboxLane::Request), session.clone(), message.clone());
        tokio::spawn(async move {
            let mut replies = Vec::with_capacity(EVENTS / SOURCES);
            for _ in 0..EVENTS / SOURCES {
                replies.push(source.submit_command(Command::Session(session.clone(), message.clone())).await);
            }
            for reply in replies {
                reply.await??;
            }
            anyhow::Ok(())
        })
    });
    for line in lines.collect::<Vec<_>>() {
        line.await??;
    }
    let took = begun.elapsed().as_secs_f64();
    handle.close().await;
    handle.close_log().await;
    Ok(took)
}

fn queue_command() -> anyhow::Result<session::Command> {
    let user_message =
        StoredMessage::User(Spoken { content: vec![MessageBlock::from_text("x".repeat(LENGTH))], ..Spoken::default() });
    let content = serde_json::to_string(&user_message)?;
    let queued = MessageContent { tokens: estimate_tokens(content.len()), content: content.into() };
    Ok(session::Command::Queue { queue: MessageQueue::FollowUp, message: queued })
}

/// Returns the records that the owner wrote in the round.
async fn recorded_events(log: &AnyLog) -> anyhow::Result<Vec<LogRecord>> {
    let head = log.head(Partition::ZERO).await?.lsn;
    let stored = log.read_records(Partition::ZERO, Lsn(head.0 - EVENTS as u64), EVENTS).await?;
    let lsns: Vec<Lsn> = stored.iter().map(|stored| stored.lsn).collect();
    let contents = log.read_contents(Partition::ZERO, &lsns).await?;
    ensure!(stored.len() == EVENTS, "the owner recorded {} events of {EVENTS}", stored.len());
    let records = stored.into_iter().zip(contents).map(|(stored, content)| LogRecord {
        at: stored.at,
        session: stored.session,
        key: stored.key,
        kind: stored.kind,
        version: stored.version,
        facts: stored.facts,
        content: content.and_then(|content| match content {
            StoredContent::Text(text) => Some(Arc::clone(&text)),
            StoredContent::Redacted => None,
        }),
    });
    Ok(records.collect())
}

/// Seconds to write `records` in batches, one after the other.
async fn time_write(log: &AnyLog, records: Vec<LogRecord>) -> anyhow::Result<f64> {
    let epoch = log.take_over(Partition::ZERO).await?;
    let mut head = log.append(Partition::ZERO, epoch, Lsn(0), Batch(records[..1].to_vec())).await?;
    let batches: Vec<Batch> = records.chunks(BATCH).map(|chunk| Batch(chunk.to_vec())).collect();
    let begun = Instant::now();
    for batch in batches {
        head = log.append(Partition::ZERO, epoch, head, batch).await?;
    }
    let took = begun.elapsed().as_secs_f64();
    log.close().await;
    Ok(took)
}

#[expect(clippy::cast_precision_loss, reason = "events here are far below 2^52")]
fn events_per_second(seconds: f64) -> f64 {
    EVENTS as f64 / seconds
}
