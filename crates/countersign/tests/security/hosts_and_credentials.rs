//! Names under which an attacker may lead a browser here, ports that others reach, and credentials at the wrong place.

use std::net::{SocketAddr, TcpStream, UdpSocket};

use countersign_testkit::process::{
    AGENT_TOKEN as AGENT, GatewayFixture, GatewayOptions, GatewayServer, RULES,
    agent_gate::AgentClient,
    gsv::{self, GsvPeer, TOKEN},
};
use serde_json::json;

use crate::fixture::{PROTECTED_ROUTES, SecurityFixture, request_head};

/// Host headers of a browser that an attacker has led here, and near misses of our own names.
const NAMES: [&str; 20] = [
    "evil.example",
    "evil.example:80",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "127.0.0.1.nip.io",
    "sub.localhost",
    "localhost.",
    "xlocalhost",
    "localhost@evil.example",
    "evil.example@localhost:80",
    "localhost:80:80",
    "localhost:x",
    "[::1].evil.example",
    "[::1",
    "127.1",
    "0x7f.0.0.1",
    "2130706433",
    "0.0.0.0",
    "169.254.169.254",
    "\"localhost\"",
];

#[test]
fn dns_rebinding() {
    let stage = SecurityFixture::new();
    let cookie = stage.login_cookie();
    for door in PROTECTED_ROUTES {
        for name in NAMES {
            // A page that was led here by another name is of its own origin, and says so.
            let origin = format!("http://{name}");
            for headers in [&[("host", name)][..], &[("host", name), ("origin", &origin), ("cookie", &cookie)]] {
                let answered = door.request_head(&stage.gateway.address, headers);
                assert!(matches!(answered.status, 400 | 403), "{} as {name}: {answered:?}", door.name);
            }
        }
    }
}

#[test]
fn names_of_a_host_that_were_made_by_chance_are_refused() {
    let stage = SecurityFixture::new();
    let mut dice: u64 = 0x9e37_79b9_7f4a_7c15;
    let parts =
        ["localhost", "127.0.0.1", "[::1]", ".", ":", "80", "@", "evil", "%", "/", "\\", "_", "xn--", "::", "0"];
    for _ in 0..400 {
        let mut name = String::new();
        for _ in 0..2 + dice % 4 {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            name.push_str(parts[usize::try_from(dice % 15).unwrap()]);
        }
        let host = name.rsplit_once(':').map_or(&*name, |(host, port)| match port.parse::<u16>() {
            Ok(_) => host,
            Err(_) => &name,
        });
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_ours = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|at| at.is_loopback());
        let answered = request_head(&stage.gateway.address, "GET", "/healthz", &[("host", &name)]);
        assert!(is_ours || matches!(answered.status, 400 | 403), "{name}: {answered:?}");
    }
}

/// Returns an address of this machine that others reach, if it has one. Nothing is sent.
fn reachable() -> Option<SocketAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().filter(|address| !address.ip().is_loopback() && !address.ip().is_unspecified())
}

#[test]
fn unauthenticated_localhost_http() {
    let place = GatewayFixture::with_config_and_rules("", RULES);
    place.write_file("config.yaml", "gateway: { port: 0 }\nstorage: { type: sqlite, path: data/countersign.db }\n");
    let gateway = GatewayServer::start(&place);
    let address: SocketAddr = gateway.address.parse().unwrap();
    assert!(address.ip().is_loopback(), "{address}");
    if let Some(mut outside) = reachable() {
        outside.set_port(address.port());
        assert!(TcpStream::connect(outside).is_err(), "others reach {outside}");
    }
    for door in PROTECTED_ROUTES {
        for headers in [[("origin", "https://evil.example")], [("host", "evil.example")]] {
            let answered = door.request_head(&gateway.address, &headers);
            assert_eq!(answered.status, 403, "{} {headers:?}: {answered:?}", door.name);
        }
        let preflight = [("origin", "https://evil.example"), ("access-control-request-method", "POST")];
        let answered = request_head(&gateway.address, "OPTIONS", door.path, &preflight);
        assert!(answered.status == 403 && !answered.head.contains("access-control-allow"), "{answered:?}");
    }
    for host in ["0.0.0.0", "::"] {
        let output = place.run(&["serve", "--config", "config.yaml", "--host", host]);
        assert!(output.code != Some(0) && !output.out.contains("ready"), "{host}: {output:?}");
    }
}

/// Tests that tokens are taken from headers and first frames only: an address is in logs.
#[test]
fn token_in_url() {
    let stage = SecurityFixture::new();
    let (reader, cookie) = (stage.create_program_token("reader", "read"), stage.login_cookie());
    let value = cookie.split_once('=').unwrap().1;
    for secret in [reader.as_str(), TOKEN, AGENT, crate::fixture::PASSWORD, value] {
        for name in ["token", "access_token", "auth", "key", "api_key", "password", "hermes_session", "bearer"] {
            for path in ["/api/v1/gates", "/api/v1/events", "/api/sessions", "/console/"] {
                let answered = stage.request_head("GET", &format!("{path}?{name}={secret}"), &[]);
                assert!(answered.is_refused(), "{path}?{name}: {answered:?}");
            }
        }
    }
    let (mut agent, mut client) = (AgentClient::connect(&stage.gateway), GsvPeer::open_connection(&stage.gateway));
    // Both sockets take any query, and none of it authenticates.
    for (path, secret) in [("/", AGENT), ("/ws", TOKEN)] {
        let path = format!("{path}?token={secret}");
        assert_eq!(stage.request_head("GET", &path, &crate::fixture::UPGRADE).status, 101);
    }
    assert_eq!(agent.exchange_frame(json!({ "method": "list_tools", "id": 1 }))["error"]["code"], -32005);
    assert_eq!(client.expect_error("tools.list", json!({}))["code"], 101);
}

/// Clients say what they would like to be allowed. It can only make less of what they are.
#[test]
fn self_declared_scopes() {
    let stage = SecurityFixture::new();
    let claimed_scopes = json!(["operator.admin", "admin", "read", "answer", "chat"]);
    for token in [json!("wrong"), serde_json::Value::Null] {
        let mut params = gsv::connect_params("client", "c");
        params["auth"] = json!({ "token": token, "scopes": claimed_scopes, "role": "admin" });
        params["scopes"] = claimed_scopes.clone();
        params["role"] = "operator".into();
        let mut peer = GsvPeer::open_connection(&stage.gateway);
        assert_eq!(peer.expect_error("connect", params)["code"], 401);
    }
    // A node that calls itself a person's client as well is a node.
    let mut params = gsv::node_params("n", &["A"]);
    params["scopes"] = claimed_scopes.clone();
    params["client"]["scopes"] = claimed_scopes.clone();
    params["role"] = "client".into();
    let mut node = GsvPeer::open_connection(&stage.gateway);
    node.expect_ok("connect", params);
    for method in ["config.set", "pair.approve", "chat.send", "sessions.list"] {
        assert_eq!(node.expect_error(method, json!({}))["code"], 403, "{method}");
    }
    let reader = format!("Bearer {}", stage.create_program_token("reader", "read"));
    for header in ["x-scopes", "x-openclaw-scopes", "scope", "x-forwarded-user", "x-remote-user", "x-auth-scopes"] {
        let headers = [("authorization", reader.as_str()), (header, "admin,answer,chat")];
        let path = "/api/v1/gates/gate_00000000/allow?scope=answer&scopes=admin";
        assert_eq!(stage.request_head("POST", path, &headers).status, 403, "{header}");
        assert!(stage.request_head("GET", "/api/v1/gates", &[(header, "admin")]).is_refused(), "{header}");
    }
}

#[test]
fn an_adapter_that_needs_a_credential_refuses_connections_without_one() {
    // No agent and no clients' token: agents are rejected everywhere, with any token.
    let scene = GatewayOptions::for_models().with_config("").create();
    scene.write_file("config.yaml", "gateway: { port: 0 }\nstorage: { type: sqlite, path: data/countersign.db }\n");
    let gateway = scene.start();
    assert_eq!(request_head(&gateway.address, "GET", "/", &crate::fixture::UPGRADE).status, 403);
    assert_eq!(request_head(&gateway.address, "POST", "/channels/webhook", &[]).status, 401);
}
