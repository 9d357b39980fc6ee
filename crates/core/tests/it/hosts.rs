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

use crate::engine_fixture::{EngineFixture, asking_rules, open_rules, rules_from, seconds, session_id, tool_call};

/// Returns the rules of a host whose agent directory is `realm`.
fn of(realm: &str, rules: ActiveRules) -> ActiveRules {
    let surroundings = PathContext { realm: Some(realm.to_owned()), ..PathContext::default() };
    ActiveRules { path_context: surroundings, ..rules }
}

fn brings(stage: &mut EngineFixture, rules: ActiveRules) -> String {
    stage.send_command(Command::UseRulesFor(session_id(), Box::new(rules))).table_cell()
}

/// Returns a fixture in which a call waits for a person, and the host requires approvals for every change.
fn gated() -> EngineFixture {
    let mut stage = EngineFixture::with_host_rules(open_rules(), asking_rules());
    stage.send_prompt(WhenBusy::Refuse);
    stage.request_calls([tool_call("write", "a")]);
    stage
}

fn compact() -> Command {
    Command::Session(session_id(), session::Command::Compact { instructions: None })
}

fn own_command() -> Command {
    Command::Call(call::Command::Run {
        session: session_id(),
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
        ("no host, asking", EngineFixture::new(asking_rules()), asks),
        ("an open host of an asking process", EngineFixture::with_host_rules(asking_rules(), open_rules()), starts),
        ("an asking host of an open process", EngineFixture::with_host_rules(open_rules(), asking_rules()), asks),
        ("a host's rule", EngineFixture::with_host_rules(open_rules(), rules_from(&["ask write(a)"])), asks),
        ("a rule of the process", EngineFixture::with_host_rules(rules_from(&["deny write(a)"]), open_rules()), starts),
    ] {
        stage.send_prompt(WhenBusy::Refuse);
        assert_eq!(stage.request_calls([tool_call("write", "a")]).table_cell(), want, "{case}");
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
        assert_eq!(stage.restart(open_rules(), ResumeMode::Go).table_cell(), "Done: booted");
        assert!(stage.engine.waits_for_host(stage.current_session()));
        let gate = stage.oldest_gate();
        let summary = stage.answer_gate(gate, answer, "ana", None).table_cell();
        assert!(summary.starts_with(&format!("Resolved {resolved}: gate resolved {resolved}")), "{summary}");
        assert!(!summary.contains("call"), "{summary}");
        assert_eq!(brings(&mut stage, asking_rules()), want);
        assert!(!stage.engine.waits_for_host(stage.current_session()));
    }
}

#[test]
fn rules_that_came_since_are_those_that_count() {
    let mut stage = gated();
    stage.restart(open_rules(), ResumeMode::Go);
    let gate = stage.oldest_gate();
    stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), "ana", None);
    let summary = brings(&mut stage, rules_from(&["deny write(a)"]));
    assert!(
        summary.starts_with("Done: session hosted, call allowed, session entry tool_result, call ended denied"),
        "{summary}"
    );
}

#[test]
fn nothing_begins_while_the_rules_are_away() {
    let mut stage = EngineFixture::with_host_rules(open_rules(), open_rules());
    stage.restart(open_rules(), ResumeMode::Go);
    let prompt = stage.send_prompt(WhenBusy::Refuse).table_cell();
    for summary in [prompt, stage.send_command(compact()).table_cell(), stage.send_command(own_command()).table_cell()]
    {
        assert_eq!(summary, "refused: s waits for its host, which brings its rules");
    }
    assert_eq!(brings(&mut stage, open_rules()), "Done");
    assert!(stage.send_prompt(WhenBusy::Refuse).table_cell().starts_with("Started: "));
}

#[test]
fn a_session_with_a_host_waits_for_it_whatever_the_others_do() {
    let mut stage = EngineFixture::with_host_rules(open_rules(), open_rules());
    stage.send_prompt(WhenBusy::Refuse);
    assert_eq!(stage.restart(open_rules(), ResumeMode::Go).0, ["booted", "run interrupted", "run ended interrupted"]);
}

#[test]
fn deadlines_pass_and_a_stopped_run_ends_while_the_rules_are_away() {
    let mut stage = gated();
    stage.restart(open_rules(), ResumeMode::Go);
    let mut stopped = stage.clone();
    stage.now = stage.engine.state().next_deadline().unwrap();
    assert_eq!(stage.send_command(Command::Tick).table_cell(), "Done: gate resolved expired");
    let summary = stopped.abort().table_cell();
    assert!(summary.starts_with("Stopping: run aborting, gate resolved withdrawn"), "{summary}");
    assert!(summary.ends_with("run turn_closed, run ended aborted"), "{summary}");
}

#[test]
fn a_host_leaves_when_nothing_works_and_takes_its_rules_along() {
    let mut stage = gated();
    let leave = || Command::Leave(session_id());
    assert_eq!(stage.send_command(leave()).table_cell(), "refused: s is busy");
    stage.abort();
    assert_eq!(stage.send_command(leave()).table_cell(), "Done");
    assert!(stage.engine.waits_for_host(stage.current_session()));
    assert_eq!(
        brings(&mut EngineFixture::new(open_rules()), open_rules()),
        "refused: the session has the rules of this process"
    );
}

#[test]
fn rules_that_could_not_be_recorded_are_not_in_force() {
    let mut stage = EngineFixture::with_host_rules(open_rules(), asking_rules());
    assert_eq!(brings(&mut stage, open_rules()), "Done: session hosted");
    stage.lose_facts(1);
    stage.send_prompt(WhenBusy::Refuse);
    let summary = stage.request_calls([tool_call("write", "a")]).table_cell();
    assert!(summary.contains("call gated"), "those of before hold: {summary}");
}

#[test]
fn what_is_allowed_for_good_holds_in_the_hosts_realm() {
    for (realm, other, is_gated) in [("/a", "/a", false), ("/a", "/b", true)] {
        let mut stage = EngineFixture::with_host_rules(asking_rules(), of(realm, asking_rules()));
        stage.send_prompt(WhenBusy::Refuse);
        stage.request_calls([tool_call("write", "a")]);
        let gate = stage.oldest_gate();
        stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Always), "local:1000", None);
        let grants = stage.engine.state().policy().grants();
        let scopes: Vec<_> = grants.iter().map(|grant| (grant.scope.clone(), grant.door)).collect();
        assert_eq!(scopes, [(policy::GrantReach::Realm(realm.to_owned()), GrantAuth::Authenticated)]);
        stage.end_call(0);
        let summary = brings(&mut stage, of(other, asking_rules()));
        let summary = format!("{summary} {}", stage.request_calls([tool_call("write", "a")]).table_cell());
        assert_eq!(summary.contains("call gated"), is_gated, "{realm} {other}: {summary}");
    }
    let mut stage = gated();
    let gate = stage.oldest_gate();
    stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Session), "host", None);
    let grants = stage.engine.state().policy().grants().iter();
    assert_eq!(
        grants.map(|grant| grant.door).collect::<Vec<_>>(),
        [GrantAuth::Open],
        "nobody knows who the host's user is"
    );
    assert_eq!(stage.current_session().id(), &SessionId::new("s"));
}

#[test]
fn a_session_goes_on_in_another_log_only_from_rest() {
    let home = || "/data".to_owned();
    let leave = || session::Command::LeaveFor { home: home() };
    let mut stage = gated();
    assert_eq!(stage.session_command(leave()).table_cell(), "refused: s is busy");
    stage.abort();
    assert_eq!(stage.session_command(leave()).table_cell(), "Done: session left_for");
    assert_eq!(stage.current_session().left_for(), Some("/data"));
    assert_eq!(
        stage.session_command(session::Command::ComeFrom { home: home() }).table_cell(),
        "Done: session came_from"
    );
    assert_eq!(stage.current_session().left_for(), None);
}

#[test]
fn an_attempt_that_is_due_while_the_rules_are_away_waits_for_them() {
    let mut stage = EngineFixture::with_host_rules(open_rules(), asking_rules());
    stage.send_prompt(WhenBusy::Refuse);
    stage.fail_request(ProviderFailure { retryable: true, overflow: false, after: Some(seconds(100)) });
    assert_eq!(stage.restart(open_rules(), ResumeMode::Go).table_cell(), "Done: booted");
    stage.now = stage.now + seconds(3_600);
    for want in ["Done: booted, run resumed", "Done: booted"] {
        assert_eq!(stage.restart(open_rules(), ResumeMode::Go).table_cell(), want);
    }
    assert_eq!(brings(&mut stage, asking_rules()), "Done: run turn_opened, run asked");
}
