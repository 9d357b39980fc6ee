//! A contract ends the work under it when a budget is used up, or waits for the person who may raise it.

use super::{forget_run, withdrawn_wait};
use crate::{
    call,
    decision::{BranchBuilder, DecisionContext, DecisionView, Event, Fact},
    digest::Digest,
    gate::{self, ApprovalScope, Fallback, GateContent, GateResolution, Kind},
    id::{CallId, GateId},
    ledger::{BudgetAmount, BudgetBreach, LedgerMetric},
    message::StopReason,
    run::{self, AbortState, RunOutcome, RunPhase},
    session::{self, Session},
    time::Millis,
    unattended::{BreachPoint, BreachResponse, ContractStatus, Event as Happened, TermsWidening, UnattendedContract},
};

pub(super) fn due_facts(view: DecisionView<'_>, session: &Session, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    let contract = session.unattended()?;
    if let Some(facts) = proposal_facts(view, session, contract, context) {
        return Some(facts);
    }
    match contract.status() {
        ContractStatus::InForce => {
            let (breach, place) = find_breach(view, session, contract, context.now)?;
            breach_facts(view, session, breach, place, context)
        }
        ContractStatus::AwaitingDecision { gate, breach } => {
            extension_facts(view, session, contract, gate, breach, context)
        }
        ContractStatus::Over { .. } | ContractStatus::Settled { .. } => end_facts(view, session, contract),
    }
}

/// Finds a limit that was reached since the last check.
fn find_breach(
    view: DecisionView<'_>,
    session: &Session,
    contract: &UnattendedContract,
    now: Millis,
) -> Option<(BudgetBreach, BreachPoint)> {
    let ledger = contract.ledger();
    // The end of the time is not recorded while nothing works.
    if let Some(breach) = ledger.out_of_time(now).filter(|_| !session.is_at_rest()) {
        return Some((breach, BreachPoint::Clock));
    }
    let cut_short = || {
        let run = session.run().and_then(|run| view.state.run(run)).filter(|run| run.token_cap().is_some())?;
        let model = session.settings().model.as_ref()?;
        let is_cut = matches!(run.last, Some((_, StopReason::Length, None)));
        is_cut.then(|| contract.cut_short(run.id(), model, now)).flatten()
    };
    ledger.overspent().or_else(cut_short).map(|breach| (breach, BreachPoint::Turn))
}

/// Returns the limit that a call would exceed, were it to start.
pub(super) fn call_breach(session: &Session, call: CallId, now: Millis) -> Option<BudgetBreach> {
    session.unattended()?.ledger().reserve(call.into(), BudgetAmount::CALL, now).err()
}

/// Returns the facts of a breach, or none if a person would have to be asked and the process closes.
pub(crate) fn breach_facts(
    view: DecisionView<'_>,
    session: &Session,
    breach: BudgetBreach,
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
    let gate = GateId::new(context.fresh.next_uuid(context.now));
    branch.push_event(Event::Unattended(Happened::Breached { breach, place, gate: Some(gate) }));
    let more = amount_text(breach.metric, breach.limit);
    let why = format!("because its {} budget of {more} is used up", metric_name(breach.metric));
    open_gate(view, &mut branch, gate, format!("May it go on, with {more} more?"), why, context);
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
        TermsWidening::Limit(metric) => format!("a larger {} budget", metric_name(*metric)),
        TermsWidening::OnBreach => "asking in place of ending when a budget is used up".to_owned(),
        TermsWidening::Renegotiable => "further changes".to_owned(),
    });
    let question = format!("May its contract be widened by {}?", named.collect::<Vec<_>>().join(", "));
    open_gate(view, branch, gate, question, "because its contract may only be widened by a person".to_owned(), context);
}

fn open_gate(
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
    let content = GateContent::GoOn { asker, question, why: Some(why), about: serde_json::Map::new() };
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
        subject: Digest::hash_bytes(content.as_bytes()),
        scopes: vec![ApprovalScope::Once],
        deadline: Some(context.now + session.settings().approval_timeout),
        fallback: Fallback::Deny,
        remind_at: None,
        steps: Vec::new(),
    };
    branch.push_with(Event::Gate(opened), Some(content.into()));
}

/// Returns the facts of the answered question whether the budget is raised.
fn extension_facts(
    view: DecisionView<'_>,
    session: &Session,
    contract: &UnattendedContract,
    gate: GateId,
    breach: BudgetBreach,
    context: &DecisionContext,
) -> Option<Vec<Fact>> {
    let event = match gate_answer(view, session, gate, context.now) {
        ContractAnswer::Waits => return None,
        ContractAnswer::Due(event) => event,
        ContractAnswer::Yes(by) => {
            let metric = breach.metric;
            // As much again, after the use during the decision.
            let used = contract.ledger().used_amount(metric, context.now).max(breach.limit);
            let limit = used.saturating_add(breach.limit);
            Event::Unattended(Happened::Extended { metric, limit, by })
        }
        ContractAnswer::No => Event::Unattended(Happened::Ended),
    };
    Some(vec![Fact::without_content(event, Some(session.id().clone()))])
}

/// Returns the facts of the answered question whether terms may be wider.
fn proposal_facts(
    view: DecisionView<'_>,
    session: &Session,
    contract: &UnattendedContract,
    context: &DecisionContext,
) -> Option<Vec<Fact>> {
    let (gate, _) = contract.proposed_terms()?;
    let event = match gate_answer(view, session, gate, context.now) {
        ContractAnswer::Waits if contract.final_breach().is_some() => Event::Gate(withdrawn_event(gate)),
        ContractAnswer::Waits => return None,
        ContractAnswer::Due(event) => event,
        ContractAnswer::Yes(_) if contract.final_breach().is_some() => Event::Unattended(Happened::Kept),
        ContractAnswer::Yes(by) => Event::Unattended(Happened::Widened { by }),
        ContractAnswer::No => Event::Unattended(Happened::Kept),
    };
    Some(vec![Fact::without_content(event, Some(session.id().clone()))])
}

enum ContractAnswer {
    Waits,
    /// Its deadline has passed.
    Due(Event),
    Yes(Option<crate::id::PrincipalId>),
    No,
}

fn gate_answer(view: DecisionView<'_>, session: &Session, gate: GateId, now: Millis) -> ContractAnswer {
    let Some(gate) = view.state.gate(gate) else { return ContractAnswer::No };
    match gate.phase() {
        gate::GatePhase::Pending => {
            let due = gate.check_expiry(now, session.settings().approval_timeout);
            due.map_or(ContractAnswer::Waits, |event| ContractAnswer::Due(Event::Gate(event)))
        }
        gate::GatePhase::Resolved {
            resolution: GateResolution::Allowed { .. } | GateResolution::Granted, by, ..
        } => ContractAnswer::Yes(by.clone()),
        gate::GatePhase::Resolved { .. } => ContractAnswer::No,
    }
}

fn withdrawn_event(gate: GateId) -> gate::Event {
    gate::Event::auto_resolved(gate, GateResolution::Withdrawn)
}

/// Stops all work, and settles the contract when it has ended.
fn end_facts(view: DecisionView<'_>, session: &Session, contract: &UnattendedContract) -> Option<Vec<Fact>> {
    let mut branch = BranchBuilder::new(session);
    if let Some(run) =
        session.run().and_then(|run| view.state.run(run)).filter(|run| run.abort_state() == AbortState::No)
    {
        let run_id = run.id();
        if let RunPhase::Backoff { .. } = run.phase() {
            forget_run(&mut branch);
            if let Some(withdrawn) = withdrawn_wait(view, run) {
                branch.push_event(withdrawn);
            }
        }
        branch.push_event(Event::Run(match run.phase() {
            RunPhase::Backoff { .. } => {
                run::Event::Ended { run: run_id, end: RunOutcome::Aborted, attempts: run.attempt }
            }
            RunPhase::Opening
            | RunPhase::Thinking { .. }
            | RunPhase::Calling
            | RunPhase::Between
            | RunPhase::Ended(_) => run::Event::Aborting { run: run_id },
        }));
    }
    for call in session.commands().filter_map(|call| view.state.call(call)).filter(|call| !call.aborting) {
        branch.push_event(Event::Call(call::Event::Aborting { call: call.id() }));
    }
    if session.active_compaction().is_some_and(|compaction| !compaction.aborting) {
        branch.push_event(Event::Session(session::Event::CompactionAborting));
    }
    let facts = branch.into_facts();
    if facts.is_empty() && session.is_at_rest() && matches!(contract.status(), ContractStatus::Over { .. }) {
        return Some(vec![Fact::without_content(Event::Unattended(Happened::Settled), Some(session.id().clone()))]);
    }
    (!facts.is_empty()).then_some(facts)
}

const fn metric_name(metric: LedgerMetric) -> &'static str {
    match metric {
        LedgerMetric::Tokens => "token",
        LedgerMetric::ToolCalls => "tool call",
        LedgerMetric::WallTime => "time",
        LedgerMetric::Cost => "money",
    }
}

/// Formats an amount of a metric for people.
fn amount_text(metric: LedgerMetric, amount: u64) -> String {
    match metric {
        LedgerMetric::Tokens => format!("{amount} tokens"),
        LedgerMetric::ToolCalls => format!("{amount} tool calls"),
        LedgerMetric::WallTime => format!("{}.{:03} seconds", amount / 1000, amount % 1000),
        LedgerMetric::Cost => format!("{}.{:06} dollars", amount / 1_000_000, amount % 1_000_000),
    }
}
