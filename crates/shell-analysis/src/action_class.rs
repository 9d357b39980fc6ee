//! Classes of actions that an unattended contract names.
//!
//! It must not know contracts, only what a line does.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Class of actions that an unattended contract names. Those of shell lines come first, the worst last. Source: the unattended
/// contracts of gjc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ActionClass {
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
    /// A shell line that destroys content irrecoverably, or whose commands are unknown.
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

impl fmt::Display for ActionClass {
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
