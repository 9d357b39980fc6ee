//! Sessions whose hosts bring rules of their own.

use countersign_core::{
    call::{self, Executor},
    engine::{ActiveRules, Command, ResumeMode},
    gate::{ApprovalScope, GateReply},
    id::SessionId,
    policy::{self, GrantAuth, PathContext},
    run::ProviderFailure,
    session::{self, WhenBusy},
};
use serde_json::json;

use crate::stage::{Stage, asking, open, ruled, seconds, session, wanted};

/// The rules of a host whose agent directory is `realm`.
fn of(realm: &str, rules: ActiveRules) -> ActiveRules {
    let surroundings = PathContext { realm: Some(realm.to_owned()), ..PathContext::default() };
    ActiveRules { path_context: surroundings, ..rules }
}

fn brings(stage: &mut Stage, rules: ActiveRules) -> String {
    stage.tell(Command::UseRulesFor(session(), Box::new(rules))).cell()
}

/// A call waits for a person, and the host asks about everything that changes something.
fn gated() -> Stage {
    let mut stage = Stage::hosted(open(), asking());
    stage.prompt(WhenBusy::Refuse);
    stage.want([wanted("write", "a")]);
    stage
}

fn compact() -> Command {
    Command::Session(session(), session::Command::Compact { instructions: None })
}

fn own_command() -> Command {
    Command::Call(call::Command::Run {
        session: session(),
        tool: "bash".into(),
        arguments: json!({ "command": "ls" }).as_object().cloned().expect("it is one"),
        signature: "bash(ls)".to_owned(),
        executor: Executor::Shell,
    })
}

#[test]
fn a_call_is_judged_by_the_rules_of_the_sessions_host() {
    let starts = "Done: session entry assistant, run answered, call wanted, call allowed, call started";
    let asks = "Done: session entry assistant, run answered, call wanted, call gated, gate opened approval [\"once\",\"session\",\"always\"]";
    for (case, mut stage, want) in [
        ("no host, asking", Stage::new(asking()), asks),
        ("an open host of an asking process", Stage::hosted(asking(), open()), starts),
        ("an asking host of an open process", Stage::hosted(open(), asking()), asks),
        ("a host's rule", Stage::hosted(open(), ruled(&["ask write(a)"])), asks),
        ("a rule of the process", Stage::hosted(ruled(&["deny write(a)"]), open()), starts),
    ] {
        stage.prompt(WhenBusy::Refuse);
        assert_eq!(stage.want([wanted("write", "a")]).cell(), want, "{case}");
    }
}

#[test]
fn what_is_answered_while_the_rules_are_away_waits_for_them() {
    for (answer, resolved, want) in [
        (GateReply::Allow(ApprovalScope::Once), "allowed", "Done: call allowed, call started"),
        (
            GateReply::Deny { reason: None },
            "denied",
            "Done: run denied 1, session entry tool_result, call ended denied, run turn_closed, run turn_opened, run asked",
        ),
    ] {
        let mut stage = gated();
        assert_eq!(stage.restart(open(), ResumeMode::Go).cell(), "Done: booted");
        assert!(stage.engine.waits_for_host(stage.here()));
        let gate = stage.gate();
        let told = stage.decide(gate, answer, "ana", None).cell();
        assert!(told.starts_with(&format!("Resolved {resolved}: gate resolved {resolved}")), "{told}");
        assert!(!told.contains("call"), "{told}");
        assert_eq!(brings(&mut stage, asking()), want);
        assert!(!stage.engine.waits_for_host(stage.here()));
    }
}

#[test]
fn rules_that_came_since_are_those_that_count() {
    let mut stage = gated();
    stage.restart(open(), ResumeMode::Go);
    let gate = stage.gate();
    stage.decide(gate, GateReply::Allow(ApprovalScope::Once), "ana", None);
    let told = brings(&mut stage, ruled(&["deny write(a)"]));
    assert!(
        told.starts_with("Done: session hosted, call allowed, session entry tool_result, call ended denied"),
        "{told}"
    );
}

#[test]
fn nothing_begins_while_the_rules_are_away() {
    let mut stage = Stage::hosted(open(), open());
    stage.restart(open(), ResumeMode::Go);
    let prompt = stage.prompt(WhenBusy::Refuse).cell();
    for told in [prompt, stage.tell(compact()).cell(), stage.tell(own_command()).cell()] {
        assert_eq!(told, "refused: s waits for its host, which brings its rules");
    }
    assert_eq!(brings(&mut stage, open()), "Done");
    assert!(stage.prompt(WhenBusy::Refuse).cell().starts_with("Started: "));
}

#[test]
fn a_session_with_a_host_waits_for_it_whatever_the_others_do() {
    let mut stage = Stage::hosted(open(), open());
    stage.prompt(WhenBusy::Refuse);
    assert_eq!(stage.restart(open(), ResumeMode::Go).0, ["booted", "run interrupted", "run ended interrupted"]);
}

#[test]
fn deadlines_pass_and_a_stopped_run_ends_while_the_rules_are_away() {
    let mut stage = gated();
    stage.restart(open(), ResumeMode::Go);
    let mut stopped = stage.clone();
    stage.now = stage.engine.state().next_deadline().unwrap();
    assert_eq!(stage.tell(Command::Tick).cell(), "Done: gate resolved expired");
    let told = stopped.abort().cell();
    assert!(told.starts_with("Stopping: run aborting, gate resolved withdrawn"), "{told}");
    assert!(told.ends_with("run turn_closed, run ended aborted"), "{told}");
}

#[test]
fn a_host_leaves_when_nothing_works_and_takes_its_rules_along() {
    let mut stage = gated();
    let leave = || Command::Leave(session());
    assert_eq!(stage.tell(leave()).cell(), "refused: s is busy");
    stage.abort();
    assert_eq!(stage.tell(leave()).cell(), "Done");
    assert!(stage.engine.waits_for_host(stage.here()));
    assert_eq!(brings(&mut Stage::new(open()), open()), "refused: the session has the rules of this process");
}

#[test]
fn rules_that_could_not_be_recorded_are_not_in_force() {
    let mut stage = Stage::hosted(open(), asking());
    assert_eq!(brings(&mut stage, open()), "Done: session hosted");
    stage.lose(1);
    stage.prompt(WhenBusy::Refuse);
    let told = stage.want([wanted("write", "a")]).cell();
    assert!(told.contains("call gated"), "those of before hold: {told}");
}

#[test]
fn what_is_allowed_for_good_holds_in_the_hosts_realm() {
    for (realm, other, asked) in [("/a", "/a", false), ("/a", "/b", true)] {
        let mut stage = Stage::hosted(asking(), of(realm, asking()));
        stage.prompt(WhenBusy::Refuse);
        stage.want([wanted("write", "a")]);
        let gate = stage.gate();
        stage.decide(gate, GateReply::Allow(ApprovalScope::Always), "local:1000", None);
        let grants = stage.engine.state().policy().grants();
        let scopes: Vec<_> = grants.iter().map(|grant| (grant.scope.clone(), grant.door)).collect();
        assert_eq!(scopes, [(policy::GrantReach::Realm(realm.to_owned()), GrantAuth::Authenticated)]);
        stage.end(0);
        let told = brings(&mut stage, of(other, asking()));
        let told = format!("{told} {}", stage.want([wanted("write", "a")]).cell());
        assert_eq!(told.contains("call gated"), asked, "{realm} {other}: {told}");
    }
    let mut stage = gated();
    let gate = stage.gate();
    stage.decide(gate, GateReply::Allow(ApprovalScope::Session), "host", None);
    let grants = stage.engine.state().policy().grants().iter();
    assert_eq!(
        grants.map(|grant| grant.door).collect::<Vec<_>>(),
        [GrantAuth::Open],
        "nobody knows who the host's user is"
    );
    assert_eq!(stage.here().id(), &SessionId::new("s"));
}

#[test]
fn a_session_goes_on_in_another_log_only_from_rest() {
    let home = || "/data".to_owned();
    let leave = || session::Command::LeaveFor { home: home() };
    let mut stage = gated();
    assert_eq!(stage.session(leave()).cell(), "refused: s is busy");
    stage.abort();
    assert_eq!(stage.session(leave()).cell(), "Done: session left_for");
    assert_eq!(stage.here().left_for(), Some("/data"));
    assert_eq!(stage.session(session::Command::ComeFrom { home: home() }).cell(), "Done: session came_from");
    assert_eq!(stage.here().left_for(), None);
}

#[test]
fn an_attempt_that_is_due_while_the_rules_are_away_waits_for_them() {
    let mut stage = Stage::hosted(open(), asking());
    stage.prompt(WhenBusy::Refuse);
    stage.fail(ProviderFailure { retryable: true, overflow: false, after: Some(seconds(100)) });
    assert_eq!(stage.restart(open(), ResumeMode::Go).cell(), "Done: booted");
    stage.now = stage.now + seconds(3_600);
    for want in ["Done: booted, run resumed", "Done: booted"] {
        assert_eq!(stage.restart(open(), ResumeMode::Go).cell(), want);
    }
    assert_eq!(brings(&mut stage, asking()), "Done: run turn_opened, run asked");
}
