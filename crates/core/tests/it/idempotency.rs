//! Commands with a key, messages to a working run, and a run that waits for a compaction.

use countersign_core::{
    digest::Digest,
    engine::{Command as Told, CommandError, EngineReply, ResumeMode},
    id::RunId,
    message::StopReason,
    run,
    session::{
        Command, CompactionOutcome, IdempotencyKey, MessageQueue, SessionEntryKind, SessionSetting, Settings,
        StoppedRun, WhenBusy,
    },
};

use crate::{
    engine_fixture::{EngineFixture, open_rules, sample_message, session_id, tool_call},
    states::{behind, idle, in_every_state, thinking},
};

/// Returns a fixture in which the next prompt waits for a compaction.
fn behind_next() -> EngineFixture {
    let mut stage = idle();
    stage.import([("u", SessionEntryKind::User, 900), ("a", SessionEntryKind::User, 60)]);
    stage
}

fn prompt(when_busy: WhenBusy) -> Command {
    Command::Prompt { message: sample_message(1), with: Vec::new(), when_busy }
}

fn once(name: &str, asks: &str, command: Command) -> Command {
    Command::Once {
        key: IdempotencyKey { name: name.to_owned(), asks: Digest::hash_bytes(asks.as_bytes()) },
        command: Box::new(command),
    }
}

fn stop(stage: &mut EngineFixture, run: RunId) -> crate::engine_fixture::EngineOutcome {
    stage.send_command(Told::Run(run::Command::Stop { session: session_id(), run }))
}

#[test]
fn a_repeated_key_gets_the_first_result() {
    let steer = || Command::Steer { message: sample_message(1) };
    for (case, stage, command) in [
        ("a run began", idle as fn() -> EngineFixture, prompt(WhenBusy::Refuse)),
        ("it waits behind a compaction", behind_next, prompt(WhenBusy::Refuse)),
        ("it is queued", || thinking(open_rules()), prompt(WhenBusy::FollowUp)),
        ("it steers", || thinking(open_rules()), steer()),
    ] {
        let mut stage = stage();
        let first = stage.session_command(once("k", "a", command.clone()));
        assert!(first.0.iter().any(|fact| fact == "session keyed"), "{case}: {first:?}");
        for restart in [false, true] {
            if restart {
                stage.restart(open_rules(), ResumeMode::Go);
            }
            let again = stage.session_command(once("k", "a", command.clone()));
            assert_eq!((again.0.len(), &again.1), (0, &first.1), "{case}, after a restart: {restart}");
            let other = stage.session_command(once("k", "b", command.clone())).1;
            assert_eq!(other, Err(CommandError::KeyTaken("k".to_owned())), "{case}");
        }
    }
}

#[test]
fn a_refused_request_can_be_repeated_under_its_key() {
    let mut stage = thinking(open_rules());
    let prompt = || once("k", "a", prompt(WhenBusy::Refuse));
    assert!(stage.session_command(prompt()).1.is_err());
    stage.answer(StopReason::Stop, Vec::new(), None);
    assert!(matches!(stage.session_command(prompt()).1, Ok(EngineReply::Started(_))));
    let steer = || once("s", "a", Command::Steer { message: sample_message(1) });
    let mut stage = idle();
    assert_eq!(stage.session_command(steer()).table_cell(), "Idle");
    stage.send_prompt(WhenBusy::Refuse);
    assert_eq!(stage.session_command(steer()).1, Ok(EngineReply::Steering(stage.current_run())));
}

#[test]
fn a_session_is_opened_once_under_its_key_and_by_no_other() {
    let opening =
        || Command::Open { cwd: "/x".to_owned(), name: None, parent: None, door: None, settings: Box::default() };
    let mut stage = EngineFixture::without_session(open_rules());
    let summary = stage.session_command(once("k", "a", opening())).table_cell();
    assert_eq!(summary, "Done: session opened, session set, session keyed");
    assert_eq!(stage.session_command(once("k", "a", opening())).table_cell(), "Done");
    assert_eq!(stage.session_command(once("k", "b", opening())).1, Err(CommandError::KeyTaken("k".to_owned())));
    assert_eq!(stage.session_command(once("l", "a", opening())).1, Err(CommandError::SessionExists(session_id())));
}

#[test]
fn only_messages_have_keys_and_a_key_has_a_maximum_length() {
    let refused = "refused: only opening a session and sending a message accept a key";
    let every = "idle, command, thinking, calling, gated, asked, backoff, stopping, compacting, behind";
    let clear = |stage: &mut EngineFixture| stage.session_command(once("k", "a", Command::Clear));
    in_every_state("clear", clear, &[("none", "refused: no session s"), (every, refused)]);
    let long = |stage: &mut EngineFixture| stage.session_command(once(&"k".repeat(513), "a", Command::Clear));
    let refused = "refused: a key is longer than 512 bytes";
    in_every_state("too long", long, &[(&format!("none, {every}"), refused)]);
}

#[test]
fn only_a_running_or_promised_run_takes_steering_messages() {
    let steer = |stage: &mut EngineFixture| stage.session_command(Command::Steer { message: sample_message(1) });
    let queued = "Steering: session queued user steering";
    in_every_state(
        "steer",
        steer,
        &[
            ("none", "refused: no session s"),
            ("idle, command, stopping, compacting", "Idle"),
            ("thinking, calling, gated, asked, backoff, behind", queued),
        ],
    );
}

#[test]
fn the_run_that_was_promised_begins_behind_its_compaction_across_a_restart() {
    for restart in [false, true] {
        let mut stage = behind_next();
        let Ok(EngineReply::BehindCompaction(promised)) = stage.send_prompt(WhenBusy::Refuse).1 else {
            panic!("it waits")
        };
        if restart {
            stage.restart(open_rules(), ResumeMode::Go);
        }
        assert_eq!(stage.current_session().awaited_run(), Some(promised), "after a restart: {restart}");
        let epoch = stage.current_session().active_compaction().expect("it is under way").epoch;
        stage.session_command(Command::Compacted {
            epoch,
            outcome: CompactionOutcome::Done { summary: sample_message(1), spent: None },
        });
        assert_eq!(
            (stage.current_run(), stage.current_session().awaited_run()),
            (promised, None),
            "after a restart: {restart}"
        );
    }
}

#[test]
fn one_run_is_stopped_and_no_other() {
    let mut stage = thinking(open_rules());
    let run = stage.current_run();
    let other = RunId::parse("00000000000000000000000000000001").expect("it is one");
    assert_eq!(stop(&mut stage, other).table_cell(), "Idle");
    assert_eq!(stop(&mut stage, run).table_cell(), "Stopping: run aborting");
}

#[test]
fn a_run_that_waits_for_a_compaction_is_stopped_before_it_begins() {
    let mut stage = behind();
    let run = stage.current_session().awaited_run().expect("one is promised");
    assert_eq!(stop(&mut stage, run).table_cell(), "Stopping: session dequeued prompt, session compaction_aborting");
    assert_eq!(stop(&mut stage, run).table_cell(), "Idle");
    let epoch = stage.current_session().active_compaction().expect("it is under way").epoch;
    let summary = stage.session_command(Command::Compacted { epoch, outcome: CompactionOutcome::Aborted }).table_cell();
    assert_eq!(summary, "Done: session compaction_ended rest");
}

#[test]
fn who_stops_a_run_that_waits_for_a_compaction_takes_back_nothing_of_others() {
    let mut stage = behind();
    let run = stage.current_session().awaited_run().expect("one is promised");
    stage.session_command(Command::Queue { queue: MessageQueue::FollowUp, message: sample_message(1) });
    stage.session_command(Command::Say { message: sample_message(1), marks: Box::default() });
    stage.session_command(Command::Steer { message: sample_message(1) });
    let before = stage.current_session().queued_count();
    let expected = "Stopping: session dequeued prompt, session dequeued steering, session compaction_aborting";
    assert_eq!(stop(&mut stage, run).table_cell(), expected);
    assert_eq!(stage.current_session().queued_count(), before - 2);
    let epoch = stage.current_session().active_compaction().expect("it is under way").epoch;
    let summary = stage.session_command(Command::Compacted { epoch, outcome: CompactionOutcome::Aborted }).table_cell();
    assert!(summary.contains("run started prompt, run turn_opened, session dequeued next"), "{summary}");
}

#[test]
fn nobody_steers_what_is_being_stopped() {
    let mut stage = behind();
    stage.abort();
    assert_eq!(stage.session_command(Command::Steer { message: sample_message(1) }).table_cell(), "Idle");
}

/// Returns whether the model is shown each entry, after a run that was stopped.
fn left(stopped: StoppedRun, calls: bool) -> Vec<bool> {
    let mut stage = EngineFixture::new(open_rules());
    let settings = Settings { stopped, ..stage.current_session().settings().clone() };
    stage.change_setting(SessionSetting::All(Box::new(settings)));
    stage.send_prompt(WhenBusy::Refuse);
    if calls {
        stage.request_calls([tool_call("write", "a")]);
        stage.end_call(0);
    }
    stage.abort();
    stage.answer(StopReason::Aborted, Vec::new(), None);
    assert!(stage.current_session().run().is_none());
    stage.current_session().path_entries().iter().map(|entry| entry.shown).collect()
}

#[test]
fn the_model_is_not_shown_what_was_stopped_before_it_called_anything_where_a_session_is_set_so() {
    for (stopped, calls, want) in [
        (StoppedRun::Stays, false, [true; 2].as_slice()),
        (StoppedRun::IsForgotten, false, &[false; 2]),
        (StoppedRun::IsForgotten, true, &[true; 4]),
    ] {
        assert_eq!(left(stopped, calls), want, "{stopped:?}, calls: {calls}");
    }
}
