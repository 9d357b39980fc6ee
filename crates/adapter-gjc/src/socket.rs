//! The gjc adapter on a Unix socket: one client at a time, the newest, and a session that outlives them. Source:
//! docs/protocol/gjc.md, Socket.
//!
//! It must not know what commands do: what a client sends becomes lines for the adapter, and the adapter's frames go to the connected
//! client.

mod client_connection;
mod event_replay;
mod socket_guard;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use countersign_protocol::gjc::{
    bridge::{AdapterFrame, FrameSubject},
    event::FrameType,
    registry::SessionTransport,
};
use parking_lot::Mutex;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

pub use self::socket_guard::SocketError;
use self::{event_replay::EventReplay, socket_guard::SocketGuard};
use super::{SessionPresence, frame_window::FrameWindow};
use countersign_adapter_omp::{ClientInput, OpenAdapter, StartError};
use countersign_http::{
    listen::peer::{LocalPeer, is_guarded},
    log_throttle::LogThrottle,
};

/// Number of events that are kept for a client that reconnects.
const EVENTS: usize = 10_000;
/// Maximum number of lines by which a client may lag.
const LINES: usize = 10_000;
/// Maximum number of lines that wait for the adapter; the socket holds the rest.
const WAITING: usize = 256;
/// Pause before the next client is accepted after `accept` failed, most likely because no descriptor was free.
const RECOVERY: Duration = Duration::from_millis(50);
/// Time for a client to read the last frames.
const FAREWELL: Duration = Duration::from_millis(500);

/// A socket that is ours, and not served yet.
#[derive(Debug)]
pub struct SocketServer {
    listener: UnixListener,
    guard: SocketGuard,
}

/// Output of the adapter, for the connected client.
struct SocketOutput {
    /// Every line, under numbers of our own.
    lines: Arc<FrameWindow>,
    /// Events, under theirs.
    events: Arc<FrameWindow>,
    /// Events of processes before this one.
    replay: Option<EventReplay>,
    /// The number of the last of them.
    first: u64,
    /// The session that was open at first.
    session: String,
    /// The dialogs that wait, in the order in which they were opened.
    dialogs: Mutex<BTreeMap<u64, (String, Bytes)>>,
    /// The client for whom lines are that come now.
    client: watch::Sender<u64>,
}

impl SocketServer {
    /// Opens the socket at `path`, for the user `us`.
    ///
    /// # Errors
    /// [`SocketError`], with nothing changed but what a dead process left.
    pub fn open(path: PathBuf, us: u32) -> Result<Self, SocketError> {
        let (listener, guard) = socket_guard::bind_socket(path, us)?;
        Ok(Self { listener, guard })
    }

    /// Serves the adapter until `stop` is ready. `frames` is where the adapter writes to.
    ///
    /// # Errors
    /// [`StartError`] if the session's log ended before that.
    pub async fn run(
        self,
        mut adapter: OpenAdapter,
        frames: mpsc::Receiver<Bytes>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), StartError> {
        let Self { listener, guard } = self;
        let listed = SessionPresence::for_listing(
            adapter.session_listing(),
            SessionTransport::Socket,
            Some(guard.socket_path().display().to_string()),
        );
        let output = Arc::new(SocketOutput {
            lines: FrameWindow::new(LINES, 0),
            events: FrameWindow::new(EVENTS, adapter.last_seq()),
            replay: adapter.take_earlier_events().map(EventReplay::new),
            first: adapter.last_seq(),
            session: adapter.current_session().borrow().clone(),
            dialogs: Mutex::default(),
            client: watch::Sender::new(0),
        });
        let (lines, input) = mpsc::channel(WAITING);
        let hearing = tokio::spawn(forward_frames(frames, Arc::clone(&output)));
        let open = TaskTracker::new();
        let taking = tokio::spawn(accept_clients(listener, guard.user_id(), output, lines, open.clone()));
        let outcome = adapter.run_for(input, stop).await;
        // Its frames end with it; the client has a moment for the last of them.
        let _ = hearing.await;
        open.close();
        let _ = tokio::time::timeout(FAREWELL, open.wait()).await;
        taking.abort();
        drop((listed, guard));
        outcome
    }
}

/// Reads the adapter's frames.
async fn forward_frames(mut frames: mpsc::Receiver<Bytes>, output: Arc<SocketOutput>) {
    while let Some(frame) = frames.recv().await {
        output.handle_frame(frame);
    }
    output.lines.end();
}

impl SocketOutput {
    fn handle_frame(&self, frame: Bytes) {
        let parsed = std::str::from_utf8(&frame).ok().and_then(AdapterFrame::from_line);
        if let Some(AdapterFrame { kind, seq, about, .. }) = parsed {
            match (kind, seq, about) {
                (.., FrameSubject::Client(number)) => {
                    self.client.send_replace(number);
                    return;
                }
                // Each connection has its own.
                (FrameType::Ready, ..) => return,
                (FrameType::Event, Some(seq), _) => self.events.push_numbered(seq, frame.clone()),
                (_, _, FrameSubject::Dialog(id)) => {
                    self.dialogs.lock().insert(self.lines.last_number() + 1, (id, frame.clone()));
                }
                (_, _, FrameSubject::DialogEnds(id)) => self.close_dialog(&id),
                _ => {}
            }
        }
        self.lines.push(|_| frame);
    }

    /// Forgets a dialog that no longer waits.
    fn close_dialog(&self, dialog: &str) {
        self.dialogs.lock().retain(|_, (id, _)| id != dialog);
    }
}

/// Accepts one client after another. A new client replaces the one before.
async fn accept_clients(
    listener: UnixListener,
    us: u32,
    output: Arc<SocketOutput>,
    lines: mpsc::Sender<ClientInput>,
    open: TaskTracker,
) {
    // Ends the connection of the current client, and reports when it has ended.
    let mut current: Option<(DropGuard, JoinHandle<()>)> = None;
    let mut failing = LogThrottle::default();
    for number in 1.. {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                if let Some(before) = failing.try_log() {
                    tracing::warn!(%error, before, "failed to accept a connection to the session socket");
                }
                tokio::time::sleep(RECOVERY).await;
                continue;
            }
        };
        if !may_enter(&stream, us).await {
            continue;
        }
        let gone = CancellationToken::new();
        let before = current.take().map(|(_, ended)| ended);
        let (output, lines, taken) = (Arc::clone(&output), lines.clone(), gone.clone());
        let ended = open.spawn(async move {
            if let Some(before) = before {
                // The lines of the previous client come before those of this one.
                let _ = before.await;
            }
            let served = async {
                announce_client(number, &output, &lines).await?;
                // An error on a connection concerns its client only; the session continues.
                let _ = client_connection::serve_client(stream, &output, &lines).await;
                lines.send(ClientInput::Left).await.ok()
            };
            tokio::select! {
                () = taken.cancelled() => {}
                _ = served => {}
            }
        });
        current = Some((gone.drop_guard(), ended));
    }
}

/// Informs the adapter that another client is connected. The frames before are not for this one: requests to the previous client
/// must reach no other client. None if the adapter has ended.
async fn announce_client(number: u64, output: &SocketOutput, lines: &mpsc::Sender<ClientInput>) -> Option<()> {
    let mut client = output.client.subscribe();
    lines.send(ClientInput::Arrived(number)).await.ok()?;
    tokio::select! {
        known = client.wait_for(|client| *client >= number) => known.ok().map(drop),
        () = output.lines.wait_until_over() => None,
    }
}

/// Reports whether a peer is the socket's own user, or root, and none of the commands that the agent runs: these could answer for
/// the host.
async fn may_enter(stream: &UnixStream, us: u32) -> bool {
    let (Ok(peer), Ok(local)) = (stream.peer_cred(), LocalPeer::from_stream(stream)) else { return false };
    (peer.uid() == us || peer.uid() == 0) && !is_guarded(local.pid()).await && local.may_decide().await
}
