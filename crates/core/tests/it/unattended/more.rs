use countersign_core::{
    engine::{Command, ResumeMode},
    gate::{ApprovalScope, GateContent, GateReply},
    ledger::{BudgetLimits, LedgerMetric},
    message::StopReason,
    time::Millis,
    unattended::{self, ContractCarryover, ContractTerms},
};

use super::{asking, contract, declare, held, spend, standing, thinking, tokens};
use crate::{
    engine_fixture::{EngineFixture, open_rules, tool_call},
    states::deny,
};

fn started(stage: &EngineFixture) -> usize {
    stage.engine.state().calls().filter(|call| !call.is_before_start()).count()
}

#[test]
fn nothing_new_begins_while_a_person_thinks_about_more_and_what_runs_may_end() {
    let mut stage = held();
    assert_eq!(started(&stage), 1);
    let outcome = stage.end_call(0);
    assert_eq!(outcome.0, ["session entry tool_result", "call ended done"]);
    assert_eq!((started(&stage), standing(&stage)), (1, ("asked", true)));
}

#[test]
fn the_approver_reads_the_used_budget_and_the_requested_one() {
    let stage = held();
    let content = stage.engine.admitted().gate_content(stage.oldest_gate()).unwrap();
    assert_eq!(
        **content,
        GateContent::GoOn {
            asker: "ci".to_owned(),
            question: "May it go on, with 1 tool calls more?".to_owned(),
            why: Some("because its tool call budget of 1 tool calls is used up".to_owned()),
            about: serde_json::Map::new(),
        }
    );
}

#[test]
fn with_more_the_run_goes_on_where_it_was() {
    let mut stage = held();
    let gate = stage.oldest_gate();
    let outcome = stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), "ana", None);
    assert_eq!(outcome.0, ["gate resolved allowed", "unattended extended", "call started"]);
    assert_eq!(contract(&stage).ledger().budget().calls, Some(2));
    assert_eq!(standing(&stage), ("in force", true));
}

#[test]
fn saying_the_same_again_takes_nothing_back() {
    let mut stage = held();
    let declared = contract(&stage).terms().clone();
    let gate = stage.oldest_gate();
    stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), "ana", None);
    let calls = |stage: &EngineFixture| contract(stage).ledger().budget().calls;
    for round in 0..2 {
        let outcome = stage.send_command(declare(declared.clone()));
        assert_eq!(outcome.0, ["unattended narrowed"], "{round}");
        assert_eq!((calls(&stage), standing(&stage)), (Some(2), ("in force", true)), "{round}");
    }
    // Repeating the terms in force declares exactly these, and less later on is less.
    let given = contract(&stage).terms().clone();
    stage.send_command(declare(given));
    stage.send_command(declare(declared.clone()));
    assert_eq!(calls(&stage), Some(1));
    let less = BudgetLimits { calls: Some(0), ..declared.budget };
    stage.send_command(declare(ContractTerms { budget: less, ..declared.clone() }));
    assert_eq!(calls(&stage), Some(0), "whoever says less gets less");
}

#[test]
fn nor_in_a_session_that_took_its_place() {
    let mut stage = held();
    let declared = contract(&stage).terms().clone();
    let gate = stage.oldest_gate();
    stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), "ana", None);
    let found = contract(&stage);
    let narrower = found.narrower_terms().cloned();
    assert_eq!(narrower.as_ref(), Some(&declared));
    let carried = ContractCarryover {
        under: found.declared_in().clone(),
        spent: found.ledger().total_taken(),
        began: Millis(1_000),
        declared: narrower.map(Box::new),
    };
    let mut next = EngineFixture::new(open_rules());
    let (session, terms) = (crate::engine_fixture::session_id(), Box::new(found.terms().clone()));
    next.send_command(Command::Unattended(unattended::Command::Declare { session, terms, carried: Some(carried) }));
    assert_eq!(next.send_command(declare(declared)).0, ["unattended narrowed"]);
    assert_eq!(contract(&next).ledger().budget().calls, Some(2));
}

#[test]
fn without_more_it_ends() {
    let ends = ["unattended ended", "run aborting", "call aborting"];
    let mut denied = held();
    let gate = denied.oldest_gate();
    let outcome = denied.answer_gate(gate, deny(None), "ana", None);
    assert_eq!(outcome.0[1..], ends);
    assert_eq!(standing(&denied), ("over", true));

    let mut expired = held();
    expired.now = expired.engine.state().next_deadline().unwrap();
    let outcome = expired.send_command(Command::Tick);
    assert_eq!(outcome.0[0], "gate resolved expired");
    assert_eq!(outcome.0[1..], ends);
}

#[test]
fn stopping_the_run_withdraws_the_question() {
    let mut stage = held();
    let outcome = stage.abort();
    assert_eq!(outcome.0, ["gate resolved withdrawn", "run aborting", "unattended ended", "call aborting"]);
}

#[test]
fn the_model_request_starts_once_the_budget_is_raised() {
    let mut stage = thinking(asking(BudgetLimits { tokens: Some(50), ..BudgetLimits::default() }));
    spend(&mut stage, StopReason::ToolUse, vec![tool_call("look", "a")], Some(tokens(50)));
    stage.end_call(0);
    assert_eq!(standing(&stage), ("asked", true));
    let gate = stage.oldest_gate();
    let outcome = stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), "ana", None);
    assert_eq!(outcome.0, ["gate resolved allowed", "unattended extended", "run asked"]);
    assert_eq!(contract(&stage).ledger().budget().tokens, Some(100));
}

#[test]
fn time_is_given_from_when_a_person_gave_it() {
    let mut stage = thinking(asking(BudgetLimits { wall_time: Some(500), ..BudgetLimits::default() }));
    stage.now = Millis(1_500);
    stage.send_command(Command::Tick);
    assert_eq!(standing(&stage), ("asked", true));
    stage.now = Millis(4_000);
    let gate = stage.oldest_gate();
    stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), "ana", None);
    assert_eq!(standing(&stage), ("in force", true));
    assert_eq!(contract(&stage).ledger().amount_left(LedgerMetric::WallTime, stage.now), Some(500));
    assert_eq!(stage.engine.state().next_deadline(), Some(Millis(4_500)));
}

#[test]
fn after_a_restart_the_question_waits_and_the_run_goes_on_with_its_answer() {
    let mut stage = thinking(asking(BudgetLimits { tokens: Some(50), ..BudgetLimits::default() }));
    spend(&mut stage, StopReason::ToolUse, vec![tool_call("look", "a")], Some(tokens(50)));
    stage.end_call(0);
    stage.restart(open_rules(), ResumeMode::Wait);
    let gate = stage.oldest_gate();
    let outcome = stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), "ana", None);
    assert_eq!(outcome.0, ["gate resolved allowed", "unattended extended", "run asked"]);
}

#[test]
fn an_agent_gives_itself_nothing() {
    let mut stage = held();
    let gate = stage.oldest_gate();
    assert!(stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), "agent", None).1.is_err());
}
