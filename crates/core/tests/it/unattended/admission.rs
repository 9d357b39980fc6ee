use countersign_core::{
    engine::{Command, EngineReply},
    gate::{self, GateReply},
    ledger::{BudgetBreach, BudgetLimits, LedgerMetric},
    message::StopReason,
    policy::{Class, Contract, ContractGap, ContractScope},
    session::WhenBusy,
    time::Millis,
    unattended::{ContractOutcome, ContractTerms, HostCommandNeeds},
};

use super::{admit, asking, contract, limited, prompting, spend, standing, terms, thinking, tokens, under};
use crate::engine_fixture::{EngineFixture, open_rules};

fn outcome(stage: &mut EngineFixture, need: HostCommandNeeds) -> (ContractOutcome, Vec<String>) {
    let response = stage.send_command(admit(need));
    match response.1 {
        Ok(EngineReply::Unattended(outcome)) => (outcome, response.0),
        other => panic!("{other:?}"),
    }
}

fn of(scope: ContractScope) -> HostCommandNeeds {
    HostCommandNeeds { command: "it".to_owned(), scope, takes_a_call: false, line: None }
}

fn bash(line: &str) -> HostCommandNeeds {
    HostCommandNeeds {
        command: "bash".to_owned(),
        scope: ContractScope::Bash,
        takes_a_call: true,
        line: Some(line.to_owned()),
    }
}

/// Scopes and classes that `bash` and prompts need, in part.
fn may(scopes: &[ContractScope], commands: &[ContractScope], classes: &[Class]) -> ContractTerms {
    let set = |of: &[ContractScope]| of.iter().copied().collect();
    let classes = classes.iter().copied().collect();
    ContractTerms {
        may: Contract { scopes: set(scopes), commands: set(commands), classes, tools: None, servers: false },
        ..terms()
    }
}

#[test]
fn a_command_of_the_host_needs_its_scope_and_then_its_class() {
    let lacks = ContractOutcome::Lacks;
    for (case, terms, need, want) in [
        (
            "covered",
            may(&[ContractScope::Prompt], &[ContractScope::Prompt], &[]),
            prompting(),
            ContractOutcome::Admitted,
        ),
        (
            "no scope",
            may(&[], &[ContractScope::Prompt], &[]),
            prompting(),
            lacks(ContractGap::Scope(ContractScope::Prompt)),
        ),
        (
            "no class",
            may(&[ContractScope::Prompt], &[], &[]),
            prompting(),
            lacks(ContractGap::Command(ContractScope::Prompt)),
        ),
        (
            "unknown commands",
            may(&[ContractScope::Prompt], &[], &[]),
            of(ContractScope::Admin),
            lacks(ContractGap::Scope(ContractScope::Admin)),
        ),
        (
            "a line without scope",
            may(&[], &[], &[Class::BashReadonly]),
            bash("ls"),
            lacks(ContractGap::Scope(ContractScope::Bash)),
        ),
        (
            "a line that reads",
            may(&[ContractScope::Bash], &[], &[Class::BashReadonly]),
            bash("ls"),
            ContractOutcome::Admitted,
        ),
        (
            "a line without its class",
            may(&[ContractScope::Bash], &[ContractScope::Bash], &[]),
            bash("ls"),
            lacks(ContractGap::Class(Class::BashReadonly)),
        ),
        (
            "text in a shell",
            may(&[ContractScope::Bash], &[], &[Class::BashReadonly, Class::BashMutating]),
            bash("bash -c 'rm x'"),
            lacks(ContractGap::Class(Class::FileDelete)),
        ),
        (
            "eval",
            may(&[ContractScope::Bash], &[], &[Class::BashReadonly, Class::BashMutating]),
            bash("eval rm x"),
            lacks(ContractGap::Class(Class::FileDelete)),
        ),
        (
            "a branch that is deleted elsewhere",
            may(&[ContractScope::Bash], &[], &[Class::BashMutating]),
            bash("git push origin :x"),
            lacks(ContractGap::Class(Class::GitForcePush)),
        ),
        (
            "the worst of several",
            may(&[ContractScope::Bash], &[], &[Class::FileWrite]),
            bash("npm test > log; rm x"),
            lacks(ContractGap::Class(Class::FileDelete)),
        ),
    ] {
        let mut stage = under(terms, open_rules());
        let (got, facts) = outcome(&mut stage, need.clone());
        let fact = match (&want, need.takes_a_call) {
            (ContractOutcome::Admitted, true) => vec!["unattended counted".to_owned()],
            (ContractOutcome::Lacks(_), _) => vec!["unattended denied".to_owned()],
            _ => Vec::new(),
        };
        assert_eq!((got, facts), (want, fact), "{case}");
    }
}

#[test]
fn the_time_comes_before_the_calls_and_those_before_scopes() {
    let budget = BudgetLimits { calls: Some(1), wall_time: Some(500), ..BudgetLimits::default() };
    let time = BudgetBreach { metric: LedgerMetric::WallTime, limit: 500, observed: 500 };
    let calls = BudgetBreach { metric: LedgerMetric::ToolCalls, limit: 1, observed: 2 };
    let no_scopes = || ContractTerms { may: Contract::default(), ..limited(budget) };
    for (case, terms, used, late, want) in [
        (
            "nothing is wrong but the scope",
            no_scopes(),
            0,
            false,
            ContractOutcome::Lacks(ContractGap::Scope(ContractScope::Prompt)),
        ),
        ("calls and scope", no_scopes(), 1, false, ContractOutcome::Exceeded(calls)),
        ("all three", no_scopes(), 1, true, ContractOutcome::Exceeded(time)),
        ("all is well", limited(budget), 0, false, ContractOutcome::Admitted),
        ("calls", limited(budget), 1, false, ContractOutcome::Exceeded(calls)),
    ] {
        // A used-up budget belongs to terms that cover the use.
        let mut stage = under(limited(budget), open_rules());
        for _ in 0..used {
            assert_eq!(outcome(&mut stage, prompting()).0, ContractOutcome::Admitted, "{case}");
        }
        stage.send_command(super::declare(terms));
        stage.now = Millis(stage.now.0 + if late { 500 } else { 0 });
        assert_eq!(outcome(&mut stage, prompting()).0, want, "{case}");
    }
}

#[test]
fn what_is_refused_takes_no_call() {
    let budget = BudgetLimits { calls: Some(1), ..BudgetLimits::default() };
    let mut stage = under(ContractTerms { may: Contract::default(), ..limited(budget) }, open_rules());
    outcome(&mut stage, prompting());
    assert_eq!(contract(&stage).ledger().spent().calls, 0);
}

#[test]
fn a_breach_is_reported_once_and_reads_are_still_answered() {
    let budget = BudgetLimits { calls: Some(1), ..BudgetLimits::default() };
    let breach = BudgetBreach { metric: LedgerMetric::ToolCalls, limit: 1, observed: 2 };
    let mut stage = under(limited(budget), open_rules());
    outcome(&mut stage, prompting());
    let first = outcome(&mut stage, prompting());
    assert_eq!(
        first,
        (ContractOutcome::Exceeded(breach), vec!["unattended breached".into(), "unattended settled".into()])
    );
    assert_eq!(outcome(&mut stage, prompting()), (ContractOutcome::Over(breach), Vec::new()));
    assert_eq!(outcome(&mut stage, of(ContractScope::Prompt)), (ContractOutcome::Admitted, Vec::new()));
}

#[test]
fn while_more_budget_is_requested_no_command_begins_work() {
    let budget = BudgetLimits { calls: Some(1), ..BudgetLimits::default() };
    let breach = BudgetBreach { metric: LedgerMetric::ToolCalls, limit: 1, observed: 2 };
    let mut stage = under(asking(budget), open_rules());
    outcome(&mut stage, prompting());
    let question_facts = vec!["unattended breached".to_owned(), r#"gate opened budget ["once"]"#.to_owned()];
    assert_eq!(outcome(&mut stage, prompting()), (ContractOutcome::Exceeded(breach), question_facts));
    assert_eq!(outcome(&mut stage, prompting()), (ContractOutcome::Exceeded(breach), Vec::new()));
    assert_eq!(standing(&stage), ("asked", false));
}

#[test]
fn while_more_time_is_requested_the_host_can_still_read_and_answer() {
    let budget = BudgetLimits { wall_time: Some(500), ..BudgetLimits::default() };
    let time = BudgetBreach { metric: LedgerMetric::WallTime, limit: 500, observed: 500 };
    let mut stage = thinking(asking(budget));
    stage.now = Millis(stage.now.0 + 500);
    stage.send_command(Command::Tick);
    assert_eq!(standing(&stage), ("asked", true));
    assert_eq!(outcome(&mut stage, of(ContractScope::Prompt)), (ContractOutcome::Admitted, Vec::new()));
    assert_eq!(outcome(&mut stage, prompting()), (ContractOutcome::Exceeded(time), Vec::new()));
    let gate = stage.oldest_gate();
    stage.answer_gate(gate, GateReply::Allow(gate::ApprovalScope::Once), "host", None).1.expect("it waits");
    assert_eq!(standing(&stage), ("in force", true));
}

#[test]
fn a_session_that_is_over_takes_no_prompt() {
    let mut stage = thinking(limited(BudgetLimits { tokens: Some(100), ..BudgetLimits::default() }));
    spend(&mut stage, StopReason::Stop, Vec::new(), Some(tokens(101)));
    assert_eq!(standing(&stage), ("settled", false));
    assert!(super::refused(&stage.send_prompt(WhenBusy::Refuse)).is_some());
}

#[test]
fn a_session_without_a_contract_admits_everything() {
    let mut stage = EngineFixture::new(open_rules());
    assert_eq!(outcome(&mut stage, bash("rm -rf /")), (ContractOutcome::Admitted, Vec::new()));
}
