//! The bridge: the same adapter over HTTPS. Source: docs/protocol/gjc.md, Bridge.
//!
//! It decides nothing about calls, gates or runs: what clients send becomes lines for an adapter, what the adapter says becomes
//! frames in envelopes, which every client reads at its own pace.

mod answer_lines;
mod control;
mod conversation;
mod host_presence;
mod idempotency;
mod open_prompts;
mod routes;
mod setup;

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

use self::conversation::BridgeConversation;
pub use self::setup::{BridgeSetup, SetupError, TlsPolicy};
use super::SessionPresence;
use countersign_adapter_omp::{ClientInput, FrameSender, OpenAdapter, StartError};
use countersign_http::listen::{AllowedHosts, BoundPort};

/// Maximum number of connections.
const CONNECTIONS: usize = 512;
/// Maximum number of connections that are streams of events.
const STREAMS: usize = 448;
/// Maximum number of sessions.
const SESSIONS: usize = 32;
/// Maximum number of lines that wait for an adapter.
const WAITING: usize = 256;
/// Maximum number of waiting frames of an adapter.
const FRAMES: usize = 256;

/// Answer to a request that is no stream.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BridgeAnswer {
    status: u16,
    body: RawJson,
}

/// Selects the session on which an adapter is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionSelector {
    /// The one that the command line says.
    First,
    /// A new one.
    New,
    /// The one whose id begins so.
    Resumed(String),
}

/// Opens the adapter of a session.
pub type AdapterOpener =
    Box<dyn Fn(SessionSelector, FrameSender) -> BoxFuture<'static, Result<OpenAdapter, StartError>> + Send + Sync>;

/// The bridge, with its port bound.
pub struct BridgeServer {
    port: BoundPort,
    state: Arc<BridgeState>,
}

/// State that request handlers share.
struct BridgeState {
    setup: BridgeSetup,
    is_tls: bool,
    hosts: AllowedHosts,
    /// Address under which clients find the bridge.
    address: String,
    /// The first is the one that clients mean who name none.
    conversations: Mutex<Vec<Arc<BridgeConversation>>>,
    streams: Arc<Semaphore>,
    /// Room for sessions; each has one for as long as its adapter is open.
    session_slots: Arc<Semaphore>,
    open_adapter: AdapterOpener,
    /// Ends the adapters.
    end: CancellationToken,
    adapters: TaskTracker,
}

impl BridgeServer {
    /// Binds the port and opens the first session.
    ///
    /// # Errors
    /// [`BridgeStartError`], for a user.
    pub async fn open(setup: BridgeSetup, open: AdapterOpener) -> Result<Self, BridgeStartError> {
        let unbound = |source| BridgeStartError::Bind { address: setup.address, source };
        let port = BoundPort::bind(setup.address, setup.tls.clone()).map_err(unbound)?;
        let address = format!("{}://{}", port.scheme(), port.local_address().map_err(unbound)?);
        let (hosts, is_tls) = (AllowedHosts::new(setup.address.ip(), []), setup.tls.is_some());
        let state = Arc::new(BridgeState {
            setup,
            is_tls,
            hosts,
            address,
            conversations: Mutex::default(),
            streams: Arc::new(Semaphore::new(STREAMS)),
            session_slots: Arc::new(Semaphore::new(SESSIONS)),
            open_adapter: open,
            end: CancellationToken::new(),
            adapters: TaskTracker::new(),
        });
        let slot = Arc::clone(&state.session_slots).acquire_owned().await.ok();
        state.open_conversation(SessionSelector::First, slot).await.map_err(BridgeStartError::Door)?;
        Ok(Self { port, state })
    }

    /// Returns its address, such as `https://127.0.0.1:4077`.
    pub fn address(&self) -> &str {
        &self.state.address
    }

    /// Serves until `stop` is ready or the last session has ended. Sessions are whole after it.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) {
        let Self { port, state } = self;
        let router = Router::new().fallback(routes::answer_request).with_state(Arc::clone(&state));
        let ended = async {
            tokio::select! {
                () = stop => {}
                () = state.all_ended() => {}
            }
            state.end.cancel();
            state.adapters.close();
            // The frames end with the adapters, and the streams with the frames.
            state.adapters.wait().await;
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
        /// Error of the system.
        source: io::Error,
    },
    /// The session.
    #[error("{0}")]
    Door(StartError),
}

impl BridgeState {
    /// Reports whether a token is the one that the host gave. Takes the same time for each token.
    fn knows_token(&self, token: &str) -> bool {
        token_matches(&self.setup.token, token)
    }

    /// Returns the conversation about `session`: one that continues, where it was taken up again after an end.
    fn find_conversation(&self, session: &str) -> Result<Arc<BridgeConversation>, BridgeError> {
        let all = self.conversations.lock();
        let found = all.iter().filter(|one| one.is_called(session)).min_by_key(|one| one.window.is_over());
        found.cloned().ok_or(BridgeError::NotFound)
    }

    /// Takes one in, and lets go of those that have ended. The first stays: another one is not what clients mean who name none.
    fn add_conversation(&self, conversation: Arc<BridgeConversation>) {
        let mut all = self.conversations.lock();
        let mut is_first = true;
        all.retain(|one| std::mem::take(&mut is_first) || !one.window.is_over());
        all.push(conversation);
    }

    /// Returns the first of all at the front, and those that were not let go of.
    fn all_conversations(&self) -> Vec<Arc<BridgeConversation>> {
        self.conversations.lock().clone()
    }

    /// Opens a session, which has this room.
    async fn open_conversation(
        &self,
        which: SessionSelector,
        slot: Option<OwnedSemaphorePermit>,
    ) -> Result<Arc<BridgeConversation>, StartError> {
        let (output, frames) = mpsc::channel(FRAMES);
        let adapter = (self.open_adapter)(which, output).await?;
        let (lines, input) = mpsc::channel(WAITING);
        let conversation = BridgeConversation::new(lines, adapter.current_session());
        self.add_conversation(Arc::clone(&conversation));
        let presence = SessionPresence::for_listing(
            adapter.session_listing(),
            SessionTransport::Bridge,
            Some(self.address.clone()),
        );
        let served = serve_adapter(adapter, presence, input, self.end.clone());
        self.adapters.spawn(async move {
            served.await;
            drop(slot);
        });
        let reader = Arc::clone(&conversation);
        self.adapters.spawn(async move { reader.read_frames(frames).await });
        let reporter = Arc::clone(&conversation);
        self.adapters.spawn(async move { reporter.report_presence().await });
        Ok(conversation)
    }

    /// Waits until no session is left.
    async fn all_ended(&self) {
        // Others may be opened while one is waited for.
        while let Some(one) = self.all_conversations().into_iter().find(|one| !one.window.is_over()) {
            one.window.wait_until_over().await;
        }
    }
}

async fn serve_adapter(
    adapter: OpenAdapter,
    presence: SessionPresence,
    input: mpsc::Receiver<ClientInput>,
    end: CancellationToken,
) {
    if let Err(error) = adapter.run_for(input, end.cancelled()).await {
        tracing::warn!(%error, "a session of the bridge ended with an error");
    }
    drop(presence);
}

fn token_matches(token: &SecretString, shown: &str) -> bool {
    let digest = |text: &str| digest::digest(&digest::SHA256, text.as_bytes());
    digest(token.expose_secret()).as_ref().ct_eq(digest(shown).as_ref()).into()
}

#[cfg(test)]
mod tests;
