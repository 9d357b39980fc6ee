use countersign_core::{message::StopReason, run::ProviderFailure};

use super::{facts_from, facts_with};
use crate::{
    engine_fixture::{EngineFixture, asking_rules, open_rules, tool_call},
    states::{calling, thinking, under},
};

const CANCELLED: &str = "session entry tool_result, call ended cancelled";
const ENDED: &str = "run turn_closed, run ended aborted";

#[test]
fn calls_that_have_not_begun_end_at_once_and_those_that_work_when_they_come_back() {
    let withdrawn = format!("run aborting, gate resolved withdrawn, {CANCELLED}, {ENDED}");
    let two =
        format!("run aborting, gate resolved withdrawn, {CANCELLED}, gate resolved withdrawn, {CANCELLED}, {ENDED}");
    for (case, mut stage, want) in [
        ("a person decides", under(asking_rules(), ["write"]), withdrawn.as_str()),
        ("a person decides twice", under(asking_rules(), ["write", "write"]), &two),
        ("a person is asked", calling(["ask"]), &withdrawn),
        ("one works", calling(["write"]), "run aborting, call aborting"),
        ("two work", calling(["look", "look"]), "run aborting, call aborting, call aborting"),
        ("one works, one is ready", calling(["write", "write"]), "run aborting, call aborting"),
        ("one works, one is asked about", under(asking_rules(), ["look", "write"]), "run aborting, call aborting"),
        ("nothing is wanted yet", thinking(open_rules()), "run aborting"),
    ] {
        assert_eq!(stage.abort().0.join(", "), want, "{case}");
    }
}

#[test]
fn results_stand_in_the_order_in_which_they_came_about() {
    let done = "session entry tool_result, call ended done";
    let mut stage = calling(["look", "look", "write"]);
    stage.abort();
    assert_eq!(stage.end_call(1).0.join(", "), done, "another one still works");
    assert_eq!(stage.end_call(0).0.join(", "), format!("{done}, {CANCELLED}, {ENDED}"));
}

#[test]
fn nothing_begins_in_a_run_that_is_to_stop() {
    let mut stage = calling(["write", "write"]);
    stage.abort();
    assert_eq!(facts_with(&stage.end_call(0), "call started"), "");
    let mut stage = thinking(open_rules());
    stage.abort();
    assert_eq!(facts_with(&stage.request_calls([tool_call("write", "a"), tool_call("ask", "")]), "call started"), "");
}

#[test]
fn a_turn_without_a_model_request_is_closed() {
    let mut stage = calling(["write"]);
    stage.engine.quiesce();
    stage.end_call(0);
    assert_eq!(stage.abort().0.join(", "), format!("run aborting, {ENDED}"));
}

#[test]
fn a_message_that_was_broken_off_wants_nothing() {
    let answer = |stop| {
        let mut stage: EngineFixture = thinking(open_rules());
        facts_from(&stage.answer(stop, vec![tool_call("write", "a"), tool_call("look", "b")], None), "call ended")
    };
    let cancelled = format!("call ended cancelled, {CANCELLED}, {ENDED}");
    assert_eq!(answer(StopReason::Aborted), cancelled);
    assert_eq!(answer(StopReason::ToolUse), "", "a whole one does");
}

#[test]
fn a_message_that_ended_in_an_error_wants_nothing_and_its_calls_leave_no_result() {
    let failure = |retryable| Some(ProviderFailure { retryable, overflow: false, after: None });
    let cancelled = "call ended cancelled, call ended cancelled, run turn_closed";
    for (case, stop, failure, want) in [
        ("worth another attempt", StopReason::Error, failure(true), "session dropped, run backed_off 1 2 s"),
        ("for good", StopReason::Error, failure(false), "run ended failed"),
        ("nobody says why", StopReason::Error, None, "run ended failed"),
    ] {
        let mut stage = thinking(open_rules());
        let outcome = stage.answer(stop, vec![tool_call("write", "a"), tool_call("look", "b")], failure);
        assert_eq!(facts_from(&outcome, "call ended"), format!("{cancelled}, {want}"), "{case}");
    }
    let outcome = thinking(open_rules()).answer(StopReason::ToolUse, vec![tool_call("write", "a")], failure(false));
    assert_eq!(
        facts_from(&outcome, "call ended"),
        "call ended cancelled, run turn_closed, run ended failed",
        "it is shown"
    );
    let mut long = thinking(open_rules());
    let outcome = long.answer(StopReason::Length, vec![tool_call("write", "a")], None);
    assert_eq!(facts_from(&outcome, "call allowed"), "call allowed, call started", "its calls are whole");
}

#[test]
fn the_model_reads_that_a_call_was_aborted() {
    let mut stage = under(asking_rules(), ["write"]);
    stage.abort();
    assert!(stage.last_result().starts_with("Tool execution was aborted: "), "{}", stage.last_result());
}
