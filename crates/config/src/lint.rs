//! Rules about tools and arguments that are not there. It must not know where tools come from.

use std::collections::{BTreeMap, BTreeSet};

use countersign_core::policy::{ArgConditions, Rule, RuleSource};

use crate::suggest;

/// A tool that there is.
#[derive(Clone, Debug)]
pub struct KnownTool<'a> {
    /// Its name.
    pub name: &'a str,
    /// The arguments that it is known to take.
    pub takes: Vec<&'a str>,
    /// Acceptance of further arguments.
    pub others: ExtraArguments,
}

/// Acceptance of undeclared arguments by a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExtraArguments {
    /// None.
    No,
    /// Possible: one that nearly has the name of another is probably a slip.
    Perhaps,
    /// Any name.
    Any,
}

/// Completeness of the known tools that a rule can be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolCoverage {
    /// All but those of nodes, whose names have two underscores between node and tool.
    All,
    /// Some: a host, or a user without a configuration, may have others.
    Some,
}

/// Name in rules for the use of a secret.
const SECRET: &str = "secret";

/// Most names of tools that are listed if none is meant.
const LISTED_LIMIT: usize = 30;

/// The tool that runs commands.
const SHELL: &str = "bash";

/// The shortest name that one with another letter is probably meant for.
const SHORTEST: usize = 4;

impl<'a> KnownTool<'a> {
    /// Makes a tool of the gateway's own, with its arguments and no others.
    pub fn gateway_tool((name, takes): (&'a String, &'a BTreeSet<String>)) -> Self {
        Self { name, takes: takes.iter().map(String::as_str).collect(), others: ExtraArguments::No }
    }
}

/// Returns for every rule about a tool that is none of `tools`, but for a slip, which one was probably meant, and for every rule
/// about an argument that its tool does not take, the arguments that it takes. Other names pass if there may be tools that are not
/// known here.
pub fn lint_rules(source: &RuleSource, tools: &[KnownTool<'_>], named: ToolCoverage) -> Vec<String> {
    // A service and the gateway may both have one of this name.
    let mut by_name: BTreeMap<&str, KnownTool<'_>> = BTreeMap::new();
    for tool in tools {
        match by_name.get_mut(tool.name) {
            Some(known) => {
                known.takes.extend(&tool.takes);
                known.others = known.others.max(tool.others);
            }
            None => drop(by_name.insert(tool.name, tool.clone())),
        }
    }
    let nearest = NameIndex::from_names(tools.iter().map(|tool| tool.name));
    let rules = source.rules.rules.iter().chain(&source.rules.defaults);
    rules
        .flat_map(|rule| {
            lint_rule(rule, &by_name, &nearest, named)
                .into_iter()
                .map(|warning| format!("{}:{}: {warning}", source.name, rule.line))
        })
        .collect()
}

fn lint_rule(
    rule: &Rule,
    tools: &BTreeMap<&str, KnownTool<'_>>,
    nearest: &NameIndex<'_>,
    named: ToolCoverage,
) -> Vec<String> {
    let of_pattern =
        |pattern: &'_ String| pattern.split_once('(').map_or(&**pattern, |(tool, _)| tool).trim().to_owned();
    let Some(tool) = rule.tool.clone().or_else(|| rule.pattern.as_ref().map(of_pattern)) else { return Vec::new() };
    let tool = tool.as_str();
    if let Some(known) = tools.get(tool) {
        let is_bare = rule.pattern.as_deref().is_some_and(|pattern| pattern.trim() == tool);
        let bare = (is_bare && !known.takes.is_empty())
            .then(|| format!("\"{tool}\" alone covers no call with arguments; write \"{tool}*\" for every call"));
        return bare.into_iter().chain(lint_arguments(rule, known)).collect();
    }
    if tool.contains(['*', '?', '[']) {
        return Vec::new();
    }
    let none = format!("there is no tool \"{tool}\" here");
    if let Some(meant) = nearest.nearest_name(tool) {
        return vec![format!("{none}, so this rule does not cover \"{meant}\"")];
    }
    if is_shell(tool) && tools.contains_key(SHELL) {
        let inside = rule.pattern.as_deref().and_then(|pattern| pattern.split_once('('));
        let proposed = inside.map_or_else(|| format!("{SHELL}*"), |(_, inside)| format!("{SHELL}({inside}"));
        return vec![format!("{none}, and commands are run by \"{SHELL}\"; write \"{proposed}\"")];
    }
    if is_family(tool) && rule.pattern.as_ref().is_none_or(|pattern| !pattern.contains('(')) {
        return vec![format!("{none}; write \"{tool}__*\" for all tools with that prefix")];
    }
    if named == ToolCoverage::Some || tool.contains("__") || tool == SECRET {
        return Vec::new();
    }
    let mut names: Vec<&str> = tools.keys().copied().take(LISTED_LIMIT).collect();
    let more = tools.len().saturating_sub(LISTED_LIMIT);
    let more = (more > 0).then(|| format!("{more} more"));
    names.extend(more.as_deref());
    let names = names.join(", ");
    vec![format!("there is no tool \"{tool}\"; the tools are {names}, and NODE__TOOL for tools of nodes")]
}

/// Reports whether a tool's name marks it as one that runs commands: one of its words does.
fn is_shell(tool: &str) -> bool {
    let mut words: Vec<String> = Vec::new();
    let mut before = '_';
    for c in tool.chars() {
        // The text before two of them is a machine, whose tools are not known here; a command has blanks.
        let is_of_machine = c == '_' && before == '_' && !words.is_empty();
        if is_of_machine || c.is_whitespace() {
            return false;
        }
        match (c.is_alphanumeric(), c.is_uppercase() && !before.is_uppercase() || !before.is_alphanumeric()) {
            (false, _) => {}
            (true, true) => words.push(c.to_lowercase().collect()),
            (true, false) => words.iter_mut().next_back().into_iter().for_each(|word| word.extend(c.to_lowercase())),
        }
        before = c;
    }
    words.iter().any(|word| ["shell", "terminal", "command", "cmd"].contains(&word.as_str()))
}

/// Reports whether a name is the prefix of the tools of one MCP server, as most agents call them.
fn is_family(tool: &str) -> bool {
    tool.strip_prefix("mcp__").is_some_and(|server| !server.is_empty() && !server.contains("__"))
}

/// The names of tools by themselves and by what is left of them without one letter: two names that are one slip apart share one of
/// those, so that a rule is compared only with names that may be meant.
struct NameIndex<'a>(BTreeMap<String, Vec<(usize, &'a str)>>);

impl<'a> NameIndex<'a> {
    fn from_names(names: impl Iterator<Item = &'a str>) -> Self {
        let mut all: BTreeMap<String, Vec<(usize, &str)>> = BTreeMap::new();
        for (at, name) in names.enumerate() {
            for form in name_forms(name) {
                all.entry(form).or_default().push((at, name));
            }
        }
        Self(all)
    }

    /// Names that may be at most one slip away from `tool`, in the order in which they were given.
    fn candidates(&self, tool: &str) -> BTreeSet<(usize, &'a str)> {
        name_forms(tool).iter().filter_map(|form| self.0.get(form)).flatten().copied().collect()
    }

    fn nearest_name(&self, tool: &str) -> Option<&'a str> {
        suggest::did_you_mean(tool, self.candidates(tool).into_iter().map(|(_, name)| name), 1)
    }
}

/// Returns a name in small letters, and the same without each of its letters.
fn name_forms(name: &str) -> BTreeSet<String> {
    let name = name.to_lowercase();
    let without = name.char_indices().map(|(at, c)| format!("{}{}", &name[..at], &name[at + c.len_utf8()..]));
    without.chain([name.clone()]).collect()
}

/// Returns the same of the arguments of a rule about `tool`.
fn lint_arguments(rule: &Rule, tool: &KnownTool<'_>) -> Vec<String> {
    let Some(ArgConditions::Each(each)) = &rule.args else { return Vec::new() };
    let lint_path = |path: &String| {
        let name = path.split('.').next().unwrap_or_default();
        // A name may hold dots itself.
        let heads = path.match_indices('.').map(|(at, _)| &path[..at]).chain([path.as_str()]);
        if name == "*" || heads.into_iter().any(|head| tool.takes.contains(&head)) {
            return None;
        }
        let meant = suggest::did_you_mean(name, tool.takes.iter().copied(), 1)
            .filter(|meant| meant.chars().count() >= SHORTEST);
        match ((tool.name, tool.others), meant) {
            ((_, ExtraArguments::Any), _) | ((_, ExtraArguments::Perhaps), None) => None,
            ((tool, ExtraArguments::Perhaps), Some(meant)) => {
                Some(format!("\"{tool}\" is not known to take an argument \"{name}\"; did you mean \"{meant}\"?"))
            }
            ((tool, ExtraArguments::No), Some(meant)) => {
                Some(format!("\"{tool}\" takes no argument \"{name}\"; did you mean \"{meant}\"?"))
            }
            ((own, ExtraArguments::No), None) if tool.takes.is_empty() => {
                Some(format!("\"{own}\" takes no arguments; found \"{name}\""))
            }
            ((own, ExtraArguments::No), None) => {
                let takes = tool.takes.join(", ");
                Some(format!("\"{own}\" takes no argument \"{name}\"; it takes {takes}"))
            }
        }
    };
    each.keys().filter_map(lint_path).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use countersign_core::policy::{Rule, RuleAction};

    use super::{ExtraArguments, KnownTool, NameIndex, ToolCoverage, lint_rule};

    #[test]
    fn a_tool_name_of_another_agent_is_reported() {
        let bash = KnownTool { name: "bash", takes: vec!["command"], others: ExtraArguments::No };
        let command = KnownTool { name: "run_command", ..bash.clone() };
        let names: BTreeMap<&str, KnownTool<'_>> = [bash, command].map(|tool| (tool.name, tool)).into();
        let nearest = NameIndex::from_names(names.keys().copied());
        let shell = |tool: &str, proposed: &str| {
            vec![format!("there is no tool \"{tool}\" here, and commands are run by \"bash\"; write \"{proposed}\"")]
        };
        for (pattern, want) in [
            ("Shell(git *)", shell("Shell", "bash(git *)")),
            ("run_shell_command(git)", shell("run_shell_command", "bash(git)")),
            ("RunTerminalCmd(ls *)", shell("RunTerminalCmd", "bash(ls *)")),
            ("local_shell", shell("local_shell", "bash*")),
            (
                "mcp__github",
                vec![
                    "there is no tool \"mcp__github\" here; write \"mcp__github__*\" for all tools with that prefix"
                        .to_owned(),
                ],
            ),
            ("run_command(x)", vec![]),
            ("bash", vec!["\"bash\" alone covers no call with arguments; write \"bash*\" for every call".to_owned()]),
            ("mac__Shell(git *)", vec![]),
            ("mcp__github__*", vec![]),
            ("mcp__github__search(x)", vec![]),
            ("ha_call_service(light.turn_on, *)", vec![]),
            ("unheard_of(x)", vec![]),
            ("nutshells(x)", vec![]),
        ] {
            assert_eq!(
                lint_rule(&Rule::new(pattern, RuleAction::Deny), &names, &nearest, ToolCoverage::Some),
                want,
                "{pattern}"
            );
        }
    }

    #[test]
    fn among_ten_thousand_tools_few_are_compared_with_a_name() {
        for count in [10_usize, 1_000, 10_000] {
            let names: Vec<String> = (0..count).map(|at| format!("tool_{at:05}_of_many")).collect();
            let nearest = NameIndex::from_names(names.iter().map(String::as_str));
            for (tool, want) in [
                ("tool_0000_of_many", Some("tool_00000_of_many")),
                ("Tool_00003_of_mnay", Some("tool_00003_of_many")),
                ("tool_00003_of_meny", Some("tool_00003_of_many")),
                ("ttool_00003_of_many", Some("tool_00003_of_many")),
                ("tool_x0003_of_meny", None),
            ] {
                assert_eq!(nearest.nearest_name(tool), want, "{tool} among {count}");
                assert!(nearest.candidates(tool).len() <= 64, "{tool} among {count}");
            }
        }
    }
}
