use countersign_core::{
    engine::{Command, Reply},
    gate::{self, Answer},
    ledger::{Breach, Budget, Metric},
    message::StopReason,
    policy::{Class, Contract, ContractScope as Scope, Lack},
    session::WhenBusy,
    time::Millis,
    unattended::{Need, Outcome, Terms},
};

use super::{admit, asking, contract, limited, prompting, spend, standing, terms, thinking, tokens, under};
use crate::stage::{Stage, open};

fn outcome(stage: &mut Stage, need: Need) -> (Outcome, Vec<String>) {
    let told = stage.tell(admit(need));
    match told.1 {
        Ok(Reply::Unattended(outcome)) => (outcome, told.0),
        other => panic!("{other:?}"),
    }
}

fn of(scope: Scope) -> Need {
    Need { command: "it".to_owned(), scope, takes_a_call: false, line: None }
}

fn bash(line: &str) -> Need {
    Need { command: "bash".to_owned(), scope: Scope::Bash, takes_a_call: true, line: Some(line.to_owned()) }
}

/// Scopes and classes that `bash` and prompts need, in part.
fn may(scopes: &[Scope], commands: &[Scope], classes: &[Class]) -> Terms {
    let set = |of: &[Scope]| of.iter().copied().collect();
    let classes = classes.iter().copied().collect();
    Terms { may: Contract { scopes: set(scopes), commands: set(commands), classes, tools: None }, ..terms() }
}

#[test]
fn a_command_of_the_host_needs_its_scope_and_then_its_class() {
    let lacks = Outcome::Lacks;
    for (case, terms, need, want) in [
        ("covered", may(&[Scope::Prompt], &[Scope::Prompt], &[]), prompting(), Outcome::Admitted),
        ("no scope", may(&[], &[Scope::Prompt], &[]), prompting(), lacks(Lack::Scope(Scope::Prompt))),
        ("no class", may(&[Scope::Prompt], &[], &[]), prompting(), lacks(Lack::Command(Scope::Prompt))),
        ("unknown commands", may(&[Scope::Prompt], &[], &[]), of(Scope::Admin), lacks(Lack::Scope(Scope::Admin))),
        ("a line without scope", may(&[], &[], &[Class::BashReadonly]), bash("ls"), lacks(Lack::Scope(Scope::Bash))),
        ("a line that reads", may(&[Scope::Bash], &[], &[Class::BashReadonly]), bash("ls"), Outcome::Admitted),
        (
            "a line without its class",
            may(&[Scope::Bash], &[Scope::Bash], &[]),
            bash("ls"),
            lacks(Lack::Class(Class::BashReadonly)),
        ),
        (
            "text in a shell",
            may(&[Scope::Bash], &[], &[Class::BashReadonly, Class::BashMutating]),
            bash("bash -c 'rm x'"),
            lacks(Lack::Class(Class::FileDelete)),
        ),
        (
            "eval",
            may(&[Scope::Bash], &[], &[Class::BashReadonly, Class::BashMutating]),
            bash("eval rm x"),
            lacks(Lack::Class(Class::FileDelete)),
        ),
        (
            "a branch that is deleted elsewhere",
            may(&[Scope::Bash], &[], &[Class::BashMutating]),
            bash("git push origin :x"),
            lacks(Lack::Class(Class::GitForcePush)),
        ),
        (
            "the worst of several",
            may(&[Scope::Bash], &[], &[Class::FileWrite]),
            bash("npm test > log; rm x"),
            lacks(Lack::Class(Class::FileDelete)),
        ),
    ] {
        let mut stage = under(terms, open());
        let (got, facts) = outcome(&mut stage, need.clone());
        let fact = match (&want, need.takes_a_call) {
            (Outcome::Admitted, true) => vec!["unattended counted".to_owned()],
            (Outcome::Lacks(_), _) => vec!["unattended denied".to_owned()],
            _ => Vec::new(),
        };
        assert_eq!((got, facts), (want, fact), "{case}");
    }
}

#[test]
fn the_time_comes_before_the_calls_and_those_before_scopes() {
    let budget = Budget { calls: Some(1), wall_time: Some(500), ..Budget::default() };
    let time = Breach { metric: Metric::WallTime, limit: 500, observed: 500 };
    let calls = Breach { metric: Metric::ToolCalls, limit: 1, observed: 2 };
    let no_scopes = || Terms { may: Contract::default(), ..limited(budget) };
    for (case, terms, used, late, want) in [
        ("nothing is wrong but the scope", no_scopes(), 0, false, Outcome::Lacks(Lack::Scope(Scope::Prompt))),
        ("calls and scope", no_scopes(), 1, false, Outcome::Exceeded(calls)),
        ("all three", no_scopes(), 1, true, Outcome::Exceeded(time)),
        ("all is well", limited(budget), 0, false, Outcome::Admitted),
        ("calls", limited(budget), 1, false, Outcome::Exceeded(calls)),
    ] {
        // What is used up is used under terms that cover it.
        let mut stage = under(limited(budget), open());
        for _ in 0..used {
            assert_eq!(outcome(&mut stage, prompting()).0, Outcome::Admitted, "{case}");
        }
        stage.tell(super::declare(terms));
        stage.now = Millis(stage.now.0 + if late { 500 } else { 0 });
        assert_eq!(outcome(&mut stage, prompting()).0, want, "{case}");
    }
}

#[test]
fn what_is_refused_takes_no_call() {
    let budget = Budget { calls: Some(1), ..Budget::default() };
    let mut stage = under(Terms { may: Contract::default(), ..limited(budget) }, open());
    outcome(&mut stage, prompting());
    assert_eq!(contract(&stage).ledger().spent().calls, 0);
}

#[test]
fn a_breach_is_told_once_and_what_only_reads_is_still_answered() {
    let budget = Budget { calls: Some(1), ..Budget::default() };
    let breach = Breach { metric: Metric::ToolCalls, limit: 1, observed: 2 };
    let mut stage = under(limited(budget), open());
    outcome(&mut stage, prompting());
    let first = outcome(&mut stage, prompting());
    assert_eq!(first, (Outcome::Exceeded(breach), vec!["unattended breached".into(), "unattended settled".into()]));
    assert_eq!(outcome(&mut stage, prompting()), (Outcome::Over(breach), Vec::new()));
    assert_eq!(outcome(&mut stage, of(Scope::Prompt)), (Outcome::Admitted, Vec::new()));
}

#[test]
fn while_a_person_is_asked_for_more_no_command_begins_work() {
    let budget = Budget { calls: Some(1), ..Budget::default() };
    let breach = Breach { metric: Metric::ToolCalls, limit: 1, observed: 2 };
    let mut stage = under(asking(budget), open());
    outcome(&mut stage, prompting());
    let asked = vec!["unattended breached".to_owned(), r#"gate opened budget ["once"]"#.to_owned()];
    assert_eq!(outcome(&mut stage, prompting()), (Outcome::Exceeded(breach), asked));
    assert_eq!(outcome(&mut stage, prompting()), (Outcome::Exceeded(breach), Vec::new()));
    assert_eq!(standing(&stage), ("asked", false));
}

#[test]
fn while_a_person_is_asked_for_more_time_the_host_can_still_look_and_answer() {
    let budget = Budget { wall_time: Some(500), ..Budget::default() };
    let time = Breach { metric: Metric::WallTime, limit: 500, observed: 500 };
    let mut stage = thinking(asking(budget));
    stage.now = Millis(stage.now.0 + 500);
    stage.tell(Command::Tick);
    assert_eq!(standing(&stage), ("asked", true));
    assert_eq!(outcome(&mut stage, of(Scope::Prompt)), (Outcome::Admitted, Vec::new()));
    assert_eq!(outcome(&mut stage, prompting()), (Outcome::Exceeded(time), Vec::new()));
    let gate = stage.gate();
    stage.decide(gate, Answer::Allow(gate::Scope::Once), "host", None).1.expect("it waits");
    assert_eq!(standing(&stage), ("in force", true));
}

#[test]
fn a_session_that_is_over_takes_no_prompt() {
    let mut stage = thinking(limited(Budget { tokens: Some(100), ..Budget::default() }));
    spend(&mut stage, StopReason::Stop, Vec::new(), Some(tokens(101)));
    assert_eq!(standing(&stage), ("settled", false));
    assert!(super::refused(&stage.prompt(WhenBusy::Refuse)).is_some());
}

#[test]
fn a_session_without_a_contract_admits_everything() {
    let mut stage = Stage::new(open());
    assert_eq!(outcome(&mut stage, bash("rm -rf /")), (Outcome::Admitted, Vec::new()));
}
