//! Settings: valid values, hidden values, and the state after a crash during a change.

use std::{fs, os::unix::fs::PermissionsExt as _};

use countersign_testkit::process::{
    GatewayFixture, GatewayOptions, GatewayServer,
    gsv::{GsvPeer, GsvSocketEvent, TOKEN, connect_params, error_body},
};
use serde_json::{Value, json};

fn set(peer: &mut GsvPeer, path: &str, value: Value) {
    assert_eq!(
        peer.expect_ok("config.set", json!({ "path": path, "value": value })),
        json!({ "ok": true, "path": path })
    );
}

fn get(peer: &mut GsvPeer, path: &str) -> Value {
    peer.expect_ok("config.get", json!({ "path": path }))["value"].take()
}

/// Reports whether a client with this token is admitted.
fn is_let_in(gateway: &GatewayServer, token: &str) -> bool {
    let mut peer = GsvPeer::open_connection(gateway);
    let mut params = connect_params("client", "who");
    params["auth"]["token"] = token.into();
    peer.call_method("connect", params)["ok"] == true
}

/// Returns every file of the data directory that contains a text.
fn files_with(scene: &GatewayFixture, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![scene.data_dir()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else if let Ok(bytes) = fs::read(entry.path())
                && bytes.windows(text.len()).any(|at| at == text.as_bytes())
            {
                found.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
    }
    found
}

#[test]
fn what_is_set_counts_at_once_and_after_a_kill_and_what_is_taken_out_has_its_default() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    assert_eq!(get(&mut peer, "timeouts.toolMs"), json!(60_000));
    assert_eq!(get(&mut peer, "model"), json!({ "provider": "local", "id": "small-1" }));
    assert_eq!(peer.expect_ok("config.get", json!({ "path": "wings" })), json!({ "path": "wings" }));
    set(&mut peer, "timeouts.toolMs", json!(5_000));
    set(&mut peer, "channels.telegram", json!({ "dmPolicy": "pairing", "allowFrom": ["1"] }));
    set(&mut peer, "model.id", json!("small-2"));
    let stats = peer.expect_ok("chat.send", json!({ "sessionKey": "main", "message": "/status" }));
    assert!(stats["response"].as_str().unwrap().contains("local/small-2"), "{stats}");
    let all = peer.expect_ok("config.get", json!({}));
    assert_eq!(all["config"]["channels"]["telegram"]["allowFrom"], json!(["1"]));
    gateway.kill();
    let gateway = scene.start();
    let mut peer = GsvPeer::connect_client(&gateway, "again");
    assert_eq!(peer.expect_ok("config.get", json!({})), all);
    set(&mut peer, "timeouts.toolMs", Value::Null);
    assert_eq!(get(&mut peer, "timeouts.toolMs"), json!(60_000));
    scene.verify_log();
}

#[test]
fn what_a_setting_cannot_be_is_refused_with_its_path() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let before = peer.expect_ok("config.get", json!({}));
    for (path, value, want) in [
        (
            "timeouts.toolMs",
            json!("5"),
            "Invalid value for timeouts.toolMs: a whole number from 1000 to 3600000 is wanted",
        ),
        (
            "session",
            json!({ "dmScope": "x" }),
            "Invalid value for session.dmScope: one of main, per-peer, per-channel-peer, per-account-channel-peer is wanted",
        ),
        ("wings", json!(1), "Unknown setting: wings"),
        ("a..b", json!(1), "Invalid config path: a..b"),
        ("__proto__.x", json!(1), "Invalid config path: __proto__.x"),
        (
            "userTimezone",
            json!("Mars/North"),
            "Invalid value for userTimezone: a time zone such as Europe/Berlin is wanted",
        ),
        (
            "auth.token",
            json!("***"),
            "Invalid value for auth.token: *** stands for the secret, and is not the secret itself",
        ),
        ("systemPrompt", json!("x".repeat(40_000)), "a setting is longer than 32768 bytes"),
        (
            "agents.list",
            json!([{ "id": "a" }, { "id": "a" }]),
            "Invalid value for agents.list.1.id: another one has it",
        ),
    ] {
        let refused = peer.expect_error("config.set", json!({ "path": path, "value": value }));
        assert_eq!(refused, error_body(400, want), "{path}");
    }
    assert_eq!(peer.expect_error("config.set", json!({ "value": 1 })), error_body(400, "path required"));
    assert_eq!(peer.expect_error("config.set", json!({ "path": "cron.enabled" })), error_body(400, "value required"));
    assert_eq!(peer.expect_ok("config.get", json!({})), before);
}

#[test]
fn a_secret_lies_in_its_own_file_and_nowhere_else() {
    const SECRET: &str = "sk-very-secret-0815";
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    set(&mut peer, "apiKeys.anthropic", json!(SECRET));
    set(&mut peer, "auth", json!({ "token": format!("{SECRET}-token") }));
    for (path, want) in [
        ("apiKeys.anthropic", json!("***")),
        ("apiKeys", json!({ "anthropic": "***" })),
        ("auth", json!({ "token": "***" })),
    ] {
        assert_eq!(get(&mut peer, path), want);
    }
    let all = peer.expect_ok("config.get", json!({}));
    assert_eq!(
        (&all["config"]["apiKeys"], &all["config"]["auth"]),
        (&json!({ "anthropic": "***" }), &json!({ "token": "***" }))
    );
    assert_eq!(files_with(&scene, SECRET), ["secrets.yaml"]);
    let file = scene.data_dir().join("secrets.yaml");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    gateway.kill();
    let gateway = scene.start();
    assert!(is_let_in(&gateway, &format!("{SECRET}-token")) && !is_let_in(&gateway, TOKEN));
}

#[test]
fn a_changed_token_counts_at_once_and_one_that_is_lost_lets_nobody_in() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    set(&mut peer, "auth.token", json!("first"));
    assert!(is_let_in(&gateway, "first") && !is_let_in(&gateway, TOKEN));
    set(&mut peer, "auth.token", json!("second"));
    assert!(is_let_in(&gateway, "second") && !is_let_in(&gateway, "first"));
    assert!(files_with(&scene, "\"first\"").is_empty());
    set(&mut peer, "auth.token", Value::Null);
    assert!(is_let_in(&gateway, TOKEN) && !is_let_in(&gateway, "second"));
    set(&mut peer, "auth.token", json!("third"));
    gateway.kill();
    fs::remove_file(scene.data_dir().join("secrets.yaml")).unwrap();
    let gateway = scene.start();
    let mut peer = GsvPeer::open_connection(&gateway);
    for token in ["third", TOKEN, "", "***"] {
        assert!(!is_let_in(&gateway, token), "{token}");
    }
    peer.send_request("connect", connect_params("client", "who"));
    assert!(matches!(peer.read_frame(), GsvSocketEvent::Frame(_)));
}

/// Checks that a client with the old token has to show the new one, except the client that set it.
#[test]
fn a_changed_token_ends_the_connections_that_showed_another() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    let mut other = GsvPeer::connect_client(&gateway, "other");
    let mut node = GsvPeer::connect_node(&gateway, "kitchen", &["Read"]);
    set(&mut peer, "auth.token", json!("second"));
    for gone in [&mut other, &mut node] {
        let end =
            std::iter::repeat_with(|| gone.read_frame()).find(|received| !matches!(received, GsvSocketEvent::Frame(_)));
        assert!(matches!(&end, Some(GsvSocketEvent::Closed(4001, _))), "{end:?}");
    }
    assert_eq!(get(&mut peer, "timeouts.toolMs"), json!(60_000));
}

/// Simulates a crash between writing the file and recording the change.
#[test]
fn a_secret_that_is_not_in_the_record_does_not_count() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    set(&mut peer, "auth.token", json!("recorded"));
    gateway.kill();
    let file = scene.data_dir().join("secrets.yaml");
    let mut text = fs::read_to_string(&file).unwrap();
    text.push_str("- path: [\"auth\",\"token\"]\n  salt: \"00\"\n  value: \"unrecorded\"\n");
    fs::write(&file, text).unwrap();
    let gateway = scene.start();
    assert!(is_let_in(&gateway, "recorded") && !is_let_in(&gateway, "unrecorded"));
    assert!(!fs::read_to_string(&file).unwrap().contains("unrecorded"));
}

#[test]
fn changes_from_several_at_once_all_count() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    let mut other = GsvPeer::connect_client(&gateway, "other");
    let ids: Vec<String> = (0..20)
        .map(|number| {
            let change = json!({ "path": format!("session.identityLinks.p{number}"), "value": ["1"] });
            if number % 2 == 0 {
                peer.send_request("config.set", change)
            } else {
                other.send_request("config.set", change)
            }
        })
        .collect();
    for (number, id) in ids.iter().enumerate() {
        let answer = if number % 2 == 0 { peer.wait_response(id) } else { other.wait_response(id) };
        assert_eq!(answer["ok"], true, "{answer}");
    }
    assert_eq!(get(&mut peer, "session.identityLinks").as_object().unwrap().len(), 20);
}

#[test]
fn a_gateway_for_other_machines_keeps_its_token() {
    let scene = GatewayOptions::for_models().with_config("").create();
    let (mut gateway, mut peer) = scene.start_peer();
    set(&mut peer, "auth.token", json!(TOKEN));
    set(&mut peer, "auth.token", Value::Null);
    set(&mut peer, "auth.token", json!(TOKEN));
    gateway.stop();
    let gateway = GatewayServer::start_with(&scene, &["--host", "0.0.0.0", "--insecure"]);
    let mut peer = GsvPeer::connect_client(&gateway, "again");
    let want = "without a token nobody may connect from another machine, and this gateway serves them";
    for path in ["auth.token", "auth"] {
        let refused = peer.expect_error("config.set", json!({ "path": path, "value": null }));
        assert_eq!(refused, error_body(400, &format!("Invalid value for {path}: {want}")));
    }
    set(&mut peer, "auth.token", json!("another"));
    assert!(is_let_in(&gateway, "another"));
}
