//! Entry point for a fuzz loop: any bytes are a request with its headers.

use countersign_core::time::Millis;
use secrecy::SecretString;

use super::{WEBHOOK, parse_message, sign};

/// Reads the first three lines of `bytes` as id, time and signature and the rest as the body, and checks that it is not taken for signed,
/// that it is once it was signed, that it is not with one byte more, later or under another id, and that a message is of the account it
/// came to and has the id that was signed, whatever the body says.
///
/// # Panics
/// Where that does not hold: a finding.
pub fn fuzz(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.splitn(4, '\n');
    let mut part = || parts.next().unwrap_or_default();
    let (id, timestamp, signature, body) = (part(), part(), part(), part().as_bytes());
    let secret = SecretString::from("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let now = Millis(1_700_000_000_000);
    let by = |id: &str, timestamp: &str, signature: &str, body: &[u8], now: Millis| {
        sign::SignedRequest { id, timestamp, signature, body }.is_by(&secret, now)
    };
    assert!(!by(id, timestamp, signature, body, now), "{id:?} {timestamp:?} {signature:?} was signed by nobody");
    let (time, own) = (sign::unix_seconds(now), sign::sign_body(&secret, id, now, body).expect("a secret"));
    if sign::may_be_signed(id, &time, &own, now) {
        assert!(by(id, &time, &own, body, now), "{id:?}");
        assert!(!by(id, &time, &own, &[body, b" "].concat(), now), "another body");
        assert!(!by(&format!("{id}x"), &time, &own, body, now), "another id");
        assert!(!by(id, &time, &own, body, Millis(now.0 + 301_000)), "too late");
    }
    match parse_message(body, "a-1", id) {
        Err(fault) => assert!(fault.code >= 400 && !fault.message.is_empty(), "{fault:?}"),
        Ok(inbound) => {
            let fields = (inbound.channel.as_str(), inbound.account.as_str(), inbound.message_id.as_deref());
            assert_eq!(fields, (WEBHOOK, "a-1", Some(id)));
        }
    }
}
