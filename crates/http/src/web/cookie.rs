//! Cookies: reading those of a request, and the text of ours.

use axum::http::{HeaderMap, header};

/// Returns the value of a cookie.
pub fn read_value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value.trim_matches('"'))
}

/// Returns `Set-Cookie` of a cookie that pages' scripts cannot read, for `seconds`; 0 takes it away.
pub fn set_cookie_text(name: &str, value: &str, seconds: u64, is_tls: bool) -> String {
    let secure = if is_tls { "; Secure" } else { "" };
    format!("{name}={value}; HttpOnly; Max-Age={seconds}; Path=/; SameSite=Lax{secure}")
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;

    use super::read_value;

    #[test]
    fn a_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append("cookie", "a=1; session=x.y ;b=2".parse().unwrap());
        headers.append("cookie", "c=\"3\"".parse().unwrap());
        for (name, want) in [("a", Some("1")), ("session", Some("x.y")), ("c", Some("3")), ("d", None)] {
            assert_eq!(read_value(&headers, name), want, "{name}");
        }
    }
}
