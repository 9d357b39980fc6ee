//! Recognisable credentials: a session at every adapter, and then a search in everything that was written and sent.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Mutex},
    thread,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_testkit::process::{
    AGENT_TOKEN as AGENT, GatewayFixture, GatewayOptions, GatewayServer, KITCHEN_TOKEN, SERVICE_TOKEN,
    agent_gate::AgentClient,
    eventually,
    gsv::{self, GsvPeer, TOKEN},
    http::HttpClient,
    provider::{ProviderReply, bash_part, text_reply},
    server::FakeServer,
    service::ServiceBehavior,
};
use serde_json::{Value, json};

use crate::fixture::{PASSWORD, SHELL, request_head, stdio_host};

const TELEGRAM: &str = "4242:telegram-canary-8f3b6d";
const WEBHOOK: &str = "webhook-canary-51c9e2aa";
const API_KEY: &str = "provider-canary-0be7714d";
const BRIDGE: &str = "bridge-canary-77aa20c4";
/// Wrong credential, shown by an attacker.
const WRONG: &str = "wrong-canary-c3d8f19e";

/// A line to a gateway that keeps what the gateway says on it.
pub(crate) struct TrafficTap {
    pub(crate) address: String,
    recorded: Arc<Mutex<Vec<u8>>>,
}

impl TrafficTap {
    pub(crate) fn before(address: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tap = Self { address: listener.local_addr().unwrap().to_string(), recorded: Arc::default() };
        let (behind, recorded) = (address.to_owned(), Arc::clone(&tap.recorded));
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(&behind) else { continue };
                let (mut asks, mut upstream) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = std::io::copy(&mut asks, &mut upstream);
                    let _ = upstream.shutdown(Shutdown::Write);
                });
                let recorded = Arc::clone(&recorded);
                thread::spawn(move || relay_and_record(far, near, &recorded));
            }
        });
        tap
    }

    pub(crate) fn recorded_bytes(&self) -> Vec<u8> {
        self.recorded.lock().unwrap().clone()
    }
}

fn relay_and_record(mut far: TcpStream, mut near: TcpStream, recorded: &Mutex<Vec<u8>>) {
    let mut piece = vec![0; 1 << 16];
    while let Ok(count) = far.read(&mut piece)
        && count > 0
    {
        recorded.lock().unwrap().extend_from_slice(&piece[..count]);
        if near.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    let _ = near.shutdown(Shutdown::Both);
}

/// Returns the forms in which a text may turn up.
fn spellings(secret: &str) -> Vec<String> {
    let hex = |upper: bool| {
        let digit = |byte: u8| if upper { format!("{byte:02X}") } else { format!("{byte:02x}") };
        secret.bytes().map(digit).collect::<String>()
    };
    let percent: String = secret
        .bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect();
    // In the middle of other text it is one of three.
    let base64 = (0..3).map(|shift| {
        let text = STANDARD.encode(format!("{}{secret}", &"xyz"[..shift]));
        text[4 * shift.div_ceil(3)..text.len() - 4].trim_end_matches('=').to_owned()
    });
    let reversed: String = secret.chars().rev().collect();
    [secret.to_owned(), hex(false), hex(true), percent, reversed].into_iter().chain(base64).collect()
}

/// Searches for secrets in any form.
pub(crate) fn is_clean(what: &str, bytes: &[u8], secrets: &[&str]) {
    let text = String::from_utf8_lossy(bytes);
    for secret in secrets {
        for form in spellings(secret) {
            let Some(at) = text.find(&form) else { continue };
            let near = |range: std::ops::Range<usize>| String::from_utf8_lossy(&text.as_bytes()[range]).into_owned();
            let near = near(at.saturating_sub(200)..(at + 100).min(text.len()));
            panic!("{secret} is told by {what}, as {form}: {near}");
        }
    }
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files(&entry.path()));
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    found
}

/// Checks every file below a folder, except those that are meant to hold credentials.
pub(crate) fn files_are_clean(folder: &Path, meant: &[&str], secrets: &[&str]) {
    let files = files(folder);
    assert!(files.len() > 3, "{files:?}");
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap();
        if !meant.contains(&name) {
            is_clean(&file.display().to_string(), &fs::read(&file).unwrap(), secrets);
        }
    }
}

fn telegram() -> FakeServer {
    FakeServer::start(|request| match request.path.rsplit('/').next().unwrap_or_default() {
        "getMe" => (200, json!({ "ok": true, "result": { "id": 1, "is_bot": true, "username": "b" } }).to_string()),
        "getUpdates" => {
            thread::park_timeout(std::time::Duration::from_secs(5));
            (200, json!({ "ok": true, "result": [] }).to_string())
        }
        // A network that says back what it was shown.
        _ => {
            let text = format!("Unauthorized: {} is no token ({})", request.path, TELEGRAM);
            (400, json!({ "ok": false, "error_code": 400, "description": text }).to_string())
        }
    })
}

/// Uses and misuses every adapter of a gateway once. Returns what has to be kept besides: tokens that were made meanwhile.
fn everything(scene: &GatewayFixture, gateway: &GatewayServer) -> Vec<String> {
    let place = &scene;
    // A service that says back what it was shown, done and failed.
    let body = json!({ "authorization": format!("Bearer {SERVICE_TOKEN}"), "echo": STANDARD.encode(SERVICE_TOKEN) })
        .to_string();
    place.service.set_behavior("/look/mirror", ServiceBehavior::Answer(200, "application/json", body.clone()));
    place.service.set_behavior("/look/wall", ServiceBehavior::Answer(500, "text/html", format!("<p>{body}")));
    let mut agent = AgentClient::connect_authenticated(gateway, AGENT);
    for (number, thing) in ["mirror", "wall", "a"].into_iter().enumerate() {
        agent.call_tool(number, "look", json!({ "thing": thing }));
    }
    AgentClient::connect_authenticated(gateway, KITCHEN_TOKEN).confirm_received();
    AgentClient::connect(gateway).authenticate(WRONG);
    let mut refused = GsvPeer::open_connection(gateway);
    let mut params = gsv::connect_params("client", "x");
    params["auth"]["token"] = WRONG.into();
    refused.expect_error("connect", params);
    let mut client = GsvPeer::connect_client(gateway, "c");
    for (path, value) in [("channels.webhook.secret", WEBHOOK), ("apiKeys.anthropic", API_KEY)] {
        client.expect_ok("config.set", json!({ "path": path, "value": value }));
    }
    // A setting that cannot be is reported, without its value.
    client.expect_error("config.set", json!({ "path": "apiKeys.anthropic", "value": { "deep": API_KEY } }));
    client.expect_ok("config.get", json!({}));
    client.expect_ok("config.get", json!({ "path": "apiKeys.anthropic" }));
    scene.provider.script_replies([
        ProviderReply::new(vec![bash_part(
            "c1",
            "env; cat /proc/self/environ /proc/$PPID/environ; set; : words-of-a-command",
        )]),
        text_reply("done"),
    ]);
    let http = HttpClient::new(&gateway.address);
    let login = http.post("/api/auth/login", &json!({ "password": PASSWORD }));
    assert_eq!(login.status, 200);
    let cookie = login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    assert_eq!(http.post("/api/auth/login", &json!({ "password": WRONG })).status, 401);
    let made = place.run_as_person(&["tokens", "add", "all", "--scope", "read,answer,chat", "--json"]).json();
    let token = made["token"].as_str().unwrap().to_owned();
    let program = http.clone().with_header("authorization", &format!("Bearer {token}"));
    eventually("the token", || (program.get("/api/v1/gates").status == 200).then_some(()));
    let opened = program.post("/api/v1/sessions", &json!({ "message": "go" })).json();
    let path = format!("/api/v1/sessions/{}", opened["id"].as_str().unwrap());
    eventually("a gate", || {
        let listing = program.get("/api/v1/gates").json();
        let gate = listing["gates"][0]["id"].as_str()?.to_owned();
        program.post(&format!("/api/v1/gates/{gate}/allow"), &json!({}));
        Some(())
    });
    eventually("rest", || (program.get(&path).json()["state"] == "resting").then_some(()));
    let person = http.clone().with_header("cookie", &cookie);
    let pages =
        ["/console/", "/console/sessions", "/console/record", "/console/figures", "/console/policy", "/console/agents"];
    let api_paths = ["/api/sessions", "/api/settings", "/api/models", "/api/v1/audit?limit=1000", "/api/v1/sessions"];
    for path in pages.iter().chain(&api_paths) {
        assert_eq!(person.get(path).status, 200, "{path}");
    }
    // In an address, where it has no effect, and in headers that are not read.
    for secret in [AGENT, TOKEN, PASSWORD, token.as_str(), WRONG] {
        for path in ["/api/v1/gates", "/console/", "/", "/ws", "/nothing/here"] {
            request_head(&gateway.address, "GET", &format!("{path}?token={secret}"), &[("x-token", secret)]);
        }
        request_head(&gateway.address, "GET", "/api/v1/gates", &[("authorization", &format!("Bearer {secret}x"))]);
        request_head(
            &gateway.address,
            "POST",
            "/channels/webhook",
            &[("webhook-id", secret), ("webhook-signature", secret)],
        );
    }
    vec![token, cookie.split_once('=').unwrap().1.to_owned()]
}

#[test]
fn no_output_of_a_gateway_contains_a_credential() {
    let api = telegram();
    let scene = GatewayOptions::for_models().with_config(&format!(
        "clients: {{ token: {TOKEN} }}\nweb: {{ password: {PASSWORD} }}\nmessenger: {{ type: telegram, telegram: {{ token: '{TELEGRAM}', chat_id: -5, allowed_users: [7], api_url: '{}' }} }}\n",
        api.url
    )).create();
    scene.write_file("permissions.yaml", SHELL);
    let mut command = scene.binary_command();
    command.args(["serve", "--config", "config.yaml"]).env("COUNTERSIGN_LOG", "trace");
    let mut gateway = GatewayServer::spawn(command);
    let tap = TrafficTap::before(&gateway.address);
    gateway.address.clone_from(&tap.address);
    let made = everything(&scene, &gateway);
    gateway.stop();
    let known = [AGENT, KITCHEN_TOKEN, TOKEN, PASSWORD, SERVICE_TOKEN, TELEGRAM, WEBHOOK, API_KEY, WRONG];
    let secrets: Vec<&str> = known.iter().copied().chain(made.iter().map(String::as_str)).collect();
    let log = gateway.log_text();
    assert!(log.contains("DEBUG"), "the log is not at its most detailed");
    is_clean("the log", log.as_bytes(), &secrets);
    // Nor is a command in it, which a library reads word by word.
    is_clean("the log", log.as_bytes(), &["words-of-a-command"]);
    // A cookie is sent once, to the client that logged in.
    let cookie = made[1].as_str();
    let received = String::from_utf8_lossy(&tap.recorded_bytes()).into_owned();
    assert!(received.len() > 100_000, "{} bytes were heard", received.len());
    is_clean("what clients heard", received.replacen(cookie, "", 1).as_bytes(), &secrets);
    files_are_clean(&scene.folder, &["config.yaml", "secrets.yaml"], &secrets);
    let kept = fs::read_to_string(scene.data_dir().join("secrets.yaml")).unwrap();
    assert!(kept.contains(WEBHOOK) && kept.contains(API_KEY));
    // No model and no other network gets any of them but its own.
    for number in 0..scene.provider.request_count() {
        let request = scene.provider.wait_request(number);
        is_clean("what the model is told", format!("{}{}", request.head, request.body).as_bytes(), &secrets);
    }
    for request in scene.service.received_requests() {
        is_clean("what a service is told", format!("{request:?}").replace(SERVICE_TOKEN, "").as_bytes(), &secrets);
    }
    for command in [&["config", "show", "--config", "config.yaml"][..], &["doctor", "--config", "config.yaml"]] {
        let output = scene.run(command);
        is_clean(command[0], format!("{}{}", output.out, output.err).as_bytes(), &secrets);
    }
    let output = scene.run_as_person(&["tokens", "list"]);
    is_clean("tokens list", output.out.as_bytes(), &secrets);
}

#[test]
fn no_output_of_a_host_contains_a_credential_at_the_highest_log_level() {
    for (product, variable) in [("omp", "PI_CODING_AGENT_DIR"), ("gjc", "GJC_CODING_AGENT_DIR")] {
        let scene = GatewayFixture::for_peers();
        let agent = stdio_host::agent_dir(&scene, "defaults:\n  - { pattern: '*', action: allow }\n");
        let more = [("COUNTERSIGN_LOG", "trace"), ("ANTHROPIC_API_KEY", API_KEY), ("GJC_BRIDGE_TOKEN", BRIDGE)];
        let mut host = stdio_host::StdioHost::start(&scene, product, variable, &agent, &more);
        let look = "env; set; cat /proc/self/environ";
        scene.provider.script_replies([ProviderReply::new(vec![bash_part("c1", look)]), text_reply("done")]);
        host.send_frame(&json!({ "id": "p", "type": "prompt", "message": "go" }));
        host.wait_frame("the end", |frame| frame.to_string().contains("\"agent_end\""));
        for (id, command) in [("s", "get_state"), ("m", "get_available_models"), ("l", "get_messages")] {
            host.send_frame(&json!({ "id": id, "type": command }));
            host.wait_frame(command, |frame: &Value| frame["id"] == id);
        }
        host.send_frame(&json!({ "id": "b", "type": "bash", "command": look }));
        host.wait_frame("its output", |frame| frame["id"] == "b");
        let output = host.close_and_read();
        let secrets = [stdio_host::KEY, API_KEY, BRIDGE];
        is_clean(product, output.as_bytes(), &secrets);
        files_are_clean(&agent, &["models.yml"], &secrets);
        let text = scene.provider.last_request().messages_text();
        is_clean("what the model is told", text.as_bytes(), &secrets);
    }
}

#[test]
fn a_spelling_of_a_secret_is_found() {
    for text in ["Basic dXNlcjpob3VzZS1jYW5hcnk=", "686f7573652d63616e617279", "x=house%2Dcanary&house-canary"] {
        let found = std::panic::catch_unwind(|| is_clean("a test", text.as_bytes(), &["house-canary"]));
        assert!(found.is_err(), "{text}");
    }
    is_clean("a test", b"house", &["house-canary"]);
}
