//! Sums over all decisions.

use std::{collections::BTreeMap, sync::Arc};

use countersign_core::{
    policy::{GrantCoverage, propose_grants},
    time::Millis,
};

use super::{CallVerdict, PastCall};

/// Most patterns of calls that are counted separately.
const MOST_LIKES: usize = 4096;
/// Longest pattern, in bytes: a longer one is no useful rule.
const LONGEST_LIKE: usize = 2000;
/// Most days.
const MOST_DAYS: usize = 400;
/// Most tools or callers.
const MOST_NAMES: usize = 500;
/// Bounds of the time to an answer, in seconds, with their names.
pub(in super::super) const WAITS: [(u64, &str); 6] = [
    (10, "under 10 s"),
    (60, "under 1 min"),
    (300, "under 5 min"),
    (900, "under 15 min"),
    (3600, "under 1 h"),
    (u64::MAX, "1 h or longer"),
];
const DAY: u64 = 86_400_000;

/// Outcomes of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct VerdictCounts {
    pub(in super::super) rule: u64,
    pub(in super::super) person: u64,
    pub(in super::super) refused_by_rule: u64,
    pub(in super::super) refused_by_person: u64,
    pub(in super::super) undecided: u64,
}

/// One of the counts, with its name and class.
pub(in super::super) type ChartBar = (&'static str, &'static str, fn(&VerdictCounts) -> u64);

impl VerdictCounts {
    /// Parts of a bar, from the bottom.
    pub(in super::super) const BARS: [ChartBar; 5] = [
        ("allowed by rule or grant", "b-rule", |counts| counts.rule),
        ("allowed by an approver", "b-person", |counts| counts.person),
        ("denied by rule", "b-norule", |counts| counts.refused_by_rule),
        ("denied by an approver", "b-noperson", |counts| counts.refused_by_person),
        ("not decided", "b-none", |counts| counts.undecided),
    ];

    pub(in super::super) fn total_count(&self) -> u64 {
        Self::BARS.iter().map(|(.., of)| of(self)).sum()
    }

    fn add_verdict(&mut self, verdict: CallVerdict) {
        match verdict {
            CallVerdict::Open => {}
            CallVerdict::Rule | CallVerdict::Grant => self.rule += 1,
            CallVerdict::Person => self.person += 1,
            CallVerdict::RefusedByRule => self.refused_by_rule += 1,
            CallVerdict::RefusedByPerson => self.refused_by_person += 1,
            CallVerdict::Undecided => self.undecided += 1,
        }
    }
}

/// Calls that one pattern would cover.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct SimilarCalls {
    pub(in super::super) requests: u64,
    pub(in super::super) allowed: u64,
    pub(in super::super) denied: u64,
    pub(in super::super) last: u64,
}

/// Sums.
#[derive(Default)]
pub(in super::super) struct CallStatistics {
    /// Counts by day since 1970, in UTC.
    pub(in super::super) days: BTreeMap<u64, VerdictCounts>,
    pub(in super::super) tools: BTreeMap<Arc<str>, VerdictCounts>,
    pub(in super::super) askers: BTreeMap<Arc<str>, VerdictCounts>,
    /// Times to an answer, by the bounds of [`WAITS`].
    pub(in super::super) waits: [u64; WAITS.len()],
    /// Requests for approval, by caller and pattern.
    pub(in super::super) likes: BTreeMap<(Arc<str>, String), SimilarCalls>,
    pub(in super::super) all: VerdictCounts,
}

impl CallStatistics {
    pub(super) fn record_decision(&mut self, made: &PastCall, at: Millis) {
        let verdict = made.verdict;
        self.all.add_verdict(verdict);
        self.days.entry(at.0 / DAY).or_default().add_verdict(verdict);
        if self.days.len() > MOST_DAYS {
            self.days.pop_first();
        }
        count_verdict(&mut self.tools, &made.tool, verdict);
        count_verdict(&mut self.askers, &made.asker, verdict);
        let Some(asked_at) = made.asked_at else { return };
        if matches!(verdict, CallVerdict::Person | CallVerdict::RefusedByPerson) {
            let seconds = at.since(asked_at).as_secs();
            let slot = WAITS.iter().position(|(bound, _)| seconds < *bound).unwrap_or(WAITS.len() - 1);
            self.waits[slot] += 1;
        }
        let pattern = made.subject.as_ref().and_then(|subject| {
            propose_grants(subject).into_iter().find_map(|proposal| match proposal.covers {
                GrantCoverage::Pattern(pattern) => Some(pattern),
                GrantCoverage::Exact(_) => None,
            })
        });
        if pattern.as_ref().map_or(made.signature.len(), String::len) > LONGEST_LIKE {
            return;
        }
        let key = (Arc::clone(&made.asker), pattern.unwrap_or_else(|| made.signature.to_string()));
        if self.likes.len() >= MOST_LIKES && !self.likes.contains_key(&key) {
            return;
        }
        let like = self.likes.entry(key).or_default();
        like.requests += 1;
        like.last = at.0;
        match verdict {
            CallVerdict::Person | CallVerdict::Grant => like.allowed += 1,
            CallVerdict::RefusedByPerson => like.denied += 1,
            CallVerdict::Open | CallVerdict::Rule | CallVerdict::RefusedByRule | CallVerdict::Undecided => {}
        }
    }
}

fn count_verdict(of: &mut BTreeMap<Arc<str>, VerdictCounts>, name: &Arc<str>, verdict: CallVerdict) {
    // Names that an agent invents must not fill the memory.
    let name = if of.len() >= MOST_NAMES && !of.contains_key(name) { "others".into() } else { Arc::clone(name) };
    of.entry(name).or_default().add_verdict(verdict);
}
