//! `countersign mcp --standalone`: a gateway for one host.

use std::process::Stdio;

use countersign_testkit::process::{GatewayFixture, GatewayServer, eventually, run_command};
use serde_json::json;

use crate::mcp_host::{McpHost, text};

const STANDALONE: [&str; 3] = ["--standalone", "--config", "config.yaml"];

#[test]
fn a_host_has_a_gateway_of_its_own_that_ends_with_it() {
    let place = GatewayFixture::new();
    let mut host = McpHost::start_with(&place, &STANDALONE);
    host.initialize("2025-11-25");
    assert_eq!(text(&host.call(1, "look", json!({ "thing": "lamp" }))), r#"{"did":"/look/lamp"}"#);
    // Approvers use the command line, as with any gateway.
    host.send_call(2, "turn", json!({ "thing": "wall" }));
    place.allow_gate(&place.wait_gate());
    assert!(text(&host.wait_reply(2)["result"]).contains("/turn/wall"));
    host.send_call(3, "turn", json!({ "thing": "door" }));
    let gate = place.wait_gate();
    assert_eq!(host.finish(), Some(0));
    let gone = place.run_as_person(&["gates", "allow", &gate]);
    assert!(gone.code != Some(0) && gone.err.contains("no gateway"), "{gone:?}");

    // The next one continues with the same record.
    let mut host = McpHost::start_with(&place, &STANDALONE);
    host.initialize("2025-11-25");
    host.send_call(1, "turn", json!({ "thing": "door" }));
    assert_eq!(place.wait_gate(), gate);
    place.allow_gate(&gate);
    assert!(text(&host.wait_reply(1)["result"]).contains("/turn/door"));
    assert_eq!((host.finish(), place.service.request_count("/turn/door")), (Some(0), 1));
    place.verify_log();
}

#[test]
fn a_second_gateway_of_a_data_directory_is_refused() {
    let place = GatewayFixture::new();
    let run = |variable: Option<(&str, &str)>| {
        let mut command = place.binary_command();
        command.arg("mcp").args(STANDALONE).envs(variable).stdin(Stdio::null());
        run_command(command)
    };
    let gateway = GatewayServer::start(&place);
    let refused = run(None);
    assert_eq!((refused.code, refused.out.as_str()), (Some(1), ""), "{refused:?}");
    assert!(
        refused.err.contains("a gateway runs with the data directory") && refused.err.contains("without --standalone")
    );
    drop(gateway);
    let own = run(Some(("COUNTERSIGN_MCP", "/elsewhere")));
    assert!(own.code == Some(1) && own.err.contains("one of its MCP servers"), "{own:?}");

    let mut host = McpHost::start_with(&place, &STANDALONE);
    host.initialize("2025-11-25");
    let serve = run_command({
        let mut command = place.binary_command();
        command.args(["serve", "--config", "config.yaml"]);
        command
    });
    assert!(serve.code == Some(1) && serve.err.contains("another gateway uses this data directory"), "{serve:?}");
    // Further hosts share it.
    let mut second = McpHost::start_initialized(&place);
    assert!(text(&second.call(1, "look", json!({ "thing": "lamp" }))).contains("/look/lamp"));
    assert_eq!(host.finish(), Some(0));
    // Each ends with its own host only: the next gateway of the directory serves the others.
    let mut third = McpHost::start_with(&place, &STANDALONE);
    third.initialize("2025-11-25");
    assert!(text(&second.call(2, "look", json!({ "thing": "lamp" }))).contains("/look/lamp"));
    assert_eq!((second.finish(), third.finish()), (Some(0), Some(0)));
}

#[test]
fn without_a_configuration_it_listens_on_a_free_port_and_has_its_own_tools() {
    let place = GatewayFixture::new();
    let folder = place.folder.join("alone");
    let flags = ["--standalone", "--data", folder.to_str().unwrap()];
    let mut hosts =
        [McpHost::start_with(&place, &flags), McpHost::start_with(&place, &["--standalone", "--data", "other"])];
    for host in &mut hosts {
        host.initialize("2025-11-25");
        let listed = host.request(1, "tools/list", json!({}));
        assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 5, "{listed}");
    }
    hosts[0].send_call(2, "ask_human", json!({ "question": "Well?" }));
    let watch = || place.run(&["gates", "list", "--json", "--data", folder.to_str().unwrap()]).json();
    let gate = eventually("the question", || watch()[0]["id"].as_str().map(str::to_owned));
    let answered = place.run(&["gates", "answer", &gate, "yes", "--data", folder.to_str().unwrap()]);
    assert_eq!(answered.code, Some(0), "{answered:?}");
    assert_eq!(text(&hosts[0].wait_reply(2)["result"]), "yes");
    for host in hosts {
        assert_eq!(host.finish(), Some(0));
    }
}
