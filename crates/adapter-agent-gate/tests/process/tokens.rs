//! Agents and their tokens, changed at the command line.

use std::{fs, os::unix::fs::PermissionsExt as _};

use countersign_testkit::process::{CommandOutput, GatewayFixture, GatewayServer, agent_gate::AgentClient};
use serde_json::{Value, json};

fn agents(place: &GatewayFixture, arguments: &[&str]) -> CommandOutput {
    place.run(&[&["agents"], arguments, &["--config", "config.yaml"]].concat())
}

fn made(place: &GatewayFixture, arguments: &[&str]) -> Value {
    let output = agents(place, &[arguments, &["--json"]].concat());
    assert_eq!(output.code, Some(0), "{output:?}");
    output.json()
}

/// Reports whether a gateway that starts now admits an agent with this token.
fn lets_in(gateway: &GatewayServer, token: &Value) -> bool {
    AgentClient::connect(gateway).authenticate(token.as_str().unwrap()).get("result").is_some()
}

#[test]
fn a_new_agent_is_let_in_after_a_restart_and_its_token_is_shown_once() {
    let place = GatewayFixture::new();
    let mut gateway = GatewayServer::start(&place);
    let output = agents(&place, &["add", "garage"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.out.contains("The running gateway does not know this token yet: restart it."), "{output:?}");
    let config = fs::read_to_string(place.folder.join("config.yaml")).unwrap();
    let token = output.out.lines().map(str::trim).find(|line| line.len() == 43).unwrap().to_owned();
    assert!(config.contains(&token), "{config}");
    assert!(!lets_in(&gateway, &json!(token)));
    gateway.stop();
    let gateway = GatewayServer::start(&place);
    assert!(lets_in(&gateway, &json!(token)));
    let listed = agents(&place, &["list"]);
    assert_eq!(listed.out, "default  token in the file\nkitchen  token in the file\ngarage   token in the file\n");
}

#[test]
fn another_token_shuts_the_old_one_out() {
    let place = GatewayFixture::new();
    let first = made(&place, &["rotate", "kitchen"]);
    let second = made(&place, &["rotate", "kitchen"]);
    assert_eq!((&second["restart_needed"], first["token"] == second["token"]), (&json!(false), false));
    let gateway = GatewayServer::start(&place);
    assert!(lets_in(&gateway, &second["token"]));
    assert!(!lets_in(&gateway, &first["token"]));
}

#[test]
fn a_removed_agent_is_not_let_in() {
    let place = GatewayFixture::new();
    let token = made(&place, &["rotate", "kitchen"])["token"].clone();
    assert_eq!(agents(&place, &["remove", "kitchen"]).out, "removed kitchen in config.yaml\n");
    assert!(!lets_in(&GatewayServer::start(&place), &token));
    for (arguments, message) in [
        (["remove", "kitchen"], "agent kitchen does not exist; list agents with `countersign agents list`"),
        (["rotate", "kitchen"], "agent kitchen does not exist; list agents with `countersign agents list`"),
        (
            ["add", "default"],
            "agent default already exists; replace its token with `countersign agents rotate default`",
        ),
        (["add", "a b"], "invalid agent name \"a b\""),
    ] {
        let output = agents(&place, &arguments);
        assert_eq!((output.code, output.err.contains(message)), (Some(1), true), "{output:?}");
    }
}

#[test]
fn a_token_in_a_variable_leaves_no_trace_in_the_file() {
    let place = GatewayFixture::new();
    let config = || fs::read_to_string(place.folder.join("config.yaml")).unwrap();
    let added = made(&place, &["add", "shed", "--env", "SHED_TOKEN"]);
    assert_eq!(added["variable"], json!("SHED_TOKEN"));
    let between = config();
    let rotated = made(&place, &["rotate", "shed"]);
    assert_eq!((&rotated["variable"], config()), (&json!("SHED_TOKEN"), between.clone()));
    for made in [&added, &rotated] {
        assert!(!between.contains(made["token"].as_str().unwrap()), "{between}");
    }
    assert!(between.contains("token: \"${SHED_TOKEN}\""), "{between}");
    // The list needs no variable to be set.
    assert!(agents(&place, &["list"]).out.contains("shed     token from $SHED_TOKEN\n"));
    let mut command = place.binary_command();
    command.args(["serve", "--config", "config.yaml"]).env("SHED_TOKEN", rotated["token"].as_str().unwrap());
    let gateway = GatewayServer::spawn(command);
    assert!(lets_in(&gateway, &rotated["token"]));
    assert_eq!(agents(&place, &["add", "x", "--env", "A-B"]).code, Some(2));
}

#[test]
fn comments_and_order_of_the_file_stay() {
    let place = GatewayFixture::new();
    let text = "# top\nagents:  # all of them\n  # the first\n  - id: a\n    token: x  # old\n\n# the port\ngateway: { port: 0 }\n";
    place.write_file("config.yaml", text);
    made(&place, &["add", "b"]);
    made(&place, &["remove", "b"]);
    assert_eq!(fs::read_to_string(place.folder.join("config.yaml")).unwrap(), text);
    fs::set_permissions(place.folder.join("config.yaml"), fs::Permissions::from_mode(0o644)).unwrap();
    let output = agents(&place, &["rotate", "a"]);
    assert!(output.out.contains("only its owner can read it now"), "{output:?}");
    let mode = fs::metadata(place.folder.join("config.yaml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let fresh = place.run(&["agents", "add", "first", "--config", "new.yaml"]);
    let mode = fs::metadata(place.folder.join("new.yaml")).unwrap().permissions().mode();
    assert_eq!((fresh.code, mode & 0o777), (Some(0), 0o600), "{fresh:?}");
    assert_eq!(place.run(&["config", "check", "--config", "new.yaml"]).code, Some(0));
    assert_eq!(place.run(&["agents", "list"]).code, Some(0), "the configuration of the folder is read");
    fs::remove_file(place.folder.join("config.yaml")).unwrap();
    assert_eq!(place.run(&["agents", "list"]).code, Some(1), "without a configuration there is nothing to list");
}
