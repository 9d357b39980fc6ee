//! Host that embeds an agent: the program at the other end of two pipes.

use std::{
    io::{Read, Write},
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread::{self, JoinHandle},
    time::Instant,
};

use serde_json::{Value, json};

use crate::process::{HostFixture, WAIT_TIMEOUT, binary_path, eventually};

#[derive(Default)]
struct HostOutput {
    frames: Vec<Value>,
    /// Lines that were no JSON object.
    junk: Vec<String>,
    bytes: usize,
    is_over: bool,
}

/// Process in RPC mode and all frames that it has sent.
pub struct RpcHost {
    child: Child,
    input: Option<ChildStdin>,
    seen: Arc<(Mutex<HostOutput>, Condvar)>,
    reader: Option<JoinHandle<()>>,
    errors: Option<JoinHandle<String>>,
    command_count: u64,
}

/// End of the process.
#[derive(Debug)]
pub struct HostExit {
    /// Exit code. Absent if a signal ended it.
    pub code: Option<i32>,
    /// Text on stderr.
    pub stderr: String,
    /// Lines on stdout that were no JSON object.
    pub junk: Vec<String>,
    /// All frames.
    pub frames: Vec<Value>,
}

/// Answer that is still to come.
pub struct PendingAnswer {
    /// Id of the command.
    pub id: String,
    from: usize,
}

/// Position among the frames, from 0.
pub type FramePosition = usize;

impl RpcHost {
    /// Starts omp and waits until it is ready.
    pub fn start(fixture: &HostFixture, flags: &[&str]) -> Self {
        let host = Self::spawn(Self::omp_command(fixture, flags));
        host.wait_event(0, "ready");
        host
    }

    /// Returns the command line of omp in `fixture`.
    pub fn omp_command(fixture: &HostFixture, flags: &[&str]) -> Command {
        let mut command = Command::new(binary_path());
        command.args(["omp", "--mode", "rpc"]).args(flags).current_dir(&fixture.work);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", &fixture.home).env("PI_CODING_AGENT_DIR", &fixture.agent);
        command
    }

    /// Starts any host and does not wait.
    pub fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let seen: Arc<(Mutex<HostOutput>, Condvar)> = Arc::default();
        let (mut output, mut errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let shared = Arc::clone(&seen);
        let reader = thread::spawn(move || {
            let (mut buffer, mut rest) = (vec![0; 1 << 16], Vec::new());
            while let Ok(count) = output.read(&mut buffer)
                && count > 0
            {
                rest.extend_from_slice(&buffer[..count]);
                let mut frames = Vec::new();
                let mut junk = Vec::new();
                if let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') {
                    let lines: Vec<u8> = rest.drain(..=end).collect();
                    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                        match serde_json::from_slice::<Value>(line) {
                            Ok(frame) if frame.is_object() => frames.push(frame),
                            _ => junk.push(String::from_utf8_lossy(line).into_owned()),
                        }
                    }
                }
                let mut seen = shared.0.lock().unwrap();
                seen.bytes += count;
                seen.frames.append(&mut frames);
                seen.junk.append(&mut junk);
                shared.1.notify_all();
            }
            let mut seen = shared.0.lock().unwrap();
            if !rest.is_empty() {
                seen.junk.push(String::from_utf8_lossy(&rest).into_owned());
            }
            seen.is_over = true;
            shared.1.notify_all();
        });
        let errors = thread::spawn(move || {
            let mut text = String::new();
            let _ = errors.read_to_string(&mut text);
            text
        });
        let input = child.stdin.take();
        Self { child, input, seen, reader: Some(reader), errors: Some(errors), command_count: 0 }
    }

    /// Returns the id of the process.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Writes to stdin.
    pub fn write_input(&mut self, bytes: impl AsRef<[u8]>) {
        let input = self.input.as_mut().unwrap();
        input.write_all(bytes.as_ref()).unwrap();
        input.flush().unwrap();
    }

    /// Returns the pipe to stdin, for another thread to write to.
    pub fn take_input(&mut self) -> ChildStdin {
        self.input.take().unwrap()
    }

    /// Sends a command with a new id and does not wait.
    pub fn send_command(&mut self, mut command: Value) -> PendingAnswer {
        self.command_count += 1;
        let id = format!("c{}", self.command_count);
        command["id"] = id.as_str().into();
        let from = self.frame_position();
        self.write_input(format!("{command}\n"));
        PendingAnswer { id, from }
    }

    /// Returns the answer to a command, as soon as it is there.
    pub fn wait_answer(&self, due: &PendingAnswer) -> Value {
        self.wait_frame(due.from, &format!("the answer to {}", due.id), |frame| {
            frame["type"] == "response" && frame["id"] == due.id.as_str()
        })
    }

    /// Sends a command. Returns its answer.
    pub fn run_command(&mut self, command: Value) -> Value {
        let due = self.send_command(command);
        self.wait_answer(&due)
    }

    /// Sends a command that must succeed. Returns its data.
    pub fn command_data(&mut self, command: Value) -> Value {
        let answer = self.run_command(command);
        assert_eq!(answer["success"], true, "{answer}");
        answer["data"].clone()
    }

    /// Sends a command that must fail. Returns its error.
    pub fn command_error(&mut self, command: Value) -> String {
        let answer = self.run_command(command);
        assert_eq!(answer["success"], false, "{answer}");
        answer["error"].as_str().unwrap().to_owned()
    }

    /// Sends a prompt. Returns the position before it.
    pub fn send_prompt(&mut self, message: &str) -> FramePosition {
        let from = self.frame_position();
        self.command_data(json!({ "type": "prompt", "message": message }));
        from
    }

    /// Sends a prompt and waits until the agent is idle. Returns the frames up to then.
    pub fn run_turn(&mut self, message: &str) -> Vec<Value> {
        let from = self.send_prompt(message);
        self.wait_settled(from)
    }

    /// Waits until the agent is idle. Returns the frames since `from`.
    pub fn wait_settled(&self, from: FramePosition) -> Vec<Value> {
        self.wait_event(from, "agent_settled");
        self.frames_since(from)
    }

    /// Returns the state of the session.
    pub fn session_state(&mut self) -> Value {
        self.command_data(json!({ "type": "get_state" }))
    }

    /// Returns the messages of the session.
    pub fn session_messages(&mut self) -> Vec<Value> {
        self.command_data(json!({ "type": "get_messages" }))["messages"].as_array().unwrap().clone()
    }

    /// Returns the texts of the messages.
    pub fn message_texts(&mut self) -> Vec<String> {
        self.session_messages().iter().map(message_text).collect()
    }

    /// Returns the path of the session file.
    pub fn session_file(&mut self) -> PathBuf {
        PathBuf::from(self.session_state()["sessionFile"].as_str().unwrap())
    }

    /// Returns the first dialog since `from`.
    pub fn wait_dialog(&self, from: FramePosition) -> Value {
        self.wait_event(from, "extension_ui_request")
    }

    /// Answers a dialog with the members of `answer`.
    pub fn answer_dialog(&mut self, dialog: &Value, mut answer: Value) {
        answer["type"] = "extension_ui_response".into();
        answer["id"] = dialog["id"].clone();
        self.write_input(format!("{answer}\n"));
    }

    /// Returns the first frame of this type since `from`.
    pub fn wait_event(&self, from: FramePosition, kind: &str) -> Value {
        self.wait_frame(from, kind, |frame| frame["type"] == kind)
    }

    /// Returns the first frame since `from` that fits, as soon as it is there.
    pub fn wait_frame(&self, from: FramePosition, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        let mut at = from;
        let mut seen = self.seen.0.lock().unwrap();
        loop {
            while let Some(frame) = seen.frames.get(at) {
                if fits(frame) {
                    return frame.clone();
                }
                at += 1;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let last: Vec<&Value> = seen.frames.iter().rev().take(4).map(|frame| &frame["type"]).collect();
            assert!(!left.is_zero() && !seen.is_over, "{what} did not come; the last were {last:?}");
            seen = self.seen.1.wait_timeout(seen, left).unwrap().0;
        }
    }

    /// Returns the position after the last frame.
    pub fn frame_position(&self) -> FramePosition {
        self.seen.0.lock().unwrap().frames.len()
    }

    /// Returns the number of bytes that have come on stdout.
    pub fn output_bytes(&self) -> usize {
        self.seen.0.lock().unwrap().bytes
    }

    /// Returns the frames since `from`.
    pub fn frames_since(&self, from: FramePosition) -> Vec<Value> {
        self.seen.0.lock().unwrap().frames[from..].to_vec()
    }

    /// Kills it with SIGKILL, and waits until its output was read.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
    }

    /// Sends a signal to the process.
    pub fn send_signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.process_id().cast_signed()), signal).unwrap();
    }

    /// Closes stdin and waits for the end.
    pub fn close(mut self) -> HostExit {
        drop(self.input.take());
        self.wait_end()
    }

    /// Waits for the end.
    pub fn wait_end(&mut self) -> HostExit {
        let code = eventually("the end of the process", || self.child.try_wait().unwrap()).code();
        self.reader.take().unwrap().join().unwrap();
        let stderr = self.errors.take().unwrap().join().unwrap();
        let mut seen = self.seen.0.lock().unwrap();
        HostExit { code, stderr, junk: std::mem::take(&mut seen.junk), frames: seen.frames.clone() }
    }

    /// Closes stdin and checks that it ends with 0 and has written nothing but frames.
    pub fn close_cleanly(self) {
        let end = self.close();
        assert_eq!((end.code, end.stderr.as_str(), end.junk.len()), (Some(0), "", 0), "{end:?}");
    }
}

impl Drop for RpcHost {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the text of a message or of a result.
pub fn message_text(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
        _ => String::new(),
    }
}

/// Returns the frames of one type.
pub fn of_type(frames: &[Value], kind: &str) -> Vec<Value> {
    frames.iter().filter(|frame| frame["type"] == kind).cloned().collect()
}

/// Returns the roles of messages, in order.
pub fn message_roles(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["role"].as_str().unwrap()).collect()
}

/// Returns the order of frames: one word each, and one for all deltas of a kind in a row. Settled frames and updates of tools are left out.
pub fn frame_shape(frames: &[Value]) -> String {
    let mut words: Vec<String> = Vec::new();
    for frame in frames {
        let kind = frame["type"].as_str().unwrap();
        let role = || frame["message"]["role"].as_str().unwrap();
        let word = match kind {
            "message_start" => format!("+{}", role()),
            "message_end" => format!("-{}", role()),
            "message_update" => frame["assistantMessageEvent"]["type"].as_str().unwrap().to_owned(),
            "tool_execution_start" => format!("+{}", frame["toolCallId"].as_str().unwrap()),
            "tool_execution_end" => format!("-{}", frame["toolCallId"].as_str().unwrap()),
            "response" => frame["command"].as_str().unwrap().to_owned(),
            "tool_execution_update" | "agent_settled" => continue,
            other => other.to_owned(),
        };
        if words.last() != Some(&word) || !word.ends_with("delta") {
            words.push(word);
        }
    }
    words.join(" ")
}
