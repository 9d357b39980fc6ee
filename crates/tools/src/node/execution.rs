//! One command of a node: what it has written, how it ended, and the orders that it can be given while it runs.
//!
//! It must not know other commands.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::sleep,
};

use super::{capture::OutputCapture, executions::ExecutionListener};
use crate::shell::{RunningCommand, SessionShell, ShellEvent};

/// Most bytes of input that may wait for a command to read them.
const UNREAD: usize = 256 << 10;
/// The signal that a command is ended with, as gateways know it.
const ENDED_BY: &str = "SIG15";

/// Change of a command in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionChange {
    /// The command moved to the background.
    Started,
    /// The command ended with exit code 0.
    Finished,
    /// The command ended with another exit code.
    Failed,
    /// The command was ended because it took too long.
    TimedOut,
}

/// Something that happened to a command in the background.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionEvent {
    /// Always the same for the same occurrence.
    pub id: String,
    /// The command.
    pub session: String,
    /// The call that began it.
    pub call: String,
    /// The change.
    pub became: ExecutionChange,
    /// Absent if it runs, or was ended.
    pub exit_code: Option<i32>,
    /// Signal that ended it.
    pub signal: Option<String>,
    /// The end of its output.
    pub tail: String,
    /// Start, in milliseconds since 1970.
    pub started_at: u64,
    /// End, in milliseconds since 1970.
    pub ended_at: Option<u64>,
}

/// End of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExecutionEnd {
    Exited(i32),
    TimedOut,
    /// A call ended it, or the node did.
    Stopped,
    /// The way it ended is not known; all of it was killed.
    Broken,
}

/// A command.
#[derive(Debug)]
pub(super) struct NodeExecution {
    pub(super) id: String,
    pub(super) call: String,
    pub(super) command: String,
    pub(super) workdir: PathBuf,
    pub(super) leader: Option<u32>,
    pub(super) started_at: u64,
    seen: Mutex<ExecutionState>,
    orders: mpsc::Sender<ExecutionOrder>,
    over: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct ExecutionState {
    output: OutputCapture,
    end: Option<(ExecutionEnd, u64)>,
    in_background: bool,
}

#[derive(Debug)]
enum ExecutionOrder {
    Give(Vec<u8>, oneshot::Sender<Result<(), String>>),
    Stop,
}

/// Status of a command at one moment.
#[derive(Clone, Debug)]
pub(super) struct ExecutionStatus {
    pub(super) status: &'static str,
    pub(super) exit_code: Option<i32>,
    pub(super) signal: Option<&'static str>,
    pub(super) timed_out: bool,
    pub(super) ended_at: Option<u64>,
    pub(super) tail: String,
    pub(super) truncated: bool,
}

/// Specification of a new command.
pub(super) struct ExecutionSpec {
    pub(super) id: String,
    pub(super) call: String,
    pub(super) command: String,
    pub(super) workdir: PathBuf,
}

impl NodeExecution {
    /// Follows a command that was started, until it ends.
    pub(super) fn start_following(
        begun: ExecutionSpec,
        running: RunningCommand,
        shells: SessionShell,
        timeout: Option<Duration>,
        tell: ExecutionListener,
    ) -> Arc<Self> {
        let ExecutionSpec { id, call, command, workdir } = begun;
        let (orders, given) = mpsc::channel(16);
        let execution = Arc::new(Self {
            id,
            call,
            command,
            workdir,
            leader: running.leader_pid(),
            started_at: now_millis(),
            seen: Mutex::default(),
            orders,
            over: watch::Sender::new(false),
        });
        tokio::spawn(Arc::clone(&execution).run(running, shells, given, timeout, tell));
        execution
    }

    async fn run(
        self: Arc<Self>,
        mut running: RunningCommand,
        shells: SessionShell,
        mut orders: mpsc::Receiver<ExecutionOrder>,
        timeout: Option<Duration>,
        tell: ExecutionListener,
    ) {
        let deadline = sleep(timeout.unwrap_or_default());
        tokio::pin!(deadline);
        let mut stopped = None;
        let mut unread = 0_usize;
        let end = loop {
            tokio::select! {
                biased;
                () = &mut deadline, if timeout.is_some() && stopped.is_none() => {
                    stopped = Some(ExecutionEnd::TimedOut);
                    running.stop().await;
                }
                Some(order) = orders.recv(), if stopped.is_none() => match order {
                    ExecutionOrder::Stop => {
                        stopped = Some(ExecutionEnd::Stopped);
                        running.stop().await;
                    }
                    ExecutionOrder::Give(bytes, reply) if unread + bytes.len() > UNREAD => {
                        let _ = reply.send(Err(format!("the command does not read its input: {unread} bytes are pending")));
                        drop(bytes);
                    }
                    ExecutionOrder::Give(bytes, reply) => {
                        unread += bytes.len();
                        let given = running.write_input(bytes).await.map_err(|error| error.to_string());
                        let _ = reply.send(given);
                    }
                },
                event = running.next() => match event {
                    Ok(ShellEvent::Output(bytes)) => self.lock_state().output.push(&bytes),
                    Ok(ShellEvent::Taken(count)) => unread = unread.saturating_sub(usize::try_from(count).unwrap_or(usize::MAX)),
                    Ok(ShellEvent::Exited(code)) => break stopped.unwrap_or(ExecutionEnd::Exited(code)),
                    Ok(ShellEvent::Stopped) => break stopped.unwrap_or(ExecutionEnd::Stopped),
                    Err(error) => {
                        self.lock_state().output.push(format!("\n[{error}]\n").as_bytes());
                        break stopped.unwrap_or(ExecutionEnd::Broken);
                    }
                },
            }
        };
        drop(running);
        // Processes that it left running end with it, and before its end is reported.
        shells.close().await;
        let mut seen = self.lock_state();
        seen.output.close();
        seen.end = Some((end, now_millis()));
        if seen.in_background {
            let became = match end {
                ExecutionEnd::Exited(0) => ExecutionChange::Finished,
                ExecutionEnd::TimedOut => ExecutionChange::TimedOut,
                ExecutionEnd::Exited(_) | ExecutionEnd::Stopped | ExecutionEnd::Broken => ExecutionChange::Failed,
            };
            tell.send_event(self.event_of_change(became, &seen));
        }
        drop(seen);
        self.over.send_replace(true);
    }

    /// Waits until it has ended.
    pub(super) async fn wait_ended(&self) {
        // It holds the other end itself.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    /// Moves it to the background, and reports that. False if it has ended.
    pub(super) fn move_to_background(&self, tell: &ExecutionListener) -> bool {
        let mut seen = self.lock_state();
        if seen.end.is_some() {
            return false;
        }
        seen.in_background = true;
        // Before the lock is released: its end must not be reported first.
        tell.send_event(self.event_of_change(ExecutionChange::Started, &seen));
        true
    }

    /// Gives it something to read.
    pub(super) async fn write_input(&self, bytes: Vec<u8>) -> Result<(), String> {
        let (reply, replied) = oneshot::channel();
        let gone = || "the command has ended".to_owned();
        self.orders.send(ExecutionOrder::Give(bytes, reply)).await.map_err(|_| gone())?;
        replied.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Ends it, with everything that it started.
    pub(super) async fn stop(&self) {
        // One that has ended needs none.
        let _ = self.orders.send(ExecutionOrder::Stop).await;
    }

    fn lock_state(&self) -> MutexGuard<'_, ExecutionState> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it without waiting until the order is taken.
    pub(super) fn stop_soon(&self) {
        // A full line of orders is one of input, which it is not given in the foreground.
        let _ = self.orders.try_send(ExecutionOrder::Stop);
    }

    /// Returns the time of its end, if it has ended.
    pub(super) fn ended_at(&self) -> Option<u64> {
        self.lock_state().end.map(|(_, at)| at)
    }

    /// Returns true if it moved to the background.
    pub(super) fn in_background(&self) -> bool {
        self.lock_state().in_background
    }

    /// Returns its present status.
    pub(super) fn current_status(&self) -> ExecutionStatus {
        ExecutionStatus::from_state(&self.lock_state())
    }

    /// Returns all of its output that is kept.
    pub(super) fn kept_output(&self) -> String {
        self.lock_state().output.kept_text().to_owned()
    }

    fn event_of_change(&self, became: ExecutionChange, seen: &ExecutionState) -> ExecutionEvent {
        let look = ExecutionStatus::from_state(seen);
        let part = if became == ExecutionChange::Started { "started" } else { "ended" };
        ExecutionEvent {
            id: format!("{}-{part}", self.id),
            session: self.id.clone(),
            call: self.call.clone(),
            became,
            exit_code: look.exit_code,
            signal: look.signal.map(str::to_owned),
            tail: look.tail,
            started_at: self.started_at,
            ended_at: look.ended_at,
        }
    }
}

impl ExecutionStatus {
    fn from_state(seen: &ExecutionState) -> Self {
        let end = seen.end.map(|(end, _)| end);
        Self {
            status: match end {
                None => "running",
                Some(ExecutionEnd::Exited(0)) => "completed",
                Some(ExecutionEnd::TimedOut) => "timed_out",
                Some(ExecutionEnd::Exited(_) | ExecutionEnd::Stopped | ExecutionEnd::Broken) => "failed",
            },
            exit_code: match end {
                Some(ExecutionEnd::Exited(code)) => Some(code),
                None | Some(ExecutionEnd::TimedOut | ExecutionEnd::Stopped | ExecutionEnd::Broken) => None,
            },
            signal: match end {
                Some(ExecutionEnd::TimedOut | ExecutionEnd::Stopped) => Some(ENDED_BY),
                None | Some(ExecutionEnd::Exited(_) | ExecutionEnd::Broken) => None,
            },
            timed_out: end == Some(ExecutionEnd::TimedOut),
            ended_at: seen.end.map(|(_, at)| at),
            tail: seen.output.tail_text().to_owned(),
            truncated: seen.output.is_truncated(),
        }
    }
}

/// Milliseconds since 1970.
pub(super) fn now_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
