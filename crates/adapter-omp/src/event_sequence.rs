//! First number of a session's events in a process, and last number of the processes before it.
//!
//! It must not know which client reads them.

use countersign_core::{engine::Command, id::SessionId, session::Command as SessionCommand, time::Millis};
use countersign_runtime::OwnerHandle;

use super::{adapter::OmpAdapter, open_session_error::OpenSessionError};

/// Maximum number of events of earlier processes that a client is sent. So many numbers are left free before those that a process
/// uses.
pub const KEPT_EVENTS: u64 = 10_000;

/// Events that earlier processes sent about a session: its log up to where this process counts on.
pub struct EarlierEvents {
    /// The owner of the log.
    pub handle: OwnerHandle,
    /// The session.
    pub session: SessionId,
    /// Number after which this process counts.
    pub until: u64,
}

/// Returns how many events may have been counted of a session that was opened at `opened`, by processes that ended before this one
/// `begun`: more than any could tell in the time since. One that was opened since begins with none.
pub(super) fn initial_sequence(opened: Millis, begun: Millis, now: Millis) -> u64 {
    /// Of each millisecond.
    const MOST: u64 = 1000;
    if opened >= begun { 0 } else { now.0.saturating_sub(opened.0).saturating_mul(MOST).saturating_add(KEPT_EVENTS) }
}

/// Notes in the log that processes before this one sent all earlier events; this one counts after `counted`. None if there was none.
pub(super) async fn record_sequence(
    adapter: &mut OmpAdapter,
    counted: u64,
) -> Result<Option<EarlierEvents>, OpenSessionError> {
    let Some(seat) = adapter.current_session().filter(|_| counted > 0) else { return Ok(None) };
    let command = SessionCommand::RecordSequence { number: counted, upto: None };
    seat.requests.send_command(Command::Session(seat.id.clone(), command)).await?;
    Ok(Some(EarlierEvents { handle: seat.handle.clone(), session: seat.id.clone(), until: counted }))
}
