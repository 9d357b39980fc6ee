//! The rules in force, which are not part of the decided state: compiled rules and their sessions.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::json;

use crate::{
    digest::{Digest, canonical_json},
    gate::IdentityMap,
    id::SessionId,
    policy::{ApprovalMode, CompiledRules, DefaultPolicy, PathContext},
};

/// Rules of this process, or of one session whose host brought its own. They come from files and flags, not from the log;
/// the log holds their digest.
#[derive(Clone, Debug)]
pub struct ActiveRules {
    /// The compiled rules.
    pub compiled: CompiledRules,
    /// The policy for calls that no rule matches.
    pub default_policy: DefaultPolicy,
    /// Properties of the machine that evaluation needs: folders without write access, the home folder.
    pub path_context: PathContext,
    /// The identities of each person.
    pub people: IdentityMap,
}

impl ActiveRules {
    /// Returns the digest of the compiled rules.
    pub fn digest(&self) -> Digest {
        self.compiled.digest()
    }

    /// Returns the digest of everything that a host hands over: the compiled rules, the default policy and the path context.
    pub fn digest_of_all(&self) -> Digest {
        let PathContext { home, temporary, protected, unreadable, door, realm, approval, always_asked } =
            &self.path_context;
        let default_policy = match self.default_policy {
            DefaultPolicy::Gateway => "gateway",
            DefaultPolicy::Stdio => "stdio",
        };
        let mut all = vec![json!([self.digest(), default_policy, home, temporary, protected, unreadable, door, realm])];
        // Logs hold digests that predate approval modes.
        if *approval != ApprovalMode::default() {
            all.push(json!(approval.name()));
        }
        // Nor of tools that always ask.
        if !always_asked.is_empty() {
            all.push(json!(always_asked));
        }
        let all = if all.len() == 1 { all.remove(0) } else { json!(all) };
        Digest::hash_bytes(canonical_json(&all).as_bytes())
    }
}

/// The rules of sessions whose hosts bring their own, as they are loaded in this process.
///
/// In force are those whose digest the log holds. Rules from a batch that was not recorded are never in force, and the rules
/// in force before are kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostedRules(BTreeMap<SessionId, SessionRules>);

#[derive(Clone, Debug)]
struct SessionRules {
    now: (Digest, Arc<ActiveRules>),
    before: Option<(Digest, Arc<ActiveRules>)>,
}

impl HostedRules {
    /// Adds the rules of a session and returns their digest.
    pub(crate) fn insert_rules(&mut self, session: SessionId, rules: ActiveRules) -> Digest {
        let now = (rules.digest_of_all(), Arc::new(rules));
        let digest = now.0;
        let before = self.0.remove(&session).map(|held| held.now);
        self.0.insert(session, SessionRules { now, before });
        digest
    }

    /// Removes the rules of a session.
    pub(crate) fn remove_rules(&mut self, session: &SessionId) {
        self.0.remove(session);
    }

    /// Returns the rules with which a session will be opened: its host came before it.
    pub(crate) fn newest_rules(&self, session: &SessionId) -> Option<(Digest, &ActiveRules)> {
        self.0.get(session).map(|held| (held.now.0, &*held.now.1))
    }

    /// Returns the rules of this digest.
    pub(crate) fn rules_by_digest(&self, session: &SessionId, digest: Digest) -> Option<&ActiveRules> {
        let held = self.0.get(session)?;
        let mut held = [Some(&held.now), held.before.as_ref()].into_iter().flatten();
        held.find(|(known, _)| *known == digest).map(|(_, rules)| &**rules)
    }

    pub(super) fn contains_session(&self, session: &SessionId) -> bool {
        self.0.contains_key(session)
    }
}
