//! The bridge: the same door over HTTPS. Source: docs/protocol/gjc.md, Bridge.
//!
//! It decides nothing about calls, gates or runs: what clients send becomes lines for a door, what the door says becomes
//! frames in envelopes, which every client reads at its own pace.

mod answers;
mod control;
mod conversation;
mod keys;
mod line;
mod routes;
mod setup;
mod waiting;

use std::{io, net::SocketAddr, sync::Arc};

use axum::Router;
use countersign_protocol::{
    RawJson,
    gjc::{bridge::BridgeError, registry::SessionTransport},
};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use ring::digest;
use secrecy::{ExposeSecret as _, SecretString};
use subtle::ConstantTimeEq as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::conversation::Conversation;
pub use self::setup::{Plain, Setup, SetupError};
use super::Presence;
use countersign_adapter_omp::{ClientInput, FrameSender, OpenAdapter, StartError};
use countersign_http::listen::{AllowedHosts, BoundPort};

/// How many connections there are at most.
const CONNECTIONS: usize = 512;
/// How many of them may be streams of events.
const STREAMS: usize = 448;
/// How many sessions there are at most.
const SESSIONS: usize = 32;
/// How many lines wait for a door at most.
const WAITING: usize = 256;
/// How many frames of a door wait at most.
const FRAMES: usize = 256;

/// What a request came to, where it is no stream.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    body: RawJson,
}

/// Which session a door is opened on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one that the command line says.
    First,
    /// A new one.
    New,
    /// The one whose id begins so.
    Resumed(String),
}

/// Opens the door of a session.
pub type Opener = Box<dyn Fn(Which, FrameSender) -> BoxFuture<'static, Result<OpenAdapter, StartError>> + Send + Sync>;

/// The bridge, with its port bound.
pub struct Bridge {
    port: BoundPort,
    house: Arc<House>,
}

/// What answers behind the port.
struct House {
    setup: Setup,
    is_tls: bool,
    hosts: AllowedHosts,
    /// Where clients find it.
    address: String,
    /// The first is the one that clients mean who name none.
    conversations: Mutex<Vec<Arc<Conversation>>>,
    streams: Arc<Semaphore>,
    /// Room for sessions; each has one for as long as its door is open.
    rooms: Arc<Semaphore>,
    open: Opener,
    /// Ends the doors.
    end: CancellationToken,
    doors: TaskTracker,
}

impl Bridge {
    /// Binds the port and opens the first session.
    ///
    /// # Errors
    /// What keeps it from that, for a person.
    pub async fn open(setup: Setup, open: Opener) -> Result<Self, BridgeStartError> {
        let unbound = |source| BridgeStartError::Bind { address: setup.address, source };
        let port = BoundPort::bind(setup.address, setup.tls.clone()).map_err(unbound)?;
        let address = format!("{}://{}", port.scheme(), port.local_address().map_err(unbound)?);
        let (hosts, is_tls) = (AllowedHosts::new(setup.address.ip(), []), setup.tls.is_some());
        let house = Arc::new(House {
            setup,
            is_tls,
            hosts,
            address,
            conversations: Mutex::default(),
            streams: Arc::new(Semaphore::new(STREAMS)),
            rooms: Arc::new(Semaphore::new(SESSIONS)),
            open,
            end: CancellationToken::new(),
            doors: TaskTracker::new(),
        });
        let room = Arc::clone(&house.rooms).acquire_owned().await.ok();
        house.begin(Which::First, room).await.map_err(BridgeStartError::Door)?;
        Ok(Self { port, house })
    }

    /// Its address, such as `https://127.0.0.1:4077`.
    pub fn address(&self) -> &str {
        &self.house.address
    }

    /// Serves until `stop` is ready or the last session has ended. Sessions are whole after it.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) {
        let Self { port, house } = self;
        let router = Router::new().fallback(routes::answer).with_state(Arc::clone(&house));
        let ended = async {
            tokio::select! {
                () = stop => {}
                () = house.all_ended() => {}
            }
            house.end.cancel();
            house.doors.close();
            // The frames end with the doors, and the streams with the frames.
            house.doors.wait().await;
        };
        port.serve_router(router, CONNECTIONS, ended).await;
    }
}

/// Why the bridge did not open.
#[derive(Debug, thiserror::Error)]
pub enum BridgeStartError {
    /// The port.
    #[error("the bridge cannot listen on {address}: {source}")]
    Bind {
        /// The port's address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The session.
    #[error("{0}")]
    Door(StartError),
}

impl House {
    /// Whether a token is the one that the host gave. It takes as long for each.
    fn knows(&self, token: &str) -> bool {
        knows(&self.setup.token, token)
    }

    /// The conversation about `session`: one that goes on, where it was taken up again after an end.
    fn find(&self, session: &str) -> Result<Arc<Conversation>, BridgeError> {
        let all = self.conversations.lock();
        let found = all.iter().filter(|one| one.is_called(session)).min_by_key(|one| one.window.is_over());
        found.cloned().ok_or(BridgeError::NotFound)
    }

    /// Takes one in, and lets go of those that have ended. The first stays: another one is not what clients mean who name none.
    fn take_in(&self, conversation: Arc<Conversation>) {
        let mut all = self.conversations.lock();
        let mut is_first = true;
        all.retain(|one| std::mem::take(&mut is_first) || !one.window.is_over());
        all.push(conversation);
    }

    /// The first of all at the front, and those that were not let go of.
    fn all(&self) -> Vec<Arc<Conversation>> {
        self.conversations.lock().clone()
    }

    /// Opens a session, which has this room.
    async fn begin(&self, which: Which, room: Option<OwnedSemaphorePermit>) -> Result<Arc<Conversation>, StartError> {
        let (output, frames) = mpsc::channel(FRAMES);
        let door = (self.open)(which, output).await?;
        let (lines, input) = mpsc::channel(WAITING);
        let conversation = Conversation::new(lines, door.current_session());
        self.take_in(Arc::clone(&conversation));
        let presence = Presence::of(door.session_listing(), SessionTransport::Bridge, Some(self.address.clone()));
        let served = serve(door, presence, input, self.end.clone());
        self.doors.spawn(async move {
            served.await;
            drop(room);
        });
        let heard = Arc::clone(&conversation);
        self.doors.spawn(async move { heard.hear(frames).await });
        let told = Arc::clone(&conversation);
        self.doors.spawn(async move { told.tell_who_is_here().await });
        Ok(conversation)
    }

    /// Ready once no session is left.
    async fn all_ended(&self) {
        // Others may be opened while one is waited for.
        while let Some(one) = self.all().into_iter().find(|one| !one.window.is_over()) {
            one.window.ended().await;
        }
    }
}

async fn serve(door: OpenAdapter, presence: Presence, input: mpsc::Receiver<ClientInput>, end: CancellationToken) {
    if let Err(error) = door.run_for(input, end.cancelled()).await {
        tracing::warn!(%error, "a session of the bridge has ended");
    }
    drop(presence);
}

fn knows(token: &SecretString, shown: &str) -> bool {
    let digest = |text: &str| digest::digest(&digest::SHA256, text.as_bytes());
    digest(token.expose_secret()).as_ref().ct_eq(digest(shown).as_ref()).into()
}

#[cfg(test)]
mod tests;
