//! The rules of a gateway: one file, what it is about, and what stands where it says nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use countersign_core::{
    engine::Rules,
    policy::{self, CompileError, Effort, Layer, Posture, Side, Source, Surroundings, Warning, signature},
};

pub use super::approvers::{Nobody, TooFew};
use super::{
    adapter::{self, Adapter},
    approvers, house,
    trial::{self, Failed},
};
use crate::{agent_gate::Tools, chats, gsv};
use countersign_agent_dir::Product;
use countersign_config as config;
use countersign_config::{
    Accounts, Case, Config, Errors, Known, Permissions, Person, Places, Undeclared,
    strangers::{self, Named, Others, strangers},
};
use countersign_files::paths;
use countersign_runtime::tools::{self, Registry};

/// What rules are about: the agents and the tools of a gateway.
#[derive(Clone)]
pub struct Household {
    pub(super) tools: Arc<Tools>,
    /// Empty where they are not known.
    agents: Vec<String>,
    /// None where they are not known.
    people: Option<Vec<Person>>,
    /// From where people can answer; none where this is not known.
    accounts: Option<Accounts>,
    surroundings: Surroundings,
    /// Where runs of the gateway's own begin; empty where this is not known.
    pub(super) workspace: String,
    /// The adapter that rules are tried for, where one was named.
    pub(super) adapter: Option<Adapter>,
}

impl Default for Household {
    /// What rules are about where there is no configuration.
    fn default() -> Self {
        Known::default().into()
    }
}

impl Household {
    /// The same, for calls through one adapter. The rules of a stdio adapter are those of its agent directory.
    #[must_use]
    pub fn with_adapter(self, adapter: Adapter) -> Self {
        Self { adapter: Some(adapter), ..self }
    }

    /// The adapter that rules are tried for, where one was named.
    pub fn adapter(&self) -> Option<&Adapter> {
        self.adapter.as_ref()
    }

    /// Whether this agent is one that is not there. Where agents are not known it is not told.
    pub fn is_stranger(&self, agent: &str) -> bool {
        !self.agents.is_empty() && !self.agents.iter().any(|known| known == agent)
    }

    pub(super) fn of(config: &Config, tools: &Arc<Tools>) -> Self {
        let agents = config.agents.iter().map(|agent| agent.id.clone()).collect();
        let accounts = Accounts {
            telegram: config.telegram.iter().flat_map(|telegram| &telegram.allowed_users).copied().collect(),
            console: config.web.users.iter().map(|(login, _)| login.clone()).collect(),
        };
        Self {
            tools: Arc::clone(tools),
            agents,
            people: Some(config.people.clone()),
            accounts: Some(accounts),
            surroundings: surroundings(&config.places()),
            workspace: workspace(&config.places()),
            adapter: None,
        }
    }
}

impl Household {
    /// The tools of services, by name.
    pub(crate) fn tools(&self) -> &Tools {
        &self.tools
    }
}

impl From<Known> for Household {
    fn from(known: Known) -> Self {
        let Known { agents, services, people, accounts, places } = known;
        let tools = Arc::new(house::tools(&services));
        let surroundings = places.as_ref().map_or_else(folders, surroundings);
        // Without a gateway it is where somebody asks.
        let here = || std::env::current_dir().unwrap_or_default().display().to_string();
        let workspace = places.as_ref().map_or_else(here, workspace);
        Self { tools, agents, people, accounts, surroundings, workspace, adapter: None }
    }
}

/// Why rules were not taken.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// The file cannot be read, or is not what a file of rules is.
    #[error(transparent)]
    Form(#[from] Errors),
    /// Its rules cannot be compiled.
    #[error("{}", lines(.0))]
    Compile(Vec<CompileError>),
    /// Rules name people of whom nothing is known.
    #[error("{}", lines(.0))]
    Nobody(Vec<Nobody>),
    /// Rules ask for more people than can answer.
    #[error("{}", lines(.0))]
    TooFew(Vec<TooFew>),
    /// Something else comes of cases than their author expects.
    #[error("{}", lines(.0))]
    Cases(Vec<Failed>),
}

/// Rules, and what a person should know about them.
#[derive(Debug)]
pub struct Loaded {
    /// The rules.
    pub rules: Rules,
    /// The cases that they are tested with.
    pub cases: Vec<Case>,
    /// How many rules and defaults there are.
    pub count: usize,
    /// One line each.
    pub warnings: Vec<String>,
    /// Those of them that say of a rule that it matches nothing, with its line.
    pub(super) idle: Vec<(u32, String)>,
}

/// Reads the file at `path` and tries its cases. Where there is no file, people are asked about everything.
///
/// # Errors
/// [`RulesError`]: rules that were not understood, or fail a case, are not in force.
pub fn load(path: &Path, household: &Household) -> Result<Loaded, RulesError> {
    tested(read(path, household)?, household)
}

/// Rules whose cases come out as their author expects.
pub(super) fn tested(loaded: Loaded, household: &Household) -> Result<Loaded, RulesError> {
    let failed: Vec<Failed> = trial::tried(&loaded, household).into_iter().filter_map(trial::Tried::failed).collect();
    if failed.is_empty() { Ok(loaded) } else { Err(RulesError::Cases(failed)) }
}

fn rules_of(compiled: policy::Compiled, household: &Household) -> Rules {
    Rules {
        compiled,
        posture: Posture::Gateway,
        surroundings: household.surroundings.clone(),
        people: house::people(household.people.as_deref().unwrap_or_default()),
    }
}

fn lines<T: ToString>(problems: &[T]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Reads the file at `path` without trying its cases.
///
/// # Errors
/// [`RulesError`], but for cases.
pub fn read(path: &Path, household: &Household) -> Result<Loaded, RulesError> {
    if let Some(stdio) = household.adapter.as_ref().and_then(Adapter::stdio) {
        // Without a file something else holds there than without the one that is named.
        return stdio.load(path.exists().then_some(path));
    }
    let read = config::permissions(path, Layer::Main)?;
    understood(read.unwrap_or_else(|| none(path)), household)
}

/// What stands where there is no file at `path`.
pub(super) fn none(path: &Path) -> Permissions {
    let (name, rules) = (path.display().to_string(), policy::Rules::default());
    Permissions { source: Source { name, layer: Layer::Main, rules }, cases: Vec::new() }
}

/// The rules of a file that was read, for this household.
pub(super) fn understood(read: Permissions, household: &Household) -> Result<Loaded, RulesError> {
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
    let own = Registry::arguments();
    let tools: Vec<strangers::Known<'_>> =
        own.iter().map(strangers::Known::own).chain(gsv::native_known()).chain(services(&household.tools)).collect();
    let mut told = strangers(&source, &tools, if household.tools.is_empty() { Named::Some } else { Named::All });
    let Unmet { unmet, told: left } = unmet(&source, household);
    told.extend(unmet.iter().map(|(_, told)| told.clone()).chain(left));
    told.append(&mut approvers::outranked(&source));
    let (count, name) = (count(&source), source.name.clone());
    let compiled = policy::compile(vec![source]).map_err(RulesError::Compile)?;
    let never = compiled.warnings().iter().filter_map(|warning| match warning {
        Warning::NeverMatches { origin, .. } => Some((origin.line, warning.to_string())),
        Warning::AllowIgnored(_)
        | Warning::MissesBareCalls { .. }
        | Warning::ForeignForm { .. }
        | Warning::Odd { .. }
        | Warning::HiddenCharacter { .. } => None,
    });
    let idle: Vec<(u32, String)> = never.chain(unmet).collect();
    let lines: BTreeSet<u32> = idle.iter().map(|(line, _)| *line).collect();
    told.append(&mut super::outranked::all(&name, &compiled, &lines));
    let warnings = compiled.warnings().iter().map(ToString::to_string).chain(told).collect();
    Ok(Loaded { rules: rules_of(compiled, household), cases, count, warnings, idle })
}

/// The tools of services, for what rules say of them.
fn services(tools: &Tools) -> impl Iterator<Item = strangers::Known<'_>> {
    tools.iter().map(|(name, tool)| {
        let mut takes: Vec<&str> = tool.args.iter().map(|declared| declared.name.as_str()).collect();
        for name in tool.signature.as_deref().map(signature::names).unwrap_or_default() {
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

/// Where the main agent's runs begin.
fn workspace(places: &Places) -> String {
    places.agents_dir.join(config::MAIN).display().to_string()
}

/// The folders with a meaning of whoever runs this.
fn folders() -> Surroundings {
    Surroundings {
        home: std::env::var("HOME").ok(),
        temporary: vec![std::env::temp_dir().display().to_string(), "/tmp".to_owned(), "/var/tmp".to_owned()],
        ..Surroundings::default()
    }
}

/// Where the gateway's own files lie: what no run may write, and what none may read.
pub(super) fn surroundings(places: &Places) -> Surroundings {
    let folder = &places.storage.folder;
    let whole = [folder.clone()];
    let own = own_files(&places.storage.log);
    // The workspaces may lie in the data directory.
    let data: &[PathBuf] = if places.agents_dir.starts_with(folder) { &own } else { &whole };
    let rules = [places.permissions.clone()].into_iter().chain(places.file.clone());
    // What every agent is told of is nobody's to write.
    let skills = config::shared_skills(&places.agents_dir);
    let keys = places.key.iter().cloned();
    let texts = |paths: &mut dyn Iterator<Item = PathBuf>| {
        let whole = paths.map(|path| std::path::absolute(&path).unwrap_or(path));
        whole.flat_map(paths::both).map(|path| path.to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    Surroundings {
        protected: texts(&mut data.iter().cloned().chain(rules.clone()).chain(keys.clone()).chain([skills])),
        unreadable: texts(&mut data.iter().cloned().chain(places.file.clone()).chain(keys)),
        ..folders()
    }
}

/// What the gateway keeps in its data directory.
fn own_files(log: &Path) -> Vec<PathBuf> {
    let folder = log.parent().unwrap_or_else(|| Path::new(""));
    let name = log.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let beside = ["", "-wal", "-shm", "-journal", ".lock"].map(|end| folder.join(format!("{name}{end}")));
    let own = [
        "countersign.sock",
        "countersign.sock.lock",
        "web.key",
        "web.key.new",
        "web.revoked",
        "web.revoked.new",
        "tokens.json",
        "secrets.yaml",
        tools::secrets::FOLDER,
        "objects",
    ];
    beside.into_iter().chain([log.with_extension("ballast")]).chain(own.map(|name| folder.join(name))).collect()
}

/// Rules that are bound to something which is not there.
struct Unmet {
    /// A line about each, with the line where it stands.
    unmet: Vec<(u32, String)>,
    /// How many rules were not checked, if any.
    told: Option<String>,
}

/// Says of every rule that is bound to something which is not there. Nothing is said where it is not known what is there.
fn unmet(source: &Source, household: &Household) -> Unmet {
    let mut services: Vec<&str> = household.tools.values().map(|tool| &*tool.service).collect();
    services.sort_unstable();
    services.dedup();
    let agents: Vec<&str> = household.agents.iter().map(String::as_str).collect();
    let there = |side| match side {
        Side::Principal => &agents[..],
        Side::Door => &adapter::OF_GATEWAY,
        Side::Target => &services[..],
    };
    let by_name = Side::ALL.map(|side| there(side).iter().copied().collect::<BTreeSet<&str>>());
    // Many rules are bound to few, and a pattern is held against all that are there.
    let mut known: BTreeMap<(usize, &str), bool> = BTreeMap::new();
    let (mut unmet, mut effort, mut left) = (Vec::new(), Effort::of_rules(count(source)), 0);
    for rule in source.rules.defaults.iter().chain(&source.rules.rules) {
        for (number, side) in Side::ALL.into_iter().enumerate() {
            let Some(pattern) = side.of(rule).filter(|_| !there(side).is_empty()) else { continue };
            let is_met = match (known.get(&(number, pattern)), side.only(pattern)) {
                (Some(is_met), _) => *is_met,
                (None, Some(id)) => by_name[number].contains(id),
                (None, None) if effort.is_spent() => {
                    left += 1;
                    continue;
                }
                (None, None) => {
                    let is_met = there(side).iter().any(|id| side.matches(pattern, id));
                    effort.take(there(side).len());
                    known.insert((number, pattern), is_met);
                    is_met
                }
            };
            if !is_met {
                let (file, line, there) = (&source.name, rule.line, listed(there(side)));
                let of_stdio = adapter::STDIO.map(Product::name);
                let elsewhere = of_stdio.into_iter().find(|name| side == Side::Door && side.matches(pattern, name));
                let told = match elsewhere {
                    Some(name) => format!(
                        "{file}:{line}: {name} takes its rules from the permissions.yaml of its agent directory or from \
                         --permissions, and none from a gateway; this rule matches nothing here"
                    ),
                    None => format!(
                        "{file}:{line}: there is no {side} \"{pattern}\" here, only {there}; this rule matches nothing"
                    ),
                };
                unmet.push((line, told));
            }
        }
    }
    let told = unchecked(&source.name, left, "what they are bound to");
    Unmet { unmet, told }
}

fn count(source: &Source) -> usize {
    source.rules.rules.len() + source.rules.defaults.len()
}

/// A line that says that a check, for `what`, was not made for some rules, if there are any.
pub(super) fn unchecked(file: &str, rules: usize, what: &str) -> Option<String> {
    (rules > 0).then(|| {
        let rules = if rules == 1 { "1 rule was".to_owned() } else { format!("{rules} rules were") };
        format!("{file}: {rules} not checked for {what}: too many patterns may meet each other")
    })
}

/// The first of `names`, and how many more there are.
fn listed(names: &[&str]) -> String {
    const SHOWN: usize = 20;
    match names.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        None => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..SHOWN].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use countersign_core::policy::{Action, Rule, arguments::Declared};

    use super::{Household, Known, Layer, Source, Surroundings, Undeclared, load, policy, unmet};
    use crate::agent_gate::Tool;
    use countersign_config as config;
    use countersign_config::Person;

    fn unknown() -> Household {
        Household {
            tools: BTreeMap::new().into(),
            agents: Vec::new(),
            people: None,
            accounts: None,
            surroundings: Surroundings::default(),
            workspace: String::new(),
            adapter: None,
        }
    }

    fn own_names() -> std::collections::BTreeSet<String> {
        let own = countersign_runtime::tools::Registry::arguments().into_keys();
        own.chain(crate::gsv::native_known().map(|known| known.name.to_owned())).collect()
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
        let household: Household = config::known(&configuration, &|_| None).unwrap().into();
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
            warnings(&known.into()),
            [
                "4: there is no principal \"agent*\" here, only kitchen-pi; this rule matches nothing",
                "5: there is no door \"gate\" here, only agent-gate, console, api, gsv, hermes; this rule matches nothing",
                "5: there is no target \"house\" here, only homeassistant; this rule matches nothing",
            ]
        );
        assert_eq!(
            warnings(&Known::default().into()),
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
            let rule = |at| Rule { principal: Some(name(at)), ..Rule::new("*", Action::Ask) };
            let rules = policy::Rules { rules: (0..2_000).map(rule).collect(), ..policy::Rules::default() };
            let found = unmet(&Source { name: "p".to_owned(), layer: Layer::Main, rules }, &household);
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
                .map(|name| Declared { name: (*name).to_owned(), required: false, validate: None, free_text: false })
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
        let warnings = load(&path, &Known::default().into()).unwrap().warnings;
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
        let loaded = load(&examples.join("permissions.yaml"), &known.into()).unwrap();
        assert_eq!(loaded.warnings, Vec::<String>::new());
        assert_eq!((loaded.count, loaded.cases.len()), (6, 4));
    }
}
