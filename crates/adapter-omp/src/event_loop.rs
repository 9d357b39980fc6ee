//! The adapter's loop: lines in, frames out, and what happens in between in its order.

use std::time::Duration;

use countersign_protocol::{
    gjc::{self, GjcCommand, GjcInboundFrame},
    lines::DecodedLine,
    omp::{OmpRequestId, OmpResponse, ui::NotifyType},
};
use countersign_view::{LineMode, escape};
use futures_util::StreamExt as _;
use tokio::time::Instant;

use super::{
    adapter::{ActiveOperation, CommandTurn, OmpAdapter, QueuedCommand},
    client_input::{ClientInput, InputSource},
    command_kind, commands,
    frame::OutgoingFrame,
    host,
    session_file_writer::{SessionFileWriter, UnwrittenError},
};

/// Maximum number of commands that wait for one that takes long.
const LANE: usize = 256;
/// Time without events before the session is reported as idle.
const QUIET: Duration = Duration::from_millis(120);
/// Time between two checks whether a host that does not read has gone.
const LOOK: Duration = Duration::from_secs(1);

/// Why an adapter did not end well.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    /// The session's log could not be written any more.
    #[error("the session's log was lost: another process wrote to it, or it cannot be read")]
    LogEnded,
    /// The session's file is not whole.
    #[error(transparent)]
    Unwritten(#[from] UnwrittenError),
}

/// Returns the next notice of the writer of the session's file.
async fn next_notice(file_writer: &mut Option<SessionFileWriter>) -> String {
    match file_writer {
        Some(file_writer) => file_writer.next_notice().await,
        None => std::future::pending().await,
    }
}

impl OmpAdapter {
    /// Runs until the input has ended or `stop` is ready.
    ///
    /// # Errors
    /// If the session's log ended before that.
    pub async fn run(mut self, mut input: InputSource, stop: impl Future<Output = ()>) -> Result<(), EndError> {
        tokio::pin!(stop);
        let mut outcome = Ok(());
        self.write_frame(OutgoingFrame::Ready);
        self.resume_session().await;
        // Until when commands that have come are done, once there is no more input.
        let mut drains = None;
        loop {
            if drains.is_some_and(|until| self.is_idle() || Instant::now() >= until) {
                break;
            }
            if self.outbox.push_out().is_err() {
                break;
            }
            if matches!(self.operation, ActiveOperation::Session(_)) && self.is_answered() {
                commands::finish_switch(&mut self).await;
                continue;
            }
            if let Some(waiting) = self.next_command() {
                self.take_its_turn(waiting).await;
                continue;
            }
            let Some(number) = self.seat.as_ref().map(|seat| seat.subscriber.position()) else { break };
            if !self.outbox.is_full() && host::send_due_call(&mut self, number) {
                continue;
            }
            let Some(seat) = &mut self.seat else { break };
            if self.early.as_ref().is_some_and(|(position, _)| *position <= number)
                && let Some((_, then)) = self.early.take()
            {
                then(&mut self);
                continue;
            }
            let is_silent = (self.encoder.is_running() || self.encoder.is_compacting() || self.is_log_stuck)
                && self.pending.is_empty()
                && self.early.is_none();
            let is_settling = self.encoder.is_settling() && self.pending.is_empty() && self.early.is_none();
            // A host that does not read stops what can wait, never the end.
            tokio::select! {
                biased;
                () = &mut stop => break,
                step = self.outbox.send_next(), if !self.outbox.is_empty() => {
                    if step.is_err() {
                        break;
                    }
                }
                // The stop of a call is sent before its end is.
                order = self.host_calls.next(), if !self.outbox.is_full() => host::take_order(&mut self, order).await,
                Some(reply) = self.pending.next(), if self.early.is_none() && !self.pending.is_empty() => {
                    self.early = Some(reply);
                }
                Some((position, then)) = self.beside.next(), if !self.beside.is_empty() => {
                    self.catch_up(position).await;
                    then(&mut self);
                }
                Some((position, then)) = self.shown_again.next(), if !self.shown_again.is_empty() => {
                    self.catch_up(position).await;
                    then(&mut self);
                }
                released = seat.subscriber.next(), if !self.outbox.is_full() => match released {
                    Some(released) => {
                        self.replies_before(number);
                        self.handle_released(released).await;
                    }
                    None => {
                        outcome = Err(EndError::LogEnded);
                        break;
                    }
                },
                notice = next_notice(&mut seat.file_writer) => self.notify_host(notice, NotifyType::Warning),
                Some(notice) = self.server_notices.recv() => {
                    self.notify_host(escape(&notice, LineMode::One).into_owned(), NotifyType::Warning);
                }
                inbound = input.next(), if drains.is_none() && !self.outbox.is_overfull() => match inbound {
                    Some(ClientInput::Line(line)) => self.handle_line(&line).await,
                    Some(ClientInput::Arrived(client)) => host::host_arrived(&mut self, client).await,
                    Some(ClientInput::Resumed) => host::host_resumed(&mut self).await,
                    Some(ClientInput::Left) => host::host_left(&mut self).await,
                    None => drains = Some(Instant::now() + self.store.common.dialect.drain),
                },
                () = tokio::time::sleep_until(drains.unwrap_or_else(Instant::now)), if drains.is_some() => {}
                () = tokio::time::sleep(LOOK), if self.outbox.is_overfull() => {
                    if input.is_closed() {
                        break;
                    }
                }
                () = tokio::time::sleep(LOOK), if is_silent => self.check_log().await,
                () = tokio::time::sleep(QUIET), if is_settling => {
                    if let Some(settled) = self.encoder.take_settled() {
                        self.write_frame(&settled);
                    }
                }
            }
        }
        let written = self.shut_down().await;
        outcome?;
        Ok(written?)
    }

    /// Reports whether every request is answered.
    fn is_answered(&self) -> bool {
        self.pending.is_empty() && self.early.is_none() && self.beside.is_empty()
    }

    /// Reports whether every request is done.
    fn is_idle(&self) -> bool {
        self.is_answered()
            && self.waiting.is_empty()
            && self.waiters.is_empty()
            && matches!(self.operation, ActiveOperation::Free)
    }

    /// Does a command whose turn has come.
    async fn take_its_turn(&mut self, waiting: QueuedCommand) {
        let QueuedCommand { id, command, turn } = waiting;
        if turn == CommandTurn::Again {
            return commands::abort_again(self, id).await;
        }
        // Its permission is checked all the same.
        self.is_given_up = turn == CommandTurn::GivenUp;
        self.dispatch_command(id, command).await;
        self.is_given_up = false;
    }

    /// Does a command of either dialect.
    async fn dispatch_command(&mut self, id: Option<OmpRequestId>, command: GjcCommand) {
        self.dialect.hooks.on_command(self, id, command).await;
    }

    /// Reports whether a reading host means another session: it has requested one, and commands are done one by one.
    fn is_about_to_leave(&self, command: &GjcCommand) -> bool {
        let leaves = || self.waiting.iter().any(|waiting| command_kind::leaves_session(&waiting.command));
        let is_leaving = || {
            !matches!(
                self.operation,
                ActiveOperation::Free | ActiveOperation::Compaction(_) | ActiveOperation::Command(..)
            )
        };
        !self.store.common.dialect.reads_at_once && command_kind::reads_session(command) && (is_leaving() || leaves())
    }

    /// Takes the next command out of the queue that may be done now. Commands outside of the order pass one that takes long, but they
    /// pass only commands of the user that wait for it.
    fn next_command(&mut self) -> Option<QueuedCommand> {
        if !self.waiters.is_empty() || self.stops > 0 || self.outbox.is_overfull() {
            return None;
        }
        let at = match self.operation {
            ActiveOperation::Free => 0,
            ActiveOperation::Compaction(_) | ActiveOperation::Command(..) => {
                let is_compacting = matches!(self.operation, ActiveOperation::Compaction(_));
                let mut all = self.waiting.iter().enumerate();
                let (at, next) = all.find(|(_, waiting)| !command_kind::is_bash(&waiting.command))?;
                let is_given_up = next.turn == CommandTurn::GivenUp;
                (is_given_up || command_kind::goes_beside(&next.command, is_compacting)).then_some(at)?
            }
            ActiveOperation::Session(_)
            | ActiveOperation::ToCompact { .. }
            | ActiveOperation::ToCommand
            | ActiveOperation::HandOff
            | ActiveOperation::Short => return None,
        };
        // A command that replaces a run waits until the one before has begun, and so does one that stops it.
        let waits = |next: &QueuedCommand| {
            self.is_replacing && (next.turn == CommandTurn::Again || command_kind::replaces_run(&next.command))
        };
        if self.waiting.get(at).is_some_and(waits) {
            return None;
        }
        self.waiting.remove(at)
    }

    async fn handle_line(&mut self, line: &DecodedLine) {
        match self.dialect.hooks.decode(line) {
            Ok(GjcInboundFrame::Command { id, command }) => {
                if command.order() == gjc::CommandOrder::Fast && !self.is_about_to_leave(&command) {
                    self.dispatch_command(id, command).await;
                } else if self.waiting.len() >= LANE {
                    let problem = format!("too many commands are waiting (limit {LANE})");
                    self.write_frame(&OmpResponse::failure(id, command.name(), problem));
                } else {
                    self.waiting.push_back(QueuedCommand::new(id, command));
                }
            }
            Ok(GjcInboundFrame::UiResponse { id, answer }) => self.handle_answer(&id, &answer).await,
            // An answer without a request is passed over.
            Ok(GjcInboundFrame::HostTool { id, answer }) => {
                host::tool_answered(self, &id, answer).await;
            }
            Ok(GjcInboundFrame::HostUri { id, result }) => {
                host::uri_answered(self, &id, result).await;
            }
            Ok(GjcInboundFrame::Unknown { id, type_name }) => self.dialect.hooks.on_unknown(self, id, type_name).await,
            Ok(GjcInboundFrame::Resume { .. }) => {}
            Err(response) => self.write_frame(&response),
        }
    }
}
