//! What a message says of the run that it begins.

use serde::{Deserialize, Serialize};

use crate::{channel::MessageOrigin, id::FiringId, model_ref::ModelRef, unattended::ContractTerms};

/// What a door notes of a run, and what counts for it alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunMetadata {
    /// What whoever said the message calls the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The chat network's chat that the message came from: what the run says goes there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Box<MessageOrigin>>,
    /// The model that is asked, in place of the session's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// How much it is asked to think, in place of what the session has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// The firing of a job that it works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firing: Option<FiringId>,
    /// The contract that binds it, where its session has none of its own. It ends with the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Box<ContractTerms>>,
    /// Whether it goes before messages that wait and are not like it: what happened is told before what was said.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ahead: bool,
    /// Whether nothing follows it by itself, neither a reminder of open tasks nor a summary of the context.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
}

impl RunMetadata {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
