//! The folders of agents, over the wire and as runs see them.

use std::{fs, os::unix::fs::symlink};

use countersign_testkit::process::{
    GatewayFixture,
    gsv::{GsvPeer, error_body},
    provider::{ProviderReply, call_part, text_reply},
};
use serde_json::{Value, json};

use crate::chat::{message_text, talk};

fn at(path: &str) -> Value {
    json!({ "path": path })
}

#[test]
fn a_file_is_written_read_listed_and_deleted() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    assert_eq!(peer.expect_ok("workspace.list", json!({})), json!({ "path": "/", "files": [], "directories": [] }));
    let write = |path: &str, content: &str| json!({ "path": path, "content": content });
    let written = peer.expect_ok("workspace.write", write("/memory/2026-01-31.md", "grün"));
    assert_eq!(written, json!({ "path": "/memory/2026-01-31.md", "size": 4, "written": true }));
    peer.expect_ok("workspace.write", write("SOUL.md", ""));
    let listed = peer.expect_ok("workspace.list", json!({}));
    assert_eq!(listed, json!({ "path": "/", "files": ["SOUL.md"], "directories": ["memory/"] }));
    let listed = peer.expect_ok("workspace.list", at("memory"));
    assert_eq!(listed, json!({ "path": "memory", "files": ["memory/2026-01-31.md"], "directories": [] }));
    let read = peer.expect_ok("workspace.read", at("memory/2026-01-31.md"));
    assert_eq!((&read["content"], &read["size"]), (&json!("grün"), &json!(5)));
    assert!(read["lastModified"].as_str().unwrap().ends_with('Z'));
    assert!(scene.folder.join("agents/main/memory/2026-01-31.md").is_file());
    let deleted = peer.expect_ok("workspace.delete", at("SOUL.md"));
    assert_eq!(deleted, json!({ "path": "SOUL.md", "deleted": true }));
    let of_other = json!({ "path": "a", "content": "x", "agentId": "Other One" });
    peer.expect_ok("workspace.write", of_other);
    assert!(scene.folder.join("agents/other-one/a").is_file());
}

#[test]
fn what_leads_out_of_the_folder_is_refused() {
    let scene = GatewayFixture::for_peers();
    let agent = scene.folder.join("agents/main");
    fs::create_dir_all(&agent).unwrap();
    fs::write(scene.folder.join("agents/secret"), "s").unwrap();
    symlink("../secret", agent.join("leak")).unwrap();
    symlink("..", agent.join("up")).unwrap();
    let (_gateway, mut peer) = scene.start_peer();
    for path in ["../secret", "a/../../secret", "a\\..\\b", "leak", "up/secret", "C:/x"] {
        for method in ["read", "write", "delete"] {
            let refused = peer.expect_error(&format!("workspace.{method}"), json!({ "path": path, "content": "x" }));
            assert_eq!(refused, error_body(500, "Path traversal not allowed"), "{method} {path}");
        }
    }
    assert_eq!(peer.expect_error("workspace.list", at("up")), error_body(500, "Path traversal not allowed"));
    assert_eq!(peer.expect_ok("workspace.list", json!({}))["directories"], json!([]));
    assert_eq!(peer.expect_error("workspace.read", at("a\0b")), error_body(400, "path must not contain NUL"));
    assert_eq!(peer.expect_error("workspace.read", at("/")), error_body(400, "path required"));
    assert_eq!(peer.expect_error("workspace.read", at("none")), error_body(404, "File not found: none"));
    assert_eq!(peer.expect_error("workspace.delete", at("none")), error_body(404, "File not found: none"));
    assert_eq!(peer.expect_error("workspace.write", at("a")), error_body(400, "content is required"));
    let large = json!({ "path": "a", "content": "x".repeat((16 << 20) + 1) });
    assert_eq!(peer.expect_error("workspace.write", large)["code"], 400);
    fs::write(agent.join("image"), [0xff, 0xfe]).unwrap();
    assert_eq!(peer.expect_error("workspace.read", at("image")), error_body(500, "image is not UTF-8 text"));
    assert_eq!(fs::read_to_string(scene.folder.join("agents/secret")).unwrap(), "s");
}

#[test]
fn a_run_works_with_its_own_files_by_the_gateways_tools() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let calls = [
        call_part("c5", "gsv__ReadFile", &json!({ "_i": "r", "path": "../../countersign.yaml" })),
        call_part("c0", "gsv__WriteFile", &json!({ "_i": "w", "path": "/notes/a.md", "content": "one two" })),
        call_part(
            "c1",
            "gsv__EditFile",
            &json!({ "_i": "e", "path": "notes/a.md", "oldString": "two", "newString": "three" }),
        ),
        call_part("c2", "gsv__ReadFile", &json!({ "_i": "r", "path": "notes/a.md" })),
        call_part("c3", "gsv__ListFiles", &json!({ "_i": "l", "path": "/" })),
        call_part("c4", "gsv__DeleteFile", &json!({ "_i": "d", "path": "notes/a.md" })),
        call_part("c6", "gsv__ConfigGet", &json!({ "_i": "g", "path": "timeouts.toolMs" })),
    ];
    peer.expect_ok("config.set", json!({ "path": "apiKeys.local", "value": "sk-not-for-models" }));
    scene.provider.script_replies([ProviderReply::new(Vec::from(calls)), text_reply("done")]);
    assert_eq!(message_text(&talk(&mut peer, "main", "please", "r-1")), "done");
    let shown = peer.expect_ok("session.preview", json!({ "sessionKey": "main" }));
    // Reads run in parallel.
    let mut results: Vec<(&str, &str)> = shown["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "toolResult")
        .map(|message| (message["toolCallId"].as_str().unwrap(), message["content"][0]["text"].as_str().unwrap()))
        .collect();
    results.sort_unstable();
    let results: Vec<&str> = results.into_iter().map(|(_, text)| text).collect();
    assert_eq!(
        results,
        [
            r#"{"path":"notes/a.md","size":7,"written":true}"#,
            r#"{"path":"notes/a.md","replacements":1}"#,
            "one three",
            r#"{"files":[],"directories":["notes/"]}"#,
            r#"{"path":"notes/a.md","deleted":true}"#,
            "Error: Path traversal not allowed",
            r#"{"path":"timeouts.toolMs","value":60000}"#,
        ]
    );
}

#[test]
fn what_a_run_changes_passes_policy_and_its_gate() {
    let scene = GatewayFixture::for_peers();
    scene.write_file("permissions.yaml", "defaults:\n  - { pattern: 'gsv__WriteFile(*', action: ask }\n  - { pattern: '*', action: allow }\nrules:\n  - { pattern: 'gsv__DeleteFile(*', action: deny }\n");
    let (_gateway, mut peer) = scene.start_peer();
    let write = call_part("c0", "gsv__WriteFile", &json!({ "_i": "w", "path": "/a.md", "content": "x" }));
    let delete = call_part("c1", "gsv__DeleteFile", &json!({ "_i": "d", "path": "b.md" }));
    let file = |name: &str| scene.folder.join("agents/main").join(name);
    fs::create_dir_all(file("")).unwrap();
    fs::write(file("b.md"), "stays").unwrap();
    scene.provider.script_replies([ProviderReply::new(vec![write, delete]), text_reply("done")]);
    let card = talk(&mut peer, "main", "please", "r-1");
    assert!(message_text(&card).contains("gsv__WriteFile:\npath: a.md\ncontent: x"), "{card}");
    assert!(!file("a.md").exists());
    let answer = |peer: &mut GsvPeer| {
        peer.expect_ok("chat.send", json!({ "sessionKey": "main", "message": "yes", "runId": "r-2" }))
    };
    answer(&mut peer);
    assert_eq!(message_text(&peer.wait_event("chat", &json!({ "runId": "r-2", "state": "final" }))), "done");
    assert_eq!(fs::read_to_string(file("a.md")).unwrap(), "x");
    assert_eq!(fs::read_to_string(file("b.md")).unwrap(), "stays");
}
