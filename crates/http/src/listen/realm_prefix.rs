//! Links of the pages of a realm that is served below a path: the realm itself knows nothing of that path.
//!
//! It must not change what a program reads: only redirects, cookies and pages.

use axum::{
    body::{Body, to_bytes},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};

/// Largest page, in bytes.
const LARGEST_PAGE: usize = 64 << 20;
/// Start of a value that is a path. Pages escape quotation marks everywhere else.
const VALUE: &[u8] = b"=\"/";
/// Attributes whose values are links.
const LINKS: [&[u8]; 4] = [b" href", b" action", b" src", b" data-page"];

/// Reports whether `path` is `prefix`, or below it.
pub(super) fn is_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Adds `prefix` to all paths of the gateway in a response: in redirects, cookies and the links of pages.
/// The response to a `HEAD` request has no page to change.
pub(super) async fn add_prefix(mut response: Response, prefix: &str, is_head: bool) -> Response {
    let headers = response.headers_mut();
    change_values(headers, &header::LOCATION, |text| {
        (text.starts_with('/') && !text.starts_with("//")).then(|| format!("{prefix}{text}"))
    });
    // Another realm of the same host must not get the cookie.
    change_values(headers, &header::SET_COOKIE, |text| {
        let parts =
            text.split("; ").map(|part| if part == "Path=/" { format!("Path={prefix}/") } else { part.to_owned() });
        Some(parts.collect::<Vec<_>>().join("; "))
    });
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if is_head || !kind.starts_with("text/html") {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(page) = to_bytes(body, LARGEST_PAGE).await else {
        return (StatusCode::INTERNAL_SERVER_ERROR, "The page is too large.\n").into_response();
    };
    let page = with_links(&page, prefix);
    parts.headers.insert(header::CONTENT_LENGTH, page.len().into());
    Response::from_parts(parts, Body::from(page))
}

fn change_values(headers: &mut HeaderMap, name: &HeaderName, change: impl Fn(&str) -> Option<String>) {
    let values: Vec<HeaderValue> = headers
        .get_all(name)
        .iter()
        .map(|value| {
            let changed = value.to_str().ok().and_then(&change).and_then(|text| HeaderValue::from_str(&text).ok());
            changed.unwrap_or_else(|| value.clone())
        })
        .collect();
    headers.remove(name);
    for value in values {
        headers.append(name, value);
    }
}

fn with_links(page: &[u8], prefix: &str) -> Vec<u8> {
    let mut changed = Vec::with_capacity(page.len() + page.len() / 16);
    let mut rest = page;
    while let Some(at) = memchr::memmem::find(rest, VALUE) {
        let end = at + VALUE.len() - 1;
        let is_link = LINKS.iter().any(|name| rest[..at].ends_with(name));
        changed.extend_from_slice(&rest[..end]);
        // The address of another host begins so too.
        if is_link && rest.get(end + 1) != Some(&b'/') {
            changed.extend_from_slice(prefix.as_bytes());
        }
        rest = &rest[end..];
    }
    changed.extend_from_slice(rest);
    changed
}

#[cfg(test)]
mod tests {
    use axum::{body::to_bytes, http::header, response::Response};

    use super::{add_prefix, is_below, with_links};

    #[test]
    fn a_prefix_ends_with_a_segment() {
        for (path, want) in
            [("/realms/a", true), ("/realms/a/", true), ("/realms/a/b", true), ("/realms/ab", false), ("/", false)]
        {
            assert_eq!(is_below(path, "/realms/a"), want, "{path}");
        }
    }

    #[test]
    fn links_of_a_page_lead_below_the_path() {
        let page = r#"<a href="/console/?x=/y">=&quot;/no</a><img src="//else"><form action="/login"><input value="/etc"><a href="https://x/">"#;
        let want = r#"<a href="/realms/a/console/?x=/y">=&quot;/no</a><img src="//else"><form action="/realms/a/login"><input value="/etc"><a href="https://x/">"#;
        assert_eq!(String::from_utf8(with_links(page.as_bytes(), "/realms/a")).unwrap(), want);
    }

    #[tokio::test]
    async fn redirects_and_cookies_stay_below_the_path_and_data_is_unchanged() {
        let response = Response::builder()
            .header(header::LOCATION, "/login?next=%2Fconsole")
            .header(header::SET_COOKIE, "s=1; HttpOnly; Max-Age=3; Path=/; SameSite=Lax")
            .header(header::CONTENT_TYPE, "application/json")
            .body(r#"{"a":"x=\"/y"}"#.into())
            .unwrap();
        let response = add_prefix(response, "/realms/a", false).await;
        assert_eq!(response.headers()[header::LOCATION], "/realms/a/login?next=%2Fconsole");
        assert_eq!(response.headers()[header::SET_COOKIE], "s=1; HttpOnly; Max-Age=3; Path=/realms/a/; SameSite=Lax");
        assert_eq!(to_bytes(response.into_body(), 100).await.unwrap(), r#"{"a":"x=\"/y"}"#);
        let elsewhere =
            Response::builder().header(header::LOCATION, "https://x/").body(axum::body::Body::empty()).unwrap();
        assert_eq!(add_prefix(elsewhere, "/realms/a", false).await.headers()[header::LOCATION], "https://x/");
    }
}
