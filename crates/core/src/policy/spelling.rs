//! The spellings of the paths that a call names: a rule may name a file by any of them.
//!
//! It must not look at the disk. The call says where the links in its path lead.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{
    policy::{
        narrow, obeyed, path,
        subject::{Reach, Subject},
    },
    tool::{self, Shell},
};

/// A call with every path in one spelling.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Spelled {
    /// Its signature.
    pub(crate) signature: String,
    /// Its arguments.
    pub(crate) arguments: Map<String, Value>,
    /// The number of steps up with which its relative path begins. A wildcard of a rule stands for none of them.
    pub(crate) steps_up: usize,
}

/// A call in the other spellings of its paths.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spellings {
    all: Vec<Spelled>,
    /// For each file that the call reaches and does not name in a plain spelling: the plain ones, and the file for people.
    reached: Vec<(Vec<Spelled>, String)>,
}

/// How a path is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// From the working folder, `src/a`.
    Relative,
    /// The same with a dot before it, `./src/a`.
    Dotted,
    /// From the root, `/w/src/a`.
    Absolute,
    /// From the home folder, `~/src/a`.
    Home,
}

/// Every style.
pub(crate) const STYLES: [Style; 4] = [Style::Relative, Style::Dotted, Style::Absolute, Style::Home];

/// The folders that paths are written from.
#[derive(Clone, Copy)]
pub(crate) struct Folders<'a> {
    /// The working folder, absolute.
    pub(crate) working: &'a str,
    /// The home folder, absolute.
    pub(crate) home: Option<&'a str>,
}

impl Folders<'_> {
    /// Returns the absolute path that `text` leads to from the folder `from`. `None` if the home that it begins with is not known.
    pub(crate) fn reached(self, from: &str, text: &str) -> Option<String> {
        match text.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/')) {
            Some(rest) => self.home.map(|home| path::resolve(home, rest.trim_start_matches('/'))),
            None => Some(path::resolve(from, text)),
        }
    }

    /// Returns `path`, which is absolute, in this style. `None` if it has no such spelling.
    pub(crate) fn written(self, path: &str, style: Style) -> Option<String> {
        let relative = narrow::relative(self.working, path);
        match style {
            Style::Relative => Some(relative),
            Style::Dotted => (!relative.starts_with("..")).then(|| format!("./{relative}")),
            Style::Absolute => Some(path.to_owned()),
            Style::Home => {
                let home = self.home.filter(|home| path::is_within(home, path) && *home != "/")?;
                Some(format!("~{}", &path[home.len()..]))
            }
        }
    }

    /// Returns every spelling of `path`, which is absolute.
    pub(crate) fn spellings(self, path: &str) -> impl Iterator<Item = String> {
        STYLES.into_iter().filter_map(move |style| self.written(path, style))
    }

    /// Whether `text` is a plain spelling of `path`, with no step up in it.
    fn is_plain(self, text: &str, path: &str) -> bool {
        let text = if text.len() > 1 { text.strip_suffix('/').unwrap_or(text) } else { text };
        steps_up(text) == 0 && self.spellings(path).any(|plain| plain == text)
    }
}

impl Spellings {
    /// Returns the spellings of `subject`. Those of the words of a shell line are found with the line.
    pub(crate) fn of(subject: &Subject, home: Option<&str>) -> Self {
        if matches!(subject.shell, Shell::Line { .. }) || !subject.cwd.starts_with('/') {
            return Self::default();
        }
        let working = path::resolve("/", &subject.cwd);
        let home = home.map(|home| path::resolve("/", home));
        let folders = Folders { working: &working, home: home.as_deref() };
        let written = paths_of(subject);
        let lead = |(name, text): &(&String, &str)| {
            let reached = folders.reached(&working, text);
            ((*name).clone(), reached.unwrap_or_else(|| path::tidied(text)))
        };
        let reached: BTreeMap<String, String> = written.iter().map(lead).collect();
        let mut spellings = Self::default();
        if reached.is_empty() {
            return spellings;
        }
        let is_plain = |(name, text): &(&String, &str)| reached.get(*name).is_some_and(|to| folders.is_plain(text, to));
        let is_folder = written.iter().any(|(_, text)| text.ends_with('/'));
        let plain = written.iter().all(is_plain);
        spellings.add(subject, folders, &reached, is_folder, !plain);
        if let Some(real) = &subject.leads_to {
            let follow = |(name, to): (&String, &String)| {
                let is_own =
                    subject.arguments.get(name).and_then(Value::as_str) == subject.paths.first().map(String::as_str);
                (name.clone(), if is_own { path::resolve("/", real) } else { to.clone() })
            };
            let real = reached.iter().map(follow).collect();
            spellings.add(subject, folders, &real, is_folder, true);
        }
        spellings
    }

    fn add(
        &mut self,
        subject: &Subject,
        folders: Folders<'_>,
        reached: &BTreeMap<String, String>,
        is_folder: bool,
        is_needed: bool,
    ) {
        let mut spelled: Vec<Spelled> = Vec::new();
        for style in STYLES {
            for end in ["", "/"].into_iter().take(1 + usize::from(is_folder)) {
                let written = |path: &String| {
                    let absolute = path.starts_with('/').then(|| folders.written(path, style)).flatten();
                    let text = absolute.unwrap_or_else(|| path.clone());
                    if text.ends_with('/') { text } else { text + end }
                };
                let texts: BTreeMap<&String, String> =
                    reached.iter().map(|(name, path)| (name, written(path))).collect();
                let mut arguments = subject.arguments.clone();
                texts.iter().for_each(|(name, text)| drop(arguments.insert((*name).clone(), text.as_str().into())));
                let steps_up = texts.values().map(|text| steps_up(text)).max().unwrap_or(0);
                spelled.push(Spelled { signature: signature(subject, &arguments), arguments, steps_up });
            }
        }
        if is_needed {
            let shown: Vec<&str> = reached.values().map(String::as_str).collect();
            self.reached.push((spelled.clone(), shown.join(", ")));
        }
        self.all.extend(spelled);
    }

    /// Every other spelling: what denies or asks holds for each.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Spelled> {
        self.all.iter()
    }

    /// The last rank of the rules that it takes to allow every file that is reached, as `first` finds them for one spelling.
    ///
    /// # Errors
    /// The file that stays uncovered, for people.
    pub(crate) fn covered_by(&self, first: &dyn Fn(&Spelled) -> Option<usize>) -> Result<usize, String> {
        let covered = |(spelled, shown): &(Vec<Spelled>, String)| {
            let rank = spelled.iter().filter_map(first).min();
            rank.ok_or_else(|| format!("the path {shown} that it leads to; a rule has to name that path"))
        };
        self.reached.iter().try_fold(0, |last, reached| Ok(last.max(covered(reached)?)))
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

/// The number of steps up with which a path begins.
pub(crate) fn steps_up(text: &str) -> usize {
    text.split('/').take_while(|part| *part == "..").count()
}

/// The number of steps up in a pattern.
pub(crate) fn steps_in(pattern: &str) -> usize {
    pattern.split(['/', '(', ')', ',', ' ', '=', '*']).filter(|part| *part == "..").count()
}

/// The signature of `subject` with `arguments` in the place of its own.
fn signature(subject: &Subject, arguments: &Map<String, Value>) -> String {
    let named = || subject.named.iter().map(String::as_str);
    if tool::signature(&subject.tool, named(), &subject.arguments) == subject.signature {
        return tool::signature(&subject.tool, named(), arguments);
    }
    let changed = arguments.iter().filter_map(|(name, value)| {
        let (old, new) = (subject.arguments.get(name)?.as_str()?, value.as_str()?);
        (old != new && !old.is_empty()).then_some((old, new))
    });
    changed.fold(subject.signature.clone(), |text, (old, new)| text.replacen(old, new, 1))
}
