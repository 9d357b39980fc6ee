//! Reads the contracts of sessions from the record, and reports work that no contract permits.
//!
//! It must not ask the engine, nor its ledger: it computes its own sums.

use std::collections::{BTreeMap, BTreeSet};

use countersign_core::{
    call::{self, CallEnd},
    engine::{Command, Event, FactMeta},
    gate::{self, GateResolution},
    id::{CallId, GateId, RunId, SessionId},
    ledger::{BudgetAmount, BudgetLimits},
    policy::{Class, Contract, ContractScope},
    run, session,
    unattended::{self, BreachResponse, ContractTerms, HostCommandNeeds},
};

use super::rng::SimRng;

/// State of one contract by the record.
#[derive(Clone, Debug)]
struct AuditedContract {
    limits: BudgetLimits,
    spent: BudgetAmount,
    reserved: BTreeMap<RunId, BudgetAmount>,
    runs: BTreeSet<RunId>,
    /// Calls of runs.
    run_calls: BTreeSet<CallId>,
    /// Calls among them that work.
    calls: BTreeSet<CallId>,
    proposed: Option<(GateId, BudgetLimits)>,
    status: AuditedStatus,
    /// True if it ends with the run that works under it.
    is_of_run: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AuditedStatus {
    InForce,
    AwaitingGate(GateId),
    Over,
    Settled,
}

/// Contracts of all sessions.
#[derive(Clone, Debug, Default)]
pub(super) struct ContractAudit {
    by_session: BTreeMap<SessionId, AuditedContract>,
    allowed: BTreeSet<GateId>,
    resolved: BTreeSet<GateId>,
}

impl ContractAudit {
    pub(super) fn read_record(&mut self, meta: &FactMeta, event: &Event) -> Result<(), String> {
        if let Event::Gate(gate::Event::Resolved { gate, resolution, .. }) = event {
            self.resolved.insert(*gate);
            if matches!(resolution, GateResolution::Allowed { .. }) {
                self.allowed.insert(*gate);
            }
        }
        let Some(session) = &meta.session else { return Ok(()) };
        if let Event::Unattended(event) = event {
            return self.read_contract_event(session, event);
        }
        let Some(seen) = self.by_session.get_mut(session) else { return Ok(()) };
        let goes_on = match event {
            Event::Run(run::Event::Ended { end, .. }) => *end == run::RunOutcome::Overflowed,
            Event::Session(session::Event::CompactionEnded { then, .. }) => *then == session::AfterCompaction::Again,
            _ => true,
        };
        if seen.is_of_run && !goes_on {
            self.by_session.remove(session);
            return Ok(());
        }
        match event {
            Event::Run(event) => seen.read_run_event(event),
            Event::Call(event) => seen.read_call_event(event),
            _ => Ok(()),
        }
    }

    fn read_contract_event(&mut self, session: &SessionId, event: &unattended::Event) -> Result<(), String> {
        if let unattended::Event::Declared { terms, spent, firing, .. } = event {
            let seen = AuditedContract {
                limits: terms.budget,
                spent: *spent,
                reserved: BTreeMap::new(),
                runs: BTreeSet::new(),
                run_calls: BTreeSet::new(),
                calls: BTreeSet::new(),
                proposed: None,
                status: AuditedStatus::InForce,
                is_of_run: firing.is_some(),
            };
            return ensure(self.by_session.insert(session.clone(), seen).is_none(), "a contract is declared twice");
        }
        let seen = self.by_session.get_mut(session).ok_or("a contract fact without a contract")?;
        match event {
            unattended::Event::Declared { .. } | unattended::Event::Denied { .. } => Ok(()),
            unattended::Event::Narrowed { terms, .. } => {
                let is_within = terms.budget.is_within(&seen.limits);
                seen.limits = terms.budget;
                ensure(is_within, "a contract is widened without a gate")
            }
            unattended::Event::Proposed { gate, terms } => {
                seen.proposed = Some((*gate, terms.budget));
                Ok(())
            }
            unattended::Event::Widened { .. } => {
                let (gate, limits) = seen.proposed.take().ok_or("a contract is widened without a proposal")?;
                seen.limits = limits;
                ensure(self.allowed.contains(&gate), "a contract is widened although its gate was not allowed")
            }
            unattended::Event::Kept => ensure(seen.proposed.take().is_some(), "a contract is kept without a proposal"),
            unattended::Event::Counted { .. } => {
                seen.spent.calls += 1;
                seen.check_limits("a command exceeds the calls of the budget")
            }
            unattended::Event::Breached { gate, .. } => {
                let is_first = seen.status == AuditedStatus::InForce;
                seen.status = gate.map_or(AuditedStatus::Over, AuditedStatus::AwaitingGate);
                ensure(is_first, "a breach is recorded twice")
            }
            unattended::Event::Extended { metric, limit, .. } => {
                let AuditedStatus::AwaitingGate(gate) = seen.status else {
                    return Err("a limit is raised without a breach".to_owned());
                };
                (seen.status, seen.limits) = (AuditedStatus::InForce, seen.limits.with_limit(*metric, *limit));
                ensure(self.allowed.contains(&gate), "a limit is raised although its gate was not allowed")
            }
            unattended::Event::Ended => {
                let AuditedStatus::AwaitingGate(gate) = seen.status else {
                    return Err("a contract ends without a gate".to_owned());
                };
                seen.status = AuditedStatus::Over;
                let is_no = self.resolved.contains(&gate) && !self.allowed.contains(&gate);
                ensure(is_no, "a contract ends although its gate was not denied")
            }
            unattended::Event::Settled => {
                let is_over = seen.status == AuditedStatus::Over && seen.runs.is_empty();
                seen.status = AuditedStatus::Settled;
                ensure(is_over, "a contract is settled before it is over")
            }
        }
    }
}

impl AuditedContract {
    fn read_run_event(&mut self, event: &run::Event) -> Result<(), String> {
        match event {
            run::Event::Started { run, .. } => {
                self.runs.insert(*run);
                Ok(())
            }
            run::Event::ModelRequested { run, reserved, .. } => {
                let amount = reserved.ok_or("a model is requested without a reservation")?;
                self.reserved.insert(*run, amount);
                ensure(self.status == AuditedStatus::InForce, "a model is requested although a budget is used up")?;
                self.check_limits("a model request exceeds the budget")
            }
            run::Event::Answered { run, spent, .. } => {
                let reserved = self.reserved.remove(run);
                self.add_spent(spent.or(reserved));
                Ok(())
            }
            run::Event::Interrupted { run } | run::Event::Ended { run, .. } => {
                if let run::Event::Ended { .. } = event {
                    self.runs.remove(run);
                }
                let reserved = self.reserved.remove(run);
                self.add_spent(reserved);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn read_call_event(&mut self, event: &call::Event) -> Result<(), String> {
        match event {
            call::Event::Proposed { call, run: Some(_), .. } => {
                self.run_calls.insert(*call);
                Ok(())
            }
            call::Event::Started { call, .. } if self.run_calls.contains(call) => {
                self.calls.insert(*call);
                ensure(self.status == AuditedStatus::InForce, "a call starts although a budget is used up")?;
                self.check_limits("a call exceeds the budget")
            }
            call::Event::Ended { call, end, .. } => {
                if self.calls.remove(call) && *end != CallEnd::Failed {
                    self.spent.calls += 1;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn add_spent(&mut self, amount: Option<BudgetAmount>) {
        self.spent.tokens += amount.unwrap_or_default().tokens;
    }

    /// Checks that all work is within the limits.
    fn check_limits(&self, broken: &str) -> Result<(), String> {
        let tokens = self.spent.tokens + self.reserved.values().map(|amount| amount.tokens).sum::<u64>();
        let calls = self.spent.calls + self.calls.len() as u64;
        let within = |limit: Option<u64>, used: u64| limit.is_none_or(|limit| used <= limit);
        ensure(within(self.limits.tokens, tokens) && within(self.limits.calls, calls), broken)
    }
}

/// Returns a command of a host that declares a contract, or asks for permission.
pub(super) fn random_command(rng: &mut SimRng, session: SessionId) -> Command {
    if rng.chance(30) {
        let need = HostCommandNeeds {
            command: "prompt".to_owned(),
            scope: rng.pick(&[ContractScope::Prompt, ContractScope::Prompt, ContractScope::Admin]),
            takes_a_call: rng.chance(70),
            line: None,
        };
        return Command::Unattended(unattended::Command::Admit { session, need });
    }
    let mut limit = |most: u64| rng.chance(60).then(|| 1 + rng.below(most));
    let budget = BudgetLimits { tokens: limit(6_000), calls: limit(8), wall_time: limit(2_000_000), cost_micros: None };
    let classes = [Class::FileWrite, Class::BashReadonly, Class::BashMutating, Class::FileDelete];
    let terms = ContractTerms {
        actor: "ci".to_owned(),
        may: Contract {
            scopes: [ContractScope::Prompt, ContractScope::Bash].into(),
            commands: [ContractScope::Prompt].into(),
            classes: classes.into_iter().filter(|_| rng.chance(80)).collect(),
            tools: None,
            servers: rng.chance(50),
        },
        budget,
        on_breach: rng.pick(&[BreachResponse::Ask, BreachResponse::Ask, BreachResponse::End]),
        renegotiable: rng.chance(50),
    };
    let terms = Box::new(terms);
    Command::Unattended(unattended::Command::Declare { session, terms, carried: None })
}

fn ensure(holds: bool, broken: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(broken.to_owned()) }
}
