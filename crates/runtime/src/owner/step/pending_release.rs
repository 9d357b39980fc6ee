//! Items that leave once their batch is durable.
//!
//! It must not know how a batch is decided, or how it becomes durable.

use std::sync::Arc;

use countersign_core::engine::RecordedFact;
use tokio::sync::oneshot;

use super::LogOwner;
use crate::{
    deliver::{LiveUpdate, ReleasedItem},
    inbox::ReplyResult,
    owner::fact_tracing,
};

/// Item to release once the batch is durable, in order.
pub(super) enum PendingRelease {
    Facts(Vec<RecordedFact>),
    Live(LiveUpdate),
    Reply(oneshot::Sender<ReplyResult>, ReplyResult),
    Read(Box<dyn FnOnce(u64) + Send>),
}

impl LogOwner {
    /// Lets everything of a durable batch leave, in order.
    pub(super) fn release_all(&mut self, releases: Vec<PendingRelease>) {
        let mut replies = Vec::new();
        for release in releases {
            match release {
                PendingRelease::Facts(facts) => {
                    for recorded in facts {
                        self.meters.count_event(&recorded, self.engine.state());
                        fact_tracing::trace_fact(&recorded);
                        if let Some(content) = &recorded.fact.content {
                            self.contents.cache_text(recorded.meta.lsn, content);
                        }
                        self.ring.push(ReleasedItem::Fact(Arc::new(recorded)));
                    }
                }
                PendingRelease::Live(live) => self.ring.push(ReleasedItem::Live(Arc::new(live))),
                PendingRelease::Reply(reply, mut replied) => {
                    if let Ok(replied) = &mut replied {
                        replied.position = self.ring.pushed_count();
                    }
                    replies.push((reply, replied));
                }
                PendingRelease::Read(send) => send(self.ring.pushed_count()),
            }
        }
        // A receiver of a frame must be able to see the replies that come before it.
        for (reply, replied) in replies {
            let _ = reply.send(replied);
        }
        self.ring.publish();
    }
}
