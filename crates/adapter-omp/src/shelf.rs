//! Where sessions are kept, and how the log of one is opened: its own, or that of the gateway that it lives in.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use countersign_core::{
    engine::{ActiveRules, Command, ResumeMode},
    id::SessionId,
};
use countersign_runtime::{
    InboxLane, OwnerHandle, OwnerOptions,
    store::{self, AnyLog, MemoryLog, SqliteLog},
    system_entropy,
    tools::{TodoList, artifacts},
};

use super::{
    liveness::is_alive,
    seat_error::SeatError,
    workshop::{Common, Workshop},
};
use crate::{
    attach::{
        Hall, Stay,
        home::{self, Home},
    },
    session_file::Blobs,
};

/// How often it is looked whether a host that died has left its session, and how far apart.
const LOOKS: u32 = 100;
const LOOK: std::time::Duration = std::time::Duration::from_millis(20);

/// Where sessions of a process are kept.
#[derive(Clone)]
pub struct Shelf {
    pub common: Arc<Common>,
    pub rules: ActiveRules,
    /// Absent: sessions leave nothing on disk.
    pub folder: Option<PathBuf>,
    pub cwd: PathBuf,
    pub merge: std::time::Duration,
    /// How often a run is reminded of open tasks.
    pub reminders: u32,
    /// The folder for temporary files.
    pub temporary: PathBuf,
    /// The gateway that sessions live in, where they do not live in logs of their own.
    pub(crate) abroad: Option<Abroad>,
}

/// How sessions of a process live in a gateway.
#[derive(Clone)]
pub(crate) struct Abroad {
    pub hall: Arc<Hall>,
    /// The process that everything goes to and comes from.
    pub process: u32,
    /// Whether a session that has a log of its own comes along.
    pub moves: bool,
}

/// A log that is open for a session, and what works for it.
pub(super) struct Open {
    pub(super) handle: OwnerHandle,
    pub(super) workshop: Arc<Workshop>,
    pub(super) stay: Option<Stay>,
}

impl Open {
    /// Gives it up again.
    pub(super) async fn close(self) {
        if self.stay.is_none() {
            self.handle.close().await;
            self.handle.close_log().await;
        }
    }
}

impl Shelf {
    fn log(&self, id: &SessionId) -> Result<AnyLog, SeatError> {
        if self.folder.is_none() {
            return Ok(MemoryLog::new().into());
        }
        let path = home::own_log(self.common.folder.root(), id);
        // One reserve for all sessions of the folder, made behind the first record and not at the start.
        let options =
            store::LogOptions { ballast: Some(path.with_file_name("ballast")), ..store::LogOptions::default() };
        SqliteLog::open(&path, options).map(AnyLog::from).map_err(SeatError::Log)
    }

    /// Opens the log of a session: its own, or that of the gateway, where it is one of the guests then.
    pub(super) async fn open(&self, id: &SessionId, todos: TodoList) -> Result<Open, SeatError> {
        match &self.abroad {
            None => self.open_own(id, todos).await,
            Some(abroad) => self.open_abroad(abroad, id, todos).await,
        }
    }

    async fn open_own(&self, id: &SessionId, todos: TodoList) -> Result<Open, SeatError> {
        let elsewhere = |gateway: PathBuf| SeatError::Elsewhere { id: id.clone(), gateway };
        if let Some(home) = self.home(id)? {
            return Err(elsewhere(home.gateway));
        }
        let workshop = Arc::new(self.workshop(todos));
        // Its host is to hear all that is done: work starts when the host is told where the session stands.
        let handle = OwnerHandle::open_held(self.log(id)?, self.options(&workshop)).await?;
        let open = Open { handle, workshop, stay: None };
        let wanted = id.clone();
        let requests = open.handle.source(InboxLane::Request);
        let read = requests.read_state(move |engine| engine.state().session(&wanted)?.left_for().map(PathBuf::from));
        if let Some((Some(gateway), _)) = read.await {
            open.close().await;
            return Err(elsewhere(gateway));
        }
        Ok(open)
    }

    async fn open_abroad(&self, abroad: &Abroad, id: &SessionId, todos: TodoList) -> Result<Open, SeatError> {
        if !home::is_plain(id) {
            return Err(SeatError::BadId(id.to_string()));
        }
        let gateway = self.home(id)?.map(|home| home.gateway).filter(|gateway| *gateway != abroad.hall.folder);
        if let Some(gateway) = gateway {
            return Err(SeatError::Elsewhere { id: id.clone(), gateway });
        }
        let root = self.common.folder.root().to_owned();
        let mut looks = LOOKS;
        let (mut stay, before) = loop {
            match Stay::enter(&abroad.hall, id, root.clone(), abroad.process).await {
                Ok(entered) => break entered,
                // A host that died holds its place until its line is seen to end.
                Err(taken) if looks > 0 && !is_alive(taken.process) => {
                    looks -= 1;
                    tokio::time::sleep(LOOK).await;
                }
                Err(taken) => return Err(SeatError::Taken { id: id.clone(), process: taken.process }),
            }
        };
        let workshop = Arc::new(match before {
            Some(before) => Workshop::after(&before, Arc::clone(&self.common)),
            None => self.workshop(todos),
        });
        stay.settle(&workshop);
        let handle = abroad.hall.handle.clone();
        let rules = Command::UseRulesFor(id.clone(), Box::new(self.rules.clone()));
        handle.source(InboxLane::Request).send_command(rules).await?;
        Ok(Open { handle, workshop, stay: Some(stay) })
    }

    /// Where a session lives, if not in a log of its own.
    pub(super) fn home(&self, id: &SessionId) -> Result<Option<Home>, SeatError> {
        if self.folder.is_none() {
            return Ok(None);
        }
        home::read(self.common.folder.root(), id).map_err(SeatError::Home)
    }

    /// Writes where a session lives, before anything of it is acknowledged. True if nobody knew.
    pub(super) fn come_home(&self, id: &SessionId, file: &Path) -> Result<bool, SeatError> {
        let Some(abroad) = self.abroad.as_ref().filter(|_| self.folder.is_some()) else { return Ok(false) };
        let home = Home { session: id.to_string(), gateway: abroad.hall.folder.clone(), file: file.to_owned() };
        let known = self.home(id)?;
        if known.as_ref() == Some(&home) {
            return Ok(false);
        }
        home::write(self.common.folder.root(), id, &home).map_err(SeatError::Home)?;
        Ok(known.is_none())
    }

    fn options(&self, workshop: &Arc<Workshop>) -> OwnerOptions {
        OwnerOptions {
            rules: self.rules.clone(),
            resume: ResumeMode::Wait,
            clock: self.common.clock.clone(),
            entropy: system_entropy(),
            environment: Arc::clone(workshop) as Arc<dyn countersign_runtime::RunEnvironment>,
            merge: self.merge,
            // The one session of its log.
            idle: None,
        }
    }

    fn workshop(&self, todos: TodoList) -> Workshop {
        // A name that nobody can guess cannot be taken before us.
        let mut name = [0; 12];
        let _ = getrandom::fill(&mut name);
        let artifacts = artifacts::session_folder(&self.temporary, name);
        Workshop::new(Arc::clone(&self.common), todos, Some(artifacts))
    }

    pub(crate) fn blobs(&self) -> Blobs {
        Blobs::new(self.common.folder.blobs_dir())
    }
}
