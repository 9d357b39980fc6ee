//! Time from a rules file to a decision: the file is read, compiled and checked for rules that make no sense, and one call is
//! judged, in a process of its own; and time from the start of a gateway with such a file until it is ready.

use std::{fmt::Write as _, fs, path::Path, process::Command, time::Instant};

use anyhow::{Context as _, bail};

use super::FigureSuite;
use crate::{
    bench::{
        figure::{BenchFigure, FigureUnit, median},
        lazy_measurement, to_millis,
    },
    fixture::{
        gateway::{GatewayProcess, service_config},
        scratch::ScratchFolder,
    },
};

/// Number of measurements of each file.
const ROUNDS: usize = 7;

/// Milliseconds for 10,000 rules and for 1,000, each in the layout that takes longest.
struct RulesFileTimes {
    at_10_000: f64,
    at_1_000: f64,
    /// From the start of the gateway until it is ready, on a record that was there before.
    start_at_10_000: f64,
    start_at_1_000: f64,
}

/// Measures every figure that the suite selects.
pub(super) fn measure_all(binary: &Path, suite: &mut FigureSuite<'_>) {
    let rules = lazy_measurement(|| measure(binary));
    // The yardstick is the time at 1,000 rules.
    suite.measure(
        BenchFigure::new("10,000 rules: file to decision", FigureUnit::Millis).with_target(300.0),
        &mut || {
            let rules = rules.get_result()?;
            Ok((rules.at_10_000, Some(rules.at_1_000)))
        },
    );
    suite.measure(
        BenchFigure::new("rules: file to decision, 10,000 over 1,000", FigureUnit::Ratio).with_target(15.0),
        &mut || {
            let rules = rules.get_result()?;
            Ok((rules.at_10_000 / rules.at_1_000, None))
        },
    );
    suite.measure(
        BenchFigure::new("10,000 rules: start of the gateway", FigureUnit::Millis).with_target(500.0),
        &mut || {
            let rules = rules.get_result()?;
            Ok((rules.start_at_10_000, Some(rules.start_at_1_000)))
        },
    );
}

fn measure(binary: &Path) -> anyhow::Result<RulesFileTimes> {
    let (mut decision, mut start) = ((0.0, 0.0), (0.0, 0.0));
    for layout in LAYOUTS {
        let at_10_000 = time_decision(binary, layout, 10_000)?;
        if at_10_000 > decision.0 {
            decision = (at_10_000, time_decision(binary, layout, 1_000)?);
        }
        let at_10_000 = time_start(binary, layout, 10_000)?;
        if at_10_000 > start.0 {
            start = (at_10_000, time_start(binary, layout, 1_000)?);
        }
    }
    let ((at_10_000, at_1_000), (start_at_10_000, start_at_1_000)) = (decision, start);
    Ok(RulesFileTimes { at_10_000, at_1_000, start_at_10_000, start_at_1_000 })
}

/// A rule of a file, by its number.
type RuleLayout = fn(usize) -> String;

/// Commands allowed and denied by turns; tools each with an argument; one pattern for each of many agents; calls that require several
/// approvers among some that require named approvers; approvers of one set of 1,000 people; then patterns that begin alike or with a wildcard, different in their ends, in
/// their middle or in nothing; and values of one argument.
const LAYOUTS: [RuleLayout; 13] = [
    |at| format!("{{ pattern: \"bash(tool{at} *)\", action: {} }}", if at % 2 == 0 { "allow" } else { "deny" }),
    |at| format!("{{ tool: svc_{at}, args: {{ to: \"acme{at}*\" }}, action: ask }}"),
    |at| {
        let action = if at % 2 == 0 { "allow" } else { "deny" };
        format!("{{ pattern: \"pay(*)\", principal: agent-{at}, action: {action} }}")
    },
    |at| {
        let who = if at % 2 == 0 { "approvals: 2" } else { "from: ana" };
        format!("{{ pattern: \"pay(acme{at}, *)\", action: ask, {who} }}")
    },
    |at| format!("{{ pattern: \"pay(acme{at}, *)\", action: ask, {OF_SET} }}"),
    |at| rule_with_pattern(&format!("ha_call_service(*, light.l{at})"), at),
    |at| rule_with_pattern(&format!("*{at}*"), at),
    |at| rule_with_pattern(&format!("*{at}"), at),
    |at| rule_with_pattern(&format!("bash(* --x{at} *)"), at),
    |at| rule_with_pattern(&format!("b[a-z]sh([abc]?{at}*[!x]*)"), at),
    |at| rule_with_pattern(&format!("bash(*{} *{}*)", at % 100, at / 100), at),
    |at| {
        let who = if at % 2 == 0 { "approvals: 2" } else { "from: ana" };
        format!("{{ pattern: \"*acme{at}*\", principal: \"*-{at}\", action: ask, {who} }}")
    },
    |at| {
        format!(
            "{{ tool: svc, args: {{ a: {{ is: v{at} }} }}, action: {} }}",
            if at.is_multiple_of(3) { "deny" } else { "allow" }
        )
    },
];

/// The approvers of a rule that names a set.
const OF_SET: &str = "from: crew";

/// Returns a rule with this pattern; every third denies.
fn rule_with_pattern(pattern: &str, at: usize) -> String {
    format!("{{ pattern: \"{pattern}\", action: {} }}", if at.is_multiple_of(3) { "deny" } else { "allow" })
}

/// Returns the people of the set.
fn crew() -> Vec<String> {
    (0..1_000).map(|person| format!("person-{person}")).collect()
}

/// Returns the approvers that the rules name or need, each with an account.
fn people_text(layout: RuleLayout) -> String {
    let people = match layout(0) {
        rule if rule.contains(OF_SET) => crew(),
        rule if rule.contains("approvals") => vec!["ana".to_owned(), "bo".to_owned()],
        _ => return String::new(),
    };
    let account = |(at, person): (usize, String)| format!("{{ id: {person}, local: [{at}] }}");
    format!("people: [{}]\n", people.into_iter().enumerate().map(account).collect::<Vec<_>>().join(", "))
}

fn rules_text(layout: RuleLayout, rules: usize) -> anyhow::Result<String> {
    let mut text = String::new();
    if layout(0).contains(OF_SET) {
        writeln!(text, "sets: {{ crew: [{}] }}", crew().join(", "))?;
    }
    text.push_str("rules:\n");
    for at in 0..rules {
        writeln!(text, "  - {}", layout(at))?;
    }
    Ok(text)
}

fn time_decision(binary: &Path, layout: RuleLayout, rules: usize) -> anyhow::Result<f64> {
    let scratch = ScratchFolder::new("rules")?;
    let file = scratch.path().join("permissions.yaml");
    fs::write(&file, rules_text(layout, rules)?)?;
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let output = Command::new(binary)
            .args(["policy", "explain", "--permissions"])
            .arg(&file)
            .args(["bash", "command=git status"])
            .current_dir(scratch.path())
            .output()?;
        took.push(to_millis(begun.elapsed()));
        if !output.status.success() {
            bail!("policy explain: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
    }
    median(took).context("nothing was measured")
}

/// Returns the milliseconds from the start of a gateway until it is ready; the first start, which creates its files, is not counted.
fn time_start(binary: &Path, layout: RuleLayout, rules: usize) -> anyhow::Result<f64> {
    // No call is made.
    let service = service_config(([127, 0, 0, 1], 9).into());
    let config = format!("{service}agent: {{ token: bench }}\n{}", people_text(layout));
    let scratch = ScratchFolder::new("rules-start")?;
    let mut gateway = GatewayProcess::start_in(binary, scratch, &config, &rules_text(layout, rules)?)?;
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        let scratch = gateway.stop()?;
        let begun = Instant::now();
        gateway = GatewayProcess::run(binary, scratch)?;
        took.push(to_millis(begun.elapsed()));
    }
    median(took).context("nothing was measured")
}
