//! Permissions beyond one call: exact subjects and patterns, for a session or permanently.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    digest::Digest,
    id::{PrincipalId, SessionId},
    policy::{
        fnmatch::GlobPattern,
        narrow::NarrowPath,
        obeyed,
        patterns::PatternSet,
        shell,
        spelling::{self, CallSpellings},
        subject::PolicySubject,
    },
    time::Millis,
};

/// Identifies one grant for its whole life. The text form is `grant_` and 32 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GrantId(Uuid);

impl GrantId {
    /// Wraps a UUID that the caller made.
    pub const fn new(id: Uuid) -> Self {
        Self(id)
    }

    /// Reads the text form, with or without its prefix.
    pub fn parse(text: &str) -> Option<Self> {
        Uuid::try_parse(text.strip_prefix("grant_").unwrap_or(text)).ok().map(Self)
    }

    /// Returns the time at which the grant was given, which is in the id of each grant that an answer gave. None for another id.
    pub fn given_at(self) -> Option<Millis> {
        if self.0.get_version_num() != 7 {
            return None;
        }
        u64::try_from(self.0.as_u128() >> 80).ok().map(Millis)
    }
}

impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "grant_{}", self.0.simple())
    }
}

/// Scope of a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GrantReach {
    /// While this session lasts.
    Session(SessionId),
    /// Every session of the same principal that has the rules of its process.
    Always,
    /// Every session of the same principal whose host brought rules of this realm.
    Realm(String),
}

/// Coverage of a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GrantCoverage {
    /// Exactly the shown subject: [`PolicySubject::digest`].
    Exact(Digest),
    /// Subjects that this pattern matches, as an allow rule would.
    Pattern(String),
}

/// Authentication of the person who gave a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GrantAuth {
    /// Authenticated by a credential.
    Authenticated,
    /// Not authenticated: the adapter has no authentication.
    Open,
}

/// One permission for more than one call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Its id.
    pub id: GrantId,
    /// The person who gave it.
    pub by: PrincipalId,
    /// The principal whose calls it covers.
    pub to: PrincipalId,
    /// Its scope.
    pub scope: GrantReach,
    /// Its coverage.
    pub covers: GrantCoverage,
    /// Scope as it was shown to the person.
    pub label: String,
    /// Time at which it ends; none means that it does not expire.
    pub until: Option<Millis>,
    /// Authentication of the adapter through which it came.
    pub door: GrantAuth,
}

impl Grant {
    fn holds_for(&self, subject: &PolicySubject, realm: Option<&str>, now: Millis) -> bool {
        self.to == subject.principal
            && self.until.is_none_or(|until| now < until)
            && match &self.scope {
                GrantReach::Session(session) => *session == subject.session,
                GrantReach::Always => realm.is_none(),
                GrantReach::Realm(of) => realm == Some(of),
            }
    }
}

/// Every grant in force. An exact one is found by one look-up; a pattern by its literal prefix.
#[derive(Clone, Debug, Default)]
pub struct GrantSet {
    by_id: BTreeMap<GrantId, Grant>,
    /// Those that expire, by end time.
    by_end: BTreeSet<(Millis, GrantId)>,
    exact: BTreeMap<Digest, Vec<GrantId>>,
    /// A pattern of a removed grant stays here until half of them are such: ranking all the others again for each removal would take
    /// quadratic time.
    patterns: PatternSet,
    /// The grant of each rank; none if it was removed.
    ranked: Vec<Option<GrantId>>,
    /// The rank of each grant with a pattern.
    ranks: BTreeMap<GrantId, usize>,
}

impl PartialEq for GrantSet {
    fn eq(&self, other: &Self) -> bool {
        self.by_id == other.by_id
    }
}

impl GrantSet {
    /// Returns the grant that covers `subject` at `now`, if there is one that holds in `realm`. A pattern grant covers a shell line
    /// as an allow rule does: command by command.
    pub fn covering_grant(&self, subject: &PolicySubject, realm: Option<&str>, now: Millis) -> Option<&Grant> {
        self.exact_grant(subject, realm, now).or_else(|| {
            let line = shell::line_of(subject, &Default::default());
            let obeyed = obeyed::of_subject(subject, None);
            let spellings = CallSpellings::from_subject(subject, None);
            self.by_pattern(subject, line.as_ref(), &obeyed.iter().collect::<Vec<_>>(), &spellings, realm, now)
        })
    }

    /// Reports false if certainly nothing covers a subject of this digest, without looking at the subject.
    pub(crate) fn may_cover(&self, subject: Digest) -> bool {
        self.exact.contains_key(&subject) || !self.ranked.is_empty()
    }

    /// Returns every grant, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Grant> {
        self.by_id.values()
    }

    /// Returns the grant with this id.
    pub fn get(&self, id: GrantId) -> Option<&Grant> {
        self.by_id.get(&id)
    }

    /// Returns the ids of grants that have ended by `now`, for the cleanup.
    pub fn ended_ids(&self, now: Millis) -> Vec<GrantId> {
        self.by_end.iter().take_while(|(until, _)| *until <= now).map(|(_, id)| *id).collect()
    }

    /// Returns the first instant at which one expires.
    pub(super) fn next_end(&self) -> Option<Millis> {
        self.by_end.first().map(|(until, _)| *until)
    }

    pub(crate) fn exact_grant(&self, subject: &PolicySubject, realm: Option<&str>, now: Millis) -> Option<&Grant> {
        if self.exact.is_empty() {
            return None;
        }
        self.exact
            .get(&subject.digest())?
            .iter()
            .filter_map(|id| self.by_id.get(id))
            .find(|grant| grant.holds_for(subject, realm, now))
    }

    pub(crate) fn by_pattern(
        &self,
        subject: &PolicySubject,
        line: Option<&shell::LineAnalysis>,
        narrow: &[&NarrowPath],
        spellings: &CallSpellings<'_>,
        realm: Option<&str>,
        now: Millis,
    ) -> Option<&Grant> {
        if self.ranked.is_empty() || !subject.undeclared.is_empty() {
            return None;
        }
        let at = |rank: usize| self.by_id.get(self.ranked.get(rank)?.as_ref()?);
        let reaches = |rank: usize| at(rank).is_some_and(|grant| grant.holds_for(subject, realm, now));
        let names = |rank: usize, paths: &[&NarrowPath]| match at(rank).map(|grant| &grant.covers) {
            Some(GrantCoverage::Pattern(pattern)) => paths.iter().all(|path| path.is_named_by(pattern)),
            Some(GrantCoverage::Exact(_)) | None => paths.is_empty(),
        };
        let first = |text: &str, paths: &[&NarrowPath]| {
            let all = |rank| (paths.is_empty() || names(rank, paths)) && (narrow.is_empty() || names(rank, narrow));
            self.patterns.first_where(text, |rank| reaches(rank) && all(rank))
        };
        let rank = match line {
            Some(line) => line.covered_by(&first, None).ok()?,
            None => {
                let steps_up = |rank: usize| match at(rank).map(|grant| &grant.covers) {
                    Some(GrantCoverage::Pattern(pattern)) => spelling::steps_in(pattern),
                    Some(GrantCoverage::Exact(_)) | None => 0,
                };
                let reached = spellings.covered_by(&|spelled| {
                    let predicate =
                        |rank: usize| reaches(rank) && names(rank, narrow) && steps_up(rank) >= spelled.steps_up;
                    self.patterns.first_where(&spelled.signature, predicate)
                });
                reached.ok()?;
                subject.all_signatures().map(|text| first(text, &[])).collect::<Option<Vec<_>>>()?.into_iter().max()?
            }
        };
        at(rank)
    }

    pub(super) fn add(&mut self, grant: Grant) {
        self.remove(grant.id);
        match &grant.covers {
            GrantCoverage::Exact(digest) => self.exact.entry(*digest).or_default().push(grant.id),
            GrantCoverage::Pattern(pattern) => {
                let pattern = GlobPattern::new(pattern);
                self.rank_pattern(grant.id, pattern);
            }
        }
        self.by_end.extend(grant.until.map(|until| (until, grant.id)));
        self.by_id.insert(grant.id, grant);
    }

    pub(super) fn remove(&mut self, id: GrantId) {
        let Some(grant) = self.by_id.remove(&id) else { return };
        if let Some(until) = grant.until {
            self.by_end.remove(&(until, id));
        }
        match grant.covers {
            GrantCoverage::Exact(digest) => {
                if let Some(ids) = self.exact.get_mut(&digest) {
                    ids.retain(|known| *known != id);
                    if ids.is_empty() {
                        self.exact.remove(&digest);
                    }
                }
            }
            GrantCoverage::Pattern(_) => {
                if let Some(rank) = self.ranks.remove(&id) {
                    self.ranked[rank] = None;
                }
                if 2 * self.ranks.len() <= self.ranked.len() {
                    self.rank_again();
                }
            }
        }
    }

    fn rank_pattern(&mut self, id: GrantId, pattern: GlobPattern) {
        let rank = self.ranked.len();
        self.patterns.insert(rank, pattern);
        self.ranked.push(Some(id));
        self.ranks.insert(id, rank);
    }

    /// Drops the patterns of removed grants.
    fn rank_again(&mut self) {
        self.patterns = PatternSet::default();
        self.ranks.clear();
        for id in std::mem::take(&mut self.ranked).into_iter().flatten() {
            if let Some(GrantCoverage::Pattern(pattern)) = self.by_id.get(&id).map(|grant| &grant.covers) {
                let pattern = GlobPattern::new(pattern);
                self.rank_pattern(id, pattern);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use uuid::Uuid;

    use super::{GrantCoverage, GrantId, GrantReach, GrantSet};
    use crate::{
        id::{IdGenerator, PrincipalId, SessionId},
        policy::testing::{bash, grant, grant_set, subject},
        time::Millis,
    };

    #[test]
    fn a_grant_covers_its_own_principal_session_and_time_only() {
        let one = subject("t", json!({"a": 1}));
        let mut other_session = one.clone();
        other_session.session = SessionId::new("s2");
        let mut other_principal = one.clone();
        other_principal.principal = PrincipalId::new("agent:other");
        let session = GrantReach::Session(one.session.clone());
        for (case, scope, until, subject, now, want) in [
            ("same", session.clone(), None, &one, 5, true),
            ("other session", session.clone(), None, &other_session, 5, false),
            ("always, other session", GrantReach::Always, None, &other_session, 5, true),
            ("always, other principal", GrantReach::Always, None, &other_principal, 5, false),
            ("before its end", GrantReach::Always, Some(Millis(6)), &one, 5, true),
            ("at its end", GrantReach::Always, Some(Millis(5)), &one, 5, false),
        ] {
            for covers in [GrantCoverage::Exact(one.digest()), GrantCoverage::Pattern("t(*)".to_owned())] {
                let mut grant = grant(1, covers);
                grant.scope = scope.clone();
                grant.until = until;
                assert_eq!(grant_set([grant]).covering_grant(subject, None, Millis(now)).is_some(), want, "{case}");
            }
        }
    }

    #[test]
    fn the_id_of_a_grant_has_the_time_at_which_it_was_given() {
        let given = Millis(1_700_000_000_123);
        let id = GrantId::new(IdGenerator::new([1; 16]).next_uuid(given));
        assert_eq!((id.given_at(), GrantId::new(Uuid::from_u128(7)).given_at()), (Some(given), None));
    }

    #[test]
    fn a_grant_for_good_holds_in_its_realm_only() {
        let one = subject("t", json!({"a": 1}));
        let of = |realm: &str| GrantReach::Realm(realm.to_owned());
        for (scope, realm, want) in [
            (GrantReach::Always, None, true),
            (GrantReach::Always, Some("/a"), false),
            (of("/a"), Some("/a"), true),
            (of("/a"), Some("/b"), false),
            (of("/a"), None, false),
            (GrantReach::Session(one.session.clone()), Some("/a"), true),
        ] {
            for covers in [GrantCoverage::Exact(one.digest()), GrantCoverage::Pattern("t(*)".to_owned())] {
                let mut grant = grant(1, covers);
                grant.scope = scope.clone();
                assert_eq!(
                    grant_set([grant]).covering_grant(&one, realm, Millis(1)).is_some(),
                    want,
                    "{scope:?} in {realm:?}"
                );
            }
        }
    }

    #[test]
    fn a_revoked_grant_covers_nothing_and_leaves_its_neighbours() {
        let mut grants = grant_set([
            grant(1, GrantCoverage::Pattern("t*".to_owned())),
            grant(2, GrantCoverage::Pattern("u*".to_owned())),
        ]);
        let first = grants.iter().next().unwrap().id;
        grants.remove(first);
        assert!(grants.covering_grant(&subject("t", json!({})), None, Millis(1)).is_none());
        assert!(grants.covering_grant(&subject("u", json!({})), None, Millis(1)).is_some());
    }

    #[test]
    fn a_grant_that_comes_again_under_its_name_covers_what_it_says_now_alone() {
        let mut grants = grant_set((1..=9).map(|number| grant(number, GrantCoverage::Pattern(format!("t{number}*")))));
        grants.add(grant(1, GrantCoverage::Pattern("u*".to_owned())));
        for (tool, want) in [("t1", false), ("u", true), ("t2", true)] {
            assert_eq!(grants.covering_grant(&subject(tool, json!({})), None, Millis(1)).is_some(), want, "{tool}");
        }
    }

    #[test]
    fn patterns_of_grants_that_are_gone_are_let_go_of_some_at_a_time() {
        const MANY: u32 = 200;
        let mut grants =
            grant_set((0..MANY).map(|number| grant(number.into(), GrantCoverage::Pattern(format!("t{number}_*")))));
        let covers = |grants: &GrantSet, number: u32| {
            grants.covering_grant(&subject(&format!("t{number}_a"), json!({})), None, Millis(1)).is_some()
        };
        let ids: Vec<_> = grants.iter().map(|grant| grant.id).collect();
        let mut ranked_again = 0;
        for (number, id) in (0..MANY).zip(ids) {
            let before = grants.ranked.len();
            assert!(covers(&grants, number));
            grants.remove(id);
            ranked_again += u32::from(grants.ranked.len() < before);
            assert!(!covers(&grants, number) && (number + 1 == MANY || covers(&grants, MANY - 1)), "{number}");
            assert!(grants.ranked.len() <= 2 * grants.ranks.len().max(1), "{number}");
        }
        assert!(ranked_again < 10, "{ranked_again}");
        assert!(grants.ranked.is_empty() && grants == GrantSet::default());
    }

    #[test]
    fn a_pattern_grant_covers_a_shell_line_command_by_command() {
        let grants = grant_set([grant(1, GrantCoverage::Pattern("bash(npm test*)".to_owned()))]);
        for (command, want) in [
            ("npm test -- a", true),
            ("npm test; rm x", false),
            ("npm test $(id)", false),
            ("npm test && npm test", true),
        ] {
            assert_eq!(grants.covering_grant(&bash(command), None, Millis(1)).is_some(), want, "{command}");
        }
    }
}
