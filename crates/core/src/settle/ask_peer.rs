//! Asks a peer for the outcome of a call whose line broke, once it is back with the journal in which it recorded outcomes of
//! calls. The question executes nothing a second time.

use super::OpenCalls;
use crate::{
    call::{self, Call},
    decision::{Event, Fact},
};

pub(super) fn due_facts(docket: OpenCalls<'_>) -> Option<Vec<Fact>> {
    docket.open_calls().find_map(|call| ask_peer(docket, call))
}

/// Asks in the same way for actions of peers that people started.
pub(super) fn of_acts(docket: OpenCalls<'_>) -> Option<Vec<Fact>> {
    docket.peer_actions().find_map(|call| ask_peer(docket, call))
}

fn ask_peer(docket: OpenCalls<'_>, call: &Call) -> Option<Vec<Fact>> {
    let peer = call.peer().filter(|_| call.may_be_asked() && !docket.view.closing)?;
    let state = docket.view.state;
    let line = state.line_of(peer).filter(|_| state.memory_of(peer).knows_of(call.memory))?;
    let event = call::Event::AskedAgain { call: call.id(), boot: state.boot_count(), line };
    Some(vec![docket.session_fact(Event::Call(event))])
}
