//! Chat networks: inbound and outbound messages, and the methods for channel accounts.

mod access;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use access::{SenderAccess, SenderPolicy, sender_access};

use super::chat::Directives;
use super::fields::ParamFields;
use super::{GsvError, LARGEST_MEDIA};
use crate::json::wire_values;

/// Kind of a chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerKind {
    /// A chat with one person.
    Dm,
    /// A chat with a few people.
    Group,
    /// A broadcast channel with its followers.
    Channel,
    /// Within another.
    Thread,
}

impl PeerKind {
    /// Returns the word of the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dm => "dm",
            Self::Group => "group",
            Self::Channel => "channel",
            Self::Thread => "thread",
        }
    }
}

const KINDS: [(&str, PeerKind); 4] =
    [("dm", PeerKind::Dm), ("group", PeerKind::Group), ("channel", PeerKind::Channel), ("thread", PeerKind::Thread)];

/// A chat.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChatPeer {
    /// Kind.
    pub kind: PeerKind,
    /// The network's id of it.
    pub id: String,
    /// Display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Handle by which the chat is found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
}

/// Sender of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageSender {
    /// The network's id of that person.
    pub id: String,
    /// Display name.
    pub name: Option<String>,
    /// Handle by which the sender is found.
    pub handle: Option<String>,
}

/// Kind of an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaKind {
    /// A picture.
    Image,
    /// Sound.
    Audio,
    /// A film.
    Video,
    /// Anything else.
    Document,
}

/// An attachment.
#[derive(Clone, Debug, PartialEq)]
pub struct MediaAttachment {
    /// Kind.
    pub kind: MediaKind,
    /// Its type.
    pub mime_type: String,
    /// The content as base64, at most [`LARGEST_MEDIA`] bytes once decoded.
    pub data: Option<String>,
    /// Key in the object store, if it is stored there.
    pub r2_key: Option<String>,
    /// URL, if it is not in the object store.
    pub url: Option<String>,
    /// Its name.
    pub filename: Option<String>,
    /// Duration, in seconds.
    pub duration: Option<f64>,
    /// Transcription of the spoken words.
    pub transcription: Option<String>,
}

/// Longest id of a network, in bytes.
pub const LONGEST_ID: usize = 256;

/// Most attachments of a message.
pub const MOST_MEDIA: usize = 64;

/// A message of a chat network.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelInboundParams {
    /// Name of the chat network.
    pub channel: String,
    /// Account in that network.
    pub account: String,
    /// The chat.
    pub peer: ChatPeer,
    /// Sender of the message.
    pub sender: Option<MessageSender>,
    /// The network's id of it.
    pub message_id: Option<String>,
    /// Text of the message.
    pub text: String,
    /// Message that this one answers.
    pub reply_to: Option<String>,
    /// Attachments.
    pub media: Vec<MediaAttachment>,
    /// True if the agent was mentioned.
    pub was_mentioned: Option<bool>,
}

impl ChannelInboundParams {
    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        const MISSING: &str = "channel, accountId, peer, and message required";
        let missing = || GsvError::bad_request(MISSING);
        let channel = fields.require_text("channel", MISSING)?;
        let account = fields.require_text("accountId", MISSING)?;
        let mut peer = fields.take_fields("peer")?.ok_or_else(missing)?;
        let mut message = fields.take_fields("message")?.ok_or_else(missing)?;
        let sender = match fields.take_fields("sender")? {
            None => None,
            Some(mut sender) => Some(MessageSender {
                id: sender.require_text("id", "sender.id required")?,
                name: sender.take_text("name")?,
                handle: sender.take_text("handle")?,
            }),
        };
        let peer = ChatPeer {
            kind: peer.take_choice("kind", &KINDS)?.ok_or_else(|| GsvError::bad_request("peer.kind required"))?,
            id: peer.require_text("id", "peer.id required")?,
            name: peer.take_text("name")?,
            handle: peer.take_text("handle")?,
        };
        let message_id = message.take_text("id")?.filter(|id| !id.is_empty());
        for (what, id) in [
            ("channel", Some(&channel)),
            ("accountId", Some(&account)),
            ("peer.id", Some(&peer.id)),
            ("sender.id", sender.as_ref().map(|sender| &sender.id)),
            ("message.id", message_id.as_ref()),
        ] {
            if id.is_some_and(|id| id.len() > LONGEST_ID) {
                return Err(GsvError::bad_request(format!("{what} has more than {LONGEST_ID} bytes")));
            }
        }
        Ok(Self {
            channel,
            account,
            peer,
            sender,
            message_id,
            text: message.take_text("text")?.unwrap_or_default(),
            reply_to: message.take_text("replyToId")?,
            media: read_media(message.take_list("media")?.unwrap_or_default())?,
            was_mentioned: fields.take_flag("wasMentioned")?,
        })
    }
}

fn read_media(items: Vec<Value>) -> Result<Vec<MediaAttachment>, GsvError> {
    if items.len() > MOST_MEDIA {
        return Err(GsvError::bad_request(format!(
            "message.media has {} items, at most {MOST_MEDIA} are taken",
            items.len()
        )));
    }
    let kinds = [
        ("image", MediaKind::Image),
        ("audio", MediaKind::Audio),
        ("video", MediaKind::Video),
        ("document", MediaKind::Document),
    ];
    let read = |(place, item)| {
        let within = format!("message.media[{place}]");
        let mut item = ParamFields::from_item(item, &within)?;
        let data = item.take_text("data")?;
        if let Some(bytes) = data.as_deref().map(decoded_length)
            && bytes > LARGEST_MEDIA
        {
            return Err(GsvError::bad_request(format!(
                "{within} has {bytes} bytes, at most {LARGEST_MEDIA} are taken"
            )));
        }
        let kind = item
            .take_choice("type", &kinds)?
            .ok_or_else(|| GsvError::bad_request(format!("{within}.type required")))?;
        Ok(MediaAttachment {
            kind,
            mime_type: item.require_text("mimeType", &format!("{within}.mimeType required"))?,
            data,
            r2_key: item.take_text("r2Key")?,
            url: item.take_text("url")?,
            filename: item.take_text("filename")?,
            duration: item.take_number("duration")?,
            transcription: item.take_text("transcription")?,
        })
    };
    items.into_iter().enumerate().map(read).collect()
}

/// Returns the number of bytes that a base64 text stands for, without decoding it.
fn decoded_length(base64: &str) -> usize {
    let digits = base64.trim_end_matches('=').len();
    digits / 4 * 3 + digits % 4 * 3 / 4
}

/// The answer to `channel.inbound`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all_fields = "camelCase")]
pub enum ChannelInboundResult {
    /// A run began, or will.
    #[serde(rename = "started")]
    Started {
        /// The session's canonical key.
        session_key: String,
        /// The run.
        run_id: String,
        /// Directives of the message for the run.
        #[serde(skip_serializing_if = "Directives::is_empty")]
        directives: Directives,
    },
    /// The message was a slash command, which is answered in the chat too.
    #[serde(rename = "command")]
    Command {
        /// The session's canonical key.
        session_key: String,
        /// Its proper name.
        command: &'static str,
        /// Outcome, as text.
        response: String,
    },
    /// There was nothing but directives in it.
    #[serde(rename = "directive-only")]
    DirectiveOnly {
        /// The session's canonical key.
        session_key: String,
        /// Summary of the directives that were understood.
        #[serde(skip_serializing_if = "Option::is_none")]
        response: Option<String>,
    },
    /// The person must be approved before they may speak.
    #[serde(rename = "pending_pairing")]
    PendingPairing {
        /// The person.
        sender_id: String,
    },
    /// This person may not speak.
    #[serde(rename = "blocked")]
    Blocked {
        /// Reason of the block.
        reason: String,
    },
}

/// The event `channel.outbound`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChannelOutboundEvent<'a> {
    /// Name of the chat network.
    pub channel: &'a str,
    /// Account in that network.
    pub account_id: &'a str,
    /// The chat.
    pub peer: &'a ChatPeer,
    /// The session's canonical key; empty for what belongs to none.
    pub session_key: &'a str,
    /// The message.
    pub message: ChannelOutboundMessage<'a>,
}

/// Message for a chat network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChannelOutboundMessage<'a> {
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    media_url: Option<&'a str>,
}

impl<'a> ChannelOutboundMessage<'a> {
    /// Creates a message of a text without the blank lines in front of it, with its reply id and attachment. None if nothing is
    /// left, which is not sent.
    pub fn new(text: &'a str, reply_to_id: Option<&'a str>, media_url: Option<&'a str>) -> Option<Self> {
        let text = match text.char_indices().find(|(_, c)| !c.is_whitespace()) {
            Some((begin, _)) => text[text[..begin].rfind('\n').map_or(0, |at| at + 1)..].trim_end(),
            None => media_url.map(|_| "")?,
        };
        Some(Self { text, reply_to_id, media_url })
    }
}

/// The event `channel.typing`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChannelTypingEvent<'a> {
    /// Name of the chat network.
    pub channel: &'a str,
    /// Account in that network.
    pub account_id: &'a str,
    /// The chat.
    pub peer: &'a ChatPeer,
    /// The session's canonical key.
    pub session_key: &'a str,
    /// True if the agent is working.
    pub typing: bool,
}

/// An account of a network, in `channels.list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChannelEntry {
    /// Name of the chat network.
    pub channel: String,
    /// Account in that network.
    pub account_id: String,
    /// Time of the connection.
    pub connected_at: u64,
    /// Time of the last message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_message_at: Option<u64>,
}

/// The answer to `channels.list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChannelsListResult {
    /// The accounts.
    pub channels: Vec<ChannelEntry>,
    /// Number of them.
    pub count: usize,
}

/// Parameters of `channel.start`, `stop`, `status`, `login` and `logout`.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelAccountParams {
    /// Name of the chat network.
    pub channel: String,
    /// Account in that network. Absent is the default one, and for `status` all of them.
    pub account: Option<String>,
    /// Settings of the network, for `start`.
    pub config: Map<String, Value>,
    /// True to log in even if it is logged in already, for `login`.
    pub force: bool,
}

impl ChannelAccountParams {
    /// Name of an account that has none.
    pub const DEFAULT: &str = "default";

    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        Ok(Self {
            channel: fields.require_text("channel", "channel required")?,
            account: fields.take_text("accountId")?.filter(|account| !account.is_empty()),
            config: fields.take_object("config")?.unwrap_or_default(),
            force: fields.take_flag("force")?.unwrap_or(false),
        })
    }
}

/// The answer to `channel.start`, `stop`, `login` and `logout`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChannelAccountResult {
    /// Always true.
    pub ok: bool,
    /// Name of the chat network.
    pub channel: String,
    /// Account in that network.
    pub account_id: String,
    /// Image for `login` to scan; the command line draws it unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qr_data_url: Option<String>,
    /// Message for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// An account in `channel.status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountStatus {
    /// Id of the account.
    pub account_id: String,
    /// True if it is connected.
    pub connected: bool,
    /// True if it is logged in.
    pub authenticated: bool,
    /// Error text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// More of the network's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra: Option<Map<String, Value>>,
    /// Time of the last activity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_activity: Option<u64>,
}

/// The answer to `channel.status`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChannelStatusResult {
    /// Name of the chat network.
    pub channel: String,
    /// Its accounts.
    pub accounts: Vec<AccountStatus>,
}

wire_values! {
    ChannelInboundResult, ChannelOutboundEvent<'_>, ChannelTypingEvent<'_>, ChannelsListResult, ChannelAccountResult,
    ChannelStatusResult,
}
