//! MCP servers of the gateway: a setting of an agent offers their tools to its runs, and nothing lists them as tools of nodes.

use std::fs;

use countersign_testkit::process::{
    GatewayOptions, LIBRARY_SERVER,
    gsv::{GsvPeer, error_body, node_params},
    provider::{ProviderReply, call_part, text_reply},
};
use serde_json::json;

use crate::chat::send;

const ADD: &str = "mcp__notes__add_note";

/// Has a run end in a session.
fn talk(peer: &mut GsvPeer, key: &str, run: &str) {
    send(peer, key, "hello", run);
    peer.wait_event("chat", &json!({ "runId": run, "state": "final" }));
}

#[test]
fn tools_of_servers_are_offered_to_the_runs_of_an_agent_by_its_setting() {
    let server = format!("{{ command: python3, args: [{LIBRARY_SERVER:?}], cwd: share }}");
    let options = GatewayOptions::for_peers().with_config(&format!("mcp: {{ servers: {{ notes: {server} }} }}\n"));
    let place = options.with_rules("rules:\n  - { pattern: \"mcp__notes__*\", action: allow }\n").create();
    fs::create_dir(place.folder.join("share")).unwrap();
    let approved = place.run(&["mcp-servers", "approve", "notes", "--yes", "--config", "config.yaml"]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    let (gateway, mut peer) = place.start_peer();
    talk(&mut peer, "main", "r-1");
    assert!(!place.provider.last_request().tool_names().contains(&ADD));

    let list = json!([{ "id": "main", "default": true, "mcp": true }, { "id": "book", "mcp": false }]);
    peer.expect_ok("config.set", json!({ "path": "agents.list", "value": list }));
    place
        .provider
        .script_replies([ProviderReply::new(vec![call_part("k", ADD, &json!({ "text": "tea" }))]), text_reply("done")]);
    talk(&mut peer, "main", "r-2");
    let request = place.provider.last_request();
    assert!(request.tool_names().contains(&"mcp_read_resource"));
    assert_eq!(request.call_result("k").unwrap(), "added");
    assert_eq!(fs::read_to_string(place.folder.join("share/notes")).unwrap(), "tea\n");
    talk(&mut peer, "agent:book:main", "r-3");
    assert!(!place.provider.last_request().tool_names().contains(&ADD));

    let tools = peer.expect_ok("tools.list", json!({}));
    assert!(!tools.to_string().contains("mcp_"), "{tools}");
    let mut node = GsvPeer::open_connection(&gateway);
    let refused = node.expect_error("connect", node_params("mcp", &["Bash"]));
    assert_eq!(refused, error_body(103, "Invalid client: the id mcp is taken"));
}
