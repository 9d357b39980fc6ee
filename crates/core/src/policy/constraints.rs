//! Denials in force: a person's denial applies for a while, in any session of the same principal or in one of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    id::{GateId, PrincipalId, SessionId},
    policy::subject::PolicySubject,
    time::Millis,
};

/// Duration of a denial by default.
pub const DENIAL_LASTS: Duration = Duration::from_secs(15 * 60);

/// One denial in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Constraint {
    /// The principal whose calls it stops.
    pub principal: PrincipalId,
    /// The only session whose calls it stops; absent if it stops those of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Key of the stopped calls: [`PolicySubject::constraint_key`].
    pub key: Digest,
    /// The person who denied.
    pub by: PrincipalId,
    /// The tool that was denied, for display. Facts hold no arguments.
    #[serde(default)]
    pub tool: String,
    /// The gate, if its content shows the denied action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateId>,
    /// Reason that the person gave.
    pub reason: Option<String>,
    /// Time at which it ends; the instant itself is free again.
    pub until: Millis,
}

/// Every denial in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Constraints {
    by_key: BTreeMap<ConstraintKey, Constraint>,
    /// The same by end time, to find ended ones without visiting all.
    by_end: BTreeSet<(Millis, ConstraintKey)>,
}

/// Principal, key of the stopped calls, and only session of a denial.
type ConstraintKey = (PrincipalId, Digest, Option<SessionId>);

impl Constraint {
    /// Reports whether it stops `subject`, as long as it has not ended.
    pub fn is_about(&self, subject: &PolicySubject) -> bool {
        self.principal == subject.principal
            && self.session.as_ref().is_none_or(|session| *session == subject.session)
            && self.key == subject.constraint_key()
    }

    fn index_key(&self) -> ConstraintKey {
        (self.principal.clone(), self.key, self.session.clone())
    }
}

impl Constraints {
    /// Returns the denial that stops `subject` at `now`, if there is one.
    pub fn find_stopping(&self, subject: &PolicySubject, now: Millis) -> Option<&Constraint> {
        if self.by_key.is_empty() {
            return None;
        }
        let mut key: ConstraintKey =
            (subject.principal.clone(), subject.constraint_key(), Some(subject.session.clone()));
        let of_session = self.by_key.get(&key).filter(|constraint| now < constraint.until);
        key.2 = None;
        of_session.or_else(|| self.by_key.get(&key).filter(|constraint| now < constraint.until))
    }

    /// Returns every denial, by principal.
    pub fn iter(&self) -> impl Iterator<Item = &Constraint> {
        self.by_key.values()
    }

    /// Returns the first instant at which one ends.
    pub(super) fn next_end(&self) -> Option<Millis> {
        self.by_end.first().map(|(until, _)| *until)
    }

    pub(super) fn add(&mut self, constraint: Constraint) {
        let key = constraint.index_key();
        self.remove_key(&key);
        self.by_end.insert((constraint.until, key.clone()));
        self.by_key.insert(key, constraint);
    }

    pub(super) fn remove_key(&mut self, key: &ConstraintKey) {
        if let Some(lifted) = self.by_key.remove(key) {
            self.by_end.remove(&(lifted.until, key.clone()));
        }
    }

    /// Removes the denials that have ended by `now`.
    pub(super) fn remove_ended(&mut self, now: Millis) {
        while let Some((_, key)) = self.by_end.first().filter(|(until, _)| *until <= now).cloned() {
            self.remove_key(&key);
        }
    }
}
