//! A session file that differs from the log: its effect on the tree, and on a waiting run.

use countersign_core::{
    engine::{Command, CommandError, EngineReply, ResumeMode},
    id::EntryId,
    message::StopReason,
    run,
    session::{self, FilePart, ImportedEntry, SessionEntryKind, StagedEntry, WhenBusy},
};

use crate::engine_fixture::{EngineFixture, EngineOutcome, asking_rules, sample_message, session_id as id, tool_call};

fn foreign(name: &str, parent: Option<&str>) -> StagedEntry {
    let id = EntryId::new(name);
    StagedEntry::Foreign(ImportedEntry {
        id,
        parent: parent.map(EntryId::new),
        kind: SessionEntryKind::User,
        message: sample_message(9),
        made_at: None,
    })
}

fn known(name: &str) -> StagedEntry {
    StagedEntry::Known(EntryId::new(name))
}

fn to(stage: &mut EngineFixture, command: session::Command) -> EngineOutcome {
    stage.send_command(Command::Session(id(), command))
}

fn gather(stage: &mut EngineFixture, part: FilePart, entries: Vec<StagedEntry>) -> EngineOutcome {
    to(stage, session::Command::Gather { part, entries })
}

fn replace(stage: &mut EngineFixture, leaf: &str) -> EngineOutcome {
    to(stage, session::Command::Replace { leaf: Some(EntryId::new(leaf)) })
}

/// Returns the entries of the tree with their tokens, and its leaf.
fn tree(stage: &EngineFixture) -> (Vec<(String, u64)>, Option<String>) {
    let session = stage.engine.state().session(&id()).expect("the stage has it");
    let entries = session.entries().iter().map(|entry| (entry.id.to_string(), entry.tokens)).collect();
    (entries, session.leaf().map(ToString::to_string))
}

/// Returns a session with three entries in a row.
fn begun() -> EngineFixture {
    let mut stage = EngineFixture::new(asking_rules());
    gather(&mut stage, FilePart::First, vec![foreign("a", None), foreign("b", Some("a")), foreign("c", Some("b"))]);
    replace(&mut stage, "c");
    stage
}

#[test]
fn what_was_gathered_takes_the_place_of_the_tree_at_once_and_in_its_order() {
    let mut stage = begun();
    let before = tree(&stage);
    // The first process dies in the middle.
    gather(&mut stage, FilePart::First, vec![foreign("x", None)]);
    assert_eq!(tree(&stage), before);
    stage.restart(asking_rules(), ResumeMode::Wait);
    let changed = StagedEntry::Foreign(ImportedEntry {
        id: EntryId::new("b"),
        parent: Some(EntryId::new("a")),
        kind: SessionEntryKind::User,
        message: sample_message(70),
        made_at: None,
    });
    gather(&mut stage, FilePart::First, vec![known("a"), changed]);
    gather(&mut stage, FilePart::Next, vec![foreign("n", Some("b")), known("c")]);
    assert_eq!(tree(&stage), before);
    assert_eq!(replace(&mut stage, "n").0, ["session replaced"]);
    let want = [("a", 9), ("b", 70), ("n", 9), ("c", 9)].map(|(name, tokens)| (name.to_owned(), tokens));
    assert_eq!(tree(&stage), (want.to_vec(), Some("n".to_owned())));
    stage.restart(asking_rules(), ResumeMode::Wait);
}

#[test]
fn nothing_is_replaced_by_what_was_not_gathered() {
    let mut stage = begun();
    let before = tree(&stage);
    let out_of_place = |outcome: EngineOutcome| matches!(outcome.1, Err(CommandError::OutOfPlace(_)));
    assert!(out_of_place(gather(&mut stage, FilePart::Next, vec![known("a")])));
    assert!(out_of_place(replace(&mut stage, "a")));
    let missing = |outcome: EngineOutcome| matches!(outcome.1, Err(CommandError::NoEntry { .. }));
    assert!(missing(gather(&mut stage, FilePart::First, vec![known("z")])));
    gather(&mut stage, FilePart::First, vec![known("a")]);
    assert!(missing(replace(&mut stage, "c")));
    assert_eq!(tree(&stage), before);
}

#[test]
fn a_name_is_gathered_once() {
    let mut stage = begun();
    let before = tree(&stage);
    for (case, part, entries) in [
        ("in one part", FilePart::First, vec![foreign("x", None), foreign("x", None)]),
        ("known and changed", FilePart::First, vec![known("a"), foreign("a", None)]),
        ("in another part", FilePart::Next, vec![foreign("x", None)]),
        ("known before", FilePart::Next, vec![known("a")]),
    ] {
        gather(&mut stage, FilePart::First, vec![known("a"), foreign("x", None)]);
        assert_eq!(gather(&mut stage, part, entries).table_cell(), "refused: two entries have the same name", "{case}");
    }
    gather(&mut stage, FilePart::First, vec![foreign("x", None)]);
    assert_eq!(gather(&mut stage, FilePart::First, vec![foreign("x", None)]).1, Ok(EngineReply::Done), "it began anew");
    assert_eq!(tree(&stage), before);
}

#[test]
fn a_run_goes_on_while_its_message_is_on_the_way_to_the_leaf() {
    let withdrawn =
        ["gate resolved withdrawn", "call ended cancelled", "run turn_closed", "run ended aborted", "session replaced"];
    let unknown = ["call in_doubt", "call ended unknown"];
    for (case, keeps, leaf, want) in [
        ("kept", &["user", "answer"][..], "answer", &["session replaced", "session entry tool_result"][..]),
        (
            "with a line behind it",
            &["user", "answer", "+answer"],
            "new",
            &["session replaced", "session entry tool_result"],
        ),
        ("beside the way", &["user", "answer", "+user"], "new", &withdrawn),
        ("gone", &["user"], "user", &withdrawn),
        ("changed", &["user", "!answer"], "answer", &withdrawn),
    ] {
        let mut stage = EngineFixture::new(asking_rules());
        stage.send_prompt(WhenBusy::Refuse);
        stage.request_calls([tool_call("look", "a"), tool_call("write", "b")]);
        stage.end_call(0);
        let names: Vec<String> = tree(&stage).0.into_iter().map(|(name, _)| name).collect();
        let name = |word: &str| match word {
            "user" => names[0].clone(),
            "answer" => names[1].clone(),
            other => other.to_owned(),
        };
        let entries = keeps.iter().map(|word| match (word.strip_prefix('+'), word.strip_prefix('!')) {
            (Some(parent), _) => foreign("new", Some(&name(parent))),
            (_, Some(changed)) => foreign(&name(changed), Some(&names[0])),
            _ => known(&name(word)),
        });
        let entries = entries.collect();
        gather(&mut stage, FilePart::First, entries);
        assert_eq!(replace(&mut stage, &name(leaf)).0, want, "{case}");
        let state = stage.engine.state();
        let goes_on = want.len() == 2;
        assert_eq!((state.pending_gates().count(), state.runs().count()), (goes_on.into(), goes_on.into()), "{case}");
        stage.restart(asking_rules(), ResumeMode::Wait);
    }
    let mut stage = EngineFixture::new(asking_rules());
    stage.send_prompt(WhenBusy::Refuse);
    stage.request_calls([tool_call("look", "a"), tool_call("write", "b")]);
    gather(&mut stage, FilePart::First, vec![foreign("n", None)]);
    assert_eq!(replace(&mut stage, "n").0, [&unknown[..], &withdrawn].concat(), "a call runs");
}

#[test]
fn a_run_ends_if_the_file_no_longer_has_its_entries() {
    let mut stage = begun();
    stage.send_prompt(WhenBusy::Refuse);
    let run = stage.current_run();
    gather(&mut stage, FilePart::First, vec![foreign("n", None)]);
    assert_eq!(replace(&mut stage, "n").0, ["run interrupted", "run ended aborted", "session replaced"]);
    let answer = run::ModelAnswer {
        message: sample_message(1),
        stop: StopReason::Stop,
        total_tokens: 0,
        calls: Vec::new(),
        failure: None,
        others: Vec::new(),
        spent: None,
    };
    assert_eq!(stage.answer_run(run, 1, answer).table_cell(), "Dropped: run result_dropped");
    stage.restart(asking_rules(), ResumeMode::Go);
}

#[test]
fn the_first_entry_of_a_run_is_known_as_long_as_it_works() {
    let mut stage = begun();
    let began =
        |stage: &EngineFixture| stage.engine.state().session(&id()).expect("the stage has it").run_began().cloned();
    assert_eq!(began(&stage), None);
    stage.send_prompt(WhenBusy::Refuse);
    let first = tree(&stage).1.map(EntryId::new);
    stage.request_calls([tool_call("write", "b")]);
    assert_eq!(began(&stage), first);
    stage.restart(asking_rules(), ResumeMode::Wait);
    assert_eq!(began(&stage), first);
    stage.abort();
    assert_eq!(began(&stage), None);
}
