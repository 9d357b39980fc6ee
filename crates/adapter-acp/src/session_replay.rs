//! A conversation of the record as updates, in its order.

use std::collections::BTreeMap;

use countersign_acp_protocol::{ContentBlock, SessionUpdate, ToolCallStatus};
use countersign_core::message::{MessageBlock, StoredMessage};
use countersign_runtime::{OwnerHandle, store::LogReadError};
use countersign_view::{LineMode, escape};

use crate::{
    call_view::CallView,
    output::Output,
    session_snapshot::SessionSnapshot,
    update_encoder::{UpdateEncoder, answer_chunk, user_chunk},
};

/// Most contents that are read at once.
const PAGE: usize = 256;

/// Sends the messages of a session, and notes their use in `encoder`.
///
/// # Errors
/// The record cannot be read.
pub(crate) async fn replay_messages(
    handle: &OwnerHandle,
    wire_id: &str,
    snapshot: &SessionSnapshot,
    encoder: &mut UpdateEncoder,
    output: &Output,
) -> Result<(), LogReadError> {
    if let Some(name) = &snapshot.name {
        let title = escape(name, LineMode::One).into_owned();
        output.send_update(wire_id, &SessionUpdate::SessionInfoUpdate { title }).await;
    }
    let mut replay = MessageReplay { cwd: &snapshot.cwd, calls: BTreeMap::new(), updates: Vec::new() };
    for page in snapshot.messages.chunks(PAGE) {
        for content in handle.contents().get(page).await? {
            match content.as_deref().map(serde_json::from_str::<StoredMessage>) {
                Some(Ok(message)) => replay.push_message(message, encoder),
                Some(Err(error)) => tracing::error!(%error, "a message of the record is not shown"),
                None => replay.push_note("This message was redacted."),
            }
            for update in replay.updates.drain(..).chain(encoder.updates.drain(..)) {
                output.send_update(wire_id, &update).await;
            }
        }
    }
    Ok(())
}

struct MessageReplay<'a> {
    cwd: &'a str,
    /// Calls without a result so far, by the model's id.
    calls: BTreeMap<String, CallView>,
    updates: Vec<SessionUpdate>,
}

impl MessageReplay<'_> {
    fn push_note(&mut self, text: &str) {
        let content = ContentBlock::from_text(text);
        self.updates.push(SessionUpdate::AgentThoughtChunk { content });
    }

    fn push_message(&mut self, message: StoredMessage, encoder: &mut UpdateEncoder) {
        match message {
            StoredMessage::User(user) => self.updates.extend(user.content.iter().filter_map(user_chunk)),
            StoredMessage::Assistant(answer) => {
                for block in &answer.content {
                    if let MessageBlock::ToolCall(call) = block {
                        let (arguments, _) = countersign_runtime::tools::strip_intent(call.arguments.clone());
                        let view = CallView { id: call.id.clone(), tool: call.name.clone(), arguments };
                        self.updates.push(view.begun(self.cwd, ToolCallStatus::Pending));
                        self.calls.insert(call.id.clone(), view);
                    } else {
                        self.updates.extend(answer_chunk(block));
                    }
                }
                if let Some(problem) = answer.error_message.as_deref() {
                    self.push_note(problem);
                }
                encoder.add_usage(&answer);
            }
            StoredMessage::ToolResult(result) => {
                if let Some(view) = self.calls.remove(&result.tool_call_id) {
                    let status = if result.is_error { ToolCallStatus::Failed } else { ToolCallStatus::Completed };
                    self.updates.extend(view.ended(self.cwd, status, Some(&result)));
                }
            }
            StoredMessage::BashExecution(ran) => {
                let content = ContentBlock::from_text(format!("$ {}\n{}", ran.command, ran.output));
                self.updates.push(SessionUpdate::UserMessageChunk { content });
            }
            StoredMessage::CompactionSummary(summary) | StoredMessage::BranchSummary(summary) => {
                self.push_note(&format!("[Summary of the earlier conversation]\n{}", summary.summary));
            }
            StoredMessage::Developer(_) | StoredMessage::FileMention(_) | StoredMessage::Custom(_) => {}
        }
    }
}
