//! The calls of all programs that ask one gateway.

use std::sync::Arc;

use countersign_core::id::{GateId, PrincipalId, SessionId};
use countersign_runtime::{Clock, CommandSource, InboxLane, OwnerError, OwnerHandle};
use countersign_view::Protocol;
use tokio::sync::{oneshot, watch};

use crate::{
    call_limits::CallLimits,
    delivery::Receipts,
    outcome_router::OutcomeRouter,
    requester::{Requester, Requesters},
};

/// Calls of the programs that ask a gateway. One value serves all of them: hosts of MCP, hooks and proxies.
pub struct ForeignCalls {
    pub(crate) handle: OwnerHandle,
    pub(crate) requests: CommandSource,
    pub(crate) clock: Clock,
    pub(crate) limits: CallLimits,
    pub(crate) outcomes: Arc<OutcomeRouter>,
    pub(crate) receipts: Arc<Receipts>,
    pub(crate) closing: watch::Sender<bool>,
    requesters: Requesters,
}

impl ForeignCalls {
    /// Starts to follow the outcomes of an owner.
    ///
    /// # Errors
    /// [`OwnerError::Closed`] if the owner has ended.
    pub async fn open(handle: OwnerHandle, clock: Clock, limits: CallLimits) -> Result<Self, OwnerError> {
        let closing = watch::Sender::new(false);
        let outcomes = OutcomeRouter::follow_facts(&handle, closing.clone()).await.ok_or(OwnerError::Closed)?;
        let receipts = Receipts::start(handle.source(InboxLane::Request));
        Ok(Self {
            requests: handle.source(InboxLane::Request),
            handle,
            clock,
            limits,
            outcomes,
            receipts,
            closing,
            requesters: Requesters::default(),
        })
    }

    /// Returns the limits of each principal.
    pub const fn limits(&self) -> &CallLimits {
        &self.limits
    }

    /// Returns the inbox for requests.
    pub const fn requests(&self) -> &CommandSource {
        &self.requests
    }

    /// Returns the requester whose calls are kept in `session`. That is opened at the first call, with the folder `cwd`, which is empty
    /// for a program that works in none.
    pub fn requester(
        &self,
        protocol: Protocol,
        principal: &PrincipalId,
        session: &SessionId,
        cwd: &str,
    ) -> Arc<Requester> {
        let new =
            || Requester::new(protocol, principal.clone(), session.clone(), cwd.to_owned(), self.limits.per_minute);
        self.requesters.find_or_add(principal, session, new)
    }

    /// Waits for the resolution of a gate.
    pub fn wait_for_gate(&self, gate: GateId) -> oneshot::Receiver<()> {
        self.outcomes.wait_for_gate(gate)
    }

    /// Forgets the waits for a gate of requests that are gone.
    pub fn forget_closed_gate(&self, gate: GateId) {
        self.outcomes.forget_closed_gate(gate);
    }

    /// Ends every wait. Pending gates stay.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }
}

impl std::fmt::Debug for ForeignCalls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForeignCalls").finish_non_exhaustive()
    }
}
