//! Route of hooks over HTTP: Claude Code sends the input of the hook, and the body of the reply is its answer.

use std::{future::poll_fn, pin::Pin, sync::Arc};

use axum::{
    Router,
    body::{Body, Bytes, HttpBody as _},
    extract::{Request, State},
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};
use countersign_foreign_calls::Delivery;
use countersign_http::web::{AuthMethod, GuardedRoutes, HttpCaller, WebAuth};
use countersign_view::Protocol;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    adapter::{HookAdapter, HookRequest},
    answers::HookReply,
    input_reader::{CompleteInput, InputError, InputReader},
};

/// Path of the route.
pub const PATH: &str = "/hooks/claude";
/// Largest body, in bytes: the input after a call has the result of the call, which does not count.
const LARGEST_BODY: usize = 256 << 20;

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
    let input = match read_input(request.into_body()).await {
        Ok(input) => input,
        Err((status, text)) => return problem(status, &text),
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

/// Reads the input of a hook.
async fn read_input(mut body: Body) -> Result<String, (StatusCode, String)> {
    let (mut reader, mut length) = (InputReader::new(Protocol::Claude.name()), 0);
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let broken = |error| (StatusCode::BAD_REQUEST, format!("The input of the hook broke off: {error}"));
        let Ok(part) = frame.map_err(broken)?.into_data() else { continue };
        length += part.len();
        if length > LARGEST_BODY {
            let text = format!("The input of the hook is larger than {LARGEST_BODY} bytes");
            return Err((StatusCode::PAYLOAD_TOO_LARGE, text));
        }
        reader.push(&part);
    }
    let CompleteInput { is_after_call, text } = reader.finish();
    text.map_err(|error| {
        let status = match error {
            InputError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            InputError::NotText => StatusCode::BAD_REQUEST,
        };
        let ran = HookReply::unchecked(error).message.filter(|_| is_after_call);
        (status, ran.unwrap_or_else(|| error.to_string()))
    })
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
    use axum::{body::Body, http::StatusCode};

    use super::{read_input, wait_parameter};
    use crate::input_reader::LARGEST_INPUT;

    #[tokio::test]
    async fn an_input_that_cannot_be_read_is_answered_by_its_cause() {
        let large = format!("{{\"hook_event_name\":\"PreToolUse\",\"x\":\"{}\"}}", "x".repeat(LARGEST_INPUT));
        let (status, text) = read_input(Body::from(large)).await.unwrap_err();
        assert!(status == StatusCode::PAYLOAD_TOO_LARGE && text.contains("larger than"), "{text}");
        let (status, text) = read_input(Body::from(&b"{\"x\":\"\xff\"}"[..])).await.unwrap_err();
        assert!(status == StatusCode::BAD_REQUEST && text.contains("not UTF-8"), "{text}");
        let ran = &b"{\"hook_event_name\":\"PostToolUse\",\"tool_input\":\"\xff\"}"[..];
        let (status, text) = read_input(Body::from(ran)).await.unwrap_err();
        assert!(status == StatusCode::BAD_REQUEST && text.contains("the call ran"), "{text}");
        assert_eq!(read_input(Body::from("{}")).await, Ok("{}".to_owned()));
    }

    #[test]
    fn a_wait_is_a_whole_number_of_seconds() {
        assert_eq!(wait_parameter(""), Ok(None));
        assert_eq!(wait_parameter("wait=30"), Ok(Some(30)));
        for wrong in ["wait=0", "wait=86401", "wait=1&wait=2", "wait=", "wait=-1", "wait=1.5", "waits=1", "wait"] {
            assert!(wait_parameter(wrong).is_err(), "{wrong}");
        }
    }
}
