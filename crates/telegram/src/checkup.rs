//! Whether a bot is there and knows its chat.
//!
//! It sends nothing, and takes no updates from whoever polls for them.

use std::sync::Arc;

use countersign_runtime::Clock;
use secrecy::SecretString;

use super::{
    bot::{Bot, ChatKind},
    client::Http,
    health::Health,
};

/// A bot that can show cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its username.
    pub bot: String,
    /// The chat's title, or the name of the person in it.
    pub chat: String,
    /// The kind of the chat.
    pub kind: ChatKind,
}

/// Why no cards can be shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// There is no such bot, or nobody answers.
    #[error("{0}")]
    Bot(String),
    /// The bot is well and does not know its chat.
    #[error("the bot @{bot} cannot see its chat: {why}")]
    Chat {
        /// Its username.
        bot: String,
        /// What the server says.
        why: String,
    },
}

/// Asks the server at `address` about the bot of `token` and its `chat`.
///
/// # Errors
/// [`Unfit`].
pub async fn checkup(address: &str, token: SecretString, chat: i64) -> Result<Found, Unfit> {
    let transport = Http::new(address, token).map_err(|error| Unfit::Bot(error.to_string()))?;
    let bot = Bot::new(Arc::new(transport), Health::new(Clock::system()));
    let name = bot.username().await.map_err(|failure| Unfit::Bot(failure.to_string()))?;
    match bot.look_at(chat).await {
        Ok(seen) => Ok(Found { bot: name, chat: seen.title, kind: seen.kind }),
        Err(failure) => Err(Unfit::Chat { bot: name, why: failure.to_string() }),
    }
}
