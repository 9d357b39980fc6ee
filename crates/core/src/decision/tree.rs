//! Puts entries one behind the other into a session's tree.

use std::sync::Arc;

use super::{Context, event::Event, event::Fact};
use crate::{
    id::{EntryId, Lsn},
    session::{self, Kind, Queue, Queued, Said, Session, Take},
    time::Millis,
};

/// How many messages are taken out of a queue together, so that a batch can hold them.
const MOST_AT_ONCE: usize = 256;

/// Makes the facts of consecutive entries: each follows the one before.
pub(crate) struct Branch<'a> {
    session: &'a Session,
    leaf: Option<EntryId>,
    made: u32,
    facts: Vec<Fact>,
}

impl<'a> Branch<'a> {
    /// Begins at the session's leaf.
    pub(crate) fn new(session: &'a Session) -> Self {
        Self { session, leaf: session.leaf().cloned(), made: 0, facts: Vec::new() }
    }

    /// Begins before the first entry, where the conversation begins anew.
    pub(crate) fn anew(session: &'a Session) -> Self {
        Self { session, leaf: None, made: 0, facts: Vec::new() }
    }

    /// The session that it belongs to.
    pub(crate) fn session(&self) -> &'a Session {
        self.session
    }

    /// The facts in order.
    pub(crate) fn finish(self) -> Vec<Fact> {
        self.facts
    }

    /// Puts any fact of the session's behind the last.
    pub(crate) fn push(&mut self, event: Event) {
        self.push_with(event, None);
    }

    /// Puts any fact of the session's with content behind the last.
    pub(crate) fn push_with(&mut self, event: Event, content: Option<Arc<str>>) {
        self.facts.push(Fact { event, session: Some(self.session.id().clone()), content });
    }

    /// Puts an entry with content of its own.
    pub(crate) fn say(&mut self, kind: Kind, said: Said, context: &mut Context) -> EntryId {
        self.say_at(kind, said, None, context)
    }

    /// Puts an entry with content of its own, which was begun before it is recorded.
    pub(crate) fn say_at(&mut self, kind: Kind, said: Said, made_at: Option<Millis>, context: &mut Context) -> EntryId {
        let id = self.fresh(context);
        let entry = New { id: id.clone(), kind, tokens: said.tokens, made_at, content_at: None };
        self.entry(entry, Some(said.content));
        id
    }

    fn fresh(&self, context: &mut Context) -> EntryId {
        // Eight digits are short enough to meet again in a long session.
        loop {
            let id = EntryId::new(context.fresh.hex(4));
            if self.session.entry(&id).is_none() {
                return id;
            }
        }
    }

    fn entry(&mut self, new: New, content: Option<Arc<str>>) {
        let New { id, kind, tokens, made_at, content_at } = new;
        let parent = self.leaf.replace(id.clone());
        self.made += 1;
        let event = session::Event::Entry { id, parent, kind, tokens, made_at, content_at };
        self.push_with(Event::Session(event), content);
    }

    /// Takes messages out of a queue and says them. True if there were any.
    pub(crate) fn take(&mut self, queue: Queue, take: Take, context: &mut Context) -> bool {
        let most = match (take, queue) {
            (Take::One, _) => 1,
            // What is left of a longer queue is taken by the next look at it.
            (Take::All, Queue::Steering | Queue::FollowUp) => MOST_AT_ONCE,
            (Take::All, Queue::Prompt | Queue::Held | Queue::Next) => usize::MAX,
        };
        let queued: Vec<Queued> = self.session.queue(queue).iter().take(most).cloned().collect();
        let any = !queued.is_empty();
        for queued in queued {
            self.push(Event::Session(session::Event::Dequeued { queue }));
            let id = self.fresh(context);
            let (kind, tokens, content_at) = (queued.kind, queued.tokens, Some(queued.content));
            self.entry(New { id, kind, tokens, made_at: None, content_at }, None);
        }
        any
    }
}

/// An entry that has no place in the tree yet.
struct New {
    id: EntryId,
    kind: Kind,
    tokens: u64,
    made_at: Option<Millis>,
    content_at: Option<Lsn>,
}
