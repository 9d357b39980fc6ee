//! Admission of a body over HTTP, as of a line over stdio, and errors of the protocol as responses.

use axum::{
    body::{Body, to_bytes},
    extract::Request,
    http::StatusCode,
    response::Response,
};
use countersign_http::reply;
use http_body_util::LengthLimitError;
use rmcp::{
    ErrorData,
    model::{ErrorCode, JsonRpcMessage, RequestId},
};

use crate::{
    admission::{FaultReply, fault_reply, invalid_request, parse_message},
    limits::LARGEST_MESSAGE,
};

/// Reads the message of a request. Returns the request with its body, and the id of the message if it is a request.
///
/// # Errors
/// The response to a body that is no message.
pub(super) async fn admit_body(request: Request) -> Result<(Request, Option<RequestId>), Box<Response>> {
    let (parts, body) = request.into_parts();
    let bytes = to_bytes(body, LARGEST_MESSAGE).await.map_err(|error| {
        if std::error::Error::source(&error).is_some_and(|source| source.is::<LengthLimitError>()) {
            let text = format!("Message too large (at most {LARGEST_MESSAGE} bytes)");
            let fault = fault_reply(None, ErrorData::invalid_request(text, None));
            return Box::new(fault_response(StatusCode::PAYLOAD_TOO_LARGE, &fault));
        }
        Box::new(admission_response(&invalid_request(None)))
    })?;
    let parsed = parse_message(bytes.trim_ascii());
    // Over HTTP a notification gets a status.
    let message = parsed.map_err(|fault| admission_response(&fault.unwrap_or_else(|| invalid_request(None))))?;
    let id = match message {
        JsonRpcMessage::Request(request) => Some(request.id),
        JsonRpcMessage::Response(_) | JsonRpcMessage::Notification(_) | JsonRpcMessage::Error(_) => None,
    };
    Ok((Request::from_parts(parts, Body::from(bytes)), id))
}

/// Returns the response to a message that the service does not get.
pub(super) fn admission_response(fault: &FaultReply) -> Response {
    let status = match fault.error.code {
        // Its message is a request. Other parameters that do not fit get their error from the service, with this status too.
        ErrorCode::INVALID_PARAMS => StatusCode::OK,
        _ => StatusCode::BAD_REQUEST,
    };
    fault_response(status, fault)
}

/// Returns the response with an error of the protocol.
pub(super) fn fault_response(status: StatusCode, fault: &FaultReply) -> Response {
    reply::json(status, fault.as_ref())
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, extract::Request, http::Method};
    use rmcp::model::RequestId;
    use serde_json::{Value, json};

    use super::{LARGEST_MESSAGE, admit_body};

    async fn admit(body: String) -> Result<Option<RequestId>, (u16, Value)> {
        let request = Request::builder().method(Method::POST).body(Body::from(body.clone())).unwrap();
        match admit_body(request).await {
            Ok((request, id)) => {
                let kept = axum::body::to_bytes(request.into_body(), usize::MAX).await.unwrap();
                assert_eq!(kept, body.as_bytes());
                Ok(id)
            }
            Err(response) => {
                let (parts, body) = response.into_parts();
                let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
                let sent: Value = serde_json::from_slice(&bytes).unwrap();
                assert_eq!(sent["jsonrpc"], "2.0", "{sent}");
                Err((parts.status.as_u16(), sent["error"]["code"].clone()))
            }
        }
    }

    #[tokio::test]
    async fn bodies_get_the_errors_of_lines_with_a_status() {
        let ping = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
        for (body, want) in [
            (ping.to_owned(), Ok(Some(RequestId::Number(7)))),
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned(), Ok(None)),
            (String::new(), Err((400, json!(-32700)))),
            (ping.replace('7', "1e999"), Err((400, json!(-32700)))),
            (format!("[{ping}]"), Err((400, json!(-32600)))),
            (ping.replace('7', "null"), Err((400, json!(-32600)))),
            (r#"{"jsonrpc":"2.0","method":7}"#.to_owned(), Err((400, json!(-32600)))),
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"cursor":5}}"#.to_owned(),
                Err((200, json!(-32602))),
            ),
            ("x".repeat(LARGEST_MESSAGE + 1), Err((413, json!(-32600)))),
        ] {
            let shown: String = body.chars().take(60).collect();
            assert_eq!(admit(body).await, want, "{shown}");
        }
    }
}
