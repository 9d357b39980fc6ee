//! Keys of requests: a repeated request under the same key has happened already, for any caller.

use countersign_core::{
    digest::{Digest, canonical_json},
    id::{PrincipalId, SessionId},
    session::IdempotencyKey,
};
use serde_json::{Map, Value, json};

/// Characters of a digest in an id.
const ID: usize = 12;

/// Request key of a caller.
#[derive(Clone, Debug)]
pub struct RequestKey {
    name: String,
    asks: Digest,
}

impl RequestKey {
    /// Makes the key `name` for a request of `caller` for `what` (such as a route) with `body`. Members of the body that are about the
    /// request and not about its content are left out of the comparison.
    pub fn new(caller: &PrincipalId, name: &str, what: &str, body: &Map<String, Value>) -> Self {
        let meant: Map<String, Value> =
            body.iter().filter(|(name, _)| !matches!(name.as_str(), "csrf" | "key")).map(clone_pair).collect();
        let asks = Digest::hash_bytes(canonical_json(&json!([what, meant])).as_bytes());
        Self { name: format!("{caller} {name}"), asks }
    }

    /// Returns the same key for a caller that uses its name for several things: a form that a person comes back to.
    pub fn with_digest(self) -> Self {
        let asks = self.asks.to_string();
        Self { name: format!("{} {}", self.name, asks.get(..16).unwrap_or(&asks)), asks: self.asks }
    }

    /// Returns the key of one part of the request.
    pub fn part_key(&self, part: &str) -> Self {
        Self { name: format!("{} {part}", self.name), asks: self.asks }
    }

    /// Returns the key as the engine knows it.
    pub fn engine_key(&self) -> IdempotencyKey {
        IdempotencyKey { name: self.name.clone(), asks: self.asks }
    }

    /// Returns the id of the session that it opens, if those of the attempts before are taken.
    pub fn session_id(&self, attempt: u32) -> SessionId {
        let digest = Digest::hash_bytes(canonical_json(&json!(["session", self.name, attempt])).as_bytes()).to_string();
        SessionId::new(digest.get(..ID).unwrap_or(&digest))
    }
}

fn clone_pair((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}

#[cfg(test)]
mod tests {
    use countersign_core::id::PrincipalId;
    use serde_json::{Map, Value, json};

    use super::RequestKey;

    fn asking(caller: &str, name: &str, what: &str, body: &Value) -> RequestKey {
        let body: Map<String, Value> = body.as_object().cloned().unwrap_or_default();
        RequestKey::new(&PrincipalId::new(caller), name, what, &body)
    }

    #[test]
    fn a_key_belongs_to_its_caller_and_its_request() {
        let first = asking("ana", "k", "say", &json!({ "text": "a" }));
        for (case, other, same_name, same_asks) in [
            ("again", asking("ana", "k", "say", &json!({ "text": "a", "csrf": "x", "key": "k" })), true, true),
            ("another text", asking("ana", "k", "say", &json!({ "text": "b" })), true, false),
            ("another route", asking("ana", "k", "open", &json!({ "text": "a" })), true, false),
            ("another key", asking("ana", "l", "say", &json!({ "text": "a" })), false, true),
            ("another caller", asking("ben", "k", "say", &json!({ "text": "a" })), false, true),
        ] {
            let (one, other) = (first.engine_key(), other.engine_key());
            assert_eq!((one.name == other.name, one.asks == other.asks), (same_name, same_asks), "{case}");
        }
    }

    #[test]
    fn a_form_that_is_sent_with_something_else_asks_for_something_else() {
        let form = |text| asking("ana", "k", "say", &json!({ "text": text })).with_digest().engine_key().name;
        assert_eq!(form("a"), form("a"));
        assert_ne!(form("a"), form("b"));
    }

    #[test]
    fn a_session_is_named_after_its_key_and_no_two_attempts_have_one_name() {
        let key = asking("ana", "k", "open", &json!({}));
        assert_eq!(key.session_id(0), asking("ana", "k", "open", &json!({ "message": "a" })).session_id(0));
        assert_ne!(key.session_id(0), key.session_id(1));
        assert_eq!(key.session_id(0).as_str().len(), 12);
    }
}
