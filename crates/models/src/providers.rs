//! The models of all providers, over HTTP.
//!
//! It must not know what requests and answers say: that is the wires' business.

use std::{
    error::Error,
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt, stream, stream::BoxStream};
use reqwest::{
    Client, ClientBuilder, Response, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
    redirect,
};
use secrecy::{ExposeSecret, SecretString};

use crate::{
    FailureKind, LanguageModel, ModelApi, ModelEvent, ModelFailure, ModelRequest,
    answer::{read_answer, silence_failure},
    demo::DemoModel,
    failure::{excerpt, hint, no_stream, smaller_cap, with_status},
    wire,
};

/// The most that is read of an answer that is no stream.
const ERROR_LIMIT: usize = 64 << 10;

/// Reaches every provider by the wire of its entry, and the demo model.
///
/// Clones share their connections. Nothing is set up before the first request. Credentials go to the entry's address
/// only: no redirect is followed. The environment's proxies are used, except for loopback addresses.
#[derive(Clone, Debug, Default)]
pub struct ProviderClient {
    clients: Arc<HttpClients>,
}

impl LanguageModel for ProviderClient {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<ModelEvent, ModelFailure>> {
        if request.entry.api == ModelApi::Demo {
            return DemoModel.stream(request);
        }
        let clients = Arc::clone(&self.clients);
        let secrets = RequestSecrets::from_request(&request);
        stream::once(async move { clients.open_answer(request).await })
            .try_flatten()
            .map_err(move |failure| secrets.redact_failure(failure))
            .boxed()
    }
}

/// One client for each way out, made when it is first needed: reading the system's certificates takes longer than a
/// local answer.
#[derive(Debug, Default)]
struct HttpClients {
    outside: OnceLock<Client>,
    loopback: OnceLock<Client>,
    loopback_plain: OnceLock<Client>,
}

/// Length of the longest field name of an event stream with its colon.
const LONGEST_FIELD: usize = "event:".len();

impl HttpClients {
    fn client_for(&self, url: &Url) -> Result<&Client, ModelFailure> {
        let (cell, builder) = match (is_loopback(url), url.scheme()) {
            (true, "http") => (&self.loopback_plain, Client::builder().no_proxy().tls_certs_only([])),
            (true, _) => (&self.loopback, Client::builder().no_proxy()),
            (false, _) => (&self.outside, Client::builder()),
        };
        if let Some(client) = cell.get() {
            return Ok(client);
        }
        let client = build_client(builder)?;
        Ok(cell.get_or_init(|| client))
    }

    async fn open_answer(
        &self,
        mut request: ModelRequest,
    ) -> Result<impl Stream<Item = Result<ModelEvent, ModelFailure>> + use<>, ModelFailure> {
        let silence = request.silence;
        let mut response = self.send_request(&request).await?;
        let mut is_second = false;
        let status = loop {
            let status = response.status();
            if status.is_success() {
                break status;
            }
            let wait = hint::in_headers(|name| response.headers().get(name)?.to_str().ok(), SystemTime::now());
            let body = read_beginning(response, silence).await;
            match smaller_cap(status.as_u16(), &body, request.output_cap()) {
                Some(cap) if !is_second => {
                    is_second = true;
                    request.max_tokens = Some(cap);
                    response = self.send_request(&request).await?;
                }
                Some(_) | None => return Err(with_status(status.as_u16(), &body, wait)),
            }
        };
        let form = response.headers().get(CONTENT_TYPE).and_then(|form| form.to_str().ok()).map(str::to_owned);
        let mut beginning = Vec::new();
        // Some servers and proxies name another type for a stream of events. Its first line tells.
        if let Some(form) = form.filter(|form| !form.trim_start().to_lowercase().starts_with("text/event-stream")) {
            beginning = read_first_bytes(&mut response, silence).await?;
            if !begins_event_stream(&beginning) {
                let form = format!("{} with {}", status.as_u16(), excerpt(&form));
                return Err(no_stream(Some(&form), &read_rest(beginning, response, silence).await));
            }
        }
        let decoder = wire::decoder_for(request.entry.api)
            .ok_or_else(|| ModelFailure::new(FailureKind::Refused, "the model has no HTTP API"))?;
        let beginning = stream::iter((!beginning.is_empty()).then(|| Ok(Bytes::from(beginning))));
        Ok(read_answer(decoder, beginning.chain(body_stream(response)), Some(silence)))
    }

    async fn send_request(&self, request: &ModelRequest) -> Result<Response, ModelFailure> {
        let refused = || {
            ModelFailure::new(
                FailureKind::Refused,
                format!("{}: the base URL is not an http or https URL", request.entry.provider),
            )
        };
        let address = |text: &str| Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        // The base by itself too: `http://` followed by a path is another host.
        address(&request.entry.base_url).ok_or_else(refused)?;
        let prepared = wire::prepare_request(request)?;
        let url = address(&prepared.url).ok_or_else(refused)?;
        let headers = request_headers(&prepared.headers, request)?;
        let sending = self.client_for(&url)?.post(url).headers(headers).body(prepared.body).send();
        match tokio::time::timeout(request.silence, sending).await {
            Ok(sent) => sent.map_err(network_failure),
            Err(_) => Err(silence_failure(request.silence)),
        }
    }
}

fn build_client(builder: ClientBuilder) -> Result<Client, ModelFailure> {
    // Fails if there is one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    builder
        .redirect(redirect::Policy::none())
        .user_agent(concat!("countersign/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| ModelFailure::new(FailureKind::Network, format!("connection error: {}", error_causes(&error))))
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Returns the wire's headers, then the entry's, which win.
fn request_headers(wire: &[(String, String)], request: &ModelRequest) -> Result<HeaderMap, ModelFailure> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    let own = request.entry.headers.iter();
    for (name, value) in wire.iter().map(|(name, value)| (name, value)).chain(own) {
        let invalid = || {
            let kind = if request.entry.headers.contains_key(name) { FailureKind::Refused } else { FailureKind::Auth };
            ModelFailure::new(
                kind,
                format!("the value of header {name:?} for {} cannot be sent", request.entry.provider),
            )
        };
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
        let mut value = HeaderValue::from_str(value.trim()).map_err(|_| invalid())?;
        value.set_sensitive(true);
        headers.insert(key, value);
    }
    Ok(headers)
}

fn body_stream(response: Response) -> impl Stream<Item = Result<Bytes, ModelFailure>> + Send + 'static {
    response.bytes_stream().map_err(broken_stream)
}

fn broken_stream(error: reqwest::Error) -> ModelFailure {
    let message = format!("connection error: the stream broke (terminated): {}", error_causes(&error.without_url()));
    ModelFailure::new(FailureKind::Network, message)
}

/// Reads a body until its first line shows whether it is a stream of events, or until it ends.
async fn read_first_bytes(response: &mut Response, silence: Duration) -> Result<Vec<u8>, ModelFailure> {
    let until = tokio::time::Instant::now() + silence;
    let mut body = Vec::new();
    while first_line(&body).len() < LONGEST_FIELD && body.len() < ERROR_LIMIT {
        match tokio::time::timeout_at(until, response.chunk()).await {
            Ok(Ok(Some(chunk))) => body.extend_from_slice(&chunk),
            Ok(Ok(None)) => break,
            Ok(Err(error)) => return Err(broken_stream(error)),
            Err(_) => return Err(silence_failure(silence)),
        }
    }
    Ok(body)
}

/// Returns a body without a byte order mark and blanks at its beginning.
fn first_line(body: &[u8]) -> &[u8] {
    const MARK: &[u8] = "\u{feff}".as_bytes();
    if MARK.starts_with(body) { &[] } else { body.strip_prefix(MARK).unwrap_or(body).trim_ascii_start() }
}

/// Reports whether a body begins with a field or a comment of an event stream. Source: the HTML standard, server-sent events.
fn begins_event_stream(body: &[u8]) -> bool {
    let line = first_line(body);
    [b"data:".as_slice(), b"event:", b"id:", b"retry:", b":"].iter().any(|field| line.starts_with(field))
}

/// Reads the beginning of a body that is no stream, as far as it comes.
async fn read_beginning(response: Response, silence: Duration) -> String {
    read_rest(Vec::new(), response, silence).await
}

/// Reads the same of a body of which some has been read.
async fn read_rest(mut body: Vec<u8>, response: Response, silence: Duration) -> String {
    let mut chunks = std::pin::pin!(response.bytes_stream());
    while body.len() < ERROR_LIMIT
        && let Ok(Some(Ok(chunk))) = tokio::time::timeout(silence, chunks.next()).await
    {
        body.extend_from_slice(&chunk);
    }
    body.truncate(ERROR_LIMIT);
    String::from_utf8_lossy(&body).into_owned()
}

fn network_failure(error: reqwest::Error) -> ModelFailure {
    if error.is_builder() {
        return ModelFailure::new(
            FailureKind::Refused,
            "the request cannot be sent: its address or a header is not valid",
        );
    }
    ModelFailure::new(FailureKind::Network, format!("connection error: {}", error_causes(&error.without_url())))
}

fn error_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    excerpt(&text)
}

/// Secrets that must not be read back to anyone, should a provider repeat them.
struct RequestSecrets(Vec<SecretString>);

impl RequestSecrets {
    fn from_request(request: &ModelRequest) -> Self {
        let headers = request.entry.headers.values().map(|value| value.strip_prefix("Bearer ").unwrap_or(value));
        let keys = request.key.iter().map(|key| key.expose_secret());
        Self(keys.chain(headers).map(str::trim).filter(|secret| secret.len() >= 8).map(SecretString::from).collect())
    }

    fn redact_failure(&self, mut failure: ModelFailure) -> ModelFailure {
        for secret in &self.0 {
            if failure.message.contains(secret.expose_secret()) {
                failure.message = failure.message.replace(secret.expose_secret(), "[hidden]");
            }
        }
        failure
    }
}
