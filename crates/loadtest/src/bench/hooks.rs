//! Hooks of agents: the time that a call waits for the decision of a rule, with a hook process for each call and over HTTP.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{
    FigureSuite,
    agent_gate::time_turns,
    figure::{BenchFigure, FigureGroup, FigureUnit, median},
    lazy_measurement,
};
use crate::fixture::{
    gateway::{self, GatewayProcess},
    hook_process,
    scratch::ScratchFolder,
    socket::TOKEN,
    web::BlockingHttpClient,
};

/// Rounds of calls. The first one warms up.
const ROUNDS: usize = 3;

const RULES: &str = r#"
defaults: [ { pattern: "*", action: ask } ]
rules: [ { pattern: "bash(echo *)", action: allow } ]
"#;

/// Medians in milliseconds.
struct HookFigures {
    /// From the start of the process to its end.
    process: f64,
    /// The same of a process that only connects to a socket and prints a line.
    plain: f64,
    http: f64,
    /// A request over the same connection that the gateway answers at once.
    livez: f64,
}

/// Measures every figure that the suite selects.
pub(super) fn measure_all(binary: &Path, suite: &mut FigureSuite<'_>) {
    suite.group = FigureGroup::Hooks;
    let figures = lazy_measurement(|| measure_hooks(binary));
    // The yardstick is a process that connects to a socket, sends a line, reads one and prints it.
    suite.measure(
        BenchFigure::new("hooks: a hook from its start to its end, for a call that a rule allows", FigureUnit::Millis)
            .with_target(8.0),
        &mut || {
            let figures = figures.get_result()?;
            Ok((figures.process, Some(figures.plain)))
        },
    );
    // The yardstick is a request that the gateway answers without the record.
    suite.measure(BenchFigure::new("hooks: the same over HTTP", FigureUnit::Millis).with_target(1.0), &mut || {
        let figures = figures.get_result()?;
        Ok((figures.http, Some(figures.livez)))
    });
}

fn measure_hooks(binary: &Path) -> anyhow::Result<HookFigures> {
    let scratch = ScratchFolder::new("hooks")?;
    let folder = scratch.path().to_owned();
    let config = format!(
        "{}agent: {{ token: {TOKEN} }}\nrate_limit: {{ max_requests_per_minute: 1000000000 }}\n",
        gateway::service_config(gateway::start_service()?)
    );
    gateway::write_config(&scratch, &config, RULES)?;
    let gateway = GatewayProcess::run(binary, scratch)?;
    let token = add_token(binary, &folder)?;
    let mut client = BlockingHttpClient::connect(gateway.address.parse()?)?;
    let headers = format!("authorization: Bearer {token}\r\ncontent-type: application/json\r\n");
    let echo = start_echo(folder.join("echo.sock"))?;
    let (mut of_process, mut of_plain, mut of_http, mut of_livez) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let first = time_turns(|| run_hook(binary, &folder))?;
        let second = time_turns(|| run_plain(&echo))?;
        let third = time_turns(|| {
            let reply = client.send_request("POST", "/hooks/claude", &headers, &hook_input().to_string())?;
            ensure!(reply.status == 200, "the hook was answered with status {}", reply.status);
            Ok(())
        })?;
        let fourth = time_turns(|| client.get("/livez").map(drop))?;
        if round > 0 {
            of_process.extend(first);
            of_plain.extend(second);
            of_http.extend(third);
            of_livez.extend(fourth);
        }
    }
    let nothing = "nothing was measured";
    Ok(HookFigures {
        process: median(of_process).context(nothing)?,
        plain: median(of_plain).context(nothing)?,
        http: median(of_http).context(nothing)?,
        livez: median(of_livez).context(nothing)?,
    })
}

fn hook_input() -> Value {
    json!({
        "session_id": "bench", "cwd": "/srv", "hook_event_name": "PreToolUse", "permission_mode": "default",
        "tool_name": "Bash", "tool_input": { "command": "echo hi" }, "tool_use_id": "toolu_1",
    })
}

/// Returns a new token that may send hooks.
fn add_token(binary: &Path, folder: &Path) -> anyhow::Result<String> {
    let mut command = Command::new(binary);
    command.args(["tokens", "add", "bench", "--scope", "call", "--json", "--config", "config.yaml"]);
    let output = command.current_dir(folder).output()?;
    let added: Value = serde_json::from_slice(&output.stdout).context("the token was not added")?;
    Ok(added["token"].as_str().context("the token was not printed")?.to_owned())
}

fn run_hook(binary: &Path, folder: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(binary);
    command.args(["hook", "claude", "--config", "config.yaml"]).current_dir(folder);
    let output = run_with_input(command, &hook_input().to_string())?;
    ensure!(output.contains("\"allow\""), "the hook answered {output:?}");
    Ok(())
}

fn run_plain(socket: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(hook_process::SOCKET_CLIENT).arg(socket);
    let output = run_with_input(command, "hello\n")?;
    ensure!(output == "hello\n", "the process printed {output:?}");
    Ok(())
}

/// Runs a process to its end, and returns its standard output.
fn run_with_input(mut command: Command, input: &str) -> anyhow::Result<String> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
    child.stdin.take().context("no pipe")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "the process ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// Starts a socket that sends each line back.
fn start_echo(path: PathBuf) -> anyhow::Result<PathBuf> {
    let listener = UnixListener::bind(&path)?;
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut line = String::new();
            if BufReader::new(&stream).read_line(&mut line).is_ok() {
                let _ = (&stream).write_all(line.as_bytes());
            }
        }
    });
    Ok(path)
}
