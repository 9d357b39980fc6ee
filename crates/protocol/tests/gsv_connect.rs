//! Roles in which peers may connect, and methods that they may call.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use countersign_protocol::RawJson;
use countersign_protocol::gsv::connect::{
    ConnectAuth, ConnectClient, ConnectParams, ConnectingPeer, HelloOk, NodeJournal, PeerDetails, PeerMode,
};
use countersign_protocol::gsv::frame::{GsvRequestId, encode_request, encode_response};
use countersign_protocol::gsv::method::{MethodDeadline, MethodScope, TABLE, dispatch_method};
use countersign_protocol::gsv::{GsvError, Method};
use serde_json::{Value, json};

fn connect(params: &Value, is_trusted: bool) -> Result<ConnectingPeer, GsvError> {
    ConnectingPeer::from_params(Some(&RawJson::from(params.clone())), |_| is_trusted)
}

fn refused(params: &Value) -> (i32, String) {
    connect(params, true).map_err(|fault| (fault.code, fault.message)).unwrap_err()
}

fn node(runtime: Value) -> Value {
    json!({
        "minProtocol": 1, "maxProtocol": 1, "client": {"id": "macbook", "version": "1", "platform": "macos", "mode": "node"},
        "tools": [{"name": "Bash", "description": "Run", "inputSchema": {"type": "object"}}],
        "nodeRuntime": runtime,
    })
}

#[test]
fn each_mode_connects_with_what_it_needs() {
    let client = connect(&json!({"minProtocol": 1, "client": {"id": "client-1", "mode": "client"}}), true).unwrap();
    let want = ConnectingPeer {
        id: "client-1".to_owned(),
        version: None,
        platform: None,
        deltas: false,
        peer: PeerDetails::Client,
    };
    assert_eq!(client, want);
    let channel = |account: Value| json!({"minProtocol": 1, "client": {"id": "c", "mode": "channel", "channel": "discord", "accountId": account}});
    for (account, want) in [(json!("bot"), "bot"), (Value::Null, "c"), (json!(""), "c")] {
        let peer = PeerDetails::Channel { channel: "discord".to_owned(), account: want.to_owned() };
        assert_eq!(connect(&channel(account), true).unwrap().peer, peer);
    }
    // Newer nodes send only their capabilities.
    let runtime = json!({"hostCapabilities": ["shell.exec"], "toolCapabilities": {"Bash": ["shell.exec"]}});
    let PeerDetails::Node { tools, runtime: known, journal: None } =
        connect(&node(runtime.clone()), true).unwrap().peer
    else {
        panic!("not a node")
    };
    for (fields, want) in [
        (json!({"journal": true}), Ok(Some(NodeJournal::Nameless))),
        (json!({"journal": true, "journalId": "00000000000000ff"}), Ok(Some(NodeJournal::Of(255)))),
        (json!({"journalId": "00000000000000ff"}), Ok(None)),
        (json!({"journal": true, "journalId": "ff"}), Err("Invalid journalId: it has 16 hexadecimal digits")),
        (
            json!({"journal": true, "journalId": "+0000000000000ff"}),
            Err("Invalid journalId: it has 16 hexadecimal digits"),
        ),
        (json!({"journal": true, "journalId": 1}), Err("journalId must be a string")),
    ] {
        let mut params = node(runtime.clone());
        params.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let got = match connect(&params, true) {
            Ok(ConnectingPeer { peer: PeerDetails::Node { journal, .. }, .. }) => Ok(journal),
            Ok(other) => panic!("{other:?}"),
            Err(fault) => Err(fault.message),
        };
        assert_eq!(got, want.map_err(str::to_owned), "{fields}");
    }
    assert_eq!((tools[0].name.as_str(), known.unwrap().host_role), ("Bash", None));
}

#[test]
fn a_connect_is_looked_at_in_order() {
    let hello = |client: Value| json!({"minProtocol": 1, "client": client});
    for (params, want) in [
        (json!({}), (102, "Unsupported protocol version")),
        (json!({"minProtocol": 2, "maxProtocol": 1}), (102, "Unsupported protocol version")),
        (json!({"minProtocol": "1"}), (102, "Unsupported protocol version")),
        (hello(Value::Null), (103, "Invalid client mode")),
        (hello(json!({"id": "x", "mode": "boss"})), (103, "Invalid client mode")),
        (hello(json!({"id": "x"})), (103, "Invalid client mode")),
        (hello(json!({"mode": "client"})), (103, "client.id required")),
        (hello(json!({"id": "c".repeat(257), "mode": "client"})), (103, "Invalid client: id has at most 256 bytes")),
        (hello(json!("x")), (103, "client must be an object")),
        (hello(json!({"id": "x", "mode": "node"})), (103, "Node mode requires tools")),
        (hello(json!({"id": "x", "mode": "channel"})), (103, "Channel mode requires channel field")),
        (hello(json!({"id": "gsv", "mode": "node"})), (103, "Invalid client: the id gsv is taken")),
        (
            hello(json!({"id": "a__b", "mode": "node"})),
            (103, "Invalid client: the id of a node must not contain \"__\" nor end with \"_\": a__b"),
        ),
    ] {
        assert_eq!(refused(&params), (want.0, want.1.to_owned()), "{params}");
    }
    // An untrusted peer learns nothing else.
    let untrusted = connect(&hello(json!({"mode": "boss"})), false).unwrap_err();
    assert_eq!((untrusted.code, untrusted.message.as_str()), (401, "Unauthorized: invalid or missing token"));
    assert_eq!(connect(&json!({"minProtocol": 3}), false).unwrap_err().code, 102);
    assert_eq!(ConnectingPeer::replaced_reason(PeerMode::Node), "Replaced by newer node connection");
}

#[test]
fn the_token_is_passed_to_its_check() {
    for (auth, want) in [
        (json!({"token": "secret"}), Some("secret")),
        (json!({}), None),
        (Value::Null, None),
        (json!({"token": 5}), None),
        (json!("secret"), None),
    ] {
        let params = json!({"minProtocol": 1, "client": {"id": "x", "mode": "client"}, "auth": auth});
        let mut seen = None;
        ConnectingPeer::from_params(Some(&RawJson::from(params)), |token| {
            seen = token.map(str::to_owned);
            true
        })
        .unwrap();
        assert_eq!(seen.as_deref(), want, "{auth}");
    }
}

#[test]
fn a_node_that_contradicts_itself_is_refused() {
    let all =
        ["filesystem.list", "filesystem.read", "filesystem.write", "filesystem.edit", "text.search", "shell.exec"];
    let good = json!({
        "hostRole": "execution", "hostCapabilities": all, "toolCapabilities": {"Bash": ["shell.exec"]},
        "hostOs": "MacOS", "hostEnv": ["PATH"], "hostBinStatus": {"git": true}, "hostBinStatusUpdatedAt": 5,
    });
    let PeerDetails::Node { runtime: Some(runtime), .. } = connect(&node(good.clone()), true).unwrap().peer else {
        panic!()
    };
    assert_eq!(runtime.host_os.as_deref(), Some("macos"));
    for (change, want) in [
        (json!({"hostRole": "boss"}), "hostRole must be execution or specialized"),
        (json!({"hostCapabilities": []}), "hostCapabilities must not be empty"),
        (json!({"hostCapabilities": "shell.exec"}), "hostCapabilities must be an array"),
        (json!({"hostCapabilities": ["fly"]}), "hostCapabilities has an unknown capability: \"fly\""),
        (json!({"hostCapabilities": ["shell.exec"]}), "an execution host needs filesystem.list"),
        (json!({"toolCapabilities": null}), "toolCapabilities must be an object"),
        (json!({"toolCapabilities": {}}), "toolCapabilities has no entry for Bash"),
        (json!({"toolCapabilities": {"Bash": []}}), "toolCapabilities.Bash must not be empty"),
        (
            json!({"toolCapabilities": {"Bash": ["shell.exec"], "Fly": ["shell.exec"]}}),
            "toolCapabilities names a tool that is not offered: Fly",
        ),
        (
            json!({"hostRole": "specialized", "hostCapabilities": ["text.search"]}),
            "toolCapabilities.Bash needs shell.exec, which the host has not",
        ),
        (json!({"hostOs": " "}), "hostOs must not be empty"),
        (json!({"hostEnv": [1]}), "hostEnv must be an array of strings"),
        (json!({"hostBinStatus": {"git": 1}}), "hostBinStatus must be an object of true and false"),
    ] {
        let mut runtime = good.clone();
        for (name, value) in change.as_object().unwrap() {
            runtime[name] = value.clone();
        }
        assert_eq!(refused(&node(runtime)), (103, format!("Invalid nodeRuntime: {want}")), "{change}");
    }
    assert_eq!(refused(&node(json!([]))), (103, "Invalid nodeRuntime: nodeRuntime must be an object".to_owned()));
}

#[test]
fn a_node_that_lies_about_its_tools_is_refused() {
    let with = |tools: Value| {
        let mut params = node(Value::Null);
        params["tools"] = tools;
        refused(&params)
    };
    let many: Vec<Value> = (0..257).map(|number| json!({"name": format!("T{number}")})).collect();
    for (tools, want) in [
        (json!([]), "Node mode requires tools"),
        (json!({}), "tools must be an array"),
        (json!(["Bash"]), "Invalid tools: tools[0] must be an object"),
        (json!([{"name": ""}]), "Invalid tools: tools[0].name required"),
        (json!([{"name": "a b"}]), "Invalid tools: tools[0].name must be at most 128 letters, digits, _, - and ."),
        (json!([{"name": "A"}, {"name": "A"}]), "Invalid nodeRuntime: A is offered twice"),
        (json!([{"name": "A", "inputSchema": []}]), "Invalid tools: tools[0].inputSchema must be an object"),
        (
            json!([{"name": "A", "description": "x".repeat(1 << 20)}]),
            "Invalid tools: 1048605 bytes of them, at most 1048576 are taken",
        ),
        (json!(many), "Invalid tools: 257 of them, at most 256 are taken"),
    ] {
        assert_eq!(with(tools), (103, want.to_owned()));
    }
}

/// Every row: who may call it, what that needs, and when the answer is due.
const ROWS: [(&str, &str, MethodScope, MethodDeadline); 46] = {
    use MethodDeadline::{AtOnce, FromRequest, Milliseconds, Run, Tool};
    use MethodScope::{Admin, Channel, Chat, Node, Presence, Read};
    [
        ("connect", "cnh", Presence, AtOnce),
        ("chat.send", "c", Chat, AtOnce),
        ("config.get", "c", Admin, AtOnce),
        ("config.set", "c", Admin, AtOnce),
        ("tools.list", "cn", Presence, AtOnce),
        ("tool.invoke", "c", Chat, Tool),
        ("tool.result", "n", Node, AtOnce),
        ("tool.request", "c", Chat, AtOnce),
        ("node.probe.result", "n", Node, AtOnce),
        ("node.exec.event", "n", Node, FromRequest),
        ("logs.get", "c", Read, Milliseconds(20_000)),
        ("logs.result", "n", Node, AtOnce),
        ("sessions.list", "c", Read, AtOnce),
        ("session.get", "c", Read, AtOnce),
        ("session.stats", "c", Read, AtOnce),
        ("session.reset", "c", Chat, AtOnce),
        ("session.patch", "c", Chat, AtOnce),
        ("session.compact", "c", Chat, AtOnce),
        ("session.history", "c", Read, AtOnce),
        ("session.preview", "c", Read, AtOnce),
        ("channels.list", "c", Read, AtOnce),
        ("channel.inbound", "h", Channel, AtOnce),
        ("channel.start", "c", Admin, AtOnce),
        ("channel.stop", "c", Admin, AtOnce),
        ("channel.status", "c", Read, AtOnce),
        ("channel.login", "c", Admin, AtOnce),
        ("channel.logout", "c", Admin, AtOnce),
        ("heartbeat.status", "c", Read, AtOnce),
        ("heartbeat.start", "c", Admin, AtOnce),
        ("heartbeat.trigger", "c", Chat, AtOnce),
        ("cron.status", "c", Read, AtOnce),
        ("cron.list", "c", Read, AtOnce),
        ("cron.add", "c", Admin, AtOnce),
        ("cron.update", "c", Admin, AtOnce),
        ("cron.remove", "c", Admin, AtOnce),
        ("cron.run", "c", Chat, Run),
        ("cron.runs", "c", Read, AtOnce),
        ("pair.list", "c", Admin, AtOnce),
        ("pair.approve", "c", Admin, AtOnce),
        ("pair.reject", "c", Admin, AtOnce),
        ("skills.status", "c", Read, AtOnce),
        ("skills.update", "c", Read, FromRequest),
        ("workspace.list", "c", Read, AtOnce),
        ("workspace.read", "c", Read, AtOnce),
        ("workspace.write", "c", Admin, AtOnce),
        ("workspace.delete", "c", Admin, AtOnce),
    ]
};

#[test]
fn every_method_is_for_its_modes_only() {
    assert_eq!(TABLE.len(), ROWS.len());
    for ((name, modes, scope, deadline), row) in ROWS.iter().zip(TABLE) {
        assert_eq!((row.name, row.scope, row.deadline), (*name, *scope, *deadline));
        assert_eq!(row.method.name(), *name);
        assert_eq!(row.method.table_row(), row, "{name}");
        assert_eq!(dispatch_method(name, None).is_ok(), *name == "connect", "{name} before connect");
        for (mode, letter) in [(PeerMode::Client, 'c'), (PeerMode::Node, 'n'), (PeerMode::Channel, 'h')] {
            let want = if modes.contains(letter) {
                Ok(row.method)
            } else {
                Err(GsvError::new(403, format!("Method {name} not allowed for mode")))
            };
            assert_eq!(dispatch_method(name, Some(mode)), want, "{name} as {mode:?}");
        }
    }
}

#[test]
fn not_connected_wins_over_unknown() {
    assert_eq!(dispatch_method("fly", None), Err(GsvError::new(101, "Not connected")));
    assert_eq!(dispatch_method("fly", Some(PeerMode::Node)), Err(GsvError::new(404, "Unknown method: fly")));
}

#[test]
fn hello_lists_everything() {
    let hello = encode_response(&GsvRequestId::from_text("1"), &HelloOk::new("0.1.0", "c0ffee"));
    let begin = r#"{"type":"res","id":"1","ok":true,"payload":{"type":"hello-ok","protocol":1,"server":{"version":"0.1.0","connectionId":"c0ffee"},"features":{"methods":["connect","chat.send","config.get","#;
    let end = r#""workspace.write","workspace.delete"],"events":["chat","tool.invoke","node.probe","logs.get","channel.outbound","channel.typing"]}}}"#;
    assert!(hello.starts_with(begin) && hello.ends_with(end), "{hello}");
    let for_node = encode_response(&GsvRequestId::from_text("1"), &HelloOk::new("0.1.0", "c0ffee").with_resume());
    assert!(for_node.ends_with(r#""channel.typing","tool.resume"]}}}"#), "{for_node}");
    assert_eq!(hello.matches('.').count(), ROWS.iter().map(|row| row.0.matches('.').count()).sum::<usize>() + 7);
}

#[test]
fn our_node_connects_as_others_do() {
    let params = ConnectParams {
        min_protocol: 1,
        max_protocol: 1,
        client: ConnectClient { id: "box", version: "0.1.0", platform: "linux", mode: PeerMode::Node },
        tools: Some(&[]),
        node_runtime: None,
        journal: Some(true),
        journal_id: Some("00c0ffee00c0ffee"),
        auth: Some(ConnectAuth { token: "secret" }),
    };
    let want = r#"{"type":"req","id":"1","method":"connect","params":{"minProtocol":1,"maxProtocol":1,"client":{"id":"box","version":"0.1.0","platform":"linux","mode":"node"},"tools":[],"journal":true,"journalId":"00c0ffee00c0ffee","auth":{"token":"secret"}}}"#;
    assert_eq!(encode_request("1", Method::Connect, Some(&params)), want);
    assert!(!format!("{params:?}").contains("secret"));
}
