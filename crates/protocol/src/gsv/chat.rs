//! `chat.send`, its three answers, and the event `chat`.

use serde::{Serialize, Serializer};

use super::Fault;
use super::directive::{Level, Model};
use super::fields::Fields;
use super::message::Message;
use crate::json::{Json, Wire};

/// The most bytes that a message may have.
pub const LONGEST_MESSAGE: usize = 16 << 20;

/// Parameters of `chat.send`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Send {
    /// As the client writes it; see [`super::key`].
    pub session_key: String,
    /// What is said.
    pub message: String,
    /// What the client calls the run. It is repeated as it came.
    pub run_id: Option<String>,
}

impl Send {
    pub(super) fn read(mut fields: Fields) -> Result<Self, Fault> {
        const MISSING: &str = "sessionKey and message required";
        let session_key = fields.required("sessionKey", MISSING)?;
        let message = fields.required("message", MISSING)?;
        if message.len() > LONGEST_MESSAGE {
            let message = format!("message has {} bytes, at most {LONGEST_MESSAGE} are taken", message.len());
            return Err(Fault::invalid(message));
        }
        let run_id = fields.text("runId")?.filter(|id| !id.is_empty());
        Ok(Self { session_key, message, run_id })
    }
}

/// Directives as an answer repeats them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Directives {
    /// How hard the model thinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub think_level: Option<Level>,
    /// Which model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Model>,
}

impl Directives {
    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.think_level.is_none() && self.model.is_none()
    }
}

/// The answer to `chat.send`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Sent {
    /// A run began, or will.
    Started {
        /// The client's id of it, or ours.
        run_id: String,
        /// True if it waits behind another.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        queued: bool,
        /// What the message said about the run.
        #[serde(skip_serializing_if = "Directives::is_empty")]
        directives: Directives,
    },
    /// It was a slash command.
    Command {
        /// Its proper name.
        command: &'static str,
        /// What came of it.
        #[serde(skip_serializing_if = "Option::is_none")]
        response: Option<String>,
        /// What went wrong.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// There was nothing but directives in it, so nothing was said.
    DirectiveOnly {
        /// What was understood.
        #[serde(skip_serializing_if = "Option::is_none")]
        response: Option<String>,
        /// The same for programs.
        directives: Directives,
    },
}

impl Wire for Sent {}

/// The event `chat`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event<'a> {
    /// The run. Null if there is none, as for a heartbeat's words.
    pub run_id: Option<&'a str>,
    /// The session's key as the client that receives it wrote it.
    pub session_key: &'a str,
    /// What happened.
    #[serde(flatten)]
    pub state: State,
}

impl Wire for Event<'_> {}

/// What happened in a chat.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// The model said something and goes on. Clients show `text`, programs read `message`.
    Partial {
        /// What was said.
        message: Json,
        /// Its text.
        text: String,
    },
    /// A piece of what the model says, for clients that ask for it.
    Delta {
        /// The piece.
        text: String,
    },
    /// The run ended, or waits for an answer.
    Final {
        /// The last message.
        message: Json,
    },
    /// The run failed or was stopped.
    Error {
        /// Why.
        error: String,
    },
}

impl State {
    /// Somebody said something on the way, such as the model between calls.
    pub fn partial(message: &Message) -> Self {
        Self::Partial { message: Json::of(message), text: message.text() }
    }

    /// The run's last message.
    pub fn last(message: &Message) -> Self {
        Self::Final { message: Json::of(message) }
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shape<'a> {
            state: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            message: Option<&'a Json>,
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
        Shape { state, message, text, error }.serialize(serializer)
    }
}

/// What a stopped run's event says.
pub const CANCELLED: &str = "Run cancelled by user";

/// The error of a run whose model gave an empty answer.
pub const EMPTY_RESPONSE: &str = "LLM returned empty response";
