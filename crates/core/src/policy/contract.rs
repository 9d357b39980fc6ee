//! What an unattended run promised to stay within. A contract only denies; it never allows anything.

use std::{collections::BTreeSet, fmt};

pub use countersign_shell_analysis::ActionClass as Class;
use serde::{Deserialize, Serialize};

use crate::{
    policy::{
        evaluate::Surroundings,
        shell::{self, Classes},
        subject::Subject,
    },
    tool::Effect,
};

/// What a contract names beside classes of actions: what commands of a host are for, and what else a call reaches. Source:
/// the unattended contracts of gjc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Saying something to a run, stopping it, and answering its gates.
    Prompt,
    /// How runs work.
    Control,
    /// Shell lines.
    Bash,
    /// Writing a session elsewhere.
    Export,
    /// Which session it is.
    Session,
    /// Which model it is.
    Model,
    /// Reading what was said.
    Messages,
    /// Tools of the host.
    HostTools,
    /// URIs of the host.
    HostUri,
    /// Everything else.
    Admin,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prompt => "prompt",
            Self::Control => "control",
            Self::Bash => "bash",
            Self::Export => "export",
            Self::Session => "session",
            Self::Model => "model",
            Self::Messages => "messages",
            Self::HostTools => "host_tools",
            Self::HostUri => "host_uri",
            Self::Admin => "admin",
        })
    }
}

/// What a contract does not have and something needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lack {
    /// A tool by its name.
    Tool(String),
    /// A scope.
    Scope(Scope),
    /// Commands of a scope as a class of actions.
    Command(Scope),
    /// A class of actions.
    Class(Class),
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tool(name) => write!(f, "tool {name}"),
            Self::Scope(scope) => write!(f, "scope {scope}"),
            Self::Command(scope) => write!(f, "action command.{scope}"),
            Self::Class(class) => write!(f, "action {class}"),
        }
    }
}

/// What an unattended run may do at most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contract {
    /// The scopes that were declared.
    #[serde(default)]
    pub scopes: BTreeSet<Scope>,
    /// The scopes of which commands are a declared class of actions.
    #[serde(default)]
    pub commands: BTreeSet<Scope>,
    /// The other classes that were declared.
    pub classes: BTreeSet<Class>,
    /// The tools that it may use, by exact name; none means all.
    #[serde(default)]
    pub tools: Option<BTreeSet<String>>,
}

impl Contract {
    /// Everything may be done that rules and people allow.
    pub fn of_everything() -> Self {
        use Class as C;
        let scopes: BTreeSet<Scope> = [
            Scope::Prompt,
            Scope::Control,
            Scope::Bash,
            Scope::Export,
            Scope::Session,
            Scope::Model,
            Scope::Messages,
            Scope::HostTools,
            Scope::HostUri,
            Scope::Admin,
        ]
        .into();
        let classes = [
            C::BashReadonly,
            C::BashMutating,
            C::FileWrite,
            C::FileDelete,
            C::GitForcePush,
            C::BashDestructive,
            C::HostToolInvoke,
            C::HostUriRead,
            C::HostUriWrite,
            C::AuthLogin,
        ];
        Self { commands: scopes.clone(), scopes, classes: classes.into(), tools: None }
    }

    /// What `subject` needs that was not declared: a tool, a scope, or the worst class; none if it stays within.
    pub(crate) fn lacks(&self, subject: &Subject, line: Option<&shell::Line>) -> Option<Lack> {
        if self.tools.as_ref().is_some_and(|tools| !tools.contains(&subject.tool)) {
            return Some(Lack::Tool(subject.tool.clone()));
        }
        let classes = needed(subject, line);
        let scopes = classes.iter().filter_map(|class| reached(*class));
        let mut scopes = scopes.chain((subject.tool == SHELL).then_some(Scope::Bash));
        let scope = scopes.find(|scope| !self.scopes.contains(scope));
        scope.map(Lack::Scope).or_else(|| self.lacks_class(classes.into_iter()))
    }

    /// What a host's command of `scope` needs that was not declared. `line` is the line of one that runs in the shell, with
    /// the folder that it runs in; `home` is that of whoever runs it.
    pub(crate) fn lacks_for(&self, scope: Scope, line: Option<(&str, &str)>, home: Option<&str>) -> Option<Lack> {
        if !self.scopes.contains(&scope) {
            return Some(Lack::Scope(scope));
        }
        match line {
            Some((line, cwd)) => self.lacks_class(Classes::of(line, cwd, home).iter()),
            None => (!self.commands.contains(&scope)).then_some(Lack::Command(scope)),
        }
    }

    /// The worst class that was not declared.
    fn lacks_class(&self, classes: impl Iterator<Item = Class>) -> Option<Lack> {
        classes.filter(|class| !self.classes.contains(class)).max().map(Lack::Class)
    }

    /// Everything that `self` has and `other` has not.
    pub(crate) fn beyond(&self, other: &Self) -> Vec<Lack> {
        let tools = match (&self.tools, &other.tools) {
            (_, None) => Vec::new(),
            (Some(mine), Some(theirs)) => mine.difference(theirs).cloned().collect(),
            (None, Some(_)) => vec!["*".to_owned()],
        };
        let scopes = self.scopes.difference(&other.scopes).copied().map(Lack::Scope);
        let commands = self.commands.difference(&other.commands).copied().map(Lack::Command);
        let classes = self.classes.difference(&other.classes).copied().map(Lack::Class);
        tools.into_iter().map(Lack::Tool).chain(scopes).chain(commands).chain(classes).collect()
    }
}

/// The tool of shell lines.
const SHELL: &str = "bash";

/// What a class of actions reaches beside files.
const fn reached(class: Class) -> Option<Scope> {
    match class {
        Class::HostToolInvoke => Some(Scope::HostTools),
        Class::HostUriRead | Class::HostUriWrite => Some(Scope::HostUri),
        Class::AuthLogin => Some(Scope::Admin),
        Class::BashReadonly
        | Class::BashMutating
        | Class::BashDestructive
        | Class::GitForcePush
        | Class::FileDelete
        | Class::FileWrite => None,
    }
}

/// Returns whether `subject` changes nothing outside the conversation: a tool that only reads, or a line of our shell of which
/// every program only reads.
pub fn only_reads(subject: &Subject, surroundings: &Surroundings) -> bool {
    if subject.effect == Effect::Reads {
        return true;
    }
    let line = shell::line_of(subject, surroundings);
    subject.tool == SHELL
        && line.is_some_and(|line| needed(subject, Some(&line)).iter().all(|class| *class == Class::BashReadonly))
}

fn needed(subject: &Subject, line: Option<&shell::Line>) -> BTreeSet<Class> {
    let mut classes = subject.classes.clone();
    match (line, subject.effect) {
        // Of what a host does, its class is all that a contract speaks of.
        (Some(line), _) if subject.tool == SHELL => classes.extend(shell::classes_of(line).iter()),
        // A shell call without a readable command can be anything.
        (None, _) if subject.tool == SHELL => {
            classes.insert(Class::BashDestructive);
        }
        // What goes to a host writes no file of ours.
        (None, Effect::Changes) if classes.is_empty() && matches!(subject.tool.as_str(), "write" | "edit") => {
            classes.insert(Class::FileWrite);
        }
        (_, Effect::Changes | Effect::Reads) => {}
    }
    classes
}
