//! Cards that were shown, in the order of inbound messages.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use countersign_core::id::{GateId, SessionId};
use parking_lot::Mutex;

/// Moment between two cards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CardMoment(u64);

/// Returns the key of a session's cards in the chat network where its run began: a card shown to clients is not yet shown there.
pub(crate) fn in_chat(session: &SessionId) -> SessionId {
    SessionId::new(format!("chat:{session}"))
}

/// Cards that are shown: the current one of each session.
#[derive(Default)]
pub(crate) struct ShownCards {
    sent_count: AtomicU64,
    shown: Mutex<BTreeMap<SessionId, (GateId, CardMoment)>>,
}

impl ShownCards {
    /// Returns the current moment: after every card that was shown.
    pub(crate) fn current_moment(&self) -> CardMoment {
        CardMoment(self.sent_count.load(Ordering::SeqCst))
    }

    /// Notes that the card of a gate is shown. An earlier message is no answer to it.
    pub(crate) fn note_shown(&self, session: &SessionId, gate: GateId) {
        let mut shown = self.shown.lock();
        let at = CardMoment(self.sent_count.fetch_add(1, Ordering::SeqCst) + 1);
        shown.insert(session.clone(), (gate, at));
    }

    /// Notes that a session shows no card any more.
    pub(crate) fn clear_card(&self, session: &SessionId) {
        self.shown.lock().remove(session);
    }

    /// Reports whether a session shows the card of a gate now.
    pub(super) fn is_current(&self, session: &SessionId, gate: GateId) -> bool {
        self.shown.lock().get(session).is_some_and(|(shown, _)| *shown == gate)
    }

    /// Reports whether the card of a gate was shown before a message came.
    pub(super) fn was_shown(&self, session: &SessionId, gate: GateId, came: CardMoment) -> bool {
        self.shown.lock().get(session).is_some_and(|(shown, at)| *shown == gate && *at <= came)
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::id::{GateId, SessionId};
    use uuid::Uuid;

    use super::ShownCards;

    #[test]
    fn a_message_before_a_card_was_shown_is_no_answer_to_it() {
        let (cards, here, other) = (ShownCards::default(), SessionId::new("here"), SessionId::new("other"));
        let (first, second) = (GateId::new(Uuid::from_u128(1)), GateId::new(Uuid::from_u128(2)));
        let early = cards.current_moment();
        cards.note_shown(&here, first);
        let between = cards.current_moment();
        assert!(!cards.was_shown(&here, first, early) && cards.was_shown(&here, first, between));
        assert!(!cards.was_shown(&here, second, between) && !cards.was_shown(&other, first, between));
        cards.note_shown(&here, second);
        assert!(!cards.was_shown(&here, second, between) && cards.was_shown(&here, second, cards.current_moment()));
        assert!(!cards.was_shown(&here, first, cards.current_moment()), "it is not asked about any more");
        cards.clear_card(&here);
        assert!(!cards.was_shown(&here, second, cards.current_moment()));
    }
}
