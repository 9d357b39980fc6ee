//! What a door speaks: omp's own wire, or the dialect of gjc. Both go through the same door.
//!
//! It must not know what commands do or what happens in a session: it reads lines and writes frames.

use std::time::Duration;

use bytes::Bytes;
use countersign_protocol::{
    Json, encode,
    gjc::{
        self, Command, Incoming, bridge::PermissionFrame, host_tool::HostToolFrame, host_uri::HostUriFrame,
        workflow::WorkflowGate,
    },
    lines::Line,
    omp::{self, Event, Response, UiRequest},
};

use super::{flags::Stage, seat::Seat};
use crate::gjc::{Gjc, Manner, Surface, Voice, Workflow, arrange};
use countersign_agent_dir::Product;

/// How long commands that have come are done after the end of input, where a host expects that.
const DRAIN: Duration = Duration::from_secs(5);

/// Which dialect a door speaks, with what it has to remember for that.
pub(crate) enum Dialect {
    /// omp's own.
    Omp,
    /// That of gjc.
    Gjc(Box<Gjc>),
}

/// A frame, whichever dialect it is written in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Frame<'a> {
    /// The first of all.
    Ready,
    /// The answer to a command.
    Response(&'a Response),
    /// What happened.
    Event(&'a Event),
    /// A run stands still and goes on by itself.
    Pause {
        /// Every message that it added so far.
        messages: &'a [Json],
    },
    /// The model thinks harder, or less; absent if it does not think.
    Level(Option<&'a str>),
    /// Something for the host to show.
    Dialog(&'a UiRequest),
    /// A call that somebody must allow, on its way to the bridge.
    Permission(&'a PermissionFrame),
    /// About a call of a tool of the host.
    HostTool(&'a HostToolFrame),
    /// About a request at a URI of the host.
    HostUri(&'a HostUriFrame),
    /// A gate, for hosts that answer gates as such.
    Gate(&'a WorkflowGate),
    /// For which client the frames behind it are. It reaches none.
    Client(u64),
}

impl<'a> From<&'a Response> for Frame<'a> {
    fn from(response: &'a Response) -> Self {
        Self::Response(response)
    }
}

impl<'a> From<&'a Event> for Frame<'a> {
    fn from(event: &'a Event) -> Self {
        Self::Event(event)
    }
}

impl<'a> From<&'a PermissionFrame> for Frame<'a> {
    fn from(permission: &'a PermissionFrame) -> Self {
        Self::Permission(permission)
    }
}

impl<'a> From<&'a UiRequest> for Frame<'a> {
    fn from(dialog: &'a UiRequest) -> Self {
        Self::Dialog(dialog)
    }
}

impl Dialect {
    /// The dialect of a product's hosts.
    pub(crate) fn of(product: Product, manner: Manner) -> Self {
        match product {
            Product::Omp => Self::Omp,
            Product::Gjc => {
                let (workflow, voice) = (Workflow::new(manner), Voice::default().with(manner.reasons));
                Self::Gjc(Box::new(Gjc { workflow, voice, ..Gjc::default() }))
            }
        }
    }

    /// Whether it is that of gjc.
    pub(crate) const fn is_gjc(&self) -> bool {
        matches!(self, Self::Gjc(_))
    }

    /// Whether the bridge is at the other end.
    pub(crate) fn is_on_bridge(&self) -> bool {
        matches!(self, Self::Gjc(gjc) if gjc.surface == Surface::Bridge)
    }

    /// Whether account is kept at the other end of what waits, so that it has to hear what does no more.
    pub(crate) fn keeps_account(&self) -> bool {
        matches!(self, Self::Gjc(gjc) if gjc.surface != Surface::Host)
    }

    /// The number of the last event.
    pub(crate) fn last_seq(&self) -> u64 {
        match self {
            Self::Omp => 0,
            Self::Gjc(gjc) => gjc.voice.last(),
        }
    }

    /// Counts events on behind `seq`.
    pub(crate) fn count_behind(&mut self, seq: u64) {
        if let Self::Gjc(gjc) = self {
            gjc.voice.count_behind(seq);
        }
    }

    /// From here on `surface` is at the other end.
    pub(crate) fn show_on(&mut self, surface: Surface) {
        if let Self::Gjc(gjc) = self {
            gjc.surface = surface;
        }
    }

    /// Reads a line.
    ///
    /// # Errors
    /// What a line that is no frame of a host is answered.
    pub(crate) fn read(&self, line: &Line) -> Result<Incoming, Response> {
        match self {
            Self::Omp => match omp::receive(line) {
                Ok(omp::Incoming::Command { id, command }) => {
                    Ok(Incoming::Command { id, command: Command::Shared(command) })
                }
                Ok(omp::Incoming::Adopted { id, command }) => Ok(Incoming::Command { id, command }),
                Ok(omp::Incoming::HostTool { id, answer }) => Ok(Incoming::HostTool { id, answer }),
                Ok(omp::Incoming::HostUri { id, result }) => Ok(Incoming::HostUri { id, result }),
                Ok(omp::Incoming::UiResponse { id, answer }) => Ok(Incoming::UiResponse { id, answer }),
                Ok(omp::Incoming::Unknown { type_name }) => Err(Response::unknown(type_name)),
                Err(malformed) => Err(malformed.response()),
            },
            Self::Gjc(_) => match gjc::receive(line) {
                // Of the socket alone.
                Ok(Incoming::Resume { .. }) => Err(Response::unknown_with(None, Some("resume".to_owned()))),
                Ok(incoming) => Ok(incoming),
                Err(malformed) => Err(malformed.response()),
            },
        }
    }

    /// The stage of a workflow that the next message of the host starts.
    pub(crate) fn opening_stage(&self) -> Option<Stage> {
        match self {
            Self::Omp => None,
            Self::Gjc(gjc) => gjc.workflow.opening_stage(),
        }
    }

    /// The line of a frame about the session that is open; none for a frame that the dialect has not.
    pub(super) fn line(&mut self, frame: Frame<'_>, seat: Option<&Seat>) -> Option<Bytes> {
        match self {
            Self::Omp => match frame {
                Frame::Ready => Some(encode(&Event::Ready)),
                Frame::Response(response) => Some(encode(response)),
                Frame::Event(event) => Some(encode(event)),
                Frame::Pause { messages } => Some(encode(&Event::AgentEnd { messages: messages.to_vec() })),
                Frame::Dialog(dialog) => Some(encode(dialog)),
                Frame::HostTool(frame) => Some(encode(frame)),
                Frame::HostUri(frame) => Some(encode(frame)),
                // There is no bridge to hosts of omp and no socket, they are not told of levels, and see gates as dialogs.
                Frame::Permission(_) | Frame::Level(_) | Frame::Gate(_) | Frame::Client(_) => None,
            },
            Self::Gjc(gjc) => {
                if let Some(seat) = seat {
                    gjc.voice.is_of(&seat.id);
                }
                if let Frame::Response(response) = frame
                    && !gjc.unattended.passes(response)
                {
                    return None;
                }
                gjc.voice.line(frame)
            }
        }
    }

    /// Puts events that come at once into the order that hosts expect.
    pub(super) fn arrange(&self, events: &mut [Event]) {
        match self {
            Self::Omp => {}
            Self::Gjc(_) => arrange(events),
        }
    }

    /// What a command is told that breaks off: the original of omp answers it as a line that it could not read.
    pub(super) fn broke_off(
        &self,
        id: Option<omp::Id>,
        command: &'static str,
        problem: impl std::fmt::Display,
    ) -> Response {
        match self {
            Self::Omp => Response::parse_failure(id, problem),
            Self::Gjc(_) => Response::failure(id, command, problem.to_string()),
        }
    }

    /// How long commands that have come are still done when the host has closed its input.
    pub(super) const fn drain(&self) -> Duration {
        match self {
            Self::Omp => Duration::ZERO,
            Self::Gjc(_) => DRAIN,
        }
    }
}
