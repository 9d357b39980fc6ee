//! Routes of a port that serves several realms: the host name, the path or the token of a request decides which realm answers it.
//!
//! It must not know how a realm is opened.

use std::sync::Arc;

use axum::{
    Router,
    extract::Request,
    http::{
        HeaderValue, Method, StatusCode, Uri, header,
        uri::{Parts, PathAndQuery},
    },
    response::{IntoResponse as _, Response},
};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use parking_lot::RwLock;
use serde_json::json;

use super::{
    ALIVE, ConnectionQuota, LIVEZ, PortHandlers, PortService, guard,
    port_service::ConnectionTarget,
    realm_prefix::{add_prefix, is_below},
    streams::StreamQuota,
};
use crate::{bearer_token::bearer_token, reply::HttpProblem};

/// Path under which each realm is served by its name.
pub const PATH: &str = "/realms/";
/// Text for a request that belongs to no realm.
const NO_REALM: &str = "No realm of this gateway is served under this host name, path or token.";
/// Text for a request to a realm that is not open.
const NOT_OPEN: &str = "The gateway of this realm is not running now; try again.";

/// Realms of a port.
pub struct RealmRoutes {
    realms: Vec<RealmEntry>,
    streams: StreamQuota,
}

struct RealmEntry {
    name: String,
    hosts: Vec<String>,
    open: RwLock<Option<OpenRealm>>,
}

/// Realm that is open.
#[derive(Clone)]
struct OpenRealm {
    router: Router,
    handlers: Arc<PortHandlers>,
}

impl RealmRoutes {
    /// Makes the routes of realms, each with its name and host names, at a port with `quota`. None of them is open yet.
    pub fn new(realms: impl IntoIterator<Item = (String, Vec<String>)>, quota: &ConnectionQuota) -> Arc<Self> {
        let entry = |(name, hosts)| RealmEntry { name, hosts, open: RwLock::new(None) };
        let realms = realms.into_iter().map(entry).collect();
        Arc::new(Self { realms, streams: StreamQuota::new(quota.max_connections(), Arc::default()) })
    }

    /// Serves the realm with these handlers from now on.
    pub fn open_realm(&self, name: &str, handlers: &Arc<PortHandlers>, is_tls: bool) {
        let router = super::realm_router(Arc::clone(handlers), &self.streams, is_tls);
        if let Some(entry) = self.realms.iter().find(|entry| entry.name == name) {
            *entry.open.write() = Some(OpenRealm { router, handlers: Arc::clone(handlers) });
        }
    }

    /// Answers requests to the realm with the notice that it is not open, until it is opened again.
    pub fn close_realm(&self, name: &str) {
        if let Some(entry) = self.realms.iter().find(|entry| entry.name == name) {
            *entry.open.write() = None;
        }
    }

    /// Makes the service of a port with these realms.
    pub fn to_service(self: &Arc<Self>) -> PortService {
        let routes = Arc::clone(self);
        let router = Router::new().fallback(move |request: Request| async move { routes.answer(request).await });
        PortService::new(ConnectionTarget::Router(router, Arc::default()))
    }

    /// Makes the service of a port that answers nothing but whether the realms are well.
    pub fn to_health_service(self: &Arc<Self>) -> PortService {
        let routes = Arc::clone(self);
        let router = Router::new().fallback(move |request: Request| async move {
            routes.answer_probe(request.uri().path()).await.unwrap_or_else(|| StatusCode::NOT_FOUND.into_response())
        });
        PortService::new(ConnectionTarget::Router(router, Arc::default()))
    }

    async fn answer(&self, mut request: Request) -> Response {
        let path = request.uri().path();
        let Some((entry, prefix)) = self.find_realm(&request) else {
            return match self.answer_probe(path).await {
                Some(answer) => answer,
                None => refuse(StatusCode::MISDIRECTED_REQUEST, NO_REALM, path),
            };
        };
        let open = entry.open.read().clone();
        let Some(OpenRealm { router, .. }) = open else {
            let mut refused = refuse(StatusCode::SERVICE_UNAVAILABLE, NOT_OPEN, path);
            refused.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            return refused;
        };
        let Some(prefix) = prefix else { return call(router, request).await };
        let Some(uri) = without_prefix(request.uri(), &prefix) else {
            return StatusCode::BAD_REQUEST.into_response();
        };
        *request.uri_mut() = uri;
        // Pages are rewritten, so they must not be compressed.
        request.headers_mut().remove(header::ACCEPT_ENCODING);
        let is_head = request.method() == Method::HEAD;
        add_prefix(call(router, request).await, &prefix, is_head).await
    }

    /// Returns the realm that a request belongs to, and the prefix of its path if that decided. A host name goes before a path, and
    /// a path before a token.
    fn find_realm(&self, request: &Request) -> Option<(&RealmEntry, Option<String>)> {
        let host = guard::request_host(request).map(guard::canonical_host);
        // The target goes before the header, and a proxy may have looked at either.
        let is_other = |target: &str| Some(guard::canonical_host(target)) != host;
        if request.uri().authority().is_some_and(|target| is_other(target.as_str())) {
            return None;
        }
        let path = request.uri().path();
        let below = |entry: &RealmEntry| Some(format!("{PATH}{}", entry.name)).filter(|prefix| is_below(path, prefix));
        if let Some(entry) = host.as_ref().and_then(|host| self.realms.iter().find(|entry| entry.hosts.contains(host)))
        {
            return Some((entry, below(entry)));
        }
        if let Some(found) = self.realms.iter().find_map(|entry| below(entry).map(|prefix| (entry, Some(prefix)))) {
            return Some(found);
        }
        let token = bearer_token(request.headers())?;
        let is_known =
            |entry: &&RealmEntry| entry.open.read().as_ref().is_some_and(|open| (open.handlers.knows_token)(token));
        let mut known = self.realms.iter().filter(is_known);
        // A token that several realms know names none of them.
        known.next().filter(|_| known.next().is_none()).map(|entry| (entry, None))
    }

    /// Answers a request of monitoring for the process as a whole, without the names of realms.
    async fn answer_probe(&self, path: &str) -> Option<Response> {
        if path == LIVEZ {
            return Some(ALIVE.into_response());
        }
        let is_health = path == "/healthz";
        if !is_health && path != "/readyz" {
            return None;
        }
        let mut problems = Vec::new();
        for entry in &self.realms {
            let open = entry.open.read().clone();
            match open {
                None => problems.push("a realm is not open"),
                Some(open) if is_health => {
                    if !(open.handlers.health)().await.0 {
                        problems.push("a realm is unhealthy");
                    }
                }
                Some(open) => problems.extend(open.handlers.readiness.find_problems().await),
            }
        }
        problems.sort_unstable();
        problems.dedup();
        let (status, word) = match (problems.is_empty(), is_health) {
            (true, true) => (StatusCode::OK, "healthy"),
            (true, false) => (StatusCode::OK, "ready"),
            (false, true) => (StatusCode::SERVICE_UNAVAILABLE, "unhealthy"),
            (false, false) => (StatusCode::SERVICE_UNAVAILABLE, "not ready"),
        };
        let body = json!({ "status": word, "problems": problems }).to_string();
        Some((status, [("content-type", "application/json")], body).into_response())
    }
}

impl std::fmt::Debug for RealmRoutes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.realms.iter().map(|entry| &entry.name)).finish()
    }
}

async fn call(router: Router, request: Request) -> Response {
    let answered = TowerToHyperService::new(router).call(request).await;
    answered.unwrap_or_else(|never| match never {})
}

fn refuse(status: StatusCode, text: &str, path: &str) -> Response {
    if path.starts_with("/api/") {
        return HttpProblem::new(status, text).response_for(path);
    }
    (status, format!("{text}\n")).into_response()
}

/// Returns the address of a request as the realm knows it.
fn without_prefix(uri: &Uri, prefix: &str) -> Option<Uri> {
    let rest = uri.path_and_query()?.as_str().strip_prefix(prefix)?;
    let rest = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
    let mut parts: Parts = uri.clone().into_parts();
    parts.path_and_query = Some(rest.parse::<PathAndQuery>().ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::without_prefix;

    #[test]
    fn a_realm_sees_the_path_below_its_own() {
        for (uri, want) in [
            ("/realms/home/console/?a=/realms/home", Some("/console/?a=/realms/home")),
            ("/realms/home", Some("/")),
            ("/realms/home?x=1", Some("/?x=1")),
            ("/realms/home/", Some("/")),
            ("/realms/office/", None),
        ] {
            let found = without_prefix(&uri.parse().unwrap(), "/realms/home").map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), want, "{uri}");
        }
    }
}
