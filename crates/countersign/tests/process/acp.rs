//! `countersign acp`: an editor without a gateway of its own.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use countersign_testkit::process::binary_path;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The task that the scripted model knows.
const TASK: &str = "The test of greet.sh in this folder fails. Please find the bug, fix it, run the test.";

struct Machine {
    folder: TempDir,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["home", "agent", "project"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let machine = Self { folder };
        fs::write(machine.project().join("greet.sh"), "name=$1\necho \"Hello, $nmae!\"\n").unwrap();
        fs::write(machine.project().join("test.sh"), "test \"$(sh greet.sh Ana)\" = 'Hello, Ana!'\n").unwrap();
        machine
    }

    fn project(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("agent/countersign-acp")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary_path());
        command.args(arguments).env_clear().env("HOME", self.folder.path().join("home")).env("PATH", "/usr/bin:/bin");
        command
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).arg("--data").arg(self.data()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn editor(&self, more: &[&str]) -> Editor {
        let agent = self.folder.path().join("agent");
        let mut command = self.command(&["acp", "--provider", "demo", "--agent-dir", agent.to_str().unwrap()]);
        let pipes = command.args(more).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = pipes.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut editor = Editor { child, input, output };
        let reply = editor.call(0, "initialize", json!({ "protocolVersion": 7 }));
        assert_eq!(reply["result"]["protocolVersion"], 1);
        editor
    }
}

struct Editor {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Editor {
    fn send(&mut self, mut message: Value) {
        message["jsonrpc"] = "2.0".into();
        writeln!(self.input, "{message}").unwrap();
    }

    /// Reads up to the first message that `is_last` accepts, and returns all of them.
    fn read_until(&mut self, is_last: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut messages = Vec::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the agent has ended after {messages:?}");
            messages.push(serde_json::from_str(&line).unwrap());
            if messages.last().is_some_and(&is_last) {
                return messages;
            }
        }
    }

    fn call(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.send(json!({ "id": id, "method": method, "params": params }));
        self.read_until(|message| is_reply(message, id)).pop().unwrap()
    }

    fn open(&mut self, project: &Path) -> String {
        let reply = self.call(1, "session/new", json!({ "cwd": project, "mcpServers": [] }));
        reply["result"]["sessionId"].as_str().unwrap().to_owned()
    }

    fn prompt(&mut self, id: u64, session: &str, text: &str) {
        let prompt = json!([{ "type": "text", "text": text }]);
        let params = json!({ "sessionId": session, "prompt": prompt });
        self.send(json!({ "id": id, "method": "session/prompt", "params": params }));
    }

    /// Reads up to the next request for a permission.
    fn permission(&mut self) -> Value {
        self.read_until(|message| message["method"] == "session/request_permission").pop().unwrap()
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn leave(mut self) {
        drop(self.input);
        assert!(self.child.wait().unwrap().success());
    }
}

fn is_reply(message: &Value, id: u64) -> bool {
    message["id"] == id && message.get("method").is_none()
}

fn updates(messages: &[Value]) -> Vec<&str> {
    messages.iter().filter_map(|message| message["params"]["update"]["sessionUpdate"].as_str()).collect()
}

#[test]
fn an_answer_elsewhere_counts_and_a_killed_agent_asks_again_after_a_load() {
    let machine = Machine::new();
    let mut editor = machine.editor(&[]);
    let session = editor.open(&machine.project());
    editor.prompt(2, &session, TASK);
    let requested = editor.permission();
    let call = &requested["params"]["toolCall"];
    assert_eq!(call["rawInput"]["path"], "greet.sh");
    let diff = json!({
        "type": "diff",
        "path": machine.project().canonicalize().unwrap().join("greet.sh"),
        "oldText": "echo \"Hello, $nmae!\"",
        "newText": "echo \"Hello, $name!\"",
    });
    assert_eq!(call["content"][0], diff);
    let kinds: Vec<&str> = requested["params"]["options"]
        .as_array()
        .unwrap()
        .iter()
        .map(|option| option["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["allow_once", "allow_always", "allow_always", "reject_once"]);

    let gates: Value = serde_json::from_str(&machine.run(&["gates", "list", "--json"])).unwrap();
    machine.run(&["gates", "allow", gates[0]["id"].as_str().unwrap()]);
    let messages = editor.read_until(|message| message["method"] == "session/request_permission");
    let withdrawn = messages.iter().find(|message| message["method"] == "$/cancel_request").unwrap();
    assert_eq!(withdrawn["params"]["requestId"], requested["id"]);
    editor.kill();

    let mut editor = machine.editor(&[]);
    let params = json!({ "sessionId": session, "cwd": machine.project(), "mcpServers": [] });
    editor.send(json!({ "id": 3, "method": "session/load", "params": params }));
    let replayed = editor.read_until(|message| is_reply(message, 3));
    let kinds = updates(&replayed);
    assert_eq!(kinds.iter().filter(|kind| **kind == "user_message_chunk").count(), 1, "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| **kind == "tool_call").count(), 4, "two reads, the edit, the test");
    let requested = editor.permission();
    assert_eq!(requested["params"]["toolCall"]["rawInput"]["command"], "sh test.sh");
    let edited = fs::read_to_string(machine.project().join("greet.sh")).unwrap();
    assert_eq!(edited, "name=$1\necho \"Hello, $name!\"\n", "the edit ran once");
    editor.leave();
}

#[test]
fn a_denial_is_the_result_of_the_call_and_a_cancel_ends_the_prompt() {
    let machine = Machine::new();
    let mut editor = machine.editor(&["--approval-mode", "write"]);
    let session = editor.open(&machine.project());
    editor.prompt(2, &session, TASK);
    let requested = editor.permission();
    let answer = |option: &str| json!({ "outcome": { "outcome": "selected", "optionId": option } });
    // The mode asks each time, so no wider answer is offered, and none counts.
    assert_eq!(requested["params"]["options"].as_array().unwrap().len(), 2);
    editor.send(json!({ "id": requested["id"], "result": answer("allow_always") }));
    editor.read_until(|message| message.to_string().contains("which was not offered"));
    editor.send(json!({ "method": "session/cancel", "params": { "sessionId": session } }));
    let ended = editor.read_until(|message| is_reply(message, 2)).pop().unwrap();
    assert_eq!(ended["result"]["stopReason"], "cancelled");

    editor.prompt(3, &session, TASK);
    let requested = editor.permission();
    editor.send(json!({ "id": requested["id"], "result": answer("reject_once") }));
    let messages = editor.read_until(|message| is_reply(message, 3));
    let failed =
        messages.iter().map(|message| &message["params"]["update"]).find(|update| update["status"] == "failed");
    assert!(failed.unwrap()["rawOutput"]["output"].as_str().unwrap().starts_with("Denied by local:"));
    assert_eq!(messages.last().unwrap()["result"]["stopReason"], "end_turn");
    let unchanged = fs::read_to_string(machine.project().join("greet.sh")).unwrap();
    assert_eq!(unchanged, "name=$1\necho \"Hello, $nmae!\"\n");
    let refused = editor.call(4, "session/set_mode", json!({ "sessionId": session, "modeId": "rules" }));
    assert_eq!(refused["error"]["code"], -32602);
    editor.leave();
}

#[test]
fn an_opening_that_is_not_accepted_says_what_is() {
    let machine = Machine::new();
    let mut editor = machine.editor(&[]);
    let (project, home) = (machine.project(), machine.folder.path().join("home"));
    let server = json!([{ "name": "notes", "command": "/bin/notes", "args": [], "env": [] }]);
    for (method, params, code, text) in [
        ("session/new", json!({ "cwd": "src" }), -32602, "cwd: \"src\": expected an absolute path"),
        ("session/new", json!({ "cwd": project.join("none") }), -32602, "expected a folder"),
        ("session/new", json!({ "cwd": home }), -32602, "not / or the home folder"),
        ("session/new", json!({ "cwd": project, "mcpServers": server }), -32602, "--ignore-mcp-servers"),
        ("session/load", json!({ "cwd": project, "sessionId": "x" }), -32002, "no such session"),
        ("session/prompt", json!({ "sessionId": "x", "prompt": [{ "type": "text", "text": "a" }] }), -32602, "\"x\""),
        ("session/fork", json!({}), -32601, "\"session/fork\""),
    ] {
        let error = editor.call(9, method, params.clone())["error"].clone();
        let message = error["message"].as_str().unwrap();
        assert!(error["code"] == code && message.contains(text), "{method} {params}: {error}");
    }
    editor.leave();
}
