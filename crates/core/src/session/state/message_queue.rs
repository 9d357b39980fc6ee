//! The queues of messages that wait in a session.
//!
//! It must not know when a message is taken from a queue.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::Session;
use crate::{id::Lsn, run::RunMetadata, session::event::SessionEntryKind, time::Millis};

/// A queue of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageQueue {
    /// Messages that are read while a run works.
    Steering,
    /// Messages that are read when a run would end.
    FollowUp,
    /// Prompts that wait for a compaction.
    Prompt,
    /// Commands that a person ran while a run worked; they enter before the next prompt.
    Held,
    /// Messages that wait for a run of their own.
    Next,
}

/// A message in a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedMessage {
    /// Position of its content.
    pub content: Lsn,
    /// Time at which it was queued.
    pub at: Millis,
    /// An estimate of its length.
    pub tokens: u64,
    /// Its kind as an entry.
    pub kind: SessionEntryKind,
    /// Metadata of its run, if it gets one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marks: Option<Box<RunMetadata>>,
}

impl Session {
    /// Returns the prompt that waits for a compaction.
    pub fn awaited_prompt(&self) -> Option<&QueuedMessage> {
        self.prompts.front()
    }

    /// Returns the number of waiting messages: steering, follow-ups, prompts that wait for a compaction, and those that wait for a run.
    pub fn queued_count(&self) -> usize {
        self.steering.len() + self.follow_up.len() + self.prompts.len() + self.next.len()
    }

    /// Returns the positions of the contents of the messages that [`Session::queued_count`] counts, in sending order.
    pub fn queued_contents(&self) -> impl Iterator<Item = Lsn> + '_ {
        let queues = [&self.prompts, &self.steering, &self.follow_up, &self.next];
        queues.into_iter().flatten().map(|queued| queued.content)
    }

    pub(crate) fn queue(&self, queue: MessageQueue) -> &VecDeque<QueuedMessage> {
        match queue {
            MessageQueue::Steering => &self.steering,
            MessageQueue::FollowUp => &self.follow_up,
            MessageQueue::Prompt => &self.prompts,
            MessageQueue::Held => &self.held,
            MessageQueue::Next => &self.next,
        }
    }

    pub(super) fn queue_mut(&mut self, queue: MessageQueue) -> &mut VecDeque<QueuedMessage> {
        match queue {
            MessageQueue::Steering => &mut self.steering,
            MessageQueue::FollowUp => &mut self.follow_up,
            MessageQueue::Prompt => &mut self.prompts,
            MessageQueue::Held => &mut self.held,
            MessageQueue::Next => &mut self.next,
        }
    }
}
