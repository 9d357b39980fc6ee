//! Calls of services over HTTP: sends one request with credentials that the caller never sees, and reports how far it got.
//!
//! It must not know where services are configured, who wants a call, or whether it was allowed. It writes no log
//! lines, because what passes through here holds credentials.
//!
//! The line between [`ServiceCallOutcome::NotBegun`] and [`ServiceCallOutcome::InDoubt`] is drawn by counting: a connection counts bytes
//! that it took for the wire, and is driven by the call's own task. When a call ends early no other task can still send.

mod address;
mod answer;
mod connection;
mod credentials;
mod pool;
mod request_executor;
mod tls;

use std::{collections::BTreeMap, fmt, time::Duration};

use countersign_tools::{GatewaySecrets, secrets::Redactor};
use hyper::Method;
use secrecy::SecretString;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use url::Url;

pub use self::{address::DotSegment, credentials::BadCredentials};
use self::{
    address::{BaseUrl, request_target, with_query},
    answer::{ServiceResponse, response_outcome},
    credentials::ServiceCredentials,
    pool::ConnectionPool,
    request_executor::{DispatchTracker, RequestExecutor},
};

/// Time limit of a health check, all in all.
pub const HEALTH_LIMIT: Duration = Duration::from_secs(5);

/// A service as it was configured.
#[derive(Clone)]
pub struct ServiceDefinition {
    /// Its name in the configuration; unique.
    pub name: String,
    /// `http` or `https`, with a path or without; no user, query or fragment.
    pub base_url: String,
    /// Authentication of the gateway at the service.
    pub auth: ServiceAuth,
    /// Health check of the service.
    pub health: HealthCheck,
    /// Texts for certain statuses; `{status}`, `{body}` and `{args.NAME}` are filled in. The first entry of a status counts; one that
    /// names an argument which the call does not have counts for nothing.
    pub errors: Vec<(u16, String)>,
    /// The text for every other status that has no usual one.
    pub other_errors: Option<String>,
    /// Time and size limits of an answer.
    pub limits: ServiceLimits,
}

/// The base address is left out: a user may have written a password into it.
impl fmt::Debug for ServiceDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceDefinition")
            .field("name", &self.name)
            .field("auth", &self.auth)
            .field("health", &self.health)
            .field("errors", &self.errors)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Authentication of the gateway at a service.
#[derive(Clone, Debug)]
pub enum ServiceAuth {
    /// No authentication.
    None,
    /// `Authorization: Bearer TOKEN`.
    Bearer(SecretString),
    /// A header of its own.
    Header {
        /// The header's name.
        name: String,
        /// The header's whole value.
        token: SecretString,
    },
    /// A parameter that is appended to the query.
    Query {
        /// The parameter's name.
        param: String,
        /// The parameter's value, not yet encoded.
        token: SecretString,
    },
    /// `Authorization: Basic …`.
    Basic {
        /// The user, without a colon.
        user: String,
        /// The password.
        password: SecretString,
    },
}

/// A request that shows whether a service is well.
#[derive(Clone, Debug)]
pub struct HealthCheck {
    /// Its method, usually `GET`.
    pub method: String,
    /// Its path after the base address, sent as it is.
    pub path: String,
    /// The status that a service which is well answers.
    pub expect_status: u16,
}

/// Bounds of one call.
#[derive(Clone, Copy, Debug)]
pub struct ServiceLimits {
    /// From the first look-up to the last byte of the answer, redirects included.
    pub timeout: Duration,
    /// The largest answer that is taken, in bytes of its body.
    pub response: usize,
}

/// Request of a tool to its service.
#[derive(Clone, Debug, Default)]
pub struct ServiceCall {
    /// The method. Only `POST`, `PUT` and `PATCH` in capitals have a body: the arguments as a JSON object.
    pub method: String,
    /// Path and query after the base address; `{name}` is replaced by that argument, percent-encoded.
    pub path: String,
    /// Arguments that are not part of the body.
    pub body_exclude: Vec<String>,
    /// Arguments that are parameters of the query in place of members of the body.
    pub query: Vec<String>,
    /// The name under which the answer is put into an object.
    pub wrap: Option<String>,
    /// True if it may be sent again: done by itself only when an idle connection turns out to have been closed.
    pub idempotent: bool,
    /// Its own bounds; absent: those of its service.
    pub limits: Option<ServiceLimits>,
}

impl ServiceCall {
    /// Decides whether `arguments` may stand in the path, before any approval or sending.
    ///
    /// # Errors
    /// [`DotSegment`] if the path would name another place than its template does.
    pub fn check_arguments(&self, arguments: &Map<String, Value>) -> Result<(), DotSegment> {
        request_target("", &self.path, arguments).map(drop)
    }

    fn encode_body(&self, arguments: &Map<String, Value>) -> Option<Vec<u8>> {
        if !matches!(self.method.as_str(), "POST" | "PUT" | "PATCH") {
            return None;
        }
        let is_elsewhere = |name: &String| self.body_exclude.contains(name) || self.query.contains(name);
        let sent = arguments.iter().filter(|(name, _)| !is_elsewhere(name));
        let sent: Map<String, Value> = sent.map(|(name, value)| (name.clone(), value.clone())).collect();
        Some(Value::Object(sent).to_string().into_bytes())
    }
}

/// Outcome of a call. No text in it holds a credential of the service.
#[derive(Clone, Debug, PartialEq)]
pub enum ServiceCallOutcome {
    /// The service did it: its answer, a text as a JSON string, an empty one as null.
    Done(Value),
    /// The service answered, and its answer is an error or cannot be handed on.
    Failed {
        /// The mapped text.
        text: String,
    },
    /// No byte of a request left this machine.
    NotBegun {
        /// Why.
        text: String,
    },
    /// A request left, or may have, and no whole answer came back.
    InDoubt {
        /// Why.
        text: String,
    },
    /// Nothing was sent, because the arguments do not fit the path.
    Invalid(DotSegment),
}

/// A reason that a service is not well.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HealthFailure {
    /// The service is there and refuses its credentials.
    #[error("rejected the credentials with status {0}")]
    Refused(u16),
    /// The service is there and answers something else.
    #[error("returned status {status}, expected {expect_status}")]
    Answered {
        /// The status that it answered.
        status: u16,
        /// The status that was expected.
        expect_status: u16,
    },
    /// No connection to the service.
    #[error("{0}")]
    Unreachable(String),
    /// The configuration of the service makes a request impossible.
    #[error("{0}")]
    Misconfigured(String),
}

/// A service that cannot be used as it was configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadService {
    /// Two services have one name.
    #[error("service {0} is defined twice")]
    Twice(String),
    /// The base address is no plain `http` or `https` address.
    #[error("service {0}: url must be an http or https URL without user, query or fragment")]
    Address(String),
    /// The credentials cannot be sent.
    #[error("service {0}: {1}")]
    Credentials(String, #[source] BadCredentials),
}

/// All services, reached over connections that they share.
///
/// Connections are kept alive for a moment. No proxy is used, with any environment. Redirects are followed for
/// `GET` and `HEAD` only, and to another origin without credentials.
#[derive(Debug)]
pub struct ServiceClient {
    known: BTreeMap<String, ConfiguredService>,
    secrets: GatewaySecrets,
    pool: ConnectionPool,
}

struct ConfiguredService {
    service: ServiceDefinition,
    base: BaseUrl,
    credentials: ServiceCredentials,
}

impl fmt::Debug for ConfiguredService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.service.fmt(f)
    }
}

/// All secrets that must not come out of a call: the credentials of its service, and others.
#[derive(Clone, Copy)]
struct Redactions<'a> {
    credentials: &'a ServiceCredentials,
    veil: &'a Redactor,
}

impl Redactions<'_> {
    fn redact_text(&self, text: &str) -> String {
        self.veil.redact_text(&self.credentials.redact_text(text)).into_owned()
    }

    fn redact_value(&self, value: &mut Value) {
        self.credentials.redact_value(value);
        self.veil.redact_value(value);
    }

    /// Returns `url` as another origin may see it, or none if it holds a secret that cannot be taken out.
    fn strip_url(&self, url: Url) -> Option<Url> {
        let url = self.credentials.strip_url(url)?;
        let decoded = percent_encoding::percent_decode_str(url.as_str()).decode_utf8_lossy();
        (!self.veil.contains_secret(url.as_str()) && !self.veil.contains_secret(&decoded)).then_some(url)
    }
}

/// One request, before anything is added that only we know.
#[derive(Clone)]
struct PreparedRequest {
    method: Method,
    target: String,
    body: Option<Vec<u8>>,
    idempotent: bool,
}

impl ServiceClient {
    /// Makes `services` callable; nothing is connected yet.
    ///
    /// # Errors
    /// [`BadService`] for the first that cannot be used.
    pub fn new(services: Vec<ServiceDefinition>) -> Result<Self, BadService> {
        let mut known = BTreeMap::new();
        for service in services {
            let name = service.name.clone();
            let base = BaseUrl::parse(&service.base_url).ok_or_else(|| BadService::Address(name.clone()))?;
            let credentials =
                ServiceCredentials::new(&service.auth).map_err(|bad| BadService::Credentials(name.clone(), bad))?;
            if known.insert(name.clone(), ConfiguredService { service, base, credentials }).is_some() {
                return Err(BadService::Twice(name));
            }
        }
        Ok(Self { known, secrets: GatewaySecrets::default(), pool: ConnectionPool::default() })
    }

    /// Returns the same, with calls that may name `secrets` in their arguments. They are put in when a call is sent, and hidden like
    /// credentials in its answer.
    #[must_use]
    pub fn with_secrets(self, secrets: GatewaySecrets) -> Self {
        Self { secrets, ..self }
    }

    /// Sends one call of `service` and waits for its end, for its time limit or for `cancel`.
    ///
    /// *Cancellation*: dropping the future closes the connection; whether the request had left is not known then.
    pub async fn run(
        &self,
        service: &str,
        call: &ServiceCall,
        arguments: &Map<String, Value>,
        cancel: CancellationToken,
    ) -> ServiceCallOutcome {
        let Some(known) = self.known.get(service) else {
            return ServiceCallOutcome::NotBegun { text: format!("Service not configured: {service}") };
        };
        let arguments = match self.secrets.fill_arguments(arguments) {
            Ok(filled) => filled,
            Err(problem) => return ServiceCallOutcome::NotBegun { text: format!("Not sent: {problem}") },
        };
        let veil = self.secrets.redactor();
        let hiding = Redactions { credentials: &known.credentials, veil: &veil };
        let target = match request_target(&known.base.path, &call.path, &arguments) {
            Ok(target) => with_query(target, &call.query, &arguments),
            Err(refused) => return ServiceCallOutcome::Invalid(refused),
        };
        let Ok(method) = Method::from_bytes(call.method.to_ascii_uppercase().as_bytes()) else {
            return ServiceCallOutcome::NotBegun {
                text: format!("Service {service}: the method of this tool is not valid"),
            };
        };
        let prepared =
            PreparedRequest { method, target, body: call.encode_body(&arguments), idempotent: call.idempotent };
        let limits = call.limits.unwrap_or(known.service.limits);
        match self.send_prepared(known, &prepared, limits, hiding, &cancel).await {
            Ok(answer) => response_outcome(&known.service, hiding, (call.wrap.as_deref(), &arguments), answer),
            Err(ended) => ended,
        }
    }

    /// Asks `service` whether it is well, within [`HEALTH_LIMIT`].
    ///
    /// # Errors
    /// [`HealthFailure`], for a person to read.
    pub async fn check_health(&self, service: &str) -> Result<(), HealthFailure> {
        let Some(known) = self.known.get(service) else {
            return Err(HealthFailure::Misconfigured(format!("Service not configured: {service}")));
        };
        let health = &known.service.health;
        let target = request_target(&known.base.path, &health.path.replace(['{', '}'], ""), &Map::new());
        let target = target.map_err(|refused| HealthFailure::Misconfigured(refused.to_string()))?;
        let method = Method::from_bytes(health.method.to_ascii_uppercase().as_bytes());
        let invalid = || HealthFailure::Misconfigured("the method of the health check is not valid".to_owned());
        let method = method.map_err(|_| invalid())?;
        let prepared = PreparedRequest { method, target, body: None, idempotent: true };
        let limits = ServiceLimits { timeout: HEALTH_LIMIT, response: 0 };
        let veil = self.secrets.redactor();
        let hiding = Redactions { credentials: &known.credentials, veil: &veil };
        match self.send_prepared(known, &prepared, limits, hiding, &CancellationToken::new()).await {
            Ok(answer) if answer.status.as_u16() == health.expect_status => Ok(()),
            Ok(answer) if matches!(answer.status.as_u16(), 401 | 403) => {
                Err(HealthFailure::Refused(answer.status.as_u16()))
            }
            Ok(answer) => {
                Err(HealthFailure::Answered { status: answer.status.as_u16(), expect_status: health.expect_status })
            }
            Err(
                ServiceCallOutcome::NotBegun { text }
                | ServiceCallOutcome::InDoubt { text }
                | ServiceCallOutcome::Failed { text },
            ) => Err(HealthFailure::Unreachable(text)),
            Err(ServiceCallOutcome::Invalid(refused)) => Err(HealthFailure::Misconfigured(refused.to_string())),
            Err(ServiceCallOutcome::Done(_)) => Ok(()),
        }
    }

    /// Comes back with an answer, or with how far the request got without one.
    async fn send_prepared(
        &self,
        known: &ConfiguredService,
        prepared: &PreparedRequest,
        limits: ServiceLimits,
        hiding: Redactions<'_>,
        cancel: &CancellationToken,
    ) -> Result<ServiceResponse, ServiceCallOutcome> {
        let name = &known.service.name;
        let mut tracker = DispatchTracker::default();
        let end = {
            let executor =
                RequestExecutor { known, hiding, pool: &self.pool, response: limits.response, limit: limits.timeout };
            let execution = executor.execute_request(prepared, &mut tracker);
            tokio::select! {
                biased;
                () = cancel.cancelled() => Err("it was cancelled".to_owned()),
                end = tokio::time::timeout(limits.timeout, execution) => match end {
                    Ok(end) => end,
                    Err(_) => Err(format!("it took longer than {:?}, the time limit", limits.timeout)),
                },
            }
        };
        // The journey is gone here, and its connection with it: a request that has not left by now never will.
        end.map_err(|why| {
            let why = answer::printable_excerpt(&hiding.redact_text(&why), answer::EXCERPT);
            if tracker.has_left() {
                ServiceCallOutcome::InDoubt { text: format!("Outcome unknown: {name} got the request, but {why}") }
            } else {
                ServiceCallOutcome::NotBegun { text: format!("Service unreachable: {name} ({why})") }
            }
        })
    }
}
