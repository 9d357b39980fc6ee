//! What is asked for under a key, what a run is told on its way, and a run that waits for a compaction.

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
    stage::{Stage, open, session, text, wanted},
    states::{behind, idle, in_every_state, thinking},
};

/// The next prompt waits for a compaction.
fn behind_next() -> Stage {
    let mut stage = idle();
    stage.import([("u", SessionEntryKind::User, 900), ("a", SessionEntryKind::User, 60)]);
    stage
}

fn prompt(when_busy: WhenBusy) -> Command {
    Command::Prompt { message: text(1), with: Vec::new(), when_busy }
}

fn once(name: &str, asks: &str, command: Command) -> Command {
    Command::Once {
        key: IdempotencyKey { name: name.to_owned(), asks: Digest::hash_bytes(asks.as_bytes()) },
        command: Box::new(command),
    }
}

fn stop(stage: &mut Stage, run: RunId) -> crate::stage::Told {
    stage.tell(Told::Run(run::Command::Stop { session: session(), run }))
}

#[test]
fn what_is_asked_for_again_under_its_key_has_happened_already() {
    let steer = || Command::Steer { message: text(1) };
    for (case, stage, command) in [
        ("a run began", idle as fn() -> Stage, prompt(WhenBusy::Refuse)),
        ("it waits behind a compaction", behind_next, prompt(WhenBusy::Refuse)),
        ("it is queued", || thinking(open()), prompt(WhenBusy::FollowUp)),
        ("it steers", || thinking(open()), steer()),
    ] {
        let mut stage = stage();
        let first = stage.session(once("k", "a", command.clone()));
        assert!(first.0.iter().any(|fact| fact == "session keyed"), "{case}: {first:?}");
        for restart in [false, true] {
            if restart {
                stage.restart(open(), ResumeMode::Go);
            }
            let again = stage.session(once("k", "a", command.clone()));
            assert_eq!((again.0.len(), &again.1), (0, &first.1), "{case}, after a restart: {restart}");
            let other = stage.session(once("k", "b", command.clone())).1;
            assert_eq!(other, Err(CommandError::KeyTaken("k".to_owned())), "{case}");
        }
    }
}

#[test]
fn what_was_refused_under_a_key_can_be_asked_for_again() {
    let mut stage = thinking(open());
    let prompt = || once("k", "a", prompt(WhenBusy::Refuse));
    assert!(stage.session(prompt()).1.is_err());
    stage.answer(StopReason::Stop, Vec::new(), None);
    assert!(matches!(stage.session(prompt()).1, Ok(EngineReply::Started(_))));
    let steer = || once("s", "a", Command::Steer { message: text(1) });
    let mut stage = idle();
    assert_eq!(stage.session(steer()).cell(), "Idle");
    stage.prompt(WhenBusy::Refuse);
    assert_eq!(stage.session(steer()).1, Ok(EngineReply::Steering(stage.run())));
}

#[test]
fn a_session_is_opened_once_under_its_key_and_by_no_other() {
    let opening =
        || Command::Open { cwd: "/x".to_owned(), name: None, parent: None, door: None, settings: Box::default() };
    let mut stage = Stage::bare(open());
    let told = stage.session(once("k", "a", opening())).cell();
    assert_eq!(told, "Done: session opened, session set, session keyed");
    assert_eq!(stage.session(once("k", "a", opening())).cell(), "Done");
    assert_eq!(stage.session(once("k", "b", opening())).1, Err(CommandError::KeyTaken("k".to_owned())));
    assert_eq!(stage.session(once("l", "a", opening())).1, Err(CommandError::SessionExists(session())));
}

#[test]
fn only_what_is_said_has_a_key_and_no_key_is_endless() {
    let refused = "refused: only opening and what is said are known by a key";
    let every = "idle, command, thinking, calling, gated, asked, backoff, stopping, compacting, behind";
    let clear = |stage: &mut Stage| stage.session(once("k", "a", Command::Clear));
    in_every_state("clear", clear, &[("none", "refused: no session s"), (every, refused)]);
    let long = |stage: &mut Stage| stage.session(once(&"k".repeat(513), "a", Command::Clear));
    let refused = "refused: a key is longer than 512 bytes";
    in_every_state("too long", long, &[(&format!("none, {every}"), refused)]);
}

#[test]
fn only_a_run_that_goes_on_or_is_promised_is_told_something() {
    let steer = |stage: &mut Stage| stage.session(Command::Steer { message: text(1) });
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
        let Ok(EngineReply::BehindCompaction(promised)) = stage.prompt(WhenBusy::Refuse).1 else { panic!("it waits") };
        if restart {
            stage.restart(open(), ResumeMode::Go);
        }
        assert_eq!(stage.here().awaited_run(), Some(promised), "after a restart: {restart}");
        let epoch = stage.here().active_compaction().expect("it is under way").epoch;
        stage.session(Command::Compacted { epoch, outcome: CompactionOutcome::Done { summary: text(1), spent: None } });
        assert_eq!((stage.run(), stage.here().awaited_run()), (promised, None), "after a restart: {restart}");
    }
}

#[test]
fn one_run_is_stopped_and_no_other() {
    let mut stage = thinking(open());
    let run = stage.run();
    let other = RunId::parse("00000000000000000000000000000001").expect("it is one");
    assert_eq!(stop(&mut stage, other).cell(), "Idle");
    assert_eq!(stop(&mut stage, run).cell(), "Stopping: run aborting");
}

#[test]
fn a_run_that_waits_for_a_compaction_is_stopped_before_it_begins() {
    let mut stage = behind();
    let run = stage.here().awaited_run().expect("one is promised");
    assert_eq!(stop(&mut stage, run).cell(), "Stopping: session dequeued prompt, session compaction_aborting");
    assert_eq!(stop(&mut stage, run).cell(), "Idle");
    let epoch = stage.here().active_compaction().expect("it is under way").epoch;
    let told = stage.session(Command::Compacted { epoch, outcome: CompactionOutcome::Aborted }).cell();
    assert_eq!(told, "Done: session compaction_ended rest");
}

#[test]
fn who_stops_a_run_that_waits_for_a_compaction_takes_back_nothing_of_others() {
    let mut stage = behind();
    let run = stage.here().awaited_run().expect("one is promised");
    stage.session(Command::Queue { queue: MessageQueue::FollowUp, message: text(1) });
    stage.session(Command::Say { message: text(1), marks: Box::default() });
    stage.session(Command::Steer { message: text(1) });
    let before = stage.here().queued_count();
    let told = "Stopping: session dequeued prompt, session dequeued steering, session compaction_aborting";
    assert_eq!(stop(&mut stage, run).cell(), told);
    assert_eq!(stage.here().queued_count(), before - 2);
    let epoch = stage.here().active_compaction().expect("it is under way").epoch;
    let told = stage.session(Command::Compacted { epoch, outcome: CompactionOutcome::Aborted }).cell();
    assert!(told.contains("run started prompt, run turn_opened, session dequeued next"), "{told}");
}

#[test]
fn nobody_steers_what_is_being_stopped() {
    let mut stage = behind();
    stage.abort();
    assert_eq!(stage.session(Command::Steer { message: text(1) }).cell(), "Idle");
}

/// Which of the entries the model is shown, after a run that was stopped.
fn left(stopped: StoppedRun, calls: bool) -> Vec<bool> {
    let mut stage = Stage::new(open());
    let settings = Settings { stopped, ..stage.here().settings().clone() };
    stage.set(SessionSetting::All(Box::new(settings)));
    stage.prompt(WhenBusy::Refuse);
    if calls {
        stage.want([wanted("write", "a")]);
        stage.end(0);
    }
    stage.abort();
    stage.answer(StopReason::Aborted, Vec::new(), None);
    assert!(stage.here().run().is_none());
    stage.here().path_entries().iter().map(|entry| entry.shown).collect()
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
