//! The calls that a machine always refuses: those that its own rules deny, those that destroy beyond the workspace, and those
//! that touch the node's own files.
//!
//! It must not ask: the gateway decides what an agent may do, and this only refuses. Calls are judged under the names that rules
//! have everywhere: `bash`, `read`, `write`, `edit`, `find`, `grep`.

use std::path::{Path, PathBuf};

use countersign_core::{
    digest::{Digest, canonical_json},
    id::{PrincipalId, SessionId},
    policy::{
        CompiledRules, Constraints, DefaultPolicy, EffectReach, GrantSet, PathContext, PolicyLayers, PolicySubject,
        Rule, RuleAction, RuleSource, Verdict, compile_rules, evaluate,
    },
    time::Millis,
    tool::{ShellInput, ToolEffect},
};
use serde_json::{Map, Value, json};

use super::{offer::NodeToolKind, process::INPUT};
use crate::environment::CommandEnvironment;

/// Rules that a node cannot have; each line names a position and a reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct NodeRulesError(pub Vec<String>);

/// The names under which calls are judged.
const NAMES: [&str; 7] = ["bash", "process", "read", "write", "edit", "find", "grep"];
/// Names of the wire, which an author of rules may expect.
const WIRE_NAMES: [&str; 7] = ["Bash", "Process", "Read", "Write", "Edit", "Glob", "Grep"];

/// Compiles the rules of a node, which can only deny.
///
/// # Errors
/// Rules that allow or ask, that are about tools which a node does not have, or that make no sense.
pub fn compile_node_rules(source: Option<RuleSource>) -> Result<CompiledRules, NodeRulesError> {
    let Some(mut source) = source else { return Ok(CompiledRules::default()) };
    let mut problems = Vec::new();
    for rule in source.rules.rules.iter().chain(&source.rules.defaults) {
        let at = format!("{}:{}", source.name, rule.line);
        if rule.action != RuleAction::Deny {
            problems.push(format!(
                "{at}: a node can only deny; put rules that allow or ask into permissions.yaml of the gateway"
            ));
        }
        if let Some(problem) = unknown_tool(rule) {
            problems.push(format!("{at}: {problem}"));
        }
    }
    if !problems.is_empty() {
        return Err(NodeRulesError(problems));
    }
    // Calls that they do not deny were decided at the gateway.
    source.rules.defaults.push(Rule::new("*", RuleAction::Allow));
    let compiled = compile_rules(vec![source]);
    compiled.map_err(|errors| NodeRulesError(errors.iter().map(ToString::to_string).collect()))
}

/// Describes the error in the tool that a rule names. A rule that never matches would deny nothing.
fn unknown_tool(rule: &Rule) -> Option<String> {
    let named = rule.tool.as_deref().or(rule.pattern.as_deref())?;
    let name = named.split('(').next().unwrap_or(named).trim();
    if let Some(at) = WIRE_NAMES.iter().position(|wire| *wire == name) {
        return Some(format!("{name} is called {} in rules", NAMES[at]));
    }
    let is_plain = !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    (is_plain && !NAMES.contains(&name))
        .then(|| format!("a node has no tool {name}; its tools are {}", NAMES.join(", ")))
}

/// Guard that refuses calls on a node.
pub struct NodeGuard {
    rules: CompiledRules,
    surroundings: PathContext,
}

impl NodeGuard {
    /// Creates a guard with the rules of [`compile_node_rules`], for commands that start with `environment`, and files of the node itself.
    pub fn new(rules: CompiledRules, own: &[PathBuf], environment: &CommandEnvironment) -> Self {
        let own: Vec<String> = own.iter().map(|path| path.display().to_string()).collect();
        let home = environment.get("HOME").and_then(|home| home.to_str()).map(str::to_owned);
        let temporary = vec![std::env::temp_dir().display().to_string(), "/tmp".to_owned(), "/var/tmp".to_owned()];
        let surroundings =
            PathContext { home, temporary, protected: own.clone(), unreadable: own, ..PathContext::default() };
        Self { rules, surroundings }
    }

    /// Returns the reason that a call is refused here; none if it is not.
    pub(super) fn refusal(&self, sort: NodeToolKind, arguments: &Map<String, Value>, cwd: &Path) -> Option<String> {
        self.policy_subjects(sort, arguments, cwd).iter().find_map(|subject| {
            let layers = PolicyLayers {
                compiled: &self.rules,
                constraints: &Constraints::default(),
                contract: None,
                grants: &GrantSet::default(),
                // The gateway decides about calls that neither rules nor the floor hold, and it has.
                default_policy: DefaultPolicy::Stdio,
                path_context: &self.surroundings,
            };
            match evaluate(&layers, subject, Millis(0)) {
                Verdict::Allow(_) => None,
                Verdict::Deny(why) => Some(format!("Refused by the node: {} is denied {why}", subject.tool)),
                Verdict::Ask(why) => Some(format!(
                    "Refused by the node, which cannot ask for approval: {} needs approval {why}",
                    subject.tool
                )),
            }
        })
    }

    /// Returns the subjects to judge in a call: itself, and its input to a command, which may well be a command.
    fn policy_subjects(&self, sort: NodeToolKind, arguments: &Map<String, Value>, cwd: &Path) -> Vec<PolicySubject> {
        let text = |name: &str| arguments.get(name).and_then(Value::as_str);
        let home = self.surroundings.home.as_deref();
        let place = |given: Option<&str>| {
            let given = given.unwrap_or(".");
            // As the tool expands it.
            let at_home = given.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/')).zip(home);
            let given = at_home.map_or_else(|| given.to_owned(), |(rest, home)| format!("{home}{rest}"));
            cwd.join(given).display().to_string()
        };
        let root = || cwd.display().to_string();
        let shell = |command: &str, cwd: String| {
            build_subject("bash", &["command"], json!({"command": command}), ToolEffect::Changes, cwd)
        };
        match sort {
            NodeToolKind::Bash => vec![shell(text("command").unwrap_or_default(), place(text("workdir")))],
            NodeToolKind::Process => {
                let itself = json!({
                    "action": text("action").unwrap_or_default(),
                    "sessionId": text("sessionId").unwrap_or_default(),
                    "data": text("data").unwrap_or_default(),
                });
                let named = &["action", "sessionId", "data"];
                let mut all = vec![build_subject("process", named, itself, ToolEffect::Changes, root())];
                // Most input is no command, and what is too long is not taken anyway.
                if let Some(data) = text("data").filter(|data| !data.trim().is_empty() && data.len() <= INPUT) {
                    all.push(shell(data, root()));
                }
                all
            }
            NodeToolKind::Read => {
                vec![build_subject("read", &["path"], pick_arguments(arguments, &["path"]), ToolEffect::Reads, root())]
            }
            NodeToolKind::Write => {
                vec![build_subject(
                    "write",
                    &["path"],
                    pick_arguments(arguments, &["path", "content"]),
                    ToolEffect::Changes,
                    root(),
                )]
            }
            NodeToolKind::Edit => vec![build_subject(
                "edit",
                &["path"],
                pick_arguments(arguments, &["path"]),
                ToolEffect::Changes,
                root(),
            )],
            NodeToolKind::Glob => vec![build_subject(
                "find",
                &["pattern", "path"],
                pick_arguments(arguments, &["pattern", "path"]),
                ToolEffect::Reads,
                root(),
            )],
            NodeToolKind::Grep => vec![build_subject(
                "grep",
                &["pattern", "path"],
                pick_arguments(arguments, &["pattern", "path"]),
                ToolEffect::Reads,
                root(),
            )],
        }
    }
}

fn pick_arguments(arguments: &Map<String, Value>, names: &[&str]) -> Value {
    let picked = names.iter().filter_map(|name| Some(((*name).to_owned(), arguments.get(*name)?.clone())));
    Value::Object(picked.collect())
}

fn build_subject(tool: &str, named: &[&str], arguments: Value, effect: ToolEffect, cwd: String) -> PolicySubject {
    let arguments_digest = Digest::hash_bytes(canonical_json(&arguments).as_bytes());
    let arguments = match arguments {
        Value::Object(arguments) => arguments,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    };
    let value = |name: &&str| arguments.get(*name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let values: Vec<String> = named.iter().map(value).collect();
    let paths = arguments.get("path").and_then(Value::as_str).map(str::to_owned).into_iter().collect();
    PolicySubject {
        principal: PrincipalId::new("gateway"),
        door: None,
        target: None,
        session: SessionId::new("node"),
        tool: tool.to_owned(),
        signature: format!("{tool}({})", values.join(", ")),
        further_signatures: Vec::new(),
        named: named.iter().map(|name| (*name).to_owned()).collect(),
        undeclared: Vec::new(),
        arguments_digest,
        arguments,
        effect,
        reach: EffectReach::Files,
        cwd,
        session_folder: None,
        is_later: false,
        leads_to: None,
        paths,
        shell: ShellInput::of_own(tool),
        classes: std::collections::BTreeSet::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use countersign_core::policy::{Rule, RuleAction, RuleLayer, RuleSet, RuleSource};
    use serde_json::{Value, json};

    use super::{NodeGuard, NodeToolKind, compile_node_rules};
    use crate::environment::CommandEnvironment;

    fn source(rules: Vec<Rule>) -> RuleSource {
        RuleSource { name: "rules".to_owned(), layer: RuleLayer::Main, rules: RuleSet { rules, defaults: Vec::new() } }
    }

    fn guard(rules: &[&str]) -> NodeGuard {
        let rules = rules.iter().map(|pattern| Rule::new(*pattern, RuleAction::Deny)).collect();
        let environment = CommandEnvironment::clean_from([("HOME".into(), "/home/ana".into())], []);
        NodeGuard::new(compile_node_rules(Some(source(rules))).unwrap(), &["/var/node".into()], &environment)
    }

    #[test]
    fn what_destroys_is_denied_or_touches_the_node_is_refused_and_the_rest_is_not() {
        let guard = guard(&["bash(git push*)", "write(*.lock)", "process(kill*)"]);
        for (sort, arguments, want) in [
            (NodeToolKind::Bash, json!({"command": "ls -l"}), None),
            (NodeToolKind::Bash, json!({"command": "rm -rf build"}), None),
            (NodeToolKind::Bash, json!({"command": "rm -rf /"}), Some("which cannot ask for approval")),
            (NodeToolKind::Bash, json!({"command": "cd x && rm -rf ~"}), Some("which cannot ask for approval")),
            (
                NodeToolKind::Bash,
                json!({"command": "rm -rf ..", "workdir": "sub/deep"}),
                Some("which cannot ask for approval"),
            ),
            (NodeToolKind::Bash, json!({"command": "rm -rf *", "workdir": "~"}), Some("which cannot ask for approval")),
            (NodeToolKind::Bash, json!({"command": "rm -rf *", "workdir": "~/work/sub"}), None),
            (NodeToolKind::Bash, json!({"command": "mkfs.ext4 /dev/sda"}), Some("which cannot ask for approval")),
            (
                NodeToolKind::Bash,
                json!({"command": "make && git  push origin"}),
                Some("denied by rule \"bash(git push*)\""),
            ),
            (NodeToolKind::Bash, json!({"command": "cat /var/node/node.db"}), Some("denied because")),
            (NodeToolKind::Bash, json!({"command": "echo > /var/node/permissions.yaml"}), Some("denied because")),
            (NodeToolKind::Process, json!({"action": "list"}), None),
            (NodeToolKind::Process, json!({"action": "kill", "sessionId": "x"}), Some("denied by rule")),
            (NodeToolKind::Process, json!({"action": "submit", "sessionId": "x", "data": "print('a')"}), None),
            (
                NodeToolKind::Process,
                json!({"action": "submit", "sessionId": "x", "data": "rm -rf /"}),
                Some("cannot ask for approval"),
            ),
            (
                NodeToolKind::Process,
                json!({"action": "write", "sessionId": "x", "data": "git push"}),
                Some("denied by rule"),
            ),
            (NodeToolKind::Write, json!({"path": "a.lock", "content": ""}), Some("denied by rule")),
            (NodeToolKind::Write, json!({"path": "/dev/sda", "content": ""}), Some("cannot ask for approval")),
            (NodeToolKind::Write, json!({"path": "a", "content": "rm -rf /"}), None),
            (NodeToolKind::Read, json!({"path": "a.lock"}), None),
        ] {
            let Value::Object(arguments) = arguments else { panic!() };
            let got = guard.refusal(sort, &arguments, Path::new("/home/ana/work"));
            let fits = match (&got, want) {
                (None, None) => true,
                (Some(got), Some(want)) => got.contains(want),
                _ => false,
            };
            assert!(fits, "{sort:?} {arguments:?}: {got:?}, not {want:?}");
        }
    }

    #[test]
    fn rules_that_would_not_deny_are_reported() {
        for (rule, want) in [
            (Rule::new("bash(ls*)", RuleAction::Allow), "rules:0: a node can only deny"),
            (Rule::new("*", RuleAction::Ask), "rules:0: a node can only deny"),
            (Rule::new("Bash(rm*)", RuleAction::Deny), "rules:0: Bash is called bash in rules"),
            (Rule::new("Glob(*)", RuleAction::Deny), "rules:0: Glob is called find in rules"),
            (Rule::new("ls(*)", RuleAction::Deny), "rules:0: a node has no tool ls"),
            (Rule { tool: Some("send".to_owned()), pattern: None, ..Rule::new("", RuleAction::Deny) }, "no tool send"),
        ] {
            let got = compile_node_rules(Some(source(vec![rule]))).unwrap_err().to_string();
            assert!(got.contains(want), "{got}, not {want}");
        }
        assert!(compile_node_rules(Some(source(vec![Rule::new("*secret*", RuleAction::Deny)]))).is_ok());
        assert!(compile_node_rules(None).is_ok());
    }
}
