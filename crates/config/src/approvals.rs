//! Approvers of calls that match a rule: `approvals`, `from`, `within`, `on_expiry` and `escalate` of the rule.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use countersign_core::gate::{ApprovalStep, OnExpiry};

use super::config_field::ConfigField;

/// The keys of a rule that are read here.
pub(super) const KEYS: [&str; 5] = ["approvals", "from", "within", "on_expiry", "escalate"];
const ESCALATION: &[&str] = &["after", "to", "approvals"];
/// More people than any step needs, and more time than any wait.
const MOST: i64 = 1_000_000_000;

/// Sets of people by name: `sets` of a rules file. Each is there once, however many rules name it.
#[derive(Debug, Default)]
pub(super) struct PeopleSets {
    sets: BTreeMap<String, Arc<BTreeSet<String>>>,
    /// People of the lists that rules have named so far.
    named: RefCell<BTreeMap<Vec<String>, Arc<BTreeSet<String>>>>,
}

impl PeopleSets {
    /// Returns the people of a list, in which the name of a set stands for every person in it.
    fn people_of(&self, names: Vec<String>) -> Arc<BTreeSet<String>> {
        if let [name] = &names[..]
            && let Some(set) = self.sets.get(name)
        {
            return Arc::clone(set);
        }
        if let Some(people) = self.named.borrow().get(&names) {
            return Arc::clone(people);
        }
        let mut people = BTreeSet::new();
        for name in &names {
            match self.sets.get(name) {
                Some(set) => people.extend(set.iter().cloned()),
                None => drop(people.insert(name.clone())),
            }
        }
        let people = Arc::new(people);
        self.named.borrow_mut().insert(names, Arc::clone(&people));
        people
    }
}

/// Reads the sets at `place`.
pub(super) fn read_sets(place: &ConfigField<'_>) -> PeopleSets {
    let members = place.members().unwrap_or_default().into_iter();
    let none = PeopleSets::default();
    let sets = members.map(|(name, place)| (name.to_owned(), read_names(&place, &none).unwrap_or_default())).collect();
    PeopleSets { sets, named: RefCell::default() }
}

/// Reads the steps of the rule at `place`; none if it has no such keys.
pub(super) fn read_steps(place: &ConfigField<'_>, sets: &PeopleSets) -> Vec<ApprovalStep> {
    if KEYS.iter().all(|key| !place.has_key(key) || place.at(key).has_no_value()) {
        return Vec::new();
    }
    let mut steps = vec![ApprovalStep {
        approvals: read_approvals(place).unwrap_or(1),
        from: read_names(&place.at("from"), sets),
        ..ApprovalStep::default()
    }];
    for next in place.at("escalate").items() {
        if !next.check_item(ESCALATION) {
            continue;
        }
        if next.at("after").is_absent() {
            next.at("after").report_missing();
        }
        if next.at("to").is_absent() {
            next.at("to").report_missing();
        }
        if let Some(last) = steps.last_mut() {
            last.within = read_span(&next.at("after"));
            last.on_expiry = OnExpiry::Next;
        }
        let from = read_names(&next.at("to"), sets);
        // A later step needs no fewer people, as far as there are so many.
        let inherited = || {
            let most = from.as_ref().map_or(u32::MAX, |names| u32::try_from(names.len()).unwrap_or(u32::MAX).max(1));
            steps.last().map_or(1, |before| before.approvals).min(most)
        };
        let approvals = read_approvals(&next).unwrap_or_else(inherited);
        steps.push(ApprovalStep { approvals, from, ..ApprovalStep::default() });
    }
    if let Some(last) = steps.last_mut() {
        last.within = read_span(&place.at("within"));
        last.on_expiry = on_expiry(&place.at("on_expiry"));
    }
    steps
}

fn read_approvals(place: &ConfigField<'_>) -> Option<u32> {
    place.at("approvals").integer_in(1, MOST).and_then(|count| u32::try_from(count).ok())
}

fn read_span(place: &ConfigField<'_>) -> Option<Duration> {
    if place.has_no_value() {
        return None;
    }
    place.integer_in(1, MOST).and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs)
}

/// Reads people by name, in a list or alone; the name of a set stands for every person in it.
fn read_names(place: &ConfigField<'_>, sets: &PeopleSets) -> Option<Arc<BTreeSet<String>>> {
    if place.has_no_value() {
        return None;
    }
    let listed = place.list_items();
    if listed.as_ref().is_some_and(Vec::is_empty) {
        place.report_refusal("the list is empty: name at least one approver");
    }
    let named = match &listed {
        Some(places) => places.iter().filter_map(ConfigField::needed_text).collect(),
        None => Vec::from_iter(place.needed_text()),
    };
    Some(sets.people_of(named))
}

fn on_expiry(place: &ConfigField<'_>) -> OnExpiry {
    const EXPECTED: &str = "expected deny, again, or { again: TIMES }; the steps of escalate need no mention here";
    if place.has_no_value() {
        return OnExpiry::Deny;
    }
    if place.is_mapping() {
        place.check_mapping(&["again"]);
        let times = place.at("again").integer_in(1, 1_000).and_then(|times| u32::try_from(times).ok());
        return times.map_or(OnExpiry::Deny, OnExpiry::Again);
    }
    match place.needed_text().as_deref() {
        Some("deny") | None => OnExpiry::Deny,
        Some("again") => OnExpiry::Again(1),
        Some(_) => {
            place.report_refusal(EXPECTED);
            OnExpiry::Deny
        }
    }
}
