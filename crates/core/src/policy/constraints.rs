//! Denials that bind: what a person denied stays denied for a while, in any session of the same principal.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    id::{GateId, PrincipalId},
    policy::subject::Subject,
    time::Millis,
};

/// How long a denial binds where nobody says otherwise.
pub const DENIAL_LASTS: Duration = Duration::from_secs(15 * 60);

/// One denial that binds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Constraint {
    /// Whose calls it stops.
    pub principal: PrincipalId,
    /// What it stops: [`Subject::constraint_key`].
    pub key: Digest,
    /// Who denied.
    pub by: PrincipalId,
    /// The tool that was denied, for people to read. Facts hold no arguments.
    #[serde(default)]
    pub tool: String,
    /// At which gate, where its content says what was denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateId>,
    /// What that person said, if anything.
    pub reason: Option<String>,
    /// When it ends; the instant itself is free again.
    pub until: Millis,
}

/// Every denial in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Constraints {
    by_key: BTreeMap<(PrincipalId, Digest), Constraint>,
    /// The same by when they end, so that nobody looks through all of them for those that have.
    by_end: BTreeSet<(Millis, PrincipalId, Digest)>,
}

impl Constraints {
    /// The denial that stops `subject` at `now`, if there is one.
    pub fn stops(&self, subject: &Subject, now: Millis) -> Option<&Constraint> {
        if self.by_key.is_empty() {
            return None;
        }
        self.by_key
            .get(&(subject.principal.clone(), subject.constraint_key()))
            .filter(|constraint| now < constraint.until)
    }

    /// Every denial, by principal.
    pub fn iter(&self) -> impl Iterator<Item = &Constraint> {
        self.by_key.values()
    }

    /// Whose calls and what the denials stopped that have ended by `now`, the first to end first, for whoever tidies up.
    pub fn ended(&self, now: Millis) -> impl Iterator<Item = (&PrincipalId, Digest)> {
        self.by_end.iter().take_while(move |(until, ..)| *until <= now).map(|(_, principal, key)| (principal, *key))
    }

    /// The first instant at which one ends.
    pub(super) fn next_end(&self) -> Option<Millis> {
        self.by_end.first().map(|(until, ..)| *until)
    }

    pub(super) fn add(&mut self, constraint: Constraint) {
        self.lift(&constraint.principal, constraint.key);
        self.by_end.insert((constraint.until, constraint.principal.clone(), constraint.key));
        self.by_key.insert((constraint.principal.clone(), constraint.key), constraint);
    }

    pub(super) fn lift(&mut self, principal: &PrincipalId, key: Digest) {
        if let Some(lifted) = self.by_key.remove(&(principal.clone(), key)) {
            self.by_end.remove(&(lifted.until, lifted.principal, lifted.key));
        }
    }
}
