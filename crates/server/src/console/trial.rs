//! A rule that is tried on the record before anybody writes it into the file.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Query, State},
    response::Response,
};
use countersign_core::policy::{Action, Rule};
use countersign_runtime::Lane;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::{
    Console,
    effect::{Effect, Law, Sums, between},
    history::{Made, Verdict},
    page::{Tab, Trouble, page},
    policy::verb,
    words::{ago, counted, many, one, path},
};
use crate::{gateway::rules, web::Caller};

const ACTIONS: [(Action, &str); 3] = [(Action::Allow, "allow"), (Action::Ask, "ask"), (Action::Deny, "deny")];

/// The rule.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Wanted {
    #[serde(default)]
    pattern: String,
    #[serde(default)]
    action: String,
    #[serde(default)]
    principal: String,
}

impl Wanted {
    /// What is to be tried, if anything is. Where no action is named, it asks.
    ///
    /// # Errors
    /// The action is none, for people.
    fn rule(&self) -> Result<Option<Rule>, String> {
        let Some(pattern) = Some(self.pattern.trim()).filter(|pattern| !pattern.is_empty()) else { return Ok(None) };
        let named = |wanted: &str| ACTIONS.iter().find(|(_, word)| *word == wanted).map(|(action, _)| *action);
        let action = match self.action.as_str() {
            "" => Action::Ask,
            wanted => named(wanted).ok_or_else(|| {
                format!("Unknown action: {wanted}. A call is allowed (allow), asked about (ask) or denied (deny).")
            })?,
        };
        let principal = Some(self.principal.trim()).filter(|text| !text.is_empty()).map(str::to_owned);
        Ok(Some(Rule { principal, ..Rule::new(pattern, action) }))
    }
}

/// The lines for the file.
fn yaml(rule: &Rule) -> String {
    // A string of JSON is one of YAML, on one line whatever it holds.
    let quoted = |text: &str| Value::from(text).to_string();
    let bound = rule.principal.as_deref();
    let bound = bound.map_or_else(String::new, |principal| format!(", principal: {}", quoted(principal)));
    let action = ACTIONS.iter().find(|(action, _)| *action == rule.action).map_or("ask", |(_, word)| *word);
    format!(
        "rules:\n  - {{ pattern: {}{bound}, action: {action} }}",
        quoted(rule.pattern.as_deref().unwrap_or_default())
    )
}

pub(super) fn form(wanted: &Wanted) -> Markup {
    html! {
        form.stack method="get" action="/console/try" {
            label for="pattern" { "A call like" }
            input #pattern name="pattern" value=(wanted.pattern) placeholder="bash(git status*)" required autocomplete="off" spellcheck="false";
            label for="action" { "Is then" }
            select #action name="action" {
                @for (_, word) in ACTIONS { option value=(word) selected[wanted.action == word] { (match word { "allow" => "allowed", "ask" => "asked about", _ => "denied" }) } }
            }
            label for="principal" { "Of this agent only (may stay empty)" }
            input #principal name="principal" value=(wanted.principal) autocomplete="off" spellcheck="false";
            button.primary type="submit" { "Try it on the record" }
        }
    }
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    Extension(caller): Extension<Caller>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Trouble> {
    let look = console.look(caller).await?;
    let (tried, lines) = match wanted.rule() {
        Ok(None) => (None, String::new()),
        Ok(Some(rule)) => {
            let lines = yaml(&rule);
            (Some(console.tried(rule).await?), lines)
        }
        Err(problem) => (Some(Err(problem)), String::new()),
    };
    let body = html! {
        p.back { a href="/console/policy" { "← Policy" } }
        h1 { "Try a rule" }
        div.two {
            div.panel { (form(&wanted)) }
            div.panel aria-live="polite" {
                @match &tried {
                    None => { p { "Write a rule: what it would have done to every call in the record is shown here before anybody saves it." } }
                    Some(Err(problem)) => { h2 { "This is no rule" } p.problem { (many(problem)) } }
                    Some(Ok(effect)) => { (told(effect, look.now)) }
                }
            }
        }
        @if let Some(Ok(_)) = &tried {
            section.panel {
                h2 { "To make it so" }
                p { "Rules are kept in " code { (one(&console.site.config.permissions.display().to_string())) } ". Add this to them, then read the file again:" }
                pre.copy { (many(&lines)) }
                p { a.button href="/console/policy#rules" { "To the rules" } }
            }
        }
    };
    Ok(page(&look, Tab::Policy, "Try a rule", &body))
}

impl Console {
    async fn tried(&self, rule: Rule) -> Result<Result<Effect, String>, Trouble> {
        let now = self.site.handle.source(Lane::Request).read(Law::of).await.ok_or_else(Trouble::closing)?.0;
        let rules = match rules::with(&self.site.config.permissions, &self.site.household, rule) {
            Ok(rules) => rules,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let past = self.history.upto_now(&self.site.handle).await.map_err(Trouble::unread)?;
        let calls: Vec<Made> = past.calls().filter(|made| made.verdict != Verdict::Open).cloned().collect();
        drop(past);
        let at = self.site.clock.now();
        let then = Law { rules, grants: now.grants.clone() };
        let reckon = tokio::task::spawn_blocking(move || between(&now, &then, &calls, at)).await;
        Ok(Ok(reckon.map_err(Trouble::unread)?))
    }
}

fn told(effect: &Effect, now: countersign_core::time::Millis) -> Markup {
    let row = |name: &str, of: fn(&Sums) -> u64| {
        let (before, after) = (of(&effect.now), of(&effect.then));
        let sign = if after > before { "+" } else { "−" };
        html! { tr { th scope="row" { (name) } td.number { (before) } td.number { (after) } td.number { @if before == after { "·" } @else { (sign) (before.abs_diff(after)) } } } }
    };
    html! {
        h2 { "On the record" }
        p { (effect.sentence()) }
        table.sums {
            thead { tr { th scope="col" { "Recorded calls" } th.number scope="col" { "Now" } th.number scope="col" { "With it" } th scope="col" { span.unseen { "Change" } } } }
            tbody {
                (row("allowed", |sums| sums.allowed))
                (row("asked about", |sums| sums.asked))
                (row("denied", |sums| sums.denied))
            }
        }
        @if !effect.changed.is_empty() {
            h3 { "What changes, the newest first" }
            ul.changed {
                @for (made, before, after) in &effect.changed {
                    li {
                        span.badge.(verb(*before).0) { (verb(*before).1) } " → " span.badge.(verb(*after).0) { (verb(*after).1) } " "
                        a href=(path("/console/record/", &made.id.to_string())) { code { (one(&made.signature)) } } " " (ago(made.at, now))
                    }
                }
            }
            @if effect.changes > effect.changed.len() as u64 { p.note { "and " (counted(effect.changes - effect.changed.len() as u64, "more call")) "." } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Wanted, yaml};

    #[test]
    fn the_lines_for_the_file_mean_the_rule_that_was_tried() {
        let wanted = Wanted {
            pattern: "say(\"a\\b\"*)".to_owned(),
            action: "allow".to_owned(),
            principal: "kitchen".to_owned(),
        };
        assert_eq!(
            yaml(&wanted.rule().unwrap().unwrap()),
            "rules:\n  - { pattern: \"say(\\\"a\\\\b\\\"*)\", principal: \"kitchen\", action: allow }"
        );
        let of_lines = Wanted { pattern: "say(a\n  b)".to_owned(), ..Wanted::default() };
        assert_eq!(
            yaml(&of_lines.rule().unwrap().unwrap()),
            "rules:\n  - { pattern: \"say(a\\n  b)\", action: ask }",
            "one line for one rule, and what is not said asks"
        );
        assert_eq!(Wanted::default().rule(), Ok(None));
    }

    #[test]
    fn an_action_that_is_none_is_no_rule() {
        let wanted = Wanted { action: "alow }\n".to_owned(), pattern: "look*".to_owned(), ..Wanted::default() };
        assert!(wanted.rule().unwrap_err().starts_with("Unknown action: alow }"));
    }
}
