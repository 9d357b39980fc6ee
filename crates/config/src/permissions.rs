//! A rules file, with the line of every rule, and the cases that it is tested with.
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
    cases::{self, PolicyCase},
    config_field::ConfigField,
    diagnostics::FileDiagnostics,
    problem::{ConfigErrors, ConfigFault},
    typed_values::read_action,
    value,
};
use crate::{misnamed_files::misnamed_files, yaml::LARGEST};

/// A rules file, read.
///
/// # Example
///
/// ```
/// use countersign_config::RulesText;
/// use countersign_core::policy::{RuleAction, compile_rules};
///
/// let text = "
/// rules:
///   - { pattern: 'turn(lamp*)', action: allow }
/// tests:
///   - { request: 'turn thing=lamp_1', expect: allow }
/// ";
/// let parsed = RulesText { path: "permissions.yaml".into(), tightens: false, text: text.to_owned() }.parse()?;
/// let rule = &parsed.source.rules.rules[0];
/// assert_eq!((rule.line, rule.action), (3, RuleAction::Allow));
/// assert_eq!(parsed.cases.len(), 1);
/// let compiled = compile_rules(vec![parsed.source]).expect("each rule has a pattern");
/// assert!(compiled.has_rules());
/// # Ok::<(), countersign_config::ConfigErrors>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedRules {
    /// Its rules, ready to be compiled.
    pub source: RuleSource,
    /// Its `tests`, then those of the file next to it.
    pub cases: Vec<PolicyCase>,
}

/// Usual name of a rules file.
const USUAL_NAME: &str = "permissions.yaml";

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

/// The text of a rules file as it was read, so that another process can compile the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RulesText {
    /// Path of the file.
    pub path: PathBuf,
    /// True if it can only tighten other rules, as a repository's own file does.
    pub tightens: bool,
    /// Text of the file.
    pub text: String,
}

impl RulesText {
    /// Reads the file at `path`. `None` if there is none.
    ///
    /// # Errors
    /// Why it cannot be read. Beside a `permissions.yaml`, a file with its name and another extension is an error: its rules would
    /// not apply.
    pub fn read_file(path: &Path, layer: RuleLayer) -> Result<Option<Self>, ConfigErrors> {
        let notes = FileDiagnostics::for_file(path);
        let is_usual = path.file_name().is_some_and(|name| name == USUAL_NAME);
        if let Some(other) = misnamed_files(path, &["yml", "json"]).next().filter(|_| is_usual) {
            let problem = format!("is not read: rules are in {USUAL_NAME}; rename or remove this file");
            let notes = FileDiagnostics::for_file(&other);
            notes.add_fault(0, "", ConfigFault::Refused(problem));
            return Err(ConfigErrors(notes.take_problems()));
        }
        let text = file_text(&notes);
        let problems = notes.take_problems();
        if !problems.is_empty() {
            return Err(ConfigErrors(problems));
        }
        let tightens = layer == RuleLayer::Tighten;
        Ok(text.map(|text| Self { path: path.to_owned(), tightens, text }))
    }

    /// Parses its rules and the cases in it and in the file next to it whose name ends in `.test.yaml`.
    ///
    /// # Errors
    /// All problems, each with file, line and key.
    pub fn parse(&self) -> Result<ParsedRules, ConfigErrors> {
        parse_rules(&self.path, if self.tightens { RuleLayer::Tighten } else { RuleLayer::Main }, &self.text)
    }
}

/// Reads the rules at `path`, and the cases in them and in the file next to it whose name ends in `.test.yaml`. `None` if
/// there is no such file.
///
/// # Errors
/// All problems, each with file, line and key.
pub fn read_permissions(path: &Path, layer: RuleLayer) -> Result<Option<ParsedRules>, ConfigErrors> {
    RulesText::read_file(path, layer)?.map(|file| file.parse()).transpose()
}

fn parse_rules(path: &Path, layer: RuleLayer, text: &str) -> Result<ParsedRules, ConfigErrors> {
    let notes = FileDiagnostics::for_file(path);
    let value = value::read_value(text, &notes, None);
    let root = ConfigField::root(&notes, value.as_ref());
    root.check_mapping(TOP);
    let sets = approvals::read_sets(&root.at("sets"));
    let list = |key: &str| root.at(key).items_or_nothing().iter().filter_map(|place| read_rule(place, &sets)).collect();
    let rules = RuleSet { defaults: list("defaults"), rules: list("rules") };
    let mut cases = cases::read_cases(&root.at("tests"));
    let beside = FileDiagnostics::for_file(&cases_path(path));
    if layer == RuleLayer::Main
        && let Some(text) = self::file_text(&beside)
    {
        let value = value::read_value(&text, &beside, None);
        let root = ConfigField::root(&beside, value.as_ref());
        root.check_mapping(&["tests"]);
        cases.append(&mut cases::read_cases(&root.at("tests")));
    }
    let mut problems = notes.take_problems();
    problems.append(&mut beside.take_problems());
    if !problems.is_empty() {
        return Err(ConfigErrors(problems));
    }
    Ok(ParsedRules { source: RuleSource { name: path.display().to_string(), layer, rules }, cases })
}

fn file_text(notes: &FileDiagnostics) -> Option<String> {
    match regular::read_text(&notes.file, LARGEST) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            notes.add_fault(0, "", ConfigFault::Io(error.to_string()));
            None
        }
    }
}

/// Returns `permissions.test.yaml` for `permissions.yaml`.
fn cases_path(path: &Path) -> PathBuf {
    path.with_extension("test.yaml")
}

fn read_rule(place: &ConfigField<'_>, sets: &approvals::PeopleSets) -> Option<Rule> {
    if !place.check_item(RULE) {
        return None;
    }
    let (pattern, tool) = (place.at("pattern"), place.at("tool"));
    match (pattern.is_absent(), tool.is_absent()) {
        (true, true) => pattern.report_missing(),
        (false, false) => place.report_refusal("a rule must have either a pattern or a tool, not both"),
        (true, false) | (false, true) => {}
    }
    let action = read_action(&place.at("action"), "Invalid permission action");
    if place.has_key("args") && place.at("args").is_absent() {
        place.at("args").report_missing();
    }
    let rule = Rule {
        pattern: named_text(&pattern),
        tool: named_text(&tool),
        args: read_args(&place.at("args")),
        principal: bound_text(place, "principal"),
        door: place
            .has_key("door")
            .then(|| place.at("door").needed_choice("the name of an adapter, such as omp, mcp or claude"))
            .flatten(),
        target: bound_text(place, "target"),
        action: action.unwrap_or(RuleAction::Deny),
        description: place.at("description").text(),
        steps: approvals::read_steps(place, sets),
        line: u32::try_from(place.line).unwrap_or(0),
    };
    // All of it was read, so that all problems are reported at once.
    action.is_some().then_some(rule)
}

/// Reads the conditions on the arguments; each slip is reported with its own line.
fn read_args(place: &ConfigField<'_>) -> Option<ArgConditions> {
    if !place.is_mapping() {
        return ArgConditions::try_from(place.to_json()?).map_err(|error| place.report_refusal(error.to_string())).ok();
    }
    let each = place.members()?.into_iter().filter_map(|(path, place)| {
        let value = place.to_json().unwrap_or_default();
        let matcher = ArgMatcher::try_from(value).map_err(|error| place.report_refusal(error.to_string())).ok()?;
        Some((path.to_owned(), matcher))
    });
    Some(ArgConditions::Each(each.collect()))
}

/// Reads the text to which a rule is bound. The key without a value would bind it to nothing, and a narrow rule would be wide.
fn bound_text(place: &ConfigField<'_>, key: &str) -> Option<String> {
    if place.has_key(key) { place.at(key).needed_text() } else { None }
}

/// Returns a text that is not empty where its key is there: an empty one matches nothing, and its author meant something.
fn named_text(place: &ConfigField<'_>) -> Option<String> {
    let text = place.text();
    if text.as_deref() == Some("") {
        place.report_missing();
    }
    text
}
