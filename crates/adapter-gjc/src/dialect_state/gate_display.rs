//! How a host is shown gates: by what it said of itself, and by the mode that it entered.

use countersign_adapter_omp::flags::StageFlag;
use countersign_core::gate::Gate;

use crate::{envelope_writer::StopReasons, gate_form::GateOptions};

/// What a host said of itself when it started the door.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostOptions {
    /// Whether it shows the questions of tools as dialogs.
    pub(crate) dialogs: bool,
    /// Whether it is shown the choices of gates.
    pub options: GateOptions,
    /// How it reads of the end of a run that used up its budget.
    pub(crate) reasons: StopReasons,
    /// The stage that its first message starts.
    pub stage: Option<StageFlag>,
}

/// How a door shows gates.
#[derive(Debug, Default)]
pub(crate) struct GateDisplay {
    pub(crate) host: HostOptions,
    /// Whether its host answers gates as such: it entered unattended mode in this process.
    pub(crate) is_unattended: bool,
}

/// How a gate is shown.
pub(crate) enum GatePresentation {
    Gate,
    Dialog,
    /// It waits, and is listed.
    Nowhere,
}

impl GateDisplay {
    pub(crate) const fn new(host: HostOptions) -> Self {
        Self { host, is_unattended: false }
    }

    /// The stage that the next message of the host starts.
    pub(crate) const fn opening_stage(&self) -> Option<StageFlag> {
        self.host.stage
    }

    /// A run has begun: what the host says from here on is about it.
    pub(crate) const fn start_run(&mut self) {
        self.host.stage = None;
    }

    /// How a gate is shown to this host.
    pub(crate) fn presentation_for(&self, gate: &Gate) -> GatePresentation {
        if self.is_unattended && gate.number() > 0 {
            GatePresentation::Gate
        } else if gate.kind().takes_words() && !self.host.dialogs {
            GatePresentation::Nowhere
        } else {
            GatePresentation::Dialog
        }
    }
}
