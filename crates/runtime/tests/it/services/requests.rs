//! Content of requests.

use countersign_runtime::services::{BadService, DotSegment, ServiceCallOutcome, ServiceClient};
use serde_json::{Value, json};

use super::{map, run, service, services, tool};
use crate::stand_in::{StandIn, answer};

/// Returns the line and the body of the request of a call.
async fn sent(base: &str, method: &str, path: &str, exclude: &[&str], arguments: Value) -> (String, String) {
    let stand_in = StandIn::saying(answer("200 OK", "application/json", "1")).await;
    let mut call = tool(method, path);
    call.body_exclude = exclude.iter().map(|name| (*name).to_owned()).collect();
    let outcome = run(&services(service(&format!("{}{base}", stand_in.url()))), &call, arguments).await;
    assert_eq!(outcome, ServiceCallOutcome::Done(json!(1)));
    let request = stand_in.seen().remove(0);
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

#[tokio::test]
async fn values_stand_in_path_and_query_as_data() {
    for (base, path, arguments, line) in [
        (
            "",
            "/api/states/{entity_id}",
            json!({"entity_id": "light.bedroom", "other": 1}),
            "GET /api/states/light.bedroom",
        ),
        ("/", "/a/{x}", json!({"x": "b/c?d=e&f#g"}), "GET /a/b%2Fc%3Fd%3De%26f%23g"),
        (
            "/base/",
            "/a?q={x}&r={y}",
            json!({"x": "1&admin=1 +", "y": "ü%41"}),
            "GET /base/a?q=1%26admin%3D1%20%2B&r=%C3%BC%2541",
        ),
        ("/base", "a/{x}/b", json!({}), "GET /base/a//b"),
        ("", "/a/{x}", json!({"x": "{y}", "y": "z"}), "GET /a/%7By%7D"),
        ("", "/a/{x}{y}{z}{w}", json!({"x": 5, "y": true, "z": null, "w": 1.5}), "GET /a/5TrueNone1.5"),
        ("", "/a/{x}", json!({"x": "...", "y": 1}), "GET /a/..."),
        ("", "/a b/#c", json!({}), "GET /a%20b/%23c"),
        ("", "", json!({}), "GET /"),
        ("", "/a?q=../{x}", json!({"x": ".."}), "GET /a?q=../.."),
    ] {
        assert_eq!(sent(base, "GET", path, &[], arguments).await, (format!("{line} HTTP/1.1"), String::new()));
    }
}

#[tokio::test]
async fn dot_segments_are_refused_before_anything_is_sent() {
    let stand_in = StandIn::saying(answer("200 OK", "application/json", "1")).await;
    let services = services(service(&stand_in.url()));
    let call = tool("GET", "/api/{a}{b}/x?q={q}");
    for value in
        ["..", ".", "../x", "x/../y", "%2e%2E", "%252e.", "..%2fx", "..\\x", "..;v", "x/%2e", "%25252525252525252e"]
    {
        let arguments = json!({ "a": value, "q": ".." });
        let refused = DotSegment::Argument("a".to_owned());
        assert_eq!(call.check_arguments(&map(arguments.clone())), Err(refused.clone()), "{value}");
        assert_eq!(run(&services, &call, arguments).await, ServiceCallOutcome::Invalid(refused), "{value}");
    }
    assert_eq!(call.check_arguments(&map(json!({"a": ".", "b": "."}))), Err(DotSegment::Argument("a".to_owned())));
    assert_eq!(tool("GET", "/a/../b").check_arguments(&map(json!({}))), Err(DotSegment::Template));
    for value in ["...", "a..b", "light.x", "", "%"] {
        assert_eq!(call.check_arguments(&map(json!({ "a": value }))), Ok(()), "{value}");
    }
    assert_eq!(stand_in.connections(), 0);
    assert_eq!(DotSegment::Argument("a".to_owned()).to_string(), "Argument 'a' would change the path of the request");
}

#[tokio::test]
async fn bodies_go_with_three_methods() {
    let arguments = json!({"domain": "light", "entity_id": ["a", "b"], "n": 1});
    let whole = arguments.to_string();
    for (method, exclude, line, body) in [
        ("POST", &["domain"][..], "POST /light", r#"{"entity_id":["a","b"],"n":1}"#),
        ("PUT", &[], "PUT /light", whole.as_str()),
        ("PATCH", &["domain", "entity_id", "n"], "PATCH /light", "{}"),
        ("DELETE", &[], "DELETE /light", ""),
        ("GET", &[], "GET /light", ""),
        ("post", &[], "POST /light", ""),
    ] {
        let request = sent("", method, "/{domain}", exclude, arguments.clone()).await;
        assert_eq!(request, (format!("{line} HTTP/1.1"), body.to_owned()));
    }
}

/// Home Assistant's services that answer want a parameter, and refuse it where they do not.
#[tokio::test]
async fn arguments_of_the_query_stand_there_where_a_call_has_them_and_in_no_body() {
    for (path, arguments, line, body) in [
        ("/s", json!({"r": true, "e": "x"}), "POST /s?r=true", r#"{"e":"x"}"#),
        ("/s", json!({"r": "true"}), "POST /s?r=true", "{}"),
        ("/s?a=1", json!({"r": "x&b=2 #"}), "POST /s?a=1&r=x%26b%3D2%20%23", "{}"),
        ("/s", json!({"r": ["a", 1], "n é": null}), "POST /s?r=a&r=1", "{}"),
        ("/s", json!({"n é": 0.5}), "POST /s?n%20%C3%A9=0.5", "{}"),
        ("/s", json!({"r": false}), "POST /s", "{}"),
        ("/s", json!({}), "POST /s", "{}"),
    ] {
        let stand_in = StandIn::saying(answer("200 OK", "application/json", "1")).await;
        let mut call = tool("POST", path);
        call.query = vec!["r".to_owned(), "n é".to_owned()];
        let outcome = run(&services(service(&stand_in.url())), &call, arguments.clone()).await;
        assert_eq!(outcome, ServiceCallOutcome::Done(json!(1)), "{arguments}");
        let request = stand_in.seen().remove(0);
        let (head, sent) = request.split_once("\r\n\r\n").unwrap();
        let first = head.lines().next().unwrap();
        assert_eq!((first, sent), (&*format!("{line} HTTP/1.1"), body), "{arguments}");
    }
}

#[test]
fn services_that_cannot_be_used_are_refused() {
    for url in ["", "home", "ftp://h", "http://u:p@h", "http://h?x=1", "http://h#x", "http://"] {
        let refused = ServiceClient::new(vec![service(url)]).unwrap_err();
        assert_eq!(refused, BadService::Address("home".to_owned()), "{url}");
    }
    let twice = ServiceClient::new(vec![service("http://h"), service("http://h")]).unwrap_err();
    assert_eq!(twice, BadService::Twice("home".to_owned()));
}
