//! A call at a peer: it is handed over on the line for which it was started, and what comes back is its end.

use std::sync::Arc;

use countersign_core::{
    call::{Content, Known, Progress},
    id::PeerId,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::call::{CallWork, returned};
use crate::{
    owner::Source,
    peers::{Errand, Order, Peers, Taken},
};

/// What a model is told of a call that was stopped before it left.
const NOT_SENT: &str = "Tool execution was aborted before it was sent.";

impl CallWork {
    const fn unsent(&self) -> Progress {
        Progress::Unsent { start: self.start }
    }

    /// Does the call at `peer`. A stopped call does not wait for what its peer says of that: it ends at once.
    pub(super) async fn at_peer(
        &self,
        peer: &PeerId,
        peers: Peers,
        content: Content,
        results: &Source,
        cancel: CancellationToken,
    ) -> Progress {
        let content = Arc::new(content);
        let Some(line) = self.line.and_then(|line| peers.on(peer, line)) else { return self.unsent() };
        let (errand, mut taken) = Errand::new(self.call, self.session.clone(), Arc::clone(&content), results.clone());
        if line.send(Order::Do(Box::new(errand))).is_err() {
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
                    Err(_) => return Progress::NotBegun(NOT_SENT.into()),
                }
            }
        };
        let (words, mut updates, mut end) = match taken {
            Ok(Taken::Sent(words, updates, end)) => (words, updates, end),
            Ok(Taken::Refused(why)) => return Progress::NotBegun(why.into()),
            Err(_) => return self.unsent(),
        };
        let left = |text: String, since| Progress::Left { text: text.into(), since };
        let mut is_heard = true;
        let mut heard_at = Instant::now();
        loop {
            tokio::select! {
                biased;
                ended = &mut end => return match ended {
                    Ok(output) => Progress::Returned(Box::new(returned(&content, output))),
                    Err(_) => left(words.gone, Known::LineGone),
                },
                () = cancel.cancelled() => {
                    let _ = stop();
                    return left(words.stopped, Known::Stopped);
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
                () = tokio::time::sleep_until(heard_at + self.patience) => {
                    let _ = stop();
                    return left(words.silent, Known::PeerSilent);
                }
            }
        }
    }
}
