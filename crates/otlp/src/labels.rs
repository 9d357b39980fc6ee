//! Fixed labels of spans: reasons of ends, and executors.

use countersign_core::{
    call::{self, Executor},
    gate::{self, GateResolution},
    message::StopReason,
    run,
};

/// Returns the label of a run's end, and its error type if that is an error.
pub(super) const fn run_end_label(end: run::RunOutcome) -> (&'static str, Option<&'static str>) {
    match end {
        run::RunOutcome::Completed => ("completed", None),
        run::RunOutcome::Aborted => ("aborted", None),
        run::RunOutcome::RetryCancelled => ("retry_cancelled", Some("retry_cancelled")),
        run::RunOutcome::Failed => ("failed", Some("failed")),
        run::RunOutcome::Overflowed => ("overflowed", Some("overflowed")),
        run::RunOutcome::Interrupted => ("interrupted", Some("interrupted")),
    }
}

/// Returns the reason of an answer's end, in the words that OpenTelemetry has for it, and its error type if that is an error.
pub(super) const fn stop_label(stop: StopReason) -> (&'static str, Option<&'static str>) {
    match stop {
        StopReason::Stop => ("stop", None),
        StopReason::Length => ("length", None),
        StopReason::ToolUse => ("tool_call", None),
        StopReason::Error => ("error", Some("error")),
        StopReason::Aborted => ("aborted", None),
    }
}

/// Returns the label of a call's executor.
pub(super) const fn executor_label(executor: &Executor) -> &'static str {
    match executor {
        Executor::Builtin => "builtin",
        Executor::Person => "person",
        Executor::Shell => "shell",
        Executor::Service => "service",
        Executor::Peer(_) => "peer",
    }
}

/// Returns the label of a call's end, and its error type if that is an error.
pub(super) const fn call_end_label(end: call::CallEnd) -> (&'static str, Option<&'static str>) {
    match end {
        call::CallEnd::Done { error: false } => ("done", None),
        call::CallEnd::Done { error: true } => ("error", Some("error")),
        call::CallEnd::Failed => ("failed", Some("failed")),
        call::CallEnd::Denied => ("denied", Some("denied")),
        call::CallEnd::Refused => ("refused", Some("refused")),
        call::CallEnd::Expired => ("expired", Some("expired")),
        call::CallEnd::Limited => ("limited", Some("limited")),
        call::CallEnd::Skipped => ("skipped", None),
        call::CallEnd::Cancelled => ("cancelled", None),
        call::CallEnd::Unknown => ("unknown", Some("unknown")),
    }
}

/// Returns the label of a gate's kind.
pub(super) const fn gate_kind_label(kind: gate::Kind) -> &'static str {
    match kind {
        gate::Kind::Approval => "approval",
        gate::Kind::Question => "question",
        gate::Kind::Plan => "plan",
        gate::Kind::Execution => "execution",
        gate::Kind::Pairing => "pairing",
        gate::Kind::Budget => "budget",
    }
}

/// Returns the label of a gate's resolution.
pub(super) const fn resolution_label(resolution: &GateResolution) -> &'static str {
    match resolution {
        GateResolution::Allowed { .. } => "allowed",
        GateResolution::Denied => "denied",
        GateResolution::Answered => "answered",
        GateResolution::Declined => "declined",
        GateResolution::Granted => "granted",
        GateResolution::Expired => "expired",
        GateResolution::Withdrawn => "withdrawn",
    }
}
