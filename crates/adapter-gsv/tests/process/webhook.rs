//! Channel of signed requests over HTTP, in and out.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_testkit::process::{
    GatewayFixture,
    gsv::GsvPeer,
    http::{HttpClient, HttpClientReply},
    provider::text_reply,
    server::FakeServer,
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn signature(id: &str, timestamp: &str, body: &str) -> String {
    let key = STANDARD.decode(SECRET.strip_prefix("whsec_").unwrap()).unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
    mac.update(format!("{id}.{timestamp}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Posts a message that was signed so many seconds ago.
pub(crate) fn post(
    address: &str,
    path: &str,
    id: &str,
    age: u64,
    body: &Value,
    sign: impl Fn(String) -> String,
) -> HttpClientReply {
    let timestamp = (now() - age).to_string();
    let signed = sign(signature(id, &timestamp, &body.to_string()));
    let http = HttpClient::new(address).with_header("webhook-id", id).with_header("webhook-timestamp", &timestamp);
    http.with_header("webhook-signature", &signed).post(path, body)
}

pub(crate) fn hello(words: &str) -> Value {
    json!({ "peer": { "kind": "dm", "id": "ana" }, "message": { "text": words } })
}

pub(crate) fn set_up(client: &mut GsvPeer, url: Option<&str>) {
    let set = |client: &mut GsvPeer, path: &str, value: &str| {
        client.expect_ok("config.set", json!({ "path": path, "value": value }));
    };
    set(client, "channels.webhook.secret", SECRET);
    if let Some(url) = url {
        set(client, "channels.webhook.url", url);
    }
}

#[test]
fn signed_messages_count_once_and_replies_are_posted_signed_until_accepted() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut client) = scene.start_peer();
    let count = AtomicUsize::new(0);
    // The first time the other server fails.
    let other = FakeServer::start(move |_| {
        let status = if count.fetch_add(1, Ordering::SeqCst) == 0 { 503 } else { 204 };
        (status, String::new())
    });
    set_up(&mut client, Some(&format!("{}/hook", other.url)));
    scene.provider.script_replies([text_reply("it is locked")]);
    let taken = post(&gateway.address, "/channels/webhook", "m1", 0, &hello("is the door locked?"), |it| it);
    assert_eq!((taken.status, &taken.json()["status"]), (200, &json!("started")), "{taken:?}");
    let (first, second) = (other.wait_request(0, |_| true), other.wait_request(1, |_| true));
    let want = json!({
        "channel": "webhook", "accountId": "default", "peer": { "kind": "dm", "id": "ana" },
        "sessionKey": "agent:main:main", "message": { "text": "it is locked", "replyToId": "m1" },
    });
    for request in [&first, &second] {
        assert_eq!((request.path.as_str(), &request.body), ("/hook", &want));
        let (id, at) = (request.header("webhook-id"), request.header("webhook-timestamp"));
        assert_eq!(request.header("webhook-signature"), signature(id, at, &request.text));
        assert!(id.starts_with("letter_"), "{id}");
    }
    assert_eq!(first.header("webhook-id"), second.header("webhook-id"));
    let again = post(&gateway.address, "/channels/webhook", "m1", 0, &hello("is the door locked?"), |it| it);
    assert_eq!(again.json(), taken.json());
    gateway.kill();
    let gateway = scene.start();
    let again = post(&gateway.address, "/channels/webhook", "m1", 0, &hello("is the door locked?"), |it| it);
    assert_eq!((again.json(), scene.provider.request_count()), (taken.json(), 1));
    let mut client = GsvPeer::connect_client(&gateway, "again");
    let status = client.expect_ok("channel.status", json!({ "channel": "webhook" }));
    assert_eq!(status["accounts"][0]["connected"], true, "{status}");
    scene.verify_log();
}

#[test]
fn requests_without_a_recent_signature_are_refused() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut client) = scene.start_peer();
    let refused = |path: &str, age: u64, sign: &dyn Fn(String) -> String| {
        let reply = post(&gateway.address, path, "m1", age, &hello("hi"), sign);
        let want = json!({ "code": 401, "message": "Unauthorized: missing, wrong or old signature" });
        assert_eq!((reply.status, reply.json()), (401, want), "{path} {age}");
    };
    refused("/channels/webhook", 0, &|it| it);
    set_up(&mut client, None);
    refused("/channels/webhook", 301, &|it| it);
    refused("/channels/webhook", 0, &|_| "v1,AAAA".to_owned());
    refused("/channels/webhook", 0, &|_| String::new());
    refused("/channels/webhook/other", 0, &|it| it);
    let malformed =
        post(&gateway.address, "/channels/webhook", "m2", 0, &json!({ "message": { "text": "hi" } }), |it| it);
    let want = json!({ "code": 400, "message": "channel, accountId, peer, and message required" });
    assert_eq!((malformed.status, malformed.json()), (400, want));
    assert_eq!(scene.provider.request_count(), 0);
    let shown = client.expect_ok("config.get", json!({ "path": "channels.webhook" }));
    assert_eq!(shown["value"]["secret"], "***");
    assert_eq!(client.expect_error("channel.login", json!({ "channel": "webhook" }))["code"], 400);
}

#[test]
fn a_redirect_is_not_followed_and_the_letter_is_not_tried_again() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut client) = scene.start_peer();
    let other = FakeServer::start(|request| match request.path.as_str() {
        "/moved" => (302, String::new()),
        _ => (204, String::new()),
    });
    set_up(&mut client, Some(&format!("{}/moved", other.url)));
    scene.provider.script_replies([text_reply("one"), text_reply("two")]);
    post(&gateway.address, "/channels/webhook", "m1", 0, &hello("one?"), |it| it);
    other.wait_request(0, |request| request.path == "/moved");
    client.expect_ok("config.set", json!({ "path": "channels.webhook.url", "value": format!("{}/here", other.url) }));
    post(&gateway.address, "/channels/webhook", "m2", 0, &hello("two?"), |it| it);
    let second = other.wait_request(0, |request| request.path == "/here");
    assert_eq!(second.body["message"]["text"], "two");
    assert_eq!(other.request_count(|request| request.path == "/moved"), 1);
}

#[test]
fn a_body_that_says_nothing_of_its_length_or_is_too_long_is_refused_and_small_ones_go_on() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut client) = scene.start_peer();
    set_up(&mut client, None);
    let long = hello(&"x".repeat((1 << 20) + 10));
    let taken = post(&gateway.address, "/channels/webhook", "m1", 0, &long, |it| it);
    assert_eq!(taken.status, 200, "{taken:?}");
    let forged = post(&gateway.address, "/channels/webhook", "m2", 0, &long, |_| "v1,AAAA".to_owned());
    assert_eq!(forged.status, 401);
    let timestamp = now().to_string();
    // Beyond the limit: known by its length alone, or by the received bytes of one without a length.
    for (how, body) in [
        ("content-length: 99000000", Vec::new()),
        (
            "transfer-encoding: chunked",
            [b"2800001\r\n".as_slice(), &vec![b'x'; 0x0280_0001], b"\r\n0\r\n\r\n"].concat(),
        ),
    ] {
        let mut stream = std::net::TcpStream::connect(&gateway.address).unwrap();
        let head = format!(
            "POST /channels/webhook HTTP/1.1\r\nhost: {}\r\nwebhook-id: m0\r\nwebhook-timestamp: {timestamp}\r\nwebhook-signature: v1,AAAA\r\n{how}\r\n\r\n",
            gateway.address
        );
        std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
        // The gateway may have answered before it had all of it.
        let _ = std::io::Write::write_all(&mut stream, &body);
        let mut status_line = [0; 12];
        std::io::Read::read_exact(&mut stream, &mut status_line).unwrap();
        assert_eq!(&status_line, b"HTTP/1.1 413", "{how}");
    }
    // As many requests as may come at once are begun and never end.
    let held: Vec<std::net::TcpStream> = (0..4)
        .map(|_| {
            let mut stream = std::net::TcpStream::connect(&gateway.address).unwrap();
            let head = format!(
                "POST /channels/webhook HTTP/1.1\r\nhost: {}\r\nexpect: 100-continue\r\nwebhook-id: m3\r\nwebhook-timestamp: {timestamp}\r\nwebhook-signature: v1,AAAA\r\ncontent-length: 30000000\r\n\r\n",
                gateway.address
            );
            std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
            // The gateway reads the body.
            let mut status_line = [0; 12];
            std::io::Read::read_exact(&mut stream, &mut status_line).unwrap();
            assert_eq!(&status_line, b"HTTP/1.1 100");
            stream
        })
        .collect();
    let busy = post(&gateway.address, "/channels/webhook", "m4", 0, &long, |it| it);
    assert_eq!((busy.status, &busy.json()["retryable"]), (503, &json!(true)), "{busy:?}");
    let small = post(&gateway.address, "/channels/webhook", "m5", 0, &hello("hi"), |it| it);
    assert_eq!(small.status, 200, "{small:?}");
    drop(held);
}
