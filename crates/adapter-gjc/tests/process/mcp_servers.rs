//! MCP servers stay with the host, unless a setting starts them here.

use std::fs;

use countersign_testkit::process::{HostFixture, LIBRARY_SERVER, RpcHost, eventually};
use serde_json::json;

use crate::rpc::{start, turn};

fn with_server(config: &str) -> HostFixture {
    let place = HostFixture::with_config(config);
    let server = json!({ "command": "python3", "args": [LIBRARY_SERVER], "cwd": "." });
    fs::write(place.agent.join("mcp.json"), json!({ "mcpServers": { "notes": server } }).to_string()).unwrap();
    place
}

fn is_offered(host: &mut RpcHost, place: &HostFixture) -> bool {
    turn(host, "look");
    place.provider.last_request().tool_names().contains(&"mcp__notes__add_note")
}

#[test]
fn servers_start_only_if_a_setting_says_so_and_a_person_approves() {
    let place = with_server("");
    let mut host = start(&place, &[]);
    assert!(!is_offered(&mut host, &place));
    assert!(host.frames_since(0).iter().all(|frame| frame["type"] != "extension_ui_request"));
    host.close_cleanly();

    let place = with_server("countersign: { mcp: true }\n");
    let mut host = start(&place, &[]);
    let dialog = host.wait_dialog(0);
    assert!(dialog.to_string().contains("library_server.py"), "{dialog}");
    assert!(!is_offered(&mut host, &place) && place.read_file("pid").is_none());
    host.answer_dialog(&dialog, json!({ "confirmed": true }));
    place.wait_for("pid");
    eventually("the tools", || is_offered(&mut host, &place).then_some(()));
}
