//! Approvals of MCP servers that change while gates and standing approvals depend on them, and servers that lead back.

use std::fs;

use countersign_testkit::process::{AGENT_TOKEN, agent_gate::AgentClient, eventually};
use serde_json::json;

use super::mcp_servers::{READ, ServerFixture, WRITE};

#[test]
fn a_gate_of_a_server_is_closed_when_a_person_approves_it_at_the_terminal() {
    let fixture = ServerFixture::new();
    let gateway = fixture.place.start();
    let gate = fixture.place.wait_gate();
    let (code, out) = fixture.servers(&["approve", "files", "--yes"]);
    assert_eq!(code, Some(0), "{out}");
    assert!(fixture.place.pending_gates().is_empty());
    let late = fixture.place.run_as_person(&["gates", "deny", &gate]);
    assert!(late.code != Some(0) && late.err.contains("already resolved: allowed once by local:"), "{late:?}");
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert!(agent.call_tool("1", READ, json!({ "path": "list.txt" })).to_string().contains("milk"));
    fixture.place.verify_log();
}

#[test]
fn a_gate_of_a_server_that_was_approved_or_changed_without_a_gateway_is_withdrawn() {
    for change in ["approve", "configuration"] {
        let fixture = ServerFixture::new();
        let gateway = fixture.place.start();
        let gate = fixture.place.wait_gate();
        gateway.kill();
        if change == "approve" {
            assert_eq!(fixture.servers(&["approve", "files", "--yes"]).0, Some(0));
        } else {
            let config = fs::read_to_string(fixture.place.folder.join("config.yaml")).unwrap();
            fixture.place.write_file("config.yaml", &config.replace("cwd: share", "cwd: '.'"));
        }
        let _gateway = fixture.place.start();
        let late = fixture.place.run_as_person(&["gates", "allow", &gate]);
        assert!(late.code != Some(0) && late.err.contains("withdrawn by gateway"), "{change}: {late:?}");
        let pending = usize::from(change == "configuration");
        assert_eq!(fixture.place.pending_gates().len(), pending, "{change}");
    }
}

#[test]
fn standing_approvals_of_a_server_go_with_its_approval() {
    for is_running in [true, false] {
        let fixture = ServerFixture::approved();
        let gateway = fixture.place.start();
        let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
        let write = || json!({ "path": "list.txt", "content": "tea" });
        agent.request_tool("1", WRITE, write());
        let gate = fixture.place.wait_gate();
        let allowed = fixture.place.run_as_person(&["gates", "allow", &gate, "--scope", "always"]);
        assert_eq!(allowed.code, Some(0), "{allowed:?}");
        assert!(agent.wait_reply(&json!("1")).to_string().contains("written"));
        let grants = || fixture.place.run_as_person(&["grants", "list", "--json"]).json().as_array().unwrap().len();
        assert_eq!(grants(), 1);
        let running = is_running.then_some((gateway, agent));
        assert_eq!(fixture.servers(&["revoke", "files"]).0, Some(0));
        assert_eq!(fixture.servers(&["approve", "files", "--yes"]).0, Some(0));
        let (_gateway, mut agent) = running.unwrap_or_else(|| {
            let gateway = fixture.place.start();
            let agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
            (gateway, agent)
        });
        assert_eq!(grants(), 0, "{is_running}");
        agent.request_tool("2", WRITE, write());
        eventually("the gate", || (fixture.place.pending_gates().len() == 1).then_some(()));
    }
}

#[test]
fn an_approval_can_be_revoked_while_the_configuration_is_broken() {
    let fixture = ServerFixture::approved();
    let gateway = fixture.place.start();
    let config = fs::read_to_string(fixture.place.folder.join("config.yaml")).unwrap();
    fixture.place.write_file("config.yaml", &format!("{config}approval_timeout: never\n"));
    assert_eq!(fixture.servers(&["list"]).0, Some(1));
    let (code, out) = fixture.servers(&["revoke", "files"]);
    assert!(code == Some(0) && out.contains("revoked files"), "{out}");
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert!(agent.call_tool("1", READ, json!({ "path": "list.txt" })).to_string().contains("Unknown tool"));
}

#[test]
fn a_gateway_is_no_server_of_itself() {
    let fixture = ServerFixture::new();
    let config = fs::read_to_string(fixture.place.folder.join("config.yaml")).unwrap();
    let other = config.lines().filter(|line| !line.starts_with("mcp:")).collect::<Vec<_>>().join("\n");
    let itself = "\nmcp: { servers: { self: { url: 'http://localhost:8765/mcp' } } }\n";
    fixture.place.write_file("config.yaml", &(other.replace("port: 0", "port: 8765") + itself));
    let (code, out) = fixture.servers(&["list"]);
    assert!(code == Some(1) && out.contains("mcp.servers.self.url: this is the gateway itself"), "{out}");
}

#[test]
fn a_secret_reaches_a_tool_by_name_only() {
    let fixture = ServerFixture::approved();
    let place = &fixture.place;
    let rules = "rules:\n  - { pattern: 'mcp__files__*', action: allow }\n  - { pattern: 'secret(DOOR, mcp__files__write_file)', action: allow }\n";
    place.write_file("permissions.yaml", rules);
    let secret = "open-sesame-71";
    for name in ["DOOR", "OTHER"] {
        let file = place.write_file("value", secret);
        let set = place.run_as_person(&["secret", "set", name, "--from", file.to_str().unwrap()]);
        assert_eq!(set.code, Some(0), "{set:?}");
    }
    fs::remove_file(place.folder.join("value")).unwrap();
    let gateway = place.start();
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let write = |name: &str| json!({ "path": "key.txt", "content": format!("x {{{{secret:{name}}}}}") });
    assert!(agent.call_tool("1", WRITE, write("DOOR")).to_string().contains("written"));
    assert_eq!(fs::read_to_string(fixture.share.join("key.txt")).unwrap(), format!("x {secret}\n"));
    let read = agent.call_tool("2", READ, json!({ "path": "key.txt" })).to_string();
    assert!(!read.contains(secret) && read.contains("[secret "), "{read}");
    let unknown = agent.call_tool("3", WRITE, write("NONE")).to_string();
    assert!(unknown.contains("there is no secret called NONE"), "{unknown}");
    agent.request_tool("4", WRITE, write("OTHER"));
    let shown = place.run_as_person(&["gates", "show", &place.wait_gate()]).out;
    assert!(shown.contains("its use of the secret OTHER") && !shown.contains(secret), "{shown}");
    drop(gateway);
    let log = fs::read(place.log_path()).unwrap();
    assert!(!log.windows(secret.len()).any(|part| part == secret.as_bytes()), "the record has the value");
}
