//! The audit file of the session that a door has: notes go there as things are decided.

use countersign_adapter_omp::OmpAdapter;
use countersign_protocol::omp::ui::NotifyType;

use crate::{
    audit::Note,
    dialect_state::{Unattended, unattended_mut},
};

/// Writes into the audit file, where there is one. After a failure no command is done any more.
pub(crate) fn note(door: &mut OmpAdapter, note: Note) {
    let Some(Unattended { audit: Some(Ok(audit)), .. }) = unattended_mut(door) else { return };
    if let Err(error) = audit.write(note) {
        fail(door, error.to_string());
    }
}

/// Hears of what the disk did not take of it.
pub(crate) fn check(door: &mut OmpAdapter) {
    let Some(Unattended { audit: Some(Ok(audit)), .. }) = unattended_mut(door) else { return };
    if let Err(error) = audit.check() {
        fail(door, error.to_string());
    }
}

fn fail(door: &mut OmpAdapter, problem: String) {
    // The log has it; nothing goes on that people's tools do not see.
    if let Some(unattended) = unattended_mut(door) {
        unattended.audit = Some(Err(problem.clone()));
    }
    door.notify_host(problem, NotifyType::Error);
}
