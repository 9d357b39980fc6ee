//! How much is done for checks that only help people. Knows nothing of what is checked.

/// How many steps are taken for a rule on average: what is left by one, others may take.
const STEPS: usize = 64;

/// How many steps may be taken besides, so that all of a small file is checked whatever stands in it.
const STEPS_OF_ALL: usize = 250_000;

/// The steps of a check of many rules, which grow with the number of rules and not with its square.
///
/// Nothing that a decision depends on may be bounded by it.
#[derive(Clone, Debug)]
pub struct SearchBudget {
    pub(crate) most: usize,
    pub(crate) taken: usize,
}

impl SearchBudget {
    /// Returns what may be taken for a check of this many rules.
    pub const fn of_rules(count: usize) -> Self {
        Self { most: count * STEPS + STEPS_OF_ALL, taken: 0 }
    }

    /// True if no more steps are to be taken.
    pub const fn is_spent(&self) -> bool {
        self.taken >= self.most
    }

    /// Takes steps, also more than are left.
    pub const fn take_steps(&mut self, steps: usize) {
        self.taken += steps;
    }

    /// Returns how many were taken.
    pub const fn steps_taken(&self) -> usize {
        self.taken
    }
}
