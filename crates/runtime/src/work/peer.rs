//! A call at a peer: it is handed over on the line for which it was started, and what comes back is its end.

use std::sync::Arc;

use countersign_core::{
    call::{CallDetails, CallProgress, CallResult, DoubtCause},
    id::PeerId,
};
use countersign_tools::CallOutput;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::call::CallWork;
use crate::{
    inbox::Source,
    message_content::returned,
    peers::{Errand, Fate, Order, Peers, Taken, Words},
};

/// What a model is told of a call that was stopped before it left.
const NOT_SENT: &str = "Tool execution was aborted before it was sent.";
/// And of one that its peer had on an earlier line and was not asked about any more.
const NOT_ASKED: &str = "Outcome unknown: it was stopped before whoever has it could be asked what became of it.";

impl CallWork {
    /// Nothing of it left: not the call, or not the question what became of it.
    const fn unsent(&self) -> CallProgress {
        CallProgress::Unsent { start: self.start }
    }

    /// Does the call at `peer`. A stopped call does not wait for what its peer says of that: it ends at once.
    pub(super) async fn at_peer(
        &self,
        peer: &PeerId,
        peers: Peers,
        content: CallDetails,
        results: &Source,
        cancel: CancellationToken,
    ) -> CallProgress {
        let content = Arc::new(content);
        let Some(line) = self.line.and_then(|line| peers.on(peer, line)) else { return self.unsent() };
        let (errand, mut taken) = Errand::new(self.call, self.session.clone(), Arc::clone(&content), results.clone());
        let order = Box::new(errand);
        let order = if self.is_asking { Order::Ask(order) } else { Order::Do(order) };
        if line.send(order).is_err() {
            return self.unsent();
        }
        // Only the door's end keeps the line open.
        let line = line.downgrade();
        let stop = || line.upgrade().map(|line| line.send(Order::Stop(self.call)));
        let taken = tokio::select! {
            biased;
            taken = &mut taken => taken,
            () = cancel.cancelled() => {
                taken.close();
                // It may have been sent in this very moment.
                match taken.try_recv() {
                    Ok(taken) => Ok(taken),
                    Err(_) if self.is_asking => return left(NOT_ASKED.to_owned(), DoubtCause::Stopped),
                    Err(_) => return CallProgress::NotBegun(NOT_SENT.into()),
                }
            }
        };
        let (words, patience, mut updates, mut end) = match taken {
            Ok(Taken::Sent { words, patience, updates, end }) => (words, patience, updates, end),
            // What it may have done on an earlier line nobody can tell.
            Ok(Taken::Refused(why)) if self.is_asking => return left(why, DoubtCause::PeerLost),
            Ok(Taken::Refused(why)) => return CallProgress::NotBegun(why.into()),
            Err(_) => return self.unsent(),
        };
        let patience = patience.unwrap_or(self.patience);
        let Words { stopped, gone, silent } = words;
        let mut is_heard = true;
        let mut heard_at = Instant::now();
        loop {
            tokio::select! {
                biased;
                ended = &mut end => {
                    // What it said before its end may have come with it, and is told first.
                    if let Some(output) = unseen(&mut updates) {
                        self.progress(output, results).await;
                    }
                    return match ended {
                        Ok(Fate::Done { output, left_behind }) => {
                            let said = returned(&content.tool, &content.tool_call_id, output);
                            CallProgress::Returned(Box::new(CallResult { left_behind, ..said }))
                        }
                        Ok(Fate::NotBegun(why)) if self.is_asking => CallProgress::NotBegun(why.into()),
                        Ok(Fate::NotBegun(why) | Fate::Lost(why)) => left(why, DoubtCause::PeerLost),
                        Err(_) => left(gone, DoubtCause::LineGone),
                    };
                }
                () = cancel.cancelled() => {
                    let _ = stop();
                    return left(stopped, DoubtCause::Stopped);
                }
                changed = updates.changed(), if is_heard => {
                    heard_at = Instant::now();
                    let latest = updates.borrow_and_update().clone();
                    match (changed, latest) {
                        (Ok(()), Some(output)) => self.progress(output, results).await,
                        (Err(_), _) => is_heard = false,
                        (Ok(()), None) => {}
                    }
                }
                () = tokio::time::sleep_until(heard_at + patience) => {
                    let _ = stop();
                    return left(silent, DoubtCause::PeerSilent);
                }
            }
        }
    }
}

/// The latest update if nobody was told of it yet.
fn unseen(updates: &mut watch::Receiver<Option<CallOutput>>) -> Option<CallOutput> {
    let latest = updates.borrow_and_update();
    if latest.has_changed() { latest.clone() } else { None }
}

fn left(text: String, since: DoubtCause) -> CallProgress {
    CallProgress::Left { text: text.into(), since }
}
