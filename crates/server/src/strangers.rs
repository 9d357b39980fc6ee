//! Rules about tools and arguments that are not there. It must not know where tools come from.

use std::collections::BTreeSet;

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

/// The shortest name that one with another letter is probably meant for.
const SHORTEST: usize = 4;

impl<'a> Known<'a> {
    /// A tool of the gateway's own, with what it takes and nothing else.
    pub(crate) fn own((name, takes): (&'a String, &'a BTreeSet<String>)) -> Self {
        Self { name, takes: takes.iter().map(String::as_str).collect(), others: Others::No }
    }
}

/// Says of every rule about a tool that is none of `tools`, but for a slip, which one was probably meant, and of every rule
/// about an argument that its tool does not take, which ones there are. Other names pass: there may be tools that nobody told
/// of.
pub(crate) fn strangers(source: &Source, tools: &[Known<'_>]) -> Vec<String> {
    let rules = source.rules.rules.iter().chain(&source.rules.defaults);
    rules
        .flat_map(|rule| told(rule, tools).into_iter().map(|told| format!("{}:{}: {told}", source.name, rule.line)))
        .collect()
}

fn told(rule: &Rule, tools: &[Known<'_>]) -> Vec<String> {
    let of_pattern =
        |pattern: &'_ String| pattern.split_once('(').map_or(&**pattern, |(tool, _)| tool).trim().to_owned();
    let Some(tool) = rule.tool.clone().or_else(|| rule.pattern.as_ref().map(of_pattern)) else { return Vec::new() };
    let tool = tool.as_str();
    // A service and the gateway may both have one of this name.
    let of_this_name = tools.iter().filter(|known| known.name == tool).cloned().reduce(|mut all, other| {
        all.takes.extend(other.takes);
        all.others = all.others.max(other.others);
        all
    });
    if let Some(known) = of_this_name {
        return arguments(rule, &known);
    }
    if tool.contains(['*', '?', '[']) {
        return Vec::new();
    }
    let meant = slips::meant(tool, tools.iter().map(|known| known.name), 1);
    meant
        .map(|meant| format!("there is no tool \"{tool}\" here, so this rule does not cover \"{meant}\""))
        .into_iter()
        .collect()
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
