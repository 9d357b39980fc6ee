//! The socket through the real binary: clients that come, go and come back.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::{
        fs::{PermissionsExt as _, symlink},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    process::{Child, Stdio},
};

use countersign_testkit::process::{
    HostFixture, Latch, WAIT_TIMEOUT, eventually,
    provider::{self, ProviderReply, ReplyPart, bash_part, text_part, text_reply},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use crate::rpc;

/// An adapter on a socket.
pub(crate) struct SocketProcess {
    child: Child,
    path: PathBuf,
}

impl SocketProcess {
    pub(crate) fn start(place: &HostFixture, flags: &[&str]) -> Self {
        let path = place.home.join("run/a.sock");
        let mut command = rpc::command(place, &["--listen", path.to_str().unwrap()]);
        let child = command.args(flags).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        Self { child, path }
    }

    /// Connects and waits until it is ready.
    pub(crate) fn connect(&self) -> SocketClient {
        let stream = eventually("the socket", || UnixStream::connect(&self.path).ok());
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        let mut client = SocketClient { line: BufReader::new(stream) };
        assert_eq!(client.hears(), Some(json!({"type": "ready"})));
        client
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Stops it and returns its exit code and its stderr.
    pub(crate) fn end(mut self, signal: Signal) -> (Option<i32>, String) {
        self.signal(signal);
        let code = self.child.wait().unwrap().code();
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        (code, stderr)
    }
}

impl Drop for SocketProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct SocketClient {
    line: BufReader<UnixStream>,
}

impl SocketClient {
    /// Returns the next frame; none at the end.
    pub(crate) fn hears(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.line.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(serde_json::from_str(&line).unwrap()),
            Err(error) => panic!("nothing came: {error}"),
        }
    }

    pub(crate) fn says(&mut self, frame: &Value) {
        self.line.get_mut().write_all(format!("{frame}\n").as_bytes()).unwrap();
    }

    /// Returns everything up to the first frame for which `fits`, and that.
    pub(crate) fn wait(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            let frame = self.hears().unwrap_or_else(|| panic!("no {what} in {frames:#?}"));
            let is_it = fits(&frame);
            frames.push(frame);
            if is_it {
                return frames;
            }
        }
    }

    /// Returns everything up to an event of this type, and that.
    pub(crate) fn until(&mut self, kind: &str) -> Vec<Value> {
        self.wait(kind, |frame| frame["payload"]["event_type"] == kind)
    }

    /// Returns the result of a command, and all frames before it.
    pub(crate) fn asks(&mut self, mut command: Value) -> (Value, Vec<Value>) {
        command["id"] = "asked".into();
        self.says(&command);
        let mut frames = self.wait("answer", |frame| frame["id"] == "asked");
        let answer = frames.pop().unwrap();
        assert_eq!(answer["success"], true, "{answer}");
        (answer["data"].clone(), frames)
    }
}

/// Returns the numbers of the events among `frames`.
fn seqs(frames: &[Value]) -> Vec<u64> {
    frames.iter().filter_map(|frame| frame["seq"].as_u64()).collect()
}

#[test]
fn a_session_continues_without_a_client_and_missed_events_are_replayed_on_request() {
    let place = HostFixture::new();
    let held = Latch::default();
    place.provider.script_replies([ProviderReply::new(vec![
        text_part("One."),
        ReplyPart::Until(held.clone()),
        text_part("Two."),
    ])]);
    let process = SocketProcess::start(&place, &[]);
    let mut first = process.connect();
    assert_eq!(fs::metadata(&process.path).unwrap().permissions().mode() & 0o777, 0o600);
    first.says(&json!({"id": "1", "type": "prompt", "message": "Hi"}));
    let seen = first.until("message_update");
    let last = *seqs(&seen).last().unwrap();
    drop(first);
    held.open();
    // Another client sees its end, so it has ended.
    eventually("the end of the run", || {
        let mut other = process.connect();
        other.says(&json!({"id": "2", "type": "get_state"}));
        loop {
            let frame = other.hears().unwrap();
            if frame["command"] == "get_state" {
                return (frame["data"]["isStreaming"] == false).then_some(());
            }
        }
    });
    let mut silent = process.connect();
    silent.says(&json!({"id": "3", "type": "get_session_stats"}));
    assert_eq!(silent.hears().unwrap()["command"], "get_session_stats", "nothing is told again unasked");
    let mut again = process.connect();
    again.says(&json!({"type": "resume", "last_seq": last}));
    let missed = again.until("agent_end");
    assert_eq!(seqs(&missed), (last + 1..=last + missed.len() as u64).collect::<Vec<_>>());
    assert_eq!(silent.hears(), None, "the newest has taken its place");
    let (code, stderr) = process.end(Signal::SIGTERM);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert_eq!(again.hears(), None);
    assert!(!place.home.join("run/a.sock").exists());
}

#[test]
fn a_pending_question_is_shown_to_each_new_client() {
    let place = HostFixture::with_ask_rule();
    place.provider.script_replies([
        ProviderReply::new(vec![bash_part("call_1", "echo done > done.txt")]),
        text_reply("It is done."),
    ]);
    let process = SocketProcess::start(&place, &[]);
    let mut first = process.connect();
    first.says(&json!({"id": "1", "type": "prompt", "message": "Do it"}));
    let is_dialog = |frame: &Value| frame["type"] == "extension_ui_request" && frame["method"] != "cancel";
    while !is_dialog(&first.hears().unwrap()) {}
    drop(first);
    let mut second = process.connect();
    let dialog = eventually("the dialog", || second.hears().filter(|frame| is_dialog(frame)));
    let answer = match dialog["method"].as_str() {
        Some("confirm") => json!({"type": "extension_ui_response", "id": dialog["id"], "confirmed": true}),
        _ => json!({"type": "extension_ui_response", "id": dialog["id"], "value": dialog["options"][0]}),
    };
    second.says(&answer);
    second.until("agent_end");
    assert_eq!(place.read_file("done.txt").as_deref(), Some("done\n"));
    assert_eq!(process.end(Signal::SIGINT).0, Some(0));
}

#[test]
fn numbers_go_on_after_a_power_cut() {
    let place = HostFixture::new();
    place.provider.script_replies([text_reply("One."), text_reply("Two.")]);
    let process = SocketProcess::start(&place, &[]);
    let mut client = process.connect();
    client.says(&json!({"id": "1", "type": "prompt", "message": "Hi"}));
    let before = seqs(&client.until("agent_end"));
    assert_eq!(before, (1..=before.len() as u64).collect::<Vec<_>>());
    process.signal(Signal::SIGKILL);
    drop(process);
    // The socket file that it left is no hindrance.
    assert!(place.home.join("run/a.sock").exists());
    let process = SocketProcess::start(&place, &["--continue"]);
    let mut client = process.connect();
    client.says(&json!({"type": "resume", "last_seq": before.last().unwrap()}));
    client.says(&json!({"id": "2", "type": "prompt", "message": "Again"}));
    let after = seqs(&client.until("agent_end"));
    assert!(after[0] > *before.last().unwrap(), "{before:?} {after:?}");
    assert!(after.windows(2).all(|two| two[1] == two[0] + 1), "{after:?}");
}

fn kinds(frames: &[Value]) -> Vec<&str> {
    frames
        .iter()
        .filter_map(|frame| frame["payload"]["event_type"].as_str().or_else(|| frame["type"].as_str()))
        .collect()
}

#[test]
fn events_missed_before_a_power_cut_are_replayed_from_the_log() {
    let place = HostFixture::new();
    place.provider.script_replies([text_reply("One."), text_reply("Two."), text_reply("Three.")]);
    let process = SocketProcess::start(&place, &[]);
    let mut client = process.connect();
    let turn = |client: &mut SocketClient| {
        client.says(&json!({"id": "1", "type": "prompt", "message": "Hi"}));
        seqs(&client.until("agent_end"))
    };
    let (first, second) = (turn(&mut client), turn(&mut client));
    // The last number is in the log once a later command was answered.
    client.asks(json!({"type": "get_state"}));
    process.signal(Signal::SIGKILL);
    drop(process);
    let process = SocketProcess::start(&place, &["--continue"]);
    let whole = ["agent_start", "turn_start", "message_start", "message_end", "message_start", "message_end"];
    let whole = [&whole[..], &["turn_end", "agent_end"]].concat();
    let mut missed = Vec::new();
    for (case, after, resets) in
        [("at the end of a run", *first.last().unwrap(), false), ("within the run that was missed", second[1], true)]
    {
        let mut client = process.connect();
        client.says(&json!({"type": "resume", "last_seq": after}));
        let mut frames = client.until("agent_end");
        if resets {
            let reset = frames.remove(0);
            assert_eq!(
                (&reset["type"], &reset["payload"]["first_seq"]),
                (&json!("reset"), &frames[0]["seq"]),
                "{case}"
            );
        }
        assert_eq!(kinds(&frames), whole, "{case}");
        assert!(frames.last().unwrap().to_string().contains("Two."), "{case}");
        missed = seqs(&frames);
        assert!(missed[0] > *second.last().unwrap() && missed.is_sorted(), "{case}: {missed:?}");
    }
    // A client that has read them continues after them.
    let mut client = process.connect();
    client.says(&json!({"type": "resume", "last_seq": missed[6]}));
    client.says(&json!({"id": "3", "type": "prompt", "message": "Hi"}));
    let frames = client.until("agent_end");
    assert_eq!(seqs(&frames)[0], missed[7]);
    let last = client.until("agent_end");
    assert!(last.last().unwrap().to_string().contains("Three."));
    // From the beginning, all of it.
    let mut client = process.connect();
    client.says(&json!({"type": "resume", "last_seq": 0}));
    let replayed = [client.until("agent_end"), client.until("agent_end"), client.until("agent_end")].concat();
    assert_eq!(kinds(&replayed)[..2 * whole.len()], [&whole[..], &whole[..]].concat());
}

#[test]
fn an_answer_of_ten_mebibytes_is_rejected_and_the_gate_waits_on() {
    let place = HostFixture::new();
    let plan = provider::call_part("k1", "workflow_plan", &json!({"plan": "Move it."}));
    place.provider.script_replies([ProviderReply::new(vec![plan]), text_reply("done")]);
    let process = SocketProcess::start(&place, &[]);
    let mut client = process.connect();
    let budget =
        json!({"max_tokens": 1_000_000, "max_tool_calls": 9, "max_wall_time_ms": 3_600_000, "max_cost_usd": 9});
    let declaration = json!({"actor": "ci", "budget": budget, "scopes": [], "action_allowlist": []});
    client.asks(json!({"type": "negotiate_unattended", "declaration": declaration}));
    client.says(&json!({"id": "1", "type": "prompt", "message": "Hi"}));
    let frames = client.wait("the gate", |frame| frame["type"] == "workflow_gate");
    let gate = frames.last().unwrap()["gate_id"].clone();
    let answer = |answer: Value| json!({"type": "workflow_gate_response", "gate_id": gate, "answer": answer});
    let long = json!({"decision": "approve", "comments": "x".repeat(10 << 20)});
    let (resolution, _) = client.asks(answer(long));
    assert_eq!(
        (&resolution["status"], &resolution["error"]["errors"][0]["keyword"]),
        (&json!("rejected"), &json!("maxAnswerBytes"))
    );
    let (resolution, _) = client.asks(answer(json!({"decision": "approve"})));
    assert_eq!(resolution["status"], "accepted", "{resolution}");
}

#[test]
fn a_place_that_is_taken_or_not_ours_is_refused_and_left_alone() {
    let place = HostFixture::new();
    let process = SocketProcess::start(&place, &[]);
    let _client = process.connect();
    let open = place.home.join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
    let link = place.home.join("run/link.sock");
    symlink(place.home.join("run/elsewhere.sock"), &link).unwrap();
    // The socket of a process that is gone is replaced; a file is not.
    let stale = place.home.join("run/stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    let taken = place.home.join("run/taken");
    fs::write(&taken, "mine").unwrap();
    let refused = |path: &Path| {
        let output = rpc::command(&place, &["--listen", path.to_str().unwrap()]).output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
        String::from_utf8(output.stderr).unwrap()
    };
    for (path, want) in [
        (process.path.as_path(), "another process listens there"),
        (&open.join("a.sock"), "is open to others"),
        (&link, "a symbolic link exists at this path"),
        (&taken, ""),
    ] {
        let stderr = refused(path);
        assert!(stderr.contains(want), "{stderr}");
    }
    assert_eq!(fs::read_to_string(&taken).unwrap(), "mine");
    let mut client = process.connect();
    client.says(&json!({"id": "1", "type": "get_state"}));
    assert_eq!(client.hears().unwrap()["success"], true, "who was there goes on");
    let other = HostFixture::new();
    let at_stale = rpc::command(&other, &["--listen", stale.to_str().unwrap()]);
    let mut child = { at_stale }.stdin(Stdio::null()).spawn().unwrap();
    let stream = eventually("the socket", || UnixStream::connect(&stale).ok());
    assert_ne!(BufReader::new(stream).read_line(&mut String::new()).unwrap(), 0, "it serves");
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn commands_of_the_agent_cannot_answer_for_the_host() {
    let place = HostFixture::new();
    let script =
        "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\nprint('heard', len(s.recv(64)))\n";
    let file = place.write_file("client.py", script);
    let path = place.home.join("run/a.sock");
    let line = format!("python3 {} {}", file.display(), path.display());
    let process = SocketProcess::start(&place, &[]);
    let mut client = process.connect();
    client.says(&json!({"id": "1", "type": "bash", "command": line}));
    let answer = client.hears().unwrap();
    let output = answer["data"]["output"].as_str().unwrap_or_default();
    assert!(output.contains("heard 0") || output.contains("ConnectionResetError"), "{answer}");
}
