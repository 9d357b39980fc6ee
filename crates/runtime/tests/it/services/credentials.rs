//! Credentials: how they are sent, and that they never come out.

use countersign_runtime::services::{BadCredentials, BadService, ServiceAuth, ServiceClient};
use serde_json::json;

use super::{SECRET, run, service, services, tool};
use crate::stand_in::{ServerAction, StandIn, answer};

#[tokio::test]
async fn each_way_sends_them_as_the_service_expects() {
    for (auth, want) in [
        (ServiceAuth::Bearer(" tok en\n".into()), "\r\nauthorization: Bearer tok en\r\n"),
        (ServiceAuth::Header { name: "X-Api-Key".to_owned(), token: "tok en".into() }, "\r\nx-api-key: tok en\r\n"),
        (
            ServiceAuth::Query { param: "api key".to_owned(), token: "a&b=c".into() },
            "GET /x?q=1&api%20key=a%26b%3Dc HTTP/1.1\r\n",
        ),
        (
            ServiceAuth::Basic { user: "me".to_owned(), password: "p:ü".into() },
            "\r\nauthorization: Basic bWU6cDrDvA==\r\n",
        ),
    ] {
        let stand_in = StandIn::saying(answer("200 OK", "application/json", "1")).await;
        let mut service = service(&stand_in.url());
        service.auth = auth;
        run(&services(service), &tool("GET", "/x?q=1"), json!({})).await;
        assert!(stand_in.seen()[0].contains(want), "{}", stand_in.seen()[0]);
    }
}

#[tokio::test]
async fn an_argument_cannot_take_the_place_of_the_query_parameter() {
    let stand_in = StandIn::saying(answer("200 OK", "application/json", "1")).await;
    let mut service = service(&stand_in.url());
    service.auth = ServiceAuth::Query { param: "key".to_owned(), token: "ours-alone".into() };
    run(&services(service), &tool("GET", "/x?key={key}"), json!({"key": "forged"})).await;
    assert!(stand_in.seen()[0].starts_with("GET /x?key=ours-alone HTTP/1.1"));
}

#[tokio::test]
async fn no_text_and_no_value_holds_them() {
    let pair = "bWU6czNjcjN0Lyt0b2sgZW4ieA==";
    // By itself, after one letter and after two; and in digits.
    let spelt = "czNjcjN0Lyt0b2sgZW4ieA== eHMzY3IzdC8rdG9rIGVuIng= eHhzM2NyM3QvK3RvayBlbiJ4 7333637233742f2b746f6b20656e2278 7333637233742F2B746F6B20656E2278";
    let echo = format!(
        "{SECRET} {pair} {spelt} s3cr3t%2F%2Btok%20en%22x s3cr3t/+tok en\\\"x s3cr3t\\/+tok en\\\"x {}",
        json!({ "seen": SECRET })
    );
    let json =
        json!({ "headers": { "authorization": format!("Bearer {SECRET}") }, SECRET: [pair, SECRET] }).to_string();
    let acts = [
        ServerAction::Say(answer("500 Broken", "text/plain", &echo)),
        ServerAction::Say(answer("418 Teapot", "text/plain", &echo)),
        ServerAction::Say(answer("200 OK", "text/plain", &echo)),
        ServerAction::Say(answer("200 OK", "application/json", &json)),
        ServerAction::Say(answer("200 OK", SECRET, "\u{1}\u{2}")),
        ServerAction::Last(format!("{SECRET}\r\n\r\n").into_bytes()),
        ServerAction::BreakOff,
        ServerAction::Say(
            format!("HTTP/1.1 302 Go\r\nlocation: http://127.0.0.1:1/{pair}\r\ncontent-length: 0\r\n\r\n").into(),
        ),
    ];
    for auth in [
        ServiceAuth::Bearer(SECRET.into()),
        ServiceAuth::Header { name: "X-Key".to_owned(), token: format!("Token {SECRET}").into() },
        ServiceAuth::Query { param: "key".to_owned(), token: SECRET.into() },
        ServiceAuth::Basic { user: "me".to_owned(), password: SECRET.into() },
    ] {
        for act in &acts {
            let stand_in = StandIn::doing(vec![act.clone()]).await;
            let mut service = service(&stand_in.url());
            service.errors = vec![(418, "{body}".to_owned())];
            service.auth = auth.clone();
            let services = services(service.clone());
            let outcome = run(&services, &tool("GET", "/x"), json!({})).await;
            let debug_text = format!("{outcome:?} {services:?} {service:?}");
            assert!(!debug_text.contains("s3cr3t"), "{debug_text}");
            for form in [
                "czNjcjN0Lyt0b2sgZW4ie",
                "MzY3IzdC8rdG9rIGVuIn",
                "zM2NyM3QvK3RvayBlbiJ4",
                "746f6b20656e2278",
                "746F6B20656E2278",
            ] {
                assert!(!debug_text.contains(form), "{form}: {debug_text}");
            }
            assert!(!matches!(auth, ServiceAuth::Basic { .. }) || !debug_text.contains(pair), "{debug_text}");
        }
    }
}

#[test]
fn credentials_that_cannot_be_sent_are_refused_and_not_printed() {
    let header = |name: &str, token: &str| ServiceAuth::Header { name: name.to_owned(), token: token.into() };
    for (auth, bad) in [
        (ServiceAuth::Bearer("s3cr3t\r\nx: y".into()), BadCredentials::Value),
        (header("X-Key", "s3cr3t\ny"), BadCredentials::Value),
        (header("X Key", "s3cr3t"), BadCredentials::Name("X Key".to_owned())),
        (header("Transfer-Encoding", "s3cr3t"), BadCredentials::Name("Transfer-Encoding".to_owned())),
        (ServiceAuth::Basic { user: "a:b".to_owned(), password: "s3cr3t".into() }, BadCredentials::Colon),
        (ServiceAuth::Query { param: String::new(), token: "s3cr3t".into() }, BadCredentials::Parameter),
    ] {
        let mut service = service("http://h");
        service.auth = auth;
        let refused = ServiceClient::new(vec![service]).unwrap_err();
        assert!(!format!("{refused} {refused:?}").contains("s3cr3t"));
        assert_eq!(refused, BadService::Credentials("home".to_owned(), bad));
    }
}
