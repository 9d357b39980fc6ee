//! Notices to the senders of queued messages that a gate waits for its answer first.
//!
//! Two tasks send notices: the one that queues a message, if the card of a gate is shown already, and the one that shows a card, to all
//! messages that are queued then. Each message gets one notice.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use countersign_core::{
    channel::{MessageOrigin, OutboundRequest},
    id::SessionId,
};
use countersign_protocol::gsv::message::GsvMessage;
use parking_lot::Mutex;

use super::{
    super::{GsvAdapter, delivery, registry::session_of},
    answering,
    session_snapshot::{QueuedMessage, read_queue},
};

/// Queued messages whose clients have their notice, by session.
#[derive(Default)]
pub(crate) struct SentNotices(Mutex<BTreeMap<String, BTreeSet<String>>>);

impl SentNotices {
    /// Returns the messages among those that wait in a session whose notice is due, and notes that they get it. Those that wait no
    /// longer are forgotten.
    fn take_due(&self, key: &str, waiting: Vec<QueuedMessage>) -> Vec<QueuedMessage> {
        let mut sent = self.0.lock();
        let before = sent.remove(key).unwrap_or_default();
        if waiting.is_empty() {
            return waiting;
        }
        sent.insert(key.to_owned(), waiting.iter().map(|message| message.run.clone()).collect());
        waiting.into_iter().filter(|message| !before.contains(&message.run)).collect()
    }

    /// Forgets a message that waits no longer: its client may use the name of the run again.
    pub(super) fn forget(&self, key: &str, run: &str) {
        let mut sent = self.0.lock();
        if let Some(runs) = sent.get_mut(key) {
            runs.remove(run);
            if runs.is_empty() {
                sent.remove(key);
            }
        }
    }
}

/// Notifies the clients of messages that wait in a session while the card of a gate is shown there. The original's command line waits
/// for a `final` after each message, and blocks input meanwhile.
pub(super) async fn notify_clients(door: &GsvAdapter, key: &str) {
    let Some((Some(gate), waiting)) = read_queue(door, &session_of(key)).await else { return };
    if !door.cards.is_current(&session_of(key), gate.id) {
        // Its card comes first, and the notices after it.
        return;
    }
    for QueuedMessage { run, origin } in door.notices.take_due(key, waiting) {
        let text = answering::awaiting_text(&gate, origin.as_ref());
        door.broadcast_notice(key, &run, &GsvMessage::gateway_message(&text, door.context.clock.now().0));
    }
}

/// Notifies the chats of messages that wait in a session while a gate waits. A chat that may answer it has its card first.
pub(crate) async fn notify_chats(door: &Arc<GsvAdapter>, session: &SessionId) {
    let Some((Some(gate), waiting)) = read_queue(door, session).await else { return };
    for QueuedMessage { run, origin } in waiting {
        let Some(origin) = origin.filter(|origin| gate.is_in_chat || !gate.may_be_answered_by(origin)) else {
            continue;
        };
        let text = answering::awaiting_text(&gate, Some(&origin));
        let MessageOrigin { from, message, .. } = origin;
        let notice = OutboundRequest {
            to: from,
            text: text.into(),
            session: Some(session.as_str().to_owned()),
            reply_to: message,
            key: Some(format!("awaited:{run}")),
            media: None,
        };
        // The message is taken whether or not the notice is sent.
        if let Err(problem) = delivery::enqueue_message(door, notice).await {
            tracing::warn!(%problem, "failed to send a notice to a chat");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{QueuedMessage, SentNotices};

    #[test]
    fn each_message_that_waits_gets_one_notice() {
        let notices = SentNotices::default();
        let due = |key: &str, runs: &[&str]| -> Vec<String> {
            let waiting = runs.iter().map(|run| QueuedMessage { run: (*run).to_owned(), origin: None }).collect();
            notices.take_due(key, waiting).into_iter().map(|message| message.run).collect()
        };
        assert_eq!(due("here", &["a", "b"]), ["a", "b"]);
        assert_eq!(due("there", &["a"]), ["a"]);
        assert_eq!(due("here", &["a", "b", "c"]), ["c"]);
        assert_eq!(due("here", &["c"]), [""; 0]);
        // A client may use a name again once its run has begun.
        notices.forget("here", "c");
        assert_eq!(due("here", &["c"]), ["c"]);
        assert_eq!(due("here", &[]), [""; 0]);
        assert_eq!(due("here", &["c"]), ["c"]);
        notices.forget("here", "c");
        notices.forget("here", "d");
        notices.forget("there", "a");
        assert!(notices.0.lock().is_empty());
    }
}
