//! Rules about gates and their times.

use countersign_core::{
    engine::FactMeta,
    gate::{self, GateResolution},
};

use super::{AuditedCallStage, AuditedGate, LogAudit, ensure};
use crate::sim::commands;

impl LogAudit {
    pub(super) fn read_gate_event(&mut self, meta: &FactMeta, event: &gate::Event) -> Result<(), String> {
        let id = event.gate();
        if let gate::Event::Opened { call, scopes, steps, kind, number, stage, .. } = event {
            let is_agents = meta.session.as_ref().is_some_and(|session| session.as_str() == commands::AGENT);
            let counted = self.numbers.entry((meta.session.clone(), kind.stage())).or_default();
            if !is_agents {
                *counted += 1;
            }
            // A gate without a session has no stage.
            let expected = if is_agents || meta.session.is_none() { 0 } else { *counted };
            ensure(*number == expected, "the number of a gate is not its position in its stage")?;
            let expected_stage = (expected > 0).then(|| kind.stage());
            ensure(*stage == expected_stage, "a gate is counted in another stage than its kind")?;
            let (scopes, steps) = (scopes.clone(), steps.clone());
            let seen = AuditedGate { call: *call, scopes, resolution: None, steps, step: 0, votes: Vec::new() };
            ensure(self.gates.insert(id, seen).is_none(), "a gate is opened twice")?;
            if let Some(call) = call {
                self.calls.get_mut(call).ok_or("a gate of a call that was not proposed")?.gates.push(id);
            }
            return Ok(());
        }
        let gate = self.gates.get_mut(&id).ok_or("a fact about a gate that was not opened")?;
        // A card may be sent while an approver answers, and then shows the end.
        if matches!(event, gate::Event::Shown { .. }) {
            return Ok(());
        }
        if matches!(event, gate::Event::Updated { .. }) {
            return ensure(gate.resolution.is_some(), "a card shows the end of a pending gate");
        }
        ensure(gate.resolution.is_none(), "a resolved gate changes")?;
        match event {
            gate::Event::Voted { person, .. } => gate.record_vote(person.clone())?,
            gate::Event::Escalated { step, .. } => gate.enter_step(usize::try_from(*step).unwrap_or(usize::MAX))?,
            _ => {}
        }
        if let gate::Event::Resolved { resolution, by, .. } = event {
            if let GateResolution::Allowed { scope } = resolution {
                ensure(gate.scopes.contains(scope), "a gate is allowed with a scope that it did not offer")?;
                gate.is_allowed(by.as_ref())?;
            }
            let is_over = gate
                .call
                .and_then(|call| self.calls.get(&call))
                .is_some_and(|call| matches!(call.stage, AuditedCallStage::Over(_)));
            ensure(!is_over, "a gate outlives its call")?;
            gate.resolution = Some(resolution.clone());
        }
        Ok(())
    }
}
