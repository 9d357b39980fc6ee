//! Reads what an unattended run promises to stay within, and writes how it is refused.
//!
//! It must not know what a command or a call needs at the moment: only how scopes, actions and budgets are called. Source:
//! the RPC reference of gjc, Entering unattended mode; docs/protocol/gjc.md, Unattended runs.

mod declaration;
mod denial;

use serde::{Deserialize, Serialize};

pub use self::declaration::{
    BreachAction, DeclarationAccepted, DeclarationRefusal, DeclaredBudget, RefusalCode, UnattendedDeclaration,
    UsageMetering,
};
pub use self::denial::{AbortStatus, ActionDenied, BudgetExceeded, BudgetMetric, ScopeDenied, phase};

/// Scope of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandScope {
    /// Saying something to the run, and answering its gates. Part of every declaration.
    Prompt,
    /// Control of the way that runs work.
    Control,
    /// Shell commands.
    Bash,
    /// Writing a session elsewhere.
    Export,
    /// Change of the session.
    Session,
    /// Change of the model.
    Model,
    /// Reading of messages.
    #[serde(rename = "message:read")]
    MessageRead,
    /// Tools of the host.
    HostTools,
    /// URIs of the host.
    HostUri,
    /// Everything else.
    Admin,
}

impl CommandScope {
    /// Every scope.
    pub const ALL: [Self; 10] = [
        Self::Prompt,
        Self::Control,
        Self::Bash,
        Self::Export,
        Self::Session,
        Self::Model,
        Self::MessageRead,
        Self::HostTools,
        Self::HostUri,
        Self::Admin,
    ];

    /// Returns the name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Control => "control",
            Self::Bash => "bash",
            Self::Export => "export",
            Self::Session => "session",
            Self::Model => "model",
            Self::MessageRead => "message:read",
            Self::HostTools => "host_tools",
            Self::HostUri => "host_uri",
            Self::Admin => "admin",
        }
    }

    /// Reads the name on the wire.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }

    /// Returns the class of action that a command of this scope is.
    pub const fn action_class(self) -> Action {
        match self {
            Self::Prompt => Action::CommandPrompt,
            Self::Control => Action::CommandControl,
            Self::Bash => Action::CommandBash,
            Self::Export => Action::CommandExport,
            Self::Session => Action::CommandSession,
            Self::Model => Action::CommandModel,
            Self::MessageRead => Action::CommandMessageRead,
            Self::HostTools => Action::CommandHostTools,
            Self::HostUri => Action::CommandHostUri,
            Self::Admin => Action::CommandAdmin,
        }
    }
}

macro_rules! actions {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// A class of actions that a declaration names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Action {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)+
        }

        impl Action {
            /// Every class.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the name on the wire.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

actions! {
    /// Commands of scope prompt. Part of every declaration.
    CommandPrompt = "command.prompt",
    /// Commands of scope control.
    CommandControl = "command.control",
    /// Commands of scope bash.
    CommandBash = "command.bash",
    /// Commands of scope export.
    CommandExport = "command.export",
    /// Commands of scope session.
    CommandSession = "command.session",
    /// Commands of scope model.
    CommandModel = "command.model",
    /// Commands of scope message:read.
    CommandMessageRead = "command.message_read",
    /// Commands of scope host_tools.
    CommandHostTools = "command.host_tools",
    /// Commands of scope host_uri.
    CommandHostUri = "command.host_uri",
    /// Commands of scope admin.
    CommandAdmin = "command.admin",
    /// A shell line that only reads.
    BashReadonly = "bash.readonly",
    /// A shell line that may do anything else.
    BashMutating = "bash.mutating",
    /// A shell line that destroys what cannot be had again.
    BashDestructive = "bash.destructive",
    /// A push that overwrites or deletes what others have.
    GitForcePush = "git.force_push",
    /// A shell line that deletes files.
    FileDelete = "file.delete",
    /// Writing files.
    FileWrite = "file.write",
    /// Calling a tool of the host.
    HostToolInvoke = "host_tool.invoke",
    /// Reading a URI of the host.
    HostUriRead = "host_uri.read",
    /// Writing a URI of the host.
    HostUriWrite = "host_uri.write",
    /// Logging in at a provider.
    AuthLogin = "auth.login",
}

impl Action {
    /// Reads the name on the wire.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|action| action.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_are_those_that_serde_writes() {
        for scope in CommandScope::ALL {
            assert_eq!(CommandScope::from_name(scope.name()), Some(scope));
            assert_eq!(serde_json::to_value(scope).unwrap(), scope.name());
            assert_eq!(scope.action_class().name(), format!("command.{}", scope.name().replace(':', "_")));
        }
        for action in Action::ALL {
            assert_eq!(Action::from_name(action.name()), Some(*action));
            assert_eq!(serde_json::to_value(action).unwrap(), action.name());
        }
        assert_eq!(Action::ALL.len(), 20);
    }
}
