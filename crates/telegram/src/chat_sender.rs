//! Telegram as a chat network: messages to the bot other than taps and reasons, and messages to people.
//!
//! It must not know who may speak with whom: that is for the handler.

use std::{sync::Arc, time::Duration};

use countersign_core::channel::ChatAddress;
use futures_util::{FutureExt as _, future::BoxFuture};
use tokio::sync::watch;

use super::{
    bot::{BotCallFailure, BotClient, MessageTarget},
    chat_place::{ChatPlace, UnknownPlace},
    files::{self, AttachedFile, FileFetchError},
    uploads::{self, CAPTION},
};
use crate::transport::{ChannelTransport, DeliveryOutcome, OutboundDelivery};

/// Longest message. Telegram counts units of UTF-16.
const LIMIT: usize = 4096;
/// Pause before a server that refuses the token is tried again.
const UNTIL_MENDED: Duration = Duration::from_secs(300);

/// Kind of the chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChatType {
    /// With one person.
    Private,
    /// With several.
    Group,
    /// With its followers.
    Channel,
}

/// A message of a person to the bot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncomingChatMessage {
    /// In which chat, or topic of it.
    pub place: ChatPlace,
    /// Of which kind it is.
    pub chat_type: ChatType,
    /// Title of a group.
    pub title: Option<String>,
    /// Its number in the chat.
    pub message: i64,
    /// User who wrote it.
    pub from: i64,
    /// Their name.
    pub name: Option<String>,
    /// Name by which they are found.
    pub username: Option<String>,
    /// Text; empty if only something else comes.
    pub text: String,
    /// Text from which commands and answers are read: the same without the name of the bot at its ends.
    pub reply: String,
    /// Files that come with it.
    pub files: Vec<AttachedFile>,
    /// Its kind, if it is neither a text nor a file.
    pub other: Option<&'static str>,
}

/// Continuation after an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateFlow {
    /// The update is done.
    Next,
    /// The update could not be taken and has to come again.
    Again,
    /// Nothing can be decided any more.
    Over,
}

/// Handles messages of people.
pub trait InboundHandler: Send + Sync + 'static {
    /// Takes a message. Until it is recorded it is not done with.
    fn handle_message(&self, written: IncomingChatMessage) -> BoxFuture<'_, UpdateFlow>;
}

/// Hook for the handler of messages. Messages that come before it is set wait.
pub struct InboundHook(watch::Sender<Option<Arc<dyn InboundHandler>>>);

impl std::fmt::Debug for InboundHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InboundHook")
    }
}

impl Default for InboundHook {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl InboundHook {
    /// Sets the handler of messages.
    pub fn open(&self, hear: Arc<dyn InboundHandler>) {
        self.0.send_replace(Some(hear));
    }

    /// Returns the handler, once there is one.
    pub(super) async fn listener(&self) -> Option<Arc<dyn InboundHandler>> {
        let mut waiting = self.0.subscribe();
        waiting.wait_for(Option::is_some).await.ok().and_then(|hear| hear.clone())
    }
}

/// Writes what agents say.
pub struct ChatSender(BotClient);

impl ChatSender {
    pub(super) const fn new(bot: BotClient) -> Self {
        Self(bot)
    }

    /// Fetches the content of a file that came with a message.
    ///
    /// # Errors
    /// The reason why it is not available.
    pub async fn fetch_file(&self, file: &AttachedFile) -> Result<Vec<u8>, FileFetchError> {
        files::fetch_content(&self.0, file).await
    }

    async fn send_delivery(&self, letter: &OutboundDelivery) -> DeliveryOutcome {
        let ChatPlace { chat, topic } = match letter.owed.to.chat.parse() {
            Ok(place) => place,
            Err(unknown) => return DeliveryOutcome::Refused(UnknownPlace::to_string(&unknown)),
        };
        let reply_to = letter.owed.reply_to.as_deref().and_then(|id| id.rsplit_once(':')?.1.parse().ok());
        let mut to = MessageTarget { chat, topic, reply_to };
        let text = letter.text.trim();
        let caption = letter.media.as_ref().map(|_| text).filter(|text| text.encode_utf16().count() <= CAPTION);
        let mut parts = split_text(if caption.is_some() { "" } else { text }).into_iter().peekable();
        while let Some(part) = parts.peek() {
            match self.0.send_message(to, part, None).await {
                Ok(_) => {
                    to.reply_to = None;
                    parts.next();
                }
                // The message that it answers is of the chat that was.
                Err(BotCallFailure::Moved(other)) if other != to.chat => {
                    to = MessageTarget { chat: other, reply_to: None, ..to };
                }
                Err(failure) => return delivery_outcome(failure),
            }
        }
        let Some(file) = &letter.media else { return DeliveryOutcome::Delivered };
        match uploads::send_file(&self.0, to, file, caption).await {
            Ok(()) => DeliveryOutcome::Delivered,
            // The message that it answers is of the chat that was.
            Err(BotCallFailure::Moved(other)) => {
                let to = MessageTarget { chat: other, reply_to: None, ..to };
                match uploads::send_file(&self.0, to, file, caption).await {
                    Ok(()) => DeliveryOutcome::Delivered,
                    Err(failure) => delivery_outcome(failure),
                }
            }
            Err(failure) => delivery_outcome(failure),
        }
    }
}

fn delivery_outcome(failure: BotCallFailure) -> DeliveryOutcome {
    match failure {
        BotCallFailure::Token(_) => DeliveryOutcome::Later(Some(UNTIL_MENDED)),
        BotCallFailure::Wait(wait) => DeliveryOutcome::Later(Some(wait)),
        BotCallFailure::Conflict(_) | BotCallFailure::Unreachable(_) => DeliveryOutcome::Later(None),
        BotCallFailure::Moved(_) | BotCallFailure::Harmless(_) | BotCallFailure::Refused(_) => {
            DeliveryOutcome::Refused(failure.to_string())
        }
    }
}

impl ChannelTransport for ChatSender {
    fn deliver_message<'a>(&'a self, letter: &'a OutboundDelivery) -> BoxFuture<'a, DeliveryOutcome> {
        self.send_delivery(letter).boxed()
    }

    fn show_typing<'a>(&'a self, at: &'a ChatAddress) -> BoxFuture<'a, ()> {
        let works = async {
            if let Ok(place) = at.chat.parse() {
                // It is only shown for a moment: a failure does not matter.
                let _ = self.0.show_typing(place).await;
            }
        };
        works.boxed()
    }
}

/// Splits a text into pieces that each fit into a message, cut between lines or words if there are any.
fn split_text(text: &str) -> Vec<String> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let mut units = 0;
        let end = rest.char_indices().find_map(|(at, c)| {
            units += c.len_utf16();
            (units > LIMIT).then_some(at)
        });
        let Some(end) = end else {
            parts.push(rest.to_owned());
            break;
        };
        let fits = &rest[..end];
        let cut = fits.rfind('\n').or_else(|| fits.rfind(' ')).filter(|at| *at > end / 2);
        let (part, behind) = rest.split_at(cut.unwrap_or(end));
        parts.push(part.trim_end().to_owned());
        rest = behind.trim_start_matches(['\n', ' ']);
    }
    parts.retain(|part| !part.trim().is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::{LIMIT, split_text};

    #[test]
    fn long_texts_are_cut_between_lines_and_nothing_is_lost() {
        let line = format!("{}\n", "word ".repeat(100).trim_end());
        let text = line.repeat(20);
        let cut = split_text(text.trim_end());
        assert!(cut.len() > 1 && cut.iter().all(|part| part.encode_utf16().count() <= LIMIT));
        assert_eq!(cut.join("\n"), text.trim_end());
        let faces = "\u{1f600}".repeat(LIMIT);
        let cut = split_text(&faces);
        assert_eq!((cut.len(), cut.concat()), (2, faces));
        assert_eq!(split_text("short"), ["short"]);
    }
}
