//! Program behind a proxy of the gateway, and the client before it: an editor, or a client of the app-server of Codex.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{ChildStdin, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::agents::{
    guarded_program::GuardedProgram,
    host_program::HostProgram,
    process::{ProcessGroup, bounded_command},
};

/// Seconds for which the proxy waits for a gateway that has gone.
const RECONNECT: &str = "5";
/// Time until an answer is that of a person.
const READING: Duration = Duration::from_millis(500);

/// Answer of the editor to the questions of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EditorAnswer {
    /// It is not asked.
    Nothing,
    Allow,
    Deny,
}

/// Returns the reason if a program has no mode in which it works behind a proxy.
pub(crate) const fn without_proxy(program: HostProgram) -> Option<&'static str> {
    match program {
        HostProgram::Claude => Some("it speaks no protocol of a client on standard input and output"),
        HostProgram::Codex | HostProgram::Gemini | HostProgram::Copilot | HostProgram::Opencode => None,
    }
}

/// Starts a program behind the proxy, with a client that makes one prompt and leaves.
pub(crate) fn start(
    guarded: &GuardedProgram<'_>,
    binary: &Path,
    config: &Path,
    editor: EditorAnswer,
    prompt: String,
) -> anyhow::Result<ProcessGroup> {
    let program = guarded.program.path(guarded.programs);
    let program = program.to_str().context("the path of the program is not UTF-8")?;
    let mut command = bounded_command(binary, &guarded.home());
    command.current_dir(guarded.work());
    guarded.program.set_model(&mut command, guarded.model_url);
    let agent = match guarded.program {
        HostProgram::Codex => None,
        HostProgram::Gemini => Some(format!("{program} -m gemini-2.5-pro --acp")),
        HostProgram::Copilot => Some(format!("{program} --acp")),
        HostProgram::Opencode => Some(format!("{program} acp")),
        HostProgram::Claude => bail!("no proxy"),
    };
    let approvals = if editor == EditorAnswer::Nothing { "gateway" } else { "editor" };
    match &agent {
        Some(agent) => command.args(["acp", "--agent", agent, "--approvals", approvals]),
        None => {
            let home = guarded.home().join(".codex");
            // The mark is left above the folder in which the program works.
            let roots = format!("[sandbox_workspace_write]\nwritable_roots = [{}]\n", json!(guarded.folder));
            let config = home.join("config.toml");
            fs::write(&config, fs::read_to_string(&config)? + &roots)?;
            command.args(["codex", "--program", program]).env("CODEX_HOME", home)
        }
    };
    command.args(["--reconnect", RECONNECT, "--config"]).arg(config);
    let group = spawn(guarded.folder, &mut command, |pipes| {
        let mut client = ProgramClient { pipes, work: guarded.work(), editor };
        move || if agent.is_some() { client.run_editor(&prompt) } else { client.run_codex(&prompt) }
    })?;
    Ok(group)
}

fn spawn<C: FnOnce() -> anyhow::Result<()> + Send + 'static>(
    folder: &Path,
    command: &mut Command,
    client: impl FnOnce(ProgramPipes) -> C,
) -> anyhow::Result<ProcessGroup> {
    let stderr = File::create(folder.join("proxy.stderr"))?;
    let mut group = ProcessGroup::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr))?;
    let input = group.leader().stdin.take().context("no standard input")?;
    let output = group.leader().stdout.take().context("no standard output")?;
    let pipes =
        ProgramPipes { input, output: BufReader::new(output), frames: File::create(folder.join("client.frames"))? };
    let (client, problem) = (client(pipes), folder.join("client.problem"));
    thread::spawn(move || {
        if let Err(error) = client() {
            // The case fails by what did not run; this says why.
            let _ = fs::write(problem, format!("{error:#}\n"));
        }
    });
    Ok(group)
}

/// Lines of the client, and a file with all of them.
struct ProgramPipes {
    input: ChildStdin,
    output: BufReader<std::process::ChildStdout>,
    frames: File,
}

impl ProgramPipes {
    fn send(&mut self, message: &Value) -> anyhow::Result<()> {
        writeln!(self.frames, "> {message}")?;
        Ok(writeln!(self.input, "{message}")?)
    }

    fn read(&mut self) -> anyhow::Result<Value> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("the proxy ended");
        }
        write!(self.frames, "< {line}")?;
        serde_json::from_str(&line).with_context(|| line.clone())
    }
}

/// Client of one prompt.
struct ProgramClient {
    pipes: ProgramPipes,
    work: PathBuf,
    editor: EditorAnswer,
}

impl ProgramClient {
    fn run_editor(&mut self, prompt: &str) -> anyhow::Result<()> {
        let files = json!({ "readTextFile": true, "writeTextFile": true });
        let capabilities = json!({ "fs": files, "terminal": false });
        self.call(0, "initialize", json!({ "protocolVersion": 1, "clientCapabilities": capabilities }))?;
        let opened = self.call(1, "session/new", json!({ "cwd": self.work, "mcpServers": [] }))?;
        let session = opened["sessionId"].clone();
        let prompt = json!([{ "type": "text", "text": prompt }]);
        self.call(2, "session/prompt", json!({ "sessionId": session, "prompt": prompt })).map(drop)
    }

    fn run_codex(&mut self, prompt: &str) -> anyhow::Result<()> {
        let client = json!({ "name": "xtask", "title": "xtask", "version": "1" });
        self.call(0, "initialize", json!({ "clientInfo": client, "capabilities": { "experimentalApi": true } }))?;
        self.pipes.send(&json!({ "method": "initialized" }))?;
        let settings = json!({ "cwd": self.work, "approvalPolicy": "untrusted", "sandbox": "workspace-write" });
        let opened = self.call(1, "thread/start", settings)?;
        let thread = opened["thread"]["id"].clone();
        let input = json!([{ "type": "text", "text": prompt }]);
        self.call(2, "turn/start", json!({ "threadId": thread, "input": input }))?;
        loop {
            let message = self.pipes.read()?;
            if message["method"] == "turn/completed" {
                return Ok(());
            }
            self.answer(&message)?;
        }
    }

    /// Sends a request, and returns its result. Requests of the other side are answered meanwhile.
    fn call(&mut self, id: u64, method: &str, params: Value) -> anyhow::Result<Value> {
        self.pipes.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        loop {
            let mut message = self.pipes.read()?;
            if message["method"].is_null() && message["id"] == id {
                if message["result"].is_null() {
                    bail!("{method}: {message}");
                }
                return Ok(message["result"].take());
            }
            self.answer(&message)?;
        }
    }

    /// Answers a request of the program, or of the proxy. A notification needs nothing.
    fn answer(&mut self, message: &Value) -> anyhow::Result<()> {
        let (Some(method), id) = (message["method"].as_str(), &message["id"]) else { return Ok(()) };
        if id.is_null() {
            return Ok(());
        }
        let params = &message["params"];
        let path = || params["path"].as_str().context("no path");
        let result = match method {
            "session/request_permission" => self.choose(&params["options"])?,
            "fs/read_text_file" => json!({ "content": fs::read_to_string(path()?)? }),
            "fs/write_text_file" => {
                fs::write(path()?, params["content"].as_str().context("no content")?)?;
                Value::Null
            }
            _ => {
                let error = json!({ "code": -32601, "message": format!("{method}: not supported") });
                return self.pipes.send(&json!({ "jsonrpc": "2.0", "id": id, "error": error }));
            }
        };
        self.pipes.send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))
    }

    /// Selects an option as a person does, who has read the question.
    fn choose(&self, options: &Value) -> anyhow::Result<Value> {
        let kind = match self.editor {
            EditorAnswer::Nothing => bail!("the client was asked"),
            EditorAnswer::Allow => "allow_once",
            EditorAnswer::Deny => "reject_once",
        };
        thread::sleep(READING);
        let option = options.as_array().into_iter().flatten().find(|option| option["kind"] == kind);
        let option = option.with_context(|| format!("no {kind} in {options}"))?;
        Ok(json!({ "outcome": { "outcome": "selected", "optionId": option["optionId"] } }))
    }
}
