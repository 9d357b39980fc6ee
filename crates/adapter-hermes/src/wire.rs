//! The wire of hermes' browser and phone clients: what HTTP replies and events of streams hold. Source: docs/protocol/hermes.md.
//!
//! Times are seconds since 1970 with a fraction.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// A session. The list leaves `messages` and `tool_calls` out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct HermesSession {
    /// Its id.
    pub(crate) session_id: String,
    /// Title; `Untitled` before the first message.
    pub(crate) title: String,
    /// The folder that its tools work in.
    pub(crate) workspace: String,
    /// The model's id at its provider.
    pub(crate) model: Option<String>,
    /// The provider's name.
    pub(crate) model_provider: Option<String>,
    /// Number of messages.
    pub(crate) message_count: usize,
    /// Time of creation.
    pub(crate) created_at: f64,
    /// Time of the last activity.
    pub(crate) updated_at: f64,
    /// Time of the last message of a person or the model.
    pub(crate) last_message_at: f64,
    /// True if it comes before the others in the list.
    pub(crate) pinned: bool,
    /// True if it is archived.
    pub(crate) archived: bool,
    /// Always null: there are no projects here.
    pub(crate) project_id: Option<String>,
    /// Always `default`.
    pub(crate) profile: String,
    /// The stream of the turn that runs.
    pub(crate) active_stream_id: Option<String>,
    /// Always null: a message is part of the session as soon as it is taken.
    pub(crate) pending_user_message: Option<String>,
    /// Start of the running turn.
    pub(crate) pending_started_at: Option<f64>,
    /// True if a turn runs.
    pub(crate) is_streaming: bool,
    /// True if no message can be sent in it from here.
    pub(crate) read_only: bool,
    /// The door that it was opened through.
    pub(crate) source: Option<String>,
    /// Tokens read.
    pub(crate) input_tokens: u64,
    /// Tokens written.
    pub(crate) output_tokens: u64,
    /// Tokens that fit into one request of its model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) context_length: Option<u64>,
    /// Tokens that the model read for its last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_prompt_tokens: Option<u64>,
    /// Names its last answer, for asking for another in its place; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) regeneration_revision: Option<String>,
    /// The session that it is a copy of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent_session_id: Option<String>,
    /// Pending approvals and questions in it.
    #[serde(default)]
    pub(crate) attention: Option<SessionAttention>,
    /// The messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) messages: Option<Vec<HermesMessage>>,
    /// The calls of its messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool_calls: Option<Vec<ToolNote>>,
    /// True if messages before the first are left out.
    #[serde(default, rename = "_messages_truncated", skip_serializing_if = "Option::is_none")]
    pub(crate) messages_truncated: Option<bool>,
    /// Number of messages that are left out.
    #[serde(default, rename = "_messages_offset", skip_serializing_if = "Option::is_none")]
    pub(crate) messages_offset: Option<usize>,
    /// Most messages of one request.
    #[serde(default, rename = "_msg_limit_max", skip_serializing_if = "Option::is_none")]
    pub(crate) msg_limit_max: Option<usize>,
}

/// Pending approvals and questions of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionAttention {
    /// `approval` or `clarify`.
    pub(crate) kind: String,
    /// Number of them.
    pub(crate) count: usize,
    /// `critical` or `question`.
    pub(crate) severity: String,
}

impl SessionAttention {
    /// Creates it from numbers of approvals and questions; approvals come first.
    pub(crate) fn from_counts(approvals: usize, questions: usize) -> Option<Self> {
        let (kind, count, severity) = match (approvals, questions) {
            (0, 0) => return None,
            (0, count) => ("clarify", count, "question"),
            (count, _) => ("approval", count, "critical"),
        };
        Some(Self { kind: kind.to_owned(), count, severity: severity.to_owned() })
    }
}

/// A message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct HermesMessage {
    /// Names it within its session.
    pub(crate) id: String,
    /// `user`, `assistant` or `tool`.
    pub(crate) role: String,
    /// Text, or parts where there are images.
    pub(crate) content: Value,
    /// Time of the message.
    pub(crate) timestamp: f64,
    /// Thinking of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning: Option<String>,
    /// The calls that it wants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tool_calls: Vec<Value>,
    /// The call that it is the result of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool_call_id: Option<String>,
    /// The tool of that call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// True if it was stopped on the way.
    #[serde(default, rename = "_partial", skip_serializing_if = "std::ops::Not::not")]
    pub(crate) partial: bool,
    /// True if it is an error text.
    #[serde(default, rename = "_error", skip_serializing_if = "std::ops::Not::not")]
    pub(crate) error: bool,
}

/// A call in the list next to the messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToolNote {
    /// The tool.
    pub(crate) name: String,
    /// The beginning of its result.
    pub(crate) snippet: String,
    /// The call's id.
    pub(crate) tid: String,
    /// Index of the message that requested it, counted from 0.
    pub(crate) assistant_msg_idx: usize,
    /// Its arguments, each as a text: [`argument_texts`].
    pub(crate) args: Map<String, Value>,
    /// True if it ended.
    pub(crate) done: bool,
}

/// Returns `arguments` with each value as a text: a text as it is, any other value as its JSON. The front end puts them into its pages
/// as they come, and loses the card of a call that has a list or an object among them.
pub(crate) fn argument_texts(arguments: &Map<String, Value>) -> Map<String, Value> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    arguments.iter().map(|(name, value)| (name.clone(), Value::String(text(value)))).collect()
}

/// An event of the stream of one turn.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HermesEvent {
    /// Its name.
    pub(crate) name: &'static str,
    /// Data of the event.
    pub(crate) data: Value,
}

impl HermesEvent {
    /// The name of the event with which a turn ended well.
    pub(crate) const DONE: &'static str = "done";

    /// Creates an event with any data.
    pub(crate) const fn new(name: &'static str, data: Value) -> Self {
        Self { name, data }
    }

    /// Creates the event for more of the answer.
    pub(crate) fn token(text: &str) -> Self {
        Self::new("token", json!({ "text": text }))
    }

    /// Creates the event for more of the model's thinking.
    pub(crate) fn reasoning(text: &str) -> Self {
        Self::new("reasoning", json!({ "text": text }))
    }

    /// Creates the event for a requested call. Clients get each of its arguments as a text.
    pub(crate) fn tool_started(name: &str, tid: &str, args: &Map<String, Value>, preview: &str) -> Self {
        let data = json!({
            "event_type": "tool.started", "name": name, "preview": preview, "args": argument_texts(args), "is_error": false, "tid": tid,
        });
        Self::new("tool", data)
    }

    /// Creates the event for a call that ended. `duration` is in seconds, if its start is known.
    pub(crate) fn tool_complete(
        name: &str,
        tid: &str,
        args: &Map<String, Value>,
        preview: &str,
        duration: Option<f64>,
        is_error: bool,
    ) -> Self {
        let mut data = json!({
            "event_type": "tool.completed", "name": name, "preview": preview, "args": argument_texts(args), "is_error": is_error, "tid": tid,
        });
        if let Some(duration) = duration {
            data["duration"] = json!(duration);
        }
        Self::new("tool_complete", data)
    }

    /// Creates the event for another title of the session.
    pub(crate) fn title(session: &str, title: &str) -> Self {
        Self::new("title", json!({ "session_id": session, "title": title }))
    }

    /// Creates the event for a warning to people that ends nothing.
    pub(crate) fn warning(kind: &str, message: &str) -> Self {
        Self::new("warning", json!({ "type": kind, "message": message }))
    }

    /// Creates the event for a turn that succeeded, with all of the session and its usage.
    pub(crate) fn done(session: &HermesSession) -> Self {
        let usage = json!({
            "input_tokens": session.input_tokens, "output_tokens": session.output_tokens, "estimated_cost": null,
        });
        Self::new(Self::DONE, json!({ "session": session, "usage": usage, "terminal_state": "completed" }))
    }

    /// Creates the last event of a stream.
    pub(crate) fn stream_end(session: &str) -> Self {
        Self::new("stream_end", json!({ "session_id": session }))
    }

    /// Creates the event for a stopped turn. Nothing follows.
    pub(crate) fn cancel(session: &HermesSession) -> Self {
        let data = json!({
            "message": "Cancelled by user", "type": "cancelled", "status": "cancelled", "session": session,
            "session_id": session.session_id,
        });
        Self::new("cancel", data)
    }

    /// Creates the event for a turn that failed. Nothing follows.
    pub(crate) fn apperror(session: &str, kind: &str, message: &str) -> Self {
        Self::new("apperror", json!({ "message": message, "error": message, "type": kind, "session_id": session }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{HermesEvent, HermesSession, SessionAttention, argument_texts};

    #[test]
    fn every_argument_of_a_call_is_a_text() {
        let arguments = json!({
            "command": "ls", "edits": [{ "old": "a\"b", "new": null }], "options": { "deep": true }, "limit": 2.5, "all": false, "to": null,
        });
        let converted = argument_texts(arguments.as_object().unwrap());
        let want = json!({
            "command": "ls", "edits": r#"[{"old":"a\"b","new":null}]"#, "options": r#"{"deep":true}"#, "limit": "2.5", "all": "false",
            "to": "null",
        });
        assert_eq!(Value::Object(converted.clone()), want);
        let started = HermesEvent::tool_started("edit", "t", arguments.as_object().unwrap(), "");
        let ended = HermesEvent::tool_complete("edit", "t", arguments.as_object().unwrap(), "", None, false);
        assert!([started, ended].iter().all(|event| event.data["args"] == want));
    }

    #[test]
    fn approvals_are_more_urgent_than_questions() {
        let attention =
            |approvals, questions| SessionAttention::from_counts(approvals, questions).map(|it| (it.kind, it.count));
        assert_eq!(attention(0, 0), None);
        assert_eq!(attention(0, 2), Some(("clarify".to_owned(), 2)));
        assert_eq!(attention(3, 2), Some(("approval".to_owned(), 3)));
    }

    #[test]
    fn a_session_in_the_list_has_no_messages() {
        let text = serde_json::to_string(&HermesSession::default()).unwrap();
        assert!(!text.contains("messages") && !text.contains("tool_calls"), "{text}");
        assert!(text.contains("\"active_stream_id\":null") && text.contains("\"attention\":null"), "{text}");
    }
}
