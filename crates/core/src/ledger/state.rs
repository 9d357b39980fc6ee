//! The ledger's machine: open reservations and spent amounts.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    id::{CallId, RunId},
    ledger::budget::{BudgetAmount, BudgetBreach, BudgetLimits, LedgerMetric},
    time::Millis,
};

/// Identifies one reservation: a call's id, or one drawn for a model request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReservationId(Uuid);

impl ReservationId {
    /// Wraps a UUID that the caller made.
    pub const fn new(id: Uuid) -> Self {
        Self(id)
    }
}

impl From<CallId> for ReservationId {
    fn from(call: CallId) -> Self {
        Self(call.uuid())
    }
}

/// A run has one model request open at a time.
impl From<RunId> for ReservationId {
    fn from(run: RunId) -> Self {
        Self(run.uuid())
    }
}

impl ReservationId {
    /// Returns the id for the summary of a session's compaction.
    pub fn of_compaction(epoch: u32) -> Self {
        Self(Uuid::from_u128(u128::from(epoch)))
    }
}

impl fmt::Display for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reservation_{}", self.0.simple())
    }
}

/// A fact about a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A contract began, or its limits changed. The meters continue.
    Limited {
        /// The limits from now on.
        budget: BudgetLimits,
        /// Time of the change; the first one starts the clock.
        at: Millis,
    },
    /// The meters of another session's contract continue here: none of them falls, and the clock began no later.
    Carried {
        /// Amount that was spent there.
        spent: BudgetAmount,
        /// Time at which the clock began there.
        began: Millis,
    },
    /// Work is about to start and may use this amount.
    Reserved {
        /// Id of the reservation.
        id: ReservationId,
        /// Maximum amount.
        amount: BudgetAmount,
    },
    /// The work ended and used this amount.
    Settled {
        /// Id of the reservation.
        id: ReservationId,
        /// Amount that it used. In doubt, this is the reserved amount.
        amount: BudgetAmount,
    },
}

/// Reason for which an end does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettleError {
    /// No reservation with this id exists, or it was settled already.
    #[error("{0} is not open")]
    NotOpen(ReservationId),
}

/// One contract's limits and meters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    budget: BudgetLimits,
    began: Option<Millis>,
    spent: BudgetAmount,
    reserved: BudgetAmount,
    open: BTreeMap<ReservationId, BudgetAmount>,
}

impl State {
    /// Returns the limits.
    pub const fn budget(&self) -> &BudgetLimits {
        &self.budget
    }

    /// Returns the amount that is finally spent.
    pub const fn spent(&self) -> BudgetAmount {
        self.spent
    }

    /// Returns the amount that is reserved in addition.
    pub const fn reserved(&self) -> BudgetAmount {
        self.reserved
    }

    /// Returns the sum of spent and reserved amounts.
    pub const fn total_taken(&self) -> BudgetAmount {
        self.spent.plus(self.reserved)
    }

    /// Returns the time at which the clock began.
    pub const fn began_at(&self) -> Option<Millis> {
        self.began
    }

    /// Returns the reservation under `id`, while it is open.
    pub fn open_amount(&self, id: ReservationId) -> Option<BudgetAmount> {
        self.open.get(&id).copied()
    }

    /// Returns the use of a metric, or the elapsed time.
    pub fn used_amount(&self, metric: LedgerMetric, now: Millis) -> u64 {
        match metric {
            LedgerMetric::Tokens => self.spent.tokens,
            LedgerMetric::ToolCalls => self.spent.calls,
            LedgerMetric::WallTime => self.elapsed_millis(now),
            LedgerMetric::Cost => self.spent.cost_micros,
        }
    }

    /// Returns the rest of a metric; none if no limit binds.
    pub fn amount_left(&self, metric: LedgerMetric, now: Millis) -> Option<u64> {
        let taken = self.spent.plus(self.reserved);
        match metric {
            LedgerMetric::Tokens => self.budget.tokens.map(|limit| limit.saturating_sub(taken.tokens)),
            LedgerMetric::ToolCalls => self.budget.calls.map(|limit| limit.saturating_sub(taken.calls)),
            LedgerMetric::WallTime => self.budget.wall_time.map(|limit| limit.saturating_sub(self.elapsed_millis(now))),
            LedgerMetric::Cost => self.budget.cost_micros.map(|limit| limit.saturating_sub(taken.cost_micros)),
        }
    }

    /// Returns the time at which the time is used up, for the timers.
    pub fn deadline(&self) -> Option<Millis> {
        Some(self.began? + Duration::from_millis(self.budget.wall_time?))
    }

    /// Returns the limit that the spent amount has passed, or the time limit that has passed.
    pub fn current_breach(&self, now: Millis) -> Option<BudgetBreach> {
        self.out_of_time(now).or_else(|| self.overspent())
    }

    /// Returns the limit that the spent amount has passed, at any time.
    pub fn overspent(&self) -> Option<BudgetBreach> {
        self.budget.breached_by(self.spent)
    }

    /// Returns the event that puts limits in force, or replaces them.
    pub const fn set_limits(&self, budget: BudgetLimits, now: Millis) -> Event {
        Event::Limited { budget, at: now }
    }

    /// Decides whether work that uses at most `amount` may start.
    ///
    /// # Errors
    /// The first limit that it would pass together with spent and reserved amounts. Repeating an open reservation does not count twice.
    pub fn reserve(&self, id: ReservationId, amount: BudgetAmount, now: Millis) -> Result<Event, BudgetBreach> {
        if let Some(breach) = self.out_of_time(now) {
            return Err(breach);
        }
        let already = self.open.get(&id).copied().unwrap_or_default();
        let total = self.spent.plus(self.reserved.minus(already)).plus(amount);
        self.budget.breached_by(total).map_or(Ok(Event::Reserved { id, amount }), Err)
    }

    /// Decides whether a model request may start, and its maximum number of output tokens: `output_cap` cut to the
    /// rest.
    ///
    /// `cost` prices (input, output) tokens in micro-dollars and must not fall as they grow.
    ///
    /// # Errors
    /// The first limit under which not even one token of output fits.
    pub fn reserve_request(
        &self,
        id: ReservationId,
        input: u64,
        output_cap: u64,
        cost: impl Fn(u64, u64) -> u64,
        now: Millis,
    ) -> Result<(Event, u64), BudgetBreach> {
        let amount = |output: u64| BudgetAmount {
            tokens: input.saturating_add(output),
            calls: 0,
            cost_micros: cost(input, output),
        };
        let least = output_cap.min(1);
        let event = self.reserve(id, amount(least), now)?;
        let (mut fits, mut most) = (least, output_cap);
        let mut best = event;
        while fits < most {
            let middle = fits + (most - fits).div_ceil(2);
            match self.reserve(id, amount(middle), now) {
                Ok(event) => (fits, best) = (middle, event),
                Err(_) => most = middle - 1,
            }
        }
        Ok((best, fits))
    }

    /// Settles a reservation at the actual use, even if that is more than was reserved: it is spent.
    ///
    /// # Errors
    /// [`SettleError::NotOpen`] for every end after the first.
    pub fn settle_reservation(&self, id: ReservationId, amount: BudgetAmount) -> Result<Event, SettleError> {
        if self.open.contains_key(&id) { Ok(Event::Settled { id, amount }) } else { Err(SettleError::NotOpen(id)) }
    }

    /// Settles a reservation with an unknown outcome, at the reserved amount.
    ///
    /// # Errors
    /// [`SettleError::NotOpen`] for every end after the first.
    pub fn settle_in_doubt(&self, id: ReservationId) -> Result<Event, SettleError> {
        self.open.get(&id).map(|amount| Event::Settled { id, amount: *amount }).ok_or(SettleError::NotOpen(id))
    }

    /// Applies a recorded event. Cannot fail, so replay cannot fail.
    pub fn apply_event(&mut self, event: &Event) {
        match *event {
            Event::Limited { budget, at } => {
                self.budget = budget;
                self.began.get_or_insert(at);
            }
            Event::Carried { spent, began } => {
                self.spent = self.spent.at_least(spent);
                self.began = Some(self.began.map_or(began, |known| known.min(began)));
            }
            Event::Reserved { id, amount } => {
                let before = self.open.insert(id, amount).unwrap_or_default();
                self.reserved = self.reserved.minus(before).plus(amount);
            }
            Event::Settled { id, amount } => {
                if let Some(before) = self.open.remove(&id) {
                    self.reserved = self.reserved.minus(before);
                    self.spent = self.spent.plus(amount);
                }
            }
        }
    }

    fn elapsed_millis(&self, now: Millis) -> u64 {
        self.began.map_or(0, |began| u64::try_from(now.since(began).as_millis()).unwrap_or(u64::MAX))
    }

    /// Returns the time limit that has passed.
    pub fn out_of_time(&self, now: Millis) -> Option<BudgetBreach> {
        let observed = self.elapsed_millis(now);
        let limit = self.budget.wall_time.filter(|limit| self.began.is_some() && observed >= *limit)?;
        Some(BudgetBreach { metric: LedgerMetric::WallTime, limit, observed })
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{Event, ReservationId, SettleError, State};
    use crate::{
        ledger::{BudgetAmount, BudgetBreach, BudgetLimits, LedgerMetric},
        time::Millis,
    };

    const NOW: Millis = Millis(1_000);

    fn id(number: u128) -> ReservationId {
        ReservationId::new(Uuid::from_u128(number))
    }

    fn ledger(budget: BudgetLimits, events: &[Event]) -> State {
        let mut state = State::default();
        state.apply_event(&state.set_limits(budget, NOW));
        events.iter().for_each(|event| state.apply_event(event));
        state
    }

    fn tokens(tokens: u64) -> BudgetAmount {
        BudgetAmount { tokens, ..BudgetAmount::default() }
    }

    #[test]
    fn every_state_answers_every_command() {
        let budget = BudgetLimits { tokens: Some(10), wall_time: Some(500), ..BudgetLimits::default() };
        let breach = |metric, limit, observed| Err(BudgetBreach { metric, limit, observed });
        let reserved = Event::Reserved { id: id(1), amount: tokens(6) };
        let settled = Event::Settled { id: id(1), amount: tokens(6) };
        let over = Event::Settled { id: id(1), amount: tokens(12) };
        let fits = |number| Ok(Event::Reserved { id: id(number), amount: tokens(6) });
        let closed = Err(SettleError::NotOpen(id(1)));
        let ends = |amount| Ok(Event::Settled { id: id(1), amount: tokens(amount) });
        let late = Millis(1_500);
        for (case, events, now, same, other, settle, in_doubt, standing) in [
            ("fresh", vec![], NOW, fits(1), fits(2), closed, closed, None),
            ("open", vec![reserved], NOW, fits(1), breach(LedgerMetric::Tokens, 10, 12), ends(2), ends(6), None),
            (
                "settled",
                vec![reserved, settled],
                NOW,
                breach(LedgerMetric::Tokens, 10, 12),
                breach(LedgerMetric::Tokens, 10, 12),
                closed,
                closed,
                None,
            ),
            (
                "settled above its reservation",
                vec![reserved, over],
                NOW,
                breach(LedgerMetric::Tokens, 10, 18),
                breach(LedgerMetric::Tokens, 10, 18),
                closed,
                closed,
                Some(BudgetBreach { metric: LedgerMetric::Tokens, limit: 10, observed: 12 }),
            ),
            (
                "out of time",
                vec![reserved],
                late,
                breach(LedgerMetric::WallTime, 500, 500),
                breach(LedgerMetric::WallTime, 500, 500),
                ends(2),
                ends(6),
                Some(BudgetBreach { metric: LedgerMetric::WallTime, limit: 500, observed: 500 }),
            ),
        ] {
            let state = ledger(budget, &events);
            assert_eq!(state.reserve(id(1), tokens(6), now), same, "{case}: reserve again");
            assert_eq!(state.reserve(id(2), tokens(6), now), other, "{case}: reserve another");
            assert_eq!(state.settle_reservation(id(1), tokens(2)), settle, "{case}: settle");
            assert_eq!(state.settle_in_doubt(id(1)), in_doubt, "{case}: settle in doubt");
            assert_eq!(state.current_breach(now), standing, "{case}: breach");
        }
    }

    #[test]
    fn twenty_at_once_never_pass_a_limit() {
        for (budget, amount, fit) in [
            (BudgetLimits { calls: Some(7), ..BudgetLimits::default() }, BudgetAmount::CALL, 7),
            (BudgetLimits { tokens: Some(1_000), ..BudgetLimits::default() }, tokens(300), 3),
            (
                BudgetLimits { cost_micros: Some(999), ..BudgetLimits::default() },
                BudgetAmount { cost_micros: 100, ..BudgetAmount::default() },
                9,
            ),
            (BudgetLimits::default(), BudgetAmount::CALL, 20),
        ] {
            let mut state = ledger(budget, &[]);
            let started = (0..20)
                .filter(|number| state.reserve(id(*number), amount, NOW).map(|event| state.apply_event(&event)).is_ok())
                .count();
            assert_eq!(started, fit);
            (0..20)
                .filter_map(|number| state.settle_in_doubt(id(number)).ok())
                .collect::<Vec<_>>()
                .iter()
                .for_each(|event| state.apply_event(event));
            assert_eq!((state.current_breach(NOW), state.reserved()), (None, BudgetAmount::default()));
        }
    }

    #[test]
    fn a_requests_output_is_cut_to_what_is_left_of_tokens_and_money() {
        let price = |input: u64, output: u64| input * 3 + output * 15;
        for (case, budget, want) in [
            ("no limit", BudgetLimits::default(), Ok(500)),
            ("wide", BudgetLimits { tokens: Some(10_000), ..BudgetLimits::default() }, Ok(500)),
            ("tokens", BudgetLimits { tokens: Some(130), ..BudgetLimits::default() }, Ok(30)),
            ("money", BudgetLimits { cost_micros: Some(600), ..BudgetLimits::default() }, Ok(20)),
            (
                "nothing left",
                BudgetLimits { tokens: Some(100), ..BudgetLimits::default() },
                Err(BudgetBreach { metric: LedgerMetric::Tokens, limit: 100, observed: 101 }),
            ),
        ] {
            let state = ledger(budget, &[]);
            assert_eq!(state.reserve_request(id(1), 100, 500, price, NOW).map(|(_, cap)| cap), want, "{case}");
        }
    }

    #[test]
    fn new_limits_keep_the_meters_and_the_clock() {
        let mut state = ledger(
            BudgetLimits { wall_time: Some(500), ..BudgetLimits::default() },
            &[Event::Reserved { id: id(1), amount: tokens(6) }],
        );
        state.apply_event(&state.set_limits(
            BudgetLimits { tokens: Some(5), wall_time: Some(600), ..BudgetLimits::default() },
            Millis(1_400),
        ));
        assert_eq!(state.deadline(), Some(Millis(1_600)));
        assert_eq!(state.amount_left(LedgerMetric::Tokens, NOW), Some(0));
        assert_eq!(state.amount_left(LedgerMetric::ToolCalls, NOW), None);
    }

    #[test]
    fn a_budget_is_within_another_only_if_no_limit_is_wider() {
        let limited = |tokens, calls| BudgetLimits { tokens, calls, ..BudgetLimits::default() };
        for (mine, theirs, want) in [
            (limited(Some(5), None), limited(Some(5), None), true),
            (limited(Some(5), Some(1)), limited(Some(5), None), true),
            (limited(Some(6), None), limited(Some(5), None), false),
            (limited(None, None), limited(Some(5), None), false),
        ] {
            assert_eq!(mine.is_within(&theirs), want);
        }
    }
}
