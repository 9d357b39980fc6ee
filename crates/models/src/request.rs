//! What a model is asked: the conversation, the tools and the limits of one answer.
//!
//! It must not know where a conversation is kept, nor which wire it will travel on.

use std::{fmt, sync::Arc, time::Duration};

use secrecy::SecretString;

use crate::entry::{Api, Entry, Level};

/// One question to a model, complete in itself.
#[derive(Clone)]
pub struct Request {
    /// Who is asked and how to reach it.
    pub entry: Arc<Entry>,
    /// The provider's credential. Absent for providers that want none.
    pub key: Option<SecretString>,
    /// The system prompt.
    pub system: Option<String>,
    /// The conversation, oldest first.
    pub messages: Vec<Message>,
    /// What the model may call.
    pub tools: Vec<Tool>,
    /// A cap on the tokens of the answer, thinking included. Never raises the entry's own cap.
    pub max_tokens: Option<u64>,
    /// How much to think. Absent for a model that cannot think.
    pub level: Option<Level>,
    /// A stable key under which the provider may cache the prompt.
    pub session: Option<String>,
    /// How long nothing may arrive before the answer counts as lost, also before its first byte.
    pub silence: Duration,
}

/// Shows neither the credential nor the conversation: a request may end in a log.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("provider", &self.entry.provider)
            .field("model", &self.entry.id)
            .field("messages", &self.messages.len())
            .field("tools", &self.tools.len())
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}

impl Request {
    /// The most tokens that the answer may have.
    pub fn output_cap(&self) -> u64 {
        self.max_tokens.map_or(self.entry.max_tokens, |cap| cap.min(self.entry.max_tokens)).max(1)
    }

    /// The level that is asked for, clamped to what the model offers. `None` if the model cannot think or was not told
    /// a level.
    pub fn thinking(&self) -> Option<Level> {
        let level = self.level.filter(|_| self.entry.reasoning)?;
        Some(match (level, self.entry.thinking) {
            (Level::Off, _) | (_, None) => level,
            (_, Some(thinking)) => level.min(thinking.max_level).max(thinking.min_level),
        })
    }
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// What a person said: text and images.
    User(Vec<Part>),
    /// What the system around the conversation said. Wires without such a role send it as the user's.
    Developer(Vec<Part>),
    /// What a model said, not necessarily the one that is asked now.
    Assistant(AssistantMessage),
    /// What a tool call came to.
    ToolResult {
        /// The id of the call.
        id: String,
        /// The tool that was called.
        name: String,
        /// Text and images.
        parts: Vec<Part>,
        /// Whether the call failed.
        is_error: bool,
    },
}

/// An answer of a model with its origin, which decides what of it another model may be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssistantMessage {
    /// In the order in which they came.
    pub parts: Vec<Part>,
    /// The wire it came over.
    pub api: Api,
    /// Who said it.
    pub provider: String,
    /// The id of the model that said it.
    pub model: String,
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Plain text.
    Text {
        /// The text.
        text: String,
        /// What the provider wants back with it, opaque.
        signature: Option<String>,
    },
    /// What a model thought, or a summary of it.
    Thinking {
        /// The text.
        text: String,
        /// What the provider wants back with it, opaque. Only the model that made it can read it.
        signature: Option<String>,
    },
    /// Thoughts that the provider shows to nobody but wants back.
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
        /// What the provider wants back with it, opaque.
        signature: Option<String>,
    },
}

impl Part {
    /// Plain text without a signature.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), signature: None }
    }
}

/// A tool as the model sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// The name that calls use.
    pub name: String,
    /// When and how to use it.
    pub description: String,
    /// The JSON Schema of its arguments, an object.
    pub schema: serde_json::Value,
}
