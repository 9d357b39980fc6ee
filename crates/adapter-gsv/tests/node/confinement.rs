//! Limits of a node, for every caller.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
};

use serde_json::json;

use crate::{
    fake_gateway::FakeGateway,
    node_process::{NodeFixture, SpawnedNode},
};

#[test]
fn files_stay_in_the_workspace_through_links_too() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    place.write("outside/secret", "secret\n");
    symlink(place.folder.join("outside"), place.workspace_path("out")).unwrap();
    symlink(place.folder.join("outside/secret"), place.workspace_path("leak")).unwrap();
    symlink(place.folder.join("outside/new"), place.workspace_path("dangling")).unwrap();
    let (_node, mut line) = place.start_connected(&gateway);
    let paths = ["out/secret", "leak", "dangling", "../outside/secret", "/etc/passwd", "../data/node.db", "../token"];
    for (at, path) in paths.iter().enumerate() {
        for (tool, args) in [
            ("Read", json!({ "path": path })),
            ("Write", json!({ "path": path, "content": "x" })),
            ("Edit", json!({ "path": path, "oldString": "secret", "newString": "x" })),
            ("Glob", json!({ "pattern": "*", "path": path })),
            ("Grep", json!({ "pattern": ".", "path": path })),
            ("Bash", json!({ "command": "pwd", "workdir": path })),
        ] {
            let error = line.fails(&format!("c-{at}-{tool}"), tool, args);
            assert!(
                error.contains("outside of the allowed folder") || error.contains("Refused by the node"),
                "{tool} {path}: {error}"
            );
        }
    }
    assert_eq!(line.call("c1", "Grep", json!({ "pattern": "secret" }))["count"], 0);
    assert_eq!(place.read("outside/secret"), "secret\n");
    assert!(!fs::exists(place.folder.join("outside/new")).unwrap());
}

#[test]
fn what_a_node_keeps_is_for_its_user_alone() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    // As an earlier version made it.
    place.write("data/node.db", "");
    fs::set_permissions(place.folder.join("data/node.db"), fs::Permissions::from_mode(0o644)).unwrap();
    let (_node, mut line) = place.start_connected(&gateway);
    line.call("c1", "Bash", json!({ "command": "true" }));
    for kept in fs::read_dir(place.folder.join("data")).unwrap().map(Result::unwrap) {
        let mode = kept.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{:?} has mode {mode:o}", kept.file_name());
    }
}

#[test]
fn what_the_machine_denies_is_not_done_and_what_destroys_neither() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    place.write("data/permissions.yaml", "rules:\n  - { pattern: 'bash(git push*)', action: deny }\n");
    let (_node, mut line) = place.start_connected(&gateway);
    for (call, command, want) in [
        ("c1", "git push origin main", "Refused by the node: bash is denied by rule \"bash(git push*)\""),
        ("c2", "true; rm -rf /", "Refused by the node, which cannot ask for approval: bash needs approval because it"),
        ("c3", "cat ../data/permissions.yaml", "Refused by the node: bash is denied because"),
        ("c4", "echo > ../token", "Refused by the node: bash is denied because"),
    ] {
        let error = line.fails(call, "Bash", json!({ "command": command }));
        assert!(error.starts_with(want), "{command}: {error}");
    }
    assert_eq!(line.call("c5", "Bash", json!({ "command": "git --version > /dev/null || true" }))["exitCode"], 0);
}

#[test]
fn rules_that_would_not_deny_keep_a_node_from_starting() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    place.write(
        "data/permissions.yaml",
        "rules:\n  - { pattern: 'Bash(*)', action: deny }\n  - { pattern: '*', action: allow }\n",
    );
    let end = SpawnedNode::spawn(place.command(&gateway.url(), &["--token-file", "token"])).end();
    assert_eq!(end.code, Some(1));
    assert!(end.stderr.contains("permissions.yaml:2: Bash is called bash in rules"), "{}", end.stderr);
    assert!(end.stderr.contains("permissions.yaml:3: a node can only deny"), "{}", end.stderr);
}

#[test]
fn commands_cannot_read_the_token_of_the_node() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    let mut command = place.command(&gateway.url(), &["--token-env", "SECRET_OF_NODE"]);
    command.env("SECRET_OF_NODE", "tok-env");
    let _node = SpawnedNode::spawn(command);
    let mut line = gateway.accept();
    assert_eq!(line.hello["auth"], json!({ "token": "tok-env" }));
    // Nothing in a process is hidden from the system's administrator.
    let look = if nix::unistd::geteuid().is_root() { "env" } else { "env; cat /proc/[0-9]*/environ 2>/dev/null; true" };
    let output = line.call("c1", "Bash", json!({ "command": look }))["output"].to_string();
    assert!(!output.contains("tok-env") && !output.contains("SECRET_OF_NODE"), "{output}");
    assert!(!line.hello["nodeRuntime"]["hostEnv"].to_string().contains("SECRET_OF_NODE"));
}
