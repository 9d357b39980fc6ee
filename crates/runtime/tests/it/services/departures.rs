//! The line between requests that never left and those in doubt.

use std::{sync::Arc, time::Duration};

use countersign_runtime::services::ServiceCallOutcome;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{get, in_doubt, map, not_begun, post, run, service, services, tool};
use crate::stand_in::{ServerAction, StandIn, answer};

/// Returns an address without a listener.
async fn nobody() -> String {
    format!("http://{}", TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap())
}

#[tokio::test]
async fn a_refused_connection_has_not_begun() {
    let outcome = post(&nobody().await).await;
    assert!(not_begun(&outcome).starts_with("Service unreachable: home (Connection refused"), "{outcome:?}");
}

#[tokio::test]
async fn a_name_without_address_has_not_begun() {
    not_begun(&post("http://nobody.invalid").await);
}

#[tokio::test]
async fn a_failed_handshake_of_tls_has_not_begun() {
    let stand_in = StandIn::doing(vec![ServerAction::Leave]).await;
    let outcome = post(&stand_in.url().replace("http:", "https:")).await;
    assert!(not_begun(&outcome).starts_with("Service unreachable: home (TLS: "), "{outcome:?}");
}

#[tokio::test]
async fn an_unknown_service_has_not_begun() {
    let services = services(service("http://127.0.0.1:1"));
    let outcome = services.run("car", &tool("GET", "/"), &map(json!({})), CancellationToken::new()).await;
    assert_eq!(outcome, ServiceCallOutcome::NotBegun { text: "Service not configured: car".to_owned() });
}

#[tokio::test]
async fn cancelled_before_the_start_has_not_begun() {
    let stand_in = StandIn::saying(answer("200 OK", "application/json", "1")).await;
    let cancel = CancellationToken::new();
    cancel.cancel();
    let services = services(service(&stand_in.url()));
    let outcome = services.run("home", &tool("POST", "/x"), &map(json!({})), cancel).await;
    not_begun(&outcome);
    assert_eq!(stand_in.connections(), 0);
}

/// The connection may be seen to end before the request is written, or after: both are true then.
#[tokio::test]
async fn what_has_not_begun_never_reached_a_service_that_left() {
    for _ in 0..50 {
        let stand_in = StandIn::doing(vec![ServerAction::Leave]).await;
        let outcome = post(&stand_in.url()).await;
        let mut stray = stand_in.stray.clone();
        let bytes = stray.wait_for(Option::is_some).await.unwrap().unwrap();
        match outcome {
            ServiceCallOutcome::NotBegun { .. } => assert_eq!(bytes, 0),
            other => drop(in_doubt(&other).to_owned()),
        }
    }
}

#[tokio::test]
async fn a_connection_that_breaks_after_the_request_is_in_doubt() {
    for act in [
        ServerAction::BreakOff,
        ServerAction::Reset,
        ServerAction::Last(b"HTTP/1.1 200 OK\r\ncontent-le".to_vec()),
        ServerAction::Last(b"no http\r\n\r\n".to_vec()),
        ServerAction::Last(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{\"half\": ".to_vec()),
        ServerAction::Last(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\n1234\r\n".to_vec()),
        ServerAction::Last(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n12".to_vec()),
        ServerAction::Last(b"HTTP/1.1 500 Broken\r\ncontent-length: 50\r\n\r\nhalf".to_vec()),
        ServerAction::Say(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4\r\n\r\n{\"a\": 1}".to_vec(),
        ),
    ] {
        let stand_in = StandIn::doing(vec![act.clone()]).await;
        let outcome = post(&stand_in.url()).await;
        assert!(in_doubt(&outcome).starts_with("Outcome unknown: home "), "{act:?}: {outcome:?}");
        assert_eq!(stand_in.seen().len(), 1, "{act:?}");
    }
}

#[tokio::test]
async fn an_answer_that_does_not_come_in_time_is_in_doubt() {
    for act in [
        ServerAction::Hang,
        ServerAction::Stall(b"HTTP/1.1 200 OK\r\n".to_vec()),
        ServerAction::Stall(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n1".to_vec()),
    ] {
        let stand_in = StandIn::doing(vec![act]).await;
        let url = stand_in.url();
        let call = tokio::spawn(async move { post(&url).await });
        stand_in.acted(1).await;
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(31)).await;
        let outcome = call.await.unwrap();
        assert!(in_doubt(&outcome).ends_with("it took longer than 30s, the time limit"), "{outcome:?}");
        tokio::time::resume();
    }
}

#[tokio::test]
async fn cancelled_after_the_request_left_is_in_doubt() {
    let stand_in = StandIn::doing(vec![ServerAction::Hang]).await;
    let (services, cancel) = (Arc::new(services(service(&stand_in.url()))), CancellationToken::new());
    let (inner, token) = (Arc::clone(&services), cancel.clone());
    let call = tokio::spawn(async move { inner.run("home", &tool("POST", "/x"), &map(json!({})), token).await });
    stand_in.acted(1).await;
    cancel.cancel();
    assert!(in_doubt(&call.await.unwrap()).ends_with("it was cancelled"));
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let stand_in = StandIn::saying(answer("200 OK", "application/json", "1")).await;
    let services = services(service(&stand_in.url()));
    for _ in 0..3 {
        assert_eq!(run(&services, &tool("POST", "/x"), json!({})).await, ServiceCallOutcome::Done(json!(1)));
    }
    assert_eq!((stand_in.connections(), stand_in.seen().len()), (1, 3));
}

#[tokio::test]
async fn a_call_on_a_connection_that_breaks_is_sent_again_only_if_that_does_no_harm() {
    let good = answer("200 OK", "application/json", "1");
    for (idempotent, requests) in [(false, 2), (true, 3)] {
        let stand_in = StandIn::doing(vec![
            ServerAction::Say(good.clone()),
            ServerAction::BreakOff,
            ServerAction::Say(good.clone()),
        ])
        .await;
        let services = services(service(&stand_in.url()));
        let mut call = tool("POST", "/x");
        call.idempotent = idempotent;
        assert_eq!(run(&services, &call, json!({})).await, ServiceCallOutcome::Done(json!(1)));
        let outcome = run(&services, &call, json!({})).await;
        assert_eq!(outcome == ServiceCallOutcome::Done(json!(1)), idempotent, "{outcome:?}");
        assert_eq!(stand_in.seen().len(), requests);
    }
}

#[tokio::test]
async fn bytes_behind_an_answer_do_not_answer_the_next_request() {
    let mut long = answer("200 OK", "application/json", "1");
    long.extend(answer("200 OK", "application/json", "\"for another\""));
    let stand_in =
        StandIn::doing(vec![ServerAction::Say(long), ServerAction::Say(answer("200 OK", "application/json", "2"))])
            .await;
    let services = services(service(&stand_in.url()));
    assert_eq!(run(&services, &tool("GET", "/x"), json!({})).await, ServiceCallOutcome::Done(json!(1)));
    assert_eq!(run(&services, &tool("GET", "/x"), json!({})).await, ServiceCallOutcome::Done(json!(2)));
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_is_not_used_again() {
    let good = answer("200 OK", "application/json", "1");
    let stand_in = StandIn::saying(good.clone()).await;
    let services = services(service(&stand_in.url()));
    assert_eq!(run(&services, &tool("POST", "/x"), json!({})).await, ServiceCallOutcome::Done(json!(1)));
    stand_in.hang_up();
    // The output of this one is seen after the end of the first connection.
    assert_eq!(post(&StandIn::saying(good).await.url()).await, ServiceCallOutcome::Done(json!(1)));
    assert_eq!(run(&services, &tool("POST", "/x"), json!({})).await, ServiceCallOutcome::Done(json!(1)));
    assert_eq!(stand_in.connections(), 2);
}

#[tokio::test]
async fn a_redirect_to_nowhere_is_in_doubt() {
    let to = format!("HTTP/1.1 302 Found\r\nlocation: {}/y\r\ncontent-length: 0\r\n\r\n", nobody().await);
    in_doubt(&get(&StandIn::saying(to).await.url()).await);
}
