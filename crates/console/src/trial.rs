//! A rule that is edited: what it would have done to the record, and what it does to the file, before it is saved.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Query, State},
    http::StatusCode,
    response::Response,
};
use countersign_core::{
    policy::{GrantCoverage, propose_grants},
    time::Millis,
};
use countersign_http::web::HttpCaller;
use countersign_policy_admin::rules_file::{DraftError, RuleEdit, RulesDraft};
use countersign_runtime::InboxLane;
use maud::{Markup, html};

use super::{
    Console, Look,
    card::{Answered, Asked, Place, Reader},
    effect::{Effect, Law, Sums, between},
    fit::{Fit, of_rule},
    gates::fresh_key,
    history::{Made, Verdict},
    page::{Tab, Trouble, page_with},
    wanted::{ACTIONS, REMOVE, Wanted, YAML},
    words::{ago, counted, many, one, path, verb},
};

/// The form in which a rule is written.
pub(super) fn form(wanted: &Wanted) -> Markup {
    if wanted.is_written() {
        return written(wanted);
    }
    html! {
        form.stack.rule method="get" action="/console/try" {
            label for="pattern" { "A call like" }
            @if wanted.pattern.contains('\n') { textarea #pattern name="pattern" rows="3" required spellcheck="false" { "\n" (wanted.pattern) } }
            @else { input #pattern name="pattern" value=(wanted.pattern) placeholder="bash(git status*)" required autocomplete="off" spellcheck="false"; }
            label for="action" { "Is then" }
            select #action name="action" {
                @for (_, word, name) in ACTIONS { option value=(word) selected[wanted.action == word] { (name) } }
            }
            label for="principal" { "Of this agent only (may stay empty)" }
            input #principal name="principal" value=(wanted.principal) autocomplete="off" spellcheck="false";
            label for="description" { "Why (may stay empty)" }
            input #description name="description" value=(wanted.description) autocomplete="off";
            @for (name, value) in [("line", &wanted.line), ("of", &wanted.of)] {
                @if !value.is_empty() { input type="hidden" name=(name) value=(value); }
            }
            button.primary type="submit" { "Show its effect" }
        }
        p.note { "For what the arguments must be, or who has to allow: " a href=(as_yaml(&wanted.line)) { "write it as YAML" } "." }
    }
}

fn as_yaml(line: &str) -> String {
    Wanted { form: YAML.to_owned(), line: line.to_owned(), ..Wanted::default() }.at()
}

/// The form in which it is written as it stands in the file.
fn written(wanted: &Wanted) -> Markup {
    let lines = wanted.text.lines().count().clamp(5, 20);
    html! {
        form.stack.rule method="get" action="/console/try" {
            label for="text" { @if wanted.line.is_empty() { "A rule, as it is to stand in the file" } @else { "As it stands in line " (wanted.line) " of the file" } }
            textarea.code #text name="text" rows=(lines) required spellcheck="false" placeholder="tool: pay\nargs:\n  sum: { max: 50 }\naction: allow" { "\n" (wanted.text) }
            @for (name, value) in [("form", &wanted.form), ("line", &wanted.line), ("of", &wanted.of)] {
                @if !value.is_empty() { input type="hidden" name=(name) value=(value); }
            }
            button.primary type="submit" { "Show its effect" }
        }
    }
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    Extension(caller): Extension<HttpCaller>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Trouble> {
    let look = console.look(caller).await?;
    console.trial_page(&look, wanted, None).await
}

/// What is known of a change.
struct Tried {
    draft: RulesDraft,
    effect: Effect,
    /// Of a rule that comes.
    fit: Option<Fit>,
    /// What waits, and whether the rule lets it through; else why not.
    waits: Option<Result<(), String>>,
}

impl Console {
    /// The page of a change, with something to say above it.
    pub(super) async fn trial_page(
        &self,
        look: &Look,
        wanted: Wanted,
        notice: Option<(StatusCode, String)>,
    ) -> Result<Response, Trouble> {
        let like = self.like(wanted.of()).await?;
        let mut notice = notice;
        let wanted = match &like {
            Some(made) if wanted.pattern.is_empty() && !wanted.is_written() => filled(wanted, made),
            _ => match self.as_it_stands(wanted).await {
                (wanted, None) => wanted,
                (wanted, Some(problem)) => {
                    notice.get_or_insert((StatusCode::NOT_FOUND, problem));
                    wanted
                }
            },
        };
        let gate = match like.as_ref().and_then(|made| made.gate) {
            Some(gate) => self.gate(gate).await?.filter(|(asked, _)| asked.is_pending()),
            None => None,
        };
        let tried = match wanted.edit() {
            Ok(None) => None,
            Ok(Some(edit)) => {
                let waits = like.as_ref().filter(|_| gate.is_some());
                self.tried(edit, waits, gate.as_ref().map(|(asked, _)| asked)).await?
            }
            Err(problem) => Some(Err(problem)),
        };
        let status = notice.as_ref().map_or(StatusCode::OK, |(status, _)| *status);
        let title = if wanted.action == REMOVE { "Take a rule out" } else { "A rule" };
        let body = html! {
            p.back { a href="/console/policy" { "← Policy" } }
            h1 { (title) }
            @if let Some((_, text)) = &notice { div.problem role="alert" { pre { (many(text)) } } }
            @if let Some((asked, answered)) = &gate { (waiting(look, asked, answered)) }
            div.two {
                @if wanted.action != REMOVE { div.panel { (form(&wanted)) } }
                div.panel aria-live="polite" {
                    @match &tried {
                        None if !wanted.line.is_empty() => { p { "This is how it stands in the file. Change it: what that would have done to every call in the record is shown here before anybody saves it." } }
                        None => { p { "Write a rule: what it would have done to every call in the record is shown here before anybody saves it." } }
                        Some(Err(problem)) => { h2 { "This cannot be saved" } div.problem { pre { (many(problem)) } } }
                        Some(Ok(tried)) => { (told(tried, look.now)) }
                    }
                }
            }
            @if let Some(Ok(tried)) = &tried { (self.to_save(look, &wanted, tried, gate.as_ref().map(|(asked, _)| asked))) }
        };
        Ok(page_with(status, look, Tab::Policy, title, None, &body))
    }

    /// With what stands in the line of the file, where nothing else is written; and what is in the way of that.
    async fn as_it_stands(&self, wanted: Wanted) -> (Wanted, Option<String>) {
        let line = wanted.line.trim().parse::<u64>().ok();
        let Some(line) = line.filter(|_| wanted.is_written() && wanted.text.trim().is_empty()) else {
            return (wanted, None);
        };
        match self.context.rulebook.rule_text(line).await {
            Ok(text) => (Wanted { text, ..wanted }, None),
            Err(problem) => (wanted, Some(format!("This cannot be changed here: {problem}"))),
        }
    }

    /// The call that a rule is to be like, if it is still at hand.
    pub(super) async fn like(&self, of: &str) -> Result<Option<Made>, Trouble> {
        if of.is_empty() {
            return Ok(None);
        }
        let past = self.history.upto_now(&self.context.handle).await.map_err(Trouble::unread)?;
        let is_it = |made: &&Made| made.id.to_string() == of || made.gate.is_some_and(|gate| gate.to_string() == of);
        Ok(past.calls().rev().find(is_it).cloned())
    }

    async fn tried(
        &self,
        edit: RuleEdit,
        waits: Option<&Made>,
        asked: Option<&Asked>,
    ) -> Result<Option<Result<Tried, String>>, Trouble> {
        let instead = edit.instead;
        let draft = match self.context.rulebook.draft_edit(edit).await {
            Ok(draft) => draft,
            // Nothing of it is changed yet.
            Err(DraftError::There { line, .. }) if instead == Some(u64::from(line)) => return Ok(None),
            Err(error) => return Ok(Some(Err(error.to_string()))),
        };
        let now =
            self.context.handle.source(InboxLane::Request).read_state(Law::of).await.ok_or_else(Trouble::closing)?.0;
        let past = self.history.upto_now(&self.context.handle).await.map_err(Trouble::unread)?;
        let calls: Vec<Made> = past.calls().filter(|made| made.verdict != Verdict::Open).cloned().collect();
        drop(past);
        let at = self.context.clock.now();
        let (then, rule) = (now.under(draft.rules.clone()), draft.rule.clone());
        let waits = waits.map(|made| let_through(&then, made, asked.is_some_and(Asked::is_hosted), at));
        let reckon = move || {
            let effect = between(&now, &then, &calls, at);
            (effect, rule.map(|rule| of_rule(&rule, &then, &calls, at)))
        };
        let (effect, fit) = tokio::task::spawn_blocking(reckon).await.map_err(Trouble::unread)?;
        Ok(Some(Ok(Tried { draft, effect, fit, waits })))
    }

    /// What the file gets, and the button that gives it.
    fn to_save(&self, look: &Look, wanted: &Wanted, tried: &Tried, gate: Option<&Asked>) -> Markup {
        let is_out = wanted.action == REMOVE;
        html! {
            section.panel #save aria-labelledby="save-title" {
                h2 #save-title { @if is_out { "To take it out" } @else { "To make it so" } }
                p { "What changes in " code { (one(&self.context.rulebook.path().display().to_string())) } ":" }
                pre.copy.diff { @for line in tried.draft.change.lines() { span.(if line.starts_with('-') { "gone" } else { "come" }) { (one(line)) } } }
                @for warning in &tried.draft.warnings { p.note { strong.warn { "Mind: " } (one(warning)) } }
                @match &tried.waits {
                    Some(Ok(())) => p { "What waits is let through by it." },
                    Some(Err(why)) => p { strong.warn { "What waits is not let through by it" } ": " (one(why)) },
                    None => {}
                }
                form.saving method="post" action="/console/rules" {
                    input type="hidden" name="csrf" value=(look.caller.csrf_token());
                    input type="hidden" name="seen" value=(tried.draft.seen);
                    @for (name, value) in wanted.fields() { input type="hidden" name=(name) value=(value); }
                    @if let Some(asked) = gate {
                        input type="hidden" name="digest" value=(asked.digest());
                        input type="hidden" name="key" value=(fresh_key());
                    }
                    div.act {
                        @if tried.waits == Some(Ok(())) {
                            button.primary type="submit" name="then" value="allow" { "Save, and allow what waits" }
                            button type="submit" { "Save the rule only" }
                        } @else if is_out {
                            button.danger type="submit" { "Take it out, and save" }
                        } @else {
                            button.primary type="submit" { "Save this rule" }
                        }
                        span.note { "It is in force at once, and the record says who saved it." }
                    }
                }
            }
        }
    }
}

/// Whether what waits would be let through, else why not.
pub(super) fn let_through(then: &Law, made: &Made, is_hosted: bool, at: Millis) -> Result<(), String> {
    if is_hosted {
        return Err("its host brings its own rules, and this file says nothing there.".to_owned());
    }
    let Some(subject) = &made.subject else { return Err("it is too long to be judged here.".to_owned()) };
    let verdict = then.verdict(subject, at);
    match verdict {
        countersign_core::policy::Verdict::Allow(_) => Ok(()),
        _ => Err(format!("{}.", verdict.why())),
    }
}

/// A rule that allows calls like one that was made.
fn filled(wanted: Wanted, made: &Made) -> Wanted {
    let proposed = made.subject.as_ref().and_then(|subject| {
        propose_grants(subject).into_iter().find_map(|proposal| match proposal.covers {
            GrantCoverage::Pattern(pattern) => Some(pattern),
            GrantCoverage::Exact(_) => None,
        })
    });
    // What has a meaning in a pattern would not mean itself.
    let whole =
        || made.subject.as_ref().map(|_| made.signature.to_string()).filter(|text| !text.contains(['*', '?', '[']));
    let pattern = proposed.or_else(whole).unwrap_or_default();
    let is_agents = made.session.as_str().starts_with("agent:");
    let principal = if is_agents { made.asker.to_string() } else { String::new() };
    Wanted { pattern, action: "allow".to_owned(), principal, ..wanted }
}

/// What waits while the rule is edited.
fn waiting(look: &Look, asked: &Asked, answered: &Answered) -> Markup {
    let key = fresh_key();
    let reader = Reader { now: look.now, csrf: look.caller.csrf_token(), key: &key, place: Place::Page, notice: None };
    html! {
        details.waits open { summary { "What waits" } div.list { (asked.card(&reader, answered)) } }
    }
}

fn told(tried: &Tried, now: Millis) -> Markup {
    let effect = &tried.effect;
    let row = |name: &str, of: fn(&Sums) -> u64| {
        let (before, after) = (of(&effect.now), of(&effect.then));
        let sign = if after > before { "+" } else { "−" };
        html! { tr { th scope="row" { (name) } td.number { (before) } td.number { (after) } td.number { @if before == after { "·" } @else { (sign) (before.abs_diff(after)) } } } }
    };
    html! {
        @if let Some(fit) = &tried.fit { (fitting(fit)) }
        h2 { "On the record" }
        p { (effect.sentence()) }
        table.sums {
            thead { tr { th scope="col" { "Recorded calls" } th.number scope="col" { "Now" } th.number scope="col" { "Then" } th scope="col" { span.unseen { "Change" } } } }
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

/// What the rule decides itself.
fn fitting(fit: &Fit) -> Markup {
    let Sums { allowed, asked, denied } = fit.then;
    let calls = allowed + asked + denied;
    html! {
        h2 { "What it fits" }
        p.fits {
            @if calls == 0 { "No call like this is in the record yet." }
            @else { (counted(calls, "recorded call")) ": it would have " strong { "allowed " (allowed) } ", asked " (asked) ", denied " (denied) "." }
        }
        @if let Some(rule) = &fit.outranked {
            p { strong.warn { "It would decide nothing" } ": wherever it fits, " code { (one(rule)) } " goes before it." }
        } @else if fit.held > 0 {
            p { strong.warn { @if fit.held == calls { "It would have decided nothing" } @else { "It would not have decided about " (fit.held) " of them" } } ", for something else goes before it:" }
            ul { @for (why, count) in &fit.why { li { (count) " " (one(why)) } } }
        }
    }
}
