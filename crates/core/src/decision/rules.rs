//! What is in force beside what was decided: compiled rules and where they apply.

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
    /// What holds where no rule says anything.
    pub default_policy: DefaultPolicy,
    /// What judging needs to know of the machine: folders that nobody may write to, the home folder.
    pub path_context: PathContext,
    /// Whose identities are whose.
    pub people: IdentityMap,
}

impl ActiveRules {
    /// Of the compiled rules.
    pub fn digest(&self) -> Digest {
        self.compiled.digest()
    }

    /// Of all that a host hands over: the compiled rules, the posture and the surroundings.
    pub fn digest_of_all(&self) -> Digest {
        let PathContext { home, temporary, protected, unreadable, door, realm, approval } = &self.path_context;
        let default_policy = match self.default_policy {
            DefaultPolicy::Gateway => "gateway",
            DefaultPolicy::Stdio => "stdio",
        };
        let mut all = vec![json!([self.digest(), default_policy, home, temporary, protected, unreadable, door, realm])];
        // Logs hold digests from before there were modes.
        if *approval != ApprovalMode::default() {
            all.push(json!(approval.name()));
        }
        let all = if all.len() == 1 { all.remove(0) } else { json!(all) };
        Digest::hash_bytes(canonical_json(&all).as_bytes())
    }
}

/// The rules of sessions whose hosts bring their own, as they are at hand in this process.
///
/// In force are those whose digest the log holds. What a batch brought that was not recorded is never in force, and what was
/// in force before it is still here.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostedRules(BTreeMap<SessionId, SessionRules>);

#[derive(Clone, Debug)]
struct SessionRules {
    now: (Digest, Arc<ActiveRules>),
    before: Option<(Digest, Arc<ActiveRules>)>,
}

impl HostedRules {
    /// Takes the rules of a session, and gives their digest.
    pub(crate) fn insert_rules(&mut self, session: SessionId, rules: ActiveRules) -> Digest {
        let now = (rules.digest_of_all(), Arc::new(rules));
        let digest = now.0;
        let before = self.0.remove(&session).map(|held| held.now);
        self.0.insert(session, SessionRules { now, before });
        digest
    }

    /// Forgets the rules of a session.
    pub(crate) fn remove_rules(&mut self, session: &SessionId) {
        self.0.remove(session);
    }

    /// The rules with which a session will be opened: its host came before it.
    pub(crate) fn newest_rules(&self, session: &SessionId) -> Option<(Digest, &ActiveRules)> {
        self.0.get(session).map(|held| (held.now.0, &*held.now.1))
    }

    /// The rules of this digest.
    pub(crate) fn rules_by_digest(&self, session: &SessionId, digest: Digest) -> Option<&ActiveRules> {
        let held = self.0.get(session)?;
        let mut held = [Some(&held.now), held.before.as_ref()].into_iter().flatten();
        held.find(|(known, _)| *known == digest).map(|(_, rules)| &**rules)
    }

    pub(super) fn contains_session(&self, session: &SessionId) -> bool {
        self.0.contains_key(session)
    }
}
