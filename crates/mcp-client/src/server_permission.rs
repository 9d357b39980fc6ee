//! Permission to use a server, and the end of its use: both end what is under way.
//!
//! It must not know why an approval was withdrawn.

use tokio::sync::watch;

/// Number of withdrawals of a server's approval at one moment. A permission from then ends with the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ApprovalEpoch(u64);

/// Reason that a use of a server ended before its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UseEnd {
    /// The approval was withdrawn or renewed.
    Withdrawn,
    /// The server was stopped.
    Stopped,
}

/// Withdrawals and stops of one server.
pub(crate) struct ServerPermission {
    withdrawals: watch::Sender<u64>,
    stops: watch::Sender<()>,
}

impl ServerPermission {
    pub(crate) fn new() -> Self {
        Self { withdrawals: watch::Sender::new(0), stops: watch::Sender::new(()) }
    }

    /// Returns the permission of this moment.
    pub(crate) fn epoch(&self) -> ApprovalEpoch {
        ApprovalEpoch(*self.withdrawals.borrow())
    }

    /// Ends every permission of before, and the uses that are under way.
    pub(crate) fn withdraw(&self) {
        self.withdrawals.send_modify(|number| *number += 1);
        self.stop();
    }

    /// Ends the uses that are under way.
    pub(crate) fn stop(&self) {
        self.stops.send_replace(());
    }

    /// Waits for the end of a permission. `None` has no end.
    pub(crate) async fn wait_withdrawn(&self, epoch: Option<ApprovalEpoch>) {
        let Some(epoch) = epoch else { return std::future::pending().await };
        // The sender is of this permission.
        drop(self.withdrawals.subscribe().wait_for(|number| ApprovalEpoch(*number) != epoch).await);
    }

    /// Does something that needs a server to its end, unless the permission has ended or the server is stopped meanwhile. The work
    /// is dropped then.
    pub(crate) async fn run<T>(
        &self,
        epoch: Option<ApprovalEpoch>,
        work: impl Future<Output = T>,
    ) -> Result<T, UseEnd> {
        // Before the check: a withdrawal in between is seen as a stop.
        let mut stops = self.stops.subscribe();
        self.check(epoch)?;
        tokio::select! {
            biased;
            _ = stops.changed() => {
                self.check(epoch)?;
                Err(UseEnd::Stopped)
            }
            done = work => Ok(done),
        }
    }

    fn check(&self, epoch: Option<ApprovalEpoch>) -> Result<(), UseEnd> {
        if epoch.is_none_or(|epoch| epoch == self.epoch()) { Ok(()) } else { Err(UseEnd::Withdrawn) }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::FutureExt as _;

    use super::{ServerPermission, UseEnd};

    #[tokio::test]
    async fn a_withdrawal_ends_permissions_of_before_and_no_later_ones() {
        let server = ServerPermission::new();
        let before = Some(server.epoch());
        let waiting = server.run(before, pending::<()>());
        tokio::pin!(waiting);
        assert!((&mut waiting).now_or_never().is_none() && server.wait_withdrawn(before).now_or_never().is_none());
        server.withdraw();
        assert_eq!(waiting.await, Err(UseEnd::Withdrawn));
        server.wait_withdrawn(before).await;
        assert_eq!(server.run(before, ready(())).await, Err(UseEnd::Withdrawn));
        assert_eq!(server.run(Some(server.epoch()), ready(())).await, Ok(()));
        assert_eq!(server.run(None, ready(())).await, Ok(()));
    }

    #[tokio::test]
    async fn a_stop_ends_uses_under_way_and_no_permission() {
        let server = ServerPermission::new();
        let permission = Some(server.epoch());
        let waiting = server.run(permission, pending::<()>());
        tokio::pin!(waiting);
        assert!((&mut waiting).now_or_never().is_none());
        server.stop();
        assert_eq!(waiting.await, Err(UseEnd::Stopped));
        assert_eq!(server.run(permission, ready(())).await, Ok(()));
    }
}
