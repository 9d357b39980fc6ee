//! A call whose line broke is asked for at its peer, once that is back with the journal in which it noted what becomes of
//! calls. Asking does nothing a second time.

use super::Docket;
use crate::{
    call::{self, Call},
    decision::{Event, Fact},
};

pub(super) fn rule(docket: Docket<'_>) -> Option<Vec<Fact>> {
    docket.calls().find_map(|call| asked(docket, call))
}

/// The same of what people have peers do.
pub(super) fn of_acts(docket: Docket<'_>) -> Option<Vec<Fact>> {
    docket.acts().find_map(|call| asked(docket, call))
}

fn asked(docket: Docket<'_>, call: &Call) -> Option<Vec<Fact>> {
    let peer = call.peer().filter(|_| call.may_be_asked() && !docket.view.closing)?;
    let state = docket.view.state;
    let line = state.line_of(peer).filter(|_| state.memory_of(peer).knows_of(call.memory))?;
    let asked = call::Event::AskedAgain { call: call.id(), boot: state.boot_count(), line };
    Some(vec![docket.fact(Event::Call(asked))])
}
