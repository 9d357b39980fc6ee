//! The gateway's end of a session's shell: started when first needed, one command at a time, everything ended when
//! dropped.
//!
//! It must not know tools or results: it hands on bytes and ends.

mod child_link;
mod network_proxy;
mod piped_program;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use countersign_core::call::Pins;
use tokio::{
    io::AsyncWriteExt as _,
    sync::{Mutex, OwnedMutexGuard, watch},
};

use crate::{
    environment::CommandEnvironment,
    exec::{
        ExecLauncher,
        frame::{self, ChildOrder, ChildReport},
    },
    live_questions::CallQuestions,
    sandbox::{CallNeeds, Sandbox, SandboxError, UnlistedHosts},
};
use child_link::{ChildLink, ChildUse, launch_child};
pub use piped_program::{PipedProgram, ProgramPipes};

/// Time of the exec child to end everything before it is given up: more than its own grace and patience.
const PATIENCE: Duration = Duration::from_secs(8);

/// The shell of one session, shared by all who run commands in it. Commands wait for each other, first come first
/// served.
///
/// Dropping the last handle kills what still runs, in the background too.
#[derive(Clone, Debug)]
pub struct SessionShell {
    launcher: ExecLauncher,
    sandbox: Sandbox,
    session: Arc<Mutex<ShellSession>>,
    /// Folder of the shell after the last command, for callers that must not wait for it.
    folder: Arc<watch::Sender<Option<PathBuf>>>,
    /// Search path after the last command.
    path: Arc<watch::Sender<SearchPathState>>,
}

/// Search path of the shell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum SearchPathState {
    /// As in its environment.
    #[default]
    Given,
    /// Here.
    Is(String),
    /// Unknown.
    Unknown,
}

#[derive(Debug, Default)]
struct ShellSession {
    link: Option<ChildLink>,
    /// Folder in which a new shell starts; absent before the first one.
    cwd: Option<PathBuf>,
    /// Loss that the next command has to report.
    lost: Option<ShellLoss>,
}

/// Reason that the shell of the command before is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShellLoss {
    /// A command was stopped.
    Stopped,
    /// A command ended the shell.
    Exited,
}

/// A command and its options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShellJob {
    /// Shell text.
    pub command: String,
    /// The folder for this command alone; absent means where the shell is.
    pub cwd: Option<PathBuf>,
    /// Folder in which the shell must be, or nothing is run: a command approved for one folder is not run in another.
    pub at: Option<PathBuf>,
    /// Variables for this command alone, with valid names.
    pub env: Vec<(String, String)>,
    /// True if it is given input while it runs; otherwise its input is empty.
    pub input: bool,
    /// Needs granted beyond the sandbox. It then runs in a shell of its own, which ends with it.
    pub needs: CallNeeds,
    /// True if it runs in a shell of its own for another reason.
    pub alone: bool,
    /// Approved files: if anything differs from them by now, nothing is run.
    pub pins: Option<Box<Pins>>,
    /// On behalf of which call, for the log; empty for a person's own.
    pub call: String,
    /// Questions of that call to people.
    pub asks: CallQuestions,
}

/// Event of a running command.
#[derive(Debug, PartialEq, Eq)]
pub enum ShellEvent {
    /// Output, to either stream.
    Output(Vec<u8>),
    /// So many more bytes of its input are where it can read them.
    Taken(u64),
    /// The command ended by itself, with this code.
    Exited(i32),
    /// The command was stopped, with everything that the shell had started.
    Stopped,
}

/// Reason that a command could not be run, or not be followed to its end.
#[derive(Debug, thiserror::Error)]
pub enum ShellError {
    /// Nothing was run.
    #[error("cannot start a shell: {0}")]
    Start(String),
    /// Nothing was run: the sandbox is not available, or not for this.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// Nothing was run: the shell is not in the folder that the command was approved for.
    #[error("not run: the shell is now in {}, but this call was decided for another folder; call again", .0.display())]
    Moved(PathBuf),
    /// Nothing was run: a file differs from the approved one.
    #[error("Not run: {0}. Only what was approved may run; call again to have the current state decided")]
    Changed(String),
    /// The way the command ended is not known; all of it was killed.
    #[error("lost the connection to the shell")]
    Broken(#[source] io::Error),
}

impl SessionShell {
    /// Creates a session without a shell yet: nothing is started here.
    pub fn new(launcher: ExecLauncher) -> Self {
        Self::with_sandbox(launcher, Sandbox::default())
    }

    /// Returns the same, whose commands a sandbox confines.
    pub fn with_sandbox(launcher: ExecLauncher, sandbox: Sandbox) -> Self {
        Self {
            launcher,
            sandbox,
            session: Arc::default(),
            folder: Arc::new(watch::Sender::new(None)),
            path: Arc::default(),
        }
    }

    /// Returns the sandbox of the commands.
    pub const fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Returns the folder that the shell was in after the last command; absent before the first.
    pub fn last_folder(&self) -> Option<PathBuf> {
        self.folder.borrow().clone()
    }

    /// Returns the search path after the last command; none if it is unknown.
    pub fn search_path(&self, environment: &CommandEnvironment) -> Option<String> {
        match &*self.path.borrow() {
            SearchPathState::Given => environment.get("PATH").and_then(|path| path.to_str()).map(str::to_owned),
            SearchPathState::Is(path) => Some(path.clone()),
            SearchPathState::Unknown => None,
        }
    }

    /// Waits until the shell is free and runs `job` in it, in a new one that starts in `cwd` if there is none.
    ///
    /// *Cancellation*: dropping this future, or its result, kills the command and the shell.
    ///
    /// # Errors
    /// [`ShellError::Start`] if no shell can be started, [`ShellError::Sandbox`] if it cannot be confined as it must be,
    /// [`ShellError::Moved`] if it is not where it must be. [`RunningCommand::next`] reports differences from the approved files.
    pub async fn run(
        &self,
        job: ShellJob,
        cwd: &Path,
        environment: &CommandEnvironment,
    ) -> Result<RunningCommand, ShellError> {
        let mut session = Arc::clone(&self.session).lock_owned().await;
        if job.command.contains('\0') {
            return Err(ShellError::Start("the command holds a NUL character".to_owned()));
        }
        let place = session.cwd.clone().unwrap_or_else(|| cwd.to_owned());
        if job.at.as_ref().is_some_and(|at| *at != place) {
            return Err(ShellError::Moved(place));
        }
        let is_widened = self.sandbox.is_on() && !job.needs.is_empty();
        let is_apart = is_widened || job.alone;
        let bounds = || self.sandbox.base_bounds(cwd, environment);
        let open = |session: &ShellSession, bounds| {
            let start = session.cwd.as_deref().filter(|last| last.is_dir()).unwrap_or(cwd);
            launch_child(&self.launcher, start, environment, ChildUse::Shell, bounds)
                .map_err(|error| ShellError::Start(error.to_string()))
        };
        let mut link = match session.link.take_if(|_| !is_apart) {
            Some(link) if link.is_open() => link,
            _ if is_apart && !is_widened => open(&session, bounds()?)?,
            _ if is_apart => {
                // Its needs are relative to the folder in which it runs.
                let from = job.cwd.as_deref().unwrap_or(&place);
                open(&session, self.sandbox.widened_bounds(cwd, from, environment, &job.needs)?)?
            }
            stale => {
                if stale.is_some() {
                    session.lost = Some(ShellLoss::Exited);
                }
                open(&session, bounds()?)?
            }
        };
        link.open_proxy().await?;
        let cwd = job.cwd.map(|cwd| cwd.to_str().map(str::to_owned).ok_or(())).transpose();
        let cwd = cwd.map_err(|()| ShellError::Start("the folder's name is not UTF-8".to_owned()))?;
        let order = ChildOrder::Run(frame::ShellCommand {
            command: job.command,
            cwd,
            env: job.env,
            input: job.input,
            pins: job.pins,
        });
        let lost = if is_apart { None } else { session.lost.replace(ShellLoss::Stopped) };
        let asks = if self.sandbox.unlisted() == UnlistedHosts::Ask { job.asks } else { CallQuestions::default() };
        link.begin_call(&job.call, asks);
        // An order that was not taken whole is not run.
        link.stream.write_all(&order.encode()).await.map_err(|error| ShellError::Start(error.to_string()))?;
        let (folder, path) = (Arc::clone(&self.folder), Arc::clone(&self.path));
        Ok(RunningCommand {
            session,
            link: Some(link),
            lost,
            stop: StopState::No,
            folder,
            path,
            is_apart,
            notes: Vec::new(),
        })
    }

    /// Ends the shell and everything that it started, and waits for that. The next command gets a new shell in the same
    /// folder.
    pub async fn close(&self) {
        let mut session = self.session.lock().await;
        if let Some(mut link) = session.link.take() {
            session.lost = Some(ShellLoss::Stopped);
            // The end of what it reads is the order to end.
            let _ = link.stream.shutdown().await;
            let ended = async {
                while link.next().await.is_ok() {}
                link.kill_orphans();
                link.child.wait().await
            };
            if tokio::time::timeout(PATIENCE, ended).await.is_err() {
                tracing::warn!("an exec child did not exit in time");
            }
        }
    }
}

/// A running command. No other can use the shell while this exists.
#[derive(Debug)]
pub struct RunningCommand {
    session: OwnedMutexGuard<ShellSession>,
    link: Option<ChildLink>,
    lost: Option<ShellLoss>,
    stop: StopState,
    folder: Arc<watch::Sender<Option<PathBuf>>>,
    path: Arc<watch::Sender<SearchPathState>>,
    /// In a shell of its own, which leaves the session's as it is.
    is_apart: bool,
    notes: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
enum StopState {
    No,
    Until(tokio::time::Instant),
}

impl RunningCommand {
    /// Returns the reason that this command has a new shell, if it replaced another.
    pub const fn shell_loss(&self) -> Option<ShellLoss> {
        self.lost
    }

    /// Returns the folder in which the next new shell will start.
    pub fn next_cwd(&self) -> Option<&Path> {
        self.session.cwd.as_deref()
    }

    /// Takes the notes about its network, once it has ended.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Returns the process that leads everything that runs here; absent once it was waited for.
    pub fn leader_pid(&self) -> Option<u32> {
        self.link.as_ref()?.child.id()
    }

    /// Gives the command input, if its job takes any. [`ShellEvent::Taken`] reports how much of it has arrived; the caller bounds
    /// how much may be on its way.
    ///
    /// # Errors
    /// [`ShellError::Broken`] if the exec child is gone.
    pub async fn write_input(&mut self, bytes: Vec<u8>) -> Result<(), ShellError> {
        let link = self.link.as_mut().ok_or_else(|| ShellError::Broken(io::ErrorKind::NotConnected.into()))?;
        link.stream.write_all(&ChildOrder::Input(bytes).encode()).await.map_err(ShellError::Broken)
    }

    /// Returns true if the shell is gone since the last event: the next command gets a new one.
    pub fn shell_is_gone(&self) -> bool {
        !self.is_apart && self.session.lost.is_some()
    }

    /// Orders the command to end, and everything with it. [`RunningCommand::next`] continues until [`ShellEvent::Stopped`].
    pub async fn stop(&mut self) {
        let (StopState::No, Some(link)) = (self.stop, &mut self.link) else { return };
        self.stop = StopState::Until(tokio::time::Instant::now() + PATIENCE);
        // An exec child that does not take it is gone, which the next read shows.
        let _ = link.stream.write_all(&ChildOrder::Stop.encode()).await;
    }

    /// Waits for the next event of the command; not to be called after its end.
    ///
    /// *Cancellation*: nothing is lost.
    ///
    /// # Errors
    /// [`ShellError`], after which everything was killed.
    pub async fn next(&mut self) -> Result<ShellEvent, ShellError> {
        let link = self.link.as_mut().ok_or_else(|| ShellError::Broken(io::ErrorKind::NotConnected.into()))?;
        let report = match self.stop {
            StopState::No => link.next().await,
            StopState::Until(deadline) => match tokio::time::timeout_at(deadline, link.next()).await {
                Ok(report) => report,
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            },
        };
        if matches!(report, Ok(ChildReport::Ended(_))) {
            self.notes = link.end_call();
        }
        match report {
            Ok(ChildReport::Output(bytes)) => Ok(ShellEvent::Output(bytes)),
            Ok(ChildReport::Taken(count)) => Ok(ShellEvent::Taken(count)),
            Ok(ChildReport::Ended(ended)) if self.is_apart => {
                // Closing it ends the processes that it left.
                self.link = None;
                let is_stopped = matches!(self.stop, StopState::Until(_)) && !ended.alive;
                Ok(if is_stopped { ShellEvent::Stopped } else { ShellEvent::Exited(ended.code) })
            }
            Ok(ChildReport::Failed(reason)) if self.is_apart => {
                self.link = None;
                Err(ShellError::Start(reason))
            }
            Ok(ChildReport::Changed(what)) => {
                link.end_call();
                if !self.is_apart {
                    // The shell is as it was, and so is the loss that the next command reports.
                    self.session.link = self.link.take();
                    self.session.lost = self.lost.take();
                }
                self.link = None;
                Err(ShellError::Changed(what))
            }
            Ok(ChildReport::Ended(ended)) => {
                self.session.link = self.link.take();
                self.path.send_replace(match (ended.alive, ended.path) {
                    // The next one is new.
                    (false, _) => SearchPathState::Given,
                    (true, Some(path)) => SearchPathState::Is(path),
                    (true, None) => SearchPathState::Unknown,
                });
                if let Some(cwd) = ended.cwd {
                    let cwd = PathBuf::from(cwd);
                    self.folder.send_replace(Some(cwd.clone()));
                    self.session.cwd = Some(cwd);
                }
                let stopped = matches!(self.stop, StopState::Until(_)) && !ended.alive;
                self.session.lost = match (ended.alive, stopped) {
                    (true, _) => None,
                    (false, true) => Some(ShellLoss::Stopped),
                    (false, false) => Some(ShellLoss::Exited),
                };
                Ok(if stopped { ShellEvent::Stopped } else { ShellEvent::Exited(ended.code) })
            }
            Ok(ChildReport::Network(_)) => {
                self.link = None;
                Err(ShellError::Broken(io::Error::other("the exec child reported its network twice")))
            }
            Ok(ChildReport::Failed(reason)) => {
                link.end_call();
                self.session.link = self.link.take();
                self.session.lost = Some(ShellLoss::Exited);
                self.path.send_replace(SearchPathState::Given);
                Err(ShellError::Start(reason))
            }
            Err(error) => {
                self.link = None;
                if !self.is_apart {
                    self.path.send_replace(SearchPathState::Given);
                }
                Err(ShellError::Broken(error))
            }
        }
    }
}
