//! What the decisions of the past look like together: by day, by tool, by asker, how long they took, and what is asked
//! again and again.

use std::sync::Arc;

use axum::{Extension, extract::State, response::Response};
use countersign_core::time::Millis;
use countersign_http::web::HttpCaller;
use countersign_view::time::format_iso;
use maud::{Markup, html};

use super::{
    Console,
    history::{Counts, Like, WAITS},
    page::{Tab, Trouble, page},
    picture,
    record::tabs,
    wanted::Wanted,
    words::{counted, one, path, plain},
};

const DAY: u64 = 86_400_000;
/// How many days are drawn.
const DAYS: u64 = 30;
/// How many where there is little room.
const FEW: usize = 11;
/// How many rows a table has.
const ROWS: usize = 12;
/// How often the same must have been asked to be worth a rule.
const OFTEN: u64 = 2;

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    Extension(caller): Extension<HttpCaller>,
) -> Result<Response, Trouble> {
    let look = console.look(caller).await?;
    let past = console.history.upto_now(&console.context.handle).await.map_err(Trouble::unread)?;
    let tally = &past.tally;
    let today = look.now.0 / DAY;
    let days: Vec<(String, Counts)> = (today.saturating_sub(DAYS - 1)..=today)
        .map(|day| (date(day), tally.days.get(&day).copied().unwrap_or_default()))
        .collect();
    let agents = console.context.agents.all_agents();
    let agents: Vec<(&str, &str)> = agents.iter().map(|(id, session)| (id.as_str(), session.as_str())).collect();
    let mut likes: Vec<(&(Arc<str>, String), &Like)> =
        tally.likes.iter().filter(|(_, like)| like.asked >= OFTEN).collect();
    likes.sort_by_key(|(key, like)| (std::cmp::Reverse(like.asked), *key));
    let body = html! {
        h1 { "Record" }
        (tabs("/console/figures"))
        @if tally.all.all() == 0 { p.empty { "Nothing was decided yet." } }
        section.panel aria-labelledby="by-day" {
            h2 #by-day { "Decisions by day" }
            (picture::legend())
            div.scroll.latest.wide tabindex="0" role="region" aria-label="Decisions by day, drawn" { (picture::days(&days)) }
            div.narrow { (picture::days(&days[days.len().saturating_sub(FEW)..])) }
            details { summary { "As a table" } (table("Day (UTC)", days.iter().rev().filter(|(_, counts)| counts.all() > 0).map(|(day, counts)| (html! { (day) }, *counts)))) }
        }
        section.panel aria-labelledby="often" {
            h2 #often { "Asked most" }
            (often(&likes, &agents))
        }
        section.panel aria-labelledby="waits" {
            h2 #waits { "Time until people answered" }
            (waits(&tally.waits))
        }
        section.panel aria-labelledby="askers" {
            h2 #askers { "By agent" }
            (ranked(&tally.askers, |name| match agents.iter().find(|(id, _)| *id == name) {
                Some((_, session)) => html! { a href=(path("/console/sessions/", session)) { (plain(name)) } },
                None => html! { "runs through " (plain(name)) },
            }))
        }
        section.panel aria-labelledby="tools" {
            h2 #tools { "By tool" }
            (ranked(&tally.tools, |name| html! { a href={ "/console/record?" (serde_urlencoded::to_string([("tool", name)]).unwrap_or_default()) } { (plain(name)) } }))
        }
    };
    Ok(page(&look, Tab::Record, "Figures", &body))
}

fn date(day: u64) -> String {
    format_iso(Millis(day * DAY)).get(..10).unwrap_or_default().to_owned()
}

fn table(head: &str, rows: impl Iterator<Item = (Markup, Counts)>) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(head) {
            table.figures {
                thead { tr { th scope="col" { (head) } @for (name, ..) in Counts::BARS { th.number scope="col" { (name) } } th scope="col" { span.unseen { "Share" } } } }
                tbody { @for (name, counts) in rows { tr { th scope="row" { (name) } @for (name, _, of) in Counts::BARS { td.number data-label=(name) { (of(&counts)) } } td { (picture::share(&counts)) } } } }
            }
        }
    }
}

fn ranked(of: &std::collections::BTreeMap<Arc<str>, Counts>, name: impl Fn(&str) -> Markup) -> Markup {
    let mut rows: Vec<(&Arc<str>, &Counts)> = of.iter().collect();
    rows.sort_by_key(|(name, counts)| (std::cmp::Reverse(counts.all()), *name));
    table("Name", rows.into_iter().take(ROWS).map(|(key, counts)| (name(key), *counts)))
}

fn often(likes: &[(&(Arc<str>, String), &Like)], agents: &[(&str, &str)]) -> Markup {
    let at = |who: &str, pattern: &str| {
        let agent = agents.iter().map(|(id, _)| *id).find(|id| *id == who);
        Wanted::allowing(pattern, agent).at()
    };
    if likes.is_empty() {
        return html! { p.empty { "Nothing was asked more than once." } };
    }
    html! {
        div.scroll tabindex="0" role="region" aria-label="Asked most" {
            table {
                thead { tr { th scope="col" { "Calls like" } th scope="col" { "Of" } th.number scope="col" { "Asked" } th.number scope="col" { "Allowed" } th.number scope="col" { "Denied" } th scope="col" { span.unseen { "Rule" } } } }
                tbody {
                    @for ((who, pattern), like) in likes.iter().take(ROWS) {
                        tr {
                            td { code { (one(pattern)) } }
                            td data-label="Of" { (plain(who)) }
                            td.number data-label="Asked" { (like.asked) }
                            td.number data-label="Allowed" { (like.allowed) }
                            td.number data-label="Denied" { (like.denied) }
                            td { @if like.allowed == like.asked { a.button href=(at(who, pattern)) { "Make a rule of it" span.unseen { ": " (plain(pattern)) } } } }
                        }
                    }
                }
            }
        }
        p.note { "What was always allowed may be worth a rule. It is tried on the record before anything is saved." }
    }
}

fn waits(waits: &[u64]) -> Markup {
    let all: u64 = waits.iter().sum();
    let most = waits.iter().copied().max().unwrap_or(0).max(1);
    html! {
        p { (counted(all, "answer")) " of people." }
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
