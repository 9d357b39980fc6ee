//! Rules about tools and arguments that are not there. It must not know where tools come from.

use std::collections::{BTreeMap, BTreeSet};

use countersign_core::policy::{Args, Rule, Source};

use crate::slips;

/// A tool that there is.
#[derive(Clone, Debug)]
pub(crate) struct Known<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// The arguments that it is known to take.
    pub(crate) takes: Vec<&'a str>,
    /// Whether it takes others too.
    pub(crate) others: Others,
}

/// Whether a tool takes arguments that nobody declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Others {
    /// It does not.
    No,
    /// It may: one that nearly has the name of another is probably a slip.
    Perhaps,
    /// It does, whatever they are called.
    Any,
}

/// Whether every tool that a rule can be about is known by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// All but those of nodes, whose names have two underscores between node and tool.
    All,
    /// Some: a host, or whoever has no configuration, may have others.
    Some,
}

/// What rules call the use of a secret.
const SECRET: &str = "secret";

/// The most names of tools that are told where none is meant.
const MOST_TOLD: usize = 30;

/// The shortest name that one with another letter is probably meant for.
const SHORTEST: usize = 4;

impl<'a> Known<'a> {
    /// A tool of the gateway's own, with what it takes and nothing else.
    pub(crate) fn own((name, takes): (&'a String, &'a BTreeSet<String>)) -> Self {
        Self { name, takes: takes.iter().map(String::as_str).collect(), others: Others::No }
    }
}

/// Says of every rule about a tool that is none of `tools`, but for a slip, which one was probably meant, and of every rule
/// about an argument that its tool does not take, which ones there are. Other names pass where there may be tools that nobody
/// told of.
pub(crate) fn strangers(source: &Source, tools: &[Known<'_>], named: Named) -> Vec<String> {
    // A service and the gateway may both have one of this name.
    let mut by_name: BTreeMap<&str, Known<'_>> = BTreeMap::new();
    for tool in tools {
        match by_name.get_mut(tool.name) {
            Some(known) => {
                known.takes.extend(&tool.takes);
                known.others = known.others.max(tool.others);
            }
            None => drop(by_name.insert(tool.name, tool.clone())),
        }
    }
    let nearest = Nearest::of(tools.iter().map(|tool| tool.name));
    let rules = source.rules.rules.iter().chain(&source.rules.defaults);
    rules
        .flat_map(|rule| {
            told(rule, &by_name, &nearest, named)
                .into_iter()
                .map(|told| format!("{}:{}: {told}", source.name, rule.line))
        })
        .collect()
}

fn told(rule: &Rule, tools: &BTreeMap<&str, Known<'_>>, nearest: &Nearest<'_>, named: Named) -> Vec<String> {
    let of_pattern =
        |pattern: &'_ String| pattern.split_once('(').map_or(&**pattern, |(tool, _)| tool).trim().to_owned();
    let Some(tool) = rule.tool.clone().or_else(|| rule.pattern.as_ref().map(of_pattern)) else { return Vec::new() };
    let tool = tool.as_str();
    if let Some(known) = tools.get(tool) {
        return arguments(rule, known);
    }
    if tool.contains(['*', '?', '[']) {
        return Vec::new();
    }
    if let Some(meant) = nearest.meant(tool) {
        return vec![format!("there is no tool \"{tool}\" here, so this rule does not cover \"{meant}\"")];
    }
    if named == Named::Some || tool.contains("__") || tool == SECRET {
        return Vec::new();
    }
    let mut names: Vec<&str> = tools.keys().copied().take(MOST_TOLD).collect();
    let more = tools.len().saturating_sub(MOST_TOLD);
    let more = (more > 0).then(|| format!("{more} more"));
    names.extend(more.as_deref());
    let names = names.join(", ");
    vec![format!("no tool is called \"{tool}\"; the tools are {names}, and those of nodes, NODE__TOOL")]
}

/// The names of tools by their length, so that a rule is compared only with names that may be one slip away.
struct Nearest<'a>(BTreeMap<usize, Vec<&'a str>>);

impl<'a> Nearest<'a> {
    fn of(names: impl Iterator<Item = &'a str>) -> Self {
        let mut by_length: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
        names.for_each(|name| by_length.entry(name.to_lowercase().chars().count()).or_default().push(name));
        Self(by_length)
    }

    fn meant(&self, tool: &str) -> Option<&'a str> {
        let length = tool.to_lowercase().chars().count();
        let near = self.0.range(length.saturating_sub(1)..=length + 1).flat_map(|(_, names)| names.iter().copied());
        slips::meant(tool, near, 1)
    }
}

/// The same of the arguments of a rule about `tool`.
fn arguments(rule: &Rule, tool: &Known<'_>) -> Vec<String> {
    let Some(Args::Each(each)) = &rule.args else { return Vec::new() };
    let told = |path: &String| {
        let name = path.split('.').next().unwrap_or_default();
        // A name may hold dots itself.
        let heads = path.match_indices('.').map(|(at, _)| &path[..at]).chain([path.as_str()]);
        if name == "*" || heads.into_iter().any(|head| tool.takes.contains(&head)) {
            return None;
        }
        let meant = slips::meant(name, tool.takes.iter().copied(), 1).filter(|meant| meant.chars().count() >= SHORTEST);
        let (takes, tool) = (tool.takes.join(", "), (tool.name, tool.others));
        match (tool, meant) {
            ((_, Others::Any), _) | ((_, Others::Perhaps), None) => None,
            ((tool, Others::Perhaps), Some(meant)) => {
                Some(format!("\"{tool}\" is not known to take an argument \"{name}\"; did you mean \"{meant}\"?"))
            }
            ((tool, Others::No), Some(meant)) => {
                Some(format!("\"{tool}\" takes no argument \"{name}\"; did you mean \"{meant}\"?"))
            }
            ((tool, Others::No), None) if takes.is_empty() => {
                Some(format!("\"{tool}\" takes no arguments, so none is \"{name}\""))
            }
            ((tool, Others::No), None) => Some(format!("\"{tool}\" takes no argument \"{name}\"; it takes {takes}")),
        }
    };
    each.keys().filter_map(told).collect()
}
