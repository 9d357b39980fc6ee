//! Turn that waits for a compaction.

use countersign_core::{
    id::RunId,
    session::{AfterCompaction, Event, MessageQueue},
};

/// Turn that has its name and has not begun.
#[derive(Debug)]
pub struct PendingTurn {
    run: RunId,
    then: AfterCompaction,
    is_stopping: bool,
}

/// Reason why a turn that waited does not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeverBegins {
    /// A user stopped it.
    Stopped,
    /// The compaction failed, and without it the conversation is too long.
    TooLong,
}

impl PendingTurn {
    /// Returns the turn that waits for the compaction which begins with `event`, if one does.
    pub fn from_event(event: &Event) -> Option<Self> {
        let Event::CompactionStarted { run: Some(run), then, .. } = event else { return None };
        Some(Self { run: *run, then: then.clone(), is_stopping: false })
    }

    /// Returns its name.
    pub const fn run(&self) -> RunId {
        self.run
    }

    /// Reports whether the turn answers a message, and does not repeat a request that was too long.
    pub fn is_for_prompt(&self) -> bool {
        self.then == AfterCompaction::Prompt
    }

    /// Returns the reason why it does not begin, once that is known. `event` is the next of its session.
    pub fn never_begins(&mut self, event: &Event) -> Option<NeverBegins> {
        match event {
            // A user who clears the queue leaves nothing that could begin.
            Event::Cleared | Event::Dequeued { queue: MessageQueue::Prompt } => {
                self.is_for_prompt().then_some(NeverBegins::Stopped)
            }
            Event::CompactionAborting => {
                self.is_stopping = true;
                None
            }
            Event::CompactionEnded { then: AfterCompaction::Rest, .. } if self.is_stopping => {
                Some(NeverBegins::Stopped)
            }
            // If the process ended meanwhile, the next one compacts again.
            Event::CompactionEnded { then: AfterCompaction::Rest, aborted: false, .. } => Some(NeverBegins::TooLong),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::{
        id::{EntryId, RunId},
        session::{AfterCompaction, CompactionCause, Event, MessageQueue},
    };

    use super::{
        NeverBegins::{self, Stopped, TooLong},
        PendingTurn,
    };

    fn awaited(then: AfterCompaction) -> PendingTurn {
        let run = RunId::parse("00000000000000000000000000000001").unwrap();
        let begun = |run| Event::CompactionStarted {
            epoch: 1,
            reason: CompactionCause::Threshold,
            first_kept: EntryId::new("e"),
            split_from: None,
            tokens_before: 9,
            then: then.clone(),
            run,
            marks: None,
        };
        assert!(PendingTurn::from_event(&begun(None)).is_none(), "nobody waits for it");
        PendingTurn::from_event(&begun(Some(run))).unwrap()
    }

    #[test]
    fn a_turn_that_waits_is_over_once_nothing_can_begin_it() {
        let ended = |ok, aborted, then| Event::CompactionEnded { epoch: 1, ok, aborted, then, spent: None };
        let taken_back = || Event::Dequeued { queue: MessageQueue::Prompt };
        let stopping = || Event::CompactionAborting;
        for (case, then, events, want) in [
            (
                "it begins",
                AfterCompaction::Prompt,
                vec![ended(true, false, AfterCompaction::Prompt)],
                None::<NeverBegins>,
            ),
            (
                "it begins without a summary",
                AfterCompaction::Prompt,
                vec![ended(false, false, AfterCompaction::Prompt)],
                None,
            ),
            ("it asks again", AfterCompaction::Again, vec![ended(true, false, AfterCompaction::Again)], None),
            ("taken back", AfterCompaction::Prompt, vec![taken_back()], Some(Stopped)),
            ("all is taken back", AfterCompaction::Prompt, vec![Event::Cleared], Some(Stopped)),
            ("what others wait to say is", AfterCompaction::Again, vec![Event::Cleared], None),
            (
                "stopped",
                AfterCompaction::Again,
                vec![stopping(), ended(false, true, AfterCompaction::Rest)],
                Some(Stopped),
            ),
            (
                "stopped too late",
                AfterCompaction::Again,
                vec![stopping(), ended(true, false, AfterCompaction::Rest)],
                Some(Stopped),
            ),
            ("no summary", AfterCompaction::Again, vec![ended(false, false, AfterCompaction::Rest)], Some(TooLong)),
            ("the process ended", AfterCompaction::Again, vec![ended(false, true, AfterCompaction::Rest)], None),
        ] {
            let mut awaited = awaited(then);
            let found = events.iter().filter_map(|event| awaited.never_begins(event)).next();
            assert_eq!(found, want, "{case}");
        }
    }
}
