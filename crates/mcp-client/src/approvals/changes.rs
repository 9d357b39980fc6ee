//! Authors of approvals, and changes of them that wait for the record.

use countersign_core::{id::PrincipalId, policy::ServerChange, time::Millis};
use serde::{Deserialize, Serialize};

/// Origin of an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalOrigin {
    /// A gate. The record has its answer.
    Gate,
    /// A person, in another way. The record gets the change later.
    Person(PrincipalId),
}

impl ApprovalOrigin {
    /// Returns the person; none for a gate.
    pub const fn person(&self) -> Option<&PrincipalId> {
        match self {
            Self::Gate => None,
            Self::Person(by) => Some(by),
        }
    }
}

/// Time of an approval, and its author.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalNote {
    /// Time of the approval.
    pub at: Millis,
    /// The person; absent if a gate was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<PrincipalId>,
}

/// Change of an approval that the record does not have yet. It may be made while no gateway runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalChange {
    /// Name of the server.
    pub server: String,
    /// The change.
    pub change: ServerChange,
    /// The person.
    pub by: PrincipalId,
    /// Time of the change.
    pub at: Millis,
}
