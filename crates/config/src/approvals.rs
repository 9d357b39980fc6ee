//! Who has to allow what a rule asks about: `approvals`, `from`, `within`, `on_expiry` and `escalate` of the rule.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use countersign_core::gate::{ApprovalStep, OnExpiry};

use super::at::At;

/// The keys of a rule that are read here.
pub(super) const KEYS: [&str; 5] = ["approvals", "from", "within", "on_expiry", "escalate"];
const ESCALATION: &[&str] = &["after", "to", "approvals"];
/// More people than anybody asks, and more time than anybody waits.
const MOST: i64 = 1_000_000_000;

/// Sets of people by name: `sets` of a file of rules.
pub(super) type Sets = BTreeMap<String, BTreeSet<String>>;

/// Reads the sets at `place`.
pub(super) fn sets(place: &At<'_>) -> Sets {
    let members = place.members().unwrap_or_default().into_iter();
    members.map(|(name, place)| (name.to_owned(), names(&place, &Sets::new()).unwrap_or_default())).collect()
}

/// The steps of the rule at `place`; none where it says nothing of them.
pub(super) fn steps(place: &At<'_>, sets: &Sets) -> Vec<ApprovalStep> {
    if KEYS.iter().all(|key| !place.has(key) || place.at(key).has_no_value()) {
        return Vec::new();
    }
    let mut steps = vec![ApprovalStep {
        approvals: approvals(place).unwrap_or(1),
        from: names(&place.at("from"), sets),
        ..ApprovalStep::default()
    }];
    for next in place.at("escalate").items() {
        if !next.mapping(ESCALATION) {
            continue;
        }
        if next.at("after").is_absent() {
            next.at("after").missing();
        }
        if next.at("to").is_absent() {
            next.at("to").missing();
        }
        if let Some(last) = steps.last_mut() {
            last.within = span(&next.at("after"));
            last.on_expiry = OnExpiry::Next;
        }
        let from = names(&next.at("to"), sets);
        // Who is asked later is not asked for less, as far as there are so many.
        let inherited = || {
            let most = from.as_ref().map_or(u32::MAX, |names| u32::try_from(names.len()).unwrap_or(u32::MAX).max(1));
            steps.last().map_or(1, |before| before.approvals).min(most)
        };
        let approvals = approvals(&next).unwrap_or_else(inherited);
        steps.push(ApprovalStep { approvals, from, ..ApprovalStep::default() });
    }
    if let Some(last) = steps.last_mut() {
        last.within = span(&place.at("within"));
        last.on_expiry = on_expiry(&place.at("on_expiry"));
    }
    steps
}

fn approvals(place: &At<'_>) -> Option<u32> {
    place.at("approvals").integer_in(1, MOST).and_then(|count| u32::try_from(count).ok())
}

fn span(place: &At<'_>) -> Option<Duration> {
    if place.has_no_value() {
        return None;
    }
    place.integer_in(1, MOST).and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs)
}

/// People by name, in a list or alone; the name of a set stands for everybody in it.
fn names(place: &At<'_>, sets: &Sets) -> Option<BTreeSet<String>> {
    if place.has_no_value() {
        return None;
    }
    let listed = place.list();
    if listed.as_ref().is_some_and(Vec::is_empty) {
        place.refused("nobody is named");
    }
    let named = match &listed {
        Some(places) => places.iter().filter_map(At::needed_text).collect(),
        None => Vec::from_iter(place.needed_text()),
    };
    let mut people = BTreeSet::new();
    for name in named {
        match sets.get(&name) {
            Some(set) => people.extend(set.iter().cloned()),
            None => drop(people.insert(name)),
        }
    }
    Some(people)
}

fn on_expiry(place: &At<'_>) -> OnExpiry {
    const EXPECTED: &str = "expected deny, again, or { again: TIMES }; the steps of escalate follow by themselves";
    if place.has_no_value() {
        return OnExpiry::Deny;
    }
    if place.is_mapping() {
        place.mapping(&["again"]);
        let times = place.at("again").integer_in(1, 1_000).and_then(|times| u32::try_from(times).ok());
        return times.map_or(OnExpiry::Deny, OnExpiry::Again);
    }
    match place.needed_text().as_deref() {
        Some("deny") | None => OnExpiry::Deny,
        Some("again") => OnExpiry::Again(1),
        Some(_) => {
            place.refused(EXPECTED);
            OnExpiry::Deny
        }
    }
}
