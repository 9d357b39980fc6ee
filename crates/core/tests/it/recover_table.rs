//! Recovery by a new process of every state that the last one left, for both resume modes.

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
    engine_fixture::{EngineFixture, asking_rules, open_rules, sample_message, tool_call},
    states::{
        backing_off, behind, calling, check, commanding, compacting, gated, idle, run_command, stopping, thinking,
        under,
    },
};

const OPENED: &str = "gate opened approval [\"once\",\"session\",\"always\"]";
const UNKNOWN: &str = "call in_doubt, session entry tool_result, call ended unknown";
const CANCELLED: &str = "session entry tool_result, call ended cancelled";
const INTERRUPTED: &str = "run turn_closed, run ended interrupted";

/// A state, and the outcomes of `Go` and `Wait` after the start of the process.
type RecoveryCase<'a> = (&'a str, fn() -> EngineFixture, &'a str, &'a str);

fn table(rules: fn() -> ActiveRules, rows: &[RecoveryCase<'_>]) {
    for (case, state, go, wait) in rows {
        for (resume, want) in [(ResumeMode::Go, go), (ResumeMode::Wait, wait)] {
            let summary = state().restart(rules(), resume).table_cell();
            let summary = summary.strip_prefix("Done: booted").unwrap_or(&summary).trim_start_matches(", ");
            assert_eq!(summary, *want, "{case}, {resume:?}");
        }
    }
}

/// Returns a fixture whose process closes before a proposed call can begin.
fn closing(rules: ActiveRules, tool: &str) -> EngineFixture {
    let mut stage = thinking(rules);
    stage.engine.quiesce();
    stage.request_calls([tool_call(tool, "a")]);
    stage
}

fn stopped(mut stage: EngineFixture) -> EngineFixture {
    stage.abort();
    stage
}

#[test]
fn a_session_at_rest_stays_at_rest() {
    let queued = || {
        let mut stage = idle();
        stage.session_command(session::Command::Queue { queue: MessageQueue::Steering, message: sample_message(1) });
        stage
    };
    table(open_rules, &[("none", || EngineFixture::without_session(open_rules()), "", ""), ("idle", idle, "", "")]);
    assert_eq!(queued().restart(open_rules(), ResumeMode::Wait).0, ["booted"]);
}

#[test]
fn a_persons_command_is_never_run_again() {
    let beside: fn() -> EngineFixture = || {
        let mut stage = thinking(open_rules());
        run_command(&mut stage);
        stage
    };
    let held = "call in_doubt, session queued bash held, call ended unknown, run interrupted";
    let (go, wait) = (format!("{held}, run turn_opened, run asked"), format!("{held}, run ended interrupted"));
    let unknown = "call in_doubt, session entry bash, call ended unknown";
    table(open_rules, &[("at rest", commanding, unknown, unknown), ("beside a run", beside, &go, &wait)]);
}

#[test]
fn a_compaction_ends_and_what_was_to_follow_it_is_begun_again() {
    let overflowed: fn() -> EngineFixture = || {
        let mut stage = idle();
        stage.import([("u", SessionEntryKind::User, 60), ("v", SessionEntryKind::User, 60)]);
        stage.send_prompt(WhenBusy::Refuse);
        stage.fail_request(ProviderFailure { retryable: false, overflow: true, after: None });
        stage
    };
    let continuing: fn() -> EngineFixture = || {
        let mut stage = idle();
        stage.change_setting(SessionSetting::AutoCompaction(false));
        stage.import([("u", SessionEntryKind::User, 900), ("v", SessionEntryKind::User, 60)]);
        stage.send_prompt(WhenBusy::Refuse);
        stage.change_setting(SessionSetting::AutoCompaction(true));
        stage.answer(StopReason::Stop, Vec::new(), None);
        stage
    };
    let ended = "session compaction_ended rest";
    table(
        open_rules,
        &[
            ("somebody asked for it", compacting, ended, ended),
            ("a prompt waits", behind, "session compaction_ended rest, session compaction_started prompt", ended),
            ("a request waits", overflowed, "session compaction_ended rest, session compaction_started again", ended),
            ("work goes on", continuing, "session compaction_ended rest, session compaction_started continue", ended),
        ],
    );
}

#[test]
fn a_prompt_that_waited_for_a_compaction_precedes_the_next() {
    let mut stage = behind();
    stage.change_setting(SessionSetting::AutoCompaction(false));
    stage.restart(open_rules(), ResumeMode::Wait);
    let expected = ["session dequeued prompt", "session entry user", "session entry user", "run asked"];
    assert_eq!(stage.send_prompt(WhenBusy::Refuse).0[2..], expected);
}

#[test]
fn a_compaction_that_somebody_stopped_stays_stopped() {
    fn stopped(mut stage: EngineFixture) -> EngineFixture {
        stage.session_command(session::Command::AbortCompaction);
        stage
    }
    let queued: fn() -> EngineFixture = || {
        let mut stage = compacting();
        stage.session_command(session::Command::Queue { queue: MessageQueue::Steering, message: sample_message(1) });
        stopped(stage)
    };
    let taken_back: fn() -> EngineFixture = || {
        let mut stage = stopped(behind());
        stage.session_command(session::Command::Clear);
        stage
    };
    let ended = "session compaction_ended rest";
    let prompted = "session compaction_ended prompt, run started prompt, run turn_opened, session dequeued prompt, \
                    session entry user, run aborting, run turn_closed, run ended aborted";
    table(
        open_rules,
        &[
            ("somebody asked for it", || stopped(compacting()), ended, ended),
            ("a message was queued", queued, ended, ended),
            ("a prompt waits", || stopped(behind()), prompted, ended),
            ("a prompt was taken back", taken_back, ended, ended),
        ],
    );
}

#[test]
fn messages_queued_during_a_requested_compaction_are_sent() {
    let during: fn() -> EngineFixture = || {
        let mut stage = compacting();
        stage.session_command(session::Command::Queue { queue: MessageQueue::FollowUp, message: sample_message(1) });
        stage
    };
    let before: fn() -> EngineFixture = || {
        let mut stage = idle();
        stage.session_command(session::Command::Queue { queue: MessageQueue::FollowUp, message: sample_message(1) });
        crate::states::compact(&mut stage);
        stage
    };
    let ended = "session compaction_ended rest";
    let runs = "session compaction_ended rest, run started prompt, run turn_opened, session dequeued follow_up, \
                session entry user, run asked";
    table(open_rules, &[("queued during it", during, runs, ended), ("queued before it", before, ended, ended)]);
}

#[test]
fn a_call_that_had_not_begun_is_judged_by_the_next_process_or_cancelled() {
    let cancelled = format!("{CANCELLED}, {INTERRUPTED}");
    let gate = format!("call gated, {OPENED}");
    let unstarted: fn() -> EngineFixture = || closing(open_rules(), "write");
    table(open_rules, &[("wanted", unstarted, "call allowed, call started", &cancelled)]);
    table(asking_rules, &[("wanted, rules ask", unstarted, &gate, &cancelled)]);
    let follows = (format!("{UNKNOWN}, call started"), format!("{UNKNOWN}, {cancelled}"));
    let ready: fn() -> EngineFixture = || calling(["write", "write"]);
    table(open_rules, &[("ready behind one that works", ready, &follows.0, &follows.1)]);
}

#[test]
fn calls_of_a_message_that_ended_in_an_error_leave_no_result_behind() {
    // The process dies before the consequences of the answer are in the log.
    let broken: fn() -> EngineFixture = || {
        let mut stage = thinking(open_rules());
        stage.engine = stage.engine.clone().with_bound(1);
        stage.answer_only(StopReason::Error, vec![tool_call("write", "a")], None);
        stage
    };
    let cancelled = "call ended cancelled, run turn_closed, run ended";
    let (go, wait) = (format!("{cancelled} failed"), format!("{cancelled} interrupted"));
    table(open_rules, &[("broken", broken, &go, &wait)]);
}

#[test]
fn what_a_person_allowed_and_had_not_begun_is_begun_once() {
    let mut stage = gated();
    let gate = stage.oldest_gate();
    stage.engine.quiesce();
    let facts = stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), "ana", None).0;
    assert!(!facts.contains(&"call started".to_owned()), "the process closes");
    assert_eq!(stage.restart(asking_rules(), ResumeMode::Go).0, ["booted", "call started"]);
    let facts = stage.restart(asking_rules(), ResumeMode::Go).0;
    assert_eq!(facts[..4].join(", "), format!("booted, {UNKNOWN}"), "it is not run again");
}

#[test]
fn a_call_that_may_be_repeated_is_run_again_only_while_somebody_waits_for_it() {
    let again = "call in_doubt, call again, call started";
    let unknown = format!("{UNKNOWN}, {INTERRUPTED}");
    let aborted = format!("{UNKNOWN}, run turn_closed, run ended aborted");
    let two = format!("{UNKNOWN}, {UNKNOWN}, {INTERRUPTED}");
    let both = "call in_doubt, call again, call in_doubt, call again, call started, call started";
    table(
        open_rules,
        &[
            ("waited for", || calling(["look"]), again, &unknown),
            ("stopped", || stopped(calling(["look"])), &aborted, &unknown),
            ("two", || calling(["look", "look"]), both, &two),
        ],
    );
    let mut stage = calling(["look"]);
    for _ in 0..3 {
        assert_eq!(stage.restart(open_rules(), ResumeMode::Go).0.join(", "), format!("booted, {again}"));
    }
}

#[test]
fn a_run_that_was_stopped_stays_stopped() {
    let thinking: fn() -> EngineFixture = || stopped(thinking(open_rules()));
    let interrupted = "run interrupted, run ended interrupted";
    let works = (format!("{UNKNOWN}, run turn_closed, run ended aborted"), format!("{UNKNOWN}, {INTERRUPTED}"));
    table(
        open_rules,
        &[
            ("thinking", thinking, "run interrupted, run ended aborted", interrupted),
            ("a call works", stopping, &works.0, &works.1),
        ],
    );
}

#[test]
fn a_turn_without_a_model_request_is_requested_or_ended() {
    let opened: fn() -> EngineFixture = || {
        let mut stage = calling(["write"]);
        stage.engine.quiesce();
        stage.end_call(0);
        stage
    };
    table(open_rules, &[("opened", opened, "run asked", "run ended interrupted")]);
}

#[test]
fn a_wait_for_another_attempt_goes_on_to_its_time() {
    let overdue: fn() -> EngineFixture = || {
        let mut stage = backing_off();
        stage.now = stage.now + Duration::from_secs(3600);
        stage
    };
    let asks = "run resumed, run turn_opened, run asked";
    table(open_rules, &[("its time is to come", backing_off, "", ""), ("its time passed", overdue, asks, asks)]);
}

#[test]
fn work_during_a_gate_ends_and_the_gate_stays_pending() {
    let again = "call in_doubt, call again, call started";
    table(asking_rules, &[("may be repeated", || under(asking_rules(), ["look", "write"]), again, UNKNOWN)]);
    for resume in [ResumeMode::Go, ResumeMode::Wait] {
        let mut stage = under(asking_rules(), ["look", "write"]);
        let gate = stage.oldest_gate();
        stage.restart(asking_rules(), resume);
        assert!(stage.engine.state().gate(gate).unwrap().is_pending(), "{resume:?}");
    }
}

#[test]
fn an_answer_after_a_restart_is_as_good_as_before() {
    for resume in [ResumeMode::Go, ResumeMode::Wait] {
        let mut stage = gated();
        let gate = stage.oldest_gate();
        stage.restart(asking_rules(), resume);
        let summary = stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), "ana", Some("k")).table_cell();
        let want = "Resolved allowed: gate resolved allowed, call allowed, call started";
        assert_eq!(summary, want, "{resume:?}");
        stage.restart(asking_rules(), resume);
        let summary = stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), "ana", Some("k")).table_cell();
        assert_eq!(summary, "Resolved allowed", "{resume:?}: the same key after another restart");
        assert!(stage.answer_gate(gate, GateReply::Decline, "bo", None).1.is_err(), "{resume:?}: too late after it");
    }
}

#[test]
fn only_a_deadline_that_passed_is_put_off_and_by_a_minute() {
    let minute = Duration::from_secs(60);
    let approvals: fn() -> EngineFixture = gated;
    let questions: fn() -> EngineFixture = || calling(["ask"]);
    for (case, state, rules) in [("approval", approvals, asking_rules()), ("question", questions, open_rules())] {
        for resume in [ResumeMode::Go, ResumeMode::Wait] {
            let deadline =
                |stage: &EngineFixture| stage.engine.state().gate(stage.oldest_gate()).unwrap().deadline().unwrap();
            let mut early = state();
            let before = deadline(&early);
            early.now.0 = before.0 - 60_001;
            early.restart(rules.clone(), resume);
            assert_eq!(deadline(&early), before, "{case}, {resume:?}: there is time left");
            for late in [0, 1, 3_600_000] {
                let mut stage = state();
                stage.now.0 = before.0 + late;
                let facts = stage.restart(rules.clone(), resume).0;
                assert_eq!(facts, ["booted", "gate extended"], "{case}, {resume:?}, {late} ms late");
                assert_eq!(deadline(&stage), stage.now + minute, "{case}, {resume:?}, {late} ms late");
            }
        }
    }
}

#[test]
fn an_answer_counts_until_the_end_of_the_minute() {
    for (case, wait, want) in [("within", 59_999, "Resolved allowed"), ("after", 60_000, "refused")] {
        let mut stage = gated();
        let gate = stage.oldest_gate();
        stage.now = stage.now + Duration::from_secs(3600);
        stage.restart(asking_rules(), ResumeMode::Wait);
        stage.now.0 += wait;
        stage.send_command(Command::Tick);
        let summary = stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), "ana", None).table_cell();
        assert!(summary.starts_with(want), "{case}: {summary}");
    }
}

#[test]
fn a_new_process_has_its_shell_where_the_session_works() {
    let elsewhere: fn() -> EngineFixture = || {
        let mut stage = calling(["write"]);
        let folder = Some("/x".to_owned());
        let returned = CallResult {
            message: sample_message(1),
            error: false,
            open_tasks: None,
            folder,
            prunable: false,
            left_behind: None,
        };
        stage.end_with(0, CallProgress::Returned(Box::new(returned)));
        stage.answer(StopReason::Stop, Vec::new(), None);
        stage
    };
    table(open_rules, &[("it had gone elsewhere", elsewhere, "session folder", "session folder")]);
    let mut stage = elsewhere();
    stage.restart(open_rules(), ResumeMode::Wait);
    assert_eq!(stage.current_session().folder(), "/w");
}

#[test]
fn a_call_whose_outcome_nobody_knows_says_so() {
    for (case, state, resume, want) in [
        ("it worked", calling(["write"]), ResumeMode::Go, "Outcome unknown"),
        ("it may be repeated and nobody waits", calling(["look"]), ResumeMode::Wait, "Outcome unknown"),
        ("it had not begun", closing(open_rules(), "write"), ResumeMode::Wait, "Not run"),
    ] {
        let mut stage = state;
        stage.restart(open_rules(), resume);
        assert!(stage.last_result().starts_with(want), "{case}: {}", stage.last_result());
    }
}

#[test]
fn a_late_result_of_the_process_before_is_only_recorded() {
    let late = |stage: &mut EngineFixture| {
        let (run, epoch) = (stage.current_run(), stage.engine.state().run(stage.current_run()).unwrap().epoch());
        stage.restart(open_rules(), ResumeMode::Go);
        let answer = countersign_core::run::ModelAnswer {
            message: sample_message(1),
            stop: StopReason::Stop,
            total_tokens: 0,
            calls: Vec::new(),
            failure: None,
            others: Vec::new(),
            spent: None,
        };
        stage.answer_run(run, epoch, answer).table_cell()
    };
    check("late", &[("thinking", || thinking(open_rules()))], late, &[("thinking", "Dropped: run result_dropped")]);
}

#[test]
fn a_run_continues_after_a_result_without_a_model_answer() {
    fn answered(tool: &str, answers: &[&str]) -> EngineFixture {
        let mut stage = calling([tool]);
        let words = answers.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        while let Some(gate) = stage.first_gate() {
            stage.answer_gate(gate.id(), GateReply::Say(words.clone()), "ana", None).1.expect("it is offered");
        }
        stage
    }
    let plan: fn() -> EngineFixture = || answered("plan", &["approve"]);
    let questions: fn() -> EngineFixture = || answered("ask", &["left"]);
    let replied_since: fn() -> EngineFixture = || {
        let mut stage = answered("plan", &["approve"]);
        stage.request_calls([tool_call("look", "a")]);
        stage.end_call(0);
        stage
    };
    let expired: fn() -> EngineFixture = || {
        let mut stage = calling(["plan"]);
        stage.now = stage.engine.state().next_deadline().expect("it waits");
        stage.send_command(Command::Tick);
        stage
    };
    let again = "run interrupted, run turn_opened, run asked";
    let ended = "run interrupted, run ended interrupted";
    table(
        open_rules,
        &[
            ("a plan", plan, again, again),
            ("questions", questions, again, again),
            ("the model spoke since", replied_since, again, ended),
            ("nobody answered", expired, again, ended),
            ("it was stopped", || stopped(answered("plan", &["approve"])), "run interrupted, run ended aborted", ended),
        ],
    );
}
