//! Signatures of requests: over id, time and body, with a shared secret.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_core::time::Millis;
use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;

/// Header with the id of the message.
pub(super) const ID: &str = "webhook-id";
/// Header with the time of sending, in seconds since 1970.
pub(super) const TIMESTAMP: &str = "webhook-timestamp";
/// Header with signatures, with spaces between them.
pub(super) const SIGNATURE: &str = "webhook-signature";

/// Largest difference between the time of a request and ours. Ids are remembered for longer than that.
const WINDOW: Duration = Duration::from_secs(300);
/// Prefix of a secret that is written as base64.
const PREFIX: &str = "whsec_";
/// Longest id, in bytes.
const LONGEST_ID: usize = 256;
/// Most signatures of one request that are checked.
const MOST: usize = 8;

/// Signed parts of a request.
pub(super) struct SignedRequest<'a> {
    pub(super) id: &'a str,
    pub(super) timestamp: &'a str,
    pub(super) signature: &'a str,
    pub(super) body: &'a [u8],
}

fn compute_mac(secret: &SecretString, id: &str, timestamp: &str, body: &[u8]) -> Option<Hmac<Sha256>> {
    let secret = secret.expose_secret();
    let key = match secret.strip_prefix(PREFIX) {
        Some(encoded) => STANDARD.decode(encoded).ok()?,
        None => secret.as_bytes().to_vec(),
    };
    if key.is_empty() {
        return None;
    }
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).ok()?;
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        mac.update(part);
    }
    Some(mac)
}

/// Returns a time as it is sent.
pub(super) fn unix_seconds(at: Millis) -> String {
    (at.0 / 1000).to_string()
}

/// Returns the signature of a request. `None` if the secret is invalid.
pub(super) fn sign_body(secret: &SecretString, id: &str, at: Millis, body: &[u8]) -> Option<String> {
    let mac = compute_mac(secret, id, &unix_seconds(at), body)?;
    Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
}

/// Reports whether a request with these headers can have been signed not long before `now`, as far as they show.
pub(super) fn may_be_signed(id: &str, timestamp: &str, signature: &str, now: Millis) -> bool {
    let sent = timestamp.parse::<u64>().ok().and_then(|sent| sent.checked_mul(1000));
    let is_recent = sent.is_some_and(|sent| Duration::from_millis(sent.abs_diff(now.0)) <= WINDOW);
    let is_plain = !id.is_empty() && id.len() <= LONGEST_ID && id.bytes().all(|byte| byte.is_ascii_graphic());
    is_recent && is_plain && !signature.is_empty()
}

impl SignedRequest<'_> {
    /// Reports whether the owner of the secret signed it, not long before `now`. Signatures are compared in constant time.
    pub(super) fn is_by(&self, secret: &SecretString, now: Millis) -> bool {
        if !may_be_signed(self.id, self.timestamp, self.signature, now) {
            return false;
        }
        let mut given = self.signature.split_ascii_whitespace().take(MOST);
        given.any(|signature| {
            let encoded = signature.strip_prefix("v1,");
            let signature = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
            let mac = compute_mac(secret, self.id, self.timestamp, self.body);
            signature.zip(mac).is_some_and(|(signature, mac)| mac.verify_slice(&signature).is_ok())
        })
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::time::Millis;
    use secrecy::SecretString;

    use super::{SignedRequest, sign_body};

    /// Checks the example of the specification.
    #[test]
    fn a_signature_is_what_the_document_says() {
        let secret = SecretString::from("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let signature =
            sign_body(&secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", Millis(1_614_265_330_000), br#"{"test": 2432232314}"#);
        assert_eq!(signature.as_deref(), Some("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="));
    }

    #[test]
    fn only_recent_signatures_with_the_secret_count() {
        let (secret, other) = (SecretString::from("one"), SecretString::from("other"));
        let at = Millis(1_700_000_000_000);
        let signature = sign_body(&secret, "m1", at, b"{}").unwrap();
        let both = format!("v1,AAAA {signature}");
        let check = |id: &str, timestamp: &str, signature: &str, body: &[u8], secret: &SecretString, now: u64| {
            SignedRequest { id, timestamp, signature, body }.is_by(secret, Millis(now))
        };
        for (case, is_by, want) in [
            ("as it was signed", check("m1", "1700000000", &signature, b"{}", &secret, at.0), true),
            ("one of several", check("m1", "1700000000", &both, b"{}", &secret, at.0), true),
            ("at the end of the window", check("m1", "1700000000", &signature, b"{}", &secret, at.0 + 300_000), true),
            ("behind it", check("m1", "1700000000", &signature, b"{}", &secret, at.0 + 301_000), false),
            ("from the future", check("m1", "1700000000", &signature, b"{}", &secret, at.0 - 301_000), false),
            ("another id", check("m2", "1700000000", &signature, b"{}", &secret, at.0), false),
            ("another time", check("m1", "1700000001", &signature, b"{}", &secret, at.0), false),
            ("another body", check("m1", "1700000000", &signature, b"{ }", &secret, at.0), false),
            ("another secret", check("m1", "1700000000", &signature, b"{}", &other, at.0), false),
            (
                "an id too long to be remembered",
                check(&"m".repeat(257), "1700000000", &signature, b"{}", &secret, at.0),
                false,
            ),
            ("no signature", check("m1", "1700000000", "", b"{}", &secret, at.0), false),
            ("another version", check("m1", "1700000000", &signature.replace("v1", "v2"), b"{}", &secret, at.0), false),
        ] {
            assert_eq!(is_by, want, "{case}");
        }
    }

    #[test]
    fn an_empty_secret_signs_nothing() {
        for secret in ["", "whsec_", "whsec_%%"] {
            assert_eq!(sign_body(&SecretString::from(secret), "m", Millis(0), b""), None, "{secret}");
        }
    }
}
