//! What the judge of a shell line found.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{carried::Signs, elsewhere, wild::Wild};
use crate::{
    policy::{contract::Class, evaluate::Surroundings, path, subject::Subject},
    tool::{Machine, Shell},
};

/// Where a line runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// The tool that runs it: the texts that rules see begin with its name.
    pub(crate) tool: String,
    pub(crate) cwd: String,
    /// Where the line begins, if that is not the working folder.
    pub(crate) start: Start,
    pub(crate) home: Option<String>,
    pub(crate) temporary: Vec<String>,
    pub(crate) protected: Vec<String>,
    pub(crate) unreadable: Vec<String>,
    /// Whether another line ran in the same shell before: it may have left variables behind.
    pub(crate) is_later: bool,
    /// Variables that the call sets for the line.
    pub(crate) environment: Vec<(String, String)>,
    /// What of the call beside its line nobody can judge.
    pub(crate) beside: Option<String>,
}

/// Where a line begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Start {
    /// In the working folder.
    #[default]
    Working,
    /// In another one.
    Folder(String),
    /// Anywhere.
    Unknown,
}

/// The arguments of a shell call that change nothing about what its line does; `cwd` is where the line runs.
const HARMLESS_ARGUMENTS: [&str; 6] = ["timeout", "head", "tail", "pty", "async", "cwd"];

impl Place {
    pub(crate) fn of(subject: &Subject, surroundings: &Surroundings) -> Self {
        match &subject.shell {
            Shell::Line { machine: Machine::Other, .. } | Shell::Perhaps { machine: Machine::Other } => {
                elsewhere::place(subject)
            }
            Shell::Line { .. } | Shell::Perhaps { .. } | Shell::Nothing => Self::here(subject, surroundings),
        }
    }

    fn here(subject: &Subject, surroundings: &Surroundings) -> Self {
        let resolved = |paths: &[String]| paths.iter().map(|one| path::resolve("/", one)).collect();
        let (mut environment, mut beside) = (Vec::new(), None);
        let line = subject.line().map(|(argument, _)| argument);
        for (name, value) in &subject.arguments {
            match (name.as_str(), value) {
                (name, _) if HARMLESS_ARGUMENTS.contains(&name) || Some(name) == line => {}
                ("env", Value::Null) => {}
                ("env", Value::Object(members)) => environment.extend(members.iter().map(|(name, value)| {
                    (name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned))
                })),
                _ => beside = beside.or_else(|| Some(format!("the argument {name}"))),
            }
        }
        let cwd = path::resolve("/", &subject.cwd);
        let (cwd, start) = match subject.session_folder.as_deref().map(|folder| path::resolve("/", folder)) {
            // Where a call before went is nobody's working folder for that.
            Some(folder) if folder != cwd => (folder, Start::Folder(cwd)),
            Some(_) | None => (cwd, Start::Working),
        };
        Self {
            tool: subject.tool.clone(),
            cwd,
            start,
            home: surroundings.home.as_deref().map(|home| path::resolve("/", home)),
            temporary: resolved(&surroundings.temporary),
            protected: resolved(&surroundings.protected),
            unreadable: resolved(&surroundings.unreadable),
            is_later: subject.is_later,
            environment,
            beside,
        }
    }
}

/// What a line is made of and what it would do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    /// Every simple command, those in wrappers and substitutions too.
    pub(crate) commands: Vec<Simple>,
    /// Why no allow rule but a bare `*` covers the line.
    pub(crate) opaque: Option<String>,
    /// What it would destroy beyond the working folder, in words that follow "because it".
    pub(crate) floor: Option<String>,
    /// The gateway's own path that it would change.
    pub(crate) protected: Option<String>,
    /// The gateway's own path that it would give away.
    pub(crate) unreadable: Option<String>,
    /// The classes of an unattended contract that it needs.
    pub(crate) classes: BTreeSet<Class>,
    /// What its commands may do with each other's words.
    pub(super) signs: Signs,
    /// The same as far as its commands show it, however they are spelled.
    pub(super) met: Signs,
    /// The commands' words without quoting and wrappers, joined unambiguously with what stands between them.
    pub(crate) plain: Vec<String>,
}

/// One simple command as rules see it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Simple {
    /// Texts that a deny or ask rule may match: normal form, unquoted, by base name, with assignments.
    pub(crate) forms: Vec<String>,
    /// Texts that allow rules must cover, all of them. Empty for a wrapper that adds nothing.
    pub(crate) cover: Vec<String>,
    /// Texts that do as well, all of them: the command without an assignment that does no harm. Empty without such a one.
    pub(crate) instead: Vec<String>,
    /// How its forms begin, up to what is only known when the line runs.
    pub(crate) begun: Vec<String>,
    /// Its forms with wildcards, where there are any.
    pub(crate) wild: Vec<Wild>,
}

/// One part of a line that a default is looked up for: a command, or that which cannot be judged.
pub(crate) enum Piece<'a> {
    Command(&'a Simple),
    Opaque,
}

impl Line {
    /// The last rank of the rules that it takes to cover every command, as `first` finds them.
    ///
    /// # Errors
    /// What stays uncovered, for people.
    pub(crate) fn covered_by(&self, first: &dyn Fn(&str) -> Option<usize>) -> Result<usize, String> {
        if let Some(reason) = &self.opaque {
            return Err(reason.clone());
        }
        let mut last = None;
        for command in &self.commands {
            if !command.cover.is_empty() {
                let rank = command.covered_by(first);
                last = last.max(Some(rank.ok_or_else(|| command.forms.first().cloned().unwrap_or_default())?));
            }
        }
        last.ok_or_else(|| "an empty command".to_owned())
    }

    /// The first rank that `first` finds for any form of any command.
    pub(crate) fn touched_by(&self, first: &dyn Fn(&str) -> Option<usize>) -> Option<usize> {
        self.commands.iter().filter_map(|command| command.touched_by(first)).min()
    }

    /// How commands begin that go on with what is only known when the line runs.
    pub(crate) fn begun(&self) -> impl Iterator<Item = &str> {
        self.commands.iter().flat_map(|command| &command.begun).map(String::as_str)
    }

    /// The forms with wildcards.
    pub(crate) fn wild(&self) -> impl Iterator<Item = &Wild> {
        self.commands.iter().flat_map(|command| &command.wild)
    }

    /// The parts that defaults are looked up for.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let nothing_to_judge = self.opaque.is_some() || self.commands.is_empty();
        let commands = self.commands.iter().filter(|command| !command.cover.is_empty()).map(Piece::Command);
        commands.chain(nothing_to_judge.then_some(Piece::Opaque))
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

impl Simple {
    /// The last rank of the rules that cover it.
    fn covered_by(&self, first: &dyn Fn(&str) -> Option<usize>) -> Option<usize> {
        let all =
            |texts: &[String]| texts.iter().map(|text| first(text)).collect::<Option<Vec<_>>>()?.into_iter().max();
        all(&self.cover).or_else(|| all(&self.instead))
    }

    fn touched_by(&self, first: &dyn Fn(&str) -> Option<usize>) -> Option<usize> {
        self.forms.iter().filter_map(|form| first(form)).min()
    }
}

impl Piece<'_> {
    pub(crate) fn covered_by(&self, first: &dyn Fn(&str) -> Option<usize>, everything: Option<usize>) -> Option<usize> {
        match self {
            Self::Opaque => everything,
            Self::Command(command) => command.covered_by(first),
        }
    }

    pub(crate) fn touched_by(&self, first: &dyn Fn(&str) -> Option<usize>) -> Option<usize> {
        match self {
            Self::Opaque => None,
            Self::Command(command) => command.touched_by(first),
        }
    }

    /// How it begins, where it goes on with what is only known when the line runs.
    pub(crate) fn begun(&self) -> &[String] {
        match self {
            Self::Opaque => &[],
            Self::Command(command) => &command.begun,
        }
    }

    /// Its forms with wildcards.
    pub(crate) fn wild(&self) -> &[Wild] {
        match self {
            Self::Opaque => &[],
            Self::Command(command) => &command.wild,
        }
    }

    pub(crate) const fn is_opaque(&self) -> bool {
        matches!(self, Self::Opaque)
    }
}
