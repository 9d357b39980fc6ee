//! How many are connected, and who has to go when there are too many: those who have not shown who they are, the oldest
//! of them first; and where there are none, whoever comes.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Everybody who is connected to one port.
pub(super) struct Crowd {
    most: usize,
    strangers: Mutex<Strangers>,
    /// How many have a place.
    count: watch::Sender<usize>,
}

#[derive(Default)]
struct Strangers {
    next: u64,
    /// By the order in which they came.
    waiting: BTreeMap<u64, CancellationToken>,
}

/// The place of one connection, for as long as anything of it is there.
pub(crate) struct Place {
    crowd: Arc<Crowd>,
    number: u64,
    gone: CancellationToken,
}

impl Crowd {
    /// Room for `most`.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, strangers: Mutex::default(), count: watch::Sender::new(0) })
    }

    /// Gives a place to a connection of which nothing is known yet. `None` if all are taken by those who are known.
    pub(super) fn enter(self: &Arc<Self>) -> Option<Arc<Place>> {
        if *self.count.borrow() >= self.most && !self.make_room() {
            return None;
        }
        let mut strangers = self.strangers.lock();
        let number = strangers.next;
        strangers.next += 1;
        let gone = CancellationToken::new();
        strangers.waiting.insert(number, gone.clone());
        self.count.send_modify(|count| *count += 1);
        Some(Arc::new(Place { crowd: Arc::clone(self), number, gone }))
    }

    /// Has the one leave that has been here longest without saying who it is. False if there is none.
    pub(super) fn make_room(&self) -> bool {
        let mut strangers = self.strangers.lock();
        let Some((_, gone)) = strangers.waiting.pop_first() else { return false };
        // Under the lock: nobody is kept and sent away at once. Its place is another's now, however long it takes to leave.
        gone.cancel();
        self.count.send_modify(|count| *count -= 1);
        true
    }

    /// Waits until everybody is gone.
    pub(super) async fn empty(&self) {
        // The sender is ours, so it cannot be gone.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Place {
    /// It is known now who has this place: nobody takes it away any more. False if somebody just did.
    pub(crate) fn keep(&self) -> bool {
        let mut strangers = self.crowd.strangers.lock();
        strangers.waiting.remove(&self.number);
        !self.gone.is_cancelled()
    }

    /// Waits until the place is another's.
    pub(crate) async fn lost(&self) {
        self.gone.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut strangers = self.crowd.strangers.lock();
        strangers.waiting.remove(&self.number);
        if !self.gone.is_cancelled() {
            self.crowd.count.send_modify(|count| *count -= 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Crowd;

    #[test]
    fn where_all_places_are_taken_the_oldest_stranger_goes_and_then_whoever_comes() {
        let crowd = Crowd::new(3);
        let [first, second, third] = [(); 3].map(|()| crowd.enter().unwrap());
        assert!(first.keep());
        let fourth = crowd.enter().unwrap();
        assert!(second.gone.is_cancelled() && !third.gone.is_cancelled());
        assert!(!second.keep(), "who was sent away does not become known");
        assert!(third.keep() && fourth.keep());
        assert!(crowd.enter().is_none());
        assert!(!crowd.make_room(), "nobody who is known goes");
        // Who was sent away had no place any more to give up.
        drop(second);
        assert!(crowd.enter().is_none());
        drop(first);
        assert!(crowd.enter().is_some());
    }

    #[tokio::test]
    async fn it_is_empty_once_the_last_one_left() {
        let crowd = Crowd::new(2);
        let [one, other] = [(); 2].map(|()| crowd.enter().unwrap());
        assert!(one.keep());
        let mut empty = std::pin::pin!(crowd.empty());
        assert!(futures_util::poll!(&mut empty).is_pending());
        drop(one);
        assert!(futures_util::poll!(&mut empty).is_pending());
        drop(other);
        empty.await;
    }
}
