//! Notices for a host outside of the conversation: that a file or record is not written.

use countersign_core::{engine::Command, id::SessionId, session};
use countersign_protocol::omp::{UiMethod, UiRequest, ui::NotifyType};
use countersign_runtime::OwnerError;

use super::OmpAdapter;
use crate::dialogs;

impl OmpAdapter {
    /// Tells something that needs no answer.
    pub fn notify_host(&mut self, message: String, kind: NotifyType) {
        let Some(id) = dialogs::fresh_id() else { return };
        self.write_frame(&UiRequest { id, method: UiMethod::Notify { message, notify_type: Some(kind) } });
    }

    /// Tells once what of the session's file was left out when it was read.
    pub(crate) fn report_damage(&mut self) {
        if let Some(damage) = self.seat.as_mut().and_then(|seat| seat.damage.take()) {
            tracing::warn!("{damage}");
            self.notify_host(damage, NotifyType::Warning);
        }
    }

    /// Looks whether the log takes anything. While it does not, nothing happens in a run, and nothing would say why.
    pub(crate) async fn check_log(&mut self) {
        // A log that works refuses this, as there is no such session; one that does not says so.
        let nothing = Command::Session(SessionId::new(""), session::Command::AbortCompaction);
        self.send_command(nothing, |adapter, replied| {
            let problem = match replied {
                Err(refused @ OwnerError::NotRecorded(_)) => Some(refused.to_string()),
                _ => None,
            };
            match (problem, adapter.is_log_stuck) {
                (Some(problem), false) => {
                    adapter.is_log_stuck = true;
                    adapter.notify_host(
                        format!("{problem}. The run waits until the log can be written"),
                        NotifyType::Error,
                    );
                }
                (None, true) => {
                    adapter.is_log_stuck = false;
                    adapter.notify_host("the log can be written again".to_owned(), NotifyType::Info);
                }
                (Some(_), true) | (None, false) => {}
            }
        })
        .await;
    }
}
