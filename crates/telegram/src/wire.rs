//! Messages of Telegram, as far as any code here reads them. Source: <https://core.telegram.org/bots/api>.
//!
//! Unknown members are ignored; null is absence.

use serde::{Deserialize, Serialize, de::IgnoredAny};

use super::chat_place::ChatPlace;

/// The bot itself, or a person in a chat.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct TelegramUser {
    pub(super) id: i64,
    #[serde(default)]
    pub(super) username: Option<String>,
    #[serde(default)]
    pub(super) first_name: Option<String>,
}

/// A chat. Groups have negative ids.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct TelegramChat {
    pub(super) id: i64,
    /// `private`, `group`, `supergroup` or `channel`.
    #[serde(default, rename = "type")]
    pub(super) kind: Option<String>,
    #[serde(default)]
    pub(super) title: Option<String>,
    /// True for a supergroup with topics.
    #[serde(default)]
    pub(super) is_forum: Option<bool>,
}

/// A file as a message names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct TelegramFile {
    pub(super) file_id: String,
    #[serde(default)]
    pub(super) file_size: Option<u64>,
    #[serde(default)]
    pub(super) file_name: Option<String>,
    #[serde(default)]
    pub(super) mime_type: Option<String>,
    #[serde(default)]
    pub(super) duration: Option<u64>,
}

/// A message, also one that is no longer accessible.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct TelegramMessage {
    pub(super) message_id: i64,
    pub(super) chat: TelegramChat,
    /// Number of the topic, or of another thread of messages.
    #[serde(default)]
    pub(super) message_thread_id: Option<i64>,
    /// True in a topic. Replies in the General of a forum, and in groups without topics, have the number of a thread that is none.
    #[serde(default)]
    pub(super) is_topic_message: Option<bool>,
    #[serde(default)]
    pub(super) from: Option<TelegramUser>,
    #[serde(default)]
    pub(super) text: Option<String>,
    /// Text below a picture or a file.
    #[serde(default)]
    pub(super) caption: Option<String>,
    #[serde(default)]
    pub(super) reply_to_message: Option<Box<TelegramMessage>>,
    /// The sizes of one picture.
    #[serde(default)]
    pub(super) photo: Vec<TelegramFile>,
    #[serde(default)]
    pub(super) document: Option<TelegramFile>,
    #[serde(default)]
    pub(super) voice: Option<TelegramFile>,
    #[serde(default)]
    pub(super) audio: Option<TelegramFile>,
    #[serde(default)]
    pub(super) video: Option<TelegramFile>,
    #[serde(default)]
    pub(super) video_note: Option<TelegramFile>,
    /// A sticker; of this and the next members only the presence matters.
    #[serde(default)]
    pub(super) sticker: Option<IgnoredAny>,
    #[serde(default)]
    pub(super) location: Option<IgnoredAny>,
    #[serde(default)]
    pub(super) venue: Option<IgnoredAny>,
    #[serde(default)]
    pub(super) contact: Option<IgnoredAny>,
    #[serde(default)]
    pub(super) poll: Option<IgnoredAny>,
    #[serde(default)]
    pub(super) dice: Option<IgnoredAny>,
    #[serde(default)]
    pub(super) story: Option<IgnoredAny>,
    #[serde(default)]
    pub(super) paid_media: Option<IgnoredAny>,
}

impl TelegramMessage {
    /// Returns the place of the message: its chat, or its topic.
    pub(super) fn place(&self) -> ChatPlace {
        let is_topic = self.is_topic_message.unwrap_or_else(|| {
            // A server may leave the mark out. A message that begins no thread of replies is in a topic.
            self.chat.is_forum == Some(true) && self.reply_to_message.is_none()
        });
        let topic = self.message_thread_id.filter(|topic| is_topic && *topic != super::GENERAL);
        ChatPlace { chat: self.chat.id, topic }
    }
}

/// A button was tapped.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct CallbackQuery {
    pub(super) id: String,
    pub(super) from: TelegramUser,
    #[serde(default)]
    pub(super) message: Option<TelegramMessage>,
    #[serde(default)]
    pub(super) data: Option<String>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct TelegramUpdate {
    pub(super) update_id: i64,
    #[serde(default)]
    pub(super) callback_query: Option<CallbackQuery>,
    #[serde(default)]
    pub(super) message: Option<TelegramMessage>,
}

impl TelegramUpdate {
    /// Reads one. An unreadable one is an update in which nothing happened, so that it can be confirmed and never
    /// blocks the next; `None` without a number.
    pub(super) fn from_value(value: serde_json::Value) -> Option<Self> {
        let update_id = value.get("update_id")?.as_i64()?;
        Some(serde_json::from_value(value).unwrap_or(Self { update_id, callback_query: None, message: None }))
    }
}

/// Reads, for a fuzz loop, `bytes` as the answer to a request for updates, and checks that an update with a
/// number is never lost, with any other content, and that nothing else becomes one.
///
/// # Panics
/// If that does not hold: a finding.
#[cfg(feature = "fuzzing")]
pub fn fuzz(bytes: &[u8]) {
    let Ok(envelope) = serde_json::from_slice::<ResponseEnvelope>(bytes) else { return };
    let serde_json::Value::Array(updates) = envelope.result else { return };
    for value in updates {
        let number = value["update_id"].as_i64();
        let (text, tapped) = (value["message"]["text"].clone(), value["callback_query"]["data"].clone());
        let read = TelegramUpdate::from_value(value);
        assert_eq!(read.as_ref().map(|update| update.update_id), number);
        let Some(update) = read else { continue };
        let text_read = update.message.and_then(|message| message.text);
        assert!(text_read.is_none() || text_read.as_deref() == text.as_str(), "{text_read:?} of {text}");
        let data = update.callback_query.and_then(|query| query.data);
        assert!(data.is_none() || data.as_deref() == tapped.as_str(), "{data:?} of {tapped}");
    }
}

/// A button below a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct InlineButton {
    pub(super) text: String,
    /// 1 to 64 bytes.
    pub(super) callback_data: String,
}

/// The rows of buttons below a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct InlineKeyboard {
    pub(super) inline_keyboard: Vec<Vec<InlineButton>>,
}

/// The envelope of every answer.
#[derive(Debug, Deserialize)]
pub(super) struct ResponseEnvelope {
    pub(super) ok: bool,
    #[serde(default)]
    pub(super) result: serde_json::Value,
    #[serde(default)]
    pub(super) error_code: Option<u16>,
    #[serde(default)]
    pub(super) description: Option<String>,
    #[serde(default)]
    pub(super) parameters: Option<ErrorParameters>,
}

/// Remedy of an error.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ErrorParameters {
    /// Seconds.
    #[serde(default)]
    pub(super) retry_after: Option<u64>,
    #[serde(default)]
    pub(super) migrate_to_chat_id: Option<i64>,
}
