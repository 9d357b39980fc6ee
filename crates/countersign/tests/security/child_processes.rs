//! An agent's own child process, with every credential that there is: it decides nothing, and acts for no other principal.

use std::{fmt::Write as _, fs, path::PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_http::web::access::{RouteEffect, TABLE};
use countersign_testkit::process::{
    GatewayFixture, GatewayOptions, GatewayServer, eventually,
    gsv::{self, GsvPeer},
    http::HttpClient,
    provider::{ProviderReply, bash_part, text_reply},
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

const SIGNED: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const REFUSAL_TEXT: &str = "which may not decide";

/// Has a run of an agent work to its end on one command, and gives the folder in which it ran.
pub(crate) fn run(scene: &GatewayFixture, gateway: &GatewayServer, command: &str) -> PathBuf {
    scene.provider.script_replies([ProviderReply::new(vec![bash_part("c1", command)]), text_reply("done")]);
    let http = HttpClient::new(&gateway.address);
    let opened = http.post("/api/v1/sessions", &json!({ "message": "go" })).json();
    let path = format!("/api/v1/sessions/{}", opened["id"].as_str().unwrap());
    eventually("the end of the run", || (http.get(&path).json()["state"] == "resting").then_some(()));
    scene.folder.join("agents/main")
}

/// Creates a gateway on loopback without a login, which is the weakest configuration.
fn open() -> GatewayFixture {
    GatewayOptions::for_models().with_config("").create()
}

fn loose(scene: &GatewayFixture) {
    scene.write_file("permissions.yaml", "defaults:\n  - { pattern: '*', action: allow }\n");
}

/// Returns the bytes for a socket that opens a WebSocket and sends these frames.
fn conversation(path: &str, frames: &[Value]) -> Vec<u8> {
    let mut bytes = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n").into_bytes();
    for (name, value) in crate::fixture::UPGRADE {
        bytes.extend(format!("{name}: {value}\r\n").bytes());
    }
    bytes.extend(b"\r\n");
    for frame in frames {
        let text = frame.to_string();
        let length = u16::try_from(text.len()).unwrap();
        // A mask of nothing leaves the text as it is.
        bytes.extend([0x81, 0xfe, length.to_be_bytes()[0], length.to_be_bytes()[1], 0, 0, 0, 0]);
        bytes.extend(text.bytes());
    }
    bytes
}

/// Returns the replies to each of these conversations from a command of an agent.
fn replies_to_child(scene: &GatewayFixture, gateway: &GatewayServer, conversations: &[Vec<u8>]) -> Vec<String> {
    let room = scene.folder.join("agents/main");
    fs::create_dir_all(&room).unwrap();
    for (number, bytes) in conversations.iter().enumerate() {
        fs::write(room.join(format!("says.{number}")), bytes).unwrap();
    }
    let port = gateway.address.rsplit_once(':').unwrap().1;
    // A connection ends with its end, or with the answer to its second request.
    let script = format!(
        "for f in says.*; do exec 3<>/dev/tcp/127.0.0.1/{port}; cat $f >&3; all=; while IFS= read -r -t 60 -d '}}' part <&3; \
         do all+=\"$part}}\"; [[ $all == *'\"id\":\"2\"'* ]] && part= && break; done; printf %s \"$all$part\" >told.${{f#says.}}; exec 3>&-; done
"
    );
    fs::write(room.join("say.sh"), script).unwrap();
    run(scene, gateway, "bash say.sh");
    let read_reply = |number: usize| fs::read(room.join(format!("told.{number}"))).unwrap();
    (0..conversations.len()).map(|number| String::from_utf8_lossy(&read_reply(number)).into_owned()).collect()
}

#[test]
fn a_child_of_an_agent_acts_at_no_route_whatever_it_shows() {
    let scene = open();
    loose(&scene);
    let gateway = scene.start();
    let made = scene.run_as_person(&["tokens", "add", "all", "--scope", "read,answer,chat,admin", "--json"]).json();
    let token = made["token"].as_str().unwrap();
    let acting: Vec<_> = TABLE.iter().filter(|row| row.3 == RouteEffect::Acts).collect();
    assert!(acting.len() > 30);
    let mut requests = Vec::new();
    for (method, path, ..) in &acting {
        let path = path.replace("{id}", "1");
        for shown in [String::new(), format!("authorization: Bearer {token}\r\n")] {
            let head = format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{shown}connection: close\r\n");
            requests.push(format!("{head}content-length: 0\r\n\r\n").into_bytes());
        }
    }
    for (number, reply) in replies_to_child(&scene, &gateway, &requests).iter().enumerate() {
        let (method, path, ..) = acting[number / 2];
        assert!(reply.starts_with("HTTP/1.1 403 ") && reply.contains(REFUSAL_TEXT), "{method} {path}: {reply}");
    }
}

/// Script that has a child connect to the control socket, ask and end, and reads the answer where the child's end is open still.
const GONE: &str = r#"
import os, socket, sys
for round in range(20):
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(60)
    if os.fork() == 0:
        line.connect(sys.argv[1])
        line.send(b'{"ask":"gates"}\n')
        os._exit(0)
    os.wait()
    try:
        print(line.recv(1000).decode().strip(), flush=True)
    except OSError as problem:
        print(problem, flush=True)
"#;

#[test]
fn a_short_lived_child_of_an_agent_gets_nothing_over_the_control_socket() {
    let scene = open();
    loose(&scene);
    let gateway = scene.start();
    let room = scene.folder.join("agents/main");
    fs::create_dir_all(&room).unwrap();
    fs::write(room.join("gone.py"), GONE).unwrap();
    let socket = scene.data_dir().join("countersign.sock");
    run(&scene, &gateway, &format!("command -v python3 || exit 0; python3 gone.py {} >told", socket.display()));
    let Ok(output) = fs::read_to_string(room.join("told")) else { return };
    assert_eq!(output.lines().count(), 20, "{output}");
    assert!(output.lines().all(|line| line.contains("which may not decide")), "{output}");
}

#[test]
fn a_child_of_an_agent_is_no_node_and_no_chat_network() {
    let scene = open();
    loose(&scene);
    let gateway = scene.start();
    // Both are connected already: no other client takes their places.
    let mut node = GsvPeer::connect_node(&gateway, "desk", &["Bash"]);
    let mut channel = GsvPeer::connect_channel(&gateway, "wx", "main");
    let mut network = gsv::connect_params("channel", "main");
    network["client"]["channel"] = "wx".into();
    let connect = |params: Value| json!({ "type": "req", "id": "1", "method": "connect", "params": params });
    let params = json!({
        "sessionKey": "s", "message": "x", "path": "a.txt", "content": "x", "value": 1, "channel": "wx", "tool": "Bash",
        "args": {}, "callId": "c", "id": "x", "pairingCode": "x", "senderId": "x", "agentId": "main",
    });
    let ask = |method: &str| json!({ "type": "req", "id": "2", "method": method, "params": params });
    let client = connect(gsv::connect_params("client", "c"));
    let mut says = vec![
        conversation("/ws", &[connect(gsv::node_params("desk", &["Bash"])), ask("tools.list")]),
        conversation("/ws", &[connect(gsv::node_params("new", &["Bash"])), ask("tools.list")]),
        conversation("/ws", &[connect(network), ask("tools.list")]),
    ];
    use countersign_protocol::gsv::method::{self, MethodScope};
    let acts = |scope: MethodScope| matches!(scope, MethodScope::Chat | MethodScope::Admin);
    let acting: Vec<_> = method::TABLE.iter().filter(|row| acts(row.scope)).collect();
    says.extend(acting.iter().map(|row| conversation("/ws", &[client.clone(), ask(row.name)])));
    let replies = replies_to_child(&scene, &gateway, &says);
    for reply in &replies[..3] {
        assert!(reply.contains(REFUSAL_TEXT) && !reply.contains("hello-ok"), "{reply}");
    }
    let mut refused = 0;
    for (row, reply) in acting.iter().zip(&replies[3..]) {
        let (_, answer) = reply.split_once("hello-ok").unwrap();
        assert!(answer.contains("\"ok\":false"), "{}: {reply}", row.name);
        refused += usize::from(answer.contains(REFUSAL_TEXT));
    }
    // The others were invalid requests.
    assert!(refused > 12, "{refused} of {}", acting.len());
    // The connected clients still are.
    node.caught_up_node();
    let refused = channel.expect_error("tools.list", json!({}));
    assert_eq!(refused["code"], 403, "{refused}");
}

#[test]
fn a_child_of_an_agent_cannot_send_what_others_sign() {
    let scene = open();
    loose(&scene);
    let gateway = scene.start();
    let mut client = GsvPeer::connect_client(&gateway, "c");
    client.expect_ok("config.set", json!({ "path": "channels.webhook.secret", "value": SIGNED }));
    let body = json!({ "peer": { "kind": "dm", "id": "ana" }, "message": { "text": "/approve" } }).to_string();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let key = STANDARD.decode(SIGNED.strip_prefix("whsec_").unwrap()).unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
    mac.update(format!("m1.{now}.{body}").as_bytes());
    let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    let mut head = "POST /channels/webhook HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n".to_owned();
    let length = body.len();
    write!(head, "webhook-id: m1\r\nwebhook-timestamp: {now}\r\nwebhook-signature: {signature}\r\n").unwrap();
    write!(head, "content-length: {length}\r\n\r\n{body}").unwrap();
    let replies = replies_to_child(&scene, &gateway, &[head.into_bytes()]);
    assert!(replies[0].starts_with("HTTP/1.1 403 ") && replies[0].contains(REFUSAL_TEXT), "{replies:?}");
    let http = HttpClient::new(&gateway.address)
        .with_header("webhook-id", "m1")
        .with_header("webhook-timestamp", &now.to_string());
    let taken = http.with_header("webhook-signature", &signature).send_request("POST", "/channels/webhook", &body);
    assert_eq!(taken.status, 200, "{taken:?}");
}
