//! Lines to an editor, in the order in which they were sent.

use bytes::Bytes;
use countersign_acp_protocol::{
    ErrorCode, ParamFault, RequestId, SessionUpdate, UpdateNotification, encode_error, encode_notification,
    encode_request, encode_result, methods,
};
use serde::Serialize;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
    task::JoinHandle,
};

/// Most lines that wait for the editor to read.
const WAITING: usize = 256;

/// Error of a request, as its reply tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestFailure {
    pub(crate) code: ErrorCode,
    pub(crate) text: String,
}

impl RequestFailure {
    pub(crate) fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// Returns the refusal of a parameter: its name, its value, and what is accepted.
    pub(crate) fn parameter(field: &str, value: &str, expected: &str) -> Self {
        let fault = ParamFault { field: field.to_owned(), found: format!("{value:?}"), expected: expected.to_owned() };
        fault.into()
    }
}

impl From<ParamFault> for RequestFailure {
    fn from(fault: ParamFault) -> Self {
        Self::new(ErrorCode::InvalidParams, fault.to_string())
    }
}

/// Sender of lines. Each method waits for room.
#[derive(Clone)]
pub(crate) struct Output(mpsc::Sender<Bytes>);

impl Output {
    /// Starts to write. The task ends when every sender has gone, or the editor takes nothing more.
    pub(crate) fn open(writer: impl AsyncWrite + Send + Unpin + 'static) -> (Self, JoinHandle<()>) {
        let (sender, lines) = mpsc::channel(WAITING);
        (Self(sender), tokio::spawn(write_lines(writer, lines)))
    }

    /// Waits until the editor takes nothing more.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }

    pub(crate) async fn send_reply(&self, id: &RequestId, reply: Result<&impl Serialize, &RequestFailure>) {
        let line = match reply {
            Ok(result) => encode_result(id, result),
            Err(failure) => encode_error(Some(id), failure.code, &failure.text),
        };
        self.send_line(line).await;
    }

    pub(crate) async fn send_fault(&self, id: Option<&RequestId>, failure: &RequestFailure) {
        self.send_line(encode_error(id, failure.code, &failure.text)).await;
    }

    pub(crate) async fn send_update(&self, session: &str, update: &SessionUpdate) {
        let params = UpdateNotification { session_id: session, update };
        self.send_line(encode_notification(methods::UPDATE, &params)).await;
    }

    pub(crate) async fn send_request(&self, id: u64, method: &str, params: &impl Serialize) {
        self.send_line(encode_request(&id.into(), method, params)).await;
    }

    /// Tells that the reply to a request is not needed any more.
    pub(crate) async fn withdraw_request(&self, id: u64) {
        let params = serde_json::json!({ "requestId": id });
        self.send_line(encode_notification(methods::CANCEL_REQUEST, &params)).await;
    }

    async fn send_line(&self, line: Bytes) {
        // An editor that has gone is noticed by the connection.
        let _ = self.0.send(line).await;
    }
}

async fn write_lines(mut writer: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<Bytes>) {
    while let Some(line) = lines.recv().await {
        let mut next = Some(line);
        while let Some(line) = next {
            if writer.write_all(&line).await.is_err() {
                return;
            }
            next = lines.try_recv().ok();
        }
        if writer.flush().await.is_err() {
            return;
        }
    }
    let _ = writer.shutdown().await;
}
