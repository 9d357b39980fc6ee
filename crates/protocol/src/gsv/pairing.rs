//! Methods about people who are not known yet: parameters and answers.

use std::collections::BTreeMap;

use serde::Serialize;

use super::GsvError;
use super::fields::ParamFields;
use crate::json::wire_values;

/// A sender that waits for approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingPairing {
    /// Name of the chat network.
    pub channel: String,
    /// The network's id of that person.
    pub sender_id: String,
    /// Display name of the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender_name: Option<String>,
    /// Time of the first message.
    pub requested_at: u64,
    /// Text of the first message, at most [`LONGEST_FIRST`] characters of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_message: Option<String>,
}

/// Longest kept part of a first message, in characters.
pub const LONGEST_FIRST: usize = 200;

/// The answer to `pair.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PairListResult {
    /// By [`pairing_key`].
    pub pairs: BTreeMap<String, PendingPairing>,
}

/// Returns the key under which a waiting sender is listed.
pub fn pairing_key(channel: &str, sender: &str) -> String {
    format!("{channel}:{}", super::key::phone_number(sender))
}

/// Parameters of `pair.approve` and `pair.reject`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairDecisionParams {
    /// Name of the chat network.
    pub channel: String,
    /// Id of the sender.
    pub sender_id: String,
}

impl PairDecisionParams {
    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        const MISSING: &str = "channel and senderId required";
        Ok(Self {
            channel: fields.require_text("channel", MISSING)?,
            sender_id: fields.require_text("senderId", MISSING)?,
        })
    }
}

/// The answer to `pair.approve`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PairApproveResult {
    /// Always true.
    pub approved: bool,
    /// Id of the sender.
    pub sender_id: String,
    /// Display name of the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender_name: Option<String>,
}

/// The answer to `pair.reject`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PairRejectResult {
    /// Always true.
    pub rejected: bool,
    /// Id of the sender.
    pub sender_id: String,
}

wire_values! { PairListResult, PairApproveResult, PairRejectResult }
