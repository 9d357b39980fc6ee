//! The rules that a simulation switches between.

use countersign_core::{
    engine::Rules,
    gate::People,
    policy::{Action, Compiled, Layer, Posture, Rule, Rules as Written, Source, Surroundings, compile},
};

/// One of four sets of rules.
pub(super) fn numbered(number: u64) -> Rules {
    let of = |lines: &[(&str, Action)]| {
        let rules = lines.iter().map(|(pattern, action)| Rule::new(*pattern, *action));
        let rules = Written { rules: rules.collect(), defaults: Vec::new() };
        let source = Source { name: "permissions.yaml".to_owned(), layer: Layer::Main, rules };
        compile(vec![source]).expect("the rules of the simulation are sound")
    };
    let (compiled, posture) = match number % 4 {
        0 => (Compiled::default(), Posture::Gateway),
        1 => (Compiled::default(), Posture::Stdio),
        2 => (
            of(&[("look*", Action::Allow), ("write(a*)", Action::Allow), ("bash(ls*)", Action::Allow)]),
            Posture::Gateway,
        ),
        _ => {
            (of(&[("look*", Action::Allow), ("write(*)", Action::Ask), ("write(b*)", Action::Deny)]), Posture::Gateway)
        }
    };
    let surroundings = Surroundings { home: Some("/home/ana".to_owned()), ..Surroundings::default() };
    Rules { compiled, posture, contract: None, surroundings, people: People::default() }
}
