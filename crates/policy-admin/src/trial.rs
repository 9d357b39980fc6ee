//! Verdicts of the rules of a gateway on a hypothetical request.
//!
//! It must not know the grants and denials of people, and nothing happens by it.

use countersign_core::{
    CallOrigin,
    engine::ActiveRules,
    id::SessionId,
    policy::{self, Constraints, GrantSet, PolicyLayers, PolicySubject, RuleAction, Verdict},
    time::Millis,
    tool::ToolEffect,
};
use serde_json::{Map, Value};

use super::{
    adapter::TrialAdapter,
    calls,
    case_result::CaseResult,
    explained::{ExplainedVerdict, reason_text, verdict_action},
    loaded_rules::LoadedRules,
    service_tools,
    tool_inventory::ToolInventory,
};
use countersign_config::{DEFAULT_AGENT, PolicyCase};
use countersign_view::Protocol;

const AGENT_GATE: &str = Protocol::AgentGate.name();
const MCP: &str = Protocol::Mcp.name();

/// Tries the cases of a rules file.
pub fn run_cases(loaded: &LoadedRules, household: &ToolInventory) -> Vec<CaseResult> {
    let tried = |case: &PolicyCase| {
        let subject = trial_subject(household, &case.agent, case.tool.clone(), case.args.clone());
        let (got, why) = match subject {
            // A request that is refused before policy is as good as denied.
            Err(problem) => (RuleAction::Deny, problem),
            Ok(subject) => {
                let verdict = judge_subject(loaded, &subject);
                (verdict_action(&verdict), reason_text(&verdict))
            }
        };
        CaseResult { case: case.clone(), got, why }
    };
    loaded.cases.iter().map(tried).collect()
}

/// Rules and answers in force, which decide in addition to the request.
pub struct InForce<'a> {
    pub rules: &'a ActiveRules,
    pub constraints: &'a Constraints,
    pub grants: &'a GrantSet,
    pub now: Millis,
}

/// Explains the verdict on a request of the agent `agent`.
///
/// # Errors
/// The reason why it is refused before policy.
pub fn explain_request(
    loaded: &LoadedRules,
    household: &ToolInventory,
    agent: &str,
    tool: &str,
    arguments: Map<String, Value>,
) -> Result<ExplainedVerdict, String> {
    let (constraints, grants) = (Constraints::default(), GrantSet::default());
    let alone = InForce { rules: &loaded.rules, constraints: &constraints, grants: &grants, now: Millis(0) };
    explain_under(&alone, household, agent, tool, arguments)
}

/// Does the same under rules that are in force, with the grants and denials of people.
///
/// # Errors
/// The reason why it is refused before policy.
pub fn explain_under(
    InForce { rules, constraints, grants, now }: &InForce<'_>,
    household: &ToolInventory,
    agent: &str,
    tool: &str,
    arguments: Map<String, Value>,
) -> Result<ExplainedVerdict, String> {
    let subject = trial_subject(household, agent, tool.to_owned(), arguments)?;
    let verdict = policy::evaluate(&policy_layers(rules, constraints, grants), &subject, *now);
    let near = policy::near_misses(&rules.compiled, &rules.path_context, &subject, &verdict);
    Ok(ExplainedVerdict { subject, verdict, near })
}

/// Returns the subject for policy. The tools of nodes are those of runs, for any agent named: no other has them. So are those of runs
/// themselves, unless an agent is named that is on no run.
fn trial_subject(
    household: &ToolInventory,
    agent: &str,
    tool: String,
    arguments: Map<String, Value>,
) -> Result<PolicySubject, String> {
    match household.adapter() {
        None => {}
        Some(TrialAdapter::Stdio(stdio)) => return stdio.policy_subject(&tool, &arguments),
        Some(TrialAdapter::Gateway(AGENT_GATE)) => {
            return service_tools::policy_subject(&household.tools, agent, tool, arguments);
        }
        Some(TrialAdapter::Gateway(MCP)) if household.tools.contains_key(&tool) => {
            let subject = service_tools::policy_subject(&household.tools, agent, tool, arguments)?;
            return Ok(PolicySubject { door: Some(MCP.to_owned()), ..subject });
        }
        Some(TrialAdapter::Gateway(door)) => return run_of(household, door, tool, arguments),
    }
    let is_services = household.tools.contains_key(&tool);
    let is_ours = is_native(household, &tool);
    let of_run = || of_run(household, &tool, &arguments).filter(|_| !is_services && agent == DEFAULT_AGENT);
    match household.runs.node_call(&tool, &arguments).filter(|_| !is_services && !is_ours) {
        None => of_run().map_or_else(
            || service_tools::policy_subject(&household.tools, agent, tool.clone(), arguments.clone()),
            Ok,
        ),
        Some(content) => {
            let session = SessionId::new("trial");
            let place = CallOrigin {
                session: &session,
                door: Some(Protocol::Gsv.name()),
                cwd: "",
                folder: "",
                is_shell_used: false,
            };
            Ok(countersign_core::subject_at(place, &content, ToolEffect::Changes))
        }
    }
}

fn is_native(household: &ToolInventory, tool: &str) -> bool {
    household.runs.own_tools().iter().any(|known| known.name == tool)
}

/// Returns the subject for policy of a call of a run that began at the adapter `door`.
fn run_of(
    household: &ToolInventory,
    door: &str,
    tool: String,
    arguments: Map<String, Value>,
) -> Result<PolicySubject, String> {
    let is_native = is_native(household, &tool);
    let found = match household.runs.node_call(&tool, &arguments).filter(|_| !is_native) {
        Some(content) => {
            let session = SessionId::new("trial");
            let place = CallOrigin { session: &session, door: Some(door), cwd: "", folder: "", is_shell_used: false };
            Some(countersign_core::subject_at(place, &content, ToolEffect::Changes))
        }
        None => calls::run_tool_subject(door, &household.workspace, &tool, &arguments),
    };
    let of_tool = |subject: PolicySubject| PolicySubject { door: Some(door.to_owned()), ..subject };
    match found {
        Some(subject) => Ok(subject),
        None if is_native => {
            service_tools::policy_subject(&household.tools, DEFAULT_AGENT, tool, arguments).map(of_tool)
        }
        None => Err(format!("a run of {door} has no tool {tool:?}")),
    }
}

/// Returns the subject for policy of a tool of the gateway's own runs; `None` if they have none of this name.
pub fn of_run(household: &ToolInventory, tool: &str, arguments: &Map<String, Value>) -> Option<PolicySubject> {
    calls::run_tool_subject("console", &household.workspace, tool, arguments)
}

/// Returns the verdict of the rules alone on a subject.
fn judge_subject(loaded: &LoadedRules, subject: &PolicySubject) -> Verdict {
    policy::evaluate(&policy_layers(&loaded.rules, &Constraints::default(), &GrantSet::default()), subject, Millis(0))
}

fn policy_layers<'a>(rules: &'a ActiveRules, constraints: &'a Constraints, grants: &'a GrantSet) -> PolicyLayers<'a> {
    PolicyLayers {
        compiled: &rules.compiled,
        constraints,
        contract: None,
        grants,
        default_policy: rules.default_policy,
        path_context: &rules.path_context,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{RuleAction, explain_request, reason_text, verdict_action};
    use crate::{rules::read_rules, testing::test_inventory};

    #[test]
    fn a_default_is_named_as_what_holds_without_a_rule() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("permissions.yaml");
        std::fs::write(&path, "defaults: [ { pattern: '*', action: deny } ]\n").unwrap();
        let household = test_inventory(countersign_config::KnownEntities::default());
        let loaded = read_rules(&path, &household).unwrap();
        let explained = explain_request(&loaded, &household, "default", "pay", serde_json::Map::new()).unwrap();
        let want = format!("no rule matches, and the default \"*\" ({}:1) is deny", path.display());
        assert_eq!(reason_text(&explained.verdict), want);
    }

    #[test]
    fn an_explanation_has_the_signature_the_verdict_and_what_nearly_decided() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.yaml");
        std::fs::write(
            &config,
            "agent: { token: x }\nservices:\n  bank: { url: 'http://b', auth: { type: none }, tools: t.yaml }\n",
        )
        .unwrap();
        std::fs::write(
            folder.path().join("t.yaml"),
            "tools: { pay: { signature: '{to}', args: { to: { required: true }, amount: {} } } }",
        )
        .unwrap();
        let path = folder.path().join("permissions.yaml");
        std::fs::write(&path, "rules:\n- { tool: pay, args: { amount: { max: 50 } }, target: bank, action: allow }\n- { pattern: 'pay(*)', action: ask }\n").unwrap();
        let household = test_inventory(countersign_config::known_entities(&config, &|_| None).unwrap());
        let loaded = read_rules(&path, &household).unwrap();
        let ask = |arguments: serde_json::Value| {
            explain_request(&loaded, &household, "default", "pay", arguments.as_object().unwrap().clone())
        };
        let explained = ask(json!({"to": "acme", "amount": 51})).unwrap();
        assert_eq!(
            (explained.subject.signature.as_str(), verdict_action(&explained.verdict)),
            ("pay(acme)", RuleAction::Ask)
        );
        assert_eq!(explained.subject.target.as_deref(), Some("bank"));
        let misses: Vec<String> = explained.near[0].misses.iter().map(ToString::to_string).collect();
        assert_eq!(misses, ["it requires amount to be at most 50; the value is 51"]);
        let explained = ask(json!({"to": "acme", "amount": 50})).unwrap();
        assert_eq!(verdict_action(&explained.verdict), RuleAction::Allow);
        assert_eq!((explained.near.len(), explained.near[0].misses.len()), (1, 0));
        assert_eq!(ask(json!({})), Err("Missing required argument: to".to_owned()));
    }
}
