//! A file of rules, with the line of every rule, and the cases that it is tested with.
//!
//! It must not decide anything: rules are compiled and cases judged in core.

use std::{
    io,
    path::{Path, PathBuf},
};

use countersign_core::policy::{ArgConditions, ArgMatcher, Rule, RuleAction, RuleLayer, RuleSet, RuleSource};
use countersign_runtime::tools::regular;
use serde::{Deserialize, Serialize};

use super::{
    approvals,
    at::At,
    cases::{self, Case},
    notes::Notes,
    problem::{Errors, Fault},
    typed_values::action,
    value,
};
use crate::yaml::LARGEST;

/// A file of rules, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Permissions {
    /// Its rules, ready to be compiled.
    pub source: RuleSource,
    /// Its `tests`, then those of the file beside it.
    pub cases: Vec<Case>,
}

const TOP: &[&str] = &["defaults", "rules", "sets", "tests"];
const RULE: &[&str] = &[
    "pattern",
    "tool",
    "args",
    "principal",
    "door",
    "target",
    "action",
    "description",
    "approvals",
    "from",
    "within",
    "on_expiry",
    "escalate",
];

/// The text of a file of rules as it was read, so that another process can compile the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleFile {
    /// Where it was read.
    pub path: PathBuf,
    /// Whether it can only tighten what others say, as a repository's own file does.
    pub tightens: bool,
    /// What it says.
    pub text: String,
}

impl RuleFile {
    /// Reads the file at `path`. `None` if there is none.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn read(path: &Path, layer: RuleLayer) -> Result<Option<Self>, Errors> {
        let notes = Notes::of(path);
        let text = text(&notes);
        let problems = notes.problems.take();
        if !problems.is_empty() {
            return Err(Errors(problems));
        }
        let tightens = layer == RuleLayer::Tighten;
        Ok(text.map(|text| Self { path: path.to_owned(), tightens, text }))
    }

    /// Its rules and the cases in it and in the file beside it whose name ends in `.test.yaml`.
    ///
    /// # Errors
    /// Everything that is wrong, each with file, line and key.
    pub fn parse(&self) -> Result<Permissions, Errors> {
        parse(&self.path, if self.tightens { RuleLayer::Tighten } else { RuleLayer::Main }, &self.text)
    }
}

/// Reads the rules at `path`, and the cases in them and in the file beside it whose name ends in `.test.yaml`. `None` if
/// there is no such file.
///
/// # Errors
/// Everything that is wrong, each with file, line and key.
pub fn permissions(path: &Path, layer: RuleLayer) -> Result<Option<Permissions>, Errors> {
    RuleFile::read(path, layer)?.map(|file| file.parse()).transpose()
}

fn parse(path: &Path, layer: RuleLayer, text: &str) -> Result<Permissions, Errors> {
    let notes = Notes::of(path);
    let value = value::read(text, &notes, None);
    let root = At::root(&notes, value.as_ref());
    root.mapping(TOP);
    let sets = approvals::sets(&root.at("sets"));
    let list = |key: &str| root.at(key).items_or_nothing().iter().filter_map(|place| rule(place, &sets)).collect();
    let rules = RuleSet { defaults: list("defaults"), rules: list("rules") };
    let mut cases = cases::read(&root.at("tests"));
    let beside = Notes::of(&beside(path));
    if layer == RuleLayer::Main
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
    Ok(Permissions { source: RuleSource { name: path.display().to_string(), layer, rules }, cases })
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
    let action = action(&place.at("action"), "Invalid permission action");
    if place.has("args") && place.at("args").is_absent() {
        place.at("args").missing();
    }
    let rule = Rule {
        pattern: named_text(&pattern),
        tool: named_text(&tool),
        args: args(&place.at("args")),
        principal: bound(place, "principal"),
        door: bound(place, "door"),
        target: bound(place, "target"),
        action: action.unwrap_or(RuleAction::Deny),
        description: place.at("description").text(),
        steps: approvals::steps(place, sets),
        line: u32::try_from(place.line).unwrap_or(0),
    };
    // All of it was read, so that whatever is wrong is told at once.
    action.is_some().then_some(rule)
}

/// What is demanded of the arguments; each slip is told of with its own line.
fn args(place: &At<'_>) -> Option<ArgConditions> {
    if !place.is_mapping() {
        return ArgConditions::try_from(place.json()?).map_err(|error| place.refused(error.to_string())).ok();
    }
    let each = place.members()?.into_iter().filter_map(|(path, place)| {
        let value = place.json().unwrap_or_default();
        let matcher = ArgMatcher::try_from(value).map_err(|error| place.refused(error.to_string())).ok()?;
        Some((path.to_owned(), matcher))
    });
    Some(ArgConditions::Each(each.collect()))
}

/// What a rule is bound to. The key without a value would bind it to nothing, and what was to be narrow would be wide.
fn bound(place: &At<'_>, key: &str) -> Option<String> {
    if place.has(key) { place.at(key).needed_text() } else { None }
}

/// A text that is not empty where its key is there: an empty one matches nothing, and its author meant something.
fn named_text(place: &At<'_>) -> Option<String> {
    let text = place.text();
    if text.as_deref() == Some("") {
        place.missing();
    }
    text
}
