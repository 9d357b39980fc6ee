//! Limits that an unattended run declared. A contract only denies; it never allows anything.

use std::{collections::BTreeSet, fmt};

pub use countersign_shell_analysis::ActionClass as Class;
use serde::{Deserialize, Serialize};

use crate::{
    policy::{
        evaluate::PathContext,
        shell::{self, LineClasses},
        subject::PolicySubject,
    },
    tool::ToolEffect,
};

/// Scope of a contract in addition to classes of actions: kinds of a host's commands, and other effects of a call. Source:
/// the unattended contracts of gjc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContractScope {
    /// Prompting a run, stopping it, and answering its gates.
    Prompt,
    /// Settings of runs.
    Control,
    /// Shell lines.
    Bash,
    /// Writing a session elsewhere.
    Export,
    /// Choice of the session.
    Session,
    /// Choice of the model.
    Model,
    /// Reading messages.
    Messages,
    /// Tools of the host.
    HostTools,
    /// URIs of the host.
    HostUri,
    /// Everything else.
    Admin,
}

impl fmt::Display for ContractScope {
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

/// A missing part of a contract that a call needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContractGap {
    /// A tool by its name.
    Tool(String),
    /// A scope.
    Scope(ContractScope),
    /// Commands of a scope as a class of actions.
    Command(ContractScope),
    /// A class of actions.
    Class(Class),
}

impl fmt::Display for ContractGap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tool(name) => write!(f, "tool {name}"),
            Self::Scope(scope) => write!(f, "scope {scope}"),
            Self::Command(scope) => write!(f, "action command.{scope}"),
            Self::Class(class) => write!(f, "action {class}"),
        }
    }
}

/// Upper limits of an unattended run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contract {
    /// The declared scopes.
    #[serde(default)]
    pub scopes: BTreeSet<ContractScope>,
    /// The scopes whose commands are a declared class of actions.
    #[serde(default)]
    pub commands: BTreeSet<ContractScope>,
    /// The other declared classes.
    pub classes: BTreeSet<Class>,
    /// The tools that it may use, by exact name; none means all.
    #[serde(default)]
    pub tools: Option<BTreeSet<String>>,
    /// True if tools of MCP servers are covered without their names. No class of actions covers them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub servers: bool,
}

impl Contract {
    /// Returns the contract that allows everything that rules and people allow.
    pub fn of_everything() -> Self {
        use Class as C;
        let scopes: BTreeSet<ContractScope> = [
            ContractScope::Prompt,
            ContractScope::Control,
            ContractScope::Bash,
            ContractScope::Export,
            ContractScope::Session,
            ContractScope::Model,
            ContractScope::Messages,
            ContractScope::HostTools,
            ContractScope::HostUri,
            ContractScope::Admin,
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
        Self { commands: scopes.clone(), scopes, classes: classes.into(), tools: None, servers: true }
    }

    /// Returns the first part that `subject` needs and the contract lacks: a tool, a scope, or the worst class; none if it is covered.
    pub(crate) fn first_gap(&self, subject: &PolicySubject, line: Option<&shell::LineAnalysis>) -> Option<ContractGap> {
        if self.tools.as_ref().is_some_and(|tools| !tools.contains(&subject.tool)) {
            return Some(ContractGap::Tool(subject.tool.clone()));
        }
        if is_of_servers(subject) && !self.servers && self.tools.is_none() {
            return Some(ContractGap::Tool(subject.tool.clone()));
        }
        let classes = needed_classes(subject, line);
        let scopes = classes.iter().filter_map(|class| scope_of_class(*class));
        let mut scopes = scopes.chain((subject.tool == SHELL).then_some(ContractScope::Bash));
        let scope = scopes.find(|scope| !self.scopes.contains(scope));
        scope.map(ContractGap::Scope).or_else(|| self.class_gap(classes.into_iter()))
    }

    /// Returns the part that a host's command of `scope` needs and the contract lacks. `line` is the line of one that runs in the shell,
    /// with the folder that it runs in; `home` is that of its user.
    pub(crate) fn host_command_gap(
        &self,
        scope: ContractScope,
        line: Option<(&str, &str)>,
        home: Option<&str>,
    ) -> Option<ContractGap> {
        if !self.scopes.contains(&scope) {
            return Some(ContractGap::Scope(scope));
        }
        match line {
            Some((line, cwd)) => self.class_gap(LineClasses::for_command(line, cwd, home).iter()),
            None => (!self.commands.contains(&scope)).then_some(ContractGap::Command(scope)),
        }
    }

    /// Returns the worst class that was not declared.
    fn class_gap(&self, classes: impl Iterator<Item = Class>) -> Option<ContractGap> {
        classes.filter(|class| !self.classes.contains(class)).max().map(ContractGap::Class)
    }

    /// Returns every part of `self` that `other` lacks.
    pub(crate) fn gaps_beyond(&self, other: &Self) -> Vec<ContractGap> {
        let tools = match (&self.tools, &other.tools) {
            (_, None) => Vec::new(),
            (Some(mine), Some(theirs)) => mine.difference(theirs).cloned().collect(),
            (None, Some(_)) => vec!["*".to_owned()],
        };
        let servers = (self.servers && !other.servers).then(|| ContractGap::Tool(format!("{OF_SERVERS}*")));
        let scopes = self.scopes.difference(&other.scopes).copied().map(ContractGap::Scope);
        let commands = self.commands.difference(&other.commands).copied().map(ContractGap::Command);
        let classes = self.classes.difference(&other.classes).copied().map(ContractGap::Class);
        tools.into_iter().map(ContractGap::Tool).chain(servers).chain(scopes).chain(commands).chain(classes).collect()
    }
}

/// Name of the tool for shell lines.
const SHELL: &str = "bash";
/// Beginning of the names of all tools for MCP servers.
const OF_SERVERS: &str = "mcp_";

/// Reports whether a tool is one of MCP servers, and not one of a host or a node with such a name.
fn is_of_servers(subject: &PolicySubject) -> bool {
    subject.classes.is_empty() && subject.tool.starts_with(OF_SERVERS)
}

/// Returns the scope of a class of actions, in addition to files.
const fn scope_of_class(class: Class) -> Option<ContractScope> {
    match class {
        Class::HostToolInvoke => Some(ContractScope::HostTools),
        Class::HostUriRead | Class::HostUriWrite => Some(ContractScope::HostUri),
        Class::AuthLogin => Some(ContractScope::Admin),
        Class::BashReadonly
        | Class::BashMutating
        | Class::BashDestructive
        | Class::GitForcePush
        | Class::FileDelete
        | Class::FileWrite => None,
    }
}

/// Returns whether `subject` changes nothing outside the conversation: a tool that only reads, or a line of the own shell of which
/// every program only reads.
pub fn only_reads(subject: &PolicySubject, path_context: &PathContext) -> bool {
    if subject.effect == ToolEffect::Reads {
        return true;
    }
    let line = shell::line_of(subject, path_context);
    subject.tool == SHELL
        && line
            .is_some_and(|line| needed_classes(subject, Some(&line)).iter().all(|class| *class == Class::BashReadonly))
}

fn needed_classes(subject: &PolicySubject, line: Option<&shell::LineAnalysis>) -> BTreeSet<Class> {
    let mut classes = subject.classes.clone();
    match (line, subject.effect) {
        // For a host's calls, a contract only checks the class.
        (Some(line), _) if subject.tool == SHELL => classes.extend(shell::classes_of(line).iter()),
        // A shell call without a readable command can do anything.
        (None, _) if subject.tool == SHELL => {
            classes.insert(Class::BashDestructive);
        }
        // A call to a host writes no file of this machine.
        (None, ToolEffect::Changes) if classes.is_empty() && matches!(subject.tool.as_str(), "write" | "edit") => {
            classes.insert(Class::FileWrite);
        }
        (_, ToolEffect::Changes | ToolEffect::Reads) => {}
    }
    classes
}
