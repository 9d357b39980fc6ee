//! Rules about tools that are not there, but for a slip of the pen. It must not know where tools come from.

use countersign_core::policy::{Rule, Source};

use crate::slips;

/// Says of every rule about a tool that is none of `names`, but for a slip, which one was probably meant. Other names pass: there
/// may be tools that nobody told of.
pub(crate) fn strangers(source: &Source, names: &[&str]) -> Vec<String> {
    let told = |rule: &Rule| {
        let tool = rule.tool.as_deref().or(rule.pattern.as_deref())?;
        let tool = tool.split_once('(').map_or(tool, |(tool, _)| tool).trim();
        if names.contains(&tool) || tool.contains(['*', '?', '[']) {
            return None;
        }
        let meant = slips::meant(tool, names.iter().copied(), 1)?;
        let (file, line) = (&source.name, rule.line);
        Some(format!("{file}:{line}: there is no tool \"{tool}\" here, so this rule does not cover \"{meant}\""))
    };
    source.rules.rules.iter().chain(&source.rules.defaults).filter_map(told).collect()
}
