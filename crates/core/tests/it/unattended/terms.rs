use countersign_core::{
    engine::{Command, Reply},
    gate::{Answer, Scope as Reach},
    id::SessionId,
    ledger::{Amount, Breach, Budget, Metric},
    message::StopReason,
    policy::{Class, Contract, ContractScope as Scope, Lack},
    time::Millis,
    unattended::{self, Carried, OnBreach, Outcome, Refusal, Terms, Widening},
};

use super::{contract, declare, limited, refused, spend, standing, terms, thinking, tokens, under};
use crate::{
    stage::{Stage, open, session},
    states::deny,
};

fn renegotiable() -> Terms {
    Terms { renegotiable: true, ..limited(Budget { tokens: Some(100), ..Budget::default() }) }
}

fn wider() -> Terms {
    Terms { budget: Budget { tokens: Some(200), ..Budget::default() }, ..renegotiable() }
}

#[test]
fn terms_name_everything_in_which_they_allow_more() {
    let before = limited(Budget { tokens: Some(100), calls: Some(5), ..Budget::default() });
    let narrow =
        Terms { may: Contract::default(), ..limited(Budget { tokens: Some(1), calls: Some(1), ..Budget::default() }) };
    let scopes = Contract { scopes: [Scope::Prompt, Scope::Admin].into(), ..terms().may };
    let commands = Contract { commands: [Scope::Prompt, Scope::Admin].into(), ..terms().may };
    let classes = Contract { classes: [Class::FileDelete, Class::FileWrite].into(), ..terms().may };
    for (case, now, want) in [
        ("the same", before.clone(), vec![]),
        ("less", narrow, vec![]),
        ("a scope", Terms { may: scopes, ..before.clone() }, vec![Widening::May(Lack::Scope(Scope::Admin))]),
        ("commands", Terms { may: commands, ..before.clone() }, vec![Widening::May(Lack::Command(Scope::Admin))]),
        ("a class", Terms { may: classes, ..before.clone() }, vec![Widening::May(Lack::Class(Class::FileDelete))]),
        (
            "limits",
            Terms { budget: Budget { tokens: Some(101), ..Budget::default() }, ..before.clone() },
            vec![Widening::Limit(Metric::Tokens), Widening::Limit(Metric::ToolCalls)],
        ),
        (
            "what we added",
            Terms { on_breach: OnBreach::Ask, renegotiable: true, ..before.clone() },
            vec![Widening::OnBreach, Widening::Renegotiable],
        ),
    ] {
        assert_eq!(now.beyond(&before), want, "{case}");
    }
}

#[test]
fn declaring_again_may_only_narrow_and_keeps_the_meters() {
    let mut stage = thinking(limited(Budget { tokens: Some(100), ..Budget::default() }));
    spend(&mut stage, StopReason::Stop, Vec::new(), Some(tokens(40)));
    stage.now = Millis(9_000);
    let told = stage.tell(declare(limited(Budget { tokens: Some(90), ..Budget::default() })));
    assert_eq!(told.1, Ok(Reply::Unattended(Outcome::InForce)));
    let ledger = contract(&stage).ledger();
    assert_eq!((ledger.spent(), ledger.began(), ledger.budget().tokens), (tokens(40), Some(Millis(1_000)), Some(90)));
    let told = stage.tell(declare(limited(Budget { tokens: Some(91), ..Budget::default() })));
    assert_eq!(refused(&told), Some(Refusal::Widens(vec![Widening::Limit(Metric::Tokens)])));
    assert_eq!(told.0, Vec::<String>::new());
}

#[test]
fn narrowing_below_what_was_used_is_a_breach() {
    let mut stage = thinking(limited(Budget { tokens: Some(100), ..Budget::default() }));
    spend(&mut stage, StopReason::Stop, Vec::new(), Some(tokens(40)));
    let told = stage.tell(declare(limited(Budget { tokens: Some(30), ..Budget::default() })));
    assert_eq!(told.0, ["unattended narrowed", "unattended breached", "unattended settled"]);
    let over = Breach { metric: Metric::Tokens, limit: 30, observed: 40 };
    assert_eq!(refused(&stage.tell(declare(terms()))), Some(Refusal::Over(over)));
}

fn proposed() -> (Stage, countersign_core::id::GateId) {
    let mut stage = under(renegotiable(), open());
    let told = stage.tell(declare(wider()));
    assert_eq!(told.0, ["unattended proposed", r#"gate opened budget ["once"]"#]);
    let Ok(Reply::Unattended(Outcome::Asking(gate))) = told.1 else { panic!("{told:?}") };
    (stage, gate)
}

#[test]
fn where_the_first_declaration_said_so_a_person_may_widen_it() {
    let (mut stage, gate) = proposed();
    assert_eq!(contract(&stage).terms(), &renegotiable(), "nothing changes before");
    assert_eq!(refused(&stage.tell(declare(wider()))), Some(Refusal::Asked(gate)));
    let told = stage.decide(gate, Answer::Allow(Reach::Once), "ana", None);
    assert_eq!(told.0, ["gate resolved allowed", "unattended widened"]);
    assert_eq!(contract(&stage).terms(), &wider());

    let (mut stage, gate) = proposed();
    let told = stage.decide(gate, deny(None), "ana", None);
    assert_eq!(told.0, ["gate resolved denied", "unattended kept"]);
    assert_eq!((contract(&stage).terms(), standing(&stage)), (&renegotiable(), ("in force", false)));

    let (mut stage, _) = proposed();
    stage.now = stage.engine.state().next_deadline().unwrap();
    assert_eq!(stage.tell(Command::Tick).0, ["gate resolved expired", "unattended kept"]);
}

#[test]
fn meters_go_on_in_another_session() {
    let carried =
        |under: &str, spent| Carried { under: SessionId::new(under), spent, began: Millis(400), declared: None };
    let tell = |stage: &mut Stage, carried| {
        let terms = Box::new(limited(Budget { tokens: Some(100), wall_time: Some(2_000), ..Budget::default() }));
        let declare = unattended::Command::Declare { session: session(), terms, carried: Some(carried) };
        stage.tell(Command::Unattended(declare))
    };
    let mut stage = Stage::new(open());
    tell(&mut stage, carried("first", tokens(70))).1.unwrap();
    let ledger = contract(&stage).ledger();
    assert_eq!((ledger.spent(), ledger.deadline()), (tokens(70), Some(Millis(2_400))));
    // What was spent here is not forgotten, whatever the other session says.
    tell(&mut stage, carried("first", Amount { calls: 3, ..tokens(60) })).1.unwrap();
    assert_eq!(contract(&stage).ledger().spent(), Amount { tokens: 70, calls: 3, cost_micros: 0 });
    assert_eq!(refused(&tell(&mut stage, carried("other", tokens(1)))), Some(Refusal::Another));
}
