//! Links in the paths of calls: each path is judged as the system follows it, when it is decided and when the decision is taken.

use std::{fs, os::unix::fs::symlink, path::Path};

use countersign_testkit::process::{GatewayFixture, GatewayOptions, GatewayServer};
use serde_json::{Value, json};

use crate::hook_process::{HookAnswer, RunningHook, claude_input, decision, run_hook};

fn fixture(rules: &str) -> GatewayFixture {
    let place = GatewayOptions::new().with_rules(rules).create();
    for folder in ["w", "s/d"] {
        fs::create_dir_all(place.folder.join(folder)).unwrap();
    }
    place
}

fn path(place: &GatewayFixture, path: &str) -> String {
    place.folder.join(path).to_str().unwrap().to_owned()
}

fn set_link(link: &Path, target: &str) {
    let _ = fs::remove_file(link);
    symlink(target, link).unwrap();
}

/// Writes a file below the folder of the program: outside of it, what is hidden is a file that other programs obey.
fn opencode_write(place: &GatewayFixture, file: &str) -> Value {
    json!({
        "hook_event_name": "tool.execute.before", "tool": "write", "sessionID": "ses_0", "callID": "call_1",
        "args": {"filePath": path(place, file), "content": "x"}, "cwd": path(place, "w"),
    })
}

fn document(answer: &HookAnswer) -> &Value {
    answer.document.as_ref().unwrap_or_else(|| panic!("{answer:?}"))
}

#[test]
fn a_step_up_behind_a_link_leads_past_no_rule_and_no_protected_file() {
    let place = fixture("defaults:\n  - { pattern: \"*\", action: allow }\n");
    let _gateway = GatewayServer::start(&place);
    set_link(&place.folder.join("w/link"), "../s/d");
    set_link(&place.folder.join("w/data"), place.data_dir().to_str().unwrap());
    for (target, is_allowed) in [
        ("w/plain.txt", true),
        ("w/link/made.txt", true),
        ("w/link/../owned.txt", false),
        ("w/data/../permissions.yaml", false),
        ("w/data/web.key", false),
        ("w/new/../plain.txt", false),
    ] {
        let answer = run_hook(&place, "opencode", &opencode_write(&place, target));
        let word = &document(&answer)["decision"];
        assert_eq!(word, if is_allowed { "allow" } else { "deny" }, "{target}: {answer:?}");
    }
    // The same under another name, in another tool.
    for arguments in [
        json!({"destination": path(&place, "w/data/../permissions.yaml")}),
        json!({"paths": [path(&place, "w/data/web.key")]}),
        json!({"edits": [{"path": path(&place, "permissions.yaml")}]}),
        json!({"file_uri": format!("file://{}", path(&place, "permissions.yaml"))}),
    ] {
        let (word, why) = decision(&run_hook(&place, "claude", &claude_input("mcp__fs__x", arguments.clone())));
        assert_eq!(word, "deny", "{arguments}: {why}");
    }
    assert!(place.pending_gates().is_empty());
}

#[test]
fn a_decision_is_not_taken_by_a_call_whose_link_leads_elsewhere() {
    let place = fixture("defaults:\n  - { pattern: \"*\", action: ask }\n");
    let _gateway = GatewayServer::start(&place);
    let link = place.folder.join("w/link");
    set_link(&link, "../s");
    let input = claude_input("Write", json!({"file_path": path(&place, "w/link/permissions.yaml"), "content": "x"}));
    let ask = || RunningHook::start(&place, "claude", &["--wait", "1"], &input.to_string()).finish();
    assert_eq!(decision(&ask()).0, "deny");
    place.allow_gate(&place.wait_gate());
    set_link(&link, place.folder.to_str().unwrap());
    let (word, why) = decision(&ask());
    assert!(word == "deny" && why.contains("Denied by policy"), "{why}");
    set_link(&link, "../s/d");
    assert_eq!(decision(&ask()).0, "deny", "another file is another question");
    set_link(&link, "../s");
    assert_eq!(decision(&ask()).0, "allow", "the decision is kept for the file that was shown");
}

#[test]
fn a_link_that_changes_while_a_person_is_asked_stops_the_call() {
    let place = fixture("defaults:\n  - { pattern: \"*\", action: ask }\n");
    let _gateway = GatewayServer::start(&place);
    let link = place.folder.join("w/link");
    set_link(&link, "../s");
    let input = claude_input("Write", json!({"file_path": path(&place, "w/link/permissions.yaml"), "content": "x"}));
    let hook = RunningHook::start(&place, "claude", &[], &input.to_string());
    let gate = place.wait_gate();
    set_link(&link, place.folder.to_str().unwrap());
    place.allow_gate(&gate);
    let (word, why) = decision(&hook.finish());
    assert!(word == "deny" && why.contains("leads elsewhere"), "{why}");
}
