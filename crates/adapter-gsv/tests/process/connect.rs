//! Connecting: access, its conditions, and ends of connections.

use countersign_testkit::process::{
    GatewayFixture, GatewayOptions,
    gsv::{GsvPeer, GsvSocketEvent, TOKEN, connect_params, error_body, node_params},
};
use serde_json::{Value, json};

fn with(mut params: Value, path: &str, value: Value) -> Value {
    *params.pointer_mut(path).unwrap() = value;
    params
}

#[test]
fn errors_of_a_connect_come_in_order_and_keep_the_connection_open() {
    let scene = GatewayFixture::for_peers();
    let gateway = scene.start();
    let mut peer = GsvPeer::open_connection(&gateway);
    let client = || connect_params("client", "c");
    let unset = |params: Value, path: &str| with(params, path, Value::Null);
    let channel = connect_params("channel", "a1");
    let mut bad_runtime = node_params("n", &["A"]);
    bad_runtime["nodeRuntime"]["hostCapabilities"] = json!(["filesystem.read"]);
    bad_runtime["nodeRuntime"]["toolCapabilities"]["A"] = json!(["filesystem.read"]);
    for (case, params, code, want) in [
        ("another version", with(client(), "/minProtocol", json!(2)), 102, "Unsupported protocol version"),
        ("no version", unset(client(), "/minProtocol"), 102, "Unsupported protocol version"),
        (
            "another version and token",
            with(with(client(), "/minProtocol", json!(9)), "/auth/token", json!("wrong")),
            102,
            "Unsupported protocol version",
        ),
        ("a mode that there is not", with(client(), "/client/mode", json!("boss")), 103, "Invalid client mode"),
        ("no mode", unset(client(), "/client/mode"), 103, "Invalid client mode"),
        ("no client", unset(client(), "/client"), 103, "Invalid client mode"),
        ("no id", unset(client(), "/client/id"), 103, "client.id required"),
        ("no tools", with(node_params("n", &["A"]), "/tools", json!([])), 103, "Node mode requires tools"),
        ("a host that cannot do what it is", bad_runtime, 103, "Invalid nodeRuntime: "),
        ("no channel", channel, 103, "Channel mode requires channel field"),
    ] {
        let error = peer.expect_error("connect", params);
        assert_eq!(error["code"], code, "{case}: {error}");
        assert!(error["message"].as_str().unwrap().starts_with(want), "{case}: {error}");
    }
    let hello = peer.expect_ok("connect", client());
    assert_eq!((&hello["type"], &hello["protocol"]), (&json!("hello-ok"), &json!(1)));
    assert!(hello["server"]["connectionId"].as_str().is_some_and(|id| id.len() == 36), "{hello}");
    assert_eq!(hello["features"]["methods"].as_array().unwrap().len(), 46);
    assert_eq!(
        hello["features"]["events"],
        json!(["chat", "tool.invoke", "node.probe", "logs.get", "channel.outbound", "channel.typing"])
    );
    assert_eq!(peer.expect_error("connect", client()), error_body(400, "Already connected"));
}

#[test]
fn nothing_is_answered_before_connect_but_that_it_is_missing() {
    let scene = GatewayFixture::for_peers();
    let gateway = scene.start();
    let mut peer = GsvPeer::open_connection(&gateway);
    for method in ["tools.list", "chat.send", "nope.nope"] {
        assert_eq!(peer.expect_error(method, json!({})), error_body(101, "Not connected"), "{method}");
    }
    peer.send_frame(json!({ "type": "zzz", "id": 5 }));
    let GsvSocketEvent::Frame(frame) = peer.read_frame() else { panic!("closed") };
    assert_eq!(
        frame,
        json!({ "type": "res", "id": 5, "ok": false, "error": error_body(400, "Unknown frame type: zzz") })
    );
    peer.expect_ok("connect", connect_params("client", "c"));
}

#[test]
fn a_wrong_token_is_answered_before_the_line_is_closed() {
    let scene = GatewayFixture::for_peers();
    let gateway = scene.start();
    for (case, token) in [("wrong", json!("wrong")), ("none", Value::Null), ("longer", json!(format!("{TOKEN}x")))] {
        let mut peer = GsvPeer::open_connection(&gateway);
        // The token is checked before the mode.
        let params = with(with(connect_params("client", "c"), "/auth/token", token), "/client/mode", json!("boss"));
        let refused = peer.expect_error("connect", params);
        assert_eq!(refused, error_body(401, "Unauthorized: invalid or missing token"), "{case}");
        assert_eq!(peer.read_frame(), GsvSocketEvent::Closed(4001, "Unauthorized".to_owned()), "{case}");
    }
}

#[test]
fn an_address_that_guesses_tokens_is_locked_out_for_a_while() {
    let gateway = GatewayOptions::for_models()
        .with_config(&format!("clients: {{ token: {TOKEN} }}\nrate_limit: {{ max_failed_auth_per_minute: 2 }}\n"))
        .create()
        .start();
    let refused = |token: &str| {
        let mut peer = GsvPeer::open_connection(&gateway);
        let refused = peer.expect_error("connect", with(connect_params("client", "c"), "/auth/token", json!(token)));
        assert_eq!(peer.read_frame(), GsvSocketEvent::Closed(4001, "Unauthorized".to_owned()), "{token}");
        refused
    };
    assert_eq!(refused("one"), error_body(401, "Unauthorized: invalid or missing token"));
    let limited = error_body(401, "Unauthorized: too many wrong tokens from this address, try again in a minute");
    for token in ["two", "three", TOKEN] {
        assert_eq!(refused(token), limited, "{token}");
    }
}

#[test]
fn without_a_token_in_the_configuration_any_will_do_from_this_machine() {
    let scene = GatewayOptions::for_models().with_config("").create();
    let gateway = scene.start();
    for token in [json!("whatever"), Value::Null] {
        let mut peer = GsvPeer::open_connection(&gateway);
        assert_eq!(
            peer.expect_ok("connect", with(connect_params("client", "c"), "/auth/token", token))["type"],
            "hello-ok"
        );
    }
}

#[test]
fn a_page_of_somebody_else_is_refused() {
    let scene = GatewayFixture::for_peers();
    let gateway = scene.start();
    let refused = GsvPeer::open_connection_with(&gateway, &[("Origin", "https://evil.example")]);
    assert_eq!(refused.err(), Some(403));
}

/// Checks that a page of another program on this machine is refused: where no token is required, it would have full access.
#[test]
fn a_page_of_another_port_is_refused_where_no_token_is_required() {
    for (more, want) in [("", Some(403)), ("clients: { token: secret-of-clients }\n", None)] {
        let scene = GatewayOptions::for_models().with_config(more).create();
        let gateway = scene.start();
        for origin in ["http://localhost:3000", "http://127.5.5.5:1"] {
            assert_eq!(GsvPeer::open_connection_with(&gateway, &[("Origin", origin)]).err(), want, "{origin}");
        }
        let own = format!("http://{}", gateway.address);
        assert_eq!(GsvPeer::open_connection_with(&gateway, &[("Origin", &own)]).err(), None);
    }
}

#[test]
fn frames_without_an_id_are_passed_over_and_all_others_are_answered() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    for frame in [
        "{not json",
        "[]",
        "5",
        "",
        r#"{"type":"zzz"}"#,
        r#"{"type":"req"}"#,
        r#"{"type":"req","id":null,"method":"tools.list"}"#,
        r#"{"type":"res","ok":true}"#,
        r#"{"type":"evt","event":"chat","payload":{}}"#,
        r#"{"type":"req","method":"tools.list","method":"tools.list"}"#,
    ] {
        peer.send_frame(frame);
    }
    peer.send_binary(b"\x01\x02");
    for (frame, id, code, message) in [
        (r#"{"type":"req","id":7}"#, json!(7), 400, "method required"),
        (r#"{"type":"req","id":"a","method":5}"#, json!("a"), 400, "method must be a string"),
        (r#"{"type":"req","id":["x"],"method":"nope"}"#, json!(["x"]), 404, "Unknown method: nope"),
        (r#"{"id":"b"}"#, json!("b"), 400, "Unknown frame type: undefined"),
        (r#"{"type":"res","id":"d","ok":true}"#, json!("d"), 400, "Unexpected frame type: res"),
        (r#"{"type":"evt","id":"e","event":"chat","payload":{}}"#, json!("e"), 400, "Unexpected frame type: evt"),
        (r#"{"type":"req","id":"1","id":"2","method":"tools.list"}"#, json!("2"), 400, "A member is there twice"),
        (r#"{"type":"req","id":"c","method":"session.get","params":5}"#, json!("c"), 400, "params must be an object"),
    ] {
        peer.send_frame(frame);
        let want = json!({ "type": "res", "id": id, "ok": false, "error": error_body(code, message) });
        assert_eq!(peer.read_frame(), GsvSocketEvent::Frame(want), "{frame}");
    }
}

#[test]
fn a_frame_that_is_too_large_closes_with_its_reason() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    peer.try_send_frame("x".repeat((40 << 20) + 1));
    assert_eq!(peer.read_frame(), GsvSocketEvent::Closed(1009, "a frame is larger than 40 MiB".to_owned()));
}

#[test]
fn of_who_has_not_connected_no_large_frame_is_read() {
    let scene = GatewayFixture::for_peers();
    let gateway = scene.start();
    let mut peer = GsvPeer::open_connection(&gateway);
    let list = "{\"a\":0},".repeat(3 << 17);
    peer.try_send_frame(format!(r#"{{"type":"req","id":"1","method":"connect","params":{{"a":[{list}0]}}}}"#));
    assert_eq!(
        peer.read_frame(),
        GsvSocketEvent::Closed(1009, "a frame before connect is larger than 2 MiB".to_owned())
    );
}

#[test]
fn a_newer_connection_of_the_same_peer_replaces_the_older() {
    let scene = GatewayFixture::for_peers();
    let gateway = scene.start();
    let client = || GsvPeer::connect_client(&gateway, "twin");
    let node = || GsvPeer::connect_node(&gateway, "twin", &["A"]);
    let channel = || GsvPeer::connect_channel(&gateway, "wx", "twin");
    for (mode, connect) in [
        ("client", &client as &dyn Fn() -> GsvPeer),
        ("node", &node as &dyn Fn() -> GsvPeer),
        ("channel", &channel as &dyn Fn() -> GsvPeer),
    ] {
        let mut one = connect();
        let mut other = connect();
        let why = format!("Replaced by newer {mode} connection");
        assert_eq!(one.read_frame(), GsvSocketEvent::Closed(1000, why), "{mode}");
        // The end of the older one leaves the newer: a third still replaces it.
        drop(one);
        let third = connect();
        assert!(matches!(other.read_frame(), GsvSocketEvent::Closed(1000, _)), "{mode}");
        drop(third);
    }
    // Another account of the same network, or another network with the same account, is another peer.
    let mut channels =
        [("wx", "a1"), ("wx", "a2"), ("tg", "a1")].map(|(name, id)| GsvPeer::connect_channel(&gateway, name, id));
    for channel in &mut channels {
        assert_eq!(channel.expect_error("nope", json!({})), error_body(404, "Unknown method: nope"));
    }
}

#[test]
fn a_stopping_gateway_asks_its_peers_to_reconnect() {
    let scene = GatewayFixture::for_peers();
    let (mut gateway, mut peer) = scene.start_peer();
    assert_eq!(gateway.stop().code, Some(0));
    assert_eq!(peer.read_frame(), GsvSocketEvent::Closed(1012, "restarting".to_owned()));
}
