//! Comparison of a page's origin with the address of its request.

/// Text for a page of another site, where programs read it.
pub(crate) const CROSS_ORIGIN: &str = "Cross-origin mismatch - check reverse proxy headers";

/// Returns the authority of an origin or an address of the web, without what follows it. `None` for any other, such as `null`.
pub fn parse_authority(origin: &str) -> Option<&str> {
    let (scheme, rest) = origin.split_once("://")?;
    let is_webs = ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    is_webs.then(|| rest.split(['/', '?', '#']).next().unwrap_or(rest))
}

/// Reports whether a page with this origin or address is at `host`, an authority: the same name and port.
pub(crate) fn is_at(origin: &str, host: &str) -> bool {
    let Some(authority) = parse_authority(origin) else { return false };
    let usual = if origin.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https")) { ":443" } else { ":80" };
    let plain = |name: &str| {
        let name = name.to_lowercase();
        name.strip_suffix(usual).map_or_else(|| name.clone(), str::to_owned)
    };
    plain(authority) == plain(host)
}

#[cfg(test)]
mod tests {
    use super::is_at;

    #[test]
    fn a_page_is_at_a_host_of_the_same_name_and_port_whatever_stands_behind_it() {
        for (origin, host, expected) in [
            ("http://localhost:8443", "localhost:8443", true),
            ("http://LOCALHOST:80", "localhost", true),
            ("https://gate.example.org/console/?a#b", "gate.example.org:443", true),
            ("http://localhost:3000", "localhost:8443", false),
            ("http://localhost", "localhost.evil.example", false),
            ("ftp://localhost:8443", "localhost:8443", false),
            ("chrome-extension://localhost:8443", "localhost:8443", false),
            ("null", "null", false),
        ] {
            assert_eq!(is_at(origin, host), expected, "{origin} at {host}");
        }
    }
}
