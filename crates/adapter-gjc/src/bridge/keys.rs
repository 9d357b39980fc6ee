//! Requests that come again under the same key: each is done once, and every repetition gets the first answer.
//!
//! It must not know what a request asks for.

use std::collections::{BTreeMap, VecDeque};

use countersign_protocol::gjc::bridge::{MOST_KEYS, RepeatOutcome, RequestFingerprint};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::Answer;

/// How many bytes of answers are kept at most.
const MOST_BYTES: usize = 64 << 20;

/// The requests that came under keys.
#[derive(Default)]
pub(super) struct Keys(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    known: BTreeMap<String, Known>,
    /// The keys as they came.
    order: VecDeque<String>,
}

struct Known {
    fingerprint: RequestFingerprint,
    answer: watch::Receiver<Option<Answer>>,
}

/// Why a request under a key has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotDone {
    /// The key was used for another request.
    Conflict,
    /// The same request was somebody else's.
    NotController,
    /// What does it broke down.
    Failed,
}

impl Keys {
    /// Does `work` if the key is new, and else waits for what it came to the first time. Dropping the future leaves the
    /// work going on.
    ///
    /// # Errors
    /// [`NotDone`].
    pub(super) async fn once(
        &self,
        key: String,
        fingerprint: RequestFingerprint,
        work: impl Future<Output = Answer> + Send + 'static,
    ) -> Result<Answer, NotDone> {
        let mut answer = {
            let mut kept = self.0.lock();
            match kept.known.get(&key) {
                Some(known) => match fingerprint.compare_with(&known.fingerprint) {
                    RepeatOutcome::Same => known.answer.clone(),
                    RepeatOutcome::Conflict => return Err(NotDone::Conflict),
                    RepeatOutcome::NotController => return Err(NotDone::NotController),
                },
                None => {
                    let (told, answer) = watch::channel(None);
                    tokio::spawn(async move {
                        let answer = work.await;
                        told.send_replace(Some(answer));
                    });
                    kept.keep(key, Known { fingerprint, answer: answer.clone() });
                    answer
                }
            }
        };
        let answer = answer.wait_for(Option::is_some).await.map_err(|_| NotDone::Failed)?;
        answer.clone().ok_or(NotDone::Failed)
    }
}

impl Kept {
    /// Keeps what came, and forgets the oldest of those that are answered while there are too many. Those that are not are
    /// as few as there are connections.
    fn keep(&mut self, key: String, known: Known) {
        self.order.push_back(key.clone());
        self.known.insert(key, known);
        let mut bytes: usize = self.known.values().map(Known::length).sum();
        while self.known.len() > MOST_KEYS || bytes > MOST_BYTES {
            let is_done = |key: &String| self.known.get(key).is_none_or(Known::is_done);
            let Some(at) = self.order.iter().position(is_done) else { return };
            let Some(key) = self.order.remove(at) else { return };
            bytes -= self.known.remove(&key).map_or(0, |known| known.length());
        }
    }
}

impl Known {
    /// Whether it has an answer, or never will.
    fn is_done(&self) -> bool {
        self.answer.borrow().is_some() || self.answer.has_changed().is_err()
    }

    fn length(&self) -> usize {
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

    use super::{Answer, Keys, NotDone};

    fn answer(text: &str) -> Answer {
        Answer { status: 200, body: RawJson::from_wire(text) }
    }

    fn print(body: &str) -> RequestFingerprint {
        RequestFingerprint::for_request("commands", body.as_bytes(), None)
    }

    #[tokio::test]
    async fn requests_at_the_same_time_are_done_once_and_all_get_the_first_answer() {
        let keys = Arc::new(Keys::default());
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
        let mut waiting = Box::pin(keys.once("k".into(), print("a"), first));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        // Whoever asked first has gone; what was asked for goes on.
        drop(waiting);
        let mut others = Box::pin(keys.once("k".into(), print("a"), again()));
        assert!(futures_util::poll!(&mut others).is_pending());
        assert_eq!(keys.once("k".into(), print("b"), again()).await.unwrap_err(), NotDone::Conflict);
        go.send(()).unwrap();
        assert_eq!(others.await.unwrap(), answer("first"));
        assert_eq!(keys.once("k".into(), print("a"), again()).await.unwrap(), answer("first"));
        assert_eq!(done.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn the_oldest_that_is_answered_is_forgotten_first() {
        let keys = Keys::default();
        let (held, holds) = oneshot::channel::<()>();
        let mut pending = Box::pin(keys.once("held".into(), print("a"), async move {
            let _ = holds.await;
            answer("held")
        }));
        assert!(futures_util::poll!(&mut pending).is_pending());
        for number in 0..MOST_KEYS {
            let key = format!("k{number}");
            keys.once(key.clone(), print("a"), async move { answer(&key) }).await.unwrap();
        }
        // The one that is not answered stays, and the first of the others has gone.
        assert_eq!(keys.once("held".into(), print("b"), async { answer("x") }).await.unwrap_err(), NotDone::Conflict);
        assert_eq!(keys.once("k1".into(), print("b"), async { answer("x") }).await.unwrap_err(), NotDone::Conflict);
        assert_eq!(keys.once("k0".into(), print("b"), async { answer("anew") }).await.unwrap(), answer("anew"));
        held.send(()).unwrap();
        assert_eq!(pending.await.unwrap(), answer("held"));
    }

    #[tokio::test]
    async fn work_that_breaks_down_is_an_answer_to_nobody() {
        let keys = Keys::default();
        let broken = async { panic!("planted") };
        assert_eq!(keys.once("k".into(), print("a"), broken).await.unwrap_err(), NotDone::Failed);
    }
}
