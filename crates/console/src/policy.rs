//! The rules in force and where each comes from, what people granted and denied, and reading the rules again.

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
use countersign_view::decisions;
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    Console, Look, explain,
    page::{Tab, Trouble, page},
    trial,
    wanted::Wanted,
    words::{ago, left, many, one, plain, verb, who},
};

/// What was just done.
#[derive(Deserialize)]
pub(super) struct Done {
    #[serde(default)]
    done: String,
}

/// One rule in force, as it is listed.
struct Row {
    text: String,
    origin: String,
    action: RuleAction,
    is_default: bool,
    bound: Vec<(&'static str, String)>,
    description: Option<String>,
    /// Who has to allow, in words; empty where that is not said.
    steps: String,
    /// Where it is changed, and where it is taken out, if it stands in the file.
    changed: Option<String>,
    out: Option<String>,
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    Extension(caller): Extension<HttpCaller>,
    Query(done): Query<Done>,
) -> Result<Response, Trouble> {
    let look = console.look(caller).await?;
    console.policy_page(&look, notice(&done.done)).await
}

fn notice(done: &str) -> Option<(bool, String)> {
    match done {
        "revoked" => Some((true, "It is taken back. From now on this is asked about again.".to_owned())),
        "lifted" => Some((true, "The denial no longer binds.".to_owned())),
        _ => None,
    }
}

impl Console {
    pub(super) async fn policy_page(&self, look: &Look, notice: Option<(bool, String)>) -> Result<Response, Trouble> {
        let read = |engine: &Engine| {
            let state = engine.state().policy();
            let rows: Vec<Row> = engine.rules().compiled.rules().map(|listed| row(&listed)).collect();
            let grants: Vec<Grant> = state.grants().iter().cloned().collect();
            let denials: Vec<Constraint> = state.constraints().iter().cloned().collect();
            (rows, grants, denials, engine.rules().digest())
        };
        let read = self.context.handle.source(InboxLane::Request).read_state(read).await;
        let ((rows, grants, denials, digest), _) = read.ok_or_else(Trouble::closing)?;
        let denials: Vec<Constraint> = denials.into_iter().filter(|one| one.until > look.now).collect();
        let gates = denials.iter().filter_map(|one| one.gate).collect();
        let covers = decisions::all_covered(&self.context.handle, gates).await;
        let body = html! {
            h1 { "Policy" }
            @if let Some((is_good, text)) = &notice {
                div.(if *is_good { "told" } else { "problem" }) role=(if *is_good { "status" } else { "alert" }) { pre { (many(text)) } }
            }
            section aria-labelledby="grants" {
                h2 #grants { "What people granted" }
                (self::grants(look, &grants))
            }
            @if !denials.is_empty() {
                section aria-labelledby="denials" {
                    h2 #denials { "Denials that bind" }
                    p { "The same call stays denied for a while after a person denied it." }
                    (self::denials(look, &denials, &covers))
                }
            }
            section.two {
                div.panel { h2 { "What becomes of a call?" } (explain::form(self, &explain::Wanted::default())) }
                div.panel { h2 { "New rule" } (trial::form(&Wanted::default())) }
            }
            section aria-labelledby="rules" {
                div.heads {
                    h2 #rules { "Rules in force" }
                    form method="post" action="/console/reload" {
                        input type="hidden" name="csrf" value=(look.caller.csrf_token());
                        button type="submit" { "Read the file again" }
                    }
                }
                p {
                    @if rows.is_empty() { "None yet. They stand in " } @else { "From " }
                    code { (plain(&self.context.config.permissions.display().to_string())) } ", digest " code { (digest.to_string().get(..16).unwrap_or_default()) } ". They are looked at from top to bottom."
                }
                (table(&rows))
            }
        };
        Ok(page(look, Tab::Policy, "Policy", &body))
    }
}

fn row(listed: &policy::RuleRef<'_>) -> Row {
    let rule = listed.rule;
    let (is_ours, wanted) = (rule.line > 0, Wanted::standing(rule));
    let bound = [("principal", &rule.principal), ("door", &rule.door), ("target", &rule.target)];
    let bound = bound.into_iter().filter_map(|(side, pattern)| Some((side, plain(pattern.as_deref()?))));
    // The name of a rule says all of it; of a pattern the rest stands beside it.
    let bound = bound.filter(|_| rule.pattern.is_some());
    Row {
        text: rule.pattern.clone().unwrap_or_else(|| listed.named.pattern.clone()),
        origin: listed.named.origin.to_string(),
        action: rule.action,
        is_default: listed.is_default,
        bound: bound.collect(),
        description: rule.description.clone(),
        steps: steps(&rule.steps),
        // In fields where those can say all of it, else as it is written.
        changed: is_ours.then(|| match is_plain(rule) {
            true => wanted.at(),
            false => Wanted::as_written(rule.line).at(),
        }),
        out: is_ours.then(|| wanted.out()),
    }
}

/// Who has to allow, one step after the other.
fn steps(steps: &[ApprovalStep]) -> String {
    let told = steps.iter().map(|step| {
        let people = step.from.as_ref().map(|from| from.iter().map(|one| plain(one)).collect::<Vec<_>>().join(", "));
        let people = people.unwrap_or_else(|| "whoever may answer".to_owned());
        let within = step.within.map_or_else(String::new, |within| format!(" within {} s", within.as_secs()));
        let then = match step.on_expiry {
            OnExpiry::Deny | OnExpiry::Next => String::new(),
            OnExpiry::Again(times) => format!(" (asked again {times} times)"),
        };
        format!("{} of {people}{within}{then}", step.approvals)
    });
    told.collect::<Vec<_>>().join(", else ")
}

/// The rules in the order in which they are looked at.
fn table(rows: &[Row]) -> Markup {
    let of = |action: RuleAction, is_default: bool| {
        rows.iter().filter(move |row| (row.action, row.is_default) == (action, is_default))
    };
    let group = |title: &str, action: RuleAction| {
        let mut found = of(action, false).peekable();
        html! { @if found.peek().is_some() { tbody { tr.group { th scope="rowgroup" colspan="3" { (title) } } @for row in found { (line(row)) } } } }
    };
    let defaults: Vec<&Row> = rows.iter().filter(|row| row.is_default).collect();
    html! {
        div.scroll tabindex="0" role="region" aria-label="Rules in force" {
            table.rules {
                thead { tr { th scope="col" { "Then" } th scope="col" { "If a call is like" } th scope="col" { "Written in" } } }
                (group("Denied, whatever else is said", RuleAction::Deny))
                tbody { tr.fixed { td colspan="3" { (if of(RuleAction::Deny, false).next().is_some() { "Then" } else { "First" }) " denials of people that bind, and what destroys beyond the workspace and temporary folders: that is always asked about." } } }
                (group("Allowed", RuleAction::Allow))
                tbody { tr.fixed { td colspan="3" { "Then what people granted." } } }
                (group("Asked about", RuleAction::Ask))
                @if !defaults.is_empty() {
                    tbody { tr.group { th scope="rowgroup" colspan="3" { "For the rest, the first that fits" } } @for row in defaults { (line(row)) } }
                }
                tbody { tr.fixed { td colspan="3" { @if rows.is_empty() { "There are no rules: what only reads inside the workspace may happen, and the rest is asked about." } @else { "What nothing fits is asked about." } } } }
            }
        }
    }
}

fn line(row: &Row) -> Markup {
    let (class, word) = verb(row.action);
    html! {
        tr {
            td { span.badge.(class) { (word) } }
            td {
                code { (one(&row.text)) }
                @for (side, pattern) in &row.bound { " " span.bound { (side) " " code { (pattern) } } }
                @if !row.steps.is_empty() { " " span.bound { "has to be allowed by " (row.steps) } }
                @if let Some(description) = &row.description { p.note { (one(description)) } }
            }
            td.origin {
                (one(&row.origin))
                @if let Some(at) = &row.changed { " " a.more href=(at) { "change" span.unseen { ": " (plain(&row.text)) } } }
                @if let Some(at) = &row.out { " " a.more href=(at) { "take out" span.unseen { ": " (plain(&row.text)) } } }
            }
        }
    }
}

fn grants(look: &Look, grants: &[Grant]) -> Markup {
    if grants.is_empty() {
        return html! { p.empty { "Nobody has allowed anything beyond single calls." } };
    }
    html! {
        div.scroll tabindex="0" role="region" aria-label="Grants" {
            table {
                thead { tr { th scope="col" { "Covers" } th scope="col" { "Of" } th scope="col" { "Given by" } th scope="col" { "Ends" } th scope="col" { span.unseen { "Take back" } } } }
                tbody {
                    @for grant in grants {
                        tr {
                            td { (one(&grant.label)) }
                            td data-label="Of" { (who(&look.people, &grant.to)) @if let policy::GrantReach::Session(session) = &grant.scope { ", in session " (plain(session.as_str())) } }
                            td data-label="Given by" { (who(&look.people, &grant.by)) @if grant.door == policy::GrantAuth::Open { " " span.bound { "without a login" } } }
                            td data-label="Ends" { @match grant.until { Some(until) => (left(until, look.now)), None => "not by itself" } }
                            td { (take_back(look, &grant.id.to_string(), "Revoke", &plain(&grant.label))) }
                        }
                    }
                }
            }
        }
    }
}

fn denials(look: &Look, denials: &[Constraint], covers: &BTreeMap<GateId, String>) -> Markup {
    let what = |denial: &Constraint| denial.gate.and_then(|gate| covers.get(&gate)).unwrap_or(&denial.tool).clone();
    html! {
        div.scroll tabindex="0" role="region" aria-label="Denials that bind" {
            table {
                thead { tr { th scope="col" { "Covers" } th scope="col" { "Of" } th scope="col" { "Denied by" } th scope="col" { "Ends" } th scope="col" { span.unseen { "Take back" } } } }
                tbody {
                    @for denial in denials {
                        tr {
                            td { (one(&what(denial))) }
                            td data-label="Of" {
                                (who(&look.people, &denial.principal))
                                @if let Some(session) = &denial.session { " in " a href={ "/console/sessions/" (session) } { "one conversation" } }
                            }
                            td data-label="Denied by" { (who(&look.people, &denial.by)) @if let Some(reason) = &denial.reason { ": " q { (one(reason)) } } }
                            td data-label="Ends" { (left(denial.until, look.now)) }
                            td { (take_back(look, &decisions::denial_id(denial), "Lift", &plain(&what(denial)))) }
                        }
                    }
                }
            }
        }
    }
}

fn take_back(look: &Look, id: &str, word: &str, what: &str) -> Markup {
    html! {
        form method="post" action={ "/console/revoke/" (id) } {
            input type="hidden" name="csrf" value=(look.caller.csrf_token());
            button.danger.quiet type="submit" aria-label={ (word) ": " (what) } { (word) }
        }
    }
}

pub(super) async fn revoke(
    State(console): State<Arc<Console>>,
    Extension(caller): Extension<HttpCaller>,
    Path(id): Path<String>,
    _: BodyFields,
) -> Result<Response, Trouble> {
    let look = console.look(caller).await?;
    let source = console.context.handle.source(InboxLane::Result);
    match decisions::revoke_by_id(&source, &id, &look.caller.principal).await {
        Ok(_) if id.starts_with("denial_") => Ok(Redirect::to("/console/policy?done=lifted").into_response()),
        Ok(_) => Ok(Redirect::to("/console/policy?done=revoked").into_response()),
        Err(problem) => Err(Trouble::new(StatusCode::NOT_FOUND, format!("Not taken back: {problem}."))),
    }
}

pub(super) async fn reload(
    State(console): State<Arc<Console>>,
    Extension(caller): Extension<HttpCaller>,
    _: BodyFields,
) -> Result<Response, Trouble> {
    let look = console.look(caller).await?;
    let done = console.context.rulebook.reload(Some(look.caller.principal.clone())).await;
    let notice = match done {
        Ok(warnings) if warnings.is_empty() => (true, "The rules were read again and are in force.".to_owned()),
        Ok(warnings) => (true, format!("The rules were read again and are in force.\n{}", warnings.join("\n"))),
        Err(problem) => (false, format!("The rules were not taken, those of before stay in force:\n{problem}")),
    };
    console.policy_page(&look, Some(notice)).await
}

/// When something was last so, or never.
pub(super) fn ago_or_never(at: Option<countersign_core::time::Millis>, now: countersign_core::time::Millis) -> Markup {
    at.map_or_else(|| html! { "never" }, |at| ago(at, now))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use countersign_core::gate::{ApprovalStep, OnExpiry};

    #[test]
    fn who_has_to_allow_is_said_step_by_step() {
        let from = Some(BTreeSet::from(["ana".to_owned(), "bo\u{202e}".to_owned()]));
        let within = Some(Duration::from_secs(600));
        let steps = [
            ApprovalStep { approvals: 2, from, within, on_expiry: OnExpiry::Next },
            ApprovalStep { on_expiry: OnExpiry::Again(3), ..ApprovalStep::default() },
        ];
        let want = "2 of ana, bo\\u{202e} within 600 s, else 1 of whoever may answer (asked again 3 times)";
        assert_eq!(super::steps(&steps), want);
        assert_eq!(super::steps(&[]), "");
    }
}
