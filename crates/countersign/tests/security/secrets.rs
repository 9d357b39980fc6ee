//! Secrets that agents use by name: they reach the service or the command that they are for, and nothing else, however what
//! got them says them back.

use std::{fs, io::Write as _, os::unix::fs::PermissionsExt as _, process::Stdio};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_testkit::process::{
    AGENT_TOKEN as AGENT, GatewayFixture, GatewayOptions, GatewayServer,
    agent_gate::AgentClient,
    eventually,
    http::HttpClient,
    provider::{ProviderReply, call_part, text_reply},
    run_command,
    service::ServiceBehavior,
};
use serde_json::{Value, json};

use crate::{
    canaries::{TrafficTap, files_are_clean, is_clean},
    fixture::{PASSWORD, stdio_host},
};

const HOUSE: &str = "house-canary/51c9 \"e2\"";
const DEPLOY: &str = "deploy-canary-0be7714d'x";
const GIVEN: &str = "given-canary-9a41ff02";

/// Rules: tools are free, one secret is for one of them, another for nothing, and the rest requires approval.
const RULES: &str = "
defaults:
  - { pattern: 'secret(*)', action: ask, description: 'who gives a secret away' }
  - { pattern: '*', action: allow }
rules:
  - { pattern: 'secret(HOUSE, turn)', action: allow }
  - { pattern: 'secret(GIVEN, turn)', action: deny }
";

/// Keeps a secret that comes over standard input.
fn keep(place: &GatewayFixture, name: &str, value: &str) {
    let mut command = place.binary_command();
    command.args(["secret", "set", name, "--data"]).arg(place.data_dir());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(value.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    is_clean("secret set", &[output.stdout, output.stderr].concat(), &[value]);
}

/// Starts a gateway with the most detailed log, and a tap on its traffic.
fn start(scene: &GatewayFixture) -> (GatewayServer, TrafficTap) {
    let mut command = scene.binary_command();
    command.args(["serve", "--config", "config.yaml"]).env("COUNTERSIGN_LOG", "trace").env("GIVEN_KEY", GIVEN);
    let mut gateway = GatewayServer::spawn(command);
    let tap = TrafficTap::before(&gateway.address);
    gateway.address.clone_from(&tap.address);
    (gateway, tap)
}

/// Creates a program that may see, answer and chat.
fn program(scene: &GatewayFixture, gateway: &GatewayServer) -> HttpClient {
    let made = scene.run_as_person(&["tokens", "add", "all", "--scope", "read,answer,chat", "--json"]).json();
    let token = format!("Bearer {}", made["token"].as_str().unwrap());
    let program = HttpClient::new(&gateway.address).with_header("authorization", &token);
    eventually("the token", || (program.get("/api/v1/gates").status == 200).then_some(()));
    program
}

/// Looks everywhere but where the secrets are meant to be.
fn nothing_tells(
    scene: &GatewayFixture,
    mut gateway: GatewayServer,
    tap: &TrafficTap,
    meant: &[&str],
    secrets: &[&str],
) {
    gateway.stop();
    let log_text = gateway.log_text();
    // A client of a model logs much.
    assert!(log_text.contains("DEBUG") || scene.provider.request_count() == 0, "the log is not at its most detailed");
    is_clean("the log", log_text.as_bytes(), secrets);
    is_clean("what clients heard", &tap.recorded_bytes(), secrets);
    files_are_clean(&scene.folder, &[&["HOUSE", "DEPLOY"], meant].concat(), secrets);
    for number in 0..scene.provider.request_count() {
        let request = scene.provider.wait_request(number);
        is_clean("what the model is told", format!("{}{}", request.head, request.body).as_bytes(), secrets);
    }
    let data = scene.data_dir();
    let log = scene.log_path();
    for command in [
        &["secret", "list", "--data", data.to_str().unwrap()][..],
        &["config", "show", "--config", "config.yaml"],
        &["doctor", "--config", "config.yaml"],
        &["audit", "export", "--log", log.to_str().unwrap()],
    ] {
        let mut shown = scene.binary_command();
        shown.args(command).env("GIVEN_KEY", GIVEN);
        let output = run_command(shown);
        is_clean(command[0], format!("{}{}", output.out, output.err).as_bytes(), secrets);
    }
    scene.verify_log();
}

fn scene() -> GatewayFixture {
    let scene = GatewayOptions::for_models()
        .with_config(&format!("web: {{ password: {PASSWORD} }}\nsecrets: {{ GIVEN: \"${{GIVEN_KEY}}\" }}\n"))
        .create();
    scene.write_file("permissions.yaml", RULES);
    keep(&scene, "HOUSE", &format!("{HOUSE}\n"));
    keep(&scene, "DEPLOY", DEPLOY);
    scene
}

#[test]
fn a_secret_reaches_its_service_only() {
    let scene = scene();
    let (gateway, tap) = start(&scene);
    let place = &scene;
    let mirror =
        json!({ HOUSE: [HOUSE, format!("u:{HOUSE}"), STANDARD.encode(format!("u:{HOUSE}")), hex(HOUSE)] }).to_string();
    place.service.set_behavior("/turn/lamp", ServiceBehavior::Answer(200, "application/json", mirror.clone()));
    place.service.set_behavior("/turn/wall", ServiceBehavior::Answer(500, "text/html", format!("<p>{mirror}{HOUSE}")));
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT);
    let reply = agent.call_tool(1, "turn", json!({ "thing": "lamp", "way": { "pin": "Bearer {{secret:HOUSE}}" } }));
    let requests = place.service.received_requests();
    assert_eq!(requests[0].body, json!({ "way": { "pin": format!("Bearer {HOUSE}") } }));
    let reply_text = reply.to_string();
    assert!(reply_text.contains(r#""[secret HOUSE]":["[secret HOUSE]","u:[secret HOUSE]","#), "{reply_text}");
    // In an error, and in a path, which the service says back.
    let wall = agent.call_tool(2, "turn", json!({ "thing": "wall", "way": "{{secret:HOUSE}}" })).to_string();
    assert!(wall.contains("[secret HOUSE]"), "{wall}");
    let path = agent.call_tool(3, "turn", json!({ "thing": "x {{secret:HOUSE}}" })).to_string();
    assert!(path.contains("[secret HOUSE]"), "{path}");
    assert!(
        place.service.received_requests()[2].path.contains("house-canary%2F51c9"),
        "{:?}",
        place.service.received_requests()
    );
    for (number, (args, want)) in [
        (json!({ "thing": "lamp", "way": "{{secret:NOBODY}}" }), "there is no secret called NOBODY"),
        (json!({ "thing": "lamp", "way": "{{secret:HOUSE}" }), "is not followed by the name of a secret"),
        (json!({ "thing": "lamp", "way": "{{secret:GIVEN}}" }), "for its use of the secret GIVEN, by rule"),
    ]
    .into_iter()
    .enumerate()
    {
        let refused = agent.call_tool(10 + number, "turn", args).to_string();
        assert!(refused.contains(want), "{refused}");
    }
    // The other one requires approval, and the approver sees which it is.
    agent.request_tool(20, "turn", json!({ "thing": "door", "way": "{{secret:DEPLOY}}" }));
    let gate = place.wait_gate();
    let shown = place.run_as_person(&["gates", "show", &gate]).out;
    assert!(shown.contains("for its use of the secret DEPLOY") && shown.contains("{{secret:DEPLOY}}"), "{shown}");
    assert_eq!(place.service.request_count("/turn/door"), 0);
    place.allow_gate(&gate);
    agent.wait_reply(&json!(20));
    assert_eq!(place.service.received_requests().last().unwrap().body["way"], DEPLOY);
    let explained =
        place.run(&["policy", "explain", "turn", "thing=lamp", "way={{secret:DEPLOY}}", "--config", "config.yaml"]);
    assert!(explained.out.contains("secrets DEPLOY"), "{explained:?}");
    // A secret whose file others may read is not given out.
    let file = place.data_dir().join("secrets/HOUSE");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let open = agent.call_tool(30, "turn", json!({ "thing": "lamp", "way": "{{secret:HOUSE}}" })).to_string();
    assert!(open.contains("is open to others"), "{open}");
    let removed = place.run_as_person(&["secret", "remove", "HOUSE"]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
    let gone = agent.call_tool(31, "turn", json!({ "thing": "lamp", "way": "{{secret:HOUSE}}" })).to_string();
    assert!(gone.contains("there is no secret called HOUSE"), "{gone}");
    drop(agent);
    nothing_tells(&scene, gateway, &tap, &[], &[HOUSE, DEPLOY, GIVEN]);
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_command_gets_a_secret_that_the_model_never_sees() {
    let scene = scene();
    let (gateway, tap) = start(&scene);
    let env = json!({ "KEY": "{{secret:DEPLOY}}", "PLAIN": "1" });
    let tell = "printf %s \"$KEY\" > kept.txt; echo \"1 $KEY\"; printf %s \"$KEY\" | base64; printf x%s \"$KEY\" | base64; \
        printf %s \"$KEY\" | od -An -v -tx1 | tr -d ' \\n'; echo; env; for n in 1 2 3 4 5 6 7 8 9; do printf %s \"${KEY%canary*}\"; done; echo; test \"$KEY\" != \"${KEY#deploy}\" && echo reached";
    scene.provider.script_replies([
        ProviderReply::new(vec![call_part("c1", "bash", &json!({ "command": tell, "env": env }))]),
        ProviderReply::new(vec![call_part(
            "c2",
            "bash",
            &json!({ "command": "echo \"<${KEY-gone}>\"; cat kept.txt; cat kept.txt >&2" }),
        )]),
        ProviderReply::new(vec![call_part("c3", "read", &json!({ "path": "kept.txt" }))]),
        ProviderReply::new(vec![call_part("c4", "grep", &json!({ "pattern": "canary", "path": "." }))]),
        ProviderReply::new(vec![call_part(
            "c5",
            "bash",
            &json!({ "command": "true", "env": { "KEY": "{{secret:NOBODY}}" } }),
        )]),
        ProviderReply::new(vec![call_part("c6", "bash", &json!({ "command": "echo '{{secret:DEPLOY}}'" }))]),
        text_reply("done"),
    ]);
    let program = program(&scene, &gateway);
    let opened = program.post("/api/v1/sessions", &json!({ "message": "go" })).json();
    let path = format!("/api/v1/sessions/{}", opened["id"].as_str().unwrap());
    let gate = eventually("a gate", || {
        Some(program.get("/api/v1/gates").json()["gates"][0].clone()).filter(|gate| gate.is_object())
    });
    let shown = gate.to_string();
    assert!(shown.contains("the secret DEPLOY"), "{shown}");
    let id = gate["id"].as_str().unwrap();
    assert_eq!(program.post(&format!("/api/v1/gates/{id}/allow"), &json!({})).status, 200);
    eventually("rest", || (program.get(&path).json()["state"] == "resting").then_some(()));
    let result = |call: &str| scene.provider.last_request().call_result(call).unwrap();
    let first = result("c1");
    assert!(first.contains("reached") && first.contains("1 [secret DEPLOY]\n[secret DEPLOY]"), "{first}");
    assert!(first.contains("KEY=[secret DEPLOY]") && first.contains("PLAIN=1"), "{first}");
    let second = result("c2");
    assert!(second.contains("<gone>\n[secret DEPLOY][secret DEPLOY]"), "{second}");
    assert!(result("c3").contains("[secret DEPLOY]"), "{}", result("c3"));
    assert!(result("c4").contains("[secret DEPLOY]"), "{}", result("c4"));
    assert!(result("c5").contains("there is no secret called NOBODY"), "{}", result("c5"));
    assert!(result("c6").contains("{{secret:DEPLOY}}"), "{}", result("c6"));
    let kept = find(&scene.folder.join("agents"), "kept.txt");
    assert_eq!(fs::read_to_string(kept).unwrap(), DEPLOY);
    nothing_tells(&scene, gateway, &tap, &["kept.txt"], &[HOUSE, DEPLOY, GIVEN]);
}

fn find(folder: &std::path::Path, name: &str) -> std::path::PathBuf {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.ends_with(name) {
                return entry;
            }
        }
    }
    panic!("no {name}");
}

#[test]
fn a_command_cannot_read_the_file_of_a_secret() {
    let scene = scene();
    let mut command = scene.binary_command();
    command.args(["serve", "--config", "config.yaml"]).env("GIVEN_KEY", GIVEN);
    let gateway = GatewayServer::spawn(command);
    let file = scene.data_dir().join("secrets/DEPLOY");
    let file = file.to_str().unwrap();
    scene.provider.script_replies([
        ProviderReply::new(vec![call_part("c1", "bash", &json!({ "command": format!("cat {file}") }))]),
        ProviderReply::new(vec![call_part("c2", "read", &json!({ "path": file }))]),
        text_reply("done"),
    ]);
    let program = program(&scene, &gateway);
    let opened = program.post("/api/v1/sessions", &json!({ "message": "go" })).json();
    let path = format!("/api/v1/sessions/{}", opened["id"].as_str().unwrap());
    eventually("rest", || (program.get(&path).json()["state"] == "resting").then_some(()));
    for call in ["c1", "c2"] {
        let result = scene.provider.last_request().call_result(call).unwrap();
        assert!(result.contains("because the keys and rules of the gateway lie in"), "{result}");
    }
}

#[test]
fn a_host_without_secrets_gets_an_error_that_there_are_none() {
    let scene = GatewayFixture::for_peers();
    let agent = stdio_host::agent_dir(&scene, "defaults:\n  - { pattern: '*', action: allow }\n");
    let mut host = stdio_host::StdioHost::start(&scene, "omp", "PI_CODING_AGENT_DIR", &agent, &[]);
    let asks = json!({ "command": "echo ran-it $KEY", "env": { "KEY": "{{secret:DEPLOY}}" } });
    scene.provider.script_replies([ProviderReply::new(vec![call_part("c1", "bash", &asks)]), text_reply("done")]);
    host.send_frame(&json!({ "id": "p", "type": "prompt", "message": "go" }));
    host.wait_frame("the end", |frame: &Value| frame.to_string().contains("\"agent_end\""));
    let result = scene.provider.last_request().call_result("c1").unwrap();
    assert!(result.contains("there is no secret called DEPLOY") && !result.contains("ran-it"), "{result}");
    host.close_and_read();
}
