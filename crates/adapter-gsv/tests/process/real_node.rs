//! Two processes: the gateway, and a machine that lends its tools with `countersign node`.

use std::{
    fs,
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use countersign_testkit::process::{
    GatewayFixture, GatewayOptions, GatewayServer, binary_path, eventually,
    gsv::{GsvPeer, TOKEN},
    provider::{ProviderReply, call_part, text_reply},
};
use serde_json::{Value, json};

use crate::chat::{message_text, send, talk};

const RULES: &str = "
rules:
  - { pattern: 'desk__Bash(*once*', action: ask }
defaults:
  - { pattern: '*', action: allow }
";

/// Process of the node. It ends with the test.
struct RealNode(Child);

impl Drop for RealNode {
    fn drop(&mut self) {
        self.kill();
    }
}

impl RealNode {
    fn start(scene: &GatewayFixture, gateway: &GatewayServer) -> Self {
        let folder = &scene.folder;
        fs::create_dir_all(folder.join("desk")).unwrap();
        let mut command = Command::new(binary_path());
        command
            .current_dir(folder)
            .env("HOME", folder)
            .env("SHELL", "/bin/sh")
            .env("COUNTERSIGN_NODE_TOKEN", TOKEN)
            .args(["node", "--url", &format!("{}/ws", gateway.websocket_url()), "--id", "desk", "--workspace", "desk"])
            .args(["--data", "desk-data"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn kill(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn has_tools(client: &mut GsvPeer) -> bool {
    client.expect_ok("tools.list", json!({})).to_string().contains("desk__Bash")
}

fn wait_for_tools(client: &mut GsvPeer) {
    eventually("the node is there", || has_tools(client).then_some(()));
}

#[test]
fn a_call_that_was_allowed_is_done_once_although_its_node_was_killed_meanwhile() {
    let scene = GatewayOptions::for_peers().with_rules(RULES).create();
    let (gateway, mut client) = scene.start_peer();
    let mut machine = RealNode::start(&scene, &gateway);
    wait_for_tools(&mut client);
    let append = call_part("c0", "desk__Bash", &json!({ "command": "echo once >> marks" }));
    scene.provider.script_replies([ProviderReply::new(vec![append]), text_reply("did it")]);
    let card = talk(&mut client, "s", "please", "r-1");
    assert!(message_text(&card).contains("echo once >> marks"), "{card}");
    machine.kill();
    eventually("the node is gone", || (!has_tools(&mut client)).then_some(()));
    let _machine = RealNode::start(&scene, &gateway);
    wait_for_tools(&mut client);
    send(&mut client, "s", "yes", "r-2");
    assert_eq!(message_text(&client.wait_event("chat", &json!({ "runId": "r-2", "state": "final" }))), "did it");
    assert_eq!(fs::read_to_string(scene.folder.join("desk/marks")).unwrap(), "once\n");
    scene.verify_log();
}

/// Waits for the gate of a call of the node, once the node is there.
fn raise_gate(scene: &GatewayFixture, client: &mut GsvPeer) -> String {
    wait_for_tools(client);
    let waits = call_part("c0", "desk__Bash", &json!({ "command": "echo once >> marks" }));
    scene.provider.script_replies([ProviderReply::new(vec![waits])]);
    talk(client, "s", "please", "r-1");
    scene.run_as_person(&["gates", "list", "--json"]).json()[0]["id"].as_str().unwrap().to_owned()
}

/// Checks that a command of a node on this machine is a command of an agent too: it answers no gate, over the port or the socket.
#[test]
fn a_command_of_a_node_on_this_machine_decides_nothing() {
    let scene = GatewayOptions::for_peers().with_rules(RULES).create();
    let (gateway, mut client) = scene.start_peer();
    let _machine = RealNode::start(&scene, &gateway);
    let gate = raise_gate(&scene, &mut client);
    let (address, port) = (&gateway.address, gateway.address.rsplit_once(':').unwrap().1);
    let over_port = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'POST /api/v1/gates/{gate}/allow HTTP/1.1\\r\\nhost: {address}\\r\\n\
         content-type: application/json\\r\\ncontent-length: 2\\r\\nconnection: close\\r\\n\\r\\n{{}}' >&3; cat <&3"
    );
    let over_socket =
        format!("{} gates allow {gate} --data {} 2>&1", binary_path().display(), scene.data_dir().display());
    for (number, command) in [format!("bash -c \"{over_port}\""), over_socket].into_iter().enumerate() {
        let tries = call_part("c1", "desk__Bash", &json!({ "command": command }));
        scene.provider.script_replies([ProviderReply::new(vec![tries]), text_reply("tried")]);
        let run = format!("r-t{number}");
        talk(&mut client, &format!("t{number}"), "try", &run);
        let output = scene.provider.last_request().call_result("c1").unwrap();
        assert!(output.contains("which may not decide"), "{output}");
    }
    assert_eq!(scene.run_as_person(&["gates", "list", "--json"]).json()[0]["id"], gate.as_str());
}

#[test]
fn a_command_that_has_killed_its_node_decides_nothing_either() {
    let scene = GatewayOptions::for_peers().with_rules(RULES).create();
    let (gateway, mut client) = scene.start_peer();
    let _machine = RealNode::start(&scene, &gateway);
    let gate = raise_gate(&scene, &mut client);
    let (address, port) = (&gateway.address, gateway.address.rsplit_once(':').unwrap().1);
    // Its parent is stopped first, or it would end the process before the kill.
    let script = format!(
        "keeper=$1; node=$(sed -n 's/^PPid:[^0-9]*//p' /proc/$keeper/status)
kill -STOP $keeper; kill -9 $node; kill -9 $keeper
while [ -e /proc/$keeper ]; do sleep 0.02; done
exec 3<>/dev/tcp/127.0.0.1/{port}
printf 'POST /api/v1/gates/{gate}/allow HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n' >&3
cat <&3 > told.new; mv told.new told
"
    );
    fs::write(scene.folder.join("desk/away.sh"), script).unwrap();
    let tries = call_part("c1", "desk__Bash", &json!({ "command": "setsid bash away.sh $PPID & wait" }));
    scene.provider.script_replies([ProviderReply::new(vec![tries])]);
    send(&mut client, "t", "try", "r-2");
    let response = eventually("it was told", || fs::read_to_string(scene.folder.join("desk/told")).ok());
    assert!(response.starts_with("HTTP/1.1 403 ") && response.contains("which may not decide"), "{response}");
    assert_eq!(scene.run_as_person(&["gates", "list", "--json"]).json()[0]["id"], gate.as_str());
}

#[test]
fn what_was_done_while_the_gateway_was_away_is_in_its_nodes_journal() {
    let scene = GatewayOptions::for_peers().with_rules(RULES).create();
    let (gateway, mut client) = scene.start_peer();
    let folder = scene.folder.clone();
    let mut machine = RealNode::start(&scene, &gateway);
    wait_for_tools(&mut client);
    // The command waits until a writer opens its pipe.
    assert!(Command::new("mkfifo").arg(folder.join("desk/pipe")).status().unwrap().success());
    let waits = json!({ "command": "echo x >> marks; read line < pipe; echo got $line" });
    scene
        .provider
        .script_replies([ProviderReply::new(vec![call_part("c0", "desk__Bash", &waits)]), text_reply("did it")]);
    send(&mut client, "s", "please", "r-1");
    eventually("it works", || folder.join("desk/marks").exists().then_some(()));
    gateway.kill();
    fs::write(folder.join("desk/pipe"), "word\n").unwrap();
    let gateway = scene.start();
    // The port is another one: the machine gets it with a restart, over the same journal.
    machine.kill();
    let _machine = RealNode::start(&scene, &gateway);
    let mut client = GsvPeer::connect_client(&gateway, "again");
    assert_eq!(message_text(&client.wait_event("chat", &json!({ "runId": "r-1", "state": "final" }))), "did it");
    let output =
        scene.provider.wait_request_when(1, |request| request.call_result("c0").is_some()).call_result("c0").unwrap();
    assert!(output.contains("got word") || output.starts_with("Error: "), "{output}");
    assert_eq!(fs::read_to_string(folder.join("desk/marks")).unwrap(), "x\n");
    scene.verify_log();
}

#[test]
fn a_call_during_which_the_node_is_killed_starts_once_and_ends_unknown() {
    let scene = GatewayOptions::for_peers().with_rules(RULES).create();
    let (gateway, mut client) = scene.start_peer();
    let mut machine = RealNode::start(&scene, &gateway);
    wait_for_tools(&mut client);
    let marks = || fs::read_to_string(scene.folder.join("desk/marks")).ok();
    let waits = json!({ "command": "echo once >> marks; while [ ! -e go ]; do sleep 0.02; done" });
    scene
        .provider
        .script_replies([ProviderReply::new(vec![call_part("c0", "desk__Bash", &waits)]), text_reply("it is unknown")]);
    talk(&mut client, "s", "please", "r-1");
    send(&mut client, "s", "yes", "r-2");
    eventually("it works", marks);
    machine.kill();
    let _machine = RealNode::start(&scene, &gateway);
    assert_eq!(message_text(&client.wait_event("chat", &json!({ "runId": "r-2", "state": "final" }))), "it is unknown");
    let output =
        scene.provider.wait_request_when(1, |request| request.call_result("c0").is_some()).call_result("c0").unwrap();
    assert!(output.contains("does not know what came of it"), "{output}");
    assert_eq!(marks().as_deref(), Some("once\n"));
    scene.verify_log();
}

#[test]
fn a_node_goes_on_while_the_gateway_is_killed_and_gives_the_next_one_what_came_of_it() {
    let scene = GatewayOptions::for_peers().with_rules(RULES).create();
    // A port that the next gateway has too, so that the node finds it by itself.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let gateway = GatewayServer::start_with(&scene, &["--port", &port]);
    let mut client = GsvPeer::connect_client(&gateway, "tester");
    let _machine = RealNode::start(&scene, &gateway);
    wait_for_tools(&mut client);
    let folder = scene.folder.join("desk");
    let waits = json!({ "command": "echo x >> marks; while [ ! -e go ]; do sleep 0.02; done; echo ended" });
    scene
        .provider
        .script_replies([ProviderReply::new(vec![call_part("c0", "desk__Bash", &waits)]), text_reply("did it")]);
    send(&mut client, "s", "please", "r-1");
    eventually("it works", || folder.join("marks").exists().then_some(()));
    gateway.kill();
    let gateway = GatewayServer::start_with(&scene, &["--port", &port]);
    let mut client = GsvPeer::connect_client(&gateway, "again");
    wait_for_tools(&mut client);
    fs::write(folder.join("go"), "").unwrap();
    assert_eq!(message_text(&client.wait_event("chat", &json!({ "runId": "r-1", "state": "final" }))), "did it");
    let output =
        scene.provider.wait_request_when(1, |request| request.call_result("c0").is_some()).call_result("c0").unwrap();
    let result: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((&result["status"], &result["output"]), (&json!("completed"), &json!("ended\n")));
    assert_eq!(fs::read_to_string(folder.join("marks")).unwrap(), "x\n");
    scene.verify_log();
}

#[test]
fn a_background_command_of_a_node_reports_its_end_to_its_session() {
    let scene = GatewayOptions::for_peers().with_rules(RULES).create();
    let (gateway, mut client) = scene.start_peer();
    let _machine = RealNode::start(&scene, &gateway);
    wait_for_tools(&mut client);
    let waits = json!({ "command": "while [ ! -e go ]; do sleep 0.02; done; echo it is over", "background": true });
    let begun = ProviderReply::new(vec![call_part("c0", "desk__Bash", &waits)]);
    scene.provider.script_replies([begun, text_reply("it runs"), text_reply("I see")]);
    assert_eq!(message_text(&talk(&mut client, "s", "please", "r-1")), "it runs");
    fs::write(scene.folder.join("desk/go"), "").unwrap();
    let request_text = scene.provider.wait_request(2).messages_text();
    assert!(request_text.contains("async_exec_completion") && request_text.contains("it is over"), "{request_text}");
}

#[test]
fn a_client_uses_the_tools_of_a_node_and_reads_its_log() {
    let scene = GatewayOptions::for_peers().with_rules(RULES).create();
    let (gateway, mut client) = scene.start_peer();
    let _machine = RealNode::start(&scene, &gateway);
    wait_for_tools(&mut client);
    let mut invoke = |tool: &str, args: Value| client.call_method("tool.invoke", json!({ "tool": tool, "args": args }));
    let written = invoke("desk__Write", json!({ "path": "a", "content": "one\n" }));
    assert_eq!(written["payload"]["result"]["bytes"], 4, "{written}");
    let read = invoke("desk__Read", json!({ "path": "a" }));
    assert_eq!(read["payload"]["result"]["content"], "     1\tone", "{read}");
    let outside = invoke("desk__Read", json!({ "path": "/etc/passwd" }));
    assert_eq!(outside["error"]["code"], 500, "{outside}");
    assert!(outside["error"]["message"].as_str().unwrap().contains("outside of the allowed folder"), "{outside}");
    let logs = client.expect_ok("logs.get", json!({ "lines": 1 }));
    assert_eq!((&logs["nodeId"], &logs["count"]), (&json!("desk"), &json!(1)));
}
