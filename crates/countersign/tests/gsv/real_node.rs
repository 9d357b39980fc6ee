//! Two processes: the gateway, and a machine that lends its tools with `countersign node`.

use std::{
    fs,
    process::{Child, Command, Stdio},
};

use serde_json::json;

use crate::{
    chat::{said, send, talk},
    gateway::{Gateway, soon},
    peer::Peer,
    provider::{Reply, call, say},
    scene::{Scene, TOKEN},
};

const RULES: &str = "
rules:
  - { pattern: 'desk__Bash(*once*', action: ask }
defaults:
  - { pattern: '*', action: allow }
";

/// The machine's process. It ends with the test.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Machine {
    fn start(scene: &Scene, gateway: &Gateway) -> Self {
        let folder = &scene.place.folder;
        fs::create_dir_all(folder.join("desk")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
        command
            .current_dir(folder)
            .env("HOME", folder)
            .env("SHELL", "/bin/sh")
            .env("COUNTERSIGN_NODE_TOKEN", TOKEN)
            .args(["node", "--url", &format!("{}/ws", gateway.url()), "--id", "desk", "--workspace", "desk"])
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

fn has_tools(client: &mut Peer) -> bool {
    client.ok("tools.list", json!({})).to_string().contains("desk__Bash")
}

fn comes(client: &mut Peer) {
    soon("the node is there", || has_tools(client).then_some(()));
}

#[test]
fn a_call_that_was_allowed_is_done_once_although_its_node_was_killed_meanwhile() {
    let scene = Scene::ruled(RULES);
    let (gateway, mut client) = scene.client();
    let mut machine = Machine::start(&scene, &gateway);
    comes(&mut client);
    let append = call("c0", "desk__Bash", &json!({ "command": "echo once >> marks" }));
    scene.provider.script([Reply::new(vec![append]), say("did it")]);
    let asked = talk(&mut client, "s", "please", "r-1");
    assert!(said(&asked).contains("echo once >> marks"), "{asked}");
    machine.kill();
    soon("the node is gone", || (!has_tools(&mut client)).then_some(()));
    let _machine = Machine::start(&scene, &gateway);
    comes(&mut client);
    send(&mut client, "s", "yes", "r-2");
    assert_eq!(said(&client.event("chat", &json!({ "runId": "r-2", "state": "final" }))), "did it");
    assert_eq!(fs::read_to_string(scene.place.folder.join("desk/marks")).unwrap(), "once\n");
    scene.place.verify();
}

#[test]
fn what_was_done_while_the_gateway_was_away_is_in_its_nodes_journal() {
    let scene = Scene::ruled(RULES);
    let (gateway, mut client) = scene.client();
    let folder = scene.place.folder.clone();
    let mut machine = Machine::start(&scene, &gateway);
    comes(&mut client);
    // The command waits until somebody writes into its pipe.
    assert!(Command::new("mkfifo").arg(folder.join("desk/pipe")).status().unwrap().success());
    let waits = json!({ "command": "echo x >> marks; read line < pipe; echo got $line" });
    scene.provider.script([Reply::new(vec![call("c0", "desk__Bash", &waits)]), say("did it")]);
    send(&mut client, "s", "please", "r-1");
    soon("it works", || folder.join("desk/marks").exists().then_some(()));
    gateway.kill();
    fs::write(folder.join("desk/pipe"), "word\n").unwrap();
    let gateway = scene.start();
    // The port is another one: the machine is told so by being started anew, over the same journal.
    machine.kill();
    let _machine = Machine::start(&scene, &gateway);
    let mut client = Peer::client(&gateway, "again");
    assert_eq!(said(&client.event("chat", &json!({ "runId": "r-1", "state": "final" }))), "did it");
    let told = scene.provider.request(1, |asked| asked.result("c0").is_some()).result("c0").unwrap();
    assert!(told.contains("got word") || told.starts_with("Error: "), "{told}");
    assert_eq!(fs::read_to_string(folder.join("desk/marks")).unwrap(), "x\n");
    scene.place.verify();
}
