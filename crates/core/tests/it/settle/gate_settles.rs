use countersign_core::{
    engine::Command,
    gate::{ApprovalScope, GateReply},
    session::{DenialReach, SessionSetting},
};

use super::{facts_from, facts_with};
use crate::{
    engine_fixture::{EngineFixture, EngineOutcome, asking_rules, session_id, tool_call},
    states::{calling, deny, gated, thinking, under},
};

const DENIED: &str = "session entry tool_result, call ended denied, run turn_closed, run turn_opened, run asked";

fn answer(stage: &mut EngineFixture, answer: GateReply) -> EngineOutcome {
    let gate = stage.oldest_gate();
    stage.answer_gate(gate, answer, "ana", None)
}

#[test]
fn what_becomes_of_a_call_follows_from_what_became_of_its_gate() {
    let counted = format!("run denied 1, {DENIED}");
    let starts = "call allowed, call started";
    for (case, given, first, want) in [
        ("allowed once", GateReply::Allow(ApprovalScope::Once), "call", starts),
        ("allowed for the session", GateReply::Allow(ApprovalScope::Session), "call", starts),
        ("allowed for good", GateReply::Allow(ApprovalScope::Always), "call", starts),
        ("denied", deny(None), "run", &counted),
        ("denied, and why", deny(Some("no")), "run", &counted),
        ("declined", GateReply::Decline, "run", &counted),
    ] {
        assert_eq!(facts_from(&answer(&mut gated(), given), first), want, "{case}");
    }
    let mut expired = gated();
    expired.now = expired.engine.state().next_deadline().unwrap();
    assert_eq!(facts_from(&expired.send_command(Command::Tick), "session"), DENIED);
}

#[test]
fn a_gate_that_waits_settles_nothing() {
    let mut stage = under(asking_rules(), ["write", "write"]);
    let outcome = answer(&mut stage, GateReply::Allow(ApprovalScope::Once));
    assert_eq!(facts_with(&outcome, "call"), "call allowed, call started", "the other call still waits");
}

#[test]
fn the_model_reads_who_denied_it_and_why() {
    let stays = "A person refused this. Do not retry it: the same action in other words stays denied.";
    for (case, given, want) in [
        ("why", deny(Some("not on a Friday")), "Denied by ana: not on a Friday\n"),
        ("without a reason", deny(None), "Denied by ana. "),
        ("a blank reason", deny(Some("  ")), "Denied by ana. "),
        ("declined", GateReply::Decline, "Denied by ana. "),
    ] {
        let mut stage = gated();
        answer(&mut stage, given);
        assert_eq!(stage.last_result(), format!("{want}{stays}"), "{case}");
    }
}

#[test]
fn a_denial_binds_its_session_alone_where_the_settings_of_that_say_so() {
    for (reach, bound, expected) in [
        (DenialReach::Principal, None, "stays denied."),
        (DenialReach::Session, Some(session_id()), "stays denied. That holds in this conversation for 15 minutes."),
    ] {
        let mut stage = gated();
        stage.change_setting(SessionSetting::Denials(reach));
        answer(&mut stage, deny(None));
        let constraints = stage.engine.state().policy().constraints();
        assert_eq!(constraints.iter().map(|one| one.session.clone()).collect::<Vec<_>>(), [bound], "{reach:?}");
        assert!(stage.last_result().ends_with(expected), "{reach:?}: {}", stage.last_result());
    }
}

#[test]
fn a_question_is_no_permission_and_declining_it_no_denial() {
    for given in [deny(Some("no")), GateReply::Decline, GateReply::Say(vec!["left".to_owned()])] {
        let outcome = answer(&mut calling(["ask"]), given.clone());
        assert_eq!(facts_from(&outcome, "gate opened"), "gate opened question []", "{given:?}");
        assert_eq!(facts_with(&outcome, "run") + &facts_with(&outcome, "policy"), "", "{given:?}");
    }
}

#[test]
fn denials_in_a_row_are_forgiven_by_an_allow_of_the_same_person_and_not_by_rules_or_grants() {
    let mut stage = under(asking_rules(), ["write", "write"]);
    answer(&mut stage, deny(None));
    let outcome = answer(&mut stage, GateReply::Allow(ApprovalScope::Once));
    assert_eq!(facts_with(&outcome, "run"), "run denials_forgiven");

    let mut stage = thinking(asking_rules());
    stage.request_calls([tool_call("write", "a"), tool_call("look", "b"), tool_call("write", "c")]);
    answer(&mut stage, deny(None));
    assert_eq!(
        facts_with(&answer(&mut stage, deny(None)), "run denied"),
        "run denied 2",
        "what runs unasked is no allow"
    );
}

#[test]
fn a_denial_binds_for_a_quarter_of_an_hour() {
    for (case, wait, want) in [
        ("at once", 0, "call wanted, call ended denied"),
        ("to the end", 15 * 60 * 1_000 - 1, "call wanted, call ended denied"),
        ("and no longer", 15 * 60 * 1_000, "call wanted, call gated"),
    ] {
        let mut stage = gated();
        answer(&mut stage, deny(None));
        stage.now.0 += wait;
        assert_eq!(facts_with(&stage.request_calls([tool_call("write", "a")]), "call"), want, "{case}");
    }
}

#[test]
fn a_denial_binds_the_same_thing_only_and_in_any_words() {
    for (case, tool, path, want) in [
        ("the same", "bash", "make test", "call wanted, call ended denied"),
        ("other spaces", "bash", "make   'test'", "call wanted, call ended denied"),
        ("something else", "bash", "make", "call wanted, call gated"),
        ("another tool", "write", "make test", "call wanted, call gated"),
    ] {
        let mut stage = thinking(asking_rules());
        stage.request_calls([tool_call("bash", "make test")]);
        answer(&mut stage, deny(None));
        assert_eq!(facts_with(&stage.request_calls([tool_call(tool, path)]), "call"), want, "{case}");
    }
}

#[test]
fn a_denial_is_lifted_by_the_same_persons_allow_only() {
    for (case, by, want) in
        [("ana", "ana", "call allowed, call started"), ("bo", "bo", "call allowed, call ended denied")]
    {
        let mut stage = thinking(asking_rules());
        stage.request_calls([tool_call("write", "a"), tool_call("write", "a")]);
        answer(&mut stage, deny(None));
        let gate = stage.oldest_gate();
        let outcome = stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), by, None);
        assert_eq!(facts_with(&outcome, "call"), want, "{case}");
    }
    let mut stage = calling(["ask"]);
    assert_eq!(facts_with(&answer(&mut stage, deny(None)), "policy"), "", "an unanswered question binds nobody");
}
