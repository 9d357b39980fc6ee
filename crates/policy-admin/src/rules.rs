//! The rules of a gateway: one file, and the defaults for everything else.

use std::{collections::BTreeSet, path::Path};

use countersign_config::{
    self as config, ParsedRules, UndeclaredArguments,
    lint::{self, ExtraArguments, ToolCoverage, lint_rules},
};
use countersign_core::{
    engine::ActiveRules,
    policy::{self, DefaultPolicy, RuleLayer, RuleSource, signature},
};
use countersign_runtime::tools::ToolRegistry;

use super::{
    adapter::TrialAdapter,
    approvers,
    case_result::{CaseFailure, CaseResult},
    loaded_rules::LoadedRules,
    malformed::malformed_rules,
    rules_error::RulesLoadError,
    service_tools::ServiceTools,
    tool_inventory::{self, ToolInventory},
    trial,
    unmet::{UnmetRules, rule_count, unmet_rules},
};

/// Reads the file at `path` and tries its cases. Without a file, people decide everything.
///
/// # Errors
/// [`RulesLoadError`]: rules that were not understood, or fail a case, are not in force.
pub fn load_rules(path: &Path, household: &ToolInventory) -> Result<LoadedRules, RulesLoadError> {
    check_cases(read_rules(path, household)?, household)
}

/// Rules whose cases come out as their author expects.
pub(super) fn check_cases(loaded: LoadedRules, household: &ToolInventory) -> Result<LoadedRules, RulesLoadError> {
    let failed: Vec<CaseFailure> =
        trial::run_cases(&loaded, household).into_iter().filter_map(CaseResult::into_failure).collect();
    if failed.is_empty() { Ok(loaded) } else { Err(RulesLoadError::Cases(failed)) }
}

fn rules_of(compiled: policy::CompiledRules, household: &ToolInventory) -> ActiveRules {
    ActiveRules {
        compiled,
        default_policy: DefaultPolicy::Gateway,
        path_context: household.surroundings.clone(),
        people: tool_inventory::people_identities(household.people.as_deref().unwrap_or_default()),
    }
}

/// Reads the file at `path` without trying its cases.
///
/// # Errors
/// [`RulesLoadError`], but for cases.
pub fn read_rules(path: &Path, household: &ToolInventory) -> Result<LoadedRules, RulesLoadError> {
    if let Some(stdio) = household.adapter.as_ref().and_then(TrialAdapter::stdio_rules) {
        // Without a file something else holds there than without the one that is named.
        return stdio.load_rules(path.exists().then_some(path));
    }
    let read = config::read_permissions(path, RuleLayer::Main)?;
    compile_rules(read.unwrap_or_else(|| no_rules(path)), household)
}

/// Returns the rules in place of a missing file at `path`.
pub(super) fn no_rules(path: &Path) -> ParsedRules {
    let (name, rules) = (path.display().to_string(), policy::RuleSet::default());
    ParsedRules { source: RuleSource { name, layer: RuleLayer::Main, rules }, cases: Vec::new() }
}

/// Compiles the rules of a file that was read, for these tools.
pub(super) fn compile_rules(read: ParsedRules, household: &ToolInventory) -> Result<LoadedRules, RulesLoadError> {
    let ParsedRules { source, cases } = read;
    if let Some(people) = &household.people {
        let nobodies = approvers::unknown_approvers(&source, people);
        if !nobodies.is_empty() {
            return Err(RulesLoadError::Nobody(nobodies));
        }
        let too_few = approvers::too_few(&source, people, household.accounts.as_ref());
        if !too_few.is_empty() {
            return Err(RulesLoadError::TooFew(too_few));
        }
    }
    // Runs of the gateway have tools of their own in addition to those of services.
    let own = ToolRegistry::argument_names();
    let tools: Vec<lint::KnownTool<'_>> = own
        .iter()
        .map(lint::KnownTool::gateway_tool)
        .chain(household.runs.own_tools())
        .chain(known_service_tools(&household.tools))
        .collect();
    let mut lints =
        lint_rules(&source, &tools, if household.tools.is_empty() { ToolCoverage::Some } else { ToolCoverage::All });
    let UnmetRules { unmet, unchecked: left } = unmet_rules(&source, household);
    lints.extend(unmet.iter().map(|(_, text)| text.clone()).chain(left));
    lints.append(&mut approvers::outranked_steps(&source));
    let (count, name) = (rule_count(&source), source.name.clone());
    let compiled = policy::compile_rules(vec![source]).map_err(RulesLoadError::Compile)?;
    let never = malformed_rules(&compiled).into_iter().map(|rule| (rule.origin.line, rule.message));
    let idle: Vec<(u32, String)> = never.chain(unmet).collect();
    let lines: BTreeSet<u32> = idle.iter().map(|(line, _)| *line).collect();
    lints.append(&mut super::outranked::outranked_rules(&name, &compiled, &lines));
    let warnings = compiled.warnings().iter().map(ToString::to_string).chain(lints).collect();
    Ok(LoadedRules { rules: rules_of(compiled, household), cases, count, warnings, idle })
}

/// Returns the tools of services, for checks of rules about them.
fn known_service_tools(tools: &ServiceTools) -> impl Iterator<Item = lint::KnownTool<'_>> {
    tools.iter().map(|(name, tool)| {
        let mut takes: Vec<&str> = tool.args.iter().map(|declared| declared.name.as_str()).collect();
        for name in tool.signature.as_deref().map(signature::template_names).unwrap_or_default() {
            if !takes.contains(&name) {
                takes.push(name);
            }
        }
        let others = match tool.undeclared {
            UndeclaredArguments::Refuse => ExtraArguments::No,
            UndeclaredArguments::Ask => ExtraArguments::Perhaps,
            UndeclaredArguments::Allow => ExtraArguments::Any,
        };
        lint::KnownTool { name, takes, others }
    })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use countersign_core::policy::{Rule, RuleAction, arguments::DeclaredArgument};

    use countersign_core::policy::PathContext;

    use super::{RuleLayer, RuleSource, ToolInventory, UndeclaredArguments, load_rules, policy, unmet_rules};
    use crate::service_tools::{ArgumentTexts, ServiceTool};
    use crate::{
        adapter::RunTools as _,
        testing::{FakeRunTools, test_inventory},
    };
    use countersign_config as config;
    use countersign_config::{KnownEntities, PersonConfig};

    fn unknown() -> ToolInventory {
        ToolInventory {
            tools: BTreeMap::new().into(),
            runs: Arc::new(FakeRunTools),
            agents: Vec::new(),
            people: None,
            accounts: None,
            surroundings: PathContext::default(),
            workspace: String::new(),
            adapter: None,
        }
    }

    fn own_names() -> std::collections::BTreeSet<String> {
        let own = countersign_runtime::tools::ToolRegistry::argument_names().into_keys();
        own.chain(FakeRunTools.own_tools().iter().map(|known| known.name.to_owned()).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn rules_that_fail_a_case_are_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("permissions.yaml");
        let rules = "rules:\n  - { pattern: 'pay(*)', action: ask }\ntests:\n  - { request: 'pay a=1', expect: ";
        for (expect, want) in
            [("ask", None), ("allow", Some("permissions.yaml:4: pay a=1 needs approval, but should be allowed: "))]
        {
            std::fs::write(&path, format!("{rules}{expect} }}\n")).unwrap();
            let loaded = load_rules(&path, &unknown());
            match want {
                None => assert!(loaded.is_ok(), "{loaded:?}"),
                Some(text) => assert!(loaded.unwrap_err().to_string().contains(text)),
            }
        }
        std::fs::remove_file(&path).unwrap();
        assert!(load_rules(&path, &unknown()).is_ok(), "without a file everything is asked");
    }

    #[test]
    fn who_has_to_allow_is_somebody_that_the_configuration_knows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("permissions.yaml");
        let ana = PersonConfig { id: "ana".to_owned(), telegram: vec![1], console: Vec::new(), local: Vec::new() };
        for (names, people, is_known) in
            [("ana", Some(vec![ana.clone()]), true), ("[ana, zoe]", Some(vec![ana]), false), ("zoe", None, true)]
        {
            std::fs::write(&path, format!("rules:\n  - {{ pattern: 'pay(*)', action: ask, from: {names} }}\n"))
                .unwrap();
            match load_rules(&path, &ToolInventory { people, ..unknown() }) {
                Ok(_) => assert!(is_known, "{names}"),
                Err(error) => {
                    let message = error.to_string();
                    assert!(!is_known && message.contains("permissions.yaml:2: unknown approver \"zoe\""), "{message}");
                }
            }
        }
    }

    #[test]
    fn rules_that_nobody_could_satisfy_are_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let (path, configuration) = (folder.path().join("permissions.yaml"), folder.path().join("config.yaml"));
        std::fs::write(&configuration, "messenger: { type: telegram, telegram: { token: t, chat_id: 1, allowed_users: [1] } }\npeople: [ { id: ana, telegram: [1] }, { id: x, telegram: [2] } ]\n").unwrap();
        let household: ToolInventory = test_inventory(config::known_entities(&configuration, &|_| None).unwrap());
        for (who, want) in [
            ("approvals: 2", None),
            ("approvals: 3", Some("permissions.yaml:2: approval step 1 needs 3 approvals, but only 2 can answer")),
            ("from: [ana, x]", None),
            ("from: [ana, x], approvals: 2", Some("needs 2 approvals, but only 1 can answer")),
            ("from: ana, escalate: [ { after: 5, to: x } ]", Some("approval step 2 needs 1 approvals, but only 0")),
        ] {
            std::fs::write(&path, format!("rules:\n- {{ pattern: 'pay(*)', action: ask, {who} }}\n")).unwrap();
            let refused = load_rules(&path, &household).err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(!refused.is_empty(), want.is_some(), "{who}: {refused}");
            assert!(refused.contains(want.unwrap_or_default()), "{who}: {refused}");
            assert!(load_rules(&path, &unknown()).is_ok(), "{who}");
        }
    }

    #[test]
    fn a_case_is_requested_by_the_agent_that_it_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("permissions.yaml");
        let text = "rules:\n- { pattern: '*', principal: kitchen, door: agent-gate, action: allow }\ntests:\n- { request: t, agent: kitchen, expect: allow }\n- { request: t, expect: ask }\n";
        std::fs::write(&path, text).unwrap();
        assert!(load_rules(&path, &unknown()).is_ok());
    }

    #[test]
    fn a_rule_that_is_bound_to_what_is_not_there_draws_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("permissions.yaml");
        let text = "rules:\n- { pattern: '*', principal: 'kitchen*', door: agent-*, target: homeassistant, action: ask }\n- { pattern: '*', principal: 'agent:kitchen-pi', action: ask }\n- { pattern: '*', principal: 'agent*', action: deny }\n- { pattern: '*', door: gate, target: house, action: deny }\n";
        std::fs::write(&path, text).unwrap();
        let configuration = folder.path().join("config.yaml");
        std::fs::write(&configuration, "agents: [ { id: kitchen-pi, token: \"${TOKEN}\" } ]\nservices: { homeassistant: { url: \"${URL}\", token: \"${TOKEN}\" } }\n").unwrap();
        let known = config::known_entities(&configuration, &|_| None).unwrap();
        let warnings = |household: &ToolInventory| -> Vec<String> {
            let name = format!("{}:", path.display());
            load_rules(&path, household).unwrap().warnings.iter().map(|line| line.replace(&name, "")).collect()
        };
        assert_eq!(
            warnings(&test_inventory(known)),
            [
                "4: unknown principal \"agent*\": expected one of kitchen-pi; this rule matches nothing",
                "5: unknown adapter \"gate\": expected one of agent-gate, console, api, gsv, hermes, mcp, claude, codex, gemini, copilot, acp, opencode; this rule matches nothing",
                "5: unknown target \"house\": expected one of homeassistant; this rule matches nothing",
            ]
        );
        assert_eq!(
            warnings(&test_inventory(KnownEntities::default())),
            [
                "5: unknown adapter \"gate\": expected one of agent-gate, console, api, gsv, hermes, mcp, claude, codex, gemini, copilot, acp, opencode; this rule matches nothing"
            ],
            "`agent*` is about agents whose ids begin so, and goes before nothing about `kitchen-pi`"
        );
    }

    #[test]
    fn of_many_rules_and_agents_those_are_compared_that_may_meet() {
        let agents: Vec<String> = (0..2_000).map(|at| format!("agent-{at}")).collect();
        let household = ToolInventory { agents, ..unknown() };
        for (name, is_met, is_whole) in [
            ((|at| format!("agent-{at}")) as fn(usize) -> String, true, true),
            (|at| format!("agent:agent-{at}"), true, true),
            (|at| format!("agent-{}", at + 2_000), false, true),
            (|at| format!("*x{at}"), false, false),
        ] {
            let rule = |at| Rule { principal: Some(name(at)), ..Rule::new("*", RuleAction::Ask) };
            let rules = policy::RuleSet { rules: (0..2_000).map(rule).collect(), ..policy::RuleSet::default() };
            let found = unmet_rules(&RuleSource { name: "p".to_owned(), layer: RuleLayer::Main, rules }, &household);
            assert_eq!((found.unmet.is_empty(), found.unchecked.is_none()), (is_met, is_whole), "{}", name(0));
            let prefix = "p: 1811 rules were not checked for unknown principals, adapters and targets: ";
            assert!(found.unchecked.as_ref().is_none_or(|line| line.starts_with(prefix)), "{:?}", found.unchecked);
        }
    }

    #[test]
    fn a_rule_about_an_argument_that_is_not_there_draws_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("permissions.yaml");
        let rule = |tool: &str, args: &str| format!("- {{ tool: {tool}, args: {{ {args} }}, action: deny }}\n");
        let rules = [
            ("bash", "comand: 'rm*'"),
            ("bash", "command: 'rm*', env.PATH: x, needs.network: true, wide: 1"),
            ("edit", "old_text: x, edits.0.loc: y, diff: z"),
            ("gsv__Cron", "acton: add"),
            ("pay", "amuont: 5, note: x"),
            ("shut", "amount: 5"),
            ("idle", "amount: 5"),
            ("'pa*'", "nothing: 5"),
            ("unheard_of", "nothing: 5"),
            ("read", "path: x, room: y"),
            ("bash", "'*': 'rm *', '*.x': y"),
            ("till", "order.total: 9, order.total.net: 8"),
            ("send", "amount: 9, note: x"),
            ("list", "entity_ids: x"),
            ("move", "y: 9"),
        ];
        let text: String = rules.iter().map(|(tool, args)| rule(tool, args)).collect();
        std::fs::write(&path, format!("rules:\n{text}")).unwrap();
        let tool = |args: &[&str], undeclared| ServiceTool {
            description: String::new(),
            service: "house".into(),
            signature: None,
            args: args
                .iter()
                .map(|name| DeclaredArgument {
                    name: (*name).to_owned(),
                    required: false,
                    validate: None,
                    free_text: false,
                })
                .collect(),
            texts: ArgumentTexts::Plain,
            undeclared,
            fits: Arc::new(|_| Ok(())),
            idempotent: false,
            reads: false,
        };
        let tools = [
            ("pay", tool(&["amount"], UndeclaredArguments::Ask)),
            ("shut", tool(&["door"], UndeclaredArguments::Refuse)),
            ("idle", tool(&[], UndeclaredArguments::Refuse)),
            ("read", tool(&["room"], UndeclaredArguments::Refuse)),
            ("till", tool(&["order.total"], UndeclaredArguments::Refuse)),
            (
                "send",
                ServiceTool { signature: Some("{to}, {amount}".into()), ..tool(&["to"], UndeclaredArguments::Refuse) },
            ),
            ("list", tool(&["entity_id"], UndeclaredArguments::Allow)),
            ("move", tool(&["x"], UndeclaredArguments::Ask)),
        ];
        let tools = tools.map(|(name, tool)| (name.to_owned(), tool));
        let household = ToolInventory { tools: BTreeMap::from(tools).into(), ..unknown() };
        let name = format!("{}:", path.display());
        let warnings = load_rules(&path, &household).unwrap().warnings;
        let mut tools = own_names();
        tools.extend(household.tools.keys().cloned());
        let tools = tools.into_iter().collect::<Vec<_>>().join(", ");
        let plain = |line: &String| line.replace(&name, "").replace(&tools, "TOOLS");
        let warnings: Vec<String> = warnings.iter().map(plain).collect();
        assert_eq!(
            warnings,
            [
                "2: \"bash\" takes no argument \"comand\"; did you mean \"command\"?",
                "3: \"bash\" takes no argument \"wide\"; it takes command, cwd, env, head, needs, pty, tail, timeout",
                "5: \"gsv__Cron\" takes no argument \"acton\"; did you mean \"action\"?",
                "6: \"pay\" is not known to take an argument \"amuont\"; did you mean \"amount\"?",
                "7: \"shut\" takes no argument \"amount\"; it takes door",
                "8: \"idle\" takes no arguments; found \"amount\"",
                "10: there is no tool \"unheard_of\"; the tools are TOOLS, and NODE__TOOL for tools of nodes",
                "14: \"send\" takes no argument \"note\"; it takes to, amount",
            ]
        );
    }

    #[test]
    fn a_rule_that_another_goes_before_wherever_it_fits_draws_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("permissions.yaml");
        let text = "rules:\n- { pattern: 'turn(door*', action: ask }\n- { pattern: 'turn(*', action: allow }\n- { pattern: 'pay*', action: ask }\n";
        std::fs::write(&path, text).unwrap();
        let warnings = load_rules(&path, &test_inventory(KnownEntities::default())).unwrap().warnings;
        let file = path.display();
        let want =
            format!("{file}:2: turn(door* has no effect: turn(* ({file}:3) takes precedence wherever it matches");
        assert!(
            warnings.contains(&want) && warnings.iter().filter(|one| one.contains("has no effect")).count() == 1,
            "{warnings:?}"
        );
    }

    #[test]
    fn the_rules_that_come_with_the_gateway_pass_their_cases() {
        let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let known = config::known_entities(&examples.join("config.yaml"), &|_| None).unwrap();
        let loaded = load_rules(&examples.join("permissions.yaml"), &test_inventory(known)).unwrap();
        assert_eq!(loaded.warnings, Vec::<String>::new());
        assert_eq!((loaded.count, loaded.cases.len()), (6, 4));
    }
}
