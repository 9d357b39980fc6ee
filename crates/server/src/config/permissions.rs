//! A file of rules, with the line of every rule, and the cases that it is tested with.
//!
//! It must not decide anything: rules are compiled and cases judged in core.

use std::{
    io,
    path::{Path, PathBuf},
};

use countersign_core::policy::{Action, Args, Layer, Rule, Rules, Source};
use countersign_runtime::tools::regular;
use serde_json::Value;

use super::{
    approvals,
    at::{At, Notes},
    cases::{self, Case},
    problem::{Errors, Fault},
    value,
};
use crate::agent_dir::LARGEST;

/// A file of rules, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Permissions {
    /// Its rules, ready to be compiled.
    pub source: Source,
    /// Its `tests`, then those of the file beside it.
    pub cases: Vec<Case>,
}

const TOP: &[&str] = &["defaults", "rules", "sets", "tests"];
const RULE: &[&str] =
    &["pattern", "tool", "args", "action", "description", "approvals", "from", "within", "on_expiry", "escalate"];

/// Reads the rules at `path`, and the cases in them and in the file beside it whose name ends in `.test.yaml`. `None` if
/// there is no such file.
///
/// # Errors
/// Everything that is wrong, each with file, line and key.
pub fn permissions(path: &Path, layer: Layer) -> Result<Option<Permissions>, Errors> {
    let notes = Notes::of(path);
    let Some(text) = text(&notes) else { return none(&notes) };
    let value = value::read(&text, &notes, None);
    let root = At::root(&notes, value.as_ref());
    root.mapping(TOP);
    let sets = approvals::sets(&root.at("sets"));
    let list = |key: &str| root.at(key).items().iter().filter_map(|place| rule(place, &sets)).collect();
    let rules = Rules { defaults: list("defaults"), rules: list("rules") };
    let mut cases = cases::read(&root.at("tests"));
    let beside = Notes::of(&beside(path));
    if layer == Layer::Main
        && let Some(text) = self::text(&beside)
    {
        let value = value::read(&text, &beside, None);
        let root = At::root(&beside, value.as_ref());
        root.mapping(&["tests"]);
        cases.append(&mut cases::read(&root.at("tests")));
    }
    let mut problems = notes.problems.take();
    problems.append(&mut beside.problems.take());
    if !problems.is_empty() {
        return Err(Errors(problems));
    }
    Ok(Some(Permissions { source: Source { name: path.display().to_string(), layer, rules }, cases }))
}

fn none(notes: &Notes) -> Result<Option<Permissions>, Errors> {
    let problems = notes.problems.take();
    if problems.is_empty() { Ok(None) } else { Err(Errors(problems)) }
}

fn text(notes: &Notes) -> Option<String> {
    match regular::read_text(&notes.file, LARGEST) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            notes.fault(0, "", Fault::Io(error.to_string()));
            None
        }
    }
}

/// `permissions.test.yaml` of `permissions.yaml`.
fn beside(path: &Path) -> PathBuf {
    path.with_extension("test.yaml")
}

fn rule(place: &At<'_>, sets: &approvals::Sets) -> Option<Rule> {
    if !place.mapping(RULE) {
        if place.is_absent() {
            place.missing();
        }
        return None;
    }
    let (pattern, tool) = (place.at("pattern"), place.at("tool"));
    match (pattern.is_absent(), tool.is_absent()) {
        (true, true) => pattern.missing(),
        (false, false) => place.refused("a rule has either a pattern or a tool"),
        (true, false) | (false, true) => {}
    }
    let args = place.at("args");
    let sound = args.json().filter(is_args).and_then(|json| serde_json::from_value::<Args>(json).ok());
    if sound.is_none() && !args.is_absent() {
        args.refused(MATCHERS);
    }
    let action = action(&place.at("action"), "Invalid permission action");
    Some(Rule {
        pattern: pattern.text(),
        tool: tool.text(),
        args: sound,
        action: action?,
        description: place.at("description").text(),
        steps: approvals::steps(place, sets),
        line: u32::try_from(place.line).unwrap_or(0),
    })
}

const MATCHERS: &str =
    "expected any, or for each argument a pattern, a number, true or false, or one of is, in, max, min, present, not";

/// True if every mapping among the matchers is one operator. A mapping with a slip in its word would else be a value
/// that no argument ever has, and a deny rule would deny nothing.
fn is_args(args: &Value) -> bool {
    fn is_matcher(matcher: &Value) -> bool {
        let Value::Object(members) = matcher else { return !matcher.is_array() && !matcher.is_null() };
        let mut members = members.iter();
        match (members.next(), members.next()) {
            (Some((word, operand)), None) => match word.as_str() {
                "is" => true,
                "in" => operand.is_array(),
                "max" | "min" => operand.is_number(),
                "present" => operand.is_boolean(),
                "not" => is_matcher(operand),
                _ => false,
            },
            (_, _) => false,
        }
    }
    args.as_object().is_none_or(|each| each.values().all(is_matcher))
}

/// One of the three actions, and what agentpass says to any other.
pub(super) fn action(place: &At<'_>, refusal: &str) -> Option<Action> {
    match place.needed_text()?.as_str() {
        "allow" => Some(Action::Allow),
        "deny" => Some(Action::Deny),
        "ask" => Some(Action::Ask),
        other => {
            place.refused(format!("{refusal}: '{other}' (must be allow/deny/ask)"));
            None
        }
    }
}
