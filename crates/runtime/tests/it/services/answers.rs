//! Results of answers.

use countersign_runtime::services::{HealthFailure, ServiceCallOutcome};
use serde_json::{Value, json};

use super::{failed, get, run, service, services, tool};
use crate::stand_in::{ServerAction, StandIn, answer};

#[tokio::test]
async fn whole_answers_become_values() {
    let cases: [(Vec<u8>, Value); 10] = [
        (answer("200 OK", "application/json", "{\"a\": [1, null]}"), json!({"a": [1, null]})),
        (answer("201 Created", "application/problem+json; charset=utf-8", "1"), json!(1)),
        (answer("200 OK", "text/plain", "21.5"), json!("21.5")),
        (answer("200 OK", "text/html; charset=utf-8", "<p>hello</p>"), json!("<p>hello</p>")),
        (answer("200 OK", "application/octet-stream", "just words"), json!("just words")),
        (answer("200 OK", "application/json", ""), Value::Null),
        (answer("200 OK", "application/json", "\u{feff}true"), json!(true)),
        (b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(), Value::Null),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_vec(), json!({})),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n[1,\r\n2\r\n2]\r\n0\r\n\r\n".to_vec(),
            json!([1, 2]),
        ),
    ];
    for (response, value) in cases {
        let stand_in = StandIn::saying(response.clone()).await;
        assert_eq!(
            get(&stand_in.url()).await,
            ServiceCallOutcome::Done(value),
            "{}",
            String::from_utf8_lossy(&response)
        );
    }
}

#[tokio::test]
async fn an_answer_is_wrapped_where_the_tool_says_so() {
    let stand_in = StandIn::saying(answer("200 OK", "application/json", "[1]")).await;
    let mut call = tool("GET", "/x");
    call.wrap = Some("states".to_owned());
    let outcome = run(&services(service(&stand_in.url())), &call, json!({})).await;
    assert_eq!(outcome, ServiceCallOutcome::Done(json!({"states": [1]})));
}

#[tokio::test]
async fn errors_have_their_mapped_text() {
    for (status, body, text) in [
        ("401 Unauthorized", "x", "Service authentication failed"),
        ("404 Not Found", "x", "Resource not found"),
        ("500 Broken", "bad\r\nluck \u{202e}\u{7}", "API error 500: bad\\r\\nluck \\u{202e}\\u{7}"),
        ("418 Teapot", "{status} {body}", "no coffee (418): {status} {body} {x}"),
        ("304 Not Modified", "", "API error 304: "),
    ] {
        let stand_in = StandIn::saying(answer(status, "text/plain", body)).await;
        let mut service = service(&stand_in.url());
        service.errors = vec![(418, "no coffee ({status}): {body} {x}".to_owned())];
        let outcome = run(&services(service), &tool("GET", "/x"), json!({})).await;
        assert_eq!(outcome, failed(text));
    }
}

/// The texts of agent-gate's first form name the entity, and Home Assistant.
#[tokio::test]
async fn an_error_may_name_an_argument_and_every_other_status_may_have_a_text() {
    for (status, arguments, text) in [
        ("404 Not Found", json!({"entity_id": "light.nowhere"}), "Entity not found: light.nowhere"),
        ("404 Not Found", json!({"entity_id": ["a", "{body}"]}), "Entity not found: [\"a\",\"{body}\"]"),
        ("404 Not Found", json!({"entity_id": "a\u{202e}b\n"}), "Entity not found: a\\u{202e}b"),
        // An entity that was not named must not be revealed.
        ("404 Not Found", json!({}), "Resource not found"),
        ("500 Broken", json!({}), "Home Assistant API error 500: no"),
        ("401 Unauthorized", json!({}), "Service authentication failed"),
        ("302 Found", json!({}), "API error 302: the redirect was not followed"),
    ] {
        let stand_in = StandIn::saying(answer(status, "text/plain", "no")).await;
        let mut service = service(&stand_in.url());
        service.errors = vec![(404, "Entity not found: {args.entity_id}".to_owned())];
        service.other_errors = Some("Home Assistant API error {status}: {body}".to_owned());
        let outcome = run(&services(service), &tool("POST", "/x"), arguments.clone()).await;
        assert_eq!(outcome, failed(text), "{status} {arguments}");
    }
}

#[tokio::test]
async fn a_long_error_is_cut() {
    let stand_in = StandIn::doing(vec![ServerAction::Flood(b"HTTP/1.1 500 Broken\r\n\r\n".to_vec())]).await;
    assert_eq!(get(&stand_in.url()).await, failed(&format!("API error 500: {}…", "x".repeat(1_000))));
}

#[tokio::test]
async fn an_answer_over_the_limit_names_it() {
    let ten_gigabytes = "HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n";
    for (head, size) in [(ten_gigabytes, "10000000000 bytes"), ("HTTP/1.1 200 OK\r\n\r\n", "more than 1048576 bytes")] {
        let stand_in = StandIn::doing(vec![ServerAction::Flood(head.as_bytes().to_vec())]).await;
        let text = format!("Response too large ({size}): home answered 200, the limit is 1048576 bytes");
        assert_eq!(get(&stand_in.url()).await, failed(&text));
    }
}

#[tokio::test]
async fn bytes_that_are_no_text_are_refused() {
    let mut response = b"HTTP/1.1 200 OK\r\ncontent-type: image/jpeg\r\ncontent-length: 3\r\n\r\n".to_vec();
    response.extend([0xff, 0xd8, 0xff]);
    let stand_in = StandIn::saying(response).await;
    assert_eq!(get(&stand_in.url()).await, failed("home answered 200 with neither JSON nor text (image/jpeg)"));
}

#[tokio::test]
async fn health_compares_the_status_only() {
    let stand_in = StandIn::doing(vec![
        ServerAction::Say(answer("200 OK", "text/plain", "API running.")),
        ServerAction::Say(answer("503 Busy", "text/plain", "x")),
        ServerAction::Flood(b"HTTP/1.1 200 OK\r\n\r\n".to_vec()),
        ServerAction::Say(answer("401 Unauthorized", "text/plain", "x")),
        ServerAction::Say(answer("403 Forbidden", "text/plain", "x")),
    ])
    .await;
    let services = services(service(&stand_in.url()));
    assert_eq!(services.check_health("home").await, Ok(()));
    assert_eq!(services.check_health("home").await, Err(HealthFailure::Answered { status: 503, expect_status: 200 }));
    assert_eq!(services.check_health("home").await, Ok(()));
    // A service that is there and does not take its credentials is none that is down.
    for status in [401, 403] {
        let unwell = services.check_health("home").await.unwrap_err();
        assert_eq!(
            (&unwell, unwell.to_string().contains("rejected the credentials")),
            (&HealthFailure::Refused(status), true)
        );
    }
    assert_eq!(
        services.check_health("car").await,
        Err(HealthFailure::Misconfigured("Service not configured: car".to_owned()))
    );
    assert!(stand_in.seen()[0].starts_with("GET /api/ HTTP/1.1\r\n"));
}

#[tokio::test]
async fn health_waits_five_seconds() {
    let stand_in = StandIn::doing(vec![ServerAction::Hang]).await;
    let services = services(service(&stand_in.url()));
    let check = tokio::spawn(async move { services.check_health("home").await });
    stand_in.acted(1).await;
    tokio::time::pause();
    let started = tokio::time::Instant::now();
    let error = check.await.unwrap().unwrap_err().to_string();
    assert!(error.ends_with("it took longer than 5s, the time limit"), "{error}");
    assert!(started.elapsed() <= std::time::Duration::from_millis(5_001));
}
