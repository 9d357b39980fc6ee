//! Every command to a run in every state of its session, and every answer that a model can give.

use countersign_core::{
    call::{CallProgress, CallResult},
    engine::Command,
    id::RunId,
    message::StopReason::{self, Aborted, Error, Length, Stop, ToolUse},
    run::{self, ModelAnswer, ProviderFailure, ResolvedCall},
    session::{self, SessionEntryKind, SessionSetting, WhenBusy},
};

use crate::{
    engine_fixture::{EngineFixture, EngineOutcome, open_rules, sample_message, seconds, session_id, tool_call},
    states::{RETRYABLE, backing_off, calling, check, idle, in_every_state, stopping, thinking},
};

const FATAL: ProviderFailure = ProviderFailure { retryable: false, overflow: false, after: None };
const OVERFLOW: ProviderFailure = ProviderFailure { retryable: false, overflow: true, after: None };
/// The facts of an answer.
const ANSWERED: &str = "Done: session entry assistant, run answered";

fn nobody() -> RunId {
    RunId::parse("00000000000000000000000000000001").expect("it is one")
}

fn stop() -> ModelAnswer {
    ModelAnswer {
        message: sample_message(1),
        stop: Stop,
        total_tokens: 0,
        calls: Vec::new(),
        failure: None,
        others: Vec::new(),
        spent: None,
    }
}

/// Returns an answer for the attempt that is `off` from the run's last one.
fn answered(stage: &mut EngineFixture, off: u32) -> EngineOutcome {
    let run = stage.engine.state().runs().next().map(|run| (run.id(), run.epoch()));
    let (run, epoch) = run.unwrap_or_else(|| (nobody(), 1));
    stage.answer_run(run, epoch + off, stop())
}

#[test]
fn an_answer_counts_for_the_current_attempt_and_is_else_only_recorded() {
    let others = "none, idle, command, calling, gated, asked, backoff, stopping, compacting, behind";
    let ends = "Done: session entry assistant, run answered, run turn_closed, run ended completed";
    let late = "Dropped: run result_dropped";
    in_every_state("the last attempt", |stage| answered(stage, 0), &[("thinking", ends), (others, late)]);
    let every = format!("thinking, {others}");
    in_every_state("another attempt", |stage| answered(stage, 1), &[(&every, late)]);
    in_every_state("another run", |stage| stage.answer_run(nobody(), 1, stop()), &[(&every, late)]);
}

#[test]
fn an_answer_counts_once() {
    for (case, first) in [
        ("completed", stop()),
        ("calls work", ModelAnswer { stop: ToolUse, calls: vec![tool_call("write", "a")], ..stop() }),
        ("backing off", ModelAnswer { stop: Error, failure: Some(RETRYABLE), ..stop() }),
    ] {
        let mut stage = thinking(open_rules());
        let run = stage.current_run();
        stage.answer_run(run, 1, first);
        let before = stage.current_session().entries().len();
        assert_eq!(stage.answer_run(run, 1, stop()).table_cell(), "Dropped: run result_dropped", "{case}");
        assert_eq!(stage.current_session().entries().len(), before, "{case}: it is no part of the conversation");
    }
}

#[test]
fn abort_stops_a_run_in_every_phase_and_is_no_error_where_none_is() {
    let withdrawn = "Stopping: run aborting, gate resolved withdrawn, session entry tool_result, \
                     call ended cancelled, run turn_closed, run ended aborted";
    let rows = [
        ("none", "refused: no session s"),
        ("idle, command, compacting", "Idle"),
        ("behind", "Stopping: session compaction_aborting"),
        ("thinking", "Stopping: run aborting"),
        ("calling", "Stopping: run aborting, call aborting"),
        ("gated, asked", withdrawn),
        ("backoff", "Stopping: run ended aborted"),
        ("stopping", "Stopping"),
    ];
    in_every_state("abort", EngineFixture::abort, &rows);
}

#[test]
fn a_run_that_is_to_stop_ends_when_what_is_in_flight_has_ended() {
    let stopped = |mut stage: EngineFixture| {
        stage.abort();
        stage
    };
    let mut requesting = stopped(thinking(open_rules()));
    let closed = "run turn_closed, run ended aborted";
    assert_eq!(answered(&mut requesting, 0).table_cell(), format!("{ANSWERED}, {closed}"));
    let mut requesting = stopped(thinking(open_rules()));
    let summary = requesting.request_calls([tool_call("write", "a")]).table_cell();
    let cancelled = "session entry tool_result, call ended cancelled";
    assert_eq!(summary, format!("{ANSWERED}, call wanted, {cancelled}, {closed}"), "what it wants is not begun");
    let mut failed = stopped(thinking(open_rules()));
    assert_eq!(failed.fail_request(RETRYABLE).table_cell(), format!("{ANSWERED}, {closed}"), "no other attempt");
    let mut works = stopped(calling(["write", "write"]));
    let done = "Done: session entry tool_result, call ended done";
    assert_eq!(works.end_call(0).table_cell(), format!("{done}, {cancelled}, {closed}"));
}

#[test]
fn an_abort_leaves_the_queues_as_they_are() {
    for queue in [session::MessageQueue::Steering, session::MessageQueue::FollowUp] {
        let mut stage = stopping();
        stage.session_command(session::Command::Queue { queue, message: sample_message(1) });
        stage.end_call(0);
        assert_eq!((stage.current_session().run(), stage.current_session().queued_count()), (None, 1), "{queue:?}");
    }
}

#[test]
fn waiting_for_another_attempt_can_be_stopped_by_itself() {
    let abort = |stage: &mut EngineFixture| {
        stage.send_command(Command::Run(run::Command::AbortRetry { session: session_id() }))
    };
    let others = "idle, command, thinking, calling, gated, asked, stopping, compacting, behind";
    let rows =
        [("none", "refused: no session s"), (others, "Idle"), ("backoff", "Stopping: run ended retry_cancelled")];
    in_every_state("abort retry", abort, &rows);
}

fn without_retry() -> EngineFixture {
    let mut stage = thinking(open_rules());
    stage.change_setting(SessionSetting::AutoRetry(false));
    stage
}

/// Settings with the longest wait that a provider may ask for.
fn patient() -> EngineFixture {
    let mut stage = thinking(open_rules());
    let mut settings = stage.current_session().settings().clone();
    settings.retry.longest = seconds(86_400);
    stage.change_setting(SessionSetting::All(Box::new(settings)));
    stage
}

/// Returns a fixture after a message that a compaction could leave out.
fn long(auto: bool) -> EngineFixture {
    let mut stage = idle();
    stage.change_setting(SessionSetting::AutoCompaction(auto));
    stage.import([("u", SessionEntryKind::User, 60), ("v", SessionEntryKind::User, 60)]);
    stage.send_prompt(WhenBusy::Refuse);
    stage
}

/// Returns a fixture in which no person can be asked.
fn alone(mut stage: EngineFixture) -> EngineFixture {
    stage.change_setting(SessionSetting::Nobody(Some("nobody is there".to_owned())));
    stage
}

/// A case, the state, the answer's stop, calls and failure, and the consequences.
type ModelAnswerCase =
    (&'static str, fn() -> EngineFixture, StopReason, Vec<ResolvedCall>, Option<ProviderFailure>, String);

#[test]
fn every_answer_of_a_model_has_its_consequence() {
    let calls = || vec![tool_call("write", "a")];
    let (first, failed) = (|| thinking(open_rules()), "run turn_closed, run ended failed");
    let cancelled = "call wanted, session entry tool_result, call ended cancelled";
    let again = "run turn_closed, session dropped, run ended overflowed, session compaction_started again";
    let question = "gate opened question []";
    let later = "run turn_closed, session dropped, run backed_off 1";
    let hint = ProviderFailure { after: Some(seconds(9)), ..RETRYABLE };
    let day = ProviderFailure { after: Some(seconds(86_400)), ..RETRYABLE };
    let rows: [ModelAnswerCase; 17] = [
        ("stop", first, Stop, vec![], None, "run turn_closed, run ended completed".to_owned()),
        ("length", first, Length, vec![], None, "run turn_closed, run ended completed".to_owned()),
        ("calls", first, ToolUse, calls(), None, "call wanted, call allowed, call started".to_owned()),
        ("aborted", first, Aborted, vec![], None, "run turn_closed, run ended aborted".to_owned()),
        ("aborted, calls", first, Aborted, calls(), None, format!("{cancelled}, run turn_closed, run ended aborted")),
        ("fatal", first, Error, vec![], Some(FATAL), failed.to_owned()),
        ("retryable", first, Error, vec![], Some(RETRYABLE), format!("{later} 2 s")),
        ("hinted", first, Error, vec![], Some(hint), format!("{later} 9 s")),
        ("longer than the longest wait", || alone(thinking(open_rules())), Error, vec![], Some(day), failed.to_owned()),
        ("as long as the longest wait", || alone(patient()), Error, vec![], Some(day), format!("{later} 86400 s")),
        ("longer, and people are there", first, Error, vec![], Some(day), format!("{later} 86400 s, {question}")),
        ("as long, and people are there", patient, Error, vec![], Some(day), format!("{later} 86400 s, {question}")),
        ("retry off", without_retry, Error, vec![], Some(RETRYABLE), failed.to_owned()),
        ("overflow", || long(true), Error, vec![], Some(OVERFLOW), again.to_owned()),
        ("overflow, off", || long(false), Error, vec![], Some(OVERFLOW), failed.to_owned()),
        ("overflow, nothing to leave out", first, Error, vec![], Some(OVERFLOW), failed.to_owned()),
        (
            "overflow is not retried",
            || long(false),
            Error,
            vec![],
            Some(ProviderFailure { retryable: true, ..OVERFLOW }),
            failed.to_owned(),
        ),
    ];
    for (case, state, stop, tool_calls, failure, want) in rows {
        assert_eq!(state().answer(stop, tool_calls, failure).table_cell(), format!("{ANSWERED}, {want}"), "{case}");
    }
}

#[test]
fn an_answer_resets_the_count_of_retries() {
    let mut stage = backing_off();
    let next = |stage: &mut EngineFixture| {
        stage.now = stage.engine.state().next_deadline().unwrap();
        stage.send_command(Command::Tick);
    };
    next(&mut stage);
    assert_eq!(stage.fail_request(RETRYABLE).0.last().unwrap(), "run backed_off 2 4 s");
    next(&mut stage);
    stage.request_calls([tool_call("write", "a")]);
    stage.end_call(0);
    assert_eq!(stage.fail_request(RETRYABLE).0.last().unwrap(), "run backed_off 1 2 s");
}

#[test]
fn a_request_that_still_does_not_fit_after_a_compaction_is_not_compacted_again() {
    let compacted = || {
        let mut stage = long(true);
        stage.fail_request(OVERFLOW);
        let done = session::CompactionOutcome::Done { summary: sample_message(1), spent: None };
        stage.session_command(session::Command::Compacted { epoch: 1, outcome: done });
        stage
    };
    let mut stage = compacted();
    assert_eq!(stage.fail_request(OVERFLOW).0.last().unwrap(), "run ended failed");
    let mut stage = compacted();
    for tokens in [60, 1] {
        stage.request_calls([tool_call("write", "a")]);
        let returned = CallResult {
            message: sample_message(tokens),
            error: false,
            open_tasks: None,
            folder: None,
            prunable: false,
            left_behind: None,
        };
        stage.end_with(0, CallProgress::Returned(Box::new(returned)));
    }
    assert!(stage.current_session().find_cut().is_some(), "it could be compacted");
    let facts = stage.fail_request(OVERFLOW).0;
    assert_eq!(facts.last().unwrap(), "session compaction_started again", "the model took it, and it grew again");
    let done = session::CompactionOutcome::Done { summary: sample_message(1), spent: None };
    stage.session_command(session::Command::Compacted { epoch: 2, outcome: done });
    assert_eq!(stage.fail_request(OVERFLOW).0.last().unwrap(), "run ended failed");
}

#[test]
fn a_compaction_for_a_request_that_did_not_fit_ends_in_a_run_only_if_it_succeeded() {
    let behind_overflow: fn() -> EngineFixture = || {
        let mut stage = long(true);
        stage.fail_request(OVERFLOW);
        stage
    };
    let rest = "Done: session compaction_ended rest";
    for (case, outcome, want) in [
        ("failed", session::CompactionOutcome::Failed { message: "no".into() }, rest),
        // It was not stopped, so the process ends: the next takes it up.
        ("aborted", session::CompactionOutcome::Aborted, "Done"),
        (
            "done",
            session::CompactionOutcome::Done { summary: sample_message(1), spent: None },
            "Done: session entry compaction, session compaction_ended again, run started overflow, run turn_opened, \
             run asked",
        ),
    ] {
        let end = |stage: &mut EngineFixture| {
            stage.session_command(session::Command::Compacted { epoch: 1, outcome: outcome.clone() }).table_cell()
        };
        check(case, &[("overflow", behind_overflow)], end, &[("overflow", want)]);
    }
}
