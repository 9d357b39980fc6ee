//! A contract ends what works under it when a budget is used up, or waits for the person who may give more.

use super::{forget, withdrawn_wait};
use crate::{
    call,
    decision::{BranchBuilder, DecisionContext, DecisionView, Event, Fact},
    digest::Digest,
    gate::{self, Content, Fallback, Kind, Resolution, Scope},
    id::{CallId, GateId},
    ledger::{Amount, Breach, Metric},
    message::StopReason,
    run::{self, Abort, End, Phase},
    session::{self, Session},
    time::Millis,
    unattended::{BreachPoint, BreachResponse, ContractStatus, Event as Happened, TermsWidening, UnattendedContract},
};

pub(super) fn rule(view: DecisionView<'_>, session: &Session, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    let contract = session.unattended()?;
    if let Some(facts) = proposed(view, session, contract, context) {
        return Some(facts);
    }
    match contract.status() {
        ContractStatus::InForce => {
            let (breach, place) = breach(view, session, contract, context.now)?;
            breached(view, session, breach, place, context)
        }
        ContractStatus::AwaitingDecision { gate, breach } => asked(view, session, contract, gate, breach, context),
        ContractStatus::Over { .. } | ContractStatus::Settled { .. } => ends(view, session, contract),
    }
}

/// What has come to an end since somebody last looked.
fn breach(
    view: DecisionView<'_>,
    session: &Session,
    contract: &UnattendedContract,
    now: Millis,
) -> Option<(Breach, BreachPoint)> {
    let ledger = contract.ledger();
    // Nobody is told that time is up where nothing works.
    if let Some(breach) = ledger.out_of_time(now).filter(|_| !session.is_at_rest()) {
        return Some((breach, BreachPoint::Clock));
    }
    let cut_short = || {
        let run = session.run().and_then(|run| view.state.run(run)).filter(|run| run.cap().is_some())?;
        let model = session.settings().model.as_ref()?;
        let is_cut = matches!(run.last, Some((_, StopReason::Length, None)));
        is_cut.then(|| contract.cut_short(run.id(), model, now)).flatten()
    };
    ledger.overspent().or_else(cut_short).map(|breach| (breach, BreachPoint::Turn))
}

/// What a call would use up, were it to start.
pub(super) fn calls(session: &Session, call: CallId, now: Millis) -> Option<Breach> {
    session.unattended()?.ledger().reserve(call.into(), Amount::CALL, now).err()
}

/// The facts of a breach, or none where a person would have to be asked and the process closes.
pub(crate) fn breached(
    view: DecisionView<'_>,
    session: &Session,
    breach: Breach,
    place: BreachPoint,
    context: &mut DecisionContext,
) -> Option<Vec<Fact>> {
    let contract = session.unattended()?;
    let mut branch = BranchBuilder::new(session);
    if contract.terms().on_breach == BreachResponse::End {
        branch.push_event(Event::Unattended(Happened::Breached { breach, place, gate: None }));
        return Some(branch.into_facts());
    }
    if view.closing {
        return None;
    }
    let gate = GateId::new(context.fresh.uuid(context.now));
    branch.push_event(Event::Unattended(Happened::Breached { breach, place, gate: Some(gate) }));
    let more = written(breach.metric, breach.limit);
    let why = format!("because its {} budget of {more} is used up", words(breach.metric));
    open(view, &mut branch, gate, format!("May it go on, with {more} more?"), why, context);
    Some(branch.into_facts())
}

/// Opens the gate of terms that are wider than those in force.
pub(crate) fn ask_for_wider(
    view: DecisionView<'_>,
    branch: &mut BranchBuilder<'_>,
    gate: GateId,
    more: &[TermsWidening],
    context: &mut DecisionContext,
) {
    let named = more.iter().map(|widening| match widening {
        TermsWidening::May(lack) => lack.to_string(),
        TermsWidening::Limit(metric) => format!("a larger {} budget", words(*metric)),
        TermsWidening::OnBreach => "asking in place of ending when a budget is used up".to_owned(),
        TermsWidening::Renegotiable => "further changes".to_owned(),
    });
    let question = format!("May its contract be widened by {}?", named.collect::<Vec<_>>().join(", "));
    open(view, branch, gate, question, "because its contract may only be widened by a person".to_owned(), context);
}

fn open(
    view: DecisionView<'_>,
    branch: &mut BranchBuilder<'_>,
    gate: GateId,
    question: String,
    why: String,
    context: &mut DecisionContext,
) {
    let session = branch.session();
    let actor = session.unattended().map(|contract| contract.terms().actor.as_str());
    let asker = actor.map_or_else(|| session.id().to_string(), str::to_owned);
    let content = Content::GoOn { asker, question, why: Some(why), about: serde_json::Map::new() };
    let content = serde_json::to_string(&content).expect("content is plain data with text keys");
    let (stage, number) = session.next_place(Kind::Budget.stage());
    let opened = gate::Event::Opened {
        gate,
        kind: Kind::Budget,
        ordinal: view.state.next_ordinal(session.id()),
        number,
        stage,
        run: session.run(),
        call: None,
        subject: Digest::of(content.as_bytes()),
        scopes: vec![Scope::Once],
        deadline: Some(context.now + session.settings().approval_timeout),
        fallback: Fallback::Deny,
        remind_at: None,
        steps: Vec::new(),
    };
    branch.push_with(Event::Gate(opened), Some(content.into()));
}

/// What became of the question whether there is more.
fn asked(
    view: DecisionView<'_>,
    session: &Session,
    contract: &UnattendedContract,
    gate: GateId,
    breach: Breach,
    context: &DecisionContext,
) -> Option<Vec<Fact>> {
    let event = match answered(view, session, gate, context.now) {
        Answered::Waits => return None,
        Answered::Due(event) => event,
        Answered::Yes(by) => {
            let metric = breach.metric;
            // As much again, behind what was used while somebody thought about it.
            let used = contract.ledger().used(metric, context.now).max(breach.limit);
            let limit = used.saturating_add(breach.limit);
            Event::Unattended(Happened::Extended { metric, limit, by })
        }
        Answered::No => Event::Unattended(Happened::Ended),
    };
    Some(vec![Fact::without_content(event, Some(session.id().clone()))])
}

/// What became of the question whether terms may be wider.
fn proposed(
    view: DecisionView<'_>,
    session: &Session,
    contract: &UnattendedContract,
    context: &DecisionContext,
) -> Option<Vec<Fact>> {
    let (gate, _) = contract.proposed_terms()?;
    let event = match answered(view, session, gate, context.now) {
        Answered::Waits if contract.final_breach().is_some() => Event::Gate(withdrawn(gate)),
        Answered::Waits => return None,
        Answered::Due(event) => event,
        Answered::Yes(_) if contract.final_breach().is_some() => Event::Unattended(Happened::Kept),
        Answered::Yes(by) => Event::Unattended(Happened::Widened { by }),
        Answered::No => Event::Unattended(Happened::Kept),
    };
    Some(vec![Fact::without_content(event, Some(session.id().clone()))])
}

enum Answered {
    Waits,
    /// Its deadline has passed.
    Due(Event),
    Yes(Option<crate::id::PrincipalId>),
    No,
}

fn answered(view: DecisionView<'_>, session: &Session, gate: GateId, now: Millis) -> Answered {
    let Some(gate) = view.state.gate(gate) else { return Answered::No };
    match gate.phase() {
        gate::Phase::Pending => {
            let due = gate.expire(now, session.settings().approval_timeout);
            due.map_or(Answered::Waits, |event| Answered::Due(Event::Gate(event)))
        }
        gate::Phase::Resolved { resolution: Resolution::Allowed { .. } | Resolution::Granted, by, .. } => {
            Answered::Yes(by.clone())
        }
        gate::Phase::Resolved { .. } => Answered::No,
    }
}

fn withdrawn(gate: GateId) -> gate::Event {
    gate::Event::ended(gate, Resolution::Withdrawn)
}

/// Whatever works is stopped, and what is left says so.
fn ends(view: DecisionView<'_>, session: &Session, contract: &UnattendedContract) -> Option<Vec<Fact>> {
    let mut branch = BranchBuilder::new(session);
    if let Some(run) = session.run().and_then(|run| view.state.run(run)).filter(|run| run.abort() == Abort::No) {
        let run_id = run.id();
        if let Phase::Backoff { .. } = run.phase() {
            forget(&mut branch);
            if let Some(withdrawn) = withdrawn_wait(view, run) {
                branch.push_event(withdrawn);
            }
        }
        branch.push_event(Event::Run(match run.phase() {
            Phase::Backoff { .. } => run::Event::Ended { run: run_id, end: End::Aborted, attempts: run.attempt },
            Phase::Opening | Phase::Thinking { .. } | Phase::Calling | Phase::Between | Phase::Ended(_) => {
                run::Event::Aborting { run: run_id }
            }
        }));
    }
    for call in session.commands().filter_map(|call| view.state.call(call)).filter(|call| !call.aborting) {
        branch.push_event(Event::Call(call::Event::Aborting { call: call.id() }));
    }
    if session.compaction().is_some_and(|compaction| !compaction.aborting) {
        branch.push_event(Event::Session(session::Event::CompactionAborting));
    }
    let facts = branch.into_facts();
    if facts.is_empty() && session.is_at_rest() && matches!(contract.status(), ContractStatus::Over { .. }) {
        return Some(vec![Fact::without_content(Event::Unattended(Happened::Settled), Some(session.id().clone()))]);
    }
    (!facts.is_empty()).then_some(facts)
}

const fn words(metric: Metric) -> &'static str {
    match metric {
        Metric::Tokens => "token",
        Metric::ToolCalls => "tool call",
        Metric::WallTime => "time",
        Metric::Cost => "money",
    }
}

/// So much of a metric, for people.
fn written(metric: Metric, amount: u64) -> String {
    match metric {
        Metric::Tokens => format!("{amount} tokens"),
        Metric::ToolCalls => format!("{amount} tool calls"),
        Metric::WallTime => format!("{}.{:03} seconds", amount / 1000, amount % 1000),
        Metric::Cost => format!("{}.{:06} dollars", amount / 1_000_000, amount % 1_000_000),
    }
}
