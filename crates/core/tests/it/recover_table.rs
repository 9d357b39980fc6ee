//! What a new process makes of every state that the last one left, for both ways to go on.

use std::time::Duration;

use countersign_core::{
    call::{CallProgress, CallResult},
    engine::{ActiveRules, Command, ResumeMode},
    gate::{ApprovalScope, GateReply},
    message::StopReason,
    run::ProviderFailure,
    session::{self, MessageQueue, SessionEntryKind, SessionSetting, WhenBusy},
};

use crate::{
    stage::{Stage, asking, open, text, wanted},
    states::{
        backing_off, behind, calling, check, commanding, compacting, gated, idle, run_command, stopping, thinking,
        under,
    },
};

const OPENED: &str = "gate opened approval [\"once\",\"session\",\"always\"]";
const UNKNOWN: &str = "call in_doubt, session entry tool_result, call ended unknown";
const CANCELLED: &str = "session entry tool_result, call ended cancelled";
const INTERRUPTED: &str = "run turn_closed, run ended interrupted";

/// A state, and what `Go` and `Wait` come to behind the start of the process.
type Row<'a> = (&'a str, fn() -> Stage, &'a str, &'a str);

fn table(rules: fn() -> ActiveRules, rows: &[Row<'_>]) {
    for (case, state, go, wait) in rows {
        for (resume, want) in [(ResumeMode::Go, go), (ResumeMode::Wait, wait)] {
            let told = state().restart(rules(), resume).cell();
            let told = told.strip_prefix("Done: booted").unwrap_or(&told).trim_start_matches(", ");
            assert_eq!(told, *want, "{case}, {resume:?}");
        }
    }
}

/// The process closes before a call that is wanted can begin.
fn closing(rules: ActiveRules, tool: &str) -> Stage {
    let mut stage = thinking(rules);
    stage.engine.quiesce();
    stage.want([wanted(tool, "a")]);
    stage
}

fn stopped(mut stage: Stage) -> Stage {
    stage.abort();
    stage
}

#[test]
fn a_session_at_rest_stays_at_rest() {
    let queued = || {
        let mut stage = idle();
        stage.session(session::Command::Queue { queue: MessageQueue::Steering, message: text(1) });
        stage
    };
    table(open, &[("none", || Stage::bare(open()), "", ""), ("idle", idle, "", "")]);
    assert_eq!(queued().restart(open(), ResumeMode::Wait).0, ["booted"]);
}

#[test]
fn a_persons_command_is_never_run_again() {
    let beside: fn() -> Stage = || {
        let mut stage = thinking(open());
        run_command(&mut stage);
        stage
    };
    let held = "call in_doubt, session queued bash held, call ended unknown, run interrupted";
    let (go, wait) = (format!("{held}, run turn_opened, run asked"), format!("{held}, run ended interrupted"));
    let unknown = "call in_doubt, session entry bash, call ended unknown";
    table(open, &[("at rest", commanding, unknown, unknown), ("beside a run", beside, &go, &wait)]);
}

#[test]
fn a_compaction_ends_and_what_was_to_follow_it_is_begun_again() {
    let overflowed: fn() -> Stage = || {
        let mut stage = idle();
        stage.import([("u", SessionEntryKind::User, 60), ("v", SessionEntryKind::User, 60)]);
        stage.prompt(WhenBusy::Refuse);
        stage.fail(ProviderFailure { retryable: false, overflow: true, after: None });
        stage
    };
    let continuing: fn() -> Stage = || {
        let mut stage = idle();
        stage.set(SessionSetting::AutoCompaction(false));
        stage.import([("u", SessionEntryKind::User, 900), ("v", SessionEntryKind::User, 60)]);
        stage.prompt(WhenBusy::Refuse);
        stage.set(SessionSetting::AutoCompaction(true));
        stage.answer(StopReason::Stop, Vec::new(), None);
        stage
    };
    let ended = "session compaction_ended rest";
    table(
        open,
        &[
            ("somebody asked for it", compacting, ended, ended),
            ("a prompt waits", behind, "session compaction_ended rest, session compaction_started prompt", ended),
            ("a request waits", overflowed, "session compaction_ended rest, session compaction_started again", ended),
            ("work goes on", continuing, "session compaction_ended rest, session compaction_started continue", ended),
        ],
    );
}

#[test]
fn a_prompt_that_waited_for_a_compaction_is_said_before_the_next() {
    let mut stage = behind();
    stage.set(SessionSetting::AutoCompaction(false));
    stage.restart(open(), ResumeMode::Wait);
    let said = ["session dequeued prompt", "session entry user", "session entry user", "run asked"];
    assert_eq!(stage.prompt(WhenBusy::Refuse).0[2..], said);
}

#[test]
fn a_compaction_that_somebody_stopped_stays_stopped() {
    fn stopped(mut stage: Stage) -> Stage {
        stage.session(session::Command::AbortCompaction);
        stage
    }
    let queued: fn() -> Stage = || {
        let mut stage = compacting();
        stage.session(session::Command::Queue { queue: MessageQueue::Steering, message: text(1) });
        stopped(stage)
    };
    let taken_back: fn() -> Stage = || {
        let mut stage = stopped(behind());
        stage.session(session::Command::Clear);
        stage
    };
    let ended = "session compaction_ended rest";
    let prompted = "session compaction_ended prompt, run started prompt, run turn_opened, session dequeued prompt, \
                    session entry user, run aborting, run turn_closed, run ended aborted";
    table(
        open,
        &[
            ("somebody asked for it", || stopped(compacting()), ended, ended),
            ("a message was queued", queued, ended, ended),
            ("a prompt waits", || stopped(behind()), prompted, ended),
            ("a prompt was taken back", taken_back, ended, ended),
        ],
    );
}

#[test]
fn what_was_queued_during_a_compaction_that_somebody_asked_for_is_not_left_lying() {
    let during: fn() -> Stage = || {
        let mut stage = compacting();
        stage.session(session::Command::Queue { queue: MessageQueue::FollowUp, message: text(1) });
        stage
    };
    let before: fn() -> Stage = || {
        let mut stage = idle();
        stage.session(session::Command::Queue { queue: MessageQueue::FollowUp, message: text(1) });
        crate::states::compact(&mut stage);
        stage
    };
    let ended = "session compaction_ended rest";
    let runs = "session compaction_ended rest, run started prompt, run turn_opened, session dequeued follow_up, \
                session entry user, run asked";
    table(open, &[("queued during it", during, runs, ended), ("queued before it", before, ended, ended)]);
}

#[test]
fn a_call_that_had_not_begun_is_judged_by_the_next_process_or_cancelled() {
    let cancelled = format!("{CANCELLED}, {INTERRUPTED}");
    let gate = format!("call gated, {OPENED}");
    let wanted: fn() -> Stage = || closing(open(), "write");
    table(open, &[("wanted", wanted, "call allowed, call started", &cancelled)]);
    table(asking, &[("wanted, rules ask", wanted, &gate, &cancelled)]);
    let follows = (format!("{UNKNOWN}, call started"), format!("{UNKNOWN}, {cancelled}"));
    let ready: fn() -> Stage = || calling(["write", "write"]);
    table(open, &[("ready behind one that works", ready, &follows.0, &follows.1)]);
}

#[test]
fn calls_of_a_message_that_ended_in_an_error_leave_no_result_behind() {
    // The process dies before what follows from the answer is in the log.
    let broken: fn() -> Stage = || {
        let mut stage = thinking(open());
        stage.engine = stage.engine.clone().with_bound(1);
        stage.answer_only(StopReason::Error, vec![wanted("write", "a")], None);
        stage
    };
    let cancelled = "call ended cancelled, run turn_closed, run ended";
    let (go, wait) = (format!("{cancelled} failed"), format!("{cancelled} interrupted"));
    table(open, &[("broken", broken, &go, &wait)]);
}

#[test]
fn what_a_person_allowed_and_had_not_begun_is_begun_once() {
    let mut stage = gated();
    let gate = stage.gate();
    stage.engine.quiesce();
    let told = stage.decide(gate, GateReply::Allow(ApprovalScope::Once), "ana", None).0;
    assert!(!told.contains(&"call started".to_owned()), "the process closes");
    assert_eq!(stage.restart(asking(), ResumeMode::Go).0, ["booted", "call started"]);
    let told = stage.restart(asking(), ResumeMode::Go).0;
    assert_eq!(told[..4].join(", "), format!("booted, {UNKNOWN}"), "it is not run again");
}

#[test]
fn a_call_that_may_be_repeated_is_run_again_only_while_somebody_waits_for_it() {
    let again = "call in_doubt, call again, call started";
    let unknown = format!("{UNKNOWN}, {INTERRUPTED}");
    let aborted = format!("{UNKNOWN}, run turn_closed, run ended aborted");
    let two = format!("{UNKNOWN}, {UNKNOWN}, {INTERRUPTED}");
    let both = "call in_doubt, call again, call in_doubt, call again, call started, call started";
    table(
        open,
        &[
            ("waited for", || calling(["look"]), again, &unknown),
            ("stopped", || stopped(calling(["look"])), &aborted, &unknown),
            ("two", || calling(["look", "look"]), both, &two),
        ],
    );
    let mut stage = calling(["look"]);
    for _ in 0..3 {
        assert_eq!(stage.restart(open(), ResumeMode::Go).0.join(", "), format!("booted, {again}"));
    }
}

#[test]
fn a_run_that_was_stopped_stays_stopped() {
    let thinking: fn() -> Stage = || stopped(thinking(open()));
    let interrupted = "run interrupted, run ended interrupted";
    let works = (format!("{UNKNOWN}, run turn_closed, run ended aborted"), format!("{UNKNOWN}, {INTERRUPTED}"));
    table(
        open,
        &[
            ("thinking", thinking, "run interrupted, run ended aborted", interrupted),
            ("a call works", stopping, &works.0, &works.1),
        ],
    );
}

#[test]
fn a_turn_that_nobody_was_asked_in_is_asked_or_ended() {
    let opened: fn() -> Stage = || {
        let mut stage = calling(["write"]);
        stage.engine.quiesce();
        stage.end(0);
        stage
    };
    table(open, &[("opened", opened, "run asked", "run ended interrupted")]);
}

#[test]
fn a_wait_for_another_attempt_goes_on_to_its_time() {
    let overdue: fn() -> Stage = || {
        let mut stage = backing_off();
        stage.now = stage.now + Duration::from_secs(3600);
        stage
    };
    let asks = "run resumed, run turn_opened, run asked";
    table(open, &[("its time is to come", backing_off, "", ""), ("its time passed", overdue, asks, asks)]);
}

#[test]
fn what_works_beside_a_gate_ends_and_the_gate_still_waits() {
    let again = "call in_doubt, call again, call started";
    table(asking, &[("may be repeated", || under(asking(), ["look", "write"]), again, UNKNOWN)]);
    for resume in [ResumeMode::Go, ResumeMode::Wait] {
        let mut stage = under(asking(), ["look", "write"]);
        let gate = stage.gate();
        stage.restart(asking(), resume);
        assert!(stage.engine.state().gate(gate).unwrap().is_pending(), "{resume:?}");
    }
}

#[test]
fn an_answer_after_a_restart_is_as_good_as_before() {
    for resume in [ResumeMode::Go, ResumeMode::Wait] {
        let mut stage = gated();
        let gate = stage.gate();
        stage.restart(asking(), resume);
        let told = stage.decide(gate, GateReply::Allow(ApprovalScope::Once), "ana", Some("k")).cell();
        let want = "Resolved allowed: gate resolved allowed, call allowed, call started";
        assert_eq!(told, want, "{resume:?}");
        stage.restart(asking(), resume);
        let told = stage.decide(gate, GateReply::Allow(ApprovalScope::Once), "ana", Some("k")).cell();
        assert_eq!(told, "Resolved allowed", "{resume:?}: the same key after another restart");
        assert!(stage.decide(gate, GateReply::Decline, "bo", None).1.is_err(), "{resume:?}: too late after it");
    }
}

#[test]
fn only_a_deadline_that_passed_is_put_off_and_by_a_minute() {
    let minute = Duration::from_secs(60);
    let approvals: fn() -> Stage = gated;
    let questions: fn() -> Stage = || calling(["ask"]);
    for (case, state, rules) in [("approval", approvals, asking()), ("question", questions, open())] {
        for resume in [ResumeMode::Go, ResumeMode::Wait] {
            let deadline = |stage: &Stage| stage.engine.state().gate(stage.gate()).unwrap().deadline().unwrap();
            let mut early = state();
            let before = deadline(&early);
            early.now.0 = before.0 - 60_001;
            early.restart(rules.clone(), resume);
            assert_eq!(deadline(&early), before, "{case}, {resume:?}: there is time left");
            for late in [0, 1, 3_600_000] {
                let mut stage = state();
                stage.now.0 = before.0 + late;
                let told = stage.restart(rules.clone(), resume).0;
                assert_eq!(told, ["booted", "gate extended"], "{case}, {resume:?}, {late} ms late");
                assert_eq!(deadline(&stage), stage.now + minute, "{case}, {resume:?}, {late} ms late");
            }
        }
    }
}

#[test]
fn an_answer_counts_until_the_end_of_the_minute() {
    for (case, wait, want) in [("within", 59_999, "Resolved allowed"), ("after", 60_000, "refused")] {
        let mut stage = gated();
        let gate = stage.gate();
        stage.now = stage.now + Duration::from_secs(3600);
        stage.restart(asking(), ResumeMode::Wait);
        stage.now.0 += wait;
        stage.tell(Command::Tick);
        let told = stage.decide(gate, GateReply::Allow(ApprovalScope::Once), "ana", None).cell();
        assert!(told.starts_with(want), "{case}: {told}");
    }
}

#[test]
fn a_new_process_has_its_shell_where_the_session_works() {
    let elsewhere: fn() -> Stage = || {
        let mut stage = calling(["write"]);
        let folder = Some("/x".to_owned());
        let returned =
            CallResult { message: text(1), error: false, open_tasks: None, folder, prunable: false, left_behind: None };
        stage.end_with(0, CallProgress::Returned(Box::new(returned)));
        stage.answer(StopReason::Stop, Vec::new(), None);
        stage
    };
    table(open, &[("it had gone elsewhere", elsewhere, "session folder", "session folder")]);
    let mut stage = elsewhere();
    stage.restart(open(), ResumeMode::Wait);
    assert_eq!(stage.here().folder(), "/w");
}

#[test]
fn a_call_whose_outcome_nobody_knows_says_so() {
    for (case, state, resume, want) in [
        ("it worked", calling(["write"]), ResumeMode::Go, "Outcome unknown"),
        ("it may be repeated and nobody waits", calling(["look"]), ResumeMode::Wait, "Outcome unknown"),
        ("it had not begun", closing(open(), "write"), ResumeMode::Wait, "Not run"),
    ] {
        let mut stage = state;
        stage.restart(open(), resume);
        assert!(stage.result().starts_with(want), "{case}: {}", stage.result());
    }
}

#[test]
fn a_late_result_of_the_process_before_is_only_recorded() {
    let late = |stage: &mut Stage| {
        let (run, epoch) = (stage.run(), stage.engine.state().run(stage.run()).unwrap().epoch());
        stage.restart(open(), ResumeMode::Go);
        let answer = countersign_core::run::ModelAnswer {
            message: text(1),
            stop: StopReason::Stop,
            total_tokens: 0,
            calls: Vec::new(),
            failure: None,
            others: Vec::new(),
            spent: None,
        };
        stage.answered(run, epoch, answer).cell()
    };
    check("late", &[("thinking", || thinking(open()))], late, &[("thinking", "Dropped: run result_dropped")]);
}

#[test]
fn a_run_goes_on_behind_an_answer_that_the_model_has_said_nothing_to() {
    fn answered(tool: &str, said: &[&str]) -> Stage {
        let mut stage = calling([tool]);
        let said = said.iter().map(|said| (*said).to_owned()).collect::<Vec<_>>();
        while let Some(gate) = stage.waiting() {
            stage.decide(gate.id(), GateReply::Say(said.clone()), "ana", None).1.expect("it is offered");
        }
        stage
    }
    let plan: fn() -> Stage = || answered("plan", &["approve"]);
    let questions: fn() -> Stage = || answered("ask", &["left"]);
    let said: fn() -> Stage = || {
        let mut stage = answered("plan", &["approve"]);
        stage.want([wanted("look", "a")]);
        stage.end(0);
        stage
    };
    let expired: fn() -> Stage = || {
        let mut stage = calling(["plan"]);
        stage.now = stage.engine.state().next_deadline().expect("it waits");
        stage.tell(Command::Tick);
        stage
    };
    let again = "run interrupted, run turn_opened, run asked";
    let ended = "run interrupted, run ended interrupted";
    table(
        open,
        &[
            ("a plan", plan, again, again),
            ("questions", questions, again, again),
            ("the model spoke since", said, again, ended),
            ("nobody answered", expired, again, ended),
            ("it was stopped", || stopped(answered("plan", &["approve"])), "run interrupted, run ended aborted", ended),
        ],
    );
}
