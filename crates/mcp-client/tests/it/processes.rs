use std::{collections::BTreeMap, fs};

use countersign_mcp_client::{CallOutcome, McpServers, ProgressSink, ServerTransport};
use countersign_runtime::tools::{
    Sandbox,
    sandbox::{SandboxMode, SandboxSettings},
};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::{options, script_folder, servers};

fn python(env: &[(&str, &str)]) -> ServerTransport {
    ServerTransport::Stdio {
        command: "python3".to_owned(),
        args: vec!["server.py".to_owned()],
        env: env.iter().map(|&(name, value)| (name.to_owned(), value.into())).collect(),
        cwd: Some(script_folder()),
    }
}

async fn call_with(servers: &McpServers, tool: &str, arguments: Value) -> CallOutcome {
    let arguments: Map<String, Value> = arguments.as_object().unwrap().clone();
    servers.call_tool("box", tool, arguments, CancellationToken::new(), ProgressSink::default()).await
}

/// Takes out the note about the line that a test binary as the exec child writes first.
fn without_harness(text: &str) -> String {
    text.replace("; it wrote a line that is no message: \"running 1 test\"", "")
}

async fn call(servers: &McpServers, tool: &str) -> String {
    let CallOutcome::Done { content, .. } = call_with(servers, tool, json!({})).await else { panic!("{tool}") };
    content[0].as_text().unwrap().to_owned()
}

#[tokio::test]
async fn a_server_runs_in_its_folder_with_a_bounded_environment() {
    let servers = servers(python(&[("TOKEN", "s3cret-value")]), options());
    assert_eq!(servers.list_tools("box").await.unwrap().tools.len(), 7);
    assert!(call(&servers, "folder").await.ends_with("tests/it"));
    let seen: BTreeMap<String, String> = serde_json::from_str(&call(&servers, "environment").await).unwrap();
    assert_eq!(seen["TOKEN"], "s3cret-value");
    let home = options().homes.join("box").canonicalize().unwrap();
    assert_eq!(seen["HOME"], home.to_str().unwrap());
    assert!(seen.contains_key("PATH") && !seen.keys().any(|name| name.starts_with("CARGO")), "{:?}", seen.keys());
}

#[tokio::test]
async fn a_server_is_confined_like_commands() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let settings =
        SandboxSettings { mode: SandboxMode::Workspace, temporary: Some(Vec::new()), ..SandboxSettings::default() };
    let sandbox = Sandbox::new(settings, Vec::new(), Vec::new());
    if sandbox.missing_support().is_some() {
        return;
    }
    let own = folder.path().join("own");
    fs::create_dir(&own).unwrap();
    fs::copy(script_folder().join("server.py"), own.join("server.py")).unwrap();
    let mut options = options();
    options.sandbox = sandbox;
    options.homes = folder.path().join("homes");
    let home = options.homes.join("box");
    fs::create_dir_all(options.homes.join("other")).unwrap();
    let ServerTransport::Stdio { command, args, env, .. } = python(&[]) else { panic!() };
    let servers = servers(ServerTransport::Stdio { command, args, env, cwd: Some(own.clone()) }, options);
    let places = [
        (own.join("a"), "written"),
        (home.join("a"), "written"),
        (folder.path().join("b"), "PermissionError"),
        (folder.path().join("homes/b"), "PermissionError"),
        (folder.path().join("homes/other/b"), "PermissionError"),
    ];
    for (path, want) in places {
        let CallOutcome::Done { content, .. } = call_with(&servers, "write", json!({ "path": path })).await else {
            panic!()
        };
        assert_eq!(content[0].as_text(), Some(want), "{}", path.display());
    }
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_leaves_its_code_and_its_last_words() {
    let servers = servers(python(&[]), options());
    let want = "Outcome unknown: MCP server box got the call of die, but it exited with code 7; cannot open \\u{1b}[31mthe door";
    let CallOutcome::InDoubt { text } = call_with(&servers, "die", json!({})).await else { panic!() };
    assert_eq!(without_harness(&text), want);
    assert!(call(&servers, "folder").await.ends_with("tests/it"));
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_named() {
    let transport = ServerTransport::Stdio {
        command: "/nonexistent/server".to_owned(),
        args: Vec::new(),
        env: BTreeMap::new(),
        cwd: None,
    };
    let error = servers(transport, options()).list_tools("box").await.unwrap_err().to_string();
    let want = "cannot start MCP server box: /nonexistent/server: No such file or directory (os error 2)";
    assert_eq!(without_harness(&error), want);
}

#[tokio::test]
async fn an_answer_of_64_mib_fails_and_the_server_works_on() {
    let servers = servers(python(&[]), options());
    let want = "MCP server box: huge failed: the answer is larger than 8388608 bytes (code -32603)";
    assert_eq!(call_with(&servers, "huge", json!({})).await, CallOutcome::Failed { text: want.to_owned() });
    assert!(call(&servers, "folder").await.ends_with("tests/it"));
}

#[tokio::test]
async fn a_server_that_hangs_ends_with_everything_that_it_started() {
    let servers = servers(python(&[]), options());
    let child = call(&servers, "child").await;
    assert!(lives(&child));
    let cancel = CancellationToken::new();
    let progress = ProgressSink::new({
        let cancel = cancel.clone();
        move |_| cancel.cancel()
    });
    let outcome = servers.call_tool("box", "hang", Map::new(), cancel, progress).await;
    let text = "Outcome unknown: MCP server box got the call of hang, but the call was cancelled".to_owned();
    assert_eq!(outcome, CallOutcome::InDoubt { text });
    servers.close().await;
    // The exec child kills it at once; the kernel takes a moment to take it away.
    while lives(&child) {
        tokio::task::yield_now().await;
    }
}

/// Returns true for a process that has not ended.
fn lives(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}
