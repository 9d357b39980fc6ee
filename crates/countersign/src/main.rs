//! The binary: command line and wiring.

mod acp;
mod agent;
mod agents;
mod attach;
mod audit;
mod backup;
mod bridge;
mod cli;
mod cluster;
mod config;
mod control_client;
mod data_dir;
mod demo;
mod doctor;
mod error_text;
mod exit;
mod gates;
mod guard;
mod hook;
mod inspect;
mod log_level;
mod logging;
mod mcp;
mod mcp_servers;
mod no_gateway;
mod opencode;
mod policy;
mod privileges;
mod proxy;
mod record_location;
mod running_sessions;
mod secrets;
mod serve;
mod sessions;
mod signals;
mod socket_pipe;
mod stdio;
mod storage;
mod tokens;
mod user_service;
mod wrap;

use std::process::ExitCode;

use countersign_agent_dir::AgentProduct;
use countersign_view::terminal_style as style;

/// Allocator of the Rust code. Its background thread returns memory to the system while the process is idle; the C library's allocator
/// does not.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The stack of a worker, in bytes. The grammar of shell lines recurses; its depth is bounded where lines are judged, and this is the
/// reserve for it. Pages that are never touched cost nothing.
const STACK: usize = 32 << 20;

fn main() -> ExitCode {
    let mut arguments = std::env::args();
    let called = arguments.next().unwrap_or_default();
    let mut arguments: Vec<String> = arguments.collect();
    if arguments.first().is_some_and(|first| first == countersign_tools::exec::ExecLauncher::ARGUMENT) {
        return countersign_tools::exec::child_main();
    }
    // The name that the binary is called by chooses the adapter, so that hosts which insist on a name find it.
    let name = std::path::Path::new(&called).file_stem().map(|name| name.to_string_lossy().into_owned());
    // Agents' programs call their client by the name that they know; there its first word may be left out.
    if name.as_deref() == Some("agentpass") {
        return cli::agentpass_main(arguments);
    }
    if let Some(product) = name.as_deref().and_then(AgentProduct::from_name) {
        return stdio::run(product, arguments);
    }
    if let Some(product) = arguments.first().and_then(|first| AgentProduct::from_name(first)) {
        return stdio::run(product, arguments.split_off(1));
    }
    cli::main()
}
