//! Telegram: cards in one chat, and the taps of those who may decide.
//!
//! It keeps nothing of its own. Which message shows which gate is recorded with the gate; what has to be sent or edited
//! follows from the log, so that a restart finds it again; a tap counts once because its id is the key of its answer.

mod bot;
mod bot_check;
mod card_writer;
mod chat_place;
mod chat_sender;
mod client;
mod files;
mod health;
mod mentions;
mod poll;
mod rates;
mod refs;
mod telegram_card;
pub mod transport;
mod uploads;
pub mod wire;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use countersign_core::{
    gate::IdentityMap,
    id::{PrincipalId, SessionId},
    time::Millis,
};
use countersign_runtime::{Clock, InboxLane, OwnerHandle};
use parking_lot::Mutex;
use secrecy::SecretString;
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

pub use self::chat_place::{ChatPlace, UnknownPlace};
pub use self::chat_sender::{ChatSender, ChatType, InboundHandler, InboundHook, IncomingChatMessage, UpdateFlow};
pub use self::files::{AttachedFile, FileFetchError, FileKind};
pub use self::{
    bot::BotChatKind,
    bot_check::{BotCheck, BotCheckError, check_bot},
    client::BadAddress,
    health::HealthReport,
    rates::WriteRates,
};
use self::{
    bot::{BotClient, MessageTarget},
    card_writer::CardWriter,
    client::BotTransport,
    health::HealthTracker,
    poll::UpdatePoller,
    refs::ButtonCodec,
};

/// The name of this surface in the record.
pub const SURFACE: &str = "telegram";
/// Principal that denies pending gates when the gateway ends, if a setting says so. Cards then show it.
pub const SHUTDOWN: &str = "gateway_shutdown";
/// Address of Telegram's own servers.
pub const API_URL: &str = "https://api.telegram.org";

/// The number under which a forum lists its General topic.
const GENERAL: i64 = 1;

/// Most texts that may wait to be sent whole.
const ORDERS: usize = 16;

/// Reports whether the agent of a session is there to receive a result. It is called on the owner's own path and must not wait.
pub type AgentOnline = Arc<dyn Fn(&SessionId) -> bool + Send + Sync>;

/// Reports how a messenger is.
pub type HealthProbe = Arc<dyn Fn() -> HealthReport + Send + Sync>;

/// Settings of the messenger.
#[derive(Clone)]
pub struct TelegramSettings {
    /// The bot's token.
    pub token: SecretString,
    /// The chat in which cards are shown; a group's is negative.
    pub chat: i64,
    /// The topic of the chat in which they are shown; without one its General.
    pub topic: Option<i64>,
    /// The users whose taps and replies count.
    pub allowed_users: BTreeSet<i64>,
    /// The Bot API server.
    pub api_url: String,
    /// Time that one poll waits for updates.
    pub poll: Duration,
    /// Limits of its writing.
    pub rates: WriteRates,
    /// Identities of people, for texts for people.
    pub people: IdentityMap,
    /// Hook for messages other than answers. None if they are never handled.
    pub ear: Option<Arc<InboundHook>>,
    /// Check for the presence of an agent; by default the messenger takes all of them for present.
    pub presence: AgentOnline,
}

impl TelegramSettings {
    /// Makes settings with Telegram's own servers and figures.
    pub fn new(token: SecretString, chat: i64, allowed_users: impl IntoIterator<Item = i64>) -> Self {
        Self {
            token,
            chat,
            topic: None,
            allowed_users: allowed_users.into_iter().collect(),
            api_url: API_URL.to_owned(),
            poll: Duration::from_secs(25),
            rates: WriteRates::default(),
            people: IdentityMap::default(),
            ear: None,
            presence: Arc::new(|_| true),
        }
    }
}

/// State that both tasks share.
struct MessengerContext {
    bot: BotClient,
    refs: ButtonCodec,
    handle: OwnerHandle,
    clock: Clock,
    allowed_users: BTreeSet<i64>,
    presence: AgentOnline,
    people: IdentityMap,
    ear: Option<Arc<InboundHook>>,
    configured: i64,
    topic: Option<i64>,
    /// The chat's id now: a group that becomes a supergroup gets another.
    chat: AtomicI64,
    /// The names of those who tapped, for people to read. What counts is the id, and that alone is recorded.
    names: Mutex<BTreeMap<i64, String>>,
    stop: CancellationToken,
}

impl MessengerContext {
    fn chat_id(&self) -> i64 {
        self.chat.load(Ordering::Relaxed)
    }

    /// Returns the target of a message in the chat of the cards.
    fn message_target(&self, chat: i64, reply_to: Option<i64>) -> MessageTarget {
        MessageTarget { chat, topic: self.topic, reply_to }
    }

    fn is_ours(&self, chat: i64) -> bool {
        chat == self.configured || chat == self.chat_id()
    }

    fn chat_moved(&self, chat: i64) {
        tracing::warn!(chat, "the chat has a new id; set messenger.telegram.chat_id to it");
        self.chat.store(chat, Ordering::Relaxed);
    }

    /// Returns the name of an approver, as people know them.
    fn display_name(&self, by: &PrincipalId) -> String {
        if let Some(person) = self.people.person_of(by) {
            return person.to_owned();
        }
        let Some(id) = by.as_str().strip_prefix("telegram:") else { return by.to_string() };
        let name = id.parse().ok().and_then(|id: i64| self.names.lock().get(&id).cloned());
        name.map_or_else(|| format!("user {id}"), |name| format!("@{name}"))
    }
}

/// Returns the time of day of the gateway's zone, with the zone: a reader may be in another.
fn time_of_day(at: Millis) -> String {
    in_zone(at, &chrono::Local)
}

fn in_zone<Z: chrono::TimeZone<Offset: std::fmt::Display>>(at: Millis, zone: &Z) -> String {
    use chrono::Offset as _;
    let at = i64::try_from(at.0).ok().and_then(|at| zone.timestamp_millis_opt(at).single());
    let Some(at) = at else { return "--:--".to_owned() };
    let offset = at.offset().fix();
    let zone = if offset.local_minus_utc() == 0 { String::new() } else { offset.to_string() };
    format!("{} UTC{zone}", at.format("%H:%M"))
}

/// Why the Bot API is of no use now. The words never hold the token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BotApiError(String);

/// Checks that the Bot API is there and takes the token, and nothing else.
///
/// # Errors
/// [`BotApiError`], as a text for operators.
pub async fn probe_bot(settings: &TelegramSettings) -> Result<(), BotApiError> {
    let transport = client::HttpBotTransport::new(&settings.api_url, settings.token.clone());
    let transport = transport.map_err(|error| BotApiError(error.to_string()))?;
    let bot = BotClient::new(Arc::new(transport), HealthTracker::new(Clock::system()));
    bot.get_me().await.map_err(|failure| BotApiError(failure.to_string()))
}

/// A messenger at work. Dropped, it ends at once; decisions that were not shown are left to the next.
#[derive(Debug)]
pub struct TelegramMessenger {
    stop: CancellationToken,
    tasks: Vec<AbortOnDropHandle<()>>,
    health: HealthTracker,
    bot: BotClient,
}

impl TelegramMessenger {
    /// Begins to show what waits and to take answers. It returns at once: a server that is down delays nothing else.
    ///
    /// # Errors
    /// [`BadAddress`].
    pub fn spawn(settings: TelegramSettings, handle: OwnerHandle, clock: Clock) -> Result<Self, BadAddress> {
        let transport = client::HttpBotTransport::new(&settings.api_url, settings.token.clone())?;
        Ok(Self::with_transport(Arc::new(transport), settings, handle, clock))
    }

    fn with_transport(
        transport: Arc<dyn BotTransport>,
        settings: TelegramSettings,
        handle: OwnerHandle,
        clock: Clock,
    ) -> Self {
        let health = HealthTracker::new(clock.clone());
        let stop = CancellationToken::new();
        let shared = Arc::new(MessengerContext {
            bot: BotClient::new(transport, health.clone()),
            refs: ButtonCodec::new(&settings.token),
            clock,
            allowed_users: settings.allowed_users,
            presence: settings.presence,
            people: settings.people,
            ear: settings.ear,
            configured: settings.chat,
            // Telegram knows General by no number where it is written to.
            topic: settings.topic.filter(|topic| *topic != GENERAL),
            chat: AtomicI64::new(settings.chat),
            names: Mutex::default(),
            stop: stop.clone(),
            handle,
        });
        let bot = shared.bot.clone();
        let (orders, ordered) = mpsc::channel(ORDERS);
        let poll =
            UpdatePoller::new(Arc::clone(&shared), shared.handle.source(InboxLane::Result), orders, settings.poll);
        let cards =
            CardWriter::new(Arc::clone(&shared), shared.handle.source(InboxLane::Result), ordered, settings.rates);
        let tasks =
            vec![AbortOnDropHandle::new(tokio::spawn(poll.run())), AbortOnDropHandle::new(tokio::spawn(cards.run()))];
        Self { stop, tasks, health, bot }
    }

    /// Writes what agents say to people.
    pub fn chat_sender(&self) -> Arc<ChatSender> {
        Arc::new(ChatSender::new(self.bot.for_chats()))
    }

    /// Returns its health.
    pub fn report(&self) -> HealthReport {
        self.health.report()
    }

    /// Returns a function that reports its health.
    pub fn health_probe(&self) -> impl Fn() -> HealthReport + Send + Sync + 'static {
        let health = self.health.clone();
        move || health.report()
    }

    /// Takes no more answers, brings cards up to date for at most `grace`, and ends.
    ///
    /// To be called before the owner is closed, and after pending gates are denied because the gateway ends.
    pub async fn stop(mut self, grace: Duration) {
        self.stop.cancel();
        let tasks = futures_util::future::join_all(&mut self.tasks);
        if tokio::time::timeout(grace, tasks).await.is_err() {
            tracing::warn!("the messenger stopped before all cards were up to date; the next start edits them");
        }
    }
}

#[cfg(test)]
mod tests;
