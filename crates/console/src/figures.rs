//! Statistics of past decisions: by day, by tool, by caller, by time to answer, and repeated
//! requests.

use std::sync::Arc;

use axum::{Extension, extract::State, response::Response};
use countersign_core::time::Millis;
use countersign_http::web::HttpCaller;
use countersign_view::time::format_iso;
use maud::{Markup, html};

use super::{
    ConsoleState, charts,
    history::{SimilarCalls, VerdictCounts, WAITS},
    labels::{count_text, escape_line, plain_text, url_path},
    page::{ConsoleTab, PageError, render_page},
    record::record_tabs,
    rule_form::RuleForm,
};

const DAY: u64 = 86_400_000;
/// Number of days in a chart.
const DAYS: u64 = 30;
/// Number of days in a narrow chart.
const FEW: usize = 11;
/// Most rows of a table.
const ROWS: usize = 12;
/// Number of equal requests that are worth a rule.
const OFTEN: u64 = 2;

pub(super) async fn show_figures(
    State(console): State<Arc<ConsoleState>>,
    Extension(caller): Extension<HttpCaller>,
) -> Result<Response, PageError> {
    let ctx = console.page_context(caller).await?;
    let past = console.history.upto_now(&console.context.handle).await.map_err(PageError::unreadable_record)?;
    let tally = &past.tally;
    let today = ctx.now.0 / DAY;
    let days: Vec<(String, VerdictCounts)> = (today.saturating_sub(DAYS - 1)..=today)
        .map(|day| (day_text(day), tally.days.get(&day).copied().unwrap_or_default()))
        .collect();
    let agents = console.context.agents.all_agents();
    let agents: Vec<(&str, &str)> = agents.iter().map(|(id, session)| (id.as_str(), session.as_str())).collect();
    let mut likes: Vec<(&(Arc<str>, String), &SimilarCalls)> =
        tally.likes.iter().filter(|(_, like)| like.requests >= OFTEN).collect();
    likes.sort_by_key(|(key, like)| (std::cmp::Reverse(like.requests), *key));
    let body = html! {
        h1 { "Record" }
        (record_tabs("/console/figures"))
        @if tally.all.total_count() == 0 { p.empty { "No decisions yet." } }
        section.panel aria-labelledby="by-day" {
            h2 #by-day { "Decisions by day" }
            (charts::chart_legend())
            div.scroll.latest.wide tabindex="0" role="region" aria-label="Chart of decisions by day" { (charts::day_chart(&days)) }
            div.narrow { (charts::day_chart(&days[days.len().saturating_sub(FEW)..])) }
            details { summary { "As a table" } (figures_table("Day (UTC)", days.iter().rev().filter(|(_, counts)| counts.total_count() > 0).map(|(day, counts)| (html! { (day) }, *counts)))) }
        }
        section.panel aria-labelledby="often" {
            h2 #often { "Most frequent approval requests" }
            (frequent_table(&likes, &agents))
        }
        section.panel aria-labelledby="waits" {
            h2 #waits { "Time to answer" }
            (wait_table(&tally.waits))
        }
        section.panel aria-labelledby="askers" {
            h2 #askers { "By agent" }
            (ranked_table(&tally.askers, |name| match agents.iter().find(|(id, _)| *id == name) {
                Some((_, session)) => html! { a href=(url_path("/console/sessions/", session)) { (plain_text(name)) } },
                None => html! { "runs via " (plain_text(name)) },
            }))
        }
        section.panel aria-labelledby="tools" {
            h2 #tools { "By tool" }
            (ranked_table(&tally.tools, |name| html! { a href={ "/console/record?" (serde_urlencoded::to_string([("tool", name)]).unwrap_or_default()) } { (plain_text(name)) } }))
        }
    };
    Ok(render_page(&ctx, ConsoleTab::Record, "Statistics", &body))
}

fn day_text(day: u64) -> String {
    format_iso(Millis(day * DAY)).get(..10).unwrap_or_default().to_owned()
}

fn figures_table(head: &str, rows: impl Iterator<Item = (Markup, VerdictCounts)>) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(head) {
            table.figures {
                thead { tr { th scope="col" { (head) } @for (name, ..) in VerdictCounts::BARS { th.number scope="col" { (name) } } th scope="col" { span.unseen { "Share" } } } }
                tbody { @for (name, counts) in rows { tr { th scope="row" { (name) } @for (name, _, of) in VerdictCounts::BARS { td.number data-label=(name) { (of(&counts)) } } td { (charts::share_bar(&counts)) } } } }
            }
        }
    }
}

fn ranked_table(of: &std::collections::BTreeMap<Arc<str>, VerdictCounts>, name: impl Fn(&str) -> Markup) -> Markup {
    let mut rows: Vec<(&Arc<str>, &VerdictCounts)> = of.iter().collect();
    rows.sort_by_key(|(name, counts)| (std::cmp::Reverse(counts.total_count()), *name));
    figures_table("Name", rows.into_iter().take(ROWS).map(|(key, counts)| (name(key), *counts)))
}

fn frequent_table(likes: &[(&(Arc<str>, String), &SimilarCalls)], agents: &[(&str, &str)]) -> Markup {
    let at = |who: &str, pattern: &str| {
        let agent = agents.iter().map(|(id, _)| *id).find(|id| *id == who);
        RuleForm::for_pattern(pattern, agent).preview_url()
    };
    if likes.is_empty() {
        return html! { p.empty { "No request needed approval more than once." } };
    }
    html! {
        div.scroll tabindex="0" role="region" aria-label="Table of the most frequent approval requests" {
            table {
                thead { tr { th scope="col" { "Pattern" } th scope="col" { "Requester" } th.number scope="col" { "Requests" } th.number scope="col" { "Allowed" } th.number scope="col" { "Denied" } th scope="col" { span.unseen { "Rule" } } } }
                tbody {
                    @for ((who, pattern), like) in likes.iter().take(ROWS) {
                        tr {
                            td { code { (escape_line(pattern)) } }
                            td data-label="Requester" { (plain_text(who)) }
                            td.number data-label="Requests" { (like.requests) }
                            td.number data-label="Allowed" { (like.allowed) }
                            td.number data-label="Denied" { (like.denied) }
                            td { @if like.allowed == like.requests { a.button href=(at(who, pattern)) { "Create a rule" span.unseen { ": " (plain_text(pattern)) } } } }
                        }
                    }
                }
            }
        }
        p.note { "Consider a rule for calls that were always allowed. You see its effect on the record before you save it." }
    }
}

fn wait_table(waits: &[u64]) -> Markup {
    let all: u64 = waits.iter().sum();
    let most = waits.iter().copied().max().unwrap_or(0).max(1);
    html! {
        p { (count_text(all, "answer")) " by approvers." }
        table.figures {
            thead { tr { th scope="col" { "Time" } th.number scope="col" { "Answers" } th scope="col" { span.unseen { "Share" } } } }
            tbody {
                @for ((_, name), count) in WAITS.iter().zip(waits) {
                    tr { th scope="row" { (name) } td.number { (count) } td { svg.share viewBox="0 0 200 10" preserveAspectRatio="none" aria-hidden="true" { rect.b-person width=(count * 200 / most) height="10" {} } } }
                }
            }
        }
    }
}
