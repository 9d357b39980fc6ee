use countersign_core::{
    engine::{Command, EngineReply},
    gate::{ApprovalScope as Reach, GateReply},
    id::SessionId,
    ledger::{BudgetAmount, BudgetBreach, BudgetLimits, LedgerMetric},
    message::StopReason,
    policy::{Class, Contract, ContractGap, ContractScope},
    time::Millis,
    unattended::{
        self, BreachResponse, ContractCarryover, ContractOutcome, ContractTerms, DeclareError, TermsWidening,
    },
};

use super::{contract, declare, limited, refused, spend, standing, terms, thinking, tokens, under};
use crate::{
    engine_fixture::{EngineFixture, open_rules, session_id},
    states::deny,
};

fn renegotiable() -> ContractTerms {
    ContractTerms { renegotiable: true, ..limited(BudgetLimits { tokens: Some(100), ..BudgetLimits::default() }) }
}

fn wider() -> ContractTerms {
    ContractTerms { budget: BudgetLimits { tokens: Some(200), ..BudgetLimits::default() }, ..renegotiable() }
}

#[test]
fn terms_name_everything_in_which_they_allow_more() {
    let before = limited(BudgetLimits { tokens: Some(100), calls: Some(5), ..BudgetLimits::default() });
    let narrow = ContractTerms {
        may: Contract::default(),
        ..limited(BudgetLimits { tokens: Some(1), calls: Some(1), ..BudgetLimits::default() })
    };
    let scopes = Contract { scopes: [ContractScope::Prompt, ContractScope::Admin].into(), ..terms().may };
    let commands = Contract { commands: [ContractScope::Prompt, ContractScope::Admin].into(), ..terms().may };
    let classes = Contract { classes: [Class::FileDelete, Class::FileWrite].into(), ..terms().may };
    for (case, now, want) in [
        ("the same", before.clone(), vec![]),
        ("less", narrow, vec![]),
        (
            "a scope",
            ContractTerms { may: scopes, ..before.clone() },
            vec![TermsWidening::May(ContractGap::Scope(ContractScope::Admin))],
        ),
        (
            "commands",
            ContractTerms { may: commands, ..before.clone() },
            vec![TermsWidening::May(ContractGap::Command(ContractScope::Admin))],
        ),
        (
            "a class",
            ContractTerms { may: classes, ..before.clone() },
            vec![TermsWidening::May(ContractGap::Class(Class::FileDelete))],
        ),
        (
            "limits",
            ContractTerms { budget: BudgetLimits { tokens: Some(101), ..BudgetLimits::default() }, ..before.clone() },
            vec![TermsWidening::Limit(LedgerMetric::Tokens), TermsWidening::Limit(LedgerMetric::ToolCalls)],
        ),
        (
            "what we added",
            ContractTerms { on_breach: BreachResponse::Ask, renegotiable: true, ..before.clone() },
            vec![TermsWidening::OnBreach, TermsWidening::Renegotiable],
        ),
    ] {
        assert_eq!(now.widenings_over(&before), want, "{case}");
    }
}

#[test]
fn declaring_again_may_only_narrow_and_keeps_the_meters() {
    let mut stage = thinking(limited(BudgetLimits { tokens: Some(100), ..BudgetLimits::default() }));
    spend(&mut stage, StopReason::Stop, Vec::new(), Some(tokens(40)));
    stage.now = Millis(9_000);
    let outcome = stage.send_command(declare(limited(BudgetLimits { tokens: Some(90), ..BudgetLimits::default() })));
    assert_eq!(outcome.1, Ok(EngineReply::Unattended(ContractOutcome::InForce)));
    let ledger = contract(&stage).ledger();
    assert_eq!(
        (ledger.spent(), ledger.began_at(), ledger.budget().tokens),
        (tokens(40), Some(Millis(1_000)), Some(90))
    );
    let outcome = stage.send_command(declare(limited(BudgetLimits { tokens: Some(91), ..BudgetLimits::default() })));
    assert_eq!(refused(&outcome), Some(DeclareError::Widens(vec![TermsWidening::Limit(LedgerMetric::Tokens)])));
    assert_eq!(outcome.0, Vec::<String>::new());
}

#[test]
fn narrowing_below_what_was_used_is_a_breach() {
    let mut stage = thinking(limited(BudgetLimits { tokens: Some(100), ..BudgetLimits::default() }));
    spend(&mut stage, StopReason::Stop, Vec::new(), Some(tokens(40)));
    let outcome = stage.send_command(declare(limited(BudgetLimits { tokens: Some(30), ..BudgetLimits::default() })));
    assert_eq!(outcome.0, ["unattended narrowed", "unattended breached", "unattended settled"]);
    let over = BudgetBreach { metric: LedgerMetric::Tokens, limit: 30, observed: 40 };
    assert_eq!(refused(&stage.send_command(declare(terms()))), Some(DeclareError::Over(over)));
}

fn proposed() -> (EngineFixture, countersign_core::id::GateId) {
    let mut stage = under(renegotiable(), open_rules());
    let outcome = stage.send_command(declare(wider()));
    assert_eq!(outcome.0, ["unattended proposed", r#"gate opened budget ["once"]"#]);
    let Ok(EngineReply::Unattended(ContractOutcome::Asking(gate))) = outcome.1 else { panic!("{outcome:?}") };
    (stage, gate)
}

#[test]
fn an_approver_may_widen_a_contract_if_its_first_declaration_allows() {
    let (mut stage, gate) = proposed();
    assert_eq!(contract(&stage).terms(), &renegotiable(), "nothing changes before");
    assert_eq!(refused(&stage.send_command(declare(wider()))), Some(DeclareError::ProposalPending(gate)));
    let outcome = stage.answer_gate(gate, GateReply::Allow(Reach::Once), "ana", None);
    assert_eq!(outcome.0, ["gate resolved allowed", "unattended widened"]);
    assert_eq!(contract(&stage).terms(), &wider());

    let (mut stage, gate) = proposed();
    let outcome = stage.answer_gate(gate, deny(None), "ana", None);
    assert_eq!(outcome.0, ["gate resolved denied", "unattended kept"]);
    assert_eq!((contract(&stage).terms(), standing(&stage)), (&renegotiable(), ("in force", false)));

    let (mut stage, _) = proposed();
    stage.now = stage.engine.state().next_deadline().unwrap();
    assert_eq!(stage.send_command(Command::Tick).0, ["gate resolved expired", "unattended kept"]);
}

#[test]
fn meters_go_on_in_another_session() {
    let carried = |under: &str, spent| ContractCarryover {
        under: SessionId::new(under),
        spent,
        began: Millis(400),
        declared: None,
    };
    let tell = |stage: &mut EngineFixture, carried| {
        let terms =
            Box::new(limited(BudgetLimits { tokens: Some(100), wall_time: Some(2_000), ..BudgetLimits::default() }));
        let declare = unattended::Command::Declare { session: session_id(), terms, carried: Some(carried) };
        stage.send_command(Command::Unattended(declare))
    };
    let mut stage = EngineFixture::new(open_rules());
    tell(&mut stage, carried("first", tokens(70))).1.unwrap();
    let ledger = contract(&stage).ledger();
    assert_eq!((ledger.spent(), ledger.deadline()), (tokens(70), Some(Millis(2_400))));
    // The amount that was spent here stays, despite the other session's report.
    tell(&mut stage, carried("first", BudgetAmount { calls: 3, ..tokens(60) })).1.unwrap();
    assert_eq!(contract(&stage).ledger().spent(), BudgetAmount { tokens: 70, calls: 3, cost_micros: 0 });
    assert_eq!(refused(&tell(&mut stage, carried("other", tokens(1)))), Some(DeclareError::Another));
}
