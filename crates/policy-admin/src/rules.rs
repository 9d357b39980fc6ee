//! The rules of a gateway: one file, and what stands where it says nothing.

use std::{collections::BTreeSet, path::Path};

use countersign_config::{
    self as config, Permissions, Undeclared,
    strangers::{self, Named, Others, strangers},
};
use countersign_core::{
    engine::ActiveRules,
    policy::{self, DefaultPolicy, RuleLayer, RuleSource, RuleWarning, signature},
};
use countersign_runtime::tools::ToolRegistry;

use super::{
    adapter::Adapter,
    approvers,
    case_result::{CaseFailure, CaseResult},
    household::{self, Household},
    loaded_rules::LoadedRules,
    rules_error::RulesError,
    service_tools::Tools,
    trial,
    unmet::{Unmet, count, unmet},
};

/// Reads the file at `path` and tries its cases. Where there is no file, people are asked about everything.
///
/// # Errors
/// [`RulesError`]: rules that were not understood, or fail a case, are not in force.
pub fn load(path: &Path, household: &Household) -> Result<LoadedRules, RulesError> {
    tested(read(path, household)?, household)
}

/// Rules whose cases come out as their author expects.
pub(super) fn tested(loaded: LoadedRules, household: &Household) -> Result<LoadedRules, RulesError> {
    let failed: Vec<CaseFailure> =
        trial::tried(&loaded, household).into_iter().filter_map(CaseResult::failed).collect();
    if failed.is_empty() { Ok(loaded) } else { Err(RulesError::Cases(failed)) }
}

fn rules_of(compiled: policy::CompiledRules, household: &Household) -> ActiveRules {
    ActiveRules {
        compiled,
        default_policy: DefaultPolicy::Gateway,
        path_context: household.surroundings.clone(),
        people: household::people(household.people.as_deref().unwrap_or_default()),
    }
}

/// Reads the file at `path` without trying its cases.
///
/// # Errors
/// [`RulesError`], but for cases.
pub fn read(path: &Path, household: &Household) -> Result<LoadedRules, RulesError> {
    if let Some(stdio) = household.adapter.as_ref().and_then(Adapter::stdio) {
        // Without a file something else holds there than without the one that is named.
        return stdio.load(path.exists().then_some(path));
    }
    let read = config::permissions(path, RuleLayer::Main)?;
    understood(read.unwrap_or_else(|| none(path)), household)
}

/// What stands where there is no file at `path`.
pub(super) fn none(path: &Path) -> Permissions {
    let (name, rules) = (path.display().to_string(), policy::RuleSet::default());
    Permissions { source: RuleSource { name, layer: RuleLayer::Main, rules }, cases: Vec::new() }
}

/// The rules of a file that was read, for this household.
pub(super) fn understood(read: Permissions, household: &Household) -> Result<LoadedRules, RulesError> {
    let Permissions { source, cases } = read;
    if let Some(people) = &household.people {
        let nobodies = approvers::nobodies(&source, people);
        if !nobodies.is_empty() {
            return Err(RulesError::Nobody(nobodies));
        }
        let too_few = approvers::too_few(&source, people, household.accounts.as_ref());
        if !too_few.is_empty() {
            return Err(RulesError::TooFew(too_few));
        }
    }
    // Runs of the gateway have tools of their own beside those of services.
    let own = ToolRegistry::argument_names();
    let tools: Vec<strangers::Known<'_>> =
        own.iter().map(strangers::Known::own).chain(household.runs.own()).chain(services(&household.tools)).collect();
    let mut told = strangers(&source, &tools, if household.tools.is_empty() { Named::Some } else { Named::All });
    let Unmet { unmet, told: left } = unmet(&source, household);
    told.extend(unmet.iter().map(|(_, told)| told.clone()).chain(left));
    told.append(&mut approvers::outranked(&source));
    let (count, name) = (count(&source), source.name.clone());
    let compiled = policy::compile_rules(vec![source]).map_err(RulesError::Compile)?;
    let never = compiled.warnings().iter().filter_map(|warning| match warning {
        RuleWarning::NeverMatches { origin, .. } => Some((origin.line, warning.to_string())),
        RuleWarning::AllowIgnored(_)
        | RuleWarning::MissesBareCalls { .. }
        | RuleWarning::ForeignForm { .. }
        | RuleWarning::Odd { .. }
        | RuleWarning::HiddenCharacter { .. } => None,
    });
    let idle: Vec<(u32, String)> = never.chain(unmet).collect();
    let lines: BTreeSet<u32> = idle.iter().map(|(line, _)| *line).collect();
    told.append(&mut super::outranked::all(&name, &compiled, &lines));
    let warnings = compiled.warnings().iter().map(ToString::to_string).chain(told).collect();
    Ok(LoadedRules { rules: rules_of(compiled, household), cases, count, warnings, idle })
}

/// The tools of services, for what rules say of them.
fn services(tools: &Tools) -> impl Iterator<Item = strangers::Known<'_>> {
    tools.iter().map(|(name, tool)| {
        let mut takes: Vec<&str> = tool.args.iter().map(|declared| declared.name.as_str()).collect();
        for name in tool.signature.as_deref().map(signature::template_names).unwrap_or_default() {
            if !takes.contains(&name) {
                takes.push(name);
            }
        }
        let others = match tool.undeclared {
            Undeclared::Refuse => Others::No,
            Undeclared::Ask => Others::Perhaps,
            Undeclared::Allow => Others::Any,
        };
        strangers::Known { name, takes, others }
    })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use countersign_core::policy::{Rule, RuleAction, arguments::DeclaredArgument};

    use countersign_core::policy::PathContext;

    use super::{Household, RuleLayer, RuleSource, Undeclared, load, policy, unmet};
    use crate::service_tools::Tool;
    use crate::{
        adapter::RunTools as _,
        testing::{Runs, household},
    };
    use countersign_config as config;
    use countersign_config::{Known, Person};

    fn unknown() -> Household {
        Household {
            tools: BTreeMap::new().into(),
            runs: Arc::new(Runs),
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
        own.chain(Runs.own().iter().map(|known| known.name.to_owned()).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn rules_that_fail_a_case_are_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("permissions.yaml");
        let rules = "rules:\n  - { pattern: 'pay(*)', action: ask }\ntests:\n  - { request: 'pay a=1', expect: ";
        for (expect, told) in
            [("ask", None), ("allow", Some("permissions.yaml:4: pay a=1 is asked about and should be allowed: "))]
        {
            std::fs::write(&path, format!("{rules}{expect} }}\n")).unwrap();
            let loaded = load(&path, &unknown());
            match told {
                None => assert!(loaded.is_ok(), "{loaded:?}"),
                Some(told) => assert!(loaded.unwrap_err().to_string().contains(told)),
            }
        }
        std::fs::remove_file(&path).unwrap();
        assert!(load(&path, &unknown()).is_ok(), "without a file everything is asked");
    }

    #[test]
    fn who_has_to_allow_is_somebody_that_the_configuration_knows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("permissions.yaml");
        let ana = Person { id: "ana".to_owned(), telegram: vec![1], console: Vec::new(), local: Vec::new() };
        for (names, people, is_known) in
            [("ana", Some(vec![ana.clone()]), true), ("[ana, zoe]", Some(vec![ana]), false), ("zoe", None, true)]
        {
            std::fs::write(&path, format!("rules:\n  - {{ pattern: 'pay(*)', action: ask, from: {names} }}\n"))
                .unwrap();
            match load(&path, &Household { people, ..unknown() }) {
                Ok(_) => assert!(is_known, "{names}"),
                Err(error) => {
                    let told = error.to_string();
                    assert!(!is_known && told.contains("permissions.yaml:2: there is no person \"zoe\""), "{told}");
                }
            }
        }
    }

    #[test]
    fn rules_that_nobody_could_satisfy_are_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let (path, configuration) = (folder.path().join("permissions.yaml"), folder.path().join("config.yaml"));
        std::fs::write(&configuration, "messenger: { type: telegram, telegram: { token: t, chat_id: 1, allowed_users: [1] } }\npeople: [ { id: ana, telegram: [1] }, { id: x, telegram: [2] } ]\n").unwrap();
        let household: Household = household(config::known(&configuration, &|_| None).unwrap());
        for (who, told) in [
            ("approvals: 2", None),
            (
                "approvals: 3",
                Some("permissions.yaml:2: step 1 of those who have to allow needs 3 and only 2 can answer"),
            ),
            ("from: [ana, x]", None),
            ("from: [ana, x], approvals: 2", Some("needs 2 and only 1 can answer")),
            (
                "from: ana, escalate: [ { after: 5, to: x } ]",
                Some("step 2 of those who have to allow needs 1 and only 0"),
            ),
        ] {
            std::fs::write(&path, format!("rules:\n- {{ pattern: 'pay(*)', action: ask, {who} }}\n")).unwrap();
            let refused = load(&path, &household).err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(!refused.is_empty(), told.is_some(), "{who}: {refused}");
            assert!(refused.contains(told.unwrap_or_default()), "{who}: {refused}");
            assert!(load(&path, &unknown()).is_ok(), "{who}");
        }
    }

    #[test]
    fn a_case_is_asked_by_the_agent_that_it_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("permissions.yaml");
        let text = "rules:\n- { pattern: '*', principal: kitchen, door: agent-gate, action: allow }\ntests:\n- { request: t, agent: kitchen, expect: allow }\n- { request: t, expect: ask }\n";
        std::fs::write(&path, text).unwrap();
        assert!(load(&path, &unknown()).is_ok());
    }

    #[test]
    fn a_rule_that_is_bound_to_what_is_not_there_draws_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("permissions.yaml");
        let text = "rules:\n- { pattern: '*', principal: 'kitchen*', door: agent-*, target: homeassistant, action: ask }\n- { pattern: '*', principal: 'agent:kitchen-pi', action: ask }\n- { pattern: '*', principal: 'agent*', action: deny }\n- { pattern: '*', door: gate, target: house, action: deny }\n";
        std::fs::write(&path, text).unwrap();
        let configuration = folder.path().join("config.yaml");
        std::fs::write(&configuration, "agents: [ { id: kitchen-pi, token: \"${TOKEN}\" } ]\nservices: { homeassistant: { url: \"${URL}\", token: \"${TOKEN}\" } }\n").unwrap();
        let known = config::known(&configuration, &|_| None).unwrap();
        let warnings = |household: &Household| -> Vec<String> {
            let name = format!("{}:", path.display());
            load(&path, household).unwrap().warnings.iter().map(|line| line.replace(&name, "")).collect()
        };
        assert_eq!(
            warnings(&household(known)),
            [
                "4: there is no principal \"agent*\" here, only kitchen-pi; this rule matches nothing",
                "5: there is no door \"gate\" here, only agent-gate, console, api, gsv, hermes; this rule matches nothing",
                "5: there is no target \"house\" here, only homeassistant; this rule matches nothing",
            ]
        );
        assert_eq!(
            warnings(&household(Known::default())),
            [
                "5: there is no door \"gate\" here, only agent-gate, console, api, gsv, hermes; this rule matches nothing"
            ],
            "`agent*` is about agents whose ids begin so, and goes before nothing about `kitchen-pi`"
        );
    }

    #[test]
    fn of_many_rules_and_agents_those_are_compared_that_may_meet() {
        let agents: Vec<String> = (0..2_000).map(|at| format!("agent-{at}")).collect();
        let household = Household { agents, ..unknown() };
        for (name, is_met, is_whole) in [
            ((|at| format!("agent-{at}")) as fn(usize) -> String, true, true),
            (|at| format!("agent:agent-{at}"), true, true),
            (|at| format!("agent-{}", at + 2_000), false, true),
            (|at| format!("*x{at}"), false, false),
        ] {
            let rule = |at| Rule { principal: Some(name(at)), ..Rule::new("*", RuleAction::Ask) };
            let rules = policy::RuleSet { rules: (0..2_000).map(rule).collect(), ..policy::RuleSet::default() };
            let found = unmet(&RuleSource { name: "p".to_owned(), layer: RuleLayer::Main, rules }, &household);
            assert_eq!((found.unmet.is_empty(), found.told.is_none()), (is_met, is_whole), "{}", name(0));
            let told = "p: 1811 rules were not checked for what they are bound to: ";
            assert!(found.told.as_ref().is_none_or(|line| line.starts_with(told)), "{:?}", found.told);
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
        let tool = |args: &[&str], undeclared| Tool {
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
            undeclared,
            fits: Arc::new(|_| Ok(())),
            idempotent: false,
            reads: false,
        };
        let tools = [
            ("pay", tool(&["amount"], Undeclared::Ask)),
            ("shut", tool(&["door"], Undeclared::Refuse)),
            ("idle", tool(&[], Undeclared::Refuse)),
            ("read", tool(&["room"], Undeclared::Refuse)),
            ("till", tool(&["order.total"], Undeclared::Refuse)),
            ("send", Tool { signature: Some("{to}, {amount}".into()), ..tool(&["to"], Undeclared::Refuse) }),
            ("list", tool(&["entity_id"], Undeclared::Allow)),
            ("move", tool(&["x"], Undeclared::Ask)),
        ];
        let tools = tools.map(|(name, tool)| (name.to_owned(), tool));
        let household = Household { tools: BTreeMap::from(tools).into(), ..unknown() };
        let name = format!("{}:", path.display());
        let warnings = load(&path, &household).unwrap().warnings;
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
                "8: \"idle\" takes no arguments, so none is \"amount\"",
                "10: no tool is called \"unheard_of\"; the tools are TOOLS, and those of nodes, NODE__TOOL",
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
        let warnings = load(&path, &household(Known::default())).unwrap().warnings;
        let file = path.display();
        let want = format!("{file}:2: turn(door* decides nothing: turn(* ({file}:3) goes before it wherever it fits");
        assert!(
            warnings.contains(&want) && warnings.iter().filter(|one| one.contains("decides nothing")).count() == 1,
            "{warnings:?}"
        );
    }

    #[test]
    fn the_rules_that_come_with_the_gateway_pass_their_cases() {
        let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let known = config::known(&examples.join("config.yaml"), &|_| None).unwrap();
        let loaded = load(&examples.join("permissions.yaml"), &household(known)).unwrap();
        assert_eq!(loaded.warnings, Vec::<String>::new());
        assert_eq!((loaded.count, loaded.cases.len()), (6, 4));
    }
}
