//! Required approvals: the number of approvers, their set, their time, and the consequence if they do not answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{id::PrincipalId, time::Millis};

use super::event::ApprovalScope;

/// One step of an escalation. A gate without steps is allowed by any one approver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalStep {
    /// Number of people who have to allow. At least 1.
    #[serde(default = "one")]
    pub approvals: u32,
    /// The approvers; none means any approver. Rules that name the same set share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Arc<BTreeSet<String>>>,
    /// Time limit; none means that of any approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Duration>,
    /// Consequence at the end of that time.
    #[serde(default)]
    pub on_expiry: OnExpiry,
}

fn one() -> u32 {
    1
}

impl Default for ApprovalStep {
    fn default() -> Self {
        Self { approvals: 1, from: None, within: None, on_expiry: OnExpiry::Deny }
    }
}

/// Consequence if too few approvers answered in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExpiry {
    /// The action does not happen.
    #[default]
    Deny,
    /// The same approvers are asked again, at most this number of times.
    Again(u32),
    /// The next step follows; after the last the action does not happen.
    Next,
}

/// Approval of one person, while more are required.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// The identity that gave it.
    pub by: PrincipalId,
    /// The person with that identity; none if it belongs to no person.
    pub person: Option<String>,
    /// Scope that this person allows.
    pub scope: ApprovalScope,
    /// Time of the approval.
    pub at: Millis,
    /// Idempotency key: a repeated answer with it gets the first result.
    pub key: Option<String>,
}

/// The identities of each person. Votes count people, not accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentityMap {
    by_identity: BTreeMap<PrincipalId, String>,
}

impl IdentityMap {
    /// Creates the map from each person's identities.
    pub fn new<I: IntoIterator<Item = PrincipalId>>(people: impl IntoIterator<Item = (String, I)>) -> Self {
        let identities =
            people.into_iter().flat_map(|(person, all)| all.into_iter().map(move |one| (one, person.clone())));
        Self { by_identity: identities.collect() }
    }

    /// Returns the person whose identity this is.
    pub fn person_of(&self, identity: &PrincipalId) -> Option<&str> {
        self.by_identity.get(identity).map(String::as_str)
    }
}
