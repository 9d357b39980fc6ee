//! Frames of an adapter, before a dialect encodes them.

use bytes::Bytes;
use countersign_protocol::{
    RawJson, encode_line,
    gjc::{bridge::PermissionFrame, host_tool::HostToolFrame, host_uri::HostUriFrame, workflow::WorkflowGate},
    omp::{OmpEvent, OmpResponse, UiRequest},
};

/// A frame of omp or of a dialect.
#[derive(Clone, Copy, Debug)]
pub enum OutgoingFrame<'a> {
    /// The first of all.
    Ready,
    /// The answer to a command.
    Response(&'a OmpResponse),
    /// An event of the session.
    Event(&'a OmpEvent),
    /// A run stands still and continues by itself.
    Pause {
        /// Every message that it added so far.
        messages: &'a [RawJson],
    },
    /// The model thinks harder, or less; absent if it does not think.
    Level(Option<&'a str>),
    /// Something for the host to show.
    Dialog(&'a UiRequest),
    /// A call that requires an approval, on its way to the bridge.
    Permission(&'a PermissionFrame),
    /// About a call of a tool of the host.
    HostTool(&'a HostToolFrame),
    /// About a request at a URI of the host.
    HostUri(&'a HostUriFrame),
    /// A gate, for hosts that answer gates as such.
    Gate(&'a WorkflowGate),
    /// Number of the client of the frames after it. It is never sent itself.
    Client(u64),
}

impl<'a> From<&'a OmpResponse> for OutgoingFrame<'a> {
    fn from(response: &'a OmpResponse) -> Self {
        Self::Response(response)
    }
}

impl<'a> From<&'a OmpEvent> for OutgoingFrame<'a> {
    fn from(event: &'a OmpEvent) -> Self {
        Self::Event(event)
    }
}

impl<'a> From<&'a PermissionFrame> for OutgoingFrame<'a> {
    fn from(permission: &'a PermissionFrame) -> Self {
        Self::Permission(permission)
    }
}

impl<'a> From<&'a UiRequest> for OutgoingFrame<'a> {
    fn from(dialog: &'a UiRequest) -> Self {
        Self::Dialog(dialog)
    }
}

impl OutgoingFrame<'_> {
    /// Encodes the frame as omp writes it; none for a frame that omp has not.
    pub(crate) fn encode_line(self) -> Option<Bytes> {
        match self {
            Self::Ready => Some(encode_line(&OmpEvent::Ready)),
            Self::Response(response) => Some(encode_line(response)),
            Self::Event(event) => Some(encode_line(event)),
            Self::Pause { messages } => Some(encode_line(&OmpEvent::AgentEnd { messages: messages.to_vec() })),
            Self::Dialog(dialog) => Some(encode_line(dialog)),
            Self::HostTool(frame) => Some(encode_line(frame)),
            Self::HostUri(frame) => Some(encode_line(frame)),
            // There is no bridge to hosts of omp and no socket, they get no levels, and see gates as dialogs.
            Self::Permission(_) | Self::Level(_) | Self::Gate(_) | Self::Client(_) => None,
        }
    }
}
