//! Client that does the work of a session's host: one that follows its events, and only while it does.
//!
//! It must not know what work there is. Source: DESIGN §2, 12: a frame that causes work belongs to one connection.

use std::collections::BTreeSet;

use countersign_adapter_omp::ClientInput;
use countersign_protocol::gjc::bridge::REPLAY_WINDOW;
use tokio::sync::{mpsc, watch};

/// The client that can be given work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HostPresence {
    /// Counts those who were.
    pub(super) number: u64,
    /// True if this client is still connected.
    pub(super) is_here: bool,
    /// True if it was here before, under another number.
    pub(super) is_back: bool,
}

/// Reports the present client to the adapter, until it can no longer change or the adapter has ended.
pub(super) async fn report_presence(mut present: watch::Receiver<HostPresence>, adapter: mpsc::Sender<ClientInput>) {
    let mut reported = HostPresence::default();
    loop {
        let now = *present.borrow_and_update();
        let words = match (now.is_here, now.number == reported.number) {
            (true, false) => {
                let back = now.is_back.then_some(ClientInput::Resumed);
                [Some(ClientInput::Arrived(now.number)), back]
            }
            (false, _) if reported.is_here => [Some(ClientInput::Left), None],
            (true, true) | (false, _) => [None, None],
        };
        for word in words.into_iter().flatten() {
            if adapter.send(word).await.is_err() {
                return;
            }
        }
        reported = now;
        if present.changed().await.is_err() {
            return;
        }
    }
}

/// The frames that cause work, among those that are kept.
#[derive(Debug, Default)]
pub(super) struct WorkFrames(BTreeSet<u64>);

impl WorkFrames {
    /// Notes the frame with this number.
    pub(super) fn insert_frame(&mut self, number: u64) {
        self.0.insert(number);
        while self.0.len() > REPLAY_WINDOW {
            self.0.pop_first();
        }
    }

    /// Reports whether a frame causes work.
    pub(super) fn is_work(&self, number: u64) -> bool {
        self.0.contains(&number)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::{mpsc, watch};

    use super::{HostPresence, report_presence};

    #[tokio::test]
    async fn the_adapter_learns_of_present_hosts_and_not_of_brief_ones() {
        let (changes, present) = watch::channel(HostPresence::default());
        let (adapter, mut messages) = mpsc::channel(8);
        tokio::spawn(report_presence(present, adapter));
        let mut next = async |now: HostPresence, count: usize| {
            changes.send_replace(now);
            let mut words = Vec::new();
            for _ in 0..count {
                words.push(format!("{:?}", messages.recv().await.unwrap()));
            }
            words
        };
        let here = |number, is_back| HostPresence { number, is_here: true, is_back };
        assert_eq!(next(here(1, false), 1).await, ["Arrived(1)"]);
        assert_eq!(next(HostPresence { is_here: false, ..here(1, false) }, 1).await, ["Left"]);
        assert_eq!(next(here(3, true), 2).await, ["Arrived(3)", "Resumed"]);
        drop(changes);
        assert!(messages.recv().await.is_none());
    }
}
