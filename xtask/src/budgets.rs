//! `budgets.json`: limits for the weight of the program and of its build, which only a reason raises.
//!
//! Each budget has the history of its limits, and the last one holds. `tidy` checks the file, and the number of dependencies; `verify`
//! measures what needs a binary. Figures that take long are measured by hand and recorded next to their limit.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use crate::workspace::Workspace;

/// The file, below the root.
pub(crate) const FILE: &str = "budgets.json";

/// Number of packages in the lock file that are not of this workspace.
const DEPENDENCIES: &str = "dependencies";
/// Size of the binary of the dev profile, in MiB.
const DEBUG_BINARY: &str = "debug_binary_mib";
/// Private memory of an idle omp process of the dev profile, in MiB.
const DEBUG_MEMORY: &str = "debug_private_memory_mib";
/// Time of `verify`, in seconds.
const VERIFY_TIME: &str = "verify_seconds";

/// One budget.
#[derive(Clone, Debug, PartialEq)]
struct WeightBudget {
    name: String,
    limit: f64,
    /// The figure as it was measured last, if it is not measured each time.
    measured: Option<f64>,
}

/// Returns each problem of the file, and of the number of dependencies, as one line.
pub(crate) fn problems(workspace: &Workspace) -> anyhow::Result<Vec<String>> {
    let budgets = match read_file(workspace) {
        Ok(budgets) => budgets,
        Err(error) => return Ok(vec![format!("{error:#}")]),
    };
    let lock = fs::read_to_string(workspace.root.join("Cargo.lock")).context("Cargo.lock could not be read")?;
    let found = budgets.iter().filter_map(|budget| {
        let figure = if budget.name == DEPENDENCIES { dependency_count(&lock) } else { budget.measured? };
        excess(budget, figure)
    });
    Ok(found.collect())
}

/// Measures the binaries of the dev profile, which the tests have built.
///
/// # Errors
/// A figure is above its budget, or could not be measured.
pub(crate) fn check_binaries(workspace: &Workspace) -> anyhow::Result<()> {
    let debug = workspace.target.join("debug");
    let binary = debug.join("countersign");
    #[expect(clippy::cast_precision_loss, reason = "sizes here are far below 2^52")]
    let size = fs::metadata(&binary).with_context(|| format!("{} is missing", binary.display()))?.len() as f64;
    let memory = idle_memory(&binary)?;
    let mut over = Vec::new();
    for (name, figure) in [(DEBUG_BINARY, size / f64::from(1 << 20)), (DEBUG_MEMORY, memory)] {
        let budget = find_budget(workspace, name)?;
        println!("{name}: {figure:.1} of {}", budget.limit);
        over.extend(excess(&budget, figure));
    }
    if over.is_empty() { Ok(()) } else { bail!("{}", over.join("; ")) }
}

/// Compares the time of a whole `verify` with its budget, in one line. A slow machine is no fault, so that this fails nothing.
pub(crate) fn time_report(workspace: &Workspace, seconds: f64) -> Option<String> {
    let budget = find_budget(workspace, VERIFY_TIME).ok()?;
    let word = if seconds > budget.limit { ", which is above it" } else { "" };
    Some(format!("time: {seconds:.0} s of a budget of {:.0} s{word}", budget.limit))
}

fn find_budget(workspace: &Workspace, name: &str) -> anyhow::Result<WeightBudget> {
    let mut budgets = read_file(workspace)?;
    let at = budgets.iter().position(|budget| budget.name == name);
    Ok(budgets.swap_remove(at.with_context(|| format!("{FILE} has no budget {name}"))?))
}

fn read_file(workspace: &Workspace) -> anyhow::Result<Vec<WeightBudget>> {
    let text = fs::read_to_string(workspace.root.join(FILE)).with_context(|| format!("{FILE} could not be read"))?;
    parse_budgets(&text).context(FILE)
}

/// Reads the budgets. The last limit of each holds.
///
/// # Errors
/// The text is not of this form, dates do not ascend, or a limit has no reason.
fn parse_budgets(text: &str) -> anyhow::Result<Vec<WeightBudget>> {
    let all: serde_json::Map<String, Value> = serde_json::from_str(text)?;
    let mut budgets = Vec::new();
    for (name, budget) in all {
        let limits = budget["limits"].as_array().with_context(|| format!("{name}: limits must be a list"))?;
        let (mut last, mut before) = (None, "");
        for limit in limits {
            let (date, reason) = (limit["date"].as_str().unwrap_or(""), limit["reason"].as_str().unwrap_or(""));
            ensure!(date.len() == 10 && date >= before, "{name}: the date {date:?} is no day after {before:?}");
            ensure!(reason.split_whitespace().count() >= 3, "{name}: the limit of {date} needs a reason in words");
            last = limit["limit"].as_f64();
            ensure!(last.is_some(), "{name}: the limit of {date} must be a number");
            before = date;
        }
        let limit = last.with_context(|| format!("{name}: no limit"))?;
        budgets.push(WeightBudget { name, limit, measured: budget["measured"]["figure"].as_f64() });
    }
    Ok(budgets)
}

fn excess(WeightBudget { name, limit, .. }: &WeightBudget, figure: f64) -> Option<String> {
    (figure > *limit).then(|| {
        format!("{name} is {figure:.1}, above its budget of {limit}: make it smaller, or add a limit with a reason")
    })
}

#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
fn dependency_count(lock: &str) -> f64 {
    lock.lines().filter(|line| line.starts_with("source = ")).count() as f64
}

/// Returns the private memory of an omp process that has answered a request, in MiB.
fn idle_memory(binary: &Path) -> anyhow::Result<f64> {
    let home = std::env::temp_dir().join(format!("countersign-budget-{}", std::process::id()));
    fs::create_dir_all(&home)?;
    let mut process = Command::new(binary)
        .args(["omp", "--mode", "rpc"])
        .current_dir(&home)
        .env_clear()
        .env("HOME", &home)
        // It starts with a model, and asks it for nothing.
        .env("OPENAI_API_KEY", "none")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("{} could not be started", binary.display()))?;
    let memory = memory_after_answer(&mut process);
    process.kill()?;
    process.wait()?;
    fs::remove_dir_all(&home)?;
    memory
}

fn memory_after_answer(process: &mut Child) -> anyhow::Result<f64> {
    let (stdin, stdout) = process.stdin.as_mut().zip(process.stdout.as_mut()).context("no pipes")?;
    writeln!(stdin, r#"{{"id":"1","type":"get_state"}}"#)?;
    let has_answer = BufReader::new(stdout).lines().any(|line| line.is_ok_and(|line| line.contains("get_state")));
    ensure!(has_answer, "omp ended without an answer");
    let status = fs::read_to_string(format!("/proc/{}/status", process.id()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon")?;
    let kibibytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes / 1024.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn limits(limits: &[(&str, f64, &str)]) -> String {
        let limits = limits.iter().map(|(date, limit, reason)| json!({"date": date, "limit": limit, "reason": reason}));
        json!({ "weight": { "limits": limits.collect::<Vec<_>>(), "measured": { "figure": 7.5 } } }).to_string()
    }

    #[test]
    fn the_last_limit_holds_and_each_has_a_reason() {
        let raised = [("2026-11-01", 7.0, "as it was measured"), ("2026-11-02", 8.0, "one more protocol came")];
        let [budget] = &parse_budgets(&limits(&raised)).unwrap()[..] else { panic!("one budget") };
        assert_eq!((budget.limit, budget.measured), (8.0, Some(7.5)));
        assert_eq!(excess(budget, 8.0), None);
        assert!(excess(budget, 8.5).unwrap().starts_with("weight is 8.5, above its budget of 8"));
        for (wrong, want) in [
            (vec![], "weight: no limit"),
            (vec![("2026-11-01", 7.0, "")], "weight: the limit of 2026-11-01 needs a reason in words"),
            (vec![raised[1], raised[0]], "weight: the date \"2026-11-01\" is no day after \"2026-11-02\""),
        ] {
            assert_eq!(parse_budgets(&limits(&wrong)).unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn packages_of_the_workspace_are_no_dependencies() {
        let lock = "[[package]]\nname = \"a\"\nsource = \"registry\"\n[[package]]\nname = \"own\"\n";
        assert_eq!(dependency_count(lock), 1.0);
    }
}
