//! What would become of a call that nobody makes, and which rules nearly decided.

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
    Console,
    page::{Tab, Trouble, page},
    words::{one, plain, verb},
};

/// How many rules that nearly decided are shown.
const NEAR: usize = 8;
/// Who asks where it is a run of the gateway's own.
const RUN: &str = "run";

/// The call that is asked about.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Wanted {
    #[serde(default, rename = "as")]
    asker: String,
    #[serde(default)]
    tool: String,
    #[serde(default)]
    arguments: String,
}

pub(super) fn form(console: &Console, wanted: &Wanted) -> Markup {
    let agents: Vec<String> = console.context.agents.all_agents().into_iter().map(|(id, _)| id).collect();
    let tools = console.context.household.tools().keys().cloned();
    let own: Vec<String> = ToolRegistry::standard().tool_specs().map(|spec| spec.name.clone()).chain(tools).collect();
    html! {
        form.stack method="get" action="/console/explain" {
            label for="as" { "Who asks" }
            select #as name="as" {
                @for agent in &agents { option value={ "agent:" (agent) } selected[wanted.asker == format!("agent:{agent}")] { "agent " (plain(agent)) } }
                option value=(RUN) selected[wanted.asker == RUN] { "a run of this gateway" }
            }
            label for="tool" { "Tool" }
            input #tool name="tool" list="tools" value=(wanted.tool) required autocomplete="off" spellcheck="false";
            datalist #tools { @for tool in &own { option value=(tool) {} } }
            label for="arguments" { "Arguments: JSON, or one name=value a line" }
            textarea #arguments name="arguments" rows="3" spellcheck="false" { "\n" (wanted.arguments) }
            button.primary type="submit" { "Explain" }
        }
    }
}

/// What was found.
struct Found {
    subject: PolicySubject,
    verdict: Verdict,
    near: Vec<NearMiss>,
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    Extension(caller): Extension<HttpCaller>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Trouble> {
    let look = console.look(caller).await?;
    let found = match subject(&console, &wanted) {
        Err(problem) => Err(problem),
        Ok(subject) => {
            let now = look.now;
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
                // Looking at every rule is not the owner's to wait for.
                (subject, verdict, rules.clone())
            };
            let read = console
                .context
                .handle
                .source(InboxLane::Request)
                .read_state(read)
                .await
                .ok_or_else(Trouble::closing)?
                .0;
            let (subject, verdict, rules) = read;
            let look = move || {
                let near = near_misses(&rules.compiled, &rules.path_context, &subject, &verdict);
                Found { subject, verdict, near }
            };
            Ok(tokio::task::spawn_blocking(look).await.map_err(Trouble::unread)?)
        }
    };
    let body = html! {
        p.back { a href="/console/policy" { "← Policy" } }
        h1 { "What becomes of a call?" }
        div.two {
            div.panel { (form(&console, &wanted)) }
            div.panel aria-live="polite" {
                @match &found {
                    Err(problem) => { h2 { "Refused" } p.problem { (one(problem)) } p { "It would be refused before the rules are asked." } }
                    Ok(found) => { (told(found)) }
                }
            }
        }
    };
    Ok(page(&look, Tab::Policy, "Explain a call", &body))
}

fn told(Found { subject, verdict, near }: &Found) -> Markup {
    let word = match verdict_action(verdict) {
        policy::RuleAction::Allow => ("good", "Allowed"),
        policy::RuleAction::Deny => ("bad", "Denied"),
        policy::RuleAction::Ask => ("ask", "Asked about"),
    };
    html! {
        h2 { span.badge.(word.0) { (word.1) } }
        pre { (one(&subject.signature)) }
        @for further in &subject.further_signatures { pre { (one(further)) } }
        p { (one(&verdict.why().to_string())) "." }
        @if let Some(used) = subject.secret_names().ok().filter(|used| !used.is_empty()) {
            p.note { "The secrets that it would be given: " (plain(&used.into_iter().collect::<Vec<_>>().join(", "))) }
        }
        @if !subject.undeclared.is_empty() { p.note { "The tool does not declare: " (plain(&subject.undeclared.join(", "))) } }
        @if !near.is_empty() {
            h3 { "Nearly decided" }
            ul.near {
                @for near in near.iter().take(NEAR) {
                    @let (class, word) = verb(near.action);
                    li {
                        span.badge.(class) { (word) } " " code { (one(&near.rule.pattern)) } " "
                        span.origin { (one(&near.rule.origin.to_string())) @if near.is_default { ", a default" } }
                        ul {
                            @for miss in &near.misses { li { (one(&miss.to_string())) } }
                            @if near.misses.is_empty() { li { "it matches too, and what decided goes before it" } }
                        }
                    }
                }
            }
        }
    }
}

/// What policy would be asked.
fn subject(console: &Console, wanted: &Wanted) -> Result<PolicySubject, String> {
    let arguments = arguments(&wanted.arguments)?;
    let tool = wanted.tool.trim();
    if tool.is_empty() {
        return Err("name a tool".to_owned());
    }
    if let Some(agent) = wanted.asker.strip_prefix("agent:") {
        return service_tools::policy_subject(console.context.household.tools(), agent, tool.to_owned(), arguments);
    }
    trial::of_run(&console.context.household, tool, &arguments).ok_or_else(|| format!("runs have no tool {tool}"))
}

/// A JSON object, or a name and a value on each line.
fn arguments(text: &str) -> Result<Map<String, Value>, String> {
    let text = text.trim();
    if text.starts_with('{') {
        return serde_json::from_str(text).map_err(|error| format!("the arguments are no JSON object: {error}"));
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let pair = |line: &str| {
        let (name, value) = line.split_once('=').ok_or_else(|| format!("{line}: write name=value"))?;
        Ok((name.trim().to_owned(), Value::from(value.trim())))
    };
    lines.map(pair).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::arguments;

    #[test]
    fn arguments_are_json_or_lines() {
        for (text, want) in
            [("", json!({})), ("{\"a\": 1}", json!({ "a": 1 })), ("a = x\n\nb=y=z", json!({ "a": "x", "b": "y=z" }))]
        {
            assert_eq!(arguments(text).map(serde_json::Value::Object), Ok(want), "{text}");
        }
        assert!(arguments("{a}").is_err_and(|why| why.contains("no JSON object")));
        assert!(arguments("ls").is_err_and(|why| why.contains("name=value")));
    }
}
