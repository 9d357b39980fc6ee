//! Coming in and leaving: the page for people, and the calls of hermes' clients. Source: docs/protocol/hermes.md, Authentication.

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::{Query, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Redirect, Response},
};
use maud::{DOCTYPE, html};
use serde::Deserialize;
use serde_json::json;

use super::{
    BodyFields, GuardedRoutes, HttpCaller,
    auth::{COOKIE, LASTS, NotLoggedIn, WebAuth},
    cookie,
};
use crate::{
    listen::ConnectionInfo,
    reply::{self, HttpProblem},
};

/// Target of the redirect after a login.
#[derive(Deserialize)]
struct LoginQuery {
    #[serde(default)]
    next: String,
}

/// Returns the routes.
pub fn routes(auth: &Arc<WebAuth>) -> Router {
    GuardedRoutes::new(auth)
        .add_route("GET", "/login", login_page)
        .add_route("POST", "/login", submit_login)
        .add_route("POST", "/logout", submit_logout)
        .add_route("GET", "/api/auth/status", auth_status)
        .add_route("POST", "/api/auth/login", log_in)
        .add_route("POST", "/api/auth/logout", log_out)
        .with_state(Arc::clone(auth))
}

/// Returns a path on this gateway, for any input: there is no redirect to elsewhere from here.
fn safe_next_path(next: &str) -> &str {
    let is_ours = next.starts_with('/')
        && !next.starts_with("//")
        && !next.contains(|letter: char| letter == '\\' || letter.is_control());
    if is_ours { next } else { "/" }
}

async fn login_page(
    State(auth): State<Arc<WebAuth>>,
    caller: Option<Extension<HttpCaller>>,
    Query(query): Query<LoginQuery>,
) -> Response {
    if caller.is_some() || !auth.is_guarded() {
        return Redirect::to(safe_next_path(&query.next)).into_response();
    }
    render_form(StatusCode::OK, &query.next, None)
}

fn render_form(status: StatusCode, next: &str, problem: Option<&str>) -> Response {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Log in · Countersign" }
                link rel="stylesheet" href="/console/style.css";
            }
            body.login {
                main {
                    h1 { "Countersign" }
                    form method="post" action="/login" {
                        @if let Some(problem) = problem { p.problem role="alert" { (problem) } }
                        input type="hidden" name="next" value=(safe_next_path(next));
                        label for="password" { "Password" }
                        input #password type="password" name="password" autocomplete="current-password" required autofocus;
                        button type="submit" { "Log in" }
                    }
                }
            }
        }
    };
    reply::html(status, page.into_string())
}

async fn submit_login(
    State(auth): State<Arc<WebAuth>>,
    Extension(guest): Extension<ConnectionInfo>,
    headers: HeaderMap,
    body: BodyFields,
) -> Response {
    let next = body.text_field("next").unwrap_or("/").to_owned();
    match auth.log_in(guest.from.ip(), body.text_field("password").unwrap_or_default()) {
        Ok(cookie) => {
            with_cookie(Redirect::to(safe_next_path(&next)).into_response(), &auth, &headers, &cookie, LASTS.as_secs())
        }
        Err(NotLoggedIn::Wrong) => render_form(StatusCode::UNAUTHORIZED, &next, Some("Wrong password.")),
        Err(NotLoggedIn::TooOften) => render_form(
            StatusCode::TOO_MANY_REQUESTS,
            &next,
            Some("Too many wrong passwords. Wait a minute, then try again."),
        ),
    }
}

async fn submit_logout(State(auth): State<Arc<WebAuth>>, headers: HeaderMap) -> Response {
    if let Err(error) = auth.log_out(&headers).await {
        tracing::error!(%error, "failed to revoke a login cookie");
    }
    with_cookie(Redirect::to("/login").into_response(), &auth, &headers, "", 0)
}

fn with_cookie(mut response: Response, auth: &WebAuth, headers: &HeaderMap, value: &str, seconds: u64) -> Response {
    if let Ok(line) = HeaderValue::from_str(&cookie::set_cookie_text(COOKIE, value, seconds, auth.is_secure(headers))) {
        response.headers_mut().append(header::SET_COOKIE, line);
    }
    response
}

async fn auth_status(State(auth): State<Arc<WebAuth>>, caller: Option<Extension<HttpCaller>>) -> Response {
    let is_in = caller.is_some();
    let is_guarded = auth.is_guarded();
    reply::ok(&json!({
        "auth_enabled": is_guarded,
        "logged_in": is_in,
        "password_auth_enabled": is_guarded,
        "oidc_enabled": false,
        "passkeys_enabled": false,
        "passkeys_count": 0,
        "passwordless_enabled": false,
        "passkey_feature_flag": false,
        "auth_disabled_acknowledged": true,
        "authenticated": is_in,
        "password_required": is_guarded,
    }))
}

async fn log_in(
    State(auth): State<Arc<WebAuth>>,
    Extension(guest): Extension<ConnectionInfo>,
    headers: HeaderMap,
    body: BodyFields,
) -> Response {
    if !auth.is_guarded() {
        return reply::ok(&json!({ "ok": true, "message": "Authentication is not enabled" }));
    }
    let password = body.0.get("password").and_then(serde_json::Value::as_str).unwrap_or_default();
    let problem = |status, text: &str| HttpProblem::new(status, text).response_for("/api/auth/login");
    match auth.log_in(guest.from.ip(), password) {
        Ok(cookie) => with_cookie(reply::ok(&json!({ "ok": true })), &auth, &headers, &cookie, LASTS.as_secs()),
        Err(NotLoggedIn::Wrong) => problem(StatusCode::UNAUTHORIZED, "Invalid password"),
        Err(NotLoggedIn::TooOften) => {
            problem(StatusCode::TOO_MANY_REQUESTS, "Too many failed attempts. Try again in a minute.")
        }
    }
}

async fn log_out(State(auth): State<Arc<WebAuth>>, headers: HeaderMap) -> Response {
    if let Err(error) = auth.log_out(&headers).await {
        tracing::error!(%error, "failed to revoke a login cookie");
        let problem = HttpProblem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "The session could not be ended: nothing can be written",
        );
        return problem.response_for("/api/auth/logout");
    }
    with_cookie(reply::ok(&json!({ "ok": true })), &auth, &headers, "", 0)
}

#[cfg(test)]
mod tests {
    use super::safe_next_path;

    #[test]
    fn nobody_is_sent_elsewhere_after_coming_in() {
        for (next, want) in [
            ("/console/gates/1", "/console/gates/1"),
            ("", "/"),
            ("//evil.example", "/"),
            ("https://evil.example", "/"),
            ("/\\evil.example", "/"),
            ("/a\r\nset-cookie: b", "/"),
            ("/\t/evil.example", "/"),
        ] {
            assert_eq!(safe_next_path(next), want, "{next:?}");
        }
    }
}
