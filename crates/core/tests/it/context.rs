//! Entries that a model is shown, their length, its limit, and the cut of a compaction.

use countersign_core::{
    engine::{Command as EngineCommand, ResumeMode},
    id::EntryId,
    message::StopReason::{self, Aborted, Error, Stop, ToolUse},
    run::{self, ModelAnswer, ProviderFailure},
    session::{
        Command, CompactionCut, CompactionOutcome, CompactionThresholds, ContextPiece, MessageQueue, ModelRef, Session,
        SessionEntryKind, SessionSetting, Settings, StoppedRun, WhenBusy,
    },
};

use crate::{
    engine_fixture::{EngineFixture, open_rules, sample_message, session_id},
    states::idle,
};

use SessionEntryKind::{BranchSummary, ContextReset, Custom, Developer, ModelChange, Other, ThinkingChange, User};

type ContextEntry = (&'static str, SessionEntryKind, u64);

fn assistant_kind(stop: StopReason, total_tokens: u64) -> SessionEntryKind {
    SessionEntryKind::Assistant { stop, total_tokens }
}

fn result() -> SessionEntryKind {
    SessionEntryKind::ToolResult { prunable: false }
}

fn old() -> SessionEntryKind {
    SessionEntryKind::ToolResult { prunable: true }
}

fn bash(in_context: bool) -> SessionEntryKind {
    SessionEntryKind::Bash { in_context }
}

fn summary(first_kept: &str) -> SessionEntryKind {
    SessionEntryKind::Compaction { first_kept: EntryId::new(first_kept), tokens_before: 9 }
}

/// Returns a session with these entries, one after the other.
fn with<const N: usize>(entries: [ContextEntry; N]) -> EngineFixture {
    let mut stage = idle();
    stage.import(entries);
    stage
}

/// Returns the shown entries: their names, a summary in brackets.
fn shown(session: &Session) -> String {
    let name = |piece: &ContextPiece<'_>| match piece {
        ContextPiece::Summary(entry) => format!("[{}]", entry.id),
        ContextPiece::Entry(entry) => entry.id.to_string(),
    };
    session.model_context().iter().map(name).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_model_is_shown_the_messages_of_the_path_behind_its_latest_summary() {
    for (case, stage, want) in [
        ("nothing", with([]), ""),
        (
            "messages",
            with([("u", User, 1), ("a", assistant_kind(Stop, 0), 1), ("r", result(), 1), ("d", Developer, 1)]),
            "u a r d",
        ),
        ("other messages", with([("b", BranchSummary, 1), ("c", Custom, 1)]), "b c"),
        ("no messages", with([("m", ModelChange, 1), ("t", ThinkingChange, 1), ("o", Other, 1), ("u", User, 1)]), "u"),
        ("a command", with([("s", bash(true), 1), ("h", bash(false), 1)]), "s"),
        ("a summary", with([("u", User, 1), ("v", User, 1), ("s", summary("v"), 1), ("w", User, 1)]), "[s] v w"),
        ("a summary that keeps nothing", with([("u", User, 1), ("s", summary("x"), 1), ("w", User, 1)]), "[s] w"),
        (
            "the latest of two",
            with([("u", User, 1), ("s", summary("u"), 1), ("v", User, 1), ("t", summary("v"), 1), ("w", User, 1)]),
            "[t] v w",
        ),
        (
            "kept from before the summary before",
            with([("u", User, 1), ("v", User, 1), ("s", summary("v"), 1), ("w", User, 1), ("t", summary("v"), 1)]),
            "[t] v w",
        ),
        ("a reset", with([("u", User, 1), ("r", ContextReset, 0), ("v", User, 1)]), "v"),
        ("a reset at the end", with([("u", User, 1), ("r", ContextReset, 0)]), ""),
        (
            "the latest of two resets",
            with([("u", User, 1), ("r", ContextReset, 0), ("v", User, 1), ("q", ContextReset, 0), ("w", User, 1)]),
            "w",
        ),
        (
            "a reset behind a summary",
            with([("u", User, 1), ("s", summary("u"), 1), ("v", User, 1), ("r", ContextReset, 0), ("w", User, 1)]),
            "w",
        ),
        (
            "a summary behind a reset",
            with([("u", User, 1), ("r", ContextReset, 0), ("v", User, 1), ("w", User, 1), ("s", summary("w"), 1)]),
            "[s] w",
        ),
        (
            "kept from before a reset",
            with([("u", User, 1), ("r", ContextReset, 0), ("v", User, 1), ("s", summary("u"), 1), ("w", User, 1)]),
            "[s] v w",
        ),
    ] {
        assert_eq!(shown(stage.current_session()), want, "{case}");
    }
}

#[test]
fn a_branch_that_was_left_is_not_shown() {
    let mut stage = with([("u", User, 1), ("v", User, 1), ("w", User, 1)]);
    for (leaf, want) in [(Some("v"), "u v"), (Some("u"), "u"), (None, ""), (Some("w"), "u v w")] {
        stage.session_command(Command::Move { leaf: leaf.map(EntryId::new) });
        assert_eq!(shown(stage.current_session()), want, "{leaf:?}");
    }
    stage.session_command(Command::Move { leaf: Some(EntryId::new("u")) });
    stage.import([("x", User, 1)]);
    assert_eq!(shown(stage.current_session()), "u x");
}

#[test]
fn a_context_is_as_long_as_the_provider_counted_and_an_estimate_of_what_came_since() {
    for (case, stage, want) in [
        ("nothing", with([]), 0),
        ("nothing counted", with([("u", User, 10), ("a", assistant_kind(Stop, 0), 20)]), 30),
        ("counted", with([("u", User, 10), ("a", assistant_kind(Stop, 500), 20)]), 500),
        (
            "counted, then more",
            with([("u", User, 10), ("a", assistant_kind(ToolUse, 500), 20), ("r", result(), 7)]),
            507,
        ),
        (
            "counted twice",
            with([("a", assistant_kind(Stop, 500), 20), ("u", User, 10), ("b", assistant_kind(Stop, 600), 20)]),
            600,
        ),
        (
            "a failure counts for nothing",
            with([("a", assistant_kind(Stop, 500), 20), ("b", assistant_kind(Error, 900), 3)]),
            503,
        ),
        (
            "nor does what was broken off",
            with([("a", assistant_kind(Stop, 500), 20), ("b", assistant_kind(Aborted, 900), 3)]),
            503,
        ),
        ("what is no message", with([("u", User, 10), ("m", ModelChange, 5), ("h", bash(false), 5)]), 10),
        ("a summary", with([("u", User, 10), ("v", User, 20), ("s", summary("v"), 5)]), 25),
        (
            "counted before a summary",
            with([("u", User, 10), ("a", assistant_kind(Stop, 500), 20), ("s", summary("a"), 5), ("v", User, 3)]),
            28,
        ),
        (
            "counted after a summary",
            with([
                ("u", User, 10),
                ("a", assistant_kind(Stop, 500), 20),
                ("s", summary("a"), 5),
                ("b", assistant_kind(Stop, 70), 3),
            ]),
            70,
        ),
    ] {
        assert_eq!(stage.current_session().context_tokens(), want, "{case}");
    }
}

fn settings(window: u64, thresholds: CompactionThresholds) -> SessionSetting {
    let model =
        ModelRef { provider: "p".to_owned(), id: "m".to_owned(), context_window: window, max_tokens: 10, price: None };
    SessionSetting::All(Box::new(Settings { model: Some(model), thresholds, ..Settings::default() }))
}

/// Returns the thresholds of the fixture: 850 of 1,000 tokens, 50 of which are kept.
fn plain() -> CompactionThresholds {
    CompactionThresholds { auto: true, reserve: 100, keep_recent: 50, at_tokens: None, at_percent: None }
}

#[test]
fn a_prompt_waits_for_a_compaction_only_above_the_limit() {
    let at = |at_tokens, at_percent| CompactionThresholds { at_tokens, at_percent, ..plain() };
    for (case, thresholds, tokens, waits) in [
        ("15 % of the window, at", plain(), 850, false),
        ("15 % of the window, above", plain(), 851, true),
        ("reserve, at", CompactionThresholds { reserve: 400, ..plain() }, 600, false),
        ("reserve, above", CompactionThresholds { reserve: 400, ..plain() }, 601, true),
        ("tokens, at", at(Some(300), None), 300, false),
        ("tokens, above", at(Some(300), None), 301, true),
        ("tokens beyond the window, at", at(Some(5_000), None), 999, false),
        ("tokens beyond the window, above", at(Some(5_000), None), 1_000, true),
        ("per cent, at", at(None, Some(50)), 500, false),
        ("per cent, above", at(None, Some(50)), 501, true),
        ("not by itself", CompactionThresholds { auto: false, ..plain() }, 5_000, false),
    ] {
        let mut stage = with([("u", User, tokens - 60), ("v", User, 60)]);
        stage.change_setting(settings(1_000, thresholds));
        let summary = stage.send_prompt(WhenBusy::Refuse).table_cell();
        let want = if waits { "BehindCompaction" } else { "Started" };
        assert!(summary.starts_with(want), "{case}: {summary}");
    }
}

#[test]
fn a_prompt_does_not_wait_for_a_compaction_that_could_leave_nothing_out() {
    let summary = with([("u", User, 900)]).send_prompt(WhenBusy::Refuse).table_cell();
    assert!(summary.starts_with("Started"), "{summary}");
}

#[test]
fn a_prompt_that_waits_is_kept_with_what_it_mentions() {
    let mut stage = with([("u", User, 900), ("v", User, 60)]);
    let prompt = Command::Prompt {
        message: sample_message(1),
        with: vec![(Custom, sample_message(1))],
        when_busy: WhenBusy::Refuse,
    };
    let want = "BehindCompaction: session queued user prompt, session queued custom prompt, \
                session compaction_started prompt";
    assert_eq!(stage.session_command(prompt).table_cell(), want);
}

#[test]
fn stopping_the_work_that_a_prompt_waits_for_stops_the_prompt() {
    let abort = EngineCommand::Run(run::Command::Abort { session: session_id() });
    let abort_compaction = EngineCommand::Session(session_id(), Command::AbortCompaction);
    for (case, stop, restarts) in [
        ("what works", abort.clone(), false),
        ("the compaction", abort_compaction, false),
        ("before the process ends", abort, true),
    ] {
        let mut stage = with([("u", User, 900), ("v", User, 60)]);
        stage.send_prompt(WhenBusy::Refuse);
        let run = stage.current_session().awaited_run().expect("one is promised");
        stage.send_command(stop);
        let summary = if restarts {
            stage.restart(open_rules(), ResumeMode::Go).table_cell()
        } else {
            stage.session_command(Command::Compacted { epoch: 1, outcome: CompactionOutcome::Aborted }).table_cell()
        };
        let want = "session compaction_ended prompt, run started prompt, run turn_opened, session dequeued prompt, \
                    session entry user, run aborting, run turn_closed, run ended aborted";
        assert!(summary.ends_with(want), "{case}: {summary}");
        assert_eq!(stage.engine.state().run(run).map(|run| run.phase().clone()), None, "{case}: it is over");
    }
}

/// The agent continues automatically after some: not if it was stopped, at any progress of the summary.
#[test]
fn nothing_follows_a_compaction_that_was_stopped() {
    let abort = || EngineCommand::Run(run::Command::Abort { session: session_id() });
    for (case, after_run) in [("after a run", true), ("for a request", false)] {
        for outcome in [CompactionOutcome::Aborted, CompactionOutcome::Done { summary: sample_message(1), spent: None }]
        {
            let mut stage = idle();
            stage.change_setting(SessionSetting::AutoCompaction(false));
            stage.import([("u", User, 900), ("v", User, 60)]);
            stage.send_prompt(WhenBusy::Refuse);
            stage.change_setting(SessionSetting::AutoCompaction(true));
            if after_run {
                stage.answer(Stop, Vec::new(), None);
            } else {
                stage.fail_request(ProviderFailure { retryable: false, overflow: true, after: None });
            }
            assert_eq!(stage.send_command(abort()).table_cell(), "Done: session compaction_aborting", "{case}");
            assert_eq!(stage.send_command(abort()).table_cell(), "Idle", "{case}");
            stage.session_command(Command::Queue { queue: MessageQueue::FollowUp, message: sample_message(1) });
            let epoch = stage.current_session().active_compaction().expect("it is under way").epoch;
            let summary = stage.session_command(Command::Compacted { epoch, outcome }).table_cell();
            assert!(summary.ends_with("session compaction_ended rest"), "{case}: {summary}");
        }
    }
}

#[test]
fn stopping_a_retried_request_takes_back_its_prompt_and_nothing_else() {
    let overflowed = || {
        let mut stage = idle();
        stage.change_setting(SessionSetting::AutoCompaction(false));
        stage.import([("u", User, 900), ("v", User, 60)]);
        stage.send_prompt(WhenBusy::Refuse);
        stage.change_setting(SessionSetting::AutoCompaction(true));
        stage.fail_request(ProviderFailure { retryable: false, overflow: true, after: None });
        stage.session_command(Command::Queue { queue: MessageQueue::FollowUp, message: sample_message(1) });
        stage.session_command(Command::Steer { message: sample_message(1) });
        stage
    };
    let mut stage = overflowed();
    let run = stage.current_session().awaited_run().expect("it has its name");
    let stop = EngineCommand::Run(run::Command::Stop { session: session_id(), run });
    assert_eq!(
        stage.send_command(stop).table_cell(),
        "Stopping: session dequeued steering, session compaction_aborting"
    );
    assert_eq!(stage.current_session().queued_count(), 1, "somebody else's message waits");
    let summary =
        stage.session_command(Command::Compacted { epoch: 1, outcome: CompactionOutcome::Aborted }).table_cell();
    assert_eq!(summary, "Done: session compaction_ended rest");
    // A message during the compaction begins a run of its own if the summary fails, also after a restart.
    for restarts in [false, true] {
        let mut stage = overflowed();
        if restarts {
            stage.restart(open_rules(), ResumeMode::Go);
        }
        let epoch = stage.current_session().active_compaction().expect("it is under way").epoch;
        let failed = CompactionOutcome::Failed { message: "no".into() };
        let summary = stage.session_command(Command::Compacted { epoch, outcome: failed }).table_cell();
        assert!(summary.contains("session dequeued steering"), "{summary}");
    }
}

/// Returns a message that was too long with the context before it, while that is compacted.
fn asks_again(stopped: StoppedRun) -> EngineFixture {
    let mut stage = idle();
    stage.change_setting(SessionSetting::All(Box::new(Settings {
        stopped,
        ..stage.current_session().settings().clone()
    })));
    stage.change_setting(SessionSetting::AutoCompaction(false));
    stage.import([("u", User, 900), ("v", User, 60)]);
    stage.send_prompt(WhenBusy::Refuse);
    stage.change_setting(SessionSetting::AutoCompaction(true));
    stage.fail_request(ProviderFailure { retryable: false, overflow: true, after: None });
    stage
}

#[test]
fn stopping_a_retried_request_takes_back_its_subject_if_the_session_is_set_so() {
    let abort = || EngineCommand::Run(run::Command::Abort { session: session_id() });
    let done = || CompactionOutcome::Done { summary: sample_message(1), spent: None };
    for stopped in [StoppedRun::Stays, StoppedRun::IsForgotten] {
        for (case, in_summary, outcome) in [
            ("in the summary", true, CompactionOutcome::Aborted),
            ("too late for the summary", true, done()),
            ("in the run that asks again", false, done()),
        ] {
            let mut stage = asks_again(stopped);
            let message = stage
                .current_session()
                .path_entries()
                .iter()
                .rfind(|entry| entry.kind == User)
                .expect("it was said")
                .id
                .clone();
            if in_summary {
                stage.send_command(abort());
            }
            stage.session_command(Command::Compacted { epoch: 1, outcome });
            if !in_summary {
                stage.send_command(abort());
                stage.answer(Aborted, Vec::new(), None);
            }
            let is_shown = shown(stage.current_session()).contains(message.as_str());
            assert_eq!(is_shown, stopped == StoppedRun::Stays, "{case}: {}", shown(stage.current_session()));
            assert!(
                stage.current_session().run().is_none() && stage.current_session().active_compaction().is_none(),
                "{case}"
            );
            assert!(
                shown(stage.current_session()).contains(" v") || shown(stage.current_session()).starts_with("u v"),
                "{case}"
            );
        }
    }
}

#[test]
fn what_is_queued_waits_for_a_compaction_behind_what_is_in_the_queue() {
    let mut stage = with([("u", User, 900), ("v", User, 60)]);
    stage.session_command(Command::Queue { queue: MessageQueue::FollowUp, message: sample_message(1) });
    let want = "Queued: session compaction_started prompt, session queued user follow_up";
    assert_eq!(stage.send_prompt(WhenBusy::FollowUp).table_cell(), want);
    let summary = stage
        .session_command(Command::Compacted { epoch: 1, outcome: CompactionOutcome::Failed { message: "no".into() } })
        .table_cell();
    assert_eq!(summary.matches("session dequeued follow_up").count(), 1, "{summary}");
    assert_eq!(stage.current_session().queued_count(), 1, "what came last waits");
}

/// The settings of a model may be larger than its limit: its refusal shows the limit.
#[test]
fn a_message_that_a_model_rejects_is_not_kept() {
    let mut stage = idle();
    stage.change_setting(settings(100_000, plain()));
    stage.import([("u", User, 9), ("v", User, 400)]);
    stage.send_prompt(WhenBusy::Refuse);
    stage.fail_request(ProviderFailure { retryable: false, overflow: true, after: None });
    let first_kept = stage.current_session().active_compaction().expect("it is summed up").first_kept.clone();
    let kept = stage.current_session().entry(&first_kept).map(|entry| entry.kind.clone());
    assert!(first_kept.as_str() != "v" && kept == Some(User), "{first_kept}");
}

/// Returns the first kept entry and the first of the turn that is split, as the table writes them.
fn cut(stage: &EngineFixture) -> String {
    match stage.current_session().find_cut() {
        None => "nothing".to_owned(),
        Some(CompactionCut { first_kept, split_from: None, .. }) => first_kept.to_string(),
        Some(CompactionCut { first_kept, split_from: Some(turn), .. }) => format!("{first_kept} in {turn}"),
    }
}

#[test]
fn a_context_is_cut_before_the_newest_part_that_is_kept_and_never_before_a_result() {
    let call = || assistant_kind(ToolUse, 0);
    let done = || assistant_kind(Stop, 0);
    for (case, stage, want) in [
        ("empty", with([]), "nothing"),
        ("too small", with([("u", User, 20), ("a", done(), 20)]), "nothing"),
        ("all of it is kept", with([("u", User, 60)]), "nothing"),
        ("between turns", with([("u", User, 60), ("a", done(), 9), ("v", User, 60)]), "v"),
        ("just enough", with([("u", User, 60), ("v", User, 20), ("w", User, 30)]), "v"),
        ("one short", with([("u", User, 60), ("v", User, 20), ("w", User, 29)]), "nothing"),
        ("within a turn", with([("u", User, 60), ("a", call(), 9), ("r", result(), 9), ("b", done(), 60)]), "b in u"),
        (
            "a result goes with its call",
            with([("u", User, 60), ("a", call(), 9), ("r", result(), 60), ("b", done(), 9)]),
            "b in u",
        ),
        ("only a result left", with([("u", User, 60), ("a", call(), 9), ("r", result(), 60)]), "a in u"),
        (
            "only results left",
            with([("u", User, 60), ("v", User, 9), ("a", call(), 9), ("r", result(), 30), ("s", result(), 60)]),
            "a in v",
        ),
        ("nothing before the call", with([("a", call(), 9), ("r", result(), 60)]), "nothing"),
        ("a command", with([("u", User, 60), ("s", bash(true), 60)]), "s"),
        ("a mention", with([("u", User, 60), ("c", Custom, 60)]), "c"),
        ("a branch's summary", with([("u", User, 60), ("b", BranchSummary, 60)]), "b"),
        ("a hidden command is not counted", with([("u", User, 60), ("s", bash(false), 60)]), "nothing"),
        (
            "what is no message goes with what is kept",
            with([("u", User, 60), ("m", ModelChange, 0), ("v", User, 60)]),
            "m",
        ),
        ("small, though a result comes first", with([("r", result(), 5), ("u", User, 5)]), "nothing"),
        (
            "one that leaves no room",
            with([("u", User, 9), ("v", User, 900), ("a", assistant_kind(Error, 0), 1)]),
            "a in v",
        ),
        ("one that leaves no room, the first", with([("v", User, 900), ("w", User, 9)]), "w"),
        ("one that leaves no room, the last", with([("u", User, 9), ("v", User, 900)]), "v"),
        ("behind a summary", with([("u", User, 60), ("s", summary("u"), 1), ("v", User, 60)]), "v"),
        ("behind a reset", with([("u", User, 60), ("r", ContextReset, 0), ("v", User, 60), ("w", User, 60)]), "w"),
        ("behind a reset, too small", with([("u", User, 60), ("r", ContextReset, 0), ("v", User, 60)]), "nothing"),
        (
            "behind a summary that keeps nothing",
            with([("u", User, 60), ("s", summary("x"), 1), ("v", User, 60)]),
            "nothing",
        ),
        ("behind a summary, too small", with([("u", User, 60), ("s", summary("v"), 1), ("v", User, 60)]), "nothing"),
    ] {
        assert_eq!(cut(&stage), want, "{case}");
    }
}

#[test]
fn a_cut_knows_how_long_the_context_was() {
    let stage = with([("u", User, 60), ("a", assistant_kind(Stop, 500), 60), ("v", User, 60)]);
    assert_eq!(stage.current_session().find_cut().unwrap().tokens_before, 560);
}

#[test]
fn less_is_kept_where_the_provider_counts_more_than_was_estimated() {
    for (counted, want) in [(0, "u"), (40, "u"), (80, "u"), (100, "v"), (160, "w"), (400, "a in w")] {
        let mut stage = with([
            ("t", User, 20),
            ("u", User, 20),
            ("v", User, 10),
            ("w", User, 10),
            ("a", assistant_kind(Stop, counted), 20),
        ]);
        stage.change_setting(settings(100_000, plain()));
        assert_eq!(cut(&stage), want, "{counted}");
    }
}

#[test]
fn old_results_are_pruned_where_that_saves_enough() {
    for (case, newest, aged, kind, want) in [
        ("enough", 40_000, 20_000, old(), "session pruned"),
        ("too little", 40_000, 19_999, old(), ""),
        ("none is older than what is kept", 10_000, 30_000, old(), ""),
        ("what is never pruned", 40_000, 30_000, result(), ""),
    ] {
        let mut stage = EngineFixture::new(open_rules());
        let thresholds = CompactionThresholds { at_tokens: Some(1_000), keep_recent: 1_000_000, ..plain() };
        stage.change_setting(settings(1_000_000, thresholds));
        stage.import([("u", User, 1), ("a", assistant_kind(ToolUse, 0), 1), ("r", kind, aged), ("s", old(), newest)]);
        stage.change_setting(SessionSetting::AutoCompaction(false));
        stage.send_prompt(WhenBusy::Refuse);
        stage.change_setting(SessionSetting::AutoCompaction(true));
        let facts = stage.answer(Stop, Vec::new(), None).0;
        let pruned: Vec<_> = facts.iter().filter(|fact| fact.starts_with("session pruned")).cloned().collect();
        assert_eq!(pruned.join(", "), want, "{case}");
        let entry = stage.current_session().entry(&EntryId::new("r")).unwrap();
        assert_eq!((entry.shown, entry.pruned.is_some()), (true, !want.is_empty()), "{case}");
    }
}

#[test]
fn pruning_that_is_enough_spares_the_compaction() {
    for (case, limit, follows) in [
        ("enough", 50_000, ["session pruned"].as_slice()),
        ("not enough", 40_000, &["session pruned", "session compaction_started continue"]),
    ] {
        let mut stage = EngineFixture::new(open_rules());
        stage.change_setting(settings(1_000_000, CompactionThresholds { at_tokens: Some(limit), ..plain() }));
        stage.import([
            ("u", User, 60),
            ("a", assistant_kind(ToolUse, 0), 1),
            ("r", old(), 30_000),
            ("s", old(), 40_000),
            ("v", User, 60),
        ]);
        stage.change_setting(SessionSetting::AutoCompaction(false));
        stage.send_prompt(WhenBusy::Refuse);
        stage.change_setting(SessionSetting::AutoCompaction(true));
        let facts = stage.answer(Stop, Vec::new(), None).0;
        let at = facts.iter().position(|fact| fact == "run ended completed").unwrap();
        assert_eq!(facts[at + 1..], *follows, "{case}");
    }
}

#[test]
fn what_a_notice_stands_for_is_no_longer_counted() {
    for (case, counted, want) in [("estimated", 0, 40_123), ("counted before", 90_000, 60_000)] {
        let mut stage = EngineFixture::new(open_rules());
        stage.change_setting(settings(
            1_000_000,
            CompactionThresholds { auto: false, at_tokens: Some(50_000), ..plain() },
        ));
        let (r, s) = (("r", old(), 30_000), ("s", old(), 40_000));
        stage.import([("u", User, 60), ("a", assistant_kind(ToolUse, 0), 1), r, s, ("v", User, 60)]);
        stage.send_prompt(WhenBusy::Refuse);
        stage.change_setting(SessionSetting::AutoCompaction(true));
        let run = stage.current_run();
        let answer = ModelAnswer {
            message: sample_message(1),
            stop: Stop,
            total_tokens: counted,
            calls: Vec::new(),
            failure: None,
            others: Vec::new(),
            spent: None,
        };
        stage.answer_run(run, 1, answer);
        assert_eq!(stage.current_session().context_tokens(), want, "{case}");
        stage.change_setting(SessionSetting::AutoCompaction(false));
        stage.session_command(Command::AbortCompaction);
        stage.session_command(Command::Compacted { epoch: 1, outcome: CompactionOutcome::Aborted });
        stage.import([("b", assistant_kind(Stop, 500), 1)]);
        assert_eq!(stage.current_session().context_tokens(), 500, "{case}: counted since");
    }
}
