//! Cards are sent, and edited on every outcome, as far as the record says so.
//!
//! Facts only say which gate to look at. What is owed follows from the gate as it is recorded, so that a restart, a lost
//! answer and an outage all come to the same: one that waits and was not shown is sent, one that ended and whose card
//! does not say so is edited.

mod card_state;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use countersign_core::{
    call::{self, CallEnd},
    engine::{Command, Event, RecordedFact},
    gate,
    id::{CallId, GateId},
};
use countersign_runtime::CommandSource;
use tokio::{sync::mpsc, time::Instant};

use self::card_state::{CallEnding, CardSnapshot};
use super::{
    MessengerContext, SURFACE,
    bot::{BotCallFailure, RetryBackoff},
    rates::{RateMeter, WriteKind, WriteRates},
    refs::CardLocation,
    telegram_card::{CardContent, CardStage},
    time_of_day,
};

/// Attempts at a change that is refused, before the card stays as it is.
const TRIES: u32 = 5;

/// When a gate is to be looked at.
#[derive(Debug)]
struct DueGate {
    at: Instant,
    backoff: RetryBackoff,
    tries: u32,
}

/// Memory of a gate whose card is not final. All of it can be found again.
#[derive(Debug, Default)]
struct GateMemory {
    request: Option<CardContent>,
    /// Cards that were sent and could not be recorded yet.
    sent: Vec<CardLocation>,
    texts: BTreeMap<CardLocation, String>,
    /// Revision of the gate that each card shows.
    revisions: BTreeMap<CardLocation, u32>,
    /// True if its whole text was sent.
    is_whole: bool,
    end: Option<CallEnding>,
}

/// A whole text on its way.
struct PendingFullText {
    gate: GateId,
    parts: VecDeque<String>,
    at: Instant,
}

/// Result of an attempt.
enum AttemptResult {
    /// Nothing is owed at the moment.
    Settled,
    /// To be looked at again then.
    At(Instant),
    /// To be looked at again after a while that grows.
    Later,
    /// Nothing works any more.
    Over,
}

/// The task that writes.
pub(super) struct CardWriter {
    shared: Arc<MessengerContext>,
    source: CommandSource,
    orders: mpsc::Receiver<GateId>,
    meter: RateMeter,
    due: BTreeMap<GateId, DueGate>,
    known: BTreeMap<GateId, GateMemory>,
    calls: BTreeMap<CallId, GateId>,
    wholes: VecDeque<PendingFullText>,
    /// Until when the server is left alone, and how long it will be the next time.
    quiet: Instant,
    backoff: RetryBackoff,
}

impl CardWriter {
    pub(super) fn new(
        shared: Arc<MessengerContext>,
        source: CommandSource,
        orders: mpsc::Receiver<GateId>,
        rates: WriteRates,
    ) -> Self {
        Self {
            shared,
            source,
            orders,
            meter: RateMeter::new(rates),
            due: BTreeMap::new(),
            known: BTreeMap::new(),
            calls: BTreeMap::new(),
            wholes: VecDeque::new(),
            quiet: Instant::now(),
            backoff: RetryBackoff::default(),
        }
    }

    pub(super) async fn run(mut self) {
        let of_cards = |recorded: &Arc<RecordedFact>| {
            matches!(recorded.fact.event, Event::Gate(_) | Event::Call(call::Event::Ended { .. }))
                .then(|| Arc::clone(recorded))
        };
        let Some(mut facts) = self.shared.handle.follow_facts(of_cards).await else { return };
        if !self.find_owed().await {
            return;
        }
        let stop = self.shared.stop.clone();
        loop {
            while let Some(recorded) = facts.try_next() {
                self.on_recorded(&recorded);
            }
            let now = Instant::now();
            if stop.is_cancelled() && (self.due.is_empty() || self.quiet > now) {
                return;
            }
            if self.quiet <= now {
                if let Some(gate) = self.due.iter().find(|(_, due)| due.at <= now).map(|(gate, _)| *gate) {
                    if !self.work_gate(gate).await {
                        return;
                    }
                    continue;
                }
                if self.wholes.front().is_some_and(|whole| whole.at <= now) && !stop.is_cancelled() {
                    if !self.send_part().await {
                        return;
                    }
                    continue;
                }
            }
            let next = self.due.values().map(|due| due.at).chain(self.wholes.front().map(|whole| whole.at)).min();
            let wake = next.map(|next| next.max(self.quiet));
            tokio::select! {
                recorded = facts.next() => match recorded {
                    Some(recorded) => self.on_recorded(&recorded),
                    None => return,
                },
                Some(gate) = self.orders.recv() => self.queue_full_text(gate),
                () = tokio::time::sleep_until(wake.unwrap_or(now)), if wake.is_some() => {}
                () = stop.cancelled(), if !stop.is_cancelled() => {}
            }
        }
    }

    /// Finds what another process left: gates that wait, and gates whose cards do not say how they ended.
    async fn find_owed(&mut self) -> bool {
        let read = self.source.read_state(|engine| {
            let gates = engine.state().all_gates().filter(|gate| gate.is_pending() || gate.owes_update());
            gates.map(|gate| (gate.id(), gate.call())).collect::<Vec<_>>()
        });
        let Some((gates, _)) = read.await else { return false };
        for (gate, call) in gates {
            self.calls.extend(call.map(|call| (call, gate)));
            self.look_at(gate);
        }
        true
    }

    fn look_at(&mut self, gate: GateId) {
        let now = Instant::now();
        let due =
            self.due.entry(gate).or_insert_with(|| DueGate { at: now, backoff: RetryBackoff::default(), tries: 0 });
        // A card that waits for its turn or was refused keeps waiting.
        if due.tries == 0 {
            due.at = now;
        }
    }

    fn on_recorded(&mut self, recorded: &RecordedFact) {
        match &recorded.fact.event {
            Event::Gate(gate::Event::Opened { gate, call, .. }) => {
                self.calls.extend(call.map(|call| (call, *gate)));
                self.look_at(*gate);
            }
            Event::Gate(gate::Event::Resolved { gate, .. }) => {
                // The cause of its wait has changed.
                self.due.remove(gate);
                self.look_at(*gate);
            }
            Event::Gate(gate::Event::Shown { gate, surface, .. }) if surface == SURFACE => self.look_at(*gate),
            Event::Gate(
                gate::Event::Voted { gate, .. }
                | gate::Event::Escalated { gate, .. }
                | gate::Event::Reminded { gate }
                | gate::Event::Extended { gate, .. },
            ) => self.look_at(*gate),
            Event::Call(call::Event::Ended { call, end, .. }) => {
                if let Some(gate) = self.calls.remove(call) {
                    let away = recorded.meta.session.as_ref().is_some_and(|session| !(self.shared.presence)(session));
                    self.known.entry(gate).or_default().end = Some(CallEnding { end: *end, away });
                    self.look_at(gate);
                }
            }
            _ => {}
        }
    }

    /// Does the pending work for one gate. False if the bot no longer works.
    async fn work_gate(&mut self, gate: GateId) -> bool {
        let step = match self.card_snapshot(gate).await {
            Ok(None) => {
                self.known.remove(&gate);
                AttemptResult::Settled
            }
            Ok(Some(look)) if look.gate.is_pending() => self.show_card(look).await,
            Ok(Some(look)) => self.update_cards(look).await,
            Err(step) => step,
        };
        match step {
            AttemptResult::Settled => {
                self.due.remove(&gate);
            }
            AttemptResult::At(at) => {
                if let Some(due) = self.due.get_mut(&gate) {
                    due.at = at;
                }
            }
            AttemptResult::Later => {
                if let Some(due) = self.due.get_mut(&gate) {
                    due.tries += 1;
                    due.at = Instant::now() + due.backoff.next_wait();
                }
            }
            AttemptResult::Over => return false,
        }
        true
    }

    /// Sends the card of a gate that waits, unless there is one.
    async fn show_card(&mut self, look: CardSnapshot) -> AttemptResult {
        let id = look.gate.id();
        if let Some(place) = look.unrecorded.first() {
            return self.record_shown(id, *place).await;
        }
        if self.shared.stop.is_cancelled() {
            return AttemptResult::Settled;
        }
        let Some(request) = look.request else { return AttemptResult::Settled };
        if let Some(place) = look.changed.first() {
            let is_earlier = look.earlier.contains(place);
            return self.change_card(&look.gate, request, *place, is_earlier).await;
        }
        if look.places.len() > look.earlier.len() {
            return AttemptResult::Settled;
        }
        let chat = self.shared.chat_id();
        if let Some(at) = self.write_turn(WriteKind::Message, chat) {
            return AttemptResult::At(at);
        }
        let now = self.shared.clock.now();
        let text = request.waiting_text(CardStage::First, now, time_of_day);
        let keys = request.answer_keyboard(&self.shared.refs, request.fits_card(now, time_of_day));
        self.known.entry(id).or_default().request = Some(request);
        let sent = self.shared.bot.send_message(self.shared.message_target(chat, None), &text, Some(&keys)).await;
        self.meter.record_write(WriteKind::Message, Instant::now());
        match sent {
            Ok(message) => {
                self.backoff = RetryBackoff::default();
                let place = CardLocation { chat: message.chat.id, message: message.message_id };
                let known = self.known.entry(id).or_default();
                known.sent.push(place);
                known.revisions.insert(place, look.gate.revision());
                self.record_shown(id, place).await
            }
            Err(failure) => self.on_failure(&failure),
        }
    }

    /// Edits a card of a pending gate: to its new text, or to point to another card.
    async fn change_card(
        &mut self,
        gate: &gate::Gate,
        request: CardContent,
        place: CardLocation,
        is_earlier: bool,
    ) -> AttemptResult {
        let id = gate.id();
        if let Some(at) = self.write_turn(WriteKind::Edit, place.chat) {
            return AttemptResult::At(at);
        }
        let now = self.shared.clock.now();
        let edited = if is_earlier {
            self.shared.bot.edit_message(place.chat, place.message, &request.moved_text(), None).await
        } else {
            let is_whole = self.known.get(&id).is_some_and(|known| known.is_whole);
            let stage = if is_whole { CardStage::ShownWhole } else { CardStage::First };
            let text = request.waiting_text(stage, now, time_of_day);
            let keys = request.answer_keyboard(&self.shared.refs, is_whole || request.fits_card(now, time_of_day));
            self.shared.bot.edit_message(place.chat, place.message, &text, Some(&keys)).await
        };
        self.meter.record_write(WriteKind::Edit, Instant::now());
        match edited {
            Ok(()) => self.backoff = RetryBackoff::default(),
            Err(BotCallFailure::Harmless(_) | BotCallFailure::Moved(_) | BotCallFailure::Refused(_)) => {}
            Err(failure) => return self.on_failure(&failure),
        }
        let known = self.known.entry(id).or_default();
        known.request = Some(request);
        known.revisions.insert(place, gate.revision());
        AttemptResult::At(Instant::now())
    }

    async fn record_shown(&mut self, gate: GateId, place: CardLocation) -> AttemptResult {
        let shown = gate::Command::Shown { gate, surface: SURFACE.to_owned(), reference: place.to_string() };
        match self.source.send_command(Command::Gate(shown)).await {
            Ok(_) => {
                // Whether or not it was one too many to be recorded, nothing more is shown.
                if let Some(known) = self.known.get_mut(&gate) {
                    known.sent.retain(|sent| *sent != place);
                }
                // Looked at once more: it may have ended meanwhile.
                AttemptResult::At(Instant::now())
            }
            Err(error) => {
                tracing::warn!(%gate, %error, "a card was sent, but not recorded");
                AttemptResult::Later
            }
        }
    }

    /// Edits the cards of a gate that ended.
    async fn update_cards(&mut self, look: CardSnapshot) -> AttemptResult {
        let id = look.gate.id();
        if let Some(place) = look.unrecorded.first() {
            return self.record_shown(id, *place).await;
        }
        let Some(request) = look.request else { return AttemptResult::Settled };
        let Some(ending) = look.ending else { return AttemptResult::Settled };
        let text = request.ended_text(&ending);
        self.known.entry(id).or_default().request = Some(request);
        for place in look.places {
            let is_said = self.known.get(&id).is_some_and(|known| known.texts.get(&place) == Some(&text));
            if !is_said {
                if let Some(at) = self.write_turn(WriteKind::Edit, place.chat) {
                    return AttemptResult::At(at);
                }
                let edited = self.shared.bot.edit_message(place.chat, place.message, &text, None).await;
                self.meter.record_write(WriteKind::Edit, Instant::now());
                match edited {
                    Ok(()) => self.backoff = RetryBackoff::default(),
                    // A message of a chat that moved away cannot be reached; nor one that was deleted.
                    Err(BotCallFailure::Harmless(_) | BotCallFailure::Moved(_)) => {}
                    Err(BotCallFailure::Refused(_)) if self.due.get(&id).is_some_and(|due| due.tries + 1 >= TRIES) => {
                        tracing::warn!(gate = %id, "failed to edit a card; it keeps its old text");
                    }
                    Err(failure) => return self.on_failure(&failure),
                }
                self.known.entry(id).or_default().texts.insert(place, text.clone());
            }
            if look.is_final {
                let updated =
                    gate::Command::Updated { gate: id, surface: SURFACE.to_owned(), reference: place.to_string() };
                if let Err(error) = self.source.send_command(Command::Gate(updated)).await {
                    tracing::warn!(gate = %id, %error, "a card was edited, but the edit was not recorded");
                    return AttemptResult::Later;
                }
            }
        }
        if look.is_final {
            self.known.remove(&id);
        }
        AttemptResult::Settled
    }

    /// Queues the whole text that a person requested.
    fn queue_full_text(&mut self, gate: GateId) {
        let request = self.known.get(&gate).and_then(|known| known.request.as_ref());
        let is_on_its_way = self.wholes.iter().any(|whole| whole.gate == gate);
        if is_on_its_way {
            return;
        }
        // After a restart it is made from the record, with the first part.
        let parts = request.and_then(CardContent::text_parts).unwrap_or_default().into();
        self.wholes.push_back(PendingFullText { gate, parts, at: Instant::now() });
    }

    /// Sends the next part of a whole text; after the last the card gets its other buttons.
    async fn send_part(&mut self) -> bool {
        let Some(mut whole) = self.wholes.pop_front() else { return true };
        let look = match self.card_snapshot(whole.gate).await {
            Ok(Some(look)) if look.gate.is_pending() => look,
            // It is not needed any more.
            Ok(_) => return true,
            Err(AttemptResult::Over) => return false,
            Err(_) => {
                whole.at = Instant::now() + Duration::from_secs(1);
                self.wholes.push_front(whole);
                return true;
            }
        };
        let Some((request, place)) = look.request.zip(look.places.last().copied()) else { return true };
        let is_new = self.known.get(&whole.gate).is_none_or(|known| known.request.is_none());
        if is_new || whole.parts.is_empty() {
            whole.parts = request.text_parts().unwrap_or_default().into();
            self.known.entry(whole.gate).or_default().request = Some(request.clone());
        }
        let Some(part) = whole.parts.front() else { return true };
        if let Some(at) = self.write_turn(WriteKind::Message, place.chat) {
            whole.at = at;
            self.wholes.push_front(whole);
            return true;
        }
        let to = self.shared.message_target(place.chat, Some(place.message));
        let sent = self.shared.bot.send_message(to, part, None).await;
        self.meter.record_write(WriteKind::Message, Instant::now());
        let result = match sent {
            Ok(_) => {
                whole.parts.pop_front();
                if !whole.parts.is_empty() {
                    self.wholes.push_front(whole);
                    return true;
                }
                let text = request.waiting_text(CardStage::ShownWhole, self.shared.clock.now(), time_of_day);
                let keys = request.answer_keyboard(&self.shared.refs, true);
                self.known.entry(whole.gate).or_default().is_whole = true;
                self.shared.bot.edit_message(place.chat, place.message, &text, Some(&keys)).await
            }
            Err(failure) => Err(failure),
        };
        match result {
            Ok(()) | Err(BotCallFailure::Harmless(_) | BotCallFailure::Refused(_) | BotCallFailure::Moved(_)) => true,
            Err(BotCallFailure::Token(_)) => false,
            Err(failure) => {
                let _ = self.on_failure(&failure);
                whole.at = self.quiet;
                self.wholes.push_front(whole);
                true
            }
        }
    }

    /// Returns the time at which it may be written, if not now.
    fn write_turn(&mut self, writing: WriteKind, chat: i64) -> Option<Instant> {
        let now = Instant::now();
        let at = self.meter.ready_at(writing, chat < 0, now);
        (at > now).then_some(at)
    }

    /// Returns the result of a failed attempt, and delays all others if needed.
    fn on_failure(&mut self, failure: &BotCallFailure) -> AttemptResult {
        match failure {
            BotCallFailure::Token(_) => AttemptResult::Over,
            BotCallFailure::Moved(chat) => {
                self.shared.chat_moved(*chat);
                AttemptResult::At(Instant::now())
            }
            BotCallFailure::Refused(_) | BotCallFailure::Harmless(_) => AttemptResult::Later,
            BotCallFailure::Wait(wait) => {
                // The server counts from its answer; half a second is for the way.
                self.quiet = Instant::now() + *wait + Duration::from_millis(500);
                AttemptResult::At(self.quiet)
            }
            BotCallFailure::Conflict(_) | BotCallFailure::Unreachable(_) => {
                self.quiet = Instant::now() + self.backoff.next_wait();
                AttemptResult::At(self.quiet)
            }
        }
    }
}

impl CallEnding {
    /// Reports whether the end is only that it was allowed.
    const fn is_plain(self) -> bool {
        matches!(self.end, CallEnd::Done { error: false }) && !self.away
    }
}
