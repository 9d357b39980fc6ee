//! What deciders and settle rules read, and what they give back.

use super::{ActiveRules, AdmittedContent, EngineReply, Fact, HostedRules, State};
use crate::{
    digest::Digest,
    id::{IdGenerator, Lsn, SessionId},
    session::Session,
    time::Millis,
};

/// What a decision may use beside the state: the time and ids, handed in.
#[derive(Clone, Debug)]
pub struct DecisionContext {
    /// The time.
    pub now: Millis,
    /// Where ids come from.
    pub fresh: IdGenerator,
}

/// What decisions read.
#[derive(Clone, Copy)]
pub(crate) struct DecisionView<'a> {
    pub(crate) state: &'a State,
    pub(crate) admitted: &'a AdmittedContent,
    /// Of this process, or of the session that is looked at.
    pub(crate) rules: &'a ActiveRules,
    pub(crate) hosted_rules: &'a HostedRules,
    /// True once nothing new may begin in this process.
    pub(crate) closing: bool,
    /// The last record that is known to be durable.
    pub(crate) durable: Lsn,
}

impl<'a> DecisionView<'a> {
    /// The same with the rules of a session in force. None if they come from its host and are not at hand.
    pub(crate) fn for_session(self, session: &Session) -> Option<Self> {
        let Some(hosted) = session.hosted_state() else { return Some(self) };
        let rules = self.hosted_rules.rules_by_digest(session.id(), hosted.rules)?;
        Some(Self { rules, ..self })
    }

    /// The rules that the host of a session brought which is about to be opened.
    pub(crate) fn rules_before_open(self, session: &SessionId) -> Option<(Digest, &'a ActiveRules)> {
        self.hosted_rules.newest_rules(session)
    }
}

/// What a decider gives back.
#[derive(Debug)]
pub(crate) struct DecisionResult {
    pub(crate) facts: Vec<Fact>,
    pub(crate) reply: EngineReply,
}
