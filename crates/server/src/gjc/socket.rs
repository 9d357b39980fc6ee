//! The gjc door on a Unix socket: one client at a time, the newest, and a session that outlives them. Source:
//! docs/protocol/gjc.md, Socket.
//!
//! It must not know what commands do: what a client says becomes lines for the door, what the door says goes to whoever is
//! connected.

mod line;
mod place;

use std::{collections::BTreeMap, io, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use countersign_protocol::{
    gjc::{
        bridge::{About, Told},
        event::FrameType,
        registry::Transport,
    },
    lines::Line,
};
use parking_lot::Mutex;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::mpsc,
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use self::place::Owned;
pub use self::place::SocketError;
use super::{Presence, window::Window};
use crate::{
    listen::peer,
    omp::{OpenDoor, StartError},
};

/// How many events are kept for a client that comes back.
const EVENTS: usize = 10_000;
/// How many lines a client may be behind.
const LINES: usize = 10_000;
/// How many lines wait for the door at most; the socket holds the rest.
const WAITING: usize = 256;
/// How long nobody is taken after the system would not give a connection: out of descriptors, most likely.
const RECOVERY: Duration = Duration::from_millis(50);
/// How long a client has for the last frames.
const FAREWELL: Duration = Duration::from_millis(500);

/// A socket that is ours, and not served yet.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    place: Owned,
}

/// What the door said, for whoever is connected.
struct Said {
    /// Every line, under numbers of our own.
    lines: Arc<Window>,
    /// Events, under theirs.
    events: Arc<Window>,
    /// The dialogs that wait, in the order in which they were opened.
    dialogs: Mutex<BTreeMap<u64, (String, Bytes)>>,
}

impl Socket {
    /// Opens the socket at `path`, for the user `us`.
    ///
    /// # Errors
    /// [`SocketError`], with nothing changed but what a dead process left.
    pub fn open(path: PathBuf, us: u32) -> Result<Self, SocketError> {
        let (listener, place) = place::take(path, us)?;
        Ok(Self { listener, place })
    }

    /// Serves the door until `stop` is ready. `frames` is where the door writes to.
    ///
    /// # Errors
    /// [`StartError`] if the session's log ended before that.
    pub async fn run(
        self,
        door: OpenDoor,
        frames: mpsc::Receiver<Bytes>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), StartError> {
        let Self { listener, place } = self;
        let listed = Presence::of(&door, Transport::Socket, Some(place.path().display().to_string()));
        let said = Arc::new(Said {
            lines: Window::new(LINES, 0),
            events: Window::new(EVENTS, door.last_seq()),
            dialogs: Mutex::default(),
        });
        let (lines, input) = mpsc::channel(WAITING);
        let hearing = tokio::spawn(hear(frames, Arc::clone(&said)));
        let open = TaskTracker::new();
        let taking = tokio::spawn(take(listener, place.user(), said, lines, open.clone()));
        let outcome = door.run(input, stop).await;
        // Its frames end with it; the client has a moment for the last of them.
        let _ = hearing.await;
        open.close();
        let _ = tokio::time::timeout(FAREWELL, open.wait()).await;
        taking.abort();
        drop((listed, place));
        outcome
    }
}

/// Hears what the door says.
async fn hear(mut frames: mpsc::Receiver<Bytes>, said: Arc<Said>) {
    while let Some(frame) = frames.recv().await {
        said.hear(frame);
    }
    said.lines.end();
}

impl Said {
    fn hear(&self, frame: Bytes) {
        let told = std::str::from_utf8(&frame).ok().and_then(Told::read);
        if let Some(Told { kind, seq, about, .. }) = told {
            match (kind, seq, about) {
                // Each connection has its own.
                (FrameType::Ready, ..) => return,
                (FrameType::Event, Some(seq), _) => self.events.keep(seq, frame.clone()),
                (_, _, About::Dialog(id)) => {
                    self.dialogs.lock().insert(self.lines.last() + 1, (id, frame.clone()));
                }
                (_, _, About::DialogEnds(id)) => self.ends(&id),
                _ => {}
            }
        }
        self.lines.push(|_| frame);
    }

    /// A dialog waits no more.
    fn ends(&self, dialog: &str) {
        self.dialogs.lock().retain(|_, (id, _)| id != dialog);
    }
}

/// Takes one client after another. Whoever comes takes the place of the one before.
async fn take(listener: UnixListener, us: u32, said: Arc<Said>, lines: mpsc::Sender<Line>, open: TaskTracker) {
    // Ends the line of whoever is connected.
    let mut current: Option<DropGuard> = None;
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection to the socket could not be taken");
                tokio::time::sleep(RECOVERY).await;
                continue;
            }
        };
        if !may_enter(&stream, us) {
            continue;
        }
        let gone = CancellationToken::new();
        drop(current.replace(gone.clone().drop_guard()));
        let (said, lines) = (Arc::clone(&said), lines.clone());
        open.spawn(async move {
            tokio::select! {
                () = gone.cancelled() => {}
                // What goes wrong on a line is its client's business; the session goes on.
                _ = line::serve(stream, &said, &lines) => {}
            }
        });
    }
}

/// Whether somebody is the socket's own user, or root, and none of the commands that the agent runs: these could answer for
/// the host.
fn may_enter(stream: &UnixStream, us: u32) -> bool {
    let peer: io::Result<_> = stream.peer_cred();
    peer.is_ok_and(|peer| (peer.uid() == us || peer.uid() == 0) && peer::may_decide(peer.pid()))
}
