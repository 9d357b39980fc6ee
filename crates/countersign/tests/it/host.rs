//! A host that embeds the agent: the real binary at the other end of two pipes.

use std::{
    io::{Read, Write},
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::place::Place;

/// How long something that must come is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Default)]
struct Seen {
    frames: Vec<Value>,
    /// What came that was no JSON object.
    junk: Vec<String>,
    bytes: usize,
    is_over: bool,
}

/// A process and all that it has said.
pub(crate) struct Host {
    child: Child,
    input: Option<ChildStdin>,
    seen: Arc<(Mutex<Seen>, Condvar)>,
    reader: Option<JoinHandle<()>>,
    errors: Option<JoinHandle<String>>,
    asked: u64,
}

/// How a process ended.
#[derive(Debug)]
pub(crate) struct End {
    /// Absent if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stderr: String,
    pub(crate) junk: Vec<String>,
    pub(crate) frames: Vec<Value>,
}

/// An answer that is still to come.
pub(crate) struct Due {
    pub(crate) id: String,
    from: usize,
}

/// A place in what was said.
pub(crate) type Mark = usize;

impl Host {
    /// Starts it and waits until it is ready.
    pub(crate) fn start(place: &Place, flags: &[&str]) -> Self {
        let host = Self::spawn(Self::command_of(place, flags));
        host.event(0, "ready");
        host
    }

    /// The command of a host in `place`.
    pub(crate) fn command_of(place: &Place, flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
        command.args(["omp", "--mode", "rpc"]).args(flags).current_dir(&place.work);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", &place.home).env("PI_CODING_AGENT_DIR", &place.agent);
        command
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let seen: Arc<(Mutex<Seen>, Condvar)> = Arc::default();
        let (mut output, mut errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let heard = Arc::clone(&seen);
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
                let mut seen = heard.0.lock().unwrap();
                seen.bytes += count;
                seen.frames.append(&mut frames);
                seen.junk.append(&mut junk);
                heard.1.notify_all();
            }
            let mut seen = heard.0.lock().unwrap();
            if !rest.is_empty() {
                seen.junk.push(String::from_utf8_lossy(&rest).into_owned());
            }
            seen.is_over = true;
            heard.1.notify_all();
        });
        let errors = thread::spawn(move || {
            let mut text = String::new();
            let _ = errors.read_to_string(&mut text);
            text
        });
        let input = child.stdin.take();
        Self { child, input, seen, reader: Some(reader), errors: Some(errors), asked: 0 }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let input = self.input.as_mut().unwrap();
        input.write_all(bytes.as_ref()).unwrap();
        input.flush().unwrap();
    }

    /// The pipe to it, for somebody else to write to.
    pub(crate) fn take_input(&mut self) -> ChildStdin {
        self.input.take().unwrap()
    }

    /// Sends a command under an id of its own.
    pub(crate) fn ask(&mut self, mut command: Value) -> Due {
        self.asked += 1;
        let id = format!("c{}", self.asked);
        command["id"] = id.as_str().into();
        let from = self.mark();
        self.write(format!("{command}\n"));
        Due { id, from }
    }

    pub(crate) fn answer(&self, due: &Due) -> Value {
        self.wait(due.from, &format!("the answer to {}", due.id), |frame| {
            frame["type"] == "response" && frame["id"] == due.id.as_str()
        })
    }

    /// Sends a command and waits for its answer.
    pub(crate) fn command(&mut self, command: Value) -> Value {
        let due = self.ask(command);
        self.answer(&due)
    }

    /// Sends a command that must succeed, and gives its data.
    pub(crate) fn done(&mut self, command: Value) -> Value {
        let answer = self.command(command);
        assert_eq!(answer["success"], true, "{answer}");
        answer["data"].clone()
    }

    /// Sends a command that must fail, and gives its error.
    pub(crate) fn refused(&mut self, command: Value) -> String {
        let answer = self.command(command);
        assert_eq!(answer["success"], false, "{answer}");
        answer["error"].as_str().unwrap().to_owned()
    }

    pub(crate) fn prompt(&mut self, message: &str) -> Mark {
        let from = self.mark();
        self.done(json!({ "type": "prompt", "message": message }));
        from
    }

    /// Prompts and waits until all is quiet again. Gives what was said meanwhile.
    pub(crate) fn turn(&mut self, message: &str) -> Vec<Value> {
        let from = self.prompt(message);
        self.settled(from)
    }

    /// Waits until all is quiet. Gives what was said since `from`.
    pub(crate) fn settled(&self, from: Mark) -> Vec<Value> {
        self.event(from, "agent_settled");
        self.since(from)
    }

    pub(crate) fn state(&mut self) -> Value {
        self.done(json!({ "type": "get_state" }))
    }

    pub(crate) fn messages(&mut self) -> Vec<Value> {
        self.done(json!({ "type": "get_messages" }))["messages"].as_array().unwrap().clone()
    }

    /// The texts of the context.
    pub(crate) fn said(&mut self) -> Vec<String> {
        self.messages().iter().map(text).collect()
    }

    pub(crate) fn file(&mut self) -> PathBuf {
        PathBuf::from(self.state()["sessionFile"].as_str().unwrap())
    }

    /// The first dialog since `from`.
    pub(crate) fn dialog(&self, from: Mark) -> Value {
        self.event(from, "extension_ui_request")
    }

    /// Answers a dialog, with a value or what else an answer may hold.
    pub(crate) fn reply(&mut self, dialog: &Value, mut answer: Value) {
        answer["type"] = "extension_ui_response".into();
        answer["id"] = dialog["id"].clone();
        self.write(format!("{answer}\n"));
    }

    /// The first frame of this type since `from`.
    pub(crate) fn event(&self, from: Mark, kind: &str) -> Value {
        self.wait(from, kind, |frame| frame["type"] == kind)
    }

    pub(crate) fn wait(&self, from: Mark, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
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

    pub(crate) fn mark(&self) -> Mark {
        self.seen.0.lock().unwrap().frames.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.seen.0.lock().unwrap().bytes
    }

    pub(crate) fn since(&self, from: Mark) -> Vec<Value> {
        self.seen.0.lock().unwrap().frames[from..].to_vec()
    }

    /// Ends it as a power cut would, and waits until what it had said was read.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.id().cast_signed()), signal).unwrap();
    }

    /// Closes its input and waits for its end.
    pub(crate) fn close(mut self) -> End {
        drop(self.input.take());
        self.wait_end()
    }

    pub(crate) fn wait_end(&mut self) -> End {
        let code = soon("the end of the process", || self.child.try_wait().unwrap()).code();
        self.reader.take().unwrap().join().unwrap();
        let stderr = self.errors.take().unwrap().join().unwrap();
        let mut seen = self.seen.0.lock().unwrap();
        End { code, stderr, junk: std::mem::take(&mut seen.junk), frames: seen.frames.clone() }
    }

    /// Ends an ordinary session: with 0, and nothing but frames was said.
    pub(crate) fn close_cleanly(self) {
        let end = self.close();
        assert_eq!((end.code, end.stderr.as_str(), end.junk.len()), (Some(0), "", 0), "{end:?}");
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `look` gives, once it gives something.
pub(crate) fn soon<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not come");
        thread::park_timeout(Duration::from_millis(5));
    }
}

/// Waits until there is no such process any more.
pub(crate) fn wait_dead(pid: &str) {
    let pid = pid.trim().parse().unwrap();
    soon(&format!("the end of process {pid}"), || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let is_zombie = stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'));
        let pid = nix::unistd::Pid::from_raw(pid);
        (is_zombie || nix::sys::signal::kill(pid, None::<nix::sys::signal::Signal>).is_err()).then_some(())
    });
}

/// The text of a message, or of a result.
pub(crate) fn text(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
        _ => String::new(),
    }
}

/// The frames of one type.
pub(crate) fn only(frames: &[Value], kind: &str) -> Vec<Value> {
    frames.iter().filter(|frame| frame["type"] == kind).cloned().collect()
}

/// The roles of messages, in order.
pub(crate) fn roles(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["role"].as_str().unwrap()).collect()
}

/// The order of frames: one word each, and one for all deltas of a kind in a row. Settled frames and updates of tools are left out.
pub(crate) fn shape(frames: &[Value]) -> String {
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
