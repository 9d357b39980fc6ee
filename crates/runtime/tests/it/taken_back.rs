//! A batch that could not be recorded: none of it happened, and no reply claims otherwise.

use std::time::Duration;

use countersign_core::{
    engine::{Command, EngineReply as Outcome, ResumeMode},
    gate::{self, ApprovalScope, GateReply},
    id::{GateId, PrincipalId},
    policy::DefaultPolicy,
    session,
    time::Millis,
};
use countersign_runtime::{
    Clock, InboxLane, OwnerError, OwnerHandle,
    models::scripted::{ReplyStep, ScriptedModel, ScriptedReply},
    store::{DiskState, LogFault, MemoryLog, UncertainOutcome as Became},
};
use serde_json::json;

use crate::fixture::{allow, at_rest, begin, eventually, name, open, open_at, pending, prompt, rules, to_session};

/// Longer than a gate waits by default.
const TOO_LONG: Duration = Duration::from_secs(1_000);

/// Opens an owner with a pending gate, in virtual time.
async fn waits(log: &MemoryLog, folder: &tempfile::TempDir) -> (OwnerHandle, GateId) {
    let model = ScriptedModel::new([writes(), ScriptedReply::new().add_step(ReplyStep::Hang)]);
    let clock = Clock::starting_at(Millis(1));
    let owner = open_at(clock, log.clone(), &model, DefaultPolicy::Gateway, ResumeMode::Wait, None).await;
    begin(&owner, folder.path()).await.send_command(prompt()).await.unwrap();
    let gate = pending(&owner).await;
    (owner, gate)
}

fn allowed() -> Outcome {
    Outcome::Resolved(gate::GateResolution::Allowed { scope: ApprovalScope::Once })
}

fn writes() -> ScriptedReply {
    ScriptedReply::use_tool("c1", "write", &json!({ "path": "/proc/nowhere/x", "content": "x" }).to_string())
}

#[tokio::test]
async fn rules_that_were_not_recorded_are_not_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let log = MemoryLog::new();
    let owner = open(log.clone(), &ScriptedModel::default(), DefaultPolicy::Gateway, ResumeMode::Wait).await;
    let requests = begin(&owner, folder.path()).await;
    log.fail_next(LogFault::Io);
    let prompted = requests.submit_command(prompt()).await;
    let reloaded = requests.submit_command(Command::UseRules(Box::new(rules(DefaultPolicy::Stdio)))).await;
    assert!(matches!(prompted.await, Ok(Err(OwnerError::NotRecorded(_)))));
    assert!(matches!(reloaded.await, Ok(Err(OwnerError::NotRecorded(_)))));
    let posture = requests.read_state(|engine| engine.rules().default_policy).await.unwrap().0;
    assert_eq!(posture, DefaultPolicy::Gateway);
    owner.close().await;
}

#[tokio::test]
async fn an_answer_that_was_not_recorded_is_not_released() {
    let folder = tempfile::tempdir().unwrap();
    let log = MemoryLog::new();
    let owner = open(log.clone(), &ScriptedModel::new([writes()]), DefaultPolicy::Gateway, ResumeMode::Wait).await;
    begin(&owner, folder.path()).await.send_command(prompt()).await.unwrap();
    let gate = pending(&owner).await;
    log.fail_next(LogFault::Io);
    let answers = owner.source(InboxLane::Result);
    let ana = answers.submit_command(allow(gate)).await;
    let by = PrincipalId::new("ben");
    let deny = gate::Command::Answer { gate, answer: GateReply::Deny { reason: None }, by, key: None };
    let ben = answers.submit_command(Command::Gate(deny)).await;
    assert!(matches!(ana.await, Ok(Err(OwnerError::NotRecorded(_)))));
    let ben = ben.await;
    assert!(matches!(ben, Ok(Err(OwnerError::NotRecorded(_)))), "{ben:?}");
    owner.close().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_came_in_time_counts_however_long_it_waits_in_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let (owner, gate) = waits(&MemoryLog::new(), &folder).await;
    let answer = owner.source(InboxLane::Result).submit_command(allow(gate)).await;
    tokio::time::advance(TOO_LONG).await;
    assert_eq!(answer.await.unwrap().map(|reply| reply.outcome), Ok(allowed()));
    owner.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_passes_while_nothing_can_be_recorded_gets_a_while_more() {
    let folder = tempfile::tempdir().unwrap();
    let log = MemoryLog::new();
    let (owner, gate) = waits(&log, &folder).await;
    log.set_disk(DiskState::Full);
    tokio::time::sleep(TOO_LONG).await;
    let answers = owner.source(InboxLane::Result);
    let reply = tokio::time::timeout(TOO_LONG, answers.send_command(allow(gate))).await;
    assert!(matches!(reply, Ok(Err(OwnerError::NotRecorded(_)))), "{reply:?}");
    log.set_disk(DiskState::Works);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(answers.send_command(allow(gate)).await.map(|reply| reply.outcome), Ok(allowed()));
    owner.close().await;
}

#[tokio::test(start_paused = true)]
async fn callers_in_any_lane_get_an_error_while_nothing_can_be_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let log = MemoryLog::new();
    let (owner, gate) = waits(&log, &folder).await;
    log.set_disk(DiskState::Full);
    let answers = owner.source(InboxLane::Result);
    assert!(matches!(answers.send_command(allow(gate)).await, Err(OwnerError::NotRecorded(_))));
    let read = answers.read_state(|engine| engine.state().pending_gates().count());
    let read = tokio::time::timeout(TOO_LONG / 2, read).await;
    assert_eq!(read.unwrap().map(|(pending, _)| pending), Some(1));
    let again = tokio::time::timeout(TOO_LONG / 2, answers.send_command(allow(gate))).await;
    assert!(matches!(again, Ok(Err(OwnerError::NotRecorded(_)))), "{again:?}");
    owner.close().await;
}

#[tokio::test(start_paused = true)]
async fn the_metrics_show_whether_requests_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let log = MemoryLog::new();
    let (owner, gate) = waits(&log, &folder).await;
    let refusing = || owner.metrics().refusing.get();
    assert_eq!(refusing(), 0);
    log.set_disk(DiskState::Full);
    let answers = owner.source(InboxLane::Result);
    assert!(matches!(answers.send_command(allow(gate)).await, Err(OwnerError::NotRecorded(_))));
    // The owner sends the error first, and answers the next request after that step.
    assert!(answers.read_state(|_| ()).await.is_some());
    assert_eq!(refusing(), 1);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(refusing(), 1);
    log.set_disk(DiskState::Works);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(refusing(), 0);
    owner.close().await;
}

#[tokio::test]
async fn a_read_behind_what_was_not_recorded_shows_what_is_so() {
    let folder = tempfile::tempdir().unwrap();
    let log = MemoryLog::new();
    let owner = open(log.clone(), &ScriptedModel::default(), DefaultPolicy::Gateway, ResumeMode::Wait).await;
    let requests = begin(&owner, folder.path()).await;
    log.fail_next(LogFault::Io);
    let prompted = requests.submit_command(prompt()).await;
    let runs = requests.read_state(|engine| engine.state().runs().count()).await;
    assert_eq!(runs.map(|(runs, _)| runs), Some(0));
    assert!(matches!(prompted.await, Ok(Err(OwnerError::NotRecorded(_)))));
    owner.close().await;
}

#[tokio::test]
async fn what_nobody_waits_for_is_recorded_once_the_log_can_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let log = MemoryLog::new();
    let owner = open(log.clone(), &ScriptedModel::default(), DefaultPolicy::Gateway, ResumeMode::Wait).await;
    let requests = begin(&owner, folder.path()).await;
    requests.send_command(prompt()).await.unwrap();
    at_rest(&owner).await;
    log.fail_next(LogFault::Io);
    let written = session::Command::FileWritten { path: "f".to_owned(), length: 3, digest: String::new() };
    requests.post_command(to_session(written)).await;
    let path = |file: (&str, u64, &str)| file.0.to_owned();
    let written = eventually(&owner, move |engine| engine.state().session(&name())?.session_file().map(path)).await;
    assert_eq!(written, "f");
    owner.close().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_long_where_it_is_not_known_what_was_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let log = MemoryLog::new();
    let (owner, gate) = waits(&log, &folder).await;
    log.fail_next(LogFault::Breaks(Became::Written));
    let answers = owner.source(InboxLane::Result);
    let soon = Duration::from_secs(10);
    let reply = tokio::time::timeout(soon, answers.send_command(allow(gate))).await;
    assert!(matches!(reply, Ok(Err(OwnerError::Unsure(_)))), "{reply:?}");
    let later = tokio::time::timeout(soon, answers.send_command(allow(gate))).await;
    assert!(matches!(later, Ok(Err(OwnerError::NotRecorded(_)))), "{later:?}");
    log.set_disk(DiskState::Works);
    let again = answers.send_command(allow(gate)).await;
    assert!(matches!(again, Err(OwnerError::Refusal(_))), "it was recorded after all: {again:?}");
    owner.close().await;
}
