//! Messages of a session, as events and previews show them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::json::WireValue;

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum GsvMessage {
    /// Message of a user.
    User {
        /// Text, or parts where there are images.
        content: UserContent,
        /// Time of the message, in milliseconds.
        timestamp: u64,
    },
    /// Message of the model.
    Assistant {
        /// In order.
        content: Vec<AssistantPart>,
        /// Tokens used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<MessageUsage>,
        /// Reason that the model stopped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop_reason: Option<String>,
        /// Error text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error_message: Option<String>,
        /// Time of the message, in milliseconds.
        timestamp: u64,
    },
    /// Result of a tool.
    ToolResult {
        /// The call.
        tool_call_id: String,
        /// The tool's full name.
        tool_name: String,
        /// Content of the result.
        content: Vec<TextPart>,
        /// True if it failed.
        is_error: bool,
        /// Time of the message, in milliseconds.
        timestamp: u64,
    },
}

impl WireValue for GsvMessage {}

/// Content of a user message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum UserContent {
    /// Text alone. The command line shows nothing else.
    Text(String),
    /// Text and images.
    Parts(Vec<UserPart>),
}

/// Part of a user message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum UserPart {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image, within or in the store.
    Image {
        /// Base64.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<String>,
        /// Its key in the store.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        r2_key: Option<String>,
        /// Its type.
        mime_type: String,
    },
}

/// Part of a model message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum AssistantPart {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// Thinking of the model.
    Thinking {
        /// The thought.
        thinking: String,
    },
    /// A call that it wants.
    ToolCall {
        /// The call's id.
        id: String,
        /// The tool's full name.
        name: String,
        /// The arguments.
        arguments: Map<String, Value>,
    },
}

/// Text that a tool gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "text")]
pub struct TextPart {
    /// The text.
    pub text: String,
}

/// Tokens that an answer took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageUsage {
    /// Read.
    pub input: u64,
    /// Written.
    pub output: u64,
    /// Both.
    pub total_tokens: u64,
}

impl GsvMessage {
    /// Returns all of its text. Empty if it has none.
    pub fn plain_text(&self) -> String {
        match self {
            Self::User { content: UserContent::Text(text), .. } => text.clone(),
            Self::User { content: UserContent::Parts(parts), .. } => {
                join_lines(parts.iter().filter_map(|part| match part {
                    UserPart::Text { text } => Some(text.as_str()),
                    UserPart::Image { .. } => None,
                }))
            }
            Self::Assistant { content, .. } => join_lines(content.iter().filter_map(|part| match part {
                AssistantPart::Text { text } => Some(text.as_str()),
                AssistantPart::Thinking { .. } | AssistantPart::ToolCall { .. } => None,
            })),
            Self::ToolResult { content, .. } => join_lines(content.iter().map(|part| part.text.as_str())),
        }
    }

    /// Creates a message of the gateway itself in a chat, such as a pending approval.
    pub fn gateway_message(text: &str, timestamp: u64) -> Self {
        Self::Assistant {
            content: vec![AssistantPart::Text { text: text.to_owned() }],
            usage: None,
            stop_reason: Some("stop".to_owned()),
            error_message: None,
            timestamp,
        }
    }
}

fn join_lines<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.collect::<Vec<_>>().join("\n")
}

/// Length at which the command line cuts a tool's text, in bytes; it crashes if that is within a character.
const CUT: usize = 200;

/// Returns the text with a space or two inserted, if the command line needs them to show it: no character crosses the position at
/// which it cuts.
pub fn safe_to_show(text: &str) -> String {
    if text.len() <= CUT || text.is_char_boundary(CUT) {
        return text.to_owned();
    }
    let before = text.floor_char_boundary(CUT);
    let mut safe = String::with_capacity(text.len() + 3);
    safe.push_str(&text[..before]);
    safe.extend(std::iter::repeat_n(' ', CUT - before));
    safe.push_str(&text[before..]);
    safe
}
