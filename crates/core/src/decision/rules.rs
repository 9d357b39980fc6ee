//! What is in force beside what was decided: compiled rules and where they apply.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::json;

use crate::{
    digest::{Digest, canonical},
    gate::People,
    id::SessionId,
    policy::{ApprovalMode, Compiled, Posture, Surroundings},
};

/// Rules of this process, or of one session whose host brought its own. They come from files and flags, not from the log;
/// the log holds their digest.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The compiled rules.
    pub compiled: Compiled,
    /// What holds where no rule says anything.
    pub posture: Posture,
    /// What judging needs to know of the machine: folders that nobody may write to, the home folder.
    pub surroundings: Surroundings,
    /// Whose identities are whose.
    pub people: People,
}

impl Rules {
    /// Of the compiled rules.
    pub fn digest(&self) -> Digest {
        self.compiled.digest()
    }

    /// Of all that a host hands over: the compiled rules, the posture and the surroundings.
    pub fn digest_of_all(&self) -> Digest {
        let Surroundings { home, temporary, protected, unreadable, door, realm, approval } = &self.surroundings;
        let posture = match self.posture {
            Posture::Gateway => "gateway",
            Posture::Stdio => "stdio",
        };
        let mut all = vec![json!([self.digest(), posture, home, temporary, protected, unreadable, door, realm])];
        // Logs hold digests from before there were modes.
        if *approval != ApprovalMode::default() {
            all.push(json!(approval.name()));
        }
        let all = if all.len() == 1 { all.remove(0) } else { json!(all) };
        Digest::of(canonical(&all).as_bytes())
    }
}

/// The rules of sessions whose hosts bring their own, as they are at hand in this process.
///
/// In force are those whose digest the log holds. What a batch brought that was not recorded is never in force, and what was
/// in force before it is still here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guests(BTreeMap<SessionId, Held>);

#[derive(Clone, Debug)]
struct Held {
    now: (Digest, Arc<Rules>),
    before: Option<(Digest, Arc<Rules>)>,
}

impl Guests {
    /// Takes the rules of a session, and gives their digest.
    pub(crate) fn take(&mut self, session: SessionId, rules: Rules) -> Digest {
        let now = (rules.digest_of_all(), Arc::new(rules));
        let digest = now.0;
        let before = self.0.remove(&session).map(|held| held.now);
        self.0.insert(session, Held { now, before });
        digest
    }

    /// Forgets the rules of a session.
    pub(crate) fn leave(&mut self, session: &SessionId) {
        self.0.remove(session);
    }

    /// The rules with which a session will be opened: its host came before it.
    pub(crate) fn awaiting(&self, session: &SessionId) -> Option<(Digest, &Rules)> {
        self.0.get(session).map(|held| (held.now.0, &*held.now.1))
    }

    /// The rules of this digest.
    pub(crate) fn of(&self, session: &SessionId, digest: Digest) -> Option<&Rules> {
        let held = self.0.get(session)?;
        let mut held = [Some(&held.now), held.before.as_ref()].into_iter().flatten();
        held.find(|(known, _)| *known == digest).map(|(_, rules)| &**rules)
    }

    pub(super) fn contains(&self, session: &SessionId) -> bool {
        self.0.contains_key(session)
    }
}
