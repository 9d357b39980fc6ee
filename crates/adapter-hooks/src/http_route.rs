//! Route of hooks over HTTP: Claude Code sends the input of the hook, and the body of the reply is its answer.

use std::sync::Arc;

use axum::{
    Router,
    body::{Bytes, to_bytes},
    extract::{Request, State},
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};
use countersign_foreign_calls::Delivery;
use countersign_http::web::{AuthMethod, GuardedRoutes, HttpCaller, WebAuth};
use countersign_view::Protocol;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::adapter::{HookAdapter, HookRequest};

/// Path of the route.
pub const PATH: &str = "/hooks/claude";
/// Largest input, in bytes.
const LARGEST_INPUT: usize = 16 << 20;

/// Waits that a program may choose, in seconds.
const WAITS: std::ops::RangeInclusive<u64> = 1..=86_400;

/// Returns the routes. `auth` knows the tokens.
pub fn routes(adapter: &Arc<HookAdapter>, auth: &Arc<WebAuth>) -> Router {
    GuardedRoutes::new(auth).add_route("POST", PATH, answer_hook).with_state(Arc::clone(adapter))
}

async fn answer_hook(State(adapter): State<Arc<HookAdapter>>, request: Request) -> Response {
    let caller = request.extensions().get::<HttpCaller>();
    let Some(HttpCaller { principal, via: AuthMethod::Token { .. }, .. }) = caller else {
        return problem(StatusCode::UNAUTHORIZED, "A token with the scope call is needed");
    };
    let sender = principal.to_string();
    let wait = match wait_parameter(request.uri().query().unwrap_or_default()) {
        Ok(wait) => wait,
        Err(text) => return problem(StatusCode::BAD_REQUEST, &text),
    };
    let Ok(body) = to_bytes(request.into_body(), LARGEST_INPUT).await else {
        let text = format!("The input of the hook is larger than {LARGEST_INPUT} bytes, or broke off");
        return problem(StatusCode::PAYLOAD_TOO_LARGE, &text);
    };
    let Ok(input) = String::from_utf8(body.to_vec()) else {
        return problem(StatusCode::BAD_REQUEST, "The input of the hook is not UTF-8");
    };
    let hook = HookRequest { program: Protocol::Claude.name().to_owned(), input, wait, is_headless: false };
    let (delivery, cancel) = (Delivery::default(), CancellationToken::new());
    // The program closes the connection when it gives up: the gate stays, and the decision is kept for the same call repeated.
    let _abandon = AbandonOnDrop(delivery.clone(), cancel.clone().drop_guard());
    let reply = adapter.answer(&hook, Some(&sender), &delivery, &cancel).await;
    if reply.exit != 0 {
        return problem(StatusCode::BAD_REQUEST, reply.message.as_deref().unwrap_or("The hook failed"));
    }
    let document = reply.document.unwrap_or_else(|| json!({})).to_string();
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    delivery.confirm();
    (headers, Bytes::from(document)).into_response()
}

/// Delivery that ends unconfirmed if the request is dropped.
struct AbandonOnDrop(Delivery, #[expect(dead_code, reason = "its drop cancels the wait")] tokio_util::sync::DropGuard);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Returns the value of the parameter `wait`.
fn wait_parameter(query: &str) -> Result<Option<u64>, String> {
    let mut wait = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if name != "wait" {
            return Err(format!("unknown parameter {name:?}: expected wait"));
        }
        let seconds = value.parse().ok().filter(|seconds| WAITS.contains(seconds) && wait.is_none());
        wait = Some(seconds.ok_or_else(|| format!("wait={value}: expected seconds from 1 to 86400, once"))?);
    }
    Ok(wait)
}

fn problem(status: StatusCode, text: &str) -> Response {
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text.to_owned()).into_response()
}

#[cfg(test)]
mod tests {
    use super::wait_parameter;

    #[test]
    fn a_wait_is_a_whole_number_of_seconds() {
        assert_eq!(wait_parameter(""), Ok(None));
        assert_eq!(wait_parameter("wait=30"), Ok(Some(30)));
        for wrong in ["wait=0", "wait=86401", "wait=1&wait=2", "wait=", "wait=-1", "wait=1.5", "waits=1", "wait"] {
            assert!(wait_parameter(wrong).is_err(), "{wrong}");
        }
    }
}
