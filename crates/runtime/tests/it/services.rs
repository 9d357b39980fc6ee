//! Calls of services, against a stand-in that answers well and badly.

mod answers;
mod credentials;
mod departures;
mod redirects;
mod requests;

use std::time::Duration;

use countersign_runtime::services::{
    HealthCheck, ServiceAuth, ServiceCall, ServiceCallOutcome, ServiceClient, ServiceDefinition, ServiceLimits,
};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

const SECRET: &str = "s3cr3t/+tok en\"x";

fn service(url: &str) -> ServiceDefinition {
    ServiceDefinition {
        name: "home".to_owned(),
        base_url: url.to_owned(),
        auth: ServiceAuth::Bearer(SECRET.into()),
        health: HealthCheck { method: "GET".to_owned(), path: "/api/".to_owned(), expect_status: 200 },
        errors: Vec::new(),
        other_errors: None,
        limits: ServiceLimits { timeout: Duration::from_secs(30), response: 1 << 20 },
    }
}

fn services(service: ServiceDefinition) -> ServiceClient {
    ServiceClient::new(vec![service]).unwrap()
}

fn tool(method: &str, path: &str) -> ServiceCall {
    ServiceCall { method: method.to_owned(), path: path.to_owned(), ..ServiceCall::default() }
}

fn map(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

async fn run(services: &ServiceClient, call: &ServiceCall, arguments: Value) -> ServiceCallOutcome {
    services.run("home", call, &map(arguments), CancellationToken::new()).await
}

/// Sends a `GET` without arguments to a service at `url`.
async fn get(url: &str) -> ServiceCallOutcome {
    run(&services(service(url)), &tool("GET", "/x"), json!({})).await
}

/// Sends a `POST` without arguments to a service at `url`.
async fn post(url: &str) -> ServiceCallOutcome {
    run(&services(service(url)), &tool("POST", "/x"), json!({})).await
}

fn failed(text: &str) -> ServiceCallOutcome {
    ServiceCallOutcome::Failed { text: text.to_owned() }
}

fn in_doubt(outcome: &ServiceCallOutcome) -> &str {
    match outcome {
        ServiceCallOutcome::InDoubt { text } => text,
        other => panic!("not in doubt: {other:?}"),
    }
}

fn not_begun(outcome: &ServiceCallOutcome) -> &str {
    match outcome {
        ServiceCallOutcome::NotBegun { text } => text,
        other => panic!("begun: {other:?}"),
    }
}
