//! Who has to allow: how many people, from which set, for how long, and what follows where they do not.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{id::PrincipalId, time::Millis};

use super::event::ApprovalScope;

/// One step of an escalation. A gate without steps is allowed by any one person who may answer at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalStep {
    /// How many people have to allow. At least 1.
    #[serde(default = "one")]
    pub approvals: u32,
    /// Which people; none means whoever may answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<BTreeSet<String>>,
    /// How long they have; none means as long as any approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Duration>,
    /// What follows when that is over.
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

/// What follows when nobody, or not everybody, answered in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExpiry {
    /// The action does not happen.
    #[default]
    Deny,
    /// The same people are asked once more, that often.
    Again(u32),
    /// The next step; behind the last the action does not happen.
    Next,
}

/// One person's leave, while there have to be more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// The identity that gave it.
    pub by: PrincipalId,
    /// Whose identity that is; none if it belongs to no person.
    pub person: Option<String>,
    /// How far that person lets it reach.
    pub scope: ApprovalScope,
    /// When.
    pub at: Millis,
    /// The key under which a repeated answer gets the first result.
    pub key: Option<String>,
}

/// Whose identities are whose. Votes count people, not accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentityMap {
    by_identity: BTreeMap<PrincipalId, String>,
}

impl IdentityMap {
    /// With each person's identities.
    pub fn new<I: IntoIterator<Item = PrincipalId>>(people: impl IntoIterator<Item = (String, I)>) -> Self {
        let identities =
            people.into_iter().flat_map(|(person, all)| all.into_iter().map(move |one| (one, person.clone())));
        Self { by_identity: identities.collect() }
    }

    /// The person whose identity this is.
    pub fn person_of(&self, identity: &PrincipalId) -> Option<&str> {
        self.by_identity.get(identity).map(String::as_str)
    }
}
