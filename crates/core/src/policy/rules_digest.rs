//! The digest of all rules in force, which each verdict records.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Value, json};

use crate::{
    digest::{Digest, canonical_json},
    policy::rules::{Rule, RuleLayer},
};

/// Computes the digest of rules.
///
/// A set of approvers enters by its own digest, which is computed once: 10,000 rules may share a set of 1,000 people.
#[derive(Default)]
pub(super) struct RulesDigest {
    rules: Vec<Value>,
    /// Keeps each set beside its digest, so that no other set can take its address.
    sets: BTreeMap<*const BTreeSet<String>, (Arc<BTreeSet<String>>, Digest)>,
}

impl RulesDigest {
    /// Adds the next rule in the order of evaluation.
    pub(super) fn add_rule(&mut self, layer: RuleLayer, is_default: bool, rule: &Rule) {
        if rule.steps.iter().all(|step| step.from.is_none()) {
            return self.rules.push(json!([layer, is_default, rule]));
        }
        let mut without_sets = rule.clone();
        let sets = without_sets.steps.iter_mut().map(|step| step.from.take());
        let sets: Vec<Option<Digest>> = sets.map(|set| set.map(|set| self.digest_of(&set))).collect();
        self.rules.push(json!([layer, is_default, without_sets, sets]));
    }

    fn digest_of(&mut self, set: &Arc<BTreeSet<String>>) -> Digest {
        let digest = || (Arc::clone(set), Digest::hash_bytes(canonical_json(&json!(set)).as_bytes()));
        self.sets.entry(Arc::as_ptr(set)).or_insert_with(digest).1
    }

    /// Returns the digest of all rules added.
    pub(super) fn finish(self) -> Digest {
        let text = if self.rules.is_empty() { String::new() } else { canonical_json(&Value::Array(self.rules)) };
        Digest::hash_bytes(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use serde_json::json;

    use super::RulesDigest;
    use crate::{
        digest::Digest,
        gate::ApprovalStep,
        policy::rules::{Rule, RuleLayer},
    };

    fn rule(steps: &[Option<&Arc<BTreeSet<String>>>]) -> Rule {
        let mut rule: Rule = serde_json::from_value(json!({ "pattern": "pay(*)", "action": "ask" })).unwrap();
        let step =
            |from: &Option<&Arc<BTreeSet<String>>>| ApprovalStep { from: from.cloned(), ..ApprovalStep::default() };
        rule.steps = steps.iter().map(step).collect();
        rule
    }

    fn digest(rules: &[Rule]) -> Digest {
        let mut digest = RulesDigest::default();
        rules.iter().for_each(|rule| digest.add_rule(RuleLayer::Main, false, rule));
        digest.finish()
    }

    #[test]
    fn every_difference_of_the_approvers_is_a_difference_of_the_digest() {
        let set = |names: &[&str]| Arc::new(names.iter().map(ToString::to_string).collect::<BTreeSet<_>>());
        let (ada, bob, both) = (set(&["ada"]), set(&["bob"]), set(&["ada", "bob"]));
        let different = [
            vec![],
            vec![rule(&[])],
            vec![rule(&[None])],
            vec![rule(&[Some(&ada)])],
            vec![rule(&[Some(&bob)])],
            vec![rule(&[Some(&both)])],
            vec![rule(&[Some(&ada), None])],
            vec![rule(&[None, Some(&ada)])],
            vec![rule(&[Some(&ada), Some(&bob)])],
            vec![rule(&[Some(&bob), Some(&ada)])],
            vec![rule(&[Some(&ada)]), rule(&[Some(&ada)])],
        ];
        let digests: BTreeSet<String> = different.iter().map(|rules| digest(rules).to_string()).collect();
        assert_eq!(digests.len(), different.len());
    }

    #[test]
    fn sets_of_the_same_people_are_the_same_whether_they_are_shared_or_not() {
        let set = || Arc::new(BTreeSet::from(["ada".to_owned(), "bob".to_owned()]));
        let shared = set();
        let alone = [rule(&[Some(&set())]), rule(&[Some(&set())])];
        assert_eq!(digest(&[rule(&[Some(&shared)]), rule(&[Some(&shared)])]), digest(&alone));
    }
}
