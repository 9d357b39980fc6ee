//! Appends entries one after the other to a session's tree.

use std::sync::Arc;

use super::{DecisionContext, event::Event, event::Fact};
use crate::{
    id::{EntryId, Lsn},
    session::{self, MessageContent, MessageQueue, QueuedMessage, Session, SessionEntryKind, TakeMode},
    time::Millis,
};

/// Maximum number of messages that are taken out of a queue together, so that a batch can hold them.
const MOST_AT_ONCE: usize = 256;

/// Makes the facts of consecutive entries: each follows the one before.
pub(crate) struct BranchBuilder<'a> {
    session: &'a Session,
    leaf: Option<EntryId>,
    made: u32,
    facts: Vec<Fact>,
}

impl<'a> BranchBuilder<'a> {
    /// Begins after the session's leaf.
    pub(crate) fn new(session: &'a Session) -> Self {
        Self { session, leaf: session.leaf().cloned(), made: 0, facts: Vec::new() }
    }

    /// Begins before the first entry, where the conversation restarts.
    pub(crate) fn from_root(session: &'a Session) -> Self {
        Self { session, leaf: None, made: 0, facts: Vec::new() }
    }

    /// Returns the session that it belongs to.
    pub(crate) fn session(&self) -> &'a Session {
        self.session
    }

    /// Returns the facts in order.
    pub(crate) fn into_facts(self) -> Vec<Fact> {
        self.facts
    }

    /// Appends a fact of the session.
    pub(crate) fn push_event(&mut self, event: Event) {
        self.push_with(event, None);
    }

    /// Appends a fact of the session with content.
    pub(crate) fn push_with(&mut self, event: Event, content: Option<Arc<str>>) {
        self.facts.push(Fact { event, session: Some(self.session.id().clone()), content });
    }

    /// Appends an entry with content of its own.
    pub(crate) fn push_message(
        &mut self,
        kind: SessionEntryKind,
        message: MessageContent,
        context: &mut DecisionContext,
    ) -> EntryId {
        self.push_message_at(kind, message, None, context)
    }

    /// Appends an entry with content of its own, which was begun before it is recorded.
    pub(crate) fn push_message_at(
        &mut self,
        kind: SessionEntryKind,
        message: MessageContent,
        made_at: Option<Millis>,
        context: &mut DecisionContext,
    ) -> EntryId {
        let id = self.fresh_id(context);
        let entry = NewEntry { id: id.clone(), kind, tokens: message.tokens, made_at, content_at: None };
        self.push_entry(entry, Some(message.content));
        id
    }

    fn fresh_id(&self, context: &mut DecisionContext) -> EntryId {
        // Eight digits are short enough to collide in a long session.
        loop {
            let id = EntryId::new(context.fresh.next_hex(4));
            if self.session.entry(&id).is_none() {
                return id;
            }
        }
    }

    fn push_entry(&mut self, new: NewEntry, content: Option<Arc<str>>) {
        let NewEntry { id, kind, tokens, made_at, content_at } = new;
        let parent = self.leaf.replace(id.clone());
        self.made += 1;
        let event = session::Event::Entry { id, parent, kind, tokens, made_at, content_at };
        self.push_with(Event::Session(event), content);
    }

    /// Takes messages out of a queue and appends them. True if there were any.
    pub(crate) fn drain_queue(&mut self, queue: MessageQueue, take: TakeMode, context: &mut DecisionContext) -> bool {
        let most = match (take, queue) {
            (TakeMode::One, _) => 1,
            // The rest of a longer queue is taken by the next look at it.
            (TakeMode::All, MessageQueue::Steering | MessageQueue::FollowUp) => MOST_AT_ONCE,
            (TakeMode::All, MessageQueue::Prompt | MessageQueue::Held | MessageQueue::Next) => usize::MAX,
        };
        let queued: Vec<QueuedMessage> = self.session.queue(queue).iter().take(most).cloned().collect();
        let any = !queued.is_empty();
        for queued in queued {
            self.push_event(Event::Session(session::Event::Dequeued { queue }));
            let id = self.fresh_id(context);
            let (kind, tokens, content_at) = (queued.kind, queued.tokens, Some(queued.content));
            self.push_entry(NewEntry { id, kind, tokens, made_at: None, content_at }, None);
        }
        any
    }
}

/// An entry that has no place in the tree yet.
struct NewEntry {
    id: EntryId,
    kind: SessionEntryKind,
    tokens: u64,
    made_at: Option<Millis>,
    content_at: Option<Lsn>,
}
