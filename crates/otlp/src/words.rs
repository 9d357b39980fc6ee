//! What spans say in words that are fixed: why something ended, and who did it.

use countersign_core::{
    call::{self, Executor},
    gate::{self, Resolution},
    message::StopReason,
    run,
};

/// How a run ended, and whether that is an error.
pub(super) const fn of_run(end: run::End) -> (&'static str, Option<&'static str>) {
    match end {
        run::End::Completed => ("completed", None),
        run::End::Aborted => ("aborted", None),
        run::End::RetryCancelled => ("retry_cancelled", Some("retry_cancelled")),
        run::End::Failed => ("failed", Some("failed")),
        run::End::Overflowed => ("overflowed", Some("overflowed")),
        run::End::Interrupted => ("interrupted", Some("interrupted")),
    }
}

/// Why a model's answer ended, in the words that OpenTelemetry has for it, and whether that is an error.
pub(super) const fn of_stop(stop: StopReason) -> (&'static str, Option<&'static str>) {
    match stop {
        StopReason::Stop => ("stop", None),
        StopReason::Length => ("length", None),
        StopReason::ToolUse => ("tool_call", None),
        StopReason::Error => ("error", Some("error")),
        StopReason::Aborted => ("aborted", None),
    }
}

/// Who does a call.
pub(super) const fn of_executor(executor: &Executor) -> &'static str {
    match executor {
        Executor::Builtin => "builtin",
        Executor::Person => "person",
        Executor::Shell => "shell",
        Executor::Service => "service",
        Executor::Peer(_) => "peer",
    }
}

/// How a call ended, and whether that is an error.
pub(super) const fn of_call(end: call::End) -> (&'static str, Option<&'static str>) {
    match end {
        call::End::Done { error: false } => ("done", None),
        call::End::Done { error: true } => ("error", Some("error")),
        call::End::Failed => ("failed", Some("failed")),
        call::End::Denied => ("denied", Some("denied")),
        call::End::Refused => ("refused", Some("refused")),
        call::End::Expired => ("expired", Some("expired")),
        call::End::Limited => ("limited", Some("limited")),
        call::End::Skipped => ("skipped", None),
        call::End::Cancelled => ("cancelled", None),
        call::End::Unknown => ("unknown", Some("unknown")),
    }
}

/// What a gate decides.
pub(super) const fn of_kind(kind: gate::Kind) -> &'static str {
    match kind {
        gate::Kind::Approval => "approval",
        gate::Kind::Question => "question",
        gate::Kind::Plan => "plan",
        gate::Kind::Execution => "execution",
        gate::Kind::Pairing => "pairing",
        gate::Kind::Budget => "budget",
    }
}

/// How a gate was resolved.
pub(super) const fn of_resolution(resolution: &Resolution) -> &'static str {
    match resolution {
        Resolution::Allowed { .. } => "allowed",
        Resolution::Denied => "denied",
        Resolution::Answered => "answered",
        Resolution::Declined => "declined",
        Resolution::Granted => "granted",
        Resolution::Expired => "expired",
        Resolution::Withdrawn => "withdrawn",
    }
}
