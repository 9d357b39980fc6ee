//! Rules in force and their origin, grants and denials, and reloading the rules.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Extension,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse as _, Redirect, Response},
};
use countersign_core::{
    engine::Engine,
    gate::{ApprovalStep, OnExpiry},
    id::GateId,
    policy::{self, Constraint, Grant, RuleAction},
};
use countersign_http::web::{BodyFields, HttpCaller};
use countersign_policy_admin::rules_file::is_plain;
use countersign_runtime::InboxLane;
use countersign_view::{decisions, time::duration_text};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    ConsoleState, PageContext, explain,
    labels::{action_badge, count_text, escape_line, escape_lines, plain_text, principal_name, time_ago, time_left},
    page::{ConsoleTab, PageError, render_page},
    rule_form::RuleForm,
    trial,
};

/// Action that was just done.
#[derive(Deserialize)]
pub(super) struct PolicyQuery {
    #[serde(default)]
    done: String,
}

/// One rule in force, as it is listed.
struct RuleRow {
    text: String,
    origin: String,
    action: RuleAction,
    is_default: bool,
    bound: Vec<(&'static str, String)>,
    description: Option<String>,
    /// Approvers, as text; empty without any.
    steps: String,
    /// Links that change and remove it, if it stands in the file.
    changed: Option<String>,
    out: Option<String>,
}

pub(super) async fn show_policy(
    State(console): State<Arc<ConsoleState>>,
    Extension(caller): Extension<HttpCaller>,
    Query(done): Query<PolicyQuery>,
) -> Result<Response, PageError> {
    let ctx = console.page_context(caller).await?;
    console.policy_page(&ctx, notice_text(&done.done)).await
}

fn notice_text(done: &str) -> Option<(bool, String)> {
    match done {
        "revoked" => Some((true, "Approval revoked. Such calls need approval again.".to_owned())),
        "lifted" => Some((true, "Denial lifted.".to_owned())),
        _ => None,
    }
}

impl ConsoleState {
    pub(super) async fn policy_page(
        &self,
        ctx: &PageContext,
        notice: Option<(bool, String)>,
    ) -> Result<Response, PageError> {
        let read = |engine: &Engine| {
            let state = engine.state().policy();
            let rows: Vec<RuleRow> = engine.rules().compiled.rules().map(|listed| rule_row(&listed)).collect();
            let grants: Vec<Grant> = state.grants().iter().cloned().collect();
            let denials: Vec<Constraint> = state.constraints().iter().cloned().collect();
            (rows, grants, denials, engine.rules().digest())
        };
        let read = self.context.handle.source(InboxLane::Request).read_state(read).await;
        let ((rows, grants, denials, digest), _) = read.ok_or_else(PageError::gateway_closing)?;
        let denials: Vec<Constraint> = denials.into_iter().filter(|one| one.until > ctx.now).collect();
        let gates = denials.iter().filter_map(|one| one.gate).collect();
        let covers = decisions::all_covered(&self.context.handle, gates).await;
        let body = html! {
            h1 { "Policy" }
            @if let Some((is_good, text)) = &notice {
                div.(if *is_good { "told" } else { "problem" }) role=(if *is_good { "status" } else { "alert" }) { pre { (escape_lines(text)) } }
            }
            section aria-labelledby="grants" {
                h2 #grants { "Standing approvals" }
                (self::grants_table(ctx, &grants))
            }
            @if !denials.is_empty() {
                section aria-labelledby="denials" {
                    h2 #denials { "Active denials" }
                    p { "After an approver denies a call, the same call stays denied for a while." }
                    (self::denials_table(ctx, &denials, &covers))
                }
            }
            section.two {
                div.panel { h2 { "Test a request" } (explain::explain_form(self, &explain::ExplainForm::default())) }
                div.panel { h2 { "New rule" } (trial::render_form(&RuleForm::default())) }
            }
            section aria-labelledby="rules" {
                div.heads {
                    h2 #rules { "Rules in force" }
                    form method="post" action="/console/reload" {
                        input type="hidden" name="csrf" value=(ctx.caller.csrf_token());
                        button type="submit" { "Reload" }
                    }
                }
                p {
                    @if rows.is_empty() { "No rules yet. File: " } @else { "File: " }
                    code { (plain_text(&self.context.config.permissions.display().to_string())) } ", digest " code { (digest.to_string().get(..16).unwrap_or_default()) } ". Evaluated from top to bottom."
                }
                (rules_table(&rows))
            }
        };
        Ok(render_page(ctx, ConsoleTab::Policy, "Policy", &body))
    }
}

fn rule_row(listed: &policy::RuleRef<'_>) -> RuleRow {
    let rule = listed.rule;
    let (is_ours, rule_form) = (rule.line > 0, RuleForm::from_rule(rule));
    let bound = [("principal", &rule.principal), ("door", &rule.door), ("target", &rule.target)];
    let bound = bound.into_iter().filter_map(|(side, pattern)| Some((side, plain_text(pattern.as_deref()?))));
    // The name of a rule says all of it; a pattern is followed by the rest.
    let bound = bound.filter(|_| rule.pattern.is_some());
    RuleRow {
        text: rule.pattern.clone().unwrap_or_else(|| listed.named.pattern.clone()),
        origin: listed.named.origin.to_string(),
        action: rule.action,
        is_default: listed.is_default,
        bound: bound.collect(),
        description: rule.description.clone(),
        steps: steps_text(&rule.steps),
        // In fields if those can express all of it, else as it is written.
        changed: is_ours.then(|| match is_plain(rule) {
            true => rule_form.preview_url(),
            false => RuleForm::for_line(rule.line).preview_url(),
        }),
        out: is_ours.then(|| rule_form.removal_url()),
    }
}

/// Describes the approvers, one step after the other.
fn steps_text(steps: &[ApprovalStep]) -> String {
    let descriptions = steps.iter().map(|step| {
        let people =
            step.from.as_ref().map(|from| from.iter().map(|one| plain_text(one)).collect::<Vec<_>>().join(", "));
        let approvers = match people {
            Some(people) => format!("{} of {people}", step.approvals),
            None => count_text(u64::from(step.approvals), "approver"),
        };
        let within = step.within.map_or_else(String::new, |within| format!(" within {}", duration_text(within)));
        let then = match step.on_expiry {
            OnExpiry::Deny | OnExpiry::Next => String::new(),
            OnExpiry::Again(1) => " (asked again once)".to_owned(),
            OnExpiry::Again(times) => format!(" (asked again {times} times)"),
        };
        format!("{approvers}{within}{then}")
    });
    descriptions.collect::<Vec<_>>().join(", else ")
}

/// Renders the rules in the order in which they are checked.
fn rules_table(rows: &[RuleRow]) -> Markup {
    let of = |action: RuleAction, is_default: bool| {
        rows.iter().filter(move |row| (row.action, row.is_default) == (action, is_default))
    };
    let group = |title: &str, action: RuleAction| {
        let mut found = of(action, false).peekable();
        html! { @if found.peek().is_some() { tbody { tr.group { th scope="rowgroup" colspan="3" { (title) } } @for row in found { (render_row(row)) } } } }
    };
    let defaults: Vec<&RuleRow> = rows.iter().filter(|row| row.is_default).collect();
    html! {
        div.scroll tabindex="0" role="region" aria-label="Rules in force" {
            table.rules {
                thead { tr { th scope="col" { "Action" } th scope="col" { "Pattern" } th scope="col" { "Source" } } }
                (group("Deny, before all other rules", RuleAction::Deny))
                tbody { tr.fixed { td colspan="3" { (if of(RuleAction::Deny, false).next().is_some() { "Then" } else { "First" }) " active denials, and the floor: calls that destroy data beyond the working folder and temporary folders always need approval." } } }
                (group("Allow", RuleAction::Allow))
                tbody { tr.fixed { td colspan="3" { "Then standing approvals." } } }
                (group("Ask", RuleAction::Ask))
                @if !defaults.is_empty() {
                    tbody { tr.group { th scope="rowgroup" colspan="3" { "Defaults, the first match decides" } } @for row in defaults { (render_row(row)) } }
                }
                tbody { tr.fixed { td colspan="3" { @if rows.is_empty() { "No rules: reads inside the workspace are allowed. Anything else needs approval." } @else { "Anything else needs approval." } } } }
            }
        }
    }
}

fn render_row(row: &RuleRow) -> Markup {
    let (class, word) = action_badge(row.action);
    html! {
        tr {
            td { span.badge.(class) { (word) } }
            td {
                code { (escape_line(&row.text)) }
                @for (side, pattern) in &row.bound { " " span.bound { (side) " " code { (pattern) } } }
                @if !row.steps.is_empty() { " " span.bound { "needs approval by " (row.steps) } }
                @if let Some(description) = &row.description { p.note { (escape_line(description)) } }
            }
            td.origin {
                (escape_line(&row.origin))
                @if let Some(at) = &row.changed { " " a.more href=(at) { "Edit" span.unseen { ": " (plain_text(&row.text)) } } }
                @if let Some(at) = &row.out { " " a.more href=(at) { "Remove" span.unseen { ": " (plain_text(&row.text)) } } }
            }
        }
    }
}

fn grants_table(ctx: &PageContext, grants: &[Grant]) -> Markup {
    if grants.is_empty() {
        return html! { p.empty { "No standing approvals." } };
    }
    html! {
        div.scroll tabindex="0" role="region" aria-label="Table of standing approvals" {
            table {
                thead { tr { th scope="col" { "Covers" } th scope="col" { "Principal" } th scope="col" { "Approved by" } th scope="col" { "Expires" } th scope="col" { span.unseen { "Revoke" } } } }
                tbody {
                    @for grant in grants {
                        tr {
                            td { (escape_line(&grant.label)) }
                            td data-label="Principal" { (principal_name(&ctx.people, &grant.to)) @if let policy::GrantReach::Session(session) = &grant.scope { ", in session " (plain_text(session.as_str())) } }
                            td data-label="Approved by" { (principal_name(&ctx.people, &grant.by)) @if grant.door == policy::GrantAuth::Open { " " span.bound { "without a login" } } }
                            td data-label="Expires" { @match grant.until { Some(until) => (time_left(until, ctx.now)), None => "never" } }
                            td { (take_back(ctx, &grant.id.to_string(), "Revoke", &plain_text(&grant.label))) }
                        }
                    }
                }
            }
        }
    }
}

fn denials_table(ctx: &PageContext, denials: &[Constraint], covers: &BTreeMap<GateId, String>) -> Markup {
    let what = |denial: &Constraint| denial.gate.and_then(|gate| covers.get(&gate)).unwrap_or(&denial.tool).clone();
    html! {
        div.scroll tabindex="0" role="region" aria-label="Table of active denials" {
            table {
                thead { tr { th scope="col" { "Covers" } th scope="col" { "Principal" } th scope="col" { "Denied by" } th scope="col" { "Expires" } th scope="col" { span.unseen { "Lift" } } } }
                tbody {
                    @for denial in denials {
                        tr {
                            td { (escape_line(&what(denial))) }
                            td data-label="Principal" {
                                (principal_name(&ctx.people, &denial.principal))
                                @if let Some(session) = &denial.session { " in " a href={ "/console/sessions/" (session) } { "one conversation" } }
                            }
                            td data-label="Denied by" { (principal_name(&ctx.people, &denial.by)) @if let Some(reason) = &denial.reason { ": " q { (escape_line(reason)) } } }
                            td data-label="Expires" { (time_left(denial.until, ctx.now)) }
                            td { (take_back(ctx, &decisions::denial_id(denial), "Lift", &plain_text(&what(denial)))) }
                        }
                    }
                }
            }
        }
    }
}

fn take_back(ctx: &PageContext, id: &str, word: &str, what: &str) -> Markup {
    html! {
        form method="post" action={ "/console/revoke/" (id) } {
            input type="hidden" name="csrf" value=(ctx.caller.csrf_token());
            button.danger.quiet type="submit" aria-label={ (word) ": " (what) } { (word) }
        }
    }
}

pub(super) async fn revoke_grant(
    State(console): State<Arc<ConsoleState>>,
    Extension(caller): Extension<HttpCaller>,
    Path(id): Path<String>,
    _: BodyFields,
) -> Result<Response, PageError> {
    let ctx = console.page_context(caller).await?;
    let source = console.context.handle.source(InboxLane::Result);
    match decisions::revoke_by_id(&source, &id, &ctx.caller.principal).await {
        Ok(_) if id.starts_with("denial_") => Ok(Redirect::to("/console/policy?done=lifted").into_response()),
        Ok(_) => Ok(Redirect::to("/console/policy?done=revoked").into_response()),
        Err(problem) => Err(PageError::new(StatusCode::NOT_FOUND, format!("Could not revoke: {problem}."))),
    }
}

pub(super) async fn reload_rules(
    State(console): State<Arc<ConsoleState>>,
    Extension(caller): Extension<HttpCaller>,
    _: BodyFields,
) -> Result<Response, PageError> {
    let ctx = console.page_context(caller).await?;
    let done = console.context.rules_file.reload(Some(ctx.caller.principal.clone())).await;
    let notice = match done {
        Ok(warnings) if warnings.is_empty() => (true, "The rules were reloaded and are in force.".to_owned()),
        Ok(warnings) => (true, format!("The rules were reloaded and are in force.\n{}", warnings.join("\n"))),
        Err(problem) => (false, format!("The rules were not loaded, and the previous rules stay in force:\n{problem}")),
    };
    console.policy_page(&ctx, Some(notice)).await
}

/// Renders the time since a moment, or "never".
pub(super) fn ago_or_never(at: Option<countersign_core::time::Millis>, now: countersign_core::time::Millis) -> Markup {
    at.map_or_else(|| html! { "never" }, |at| time_ago(at, now))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc, time::Duration};

    use countersign_core::gate::{ApprovalStep, OnExpiry};

    #[test]
    fn required_approvers_are_listed_step_by_step() {
        let from = Some(Arc::new(BTreeSet::from(["ana".to_owned(), "bo\u{202e}".to_owned()])));
        let within = Some(Duration::from_secs(600));
        let steps = [
            ApprovalStep { approvals: 2, from, within, on_expiry: OnExpiry::Next },
            ApprovalStep { on_expiry: OnExpiry::Again(3), ..ApprovalStep::default() },
        ];
        let want = "2 of ana, bo\\u{202e} within 10 min, else 1 approver (asked again 3 times)";
        assert_eq!(super::steps_text(&steps), want);
        assert_eq!(super::steps_text(&[]), "");
    }
}
