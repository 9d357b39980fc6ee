//! The gsv door: clients that chat and look after agents, nodes that offer tools, channels that are chat networks; all over
//! one WebSocket at `/ws`. Source: docs/protocol/gsv.md.
//!
//! It decides nothing: a frame becomes a command, and what became of it becomes an answer or an event.

mod answer;
mod automation;
pub mod channels;
mod chat;
mod config;
mod connection;
mod delivery;
mod dispatch;
mod greeter;
mod host;
mod load;
mod native;
mod nodes;
mod outbox;
mod peer;
mod prompt;
mod registry;
mod roster;
mod settings;
mod shown;
mod skills;
mod told;
mod workspace;

use std::{
    net::IpAddr,
    sync::{Arc, atomic::AtomicUsize},
};

use axum::extract::ws::WebSocket;
use countersign_config::Config;
use countersign_conversations::chats::{Chats, Workrooms};
use countersign_core::{engine::Command, id::Lsn};
use countersign_http::{limits::FailedAuth, listen::ConnectionInfo};
use countersign_protocol::gsv::{chat::ChatEventState, message::GsvMessage};
use countersign_runtime::{Clock, InboxLane, OwnerHandle};
use countersign_telegram::{HealthProbe, InboundHook, TelegramMessenger};
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};

use roster::Roster;
use settings::{SecretsError, Settings};
use told::Told;

pub use automation::History;
pub use channels::{LETTERS, webhook::routes};
pub use chat::Memories;
pub use host::Wings;
pub use native::known as native_known;
pub use nodes::{Executions, NodeCalls, NodeRegister, supposed};
pub use registry::Registry;

/// How many events a client may be behind before it has to come again.
const BEHIND: usize = 4096;

/// Why the door was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
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
    pub chats: Arc<Chats>,
    /// Reports how the messenger is, if there is one.
    pub telegram: Option<HealthProbe>,
}

/// The door. One serves all peers of a gateway.
pub struct Door {
    context: Arc<GsvContext>,
    settings: Arc<Settings>,
    roster: Roster,
    desks: chat::Desks,
    cards: chat::Cards,
    /// Which archives of jobs are gone.
    trimmed: chat::Trimmed,
    /// Wrong tokens, by where they came from.
    wrong: Mutex<FailedAuth>,
    /// The files of agents as runs began with them.
    reading: prompt::Reading,
    networks: channels::Networks,
    automation: automation::Automation,
    /// The tools of nodes.
    toolbox: nodes::Toolbox,
    greeter: greeter::Greeter,
    nodes: nodes::Nodes,
    /// Events for every client. Each connection takes them at its own pace.
    told: broadcast::Sender<Arc<Told>>,
    /// How many clients want to hear what is said while it is said.
    listeners: AtomicUsize,
    closing: watch::Sender<bool>,
}

impl Door {
    /// Opens the door on a gateway that listens at `port`.
    ///
    /// # Errors
    /// If secrets that were set cannot be read, or the gateway closes.
    pub async fn open(
        context: &Arc<GsvContext>,
        port: u16,
        wings: &Wings,
        rooms: &Arc<Workrooms>,
    ) -> Result<Arc<Self>, OpenError> {
        let settings = Arc::new(Settings::of(&context.config)?);
        settings.follow(&context.handle).await.ok_or(OpenError::Closing)?;
        let door = Arc::new(Self {
            settings,
            roster: Roster::default(),
            desks: chat::Desks::default(),
            cards: chat::Cards::default(),
            trimmed: chat::Trimmed::default(),
            wrong: Mutex::new(FailedAuth::new(context.config.limits.max_failed_auth_per_minute)),
            reading: prompt::Reading::default(),
            networks: channels::Networks::default(),
            automation: automation::Automation::default(),
            toolbox: nodes::Toolbox::default(),
            greeter: greeter::Greeter::beside(port),
            nodes: nodes::Nodes::default(),
            told: broadcast::Sender::new(BEHIND),
            listeners: AtomicUsize::new(0),
            closing: watch::Sender::new(false),
            context: Arc::clone(context),
        });
        chat::follow(&door).await.ok_or(OpenError::Closing)?;
        chat::memory::follow(&door).await.ok_or(OpenError::Closing)?;
        channels::follow(&door).await.ok_or(OpenError::Closing)?;
        automation::follow(&door).await.ok_or(OpenError::Closing)?;
        nodes::follow(&door).await.ok_or(OpenError::Closing)?;
        wings.open(&door, rooms);
        // What was owed to sessions of this door is begun now.
        context.handle.source(InboxLane::Request).post_command(Command::Tick).await;
        Ok(door)
    }

    /// Takes a messenger as a chat network.
    pub async fn join(self: &Arc<Self>, telegram: &TelegramMessenger, ear: &InboundHook) {
        channels::join_telegram(self, telegram.chat_sender(), ear).await;
    }

    /// Whether anybody may connect: with a token from everywhere, without one from this machine only.
    pub fn is_open(&self) -> bool {
        self.settings.token().is_some() || self.context.config.gateway.is_loopback()
    }

    /// Whether peers have to show a token.
    pub fn asks_for_token(&self) -> bool {
        self.settings.token().is_some()
    }

    /// Whether a peer may connect that shows this token, or none. Each that may not is counted.
    fn trusts(&self, shown: Option<&str>, from: IpAddr) -> bool {
        if self.is_limited(from) {
            return false;
        }
        let is_trusted = self.settings.trusts(shown);
        let mut wrong = self.wrong.lock();
        // Where no token is asked for nobody is known by it.
        match (is_trusted, shown) {
            (true, Some(_)) if self.settings.token().is_some() => wrong.record_success(from),
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
    pub fn serve(
        self: Arc<Self>,
        socket: WebSocket,
        guest: ConnectionInfo,
        word: Option<String>,
    ) -> impl Future<Output = ()> {
        connection::serve(self, Box::new(socket), guest, word)
    }

    /// Has every connection close; peers come back.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Tells every client something beside a run, under the run's name.
    fn notify(&self, session_key: &str, run: &str, notice: &GsvMessage) {
        // Without a client there is nobody to tell.
        let _ = self.told.send(Arc::new(Told::notice(session_key, run, notice)));
    }

    /// Tells every client what happened in a chat. `seq` is the record that says so, if there is one.
    fn tell(&self, session_key: &str, run: Option<&str>, state: ChatEventState, seq: Option<Lsn>) {
        // Without a client there is nobody to tell.
        let _ = self.told.send(Arc::new(Told::new(session_key, run, state, seq)));
    }
}
