//! The gsv door: clients that chat and look after agents, nodes that offer tools, channels that are chat networks; all over
//! one WebSocket at `/ws`. Source: docs/protocol/gsv.md.
//!
//! It decides nothing: a frame becomes a command, and what became of it becomes an answer or an event.

mod automation;
mod broadcast_event;
mod builtin_tools;
pub mod channels;
mod chat;
mod config;
mod connection;
mod delivery;
mod dispatch;
mod environments;
mod local_node_auth;
mod method_result;
mod nodes;
mod outbox;
mod peer;
mod prompt;
mod registry;
mod request_load;
mod roster;
mod settings;
mod skills;
mod status;
mod workspace;

use std::{
    net::IpAddr,
    sync::{Arc, atomic::AtomicUsize},
};

use axum::extract::ws::WebSocket;
use countersign_config::Config;
use countersign_conversations::chats::{Conversations, SessionWorkspaces};
use countersign_core::{engine::Command, id::Lsn};
use countersign_http::{limits::FailedAuth, listen::ConnectionInfo};
use countersign_protocol::gsv::{chat::ChatEventState, message::GsvMessage};
use countersign_runtime::{Clock, InboxLane, OwnerHandle};
use countersign_telegram::{HealthProbe, InboundHook, TelegramMessenger};
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};

use broadcast_event::BroadcastEvent;
use roster::PeerRoster;
use settings::{GsvSettings, SecretsError};

pub use automation::JobRunsView;
pub use builtin_tools::known_tools as native_known;
pub use channels::{LETTERS, webhook::webhook_routes};
pub use chat::MemoriesView;
pub use environments::GsvEnvironments;
pub use nodes::{ExecutionsView, NodeRegistryView, StartedCallsView, assumed_call};
pub use registry::SessionRegistryView;

/// How many events a client may be behind before it has to come again.
const BEHIND: usize = 4096;

/// Why the door was not opened.
#[derive(Debug, thiserror::Error)]
pub enum GsvOpenError {
    /// Secrets cannot be read.
    #[error(transparent)]
    Secrets(#[from] SecretsError),
    /// The record can no longer be worked with.
    #[error("the gateway is closing")]
    Closing,
}

/// The parts of a gateway that the adapter works with.
pub struct GsvContext {
    /// The owner of the record.
    pub handle: OwnerHandle,
    /// The time.
    pub clock: Clock,
    /// The configuration.
    pub config: Arc<Config>,
    /// The gateway's own conversations.
    pub chats: Arc<Conversations>,
    /// Reports how the messenger is, if there is one.
    pub telegram: Option<HealthProbe>,
}

/// The door. One serves all peers of a gateway.
pub struct GsvAdapter {
    context: Arc<GsvContext>,
    settings: Arc<GsvSettings>,
    roster: PeerRoster,
    session_locks: chat::SessionLocks,
    cards: chat::ShownCards,
    /// Which archives of jobs are gone.
    trimmed: chat::TrimmedArchives,
    /// Wrong tokens, by where they came from.
    wrong: Mutex<FailedAuth>,
    /// The files of agents as runs began with them.
    reading: prompt::RunFiles,
    networks: channels::ChannelState,
    automation: automation::AutomationState,
    /// The tools of nodes.
    toolbox: nodes::NodeTools,
    local_node_auth: local_node_auth::LocalNodeAuth,
    nodes: nodes::NodeState,
    /// Events for every client. Each connection takes them at its own pace.
    events: broadcast::Sender<Arc<BroadcastEvent>>,
    /// How many clients want to hear what is said while it is said.
    listeners: AtomicUsize,
    closing: watch::Sender<bool>,
}

impl GsvAdapter {
    /// Opens the door on a gateway that listens at `port`.
    ///
    /// # Errors
    /// If secrets that were set cannot be read, or the gateway closes.
    pub async fn open(
        context: &Arc<GsvContext>,
        port: u16,
        wings: &GsvEnvironments,
        rooms: &Arc<SessionWorkspaces>,
    ) -> Result<Arc<Self>, GsvOpenError> {
        let settings = Arc::new(GsvSettings::from_config(&context.config)?);
        settings.follow_changes(&context.handle).await.ok_or(GsvOpenError::Closing)?;
        let door = Arc::new(Self {
            settings,
            roster: PeerRoster::default(),
            session_locks: chat::SessionLocks::default(),
            cards: chat::ShownCards::default(),
            trimmed: chat::TrimmedArchives::default(),
            wrong: Mutex::new(FailedAuth::new(context.config.limits.max_failed_auth_per_minute)),
            reading: prompt::RunFiles::default(),
            networks: channels::ChannelState::default(),
            automation: automation::AutomationState::default(),
            toolbox: nodes::NodeTools::default(),
            local_node_auth: local_node_auth::LocalNodeAuth::listen_beside(port),
            nodes: nodes::NodeState::default(),
            events: broadcast::Sender::new(BEHIND),
            listeners: AtomicUsize::new(0),
            closing: watch::Sender::new(false),
            context: Arc::clone(context),
        });
        chat::follow_sessions(&door).await.ok_or(GsvOpenError::Closing)?;
        chat::memory::follow_renewals(&door).await.ok_or(GsvOpenError::Closing)?;
        channels::follow_channels(&door).await.ok_or(GsvOpenError::Closing)?;
        automation::follow_settings(&door).await.ok_or(GsvOpenError::Closing)?;
        nodes::follow_calls(&door).await.ok_or(GsvOpenError::Closing)?;
        wings.open(&door, rooms);
        // What was owed to sessions of this door is begun now.
        context.handle.source(InboxLane::Request).post_command(Command::Tick).await;
        Ok(door)
    }

    /// Takes a messenger as a chat network.
    pub async fn join_messenger(self: &Arc<Self>, telegram: &TelegramMessenger, ear: &InboundHook) {
        channels::join_telegram(self, telegram.chat_sender(), ear).await;
    }

    /// Whether anybody may connect: with a token from everywhere, without one from this machine only.
    pub fn is_open(&self) -> bool {
        self.settings.peer_token().is_some() || self.context.config.gateway.is_loopback()
    }

    /// Whether peers have to show a token.
    pub fn asks_for_token(&self) -> bool {
        self.settings.peer_token().is_some()
    }

    /// Whether a peer may connect that shows this token, or none. Each that may not is counted.
    fn trusts_token(&self, shown: Option<&str>, from: IpAddr) -> bool {
        if self.is_limited(from) {
            return false;
        }
        let is_trusted = self.settings.trusts_token(shown);
        let mut wrong = self.wrong.lock();
        // Where no token is asked for nobody is known by it.
        match (is_trusted, shown) {
            (true, Some(_)) if self.settings.peer_token().is_some() => wrong.record_success(from),
            (true, _) => {}
            (false, _) => wrong.record_failure(from, self.context.clock.now()),
        }
        is_trusted
    }

    /// Whether too many wrong tokens came from an address.
    fn is_limited(&self, from: IpAddr) -> bool {
        self.wrong.lock().is_limited(from, self.context.clock.now())
    }

    /// Serves one connection to its end. `word` is what it showed that a node of this machine is given.
    pub fn serve_socket(
        self: Arc<Self>,
        socket: WebSocket,
        guest: ConnectionInfo,
        word: Option<String>,
    ) -> impl Future<Output = ()> {
        connection::serve_peer(self, Box::new(socket), guest, word)
    }

    /// Has every connection close; peers come back.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Tells every client something beside a run, under the run's name.
    fn broadcast_notice(&self, session_key: &str, run: &str, notice: &GsvMessage) {
        // Without a client there is nobody to tell.
        let _ = self.events.send(Arc::new(BroadcastEvent::new_notice(session_key, run, notice)));
    }

    /// Tells every client what happened in a chat. `seq` is the record that says so, if there is one.
    fn broadcast_state(&self, session_key: &str, run: Option<&str>, state: ChatEventState, seq: Option<Lsn>) {
        // Without a client there is nobody to tell.
        let _ = self.events.send(Arc::new(BroadcastEvent::new(session_key, run, state, seq)));
    }
}
