use countersign_core::{
    engine::Command,
    gate::{ApprovalScope as Reach, GateReply},
    id::{IdGenerator, PrincipalId, SessionId},
    policy::{Grant, GrantAuth, GrantCoverage, GrantId, GrantReach},
    session::{self, SessionSetting},
    time::Millis,
};

use super::only;
use crate::{
    stage::{Stage, asking, ruled, wanted},
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

/// The gates that are resolved once the grant is in force and something happens in the session.
fn adopted(stage: &mut Stage, grant: Grant) -> String {
    let mut told = stage.tell(Command::Adopt(vec![grant]));
    told.0.extend(stage.session(session::Command::Set { setting: SessionSetting::Thinking(None), entry: None }).0);
    only(&told, "gate resolved")
}

fn asked_about(tool: &str, path: &str) -> Stage {
    let mut stage = thinking(asking());
    stage.want([wanted(tool, path)]);
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
    let mut twice = thinking(asking());
    twice.want([wanted("write", "a"), wanted("write", "a")]);
    let gate = twice.gate();
    twice.decide(gate, deny(None), "ana", None);
    let mut ruled_out = gated();
    ruled_out.tell(Command::UseRules(Box::new(ruled(&["deny write(a)"]))));
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
        let mut stage = thinking(asking());
        stage.want([wanted("write", "a"), wanted("write", "b"), wanted("write", "a")]);
        let gate = stage.gate();
        let told = stage.decide(gate, GateReply::Allow(reach), "ana", None);
        assert_eq!(only(&told, "gate"), want, "{case}");
    }
}

#[test]
fn what_a_grant_covers_is_not_asked_about_until_it_is_revoked() {
    let mut stage = under(asking(), ["write"]);
    let gate = stage.gate();
    stage.decide(gate, GateReply::Allow(Reach::Session), "ana", None);
    stage.end(0);
    let told = stage.want([wanted("write", "a")]);
    assert_eq!(only(&told, "call"), "call wanted, call allowed, call started");
    stage.end(0);
    let grant = stage.engine.state().policy().grants().iter().next().unwrap().id;
    let by = PrincipalId::new("ana");
    assert_eq!(stage.tell(Command::Revoke { grant, by: by.clone() }).cell(), "Done: policy revoked");
    assert_eq!(stage.tell(Command::Revoke { grant, by }).cell(), "Idle", "it is gone");
    assert_eq!(only(&stage.want([wanted("write", "a")]), "call"), "call wanted, call gated");
}

#[test]
fn a_grant_that_is_known_is_not_adopted_again() {
    let mut stage = gated();
    assert_eq!(stage.tell(Command::Adopt(vec![grant("x"), grant("x")])).0[0], "policy granted");
    assert_eq!(stage.tell(Command::Adopt(vec![grant("x")])).cell(), "Done");
}
