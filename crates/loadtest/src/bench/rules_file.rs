//! Time from a rules file to a decision: the file is read, compiled and checked for rules that make no sense, and one call is
//! judged, in a process of its own.

use std::{fmt::Write as _, fs, path::Path, process::Command, time::Instant};

use anyhow::{Context as _, bail};

use crate::{
    bench::{figure::median, to_millis},
    fixture::scratch::ScratchFolder,
};

/// Number of measurements of each file.
const ROUNDS: usize = 7;

/// Milliseconds for 10,000 rules and for 1,000, in the layout that takes longest.
pub(crate) struct FileToDecision {
    pub(crate) at_10_000: f64,
    pub(crate) at_1_000: f64,
}

pub(crate) fn measure(binary: &Path) -> anyhow::Result<FileToDecision> {
    let mut slowest = FileToDecision { at_10_000: 0.0, at_1_000: 0.0 };
    for layout in LAYOUTS {
        let took = FileToDecision {
            at_10_000: measure_layout(binary, layout, 10_000)?,
            at_1_000: measure_layout(binary, layout, 1_000)?,
        };
        if took.at_10_000 > slowest.at_10_000 {
            slowest = took;
        }
    }
    Ok(slowest)
}

/// A rule of a file, by its number.
type RuleLayout = fn(usize) -> String;

/// Commands allowed and denied by turns; tools each with an argument; one pattern for each of many agents; calls that require several
/// approvers among some that require named approvers; then patterns that begin alike or with a wildcard, different in their ends, in
/// their middle or in nothing; and values of one argument.
const LAYOUTS: [RuleLayout; 12] = [
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

/// Returns a rule with this pattern; every third denies.
fn rule_with_pattern(pattern: &str, at: usize) -> String {
    format!("{{ pattern: \"{pattern}\", action: {} }}", if at.is_multiple_of(3) { "deny" } else { "allow" })
}

fn measure_layout(binary: &Path, layout: RuleLayout, rules: usize) -> anyhow::Result<f64> {
    let scratch = ScratchFolder::new("rules")?;
    let file = scratch.path().join("permissions.yaml");
    let mut text = String::from("rules:\n");
    for at in 0..rules {
        writeln!(text, "  - {}", layout(at))?;
    }
    fs::write(&file, text)?;
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
