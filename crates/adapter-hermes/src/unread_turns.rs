//! Turns that clients began and whose end none of them has read.
//!
//! The front end gives up the stream of a turn as soon as the list of sessions shows that nothing runs. A turn that ends while
//! its client still opens the stream, or reads its last events, therefore stays in the list for a moment.
//!
//! This module must not know the events of a stream.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use countersign_core::id::{RunId, SessionId};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::turn_stream::TurnStream;

/// Time for which a turn stays in the list after its end if no client reads it.
const GRACE: Duration = Duration::from_secs(5);

/// Newest turn of each session that a client began and whose end is still to be read.
///
/// A turn leaves when the list is read, or when any other turn begins. Without readers of the list it therefore holds no
/// more than the turns that ran or ended within [`GRACE`] at that moment, and the one that began.
#[derive(Default)]
pub(super) struct UnreadTurns(Mutex<BTreeMap<SessionId, StartedTurn>>);

#[derive(Clone, Copy)]
struct StartedTurn {
    run: RunId,
    at: Instant,
}

impl StartedTurn {
    fn is_unread(self, now: Instant, journal: Option<Arc<TurnStream>>) -> bool {
        match journal {
            // The stream of a turn that begins at this moment is not open yet.
            None => now < self.at + GRACE,
            Some(journal) => {
                let end = journal.end_state();
                !end.is_read && end.at.is_none_or(|at| now < at + GRACE)
            }
        }
    }
}

impl UnreadTurns {
    /// Notes that a client began a turn, and forgets every turn whose end was read or waited long enough. `journal_of`
    /// finds the stream of a turn.
    pub(super) fn begin_turn(
        &self,
        session: &SessionId,
        run: RunId,
        now: Instant,
        journal_of: impl Fn(RunId) -> Option<Arc<TurnStream>>,
    ) {
        let mut turns = self.0.lock();
        turns.retain(|_, turn| turn.is_unread(now, journal_of(turn.run)));
        turns.insert(session.clone(), StartedTurn { run, at: now });
    }

    /// Returns the turn of a session whose end is still to be read, and forgets one that was read or waited long enough.
    /// `journal_of` finds the stream of a turn.
    pub(super) fn unread_run(
        &self,
        session: &SessionId,
        now: Instant,
        journal_of: impl FnOnce(RunId) -> Option<Arc<TurnStream>>,
    ) -> Option<RunId> {
        let mut turns = self.0.lock();
        let turn = *turns.get(session)?;
        let is_unread = turn.is_unread(now, journal_of(turn.run));
        if !is_unread {
            turns.remove(session);
        }
        is_unread.then_some(turn.run)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::wire::HermesEvent;
    use countersign_core::id::SessionId;
    use futures_util::StreamExt as _;
    use tokio::time::Instant;

    use super::{GRACE, UnreadTurns};
    use crate::turn_stream::{StreamCursor, TurnStream, run_of};

    #[tokio::test(start_paused = true)]
    async fn a_turn_is_unread_until_a_client_has_its_end_or_five_seconds_passed() {
        let (session, run) = (SessionId::new("s"), run_of("00000000000000000000000000000007").unwrap());
        let begun = Instant::now();
        for (case, is_open, is_over, is_followed, after, want) in [
            ("its journal is not open yet", false, false, false, GRACE / 2, true),
            ("there is no journal", false, false, false, GRACE, false),
            ("it goes on", true, false, false, GRACE * 100, true),
            ("it is over", true, true, false, GRACE / 2, true),
            ("nobody came", true, true, false, GRACE, false),
            ("it was read", true, true, true, GRACE / 2, false),
        ] {
            let turns = UnreadTurns::default();
            turns.begin_turn(&session, run, begun, |_| None);
            let journal = Arc::new(TurnStream::new(session.clone(), run, 0));
            if is_over {
                journal.push(&HermesEvent::stream_end("s"), true);
            }
            if is_followed {
                let read = Box::pin(Arc::clone(&journal).follow_from(StreamCursor::Start));
                assert_eq!(read.count().await, 1);
            }
            let found = turns.unread_run(&session, begun + after, |_| is_open.then_some(journal));
            assert_eq!(found.is_some(), want, "{case}");
        }
    }
    #[tokio::test(start_paused = true)]
    async fn a_turn_that_begins_forgets_the_turns_that_nobody_waits_for() {
        let turns = UnreadTurns::default();
        let run = |number: u32| run_of(&format!("{number:032x}")).unwrap();
        let begun = Instant::now();
        let running = run(0);
        let journal = Arc::new(TurnStream::new(SessionId::new("running"), running, 0));
        let journal_of = |run| (run == running).then(|| Arc::clone(&journal));
        turns.begin_turn(&SessionId::new("running"), running, begun, journal_of);
        for number in 1..=1_000 {
            turns.begin_turn(&SessionId::new(format!("s{number}")), run(number), begun + GRACE * number, journal_of);
        }
        let known: Vec<_> = turns.0.lock().keys().map(SessionId::to_string).collect();
        assert_eq!(known, ["running", "s1000"], "nobody reads the list");
        let found = turns.unread_run(&SessionId::new("running"), begun + GRACE * 1_000, journal_of);
        assert_eq!(found, Some(running), "a turn that runs stays");
    }
}
