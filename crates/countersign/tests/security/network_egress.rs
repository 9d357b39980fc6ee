//! Commands that reach named hosts alone: what is listed, what a person allowed for one call, and nothing else.

use std::{
    fmt::Write as _,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use countersign_testkit::process::{
    GatewayFixture, GatewayOptions, GatewayServer, eventually,
    http::HttpClient,
    provider::{ProviderReply, ReplyPart, bash_part, call_part, text_reply},
};
use countersign_tools::sandbox::KernelSupport;
use serde_json::{Value, json};

/// A server on this machine that notes the heads of its requests.
struct PageServer {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl PageServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&heads);
        thread::spawn(move || listener.incoming().for_each(|client| answer(client.unwrap(), &noted)));
        Self { port, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn answer(mut client: TcpStream, noted: &Mutex<Vec<String>>) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte).unwrap_or(0) > 0 {
        head.push(byte[0]);
    }
    noted.lock().unwrap().push(String::from_utf8_lossy(&head).into_owned());
    let _ = client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\nConnection: close\r\n\r\nit-was-there\n");
}

/// Returns a command that sends `request` to the proxy, and prints the answer.
fn through_proxy(request: &str) -> String {
    format!("p=${{http_proxy#http://}}; exec 3<>/dev/tcp/${{p/://}} && printf '{request}' >&3 && cat <&3")
}

fn page(address: &str) -> String {
    through_proxy(&format!("GET http://{address}/page HTTP/1.1\\r\\nHost: elsewhere.org\\r\\n\\r\\n"))
}

struct EgressFixture {
    scene: GatewayFixture,
    gateway: GatewayServer,
}

impl EgressFixture {
    /// Creates it. None if this machine cannot confine commands like that.
    #[allow(clippy::print_stderr, reason = "what this machine cannot show is said")]
    fn with(network: &str) -> Option<Self> {
        if let Some(lacks) = KernelSupport::running_kernel().missing_support() {
            eprintln!("not shown here: {lacks}");
            return None;
        }
        let scene = GatewayOptions::for_models().with_config(&format!("sandbox: {{ network: {network} }}\n")).create();
        let mut command = scene.binary_command();
        command.args(["serve", "--config", "config.yaml"]).env("COUNTERSIGN_LOG", "info");
        let gateway = GatewayServer::spawn(command);
        let stage = Self { scene, gateway };
        let result = stage.says(needing("true", &["127.0.0.1:9"]), Some("allow"));
        if result.contains("without a network") {
            eprintln!("not shown here: {result}");
            return None;
        }
        Some(stage)
    }

    /// Has a run do this call, answers its gates, and returns the result that the model got.
    fn says(&self, part: ReplyPart, answer: Option<&str>) -> String {
        self.scene.provider.script_replies([ProviderReply::new(vec![part]), text_reply("done")]);
        let http = HttpClient::new(&self.gateway.address);
        let opened = http.post("/api/v1/sessions", &json!({ "message": "go" })).json();
        if let Some(answer) = answer {
            let gate = self.scene.wait_gates(1).remove(0);
            let card = gate.to_string();
            assert!(card.contains("needs more than the sandbox gives: to reach 127.0.0.1:"), "{card}");
            let id = gate["id"].as_str().unwrap();
            assert_eq!(http.post(&format!("/api/v1/gates/{id}/{answer}"), &json!({})).status, 200);
        }
        let path = format!("/api/v1/sessions/{}", opened["id"].as_str().unwrap());
        eventually("the end of the run", || (http.get(&path).json()["state"] == "resting").then_some(()));
        self.scene.provider.last_request().call_result("c1").unwrap()
    }

    fn runs(&self, command: &str) -> String {
        self.says(bash_part("c1", command), None)
    }
}

fn needing(command: &str, hosts: &[&str]) -> ReplyPart {
    call_part("c1", "bash", &json!({ "command": command, "needs": { "hosts": hosts } }))
}

#[test]
fn a_listed_host_is_reached_and_nothing_else() {
    let (listed, other) = (PageServer::start(), PageServer::start());
    let at = |server: &PageServer| format!("127.0.0.1:{}", server.port);
    let hosts = format!("{{ hosts: ['{}', 'localhost:{}'], unlisted: refuse }}", at(&listed), other.port);
    let Some(stage) = EgressFixture::with(&hosts) else { return };

    let result = stage.runs(&page(&at(&listed)));
    assert!(result.contains("it-was-there"), "{result}");
    let heads = listed.heads();
    let want = format!("GET /page HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", at(&listed));
    assert_eq!(heads, [want]);
    let tunnel =
        through_proxy(&format!("CONNECT {} HTTP/1.1\\r\\n\\r\\nGET /tunnel HTTP/1.1\\r\\n\\r\\n", at(&listed)));
    let result = stage.runs(&tunnel);
    assert!(result.contains("200 Connection established") && result.contains("it-was-there"), "{result}");
    assert_eq!(listed.heads()[1], "GET /tunnel HTTP/1.1\r\n\r\n");
    let log = stage.gateway.log_text();
    assert!(log.contains(&format!("a command reached {}", at(&listed))) && !log.contains("/tunnel"), "{log}");

    let not_listed = format!("{} is not in sandbox.network.hosts", at(&other));
    let by_name = format!("localhost:{} resolves to an address of this machine", other.port);
    let own = format!("{} is not in sandbox.network.hosts", stage.gateway.address);
    for (command, want) in [
        (page(&at(&other)), &*not_listed),
        (through_proxy(&format!("CONNECT {} HTTP/1.1\\r\\n\\r\\n", at(&other))), &not_listed),
        (page(&format!("localhost:{}", other.port)), &by_name),
        (page(&stage.gateway.address), &own),
    ] {
        let result = stage.runs(&command);
        assert!(result.contains("403 Forbidden") && result.contains(want), "{command}: {result}");
        assert!(result.contains("[The sandbox refused hosts: "), "{command}: {result}");
        assert_eq!(result.contains("Ask for exactly that host"), want != by_name, "{command}: {result}");
    }
    for command in [
        format!("exec 3<>/dev/tcp/127.0.0.1/{}", other.port),
        format!("exec 3<>/dev/tcp/127.0.0.1/{}", listed.port),
        "echo a >/dev/udp/127.0.0.1/9".to_owned(),
        "exec 3<>/dev/tcp/192.0.2.1/80".to_owned(),
    ] {
        let result = stage.runs(&format!("( {command} ) 2>&1 || echo it-did-not"));
        assert!(result.contains("it-did-not"), "{command}: {result}");
    }
    assert_eq!(other.heads(), Vec::<String>::new());
}

#[test]
fn a_host_that_a_person_allows_is_reached_by_that_call_alone() {
    for network in ["off", "{ hosts: [crates.io], unlisted: refuse }"] {
        let server = PageServer::start();
        let Some(stage) = EgressFixture::with(network) else { return };
        let address = format!("127.0.0.1:{}", server.port);
        // Not the same command: what was denied once is denied again.
        stage.says(needing(&format!("true; {}", page(&address)), &[&address]), Some("deny"));
        assert_eq!(server.heads().len(), 0, "{network}");
        let result = stage.says(needing(&page(&address), &[&address]), Some("allow"));
        assert!(result.contains("it-was-there"), "{network}: {result}");
        let result = stage.runs(&format!("( {} ) 2>&1", page(&address)));
        assert!(!result.contains("it-was-there"), "{network}: {result}");
        assert_eq!(server.heads().len(), 1, "{network}");
    }
}

/// Returns the gate that opens while a command runs.
fn wait_host_gate(stage: &EgressFixture, address: &str) -> String {
    let gate = stage.scene.wait_gates(1).remove(0);
    let card = gate.to_string();
    assert!(card.contains(&format!("May this command reach {address} while it runs?")), "{card}");
    assert!(card.contains("printf"), "the card has the command: {card}");
    gate["id"].as_str().unwrap().to_owned()
}

#[test]
fn an_unlisted_host_needs_approval_while_the_command_waits() {
    for (answer, is_reached) in [("allow", true), ("deny", false)] {
        let server = PageServer::start();
        let address = format!("127.0.0.1:{}", server.port);
        let Some(stage) = EgressFixture::with("{ hosts: [crates.io] }") else { return };
        // The second time it needs no approval, whatever the first answer.
        let command = format!("( {} ); ( {} ); echo end", page(&address), page(&address));
        stage.scene.provider.script_replies([ProviderReply::new(vec![bash_part("c1", &command)]), text_reply("done")]);
        let http = HttpClient::new(&stage.gateway.address);
        let opened = http.post("/api/v1/sessions", &json!({ "message": "go" })).json();
        let gate = wait_host_gate(&stage, &address);
        assert_eq!(server.heads().len(), 0, "nothing leaves before somebody has said so");
        assert_eq!(http.post(&format!("/api/v1/gates/{gate}/{answer}"), &json!({})).status, 200);
        let path = format!("/api/v1/sessions/{}", opened["id"].as_str().unwrap());
        eventually("the end of the run", || (http.get(&path).json()["state"] == "resting").then_some(()));
        let result = stage.scene.provider.last_request().call_result("c1").unwrap();
        assert!(result.contains("end"), "{answer}: {result}");
        assert_eq!(result.matches("it-was-there").count(), if is_reached { 2 } else { 0 }, "{answer}: {result}");
        assert_eq!(result.contains("a person refused it"), !is_reached, "{answer}: {result}");
        assert!(!result.contains("Ask for exactly that host"), "{answer}: {result}");
        assert_eq!(server.heads().len(), if is_reached { 2 } else { 0 }, "{answer}");
        // The answer applies to that call alone.
        stage
            .scene
            .provider
            .script_replies([ProviderReply::new(vec![bash_part("c2", &page(&address))]), text_reply("done")]);
        http.post("/api/v1/sessions", &json!({ "message": "again" }));
        wait_host_gate(&stage, &address);
    }
}

#[test]
fn the_reason_for_denying_a_host_is_reported() {
    let server = PageServer::start();
    let Some(stage) = EgressFixture::with("{ hosts: [crates.io] }") else { return };
    stage.scene.provider.script_replies([
        ProviderReply::new(vec![bash_part("c1", &page(&format!("127.0.0.1:{}", server.port)))]),
        text_reply("done"),
    ]);
    let http = HttpClient::new(&stage.gateway.address);
    let opened = http.post("/api/v1/sessions", &json!({ "message": "go" })).json();
    let gate = wait_host_gate(&stage, &format!("127.0.0.1:{}", server.port));
    let denied = http.post(&format!("/api/v1/gates/{gate}/deny"), &json!({ "reason": "use the\nmirror" }));
    assert_eq!(denied.status, 200);
    let path = format!("/api/v1/sessions/{}", opened["id"].as_str().unwrap());
    eventually("the end of the run", || (http.get(&path).json()["state"] == "resting").then_some(()));
    let result = stage.scene.provider.last_request().call_result("c1").unwrap();
    assert!(result.contains(r#"a person refused it, saying "use the\nmirror"; do not try it again"#), "{result}");
}

/// Tests that the gateway's own connection, because a command was let reach its port, is no approver.
#[test]
fn a_command_that_may_reach_the_gateway_answers_nothing_there() {
    let Some(stage) = EgressFixture::with("{ hosts: [crates.io], unlisted: refuse }") else { return };
    let waits = needing("echo it-was-allowed", &["127.0.0.1:9"]);
    stage.scene.provider.script_replies([ProviderReply::new(vec![waits]), text_reply("done")]);
    let http = HttpClient::new(&stage.gateway.address);
    http.post("/api/v1/sessions", &json!({ "message": "go" }));
    let gate = stage.scene.wait_gate();
    let address = &stage.gateway.address;
    let approve_command = through_proxy(&format!(
        "POST http://{address}/api/v1/gates/{gate}/allow HTTP/1.1\\r\\nContent-Type: application/json\\r\\nContent-Length: 2\\r\\n\\r\\n{{}}"
    ));
    let read = page(address);
    stage.scene.provider.script_replies([
        ProviderReply::new(vec![call_part(
            "c2",
            "bash",
            &json!({ "command": format!("( {approve_command} ); ( {read} )"), "needs": { "hosts": [address] } }),
        )]),
        text_reply("done"),
    ]);
    let opened = http.post("/api/v1/sessions", &json!({ "message": "go" })).json();
    let own = stage.scene.wait_gates(2).into_iter().find(|row| row["id"] != *gate).unwrap();
    assert_eq!(http.post(&format!("/api/v1/gates/{}/allow", own["id"].as_str().unwrap()), &json!({})).status, 200);
    let path = format!("/api/v1/sessions/{}", opened["id"].as_str().unwrap());
    eventually("the end of the run", || (http.get(&path).json()["state"] == "resting").then_some(()));
    let result = stage.scene.provider.last_request().call_result("c2").unwrap();
    assert!(
        result.contains("403 Forbidden") && result.contains("a command of an agent, which may not decide"),
        "{result}"
    );
    assert_eq!(stage.scene.wait_gates(1)[0]["id"], *gate, "it still waits");
}

#[test]
fn a_gateway_that_dies_while_a_command_waits_for_a_host_reaches_nothing() {
    let server = PageServer::start();
    let address = format!("127.0.0.1:{}", server.port);
    let Some(stage) = EgressFixture::with("{ hosts: [crates.io] }") else { return };
    stage
        .scene
        .provider
        .script_replies([ProviderReply::new(vec![bash_part("c1", &page(&address))]), text_reply("done")]);
    HttpClient::new(&stage.gateway.address).post("/api/v1/sessions", &json!({ "message": "go" }));
    let gate = wait_host_gate(&stage, &address);
    let EgressFixture { scene, gateway } = stage;
    gateway.kill();
    let gateway = scene.start();
    let late = HttpClient::new(&gateway.address).post(&format!("/api/v1/gates/{gate}/allow"), &json!({}));
    assert_ne!(late.status, 200, "what was withdrawn is allowed by nobody");
    assert_eq!(scene.pending_gates(), Vec::<Value>::new());
    scene.verify_log();
    assert_eq!(server.heads(), Vec::<String>::new());
}

#[test]
fn a_request_without_a_host_name_is_refused_without_a_gate() {
    let scene = GatewayOptions::for_models().with_config("sandbox: { network: off }\n").create();
    let stage = EgressFixture { gateway: scene.start(), scene };
    let mut results = String::new();
    for hosts in [json!(["https://a.org/x"]), json!(["*.a.org"]), json!(["127.1"]), json!("a.org")] {
        let part = call_part("c1", "bash", &json!({ "command": "true", "needs": { "hosts": hosts } }));
        writeln!(results, "{}", stage.says(part, None)).unwrap();
    }
    for want in ["write only the host", "without a wildcard", "not in the standard form", "hosts"] {
        assert!(results.contains(want), "{want}: {results}");
    }
    let scene = GatewayOptions::for_models().with_config("sandbox: { network: on }\n").create();
    let stage = EgressFixture { gateway: scene.start(), scene };
    let result = stage.says(needing("true", &["a.org"]), None);
    assert!(result.contains("needs.hosts is not necessary"), "{result}");
    assert_eq!(stage.scene.pending_gates(), Vec::<Value>::new());
}

#[test]
fn what_a_call_leaves_behind_has_no_way_out() {
    let server = PageServer::start();
    let address = format!("127.0.0.1:{}", server.port);
    let Some(stage) = EgressFixture::with(&format!("{{ hosts: ['{address}'] }}")) else { return };
    let part = |command: &str| bash_part("c1", command);
    stage.scene.provider.script_replies([
        // It asks once its call is over: the file is made by this test, when the model has the end.
        ProviderReply::new(vec![part(&format!(
            "( until [ -e go ]; do :; done; ( {} ); echo over >>said ) >/dev/null 2>&1 &",
            page(&address)
        ))]),
        text_reply("done"),
    ]);
    let http = HttpClient::new(&stage.gateway.address);
    let opened = http.post("/api/v1/sessions", &json!({ "message": "go" })).json();
    let path = format!("/api/v1/sessions/{}", opened["id"].as_str().unwrap());
    eventually("the end of the run", || (http.get(&path).json()["state"] == "resting").then_some(()));
    let room = stage.scene.folder.join("agents/main");
    std::fs::write(room.join("go"), "").unwrap();
    eventually("the end of what was left", || room.join("said").exists().then_some(()));
    assert_eq!(server.heads(), Vec::<String>::new());
}
