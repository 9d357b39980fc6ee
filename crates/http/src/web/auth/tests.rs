use std::net::{IpAddr, Ipv4Addr};

use axum::http::HeaderMap;
use countersign_config::WebConfig;
use countersign_core::time::Millis;
use countersign_runtime::Clock;
use secrecy::SecretString;

use super::{AuthMethod, COOKIE, LASTS, NotLoggedIn, WebAuth};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn web(shared: Option<&str>, users: &[(&str, &str)]) -> WebConfig {
    let secret = |text: &str| SecretString::from(text.to_owned());
    let users = users.iter().map(|(login, password)| ((*login).to_owned(), secret(password)));
    WebConfig { password: shared.map(secret), users: users.collect() }
}

fn open(folder: &std::path::Path, web: WebConfig, now: u64) -> WebAuth {
    WebAuth::open(folder, web, Clock::starting_at(Millis(now)), vec!["gate.example.org".to_owned()], false, None)
        .unwrap()
}

fn with(cookie: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("cookie", format!("{COOKIE}={cookie}").parse().unwrap());
    headers
}

#[tokio::test(start_paused = true)]
async fn a_password_identifies_its_user() {
    let folder = tempfile::tempdir().unwrap();
    let auth = open(folder.path(), web(Some("all"), &[("ana", "one"), ("bo", "two")]), 1_000);
    for (password, want) in [("all", "web"), ("one", "console:ana"), ("two", "console:bo")] {
        let cookie = auth.log_in(HERE, password).unwrap();
        let (token, seal) = cookie.split_once('.').unwrap();
        assert_eq!((token.len(), seal.len()), (64, 64), "as clients know it");
        let caller = auth.find_caller(&with(&cookie)).unwrap();
        assert_eq!(caller.principal.as_str(), want);
        assert!(matches!(caller.via, AuthMethod::Cookie { csrf } if csrf.len() == 64));
    }
    assert_eq!(auth.log_in(HERE, ""), Err(NotLoggedIn::Wrong));
    assert_eq!(auth.find_caller(&HeaderMap::new()), None);
}

#[tokio::test(start_paused = true)]
async fn a_cookie_is_for_tls_alone_wherever_it_came_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let auth = open(folder.path(), web(Some("all"), &[]), 1_000).behind_proxy(Some("https://Gate.example.org/console"));
    for (name, value, want) in [
        ("origin", "https://gate.example.org", true),
        ("origin", "http://127.0.0.1:8765", false),
        ("host", "gate.example.org", true),
        ("host", "127.0.0.1:8765", false),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        assert_eq!(auth.is_secure(&headers), want, "{name}: {value}");
    }
    let plain = open(folder.path(), web(Some("all"), &[]), 1_000).behind_proxy(Some("http://gate.example.org"));
    let mut headers = HeaderMap::new();
    headers.insert("host", "gate.example.org".parse().unwrap());
    assert!(!plain.is_secure(&headers));
}

#[tokio::test(start_paused = true)]
async fn without_a_login_all_users_are_one() {
    let folder = tempfile::tempdir().unwrap();
    let auth = open(folder.path(), WebConfig::default(), 1_000);
    assert_eq!(auth.find_caller(&HeaderMap::new()).unwrap().principal.as_str(), "web:open");
}

#[tokio::test(start_paused = true)]
async fn a_cookie_outlives_a_restart_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let known = || web(None, &[("ana", "one")]);
    let cookie = open(folder.path(), known(), 1_000).log_in(HERE, "one").unwrap();
    let lasts = u64::try_from(LASTS.as_millis()).unwrap();
    let other = cookie.replacen(&cookie[..2], if cookie.starts_with("00") { "11" } else { "00" }, 1);
    let cut = &cookie[..cookie.len() - 2];
    for (case, web, now, cookie, want) in [
        ("after a restart", known(), 2_000, cookie.as_str(), true),
        ("at its last moment", known(), 999 + lasts, &cookie, true),
        ("out of date", known(), 1_000 + lasts, &cookie, false),
        ("of another password", self::web(None, &[("ana", "new")]), 2_000, &cookie, false),
        ("of somebody who is gone", self::web(None, &[("bo", "one")]), 2_000, &cookie, false),
        ("changed", known(), 2_000, &other, false),
        ("cut", known(), 2_000, cut, false),
        ("no cookie at all", known(), 2_000, "x", false),
    ] {
        assert_eq!(open(folder.path(), web, now).find_caller(&with(cookie)).is_some(), want, "{case}");
    }
    let elsewhere = tempfile::tempdir().unwrap();
    assert_eq!(open(elsewhere.path(), known(), 2_000).find_caller(&with(&cookie)), None, "another gateway's");
}

#[tokio::test(start_paused = true)]
async fn who_left_is_out_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let auth = open(folder.path(), web(Some("all"), &[]), 1_000);
    let [one, other] = [(); 2].map(|()| auth.log_in(HERE, "all").unwrap());
    auth.log_out(&with(&one)).await.unwrap();
    for auth in [auth, open(folder.path(), web(Some("all"), &[]), 2_000)] {
        assert_eq!(auth.find_caller(&with(&one)), None);
        assert_eq!(auth.find_caller(&with(&one.to_uppercase())), None, "in another spelling");
        assert!(auth.find_caller(&with(&other)).is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_cookie_of_ours_is_not_noted() {
    let folder = tempfile::tempdir().unwrap();
    let auth = open(folder.path(), web(Some("all"), &[]), 1_000);
    let foreign = format!("{}.{}", "a".repeat(64), "b".repeat(64));
    for cookie in [foreign.as_str(), "x.y", &"z".repeat(9_000)] {
        auth.log_out(&with(cookie)).await.unwrap();
    }
    assert!(!folder.path().join("web.revoked").exists());
}

#[tokio::test(start_paused = true)]
async fn after_five_wrong_passwords_even_the_right_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let auth = open(folder.path(), web(Some("all"), &[]), 1_000);
    for _ in 0..5 {
        assert_eq!(auth.log_in(HERE, "wrong"), Err(NotLoggedIn::Wrong));
    }
    assert_eq!(auth.log_in(HERE, "all"), Err(NotLoggedIn::TooOften));
    assert!(auth.log_in(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9)), "all").is_ok(), "another address is");
}

#[tokio::test(start_paused = true)]
async fn a_page_is_ours_by_where_it_comes_from() {
    let folder = tempfile::tempdir().unwrap();
    let auth = open(folder.path(), WebConfig::default(), 1_000);
    for (origin, host, want) in [
        ("http://localhost:8443", Some("localhost:8443"), true),
        ("http://LOCALHOST:8443/console/", Some("localhost:8443"), true),
        ("http://localhost:3000", Some("localhost:8443"), false),
        ("https://gate.example.org", Some("10.0.0.5:8443"), true),
        ("https://gate.example.org:443", None, true),
        ("https://gate.example.org.evil.example", Some("localhost:8443"), false),
        ("null", Some("null"), false),
    ] {
        assert_eq!(auth.is_ours(origin, host), want, "{origin} at {host:?}");
    }
}
