//! Metadata of a message for the run that it begins.

use serde::{Deserialize, Serialize};

use crate::{channel::MessageOrigin, id::FiringId, model_ref::ModelRef, unattended::ContractTerms};

/// Metadata of a run from its adapter, and settings for this run alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunMetadata {
    /// The sender's name for the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The chat that the message came from: the output of the run is sent there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Box<MessageOrigin>>,
    /// The model, in place of the session's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// Thinking level, in place of the session's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// The firing of a job that it works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firing: Option<FiringId>,
    /// The contract that binds it, if its session has none of its own. It ends with the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Box<ContractTerms>>,
    /// True if it precedes waiting messages without this flag: events come before messages of people.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ahead: bool,
    /// True if nothing follows it automatically, neither a reminder of open tasks nor a summary of the context.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
}

impl RunMetadata {
    /// Reports whether no metadata is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
