//! The calls that nodes have in hand: which node was asked, over which connection, and what it may still say.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use countersign_core::id::CallId;
use countersign_protocol::gsv::GsvError;
use countersign_runtime::{LateResult, PeerExchange};
use parking_lot::Mutex;

/// How many calls may be open at once.
const MOST: usize = 8192;
/// How many that nobody waits for any more are remembered, so that what nodes still say of them is recorded.
const REMEMBERED: usize = 1024;

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallPurpose {
    /// A run wants it.
    Run,
    /// A client waits for it, or did.
    Invoke,
    /// A client asked for it, and nobody waits.
    Request,
}

/// Where a call stands, as far as its node is concerned.
enum CallStage {
    Open(PeerExchange),
    /// It was told to stop, took too long, or its connection is gone.
    Past(LateResult),
    /// The node said what became of it.
    Over,
}

struct NodeCall {
    node: String,
    connection: u64,
    purpose: CallPurpose,
    call: CallId,
    stage: CallStage,
}

/// What a node answers to.
pub(super) enum AnsweredCall {
    /// A call that is waited for.
    Open(PeerExchange, CallPurpose),
    /// One that nobody waits for any more.
    Past(LateResult),
    /// One that it has answered already.
    Over,
}

/// All calls that nodes have.
#[derive(Default)]
pub(super) struct InFlightCalls(Mutex<CallTable>);

#[derive(Default)]
struct CallTable {
    /// By the id that the node knows.
    given: HashMap<Arc<str>, NodeCall>,
    wires: HashMap<CallId, Arc<str>>,
    /// Ids of calls that are about to be begun.
    reserved: HashSet<Arc<str>>,
    open: usize,
    /// Those that are not open, the oldest first.
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
    /// Whether no more may be given.
    pub(super) fn is_full(&self) -> bool {
        self.0.lock().open >= MOST
    }

    /// Keeps an id for a call that is about to be begun, until it is given or released. False if another one has it.
    pub(super) fn reserve_id(&self, wire: &Arc<str>, call: CallId) -> bool {
        let mut calls = self.0.lock();
        if calls.given.contains_key(wire) || !calls.reserved.insert(Arc::clone(wire)) {
            return false;
        }
        calls.wires.insert(call, Arc::clone(wire));
        true
    }

    /// The id that was kept for a call which is over, or never began, is free.
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
        // It may be asked about once more: then it is not of the past any longer.
        if calls.given.insert(Arc::clone(&wire), given).is_some() {
            calls.past.retain(|past| *past != wire);
        }
    }

    /// Notes that nobody waits for a call any more.
    pub(super) fn stop_call(&self, call: CallId) {
        let mut calls = self.0.lock();
        let Some(wire) = calls.wires.get(&call).cloned() else { return };
        let Some(given) = calls.given.get_mut(&wire) else { return };
        if let CallStage::Open(exchange) = std::mem::replace(&mut given.stage, CallStage::Over) {
            given.stage = CallStage::Past(exchange.let_go());
            calls.mark_past(wire);
        }
    }

    /// Lets go of what a connection had.
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

    /// Takes the call whose result cannot be read, if its node was asked and it is waited for. What else is said of it is late.
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
    /// 404 for one that there is not, 403 for one that another node was asked for.
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
