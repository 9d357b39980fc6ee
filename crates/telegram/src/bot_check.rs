//! Check that a bot is there and knows its chat.
//!
//! It sends nothing, and takes no updates from the program that polls for them.

use std::sync::Arc;

use countersign_runtime::Clock;
use secrecy::SecretString;

use super::{
    bot::{BotChatKind, BotClient},
    client::HttpBotTransport,
    health::HealthTracker,
};

/// A bot that can show cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BotCheck {
    /// Its username.
    pub bot: String,
    /// The chat's title, or the name of the person in it.
    pub chat: String,
    /// The kind of the chat.
    pub kind: BotChatKind,
}

/// Why no cards can be shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BotCheckError {
    /// The bot does not exist, or the server does not answer.
    #[error("{0}")]
    Bot(String),
    /// The bot is well and does not know its chat.
    #[error("the bot @{bot} cannot see its chat: {why}")]
    Chat {
        /// Its username.
        bot: String,
        /// The server's text.
        why: String,
    },
}

/// Queries the server at `address` about the bot of `token` and its `chat`.
///
/// # Errors
/// [`BotCheckError`].
pub async fn check_bot(address: &str, token: SecretString, chat: i64) -> Result<BotCheck, BotCheckError> {
    let transport = HttpBotTransport::new(address, token).map_err(|error| BotCheckError::Bot(error.to_string()))?;
    let bot = BotClient::new(Arc::new(transport), HealthTracker::new(Clock::system()));
    let name = bot.username().await.map_err(|failure| BotCheckError::Bot(failure.to_string()))?;
    match bot.look_at(chat).await {
        Ok(seen) => Ok(BotCheck { bot: name, chat: seen.title, kind: seen.kind }),
        Err(failure) => Err(BotCheckError::Chat { bot: name, why: failure.to_string() }),
    }
}
