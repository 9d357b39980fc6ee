//! Who is in the hall: each session with what works for it, while its host is there and until what it left is done.

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

use super::{Hall, home};
use crate::{keeper::Keeper, workshop::Workshop};

/// How long after the log took nothing it is asked again.
const AGAIN: Duration = Duration::from_secs(30);

/// The sessions of hosts. What the owner of the record asks for the work of one.
#[derive(Default)]
pub struct Guests(Mutex<BTreeMap<SessionId, Guest>>);

enum Guest {
    /// A host is there, or about to be. Work goes on with what the one before it left.
    Here { process: u32, workshop: Option<Arc<Workshop>> },
    /// Its host has gone, and something still works or waits.
    Leaving { workshop: Arc<Workshop>, stays: CancellationToken, left: oneshot::Receiver<()> },
}

/// Another host has the session.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// The number of its process.
    pub process: u32,
}

impl Guests {
    /// What works for a session.
    pub fn of(&self, session: &SessionId) -> Option<Arc<dyn RunEnvironment>> {
        let guests = self.0.lock();
        let workshop = match guests.get(session)? {
            Guest::Here { workshop, .. } => workshop.as_ref()?,
            Guest::Leaving { workshop, .. } => workshop,
        };
        Some(Arc::clone(workshop) as Arc<dyn RunEnvironment>)
    }
}

/// A host's hold on its session. Whoever lets go of it leaves.
pub struct Stay {
    pub hall: Arc<Hall>,
    session: SessionId,
    /// The agent directory.
    root: PathBuf,
    workshop: Option<Arc<Workshop>>,
    keeper: Option<Keeper>,
}

impl Stay {
    /// Enters with a session, and gives what the host before left working in it, if something still does.
    ///
    /// # Errors
    /// `Taken`: a session has one host.
    pub async fn enter(
        hall: &Arc<Hall>,
        session: &SessionId,
        root: PathBuf,
        process: u32,
    ) -> Result<(Self, Option<Arc<Workshop>>), Taken> {
        let left = {
            let mut guests = hall.guests.0.lock();
            match guests.remove(session) {
                Some(here @ Guest::Here { process: first, .. }) => {
                    guests.insert(session.clone(), here);
                    return Err(Taken { process: first });
                }
                Some(Guest::Leaving { workshop, stays, left }) => {
                    let here = Guest::Here { process, workshop: Some(Arc::clone(&workshop)) };
                    guests.insert(session.clone(), here);
                    stays.cancel();
                    Some((workshop, left))
                }
                None => {
                    guests.insert(session.clone(), Guest::Here { process, workshop: None });
                    None
                }
            }
        };
        let (workshop, left) = left.unzip();
        let (hall, session) = (Arc::clone(hall), session.clone());
        let stay = Self { hall, session, root, workshop: workshop.clone(), keeper: None };
        if let Some(left) = left {
            // Two never write one file.
            let _ = left.await;
        }
        Ok((stay, workshop))
    }

    /// Has `workshop` work for the session from now on.
    pub fn settle(&mut self, workshop: &Arc<Workshop>) {
        self.workshop = Some(Arc::clone(workshop));
        if let Some(Guest::Here { workshop: works, .. }) = self.hall.guests.0.lock().get_mut(&self.session) {
            *works = Some(Arc::clone(workshop));
        }
    }

    /// Leaves. What works or waits goes on, and the file is written until it has ended.
    pub fn leave(mut self, keeper: Option<Keeper>) {
        self.keeper = keeper;
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        let mut guests = self.hall.guests.0.lock();
        let Some(workshop) = self.workshop.take() else {
            guests.remove(&self.session);
            return;
        };
        let stays = CancellationToken::new();
        let (gone, left) = oneshot::channel();
        let guest = Guest::Leaving { workshop: Arc::clone(&workshop), stays: stays.clone(), left };
        guests.insert(self.session.clone(), guest);
        let leaving = Leaving {
            hall: Arc::clone(&self.hall),
            session: self.session.clone(),
            root: std::mem::take(&mut self.root),
            workshop,
            keeper: self.keeper.take(),
        };
        self.hall.open.spawn(async move {
            leaving.leave(stays).await;
            let _ = gone.send(());
        });
    }
}

/// A session whose host has gone.
struct Leaving {
    hall: Arc<Hall>,
    session: SessionId,
    root: PathBuf,
    workshop: Arc<Workshop>,
    keeper: Option<Keeper>,
}

impl Leaving {
    async fn leave(self, stays: CancellationToken) {
        let is_over = tokio::select! {
            biased;
            () = stays.cancelled() => false,
            () = self.ended() => true,
        };
        if let Some(keeper) = self.keeper {
            keeper.stop().await;
        }
        if !is_over {
            return;
        }
        self.workshop.close().await;
        let session = self.session.clone();
        let requests = self.hall.handle.source(InboxLane::Request);
        let read = requests.read_state(move |engine| {
            let session = engine.state().session(&session)?;
            Some(session.entries().iter().any(said))
        });
        // Of a host that only looked nothing is left.
        if let Some((Some(false), _)) = read.await {
            home::forget(&self.root, &self.session);
        }
        let mut guests = self.hall.guests.0.lock();
        // Somebody may have come meanwhile.
        if let Some(Guest::Leaving { .. }) = guests.get(&self.session) {
            guests.remove(&self.session);
        }
    }

    /// Ready once nothing works or waits in the session and its rules were taken away, or the record has ended.
    async fn ended(&self) {
        let requests = self.hall.handle.source(InboxLane::Request);
        let session = self.session.clone();
        let of_session =
            move |recorded: &Arc<RecordedFact>| (recorded.meta.session.as_ref() == Some(&session)).then_some(());
        let Some(mut changes) = self.hall.handle.follow_facts(of_session).await else { return };
        loop {
            match requests.send_command(Command::Leave(self.session.clone())).await {
                Ok(_) | Err(OwnerError::Closed) => return,
                Err(OwnerError::Refusal(CommandError::Busy(_))) => {}
                // A log that takes nothing now is asked again: nothing happens in the session that would be a reason to.
                Err(refused) => {
                    tracing::warn!(%refused, "a session whose host has gone could not be left");
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

fn said(entry: &SessionEntry) -> bool {
    entry.kind.is_message()
}
