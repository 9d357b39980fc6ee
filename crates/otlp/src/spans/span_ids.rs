//! Ids of traces, spans and conversations, each a digest of its source.
//!
//! It must not know what a span holds.

use countersign_core::id::{CallId, RunId, SessionId};
use sha2::{Digest as _, Sha256};

/// Returns a session's digest as its id.
pub(super) fn conversation_id(session: &SessionId) -> String {
    hex::encode(digest_id::<16>("session", &[session.as_str().as_bytes()]))
}

pub(super) fn trace_of_run(run: RunId) -> [u8; 16] {
    digest_id("run", &[run.uuid().as_bytes()])
}

pub(super) fn span_of_run(run: RunId) -> [u8; 8] {
    digest_id("run span", &[run.uuid().as_bytes()])
}

pub(super) fn trace_of_call(call: CallId) -> [u8; 16] {
    digest_id("call", &[call.uuid().as_bytes()])
}

pub(super) fn span_of_call(call: CallId) -> [u8; 8] {
    digest_id("call span", &[call.uuid().as_bytes()])
}

/// Returns an id that follows from its source, so that a later process exports the same by the same id.
pub(super) fn digest_id<const N: usize>(what: &str, of: &[&[u8]]) -> [u8; N] {
    let mut digest = Sha256::new();
    digest.update(what.as_bytes());
    digest.update([0]);
    of.iter().for_each(|part| digest.update(part));
    let mut number = [0; N];
    number.iter_mut().zip(digest.finalize()).for_each(|(to, from)| *to = from);
    number
}

#[cfg(test)]
mod tests {
    use super::digest_id;

    #[test]
    fn numbers_follow_from_what_they_are_of() {
        let [one, again, other]: [[u8; 8]; 3] =
            [digest_id("a", &[b"x"]), digest_id("a", &[b"x"]), digest_id("b", &[b"x"])];
        assert!(one == again && one != other && one != [0; 8]);
    }
}
