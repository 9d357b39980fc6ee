//! The gates of a session, counted by stage.

use super::state::Session;
use crate::{
    gate::{Gate, GateStage},
    id::GateId,
};

impl Session {
    /// Returns the gate of this stage with this [number](Gate::number), in any state.
    pub fn gate_at(&self, stage: GateStage, number: u32) -> Option<GateId> {
        self.stages.get(&stage)?.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
    }

    /// Returns the number of counted gates of each stage.
    pub fn gates_by_stage(&self) -> impl Iterator<Item = (GateStage, usize)> + '_ {
        self.stages.iter().map(|(stage, gates)| (*stage, gates.len()))
    }

    /// Returns the stage in which the next gate is counted, and its number there. Requests of an agent are not counted.
    pub(crate) fn next_place(&self, stage: GateStage) -> (Option<GateStage>, u32) {
        if self.requester.is_some() {
            return (None, 0);
        }
        let opened = self.stages.get(&stage).map_or(0, Vec::len);
        (Some(stage), u32::try_from(opened).unwrap_or(u32::MAX).saturating_add(1))
    }

    /// Counts a gate that was opened in it, if it counts.
    pub(crate) fn count_gate(&mut self, gate: &Gate) {
        if gate.number() > 0 {
            self.stages.entry(gate.stage()).or_default().push(gate.id());
        }
    }
}
