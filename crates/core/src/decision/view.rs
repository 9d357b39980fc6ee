//! What deciders and settle rules read, and what they give back.

use super::{Admitted, Fact, Guests, Reply, Rules, State};
use crate::{
    digest::Digest,
    id::{Fresh, Lsn, SessionId},
    session::Session,
    time::Millis,
};

/// What a decision may use beside the state: the time and ids, handed in.
#[derive(Clone, Debug)]
pub struct Context {
    /// The time.
    pub now: Millis,
    /// Where ids come from.
    pub fresh: Fresh,
}

/// What decisions read.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) state: &'a State,
    pub(crate) admitted: &'a Admitted,
    /// Of this process, or of the session that is looked at.
    pub(crate) rules: &'a Rules,
    pub(crate) guests: &'a Guests,
    /// True once nothing new may begin in this process.
    pub(crate) closing: bool,
    /// The last record that is known to be durable.
    pub(crate) durable: Lsn,
}

impl<'a> View<'a> {
    /// The same with the rules of a session in force. None if they come from its host and are not at hand.
    pub(crate) fn of(self, session: &Session) -> Option<Self> {
        let Some(hosted) = session.hosted() else { return Some(self) };
        let rules = self.guests.of(session.id(), hosted.rules)?;
        Some(Self { rules, ..self })
    }

    /// The rules that the host of a session brought which is about to be opened.
    pub(crate) fn awaiting(self, session: &SessionId) -> Option<(Digest, &'a Rules)> {
        self.guests.awaiting(session)
    }
}

/// What a decider gives back.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) facts: Vec<Fact>,
    pub(crate) reply: Reply,
}
