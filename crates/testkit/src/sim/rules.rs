//! The rules that a simulation switches between.

use std::time::Duration;

use countersign_core::{
    engine::Rules,
    gate::{OnExpiry, People, Step},
    id::PrincipalId,
    policy::{Action, Compiled, Layer, Posture, Rule, Rules as Written, Source, Surroundings, compile},
};

/// How many sets of rules there are.
pub(super) const SETS: u64 = 5;

/// One of the sets of rules.
pub(super) fn numbered(number: u64) -> Rules {
    let of_rules = |rules: Vec<Rule>| {
        let rules = Written { rules, defaults: Vec::new() };
        let source = Source { name: "permissions.yaml".to_owned(), layer: Layer::Main, rules };
        compile(vec![source]).expect("the rules of the simulation are sound")
    };
    let of = |lines: &[(&str, Action)]| {
        of_rules(lines.iter().map(|(pattern, action)| Rule::new(*pattern, *action)).collect())
    };
    let (compiled, posture) = match number % SETS {
        0 => (Compiled::default(), Posture::Gateway),
        1 => (Compiled::default(), Posture::Stdio),
        2 => (
            of(&[("look*", Action::Allow), ("write(a*)", Action::Allow), ("bash(ls*)", Action::Allow)]),
            Posture::Gateway,
        ),
        3 => (of_rules(vec![Rule { steps: steps(), ..Rule::new("write(*)", Action::Ask) }]), Posture::Gateway),
        _ => {
            (of(&[("look*", Action::Allow), ("write(*)", Action::Ask), ("write(b*)", Action::Deny)]), Posture::Gateway)
        }
    };
    let surroundings = Surroundings { home: Some("/home/ana".to_owned()), ..Surroundings::default() };
    Rules { compiled, posture, surroundings, people: people() }
}

/// Two of three, asked twice, and then one of others.
fn steps() -> Vec<Step> {
    let from = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
    let within = Some(Duration::from_secs(600));
    vec![
        Step { approvals: 2, within, on_expiry: OnExpiry::Next, ..Step::default() },
        Step { approvals: 2, from: from(&["ana", "cleo"]), within, on_expiry: OnExpiry::Again(1) },
    ]
}

/// Ana has two identities, and one identity belongs to nobody.
pub(super) fn people() -> People {
    let all = [("ana", &["person:ana", "chat:ana"][..]), ("bo", &["person:bo"]), ("cleo", &["person:cleo"])];
    People::new(all.map(|(name, all)| (name.to_owned(), all.iter().map(|one| PrincipalId::new(*one)))))
}
