//! Deciders for the contract of a session: what is declared, and what a host's command needs of it.

use super::find;
use crate::{
    decision::{Branch, Context, Decision, Event, Fact, Refusal, Reply, View},
    id::{GateId, SessionId},
    ledger::{Amount, ReservationId},
    policy::ContractScope,
    settle,
    unattended::{Carried, Event as Happened, Need, Outcome, Place, Refusal as Refused, Standing, Terms},
};

/// How long the name of whoever answers for a contract may be.
const LONGEST_NAME: usize = 1024;

pub(super) fn declare(
    view: View<'_>,
    id: &SessionId,
    terms: Terms,
    carried: Option<Carried>,
    context: &mut Context,
) -> Result<Decision, Refusal> {
    let session = find(view, id)?;
    if terms.actor.len() > LONGEST_NAME {
        return Err(Refusal::TooLong { what: "the name of whoever answers for a contract", limit: LONGEST_NAME });
    }
    let in_force = |event| {
        let facts = vec![Fact::plain(Event::Unattended(event), Some(id.clone()))];
        Ok(Decision { facts, reply: Reply::Unattended(Outcome::InForce) })
    };
    let terms = Box::new(terms);
    let Some(contract) = session.unattended() else {
        let fresh = || Carried { under: id.clone(), spent: Amount::default(), began: context.now, declared: None };
        let Carried { under, spent, began, declared } = carried.unwrap_or_else(fresh);
        return in_force(Happened::Declared { under, terms, began, spent, firing: None, declared });
    };
    // That of a run goes with it, and so would whatever took its place.
    if contract.firing().is_some() {
        return Err(Refused::Another.into());
    }
    if let Some(breach) = contract.over() {
        return Err(Refused::Over(breach).into());
    }
    if let Some(Carried { under, spent, began, declared }) = carried {
        return if under == *contract.under() {
            in_force(Happened::Declared { under, terms, began, spent, firing: None, declared })
        } else {
            Err(Refused::Another.into())
        };
    }
    // Whoever says the same as before takes nothing back that a person gave since.
    let again = *terms == *contract.declared();
    let terms = if again { Box::new(contract.terms().clone()) } else { terms };
    let more = terms.beyond(contract.terms());
    if more.is_empty() {
        return in_force(Happened::Narrowed { terms, again });
    }
    if !contract.terms().renegotiable {
        return Err(Refused::Widens(more).into());
    }
    if let Some(gate) = contract.gates().next() {
        return Err(Refused::Asked(gate).into());
    }
    let gate = GateId::new(context.fresh.uuid(context.now));
    let mut branch = Branch::new(session);
    branch.push(Event::Unattended(Happened::Proposed { gate, terms }));
    settle::ask_for_wider(view, &mut branch, gate, &more, context);
    Ok(Decision { facts: branch.finish(), reply: Reply::Unattended(Outcome::Asking(gate)) })
}

/// In this order: the time, a call of the budget, the scope, the class of the action.
pub(super) fn admit(view: View<'_>, id: &SessionId, need: Need, context: &mut Context) -> Result<Decision, Refusal> {
    let session = find(view, id)?;
    let told = |facts, outcome| Ok(Decision { facts, reply: Reply::Unattended(outcome) });
    let Some(contract) = session.unattended() else { return told(Vec::new(), Outcome::Admitted) };
    let Need { command, scope, takes_a_call, line } = need;
    // While a person is asked for more, what begins no work is done whatever the time is: how else would they answer?
    let is_asked = matches!(contract.standing(), Standing::Asked { .. });
    let mut exceeded = contract.ledger().out_of_time(context.now).filter(|_| !is_asked);
    // Another session has what is left of this one's budget, and nothing where this one is over.
    if let Some(breach) = contract.over().filter(|_| scope == ContractScope::Session && exceeded.is_none()) {
        return told(Vec::new(), Outcome::Over(breach));
    }
    if takes_a_call && exceeded.is_none() {
        exceeded = match contract.standing() {
            Standing::Over { breach } | Standing::Settled { breach } => {
                return told(Vec::new(), Outcome::Over(breach));
            }
            Standing::Asked { breach, .. } => Some(breach),
            Standing::InForce => {
                let id = ReservationId::new(context.fresh.uuid(context.now));
                contract.ledger().reserve(id, Amount::CALL, context.now).err()
            }
        };
    }
    if let Some(breach) = exceeded {
        let place = Place::Before(command);
        let is_new = contract.is_in_force();
        let facts = is_new.then(|| settle::breached(view, session, breach, place, context)).flatten();
        return told(facts.unwrap_or_default(), Outcome::Exceeded(breach));
    }
    let home = view.of(session).and_then(|view| view.rules.surroundings.home.as_deref());
    let in_shell = line.as_deref().map(|line| (line, session.folder()));
    if let Some(lacks) = contract.terms().may.lacks_for(scope, in_shell, home) {
        let denied = Happened::Denied { lacks: lacks.clone(), call: None, command: Some(command) };
        let session = Some(id.clone());
        let fact = Fact { event: Event::Unattended(denied), session, content: line.map(Into::into) };
        return told(vec![fact], Outcome::Lacks(lacks));
    }
    let counted = takes_a_call.then_some(Event::Unattended(Happened::Counted { command }));
    let facts = counted.into_iter().map(|event| Fact::plain(event, Some(id.clone()))).collect();
    told(facts, Outcome::Admitted)
}
