//! Calls that nodes have: the node of each, its connection, and the answers that are still valid.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use countersign_core::id::CallId;
use countersign_protocol::gsv::GsvError;
use countersign_runtime::{LateResult, PeerExchange};
use parking_lot::Mutex;

/// Most calls that may be open at once.
const MOST: usize = 8192;
/// Number of abandoned calls that are remembered, so that late results of them are recorded.
const REMEMBERED: usize = 1024;

/// Purpose of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallPurpose {
    /// Call of a run.
    Run,
    /// Call for which a client waits, or did.
    Invoke,
    /// Call of a client that does not wait.
    Request,
}

/// Stage of a call at its node.
enum CallStage {
    Open(PeerExchange),
    /// Stopped, timed out, or its connection is gone.
    Past(LateResult),
    /// Over: the node reported its outcome.
    Over,
}

struct NodeCall {
    node: String,
    connection: u64,
    purpose: CallPurpose,
    call: CallId,
    stage: CallStage,
}

/// Call that a node answers.
pub(super) enum AnsweredCall {
    /// Call with a waiter.
    Open(PeerExchange, CallPurpose),
    /// Call without a waiter any more.
    Past(LateResult),
    /// Call that it has answered already.
    Over,
}

/// All calls of nodes.
#[derive(Default)]
pub(super) struct InFlightCalls(Mutex<CallTable>);

#[derive(Default)]
struct CallTable {
    /// Calls by the node's id.
    given: HashMap<Arc<str>, NodeCall>,
    wires: HashMap<CallId, Arc<str>>,
    /// Ids of calls that are about to begin.
    reserved: HashSet<Arc<str>>,
    open: usize,
    /// Ids of calls that are not open, the oldest first.
    past: VecDeque<Arc<str>>,
}

impl CallTable {
    fn mark_past(&mut self, wire: Arc<str>) {
        self.open = self.open.saturating_sub(1);
        self.past.push_back(wire);
        if self.past.len() > REMEMBERED
            && let Some(oldest) = self.past.pop_front()
            && self.given.get(&oldest).is_some_and(|given| !matches!(given.stage, CallStage::Open(_)))
            && let Some(given) = self.given.remove(&oldest)
        {
            self.wires.remove(&given.call);
        }
    }
}

impl InFlightCalls {
    /// Reports whether no more calls may be given.
    pub(super) fn is_full(&self) -> bool {
        self.0.lock().open >= MOST
    }

    /// Reserves an id for a call that is about to begin, until it is given or released. Returns false if another call has it.
    pub(super) fn reserve_id(&self, wire: &Arc<str>, call: CallId) -> bool {
        let mut calls = self.0.lock();
        if calls.given.contains_key(wire) || !calls.reserved.insert(Arc::clone(wire)) {
            return false;
        }
        calls.wires.insert(call, Arc::clone(wire));
        true
    }

    /// Releases the id that was reserved for a call which is over, or never began.
    pub(super) fn release_id(&self, call: CallId) {
        let mut calls = self.0.lock();
        if let Some(wire) = calls.wires.get(&call).cloned()
            && calls.reserved.remove(&wire)
        {
            calls.wires.remove(&call);
        }
    }

    /// Notes that a node has a call now, over this connection.
    pub(super) fn insert_call(
        &self,
        wire: &str,
        node: &str,
        connection: u64,
        purpose: CallPurpose,
        exchange: PeerExchange,
    ) {
        let wire: Arc<str> = wire.into();
        let mut calls = self.0.lock();
        let call = exchange.call();
        calls.reserved.remove(&wire);
        calls.wires.insert(call, Arc::clone(&wire));
        calls.open += 1;
        let given = NodeCall { node: node.to_owned(), connection, purpose, call, stage: CallStage::Open(exchange) };
        // The node may be asked about it once more: then it is no longer past.
        if calls.given.insert(Arc::clone(&wire), given).is_some() {
            calls.past.retain(|past| *past != wire);
        }
    }

    /// Notes that a call has no waiter any more.
    pub(super) fn stop_call(&self, call: CallId) {
        let mut calls = self.0.lock();
        let Some(wire) = calls.wires.get(&call).cloned() else { return };
        let Some(given) = calls.given.get_mut(&wire) else { return };
        if let CallStage::Open(exchange) = std::mem::replace(&mut given.stage, CallStage::Over) {
            given.stage = CallStage::Past(exchange.let_go());
            calls.mark_past(wire);
        }
    }

    /// Drops the calls of a connection.
    pub(super) fn lose_connection(&self, connection: u64) {
        let mut calls = self.0.lock();
        let is_its = |given: &NodeCall| given.connection == connection && matches!(given.stage, CallStage::Open(_));
        let lost: Vec<Arc<str>> =
            calls.given.iter().filter(|(_, given)| is_its(given)).map(|(wire, _)| Arc::clone(wire)).collect();
        for wire in lost {
            let Some(given) = calls.given.get_mut(&wire) else { continue };
            if let CallStage::Open(exchange) = std::mem::replace(&mut given.stage, CallStage::Over) {
                given.stage = CallStage::Past(exchange.let_go());
                calls.mark_past(wire);
            }
        }
    }

    /// Takes the call whose result cannot be read, if it is open at that node. A later result for that call counts as late.
    pub(super) fn take_unreadable(&self, wire: &str, node: &str) -> Option<(PeerExchange, CallPurpose)> {
        let mut calls = self.0.lock();
        let given = calls.given.get_mut(wire).filter(|given| given.node == node)?;
        let CallStage::Open(exchange) = &given.stage else { return None };
        let late = CallStage::Past(exchange.late_result());
        let purpose = given.purpose;
        let CallStage::Open(exchange) = std::mem::replace(&mut given.stage, late) else { return None };
        if let Some(wire) = calls.wires.get(&exchange.call()).cloned() {
            calls.mark_past(wire);
        }
        Some((exchange, purpose))
    }

    /// Takes the call that a node answers.
    ///
    /// # Errors
    /// 404 for an unknown call, 403 for a call of another node.
    pub(super) fn take_answered(&self, wire: &str, node: &str) -> Result<AnsweredCall, GsvError> {
        let mut calls = self.0.lock();
        let given = calls.given.get_mut(wire).ok_or_else(GsvError::unknown_call)?;
        if given.node != node {
            return Err(GsvError::not_its_call());
        }
        let purpose = given.purpose;
        Ok(match std::mem::replace(&mut given.stage, CallStage::Over) {
            CallStage::Open(exchange) => {
                if let Some(wire) = calls.wires.get(&exchange.call()).cloned() {
                    calls.mark_past(wire);
                }
                AnsweredCall::Open(exchange, purpose)
            }
            CallStage::Past(late) => AnsweredCall::Past(late),
            CallStage::Over => AnsweredCall::Over,
        })
    }
}
