//! Trial of an edited rule: its effect on the record and on the file, before it is saved.

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
    ConsoleState, PageContext,
    console_card::{AnswerText, CardContext, CardPlace, ConsoleGate},
    effect::{ActionCounts, PolicySnapshot, RuleEffect, compare_policies},
    gates::fresh_key,
    history::{CallVerdict, PastCall},
    labels::{count_text, escape_line, escape_lines, time_ago, url_path, verdict_badge},
    page::{ConsoleTab, PageError, render_page_with},
    rule_fit::{RuleFit, fit_rule},
    rule_form::{ACTIONS, REMOVE, RuleForm, YAML},
};

/// Renders the form of a rule.
pub(super) fn render_form(rule_form: &RuleForm) -> Markup {
    if rule_form.is_written() {
        return written_form(rule_form);
    }
    html! {
        form.stack.rule method="get" action="/console/try" {
            label for="pattern" { "Matches" }
            @if rule_form.pattern.contains('\n') { textarea #pattern name="pattern" rows="3" required spellcheck="false" { "\n" (rule_form.pattern) } }
            @else { input #pattern name="pattern" value=(rule_form.pattern) placeholder="bash(git status*)" required autocomplete="off" spellcheck="false"; }
            label for="action" { "Action" }
            select #action name="action" {
                @for (_, word, name) in ACTIONS { option value=(word) selected[rule_form.action == word] { (name) } }
            }
            label for="principal" { "Agent (optional)" }
            input #principal name="principal" value=(rule_form.principal) autocomplete="off" spellcheck="false";
            label for="description" { "Description (optional)" }
            input #description name="description" value=(rule_form.description) autocomplete="off";
            @for (name, value) in [("line", &rule_form.line), ("of", &rule_form.of)] {
                @if !value.is_empty() { input type="hidden" name=(name) value=(value); }
            }
            button.primary type="submit" { "Show its effect" }
        }
        p.note { "For conditions on arguments, or for required approvers: " a href=(as_yaml(&rule_form.line)) { "write the rule as YAML" } "." }
    }
}

fn as_yaml(line: &str) -> String {
    RuleForm { form: YAML.to_owned(), line: line.to_owned(), ..RuleForm::default() }.preview_url()
}

/// Renders the form of a rule as it stands in the file.
fn written_form(rule_form: &RuleForm) -> Markup {
    let lines = rule_form.text.lines().count().clamp(5, 20);
    html! {
        form.stack.rule method="get" action="/console/try" {
            label for="text" { @if rule_form.line.is_empty() { "Rule as YAML, as in the file" } @else { "Rule in line " (rule_form.line) " of the file" } }
            textarea.code #text name="text" rows=(lines) required spellcheck="false" placeholder="tool: pay\nargs:\n  sum: { max: 50 }\naction: allow" { "\n" (rule_form.text) }
            @for (name, value) in [("form", &rule_form.form), ("line", &rule_form.line), ("of", &rule_form.of)] {
                @if !value.is_empty() { input type="hidden" name=(name) value=(value); }
            }
            button.primary type="submit" { "Show its effect" }
        }
    }
}

pub(super) async fn show_trial(
    State(console): State<Arc<ConsoleState>>,
    Extension(caller): Extension<HttpCaller>,
    Query(rule_form): Query<RuleForm>,
) -> Result<Response, PageError> {
    let ctx = console.page_context(caller).await?;
    console.trial_page(&ctx, rule_form, None).await
}

/// Effect of a change.
struct RuleTrial {
    draft: RulesDraft,
    effect: RuleEffect,
    /// Effect of a new rule.
    fit: Option<RuleFit>,
    /// Pending gate, and whether the rule allows it; else the reason.
    waits: Option<Result<(), String>>,
}

impl ConsoleState {
    /// Renders the page of a change, with a notice above it.
    pub(super) async fn trial_page(
        &self,
        ctx: &PageContext,
        rule_form: RuleForm,
        notice: Option<(StatusCode, String)>,
    ) -> Result<Response, PageError> {
        let like = self.find_call(rule_form.source_id()).await?;
        let mut notice = notice;
        let rule_form = match &like {
            Some(made) if rule_form.pattern.is_empty() && !rule_form.is_written() => fill_form(rule_form, made),
            _ => match self.as_it_stands(rule_form).await {
                (rule_form, None) => rule_form,
                (rule_form, Some(problem)) => {
                    notice.get_or_insert((StatusCode::NOT_FOUND, problem));
                    rule_form
                }
            },
        };
        let gate = match like.as_ref().and_then(|made| made.gate) {
            Some(gate) => self.load_gate(gate).await?.filter(|(console_gate, _)| console_gate.is_pending()),
            None => None,
        };
        let tried = match rule_form.parse_edit() {
            Ok(None) => None,
            Ok(Some(edit)) => {
                let waits = like.as_ref().filter(|_| gate.is_some());
                self.try_edit(edit, waits, gate.as_ref().map(|(console_gate, _)| console_gate)).await?
            }
            Err(problem) => Some(Err(problem)),
        };
        let status = notice.as_ref().map_or(StatusCode::OK, |(status, _)| *status);
        let title = match rule_form.action == REMOVE {
            true => "Remove a rule",
            false if rule_form.line.is_empty() => "New rule",
            false => "Edit a rule",
        };
        let body = html! {
            p.back { a href="/console/policy" { "← Policy" } }
            h1 { (title) }
            @if let Some((_, text)) = &notice { div.problem role="alert" { pre { (escape_lines(text)) } } }
            @if let Some((console_gate, answered)) = &gate { (waiting_card(ctx, console_gate, answered)) }
            div.two {
                @if rule_form.action != REMOVE { div.panel { (render_form(&rule_form)) } }
                div.panel aria-live="polite" {
                    @match &tried {
                        None if !rule_form.line.is_empty() => { p { "This is the rule in the file. Edit it: you see its effect on the calls in the record here before you save it." } }
                        None => { p { "Write a rule: you see its effect on the calls in the record here before you save it." } }
                        Some(Err(problem)) => { h2 { "This cannot be saved" } div.problem { pre { (escape_lines(problem)) } } }
                        Some(Ok(tried)) => { (render_trial(tried, ctx.now)) }
                    }
                }
            }
            @if let Some(Ok(tried)) = &tried { (self.save_section(ctx, &rule_form, tried, gate.as_ref().map(|(console_gate, _)| console_gate))) }
        };
        Ok(render_page_with(status, ctx, ConsoleTab::Policy, title, None, &body))
    }

    /// Adds the text at the line of the file if the form has none, and returns the problem with it, if there is one.
    async fn as_it_stands(&self, rule_form: RuleForm) -> (RuleForm, Option<String>) {
        let line = rule_form.line.trim().parse::<u64>().ok();
        let Some(line) = line.filter(|_| rule_form.is_written() && rule_form.text.trim().is_empty()) else {
            return (rule_form, None);
        };
        match self.context.rules_file.rule_text(line).await {
            Ok(text) => (RuleForm { text, ..rule_form }, None),
            Err(problem) => (rule_form, Some(format!("This rule cannot be edited here: {problem}"))),
        }
    }

    /// Finds the call that a rule is made from, if it is still in memory.
    pub(super) async fn find_call(&self, of: &str) -> Result<Option<PastCall>, PageError> {
        if of.is_empty() {
            return Ok(None);
        }
        let past = self.history.upto_now(&self.context.handle).await.map_err(PageError::unreadable_record)?;
        let is_it =
            |made: &&PastCall| made.id.to_string() == of || made.gate.is_some_and(|gate| gate.to_string() == of);
        Ok(past.calls().rev().find(is_it).cloned())
    }

    async fn try_edit(
        &self,
        edit: RuleEdit,
        waits: Option<&PastCall>,
        console_gate: Option<&ConsoleGate>,
    ) -> Result<Option<Result<RuleTrial, String>>, PageError> {
        let instead = edit.instead;
        let draft = match self.context.rules_file.draft_edit(edit).await {
            Ok(draft) => draft,
            // No text of it is changed yet.
            Err(DraftError::There { line, .. }) if instead == Some(u64::from(line)) => return Ok(None),
            Err(error) => return Ok(Some(Err(error.to_string()))),
        };
        let now = self
            .context
            .handle
            .source(InboxLane::Request)
            .read_state(PolicySnapshot::from_engine)
            .await
            .ok_or_else(PageError::gateway_closing)?
            .0;
        let past = self.history.upto_now(&self.context.handle).await.map_err(PageError::unreadable_record)?;
        let calls: Vec<PastCall> = past.calls().filter(|made| made.verdict != CallVerdict::Open).cloned().collect();
        drop(past);
        let at = self.context.clock.now();
        let (then, rule) = (now.with_rules(draft.rules.clone()), draft.rule.clone());
        let waits = waits.map(|made| let_through(&then, made, console_gate.is_some_and(ConsoleGate::is_hosted), at));
        let reckon = move || {
            let effect = compare_policies(&now, &then, &calls, at);
            (effect, rule.map(|rule| fit_rule(&rule, &then, &calls, at)))
        };
        let (effect, fit) = tokio::task::spawn_blocking(reckon).await.map_err(PageError::unreadable_record)?;
        Ok(Some(Ok(RuleTrial { draft, effect, fit, waits })))
    }

    /// Renders the new text of the file, and the button that saves it.
    fn save_section(
        &self,
        ctx: &PageContext,
        rule_form: &RuleForm,
        tried: &RuleTrial,
        gate: Option<&ConsoleGate>,
    ) -> Markup {
        let is_out = rule_form.action == REMOVE;
        html! {
            section.panel #save aria-labelledby="save-title" {
                h2 #save-title { @if is_out { "Remove" } @else { "Apply" } }
                p { "Changes in " code { (escape_line(&self.context.rules_file.path().display().to_string())) } ":" }
                pre.copy.diff { @for line in tried.draft.change.lines() { span.(if line.starts_with('-') { "gone" } else { "come" }) { (escape_line(line)) } } }
                @for warning in &tried.draft.warnings { p.note { strong.warn { "Warning: " } (escape_line(warning)) } }
                @match &tried.waits {
                    Some(Ok(())) => p { "The rule allows the pending call." },
                    Some(Err(why)) => p { strong.warn { "The rule does not allow the pending call" } ": " (escape_line(why)) },
                    None => {}
                }
                form.saving method="post" action="/console/rules" {
                    input type="hidden" name="csrf" value=(ctx.caller.csrf_token());
                    input type="hidden" name="seen" value=(tried.draft.seen);
                    @for (name, value) in rule_form.form_fields() { input type="hidden" name=(name) value=(value); }
                    @if let Some(console_gate) = gate {
                        input type="hidden" name="digest" value=(console_gate.digest());
                        input type="hidden" name="key" value=(fresh_key());
                    }
                    div.act {
                        @if tried.waits == Some(Ok(())) {
                            button.primary type="submit" name="then" value="allow" { "Save and allow the pending call" }
                            button type="submit" { "Save the rule only" }
                        } @else if is_out {
                            button.danger type="submit" { "Remove and save" }
                        } @else {
                            button.primary type="submit" { "Save this rule" }
                        }
                        span.note { "The change takes effect at once, and the record names you as its author." }
                    }
                }
            }
        }
    }
}

/// Checks whether the pending gate would be allowed; otherwise returns the reason.
pub(super) fn let_through(then: &PolicySnapshot, made: &PastCall, is_hosted: bool, at: Millis) -> Result<(), String> {
    if is_hosted {
        return Err("its host brings its own rules, and this file does not apply there.".to_owned());
    }
    let Some(subject) = &made.subject else { return Err("it is too long to be evaluated here.".to_owned()) };
    let verdict = then.verdict_for(subject, at);
    match verdict {
        countersign_core::policy::Verdict::Allow(_) => Ok(()),
        _ => Err(format!("{}.", verdict.why())),
    }
}

/// Returns the form of a rule that allows calls like this one.
fn fill_form(rule_form: RuleForm, made: &PastCall) -> RuleForm {
    let proposed = made.subject.as_ref().and_then(|subject| {
        propose_grants(subject).into_iter().find_map(|proposal| match proposal.covers {
            GrantCoverage::Pattern(pattern) => Some(pattern),
            GrantCoverage::Exact(_) => None,
        })
    });
    // Characters with a meaning in a pattern would not match themselves.
    let whole =
        || made.subject.as_ref().map(|_| made.signature.to_string()).filter(|text| !text.contains(['*', '?', '[']));
    let pattern = proposed.or_else(whole).unwrap_or_default();
    let is_agents = made.session.as_str().starts_with("agent:");
    let principal = if is_agents { made.asker.to_string() } else { String::new() };
    RuleForm { pattern, action: "allow".to_owned(), principal, ..rule_form }
}

/// Renders the gate that waits while the rule is edited.
fn waiting_card(ctx: &PageContext, console_gate: &ConsoleGate, answered: &AnswerText) -> Markup {
    let key = fresh_key();
    let reader =
        CardContext { now: ctx.now, csrf: ctx.caller.csrf_token(), key: &key, place: CardPlace::Page, notice: None };
    html! {
        details.waits open { summary { "Pending call" } div.list { (console_gate.render_card(&reader, answered)) } }
    }
}

fn render_trial(tried: &RuleTrial, now: Millis) -> Markup {
    let effect = &tried.effect;
    let row = |name: &str, of: fn(&ActionCounts) -> u64| {
        let (before, after) = (of(&effect.now), of(&effect.then));
        let sign = if after > before { "+" } else { "−" };
        html! { tr { th scope="row" { (name) } td.number { (before) } td.number { (after) } td.number { @if before == after { "·" } @else { (sign) (before.abs_diff(after)) } } } }
    };
    html! {
        @if let Some(fit) = &tried.fit { (render_fit(fit)) }
        h2 { "Effect on the record" }
        p { (effect.summary_sentence()) }
        table.sums {
            thead { tr { th scope="col" { "Recorded calls" } th.number scope="col" { "Now" } th.number scope="col" { "After" } th scope="col" { span.unseen { "Change" } } } }
            tbody {
                (row("allowed", |sums| sums.allowed))
                (row("needs approval", |sums| sums.gated))
                (row("denied", |sums| sums.denied))
            }
        }
        @if !effect.changed.is_empty() {
            h3 { "Changed calls, newest first" }
            ul.changed {
                @for (made, before, after) in &effect.changed {
                    li {
                        span.badge.(verdict_badge(*before).0) { (verdict_badge(*before).1) } " → " span.badge.(verdict_badge(*after).0) { (verdict_badge(*after).1) } " "
                        a href=(url_path("/console/record/", &made.id.to_string())) { code { (escape_line(&made.signature)) } } " " (time_ago(made.at, now))
                    }
                }
            }
            @if effect.changes > effect.changed.len() as u64 { p.note { "and " (count_text(effect.changes - effect.changed.len() as u64, "more call")) "." } }
        }
    }
}

/// Renders the calls that the rule itself decides.
fn render_fit(fit: &RuleFit) -> Markup {
    let ActionCounts { allowed, gated, denied } = fit.then;
    let calls = allowed + gated + denied;
    html! {
        h2 { "Matching calls" }
        p.fits {
            @if calls == 0 { "No call in the record matches this rule." }
            @else { (count_text(calls, "recorded call")) ": " strong { (allowed) " would be allowed" } ", " (gated) " would need approval, " (denied) " would be denied." }
        }
        @if let Some(rule) = &fit.outranked {
            p { strong.warn { "The rule would have no effect" } ": " code { (escape_line(rule)) } " takes precedence wherever it matches." }
        } @else if fit.held > 0 {
            p { strong.warn { @if fit.held == calls { "The rule would have had no effect" } @else { "The rule would not have decided " (fit.held) " of them" } } ", because something else takes precedence:" }
            ul { @for (why, count) in &fit.why { li { (count) " " (escape_line(why)) } } }
        }
    }
}
