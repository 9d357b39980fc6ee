//! Time of one decision among few rules and among many, compared with one among a single rule.

use std::{collections::BTreeSet, hint::black_box, time::Instant};

use anyhow::{anyhow, ensure};
use countersign_core::{
    digest::{Digest, canonical_json},
    id::{PrincipalId, SessionId},
    policy::{
        CompiledRules, Constraints, DefaultPolicy, EffectReach, GrantSet, PathContext, PolicyLayers, PolicySubject,
        Rule, RuleAction, RuleLayer, RuleSet, RuleSource, Verdict, compile_rules, evaluate,
    },
    time::Millis,
    tool::{ShellInput, ToolEffect},
};
use serde_json::{Map, Value, json};

use super::median;

/// Decisions of one round, spread over all the things that the rules are about.
const DECISIONS: usize = 20_000;
const ROUNDS: usize = 5;
/// Number of subjects. They have just been read, so all of them are in the cache.
const SUBJECTS: usize = 64;

pub(super) fn measure() -> anyhow::Result<Value> {
    let mut report = Map::new();
    report.insert("yardstick_us".to_owned(), decision_micros(1)?.into());
    for rules in [10, 1_000, 10_000] {
        report.insert(format!("at_{rules}_us"), decision_micros(rules)?.into());
    }
    Ok(Value::Object(report))
}

/// Microseconds of one decision among so many rules.
fn decision_micros(rules: usize) -> anyhow::Result<f64> {
    let compiled = compile_bench_rules(rules)?;
    let (constraints, grants, surroundings) = (Constraints::default(), GrantSet::default(), PathContext::default());
    let layers = PolicyLayers {
        compiled: &compiled,
        constraints: &constraints,
        contract: None,
        grants: &grants,
        default_policy: DefaultPolicy::Gateway,
        path_context: &surroundings,
    };
    // One past the last rule: a subject without a matching rule requires approval.
    let verdict = |number: usize| evaluate(&layers, &light_subject(number), Millis(1));
    ensure!(matches!(verdict(rules), Verdict::Ask(_)), "a rule matches too much");
    for (number, expected) in [(0, RuleAction::Deny), (1, RuleAction::Allow), (2, RuleAction::Ask)] {
        let got = match verdict(number.min(rules)) {
            Verdict::Deny(_) => RuleAction::Deny,
            Verdict::Allow(_) => RuleAction::Allow,
            Verdict::Ask(_) => RuleAction::Ask,
        };
        ensure!(number >= rules || got == expected, "rule {number} returned {got:?}, expected {expected:?}");
    }
    let subjects: Vec<PolicySubject> = (0..SUBJECTS).map(|number| light_subject(number * rules / SUBJECTS)).collect();
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        for number in 0..DECISIONS {
            // A stride that is prime to the count: neighbours do not follow one another.
            black_box(evaluate(&layers, &subjects[number * 7919 % subjects.len()], Millis(1)));
        }
        took.push(begun.elapsed().as_secs_f64() * 1e6 / per_round());
    }
    Ok(median(took))
}

#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
const fn per_round() -> f64 {
    DECISIONS as f64
}

/// Compiles rules as users write them for a home: a tool, a thing and a star.
fn compile_bench_rules(count: usize) -> anyhow::Result<CompiledRules> {
    let rules = (0..count).map(|number| {
        let action = match number % 3 {
            0 => RuleAction::Deny,
            1 => RuleAction::Allow,
            _ => RuleAction::Ask,
        };
        Rule::new(format!("ha_call_service(light.turn_on, light.room_{number}_*)"), action)
    });
    let rules = RuleSet { defaults: vec![Rule::new("*", RuleAction::Ask)], rules: rules.collect() };
    compile_rules(vec![RuleSource { name: "bench".to_owned(), layer: RuleLayer::Main, rules }])
        .map_err(|errors| anyhow!("the rules do not compile: {errors:?}"))
}

fn light_subject(number: usize) -> PolicySubject {
    let entity = format!("light.room_{number}_ceiling");
    let arguments = json!({ "domain": "light", "service": "turn_on", "entity_id": entity });
    let arguments_digest = Digest::hash_bytes(canonical_json(&arguments).as_bytes());
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    PolicySubject {
        principal: PrincipalId::new("agent:bench"),
        door: Some("agent-gate".to_owned()),
        target: Some("homeassistant".to_owned()),
        session: SessionId::new("agent:bench"),
        tool: "ha_call_service".to_owned(),
        signature: format!("ha_call_service(light.turn_on, {entity})"),
        further_signatures: Vec::new(),
        named: ["domain", "service", "entity_id"].map(str::to_owned).into(),
        undeclared: Vec::new(),
        arguments,
        arguments_digest,
        effect: ToolEffect::Changes,
        reach: EffectReach::Beyond,
        cwd: String::new(),
        session_folder: None,
        is_later: false,
        leads_to: None,
        paths: Vec::new(),
        shell: ShellInput::Nothing,
        classes: BTreeSet::new(),
    }
}
