//! The gsv adapter: clients that chat and manage agents, nodes that offer tools, channels that are chat networks; all over
//! one WebSocket at `/ws`. Source: docs/protocol/gsv.md.
//!
//! It decides nothing: a frame becomes a command, and its result becomes an answer or an event.

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
mod ordered_requests;
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
use countersign_runtime::{Clock, InboxLane, OwnerHandle, tools::AgentTool};
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
pub use local_node_auth::LocalNodeAuth;
pub use nodes::{ExecutionsView, NodeRegistryView, StartedCallsView, assumed_call};
pub use registry::SessionRegistryView;

/// Most events that a client may be behind before it has to reconnect.
const BEHIND: usize = 4096;

/// Error of opening the adapter.
#[derive(Debug, thiserror::Error)]
pub enum GsvOpenError {
    /// Secrets cannot be read.
    #[error(transparent)]
    Secrets(#[from] SecretsError),
    /// The record can no longer be worked with.
    #[error("the gateway is closing")]
    Closing,
}

/// Parts of a gateway that the adapter works with.
pub struct GsvContext {
    /// Owner of the record.
    pub handle: OwnerHandle,
    /// Clock.
    pub clock: Clock,
    /// Configuration.
    pub config: Arc<Config>,
    /// Conversations of the gateway.
    pub chats: Arc<Conversations>,
    /// Health probe of the messenger, if there is one.
    pub telegram: Option<HealthProbe>,
    /// Returns the approved tools of the gateway's MCP servers, for runs of the agents that use them.
    pub server_tools: Arc<dyn Fn() -> Vec<Arc<dyn AgentTool>> + Send + Sync>,
}

/// Adapter. One serves all peers of a gateway.
pub struct GsvAdapter {
    context: Arc<GsvContext>,
    settings: Arc<GsvSettings>,
    roster: PeerRoster,
    session_locks: chat::SessionLocks,
    cards: chat::ShownCards,
    /// Queued messages whose clients know that a gate waits.
    notices: chat::SentNotices,
    /// Archives of jobs that were removed.
    trimmed: chat::TrimmedArchives,
    /// Wrong tokens, by address.
    wrong: Mutex<FailedAuth>,
    /// Files of agents as runs began with them.
    reading: prompt::RunFiles,
    networks: channels::ChannelState,
    automation: automation::AutomationState,
    /// Tools of nodes.
    toolbox: nodes::NodeTools,
    local_node_auth: LocalNodeAuth,
    nodes: nodes::NodeState,
    /// Events for every client. Each connection reads them at its own pace.
    events: broadcast::Sender<Arc<BroadcastEvent>>,
    /// Number of clients that subscribed to streamed output.
    listeners: AtomicUsize,
    closing: watch::Sender<bool>,
}

impl GsvAdapter {
    /// Opens the adapter. `local_node_auth` is that of the port at which it is served.
    ///
    /// # Errors
    /// If secrets that were set cannot be read, or the gateway closes.
    pub async fn open(
        context: &Arc<GsvContext>,
        local_node_auth: LocalNodeAuth,
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
            notices: chat::SentNotices::default(),
            trimmed: chat::TrimmedArchives::default(),
            wrong: Mutex::new(FailedAuth::new(context.config.limits.max_failed_auth_per_minute)),
            reading: prompt::RunFiles::default(),
            networks: channels::ChannelState::default(),
            automation: automation::AutomationState::default(),
            toolbox: nodes::NodeTools::default(),
            local_node_auth,
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
        // Outstanding work of this adapter's sessions begins now.
        context.handle.source(InboxLane::Request).post_command(Command::Tick).await;
        Ok(door)
    }

    /// Takes a messenger as a chat network.
    pub async fn join_messenger(self: &Arc<Self>, telegram: &TelegramMessenger, ear: &InboundHook) {
        channels::join_telegram(self, telegram.chat_sender(), ear).await;
    }

    /// Reports whether anybody may connect: with a token from everywhere, without one from this machine only.
    pub fn is_open(&self) -> bool {
        self.settings.peer_token().is_some() || self.context.config.gateway.is_loopback()
    }

    /// Reports whether peers have to show a token.
    pub fn asks_for_token(&self) -> bool {
        self.settings.peer_token().is_some()
    }

    /// Reports whether a peer may connect that shows this token, or none. Each that may not is counted.
    fn trusts_token(&self, shown: Option<&str>, from: IpAddr) -> bool {
        if self.is_limited(from) {
            return false;
        }
        let is_trusted = self.settings.trusts_token(shown);
        let mut wrong = self.wrong.lock();
        // Without a configured token no peer is identified by one.
        match (is_trusted, shown) {
            (true, Some(_)) if self.settings.peer_token().is_some() => wrong.record_success(from),
            (true, _) => {}
            (false, _) => wrong.record_failure(from, self.context.clock.now()),
        }
        is_trusted
    }

    /// Reports whether too many wrong tokens came from an address.
    fn is_limited(&self, from: IpAddr) -> bool {
        self.wrong.lock().is_limited(from, self.context.clock.now())
    }

    /// Serves one connection to its end. `word` is the one-time token that a node of this machine has shown.
    pub fn serve_socket(
        self: Arc<Self>,
        socket: WebSocket,
        guest: ConnectionInfo,
        word: Option<String>,
    ) -> impl Future<Output = ()> {
        connection::serve_peer(self, Box::new(socket), guest, word)
    }

    /// Closes every connection; peers reconnect.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Sends a notice during a run to every client, under the run's name.
    fn broadcast_notice(&self, session_key: &str, run: &str, notice: &GsvMessage) {
        // Without a client there is no receiver.
        let _ = self.events.send(Arc::new(BroadcastEvent::new_notice(session_key, run, notice)));
    }

    /// Sends a state of a chat to every client. `seq` is the record of it, if there is one.
    fn broadcast_state(&self, session_key: &str, run: Option<&str>, state: ChatEventState, seq: Option<Lsn>) {
        // Without a client there is no receiver.
        let _ = self.events.send(Arc::new(BroadcastEvent::new(session_key, run, state, seq)));
    }
}
