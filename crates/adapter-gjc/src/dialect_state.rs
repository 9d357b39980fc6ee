//! What a door has beside omp's when it speaks this dialect.
//!
//! It must not know what is made of it: commands and hooks read it and change it.

mod gate_display;
mod unattended;

use countersign_adapter_omp::OmpAdapter;

pub(crate) use self::{
    gate_display::{GateDisplay, HostOptions, Showing},
    unattended::Unattended,
};
use crate::voice::Voice;

/// What a door has beside omp's when it speaks this dialect.
#[derive(Default)]
pub(crate) struct DialectState {
    /// What writes its frames.
    pub(crate) voice: Voice,
    /// How its host is shown gates.
    pub(crate) workflow: GateDisplay,
    /// What reads them.
    pub(crate) surface: Surface,
    /// What it knows of unattended runs.
    pub(crate) unattended: Unattended,
}

/// What is at the other end of a door.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Surface {
    /// A host, on standard input and output.
    #[default]
    Host,
    /// A socket: one host after another.
    Socket,
    /// The bridge. It shows calls that somebody must allow as such.
    Bridge,
}

/// The state of this dialect in a door that speaks it.
pub(crate) fn state(door: &OmpAdapter) -> Option<&DialectState> {
    door.dialect.state_ref()
}

/// The same, to be changed.
pub(crate) fn state_mut(door: &mut OmpAdapter) -> Option<&mut DialectState> {
    door.dialect.state_mut()
}

/// What a door that speaks this dialect remembers of unattended runs.
pub(crate) fn unattended_mut(door: &mut OmpAdapter) -> Option<&mut Unattended> {
    state_mut(door).map(|gjc| &mut gjc.unattended)
}
