//! Every command to a session in every state of it.

use countersign_core::{
    engine::EngineReply,
    id::EntryId,
    message::StopReason,
    session::{
        Command, CompactionOutcome, ImportedEntry, MessageQueue, ModelRef, QueueModes, SessionEntryKind,
        SessionSetting, Settings, TakeMode, WhenBusy,
    },
};

use crate::{
    engine_fixture::{EngineFixture, EngineOutcome, open_rules, sample_message},
    states::{idle, in_every_state},
};

const NONE: (&str, &str) = ("none", "refused: no session s");
const BUSY: (&str, &str) =
    ("command, thinking, calling, gated, asked, backoff, stopping, compacting, behind", "refused: s is busy");
/// All states of a session that is there.
const ANY: &str = "idle, command, thinking, calling, gated, asked, backoff, stopping, compacting, behind";
const WORKING: &str = "thinking, calling, gated, asked, backoff, stopping, compacting, behind";
const STARTED: (&str, &str) =
    ("idle, command", "Started: run started prompt, run turn_opened, session entry user, run asked");

fn tell(command: impl Fn() -> Command) -> impl Fn(&mut EngineFixture) -> EngineOutcome {
    move |stage| stage.session_command(command())
}

fn entry(id: &str) -> ImportedEntry {
    ImportedEntry {
        id: EntryId::new(id),
        parent: None,
        kind: SessionEntryKind::User,
        message: sample_message(1),
        made_at: None,
    }
}

#[test]
fn a_session_is_opened_once() {
    let open =
        || Command::Open { cwd: "/x".to_owned(), name: None, parent: None, door: None, settings: Box::default() };
    let rows = [("none", "Done: session opened, session set"), (ANY, "refused: session s exists")];
    in_every_state("open", tell(open), &rows);
}

#[test]
fn a_prompt_starts_a_run_at_rest_and_is_else_refused_or_queued_as_it_says() {
    for (case, when_busy, busy) in [
        ("refuse", WhenBusy::Refuse, "refused: session s already has an active run"),
        ("steer", WhenBusy::Steer, "Queued: session queued user steering"),
        ("follow up", WhenBusy::FollowUp, "Queued: session queued user follow_up"),
    ] {
        in_every_state(case, |stage| stage.send_prompt(when_busy), &[NONE, STARTED, (WORKING, busy)]);
    }
}

#[test]
fn what_a_prompt_mentions_stands_right_behind_it() {
    let mut stage = idle();
    let with = vec![(SessionEntryKind::Custom, sample_message(1)), (SessionEntryKind::Custom, sample_message(1))];
    let outcome =
        stage.session_command(Command::Prompt { message: sample_message(1), with, when_busy: WhenBusy::Refuse });
    let expected = ["session entry user", "session entry custom", "session entry custom", "run asked"];
    assert_eq!(outcome.0[2..], expected);
}

#[test]
fn a_prompt_needs_a_model() {
    let mut stage = EngineFixture::without_session(open_rules());
    let settings = Box::default();
    stage.session_command(Command::Open { cwd: "/w".to_owned(), name: None, parent: None, door: None, settings });
    for when_busy in [WhenBusy::Refuse, WhenBusy::Steer, WhenBusy::FollowUp] {
        assert_eq!(
            stage.send_prompt(when_busy).table_cell(),
            "refused: session s has no model; select one first",
            "{when_busy:?}"
        );
    }
}

#[test]
fn a_queued_message_starts_nothing_in_any_state() {
    for (queue, want) in [
        (MessageQueue::Steering, "Queued: session queued user steering"),
        (MessageQueue::FollowUp, "Queued: session queued user follow_up"),
    ] {
        let queued = || Command::Queue { queue, message: sample_message(1) };
        in_every_state(want, tell(queued), &[NONE, (ANY, want)]);
    }
}

#[test]
fn nobody_queues_a_prompt_or_a_command_by_itself() {
    for queue in [MessageQueue::Prompt, MessageQueue::Held] {
        let queued = || Command::Queue { queue, message: sample_message(1) };
        let refused = "refused: only steering and follow-ups are queued by command";
        in_every_state("queue", tell(queued), &[NONE, (ANY, refused)]);
    }
}

#[test]
fn clearing_empties_every_queue_of_messages_and_says_nothing_where_none_has_any() {
    let without = "idle, command, thinking, calling, gated, asked, backoff, stopping, compacting";
    let cleared = "Done: session cleared";
    in_every_state("empty", tell(|| Command::Clear), &[NONE, (without, "Done"), ("behind", cleared)]);
    let full = |stage: &mut EngineFixture| {
        for queue in [MessageQueue::Steering, MessageQueue::FollowUp] {
            stage.session_command(Command::Queue { queue, message: sample_message(1) });
        }
        let outcome = stage.session_command(Command::Clear);
        assert!(outcome.1.is_err() || stage.current_session().queued_count() == 0);
        outcome
    };
    in_every_state("full", full, &[NONE, (ANY, cleared)]);
}

#[test]
fn a_setting_changes_at_any_time_and_adds_a_note_if_requested() {
    let model =
        ModelRef { provider: "p".to_owned(), id: "n".to_owned(), context_window: 9, max_tokens: 1, price: None };
    let modes = QueueModes { steering: TakeMode::All, ..QueueModes::default() };
    for setting in [
        SessionSetting::Model(model),
        SessionSetting::Thinking(Some("low".to_owned())),
        SessionSetting::Modes(modes),
        SessionSetting::AutoCompaction(false),
        SessionSetting::AutoRetry(false),
        SessionSetting::All(Box::<Settings>::default()),
    ] {
        let set = || Command::Set { setting: setting.clone(), entry: None };
        if !matches!(setting, SessionSetting::Model(_)) {
            in_every_state(&format!("{setting:?}"), tell(set), &[NONE, (ANY, "Done: session set")]);
            continue;
        }
        // The wait for another attempt was the old model's.
        let resumed = ("backoff", "Done: session set, run resumed, run turn_opened, run asked");
        let others = "idle, command, thinking, calling, gated, asked, stopping, compacting, behind";
        in_every_state("another model", tell(set), &[NONE, (others, "Done: session set"), resumed]);
    }
    let set = || Command::Set {
        setting: SessionSetting::Thinking(None),
        entry: Some((SessionEntryKind::ThinkingChange, sample_message(0))),
    };
    in_every_state("entry", tell(set), &[NONE, (ANY, "Done: session set, session entry thinking_change")]);
}

#[test]
fn a_person_sets_the_list_of_tasks_at_any_time() {
    let set = || Command::SetTasks { entry: sample_message(0), open: 2 };
    in_every_state("tasks", tell(set), &[NONE, (ANY, "Done: session entry other, session tasks")]);
}

#[test]
fn a_name_is_trimmed_and_neither_empty_nor_endless() {
    for (case, name, want) in [
        ("plain", " work ".to_owned(), "Done: session named"),
        ("empty", " \n".to_owned(), "refused: a session's name is not empty"),
        ("longest", "n".repeat(4096), "Done: session named"),
        ("too long", "n".repeat(4097), "refused: a session's name is longer than 4096 bytes"),
    ] {
        in_every_state(case, tell(|| Command::Name { name: name.clone() }), &[NONE, (ANY, want)]);
    }
    let mut stage = idle();
    stage.session_command(Command::Name { name: " work ".to_owned() });
    assert_eq!(stage.current_session().name(), Some("work"));
}

#[test]
fn the_tree_and_the_folder_change_only_at_rest() {
    let to = |leaf: Option<&str>| {
        let leaf = leaf.map(EntryId::new);
        tell(move || Command::Move { leaf: leaf.clone() })
    };
    in_every_state("before the first entry", to(None), &[NONE, ("idle", "Done: session moved"), BUSY]);
    in_every_state("nowhere", to(Some("x")), &[NONE, ("idle", "refused: no entry x in s"), BUSY]);
    let relocate = tell(|| Command::Relocate { cwd: "/x".to_owned() });
    in_every_state("relocate", relocate, &[NONE, ("idle", "Done: session relocated"), BUSY]);
    for (case, leaf, want) in [
        ("import", Some("x"), "Done: session entry user, session moved"),
        ("import without a leaf", None, "Done: session entry user, session moved"),
        ("import, a leaf that is not there", Some("y"), "refused: no entry y in s"),
    ] {
        let leaf = leaf.map(EntryId::new);
        let import = tell(|| Command::Import { entries: vec![entry("x")], leaf: leaf.clone() });
        in_every_state(case, import, &[NONE, ("idle", want), BUSY]);
    }
}

#[test]
fn only_the_newest_answer_is_asked_for_again_and_the_calls_before_it_stay() {
    let again = |answer: &str| {
        let answer = EntryId::new(answer);
        tell(move || Command::AskAgain { answer: answer.clone() })
    };
    in_every_state("none", again("x"), &[NONE, ("idle", "refused: no entry x in s"), BUSY]);
    let answer = |stop| SessionEntryKind::Assistant { stop, total_tokens: 0 };
    let talk = || {
        let mut stage = idle();
        let result = SessionEntryKind::ToolResult { prunable: false };
        stage.import([
            ("u", SessionEntryKind::User, 1),
            ("a", answer(StopReason::ToolUse), 1),
            ("r", result, 1),
            ("b", answer(StopReason::Stop), 1),
        ]);
        stage
    };
    for (case, asked, want) in [
        ("an earlier one", "a", "refused: no entry a in s"),
        ("a result", "r", "refused: no entry r in s"),
        ("the newest", "b", "Started: session moved, run started prompt, run turn_opened, run asked"),
    ] {
        let mut stage = talk();
        assert_eq!(again(asked)(&mut stage).table_cell(), want, "{case}");
        let path: Vec<_> = stage.current_session().path_entries().iter().map(|entry| entry.id.as_str()).collect();
        assert_eq!(path.join(" "), if asked == "b" { "u a r" } else { "u a r b" }, "{case}");
    }
    let mut waiting = talk();
    waiting.session_command(Command::Queue { queue: MessageQueue::FollowUp, message: sample_message(1) });
    assert_eq!(again("b")(&mut waiting).table_cell(), "refused: s is busy");
    let mut summarised = talk();
    summarised.import([("s", SessionEntryKind::ContextReset, 0)]);
    assert_eq!(again("b")(&mut summarised).table_cell(), "refused: no entry b in s");
}

#[test]
fn an_entry_from_elsewhere_takes_no_name_that_is_taken() {
    let mut stage = idle();
    stage.import([("u", SessionEntryKind::User, 1)]);
    for (case, entries) in [("known", vec![entry("u")]), ("twice", vec![entry("v"), entry("v")])] {
        let outcome = stage.session_command(Command::Import { entries, leaf: None });
        assert_eq!(outcome.table_cell(), "refused: two entries have the same name", "{case}");
    }
}

#[test]
fn the_way_to_an_entry_ends_where_it_would_come_round() {
    let round = |id: &str, parent: &str| ImportedEntry { parent: Some(EntryId::new(parent)), ..entry(id) };
    for (case, entries, want) in [
        ("its own parent", vec![round("x", "x")], vec!["x"]),
        ("in a circle", vec![round("x", "z"), round("y", "x"), round("z", "y")], vec!["x", "y", "z"]),
        ("on the way to a circle", vec![round("x", "x"), round("y", "x"), round("z", "y")], vec!["x", "y", "z"]),
        ("a parent that is nowhere", vec![round("z", "w")], vec!["z"]),
    ] {
        let mut stage = idle();
        let leaf = entries.last().map(|entry| entry.id.clone());
        stage.session_command(Command::Import { entries, leaf });
        let path: Vec<_> = stage.current_session().path_entries().iter().map(|entry| entry.id.as_str()).collect();
        assert_eq!(path, want, "{case}");
    }
}

#[test]
fn a_session_moves_to_any_entry_of_its_tree() {
    let mut stage = idle();
    stage.import([("u", SessionEntryKind::User, 1), ("v", SessionEntryKind::User, 1)]);
    for leaf in [Some("u"), Some("v"), None] {
        let leaf = leaf.map(EntryId::new);
        let outcome = stage.session_command(Command::Move { leaf: leaf.clone() });
        assert_eq!((outcome.1, stage.current_session().leaf()), (Ok(EngineReply::Done), leaf.as_ref()));
    }
}

#[test]
fn an_imported_answer_that_failed_and_was_retried_is_not_shown() {
    let answered = |stop| SessionEntryKind::Assistant { stop, total_tokens: 0 };
    let failed = answered(countersign_core::message::StopReason::Error);
    let stopped = answered(countersign_core::message::StopReason::Stop);
    for (case, last, shown) in [
        ("asked again", stopped, vec!["u", "w"]),
        ("asked again in vain", failed.clone(), vec!["u", "w"]),
        ("left at that", SessionEntryKind::User, vec!["u", "v", "w"]),
    ] {
        let mut stage = idle();
        stage.import([("u", SessionEntryKind::User, 1), ("v", failed.clone(), 1), ("w", last, 1)]);
        let context: Vec<_> =
            stage.current_session().model_context().iter().map(|piece| piece.entry().id.as_str()).collect();
        assert_eq!(context, shown, "{case}");
    }
}

#[test]
fn a_compaction_begins_where_nothing_works() {
    let filled = |stage: &mut EngineFixture| {
        stage.import([("u", SessionEntryKind::User, 60), ("v", SessionEntryKind::User, 60)]);
        stage.session_command(Command::Compact { instructions: Some("briefly".into()) })
    };
    let mut stage = idle();
    assert_eq!(filled(&mut stage).table_cell(), "Compacting 1: session compaction_started rest");
    let rows = [
        NONE,
        ("idle, command", "refused: nothing to compact (session too small)"),
        ("thinking, calling, gated, asked, backoff, stopping", "refused: a run is under way"),
        ("compacting, behind", "refused: a compaction is under way"),
    ];
    in_every_state("compact", tell(|| Command::Compact { instructions: None }), &rows);
}

#[test]
fn a_context_whose_newest_entry_is_a_summary_is_compacted_already() {
    let mut stage = idle();
    let summary = SessionEntryKind::Compaction { first_kept: EntryId::new("u"), tokens_before: 9 };
    stage.import([("u", SessionEntryKind::User, 60), ("v", SessionEntryKind::User, 60), ("s", summary, 1)]);
    let outcome = stage.session_command(Command::Compact { instructions: None });
    assert_eq!(outcome.table_cell(), "refused: already compacted");
}

#[test]
fn a_compaction_is_stopped_once() {
    let abort = || tell(|| Command::AbortCompaction);
    let idle = "idle, command, thinking, calling, gated, asked, backoff, stopping";
    let aborting = "Compacting 1: session compaction_aborting";
    in_every_state("once", abort(), &[NONE, (idle, "Idle"), ("compacting, behind", aborting)]);
    let twice = |stage: &mut EngineFixture| {
        stage.session_command(Command::AbortCompaction);
        stage.session_command(Command::AbortCompaction)
    };
    in_every_state("twice", twice, &[NONE, (idle, "Idle"), ("compacting, behind", "Compacting 1")]);
}

#[test]
fn the_outcome_of_a_compaction_counts_while_that_compaction_is_under_way() {
    let without = "idle, command, thinking, calling, gated, asked, backoff, stopping";
    let started = "run started prompt, run turn_opened, session dequeued prompt, session entry user, run asked";
    let summary = "session entry compaction, ";
    for (case, outcome, summary) in [
        ("done", CompactionOutcome::Done { summary: sample_message(1), spent: None }, summary),
        ("failed", CompactionOutcome::Failed { message: "no".into() }, ""),
        ("aborted", CompactionOutcome::Aborted, ""),
    ] {
        let ended = tell(|| Command::Compacted { epoch: 1, outcome: outcome.clone() });
        let dropped = "Dropped: session compaction_dropped";
        let rest = format!("Done: {summary}session compaction_ended rest");
        let runs = format!("Done: {summary}session compaction_ended prompt, {started}");
        in_every_state(case, ended, &[NONE, (without, dropped), ("compacting", &rest), ("behind", &runs)]);
        let other = tell(|| Command::Compacted { epoch: 2, outcome: outcome.clone() });
        in_every_state("another epoch", other, &[NONE, (ANY, dropped)]);
    }
}

#[test]
fn the_event_sequence_is_recorded_in_any_state_and_changes_nothing() {
    let record_command = || Command::RecordSequence { number: 7, upto: None };
    in_every_state("told", tell(record_command), &[NONE, (ANY, "Done: session told")]);
}

#[test]
fn the_record_of_the_sessions_file_is_kept_in_any_state() {
    let written = || Command::FileWritten { path: "/f".to_owned(), length: 3, digest: "d".to_owned() };
    in_every_state("written", tell(written), &[NONE, (ANY, "Done: session file_written")]);
    let mut stage = idle();
    stage.session_command(written());
    assert_eq!(stage.current_session().session_file(), Some(("/f", 3, "d")));
}
