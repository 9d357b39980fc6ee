//! What an unattended run promised to stay within. A contract only denies; it never allows anything.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    policy::{shell, subject::Subject},
    tool::Effect,
};

/// A class of actions that a contract names. Those of shell lines come first, the worst last. Source: the unattended
/// contracts of gjc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Class {
    /// A shell line of programs that only read.
    #[serde(rename = "bash.readonly")]
    BashReadonly,
    /// Any other shell line.
    #[serde(rename = "bash.mutating")]
    BashMutating,
    /// A file tool that writes, or a redirection or an option that does.
    #[serde(rename = "file.write")]
    FileWrite,
    /// A shell line that deletes files.
    #[serde(rename = "file.delete")]
    FileDelete,
    /// A `git push` that overwrites or deletes what others have.
    #[serde(rename = "git.force_push")]
    GitForcePush,
    /// A shell line that destroys what cannot be had again, or of which nobody can tell what it runs.
    #[serde(rename = "bash.destructive")]
    BashDestructive,
    /// A tool of the host.
    #[serde(rename = "host_tool.invoke")]
    HostToolInvoke,
    /// Reading a URI of the host.
    #[serde(rename = "host_uri.read")]
    HostUriRead,
    /// Writing a URI of the host.
    #[serde(rename = "host_uri.write")]
    HostUriWrite,
    /// Logging in at a provider.
    #[serde(rename = "auth.login")]
    AuthLogin,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BashReadonly => "bash.readonly",
            Self::BashMutating => "bash.mutating",
            Self::BashDestructive => "bash.destructive",
            Self::GitForcePush => "git.force_push",
            Self::FileDelete => "file.delete",
            Self::FileWrite => "file.write",
            Self::HostToolInvoke => "host_tool.invoke",
            Self::HostUriRead => "host_uri.read",
            Self::HostUriWrite => "host_uri.write",
            Self::AuthLogin => "auth.login",
        })
    }
}

/// What an unattended run may do at most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contract {
    /// The classes that were declared.
    pub classes: BTreeSet<Class>,
    /// The tools that it may use, by exact name; none means all.
    #[serde(default)]
    pub tools: Option<BTreeSet<String>>,
}

impl Contract {
    /// What `subject` needs that was not declared, in words, the worst of it; none if it stays within.
    pub(crate) fn lacks(&self, subject: &Subject, line: Option<&shell::Line>) -> Option<String> {
        if self.tools.as_ref().is_some_and(|tools| !tools.contains(&subject.tool)) {
            return Some(format!("tool {}", subject.tool));
        }
        needed(subject, line).into_iter().rfind(|class| !self.classes.contains(class)).map(|class| class.to_string())
    }
}

fn needed(subject: &Subject, line: Option<&shell::Line>) -> BTreeSet<Class> {
    let mut classes = subject.classes.clone();
    match (line, subject.effect) {
        (Some(line), _) => classes.extend(shell::classes_of(line).iter()),
        // A shell call without a readable command can be anything.
        (None, _) if subject.tool == "bash" => {
            classes.insert(Class::BashDestructive);
        }
        (None, Effect::Changes) if matches!(subject.tool.as_str(), "write" | "edit") => {
            classes.insert(Class::FileWrite);
        }
        (None, Effect::Changes | Effect::Reads) => {}
    }
    classes
}
