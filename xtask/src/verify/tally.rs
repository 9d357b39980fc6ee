//! Counts tests from what their runners print.

use std::{fmt, ops::AddAssign};

/// Number of tests that passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TestTally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

/// Runner that runs the tests and counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestRunner {
    Nextest,
    /// cargo's own.
    Libtest,
}

impl TestTally {
    /// Returns the counts that one line of output adds: the runner's own summary, else nothing.
    ///
    /// nextest repeats the output of a test that failed, libtest's summary included, which must not count again.
    pub(crate) fn of_line(runner: TestRunner, line: &str) -> Self {
        let counts = match runner {
            TestRunner::Nextest => line.trim().strip_prefix("Summary [").and_then(|rest| {
                rest.split_once("tests run:").or_else(|| rest.split_once("test run:")).map(|(_, counts)| counts)
            }),
            TestRunner::Libtest => line
                .trim()
                .strip_prefix("test result:")
                .and_then(|rest| rest.split_once(". "))
                .map(|(_, counts)| counts),
        };
        let Some(counts) = counts else { return Self::default() };
        let mut tally = Self::default();
        for part in counts.split([',', ';']) {
            let mut words = part.split_whitespace();
            let Some(Ok(count)) = words.next().map(str::parse::<u64>) else { continue };
            match words.collect::<Vec<_>>().as_slice() {
                ["passed", ..] => tally.passed += count,
                ["failed" | "timed" | "exec", ..] => tally.failed += count,
                _ => {}
            }
        }
        tally
    }
}

impl AddAssign for TestTally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl fmt::Display for TestTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_counted_and_nothing_else() {
        for (runner, line, passed, failed) in [
            (TestRunner::Nextest, "     Summary [   0.023s] 3 tests run: 3 passed, 0 skipped", 3, 0),
            (TestRunner::Nextest, "     Summary [   0.023s] 1 test run: 1 passed, 0 skipped", 1, 0),
            (
                TestRunner::Nextest,
                "Summary [ 61.0s] 9 tests run: 6 passed (1 slow, 1 flaky), 2 failed, 1 timed out, 4 skipped",
                6,
                3,
            ),
            (TestRunner::Nextest, "Summary [ 1.0s] 2/9 tests run: 1 passed, 1 exec failed, 0 skipped", 1, 1),
            (TestRunner::Nextest, "    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured", 0, 0),
            (TestRunner::Nextest, "        PASS [   0.004s] xtask tidy::tests::a", 0, 0),
            (
                TestRunner::Libtest,
                "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; finished in 0.1s",
                12,
                0,
            ),
            (TestRunner::Libtest, "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured", 1, 2),
            (TestRunner::Libtest, "3 passed, 1 failed", 0, 0),
        ] {
            assert_eq!(TestTally::of_line(runner, line), TestTally { passed, failed }, "{line}");
        }
    }
}
