//! Encoding of a fact as a record of the log.

use countersign_core::{
    engine::{Event, RecordedFact},
    run, session,
};
use countersign_store::{FACTS_LIMIT, LogRecord};

/// Reports whether the log would refuse it.
pub(super) fn is_too_large(recorded: &RecordedFact) -> bool {
    recorded.fact.event.encode().2.len() > FACTS_LIMIT
}

/// Encodes the record of a fact. Facts about a gate can be found by its id, and so can the beginning of a run: where it began, and
/// before that where it was promised.
pub fn encode_record(recorded: &RecordedFact) -> LogRecord {
    let (kind, version, facts) = recorded.fact.event.encode();
    let key = match &recorded.fact.event {
        Event::Gate(event) => Some(event.gate().to_string().into()),
        // Start of a run; the rest of it is in its session after that.
        Event::Run(run::Event::Started { run, .. }) => Some(run.to_string().into()),
        Event::Session(session::Event::CompactionStarted { run: Some(run), .. }) => Some(run.to_string().into()),
        Event::Booted
        | Event::Session(_)
        | Event::Run(_)
        | Event::Call(_)
        | Event::Peer(_)
        | Event::Channel(_)
        | Event::Policy(_)
        | Event::Settings(_)
        | Event::Unattended(_)
        | Event::Schedule(_) => None,
    };
    LogRecord {
        at: recorded.meta.at,
        session: recorded.meta.session.clone(),
        key,
        kind: kind.into(),
        version,
        facts: facts.into(),
        content: recorded.fact.content.clone(),
    }
}
