//! Log lines of the program about facts, with the ids by which they are found in the record. Never with any user text.

use countersign_core::{
    call,
    engine::{Event, RecordedFact},
    gate, run,
};
use tracing::{debug, info};

/// Tells of a fact that is durable, if it is one that people look for.
pub(super) fn trace_fact(recorded: &RecordedFact) {
    let lsn = recorded.meta.lsn.0;
    match &recorded.fact.event {
        Event::Gate(gate::Event::Opened { gate, kind, call, run, .. }) => {
            let (call, run) = (call.map(tracing::field::display), run.map(tracing::field::display));
            info!(lsn, %gate, ?kind, call, run, "gate opened");
        }
        Event::Gate(gate::Event::Resolved { gate, resolution, by, .. }) => {
            info!(lsn, %gate, ?resolution, by = by.as_ref().map(tracing::field::display), "gate resolved");
        }
        Event::Run(run::Event::Started { run, .. }) => info!(lsn, %run, "run started"),
        Event::Run(run::Event::Ended { run, end, .. }) => info!(lsn, %run, ?end, "run ended"),
        Event::Call(call::Event::Started { call, .. }) => debug!(lsn, %call, "call started"),
        Event::Call(call::Event::Ended { call, end, .. }) => debug!(lsn, %call, ?end, "call ended"),
        _ => {}
    }
}
