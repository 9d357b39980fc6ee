//! Deciders for the contract of a session: its declaration, and its checks of a host's command.

use super::find_session;
use crate::{
    decision::{BranchBuilder, CommandError, DecisionContext, DecisionResult, DecisionView, EngineReply, Event, Fact},
    id::{GateId, SessionId},
    ledger::{BudgetAmount, ReservationId},
    policy::ContractScope,
    settle,
    unattended::{
        BreachPoint, ContractCarryover, ContractOutcome, ContractStatus, ContractTerms, DeclareError as Refused,
        Event as Happened, HostCommandNeeds,
    },
};

/// Maximum length of the name of the person responsible for a contract.
const LONGEST_NAME: usize = 1024;

pub(super) fn declare_contract(
    view: DecisionView<'_>,
    id: &SessionId,
    terms: ContractTerms,
    carried: Option<ContractCarryover>,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    let session = find_session(view, id)?;
    if terms.actor.len() > LONGEST_NAME {
        return Err(CommandError::TooLong { what: "the name of whoever answers for a contract", limit: LONGEST_NAME });
    }
    let in_force = |event| {
        let facts = vec![Fact::without_content(Event::Unattended(event), Some(id.clone()))];
        Ok(DecisionResult { facts, reply: EngineReply::Unattended(ContractOutcome::InForce) })
    };
    let terms = Box::new(terms);
    let Some(contract) = session.unattended() else {
        let fresh = || ContractCarryover {
            under: id.clone(),
            spent: BudgetAmount::default(),
            began: context.now,
            declared: None,
        };
        let ContractCarryover { under, spent, began, declared } = carried.unwrap_or_else(fresh);
        return in_force(Happened::Declared { under, terms, began, spent, firing: None, declared });
    };
    // The contract of a run ends with it, and so would a contract that replaces it.
    if contract.firing_id().is_some() {
        return Err(Refused::Another.into());
    }
    if let Some(breach) = contract.final_breach() {
        return Err(Refused::Over(breach).into());
    }
    if let Some(ContractCarryover { under, spent, began, declared }) = carried {
        return if under == *contract.declared_in() {
            in_force(Happened::Declared { under, terms, began, spent, firing: None, declared })
        } else {
            Err(Refused::Another.into())
        };
    }
    // Repeating the same declaration revokes nothing that a person granted since.
    let again = *terms == *contract.declared_terms();
    let terms = if again { Box::new(contract.terms().clone()) } else { terms };
    let more = terms.widenings_over(contract.terms());
    if more.is_empty() {
        return in_force(Happened::Narrowed { terms, again });
    }
    if !contract.terms().renegotiable {
        return Err(Refused::Widens(more).into());
    }
    if let Some(gate) = contract.gate_ids().next() {
        return Err(Refused::ProposalPending(gate).into());
    }
    let gate = GateId::new(context.fresh.next_uuid(context.now));
    let mut branch = BranchBuilder::new(session);
    branch.push_event(Event::Unattended(Happened::Proposed { gate, terms }));
    settle::ask_for_wider(view, &mut branch, gate, &more, context);
    Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Unattended(ContractOutcome::Asking(gate)) })
}

/// Checks a host's command, in this order: the time, a call of the budget, the scope, the class of the action.
pub(super) fn admit_command(
    view: DecisionView<'_>,
    id: &SessionId,
    need: HostCommandNeeds,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    let session = find_session(view, id)?;
    let respond = |facts, outcome| Ok(DecisionResult { facts, reply: EngineReply::Unattended(outcome) });
    let Some(contract) = session.unattended() else { return respond(Vec::new(), ContractOutcome::Admitted) };
    let HostCommandNeeds { command, scope, takes_a_call, line } = need;
    // While a person is asked for more, commands that begin no work pass at any time: an answer would not be possible otherwise.
    let is_asked = matches!(contract.status(), ContractStatus::AwaitingDecision { .. });
    let mut exceeded = contract.ledger().out_of_time(context.now).filter(|_| !is_asked);
    // Another session has the rest of this one's budget, and nothing if this one is over.
    if let Some(breach) = contract.final_breach().filter(|_| scope == ContractScope::Session && exceeded.is_none()) {
        return respond(Vec::new(), ContractOutcome::Over(breach));
    }
    if takes_a_call && exceeded.is_none() {
        exceeded = match contract.status() {
            ContractStatus::Over { breach } | ContractStatus::Settled { breach } => {
                return respond(Vec::new(), ContractOutcome::Over(breach));
            }
            ContractStatus::AwaitingDecision { breach, .. } => Some(breach),
            ContractStatus::InForce => {
                let id = ReservationId::new(context.fresh.next_uuid(context.now));
                contract.ledger().reserve(id, BudgetAmount::CALL, context.now).err()
            }
        };
    }
    if let Some(breach) = exceeded {
        let place = BreachPoint::Before(command);
        let is_new = contract.is_in_force();
        let facts = is_new.then(|| settle::breach_facts(view, session, breach, place, context)).flatten();
        return respond(facts.unwrap_or_default(), ContractOutcome::Exceeded(breach));
    }
    let home = view.for_session(session).and_then(|view| view.rules.path_context.home.as_deref());
    let in_shell = line.as_deref().map(|line| (line, session.folder()));
    if let Some(lacks) = contract.terms().may.host_command_gap(scope, in_shell, home) {
        let denied = Happened::Denied { lacks: lacks.clone(), call: None, command: Some(command) };
        let session = Some(id.clone());
        let fact = Fact { event: Event::Unattended(denied), session, content: line.map(Into::into) };
        return respond(vec![fact], ContractOutcome::Lacks(lacks));
    }
    let counted = takes_a_call.then_some(Event::Unattended(Happened::Counted { command }));
    let facts = counted.into_iter().map(|event| Fact::without_content(event, Some(id.clone()))).collect();
    respond(facts, ContractOutcome::Admitted)
}
