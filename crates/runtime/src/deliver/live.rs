//! Frames that skip the log: output of a model and tools while they work. They are lost in a crash by design.

use std::{sync::Arc, time::Duration};

use countersign_core::{
    id::{CallId, RunId, SessionId},
    message::MessageBlock,
};

/// A frame that is not in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveUpdate {
    /// The session that it belongs to.
    pub session: SessionId,
    /// Kind of the frame, with its content.
    pub kind: LiveKind,
}

impl LiveUpdate {
    /// Estimates the bytes that it holds.
    pub(crate) fn byte_size(&self) -> usize {
        let of_block = |block: &MessageBlock| match block {
            MessageBlock::Text(text) => text.text.len(),
            MessageBlock::Thinking(thinking) => thinking.thinking.len(),
            MessageBlock::RedactedThinking { data } => data.len(),
            MessageBlock::Image(image) => image.data.len(),
            MessageBlock::ToolCall(_) => 256,
        };
        match &self.kind {
            LiveKind::MessageStarted { .. } | LiveKind::PartStarted { .. } | LiveKind::Idle { .. } => 0,
            LiveKind::Delta { text, .. } => text.len(),
            LiveKind::PartEnded { block, .. } => of_block(block),
            LiveKind::CallProgress { content, .. } => content.iter().map(of_block).sum(),
        }
    }
}

/// A part of a message that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LivePartKind {
    /// Text.
    Text,
    /// Thinking.
    Thinking,
    /// Sealed thinking.
    Redacted,
    /// A call, whose arguments come as raw JSON text.
    ToolCall {
        /// The model's id of the part.
        id: Arc<str>,
        /// The tool's name.
        name: Arc<str>,
    },
}

impl LiveKind {
    /// Returns its notice for people; none for pieces of an answer or a result.
    pub fn idle_notice(&self) -> Option<String> {
        let Self::Idle { since, limit } = self else { return None };
        let (since, limit) = (since.as_secs(), limit.as_secs());
        Some(format!(
            "The model provider keeps the connection alive but has sent nothing of an answer for {since} s. The request fails after {limit} s."
        ))
    }
}

/// Content of a live frame.
#[derive(Clone, Debug, PartialEq)]
pub enum LiveKind {
    /// The model begins to answer.
    MessageStarted {
        /// For which run.
        run: RunId,
        /// The attempt.
        epoch: u32,
        /// The wire that is spoken.
        api: Arc<str>,
        /// The provider.
        provider: Arc<str>,
        /// The model.
        model: Arc<str>,
    },
    /// A part begins.
    PartStarted {
        /// Its content index.
        index: usize,
        /// Kind of the part.
        part: LivePartKind,
    },
    /// More of a part.
    Delta {
        /// Its content index.
        index: usize,
        /// Text to append.
        text: Arc<str>,
    },
    /// A part is whole.
    PartEnded {
        /// Its content index.
        index: usize,
        /// The whole block.
        block: Arc<MessageBlock>,
    },
    /// The provider keeps the connection alive and sends nothing of an answer.
    Idle {
        /// Time without an answer.
        since: Duration,
        /// After how long the request fails.
        limit: Duration,
    },
    /// Progress of a call: all of its output so far.
    CallProgress {
        /// Id of the call.
        call: CallId,
        /// Text and image blocks.
        content: Vec<MessageBlock>,
        /// Facts for a program.
        details: Option<Arc<serde_json::Value>>,
    },
}
