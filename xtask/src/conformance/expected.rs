//! Expected failures of one run of a suite: a scenario or a check a line, each with its reason.
//!
//! The files have the form of the suites' own lists, in which a line may also name one check of a scenario:
//!
//! ```yaml
//! server:
//!   - completion-complete # Completions are not offered.
//!   - caching:sep-2549-prompts-list-caching-hints # Prompts are not offered.
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context as _, bail};

use crate::conformance::outcome::{CheckStatus, Judgement, ScenarioOutcome};

/// Expected failures of one side. The reason is that of a scenario, or of one check in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExpectedFailures {
    scenarios: BTreeMap<String, String>,
    checks: BTreeMap<(String, String), String>,
}

impl ExpectedFailures {
    /// Reads the section `side` of a file.
    pub(super) fn read(file: &Path, side: &str) -> anyhow::Result<Self> {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        Self::parse(&text, side).with_context(|| file.display().to_string())
    }

    fn parse(text: &str, side: &str) -> anyhow::Result<Self> {
        let mut expected = Self::default();
        let mut section = None;
        for (number, line) in (1..).zip(text.lines()) {
            let trimmed = line.trim();
            if trimmed.is_empty() || trimmed.starts_with('#') {
                continue;
            }
            let Some(entry) = trimmed.strip_prefix("- ") else {
                match line.split_once(':') {
                    Some((name @ ("server" | "client"), "" | " []")) => section = Some(name),
                    _ => bail!("line {number}: {line:?}: expected server:, client:, or - SCENARIO # REASON"),
                }
                continue;
            };
            let Some((name, reason)) = entry.split_once(" # ").filter(|(_, reason)| !reason.trim().is_empty()) else {
                bail!("line {number}: {entry:?} has no reason: expected - SCENARIO # REASON");
            };
            if section.is_none() {
                bail!("line {number}: {entry:?} belongs neither to server nor to client");
            }
            if section == Some(side) && !expected.insert(name.trim(), reason.trim()) {
                bail!("line {number}: {name:?} is covered by an earlier line");
            }
        }
        Ok(expected)
    }

    /// Adds an entry. False if it is there, or if its scenario is, as a whole or in part.
    fn insert(&mut self, name: &str, reason: &str) -> bool {
        match name.split_once(':') {
            Some((scenario, check)) => {
                let key = (scenario.to_owned(), check.to_owned());
                !self.scenarios.contains_key(scenario) && self.checks.insert(key, reason.to_owned()).is_none()
            }
            None => {
                self.checks_of(name).next().is_none()
                    && self.scenarios.insert(name.to_owned(), reason.to_owned()).is_none()
            }
        }
    }

    fn checks_of<'a>(&'a self, scenario: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let of_scenario = self.checks.iter().filter(move |((of, _), _)| of == scenario);
        of_scenario.map(|((_, check), reason)| (check.as_str(), reason.as_str()))
    }

    /// Returns the scenarios that the list names.
    pub(super) fn scenarios(&self) -> impl Iterator<Item = &str> {
        let all: BTreeSet<&str> =
            self.scenarios.keys().chain(self.checks.keys().map(|(scenario, _)| scenario)).map(String::as_str).collect();
        all.into_iter()
    }

    /// Compares an outcome with the list. A listed check that was not exercised is no problem: a scenario may end before it.
    pub(super) fn judge(&self, scenario: &str, outcome: &ScenarioOutcome) -> Judgement {
        let mut judgement = Judgement::default();
        if let Some(reason) = self.scenarios.get(scenario) {
            match outcome.failing().next() {
                Some(_) => judgement.expected.push(reason.clone()),
                None => judgement.problems.push("it passes: remove it from the expected failures".to_owned()),
            }
            return judgement;
        }
        for (check, message) in outcome.failing() {
            match self.checks.get(&(scenario.to_owned(), check.to_owned())) {
                Some(reason) => judgement.expected.push(format!("{check}: {reason}")),
                None => judgement.problems.push(format!("{check}: {message}")),
            }
        }
        for (check, _) in self.checks_of(scenario) {
            if outcome.checks.get(check).is_some_and(|result| result.status == CheckStatus::Passed) {
                judgement.problems.push(format!("{check} passes: remove it from the expected failures"));
            }
        }
        if outcome.checks.is_empty() {
            judgement.problems.push("the suite wrote no checks".to_owned());
        }
        judgement
    }
}

#[cfg(test)]
mod tests {
    use super::{super::outcome::CheckResult, *};

    const LIST: &str =
        "# Of all.\nserver:\n  - tools # No tools.\n  - cache:b # No cache.\n\nclient:\n  - auth/x # No.\n";

    fn outcome(checks: &[(&str, CheckStatus)]) -> ScenarioOutcome {
        let result = |status| CheckResult { status, message: "why".to_owned() };
        let checks = checks.iter().map(|(id, status)| ((*id).to_owned(), result(*status)));
        ScenarioOutcome { checks: checks.collect() }
    }

    #[test]
    fn each_side_has_its_own_list() {
        let server = ExpectedFailures::parse(LIST, "server").unwrap();
        assert_eq!(server.scenarios().collect::<Vec<_>>(), ["cache", "tools"]);
        let client = ExpectedFailures::parse(LIST, "client").unwrap();
        assert_eq!(client.scenarios().collect::<Vec<_>>(), ["auth/x"]);
        assert_eq!(ExpectedFailures::parse("server: []\n", "server").unwrap(), ExpectedFailures::default());
    }

    #[test]
    fn a_line_without_a_reason_or_a_place_is_refused() {
        for (text, want) in [
            ("server:\n  - tools\n", "line 2: \"tools\" has no reason: expected - SCENARIO # REASON"),
            ("server:\n  - tools # \n", "line 2: \"tools #\" has no reason: expected - SCENARIO # REASON"),
            ("  - tools # x\n", "line 1: \"tools # x\" belongs neither to server nor to client"),
            ("servers:\n", "line 1: \"servers:\": expected server:, client:, or - SCENARIO # REASON"),
            ("server:\n  - a # x\n  - a:b # x\n", "line 3: \"a:b\" is covered by an earlier line"),
            ("server:\n  - a:b # x\n  - a # x\n", "line 3: \"a\" is covered by an earlier line"),
        ] {
            assert_eq!(ExpectedFailures::parse(text, "server").unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn unexpected_failures_and_listed_ones_that_pass_are_problems() {
        use CheckStatus::{Failed, Passed, Skipped};
        let list = ExpectedFailures::parse(LIST, "server").unwrap();
        for (scenario, checks, expected, problems) in [
            ("tools", vec![("a", Failed)], vec!["No tools."], vec![]),
            ("tools", vec![("a", Passed)], vec![], vec!["it passes: remove it from the expected failures"]),
            ("cache", vec![("a", Passed), ("b", Failed)], vec!["b: No cache."], vec![]),
            ("cache", vec![("a", Failed), ("b", Skipped)], vec![], vec!["a: why"]),
            ("cache", vec![("b", Passed)], vec![], vec!["b passes: remove it from the expected failures"]),
            ("ping", vec![("a", Passed)], vec![], vec![]),
            ("ping", vec![], vec![], vec!["the suite wrote no checks"]),
        ] {
            let judgement = list.judge(scenario, &outcome(&checks));
            assert_eq!(
                (judgement.expected, judgement.problems),
                strings(&expected, &problems),
                "{scenario} {checks:?}"
            );
        }
    }

    fn strings(expected: &[&str], problems: &[&str]) -> (Vec<String>, Vec<String>) {
        let owned = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        (owned(expected), owned(problems))
    }
}
