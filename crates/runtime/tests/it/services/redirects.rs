//! Redirects.

use countersign_runtime::services::{ServiceAuth, ServiceCallOutcome};
use serde_json::json;

use super::{SECRET, failed, run, service, services, tool};
use crate::stand_in::{ServerAction, StandIn, answer};

const STATUSES: [u16; 5] = [301, 302, 303, 307, 308];

fn to(status: u16, location: &str) -> ServerAction {
    ServerAction::Say(format!("HTTP/1.1 {status} Go\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n").into_bytes())
}

fn fine() -> ServerAction {
    ServerAction::Say(answer("200 OK", "application/json", "1"))
}

fn ways() -> [ServiceAuth; 4] {
    [
        ServiceAuth::Bearer(SECRET.into()),
        ServiceAuth::Header { name: "X-Api-Key".to_owned(), token: SECRET.into() },
        ServiceAuth::Query { param: "key".to_owned(), token: SECRET.into() },
        ServiceAuth::Basic { user: "me".to_owned(), password: SECRET.into() },
    ]
}

/// Reports whether a request carries the service's credentials.
fn is_known(request: &str) -> bool {
    let request = request.to_lowercase();
    request.contains("\r\nauthorization:") || request.contains("\r\nx-api-key:") || request.contains("key=")
}

#[tokio::test]
async fn no_redirect_is_followed_for_what_changes_something() {
    for status in STATUSES {
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            let stand_in = StandIn::doing(vec![to(status, "/elsewhere")]).await;
            let outcome = run(&services(service(&stand_in.url())), &tool(method, "/x"), json!({"a": 1})).await;
            assert_eq!(outcome, failed(&format!("API error {status}: the redirect was not followed")));
            assert_eq!(stand_in.seen().len(), 1);
        }
    }
}

#[tokio::test]
async fn credentials_stay_with_their_origin() {
    for status in STATUSES {
        for auth in ways() {
            let stand_in = StandIn::doing(vec![to(status, "../y?a=1"), fine()]).await;
            let mut service = service(&stand_in.url());
            service.auth = auth;
            let outcome = run(&services(service), &tool("GET", "/b/x"), json!({})).await;
            assert_eq!(outcome, ServiceCallOutcome::Done(json!(1)));
            let seen = stand_in.seen();
            assert!(seen[1].starts_with("GET /y?a=1"), "{seen:?}");
            assert!(seen.iter().all(|request| is_known(request)), "{seen:?}");
        }
    }
}

#[tokio::test]
async fn another_origin_gets_no_credentials_nor_does_the_way_back() {
    for status in STATUSES {
        for auth in ways() {
            let home = StandIn::doing(vec![fine()]).await;
            let other = StandIn::doing(vec![to(status, &format!("{}/back?key=forged", home.url()))]).await;
            let first = StandIn::doing(vec![to(status, &format!("{}/y?a=1&key=s3cr3t", other.url()))]).await;
            let mut service = service(&first.url());
            service.auth = auth.clone();
            let outcome = run(&services(service), &tool("GET", "/x"), json!({})).await;
            assert_eq!(outcome, ServiceCallOutcome::Done(json!(1)));
            assert!(is_known(&first.seen()[0]));
            let mut strangers = [other.seen(), home.seen()].concat();
            assert_eq!(strangers.len(), 2);
            if !matches!(auth, ServiceAuth::Query { .. }) {
                strangers = strangers.iter().map(|request| request.replace("key=", "")).collect();
            }
            assert!(!strangers.iter().any(|request| is_known(request)), "{strangers:?}");
        }
    }
}

#[tokio::test]
async fn a_service_that_hands_the_credentials_on_is_not_followed() {
    let other = StandIn::doing(vec![fine()]).await;
    for place in ["/y/s3cr3t%2F%2Btok%20en%22x", "/y?other=s3cr3t/%2Btok%20en%22x", "/s3cr3t/+tok%20en%22x"] {
        let first = StandIn::doing(vec![to(302, &format!("{}{place}", other.url()))]).await;
        let outcome = run(&services(service(&first.url())), &tool("GET", "/x"), json!({})).await;
        assert_eq!(outcome, failed("API error 302: the redirect was not followed"));
    }
    assert_eq!(other.connections(), 0);
}

#[tokio::test]
async fn a_circle_ends() {
    let stand_in = StandIn::doing(vec![to(302, "/x")]).await;
    let outcome = run(&services(service(&stand_in.url())), &tool("GET", "/x"), json!({})).await;
    assert_eq!(outcome, failed("API error 302: the redirect was not followed"));
    assert_eq!(stand_in.seen().len(), 6);
}

#[tokio::test]
async fn only_http_is_followed() {
    for location in ["file:///etc/passwd", "ftp://h/x", "javascript:1", "http://"] {
        let stand_in = StandIn::doing(vec![to(302, location)]).await;
        let outcome = run(&services(service(&stand_in.url())), &tool("GET", "/x"), json!({})).await;
        assert_eq!(outcome, failed("API error 302: the redirect was not followed"), "{location}");
    }
}
