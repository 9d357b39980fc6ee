//! Channel of signed requests over HTTP: any program that can send and receive POST requests becomes a chat network.
//!
//! Signed as Standard Webhooks specifies, in both directions, so that libraries exist for most languages. Source:
//! <https://www.standardwebhooks.com>.

#[cfg(feature = "fuzzing")]
pub mod fuzz;
mod sign;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{Path, Request as HttpRequest, State},
    http::{
        HeaderMap, StatusCode,
        header::{CONTENT_LENGTH, CONTENT_TYPE},
    },
    response::{IntoResponse as _, Response},
    routing::post,
};
use countersign_http::{
    listen::{ConnectionInfo, peer},
    web,
};
use countersign_protocol::{
    RawJson,
    gsv::{
        GsvError, GsvRequest, LARGEST_FRAME, Method,
        channel::{ChannelAccountParams, ChannelInboundParams, ChannelOutboundEvent, ChannelOutboundMessage},
        code,
    },
};
use countersign_telegram::transport::{Attachment, DeliveryOutcome, OutboundDelivery};
use reqwest::{Client, Url, redirect};
use secrecy::SecretString;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use super::{
    super::GsvAdapter,
    addresses::{self, WEBHOOK},
    channel_error, inbound, transport,
};

/// Path of inbound requests.
const PATH: &str = "/channels/webhook";
/// Longest time in which a body arrives.
const COMING: Duration = Duration::from_secs(120);
/// Longest body that is read of any sender.
const SMALL: usize = 1 << 20;
/// Most longer bodies that are read at once: their signature is known only when they are complete.
const LARGE_AT_ONCE: usize = 4;
/// Longest time of another server's answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Slowest rate of another server beyond that, in bytes a second.
const SLOWEST: u64 = 256 * 1024;
/// Most bytes of an answer that are read before the connection is dropped.
const ANSWER: usize = 64 * 1024;

/// Returns the path at which an account takes requests.
pub(super) fn account_path(account: &str) -> String {
    if account == ChannelAccountParams::DEFAULT { PATH.to_owned() } else { format!("{PATH}/{account}") }
}

/// Settings of an account.
#[derive(Debug)]
pub(super) struct WebhookSettings {
    /// URL to which outbound messages are posted. None if the account only takes messages.
    pub(super) url: Option<String>,
    secret: SecretString,
}

impl WebhookSettings {
    /// Reads the settings of an account.
    ///
    /// # Errors
    /// The missing setting, as text.
    pub(super) fn for_account(door: &GsvAdapter, account: &str) -> Result<Self, String> {
        let at = if account == ChannelAccountParams::DEFAULT {
            "channels.webhook".to_owned()
        } else {
            format!("channels.webhook.accounts.{account}")
        };
        let tree = door.settings.tree();
        let set = at.split('.').fold(&*tree, |tree, name| &tree[name]);
        let secret = door.settings.secret_at(&format!("{at}.secret"));
        let secret = secret.ok_or_else(|| format!("{at}.secret is not set"))?;
        Ok(Self { url: set["url"].as_str().map(str::to_owned), secret })
    }

    /// Returns the accounts that are set up.
    pub(super) fn account_names(door: &GsvAdapter) -> Vec<String> {
        let tree = door.settings.tree();
        let set = &tree["channels"]["webhook"];
        let named = set["accounts"].as_object().into_iter().flatten().map(|(name, _)| name.clone());
        let default = (!set["secret"].is_null()).then(|| ChannelAccountParams::DEFAULT.to_owned());
        default.into_iter().chain(named).collect()
    }
}

/// Returns the routes of inbound requests.
pub fn webhook_routes(door: &Arc<GsvAdapter>) -> Router {
    Router::new()
        .route(PATH, post(at_default))
        .route("/channels/webhook/{account}", post(at_account))
        .with_state(Arc::clone(door))
}

async fn at_default(State(door): State<Arc<GsvAdapter>>, request: HttpRequest) -> Response {
    to_response(handle_request(&door, ChannelAccountParams::DEFAULT, request).await)
}

async fn at_account(
    State(door): State<Arc<GsvAdapter>>,
    Path(account): Path<String>,
    request: HttpRequest,
) -> Response {
    to_response(handle_request(&door, &account, request).await)
}

fn to_response(taken: Result<RawJson, GsvError>) -> Response {
    let (status, body) = match taken {
        Ok(taken) => (StatusCode::OK, taken),
        Err(fault) => {
            let status = u16::try_from(fault.code).ok().and_then(|code| StatusCode::from_u16(code).ok());
            (status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), RawJson::from_wire(&fault))
        }
    };
    (status, [(CONTENT_TYPE, "application/json")], body.as_text().to_owned()).into_response()
}

/// Handles an inbound request, which is a message.
async fn handle_request(door: &Arc<GsvAdapter>, account: &str, request: HttpRequest) -> Result<RawJson, GsvError> {
    let came = door.cards.current_moment();
    let (head, body) = request.into_parts();
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (id, timestamp, signature) = (header(sign::ID), header(sign::TIMESTAMP), header(sign::SIGNATURE));
    // The existence of an account is not shown to a sender who cannot sign.
    let unsigned = || GsvError::new(code::UNAUTHORIZED, "Unauthorized: missing, wrong or old signature");
    let settings = WebhookSettings::for_account(door, account).map_err(|_| unsigned())?;
    // A request that cannot have been signed is not read.
    if !sign::may_be_signed(id, timestamp, signature, door.context.clock.wall_time()) {
        return Err(unsigned());
    }
    let body = read_body(&door.networks.webhook, &head.headers, body).await?;
    let signed = sign::SignedRequest { id, timestamp, signature, body: &body };
    if !signed.is_by(&settings.secret, door.context.clock.wall_time()) {
        return Err(unsigned());
    }
    // A command of an agent may find out the secret of others.
    let is_agents = match head.extensions.get::<ConnectionInfo>() {
        Some(guest) => !guest.peer.may_decide().await,
        None => true,
    };
    if is_agents {
        return Err(GsvError::new(code::FORBIDDEN, peer::REFUSED));
    }
    Ok(RawJson::from_wire(&inbound::handle_inbound(door, parse_message(&body, account, id)?, None, came).await?))
}

/// Parses a body as a message of an account, under the id that was signed with it.
fn parse_message(body: &[u8], account: &str, id: &str) -> Result<ChannelInboundParams, GsvError> {
    let mut params: Map<String, Value> = serde_json::from_slice(body)
        .map_err(|error| GsvError::bad_request(format!("the body is no JSON object: {error}")))?;
    params.insert("channel".to_owned(), WEBHOOK.into());
    params.insert("accountId".to_owned(), account.into());
    let params = RawJson::from_wire(&params);
    let GsvRequest::ChannelInbound(mut message) = GsvRequest::from_params(Method::ChannelInbound, Some(&params))?
    else {
        return Err(channel_error("this is no message"));
    };
    // The signed id counts, whatever id the message has.
    message.message_id = Some(id.to_owned());
    Ok(*message)
}

/// Reads a body whose sender is not known yet.
async fn read_body(sender: &WebhookSender, headers: &HeaderMap, body: Body) -> Result<Bytes, GsvError> {
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let is_large = length.is_none_or(|length| length > SMALL);
    let most = if is_large { LARGEST_FRAME } else { SMALL };
    let too_large = || GsvError::new(code::TOO_LARGE, format!("the body has more than {most} bytes"));
    if length.is_some_and(|length| length > most) {
        return Err(too_large());
    }
    let _turn = match is_large.then(|| sender.large.try_acquire()).transpose() {
        Ok(turn) => turn,
        Err(_) => {
            let busy =
                GsvError::new(code::UNAVAILABLE, "as many large messages come in as may at once; try again later");
            return Err(GsvError { retryable: Some(true), ..busy });
        }
    };
    match tokio::time::timeout(COMING, to_bytes(body, most)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(error)) if web::is_over_limit(&error) => Err(too_large()),
        Ok(Err(_)) => Err(GsvError::bad_request("the body broke off")),
        Err(_) => Err(GsvError::bad_request(format!("the body did not come within {} s", COMING.as_secs()))),
    }
}

/// Shared state of all requests, in and out.
pub(super) struct WebhookSender {
    client: OnceLock<Client>,
    large: Semaphore,
}

impl Default for WebhookSender {
    fn default() -> Self {
        Self { client: OnceLock::new(), large: Semaphore::new(LARGE_AT_ONCE) }
    }
}

impl WebhookSender {
    fn http_client(&self) -> Result<&Client, String> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        // Fails if a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            .user_agent(concat!("countersign/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| error.to_string())?;
        Ok(self.client.get_or_init(|| client))
    }

    /// Posts an outbound message. Its id is the same for each attempt, so that the receiver can detect duplicates.
    pub(super) async fn post_letter(&self, door: &GsvAdapter, letter: &OutboundDelivery) -> DeliveryOutcome {
        let to = &letter.owed.to;
        let settings = match WebhookSettings::for_account(door, &to.account.name) {
            Ok(settings) => settings,
            Err(why) => return DeliveryOutcome::Refused(why),
        };
        let Some(url) = &settings.url else {
            return DeliveryOutcome::Refused("no url is set for this account".to_owned());
        };
        let url = match Url::parse(url) {
            Ok(url) if matches!(url.scheme(), "http" | "https") => url,
            Ok(_) | Err(_) => {
                return DeliveryOutcome::Refused("the url that is set is no http or https URL".to_owned());
            }
        };
        let media = letter.media.as_ref().map(Attachment::data_url);
        let reply_to = letter.owed.reply_to.as_deref();
        let Some(message) = ChannelOutboundMessage::new(&letter.text, reply_to, media.as_deref()) else {
            return DeliveryOutcome::Delivered;
        };
        let outbound = ChannelOutboundEvent {
            channel: WEBHOOK,
            account_id: &to.account.name,
            peer: &addresses::chat_peer(to),
            session_key: &transport::session_key(letter.owed.session.as_deref()),
            message,
        };
        let body = RawJson::from_wire(&outbound).as_text().to_owned();
        let id = letter.owed.id.to_string();
        let now = door.context.clock.wall_time();
        let Some(signature) = sign::sign_body(&settings.secret, &id, now, body.as_bytes()) else {
            return DeliveryOutcome::Refused("the secret that is set cannot be used".to_owned());
        };
        let client = match self.http_client() {
            Ok(client) => client,
            Err(problem) => {
                tracing::warn!(%problem, "failed to create the HTTP client for webhooks");
                return DeliveryOutcome::Later(None);
            }
        };
        let request = client
            .post(url)
            .timeout(PATIENCE + Duration::from_secs(body.len() as u64 / SLOWEST))
            .header(CONTENT_TYPE, "application/json")
            .header(sign::ID, id)
            .header(sign::TIMESTAMP, sign::unix_seconds(now))
            .header(sign::SIGNATURE, signature)
            .body(body);
        match request.send().await {
            Ok(mut response) => {
                let status = response.status();
                let wait = response.headers().get("retry-after").and_then(|wait| wait.to_str().ok()?.parse().ok());
                drain_response(&mut response).await;
                status_outcome(status.as_u16(), wait)
            }
            Err(error) => {
                tracing::info!(error = %error.without_url(), "a webhook request failed");
                DeliveryOutcome::Later(None)
            }
        }
    }
}

/// Reads the rest of an answer, so that the connection can be used again.
async fn drain_response(response: &mut reqwest::Response) {
    let mut read = 0;
    while let Ok(Some(chunk)) = response.chunk().await {
        read += chunk.len();
        if read > ANSWER {
            break;
        }
    }
}

/// Returns the outcome for a status. A redirect is not followed: it would send the text elsewhere.
fn status_outcome(status: u16, wait: Option<u64>) -> DeliveryOutcome {
    match status {
        200..=299 => DeliveryOutcome::Delivered,
        408 | 425 | 429 | 500..=599 => DeliveryOutcome::Later(wait.map(Duration::from_secs)),
        _ => DeliveryOutcome::Refused(format!("it was answered {status}")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{DeliveryOutcome, status_outcome};

    #[test]
    fn what_may_pass_is_tried_again_and_what_will_not_is_not() {
        let refused = |status: u16| DeliveryOutcome::Refused(format!("it was answered {status}"));
        for (status, wait, want) in [
            (204, None, DeliveryOutcome::Delivered),
            (302, None, refused(302)),
            (400, None, refused(400)),
            (410, None, refused(410)),
            (429, Some(7), DeliveryOutcome::Later(Some(Duration::from_secs(7)))),
            (503, None, DeliveryOutcome::Later(None)),
        ] {
            assert_eq!(status_outcome(status, wait), want, "{status}");
        }
    }
}
