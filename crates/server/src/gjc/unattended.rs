//! Unattended runs: what their host declared, and what that lets them do.

use countersign_protocol::omp::{Id, Response};

use crate::omp::Door;

/// Enters unattended mode.
pub(super) fn negotiate(door: &mut Door, id: Option<Id>) {
    door.write(&Response::failure(id, "negotiate_unattended", "unattended mode is not served yet"));
}
