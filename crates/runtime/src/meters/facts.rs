//! What is counted of facts, once they are durable.

use std::{collections::BTreeMap, time::Duration};

use countersign_core::{
    call::{self, Executor},
    engine::{Event, Recorded, State},
    gate::{self, Kind, Resolution},
    id::CallId,
    message::StopReason,
    run::{self, End},
};
use parking_lot::Mutex;

use super::{ANSWERS, Counter, EVENTS, MODEL_ANSWERS, MODEL_REQUESTS, RUNS_STARTED};

/// The kinds of [`GATES_OPENED`].
pub const GATE_KINDS: [&str; 6] = ["approval", "question", "plan", "execution", "pairing", "budget"];
/// Gates that were opened.
pub static GATES_OPENED: [Counter; GATE_KINDS.len()] = [const { Counter::new() }; GATE_KINDS.len()];
/// The verdicts of [`GATES_RESOLVED`].
pub const RESOLUTIONS: [&str; 7] = ["allowed", "denied", "answered", "declined", "granted", "expired", "withdrawn"];
/// Gates that were resolved.
pub static GATES_RESOLVED: [Counter; RESOLUTIONS.len()] = [const { Counter::new() }; RESOLUTIONS.len()];
/// The ends of [`RUNS_ENDED`].
pub const RUN_ENDS: [&str; 6] = ["completed", "aborted", "retry_cancelled", "failed", "overflowed", "interrupted"];
/// Runs that ended.
pub static RUNS_ENDED: [Counter; RUN_ENDS.len()] = [const { Counter::new() }; RUN_ENDS.len()];
/// Who did the calls of [`CALLS_ENDED`]; the last stands for what an earlier process had begun.
pub const EXECUTORS: [&str; 6] = ["builtin", "person", "shell", "service", "peer", "earlier"];
/// How the calls of [`CALLS_ENDED`] ended.
pub const ENDS: [&str; 10] =
    ["done", "error", "failed", "denied", "refused", "expired", "limited", "skipped", "cancelled", "unknown"];
const CALL_SERIES: usize = EXECUTORS.len() * ENDS.len();
/// Calls that ended: by executor, and for each by end.
pub static CALLS_ENDED: [Counter; CALL_SERIES] = [const { Counter::new() }; CALL_SERIES];
/// How models answered.
pub const STOPS: [&str; 5] = ["stop", "length", "tool_use", "error", "aborted"];

/// Who does the calls that are open; what has ended may be gone from the state when its end is counted.
static OPEN: Mutex<BTreeMap<CallId, usize>> = Mutex::new(BTreeMap::new());

/// Counts a fact that is durable; `state` is that behind it.
pub(crate) fn count(recorded: &Recorded, state: &State) {
    EVENTS.add(1);
    match &recorded.fact.event {
        Event::Gate(event) => gate(event, recorded, state),
        Event::Run(event) => run(event),
        Event::Call(event) => call(event),
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

fn gate(event: &gate::Event, recorded: &Recorded, state: &State) {
    match event {
        gate::Event::Opened { kind, .. } => GATES_OPENED[gate_kind(*kind)].add(1),
        gate::Event::Resolved { gate, resolution, .. } => {
            let (verdict, is_answer) = of_resolution(resolution);
            GATES_RESOLVED[verdict].add(1);
            if is_answer && let Some(gate) = state.gate(*gate) {
                ANSWERS.took(Duration::from_millis(recorded.meta.at.0.saturating_sub(gate.opened_at().0)));
            }
        }
        gate::Event::Voted { .. }
        | gate::Event::Asked { .. }
        | gate::Event::Reminded { .. }
        | gate::Event::Extended { .. }
        | gate::Event::Shown { .. }
        | gate::Event::Updated { .. } => {}
    }
}

fn run(event: &run::Event) {
    match event {
        run::Event::Started { .. } => RUNS_STARTED.add(1),
        run::Event::Asked { .. } => MODEL_REQUESTS.add(1),
        run::Event::Answered { stop, .. } => MODEL_ANSWERS[of_stop(*stop)].add(1),
        run::Event::Ended { end, .. } => RUNS_ENDED[of_run(*end)].add(1),
        _ => {}
    }
}

fn call(event: &call::Event) {
    match event {
        call::Event::Wanted { call, executor, .. } => {
            OPEN.lock().insert(*call, of_executor(executor));
        }
        call::Event::Ended { call, end, .. } => {
            let executor = OPEN.lock().remove(call).unwrap_or(EXECUTORS.len() - 1);
            CALLS_ENDED[executor * ENDS.len() + of_end(*end)].add(1);
        }
        _ => {}
    }
}

/// Where a kind stands in [`GATE_KINDS`].
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

/// Which verdict, and whether it is a person's.
const fn of_resolution(resolution: &Resolution) -> (usize, bool) {
    match resolution {
        Resolution::Allowed { .. } => (0, true),
        Resolution::Denied => (1, true),
        Resolution::Answered => (2, true),
        Resolution::Declined => (3, true),
        Resolution::Granted => (4, false),
        Resolution::Expired => (5, false),
        Resolution::Withdrawn => (6, false),
    }
}

const fn of_run(end: End) -> usize {
    match end {
        End::Completed => 0,
        End::Aborted => 1,
        End::RetryCancelled => 2,
        End::Failed => 3,
        End::Overflowed => 4,
        End::Interrupted => 5,
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

const fn of_end(end: call::End) -> usize {
    match end {
        call::End::Done { error: false } => 0,
        call::End::Done { error: true } => 1,
        call::End::Failed => 2,
        call::End::Denied => 3,
        call::End::Refused => 4,
        call::End::Expired => 5,
        call::End::Limited => 6,
        call::End::Skipped => 7,
        call::End::Cancelled => 8,
        call::End::Unknown => 9,
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
    use countersign_core::{call, gate::Resolution, message::StopReason, run::End};

    use super::{ENDS, RESOLUTIONS, RUN_ENDS, STOPS, of_end, of_resolution, of_run, of_stop};

    #[test]
    fn each_word_is_that_of_the_record() {
        let word = |value: serde_json::Value| match value {
            serde_json::Value::String(word) => word,
            serde_json::Value::Object(members) => members.keys().next().unwrap().clone(),
            other => panic!("{other}"),
        };
        for end in [End::Completed, End::Aborted, End::RetryCancelled, End::Failed, End::Overflowed, End::Interrupted] {
            assert_eq!(RUN_ENDS[of_run(end)], word(serde_json::to_value(end).unwrap()));
        }
        for resolution in [
            Resolution::Denied,
            Resolution::Answered,
            Resolution::Declined,
            Resolution::Granted,
            Resolution::Expired,
            Resolution::Withdrawn,
        ] {
            assert_eq!(RESOLUTIONS[of_resolution(&resolution).0], word(serde_json::to_value(&resolution).unwrap()));
        }
        for end in [call::End::Failed, call::End::Refused, call::End::Limited, call::End::Unknown] {
            assert_eq!(ENDS[of_end(end)], word(serde_json::to_value(end).unwrap()));
        }
        assert_eq!((STOPS[of_stop(StopReason::ToolUse)], STOPS[of_stop(StopReason::Aborted)]), ("tool_use", "aborted"));
    }
}
