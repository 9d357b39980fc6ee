//! Rules that name required approvers: several people, particular ones, others after a while.

use std::{sync::Arc, time::Duration};

use countersign_core::{
    engine::{ActiveRules, Command, CommandError, EngineReply, ResumeMode},
    gate::{
        self, AnswerError, ApprovalScope, ApprovalStep, GatePhase, GateReply, GateResolution, IdentityMap, OnExpiry,
    },
    id::{GateId, PrincipalId},
    policy::{DefaultPolicy, RuleLayer, RuleSource, compile_rules},
};
use serde_json::json;

use crate::{
    agent_requests::{agents, request, results},
    engine_fixture::{EngineFixture, EngineOutcome, asking_rules},
    states::deny,
};

const ALLOW: GateReply = GateReply::Allow(ApprovalScope::Once);

/// Returns a gateway whose one rule asks in these steps. Ana has two identities, Ben and Cleo one each.
fn rules(steps: &[ApprovalStep]) -> ActiveRules {
    let mut read: countersign_core::policy::RuleSet =
        serde_json::from_value(json!({ "rules": [{ "pattern": "write(*)", "action": "ask" }] })).expect("rules");
    read.rules[0].steps = steps.to_vec();
    let source = RuleSource { name: "permissions.yaml".to_owned(), layer: RuleLayer::Main, rules: read };
    let people = [("ana", &["chat:ana", "console:ana"][..]), ("ben", &["chat:ben"]), ("cleo", &["chat:cleo"])];
    let people = people.map(|(person, all)| (person.to_owned(), all.iter().map(|one| PrincipalId::new(*one))));
    let compiled = compile_rules(vec![source]).expect("the steps make sense");
    ActiveRules { compiled, default_policy: DefaultPolicy::Gateway, people: IdentityMap::new(people), ..asking_rules() }
}

fn step(approvals: u32, from: &[&str], seconds: u64, on_expiry: OnExpiry) -> ApprovalStep {
    let from = (!from.is_empty()).then(|| Arc::new(from.iter().map(|&one| one.to_owned()).collect()));
    let within = (seconds > 0).then(|| Duration::from_secs(seconds));
    ApprovalStep { approvals, from, within, on_expiry }
}

fn pending_gate(steps: &[ApprovalStep]) -> (EngineFixture, GateId) {
    let mut stage = agents(rules(steps), 10);
    request(&mut stage, "1", "a");
    let gate = stage.oldest_gate();
    (stage, gate)
}

/// Returns the outcome of an answer, in a word or two.
fn word(outcome: &EngineOutcome) -> String {
    match &outcome.1 {
        Ok(EngineReply::Voted { have, need }) => format!("{have} of {need}"),
        Ok(EngineReply::Resolved(GateResolution::Allowed { .. })) => "allowed".to_owned(),
        Ok(EngineReply::Resolved(GateResolution::Denied)) => "denied".to_owned(),
        Err(CommandError::Answer(AnswerError::NotAmong { .. })) => "not among".to_owned(),
        Err(CommandError::Answer(AnswerError::Nobody { .. })) => "nobody".to_owned(),
        Err(CommandError::Answer(AnswerError::AlreadyResolved { .. })) => "late".to_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn votes_count_people_and_not_accounts() {
    let two = step(2, &[], 0, OnExpiry::Deny);
    let named = step(2, &["ana", "ben"], 0, OnExpiry::Deny);
    let one = step(1, &["cleo"], 0, OnExpiry::Deny);
    for (case, step, answers) in [
        ("two people", &two, vec![("chat:ana", ALLOW, "1 of 2"), ("chat:ben", ALLOW, "allowed")]),
        (
            "one with two accounts",
            &two,
            vec![
                ("chat:ana", ALLOW, "1 of 2"),
                ("console:ana", ALLOW, "1 of 2"),
                ("chat:ana", ALLOW, "1 of 2"),
                ("chat:ben", ALLOW, "allowed"),
            ],
        ),
        (
            "who belongs to nobody may only be the first",
            &two,
            vec![("local:0", ALLOW, "1 of 2"), ("local:1", ALLOW, "nobody"), ("chat:ben", ALLOW, "allowed")],
        ),
        ("never the second", &two, vec![("chat:ana", ALLOW, "1 of 2"), ("local:0", ALLOW, "nobody")]),
        ("the first denial wins", &two, vec![("chat:ana", ALLOW, "1 of 2"), ("local:0", deny(None), "denied")]),
        (
            "also one's own",
            &two,
            vec![("chat:ana", ALLOW, "1 of 2"), ("chat:ana", deny(None), "denied"), ("chat:ben", ALLOW, "late")],
        ),
        (
            "only those that are named",
            &named,
            vec![
                ("chat:cleo", ALLOW, "not among"),
                ("local:0", ALLOW, "not among"),
                ("chat:ben", ALLOW, "1 of 2"),
                ("console:ana", ALLOW, "allowed"),
            ],
        ),
        ("anybody may deny", &named, vec![("chat:cleo", deny(None), "denied")]),
        ("one that is named", &one, vec![("chat:ana", ALLOW, "not among"), ("chat:cleo", ALLOW, "allowed")]),
    ] {
        let (mut stage, gate) = pending_gate(std::slice::from_ref(step));
        for (by, answer, want) in answers {
            let outcome = stage.answer_gate(gate, answer, by, None);
            assert_eq!(word(&outcome), want, "{case}: {by}");
        }
    }
}

#[test]
fn an_answer_with_the_key_of_a_vote_counts_once_before_and_after_the_end() {
    let (mut stage, gate) = pending_gate(&[step(2, &[], 0, OnExpiry::Deny)]);
    for _ in 0..2 {
        assert_eq!(word(&stage.answer_gate(gate, ALLOW, "local:0", Some("k1"))), "1 of 2");
    }
    for _ in 0..2 {
        assert_eq!(word(&stage.answer_gate(gate, ALLOW, "chat:ben", Some("k2"))), "allowed");
    }
    assert_eq!(word(&stage.answer_gate(gate, ALLOW, "local:0", Some("k1"))), "allowed", "it was counted");
}

#[test]
fn votes_survive_a_restart() {
    let steps = [step(2, &[], 0, OnExpiry::Deny)];
    let (mut stage, gate) = pending_gate(&steps);
    stage.answer_gate(gate, ALLOW, "chat:ana", None);
    stage.restart(rules(&steps), ResumeMode::Wait);
    assert_eq!(word(&stage.answer_gate(gate, ALLOW, "console:ana", None)), "1 of 2");
    assert_eq!(word(&stage.answer_gate(gate, ALLOW, "chat:ben", None)), "allowed");
}

#[test]
fn no_grant_stands_for_those_who_have_to_allow() {
    let (mut stage, gate) = pending_gate(&[]);
    let always = GateReply::Allow(ApprovalScope::Always);
    assert_eq!(word(&stage.answer_gate(gate, always, "chat:ana", None)), "allowed");
    stage.restart(rules(&[step(1, &["ben"], 0, OnExpiry::Deny)]), ResumeMode::Wait);
    request(&mut stage, "2", "a");
    let gate = stage.oldest_gate();
    let offered = stage.engine.state().gate(gate).map(|gate| gate.scopes().to_vec());
    assert_eq!(offered, Some(vec![ApprovalScope::Once]), "and nothing more than this once is offered");
    assert_eq!(word(&stage.answer_gate(gate, ALLOW, "chat:ana", None)), "not among");
}

/// Lets time pass until `seconds` after the start, and returns the state of the gate.
fn at(stage: &mut EngineFixture, gate: GateId, seconds: u64) -> String {
    stage.now = countersign_core::time::Millis(1_000 + seconds * 1_000);
    stage.send_command(Command::Tick);
    let gate = stage.engine.state().gate(gate).expect("it is at hand");
    match gate.phase() {
        GatePhase::Pending => format!("step {} round {}", gate.step_of().0, gate.round()),
        GatePhase::Resolved { resolution, .. } => format!("{resolution:?}"),
    }
}

#[test]
fn a_step_that_expires_does_what_it_says() {
    let first = |on_expiry| step(2, &["ana", "ben"], 60, on_expiry);
    let last = step(1, &["cleo"], 30, OnExpiry::Deny);
    for (case, steps, want) in [
        ("denies", vec![first(OnExpiry::Deny), last.clone()], vec![(59, "step 1 round 0"), (60, "Expired")]),
        (
            "asks others",
            vec![first(OnExpiry::Next), last.clone()],
            vec![(60, "step 2 round 1"), (89, "step 2 round 1"), (90, "Expired")],
        ),
        (
            "asks again, and again",
            vec![first(OnExpiry::Again(2))],
            vec![(60, "step 1 round 1"), (120, "step 1 round 2"), (180, "Expired")],
        ),
    ] {
        let (mut stage, gate) = pending_gate(&steps);
        for (seconds, want) in want {
            assert_eq!(at(&mut stage, gate, seconds), want, "{case} at {seconds}");
        }
        assert_eq!(results(&stage), ["Expired"], "{case}");
    }
}

#[test]
fn other_approvers_start_over_and_the_same_ones_continue() {
    let next = step(2, &["ben", "cleo"], 60, OnExpiry::Deny);
    let (mut stage, gate) = pending_gate(&[step(2, &["ana", "ben"], 60, OnExpiry::Next), next]);
    stage.answer_gate(gate, ALLOW, "chat:ben", None);
    at(&mut stage, gate, 60);
    assert_eq!(word(&stage.answer_gate(gate, ALLOW, "chat:ana", None)), "not among");
    assert_eq!(
        word(&stage.answer_gate(gate, ALLOW, "chat:cleo", None)),
        "1 of 2",
        "what was allowed before is another step's"
    );
    assert_eq!(word(&stage.answer_gate(gate, ALLOW, "chat:ben", None)), "allowed");

    let (mut stage, gate) = pending_gate(&[step(2, &["ana", "ben"], 60, OnExpiry::Again(1))]);
    stage.answer_gate(gate, ALLOW, "chat:ben", None);
    at(&mut stage, gate, 60);
    assert_eq!(word(&stage.answer_gate(gate, ALLOW, "chat:ana", None)), "allowed");
}

#[test]
fn rules_that_came_while_it_waited_ask_those_whom_they_name() {
    let ben = [step(1, &["ben"], 0, OnExpiry::Deny)];
    for (case, before, after, by, starts) in [
        ("stricter", vec![], ben.to_vec(), "chat:ana", false),
        ("stricter, by one who counts now", vec![], ben.to_vec(), "chat:ben", false),
        ("the same", ben.to_vec(), ben.to_vec(), "chat:ben", true),
        ("milder", ben.to_vec(), vec![], "chat:ben", true),
        ("of a wider set", ben.to_vec(), vec![step(1, &["ana", "ben"], 0, OnExpiry::Deny)], "chat:ben", true),
    ] {
        let (mut stage, gate) = pending_gate(&before);
        stage.send_command(Command::UseRules(Box::new(rules(&after)))).1.expect("they make sense");
        assert_eq!(word(&stage.answer_gate(gate, ALLOW, by, None)), "allowed", "{case}");
        stage.send_command(Command::Tick);
        let waits = stage.engine.state().pending_gates().next().map(|gate| gate.current_step().is_some());
        assert_eq!(waits, (!starts).then_some(true), "{case}: those who have to are asked");
    }
}

#[test]
fn a_vote_of_somebody_whose_account_it_no_longer_is_does_not_count() {
    let two = [step(2, &["ana", "ben", "cleo"], 0, OnExpiry::Deny)];
    let (mut stage, gate) = pending_gate(&two);
    stage.answer_gate(gate, ALLOW, "chat:ben", None);
    let without_ben =
        ActiveRules { people: IdentityMap::new([("ana".to_owned(), [PrincipalId::new("chat:ana")])]), ..rules(&two) };
    stage.send_command(Command::UseRules(Box::new(without_ben))).1.expect("they make sense");
    assert_eq!(word(&stage.answer_gate(gate, ALLOW, "chat:ana", None)), "1 of 2");
}

#[test]
fn every_round_can_be_shown() {
    let (mut stage, gate) = pending_gate(&[step(1, &["ana"], 60, OnExpiry::Again(100))]);
    for round in 0..60_u64 {
        let (surface, reference) = ("chat".to_owned(), round.to_string());
        stage.send_command(Command::Gate(gate::Command::Shown { gate, surface, reference })).1.expect("it waits");
        let here = stage.engine.state().gate(gate).expect("it waits");
        assert_eq!(here.shown_surfaces().last().map(|showing| u64::from(showing.round)), Some(round));
        assert!(here.shown_surfaces().len() <= 32, "what is kept is bounded");
        at(&mut stage, gate, 60 * (round + 1));
    }
}

#[test]
fn what_nobody_could_allow_is_no_rule() {
    let source = |action: &str, steps: Vec<ApprovalStep>| {
        let mut rules: countersign_core::policy::RuleSet =
            serde_json::from_value(json!({ "rules": [{ "pattern": "w(*)", "action": action }] })).expect("rules");
        rules.rules[0].steps = steps;
        vec![RuleSource { name: "p.yaml".to_owned(), layer: RuleLayer::Main, rules }]
    };
    for (action, steps, want) in [
        ("ask", vec![step(0, &[], 0, OnExpiry::Deny)], "p.yaml: at least one approval must be required"),
        (
            "ask",
            vec![step(2, &["ana"], 0, OnExpiry::Deny)],
            "p.yaml: the rule requires more approvals than there are people in `from`",
        ),
        ("ask", vec![step(1, &[], 0, OnExpiry::Next)], "p.yaml: the last step cannot escalate: no step follows"),
        (
            "allow",
            vec![step(2, &[], 0, OnExpiry::Deny)],
            "p.yaml: only a rule with `action: ask` can require approvers",
        ),
    ] {
        let errors = compile_rules(source(action, steps)).expect_err("it makes no sense");
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [want]);
    }
}

#[test]
fn of_several_rules_that_ask_the_one_that_asks_most_counts() {
    let mut read: countersign_core::policy::RuleSet = serde_json::from_value(json!({ "rules": [
        { "pattern": "*", "action": "ask" },
        { "pattern": "write(a)", "action": "ask" },
        { "pattern": "write(*)", "action": "ask" },
    ]}))
    .expect("rules");
    read.rules[1].steps = vec![step(1, &["ana"], 0, OnExpiry::Deny)];
    read.rules[2].steps = vec![step(2, &[], 0, OnExpiry::Deny)];
    let source = RuleSource { name: "permissions.yaml".to_owned(), layer: RuleLayer::Main, rules: read };
    let compiled = compile_rules(vec![source]).expect("they make sense");
    let mut stage = agents(ActiveRules { compiled, ..rules(&[]) }, 10);
    request(&mut stage, "1", "a");
    let gate = stage.oldest_gate();
    assert_eq!(word(&stage.answer_gate(gate, ALLOW, "chat:ana", None)), "1 of 2");
}
