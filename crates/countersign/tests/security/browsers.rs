//! Pages of other sites: what their browsers send on their behalf opens no door.

use countersign_testkit::process::{
    agent_gate::{AgentClient, AgentSocketEvent},
    gsv::{self, GsvPeer},
    http,
};
use serde_json::{Value, json};

use crate::fixture::{PROTECTED_ROUTES, SecurityFixture};

/// Origins of foreign pages.
const FOREIGN: [&str; 12] = [
    "https://evil.example",
    "http://evil.example:80",
    "null",
    "http://sub.localhost:1",
    "http://localhost.evil.example",
    "http://127.0.0.1.evil.example",
    "http://localhost:1@evil.example",
    "http://evil.example#localhost",
    "http://[::1].evil.example",
    "file://",
    "chrome-extension://abcdefghijklmnop",
    "localhost",
];

#[test]
fn cross_site_websocket_hijacking() {
    let stage = SecurityFixture::new();
    let cookie = stage.login_cookie();
    for door in PROTECTED_ROUTES {
        for origin in FOREIGN {
            for headers in [&[("origin", origin)][..], &[("origin", origin), ("cookie", &cookie)]] {
                let answered = door.request_head(&stage.gateway.address, headers);
                assert_eq!(answered.status, 403, "{} from {origin}: {answered:?}", door.name);
                assert!(!answered.head.contains("access-control-allow"), "{answered:?}");
            }
        }
        // Else the table would be of endpoints that never open.
        let own = format!("http://{}", stage.gateway.address);
        let answered = door.request_head(&stage.gateway.address, &[("origin", &own), ("cookie", &cookie)]);
        let is_closed = answered.head.contains("location: /login");
        let acts = door.method == "POST";
        assert!(!is_closed && (answered.status < 300 || answered.status == 101 || acts), "{}: {answered:?}", door.name);
    }
}

/// A browser that says nothing of where its page is from sends its cookies all the same: they open no socket.
#[test]
fn a_cookie_alone_opens_no_websocket() {
    let stage = SecurityFixture::new();
    let cookie = stage.login_cookie();
    let headers = [("cookie", cookie.as_str())];
    let mut agent = AgentClient::connect_with(&stage.gateway, &headers).unwrap();
    agent.send_frame(json!({ "method": "list_tools", "id": 1 }));
    let AgentSocketEvent::Frame(frame) = agent.next() else { panic!("no answer") };
    assert_eq!(frame["error"]["code"], -32005, "{frame}");
    let mut client = GsvPeer::open_connection_with(&stage.gateway, &headers).unwrap();
    let mut params = gsv::connect_params("client", "c");
    params["auth"]["token"] = Value::Null;
    assert_eq!(client.expect_error("connect", params)["code"], 401);
}

#[test]
fn no_page_takes_the_address_of_a_server_from_its_own() {
    let stage = SecurityFixture::new();
    let cookie = stage.login_cookie();
    let http = http::HttpClient::new(&stage.gateway.address).with_header("cookie", &cookie);
    let evil = "wss://evil.example/x";
    for page in ["/console/", "/console/sessions", "/console/record", "/console/policy", "/console/agents"] {
        let path = format!("{page}?gatewayUrl={evil}&url={evil}&server={evil}&ws={evil}&token=t0k3n");
        let reply = http.get(&path);
        assert!(!reply.body.contains("evil.example"), "{page}");
        let policy = reply.header("content-security-policy").unwrap();
        for want in ["default-src 'self'", "base-uri 'none'", "frame-ancestors 'none'", "form-action 'self'"] {
            assert!(policy.contains(want), "{page}: no {want} in {policy}");
        }
    }
    // A script that may connect to its own origin only cannot be led elsewhere; this one does not even look.
    let script = http.get("/console/app.js").body;
    for word in ["location.search", "location.hash", "URLSearchParams(location", "new URL(location", "WebSocket("] {
        assert!(!script.contains(word), "the console's script reads {word}");
    }
    for next in ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)"] {
        let encoded: String = next.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let reply = http.get(&format!("/login?next={encoded}"));
        assert_eq!((reply.status, reply.header("location")), (303, Some("/")), "{next}");
    }
}
