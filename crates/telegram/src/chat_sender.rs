//! Telegram as a chat network: what people write to the bot beside taps and reasons, and what is written to them.
//!
//! It must not know who may speak with whom: that is for whoever listens.

use std::{sync::Arc, time::Duration};

use countersign_core::channel::ChatAddress;
use futures_util::{FutureExt as _, future::BoxFuture};
use tokio::sync::watch;

use super::{
    bot::{BotCallFailure, BotClient, MessageTarget},
    files::{self, AttachedFile, FileFetchError},
    uploads::{self, CAPTION},
};
use crate::transport::{ChannelTransport, DeliveryOutcome, OutboundDelivery};

/// How long a message may be. Telegram counts units of UTF-16.
const LIMIT: usize = 4096;
/// How long to leave a server alone that does not take the token.
const UNTIL_MENDED: Duration = Duration::from_secs(300);

/// What kind of chat it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChatType {
    /// With one person.
    Private,
    /// With several.
    Group,
    /// With whoever follows it.
    Channel,
}

/// A message that somebody wrote to the bot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncomingChatMessage {
    /// In which chat.
    pub chat: i64,
    /// Of which kind it is.
    pub chat_type: ChatType,
    /// What a group is called.
    pub title: Option<String>,
    /// Its number in the chat.
    pub message: i64,
    /// Who wrote it.
    pub from: i64,
    /// What they are called.
    pub name: Option<String>,
    /// What they are found by.
    pub username: Option<String>,
    /// What it says; nothing where only something else comes.
    pub text: String,
    /// What comes with it.
    pub files: Vec<AttachedFile>,
    /// What it is, where it is neither words nor a file.
    pub other: Option<&'static str>,
}

/// How it goes on behind an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateFlow {
    /// It is done with.
    Next,
    /// It could not be taken and has to come again.
    Again,
    /// Nothing can be decided any more.
    Over,
}

/// Takes what people write.
pub trait InboundHandler: Send + Sync + 'static {
    /// Takes a message. Until it is recorded it is not done with.
    fn handle_message(&self, written: IncomingChatMessage) -> BoxFuture<'_, UpdateFlow>;
}

/// Where somebody will listen. What comes before they do waits.
pub struct InboundHook(watch::Sender<Option<Arc<dyn InboundHandler>>>);

impl std::fmt::Debug for InboundHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ear")
    }
}

impl Default for InboundHook {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl InboundHook {
    /// Somebody listens from now on.
    pub fn open(&self, hear: Arc<dyn InboundHandler>) {
        self.0.send_replace(Some(hear));
    }

    /// Whoever listens, once there is somebody.
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

    /// The content of something that came with a message.
    ///
    /// # Errors
    /// Why it is not to be had.
    pub async fn fetch_file(&self, file: &AttachedFile) -> Result<Vec<u8>, FileFetchError> {
        files::fetch_content(&self.0, file).await
    }

    async fn send_delivery(&self, letter: &OutboundDelivery) -> DeliveryOutcome {
        let Ok(mut chat) = letter.owed.to.chat.parse::<i64>() else {
            return DeliveryOutcome::Refused("this is no chat of Telegram".to_owned());
        };
        let mut to = letter.owed.reply_to.as_deref().and_then(|id| id.rsplit_once(':')?.1.parse().ok());
        let text = letter.text.trim();
        let caption = letter.media.as_ref().map(|_| text).filter(|text| text.encode_utf16().count() <= CAPTION);
        let mut parts = split_text(if caption.is_some() { "" } else { text }).into_iter().peekable();
        while let Some(part) = parts.peek() {
            match self.0.send_message(MessageTarget { chat, topic: None, reply_to: to }, part, None).await {
                Ok(_) => {
                    to = None;
                    parts.next();
                }
                // The message that it answers is of the chat that was.
                Err(BotCallFailure::Moved(other)) if other != chat => (chat, to) = (other, None),
                Err(failure) => return delivery_outcome(failure),
            }
        }
        let Some(file) = &letter.media else { return DeliveryOutcome::Delivered };
        match uploads::send_file(&self.0, chat, file, caption, to).await {
            Ok(()) => DeliveryOutcome::Delivered,
            // The message that it answers is of the chat that was.
            Err(BotCallFailure::Moved(other)) => match uploads::send_file(&self.0, other, file, caption, None).await {
                Ok(()) => DeliveryOutcome::Delivered,
                Err(failure) => delivery_outcome(failure),
            },
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
            if let Ok(chat) = at.chat.parse() {
                // It is only shown for a moment: nobody misses it.
                let _ = self.0.show_typing(chat).await;
            }
        };
        works.boxed()
    }
}

/// A text in pieces that each fit into a message, cut between lines or words where there are any.
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
