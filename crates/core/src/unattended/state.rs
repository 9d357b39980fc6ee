//! The state of a contract.

use serde::{Deserialize, Serialize};

use super::{event::Event, terms::ContractTerms};
use crate::{
    id::{FiringId, GateId, RunId, SessionId},
    ledger::{self, BudgetAmount, BudgetBreach, ReservationId},
    model_ref::ModelRef,
    time::Millis,
};

/// Maximum number of tokens of a summary, of which a compaction requests two at most.
const SUMMARY: u64 = 8192;

/// Status of a contract: whether work may continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContractStatus {
    /// Work may continue.
    InForce,
    /// A person decides whether work may continue: nothing new begins.
    #[serde(rename = "asked")]
    AwaitingDecision {
        /// The pending gate.
        gate: GateId,
        /// The limit that is used up.
        breach: BudgetBreach,
    },
    /// Work may not continue, and active work is being ended.
    Over {
        /// The limit that is used up.
        breach: BudgetBreach,
    },
    /// Work may not continue, and nothing works.
    Settled {
        /// The limit that is used up.
        breach: BudgetBreach,
    },
}

/// The contract of one session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnattendedContract {
    under: SessionId,
    declared_at: Millis,
    terms: ContractTerms,
    ledger: ledger::State,
    standing: ContractStatus,
    proposed: Option<(GateId, ContractTerms)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    firing: Option<FiringId>,
    /// The last declaration, if a person has granted more since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    declared: Option<Box<ContractTerms>>,
}

impl UnattendedContract {
    /// Creates the contract that a fact puts in force if there was none.
    pub(crate) fn from_event(event: &Event, at: Millis) -> Option<Self> {
        let Event::Declared { under, terms, began, spent, firing, declared } = event else { return None };
        let mut ledger = ledger::State::default();
        ledger.apply_event(&ledger::Event::Limited { budget: terms.budget, at: *began });
        ledger.apply_event(&ledger::Event::Carried { spent: *spent, began: *began });
        Some(Self {
            under: under.clone(),
            declared_at: at,
            terms: (**terms).clone(),
            ledger,
            standing: ContractStatus::InForce,
            proposed: None,
            firing: firing.clone(),
            declared: declared.clone(),
        })
    }

    /// Returns the last declaration. A person may have granted more since.
    pub(crate) fn declared_terms(&self) -> &ContractTerms {
        self.declared.as_deref().unwrap_or(&self.terms)
    }

    /// Returns the last declaration, if a person has granted more since.
    pub fn narrower_terms(&self) -> Option<&ContractTerms> {
        self.declared.as_deref()
    }

    /// Returns the firing of a job to whose run alone it applies.
    pub fn firing_id(&self) -> Option<&FiringId> {
        self.firing.as_ref()
    }

    /// Returns the session that it was first declared in.
    pub fn declared_in(&self) -> &SessionId {
        &self.under
    }

    /// Returns the time of the last declaration here.
    pub fn declared_at(&self) -> Millis {
        self.declared_at
    }

    /// Returns its current terms.
    pub fn terms(&self) -> &ContractTerms {
        &self.terms
    }

    /// Returns its meters.
    pub fn ledger(&self) -> &ledger::State {
        &self.ledger
    }

    /// Returns its status.
    pub fn status(&self) -> ContractStatus {
        self.standing
    }

    /// Returns the limit that used it up, once that is final.
    pub const fn final_breach(&self) -> Option<BudgetBreach> {
        match self.standing {
            ContractStatus::Over { breach } | ContractStatus::Settled { breach } => Some(breach),
            ContractStatus::InForce | ContractStatus::AwaitingDecision { .. } => None,
        }
    }

    /// Reports whether new work may begin, as far as the meters allow it.
    pub fn is_in_force(&self) -> bool {
        self.standing == ContractStatus::InForce
    }

    /// Returns the pending gates: about more of a budget, or wider terms.
    pub fn gate_ids(&self) -> impl Iterator<Item = GateId> + use<> {
        let asking_gate = match self.standing {
            ContractStatus::AwaitingDecision { gate, .. } => Some(gate),
            ContractStatus::InForce | ContractStatus::Over { .. } | ContractStatus::Settled { .. } => None,
        };
        asking_gate.into_iter().chain(self.proposed.as_ref().map(|(gate, _)| *gate))
    }

    /// Returns the wider terms that a person is asked about.
    pub(crate) fn proposed_terms(&self) -> Option<(GateId, &ContractTerms)> {
        self.proposed.as_ref().map(|(gate, terms)| (*gate, terms))
    }

    /// Returns the time at which the time limit is used up, while that matters.
    pub(crate) fn deadline(&self) -> Option<Millis> {
        self.ledger.deadline().filter(|_| self.is_in_force())
    }

    /// Decides whether a request of `input` tokens to `model` may start, its reserve, and its maximum number of output
    /// tokens if that is fewer than the model can write.
    pub(crate) fn check_request(
        &self,
        run: RunId,
        input: u64,
        model: &ModelRef,
        now: Millis,
    ) -> Result<(BudgetAmount, Option<u64>), BudgetBreach> {
        let most = if model.max_tokens == 0 { model.context_window } else { model.max_tokens };
        let cost = |input, output| model.cost_micros(input, output);
        let (event, cap) = self.ledger.reserve_request(run.into(), input, most, cost, now)?;
        let ledger::Event::Reserved { amount, .. } = event else { return Ok((BudgetAmount::default(), None)) };
        Ok((amount, (cap < most).then_some(cap)))
    }

    /// Returns the limit that an answer exceeded which was cut off at the end of the budget.
    pub(crate) fn cut_short(&self, run: RunId, model: &ModelRef, now: Millis) -> Option<BudgetBreach> {
        let amount =
            BudgetAmount { tokens: model.max_tokens, calls: 0, cost_micros: model.cost_micros(0, model.max_tokens) };
        self.ledger.reserve(run.into(), amount, now).err()
    }

    /// Decides whether a compaction of so many tokens may start.
    pub(crate) fn check_compaction(
        &self,
        tokens: u64,
        model: Option<&ModelRef>,
        now: Millis,
    ) -> Result<(), BudgetBreach> {
        let id = ReservationId::of_compaction(u32::MAX);
        self.ledger.reserve(id, compaction_amount(tokens, model), now).map(drop)
    }

    /// Applies a recorded event. Cannot fail, so replay cannot fail.
    pub(crate) fn apply(&mut self, event: &Event, at: Millis) {
        match event {
            Event::Declared { terms, began, spent, declared, .. } => {
                self.ledger.apply_event(&ledger::Event::Carried { spent: *spent, began: *began });
                self.declared.clone_from(declared);
                self.set_terms(terms, at);
            }
            Event::Narrowed { terms, again } => {
                self.declared.take_if(|_| !again);
                self.set_terms(terms, at);
            }
            Event::Proposed { gate, terms } => self.proposed = Some((*gate, (**terms).clone())),
            Event::Widened { .. } => {
                if let Some((_, terms)) = self.proposed.take() {
                    self.declared = None;
                    self.set_terms(&terms, at);
                }
            }
            Event::Kept => self.proposed = None,
            Event::Counted { .. } => {
                let id = ReservationId::of_compaction(0);
                self.ledger.apply_event(&ledger::Event::Reserved { id, amount: BudgetAmount::CALL });
                self.ledger.apply_event(&ledger::Event::Settled { id, amount: BudgetAmount::CALL });
            }
            Event::Denied { .. } => {}
            Event::Breached { breach, gate, .. } => {
                let breach = *breach;
                self.standing = gate
                    .map_or(ContractStatus::Over { breach }, |gate| ContractStatus::AwaitingDecision { gate, breach });
            }
            Event::Extended { metric, limit, .. } => {
                self.declared.get_or_insert_with(|| Box::new(self.terms.clone()));
                self.terms.budget = self.terms.budget.with_limit(*metric, *limit);
                self.ledger.apply_event(&self.ledger.set_limits(self.terms.budget, at));
                self.standing = ContractStatus::InForce;
            }
            Event::Ended => {
                if let ContractStatus::AwaitingDecision { breach, .. } = self.standing {
                    self.standing = ContractStatus::Over { breach };
                }
            }
            Event::Settled => {
                if let ContractStatus::Over { breach } = self.standing {
                    self.standing = ContractStatus::Settled { breach };
                }
            }
        }
    }

    fn set_terms(&mut self, terms: &ContractTerms, at: Millis) {
        self.terms = terms.clone();
        self.declared_at = at;
        self.ledger.apply_event(&self.ledger.set_limits(terms.budget, at));
    }

    /// Records the reserve of work that has just started.
    pub(crate) fn note_reserved(&mut self, id: ReservationId, amount: BudgetAmount) {
        self.ledger.apply_event(&ledger::Event::Reserved { id, amount });
    }

    /// Records the use of work that has ended; its whole reserve, if the use is unknown.
    pub(crate) fn note_settled(&mut self, id: ReservationId, amount: Option<BudgetAmount>) {
        let event = match amount {
            Some(amount) => self.ledger.settle_reservation(id, amount),
            None => self.ledger.settle_in_doubt(id),
        };
        match (event, amount) {
            (Ok(event), _) => self.ledger.apply_event(&event),
            // It began before the contract did.
            (Err(_), Some(amount)) => {
                self.note_reserved(id, amount);
                self.ledger.apply_event(&ledger::Event::Settled { id, amount });
            }
            (Err(_), None) => {}
        }
    }

    /// Records the reserve of a compaction that has just started.
    pub(crate) fn note_compacting(&mut self, epoch: u32, tokens_before: u64, model: Option<&ModelRef>) {
        self.note_reserved(ReservationId::of_compaction(epoch), compaction_amount(tokens_before, model));
    }
}

/// Returns the maximum use of the summaries of a compaction.
fn compaction_amount(tokens: u64, model: Option<&ModelRef>) -> BudgetAmount {
    let output = SUMMARY * 2;
    let cost_micros = model.map_or(0, |model| model.cost_micros(tokens, output));
    BudgetAmount { tokens: tokens.saturating_add(output), calls: 0, cost_micros }
}
