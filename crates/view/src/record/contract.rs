//! Short texts for events of a session's contract.

use countersign_core::{
    ledger::{BudgetAmount, BudgetBreach, LedgerMetric},
    unattended::{BreachPoint, ContractTerms, Event},
};

pub(super) fn contract_text(event: &Event) -> String {
    match event {
        Event::Declared { terms, spent, .. } => {
            let before = if *spent == BudgetAmount::default() { "" } else { ", with meters that go on" };
            format!("works without people: {}{before}", terms_of(terms))
        }
        Event::Narrowed { again: true, .. } => "its contract was declared again as it was".to_owned(),
        Event::Narrowed { terms, .. } => format!("its contract is narrower: {}", terms_of(terms)),
        Event::Proposed { terms, .. } => format!("a wider contract is asked for: {}", terms_of(terms)),
        Event::Widened { by: Some(by) } => format!("its contract was widened by {by}"),
        Event::Widened { by: None } => "its contract was widened".to_owned(),
        Event::Kept => "its contract stays as it is".to_owned(),
        Event::Counted { command } => format!("{command} takes a call of its budget"),
        Event::Denied { lacks, command: Some(command), .. } => {
            format!("{command} refused: its contract does not cover {lacks}")
        }
        Event::Denied { lacks, command: None, .. } => format!("its contract does not cover {lacks}"),
        Event::Breached { breach, place, gate } => {
            let then = if gate.is_some() { "a person is asked" } else { "its work ends" };
            format!("{} ({}), {then}", of_breach(breach), of_place(place))
        }
        Event::Extended { metric, limit, by } => {
            let by = by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
            format!("its {} was raised to {}{by}", metric_name(*metric), amount_text(*metric, *limit))
        }
        Event::Ended => "nobody raised its budget, its work ends".to_owned(),
        Event::Settled => "all its work has ended".to_owned(),
    }
}

fn terms_of(terms: &ContractTerms) -> String {
    let limits =
        LedgerMetric::ALL.into_iter().filter_map(|metric| Some(amount_text(metric, terms.budget.limit_of(metric)?)));
    let limits: Vec<String> = limits.collect();
    let limits = if limits.is_empty() { "no limits".to_owned() } else { limits.join(", ") };
    format!("{} answers for it, {limits}", terms.actor)
}

fn of_breach(breach: &BudgetBreach) -> String {
    let of = |value| amount_text(breach.metric, value);
    format!("its {} is used up: {} of {}", metric_name(breach.metric), of(breach.observed), of(breach.limit))
}

fn of_place(place: &BreachPoint) -> String {
    match place {
        BreachPoint::Before(command) => format!("before {command}"),
        BreachPoint::Request => "before the model is asked".to_owned(),
        BreachPoint::Turn => "after an answer".to_owned(),
        BreachPoint::Call => "before a call".to_owned(),
        BreachPoint::Clock => "while something worked".to_owned(),
    }
}

const fn metric_name(metric: LedgerMetric) -> &'static str {
    match metric {
        LedgerMetric::Tokens => "budget of tokens",
        LedgerMetric::ToolCalls => "budget of tool calls",
        LedgerMetric::WallTime => "time",
        LedgerMetric::Cost => "budget of money",
    }
}

fn amount_text(metric: LedgerMetric, value: u64) -> String {
    match metric {
        LedgerMetric::Tokens => format!("{value} tokens"),
        LedgerMetric::ToolCalls => format!("{value} calls"),
        LedgerMetric::WallTime => format!("{}.{:03} s", value / 1000, value % 1000),
        LedgerMetric::Cost => format!("${}.{:06}", value / 1_000_000, value % 1_000_000),
    }
}
