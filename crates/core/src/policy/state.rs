//! The policy's machine: the digest of the rules in force, the grants, the denials.

use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    id::{PrincipalId, SessionId},
    policy::{
        constraints::{Constraint, Constraints},
        grants::{Grant, GrantId, GrantSet},
    },
    time::Millis,
};

/// A fact about policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Rules with this digest came into force. The rules themselves are handed in separately.
    Compiled {
        /// Digest of the normalised rules.
        digest: Digest,
    },
    /// A person changes the rules file, or has it read again. The result is a later [`Event::Compiled`], if any.
    /// The content is the change in readable form, if there was one.
    Edited {
        /// The person.
        by: PrincipalId,
        /// Digest of the rules that the file then has.
        to: Digest,
    },
    /// A person allowed more than one call.
    Granted(Grant),
    /// A grant was revoked before its time, or removed after it.
    Revoked {
        /// Id of the grant.
        id: GrantId,
        /// The person or program that revoked it.
        by: PrincipalId,
    },
    /// A person's denial is in force.
    Constrained(Constraint),
    /// A denial is no longer in force.
    Lifted {
        /// The principal whose calls it stopped.
        principal: PrincipalId,
        /// Key of the stopped calls.
        key: Digest,
        /// The only session in which it applied, if there was one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<SessionId>,
        /// The person who lifted it.
        by: PrincipalId,
    },
    /// A person changed the approval of a server of tools outside of a gate. The approvals are kept outside of the log, and were
    /// changed before this was recorded.
    ServerApproval {
        /// Name of the server.
        server: String,
        /// The change.
        change: ServerChange,
        /// The person.
        by: PrincipalId,
        /// Time of the change, which may precede the process that records it.
        at: Millis,
    },
    /// Denials and grants that had ended by then were removed.
    Tidied {
        /// The instant.
        at: Millis,
    },
}

/// Change of the approval of a server of tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerChange {
    /// It was approved with the tools that it had.
    Approved,
    /// Its approval was withdrawn.
    Revoked,
}

/// State of policy from the log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    digest: Option<Digest>,
    grants: GrantSet,
    constraints: Constraints,
}

impl State {
    /// Returns the digest of the rules in force; none before any were handed in.
    pub const fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// Returns the grants.
    pub const fn grants(&self) -> &GrantSet {
        &self.grants
    }

    /// Returns the denials.
    pub const fn constraints(&self) -> &Constraints {
        &self.constraints
    }

    /// Returns the first instant at which a grant or a denial ends, for the timers.
    pub fn next_end(&self) -> Option<Millis> {
        self.grants.next_end().into_iter().chain(self.constraints.next_end()).min()
    }

    /// Reports whether a grant or a denial has ended by `now` and can be removed.
    pub fn is_untidy(&self, now: Millis) -> bool {
        self.next_end().is_some_and(|end| end <= now)
    }

    /// Applies a recorded event. Cannot fail, so replay cannot fail.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Compiled { digest } => self.digest = Some(*digest),
            Event::Edited { .. } | Event::ServerApproval { .. } => {}
            Event::Granted(grant) => self.grants.add(grant.clone()),
            Event::Revoked { id, by: _ } => self.grants.remove(*id),
            Event::Constrained(constraint) => self.constraints.add(constraint.clone()),
            Event::Lifted { principal, key, session, by: _ } => {
                self.constraints.remove_key(&(principal.clone(), *key, session.clone()));
            }
            Event::Tidied { at } => {
                for id in self.grants.ended_ids(*at) {
                    self.grants.remove(id);
                }
                self.constraints.remove_ended(*at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Event, ServerChange, State};
    use crate::{
        digest::Digest,
        id::{PrincipalId, SessionId},
        policy::{
            PolicySubject,
            constraints::Constraint,
            grants::GrantCoverage,
            testing::{grant, subject},
        },
        time::Millis,
    };

    #[test]
    fn events_read_back_and_fold_into_the_same_state() {
        let subject = subject("t", json!({"a": 1}));
        let ana = PrincipalId::new("person:ana");
        let mut ending = grant(2, GrantCoverage::Pattern("u*".to_owned()));
        ending.until = Some(Millis(50));
        let denial = Constraint {
            principal: subject.principal.clone(),
            session: None,
            key: subject.constraint_key(),
            by: ana.clone(),
            tool: "t".to_owned(),
            gate: None,
            reason: Some("not now".to_owned()),
            until: Millis(100),
        };
        let events = [
            Event::Compiled { digest: subject.digest() },
            Event::Edited { by: ana.clone(), to: Digest::hash_bytes(b"other rules") },
            Event::ServerApproval {
                server: "files".to_owned(),
                change: ServerChange::Revoked,
                by: ana.clone(),
                at: Millis(7),
            },
            Event::Granted(grant(1, GrantCoverage::Exact(subject.digest()))),
            Event::Granted(ending),
            Event::Constrained(denial),
        ];
        let (mut state, mut replayed) = (State::default(), State::default());
        for event in &events {
            state.apply(event);
            replayed.apply(&serde_json::from_str(&serde_json::to_string(event).unwrap()).unwrap());
        }
        assert_eq!(state, replayed);
        assert_eq!(state.digest(), Some(subject.digest()), "what is meant to be is not in force");
        assert_eq!(state.next_end(), Some(Millis(50)));
        assert!(state.constraints().find_stopping(&subject, Millis(99)).is_some());
        assert!(state.constraints().find_stopping(&subject, Millis(100)).is_none());

        state.apply(&Event::Tidied { at: Millis(50) });
        assert_eq!((state.grants().iter().count(), state.constraints().iter().count()), (1, 1));
        assert_eq!(state.next_end(), Some(Millis(100)));
        let again = Constraint { until: Millis(200), ..state.constraints().iter().next().unwrap().clone() };
        state.apply(&Event::Constrained(again));
        assert!(!state.is_untidy(Millis(199)) && state.is_untidy(Millis(200)), "a denial given anew ends when it says");
        let (principal, key) = (subject.principal.clone(), subject.constraint_key());
        state.apply(&Event::Lifted { principal, key, session: None, by: ana });
        assert_eq!((state.constraints().iter().count(), state.next_end()), (0, None));
    }

    #[test]
    fn a_denial_of_one_session_stops_no_other_and_is_lifted_alone() {
        let (ana, here) = (PrincipalId::new("person:ana"), subject("t", json!({"a": 1})));
        let there = PolicySubject { session: SessionId::new("s2"), ..here.clone() };
        let denial = |session: Option<&PolicySubject>, until| {
            Event::Constrained(Constraint {
                principal: here.principal.clone(),
                session: session.map(|subject| subject.session.clone()),
                key: here.constraint_key(),
                by: ana.clone(),
                tool: "t".to_owned(),
                gate: None,
                reason: None,
                until: Millis(until),
            })
        };
        let mut state = State::default();
        let stopped = |state: &State, at| {
            [&here, &there].map(|subject| state.constraints().find_stopping(subject, Millis(at)).is_some())
        };
        state.apply(&denial(Some(&here), 100));
        assert_eq!(stopped(&state, 99), [true, false]);
        assert_eq!(stopped(&state, 100), [false, false]);
        // A denial for all sessions is kept next to it, whichever of them ends first.
        state.apply(&denial(None, 50));
        assert_eq!((stopped(&state, 49), stopped(&state, 50)), ([true, true], [true, false]));
        state.apply(&denial(None, 200));
        assert_eq!(stopped(&state, 150), [true, true]);
        state.apply(&Event::Tidied { at: Millis(120) });
        assert_eq!((state.constraints().iter().count(), state.next_end()), (1, Some(Millis(200))));
        state.apply(&denial(Some(&here), 300));
        let key = here.constraint_key();
        let lifted = |session: Option<&PolicySubject>| Event::Lifted {
            principal: here.principal.clone(),
            key,
            session: session.map(|subject| subject.session.clone()),
            by: ana.clone(),
        };
        state.apply(&lifted(None));
        assert_eq!(stopped(&state, 120), [true, false]);
        state.apply(&lifted(Some(&there)));
        assert_eq!(stopped(&state, 120), [true, false], "that is another one");
        state.apply(&lifted(Some(&here)));
        assert_eq!((stopped(&state, 120), state.next_end()), ([false, false], None));
        let old = r#"{"lifted":{"principal":"p","key":"KEY","by":"ana"}}"#.replace("KEY", &key.to_string());
        assert!(
            matches!(serde_json::from_str(&old), Ok(Event::Lifted { session: None, .. })),
            "what earlier versions wrote"
        );
        assert_eq!(serde_json::to_string(&lifted(None)).unwrap().matches("session").count(), 0);
    }
}
