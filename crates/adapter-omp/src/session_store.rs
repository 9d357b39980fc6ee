//! Place of sessions, and the opening of the log of one: its own, or that of the gateway that it lives in.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use countersign_core::{
    engine::{ActiveRules, Command, ResumeMode},
    id::SessionId,
    policy::GrantReach,
};
use countersign_runtime::{
    InboxLane, OwnerHandle, OwnerOptions,
    store::{self, AnyLog, MemoryLog, SqliteLog},
    system_entropy,
    tools::{TodoList, artifacts},
};

use super::{
    liveness::is_alive,
    open_session_error::OpenSessionError,
    session_environment::{AdapterContext, SessionEnvironment},
};
use crate::{
    attach::{
        AttachGuard, AttachServer,
        home::{self, SessionHome},
    },
    session_file::BlobStore,
};

/// Number of checks whether a host that died has left its session, and the time between them.
const LOOKS: u32 = 100;
const LOOK: std::time::Duration = std::time::Duration::from_millis(20);

/// Place in which sessions of a process are kept.
#[derive(Clone)]
pub struct SessionStore {
    pub common: Arc<AdapterContext>,
    pub rules: ActiveRules,
    /// Absent: sessions leave nothing on disk.
    pub folder: Option<PathBuf>,
    pub cwd: PathBuf,
    pub merge: std::time::Duration,
    /// Number of reminders of open tasks in a run.
    pub reminders: u32,
    /// The folder for temporary files.
    pub temporary: PathBuf,
    /// The gateway that sessions live in, where they do not live in logs of their own.
    pub(crate) attach_target: Option<AttachTarget>,
}

/// Gateway in which sessions of a process live.
#[derive(Clone)]
pub(crate) struct AttachTarget {
    pub server: Arc<AttachServer>,
    /// The process that everything goes to and comes from.
    pub process: u32,
    /// True if a session that has a log of its own comes along.
    pub moves: bool,
}

/// A log that is open for a session, and what works for it.
pub(super) struct OpenedLog {
    pub(super) handle: OwnerHandle,
    pub(super) environment: Arc<SessionEnvironment>,
    pub(super) attach_guard: Option<AttachGuard>,
}

impl OpenedLog {
    /// Gives it up again.
    pub(super) async fn close(self) {
        if self.attach_guard.is_none() {
            self.handle.close().await;
            self.handle.close_log().await;
        }
    }
}

impl SessionStore {
    fn open_log(&self, id: &SessionId) -> Result<AnyLog, OpenSessionError> {
        if self.folder.is_none() {
            return Ok(MemoryLog::new().into());
        }
        let path = home::own_log(self.common.folder.root(), id);
        // One reserve for all sessions of the folder, made after the first record and not at the start.
        let options =
            store::LogOptions { ballast: Some(path.with_file_name("ballast")), ..store::LogOptions::default() };
        SqliteLog::open(&path, options).map(AnyLog::from).map_err(OpenSessionError::Log)
    }

    /// Opens the log of a session: its own, or that of the gateway, where it is then one of the attached sessions.
    pub(super) async fn open(&self, id: &SessionId, todos: TodoList) -> Result<OpenedLog, OpenSessionError> {
        match &self.attach_target {
            None => self.open_own(id, todos).await,
            Some(attach_target) => self.open_attached(attach_target, id, todos).await,
        }
    }

    async fn open_own(&self, id: &SessionId, todos: TodoList) -> Result<OpenedLog, OpenSessionError> {
        let elsewhere = |gateway: PathBuf| OpenSessionError::Elsewhere { id: id.clone(), gateway };
        if let Some(home) = self.session_home(id)? {
            return Err(elsewhere(home.gateway));
        }
        let environment = Arc::new(self.new_environment(todos));
        // Its host is to get all events: work starts when the host knows the state of the session.
        let handle = OwnerHandle::open_held(self.open_log(id)?, self.owner_options(&environment)).await?;
        let open = OpenedLog { handle, environment, attach_guard: None };
        let target = id.clone();
        let requests = open.handle.source(InboxLane::Request);
        let read = requests.read_state(move |engine| engine.state().session(&target)?.left_for().map(PathBuf::from));
        if let Some((Some(gateway), _)) = read.await {
            open.close().await;
            return Err(elsewhere(gateway));
        }
        Ok(open)
    }

    async fn open_attached(
        &self,
        attach_target: &AttachTarget,
        id: &SessionId,
        todos: TodoList,
    ) -> Result<OpenedLog, OpenSessionError> {
        if !home::is_plain(id) {
            return Err(OpenSessionError::BadId(id.to_string()));
        }
        let gateway =
            self.session_home(id)?.map(|home| home.gateway).filter(|gateway| *gateway != attach_target.server.folder);
        if let Some(gateway) = gateway {
            return Err(OpenSessionError::Elsewhere { id: id.clone(), gateway });
        }
        let root = self.common.folder.root().to_owned();
        let mut looks = LOOKS;
        let (mut attach_guard, before) = loop {
            match AttachGuard::attach_session(&attach_target.server, id, root.clone(), attach_target.process).await {
                Ok(entered) => break entered,
                // A host that died holds its place until its line is seen to end.
                Err(taken) if looks > 0 && !is_alive(taken.process) => {
                    looks -= 1;
                    tokio::time::sleep(LOOK).await;
                }
                Err(taken) => return Err(OpenSessionError::Taken { id: id.clone(), process: taken.process }),
            }
        };
        let environment = Arc::new(match before {
            Some(before) => SessionEnvironment::continue_from(&before, Arc::clone(&self.common)),
            None => self.new_environment(todos),
        });
        attach_guard.set_environment(&environment);
        let handle = attach_target.server.handle.clone();
        let rules = Command::UseRulesFor(id.clone(), Box::new(self.rules.clone()));
        handle.source(InboxLane::Request).send_command(rules).await?;
        Ok(OpenedLog { handle, environment, attach_guard: Some(attach_guard) })
    }

    /// Returns the home of a session, if that is not a log of its own.
    pub(super) fn session_home(&self, id: &SessionId) -> Result<Option<SessionHome>, OpenSessionError> {
        if self.folder.is_none() {
            return Ok(None);
        }
        home::read_home(self.common.folder.root(), id).map_err(OpenSessionError::Home)
    }

    /// Writes the home of a session, before any of its commands is acknowledged. Returns true if the home was not known.
    pub(super) fn record_home(&self, id: &SessionId, file: &Path) -> Result<bool, OpenSessionError> {
        let Some(attach_target) = self.attach_target.as_ref().filter(|_| self.folder.is_some()) else {
            return Ok(false);
        };
        let home = SessionHome {
            session: id.to_string(),
            gateway: attach_target.server.folder.clone(),
            file: file.to_owned(),
        };
        let known = self.session_home(id)?;
        if known.as_ref() == Some(&home) {
            return Ok(false);
        }
        home::write_home(self.common.folder.root(), id, &home).map_err(OpenSessionError::Home)?;
        Ok(known.is_none())
    }

    fn owner_options(&self, environment: &Arc<SessionEnvironment>) -> OwnerOptions {
        OwnerOptions {
            rules: self.rules.clone(),
            resume: ResumeMode::Wait,
            clock: self.common.clock.clone(),
            entropy: system_entropy(),
            environment: Arc::clone(environment) as Arc<dyn countersign_runtime::RunEnvironment>,
            merge: self.merge,
            // The one session of its log.
            idle: None,
        }
    }

    fn new_environment(&self, todos: TodoList) -> SessionEnvironment {
        // A random name cannot be taken before us.
        let mut name = [0; 12];
        let _ = getrandom::fill(&mut name);
        let artifacts = artifacts::session_folder(&self.temporary, name);
        SessionEnvironment::new(Arc::clone(&self.common), todos, Some(artifacts))
    }

    /// Returns the reach of grants that outlive their sessions. In a gateway those of an agent directory are one realm among others.
    pub(crate) fn lasting_reach(&self) -> GrantReach {
        let realm = self.attach_target.as_ref().and_then(|_| self.rules.path_context.realm.clone());
        realm.map_or(GrantReach::Always, GrantReach::Realm)
    }

    pub(crate) fn blob_store(&self) -> BlobStore {
        BlobStore::new(self.common.folder.blobs_dir())
    }
}
