//! Names that scripts, spreadsheets and backups hold: keys of what commands and the API print, files of the data directory.
//!
//! The golden file has one line for each; `UPDATE_GOLDEN=1` writes it. A line that goes away breaks a user's script.

use std::{collections::BTreeSet, path::Path};

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayServer, RULES, agent_gate::AgentClient, api::ApiClient,
};
use serde_json::{Value, json};

/// Collects the members of `value`, each with the kinds of its values.
fn keys(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(items) => {
            for item in items {
                keys(item, &format!("{at}[]"), found);
            }
            return;
        }
        Value::Object(members) => {
            for (name, member) in members {
                keys(member, &format!("{at}.{name}"), found);
            }
            return;
        }
    };
    found.insert(format!("{at} {kind}"));
}

/// Collects every file below `folder`, without random names and the files of the database.
fn files(folder: &Path, at: &str, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let is_drawn = name.len() >= 8 && name.chars().all(|letter| letter.is_ascii_hexdigit() || letter == '-');
        let name = if is_drawn { "<ID>" } else { &name };
        if name.ends_with("-wal") || name.ends_with("-shm") {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            found.insert(format!("{at}/{name}/"));
            files(&entry.path(), &format!("{at}/{name}"), found);
        } else {
            found.insert(format!("{at}/{name}"));
        }
    }
}

#[test]
fn names_that_others_hold_stay_as_they_are() {
    let more = "web: { password: correct-horse }\nmodel: { provider: demo, id: scripted-1 }";
    let place = GatewayFixture::with_config_and_rules(more, RULES);
    let mut gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.call_tool(1, "turn", json!({ "thing": "lamp", "way": "on" }));
    agent.call_tool(2, "turn", json!({ "thing": "lock" }));
    agent.request_tool(3, "turn", json!({ "thing": "door", "way": "open" }));
    let first = place.wait_gate();
    let made = place.run_as_person(&["gates", "allow", &first, "--scope", "always", "--json"]);
    agent.wait_reply(&json!(3));
    place.wait_gates(0);
    agent.request_tool(4, "turn", json!({ "thing": "gate", "way": "open" }));
    let denied = place.run_as_person(&["gates", "deny", &place.wait_gate(), "--reason", "not now", "--json"]);
    agent.wait_reply(&json!(4));
    agent.request_tool(5, "turn", json!({ "thing": "window", "way": "open" }));
    let waiting = place.wait_gate();

    let mut found = BTreeSet::new();
    assert_eq!((made.code, denied.code), (Some(0), Some(0)), "{made:?} {denied:?}");
    keys(&made.json(), "gates allow", &mut found);
    keys(&denied.json(), "gates deny", &mut found);
    let token = place.run_as_person(&["tokens", "add", "all", "--scope", "read,answer,chat", "--json"]).json();
    let program = ApiClient { gateway: &gateway, token: token["token"].as_str().unwrap().to_owned() };
    keys(&token, "tokens add", &mut found);
    for arguments in [
        &["gates", "list"][..],
        &["gates", "show", &waiting],
        &["grants", "list"],
        &["grants", "denials"],
        &["tokens", "list"],
        &["sessions", "list"],
        &["audit", "verify"],
    ] {
        let output = place.run_as_person(&[arguments, &["--json"]].concat());
        keys(&output.json(), &arguments[..2.min(arguments.len())].join(" ").replace(&waiting, ""), &mut found);
    }
    // The presence of advice depends on the machine.
    let mut checked = BTreeSet::new();
    keys(&place.run_as_person(&["doctor", "--json"]).json(), "doctor", &mut checked);
    found.extend(checked.iter().map(|line| line.split(' ').next().unwrap_or_default().to_owned()));
    for path in ["gates", &format!("gates/{waiting}"), "sessions", "audit", "audit/head", "audit/verify", "audit/1"] {
        let at = format!("/api/v1/{}", path.replace(&waiting, "{id}").replace("/1", "/{lsn}"));
        keys(&program.get_body(&format!("/api/v1/{path}")), &at, &mut found);
    }
    let opened = program.post("/api/v1/sessions", json!({}));
    keys(&opened.body, "POST /api/v1/sessions", &mut found);
    let session = opened.body["id"].as_str().unwrap_or_default().to_owned();
    keys(&program.get_body(&format!("/api/v1/sessions/{session}")), "/api/v1/sessions/{id}", &mut found);
    let request = json!({ "tool": "turn", "arguments": { "thing": "lamp" } });
    keys(&program.post("/api/v1/policy/explain", request).body, "POST /api/v1/policy/explain", &mut found);
    let explained = place.run(&["policy", "explain", "turn", "thing=lamp", "--json", "--config", "config.yaml"]);
    keys(&explained.json(), "policy explain", &mut found);
    drop(agent);
    gateway.stop();

    let tail = place.run(&["audit", "tail", "-n", "1000", "--json", "--config", "config.yaml"]);
    let exported = place.run(&["audit", "export", "--config", "config.yaml"]);
    for (at, output) in [("audit tail", tail), ("audit export", exported)] {
        for line in output.out.lines() {
            keys(&serde_json::from_str(line).unwrap(), at, &mut found);
        }
    }
    files(&place.data_dir(), "data", &mut found);

    let text = found.into_iter().collect::<Vec<_>>().join("\n") + "\n";
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/process/kept_names.txt"), &text).unwrap();
        return;
    }
    assert_eq!(include_str!("kept_names.txt"), text, "UPDATE_GOLDEN=1 writes it");
}
