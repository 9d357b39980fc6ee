//! Checks before a route: the caller may use it, and no page of another site sent it.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse as _, Redirect, Response},
};

use super::{
    access::{self, RouteAccess, RouteEffect, TokenScope},
    auth::{AuthMethod, HttpCaller, NotLoggedIn, WebAuth},
    authorized_stream,
};
use crate::{
    listen::{ConnectionInfo, peer},
    origin::CROSS_ORIGIN,
    reply::HttpProblem,
};

/// The path at which figures of the process stand.
pub const METRICS: &str = "/metrics";
/// Path of MCP, whose clients are programs.
const MCP: &str = "/mcp";
/// Beginning of the paths of hooks, whose clients are programs.
const HOOKS: &str = "/hooks/";
/// Time limit of receiving a form.
const PATIENCE: Duration = Duration::from_secs(20);
/// Wait before a caller that may be an agent's command is checked once more.
const SECOND_LOOK: Duration = Duration::from_millis(300);
/// Largest form, in bytes.
const LARGEST_FORM: usize = 1 << 20;

/// The guard of one route.
#[derive(Clone)]
pub(super) struct RouteGuard {
    pub(super) auth: Arc<WebAuth>,
    pub(super) who: RouteAccess,
    pub(super) effect: RouteEffect,
}

/// Passes on a request that no route takes, if it may know that: below `/api/` that is for authenticated callers.
pub(super) async fn check_unrouted(State(auth): State<Arc<WebAuth>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if !path.starts_with("/api/") || access::is_public(path) {
        return next.run(request).await;
    }
    let guard = RouteGuard { auth, who: RouteAccess::Scope(TokenScope::Read), effect: RouteEffect::Tells };
    check_access(State(guard), request, next).await
}

/// Passes on a request, with its [`HttpCaller`] among its extensions, or answers it.
pub(super) async fn check_access(State(guard): State<RouteGuard>, request: Request, next: Next) -> Response {
    let (mut parts, mut body) = request.into_parts();
    let mut from = None;
    // Before anything else: neither may it try passwords, nor have others kept out for the tokens that it tries.
    if guard.effect == RouteEffect::Acts || parts.headers.contains_key(header::AUTHORIZATION) {
        let guest = parts.extensions.get::<ConnectionInfo>();
        let is_agents = match guest {
            Some(_) if guard.effect == RouteEffect::Acts => is_an_agents(&parts).await,
            Some(guest) => !guest.peer.may_decide().await,
            None => false,
        };
        if is_agents && guard.effect == RouteEffect::Acts {
            return refusal_response(&parts, StatusCode::FORBIDDEN, peer::REFUSED);
        }
        if let Some(guest) = guest
            && guard.effect == RouteEffect::Acts
            && !is_for_programs(parts.uri.path())
            && guest.peer.is_guarded().await
        {
            return refusal_response(&parts, StatusCode::FORBIDDEN, peer::REFUSED_GUARDED);
        }
        from = guest.filter(|_| !is_agents).map(|guest| guest.from.ip());
    }
    let caller = match guard.auth.authenticate_request(from, &parts.headers) {
        Ok(caller) => caller,
        Err(_) if guard.who == RouteAccess::Anybody => None,
        Err(NotLoggedIn::Wrong) => {
            return refusal_response(
                &parts,
                StatusCode::UNAUTHORIZED,
                "This token is not known here, or it is out of date",
            );
        }
        Err(NotLoggedIn::TooOften) => {
            return refusal_response(
                &parts,
                StatusCode::TOO_MANY_REQUESTS,
                "Too many wrong tokens came from this address. Wait a minute, then try again",
            );
        }
    };
    if guard.effect == RouteEffect::Acts
        && let Some(refused) = is_foreign(&guard, &parts)
    {
        return refused;
    }
    let caller = match caller {
        Some(HttpCaller { via: AuthMethod::Cookie { .. }, .. })
            if guard.effect == RouteEffect::Tells && is_an_agents(&parts).await =>
        {
            if guard.who != RouteAccess::Anybody {
                return refusal_response(&parts, StatusCode::FORBIDDEN, NOT_ITS_LOGIN);
            }
            // The reply does not reveal whether the login is valid.
            None
        }
        caller => caller,
    };
    match (&caller, guard.who) {
        (_, RouteAccess::Anybody) => {}
        (None, _) => return unauthenticated_response(&parts),
        (Some(HttpCaller { via: AuthMethod::Token { .. }, .. }), RouteAccess::Person) => {
            return refusal_response(&parts, StatusCode::FORBIDDEN, "This is for people: a token is not enough");
        }
        (Some(HttpCaller { via: AuthMethod::Token { scopes }, .. }), RouteAccess::Scope(required))
            if !scopes.contains(&required) =>
        {
            let refusal = (StatusCode::FORBIDDEN, format!("This token does not have the scope {}", required.as_str()));
            return refusal_response(&parts, refusal.0, &refusal.1);
        }
        (Some(_), RouteAccess::Person | RouteAccess::Scope(_)) => {}
    }
    if let Some(HttpCaller { via: AuthMethod::Cookie { csrf }, .. }) = &caller
        && guard.effect == RouteEffect::Acts
        && parts.method != axum::http::Method::GET
        && guard.who != RouteAccess::Anybody
        && is_of_a_page(&parts.headers)
    {
        let header = ["x-hermes-csrf-token", "x-csrf-token"].iter().find_map(|name| header_text(&parts.headers, name));
        let given = match header {
            Some(given) => given.to_owned(),
            // A page without script can send it in its form only.
            None if is_form(&parts.headers) => {
                let reading = tokio::time::timeout(PATIENCE, to_bytes(body, LARGEST_FORM));
                let Ok(Ok(bytes)) = reading.await else {
                    return refusal_response(
                        &parts,
                        StatusCode::PAYLOAD_TOO_LARGE,
                        "The form is too large, or took too long",
                    );
                };
                let found = serde_urlencoded::from_bytes::<Vec<(String, String)>>(&bytes).unwrap_or_default();
                body = Body::from(bytes);
                found.into_iter().find(|(name, _)| name == "csrf").map(|(_, value)| value).unwrap_or_default()
            }
            None => String::new(),
        };
        if !bool::from(subtle::ConstantTimeEq::ct_eq(given.as_bytes(), csrf.as_bytes())) {
            return refusal_response(&parts, StatusCode::FORBIDDEN, "Session expired - reload the page");
        }
    }
    // An authenticated caller keeps its connection, however many unauthenticated ones come.
    if let Some(HttpCaller { via: AuthMethod::Cookie { .. } | AuthMethod::Token { .. }, .. }) = &caller
        && parts.extensions.get::<ConnectionInfo>().is_some_and(|guest| !guest.place.mark_authenticated())
    {
        return HttpProblem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "The gateway needs this connection for somebody else",
        )
        .response_for(parts.uri.path());
    }
    let shown = match &caller {
        Some(HttpCaller { via: AuthMethod::Open, .. }) | None => None,
        Some(_) => Some(credential_headers(&parts.headers)),
    };
    if let Some(caller) = caller {
        parts.extensions.insert(caller);
    }
    let response = next.run(Request::from_parts(parts, body)).await;
    match shown {
        Some(shown) if is_stream(response.headers()) => authorized_stream::while_known(response, guard.auth, shown),
        _ => response,
    }
}

/// Text for an agent's command that shows a person's login.
const NOT_ITS_LOGIN: &str = "This comes from a command of an agent, for which nobody's login opens anything";

/// Reports whether an agent's command sent this. Browsers send people's cookies to a page that it serves at another port.
async fn is_an_agents(parts: &Parts) -> bool {
    let Some(guest) = parts.extensions.get::<ConnectionInfo>() else { return false };
    if guest.peer.may_decide().await {
        return false;
    }
    // Processes that come and go may have been too many to look at, and a page that follows something does not ask again.
    tokio::time::sleep(SECOND_LOOK).await;
    !guest.peer.may_decide().await
}

/// Returns the headers that identify the caller.
fn credential_headers(headers: &HeaderMap) -> HeaderMap {
    let names = [header::AUTHORIZATION, header::COOKIE];
    headers.iter().filter(|(name, _)| names.contains(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn is_stream(headers: &HeaderMap) -> bool {
    header_text(headers, "content-type").is_some_and(|kind| kind.starts_with("text/event-stream"))
}

/// Returns the refusal of a request that another site's page sent.
fn is_foreign(guard: &RouteGuard, parts: &Parts) -> Option<Response> {
    let host = header_text(&parts.headers, header::HOST.as_str());
    let from = header_text(&parts.headers, "origin").or_else(|| header_text(&parts.headers, "referer"));
    let is_foreign = from.is_some_and(|from| !guard.auth.is_ours(from, host));
    // Of a page of another port of this machine, or of a neighbour of our name, that leaves out where it is from.
    let hides = from.is_none() && header_text(&parts.headers, "sec-fetch-site") == Some("same-site");
    if is_foreign || hides || header_text(&parts.headers, "sec-fetch-site") == Some("cross-site") {
        return Some(refusal_response(parts, StatusCode::FORBIDDEN, CROSS_ORIGIN));
    }
    None
}

/// Reports whether a browser's page sent this: programs send neither header.
fn is_of_a_page(headers: &HeaderMap) -> bool {
    headers.contains_key("origin") || headers.contains_key("referer")
}

fn is_form(headers: &HeaderMap) -> bool {
    header_text(headers, "content-type").is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded"))
}

fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

fn refusal_response(parts: &Parts, status: StatusCode, why: &str) -> Response {
    HttpProblem::new(status, why).response_for(parts.uri.path())
}

/// Reports whether agents of others ask about their own calls at a path.
fn is_for_programs(path: &str) -> bool {
    path == MCP || path.starts_with(HOOKS)
}

/// Returns the response to an unauthenticated request: an error for programs, the login page for people.
fn unauthenticated_response(parts: &Parts) -> Response {
    let path = parts.uri.path();
    if path.starts_with("/api/")
        || path == METRICS
        || is_for_programs(path)
        || header_text(&parts.headers, "accept").is_some_and(|kind| kind.contains("event-stream"))
    {
        return refusal_response(parts, StatusCode::UNAUTHORIZED, "Authentication required");
    }
    let target = parts.uri.path_and_query().map_or("/", |path_query| path_query.as_str());
    let next = percent_encoding::utf8_percent_encode(target, percent_encoding::NON_ALPHANUMERIC);
    let mut redirect = Redirect::to(&format!("/login?next={next}")).into_response();
    *redirect.status_mut() = StatusCode::FOUND;
    redirect
}
