//! The bridge through the real binary: HTTPS on loopback, a scripted model provider, real files.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread,
};

use countersign_testkit::process::{
    CERTIFICATE, CERTIFICATE_KEY, HostFixture, WAIT_TIMEOUT, binary_path,
    provider::{ProviderReply, bash_part, text_reply},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use serde_json::{Value, json};

use crate::rpc;

const TOKEN: &str = "a token of tests";

/// A bridge that runs.
pub(crate) struct RunningBridge {
    child: Child,
    address: String,
}

/// Returns the command of a bridge in `place`, with everything on.
pub(crate) fn command(place: &HostFixture, flags: &[&str]) -> Command {
    let mut command = Command::new(binary_path());
    command.args(["gjc", "--mode", "bridge", "--model", "fake/fake-1"]).args(flags).current_dir(&place.work);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", &place.home).env("GJC_CODING_AGENT_DIR", &place.agent);
    command.env("GJC_BRIDGE_TOKEN", TOKEN).env("GJC_BRIDGE_PORT", "0").env("GJC_BRIDGE_ENDPOINTS", "all");
    command.env("GJC_BRIDGE_SCOPES", "control,session,message:read,bash,host_tools,host_uri");
    command.env("GJC_BRIDGE_TLS_CERT", CERTIFICATE).env("GJC_BRIDGE_TLS_KEY", CERTIFICATE_KEY);
    command
}

impl RunningBridge {
    pub(crate) fn start(place: &HostFixture, flags: &[&str]) -> Self {
        Self::spawn(command(place, flags))
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut first_line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first_line).unwrap();
        let address =
            first_line.trim().strip_prefix("countersign ready on https://").unwrap_or_else(|| panic!("{first_line}"));
        Self { address: address.to_owned(), child }
    }

    /// Connects to it.
    fn connect(&self) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(CERTIFICATE).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
    }

    pub(crate) fn begin(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> StreamOwned<ClientConnection, TcpStream> {
        let mut line = self.connect();
        let (host, length) = (&self.address, body.len());
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {TOKEN}\r\n{headers}");
        write!(line, "{head}connection: close\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
        line
    }

    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str, body: &Value) -> (u16, Value) {
        let mut line = self.begin(method, path, headers, &body.to_string());
        let mut text = Vec::new();
        // A server that closes without the farewell of TLS has sent everything all the same.
        let _ = line.read_to_end(&mut text);
        let text = String::from_utf8(text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{path}: {text}"));
        (head.split_whitespace().nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
    }

    /// Returns the session from a handshake.
    pub(crate) fn shake(&self) -> String {
        let body = json!({"protocol_version_range": {"min": 2, "max": 2}, "requested_scopes": ["prompt", "control"],
            "capabilities": ["events", "permission"]});
        let (status, reply) = self.ask("POST", "/v1/handshake", "", &body);
        assert_eq!((status, &reply["status"]), (200, &json!("accepted")));
        reply["session_id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn post(&self, session: &str, route: &str, headers: &str, body: &Value) -> (u16, Value) {
        self.ask("POST", &format!("/v1/sessions/{session}/{route}"), headers, body)
    }

    pub(crate) fn claim(&self, session: &str) -> String {
        let (status, reply) = self.post(session, "control:claim", "", &json!({}));
        assert_eq!(status, 200, "{reply}");
        format!("x-gjc-bridge-owner-token: {}\r\n", reply["ownerToken"].as_str().unwrap())
    }

    pub(crate) fn listen(&self, session: &str, query: &str) -> BridgeEventReader {
        self.listen_as(session, query, "")
    }

    /// Opens the same stream, with headers of its own.
    pub(crate) fn listen_as(&self, session: &str, query: &str, headers: &str) -> BridgeEventReader {
        let line = self.begin("GET", &format!("/v1/sessions/{session}/events{query}"), headers, "");
        let socket = line.sock.try_clone().unwrap();
        let received: Arc<(Mutex<Vec<Value>>, Condvar)> = Arc::default();
        let sink = Arc::clone(&received);
        let mut line = BufReader::new(line);
        // Events before the stream is open are not sent on it.
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(line.read_line(&mut head).unwrap() > 0, "no stream: {head}");
        }
        thread::spawn(move || {
            for line in line.lines().map_while(Result::ok) {
                let Some(data) = line.strip_prefix("data: ") else { continue };
                sink.0.lock().unwrap().push(serde_json::from_str(data).unwrap());
                sink.1.notify_all();
            }
        });
        BridgeEventReader(received, socket)
    }

    /// Asks it to end and gives its exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for RunningBridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A stream of frames that is read by a thread of its own.
pub(crate) struct BridgeEventReader(Arc<(Mutex<Vec<Value>>, Condvar)>, TcpStream);

impl BridgeEventReader {
    /// Breaks it off.
    pub(crate) fn close(&self) {
        self.1.shutdown(std::net::Shutdown::Both).unwrap();
    }

    /// Returns the first frame for which `fits`.
    pub(crate) fn wait(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let frames = self.0.0.lock().unwrap();
        let (frames, _) =
            self.0.1.wait_timeout_while(frames, WAIT_TIMEOUT, |frames| !frames.iter().any(&fits)).unwrap();
        frames.iter().find(|frame| fits(frame)).unwrap_or_else(|| panic!("no {what} in {frames:#?}")).clone()
    }

    pub(crate) fn event(&self, kind: &str) -> Value {
        self.wait(kind, |frame| frame["payload"]["event_type"] == kind)
    }

    pub(crate) fn all(&self) -> Vec<Value> {
        self.0.0.lock().unwrap().clone()
    }
}

#[test]
fn a_prompt_is_streamed_over_https_under_one_count() {
    let place = HostFixture::new();
    place.provider.script_replies([text_reply("Hello.")]);
    let bridge = RunningBridge::start(&place, &[]);
    let session = bridge.shake();
    let events = bridge.listen(&session, "?last_seq=0");
    let (status, reply) = bridge.post(&session, "commands", "", &json!({"id": "1", "type": "prompt", "message": "Hi"}));
    assert_eq!((status, &reply["success"], &reply["id"]), (200, &json!(true), &json!("1")));
    events.event("agent_end");
    let frames = events.all();
    let seqs: Vec<u64> = frames.iter().map(|frame| frame["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    assert_eq!(frames[0]["type"], "ready");
    assert!(frames.iter().all(|frame| frame["session_id"] == session.as_str()));
    // A client that reconnects gets the rest.
    let last = seqs.len() as u64 - 1;
    let again = bridge.listen(&session, &format!("?last_seq={last}"));
    assert_eq!(again.wait("the last frame", |_| true), frames[seqs.len() - 1]);
    assert_eq!(bridge.stop(), Some(0));
}

#[test]
fn a_shell_line_waits_for_who_holds_control() {
    let place = HostFixture::new();
    let wants = ProviderReply::new(vec![bash_part("call_1", "echo done > done.txt")]);
    place.provider.script_replies([wants, text_reply("It is done.")]);
    let bridge = RunningBridge::start(&place, &[]);
    let session = bridge.shake();
    let events = bridge.listen(&session, "?last_seq=0");
    bridge.post(&session, "commands", "", &json!({"type": "prompt", "message": "Do it"}));
    let permission = events.wait("permission_request", |frame| frame["type"] == "permission_request");
    let (call, card) = (permission["correlation_id"].as_str().unwrap(), &permission["payload"]["toolCall"]);
    assert_eq!((&card["toolCallId"], &card["toolName"]), (&json!(call), &json!("bash")));
    assert_eq!(card["rawInput"]["command"], "echo done > done.txt");
    let allow = json!({"outcome": "selected", "optionId": "allow_once"});
    let route = format!("ui-responses/{call}");
    assert_eq!(bridge.post(&session, &route, "", &allow).0, 403, "nobody holds control");
    assert!(place.read_file("done.txt").is_none());
    let owner = bridge.claim(&session);
    assert_eq!(bridge.post(&session, "control:claim", "", &json!({})).0, 409);
    assert_eq!(bridge.post(&session, &route, &owner, &allow), (200, json!({"status": "accepted"})));
    events.event("agent_end");
    assert_eq!(place.read_file("done.txt").as_deref(), Some("done\n"));
    assert_eq!(bridge.post(&session, &route, &owner, &allow).0, 409);
}

#[test]
fn who_gives_control_back_denies_what_waits() {
    let place = HostFixture::new();
    let wants = ProviderReply::new(vec![bash_part("call_1", "echo done > done.txt")]);
    place.provider.script_replies([wants, text_reply("I may not.")]);
    let bridge = RunningBridge::start(&place, &[]);
    let session = bridge.shake();
    let events = bridge.listen(&session, "?last_seq=0");
    bridge.post(&session, "commands", "", &json!({"type": "prompt", "message": "Do it"}));
    events.wait("permission_request", |frame| frame["type"] == "permission_request");
    let owner = bridge.claim(&session);
    assert_eq!(bridge.post(&session, "control:disconnect", &owner, &json!({})), (200, json!({"status": "released"})));
    events.event("agent_end");
    assert!(place.read_file("done.txt").is_none());
}

#[test]
fn one_process_has_several_sessions_each_with_frames_of_its_own() {
    let place = HostFixture::new();
    place.provider.script_replies([text_reply("In the second.")]);
    let bridge = RunningBridge::start(&place, &[]);
    let first = bridge.shake();
    let (status, reply) = bridge.ask("POST", "/v1/sessions", "", &json!({}));
    assert_eq!((status, &reply["status"]), (200, &json!("opened")));
    let second = reply["session_id"].as_str().unwrap();
    assert_ne!(first, second);
    let elsewhere = place.work.join("elsewhere");
    let absolute = elsewhere.join("x.jsonl").display().to_string();
    for path in [&*absolute, "elsewhere/x.jsonl", "../../etc", "x.jsonl", "", " "] {
        let (status, reply) = bridge.ask("POST", "/v1/sessions", "", &json!({ "resume": path }));
        assert_eq!(status, 400, "{path}: {reply}");
    }
    assert!(!elsewhere.exists() && !place.work.join("x.jsonl").exists());
    let owner = bridge.claim(&first);
    assert_eq!(bridge.post(second, "control:disconnect", &owner, &json!({})).0, 403);
    let events = [&*first, second].map(|session| bridge.listen(session, "?last_seq=0"));
    bridge.post(second, "commands", "", &json!({"type": "prompt", "message": "Hi"}));
    events[1].event("agent_end");
    assert_eq!(events[0].all().iter().filter(|frame| frame["type"] == "event").count(), 0);
    let mut listing = Command::new(binary_path());
    listing.args(["sessions", "running", "--json"]).env("GJC_CODING_AGENT_DIR", &place.agent);
    let listed: Value = serde_json::from_slice(&listing.output().unwrap().stdout).unwrap();
    let listed: Vec<_> = listed.as_array().unwrap().iter().map(|one| (&one["sessionId"], &one["transport"])).collect();
    assert_eq!(listed, [(&json!(first), &json!("bridge")), (&json!(second), &json!("bridge"))]);
    assert_eq!(bridge.stop(), Some(0));
    assert_eq!(listing.output().unwrap().stdout, b"[]\n");
}

#[test]
fn commands_of_the_agent_do_not_know_the_token() {
    let place = HostFixture::new();
    let bridge = RunningBridge::start(&place, &[]);
    let session = bridge.shake();
    let (_, reply) = bridge.post(&session, "commands", "", &json!({"type": "bash", "command": "env"}));
    assert_eq!(reply["success"], true, "{reply}");
    assert!(!reply["data"]["output"].as_str().unwrap().contains(TOKEN), "{reply}");
}

#[test]
fn the_bridge_does_not_start_by_halves() {
    let place = HostFixture::new();
    let without = |name: &str, flags: &[&str]| {
        let mut command = command(&place, flags);
        let output = command.env_remove(name).stdin(Stdio::null()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for (name, flags, want) in [
        ("GJC_BRIDGE_TOKEN", &[][..], "GJC_BRIDGE_TOKEN is required"),
        ("GJC_BRIDGE_TLS_KEY", &[], "GJC_BRIDGE_TLS_KEY is not set"),
        ("GJC_BRIDGE_TLS_CERT", &["--insecure"], "GJC_BRIDGE_TLS_CERT is not set"),
    ] {
        let (code, stderr) = without(name, flags);
        assert_eq!(code, Some(1), "{stderr}");
        assert!(stderr.contains(want), "{stderr}");
    }
}

#[test]
fn loopback_needs_no_tls_if_configured() {
    let place = HostFixture::new();
    let mut command = command(&place, &["--insecure"]);
    command.env_remove("GJC_BRIDGE_TLS_CERT").env_remove("GJC_BRIDGE_TLS_KEY");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut first_line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first_line).unwrap();
    let address =
        first_line.trim().strip_prefix("countersign ready on http://").unwrap_or_else(|| panic!("{first_line}"));
    let mut line = TcpStream::connect(address).unwrap();
    write!(line, "GET /healthz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    line.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("{\"status\":\"ok\"}"), "{text}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_session_on_standard_input_is_listed_while_it_runs() {
    let place = HostFixture::new();
    let host = rpc::start(&place, &[]);
    let mut listing = Command::new(binary_path());
    listing.args(["sessions", "running", "--json"]).env("GJC_CODING_AGENT_DIR", &place.agent);
    let listed: Value = serde_json::from_slice(&listing.output().unwrap().stdout).unwrap();
    assert_eq!((&listed[0]["pid"], &listed[0]["transport"]), (&json!(host.process_id()), &json!("stdio")));
    assert_eq!((&listed[0]["model"], &listed[0]["cwd"]), (&json!("fake/fake-1"), &json!(place.work)));
    // A process that dies leaves its record to the next reader.
    kill(Pid::from_raw(host.process_id().cast_signed()), Signal::SIGKILL).unwrap();
    drop(host);
    assert_eq!(listing.output().unwrap().stdout, b"[]\n");
}
