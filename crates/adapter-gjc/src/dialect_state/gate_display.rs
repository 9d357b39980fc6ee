//! Presentation of gates to a host: by its options, and by the mode that it entered.

use countersign_adapter_omp::flags::StageFlag;
use countersign_core::gate::Gate;

use crate::{envelope_writer::StopReasons, gate_form::GateOptions};

/// Options that a host gave when it started the adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostOptions {
    /// True if the host shows the questions of tools as dialogs.
    pub(crate) dialogs: bool,
    /// Selects whether the host is shown the choices of gates.
    pub options: GateOptions,
    /// Representation of the end of a run that used up its budget.
    pub(crate) reasons: StopReasons,
    /// The stage that its first message starts.
    pub stage: Option<StageFlag>,
}

/// Settings for the display of gates by an adapter.
#[derive(Debug, Default)]
pub(crate) struct GateDisplay {
    pub(crate) host: HostOptions,
    /// True if the host answers gates as such: it entered unattended mode in this process.
    pub(crate) is_unattended: bool,
}

/// Presentation of a gate.
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

    /// Returns the stage that the next message of the host starts.
    pub(crate) const fn opening_stage(&self) -> Option<StageFlag> {
        self.host.stage
    }

    /// Notes the start of a run: later messages of the host are about it.
    pub(crate) const fn start_run(&mut self) {
        self.host.stage = None;
    }

    /// Returns the presentation of a gate to this host.
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
