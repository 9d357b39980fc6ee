use countersign_core::{
    engine::Command,
    gate::{ApprovalScope as Reach, GateReply},
    id::{IdGenerator, PrincipalId, SessionId},
    policy::{Grant, GrantAuth, GrantCoverage, GrantId, GrantReach},
    session::{self, SessionSetting},
    time::Millis,
};

use super::facts_with;
use crate::{
    engine_fixture::{EngineFixture, asking_rules, rules_from, tool_call},
    states::{deny, gated, thinking, under},
};

fn grant(pattern: &str) -> Grant {
    Grant {
        id: GrantId::new(IdGenerator::new([9; 16]).next_uuid(Millis(1))),
        by: PrincipalId::new("ana"),
        to: PrincipalId::new("agent"),
        scope: GrantReach::Always,
        covers: GrantCoverage::Pattern(pattern.to_owned()),
        label: pattern.to_owned(),
        until: None,
        door: GrantAuth::Open,
    }
}

/// Returns the gates that are resolved once the grant is in force and an event happens in the session.
fn adopted(stage: &mut EngineFixture, grant: Grant) -> String {
    let mut outcome = stage.send_command(Command::Adopt(vec![grant]));
    outcome.0.extend(
        stage.session_command(session::Command::Set { setting: SessionSetting::Thinking(None), entry: None }).0,
    );
    facts_with(&outcome, "gate resolved")
}

fn asked_about(tool: &str, path: &str) -> EngineFixture {
    let mut stage = thinking(asking_rules());
    stage.request_calls([tool_call(tool, path)]);
    stage
}

#[test]
fn a_pending_approval_is_resolved_by_the_grant_that_covers_it_and_by_no_other() {
    let to = |scope| Grant { scope, ..grant("write(*)") };
    let until = |now| Grant { until: Some(Millis(now)), ..grant("write(*)") };
    let now = gated().now.0;
    let granted = "gate resolved granted";
    for (case, stage, grant, want) in [
        ("covered", gated(), grant("write(*)"), granted),
        ("of this session", gated(), to(GrantReach::Session(SessionId::new("s"))), granted),
        ("not ended", gated(), until(now + 1), granted),
        ("another path", gated(), grant("write(b)"), ""),
        ("another tool", gated(), grant("edit(*)"), ""),
        ("another session", gated(), to(GrantReach::Session(SessionId::new("t"))), ""),
        ("another agent", gated(), Grant { to: PrincipalId::new("other"), ..grant("write(*)") }, ""),
        ("ended", gated(), until(now), ""),
        ("a floor is stronger", asked_about("bash", "rm -rf /"), grant("bash(*)"), ""),
        ("a shell line", asked_about("bash", "make"), grant("bash(make)"), granted),
        ("a question is no approval", asked_about("ask", ""), grant("ask(*)"), ""),
    ] {
        let mut stage = stage;
        assert_eq!(adopted(&mut stage, grant), want, "{case}");
    }
}

#[test]
fn a_denial_and_a_rule_that_came_since_are_stronger_than_a_grant() {
    let mut twice = thinking(asking_rules());
    twice.request_calls([tool_call("write", "a"), tool_call("write", "a")]);
    let gate = twice.oldest_gate();
    twice.answer_gate(gate, deny(None), "ana", None);
    let mut ruled_out = gated();
    ruled_out.send_command(Command::UseRules(Box::new(rules_from(&["deny write(a)"]))));
    for (case, mut stage) in [("a person's denial", twice), ("a rule", ruled_out)] {
        assert_eq!(adopted(&mut stage, grant("write(*)")), "", "{case}");
        assert_eq!(stage.engine.state().pending_gates().count(), 1, "{case}");
    }
}

#[test]
fn a_person_who_allows_for_longer_settles_what_else_that_covers() {
    for (case, reach, want) in [
        ("once", Reach::Once, "gate resolved allowed"),
        ("session", Reach::Session, "gate resolved allowed, gate resolved granted"),
        ("always", Reach::Always, "gate resolved allowed, gate resolved granted"),
    ] {
        let mut stage = thinking(asking_rules());
        stage.request_calls([tool_call("write", "a"), tool_call("write", "b"), tool_call("write", "a")]);
        let gate = stage.oldest_gate();
        let outcome = stage.answer_gate(gate, GateReply::Allow(reach), "ana", None);
        assert_eq!(facts_with(&outcome, "gate"), want, "{case}");
    }
}

#[test]
fn a_grant_covers_calls_until_it_is_revoked() {
    let mut stage = under(asking_rules(), ["write"]);
    let gate = stage.oldest_gate();
    stage.answer_gate(gate, GateReply::Allow(Reach::Session), "ana", None);
    stage.end_call(0);
    let outcome = stage.request_calls([tool_call("write", "a")]);
    assert_eq!(facts_with(&outcome, "call"), "call wanted, call allowed, call started");
    stage.end_call(0);
    let grant = stage.engine.state().policy().grants().iter().next().unwrap().id;
    let by = PrincipalId::new("ana");
    assert_eq!(stage.send_command(Command::Revoke { grant, by: by.clone() }).table_cell(), "Done: policy revoked");
    assert_eq!(stage.send_command(Command::Revoke { grant, by }).table_cell(), "Idle", "it is gone");
    assert_eq!(facts_with(&stage.request_calls([tool_call("write", "a")]), "call"), "call wanted, call gated");
}

#[test]
fn a_grant_that_is_known_is_not_adopted_again() {
    let mut stage = gated();
    assert_eq!(stage.send_command(Command::Adopt(vec![grant("x"), grant("x")])).0[0], "policy granted");
    assert_eq!(stage.send_command(Command::Adopt(vec![grant("x")])).table_cell(), "Done");
}
