//! Approval modes: which calls of an agent a person approves each time, even if rules and grants allow them.

use serde::{Deserialize, Serialize};

use crate::{policy::subject::PolicySubject, principal, tool::ToolEffect};

/// Calls of an agent that need an approval each time. Stricter modes compare as greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalMode {
    /// `yolo`: none; rules and the floor decide.
    #[default]
    Yolo,
    /// `write`: writes, commands, and calls with an unknown effect.
    Write,
    /// `always-ask`: everything that is not reading.
    AlwaysAsk,
}

impl ApprovalMode {
    /// Every mode, the strictest first.
    pub const ALL: [Self; 3] = [Self::AlwaysAsk, Self::Write, Self::Yolo];

    /// Reports whether it is the default.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the name that flags and settings use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Yolo => "yolo",
            Self::Write => "write",
            Self::AlwaysAsk => "always-ask",
        }
    }

    /// Returns the mode of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// Returns the reason for which `subject` needs an approval, in words that follow "because it".
    ///
    /// The host's own commands need none: the person gave them.
    pub(super) fn approval_reason(self, subject: &PolicySubject) -> Option<String> {
        let is_asked = match self {
            Self::Yolo => false,
            // The agent's notes and questions count as reading, as far as effects go. A tool of the host may do anything.
            Self::Write | Self::AlwaysAsk => subject.effect != ToolEffect::Reads,
        };
        let is_asked = is_asked && subject.principal != principal::host_principal();
        is_asked.then(|| format!("may change something, and the approval mode is {}", self.name()))
    }
}
