//! Streamable HTTP: rmcp's transport with bounds, our own TLS, the configured headers, and a token if there are credentials.
//!
//! It must not know requests. Addresses stay out of all texts, because a query can hold a credential.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use reqwest::header::{HeaderName, HeaderValue};
use rmcp::{
    RoleClient,
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::{
        StreamableHttpClientTransport, Transport,
        streamable_http_client::{StreamableHttpClientTransportConfig, StreamableHttpError},
    },
};
use secrecy::{ExposeSecret as _, SecretString};

use crate::{
    access_token::AccessToken,
    checked_client::CheckedClient,
    connection_monitor::ConnectionMonitor,
    http_client::{client_error, http_client},
    options::McpLimits,
    send_error::SendError,
};

/// Largest error text of a server that is read, in bytes.
const ERROR_ANSWER: usize = 4 << 10;
/// Attempts to open a broken stream again.
const STREAM_RETRIES: usize = 5;

type HttpTransport = StreamableHttpClientTransport<CheckedClient>;

/// rmcp's transport, whose messages the watch over the connection admits.
pub(crate) struct GuardedHttp {
    inner: HttpTransport,
    monitor: Arc<ConnectionMonitor>,
    is_authorized: bool,
}

impl GuardedHttp {
    /// Creates the transport; nothing is sent yet.
    ///
    /// # Errors
    /// The reason, without addresses and values.
    pub(crate) fn new(
        url: &str,
        headers: &BTreeMap<String, SecretString>,
        token: Option<&AccessToken>,
        monitor: Arc<ConnectionMonitor>,
    ) -> Result<Self, String> {
        let client = http_client(url)?;
        let mut config = StreamableHttpClientTransportConfig::with_uri(url)
            .custom_headers(header_values(headers)?)
            // A request is never sent twice, not even if its session expired.
            .reinit_on_expired_session(false);
        let McpLimits { message, .. } = *monitor.limits();
        config.max_sse_event_size = message;
        config.max_json_response_size = message;
        config.max_error_response_size = ERROR_ANSWER;
        config.retry_config = Arc::new(StreamRetries);
        config.auth_header = token.map(|token| token.token.expose_secret().to_owned());
        let is_authorized = token.is_some();
        Ok(Self { inner: HttpTransport::with_client(CheckedClient(client), config), monitor, is_authorized })
    }
}

/// A few attempts with growing pauses. Without an end an idle gateway would go on for ever.
#[derive(Clone, Copy, Debug)]
struct StreamRetries;

impl rmcp::transport::common::client_side_sse::SseRetryPolicy for StreamRetries {
    fn retry(&self, current_times: usize) -> Option<Duration> {
        (current_times < STREAM_RETRIES).then(|| Duration::from_secs(1 << current_times.min(5)))
    }
}

impl Transport<RoleClient> for GuardedHttp {
    type Error = SendError;

    fn name() -> Cow<'static, str> {
        "http".into()
    }

    fn send(&mut self, item: ClientJsonRpcMessage) -> impl Future<Output = Result<(), SendError>> + Send + 'static {
        let id = self.monitor.note_request(&item);
        let may_begin = id.is_none_or(|id| self.monitor.begin_request(id));
        let (sending, monitor, is_authorized) = (self.inner.send(item), Arc::clone(&self.monitor), self.is_authorized);
        async move {
            if !may_begin {
                return Err(SendError::NotSent("it was given up before it was sent".to_owned()));
            }
            sending.await.map_err(|error| send_error(&error, &monitor, is_authorized))
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        let monitor = Arc::clone(&self.monitor);
        loop {
            let message = tokio::select! {
                biased;
                () = monitor.wait_closed() => return None,
                message = self.inner.receive() => message,
            };
            let Some(message) = message else {
                monitor.close("it ended the connection");
                return None;
            };
            if let Some(message) = monitor.admit_message(message) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), SendError> {
        self.monitor.close("the gateway closed the connection");
        self.inner.close().await.map_err(|error| send_error(&error, &self.monitor, self.is_authorized))
    }
}

/// Sorts a failure by what may have left, and by what the server may have done.
fn send_error(
    error: &StreamableHttpError<reqwest::Error>,
    monitor: &ConnectionMonitor,
    is_authorized: bool,
) -> SendError {
    let status_error = |status: u16| {
        if status == 401 {
            monitor.retire();
        }
        status_error(status, is_authorized)
    };
    match error {
        StreamableHttpError::Client(error) => match error.status() {
            Some(status) => status_error(status.as_u16()),
            None => client_error(error),
        },
        StreamableHttpError::AuthRequired(_) => status_error(401),
        StreamableHttpError::InsufficientScope(_) => status_error(403),
        StreamableHttpError::SessionExpired => {
            monitor.retire();
            SendError::Rejected("its session expired (status 404); the next request opens another".to_owned())
        }
        StreamableHttpError::HttpStatus(status) => status_error(status.status),
        StreamableHttpError::ResponseBodyTooLarge { max_size } => {
            SendError::Rejected(format!("the answer is larger than {max_size} bytes"))
        }
        StreamableHttpError::UnexpectedServerResponse(text) => match status_in(text) {
            Some(status) => status_error(status),
            None => SendError::Doubtful(monitor.show_text(&error.to_string())),
        },
        StreamableHttpError::UnexpectedContentType(_) | StreamableHttpError::Deserialize(_) => {
            SendError::Doubtful(monitor.show_text(&error.to_string()))
        }
        other => SendError::Lost(monitor.show_text(&other.to_string())),
    }
}

/// Sorts a status that is an error. One of the server or of a proxy before it may come after the request was carried out.
fn status_error(status: u16, is_authorized: bool) -> SendError {
    match status {
        401 if is_authorized => SendError::Unauthorized(
            "it did not accept the token (status 401); the next request uses a new one".to_owned(),
        ),
        401 => SendError::Unauthorized("it did not accept the request: it wants credentials (status 401)".to_owned()),
        400..=499 if status != 408 => SendError::Rejected(format!("status {status}")),
        _ => SendError::Doubtful(format!("status {status}")),
    }
}

/// Returns the status in the transport's text for an answer with one: `HTTP 403 Forbidden: …`.
fn status_in(text: &str) -> Option<u16> {
    text.strip_prefix("HTTP ")?.get(..3)?.parse().ok()
}

fn header_values(headers: &BTreeMap<String, SecretString>) -> Result<HashMap<HeaderName, HeaderValue>, String> {
    let valid = |(name, value): (&String, &SecretString)| {
        let invalid = |part: &str| format!("header {name:?} has an invalid {part}");
        let mut sent = HeaderValue::from_str(value.expose_secret()).map_err(|_| invalid("value"))?;
        sent.set_sensitive(true);
        Ok((HeaderName::try_from(name.as_str()).map_err(|_| invalid("name"))?, sent))
    };
    headers.iter().map(valid).collect()
}
