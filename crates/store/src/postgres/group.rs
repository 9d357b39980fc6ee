//! A group of appends: what it writes, the one statement that writes it, and its answer.
//!
//! It must not know how a failed group is settled.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use countersign_core::{
    digest::Digest,
    id::{Lsn, SessionId},
};
use tokio::{sync::oneshot, time::timeout};
use tokio_postgres::{Client, Statement, types::ToSql};

use super::{
    query::sql_position,
    session::PARTITION,
    statements::silence,
    views::{NewRecord, ViewUpdate},
};
use crate::{
    chain::{self, ChainLink, SALT_SIZE},
    database_error::{ServerError, StatementError},
    error::AppendError,
    record::{Batch, Epoch, LogHead, StoredRecord},
};

/// One batch, and who waits for it.
pub(super) struct AppendRequest {
    pub(super) epoch: Epoch,
    pub(super) expected: Lsn,
    pub(super) batch: Batch,
    pub(super) reply: oneshot::Sender<Result<Lsn, AppendError>>,
}

/// Appends that share one transaction.
pub(super) struct AppendGroup {
    pub(super) requests: Vec<AppendRequest>,
    /// The answer of each if the transaction succeeds.
    pub(super) answers: Vec<Result<Lsn, AppendError>>,
    pub(super) records: Vec<NewRecord>,
    pub(super) updates: Vec<ViewUpdate>,
    pub(super) epoch: Epoch,
    pub(super) before: LogHead,
    pub(super) after: LogHead,
}

impl AppendGroup {
    /// Decides on each request in its turn, for a log that stands at `epoch` and `head`.
    pub(super) fn new(
        requests: Vec<AppendRequest>,
        epoch: Epoch,
        head: LogHead,
    ) -> Result<Self, (Vec<AppendRequest>, ServerError)> {
        let mut group = Self {
            answers: Vec::with_capacity(requests.len()),
            requests: Vec::new(),
            records: Vec::new(),
            updates: Vec::new(),
            epoch,
            before: head,
            after: head,
        };
        for request in &requests {
            let answer = request.batch.check_turn((request.epoch, request.expected), (epoch, group.after.lsn));
            if answer.is_ok()
                && let Err(error) = group.add_batch(&request.batch)
            {
                return Err((requests, error));
            }
            group.answers.push(answer.map(|()| group.after.lsn));
        }
        group.requests = requests;
        Ok(group)
    }

    fn add_batch(&mut self, batch: &Batch) -> Result<(), ServerError> {
        for record in &batch.0 {
            let lsn = self.after.lsn.next();
            let salted = record.content.as_deref().map(salted_digest).transpose()?;
            let content_digest = salted.map(|(_, digest)| digest);
            let chain = chain::chain_digest(&self.after.chain, &ChainLink::of_record(record, lsn, content_digest));
            self.records.push(NewRecord {
                stored: StoredRecord::new(record, lsn, content_digest, chain),
                content: record.content.clone(),
                salt: salted.map(|(salt, _)| salt),
            });
            self.after = LogHead { lsn, chain };
        }
        Ok(())
    }

    /// Reports whether the database has to be asked: at least one request was in its turn.
    pub(super) fn needs_statement(&self) -> bool {
        self.answers.iter().any(Result::is_ok)
    }

    /// Answers all requests as decided.
    pub(super) fn answer(self) {
        for (request, answer) in self.requests.into_iter().zip(self.answers) {
            // A caller that no longer waits needs no answer.
            drop(request.reply.send(answer));
        }
    }

    /// Answers all requests with `error`.
    pub(super) fn fail(self, error: &AppendError) {
        fail_requests(self.requests, error);
    }
}

/// Answers requests with `error`.
pub(super) fn fail_requests(requests: Vec<AppendRequest>, error: &AppendError) {
    for request in requests {
        drop(request.reply.send(Err(error.clone())));
    }
}

fn salted_digest(text: &str) -> Result<([u8; SALT_SIZE], Digest), ServerError> {
    let mut salt = [0; SALT_SIZE];
    getrandom::fill(&mut salt).map_err(|error| ServerError::new(error.to_string()))?;
    Ok((salt, chain::content_digest(&salt, text.as_bytes())))
}

/// Connection on which a group is sent.
#[derive(Clone)]
pub(super) struct GroupChannel {
    pub(super) client: Arc<Client>,
    pub(super) statement: Statement,
    pub(super) number: i64,
    pub(super) warnings: Arc<AtomicU64>,
    pub(super) limit: Duration,
}

/// How a group ended.
pub(super) enum GroupOutcome {
    /// Written, with the views whose rows were taken.
    Written { moved: Vec<String> },
    /// The log stands elsewhere, or has another owner: nothing was written.
    OutOfTurn,
    /// Nothing was written, or it is not known.
    Failed(StatementError),
}

/// A group on its way, and its outcome.
pub(super) type GroupInFlight = Pin<Box<dyn Future<Output = (AppendGroup, GroupOutcome)> + Send>>;

/// Sends a group with the first poll, and waits for its outcome.
pub(super) fn send_group(channel: GroupChannel, group: AppendGroup) -> GroupInFlight {
    Box::pin(async move {
        if !group.needs_statement() {
            return (group, GroupOutcome::Written { moved: Vec::new() });
        }
        let warned = channel.warnings.load(Ordering::Acquire);
        let outcome = match timeout(channel.limit, write_group(&channel, &group)).await {
            Ok(outcome) => outcome,
            Err(_) => GroupOutcome::Failed(StatementError::Lost(silence(channel.limit))),
        };
        // A wait for a standby that was cancelled ends as a commit, with a warning.
        if matches!(outcome, GroupOutcome::Written { .. }) && channel.warnings.load(Ordering::Acquire) != warned {
            let warned = ServerError::new("the database sent a warning with the commit, which may be on no standby");
            return (group, GroupOutcome::Failed(StatementError::Lost(warned)));
        }
        (group, outcome)
    })
}

async fn write_group(channel: &GroupChannel, group: &AppendGroup) -> GroupOutcome {
    let records = &group.records;
    let stored = || records.iter().map(|record| &record.stored);
    let lsns: Vec<i64> = stored().map(|stored| sql_position(stored.lsn)).collect();
    // The database's numbers are signed; the bits are the same and come back as they were.
    let times: Vec<i64> = stored().map(|stored| stored.at.0.cast_signed()).collect();
    let sessions: Vec<Option<&[u8]>> =
        stored().map(|stored| stored.session.as_ref().map(SessionId::as_str).map(str::as_bytes)).collect();
    let kinds: Vec<&str> = stored().map(|stored| &*stored.kind).collect();
    let versions: Vec<i32> = stored().map(|stored| i32::from(stored.version)).collect();
    let facts: Vec<&str> = stored().map(|stored| &*stored.facts).collect();
    let digests: Vec<Option<&[u8]>> =
        stored().map(|stored| stored.content_digest.as_ref().map(|digest| digest.as_bytes().as_slice())).collect();
    let chains: Vec<&[u8]> = stored().map(|stored| stored.chain.as_bytes().as_slice()).collect();
    let keys: Vec<Option<&[u8]>> = stored().map(|stored| stored.key.as_deref().map(str::as_bytes)).collect();
    let contents = || {
        records.iter().filter_map(|record| Some((record.stored.lsn, record.salt.as_ref()?, record.content.as_deref()?)))
    };
    let content_lsns: Vec<i64> = contents().map(|(lsn, _, _)| sql_position(lsn)).collect();
    let salts: Vec<&[u8]> = contents().map(|(_, salt, _)| salt.as_slice()).collect();
    let texts: Vec<&[u8]> = contents().map(|(_, _, text)| text.as_bytes()).collect();

    let names: Vec<&str> = group.updates.iter().map(|update| update.name).collect();
    let view_versions: Vec<i64> = group.updates.iter().map(|update| i64::from(update.version)).collect();
    let changes = || {
        group.updates.iter().flat_map(|update| {
            update.changes.iter().map(|(key, value)| (update.name, key.as_bytes(), value.as_deref()))
        })
    };
    let put = || changes().filter_map(|(name, key, value)| Some((name, key, value?)));
    let put_names: Vec<&str> = put().map(|(name, _, _)| name).collect();
    let put_keys: Vec<&[u8]> = put().map(|(_, key, _)| key).collect();
    let put_values: Vec<&[u8]> = put().map(|(_, _, value)| value).collect();
    let removed = || changes().filter(|(_, _, value)| value.is_none());
    let removed_names: Vec<&str> = removed().map(|(name, _, _)| name).collect();
    let removed_keys: Vec<&[u8]> = removed().map(|(_, key, _)| key).collect();

    let parameters: [&(dyn ToSql + Sync); 26] = [
        &PARTITION,
        &group.epoch.0.cast_signed(),
        &channel.number,
        &sql_position(group.before.lsn),
        &group.before.chain.as_bytes().as_slice(),
        &lsns,
        &times,
        &sessions,
        &kinds,
        &versions,
        &facts,
        &digests,
        &chains,
        &keys,
        &content_lsns,
        &salts,
        &texts,
        &names,
        &view_versions,
        &sql_position(group.after.lsn),
        &group.after.chain.as_bytes().as_slice(),
        &put_names,
        &put_keys,
        &put_values,
        &removed_names,
        &removed_keys,
    ];
    match channel.client.query_one(&channel.statement, &parameters).await {
        Ok(row) if row.get::<_, i64>(0) == 1 => GroupOutcome::Written { moved: row.get(1) },
        Ok(_) => GroupOutcome::OutOfTurn,
        Err(error) => GroupOutcome::Failed(error.into()),
    }
}
