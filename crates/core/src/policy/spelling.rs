//! The spellings of the paths that a call names: a rule may name a file by any of them.
//!
//! It must not look at the disk. The call has the targets of the links in its path.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
};

use countersign_shell_analysis::path_style::{STYLES, StyleFolders};
use serde_json::{Map, Value};

use crate::{
    policy::{
        arg_condition::CallArguments,
        obeyed, path,
        subject::{EffectReach, PolicySubject},
        table::RuleLookup,
    },
    tool::{self, ShellInput},
};

/// A call with every path in one spelling.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CallSpelling {
    /// Its signature.
    pub(crate) signature: String,
    /// The arguments that are paths.
    paths: Map<String, Value>,
    /// Number of `..` steps at the beginning of its relative path. A wildcard of a rule matches none of them.
    pub(crate) steps_up: usize,
}

/// A call in the other spellings of its paths. They are made when a rule is looked up for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallSpellings<'a> {
    call: Option<CallPaths<'a>>,
    found: OnceCell<FoundSpellings>,
}

/// A call whose paths have other spellings.
#[derive(Clone, Debug)]
struct CallPaths<'a> {
    subject: &'a PolicySubject,
    working: String,
    home: Option<String>,
    /// The arguments that are paths, as they are written.
    written: Vec<(&'a String, &'a str)>,
    /// Their targets, without resolving links.
    reached: BTreeMap<&'a String, String>,
}

#[derive(Clone, Debug, Default)]
struct FoundSpellings {
    all: Vec<CallSpelling>,
    /// For each file that the call reaches and does not name in a plain spelling: the plain ones, and the file for display.
    reached: Vec<(Vec<CallSpelling>, String)>,
}

impl<'a> CallSpellings<'a> {
    /// Returns the spellings of `subject`. Those of the words of a shell line are found with the line.
    pub(crate) fn from_subject(subject: &'a PolicySubject, home: Option<&str>) -> Self {
        if matches!(subject.shell, ShellInput::Line { .. }) || !subject.cwd.starts_with('/') {
            return Self::default();
        }
        let written = paths_of(subject);
        if written.is_empty() {
            return Self::default();
        }
        let working = path::resolve("/", &subject.cwd);
        let home = home.map(|home| path::resolve("/", home));
        let folders = StyleFolders { working: &working, home: home.as_deref() };
        let lead = |(name, text): &(&'a String, &str)| {
            let reached = folders.resolve_text(&working, text);
            (*name, reached.unwrap_or_else(|| path::normalised_path(text)))
        };
        let reached = written.iter().map(lead).collect();
        Self { call: Some(CallPaths { subject, working, home, written, reached }), found: OnceCell::new() }
    }

    /// Returns every other spelling: rules that deny or ask apply to each.
    pub(crate) fn all_spellings(&self) -> impl Iterator<Item = &CallSpelling> {
        self.found_spellings().all.iter()
    }

    /// Returns the first rule of `table` that matches one of them.
    pub(crate) fn first_in(&self, table: &RuleLookup<'_>) -> Option<usize> {
        let call = self.call.as_ref().filter(|call| call.may_meet(table))?;
        self.all_spellings().filter_map(|spelled| call.first_in(table, spelled, |_| true)).min()
    }

    /// Returns the first rule of `table` that `predicate` accepts and that matches the call as `spelled`.
    pub(crate) fn first_for(
        &self,
        table: &RuleLookup<'_>,
        spelled: &CallSpelling,
        predicate: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        self.call.as_ref()?.first_in(table, spelled, predicate)
    }

    /// Returns the last rank of the rules that together allow every reached file, as `first` finds them for one spelling.
    ///
    /// # Errors
    /// The file that stays uncovered, for display.
    pub(crate) fn covered_by(&self, first: &dyn Fn(&CallSpelling) -> Option<usize>) -> Result<usize, String> {
        if self.call.as_ref().is_none_or(CallPaths::is_plain) {
            return Ok(0);
        }
        let covered = |(spelled, shown): &(Vec<CallSpelling>, String)| {
            let rank = spelled.iter().filter_map(first).min();
            rank.ok_or_else(|| format!("the path {shown} that it leads to; a rule has to name that path"))
        };
        self.found_spellings().reached.iter().try_fold(0, |last, reached| Ok(last.max(covered(reached)?)))
    }

    fn found_spellings(&self) -> &FoundSpellings {
        self.found.get_or_init(|| self.call.as_ref().map(CallPaths::find_spellings).unwrap_or_default())
    }
}

impl CallPaths<'_> {
    fn path_folders(&self) -> StyleFolders<'_> {
        StyleFolders { working: &self.working, home: self.home.as_deref() }
    }

    /// Reports whether each path is written plainly and leads through no link.
    fn is_plain(&self) -> bool {
        self.subject.leads_to.is_none() && self.is_written_plainly()
    }

    fn is_written_plainly(&self) -> bool {
        let folders = self.path_folders();
        self.written.iter().all(|(name, text)| self.reached.get(*name).is_some_and(|to| is_plain(folders, text, to)))
    }

    /// Reports whether a rule of `table` may be about this tool.
    fn may_meet(&self, table: &RuleLookup<'_>) -> bool {
        let begun = format!("{}(", self.subject.tool);
        // In a signature of another form a path may be anywhere.
        !self.subject.signature.starts_with(&begun) || table.may_concern(&self.subject.tool, &begun)
    }

    /// Returns the first rule of `table` that `predicate` accepts and that matches this call in one spelling.
    fn first_in(
        &self,
        table: &RuleLookup<'_>,
        spelled: &CallSpelling,
        predicate: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let arguments = CallArguments { own: &self.subject.arguments, others: Some(&spelled.paths) };
        let structured = table.first_structured(&self.subject.tool, arguments, &predicate);
        table.first_where(&spelled.signature, predicate).into_iter().chain(structured).min()
    }

    fn find_spellings(&self) -> FoundSpellings {
        let (mut found, subject) = (FoundSpellings::default(), self.subject);
        let is_own = tool::call_signature(&subject.tool, subject.named.iter().map(String::as_str), &subject.arguments)
            == subject.signature;
        self.add_spellings(&mut found, &self.reached, is_own, !self.is_written_plainly());
        if let Some(real) = &subject.leads_to {
            let own = subject.paths.first().map(String::as_str);
            let mut real_paths: BTreeMap<&String, String> = BTreeMap::new();
            for (name, to) in &self.reached {
                let is_first = subject.arguments.get(*name).and_then(Value::as_str) == own;
                real_paths.insert(name, if is_first { path::resolve("/", real) } else { to.clone() });
            }
            self.add_spellings(&mut found, &real_paths, is_own, true);
        }
        found
    }

    fn add_spellings(
        &self,
        found: &mut FoundSpellings,
        reached: &BTreeMap<&String, String>,
        is_own: bool,
        is_needed: bool,
    ) {
        let is_folder = self.written.iter().any(|(_, text)| text.ends_with('/'));
        let folders = self.path_folders();
        let mut spelled: Vec<CallSpelling> = Vec::new();
        for style in STYLES {
            for end in ["", "/"].into_iter().take(1 + usize::from(is_folder)) {
                let written = |path: &String| {
                    let absolute = path.starts_with('/').then(|| folders.format_path(path, style)).flatten();
                    let text = absolute.unwrap_or_else(|| path.clone());
                    if text.ends_with('/') { text } else { text + end }
                };
                let texts: Vec<(&String, String)> = reached.iter().map(|(name, path)| (*name, written(path))).collect();
                let steps_up = texts.iter().map(|(_, text)| steps_up(text)).max().unwrap_or(0);
                let paths = texts.into_iter().map(|(name, text)| (name.clone(), text.into())).collect();
                spelled.push(CallSpelling {
                    signature: respelled_signature(self.subject, &paths, is_own),
                    paths,
                    steps_up,
                });
            }
        }
        if is_needed {
            let shown: Vec<&str> = reached.values().map(String::as_str).collect();
            found.reached.push((spelled.clone(), shown.join(", ")));
        }
        found.all.extend(spelled);
    }
}

/// Returns the arguments of `subject` that are paths, with their names.
fn paths_of(subject: &PolicySubject) -> Vec<(&String, &str)> {
    let texts = subject.arguments.iter().filter_map(|(name, value)| Some((name, value.as_str()?)));
    let is_path = |(name, text): &(&String, &str)| match subject.reach {
        EffectReach::Files => subject.paths.iter().any(|path| path == text),
        EffectReach::Beyond => obeyed::may_be_path(name, text) && is_path_like(name, text),
    };
    texts.filter(is_path).collect()
}

/// Reports whether an argument of an unknown tool looks like a path.
fn is_path_like(name: &str, text: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_named = ["path", "file", "dir", "folder"].iter().any(|word| name.contains(word));
    !text.is_empty()
        && !text.contains("://")
        && (text.contains('/') || text.starts_with(['.', '~']) || is_named && !text.contains(char::is_whitespace))
}

/// Reports whether `text` is a plain spelling of `path`, with no `..` step in it.
fn is_plain(folders: StyleFolders<'_>, text: &str, path: &str) -> bool {
    let text = if text.len() > 1 { text.strip_suffix('/').unwrap_or(text) } else { text };
    steps_up(text) == 0 && folders.all_spellings(path).any(|plain| plain == text)
}

/// Returns the number of `..` steps at the beginning of a path.
pub(crate) fn steps_up(text: &str) -> usize {
    text.split('/').take_while(|part| *part == "..").count()
}

/// Returns the number of `..` steps in a pattern.
pub(crate) fn steps_in(pattern: &str) -> usize {
    pattern.split(['/', '(', ')', ',', ' ', '=', '*']).filter(|part| *part == "..").count()
}

/// Returns the signature of `subject` with `paths` in place of its own. `is_own` means that its own is made of its arguments.
fn respelled_signature(subject: &PolicySubject, paths: &Map<String, Value>, is_own: bool) -> String {
    if is_own {
        let arguments = CallArguments { own: &subject.arguments, others: Some(paths) };
        let named: Vec<&String> = match subject.named.is_empty() {
            true => subject.arguments.keys().collect::<BTreeSet<_>>().into_iter().collect(),
            false => subject.named.iter().collect(),
        };
        let values: Vec<String> =
            named.into_iter().map(|name| arguments.get(name).map(tool::value_text).unwrap_or_default()).collect();
        return format!("{}({})", subject.tool, values.join(", "));
    }
    let changed = paths.iter().filter_map(|(name, value)| {
        let (old, new) = (subject.arguments.get(name)?.as_str()?, value.as_str()?);
        (old != new && !old.is_empty()).then_some((old, new))
    });
    changed.fold(subject.signature.clone(), |text, (old, new)| text.replacen(old, new, 1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::CallSpellings;
    use crate::policy::{
        EffectReach, PolicySubject, Rule, RuleAction, rule_scope::CallerScope, table::RuleTable, testing::subject,
    };

    #[test]
    fn spellings_are_made_for_rules_on_the_tool_and_copy_only_paths() {
        let call = PolicySubject {
            signature: "write(src/a)".to_owned(),
            named: vec!["path".to_owned()],
            paths: vec!["src/a".to_owned()],
            reach: EffectReach::Files,
            ..subject("write", json!({"path": "src/a", "content": "text"}))
        };
        let on_content = json!({"tool": "write", "args": {"content": "te*"}, "action": "deny"});
        for (rule, is_made, want) in [
            (Rule::new("bash(x*)", RuleAction::Deny), false, None),
            (Rule::new("read(./src/*)", RuleAction::Deny), false, None),
            (Rule::new("write(lib/*)", RuleAction::Deny), true, None),
            (Rule::new("write(./src/*)", RuleAction::Deny), true, Some(0)),
            (Rule::new("*src/a*", RuleAction::Deny), true, Some(0)),
            (serde_json::from_value(on_content).unwrap(), true, Some(0)),
        ] {
            let mut table = RuleTable::default();
            table.insert(0, &rule);
            let spellings = CallSpellings::from_subject(&call, None);
            assert_eq!(spellings.first_in(&table.lookup_for(CallerScope::from_subject(&call, None))), want, "{rule:?}");
            assert_eq!(spellings.found.get().is_some(), is_made, "{rule:?}");
            assert!(spellings.covered_by(&|_| None).is_ok(), "{rule:?}");
            assert!(spellings.all_spellings().all(|spelled| spelled.paths.keys().eq(["path"])), "{rule:?}");
        }
    }
}
