//! Cases of an MCP host at a gateway: a call that waits is allowed, denied, or outlives the gateway.

use std::{
    fs::{self, File},
    path::PathBuf,
    thread,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use countersign_scripted_model::{ModelScript, ScriptId};
use serde_json::json;

use crate::agents::{
    case_context::CaseContext,
    host_program::{HostPermissions, HostProgram, HostSetup, McpConnection},
    process::{ProcessGroup, wait_for},
    relay,
    scratch_gateway::{GateAnswer, ScratchGateway},
};

/// Longest time for a step of a program.
const LIMIT: Duration = Duration::from_secs(90);
/// Time in which a program notices that the gateway has gone.
const NOTICE: Duration = Duration::from_secs(15);
/// Wait of a person before the answer: longer than the interval of the gateway's progress notifications.
const THINKING: Duration = Duration::from_secs(11);
/// Tool of the service, which needs approval.
const TOOL: &str = "turn";
/// Argument of the tool, and path of its action.
const THING: &str = "door";
/// Result of the action.
const DONE: &str = "is done";

/// Case of one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum McpCase {
    Allowed,
    Denied,
    Killed,
    /// The same with a token over HTTP.
    HttpAllowed,
    HttpKilled,
    /// A call of a tool of the program itself, for which it asks `permission_prompt`.
    PermissionAllowed,
    PermissionDenied,
    PermissionKilled,
}

impl McpCase {
    /// Returns the cases of a program, in order.
    pub(crate) fn for_program(program: HostProgram) -> Vec<Self> {
        if program == HostProgram::Copilot {
            return Vec::new();
        }
        let mut cases = vec![Self::Allowed, Self::Denied, Self::Killed, Self::HttpAllowed, Self::HttpKilled];
        if program == HostProgram::Claude {
            cases.extend([Self::PermissionAllowed, Self::PermissionDenied, Self::PermissionKilled]);
        }
        cases
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "stdio-allowed",
            Self::Denied => "stdio-denied",
            Self::Killed => "stdio-killed",
            Self::HttpAllowed => "http-allowed",
            Self::HttpKilled => "http-killed",
            Self::PermissionAllowed => "permission-allowed",
            Self::PermissionDenied => "permission-denied",
            Self::PermissionKilled => "permission-killed",
        }
    }

    /// Runs the case, and returns what it found out.
    pub(crate) fn run(self, context: &CaseContext<'_>) -> anyhow::Result<String> {
        fs::create_dir_all(&context.folder)?;
        let gateway = ScratchGateway::start(context.binary, &context.folder.join("gateway"), &context.stub.url)?;
        let connection = match self {
            Self::HttpAllowed | Self::HttpKilled => {
                McpConnection::Http { url: gateway.mcp_url(), token: gateway.create_token()? }
            }
            Self::Allowed
            | Self::Denied
            | Self::Killed
            | Self::PermissionAllowed
            | Self::PermissionDenied
            | Self::PermissionKilled => McpConnection::Stdio(relay::command(&context.frames(), gateway.mcp_command())?),
        };
        let mut run = CaseRun { context, gateway, connection, hosts: 0 };
        match self {
            Self::Allowed | Self::HttpAllowed => run.allow_call(),
            Self::Denied => run.deny_call(),
            Self::Killed | Self::HttpKilled => run.kill_gateway(),
            Self::PermissionAllowed => run.prompt_permission(GateAnswer::Allow),
            Self::PermissionDenied => run.prompt_permission(GateAnswer::Deny),
            Self::PermissionKilled => run.kill_at_permission(),
        }
    }
}

/// Case that runs.
struct CaseRun<'a> {
    context: &'a CaseContext<'a>,
    gateway: ScratchGateway,
    connection: McpConnection,
    hosts: usize,
}

impl CaseRun<'_> {
    fn allow_call(&mut self) -> anyhow::Result<String> {
        let (script, mut host) = self.start_turn(1)?;
        let gate = self.gateway.wait_gate()?;
        thread::sleep(THINKING);
        ensure!(self.gateway.pending_gates()? == [gate.clone()], "the gate did not stay pending");
        self.gateway.answer_gate(&gate, GateAnswer::Allow)?;
        let result = self.context.stub.wait_result(script, 1, LIMIT)?;
        ensure!(result.contains(DONE), "unexpected result: {result}");
        finish(&mut host)?;
        self.expect_actions(1)?;
        Ok(self.opening())
    }

    fn deny_call(&mut self) -> anyhow::Result<String> {
        let (script, mut host) = self.start_turn(1)?;
        let gate = self.gateway.wait_gate()?;
        self.gateway.answer_gate(&gate, GateAnswer::Deny)?;
        let result = self.context.stub.wait_result(script, 1, LIMIT)?;
        ensure!(result.contains("Denied by"), "unexpected result: {result}");
        finish(&mut host)?;
        self.expect_actions(0)?;
        Ok(self.opening())
    }

    /// Kills the gateway while the host waits, and allows the call after the restart.
    fn kill_gateway(&mut self) -> anyhow::Result<String> {
        let (script, mut host) = self.start_turn(2)?;
        let gate = self.gateway.wait_gate()?;
        self.gateway.kill();
        // Over stdio the command repeats the call, and the host knows of nothing.
        let is_repeated = matches!(self.connection, McpConnection::Stdio(_));
        let lost = if is_repeated { None } else { Some(self.context.stub.wait_result(script, 1, NOTICE)) };
        self.gateway.restart()?;
        ensure!(self.gateway.pending_gates()? == [gate.clone()], "the gate did not survive");
        self.gateway.answer_gate(&gate, GateAnswer::Allow)?;
        self.wait_actions(1)?;
        let facts = match lost {
            None => {
                let result = self.context.stub.wait_result(script, 1, LIMIT)?;
                ensure!(result.contains(DONE), "unexpected result: {result}");
                self.context.stub.release_call(script);
                drop(host);
                "the same call gets the outcome".to_owned()
            }
            Some(Ok(lost)) => format!("the model got {:?}; {}", shown(&lost), self.repeat_call(script, &mut host)?),
            Some(Err(_)) => {
                drop(host);
                self.take_outcome()?;
                format!("no result within {} s; the next session gets the outcome", NOTICE.as_secs())
            }
        };
        ensure!(self.gateway.pending_gates()?.is_empty(), "the repeated call opened a gate");
        self.expect_actions(1)?;
        // The outcome is delivered: the next identical call is a new one.
        let (script, mut host) = self.start_turn(1)?;
        let next = self.gateway.wait_gate()?;
        ensure!(next != gate, "the outcome was not delivered");
        self.gateway.answer_gate(&next, GateAnswer::Deny)?;
        self.context.stub.wait_result(script, 1, LIMIT)?;
        finish(&mut host)?;
        self.expect_actions(1)?;
        Ok(facts)
    }

    /// Lets the model call again in the same session. If the host has lost the gateway, the next session calls.
    fn repeat_call(&mut self, script: ScriptId, host: &mut ProcessGroup) -> anyhow::Result<String> {
        self.context.stub.release_call(script);
        let again = self.context.stub.wait_result(script, 2, LIMIT);
        finish(host)?;
        if again.as_ref().is_ok_and(|again| again.contains(DONE)) {
            return Ok("the same session gets the outcome".to_owned());
        }
        self.take_outcome()?;
        let again = again.map_or_else(|error| error.to_string(), |again| shown(&again));
        Ok(format!("again {again:?}; the next session gets the outcome"))
    }

    /// Makes the same call in a new session, whose result is the outcome.
    fn take_outcome(&mut self) -> anyhow::Result<()> {
        let (script, mut host) = self.start_turn(1)?;
        let result = self.context.stub.wait_result(script, 1, LIMIT)?;
        ensure!(result.contains(DONE), "unexpected result: {result}");
        finish(&mut host)
    }

    fn prompt_permission(&mut self, answer: GateAnswer) -> anyhow::Result<String> {
        let (script, mut host) = self.start_shell()?;
        let gate = self.gateway.wait_gate()?;
        ensure!(!self.effect().exists(), "the command ran before the answer");
        self.gateway.answer_gate(&gate, answer)?;
        let result = self.context.stub.wait_result(script, 1, LIMIT)?;
        finish(&mut host)?;
        let lines = fs::read_to_string(self.effect()).unwrap_or_default();
        let want = if answer == GateAnswer::Allow { "ran\n" } else { "" };
        ensure!(lines == want, "the command wrote {lines:?}; the model got {result:?}");
        Ok(format!("the model got {:?}", shown(&result)))
    }

    /// Kills the gateway while the host asks it, and allows the call after the restart.
    fn kill_at_permission(&mut self) -> anyhow::Result<String> {
        let (script, mut host) = self.start_shell()?;
        let gate = self.gateway.wait_gate()?;
        self.gateway.kill();
        self.gateway.restart()?;
        ensure!(!self.effect().exists(), "the command ran before the answer");
        self.gateway.answer_gate(&gate, GateAnswer::Allow)?;
        let result = self.context.stub.wait_result(script, 1, LIMIT)?;
        finish(&mut host)?;
        let lines = fs::read_to_string(self.effect()).unwrap_or_default();
        ensure!(lines == "ran\n", "the command wrote {lines:?}; the model got {result:?}");
        ensure!(self.gateway.pending_gates()?.is_empty(), "the repeated question opened a gate");
        Ok("the same question gets the decision".to_owned())
    }

    /// Starts the host with a script that calls the tool of the service.
    fn start_turn(&mut self, calls: usize) -> anyhow::Result<(ScriptId, ProcessGroup)> {
        let script = ModelScript { tool: TOOL, arguments: json!({ "thing": self.thing() }), calls };
        self.start_host(script, HostPermissions::GatewayTools)
    }

    /// Starts the host with a script that writes a line by a command.
    fn start_shell(&mut self) -> anyhow::Result<(ScriptId, ProcessGroup)> {
        let command = format!("echo ran >> '{}'", self.effect().display());
        let arguments = json!({ "command": command, "description": "Writes a line" });
        let script = ModelScript { tool: "Bash", arguments, calls: 1 };
        self.start_host(script, HostPermissions::PermissionPrompt)
    }

    fn start_host(
        &mut self,
        script: ModelScript,
        permissions: HostPermissions,
    ) -> anyhow::Result<(ScriptId, ProcessGroup)> {
        let context = self.context;
        let id = context.stub.add_script(script);
        self.hosts += 1;
        let log = |stream| File::create(context.folder.join(format!("host-{}.{stream}", self.hosts)));
        let mut command = context.program.command(&HostSetup {
            programs: context.programs,
            folder: &context.folder,
            model_url: &context.stub.url,
            connection: &self.connection,
            permissions,
            prompt: &id.prompt(),
        })?;
        let host = ProcessGroup::spawn(command.stdout(log("out")?).stderr(log("err")?))?;
        Ok((id, host))
    }

    /// Returns the file to which the command of the shell writes.
    fn effect(&self) -> PathBuf {
        self.context.folder.join("effect")
    }

    /// Returns the thing that only this case turns.
    fn thing(&self) -> String {
        let case = self.context.folder.file_name().unwrap_or_default().to_string_lossy();
        format!("{}-{case}-{THING}", self.context.program.name())
    }

    fn wait_actions(&self, count: usize) -> anyhow::Result<()> {
        let thing = self.thing();
        wait_for("action", LIMIT, || Ok((self.context.stub.action_count(&thing) >= count).then_some(())))
    }

    fn expect_actions(&self, want: usize) -> anyhow::Result<()> {
        let count = self.context.stub.action_count(&self.thing());
        ensure!(count == want, "the action ran {count} times instead of {want}");
        Ok(())
    }

    /// Returns the facts about the connection.
    fn opening(&self) -> String {
        let Ok(lines) = fs::read_to_string(self.context.frames()) else { return "over HTTP".to_owned() };
        let opening = relay::opening(&lines).unwrap_or_else(|| "no opening".to_owned());
        format!("{opening}, progress notifications: {}", relay::count_progress(&lines))
    }
}

fn finish(host: &mut ProcessGroup) -> anyhow::Result<()> {
    host.wait(LIMIT).context("the program did not end after the model's last text").map(drop)
}

/// Returns the end of a text in one line: programs put their own words before it.
fn shown(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let start = line.char_indices().rev().nth(159).map_or(0, |(at, _)| at);
    line[start..].to_owned()
}
