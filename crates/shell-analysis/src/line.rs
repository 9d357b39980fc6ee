//! Analysis of a shell line.

use std::collections::BTreeSet;

use super::{dataflow::FlowSigns, globs::GlobForm};
use crate::{action_class::ActionClass as Class, narrow_path::NarrowPath};

pub(crate) use crate::context::{ShellContext as Place, StartFolder};

/// Name of a line that the grammar does not read.
pub const UNPARSABLE: &str = "text that cannot be parsed";

/// The most commands of a line that only set variables and are covered with what reads these.
const MOST_SET: usize = 16;

/// Structure and effects of a line.
///
/// # Example
///
/// ```
/// use countersign_shell_analysis::{ShellContext, analyze};
///
/// let place = ShellContext { tool: "bash".to_owned(), cwd: "/home/ana/site".to_owned(), ..ShellContext::default() };
///
/// let line = analyze("git add . && rm -rf /srv/data", &place);
/// assert_eq!(line.commands.len(), 2);
/// assert_eq!(line.commands[0].covers, [["bash(git add .)"]]);
/// assert!(line.floor.is_some(), "it deletes outside of the working folder");
///
/// // No allow rule covers a command that is only known when the line runs.
/// let line = analyze("$TOOL --version", &place);
/// assert!(line.opaque.is_some());
/// ```
#[derive(Clone, Debug, Default)]
pub struct LineAnalysis {
    /// Every simple command, those in wrappers and substitutions too.
    pub commands: Vec<CommandAnalysis>,
    /// Why no allow rule but a bare `*` covers the line.
    pub opaque: Option<String>,
    /// Harm beyond the working folder, in words that follow "because it".
    pub floor: Option<String>,
    /// The gateway's own path that it would change.
    pub protected: Option<String>,
    /// The gateway's own path that it would give away.
    pub unreadable: Option<String>,
    /// The files that its redirections change and that other programs obey. Nothing covers these but a person's answer.
    pub redirected: Vec<NarrowPath>,
    /// The classes of an unattended contract that it needs.
    pub classes: BTreeSet<Class>,
    /// The first program that reads commands from an input which the line does not give: whatever is written there later, it runs.
    pub reads_input: Option<String>,
    /// True while the input of the command at hand is that of the line.
    pub(super) is_input_open: bool,
    /// Possible flows of words between its commands.
    pub(super) signs: FlowSigns,
    /// The same as far as its commands show it, however they are spelled.
    pub(super) met: FlowSigns,
    /// Size of the forms of its commands, in bytes.
    pub(super) spelled: usize,
    /// The commands' words without quoting and wrappers, joined unambiguously with what stands between them.
    pub plain: Vec<String>,
}

/// One simple command as rules see it.
#[derive(Clone, Debug, Default)]
pub struct CommandAnalysis {
    /// Texts that a deny or ask rule may match: normal form, unquoted, by base name, with assignments.
    pub forms: Vec<String>,
    /// Texts that allow rules must cover, all of those of one of these lists: as it is written, and in other words that come to the same.
    /// Empty for a wrapper that adds nothing.
    pub covers: Vec<Vec<String>>,
    /// The paths that the rules have to name, too.
    pub narrow: Vec<NarrowPath>,
    /// Beginnings of its forms, up to the part that is only known when the line runs.
    pub begun: Vec<String>,
    /// Its forms with wildcards, where there are any.
    pub wild: Vec<GlobForm>,
    /// Forms of the commands in its arguments, its input or a value that is computed, of which it is not known whether they run.
    pub wrapped: Vec<String>,
    /// The variables of the shell that it sets, where it does nothing else and none of them is a lever.
    pub sets: Vec<String>,
}

/// Finds the first rule that matches a text and names each of these paths.
pub type RuleFinder<'a> = &'a dyn Fn(&str, &[&NarrowPath]) -> Option<usize>;

/// One part of a line that a default is looked up for: a command, that which cannot be judged, or a redirection that nothing covers.
pub enum LinePart<'a> {
    /// One simple command.
    Command(&'a CommandAnalysis),
    /// Text that cannot be judged.
    Opaque,
    /// Redirection into a file that other programs obey.
    Redirected,
}

impl LineAnalysis {
    /// Returns the last rank of the rules that it takes to cover every command, as `first` finds them, or that of a bare `*`.
    ///
    /// # Errors
    /// The uncovered part, for users.
    pub fn covered_by(&self, first: RuleFinder<'_>, everything: Option<usize>) -> Result<usize, String> {
        if let Some(path) = self.redirected.first() {
            return Err(path.to_string());
        }
        if let Some(rank) = everything.filter(|_| self.obeyed_path().is_none()) {
            return Ok(rank);
        }
        if let Some(reason) = self.opaque.as_ref().filter(|_| everything.is_none()) {
            return Err(reason.clone());
        }
        let mut last = everything.filter(|_| self.opaque.is_some());
        let needed = || self.commands.iter().filter(|command| command.is_needed());
        let (set, run) = (needed().filter(|one| !one.sets.is_empty()), needed().filter(|one| one.sets.is_empty()));
        for command in run.chain(set) {
            last = last.max(Some(command.covered_by(first).ok_or_else(|| command.uncovered_by(first))?));
        }
        last.ok_or_else(|| "an empty command".to_owned())
    }

    /// Returns a file that it changes and that other programs obey, if it changes one.
    pub fn obeyed_path(&self) -> Option<&NarrowPath> {
        let by_commands =
            self.commands.iter().filter(|command| command.is_needed()).flat_map(|command| &command.narrow);
        self.redirected.iter().chain(by_commands).find(|narrow| narrow.is_obeyed())
    }

    /// Returns the first rank that `first` finds for any form of any command.
    pub fn touched_by(&self, first: &dyn Fn(&str) -> Option<usize>) -> Option<usize> {
        self.commands.iter().filter_map(|command| command.touched_by(first)).min()
    }

    /// Returns the beginnings of commands that continue with a part that is only known when the line runs.
    pub fn begun_forms(&self) -> impl Iterator<Item = &str> {
        self.commands.iter().flat_map(|command| &command.begun).map(String::as_str)
    }

    /// Returns the forms of commands of which it is not known whether the line runs them.
    pub fn wrapped_forms(&self) -> impl Iterator<Item = &str> {
        self.commands.iter().flat_map(|command| &command.wrapped).map(String::as_str)
    }

    /// Returns the forms with wildcards.
    pub fn glob_forms(&self) -> impl Iterator<Item = &GlobForm> {
        self.commands.iter().flat_map(|command| &command.wild)
    }

    /// Returns the parts that defaults are looked up for.
    pub fn line_parts(&self) -> impl Iterator<Item = LinePart<'_>> {
        let nothing_to_judge = self.opaque.is_some() || self.commands.is_empty();
        let commands = self.commands.iter().filter(|command| command.is_needed()).map(LinePart::Command);
        let redirected = self.redirected.first().map(|_| LinePart::Redirected);
        commands.chain(nothing_to_judge.then_some(LinePart::Opaque)).chain(redirected)
    }

    /// Has variables that a line sets and reads itself covered by what covers its first command: `X=1; echo $X` needs no rule on
    /// `X=1`.
    pub(super) fn settle_assignments(&mut self) {
        let first = self.commands.iter().find(|command| command.is_needed() && command.sets.is_empty());
        let Some(covers) = first.map(|command| command.covers.clone()) else { return };
        // Each is looked for in all commands.
        if self.commands.iter().filter(|command| !command.sets.is_empty()).count() > MOST_SET {
            return;
        }
        let is_read = |by: usize, name: &String| {
            let others = self.commands.iter().enumerate().filter(|(at, _)| *at != by);
            others.filter_map(|(_, command)| command.forms.first()).any(|text| reads_variable(text, name))
        };
        let is_settled = |at: &usize| {
            let CommandAnalysis { sets, .. } = &self.commands[*at];
            !sets.is_empty() && self.commands[*at].is_needed() && sets.iter().all(|name| is_read(*at, name))
        };
        let settled: Vec<usize> = (0..self.commands.len()).filter(is_settled).collect();
        for at in settled {
            self.commands[at].covers.extend(covers.iter().cloned());
        }
    }

    pub(super) fn note_opaque(&mut self, reason: impl Into<String>) {
        self.opaque.get_or_insert_with(|| reason.into());
    }

    pub(super) fn note_floor(&mut self, reason: impl Into<String>) {
        self.floor.get_or_insert_with(|| reason.into());
    }

    pub(super) fn note_unreadable(&mut self, path: impl Into<String>) {
        self.unreadable.get_or_insert_with(|| path.into());
    }

    pub(super) fn note_protected(&mut self, path: impl Into<String>) {
        self.protected.get_or_insert_with(|| path.into());
    }
}

impl CommandAnalysis {
    /// Returns false for a wrapper that adds nothing, and for what is only perhaps a command.
    pub const fn is_needed(&self) -> bool {
        !self.covers.is_empty()
    }

    /// Returns the last rank of the rules that cover it.
    fn covered_by(&self, first: RuleFinder<'_>) -> Option<usize> {
        let mut names: Vec<&NarrowPath> = self.narrow.iter().collect();
        // A rule that lets the shell go to a folder names it for what runs there.
        if names.iter().any(|narrow| !narrow.folder_texts().is_empty()) {
            let tool = self.forms.first().and_then(|form| form.split_once('(')).map_or("", |(tool, _)| tool);
            let lets_in = |narrow: &NarrowPath| {
                let entries = narrow.folder_texts().into_iter();
                let texts = entries.flat_map(|to| ["cd", "pushd"].map(|program| format!("{tool}({program} {to})")));
                texts.into_iter().any(|text| first(&text, &[narrow]).is_some())
            };
            names.retain(|narrow| !lets_in(narrow));
        }
        self.covered_naming(first, &names)
    }

    fn covered_naming(&self, first: RuleFinder<'_>, names: &[&NarrowPath]) -> Option<usize> {
        let one = |text: &String| first(text, names).or_else(|| first(&with_space(text), names));
        let all = |texts: &Vec<String>| texts.iter().map(one).collect::<Option<Vec<_>>>()?.into_iter().max();
        self.covers.iter().find_map(all)
    }

    /// Returns the reason that keeps rules from covering it, for users.
    fn uncovered_by(&self, first: RuleFinder<'_>) -> String {
        let is_met = self.covered_naming(first, &[]).is_some();
        let narrow = self.narrow.iter().find(|narrow| is_met && self.covered_naming(first, &[narrow]).is_none());
        match narrow.or_else(|| self.narrow.first().filter(|_| is_met)) {
            Some(narrow) => narrow.to_string(),
            None => self.forms.first().cloned().unwrap_or_default(),
        }
    }

    fn touched_by(&self, first: &dyn Fn(&str) -> Option<usize>) -> Option<usize> {
        self.forms.iter().flat_map(|form| first(form).into_iter().chain(first(&with_space(form)))).min()
    }
}

/// Reports whether the words of a command expand the variable `name`.
fn reads_variable(text: &str, name: &str) -> bool {
    let is_in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices('$').any(|(at, sign)| {
        let rest = &text[at + sign.len()..];
        let rest = rest.strip_prefix('{').unwrap_or(rest);
        rest.strip_prefix(name).is_some_and(|rest| !rest.starts_with(is_in_name))
    })
}

/// Returns the text under which a command without more words meets a pattern that goes on with some: `bash(ls )` meets `bash(ls *)`.
fn with_space(text: &str) -> String {
    text.strip_suffix(')').map_or_else(|| text.to_owned(), |rest| format!("{rest} )"))
}

impl LinePart<'_> {
    /// Returns the last rank of the rules that cover it, as `first` finds them, or that of a bare `*`.
    pub fn covered_by(&self, first: RuleFinder<'_>, everything: Option<usize>) -> Option<usize> {
        match self {
            Self::Redirected => None,
            Self::Opaque => everything,
            Self::Command(command) => command.covered_by(first),
        }
    }

    /// Returns the first rank that `first` finds for any form of it.
    pub fn touched_by(&self, first: &dyn Fn(&str) -> Option<usize>) -> Option<usize> {
        match self {
            Self::Opaque | Self::Redirected => None,
            Self::Command(command) => command.touched_by(first),
        }
    }

    /// Returns its beginnings, if it continues with a part that is only known when the line runs.
    pub fn begun_forms(&self) -> &[String] {
        match self {
            Self::Opaque | Self::Redirected => &[],
            Self::Command(command) => &command.begun,
        }
    }

    /// Returns its forms with wildcards.
    pub fn glob_forms(&self) -> &[GlobForm] {
        match self {
            Self::Opaque | Self::Redirected => &[],
            Self::Command(command) => &command.wild,
        }
    }

    /// Returns true for text that cannot be judged.
    pub const fn is_opaque(&self) -> bool {
        matches!(self, Self::Opaque)
    }
}
