//! What a door has beside omp's when it speaks this dialect.
//!
//! It must not know what is made of it: commands and hooks read it and change it.

mod gate_display;
mod unattended;

use countersign_adapter_omp::OmpAdapter;

pub(crate) use self::{
    gate_display::{GateDisplay, GatePresentation, HostOptions},
    unattended::UnattendedState,
};
use crate::envelope_writer::EnvelopeWriter;

/// What a door has beside omp's when it speaks this dialect.
#[derive(Default)]
pub(crate) struct DialectState {
    /// What writes its frames.
    pub(crate) writer: EnvelopeWriter,
    /// How its host is shown gates.
    pub(crate) workflow: GateDisplay,
    /// What reads them.
    pub(crate) surface: ClientSurface,
    /// What it knows of unattended runs.
    pub(crate) unattended: UnattendedState,
}

/// What is at the other end of a door.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ClientSurface {
    /// A host, on standard input and output.
    #[default]
    Host,
    /// A socket: one host after another.
    Socket,
    /// The bridge. It shows calls that somebody must allow as such.
    Bridge,
}

/// The state of this dialect in a door that speaks it.
pub(crate) fn gjc_state(adapter: &OmpAdapter) -> Option<&DialectState> {
    adapter.dialect.state_ref()
}

/// The same, to be changed.
pub(crate) fn gjc_state_mut(adapter: &mut OmpAdapter) -> Option<&mut DialectState> {
    adapter.dialect.state_mut()
}

/// What a door that speaks this dialect remembers of unattended runs.
pub(crate) fn unattended_mut(adapter: &mut OmpAdapter) -> Option<&mut UnattendedState> {
    gjc_state_mut(adapter).map(|gjc| &mut gjc.unattended)
}
