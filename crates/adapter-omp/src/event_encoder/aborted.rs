//! The last message of a run that was aborted while its calls worked: an empty one that says `aborted`.

use countersign_core::{
    message::{AssistantReply, StopReason},
    time::Millis,
};

use super::{EventEncoder, OmpEvent, wire_of};

/// Text of an aborted message.
const ABORTED: &str = "Request was aborted";

/// The turn as the host knows it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum TurnState {
    /// None has begun, or the last one has ended.
    #[default]
    Closed,
    /// One has begun, without a message.
    Empty,
    /// One has begun, and the model answered in it.
    Answered,
}

impl EventEncoder {
    /// Reports that a run was aborted whose last message does not report it: it ended while calls worked, or before the next request to the
    /// model.
    pub(super) fn abort_turn(&mut self, at: Millis, frames: &mut Vec<OmpEvent>) {
        let Some(last) = self.last.take().filter(|_| !self.is_waiting && !self.owes_turn) else { return };
        match self.turn {
            TurnState::Closed if last.stop_reason == StopReason::ToolUse => frames.push(OmpEvent::TurnStart),
            TurnState::Empty => {}
            TurnState::Closed | TurnState::Answered => return,
        }
        let error_message = Some(ABORTED.to_owned());
        let aborted = AssistantReply { stop_reason: StopReason::Aborted, error_message, ..last };
        let message = wire_of(&aborted, at);
        self.added.push(message.clone());
        frames.push(OmpEvent::MessageStart { message: message.clone() });
        frames.push(OmpEvent::MessageEnd { message: message.clone() });
        frames.push(OmpEvent::TurnEnd { message, tool_results: Vec::new() });
    }
}

/// Returns a message without its content: its author, and the reason for its end.
pub(super) fn message_identity(assistant: &AssistantReply) -> AssistantReply {
    AssistantReply {
        api: assistant.api.clone(),
        provider: assistant.provider.clone(),
        model: assistant.model.clone(),
        stop_reason: assistant.stop_reason,
        ..AssistantReply::default()
    }
}
