//! Explanation of the verdict on a call that is not made, with the rules that nearly decided.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Query, State},
    response::Response,
};
use countersign_core::{
    engine::Engine,
    policy::{self, NearMiss, PolicyLayers, PolicySubject, Verdict, evaluate, near_misses},
};
use countersign_http::web::HttpCaller;
use countersign_policy_admin::{explained::verdict_action, service_tools, trial};
use countersign_runtime::{InboxLane, tools::ToolRegistry};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    ConsoleState,
    labels::{action_badge, escape_line, plain_text},
    page::{ConsoleTab, PageError, render_page},
};

/// Most rules that nearly decided which are shown.
const NEAR: usize = 8;
/// Caller of a run of the gateway's own.
const RUN: &str = "run";

/// Call to explain.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct ExplainForm {
    #[serde(default, rename = "as")]
    asker: String,
    #[serde(default)]
    tool: String,
    #[serde(default)]
    arguments: String,
}

pub(super) fn explain_form(console: &ConsoleState, query: &ExplainForm) -> Markup {
    let agents: Vec<String> = console.context.agents.all_agents().into_iter().map(|(id, _)| id).collect();
    let tools = console.context.tool_inventory.tools().keys().cloned();
    let own: Vec<String> = ToolRegistry::standard().tool_specs().map(|spec| spec.name.clone()).chain(tools).collect();
    html! {
        form.stack method="get" action="/console/explain" {
            label for="as" { "Requester" }
            select #as name="as" {
                @for agent in &agents { option value={ "agent:" (agent) } selected[query.asker == format!("agent:{agent}")] { "agent " (plain_text(agent)) } }
                option value=(RUN) selected[query.asker == RUN] { "runs of the gateway" }
            }
            label for="tool" { "Tool" }
            input #tool name="tool" list="tools" value=(query.tool) required autocomplete="off" spellcheck="false";
            datalist #tools { @for tool in &own { option value=(tool) {} } }
            label for="arguments" { "Arguments: JSON, or one name=value per line" }
            textarea #arguments name="arguments" rows="3" spellcheck="false" { "\n" (query.arguments) }
            button.primary type="submit" { "Explain" }
        }
    }
}

/// Result.
struct ExplainedCall {
    subject: PolicySubject,
    verdict: Verdict,
    near: Vec<NearMiss>,
}

/// Reason why a call has no verdict.
enum ExplainFailure {
    /// The form does not name a call.
    Form(String),
    /// The call is refused before policy.
    Refused(String),
}

pub(super) async fn show_explanation(
    State(console): State<Arc<ConsoleState>>,
    Extension(caller): Extension<HttpCaller>,
    Query(query): Query<ExplainForm>,
) -> Result<Response, PageError> {
    let ctx = console.page_context(caller).await?;
    let subject = match read_call(&query) {
        Err(problem) => Err(ExplainFailure::Form(problem)),
        Ok((tool, arguments)) => call_subject(&console, &query, tool, arguments).map_err(ExplainFailure::Refused),
    };
    let found = match subject {
        Err(failure) => Err(failure),
        Ok(subject) => {
            let now = ctx.now;
            let read = move |engine: &Engine| {
                let (rules, state) = (engine.rules(), engine.state().policy());
                let layers = PolicyLayers {
                    compiled: &rules.compiled,
                    constraints: state.constraints(),
                    contract: None,
                    grants: state.grants(),
                    default_policy: rules.default_policy,
                    path_context: &rules.path_context,
                };
                let verdict = evaluate(&layers, &subject, now);
                // The owner must not wait while every rule is checked.
                (subject, verdict, rules.clone())
            };
            let read = console
                .context
                .handle
                .source(InboxLane::Request)
                .read_state(read)
                .await
                .ok_or_else(PageError::gateway_closing)?
                .0;
            let (subject, verdict, rules) = read;
            let find_near = move || {
                let near = near_misses(&rules.compiled, &rules.path_context, &subject, &verdict);
                ExplainedCall { subject, verdict, near }
            };
            Ok(tokio::task::spawn_blocking(find_near).await.map_err(PageError::unreadable_record)?)
        }
    };
    let body = html! {
        p.back { a href="/console/policy" { "← Policy" } }
        h1 { "Test a request" }
        div.two {
            div.panel { (explain_form(&console, &query)) }
            div.panel aria-live="polite" {
                @match &found {
                    Err(ExplainFailure::Form(problem)) => { h2 { "Invalid request" } p.problem { (escape_line(problem)) } }
                    Err(ExplainFailure::Refused(problem)) => { h2 { "Refused" } p.problem { (escape_line(problem)) } p { "The request would be refused before policy evaluates it." } }
                    Ok(found) => { (render_explanation(found)) }
                }
            }
        }
    };
    Ok(render_page(&ctx, ConsoleTab::Policy, "Test a request", &body))
}

fn render_explanation(ExplainedCall { subject, verdict, near }: &ExplainedCall) -> Markup {
    let word = match verdict_action(verdict) {
        policy::RuleAction::Allow => ("good", "Allowed"),
        policy::RuleAction::Deny => ("bad", "Denied"),
        policy::RuleAction::Ask => ("ask", "Needs approval"),
    };
    html! {
        h2 { span.badge.(word.0) { (word.1) } }
        pre { (escape_line(&subject.signature)) }
        @for further in &subject.further_signatures { pre { (escape_line(further)) } }
        p { (escape_line(&verdict.why().to_string())) "." }
        @if let Some(used) = subject.secret_names().ok().filter(|used| !used.is_empty()) {
            p.note { "Secrets that the call uses: " (plain_text(&used.into_iter().collect::<Vec<_>>().join(", "))) }
        }
        @if !subject.undeclared.is_empty() { p.note { "Undeclared arguments: " (plain_text(&subject.undeclared.join(", "))) } }
        @if !near.is_empty() {
            h3 { "Rules that nearly decided" }
            ul.near {
                @for near in near.iter().take(NEAR) {
                    @let (class, word) = action_badge(near.action);
                    li {
                        span.badge.(class) { (word) } " " code { (escape_line(&near.rule.pattern)) } " "
                        span.origin { (escape_line(&near.rule.origin.to_string())) @if near.is_default { ", a default" } }
                        ul {
                            @for miss in &near.misses { li { (escape_line(&miss.to_string())) } }
                            @if near.misses.is_empty() { li { "also matches, but the deciding rule takes precedence" } }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the tool and the arguments of a call.
fn read_call(query: &ExplainForm) -> Result<(&str, Map<String, Value>), String> {
    let arguments = parse_arguments(&query.arguments)?;
    let tool = query.tool.trim();
    if tool.is_empty() {
        return Err("Enter the name of a tool.".to_owned());
    }
    Ok((tool, arguments))
}

/// Returns the subject for policy.
fn call_subject(
    console: &ConsoleState,
    query: &ExplainForm,
    tool: &str,
    arguments: Map<String, Value>,
) -> Result<PolicySubject, String> {
    if let Some(agent) = query.asker.strip_prefix("agent:") {
        return service_tools::policy_subject(
            console.context.tool_inventory.tools(),
            agent,
            tool.to_owned(),
            arguments,
        );
    }
    trial::of_run(&console.context.tool_inventory, tool, &arguments).ok_or_else(|| format!("Runs have no tool {tool}."))
}

/// Parses a JSON object, or a name and a value on each line.
fn parse_arguments(text: &str) -> Result<Map<String, Value>, String> {
    let text = text.trim();
    if text.starts_with('{') {
        return serde_json::from_str(text)
            .map_err(|error| format!("Invalid arguments: expected a JSON object: {error}"));
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let pair = |line: &str| {
        let (name, value) =
            line.split_once('=').ok_or_else(|| format!("Invalid argument {line}: expected name=value."))?;
        Ok((name.trim().to_owned(), Value::from(value.trim())))
    };
    lines.map(pair).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::parse_arguments;

    #[test]
    fn arguments_are_json_or_lines() {
        for (text, want) in
            [("", json!({})), ("{\"a\": 1}", json!({ "a": 1 })), ("a = x\n\nb=y=z", json!({ "a": "x", "b": "y=z" }))]
        {
            assert_eq!(parse_arguments(text).map(serde_json::Value::Object), Ok(want), "{text}");
        }
        assert!(parse_arguments("{a}").is_err_and(|why| why.contains("expected a JSON object")));
        assert!(parse_arguments("ls").is_err_and(|why| why.contains("name=value")));
    }
}
