//! Servers as processes and over HTTP.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod http;
mod processes;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use countersign_mcp_client::{McpOptions, McpServers, ServerDefinition, ServerTransport};
use countersign_runtime::tools::exec::{self, ExecLauncher};

/// Arguments that start this test binary as the exec child. The last name matches no test: it only shows the purpose.
const AS_CHILD: [&str; 3] = ["--exact", "this_binary_serves_as_the_exec_child", "as-the-exec-child"];

#[test]
fn this_binary_serves_as_the_exec_child() {
    if std::env::args().any(|argument| argument == AS_CHILD[2]) {
        std::process::exit(i32::from(exec::child_main() != ExitCode::SUCCESS));
    }
}

fn options() -> McpOptions {
    let launcher =
        ExecLauncher { program: std::env::current_exe().unwrap(), leading_args: AS_CHILD.map(Into::into).to_vec() };
    McpOptions::new(launcher, Path::new(env!("CARGO_TARGET_TMPDIR")).join("homes"))
}

/// Returns the folder of the script of a server.
fn script_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it")
}

/// All servers of a gateway: one called `box`.
fn servers(transport: ServerTransport, options: McpOptions) -> McpServers {
    McpServers::new(vec![ServerDefinition::new("box", transport)], options).unwrap()
}
