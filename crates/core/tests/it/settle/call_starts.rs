use countersign_core::{
    call::{CallProgress, CallResult},
    engine::{ActiveRules, Command},
    gate::{ApprovalScope, GateReply},
    id::PrincipalId,
};

use super::{facts_from, facts_with};
use crate::{
    engine_fixture::{EngineFixture, asking_rules, open_rules, rules_from, sample_message, tool_call},
    states::{calling, deny, thinking, under},
};

/// Returns the number of calls of one message that have started.
fn started(stage: &EngineFixture) -> usize {
    let is_started = |call: &&countersign_core::call::Call| !call.is_before_start() && !call.is_over();
    stage.engine.state().calls().filter(is_started).count()
}

#[test]
fn shared_calls_run_in_parallel_and_exclusive_ones_alone_and_in_order() {
    for (case, stage, want) in [
        ("one", calling(["write"]), 1),
        ("shared", calling(["look", "look", "look"]), 3),
        ("exclusive", calling(["write", "write"]), 1),
        ("exclusive behind shared", calling(["look", "look", "write"]), 2),
        ("shared behind exclusive", calling(["write", "look", "look"]), 1),
        ("exclusive between shared", calling(["look", "write", "look"]), 1),
        ("shared behind one that is asked about", under(asking_rules(), ["write", "look"]), 0),
    ] {
        assert_eq!(started(&stage), want, "{case}");
    }
}

#[test]
fn the_next_call_starts_when_its_turn_has_come() {
    for (case, tools, ends, want) in [
        ("exclusive", ["write", "write", "look"], vec![0], "call ended done, call started"),
        ("both shared ones first", ["look", "look", "write"], vec![0], "call ended done"),
        ("in any order", ["look", "look", "write"], vec![1, 0], "call ended done, call started"),
        ("exclusive, then shared", ["write", "look", "look"], vec![0], "call ended done, call started, call started"),
    ] {
        let mut stage = calling(tools);
        let outcome = ends.iter().map(|at| stage.end_call(*at)).last().unwrap();
        assert_eq!(facts_with(&outcome, "call"), want, "{case}");
    }
}

/// Returns a fixture with two exclusive calls, both allowed; the first works.
fn second_ready(rules: ActiveRules) -> EngineFixture {
    let mut stage = thinking(rules);
    stage.request_calls([tool_call("write", "a"), tool_call("write", "b")]);
    while stage.engine.state().pending_gates().next().is_some() {
        let gate = stage.oldest_gate();
        stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), "ana", None);
    }
    stage
}

#[test]
fn what_came_since_it_was_judged_wins_when_a_call_starts() {
    let gated = "call ended done, call gated";
    let denied = "call ended done, call ended denied";
    let starts = "call ended done, call started";
    for (case, before, since, want) in [
        ("nothing", open_rules(), open_rules(), starts),
        ("rules that ask", open_rules(), asking_rules(), gated),
        ("a deny", open_rules(), rules_from(&["deny write(b)"]), denied),
        ("a deny, though a person allowed it", asking_rules(), rules_from(&["deny write(b)"]), denied),
        ("rules that ask, and a person allowed it", asking_rules(), rules_from(&["ask write(b)"]), starts),
        ("an allow", asking_rules(), rules_from(&["allow write(b)"]), starts),
    ] {
        let mut stage = second_ready(before);
        stage.send_command(Command::UseRules(Box::new(since)));
        assert_eq!(facts_with(&stage.end_call(0), "call"), want, "{case}");
    }
}

#[test]
fn a_grant_that_was_revoked_since_does_not_start_a_call() {
    let mut stage = thinking(asking_rules());
    stage.request_calls([tool_call("write", "a"), tool_call("write", "a")]);
    let gate = stage.oldest_gate();
    stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Session), "ana", None);
    let grant = stage.engine.state().policy().grants().iter().next().unwrap().id;
    stage.send_command(Command::Revoke { grant, by: PrincipalId::new("ana") });
    assert_eq!(facts_with(&stage.end_call(0), "call"), "call ended done, call gated");
}

#[test]
fn a_persons_denial_of_the_same_thing_wins_over_an_earlier_allow() {
    let mut stage = thinking(asking_rules());
    stage.request_calls([tool_call("write", "x"), tool_call("write", "a"), tool_call("write", "a")]);
    for answer in [GateReply::Allow(ApprovalScope::Once), GateReply::Allow(ApprovalScope::Once), deny(None)] {
        let gate = stage.oldest_gate();
        stage.answer_gate(gate, answer, "ana", None);
    }
    assert_eq!(facts_with(&stage.end_call(0), "call"), "call ended done, call ended denied");
}

#[test]
fn an_approval_holds_for_the_folder_that_was_shown() {
    for (case, folder, want) in [("stayed", "/w", "call started"), ("went elsewhere", "/x", "call gated")] {
        let mut stage = thinking(asking_rules());
        stage.request_calls([tool_call("bash", "make"), tool_call("bash", "make install")]);
        for _ in 0..2 {
            let gate = stage.oldest_gate();
            stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), "ana", None);
        }
        let folder = Some(folder.to_owned());
        let returned = CallResult {
            message: sample_message(1),
            error: false,
            open_tasks: None,
            folder,
            prunable: false,
            left_behind: None,
        };
        let outcome = stage.end_with(0, CallProgress::Returned(Box::new(returned)));
        assert_eq!(facts_with(&outcome, "call"), format!("call ended done, {want}"), "{case}");
    }
}

#[test]
fn nothing_starts_while_the_process_closes() {
    let mut stage = second_ready(open_rules());
    stage.engine.quiesce();
    assert_eq!(facts_with(&stage.end_call(0), "call"), "call ended done");
}

#[test]
fn a_call_starts_once() {
    let mut stage = calling(["write"]);
    for command in
        [Command::Tick, Command::UseRules(Box::new(asking_rules())), Command::UseRules(Box::new(open_rules()))]
    {
        assert_eq!(facts_from(&stage.send_command(command), "call"), "");
    }
    assert_eq!(started(&stage), 1);
}
