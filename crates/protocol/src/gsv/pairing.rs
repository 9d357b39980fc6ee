//! Methods about people who are not known yet: parameters and answers.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Fault;
use super::fields::Fields;
use crate::json::Wire;

/// Somebody who waits to be let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pending {
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
pub struct Listed {
    /// By [`key`].
    pub pairs: BTreeMap<String, Pending>,
}

impl Wire for Listed {}

/// What somebody who waits is listed under.
pub fn key(channel: &str, sender: &str) -> String {
    format!("{channel}:{}", super::key::phone(sender))
}

/// Parameters of `pair.approve` and `pair.reject`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decide {
    /// Which network.
    pub channel: String,
    /// Who.
    pub sender_id: String,
}

impl Decide {
    pub(super) fn read(mut fields: Fields) -> Result<Self, Fault> {
        const MISSING: &str = "channel and senderId required";
        Ok(Self { channel: fields.required("channel", MISSING)?, sender_id: fields.required("senderId", MISSING)? })
    }
}

/// The answer to `pair.approve`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Approved {
    /// Always true.
    pub approved: bool,
    /// Who.
    pub sender_id: String,
    /// What people call them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender_name: Option<String>,
}

impl Wire for Approved {}

/// The answer to `pair.reject`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rejected {
    /// Always true.
    pub rejected: bool,
    /// Who.
    pub sender_id: String,
}

impl Wire for Rejected {}
