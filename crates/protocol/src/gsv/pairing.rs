//! Methods about people who are not known yet: parameters and answers.

use std::collections::BTreeMap;

use serde::Serialize;

use super::GsvError;
use super::fields::ParamFields;
use crate::json::WireValue;

/// Somebody who waits to be let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingPairing {
    /// Which network.
    pub channel: String,
    /// The network's id of that person.
    pub sender_id: String,
    /// What people call them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender_name: Option<String>,
    /// Since when.
    pub requested_at: u64,
    /// What they said first, at most [`LONGEST_FIRST`] characters of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_message: Option<String>,
}

/// How much of a first message is kept, in characters.
pub const LONGEST_FIRST: usize = 200;

/// The answer to `pair.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PairListResult {
    /// By [`key`].
    pub pairs: BTreeMap<String, PendingPairing>,
}

impl WireValue for PairListResult {}

/// What somebody who waits is listed under.
pub fn pairing_key(channel: &str, sender: &str) -> String {
    format!("{channel}:{}", super::key::phone_number(sender))
}

/// Parameters of `pair.approve` and `pair.reject`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairDecisionParams {
    /// Which network.
    pub channel: String,
    /// Who.
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
    /// Who.
    pub sender_id: String,
    /// What people call them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender_name: Option<String>,
}

impl WireValue for PairApproveResult {}

/// The answer to `pair.reject`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PairRejectResult {
    /// Always true.
    pub rejected: bool,
    /// Who.
    pub sender_id: String,
}

impl WireValue for PairRejectResult {}
