//! Requests that come again under the same key: each is done once, and every repetition gets the first answer.
//!
//! It must not know what a request asks for.

use std::collections::{BTreeMap, VecDeque};

use countersign_protocol::gjc::bridge::{MOST_KEYS, RepeatOutcome, RequestFingerprint};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::BridgeAnswer;

/// Maximum number of bytes of answers that are kept.
const MOST_BYTES: usize = 64 << 20;

/// The requests that came under keys.
#[derive(Default)]
pub(super) struct IdempotencyCache(Mutex<IdempotencyEntries>);

#[derive(Default)]
struct IdempotencyEntries {
    by_key: BTreeMap<String, IdempotencyEntry>,
    /// The keys as they came.
    order: VecDeque<String>,
}

struct IdempotencyEntry {
    fingerprint: RequestFingerprint,
    answer: watch::Receiver<Option<BridgeAnswer>>,
}

/// Why a request under a key has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotDone {
    /// The key was used for another request.
    Conflict,
    /// The same request came from another client.
    NotController,
    /// The work ended without a result.
    Failed,
}

impl IdempotencyCache {
    /// Does `work` if the key is new, and else waits for the result of the first time. Dropping the future does not stop
    /// the work.
    ///
    /// # Errors
    /// [`NotDone`].
    pub(super) async fn run_once(
        &self,
        key: String,
        fingerprint: RequestFingerprint,
        work: impl Future<Output = BridgeAnswer> + Send + 'static,
    ) -> Result<BridgeAnswer, NotDone> {
        let mut answer = {
            let mut entries = self.0.lock();
            match entries.by_key.get(&key) {
                Some(entry) => match fingerprint.compare_with(&entry.fingerprint) {
                    RepeatOutcome::Same => entry.answer.clone(),
                    RepeatOutcome::Conflict => return Err(NotDone::Conflict),
                    RepeatOutcome::NotController => return Err(NotDone::NotController),
                },
                None => {
                    let (sender, answer) = watch::channel(None);
                    tokio::spawn(async move {
                        let answer = work.await;
                        sender.send_replace(Some(answer));
                    });
                    entries.insert_entry(key, IdempotencyEntry { fingerprint, answer: answer.clone() });
                    answer
                }
            }
        };
        let answer = answer.wait_for(Option::is_some).await.map_err(|_| NotDone::Failed)?;
        answer.clone().ok_or(NotDone::Failed)
    }
}

impl IdempotencyEntries {
    /// Keeps what came, and forgets the oldest of those that are answered while there are too many. Those that are not are
    /// as few as there are connections.
    fn insert_entry(&mut self, key: String, entry: IdempotencyEntry) {
        self.order.push_back(key.clone());
        self.by_key.insert(key, entry);
        let mut bytes: usize = self.by_key.values().map(IdempotencyEntry::body_length).sum();
        while self.by_key.len() > MOST_KEYS || bytes > MOST_BYTES {
            let is_done = |key: &String| self.by_key.get(key).is_none_or(IdempotencyEntry::is_done);
            let Some(at) = self.order.iter().position(is_done) else { return };
            let Some(key) = self.order.remove(at) else { return };
            bytes -= self.by_key.remove(&key).map_or(0, |known| known.body_length());
        }
    }
}

impl IdempotencyEntry {
    /// Reports whether it has an answer, or never will.
    fn is_done(&self) -> bool {
        self.answer.borrow().is_some() || self.answer.has_changed().is_err()
    }

    fn body_length(&self) -> usize {
        self.answer.borrow().as_ref().map_or(0, |answer| answer.body.as_text().len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use countersign_protocol::{
        RawJson,
        gjc::bridge::{MOST_KEYS, RequestFingerprint},
    };
    use tokio::sync::oneshot;

    use super::{BridgeAnswer, IdempotencyCache, NotDone};

    fn answer(text: &str) -> BridgeAnswer {
        BridgeAnswer { status: 200, body: RawJson::from_wire(text) }
    }

    fn print(body: &str) -> RequestFingerprint {
        RequestFingerprint::for_request("commands", body.as_bytes(), None)
    }

    #[tokio::test]
    async fn requests_at_the_same_time_are_done_once_and_all_get_the_first_answer() {
        let keys = Arc::new(IdempotencyCache::default());
        let done = Arc::new(AtomicUsize::new(0));
        let (go, goes) = oneshot::channel::<()>();
        let first = {
            let done = Arc::clone(&done);
            async move {
                goes.await.unwrap();
                done.fetch_add(1, Ordering::SeqCst);
                answer("first")
            }
        };
        let again = || {
            let done = Arc::clone(&done);
            async move {
                done.fetch_add(1, Ordering::SeqCst);
                answer("again")
            }
        };
        let mut waiting = Box::pin(keys.run_once("k".into(), print("a"), first));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        // The first requester has gone; the work continues.
        drop(waiting);
        let mut others = Box::pin(keys.run_once("k".into(), print("a"), again()));
        assert!(futures_util::poll!(&mut others).is_pending());
        assert_eq!(keys.run_once("k".into(), print("b"), again()).await.unwrap_err(), NotDone::Conflict);
        go.send(()).unwrap();
        assert_eq!(others.await.unwrap(), answer("first"));
        assert_eq!(keys.run_once("k".into(), print("a"), again()).await.unwrap(), answer("first"));
        assert_eq!(done.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn the_oldest_that_is_answered_is_forgotten_first() {
        let keys = IdempotencyCache::default();
        let (held, holds) = oneshot::channel::<()>();
        let mut pending = Box::pin(keys.run_once("held".into(), print("a"), async move {
            let _ = holds.await;
            answer("held")
        }));
        assert!(futures_util::poll!(&mut pending).is_pending());
        for number in 0..MOST_KEYS {
            let key = format!("k{number}");
            keys.run_once(key.clone(), print("a"), async move { answer(&key) }).await.unwrap();
        }
        // The one that is not answered stays, and the first of the others has gone.
        assert_eq!(
            keys.run_once("held".into(), print("b"), async { answer("x") }).await.unwrap_err(),
            NotDone::Conflict
        );
        assert_eq!(keys.run_once("k1".into(), print("b"), async { answer("x") }).await.unwrap_err(), NotDone::Conflict);
        assert_eq!(keys.run_once("k0".into(), print("b"), async { answer("anew") }).await.unwrap(), answer("anew"));
        held.send(()).unwrap();
        assert_eq!(pending.await.unwrap(), answer("held"));
    }

    #[tokio::test]
    async fn work_that_breaks_down_is_an_answer_to_nobody() {
        let keys = IdempotencyCache::default();
        let broken = async { panic!("planted") };
        assert_eq!(keys.run_once("k".into(), print("a"), broken).await.unwrap_err(), NotDone::Failed);
    }
}
