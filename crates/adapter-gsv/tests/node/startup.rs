//! Start of a node, and the output if it fails.

use std::net::TcpListener;

use countersign_testkit::process::binary_path;

use crate::{
    fake_gateway::FakeGateway,
    node_process::{NodeFixture, SpawnedNode},
};

#[test]
fn errors_are_reported_before_anything_starts() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    place.write("empty", "");
    let url = gateway.url();
    for (url, more, want) in [
        (url.as_str(), &["--token-file", "none"][..], "the token in"),
        (&url, &["--token-file", "empty"], "contains no token"),
        (&url, &["--token-env", "NO_SUCH"], "--token-env NO_SUCH: the variable is not set"),
        (&url, &["--permissions", "none.yaml"], "none.yaml does not exist"),
        (&url, &["--ca", "token"], "--ca can only be used with a wss:// address"),
        ("wss://127.0.0.1:1", &["--ca", "token"], "contains no certificate"),
        ("ws://192.0.2.1:8443", &[], "is not encrypted"),
        ("http://127.0.0.1:1", &[], "--url http://127.0.0.1:1: expected ws:// or wss://"),
        ("ws://token@127.0.0.1:1", &[], "must not contain a token"),
    ] {
        let end = SpawnedNode::spawn(place.command(url, more)).end();
        assert_eq!(end.code, Some(1), "{more:?}: {end:?}");
        assert!(end.stderr.contains(want), "{more:?}: {}", end.stderr);
    }
    for (flag, value, want) in [
        ("--workspace", "nowhere", "--workspace nowhere does not exist: create the folder first"),
        ("--workspace", "token", "--workspace token is not a folder"),
        ("--id", "a__b", "must not contain \"__\""),
        ("--id", "a/b", "invalid --id \"a/b\": expected letters, digits"),
        ("--id", "gsv", "the id gsv is taken"),
        ("--id", "MCP", "the id mcp is taken"),
    ] {
        let mut command = std::process::Command::new(binary_path());
        command.current_dir(&place.folder).env("HOME", &place.folder).args(["node", "--url", &url]);
        command.args(["--data", "data2"]);
        for (name, usual) in [("--workspace", "work"), ("--id", "desk")] {
            command.args([name, if name == flag { value } else { usual }]);
        }
        let end = SpawnedNode::spawn(command).end();
        assert_eq!(end.code, Some(1), "{flag} {value}: {end:?}");
        assert!(end.stderr.contains(want), "{flag} {value}: {}", end.stderr);
    }
}

#[test]
fn a_gateway_that_does_not_take_the_node_ends_it_with_the_reason() {
    for (code, message, want) in [
        (401, "Unauthorized: invalid or missing token", "the gateway rejected the token"),
        (
            103,
            "Invalid client: the id gsv is taken",
            "the gateway rejected this node: Invalid client: the id gsv is taken",
        ),
        (102, "Unsupported protocol version", "the gateway rejected this node: Unsupported protocol version"),
    ] {
        let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
        let mut node = place.start(&gateway);
        gateway.refuse(code, message);
        let end = node.end();
        assert_eq!(end.code, Some(1), "{end:?}");
        assert!(end.stderr.contains(want), "{}", end.stderr);
    }
}

#[test]
fn a_gateway_that_is_not_there_is_waited_for() {
    let place = NodeFixture::new();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut node = SpawnedNode::spawn(place.command(&format!("ws://{address}"), &["--token-file", "token"]));
    node.wait_for_notice(&format!("not connected: ws://{address}/ws: Connection refused"));
    node.terminate();
    assert_eq!(node.end().code, Some(0));
}

#[test]
fn two_nodes_do_not_share_a_data_directory() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    let (_node, _line) = place.start_connected(&gateway);
    let end = SpawnedNode::spawn(place.command(&gateway.url(), &["--token-file", "token"])).end();
    assert_eq!(end.code, Some(1));
    assert!(end.stderr.contains("another node runs with the data directory"), "{}", end.stderr);
}

#[test]
fn the_log_can_be_json() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    let node = SpawnedNode::spawn(place.command(&gateway.url(), &["--token-file", "token", "--log-format", "json"]));
    let _line = gateway.accept();
    node.wait_for_notice(r#""message":"connected""#);
}

#[test]
fn the_help_says_how_to_begin() {
    let place = NodeFixture::new();
    let output =
        std::process::Command::new(binary_path()).current_dir(&place.folder).args(["node", "--help"]).output().unwrap();
    // Lines break where the terminal ends.
    let help = String::from_utf8(output.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    for want in ["countersign node --url wss://", "--token-file FILE", "not confined", "kitchen__Bash"] {
        assert!(help.contains(want), "{help}");
    }
}
