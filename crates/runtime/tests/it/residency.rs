//! Sessions at rest leave memory, and are loaded again on request; a restart reads a snapshot and the records after it.

use std::time::Duration;

use countersign_core::{
    engine::{Command, EngineReply as Outcome, ResidencyScope, ResumeMode, SNAPSHOT_VERSION},
    gate,
    policy::DefaultPolicy,
    session,
};
use countersign_runtime::{
    InboxLane, OwnerError,
    models::scripted::{ScriptedModel, ScriptedReply},
    store::{Log as _, MemoryLog, Partition},
};
use serde_json::json;

use crate::fixture::{allow, at_rest, begin, eventually, name, open, open_idle, pending, prompt, to_session};

const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

fn named(text: &str) -> Command {
    to_session(session::Command::Name { name: text.to_owned() })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_rests_is_only_in_the_log_until_somebody_asks() {
    let folder = tempfile::tempdir().unwrap();
    let model = ScriptedModel::new([ScriptedReply::from_text("one"), ScriptedReply::from_text("two")]);
    let owner = open_idle(MemoryLog::new(), &model, DefaultPolicy::Gateway, ResumeMode::Wait, AT_ONCE).await;
    let requests = begin(&owner, folder.path()).await;
    // Nothing is in the log before there is something worth it.
    requests.send_command(named("first")).await.unwrap();
    let gone = |engine: &countersign_core::engine::Engine| engine.state().session(&name()).is_none().then_some(());
    eventually(&owner, gone).await;
    // Three in one go: the first to come is first, though all of them wait for the log.
    let sent = [
        requests.submit_command(named("a")).await,
        requests.submit_command(named("b")).await,
        requests.submit_command(prompt()).await,
    ];
    for reply in sent {
        assert!(reply.await.unwrap().is_ok());
    }
    eventually(&owner, gone).await;
    let read = requests.read_of(ResidencyScope::Session(name()), |engine| {
        engine.state().session(&name()).map(|session| (session.name().map(str::to_owned), session.entries().len()))
    });
    assert_eq!(read.await.unwrap().0, Some((Some("b".to_owned()), 2)));
    // A name that is taken is taken, at hand or not.
    let again =
        session::Command::Open { cwd: "/".into(), name: None, parent: None, door: None, settings: Box::default() };
    eventually(&owner, gone).await;
    assert!(matches!(requests.send_command(to_session(again)).await, Err(OwnerError::Refusal(_))));
    owner.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_works_or_waits_is_never_let_go_of() {
    let folder = tempfile::tempdir().unwrap();
    let ran = folder.path().join("ran");
    let write = ScriptedReply::use_tool("c1", "write", &json!({ "path": ran, "content": "x" }).to_string());
    let model = ScriptedModel::new([write, ScriptedReply::from_text("done")]);
    let owner = open_idle(MemoryLog::new(), &model, DefaultPolicy::Gateway, ResumeMode::Wait, AT_ONCE).await;
    let requests = begin(&owner, folder.path()).await;
    requests.send_command(prompt()).await.unwrap();
    let gate = pending(&owner).await;
    for _ in 0..20 {
        let here = requests.read_state(|engine| engine.state().session(&name()).is_some()).await.unwrap().0;
        assert!(here, "a session with a gate that waits was let go of");
    }
    let outcome = owner.source(InboxLane::Result).send_command(allow(gate)).await.map(|reply| reply.outcome);
    assert_eq!(outcome, Ok(Outcome::Resolved(gate::GateResolution::Allowed { scope: gate::ApprovalScope::Once })));
    eventually(&owner, |engine| engine.state().session(&name()).is_none().then_some(())).await;
    assert!(ran.exists());
    owner.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_begins_with_a_snapshot_and_finds_the_rest_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let log = MemoryLog::new();
    let ran = folder.path().join("ran");
    let write = ScriptedReply::use_tool("c1", "write", &json!({ "path": ran, "content": "x" }).to_string());
    let owner =
        open_idle(log.clone(), &ScriptedModel::default(), DefaultPolicy::Gateway, ResumeMode::Wait, AT_ONCE).await;
    let requests = begin(&owner, folder.path()).await;
    for at in 0..2_100 {
        requests.send_command(named(&format!("n{at}"))).await.unwrap();
    }
    owner.close().await;
    let saved = log.restart().load_snapshot(Partition::ZERO, SNAPSHOT_VERSION).await.unwrap();
    assert!(saved.is_some_and(|snapshot| snapshot.lsn.0 > 2_000));
    // The session is not in the snapshot: it rested. After it, it resumes, and a gate is pending when the process ends.
    let log = log.restart();
    let owner = open(
        log.clone(),
        &ScriptedModel::new([write, ScriptedReply::from_text("done")]),
        DefaultPolicy::Gateway,
        ResumeMode::Wait,
    )
    .await;
    let requests = owner.source(InboxLane::Request);
    requests.send_command(prompt()).await.unwrap();
    let gate = pending(&owner).await;
    owner.close().await;
    let owner = open(
        log.restart(),
        &ScriptedModel::new([ScriptedReply::from_text("done")]),
        DefaultPolicy::Gateway,
        ResumeMode::Wait,
    )
    .await;
    assert_eq!(pending(&owner).await, gate);
    let named = eventually(&owner, |engine| Some(engine.state().session(&name())?.name()?.to_owned())).await;
    assert_eq!(named, "n2099");
    owner.source(InboxLane::Result).send_command(allow(gate)).await.unwrap();
    at_rest(&owner).await;
    assert!(ran.exists());
    owner.close().await;
}
