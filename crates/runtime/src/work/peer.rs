//! A call at a peer: it is handed over on the line for which it was started, and the peer's result is its end.

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
    inbox::CommandSource,
    message_content::encode_tool_result,
    peers::{CallAcceptance, PeerCall, PeerOrder, PeerOutcome, PeerRegistry, PeerTexts},
};

/// Text for the model about a call that was stopped before it left.
const NOT_SENT: &str = "Tool execution was aborted before it was sent.";
/// Text about a call that its peer had on an earlier line and whose outcome was not requested any more.
const NOT_ASKED: &str = "Outcome unknown: it was stopped before whoever has it could be asked what became of it.";

impl CallWork {
    /// Returns the progress when nothing left: not the call, or not the request for its outcome.
    const fn unsent_progress(&self) -> CallProgress {
        CallProgress::Unsent { start: self.start }
    }

    /// Does the call at `peer`. A stopped call does not wait for its peer's answer to that: it ends at once.
    pub(super) async fn at_peer(
        &self,
        peer: &PeerId,
        peers: PeerRegistry,
        content: CallDetails,
        results: &CommandSource,
        cancel: CancellationToken,
    ) -> CallProgress {
        let content = Arc::new(content);
        let Some(line) = self.line.and_then(|line| peers.sender_for(peer, line)) else { return self.unsent_progress() };
        let (errand, mut taken) = PeerCall::new(self.call, self.session.clone(), Arc::clone(&content), results.clone());
        let order = Box::new(errand);
        let order = if self.is_asking { PeerOrder::Ask(order) } else { PeerOrder::Do(order) };
        if line.send(order).is_err() {
            return self.unsent_progress();
        }
        // Only the adapter's end keeps the line open.
        let line = line.downgrade();
        let stop = || line.upgrade().map(|line| line.send(PeerOrder::Stop(self.call)));
        let taken = tokio::select! {
            biased;
            taken = &mut taken => taken,
            () = cancel.cancelled() => {
                taken.close();
                // It may have been sent in this very moment.
                match taken.try_recv() {
                    Ok(taken) => Ok(taken),
                    Err(_) if self.is_asking => return left_progress(NOT_ASKED.to_owned(), DoubtCause::Stopped),
                    Err(_) => return CallProgress::NotBegun(NOT_SENT.into()),
                }
            }
        };
        let (words, patience, mut updates, mut end) = match taken {
            Ok(CallAcceptance::Sent { words, patience, updates, end }) => (words, patience, updates, end),
            // Its effect on an earlier line is unknown.
            Ok(CallAcceptance::Refused(why)) if self.is_asking => return left_progress(why, DoubtCause::PeerLost),
            Ok(CallAcceptance::Refused(why)) => return CallProgress::NotBegun(why.into()),
            Err(_) => return self.unsent_progress(),
        };
        let patience = patience.unwrap_or(self.patience);
        let PeerTexts { stopped, gone, silent } = words;
        let mut is_heard = true;
        let mut heard_at = Instant::now();
        loop {
            tokio::select! {
                biased;
                ended = &mut end => {
                    // An update before the end may have come with it, and is released first.
                    if let Some(output) = unseen_update(&mut updates) {
                        self.send_progress(output, results).await;
                    }
                    return match ended {
                        Ok(PeerOutcome::Done { output, left_behind }) => {
                            let result = encode_tool_result(&content.tool, &content.tool_call_id, output);
                            CallProgress::Returned(Box::new(CallResult { left_behind, ..result }))
                        }
                        Ok(PeerOutcome::NotBegun(why)) if self.is_asking => CallProgress::NotBegun(why.into()),
                        Ok(PeerOutcome::NotBegun(why) | PeerOutcome::Lost(why)) => left_progress(why, DoubtCause::PeerLost),
                        Err(_) => left_progress(gone, DoubtCause::LineGone),
                    };
                }
                () = cancel.cancelled() => {
                    let _ = stop();
                    return left_progress(stopped, DoubtCause::Stopped);
                }
                changed = updates.changed(), if is_heard => {
                    heard_at = Instant::now();
                    let latest = updates.borrow_and_update().clone();
                    match (changed, latest) {
                        (Ok(()), Some(output)) => self.send_progress(output, results).await,
                        (Err(_), _) => is_heard = false,
                        (Ok(()), None) => {}
                    }
                }
                () = tokio::time::sleep_until(heard_at + patience) => {
                    let _ = stop();
                    return left_progress(silent, DoubtCause::PeerSilent);
                }
            }
        }
    }
}

/// Returns the latest update if it was not released yet.
fn unseen_update(updates: &mut watch::Receiver<Option<CallOutput>>) -> Option<CallOutput> {
    let latest = updates.borrow_and_update();
    if latest.has_changed() { latest.clone() } else { None }
}

fn left_progress(text: String, since: DoubtCause) -> CallProgress {
    CallProgress::Left { text: text.into(), since }
}
