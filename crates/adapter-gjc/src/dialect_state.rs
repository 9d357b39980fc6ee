//! State that an adapter keeps for this dialect, in addition to omp's.
//!
//! It must not know how it is used: commands and hooks read it and change it.

mod gate_display;
mod unattended;

use countersign_adapter_omp::OmpAdapter;

pub(crate) use self::{
    gate_display::{GateDisplay, GatePresentation, HostOptions},
    unattended::UnattendedState,
};
use crate::envelope_writer::EnvelopeWriter;

/// State that an adapter keeps for this dialect, in addition to omp's.
#[derive(Default)]
pub(crate) struct DialectState {
    /// Writer of the adapter's frames.
    pub(crate) writer: EnvelopeWriter,
    /// Settings for the display of gates to the host.
    pub(crate) workflow: GateDisplay,
    /// Kind of client that reads the frames.
    pub(crate) surface: ClientSurface,
    /// State of unattended runs.
    pub(crate) unattended: UnattendedState,
}

/// Kind of client at the other end of an adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ClientSurface {
    /// A host, on standard input and output.
    #[default]
    Host,
    /// A socket: one host after another.
    Socket,
    /// The bridge. It shows calls that require an approval as such.
    Bridge,
}

/// Returns the state of this dialect in an adapter that speaks it.
pub(crate) fn gjc_state(adapter: &OmpAdapter) -> Option<&DialectState> {
    adapter.dialect.state_ref()
}

/// Returns the same, mutable.
pub(crate) fn gjc_state_mut(adapter: &mut OmpAdapter) -> Option<&mut DialectState> {
    adapter.dialect.state_mut()
}

/// Returns the state of unattended runs of an adapter that speaks this dialect.
pub(crate) fn unattended_mut(adapter: &mut OmpAdapter) -> Option<&mut UnattendedState> {
    gjc_state_mut(adapter).map(|gjc| &mut gjc.unattended)
}
