use std::path::PathBuf;

use countersign_protocol::{
    RawJson,
    gsv::{
        node::{ExecEvent, ExecState},
        tool::{NoResultReason, ToolResultParams},
    },
};
use rusqlite::Connection;
use serde_json::json;

use super::{InterruptedWork, JournalHandle, JournaledCall};

struct JournalFixture {
    folder: tempfile::TempDir,
}

impl JournalFixture {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("node.db")
    }

    fn open(&self) -> (JournalHandle, InterruptedWork) {
        JournalHandle::open(&self.path()).unwrap()
    }

    /// Changes the file from outside.
    fn change(&self, sql: &str) {
        Connection::open(self.path()).unwrap().execute_batch(sql).unwrap();
    }
}

fn done(call: &str) -> ToolResultParams {
    let result = Some(RawJson::from(json!({ "status": "completed", "output": "a\u{0}b" })));
    ToolResultParams { call_id: call.to_owned(), result, error: None, fate: None }
}

fn event(session: &str, state: ExecState, call: &str) -> ExecEvent {
    ExecEvent {
        event_id: format!("{session}-{}", if state.is_end() { "ended" } else { "started" }),
        session_id: session.to_owned(),
        event: state,
        call_id: Some(call.to_owned()),
        exit_code: None,
        signal: None,
        output_tail: None,
        started_at: Some(5),
        ended_at: None,
    }
}

#[tokio::test]
async fn a_call_begins_once_and_its_end_is_what_was_noted() {
    let case = JournalFixture::new();
    let (journal, broken) = case.open();
    assert_eq!(broken, InterruptedWork::default());
    assert_eq!(journal.begin_call("c1", "Bash").await.unwrap(), JournaledCall::New);
    assert_eq!(journal.begin_call("c1", "Bash").await.unwrap(), JournaledCall::Working);
    assert_eq!(journal.resume_call("c1").await.unwrap(), JournaledCall::Working);
    journal.end_call(done("c1")).await.unwrap();
    journal.mark_received("c1".to_owned());
    for _ in 0..2 {
        assert_eq!(journal.begin_call("c1", "Bash").await.unwrap(), JournaledCall::Over(done("c1")));
        assert_eq!(journal.resume_call("c1").await.unwrap(), JournaledCall::Over(done("c1")));
    }
    let error = ToolResultParams { result: None, error: Some("no".to_owned()), ..done("c2") };
    assert_eq!(journal.begin_call("c2", "Read").await.unwrap(), JournaledCall::New);
    journal.end_call(error.clone()).await.unwrap();
    assert_eq!(journal.resume_call("c2").await.unwrap(), JournaledCall::Over(error));
    let never = ToolResultParams { result: None, fate: Some(NoResultReason::NotBegun), ..done("c3") };
    assert_eq!(journal.resume_call("c3").await.unwrap(), JournaledCall::Over(never.clone()));
    assert_eq!(journal.begin_call("c3", "Bash").await.unwrap(), JournaledCall::Over(never));
}

#[tokio::test]
async fn what_another_process_left_is_settled() {
    let case = JournalFixture::new();
    let (journal, _) = case.open();
    journal.begin_call("c1", "Bash").await.unwrap();
    journal.begin_call("c2", "Bash").await.unwrap();
    journal.record_event(event("s1", ExecState::Started, "c2"));
    journal.end_call(done("c2")).await.unwrap();
    drop(journal);
    let (journal, broken) = case.open();
    assert_eq!(broken, InterruptedWork { calls: 1, commands: 1 });
    let JournaledCall::Over(outcome) = journal.resume_call("c1").await.unwrap() else { panic!() };
    assert_eq!((outcome.fate, outcome.result, outcome.error.is_some()), (Some(NoResultReason::Unknown), None, true));
    assert_eq!(journal.resume_call("c2").await.unwrap(), JournaledCall::Over(done("c2")));
    assert_eq!(journal.waiting_count(), 2);
    let first = journal.next_event().await.unwrap().unwrap();
    assert_eq!((first.event.event, first.is_announced), (ExecState::Started, false));
    journal.mark_received("c2".to_owned());
    assert!(journal.next_event().await.unwrap().unwrap().is_announced);
    journal.mark_taken(first.seq).await.unwrap();
    let second = journal.next_event().await.unwrap().unwrap();
    assert_eq!((second.event.event, second.event.signal.as_deref()), (ExecState::Failed, Some("SIG9")));
    journal.mark_taken(second.seq).await.unwrap();
    assert_eq!((journal.next_event().await.unwrap(), journal.waiting_count()), (None, 0));
    drop(journal);
    assert_eq!(case.open().1, InterruptedWork::default());
}

#[tokio::test]
async fn what_the_gateway_has_not_taken_is_kept_while_it_is_away() {
    let case = JournalFixture::new();
    let (journal, _) = case.open();
    for call in ["taken", "left"] {
        journal.begin_call(call, "Bash").await.unwrap();
        journal.end_call(done(call)).await.unwrap();
    }
    journal.mark_received("taken".to_owned());
    // It is noted after that.
    journal.begin_call("last", "Bash").await.unwrap();
    drop(journal);
    let hours = |hours: i64| case.change(&format!("UPDATE calls SET ended_at = ended_at - {hours} * 3600000"));
    hours(25);
    let (journal, _) = case.open();
    let fate = |known: JournaledCall| {
        if let JournaledCall::Over(outcome) = known { outcome.fate } else { panic!("{known:?}") }
    };
    assert_eq!(fate(journal.resume_call("taken").await.unwrap()), Some(NoResultReason::NotBegun));
    assert_eq!(journal.resume_call("left").await.unwrap(), JournaledCall::Over(done("left")));
    drop(journal);
    hours(91 * 24);
    let (journal, _) = case.open();
    assert_eq!(
        fate(journal.resume_call("left").await.unwrap()),
        Some(NoResultReason::Unknown),
        "it was begun, however long ago"
    );
}

#[tokio::test]
async fn where_the_disk_refuses_nothing_begins_and_what_happened_is_kept() {
    let case = JournalFixture::new();
    let (journal, _) = case.open();
    journal.begin_call("c1", "Bash").await.unwrap();
    let full = "BEGIN SELECT raise(ABORT, 'the disk is full'); END;";
    case.change(&format!(
        "CREATE TRIGGER a BEFORE INSERT ON calls {full} CREATE TRIGGER b BEFORE UPDATE ON calls {full}"
    ));
    let error = journal.begin_call("c2", "Bash").await.unwrap_err().to_string();
    assert!(error.contains("the journal cannot be written: ") && error.contains("disk is full"), "{error}");
    let ending = tokio::spawn({
        let journal = journal.clone();
        async move { journal.end_call(done("c1")).await }
    });
    journal.record_event(event("s1", ExecState::Started, "c1"));
    assert!(journal.begin_call("c3", "Bash").await.is_err());
    case.change("DROP TRIGGER a; DROP TRIGGER b;");
    ending.await.unwrap().unwrap();
    assert_eq!(journal.resume_call("c1").await.unwrap(), JournaledCall::Over(done("c1")));
    assert_eq!(journal.begin_call("c2", "Bash").await.unwrap(), JournaledCall::New);
    assert_eq!(journal.next_event().await.unwrap().unwrap().event.session_id, "s1");
}

#[tokio::test]
async fn what_ended_long_ago_is_forgotten() {
    let case = JournalFixture::new();
    let (journal, _) = case.open();
    for call in ["old", "new"] {
        journal.begin_call(call, "Bash").await.unwrap();
        journal.end_call(done(call)).await.unwrap();
    }
    drop(journal);
    case.change("UPDATE calls SET received = 1, ended_at = ended_at - 24 * 60 * 60 * 1000 - 1 WHERE id = 'old'");
    let (journal, _) = case.open();
    assert_eq!(journal.resume_call("new").await.unwrap(), JournaledCall::Over(done("new")));
    let JournaledCall::Over(outcome) = journal.resume_call("old").await.unwrap() else { panic!() };
    assert_eq!(outcome.fate, Some(NoResultReason::NotBegun));
}

#[test]
fn a_file_of_another_version_is_left_alone() {
    let case = JournalFixture::new();
    drop(case.open());
    case.change("PRAGMA user_version = 9");
    let error = JournalHandle::open(&case.path()).err().unwrap().to_string();
    assert!(error.contains("another version of this program (form 9)"), "{error}");
}
