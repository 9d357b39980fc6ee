//! Calls of services, against a stand-in that answers well and badly.

mod answers;
mod credentials;
mod departures;
mod redirects;
mod requests;

use std::time::Duration;

use countersign_runtime::services::{Auth, Health, Limits, Outcome, Service, Services, ToolCall};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

const SECRET: &str = "s3cr3t/+tok en\"x";

fn service(url: &str) -> Service {
    Service {
        name: "home".to_owned(),
        base_url: url.to_owned(),
        auth: Auth::Bearer(SECRET.into()),
        health: Health { method: "GET".to_owned(), path: "/api/".to_owned(), expect_status: 200 },
        errors: Vec::new(),
        other_errors: None,
        limits: Limits { timeout: Duration::from_secs(30), response: 1 << 20 },
    }
}

fn services(service: Service) -> Services {
    Services::new(vec![service]).unwrap()
}

fn tool(method: &str, path: &str) -> ToolCall {
    ToolCall { method: method.to_owned(), path: path.to_owned(), ..ToolCall::default() }
}

fn map(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

async fn run(services: &Services, call: &ToolCall, arguments: Value) -> Outcome {
    services.run("home", call, &map(arguments), CancellationToken::new()).await
}

/// A `GET` without arguments of a service at `url`.
async fn get(url: &str) -> Outcome {
    run(&services(service(url)), &tool("GET", "/x"), json!({})).await
}

/// A `POST` without arguments of a service at `url`.
async fn post(url: &str) -> Outcome {
    run(&services(service(url)), &tool("POST", "/x"), json!({})).await
}

fn failed(text: &str) -> Outcome {
    Outcome::Failed { text: text.to_owned() }
}

fn in_doubt(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::InDoubt { text } => text,
        other => panic!("not in doubt: {other:?}"),
    }
}

fn not_begun(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::NotBegun { text } => text,
        other => panic!("begun: {other:?}"),
    }
}
