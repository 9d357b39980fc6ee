//! A host that speaks the dialect of gjc.

use std::process::Command;

use countersign_testkit::process::{FramePosition, HostFixture, RpcHost, binary_path};
use serde_json::Value;

/// Returns the command of a host in `place`, on the usual model.
pub(crate) fn command(place: &HostFixture, flags: &[&str]) -> Command {
    let mut command = Command::new(binary_path());
    command.args(["gjc", "--mode", "rpc", "--model", "fake/fake-1"]).args(flags).current_dir(&place.work);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", &place.home).env("GJC_CODING_AGENT_DIR", &place.agent);
    command
}

/// Starts it and waits until it is ready.
pub(crate) fn start(place: &HostFixture, flags: &[&str]) -> RpcHost {
    let host = RpcHost::spawn(command(place, flags));
    host.wait_event(0, "ready");
    host
}

/// Returns the first event of this type since `from`, out of its envelope.
pub(crate) fn event(host: &RpcHost, from: FramePosition, kind: &str) -> Value {
    let fits = |frame: &Value| frame["type"] == "event" && frame["payload"]["event_type"] == kind;
    host.wait_frame(from, kind, fits)["payload"]["event"].take()
}

/// Returns all events since `from`, each in its envelope.
pub(crate) fn events(host: &RpcHost, from: FramePosition) -> Vec<Value> {
    host.frames_since(from).into_iter().filter(|frame| frame["type"] == "event").collect()
}

/// Prompts and waits until the run has ended. Gives where that began.
pub(crate) fn turn(host: &mut RpcHost, message: &str) -> FramePosition {
    let from = host.send_prompt(message);
    event(host, from, "agent_end");
    from
}
