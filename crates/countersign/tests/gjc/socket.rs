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

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use crate::{
    host::{PATIENCE, soon},
    place::Place,
    provider::{Latch, Part, Reply, bash, say, text},
    speaking,
};

/// A door on a socket.
struct Door {
    child: Child,
    path: PathBuf,
}

impl Door {
    fn start(place: &Place, flags: &[&str]) -> Self {
        let path = place.home.join("run/a.sock");
        let mut command = speaking::command(place, &["--listen", path.to_str().unwrap()]);
        let child = command.args(flags).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        Self { child, path }
    }

    /// Connects and hears that it is ready.
    fn connect(&self) -> Client {
        let stream = soon("the socket", || UnixStream::connect(&self.path).ok());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client { line: BufReader::new(stream) };
        assert_eq!(client.hears(), Some(json!({"type": "ready"})));
        client
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Asks it to end and gives its exit code and what it said on stderr.
    fn end(mut self, signal: Signal) -> (Option<i32>, String) {
        self.signal(signal);
        let code = self.child.wait().unwrap().code();
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (code, said)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Client {
    line: BufReader<UnixStream>,
}

impl Client {
    /// The next frame; none at the end.
    fn hears(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.line.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(serde_json::from_str(&line).unwrap()),
            Err(error) => panic!("nothing came: {error}"),
        }
    }

    fn says(&mut self, frame: &Value) {
        self.line.get_mut().write_all(format!("{frame}\n").as_bytes()).unwrap();
    }

    /// Everything up to an event of this type, and that.
    fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            let frame = self.hears().unwrap_or_else(|| panic!("no {kind} in {frames:#?}"));
            let is_it = frame["payload"]["event_type"] == kind;
            frames.push(frame);
            if is_it {
                return frames;
            }
        }
    }
}

/// The numbers of the events among `frames`.
fn seqs(frames: &[Value]) -> Vec<u64> {
    frames.iter().filter_map(|frame| frame["seq"].as_u64()).collect()
}

#[test]
fn a_session_goes_on_without_a_client_and_what_was_missed_is_told_to_who_asks() {
    let place = Place::new();
    let held = Latch::default();
    place.provider.script([Reply::new(vec![text("One."), Part::Until(held.clone()), text("Two.")])]);
    let door = Door::start(&place, &[]);
    let mut first = door.connect();
    assert_eq!(fs::metadata(&door.path).unwrap().permissions().mode() & 0o777, 0o600);
    first.says(&json!({"id": "1", "type": "prompt", "message": "Hi"}));
    let seen = first.until("message_update");
    let last = *seqs(&seen).last().unwrap();
    drop(first);
    held.open();
    // Somebody else sees its end, so it has ended.
    soon("the end of the run", || {
        let mut other = door.connect();
        other.says(&json!({"id": "2", "type": "get_state"}));
        loop {
            let frame = other.hears().unwrap();
            if frame["command"] == "get_state" {
                return (frame["data"]["isStreaming"] == false).then_some(());
            }
        }
    });
    let mut silent = door.connect();
    silent.says(&json!({"id": "3", "type": "get_session_stats"}));
    assert_eq!(silent.hears().unwrap()["command"], "get_session_stats", "nothing is told again unasked");
    let mut again = door.connect();
    again.says(&json!({"type": "resume", "last_seq": last}));
    let missed = again.until("agent_end");
    assert_eq!(seqs(&missed), (last + 1..=last + missed.len() as u64).collect::<Vec<_>>());
    assert_eq!(silent.hears(), None, "the newest has taken its place");
    let (code, said) = door.end(Signal::SIGTERM);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert_eq!(again.hears(), None);
    assert!(!place.home.join("run/a.sock").exists());
}

#[test]
fn a_question_that_waits_is_asked_of_whoever_comes() {
    let place = Place::asking();
    place.provider.script([Reply::new(vec![bash("call_1", "echo done > done.txt")]), say("It is done.")]);
    let door = Door::start(&place, &[]);
    let mut first = door.connect();
    first.says(&json!({"id": "1", "type": "prompt", "message": "Do it"}));
    let is_dialog = |frame: &Value| frame["type"] == "extension_ui_request" && frame["method"] != "cancel";
    while !is_dialog(&first.hears().unwrap()) {}
    drop(first);
    let mut second = door.connect();
    let dialog = soon("the dialog", || second.hears().filter(|frame| is_dialog(frame)));
    let answer = match dialog["method"].as_str() {
        Some("confirm") => json!({"type": "extension_ui_response", "id": dialog["id"], "confirmed": true}),
        _ => json!({"type": "extension_ui_response", "id": dialog["id"], "value": dialog["options"][0]}),
    };
    second.says(&answer);
    second.until("agent_end");
    assert_eq!(place.get("done.txt").as_deref(), Some("done\n"));
    assert_eq!(door.end(Signal::SIGINT).0, Some(0));
}

#[test]
fn numbers_go_on_after_a_power_cut() {
    let place = Place::new();
    place.provider.script([say("One."), say("Two.")]);
    let door = Door::start(&place, &[]);
    let mut client = door.connect();
    client.says(&json!({"id": "1", "type": "prompt", "message": "Hi"}));
    let before = seqs(&client.until("agent_end"));
    assert_eq!(before, (1..=before.len() as u64).collect::<Vec<_>>());
    door.signal(Signal::SIGKILL);
    drop(door);
    // What it left is no hindrance.
    assert!(place.home.join("run/a.sock").exists());
    let door = Door::start(&place, &["--continue"]);
    let mut client = door.connect();
    client.says(&json!({"type": "resume", "last_seq": before.last().unwrap()}));
    client.says(&json!({"id": "2", "type": "prompt", "message": "Again"}));
    let after = seqs(&client.until("agent_end"));
    assert!(after[0] > *before.last().unwrap(), "{before:?} {after:?}");
    assert!(after.windows(2).all(|two| two[1] == two[0] + 1), "{after:?}");
}

#[test]
fn a_place_that_is_taken_or_not_ours_is_refused_and_left_alone() {
    let place = Place::new();
    let door = Door::start(&place, &[]);
    let _client = door.connect();
    let open = place.home.join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
    let link = place.home.join("run/link.sock");
    symlink(place.home.join("run/elsewhere.sock"), &link).unwrap();
    let refused = |path: &Path| {
        let output = speaking::command(&place, &["--listen", path.to_str().unwrap()]).output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
        String::from_utf8(output.stderr).unwrap()
    };
    for (path, want) in [
        (door.path.as_path(), "another process listens there"),
        (&open.join("a.sock"), "is open to others"),
        (&link, "a symbolic link is there"),
    ] {
        let said = refused(path);
        assert!(said.contains(want), "{said}");
    }
    let mut client = door.connect();
    client.says(&json!({"id": "1", "type": "get_state"}));
    assert_eq!(client.hears().unwrap()["success"], true, "who was there goes on");
}

#[test]
fn commands_of_the_agent_cannot_answer_for_the_host() {
    let place = Place::new();
    let script =
        "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\nprint('heard', len(s.recv(64)))\n";
    let file = place.put("client.py", script);
    let path = place.home.join("run/a.sock");
    let line = format!("python3 {} {}", file.display(), path.display());
    let door = Door::start(&place, &[]);
    let mut client = door.connect();
    client.says(&json!({"id": "1", "type": "bash", "command": line}));
    let answer = client.hears().unwrap();
    let told = answer["data"]["output"].as_str().unwrap_or_default();
    assert!(told.contains("heard 0") || told.contains("ConnectionResetError"), "{answer}");
}
