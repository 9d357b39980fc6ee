//! Outcome of a scenario: its checks, as the suites write them.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::Context as _;
use serde_json::Value;

/// Check that stands for the end of a client that failed although no check did.
const EXIT_CHECK: &str = "exit";

/// Status of a check, from best to worst. Several results of one id count as the worst of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CheckStatus {
    /// Not exercised, or only noted.
    Skipped,
    Passed,
    /// Failed, or a recommendation that is not followed.
    Failed,
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CheckResult {
    pub(super) status: CheckStatus,
    /// Explanation of the suite. Empty if there is none.
    pub(super) message: String,
}

/// Outcome of one scenario: the result of each check by its id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ScenarioOutcome {
    pub(super) checks: BTreeMap<String, CheckResult>,
}

/// Comparison of an outcome with the expected failures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Judgement {
    /// Reasons of expected failures that happened.
    pub(super) expected: Vec<String>,
    /// Unexpected failures, and expected ones that passed.
    pub(super) problems: Vec<String>,
}

impl ScenarioOutcome {
    /// Reads the only `checks.json` below a folder. `ended_well` is false if the suite or the client reports a failure.
    pub(super) fn read(folder: &Path, ended_well: bool) -> anyhow::Result<Self> {
        let checks = match find_checks(folder)? {
            Some(text) => serde_json::from_str(&text).context("checks.json has no JSON")?,
            None => Value::Null,
        };
        Ok(Self::from_checks(&checks, ended_well))
    }

    fn from_checks(checks: &Value, ended_well: bool) -> Self {
        let mut outcome = Self::default();
        for check in checks.as_array().into_iter().flatten() {
            let status = match check["status"].as_str() {
                Some("SUCCESS") => CheckStatus::Passed,
                Some("SKIPPED" | "INFO") => CheckStatus::Skipped,
                _ => CheckStatus::Failed,
            };
            let message = check["errorMessage"].as_str().or_else(|| check["description"].as_str()).unwrap_or_default();
            outcome.add(check["id"].as_str().unwrap_or_default(), status, message);
        }
        if !ended_well && outcome.failing().next().is_none() {
            outcome.add(EXIT_CHECK, CheckStatus::Failed, "the suite or the client ended with a failure");
        }
        outcome
    }

    fn add(&mut self, id: &str, status: CheckStatus, message: &str) {
        let new = CheckResult { status, message: message.to_owned() };
        let known = self.checks.entry(id.to_owned()).or_insert_with(|| new.clone());
        if new.status > known.status {
            *known = new;
        }
    }

    /// Returns the checks that failed.
    pub(super) fn failing(&self) -> impl Iterator<Item = (&str, &str)> {
        let failed = self.checks.iter().filter(|(_, check)| check.status == CheckStatus::Failed);
        failed.map(|(id, check)| (id.as_str(), check.message.as_str()))
    }

    /// Returns how many checks passed, and how many there are without the skipped ones.
    pub(super) fn counts(&self) -> (usize, usize) {
        let count = |status| self.checks.values().filter(|check| check.status == status).count();
        (count(CheckStatus::Passed), count(CheckStatus::Passed) + count(CheckStatus::Failed))
    }
}

fn find_checks(folder: &Path) -> anyhow::Result<Option<String>> {
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("{} could not be listed", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.ends_with("checks.json") {
                return Ok(Some(fs::read_to_string(path)?));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::ScenarioOutcome;

    #[test]
    fn the_worst_result_of_an_id_counts_and_a_warning_is_a_failure() {
        let check = |id: &str, status: &str| json!({ "id": id, "status": status, "description": status });
        let checks = json!([
            check("a", "SUCCESS"),
            check("a", "FAILURE"),
            check("a", "SUCCESS"),
            check("b", "SKIPPED"),
            check("b", "SUCCESS"),
            check("c", "WARNING"),
            check("d", "INFO"),
        ]);
        let outcome = ScenarioOutcome::from_checks(&checks, false);
        assert_eq!(outcome.failing().collect::<Vec<_>>(), [("a", "FAILURE"), ("c", "WARNING")]);
        assert_eq!(outcome.counts(), (1, 3));
    }

    #[test]
    fn a_client_that_fails_without_a_failed_check_fails() {
        let checks = json!([{ "id": "a", "status": "SUCCESS" }]);
        assert_eq!(ScenarioOutcome::from_checks(&checks, true).failing().count(), 0);
        assert_eq!(ScenarioOutcome::from_checks(&checks, false).failing().next().unwrap().0, "exit");
    }
}
