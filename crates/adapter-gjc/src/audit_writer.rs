//! The audit file of the session that an adapter has: notes go there as things are decided.

use countersign_adapter_omp::OmpAdapter;
use countersign_protocol::omp::ui::NotifyType;

use crate::{
    audit::AuditNote,
    dialect_state::{UnattendedState, unattended_mut},
};

/// Writes into the audit file, where there is one. After a failure no command is done any more.
pub(crate) fn write_note(adapter: &mut OmpAdapter, note: AuditNote) {
    let Some(UnattendedState { audit: Some(Ok(audit)), .. }) = unattended_mut(adapter) else { return };
    if let Err(error) = audit.write_note(note) {
        record_failure(adapter, error.to_string());
    }
}

/// Handles a failed sync of the file to the disk.
pub(crate) fn check_audit(adapter: &mut OmpAdapter) {
    let Some(UnattendedState { audit: Some(Ok(audit)), .. }) = unattended_mut(adapter) else { return };
    if let Err(error) = audit.check_sync() {
        record_failure(adapter, error.to_string());
    }
}

fn record_failure(adapter: &mut OmpAdapter, problem: String) {
    // The log has it; nothing continues that people's tools do not see.
    if let Some(unattended) = unattended_mut(adapter) {
        unattended.audit = Some(Err(problem.clone()));
    }
    adapter.notify_host(problem, NotifyType::Error);
}
