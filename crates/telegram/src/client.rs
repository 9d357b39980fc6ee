//! The way to a Bot API server: one POST a call.
//!
//! It must not know the texts of messages. The token is in the address of every request and in nothing that leaves here: no
//! error, no log line, no `Debug`.

use std::{error::Error as _, net::IpAddr, sync::OnceLock, time::Duration};

use futures_util::future::BoxFuture;
use reqwest::{Client, RequestBuilder, Url, header::CONTENT_TYPE, redirect};
use secrecy::{ExposeSecret, SecretString};

/// The most that is read of an answer. A full page of updates is far smaller.
const ANSWER_LIMIT: usize = 8 << 20;

/// An answer as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BotResponse {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// Carries one call and its answer. Tests put a server of their own here.
pub(super) trait BotTransport: Send + Sync + 'static {
    /// Calls `method` with `body`, which is JSON, and waits for its answer at most `patience`.
    ///
    /// # Errors
    /// In words, if there was no answer. The server may have done it all the same.
    fn call(
        &self,
        method: &'static str,
        body: String,
        patience: Duration,
    ) -> BoxFuture<'_, Result<BotResponse, String>>;

    /// Calls `method` with a body of type `kind`, and waits for its answer at most `patience`.
    ///
    /// # Errors
    /// As [`BotTransport::call`].
    fn upload_form(
        &self,
        method: &'static str,
        kind: String,
        body: Vec<u8>,
        patience: Duration,
    ) -> BoxFuture<'_, Result<BotResponse, String>>;

    /// Fetches the content of the file at `path`, or a byte more than `most` of it, within `patience`.
    ///
    /// # Errors
    /// The error's text, if there was no answer.
    fn fetch_file(&self, path: String, most: usize, patience: Duration) -> BoxFuture<'_, Result<BotResponse, String>>;
}

/// The address of a Bot API server is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the address of the Bot API server is not an http or https URL")]
pub struct BadAddress;

/// Over HTTP. Nothing is set up before the first call.
pub(super) struct HttpBotTransport {
    base: Url,
    token: SecretString,
    client: OnceLock<Client>,
}

impl HttpBotTransport {
    pub(super) fn new(address: &str, token: SecretString) -> Result<Self, BadAddress> {
        let base = Url::parse(address).map_err(|_| BadAddress)?;
        if !matches!(base.scheme(), "http" | "https") || base.cannot_be_a_base() {
            return Err(BadAddress);
        }
        Ok(Self { base, token, client: OnceLock::new() })
    }

    fn http_client(&self) -> Result<&Client, String> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        // Fails if there is one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = match (is_loopback(&self.base), self.base.scheme()) {
            // Reading the system's certificates takes longer than a local answer.
            (true, "http") => Client::builder().no_proxy().tls_certs_only([]),
            (true, _) => Client::builder().no_proxy(),
            (false, _) => Client::builder(),
        };
        let client = builder
            .redirect(redirect::Policy::none())
            .user_agent(concat!("countersign/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| self.error_text(error))?;
        Ok(self.client.get_or_init(|| client))
    }

    fn method_url(&self, method: &str) -> Url {
        let mut url = self.base.clone();
        let bot = format!("bot{}", self.token.expose_secret());
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push(&bot).push(method);
        }
        url
    }

    async fn post_body(
        &self,
        method: &'static str,
        kind: &str,
        body: Vec<u8>,
        patience: Duration,
    ) -> Result<BotResponse, String> {
        let sending = self.http_client()?.post(self.method_url(method)).header(CONTENT_TYPE, kind).body(body);
        self.receive_response(sending, ANSWER_LIMIT, patience).await
    }

    async fn fetch_path(&self, path: String, most: usize, patience: Duration) -> Result<BotResponse, String> {
        let mut url = self.base.clone();
        let bot = format!("bot{}", self.token.expose_secret());
        if let Ok(mut way) = url.path_segments_mut() {
            // A path element that leads elsewhere is left out where it is pushed.
            way.pop_if_empty().push("file").push(&bot).extend(path.split('/'));
        }
        self.receive_response(self.http_client()?.get(url), most, patience).await
    }

    async fn receive_response(
        &self,
        sending: RequestBuilder,
        most: usize,
        patience: Duration,
    ) -> Result<BotResponse, String> {
        let receiving = async {
            let mut response = sending.send().await?;
            let status = response.status().as_u16();
            let mut body = Vec::new();
            while let Some(chunk) = response.chunk().await? {
                body.extend_from_slice(&chunk);
                if body.len() > most {
                    break;
                }
            }
            Ok(BotResponse { status, body: self.without_token(body) })
        };
        match tokio::time::timeout(patience, receiving).await {
            Ok(answer) => answer.map_err(|error| self.error_text(error)),
            Err(_) => Err(format!("no answer within {} s", patience.as_secs_f32())),
        }
    }

    /// Returns an answer without the token, should a server on the way repeat the address: errors of a call are logged.
    fn without_token(&self, body: Vec<u8>) -> Vec<u8> {
        let token = self.token.expose_secret();
        match String::from_utf8(body) {
            Ok(text) if !token.is_empty() && text.contains(token) => text.replace(token, "[hidden]").into_bytes(),
            Ok(text) => text.into_bytes(),
            Err(error) => error.into_bytes(),
        }
    }

    /// Returns an error's text, without the address and any other part that may hold the token.
    fn error_text(&self, error: reqwest::Error) -> String {
        let error = error.without_url();
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text.replace(self.token.expose_secret(), "[hidden]")
    }
}

impl BotTransport for HttpBotTransport {
    fn call(
        &self,
        method: &'static str,
        body: String,
        patience: Duration,
    ) -> BoxFuture<'_, Result<BotResponse, String>> {
        Box::pin(self.post_body(method, "application/json", body.into_bytes(), patience))
    }

    fn upload_form(
        &self,
        method: &'static str,
        kind: String,
        body: Vec<u8>,
        patience: Duration,
    ) -> BoxFuture<'_, Result<BotResponse, String>> {
        Box::pin(async move { self.post_body(method, &kind, body, patience).await })
    }

    fn fetch_file(&self, path: String, most: usize, patience: Duration) -> BoxFuture<'_, Result<BotResponse, String>> {
        Box::pin(self.fetch_path(path, most, patience))
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests;
