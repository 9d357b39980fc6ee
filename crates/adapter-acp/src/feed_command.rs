//! Messages to the feed of a session.

use countersign_acp_protocol::RequestId;
use countersign_core::{id::GateId, message::MessageBlock};
use serde_json::Value;

/// Message to a feed.
pub(crate) enum FeedCommand {
    /// Sends a prompt. Its end is the reply to the request.
    Prompt { id: RequestId, blocks: Vec<MessageBlock> },
    /// Summarises the conversation. Its end is the reply to the request.
    Compact { id: RequestId, topic: Option<String> },
    /// Stops the work in the session.
    Cancel,
    /// Stops it if it is that of this request.
    CancelRequest(RequestId),
    /// The editor replied to the request about a gate.
    Replied { gate: GateId, result: Result<Value, String> },
}
