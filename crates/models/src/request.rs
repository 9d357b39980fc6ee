//! Request to a model: the conversation, the tools and the limits of one answer.
//!
//! It must not know where a conversation is kept, nor which wire it will travel on.

use std::{fmt, sync::Arc, time::Duration};

use secrecy::SecretString;

use crate::entry::{ModelApi, ModelEntry, ThinkingLevel};

/// One question to a model, complete in itself.
#[derive(Clone)]
pub struct ModelRequest {
    /// Model of the request, with its address.
    pub entry: Arc<ModelEntry>,
    /// The provider's credential. Absent for providers that want none.
    pub key: Option<SecretString>,
    /// The system prompt.
    pub system: Option<String>,
    /// The conversation, oldest first.
    pub messages: Vec<RequestMessage>,
    /// Tools that the model may call.
    pub tools: Vec<ModelTool>,
    /// A cap on the tokens of the answer, thinking included. Never raises the entry's own cap.
    pub max_tokens: Option<u64>,
    /// Thinking level. Absent for a model that cannot think.
    pub level: Option<ThinkingLevel>,
    /// A stable key under which the provider may cache the prompt.
    pub session: Option<String>,
    /// Time without any byte after which the answer counts as lost, also before its first byte.
    pub silence: Duration,
}

/// Shows neither the credential nor the conversation: a request may end in a log.
impl fmt::Debug for ModelRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelRequest")
            .field("provider", &self.entry.provider)
            .field("model", &self.entry.id)
            .field("messages", &self.messages.len())
            .field("tools", &self.tools.len())
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}

impl ModelRequest {
    /// Returns the most tokens that the answer may have: the model's own cap, and the rest of its window after the prompt.
    ///
    /// The prompt's size is an estimate, so the request always has at least an eighth of the window: a prompt that leaves less than
    /// that is the provider's to refuse.
    pub fn output_cap(&self) -> u64 {
        let cap = self.max_tokens.map_or(self.entry.max_tokens, |cap| cap.min(self.entry.max_tokens)).max(1);
        let window = self.entry.context_window;
        if window == 0 {
            return cap;
        }
        cap.min(window.saturating_sub(self.prompt_estimate()).max(window / 8).max(1))
    }

    /// Estimates the tokens of the prompt: four bytes each, images at a flat rate.
    fn prompt_estimate(&self) -> u64 {
        let of = |parts: &[MessagePart]| parts.iter().map(MessagePart::token_estimate).sum::<u64>();
        let messages = self.messages.iter().map(|message| match message {
            RequestMessage::User(parts)
            | RequestMessage::Developer(parts)
            | RequestMessage::ToolResult { parts, .. } => of(parts),
            RequestMessage::Assistant(answer) => of(&answer.parts),
        });
        let tools = self.tools.iter().map(|tool| {
            let schema = tool.schema.to_string().len();
            token_count(tool.name.len() + tool.description.len() + schema)
        });
        let system = self.system.as_deref().map_or(0, |text| token_count(text.len()));
        system + messages.map(|tokens| tokens + FRAME).sum::<u64>() + tools.map(|tokens| tokens + FRAME).sum::<u64>()
    }

    /// Returns the level of the request, clamped to the levels of the model. `None` if the model cannot think or the request has no
    /// level.
    pub fn thinking_level(&self) -> Option<ThinkingLevel> {
        let level = self.level.filter(|_| self.entry.reasoning)?;
        Some(match (level, self.entry.thinking) {
            (ThinkingLevel::Off, _) | (_, None) => level,
            (_, Some(thinking)) => level.min(thinking.max_level).max(thinking.min_level),
        })
    }
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestMessage {
    /// Message of a person: text and images.
    User(Vec<MessagePart>),
    /// Message of the system around the conversation. Wires without such a role send it as the user's.
    Developer(Vec<MessagePart>),
    /// Answer of a model, not necessarily the one of this request.
    Assistant(AnswerMessage),
    /// Result of a tool call.
    ToolResult {
        /// The id of the call.
        id: String,
        /// The tool that was called.
        name: String,
        /// Text and images.
        parts: Vec<MessagePart>,
        /// True if the call failed.
        is_error: bool,
    },
}

/// An answer of a model with its origin, which decides which of its parts another model may get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerMessage {
    /// In the order in which they came.
    pub parts: Vec<MessagePart>,
    /// The wire it came over.
    pub api: ModelApi,
    /// Provider of the answer.
    pub provider: String,
    /// The id of the model that gave it.
    pub model: String,
    /// The text of [`ModelEvent::Payload`](crate::ModelEvent::Payload) that came with it. Only the model that made it gets it back.
    pub payload: Option<String>,
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessagePart {
    /// Plain text.
    Text {
        /// The text.
        text: String,
        /// Data that the provider needs back with it, opaque.
        signature: Option<String>,
    },
    /// Thoughts of a model, or a summary of them.
    Thinking {
        /// The text.
        text: String,
        /// Data that the provider needs back with it, opaque. Only the model that made it can read it. Empty for thinking
        /// that came whole from a provider that signs nothing.
        signature: Option<String>,
    },
    /// Thoughts that the provider hides but needs back.
    Redacted {
        /// Opaque.
        data: String,
    },
    /// A picture.
    Image {
        /// Such as `image/png`.
        mime_type: String,
        /// Base64.
        data: String,
    },
    /// A wish to call a tool.
    ToolCall {
        /// The provider's id of the call.
        id: String,
        /// The tool.
        name: String,
        /// JSON text exactly as the model wrote it: an object, unless the model failed at it.
        arguments: String,
        /// Data that the provider needs back with it, opaque.
        signature: Option<String>,
    },
}

/// Tokens of the frame of a message or a tool.
const FRAME: u64 = 8;

/// Tokens of an image, of any size.
const IMAGE: u64 = 1200;

const fn token_count(bytes: usize) -> u64 {
    bytes.div_ceil(4) as u64
}

impl MessagePart {
    fn token_estimate(&self) -> u64 {
        match self {
            Self::Text { text, .. } | Self::Thinking { text, .. } => token_count(text.len()),
            Self::Redacted { data } => token_count(data.len()),
            Self::Image { .. } => IMAGE,
            Self::ToolCall { name, arguments, .. } => token_count(name.len() + arguments.len()),
        }
    }

    /// Makes plain text without a signature.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), signature: None }
    }
}

/// A tool as the model sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelTool {
    /// The name that calls use.
    pub name: String,
    /// When and how to use it.
    pub description: String,
    /// The JSON Schema of its arguments, an object.
    pub schema: serde_json::Value,
}
