//! Counts facts once they are durable.

use std::time::Duration;

use countersign_core::{
    call::{self, Executor},
    engine::{Event, RecordedFact, State},
    gate::{self, GateResolution, Kind},
    message::StopReason,
    run::{self, RunOutcome},
};

use super::RuntimeMetrics;

/// The kinds of [`RuntimeMetrics::gates_opened`].
pub const GATE_KINDS: [&str; 6] = ["approval", "question", "plan", "execution", "pairing", "budget"];
/// The verdicts of [`RuntimeMetrics::gates_resolved`].
pub const RESOLUTIONS: [&str; 7] = ["allowed", "denied", "answered", "declined", "granted", "expired", "withdrawn"];
/// The ends of [`RuntimeMetrics::runs_ended`].
pub const RUN_ENDS: [&str; 6] = ["completed", "aborted", "retry_cancelled", "failed", "overflowed", "interrupted"];
/// Executors of [`RuntimeMetrics::calls_ended`]; the last stands for calls that an earlier process had begun.
pub const EXECUTORS: [&str; 6] = ["builtin", "person", "shell", "service", "peer", "earlier"];
/// Ends of [`RuntimeMetrics::calls_ended`].
pub const ENDS: [&str; 10] =
    ["done", "error", "failed", "denied", "refused", "expired", "limited", "skipped", "cancelled", "unknown"];
/// Stop reasons of answers of models.
pub const STOPS: [&str; 5] = ["stop", "length", "tool_use", "error", "aborted"];

impl RuntimeMetrics {
    /// Counts a fact that is durable; `state` is that after it.
    pub(crate) fn count_event(&self, recorded: &RecordedFact, state: &State) {
        self.events.add(1);
        match &recorded.fact.event {
            Event::Gate(event) => self.count_gate_event(event, recorded, state),
            Event::Run(event) => self.count_run_event(event),
            Event::Call(event) => self.count_call_event(event),
            Event::Booted
            | Event::Session(_)
            | Event::Peer(_)
            | Event::Channel(_)
            | Event::Policy(_)
            | Event::Settings(_)
            | Event::Unattended(_)
            | Event::Schedule(_) => {}
        }
    }

    fn count_gate_event(&self, event: &gate::Event, recorded: &RecordedFact, state: &State) {
        match event {
            gate::Event::Opened { kind, .. } => self.gates_opened[gate_kind(*kind)].add(1),
            gate::Event::Resolved { gate, resolution, .. } => {
                let (verdict, is_answer) = of_resolution(resolution);
                self.gates_resolved[verdict].add(1);
                if is_answer && let Some(gate) = state.gate(*gate) {
                    let waited = recorded.meta.at.0.saturating_sub(gate.opened_at().0);
                    self.answers.record_duration(Duration::from_millis(waited));
                }
            }
            gate::Event::Voted { .. }
            | gate::Event::Escalated { .. }
            | gate::Event::Reminded { .. }
            | gate::Event::Extended { .. }
            | gate::Event::Shown { .. }
            | gate::Event::Updated { .. } => {}
        }
    }

    fn count_run_event(&self, event: &run::Event) {
        match event {
            run::Event::Started { .. } => self.runs_started.add(1),
            run::Event::ModelRequested { .. } => self.model_requests.add(1),
            run::Event::Answered { stop, .. } => self.model_answers[of_stop(*stop)].add(1),
            run::Event::Ended { end, .. } => self.runs_ended[of_run(*end)].add(1),
            _ => {}
        }
    }

    fn count_call_event(&self, event: &call::Event) {
        match event {
            call::Event::Proposed { call, executor, .. } => {
                self.open_calls.lock().insert(*call, of_executor(executor));
            }
            call::Event::Ended { call, end, .. } => {
                let executor = self.open_calls.lock().remove(call).unwrap_or(EXECUTORS.len() - 1);
                self.calls_ended[executor * ENDS.len() + of_end(*end)].add(1);
            }
            _ => {}
        }
    }
}

/// Returns the index of a kind in [`GATE_KINDS`].
pub const fn gate_kind(kind: Kind) -> usize {
    match kind {
        Kind::Approval => 0,
        Kind::Question => 1,
        Kind::Plan => 2,
        Kind::Execution => 3,
        Kind::Pairing => 4,
        Kind::Budget => 5,
    }
}

/// Returns the index of the verdict, and whether it is a person's.
const fn of_resolution(resolution: &GateResolution) -> (usize, bool) {
    match resolution {
        GateResolution::Allowed { .. } => (0, true),
        GateResolution::Denied => (1, true),
        GateResolution::Answered => (2, true),
        GateResolution::Declined => (3, true),
        GateResolution::Granted => (4, false),
        GateResolution::Expired => (5, false),
        GateResolution::Withdrawn => (6, false),
    }
}

const fn of_run(end: RunOutcome) -> usize {
    match end {
        RunOutcome::Completed => 0,
        RunOutcome::Aborted => 1,
        RunOutcome::RetryCancelled => 2,
        RunOutcome::Failed => 3,
        RunOutcome::Overflowed => 4,
        RunOutcome::Interrupted => 5,
    }
}

const fn of_executor(executor: &Executor) -> usize {
    match executor {
        Executor::Builtin => 0,
        Executor::Person => 1,
        Executor::Shell => 2,
        Executor::Service => 3,
        Executor::Peer(_) => 4,
    }
}

const fn of_end(end: call::CallEnd) -> usize {
    match end {
        call::CallEnd::Done { error: false } => 0,
        call::CallEnd::Done { error: true } => 1,
        call::CallEnd::Failed => 2,
        call::CallEnd::Denied => 3,
        call::CallEnd::Refused => 4,
        call::CallEnd::Expired => 5,
        call::CallEnd::Limited => 6,
        call::CallEnd::Skipped => 7,
        call::CallEnd::Cancelled => 8,
        call::CallEnd::Unknown => 9,
    }
}

const fn of_stop(stop: StopReason) -> usize {
    match stop {
        StopReason::Stop => 0,
        StopReason::Length => 1,
        StopReason::ToolUse => 2,
        StopReason::Error => 3,
        StopReason::Aborted => 4,
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::{call, gate::GateResolution, message::StopReason, run::RunOutcome};

    use super::{ENDS, RESOLUTIONS, RUN_ENDS, STOPS, of_end, of_resolution, of_run, of_stop};

    #[test]
    fn each_word_is_that_of_the_record() {
        let word = |value: serde_json::Value| match value {
            serde_json::Value::String(word) => word,
            serde_json::Value::Object(members) => members.keys().next().unwrap().clone(),
            other => panic!("{other}"),
        };
        for end in [
            RunOutcome::Completed,
            RunOutcome::Aborted,
            RunOutcome::RetryCancelled,
            RunOutcome::Failed,
            RunOutcome::Overflowed,
            RunOutcome::Interrupted,
        ] {
            assert_eq!(RUN_ENDS[of_run(end)], word(serde_json::to_value(end).unwrap()));
        }
        for resolution in [
            GateResolution::Denied,
            GateResolution::Answered,
            GateResolution::Declined,
            GateResolution::Granted,
            GateResolution::Expired,
            GateResolution::Withdrawn,
        ] {
            assert_eq!(RESOLUTIONS[of_resolution(&resolution).0], word(serde_json::to_value(&resolution).unwrap()));
        }
        for end in [call::CallEnd::Failed, call::CallEnd::Refused, call::CallEnd::Limited, call::CallEnd::Unknown] {
            assert_eq!(ENDS[of_end(end)], word(serde_json::to_value(end).unwrap()));
        }
        assert_eq!((STOPS[of_stop(StopReason::ToolUse)], STOPS[of_stop(StopReason::Aborted)]), ("tool_use", "aborted"));
    }
}
