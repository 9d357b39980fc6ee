//! An owner whose log another takes over: nothing leaves any more, and pending senders get an error.

use std::time::Duration;

use countersign_core::{
    engine::ResumeMode,
    id::{GateId, Lsn},
    policy::DefaultPolicy,
    time::Millis,
};
use countersign_runtime::{
    Clock, InboxLane, OwnerError, OwnerHandle, ReleasedItem, Subscriber,
    models::scripted::{ReplyStep, ScriptedModel, ScriptedReply},
    store::{Batch, DiskState, Log as _, LogFault, LogRecord, MemoryLog, Partition, UncertainOutcome},
};
use serde_json::json;
use tempfile::TempDir;

use crate::fixture::{allow, begin, open_at, pending, prompt};

/// Opens an owner with a pending gate, in virtual time.
async fn waits(log: &MemoryLog, folder: &TempDir) -> (OwnerHandle, GateId) {
    let call = json!({ "path": "/proc/nowhere/x", "content": "x" }).to_string();
    let model = ScriptedModel::new([
        ScriptedReply::use_tool("c1", "write", &call),
        ScriptedReply::new().add_step(ReplyStep::Hang),
    ]);
    let clock = Clock::starting_at(Millis(1));
    let owner = open_at(clock, log.clone(), &model, DefaultPolicy::Gateway, ResumeMode::Wait, None).await;
    begin(&owner, folder.path()).await.send_command(prompt()).await.unwrap();
    let gate = pending(&owner).await;
    (owner, gate)
}

async fn head(log: &MemoryLog) -> Lsn {
    log.head(Partition::ZERO).await.unwrap().lsn
}

/// Waits for the end of an owner's releases.
async fn no_fact_is_left(mut subscriber: Subscriber) {
    while let Some(released) = subscriber.next().await {
        assert!(!matches!(released, ReleasedItem::Fact(_)), "{released:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_callers_get_an_error_and_no_fact_is_released() {
    let folder = tempfile::tempdir().unwrap();
    let log = MemoryLog::new();
    let (owner, gate) = waits(&log, &folder).await;
    let subscriber = owner.subscribe().await.unwrap();
    let requests = owner.source(InboxLane::Request);
    log.restart().take_over(Partition::ZERO).await.unwrap();
    let before = head(&log).await;

    let allowed = requests.submit_command(allow(gate)).await;
    let refused = requests.submit_command(allow(gate)).await;
    let read = requests.read_state(|engine| engine.state().head_lsn()).await;
    assert_eq!(read, None);
    for reply in [allowed, refused] {
        let reply = reply.await.unwrap();
        let Err(OwnerError::NotRecorded(why)) = reply else { panic!("{reply:?}") };
        assert_eq!(why.0.as_ref(), "epoch 1 may not write any more: the log was taken over in epoch 2");
    }
    no_fact_is_left(subscriber).await;
    assert_eq!(requests.send_command(prompt()).await, Err(OwnerError::Closed));
    assert_eq!(head(&log).await, before);
    owner.close().await;
}

/// Returns the end of the log after the batch that answers the gate.
async fn end_of_answer() -> Lsn {
    let folder = tempfile::tempdir().unwrap();
    let log = MemoryLog::new();
    let (owner, gate) = waits(&log, &folder).await;
    log.fail_next(LogFault::Breaks(UncertainOutcome::Written));
    let _reply = owner.source(InboxLane::Request).submit_command(allow(gate)).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    let end = head(&log.restart()).await;
    owner.close().await;
    end
}

#[tokio::test(start_paused = true)]
async fn as_many_records_of_another_owner_do_not_pass_for_a_batch_whose_outcome_was_uncertain() {
    let folder = tempfile::tempdir().unwrap();
    let end = end_of_answer().await;
    let log = MemoryLog::new();
    let (owner, gate) = waits(&log, &folder).await;
    let subscriber = owner.subscribe().await.unwrap();
    log.fail_next(LogFault::Breaks(UncertainOutcome::Lost));
    let reply = owner.source(InboxLane::Request).submit_command(allow(gate)).await;
    tokio::time::sleep(Duration::from_millis(10)).await;

    let other = log.restart();
    other.set_disk(DiskState::Works);
    let epoch = other.take_over(Partition::ZERO).await.unwrap();
    let found = other.read_records(Partition::ZERO, Lsn(0), usize::MAX).await.unwrap();
    let last = found.last().unwrap();
    let record = LogRecord {
        at: last.at,
        session: last.session.clone(),
        key: last.key.clone(),
        kind: last.kind.clone(),
        version: last.version,
        facts: last.facts.clone(),
        content: None,
    };
    let batch = Batch(vec![record; usize::try_from(end.0 - last.lsn.0).unwrap()]);
    assert_eq!(other.append(Partition::ZERO, epoch, last.lsn, batch).await.unwrap(), end);

    let reply = reply.await.unwrap();
    assert!(matches!(reply, Err(OwnerError::Unsure(_))), "{reply:?}");
    no_fact_is_left(subscriber).await;
    owner.close().await;
}
