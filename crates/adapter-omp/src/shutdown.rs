//! The end of a conversation: last answers, and last frames for a host that reads to the end.

use std::time::Duration;

use countersign_protocol::omp::OmpResponse;
use tokio::time::timeout;
use tracing::warn;

use super::{
    adapter::{ActiveOperation, OmpAdapter, QueuedCommand},
    host,
    session_file_writer::UnwrittenError,
};

/// Maximum wait for due answers once the host has gone.
const FAREWELL: Duration = Duration::from_millis(1200);

impl OmpAdapter {
    /// Answers what can still be answered, then ends the session. A host that does not read any more does not keep it open.
    ///
    /// # Errors
    /// [`UnwrittenError`], if the dialect reports it to hosts.
    pub(super) async fn shut_down(&mut self) -> Result<(), UnwrittenError> {
        self.is_closing = true;
        self.encoder.close();
        let mut is_host_reading = matches!(timeout(FAREWELL, self.outbox.flush()).await, Ok(Ok(())));
        if is_host_reading {
            let _ = timeout(FAREWELL, self.flush_replies()).await;
        }
        host::host_left(self).await;
        // In a gateway the session continues: its host has gone, and nothing else.
        let own = self.seat.as_ref().filter(|seat| seat.attach_guard.is_none());
        let is_own = own.is_some();
        let closing = own.map(|seat| {
            let handle = seat.handle.clone();
            tokio::spawn(async move { handle.close().await })
        });
        if is_host_reading && is_own {
            is_host_reading = timeout(FAREWELL, self.drain_released()).await.is_ok();
        }
        if let Some(closing) = closing {
            let _ = closing.await;
        }
        if is_host_reading {
            let _ = timeout(FAREWELL, self.flush_replies()).await;
        }
        self.refuse_rest().await;
        if is_host_reading {
            is_host_reading = matches!(timeout(FAREWELL, self.outbox.flush()).await, Ok(Ok(())));
        }
        self.grants_written().await;
        if is_own {
            self.close_servers().await;
        }
        let written = match self.seat.take() {
            Some(seat) => seat.close().await,
            None => Ok(()),
        };
        let is_reported = self.store.common.dialect.unwritten_reported;
        let reported_error = written.as_ref().err().filter(|_| is_reported);
        if let Some(problem) = reported_error.map(ToString::to_string) {
            self.write_frame(&OmpResponse::failure(None, "shutdown", problem));
            is_host_reading = is_host_reading && matches!(timeout(FAREWELL, self.outbox.flush()).await, Ok(Ok(())));
        }
        if !is_host_reading {
            warn!("the host did not read the last frames");
        }
        if is_reported { written } else { Ok(()) }
    }

    /// Waits for the answers that are on their way.
    async fn flush_replies(&mut self) {
        while let Some(reply) = self.next_reply().await {
            let position = reply.0;
            self.put_back(reply);
            self.catch_up(position).await;
            self.replies_before(position);
        }
        while let Some((position, then)) = self.next_beside().await {
            self.catch_up(position).await;
            then(self);
        }
    }

    /// Writes the ends of stopped operations.
    async fn drain_released(&mut self) {
        while let Some(seat) = &mut self.seat
            && let Some(released) = seat.subscriber.next().await
        {
            self.handle_released(released).await;
            if self.outbox.flush().await.is_err() {
                break;
            }
        }
    }

    /// Refuses the remaining commands: each accepted command gets a response, even if it cannot be done any more.
    async fn refuse_rest(&mut self) {
        const PROBLEM: &str = "the session is closing";
        // Commands that wait for the end of a run: there is none any more.
        self.end_all();
        match std::mem::replace(&mut self.operation, ActiveOperation::Free) {
            ActiveOperation::Free
            | ActiveOperation::ToCompact { .. }
            | ActiveOperation::ToCommand
            | ActiveOperation::HandOff
            | ActiveOperation::Short => {}
            ActiveOperation::Compaction(id) => self.write_frame(&OmpResponse::failure(id, "compact", PROBLEM)),
            ActiveOperation::Command(_, id) => self.write_frame(&OmpResponse::failure(id, "bash", PROBLEM)),
            ActiveOperation::Session(switch) => {
                let (id, command, seat) = switch.into_parts();
                self.write_frame(&OmpResponse::failure(id, command, PROBLEM));
                // Frames at the end are about the open one.
                let _ = seat.close().await;
            }
        }
        self.dialect.hooks.on_close(self);
        for QueuedCommand { id, command, .. } in std::mem::take(&mut self.waiting) {
            self.write_frame(&OmpResponse::failure(id, command.name(), PROBLEM));
        }
    }
}
