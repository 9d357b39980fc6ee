//! Short texts for events of a session's contract.

use std::time::Duration;

use countersign_core::{
    gate::IdentityMap,
    ledger::{BudgetAmount, BudgetBreach, LedgerMetric},
    unattended::{BreachPoint, ContractTerms, Event},
};

use super::record_formatter::approver_name;
use crate::time::duration_text;

pub(super) fn contract_text(event: &Event, people: &IdentityMap) -> String {
    match event {
        Event::Declared { terms, spent, .. } => {
            let before = if *spent == BudgetAmount::default() { "" } else { ", earlier use counts" };
            format!("unattended contract declared: {}{before}", terms_of(terms))
        }
        Event::Narrowed { again: true, .. } => "contract declared again, unchanged".to_owned(),
        Event::Narrowed { terms, .. } => format!("contract narrowed: {}", terms_of(terms)),
        Event::Proposed { terms, .. } => format!("wider contract requested: {}", terms_of(terms)),
        Event::Widened { by: Some(by) } => format!("contract widened by {}", approver_name(people, by)),
        Event::Widened { by: None } => "contract widened".to_owned(),
        Event::Kept => "wider contract not accepted".to_owned(),
        Event::Counted { command } => format!("{command} counts as a call of the budget"),
        Event::Denied { lacks, command: Some(command), .. } => {
            format!("{command} refused: the contract does not cover {lacks}")
        }
        Event::Denied { lacks, command: None, .. } => format!("the contract does not cover {lacks}"),
        Event::Breached { breach, place, gate } => {
            let then = if gate.is_some() { "approval requested" } else { "work ended" };
            format!("{} ({}), {then}", of_breach(breach), of_place(place))
        }
        Event::Extended { metric, limit, by } => {
            let by = by.as_ref().map_or_else(String::new, |by| format!(" by {}", approver_name(people, by)));
            format!("{} raised to {}{by}", metric_name(*metric), amount_text(*metric, *limit))
        }
        Event::Ended => "budget not raised, work ended".to_owned(),
        Event::Settled => "all work has ended".to_owned(),
    }
}

fn terms_of(terms: &ContractTerms) -> String {
    let limits =
        LedgerMetric::ALL.into_iter().filter_map(|metric| Some(amount_text(metric, terms.budget.limit_of(metric)?)));
    let limits: Vec<String> = limits.collect();
    let limits = if limits.is_empty() { "no limits".to_owned() } else { limits.join(", ") };
    format!("responsible: {}, {limits}", terms.actor)
}

fn of_breach(breach: &BudgetBreach) -> String {
    let of = |value| amount_text(breach.metric, value);
    format!("{} used up: {} of {}", metric_name(breach.metric), of(breach.observed), of(breach.limit))
}

fn of_place(place: &BreachPoint) -> String {
    match place {
        BreachPoint::Before(command) => format!("before {command}"),
        BreachPoint::Request => "before a model request".to_owned(),
        BreachPoint::Turn => "after an answer of the model".to_owned(),
        BreachPoint::Call => "before a call".to_owned(),
        BreachPoint::Clock => "during work".to_owned(),
    }
}

const fn metric_name(metric: LedgerMetric) -> &'static str {
    match metric {
        LedgerMetric::Tokens => "token budget",
        LedgerMetric::ToolCalls => "tool call budget",
        LedgerMetric::WallTime => "time budget",
        LedgerMetric::Cost => "cost budget",
    }
}

fn amount_text(metric: LedgerMetric, value: u64) -> String {
    match metric {
        LedgerMetric::Tokens => format!("{value} tokens"),
        LedgerMetric::ToolCalls => format!("{value} calls"),
        LedgerMetric::WallTime => duration_text(Duration::from_millis(value)),
        LedgerMetric::Cost => format!("${}.{:06}", value / 1_000_000, value % 1_000_000),
    }
}
