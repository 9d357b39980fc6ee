//! The owner's loop on logs that fail, vanish, fence and close: nothing runs that was not recorded, and no reply is wrong.

use std::{path::Path, time::Duration};

use countersign_core::{
    engine::{Command, Engine, EngineReply as Outcome, ResumeMode},
    gate::{self, ApprovalScope},
    id::EntryId,
    policy::DefaultPolicy,
    run,
    session::{self, ImportedEntry, MessageContent, SessionEntryKind},
};
use countersign_runtime::{
    InboxLane, LiveKind, OwnerError, ReleasedItem,
    models::scripted::{ReplyStep, ScriptedModel, ScriptedReply},
    store::{self, LogFault, MemoryLog, SqliteLog},
};
use serde_json::json;

use crate::fixture::{allow, at_rest, begin, eventually, name, open, open_held, pending, prompt, to_session};

fn writes(path: &Path) -> ScriptedReply {
    ScriptedReply::use_tool("c1", "write", &json!({ "path": path, "content": "x" }).to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_that_could_not_be_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let (logs, ran) = (folder.path().join("log"), folder.path().join("ran"));
    std::fs::create_dir(&logs).unwrap();
    let log = SqliteLog::open(logs.join("l.db"), store::LogOptions::default()).unwrap();
    let owner = open(log, &ScriptedModel::new([writes(&ran)]), DefaultPolicy::Gateway, ResumeMode::Wait).await;
    let requests = begin(&owner, folder.path()).await;
    requests.send_command(prompt()).await.unwrap();
    let gate = pending(&owner).await;
    std::fs::remove_dir_all(&logs).unwrap();
    assert!(requests.send_command(allow(gate)).await.is_err());
    owner.close().await;
    assert!(!ran.exists(), "an action ran that no log knows of");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_was_fenced_does_none_of_the_others_work() {
    let folder = tempfile::tempdir().unwrap();
    let hang = || ScriptedReply::new().add_step(ReplyStep::Hang);
    let (ours, theirs) = (ScriptedModel::new([hang(), hang()]), ScriptedModel::new([hang(), hang()]));
    let log = MemoryLog::new();
    let first = open(log.clone(), &ours, DefaultPolicy::Gateway, ResumeMode::Go).await;
    let requests = begin(&first, folder.path()).await;
    requests.send_command(prompt()).await.unwrap();
    eventually(&first, |engine| engine.state().runs().next().map(|_| ())).await;
    let second = open(log.restart(), &theirs, DefaultPolicy::Gateway, ResumeMode::Go).await;
    eventually(&second, |engine| engine.state().runs().next().map(|_| ())).await;
    assert!(requests.send_command(prompt()).await.is_err());
    first.close().await;
    assert!(ours.requests().len() <= 1, "it asked for the other owner's turn");
    second.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_owner_starts_work_on_request_and_its_subscriber_misses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let log = MemoryLog::new();
    let first = open(
        log.clone(),
        &ScriptedModel::new([ScriptedReply::new().add_step(ReplyStep::Hang)]),
        DefaultPolicy::Gateway,
        ResumeMode::Go,
    )
    .await;
    begin(&first, folder.path()).await.send_command(prompt()).await.unwrap();
    eventually(&first, |engine| engine.state().runs().next().map(|_| ())).await;
    let model = ScriptedModel::new([ScriptedReply::from_text("ok")]);
    let held = open_held(log.restart(), &model).await;
    let mut subscriber = held.subscribe().await.unwrap();
    for _ in 0..3 {
        held.source(InboxLane::Request).read_state(|engine| engine.state().head_lsn()).await.unwrap();
    }
    assert!(model.requests().is_empty());
    held.start_work().await;
    let first_live = async {
        loop {
            if let ReleasedItem::Live(live) = subscriber.next().await.unwrap() {
                return live;
            }
        }
    };
    let live = tokio::time::timeout(Duration::from_secs(120), first_live).await.unwrap();
    assert!(matches!(live.kind, LiveKind::MessageStarted { .. }), "{live:?}");
    at_rest(&held).await;
    held.start_work().await;
    assert_eq!(model.requests().len(), 1);
    held.close().await;
    first.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_a_message_is_in_the_log_where_all_is_recorded() {
    let (folder, model) = (tempfile::tempdir().unwrap(), ScriptedModel::new([]));
    for records_all in [false, true] {
        let log = MemoryLog::new();
        let first = open(log.clone(), &model, DefaultPolicy::Gateway, ResumeMode::Go).await;
        if records_all {
            first.record_all();
        }
        begin(&first, folder.path()).await;
        let second = open(log.restart(), &model, DefaultPolicy::Gateway, ResumeMode::Go).await;
        let look = |engine: &Engine| engine.state().session(&name()).is_some();
        assert_eq!(second.source(InboxLane::Request).read_state(look).await.unwrap().0, records_all);
        second.close().await;
        first.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_any_length_leaves_the_session_usable() {
    let folder = tempfile::tempdir().unwrap();
    let command = format!("rm -rf '/{}'", "\"".repeat(40_000));
    let call = ScriptedReply::use_tool("c1", "bash", &json!({ "command": command }).to_string());
    let owner = open(MemoryLog::new(), &ScriptedModel::new([call]), DefaultPolicy::Stdio, ResumeMode::Wait).await;
    let requests = begin(&owner, folder.path()).await;
    requests.send_command(prompt()).await.unwrap();
    pending(&owner).await;
    let aborted = requests.send_command(Command::Run(run::Command::Abort { session: name() })).await;
    assert!(matches!(aborted.map(|reply| reply.outcome), Ok(Outcome::Stopping(_))));
    at_rest(&owner).await;
    owner.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_not_recorded_has_no_effect_later() {
    let folder = tempfile::tempdir().unwrap();
    let ran = folder.path().join("ran");
    let log = MemoryLog::new();
    let owner = open(
        log.clone(),
        &ScriptedModel::new([writes(&ran), ScriptedReply::from_text("ok")]),
        DefaultPolicy::Gateway,
        ResumeMode::Wait,
    )
    .await;
    let requests = begin(&owner, folder.path()).await;
    requests.send_command(prompt()).await.unwrap();
    let gate = pending(&owner).await;
    log.fail_next(LogFault::Io);
    let reply = owner.source(InboxLane::Result).send_command(allow(gate)).await;
    assert!(matches!(reply, Err(OwnerError::NotRecorded(_))), "{reply:?}");
    // Once the log can be written again, the gate waits as before and the next answer counts.
    let again = async {
        loop {
            match requests.send_command(allow(gate)).await {
                Err(OwnerError::NotRecorded(_)) => tokio::task::yield_now().await,
                other => return other,
            }
        }
    };
    let again = tokio::time::timeout(Duration::from_secs(120), again).await.unwrap();
    assert_eq!(
        again.map(|reply| reply.outcome),
        Ok(Outcome::Resolved(gate::GateResolution::Allowed { scope: ApprovalScope::Once }))
    );
    at_rest(&owner).await;
    assert!(ran.exists());
    owner.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_the_end_of_the_process_broke_off_never_acts() {
    let folder = tempfile::tempdir().unwrap();
    let ran = folder.path().join("ran");
    let arguments = json!({ "path": ran, "content": "x" }).to_string();
    let model = ScriptedModel::new([ScriptedReply::new()
        .add_text(["I will"])
        .add_call("c1", "write", &arguments)
        .add_step(ReplyStep::Hang)]);
    let log = MemoryLog::new();
    let owner = open(log.clone(), &model, DefaultPolicy::Gateway, ResumeMode::Wait).await;
    let requests = begin(&owner, folder.path()).await;
    requests.send_command(prompt()).await.unwrap();
    let first_request = async {
        let mut subscriber = owner.subscribe().await.unwrap();
        while model.requests().is_empty() {
            let _ = tokio::time::timeout(Duration::from_millis(10), subscriber.next()).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), first_request).await.unwrap();
    owner.close().await;
    let owner = open(log.restart(), &ScriptedModel::default(), DefaultPolicy::Gateway, ResumeMode::Wait).await;
    let (gates, runs) =
        eventually(&owner, |engine| Some((engine.state().pending_gates().count(), engine.state().runs().count())))
            .await;
    assert_eq!((gates, runs, ran.exists()), (0, 0, false));
    owner.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_and_its_abort_in_one_batch_come_to_rest() {
    let folder = tempfile::tempdir().unwrap();
    let owner = open(MemoryLog::new(), &ScriptedModel::default(), DefaultPolicy::Gateway, ResumeMode::Wait).await;
    let requests = begin(&owner, folder.path()).await;
    for _ in 0..20 {
        let prompted = requests.submit_command(prompt()).await;
        let aborted = requests.submit_command(Command::Run(run::Command::Abort { session: name() })).await;
        assert!(prompted.await.unwrap().is_ok() && aborted.await.unwrap().is_ok());
        at_rest(&owner).await;
    }
    owner.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_fell_behind_gets_every_fact_and_then_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let log = SqliteLog::open(folder.path().join("l.db"), store::LogOptions::default()).unwrap();
    let owner = open(log, &ScriptedModel::default(), DefaultPolicy::Gateway, ResumeMode::Wait).await;
    let requests = begin(&owner, folder.path()).await;
    let mut subscriber = owner.subscribe().await.unwrap();
    let entries: Vec<ImportedEntry> = (0..40)
        .map(|at| ImportedEntry {
            id: EntryId::new(format!("e{at}")),
            parent: None,
            kind: SessionEntryKind::User,
            message: MessageContent { content: "x".repeat(600_000).into(), tokens: 1 },
            made_at: None,
        })
        .collect();
    let leaf = Some(EntryId::new("e39"));
    requests.send_command(to_session(session::Command::Import { entries, leaf })).await.unwrap();
    owner.close().await;
    let all = async {
        let mut count = 0;
        while subscriber.next().await.is_some() {
            count += 1;
        }
        count
    };
    // Forty entries and the move to the last.
    assert_eq!(tokio::time::timeout(Duration::from_secs(120), all).await, Ok(41));
}
