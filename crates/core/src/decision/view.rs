//! Input and output of deciders and settle rules.

use super::{ActiveRules, AdmittedContent, EngineReply, Fact, HostedRules, State};
use crate::{
    digest::Digest,
    id::{IdGenerator, Lsn, SessionId},
    session::Session,
    time::Millis,
};

/// Input of a decision in addition to the state: the time and ids, handed in.
#[derive(Clone, Debug)]
pub struct DecisionContext {
    /// The time.
    pub now: Millis,
    /// Source of ids.
    pub fresh: IdGenerator,
}

/// Input of a decision.
#[derive(Clone, Copy)]
pub(crate) struct DecisionView<'a> {
    pub(crate) state: &'a State,
    pub(crate) admitted: &'a AdmittedContent,
    /// Rules of this process, or of the session that is decided.
    pub(crate) rules: &'a ActiveRules,
    pub(crate) hosted_rules: &'a HostedRules,
    /// True once nothing new may begin in this process.
    pub(crate) closing: bool,
    /// The last record that is known to be durable.
    pub(crate) durable: Lsn,
}

impl<'a> DecisionView<'a> {
    /// Returns the same with the rules of a session in force. None if they come from its host and are not loaded.
    pub(crate) fn for_session(self, session: &Session) -> Option<Self> {
        let Some(hosted) = session.hosted_state() else { return Some(self) };
        let rules = self.hosted_rules.rules_by_digest(session.id(), hosted.rules)?;
        Some(Self { rules, ..self })
    }

    /// Returns the rules of the host whose session is about to be opened.
    pub(crate) fn rules_before_open(self, session: &SessionId) -> Option<(Digest, &'a ActiveRules)> {
        self.hosted_rules.newest_rules(session)
    }
}

/// Output of a decider.
#[derive(Debug)]
pub(crate) struct DecisionResult {
    pub(crate) facts: Vec<Fact>,
    pub(crate) reply: EngineReply,
}
