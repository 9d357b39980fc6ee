//! The built program in processes of its own: a gateway, hosts and a node's counterparts, with clients for each protocol and fake
//! services.
//!
//! A test starts with a [`GatewayFixture`], or with a [`HostFixture`] if it embeds an agent over pipes. Both have a scripted
//! [`FakeProvider`] of models. The program itself is [`binary_path`].

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod api_contract;
mod attach_fixture;
mod binary;
mod gateway;
mod gateway_fixture;
mod host_fixture;
mod latch;
mod rpc_host;

pub mod agent_gate;
pub mod api;
pub mod browser;
pub mod gsv;
pub mod hermes;
pub mod http;
pub mod provider;
pub mod server;
pub mod service;

use std::{
    thread,
    time::{Duration, Instant},
};

pub use self::{
    attach_fixture::{AttachFixture, session_id},
    binary::binary_path,
    gateway::{GatewayExit, GatewayServer},
    gateway_fixture::{
        AGENT_TOKEN, CommandOutput, GateWatch, GatewayFixture, GatewayOptions, KITCHEN_TOKEN, RULES, SERVICE_TOKEN,
        run_command,
    },
    host_fixture::{HostFixture, check_chain, line_texts, lines_when, lines_with},
    latch::Latch,
    provider::FakeProvider,
    rpc_host::{FramePosition, HostExit, PendingAnswer, RpcHost, frame_shape, message_roles, message_text, of_type},
};

/// Path of a certificate for 127.0.0.1 that signs itself.
pub const CERTIFICATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/process/data/cert.pem");
/// Path of the key of [`CERTIFICATE`].
pub const CERTIFICATE_KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/process/data/key.pem");

/// Path of an MCP server for Python with notes: `add_note`, `read_notes`, resources and a prompt. It writes to its working folder.
pub const LIBRARY_SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/process/data/library_server.py");

/// Path of an MCP server in Python whose tools ask people.
pub const ASKING_SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/process/data/asking_server.py");

/// Longest wait of a test for an event that must come.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

/// Returns what `look` finds, as soon as it finds something.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not come");
        thread::park_timeout(Duration::from_millis(5));
    }
}

/// Returns the feature that this kernel lacks to confine commands, if any.
pub fn sandbox_gap() -> Option<String> {
    countersign_tools::sandbox::KernelSupport::running_kernel().missing_support()
}

/// Waits until the process `pid` has ended.
pub fn wait_dead(pid: &str) {
    let pid = pid.trim().parse().unwrap();
    eventually(&format!("the end of process {pid}"), || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let is_zombie = stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'));
        let pid = nix::unistd::Pid::from_raw(pid);
        (is_zombie || nix::sys::signal::kill(pid, None::<nix::sys::signal::Signal>).is_err()).then_some(())
    });
}
