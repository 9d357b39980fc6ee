//! What stands before a route: who may call it, and that no other site's page does.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse as _, Redirect, Response},
};

use super::{
    access::{self, Effect, Scope, Who},
    auth::{Auth, Caller, NotLoggedIn, Via},
    watched,
};
use crate::{
    listen::{Guest, peer},
    origin::CROSS_ORIGIN,
    reply::Problem,
};

/// The path at which figures of the process stand.
pub const METRICS: &str = "/metrics";
/// How long a form may take to come.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long it takes until somebody who may be an agent's command is looked at once more.
const SECOND_LOOK: Duration = Duration::from_millis(300);
/// How long a form may be, in bytes.
const LARGEST_FORM: usize = 1 << 20;

/// The guard of one route.
#[derive(Clone)]
pub(super) struct Guard {
    pub(super) auth: Arc<Auth>,
    pub(super) who: Who,
    pub(super) effect: Effect,
}

/// Lets a request pass that no route takes, if it may know that: below `/api/` that is for callers who showed who they are.
pub(super) async fn check_unrouted(State(auth): State<Arc<Auth>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if !path.starts_with("/api/") || access::is_public(path) {
        return next.run(request).await;
    }
    let guard = Guard { auth, who: Who::Scope(Scope::Read), effect: Effect::Tells };
    check(State(guard), request, next).await
}

/// Lets a request pass, with its [`Caller`] among its extensions, or answers it.
pub(super) async fn check(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let (mut parts, mut body) = request.into_parts();
    let mut from = None;
    // Before anything else: neither may it try passwords, nor have others kept out for the tokens that it tries.
    if guard.effect == Effect::Acts || parts.headers.contains_key(header::AUTHORIZATION) {
        let guest = parts.extensions.get::<Guest>();
        let is_agents = match guest {
            Some(_) if guard.effect == Effect::Acts => is_an_agents(&parts).await,
            Some(guest) => !guest.peer.may_decide().await,
            None => false,
        };
        if is_agents && guard.effect == Effect::Acts {
            return refused(&parts, StatusCode::FORBIDDEN, peer::REFUSED);
        }
        from = guest.filter(|_| !is_agents).map(|guest| guest.from.ip());
    }
    let caller = match guard.auth.heard(from, &parts.headers) {
        Ok(caller) => caller,
        Err(_) if guard.who == Who::Anybody => None,
        Err(NotLoggedIn::Wrong) => {
            return refused(&parts, StatusCode::UNAUTHORIZED, "This token is not known here, or it is out of date");
        }
        Err(NotLoggedIn::TooOften) => {
            return refused(
                &parts,
                StatusCode::TOO_MANY_REQUESTS,
                "Too many wrong tokens came from this address. Wait a minute, then try again",
            );
        }
    };
    if guard.effect == Effect::Acts
        && let Some(refused) = is_foreign(&guard, &parts)
    {
        return refused;
    }
    let caller = match caller {
        Some(Caller { via: Via::Cookie { .. }, .. }) if guard.effect == Effect::Tells && is_an_agents(&parts).await => {
            if guard.who != Who::Anybody {
                return refused(&parts, StatusCode::FORBIDDEN, NOT_ITS_LOGIN);
            }
            // Nor is it told whether the login is a good one.
            None
        }
        caller => caller,
    };
    match (&caller, guard.who) {
        (_, Who::Anybody) => {}
        (None, _) => return unknown(&parts),
        (Some(Caller { via: Via::Token { .. }, .. }), Who::Person) => {
            return refused(&parts, StatusCode::FORBIDDEN, "This is for people: a token is not enough");
        }
        (Some(Caller { via: Via::Token { scopes }, .. }), Who::Scope(wanted)) if !scopes.contains(&wanted) => {
            let told = (StatusCode::FORBIDDEN, format!("This token does not have the scope {}", wanted.word()));
            return refused(&parts, told.0, &told.1);
        }
        (Some(_), Who::Person | Who::Scope(_)) => {}
    }
    if let Some(Caller { via: Via::Cookie { csrf }, .. }) = &caller
        && guard.effect == Effect::Acts
        && parts.method != axum::http::Method::GET
        && guard.who != Who::Anybody
        && is_of_a_page(&parts.headers)
    {
        let header = ["x-hermes-csrf-token", "x-csrf-token"].iter().find_map(|name| text(&parts.headers, name));
        let given = match header {
            Some(given) => given.to_owned(),
            // A page without script can send it in its form only.
            None if is_form(&parts.headers) => {
                let reading = tokio::time::timeout(PATIENCE, to_bytes(body, LARGEST_FORM));
                let Ok(Ok(bytes)) = reading.await else {
                    return refused(&parts, StatusCode::PAYLOAD_TOO_LARGE, "The form is too large, or took too long");
                };
                let found = serde_urlencoded::from_bytes::<Vec<(String, String)>>(&bytes).unwrap_or_default();
                body = Body::from(bytes);
                found.into_iter().find(|(name, _)| name == "csrf").map(|(_, value)| value).unwrap_or_default()
            }
            None => String::new(),
        };
        if !bool::from(subtle::ConstantTimeEq::ct_eq(given.as_bytes(), csrf.as_bytes())) {
            return refused(&parts, StatusCode::FORBIDDEN, "Session expired - reload the page");
        }
    }
    // Whoever showed who they are keeps their connection, however many strangers come.
    if let Some(Caller { via: Via::Cookie { .. } | Via::Token { .. }, .. }) = &caller
        && parts.extensions.get::<Guest>().is_some_and(|guest| !guest.place.keep())
    {
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, "The gateway needs this connection for somebody else")
            .reply(parts.uri.path());
    }
    let shown = match &caller {
        Some(Caller { via: Via::Open, .. }) | None => None,
        Some(_) => Some(shown(&parts.headers)),
    };
    if let Some(caller) = caller {
        parts.extensions.insert(caller);
    }
    let response = next.run(Request::from_parts(parts, body)).await;
    match shown {
        Some(shown) if is_stream(response.headers()) => watched::while_known(response, guard.auth, shown),
        _ => response,
    }
}

/// What an agent's command is told that shows a person's login.
const NOT_ITS_LOGIN: &str = "This comes from a command of an agent, for which nobody's login opens anything";

/// Whether an agent's command sent this. What it serves at another port of the same name is sent people's cookies by their browsers.
async fn is_an_agents(parts: &Parts) -> bool {
    let Some(guest) = parts.extensions.get::<Guest>() else { return false };
    if guest.peer.may_decide().await {
        return false;
    }
    // Processes that come and go may have been too many to look at, and a page that follows something does not ask again.
    tokio::time::sleep(SECOND_LOOK).await;
    !guest.peer.may_decide().await
}

/// What says who somebody is.
fn shown(headers: &HeaderMap) -> HeaderMap {
    let names = [header::AUTHORIZATION, header::COOKIE];
    headers.iter().filter(|(name, _)| names.contains(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn is_stream(headers: &HeaderMap) -> bool {
    text(headers, "content-type").is_some_and(|kind| kind.starts_with("text/event-stream"))
}

/// What another site's page is told that sent this.
fn is_foreign(guard: &Guard, parts: &Parts) -> Option<Response> {
    let host = text(&parts.headers, header::HOST.as_str());
    let from = text(&parts.headers, "origin").or_else(|| text(&parts.headers, "referer"));
    let is_foreign = from.is_some_and(|from| !guard.auth.is_ours(from, host));
    // Of a page of another port of this machine, or of a neighbour of our name, that leaves out where it is from.
    let hides = from.is_none() && text(&parts.headers, "sec-fetch-site") == Some("same-site");
    if is_foreign || hides || text(&parts.headers, "sec-fetch-site") == Some("cross-site") {
        return Some(refused(parts, StatusCode::FORBIDDEN, CROSS_ORIGIN));
    }
    None
}

/// Whether a browser's page sent this: programs name neither.
fn is_of_a_page(headers: &HeaderMap) -> bool {
    headers.contains_key("origin") || headers.contains_key("referer")
}

fn is_form(headers: &HeaderMap) -> bool {
    text(headers, "content-type").is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded"))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

fn refused(parts: &Parts, status: StatusCode, why: &str) -> Response {
    Problem::new(status, why).reply(parts.uri.path())
}

/// Nobody knows who this is: programs are told so, people are asked.
fn unknown(parts: &Parts) -> Response {
    let path = parts.uri.path();
    if path.starts_with("/api/")
        || path == METRICS
        || text(&parts.headers, "accept").is_some_and(|kind| kind.contains("event-stream"))
    {
        return refused(parts, StatusCode::UNAUTHORIZED, "Authentication required");
    }
    let wanted = parts.uri.path_and_query().map_or("/", |wanted| wanted.as_str());
    let next = percent_encoding::utf8_percent_encode(wanted, percent_encoding::NON_ALPHANUMERIC);
    let mut redirect = Redirect::to(&format!("/login?next={next}")).into_response();
    *redirect.status_mut() = StatusCode::FOUND;
    redirect
}
