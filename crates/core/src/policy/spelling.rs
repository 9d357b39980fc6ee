//! The spellings of the paths that a call names: a rule may name a file by any of them.
//!
//! It must not look at the disk. The call says where the links in its path lead.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
};

use countersign_shell_analysis::path_style::{Folders, STYLES};
use serde_json::{Map, Value};

use crate::{
    policy::{
        demand::Arguments,
        obeyed, path,
        subject::{Reach, Subject},
        table::Lookup,
    },
    tool::{self, Shell},
};

/// A call with every path in one spelling.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Spelled {
    /// Its signature.
    pub(crate) signature: String,
    /// The arguments that are paths.
    paths: Map<String, Value>,
    /// The number of steps up with which its relative path begins. A wildcard of a rule stands for none of them.
    pub(crate) steps_up: usize,
}

/// A call in the other spellings of its paths. They are made when a rule is looked up for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spellings<'a> {
    call: Option<Call<'a>>,
    found: OnceCell<Found>,
}

/// A call whose paths have other spellings.
#[derive(Clone, Debug)]
struct Call<'a> {
    subject: &'a Subject,
    working: String,
    home: Option<String>,
    /// The arguments that are paths, as they are written.
    written: Vec<(&'a String, &'a str)>,
    /// Where they lead, but for links.
    reached: BTreeMap<&'a String, String>,
}

#[derive(Clone, Debug, Default)]
struct Found {
    all: Vec<Spelled>,
    /// For each file that the call reaches and does not name in a plain spelling: the plain ones, and the file for people.
    reached: Vec<(Vec<Spelled>, String)>,
}

impl<'a> Spellings<'a> {
    /// Returns the spellings of `subject`. Those of the words of a shell line are found with the line.
    pub(crate) fn of(subject: &'a Subject, home: Option<&str>) -> Self {
        if matches!(subject.shell, Shell::Line { .. }) || !subject.cwd.starts_with('/') {
            return Self::default();
        }
        let written = paths_of(subject);
        if written.is_empty() {
            return Self::default();
        }
        let working = path::resolve("/", &subject.cwd);
        let home = home.map(|home| path::resolve("/", home));
        let folders = Folders { working: &working, home: home.as_deref() };
        let lead = |(name, text): &(&'a String, &str)| {
            let reached = folders.reached(&working, text);
            (*name, reached.unwrap_or_else(|| path::tidied(text)))
        };
        let reached = written.iter().map(lead).collect();
        Self { call: Some(Call { subject, working, home, written, reached }), found: OnceCell::new() }
    }

    /// Every other spelling: what denies or asks holds for each.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Spelled> {
        self.found().all.iter()
    }

    /// The first rule of `table` that one of them meets.
    pub(crate) fn first_in(&self, table: &Lookup<'_>) -> Option<usize> {
        let call = self.call.as_ref().filter(|call| call.may_meet(table))?;
        self.all().filter_map(|spelled| call.first_in(table, spelled, |_| true)).min()
    }

    /// The first rule of `table` that `wanted` accepts and that the call meets as `spelled`.
    pub(crate) fn first_for(
        &self,
        table: &Lookup<'_>,
        spelled: &Spelled,
        wanted: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        self.call.as_ref()?.first_in(table, spelled, wanted)
    }

    /// The last rank of the rules that it takes to allow every file that is reached, as `first` finds them for one spelling.
    ///
    /// # Errors
    /// The file that stays uncovered, for people.
    pub(crate) fn covered_by(&self, first: &dyn Fn(&Spelled) -> Option<usize>) -> Result<usize, String> {
        if self.call.as_ref().is_none_or(Call::is_plain) {
            return Ok(0);
        }
        let covered = |(spelled, shown): &(Vec<Spelled>, String)| {
            let rank = spelled.iter().filter_map(first).min();
            rank.ok_or_else(|| format!("the path {shown} that it leads to; a rule has to name that path"))
        };
        self.found().reached.iter().try_fold(0, |last, reached| Ok(last.max(covered(reached)?)))
    }

    fn found(&self) -> &Found {
        self.found.get_or_init(|| self.call.as_ref().map(Call::spellings).unwrap_or_default())
    }
}

impl Call<'_> {
    fn folders(&self) -> Folders<'_> {
        Folders { working: &self.working, home: self.home.as_deref() }
    }

    /// Whether each path is written plainly and leads through no link.
    fn is_plain(&self) -> bool {
        self.subject.leads_to.is_none() && self.is_written_plainly()
    }

    fn is_written_plainly(&self) -> bool {
        let folders = self.folders();
        self.written.iter().all(|(name, text)| self.reached.get(*name).is_some_and(|to| is_plain(folders, text, to)))
    }

    /// Whether a rule of `table` may be about this tool.
    fn may_meet(&self, table: &Lookup<'_>) -> bool {
        let begun = format!("{}(", self.subject.tool);
        // In a signature of another form a path may stand anywhere.
        !self.subject.signature.starts_with(&begun) || table.may_concern(&self.subject.tool, &begun)
    }

    /// The first rule of `table` that `wanted` accepts and that this call meets in one spelling.
    fn first_in(&self, table: &Lookup<'_>, spelled: &Spelled, wanted: impl Fn(usize) -> bool) -> Option<usize> {
        let arguments = Arguments { own: &self.subject.arguments, others: Some(&spelled.paths) };
        let structured = table.first_structured(&self.subject.tool, arguments, &wanted);
        table.first_where(&spelled.signature, wanted).into_iter().chain(structured).min()
    }

    fn spellings(&self) -> Found {
        let (mut found, subject) = (Found::default(), self.subject);
        let is_own = tool::signature(&subject.tool, subject.named.iter().map(String::as_str), &subject.arguments)
            == subject.signature;
        self.add(&mut found, &self.reached, is_own, !self.is_written_plainly());
        if let Some(real) = &subject.leads_to {
            let own = subject.paths.first().map(String::as_str);
            let mut real_paths: BTreeMap<&String, String> = BTreeMap::new();
            for (name, to) in &self.reached {
                let is_first = subject.arguments.get(*name).and_then(Value::as_str) == own;
                real_paths.insert(name, if is_first { path::resolve("/", real) } else { to.clone() });
            }
            self.add(&mut found, &real_paths, is_own, true);
        }
        found
    }

    fn add(&self, found: &mut Found, reached: &BTreeMap<&String, String>, is_own: bool, is_needed: bool) {
        let is_folder = self.written.iter().any(|(_, text)| text.ends_with('/'));
        let folders = self.folders();
        let mut spelled: Vec<Spelled> = Vec::new();
        for style in STYLES {
            for end in ["", "/"].into_iter().take(1 + usize::from(is_folder)) {
                let written = |path: &String| {
                    let absolute = path.starts_with('/').then(|| folders.written(path, style)).flatten();
                    let text = absolute.unwrap_or_else(|| path.clone());
                    if text.ends_with('/') { text } else { text + end }
                };
                let texts: Vec<(&String, String)> = reached.iter().map(|(name, path)| (*name, written(path))).collect();
                let steps_up = texts.iter().map(|(_, text)| steps_up(text)).max().unwrap_or(0);
                let paths = texts.into_iter().map(|(name, text)| (name.clone(), text.into())).collect();
                spelled.push(Spelled { signature: signature(self.subject, &paths, is_own), paths, steps_up });
            }
        }
        if is_needed {
            let shown: Vec<&str> = reached.values().map(String::as_str).collect();
            found.reached.push((spelled.clone(), shown.join(", ")));
        }
        found.all.extend(spelled);
    }
}

/// The arguments of `subject` that are paths, with their names.
fn paths_of(subject: &Subject) -> Vec<(&String, &str)> {
    let texts = subject.arguments.iter().filter_map(|(name, value)| Some((name, value.as_str()?)));
    let is_path = |(name, text): &(&String, &str)| match subject.reach {
        Reach::Files => subject.paths.iter().any(|path| path == text),
        Reach::Beyond => obeyed::may_be_path(name, text) && is_path_like(name, text),
    };
    texts.filter(is_path).collect()
}

/// Whether an argument of a tool that nobody here knows is a path by its looks.
fn is_path_like(name: &str, text: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_named = ["path", "file", "dir", "folder"].iter().any(|word| name.contains(word));
    !text.is_empty()
        && !text.contains("://")
        && (text.contains('/') || text.starts_with(['.', '~']) || is_named && !text.contains(char::is_whitespace))
}

/// Whether `text` is a plain spelling of `path`, with no step up in it.
fn is_plain(folders: Folders<'_>, text: &str, path: &str) -> bool {
    let text = if text.len() > 1 { text.strip_suffix('/').unwrap_or(text) } else { text };
    steps_up(text) == 0 && folders.spellings(path).any(|plain| plain == text)
}

/// The number of steps up with which a path begins.
pub(crate) fn steps_up(text: &str) -> usize {
    text.split('/').take_while(|part| *part == "..").count()
}

/// The number of steps up in a pattern.
pub(crate) fn steps_in(pattern: &str) -> usize {
    pattern.split(['/', '(', ')', ',', ' ', '=', '*']).filter(|part| *part == "..").count()
}

/// The signature of `subject` with `paths` in the place of its own. `is_own` says that its own is made of its arguments.
fn signature(subject: &Subject, paths: &Map<String, Value>, is_own: bool) -> String {
    if is_own {
        let arguments = Arguments { own: &subject.arguments, others: Some(paths) };
        let named: Vec<&String> = match subject.named.is_empty() {
            true => subject.arguments.keys().collect::<BTreeSet<_>>().into_iter().collect(),
            false => subject.named.iter().collect(),
        };
        let values: Vec<String> =
            named.into_iter().map(|name| arguments.get(name).map(tool::plain).unwrap_or_default()).collect();
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

    use super::Spellings;
    use crate::policy::{Action, Reach, Rule, Subject, bound::Caller, table::Table, testing::subject};

    #[test]
    fn spellings_are_made_for_rules_on_the_tool_and_copy_only_paths() {
        let call = Subject {
            signature: "write(src/a)".to_owned(),
            named: vec!["path".to_owned()],
            paths: vec!["src/a".to_owned()],
            reach: Reach::Files,
            ..subject("write", json!({"path": "src/a", "content": "text"}))
        };
        let on_content = json!({"tool": "write", "args": {"content": "te*"}, "action": "deny"});
        for (rule, is_made, want) in [
            (Rule::new("bash(x*)", Action::Deny), false, None),
            (Rule::new("read(./src/*)", Action::Deny), false, None),
            (Rule::new("write(lib/*)", Action::Deny), true, None),
            (Rule::new("write(./src/*)", Action::Deny), true, Some(0)),
            (Rule::new("*src/a*", Action::Deny), true, Some(0)),
            (serde_json::from_value(on_content).unwrap(), true, Some(0)),
        ] {
            let mut table = Table::default();
            table.insert(0, &rule);
            let spellings = Spellings::of(&call, None);
            assert_eq!(spellings.first_in(&table.of(Caller::of(&call, None))), want, "{rule:?}");
            assert_eq!(spellings.found.get().is_some(), is_made, "{rule:?}");
            assert!(spellings.covered_by(&|_| None).is_ok(), "{rule:?}");
            assert!(spellings.all().all(|spelled| spelled.paths.keys().eq(["path"])), "{rule:?}");
        }
    }
}
