//! The place where another dialect of omp's protocol joins the adapter: hooks that the adapter calls, and options that hold for a process.
//!
//! It must not know which dialects there are.

use std::any::Any;

use bytes::Bytes;
use countersign_core::{
    engine::RecordedFact,
    gate::{ApprovalScope, Gate, GateReply},
};
use countersign_protocol::{
    gjc::{GjcCommand, GjcInboundFrame, bridge::PermissionRequest},
    lines::DecodedLine,
    omp::{self, OmpEvent, OmpRequestId, OmpResponse, UiAnswer},
};
use countersign_view::GateRequest;
use futures_util::{FutureExt as _, future::BoxFuture};

use super::OmpAdapter;
use crate::{
    dialect_options::DialectOptions, flags::AdapterFlags, frame::OutgoingFrame, session_listing::SessionListing,
};
use countersign_agent_dir::ProcessEnvironment;

/// Chooses the dialect of a host by its flags, the product among them, and its environment. An error names the variable, its value and
/// the accepted ones.
pub type ExtensionFactory = fn(&AdapterFlags, &ProcessEnvironment) -> Result<ConfiguredDialect, String>;

/// A dialect as an adapter is opened with it.
pub struct ConfiguredDialect {
    pub options: DialectOptions,
    pub dialect: ActiveDialect,
}

/// Hooks of a dialect, and what they remember of one adapter.
pub struct ActiveDialect {
    pub hooks: &'static dyn DialectExtension,
    state: Box<dyn Any + Send>,
}

impl ActiveDialect {
    /// Joins hooks with the state that they find again by its type.
    pub fn new(hooks: &'static dyn DialectExtension, state: impl Any + Send) -> Self {
        Self { hooks, state: Box::new(state) }
    }

    /// Returns the state, where it is of this type.
    pub fn state_ref<T: Any>(&self) -> Option<&T> {
        self.state.downcast_ref()
    }

    /// Returns the state, where it is of this type, to be changed.
    pub fn state_mut<T: Any>(&mut self) -> Option<&mut T> {
        self.state.downcast_mut()
    }
}

/// Hooks by which a dialect differs from omp's own protocol. All but `on_command` default to what omp does.
///
/// Hooks are given the adapter and keep nothing themselves: their state is in `ActiveDialect::state`.
pub trait DialectExtension: Sync {
    /// Decodes a line of the host.
    ///
    /// # Errors
    /// The answer to a line that is no frame of a host.
    fn decode(&self, line: &DecodedLine) -> Result<GjcInboundFrame, OmpResponse> {
        match omp::receive_line(line) {
            Ok(omp::OmpInboundFrame::Command { id, command }) => {
                Ok(GjcInboundFrame::Command { id, command: GjcCommand::Shared(command) })
            }
            Ok(omp::OmpInboundFrame::Adopted { id, command }) => {
                Ok(GjcInboundFrame::Command { id, command: GjcCommand::Adopted(command) })
            }
            Ok(omp::OmpInboundFrame::HostTool { id, answer }) => Ok(GjcInboundFrame::HostTool { id, answer }),
            Ok(omp::OmpInboundFrame::HostUri { id, result }) => Ok(GjcInboundFrame::HostUri { id, result }),
            Ok(omp::OmpInboundFrame::UiResponse { id, answer }) => Ok(GjcInboundFrame::UiResponse { id, answer }),
            Ok(omp::OmpInboundFrame::Unknown { type_name }) => Err(OmpResponse::unknown_command(type_name)),
            Err(malformed) => Err(malformed.to_response()),
        }
    }

    /// Encodes a frame about the session that is open; none for a frame that the dialect has not.
    fn encode(&self, _door: &mut OmpAdapter, frame: OutgoingFrame<'_>) -> Option<Bytes> {
        frame.encode_line()
    }

    /// Sorts events that come at once into the order that hosts expect.
    fn arrange_events(&self, _events: &mut Vec<OmpEvent>) {}

    /// Answers a command that breaks off: the original of omp answers it as a line that it could not read.
    fn broken_off(&self, id: Option<OmpRequestId>, _command: &'static str, problem: String) -> OmpResponse {
        OmpResponse::parse_failure(id, problem)
    }

    /// Runs when a session was opened, before the host gets its first frame of it.
    fn on_open<'a>(&self, _door: &'a mut OmpAdapter) -> BoxFuture<'a, ()> {
        async {}.boxed()
    }

    /// Runs when the session was closed at the end of a conversation, before what still waits is answered.
    fn on_close(&self, _door: &mut OmpAdapter) {}

    /// Does a command whose turn has come.
    fn on_command<'a>(
        &self,
        adapter: &'a mut OmpAdapter,
        id: Option<OmpRequestId>,
        command: GjcCommand,
    ) -> BoxFuture<'a, ()>;

    /// Returns whether a command of later versions may run. If not, the host already has the refusal.
    fn admit_command<'a>(
        &self,
        _door: &'a mut OmpAdapter,
        _id: Option<&'a OmpRequestId>,
        _command: &'a GjcCommand,
    ) -> BoxFuture<'a, bool> {
        async { true }.boxed()
    }

    /// Answers an unknown command.
    fn on_unknown<'a>(
        &self,
        adapter: &'a mut OmpAdapter,
        id: Option<OmpRequestId>,
        name: Option<String>,
    ) -> BoxFuture<'a, ()> {
        async move { adapter.write_frame(&OmpResponse::unknown_command_with_id(id, name)) }.boxed()
    }

    /// Takes note of a fact of the session that was released.
    fn on_fact(&self, _door: &mut OmpAdapter, _recorded: &RecordedFact) {}

    /// Shows a gate that waits in the dialect's own form. False if it is to be shown as a dialog.
    fn on_gate_shown(&self, _door: &mut OmpAdapter, _gate: &Gate, _request: &GateRequest) -> bool {
        false
    }

    /// Makes the request for permission that shows a gate in place of a dialog; none if a dialog does.
    fn permission_request(
        &self,
        _door: &OmpAdapter,
        _call: &str,
        _request: &GateRequest,
        _offered: &[ApprovalScope],
    ) -> Option<PermissionRequest> {
        None
    }

    /// Reads the answer to a request for permission; none if it answers a dialog.
    fn permission_answer(
        &self,
        _door: &OmpAdapter,
        _answer: &UiAnswer,
        _request: &GateRequest,
        _offered: &[ApprovalScope],
    ) -> Option<GateReply> {
        None
    }

    /// Rewrites a message of the host before files of slash commands are looked for.
    fn on_prompt(&self, _door: &OmpAdapter, text: String) -> String {
        text
    }

    /// Expands a message that begins with a slash and names no file.
    fn expand_prompt(&self, text: String) -> String {
        text
    }

    /// Resets the state for another client.
    fn on_client(&self, _door: &mut OmpAdapter) {}

    /// Runs when the host has changed its tools.
    fn on_tools_changed<'a>(&self, _door: &'a mut OmpAdapter) -> BoxFuture<'a, ()> {
        async {}.boxed()
    }

    /// Returns the number of the last event that was sent; 0 where events have none.
    fn event_sequence(&self, _door: &OmpAdapter) -> u64 {
        0
    }

    /// Continues the count of events after `number`.
    fn continue_sequence(&self, _door: &mut OmpAdapter, _number: u64) {}

    /// Lists the session of an attached host where other programs look for it, until what is returned is dropped.
    fn list_session(&self, _listing: SessionListing) -> Option<Box<dyn Send>> {
        None
    }
}
