//! An event of a chat on its way to all clients: encoded once for each spelling of its session's key.

use std::collections::HashMap;

use axum::extract::ws::Utf8Bytes;
use countersign_core::id::Lsn;
use countersign_protocol::{
    RawJson,
    gsv::{
        chat::{ChatEvent, ChatEventState},
        frame,
        message::GsvMessage,
    },
};
use parking_lot::Mutex;
use serde::Deserialize;

/// End of a run.
pub(super) enum RunEnding {
    /// Answer of the run.
    Answered(String),
    /// Reason why it has no answer.
    Failed(String),
}

/// Returns the text of a message as clients show it.
fn text_of(message: &RawJson) -> String {
    #[derive(Deserialize)]
    struct MessageBody {
        content: Vec<BodyPart>,
    }
    #[derive(Deserialize)]
    struct BodyPart {
        #[serde(default)]
        text: String,
    }
    let parts = message.decode_as::<MessageBody>().map(|message| message.content).unwrap_or_default();
    parts.into_iter().map(|part| part.text).collect()
}

/// One event.
pub(super) struct BroadcastEvent {
    session_key: String,
    run: Option<String>,
    state: ChatEventState,
    seq: Option<u64>,
    /// True if it is a notice during its run, which says nothing of its end.
    is_notice: bool,
    /// Frames by the key as clients wrote it. There are few spellings, and many clients.
    frames: Mutex<HashMap<String, Utf8Bytes>>,
}

impl BroadcastEvent {
    pub(super) fn new(session_key: &str, run: Option<&str>, state: ChatEventState, seq: Option<Lsn>) -> Self {
        let (session_key, run) = (session_key.to_owned(), run.map(str::to_owned));
        Self { session_key, run, state, seq: seq.map(|seq| seq.0), is_notice: false, frames: Mutex::default() }
    }

    /// Creates a notice during a run: clients stop to wait for an answer to their message, and the run is still to come.
    pub(super) fn new_notice(session_key: &str, run: &str, notice: &GsvMessage) -> Self {
        Self { is_notice: true, ..Self::new(session_key, Some(run), ChatEventState::final_message(notice), None) }
    }

    /// Returns the canonical key of the session that it is about.
    pub(super) fn session_key(&self) -> &str {
        &self.session_key
    }

    /// Returns the end of this run of this session, if the event has it.
    pub(super) fn end_of(&self, session_key: &str, run: &str) -> Option<RunEnding> {
        if self.is_notice || self.session_key != session_key || self.run.as_deref() != Some(run) {
            return None;
        }
        match &self.state {
            ChatEventState::Final { message } => Some(RunEnding::Answered(text_of(message))),
            ChatEventState::Error { error } => Some(RunEnding::Failed(error.clone())),
            ChatEventState::Partial { .. } | ChatEventState::Delta { .. } => None,
        }
    }

    /// Reports whether it is only for clients that subscribed to deltas.
    pub(super) fn is_delta(&self) -> bool {
        matches!(self.state, ChatEventState::Delta { .. })
    }

    /// Returns the frame for a client that writes the key so. All clients with the same spelling share its bytes.
    pub(super) fn frame_for(&self, raw: &str) -> Utf8Bytes {
        let mut frames = self.frames.lock();
        if let Some(frame) = frames.get(raw) {
            return frame.clone();
        }
        let event = ChatEvent { run_id: self.run.as_deref(), session_key: raw, state: self.state.clone() };
        let frame = Utf8Bytes::from(frame::encode_event("chat", &event, self.seq));
        frames.insert(raw.to_owned(), frame.clone());
        frame
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::id::Lsn;
    use countersign_protocol::gsv::{chat::ChatEventState, message::GsvMessage};

    use super::{BroadcastEvent, RunEnding};

    #[test]
    fn a_notice_during_a_run_looks_like_its_end_and_is_none() {
        let message = GsvMessage::gateway_message("wait", 7);
        let notice = BroadcastEvent::new_notice("s", "r-1", &message);
        assert!(notice.frame_for("s").contains(r#""state":"final""#), "{}", notice.frame_for("s"));
        assert!(notice.end_of("s", "r-1").is_none());
        let end = BroadcastEvent::new("s", Some("r-1"), ChatEventState::final_message(&message), None);
        assert!(matches!(end.end_of("s", "r-1"), Some(RunEnding::Answered(text)) if text == "wait"));
    }

    #[test]
    fn clients_that_write_a_key_alike_share_one_frame() {
        let event = BroadcastEvent::new(
            "agent:main:main",
            Some("r-1"),
            ChatEventState::Error { error: "no".to_owned() },
            Some(Lsn(7)),
        );
        let (one, other, third) =
            (event.frame_for("main"), event.frame_for("main"), event.frame_for("agent:main:main"));
        assert_eq!(one.as_str().as_ptr(), other.as_str().as_ptr());
        let want = r#"{"type":"evt","event":"chat","payload":{"runId":"r-1","sessionKey":"main","state":"error","error":"no"},"seq":7}"#;
        assert_eq!(one.as_str(), want);
        assert_eq!(third.as_str(), want.replace("\"main\"", "\"agent:main:main\""));
    }
}
