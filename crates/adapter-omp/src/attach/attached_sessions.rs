//! Attached sessions: each with its environment, while its host is connected and until its remaining work is done.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use countersign_core::{
    engine::{Command, CommandError, RecordedFact},
    id::SessionId,
    session::SessionEntry,
};
use countersign_runtime::{InboxLane, OwnerError, RunEnvironment};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{AttachServer, home};
use crate::{session_environment::SessionEnvironment, session_file_writer::SessionFileWriter};

/// Time before the log is tried again after it took nothing.
const AGAIN: Duration = Duration::from_secs(30);

/// The sessions of hosts. What the owner of the record asks for the work of one.
#[derive(Default)]
pub struct AttachedSessions(Mutex<BTreeMap<SessionId, AttachedSession>>);

enum AttachedSession {
    /// A host is there, or about to be. Work continues with what the one before it left.
    Here { process: u32, environment: Option<Arc<SessionEnvironment>> },
    /// Its host has gone, and something still works or waits.
    Leaving { environment: Arc<SessionEnvironment>, stays: CancellationToken, left: oneshot::Receiver<()> },
}

/// Another host has the session.
#[derive(Clone, Copy, Debug)]
pub struct AlreadyAttached {
    /// The number of its process.
    pub process: u32,
}

impl AttachedSessions {
    /// Returns the environment of a session.
    pub fn environment_for(&self, session: &SessionId) -> Option<Arc<dyn RunEnvironment>> {
        let sessions = self.0.lock();
        let environment = match sessions.get(session)? {
            AttachedSession::Here { environment, .. } => environment.as_ref()?,
            AttachedSession::Leaving { environment, .. } => environment,
        };
        Some(Arc::clone(environment) as Arc<dyn RunEnvironment>)
    }
}

/// A host's hold on its session. Dropping it leaves the session.
pub struct AttachGuard {
    pub server: Arc<AttachServer>,
    session: SessionId,
    /// The agent directory.
    root: PathBuf,
    environment: Option<Arc<SessionEnvironment>>,
    file_writer: Option<SessionFileWriter>,
}

impl AttachGuard {
    /// Enters with a session, and gives what the host before left working in it, if something still does.
    ///
    /// # Errors
    /// The session has a host already: it may have one.
    pub async fn attach_session(
        server: &Arc<AttachServer>,
        session: &SessionId,
        root: PathBuf,
        process: u32,
    ) -> Result<(Self, Option<Arc<SessionEnvironment>>), AlreadyAttached> {
        let left = {
            let mut sessions = server.sessions.0.lock();
            match sessions.remove(session) {
                Some(here @ AttachedSession::Here { process: first, .. }) => {
                    sessions.insert(session.clone(), here);
                    return Err(AlreadyAttached { process: first });
                }
                Some(AttachedSession::Leaving { environment, stays, left }) => {
                    let here = AttachedSession::Here { process, environment: Some(Arc::clone(&environment)) };
                    sessions.insert(session.clone(), here);
                    stays.cancel();
                    Some((environment, left))
                }
                None => {
                    sessions.insert(session.clone(), AttachedSession::Here { process, environment: None });
                    None
                }
            }
        };
        let (environment, left) = left.unzip();
        let (server, session) = (Arc::clone(server), session.clone());
        let guard = Self { server, session, root, environment: environment.clone(), file_writer: None };
        if let Some(left) = left {
            // Two never write one file.
            let _ = left.await;
        }
        Ok((guard, environment))
    }

    /// Sets the environment of the session from now on.
    pub fn set_environment(&mut self, environment: &Arc<SessionEnvironment>) {
        self.environment = Some(Arc::clone(environment));
        if let Some(AttachedSession::Here { environment: works, .. }) =
            self.server.sessions.0.lock().get_mut(&self.session)
        {
            *works = Some(Arc::clone(environment));
        }
    }

    /// Leaves. What works or waits continues, and the file is written until it has ended.
    pub fn detach_with(mut self, file_writer: Option<SessionFileWriter>) {
        self.file_writer = file_writer;
    }
}

impl Drop for AttachGuard {
    fn drop(&mut self) {
        let mut sessions = self.server.sessions.0.lock();
        let Some(environment) = self.environment.take() else {
            sessions.remove(&self.session);
            return;
        };
        let stays = CancellationToken::new();
        let (gone, left) = oneshot::channel();
        let guest = AttachedSession::Leaving { environment: Arc::clone(&environment), stays: stays.clone(), left };
        sessions.insert(self.session.clone(), guest);
        let leaving = DetachTask {
            server: Arc::clone(&self.server),
            session: self.session.clone(),
            root: std::mem::take(&mut self.root),
            environment,
            file_writer: self.file_writer.take(),
        };
        self.server.open.spawn(async move {
            leaving.run_detach(stays).await;
            let _ = gone.send(());
        });
    }
}

/// A session whose host has gone.
struct DetachTask {
    server: Arc<AttachServer>,
    session: SessionId,
    root: PathBuf,
    environment: Arc<SessionEnvironment>,
    file_writer: Option<SessionFileWriter>,
}

impl DetachTask {
    async fn run_detach(self, stays: CancellationToken) {
        let is_over = tokio::select! {
            biased;
            () = stays.cancelled() => false,
            () = self.leave_session() => true,
        };
        if let Some(file_writer) = self.file_writer {
            file_writer.stop().await;
        }
        if !is_over {
            return;
        }
        self.environment.close().await;
        let session = self.session.clone();
        let requests = self.server.handle.source(InboxLane::Request);
        let read = requests.read_state(move |engine| {
            let session = engine.state().session(&session)?;
            Some(session.entries().iter().any(is_message_entry))
        });
        // Of a host that only looked nothing is left.
        if let Some((Some(false), _)) = read.await {
            home::remove_home(&self.root, &self.session);
        }
        let mut sessions = self.server.sessions.0.lock();
        // Another host may have come meanwhile.
        if let Some(AttachedSession::Leaving { .. }) = sessions.get(&self.session) {
            sessions.remove(&self.session);
        }
    }

    /// Waits until nothing works or waits in the session and its rules were taken away, or the record has ended.
    async fn leave_session(&self) {
        let requests = self.server.handle.source(InboxLane::Request);
        let session = self.session.clone();
        let of_session =
            move |recorded: &Arc<RecordedFact>| (recorded.meta.session.as_ref() == Some(&session)).then_some(());
        let Some(mut changes) = self.server.handle.follow_facts(of_session).await else { return };
        loop {
            match requests.send_command(Command::Leave(self.session.clone())).await {
                Ok(_) | Err(OwnerError::Closed) => return,
                Err(OwnerError::Refusal(CommandError::Busy(_))) => {}
                // A log that takes nothing now is tried again: the session itself has no event that would be a reason to.
                Err(refused) => {
                    tracing::warn!(%refused, "failed to detach a session after its host disconnected");
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
            }
            if changes.next().await.is_none() {
                return;
            }
        }
    }
}

fn is_message_entry(entry: &SessionEntry) -> bool {
    entry.kind.is_message()
}
