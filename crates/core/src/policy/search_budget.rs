//! Bound on the work of checks that only inform people. Knows nothing of their subject.

/// Average number of steps for a rule: steps that one leaves, others may take.
const STEPS: usize = 64;

/// Number of additional steps, so that all of a small file is checked with any content.
const STEPS_OF_ALL: usize = 250_000;

/// The steps of a check of many rules, which grow with the number of rules and not with its square.
///
/// No decision may depend on it.
#[derive(Clone, Debug)]
pub struct SearchBudget {
    pub(crate) most: usize,
    pub(crate) taken: usize,
}

impl SearchBudget {
    /// Returns the budget of a check of this many rules.
    pub const fn of_rules(count: usize) -> Self {
        Self { most: count * STEPS + STEPS_OF_ALL, taken: 0 }
    }

    /// Reports whether no steps are left.
    pub const fn is_spent(&self) -> bool {
        self.taken >= self.most
    }

    /// Takes steps, also more than are left.
    pub const fn take_steps(&mut self, steps: usize) {
        self.taken += steps;
    }

    /// Returns the number of steps taken.
    pub const fn steps_taken(&self) -> usize {
        self.taken
    }
}
