//! Where a contract stands.

use serde::{Deserialize, Serialize};

use super::{event::Event, terms::ContractTerms};
use crate::{
    id::{FiringId, GateId, RunId, SessionId},
    ledger::{self, BudgetAmount, BudgetBreach, ReservationId},
    model_ref::ModelRef,
    time::Millis,
};

/// How many tokens a summary may have, of which a compaction asks for two at most.
const SUMMARY: u64 = 8192;

/// Whether work may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContractStatus {
    /// It may.
    InForce,
    /// A person decides whether it may: nothing new begins.
    #[serde(rename = "asked")]
    AwaitingDecision {
        /// What they are asked.
        gate: GateId,
        /// What is used up.
        breach: BudgetBreach,
    },
    /// It may not, and what works is being ended.
    Over {
        /// What was used up.
        breach: BudgetBreach,
    },
    /// It may not, and nothing works.
    Settled {
        /// What was used up.
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
    /// What was declared last, where a person has given more since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    declared: Option<Box<ContractTerms>>,
}

impl UnattendedContract {
    /// The contract that a fact puts in force where there was none.
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

    /// What was declared last. A person may have given more since.
    pub(crate) fn declared_terms(&self) -> &ContractTerms {
        self.declared.as_deref().unwrap_or(&self.terms)
    }

    /// The same, where a person has given more since.
    pub fn narrower_terms(&self) -> Option<&ContractTerms> {
        self.declared.as_deref()
    }

    /// The firing of a job for whose run alone it is.
    pub fn firing_id(&self) -> Option<&FiringId> {
        self.firing.as_ref()
    }

    /// The session that it was first declared in.
    pub fn declared_in(&self) -> &SessionId {
        &self.under
    }

    /// When it was last declared here.
    pub fn declared_at(&self) -> Millis {
        self.declared_at
    }

    /// What it says now.
    pub fn terms(&self) -> &ContractTerms {
        &self.terms
    }

    /// Its meters.
    pub fn ledger(&self) -> &ledger::State {
        &self.ledger
    }

    /// Whether work may go on.
    pub fn status(&self) -> ContractStatus {
        self.standing
    }

    /// What used it up, once that is final.
    pub const fn final_breach(&self) -> Option<BudgetBreach> {
        match self.standing {
            ContractStatus::Over { breach } | ContractStatus::Settled { breach } => Some(breach),
            ContractStatus::InForce | ContractStatus::AwaitingDecision { .. } => None,
        }
    }

    /// Whether something new may begin, as far as no meter says otherwise.
    pub fn is_in_force(&self) -> bool {
        self.standing == ContractStatus::InForce
    }

    /// What a person is asked about: more of a budget, or wider terms.
    pub fn gate_ids(&self) -> impl Iterator<Item = GateId> + use<> {
        let asking_gate = match self.standing {
            ContractStatus::AwaitingDecision { gate, .. } => Some(gate),
            ContractStatus::InForce | ContractStatus::Over { .. } | ContractStatus::Settled { .. } => None,
        };
        asking_gate.into_iter().chain(self.proposed.as_ref().map(|(gate, _)| *gate))
    }

    /// The wider terms that a person is asked about.
    pub(crate) fn proposed_terms(&self) -> Option<(GateId, &ContractTerms)> {
        self.proposed.as_ref().map(|(gate, terms)| (*gate, terms))
    }

    /// When time is used up, while that matters.
    pub(crate) fn deadline(&self) -> Option<Millis> {
        self.ledger.deadline().filter(|_| self.is_in_force())
    }

    /// Decides whether a request of `input` tokens to `model` may start, what it reserves, and how many tokens it may give
    /// out where that is fewer than the model can.
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

    /// What would have been needed by an answer that was cut off at the end of the budget.
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

    /// Folds a recorded event in. Cannot fail, so replay cannot fail.
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

    /// Notes what something may take that has just started.
    pub(crate) fn note_reserved(&mut self, id: ReservationId, amount: BudgetAmount) {
        self.ledger.apply_event(&ledger::Event::Reserved { id, amount });
    }

    /// Notes what something took that has ended; all that it might have taken, where nobody knows.
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

    /// Notes what a compaction may take that has just started.
    pub(crate) fn note_compacting(&mut self, epoch: u32, tokens_before: u64, model: Option<&ModelRef>) {
        self.note_reserved(ReservationId::of_compaction(epoch), compaction_amount(tokens_before, model));
    }
}

/// What the summaries of a compaction may take.
fn compaction_amount(tokens: u64, model: Option<&ModelRef>) -> BudgetAmount {
    let output = SUMMARY * 2;
    let cost_micros = model.map_or(0, |model| model.cost_micros(tokens, output));
    BudgetAmount { tokens: tokens.saturating_add(output), calls: 0, cost_micros }
}
