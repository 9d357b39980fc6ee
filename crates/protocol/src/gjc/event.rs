//! Writes what happens in a session as events in envelopes.
//!
//! It must not know the order in which things happen, nor count: numbers and ids are handed in. Source: the RPC reference
//! of gjc, Event Stream Schema; docs/protocol/gjc.md, Events.

use serde::Serialize;

use crate::json::{RawJson, WireValue, wire_values};
use crate::omp;
use crate::omp::event::{AssistantMessageEvent, BlockChange};

/// The version that every envelope names.
pub const PROTOCOL_VERSION: u32 = 2;

/// Interval of compact updates that hold the whole message: every 32nd update does.
pub const CHECKPOINT_EVERY: u64 = 32;

/// The frame around an event; on the bridge, around every frame.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GjcEnvelope<P> {
    protocol_version: u32,
    /// The session that is current.
    pub session_id: String,
    /// Counts from 1, one by one.
    pub seq: u64,
    /// Names the frame.
    pub frame_id: String,
    /// Type of the payload.
    #[serde(rename = "type")]
    pub kind: FrameType,
    /// The payload.
    pub payload: P,
    /// The id that its answer will carry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
}

impl<P: WireValue> WireValue for GjcEnvelope<P> {}

impl<P> GjcEnvelope<P> {
    /// Puts `payload` into an envelope.
    pub fn new(kind: FrameType, session_id: String, seq: u64, frame_id: String, payload: P) -> Self {
        Self { protocol_version: PROTOCOL_VERSION, session_id, seq, frame_id, kind, payload, correlation_id: None }
    }

    /// Sets the id that the answer will carry.
    pub fn with_correlation_id(self, id: String) -> Self {
        Self { correlation_id: Some(id), ..self }
    }
}

/// Type of an envelope's payload. On stdio there are only events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FrameType {
    /// The first frame of a stream.
    Ready,
    /// An event.
    Event,
    /// The response to a command.
    Response,
    /// A dialog.
    UiRequest,
    /// A call that needs permission.
    PermissionRequest,
    /// A call of a tool of the host, or its cancellation.
    HostToolCall,
    /// A request at a URI of the host, or its cancellation.
    HostUriRequest,
    /// Frames were lost.
    Reset,
    /// A gate.
    WorkflowGate,
    /// Something failed.
    Error,
}

impl FrameType {
    /// Every type, as a handshake lists them.
    pub const ALL: [Self; 10] = [
        Self::Ready,
        Self::Event,
        Self::Response,
        Self::UiRequest,
        Self::PermissionRequest,
        Self::HostToolCall,
        Self::HostUriRequest,
        Self::Reset,
        Self::WorkflowGate,
        Self::Error,
    ];
}

/// The payload of an event: the event, and its type once more for routing.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum EventPayload {
    /// The event as it is.
    Whole {
        /// The `type` of the event.
        event_type: &'static str,
        /// The event.
        event: GjcEvent,
    },
    /// An update of a message without the message.
    Compact(Box<CompactUpdate>),
}

impl From<GjcEvent> for EventPayload {
    fn from(event: GjcEvent) -> Self {
        Self::Whole { event_type: event.name(), event }
    }
}

/// The payload of `message_update` for hosts that requested `compact_message_update`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CompactUpdate {
    event_type: &'static str,
    compact: bool,
    message_id: Option<String>,
    content_index: Option<usize>,
    #[serde(rename = "assistantMessageEvent")]
    assistant_message_event: BlockChange,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint_message: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint_reason: Option<&'static str>,
}

impl CompactUpdate {
    /// Creates the update for a message that grew by `change`. `number` counts the updates of the connection from 1; every
    /// [`CHECKPOINT_EVERY`]th holds `message` whole.
    pub fn new(message_id: Option<String>, change: BlockChange, number: u64, message: &RawJson) -> Self {
        let checkpoint = number.is_multiple_of(CHECKPOINT_EVERY);
        Self {
            event_type: "message_update",
            compact: true,
            message_id,
            content_index: Some(content_index(&change)),
            assistant_message_event: change,
            checkpoint_message: checkpoint.then(|| message.clone()),
            checkpoint_reason: checkpoint.then_some("periodic"),
        }
    }
}

fn content_index(change: &BlockChange) -> usize {
    match change {
        BlockChange::TextStart { content_index }
        | BlockChange::TextDelta { content_index, .. }
        | BlockChange::TextEnd { content_index, .. }
        | BlockChange::ThinkingStart { content_index }
        | BlockChange::ThinkingDelta { content_index, .. }
        | BlockChange::ThinkingEnd { content_index, .. }
        | BlockChange::ToolcallStart { content_index }
        | BlockChange::ToolcallDelta { content_index, .. }
        | BlockChange::ToolcallEnd { content_index, .. } => *content_index,
    }
}

/// One event. It is made of omp's by [`GjcEvent::from_omp`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum GjcEvent {
    /// One that omp has too.
    Shared(Box<omp::OmpEvent>),
    /// One that omp has not, or has in another form.
    Own(OwnEvent),
}

/// Events that omp does not have, or has in another form.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum OwnEvent {
    /// A run ended; the last event of it.
    AgentEnd {
        /// Every message that the run added, in order.
        messages: Vec<RawJson>,
        /// Reason of the end. Absent only for a host of an old client that does not expect a breach here.
        #[serde(skip_serializing_if = "Option::is_none")]
        stop_reason: Option<RunEnd>,
        /// Error of a run that was ended for a breach of its budget; the response to its prompt carries it too. Ours.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<RawJson>,
    },
    /// Another agent sent a message.
    IrcMessage {
        /// A message of role `custom`.
        message: RawJson,
    },
    /// A run was steered by the one that started it. Of later versions.
    SubagentSteerMessage {
        /// A message of role `custom`.
        message: RawJson,
    },
    /// Something that people should know.
    Notice {
        /// Severity of the notice.
        level: crate::omp::ui::NotifyType,
        /// Text of the notice.
        message: String,
        /// Source of the notice.
        #[serde(skip_serializing_if = "Option::is_none")]
        source: Option<String>,
    },
    /// The model thinks harder, or less.
    ThinkingLevelChanged {
        /// Absent if it does not think.
        #[serde(skip_serializing_if = "Option::is_none")]
        thinking_level: Option<String>,
    },
    /// The goal of the session changed.
    GoalUpdated {
        /// Null if there is none.
        goal: Option<RawJson>,
    },
}

/// Reason that a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    /// There was nothing more to do.
    Completed,
    /// Something holds it up.
    Paused,
    /// Its budget was used up. Ours.
    BudgetExceeded,
}

impl GjcEvent {
    /// Makes an event of omp's one of this dialect; none for a frame that is flat here, or not sent at all. A run that
    /// ends has ended for `end`.
    pub fn from_omp(event: omp::OmpEvent, end: RunEnd) -> Option<Self> {
        match event {
            omp::OmpEvent::Ready | omp::OmpEvent::AgentSettled | omp::OmpEvent::ExtensionError { .. } => None,
            omp::OmpEvent::AgentEnd { messages } => {
                Some(Self::Own(OwnEvent::AgentEnd { messages, stop_reason: Some(end), error: None }))
            }
            event @ (omp::OmpEvent::AgentStart
            | omp::OmpEvent::TurnStart
            | omp::OmpEvent::TurnEnd { .. }
            | omp::OmpEvent::MessageStart { .. }
            | omp::OmpEvent::MessageUpdate { .. }
            | omp::OmpEvent::MessageEnd { .. }
            | omp::OmpEvent::ToolExecutionStart { .. }
            | omp::OmpEvent::ToolExecutionUpdate { .. }
            | omp::OmpEvent::ToolExecutionEnd { .. }
            | omp::OmpEvent::AutoCompactionStart { .. }
            | omp::OmpEvent::AutoCompactionEnd { .. }
            | omp::OmpEvent::AutoRetryStart { .. }
            | omp::OmpEvent::AutoRetryEnd { .. }
            | omp::OmpEvent::RetryFallbackApplied { .. }
            | omp::OmpEvent::RetryFallbackSucceeded { .. }
            | omp::OmpEvent::TtsrTriggered { .. }
            | omp::OmpEvent::TodoReminder { .. }
            | omp::OmpEvent::TodoAutoClear) => Some(Self::Shared(Box::new(event))),
        }
    }

    /// Makes the end of a run that was ended for `error`, a breach of its budget.
    pub fn budget_breached(messages: Vec<RawJson>, stop_reason: Option<RunEnd>, error: RawJson) -> Self {
        Self::Own(OwnEvent::AgentEnd { messages, stop_reason, error: Some(error) })
    }

    /// Returns the `type` of the event.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Shared(event) => event.name(),
            Self::Own(event) => match event {
                OwnEvent::AgentEnd { .. } => "agent_end",
                OwnEvent::IrcMessage { .. } => "irc_message",
                OwnEvent::SubagentSteerMessage { .. } => "subagent_steer_message",
                OwnEvent::Notice { .. } => "notice",
                OwnEvent::ThinkingLevelChanged { .. } => "thinking_level_changed",
                OwnEvent::GoalUpdated { .. } => "goal_updated",
            },
        }
    }

    /// Takes an update apart for a host that wants small ones: the change, and the message so far.
    pub fn into_update(self) -> Result<(BlockChange, RawJson), Self> {
        match self {
            Self::Shared(event) => match *event {
                omp::OmpEvent::MessageUpdate {
                    assistant_message_event: AssistantMessageEvent { change, .. },
                    message,
                } => Ok((change, message)),
                event => Err(Self::Shared(Box::new(event))),
            },
            Self::Own(event) => Err(Self::Own(event)),
        }
    }
}

wire_values! { EventPayload, GjcEvent }
