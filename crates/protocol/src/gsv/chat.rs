//! `chat.send`, its three answers, and the event `chat`.

use serde::{Serialize, Serializer};

use super::GsvError;
use super::directive::{ModelSelector, ThinkLevel};
use super::fields::ParamFields;
use super::message::GsvMessage;
use crate::json::{RawJson, wire_values};

/// The most bytes that a message may have.
pub const LONGEST_MESSAGE: usize = 16 << 20;

/// Parameters of `chat.send`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatSendParams {
    /// Key as the client writes it; see [`super::key`].
    pub session_key: String,
    /// Text of the message.
    pub message: String,
    /// Id that the client gives the run. It is repeated as it came.
    pub run_id: Option<String>,
}

impl ChatSendParams {
    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        const MISSING: &str = "sessionKey and message required";
        let session_key = fields.require_text("sessionKey", MISSING)?;
        let message = fields.require_text("message", MISSING)?;
        if message.len() > LONGEST_MESSAGE {
            let message = format!("message has {} bytes, at most {LONGEST_MESSAGE} are taken", message.len());
            return Err(GsvError::bad_request(message));
        }
        let run_id = fields.take_text("runId")?.filter(|id| !id.is_empty());
        Ok(Self { session_key, message, run_id })
    }
}

/// Directives as an answer repeats them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Directives {
    /// Thinking level of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub think_level: Option<ThinkLevel>,
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelSelector>,
}

impl Directives {
    /// Returns true if there are none.
    pub const fn is_empty(&self) -> bool {
        self.think_level.is_none() && self.model.is_none()
    }
}

/// The answer to `chat.send`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum ChatSendResult {
    /// A run began, or will.
    Started {
        /// The client's id of it, or ours.
        run_id: String,
        /// True if it waits for another run.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        queued: bool,
        /// Directives of the message for the run.
        #[serde(skip_serializing_if = "Directives::is_empty")]
        directives: Directives,
    },
    /// The message was a slash command.
    Command {
        /// Its proper name.
        command: &'static str,
        /// Outcome, as text.
        #[serde(skip_serializing_if = "Option::is_none")]
        response: Option<String>,
        /// Error text.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// The message held nothing but directives, so nothing was sent to the model.
    DirectiveOnly {
        /// Summary of the directives that were understood.
        #[serde(skip_serializing_if = "Option::is_none")]
        response: Option<String>,
        /// The directives, for programs.
        directives: Directives,
    },
}

/// The event `chat`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChatEvent<'a> {
    /// The run. Null if there is none, as for a heartbeat's words.
    pub run_id: Option<&'a str>,
    /// The session's key as the client that receives it wrote it.
    pub session_key: &'a str,
    /// State of the chat.
    #[serde(flatten)]
    pub state: ChatEventState,
}

/// State of a chat in an event.
#[derive(Clone, Debug, PartialEq)]
pub enum ChatEventState {
    /// The model produced a message and continues. Clients show `text`, programs read `message`.
    Partial {
        /// The message.
        message: RawJson,
        /// Its text.
        text: String,
    },
    /// A piece of the model's output, for clients that request it.
    Delta {
        /// The piece.
        text: String,
    },
    /// The run ended, or waits for an answer.
    Final {
        /// The last message.
        message: RawJson,
    },
    /// The run failed or was stopped.
    Error {
        /// Reason of the failure.
        error: String,
    },
}

impl ChatEventState {
    /// Creates the event for a message during a run, such as one of the model between calls.
    pub fn partial_message(message: &GsvMessage) -> Self {
        Self::Partial { message: RawJson::from_wire(message), text: message.plain_text() }
    }

    /// Creates the event for the run's last message.
    pub fn final_message(message: &GsvMessage) -> Self {
        Self::Final { message: RawJson::from_wire(message) }
    }
}

impl Serialize for ChatEventState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct ChatEventBody<'a> {
            state: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            message: Option<&'a RawJson>,
            #[serde(skip_serializing_if = "Option::is_none")]
            text: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            error: Option<&'a str>,
        }
        let (state, message, text, error) = match self {
            Self::Partial { message, text } => ("partial", Some(message), Some(text.as_str()), None),
            Self::Delta { text } => ("delta", None, Some(text.as_str()), None),
            Self::Final { message } => ("final", Some(message), None, None),
            Self::Error { error } => ("error", None, None, Some(error.as_str())),
        };
        ChatEventBody { state, message, text, error }.serialize(serializer)
    }
}

/// Text of a stopped run's event.
pub const CANCELLED: &str = "Run cancelled by user";

/// The error of a run whose model gave an empty answer.
pub const EMPTY_RESPONSE: &str = "LLM returned empty response";

wire_values! { ChatSendResult, ChatEvent<'_> }
