//! Cards are sent, and edited on every outcome: whatever the record says is owed.
//!
//! Facts only say which gate to look at. What is owed follows from the gate as it is recorded, so that a restart, a lost
//! answer and an outage all come to the same: one that waits and was not shown is sent, one that ended and whose card
//! does not say so is edited.

mod look;

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

use self::look::{Look, Seen};
use super::{
    SURFACE, Shared,
    bot::{Backoff, Failure},
    card::{Asked, Stage},
    rates::{Meter, Rates, Writing},
    refs::Place,
    time_of_day,
};

/// How often a change that is refused is tried, before the card stays as it is.
const TRIES: u32 = 5;

/// When a gate is to be looked at.
#[derive(Debug)]
struct Due {
    at: Instant,
    backoff: Backoff,
    tries: u32,
}

/// What is remembered of a gate whose card is not final. All of it can be found again.
#[derive(Debug, Default)]
struct Known {
    asked: Option<Asked>,
    /// Cards that were sent and could not be recorded yet.
    sent: Vec<Place>,
    said: BTreeMap<Place, String>,
    /// Which revision of the gate a card shows.
    revisions: BTreeMap<Place, u32>,
    /// Whether its whole text was sent.
    is_whole: bool,
    end: Option<Seen>,
}

/// A whole text on its way.
struct Whole {
    gate: GateId,
    parts: VecDeque<String>,
    at: Instant,
}

/// What an attempt came to.
enum Step {
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
pub(super) struct Cards {
    shared: Arc<Shared>,
    source: CommandSource,
    orders: mpsc::Receiver<GateId>,
    meter: Meter,
    due: BTreeMap<GateId, Due>,
    known: BTreeMap<GateId, Known>,
    calls: BTreeMap<CallId, GateId>,
    wholes: VecDeque<Whole>,
    /// Until when the server is left alone, and how long it will be the next time.
    quiet: Instant,
    backoff: Backoff,
}

impl Cards {
    pub(super) fn new(
        shared: Arc<Shared>,
        source: CommandSource,
        orders: mpsc::Receiver<GateId>,
        rates: Rates,
    ) -> Self {
        Self {
            shared,
            source,
            orders,
            meter: Meter::new(rates),
            due: BTreeMap::new(),
            known: BTreeMap::new(),
            calls: BTreeMap::new(),
            wholes: VecDeque::new(),
            quiet: Instant::now(),
            backoff: Backoff::default(),
        }
    }

    pub(super) async fn run(mut self) {
        let of_cards = |recorded: &Arc<RecordedFact>| {
            matches!(recorded.fact.event, Event::Gate(_) | Event::Call(call::Event::Ended { .. }))
                .then(|| Arc::clone(recorded))
        };
        let Some(mut facts) = self.shared.handle.follow_facts(of_cards).await else { return };
        if !self.begin().await {
            return;
        }
        let stop = self.shared.stop.clone();
        loop {
            while let Some(recorded) = facts.try_next() {
                self.recorded(&recorded);
            }
            let now = Instant::now();
            if stop.is_cancelled() && (self.due.is_empty() || self.quiet > now) {
                return;
            }
            if self.quiet <= now {
                if let Some(gate) = self.due.iter().find(|(_, due)| due.at <= now).map(|(gate, _)| *gate) {
                    if !self.work(gate).await {
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
                    Some(recorded) => self.recorded(&recorded),
                    None => return,
                },
                Some(gate) = self.orders.recv() => self.order(gate),
                () = tokio::time::sleep_until(wake.unwrap_or(now)), if wake.is_some() => {}
                () = stop.cancelled(), if !stop.is_cancelled() => {}
            }
        }
    }

    /// Finds what another process left: gates that wait, and gates whose cards do not say how they ended.
    async fn begin(&mut self) -> bool {
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
        let due = self.due.entry(gate).or_insert_with(|| Due { at: now, backoff: Backoff::default(), tries: 0 });
        // One that waits for its turn or was refused goes on waiting.
        if due.tries == 0 {
            due.at = now;
        }
    }

    fn recorded(&mut self, recorded: &RecordedFact) {
        match &recorded.fact.event {
            Event::Gate(gate::Event::Opened { gate, call, .. }) => {
                self.calls.extend(call.map(|call| (call, *gate)));
                self.look_at(*gate);
            }
            Event::Gate(gate::Event::Resolved { gate, .. }) => {
                // What it waited for has changed.
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
                    self.known.entry(gate).or_default().end = Some(Seen { end: *end, away });
                    self.look_at(gate);
                }
            }
            _ => {}
        }
    }

    /// Does what is owed for one gate. False if nothing works any more.
    async fn work(&mut self, gate: GateId) -> bool {
        let step = match self.look(gate).await {
            Ok(None) => {
                self.known.remove(&gate);
                Step::Settled
            }
            Ok(Some(look)) if look.gate.is_pending() => self.show(look).await,
            Ok(Some(look)) => self.update(look).await,
            Err(step) => step,
        };
        match step {
            Step::Settled => {
                self.due.remove(&gate);
            }
            Step::At(at) => {
                if let Some(due) = self.due.get_mut(&gate) {
                    due.at = at;
                }
            }
            Step::Later => {
                if let Some(due) = self.due.get_mut(&gate) {
                    due.tries += 1;
                    due.at = Instant::now() + due.backoff.next();
                }
            }
            Step::Over => return false,
        }
        true
    }

    /// Sends the card of a gate that waits, unless there is one.
    async fn show(&mut self, look: Look) -> Step {
        let id = look.gate.id();
        if let Some(place) = look.unrecorded.first() {
            return self.record_shown(id, *place).await;
        }
        if self.shared.stop.is_cancelled() {
            return Step::Settled;
        }
        let Some(asked) = look.asked else { return Step::Settled };
        if let Some(place) = look.changed.first() {
            let is_earlier = look.earlier.contains(place);
            return self.change(&look.gate, asked, *place, is_earlier).await;
        }
        if look.places.len() > look.earlier.len() {
            return Step::Settled;
        }
        let chat = self.shared.chat();
        if let Some(at) = self.turn(Writing::Message, chat) {
            return Step::At(at);
        }
        let now = self.shared.clock.now();
        let text = asked.waiting(Stage::First, now, time_of_day);
        let keys = asked.keys(&self.shared.refs, asked.fits(now, time_of_day));
        self.known.entry(id).or_default().asked = Some(asked);
        let sent = self.shared.bot.send(self.shared.target(chat, None), &text, Some(&keys)).await;
        self.meter.wrote(Writing::Message, Instant::now());
        match sent {
            Ok(message) => {
                self.backoff = Backoff::default();
                let place = Place { chat: message.chat.id, message: message.message_id };
                let known = self.known.entry(id).or_default();
                known.sent.push(place);
                known.revisions.insert(place, look.gate.revision());
                self.record_shown(id, place).await
            }
            Err(failure) => self.failed(&failure),
        }
    }

    /// Edits a card of a gate that waits: to what has changed, or to say that it is asked again elsewhere.
    async fn change(&mut self, gate: &gate::Gate, asked: Asked, place: Place, is_earlier: bool) -> Step {
        let id = gate.id();
        if let Some(at) = self.turn(Writing::Edit, place.chat) {
            return Step::At(at);
        }
        let now = self.shared.clock.now();
        let edited = if is_earlier {
            self.shared.bot.edit(place.chat, place.message, &asked.moved(), None).await
        } else {
            let is_whole = self.known.get(&id).is_some_and(|known| known.is_whole);
            let stage = if is_whole { Stage::ShownWhole } else { Stage::First };
            let text = asked.waiting(stage, now, time_of_day);
            let keys = asked.keys(&self.shared.refs, is_whole || asked.fits(now, time_of_day));
            self.shared.bot.edit(place.chat, place.message, &text, Some(&keys)).await
        };
        self.meter.wrote(Writing::Edit, Instant::now());
        match edited {
            Ok(()) => self.backoff = Backoff::default(),
            Err(Failure::Harmless(_) | Failure::Moved(_) | Failure::Refused(_)) => {}
            Err(failure) => return self.failed(&failure),
        }
        let known = self.known.entry(id).or_default();
        known.asked = Some(asked);
        known.revisions.insert(place, gate.revision());
        Step::At(Instant::now())
    }

    async fn record_shown(&mut self, gate: GateId, place: Place) -> Step {
        let shown = gate::Command::Shown { gate, surface: SURFACE.to_owned(), reference: place.to_string() };
        match self.source.send_command(Command::Gate(shown)).await {
            Ok(_) => {
                // Whether or not it was one too many to be recorded, there is nothing more to tell.
                if let Some(known) = self.known.get_mut(&gate) {
                    known.sent.retain(|sent| *sent != place);
                }
                // Looked at once more: it may have ended meanwhile.
                Step::At(Instant::now())
            }
            Err(error) => {
                tracing::warn!(%gate, %error, "a card was sent and could not be recorded");
                Step::Later
            }
        }
    }

    /// Edits the cards of a gate that ended.
    async fn update(&mut self, look: Look) -> Step {
        let id = look.gate.id();
        if let Some(place) = look.unrecorded.first() {
            return self.record_shown(id, *place).await;
        }
        let Some(asked) = look.asked else { return Step::Settled };
        let Some(ending) = look.ending else { return Step::Settled };
        let text = asked.ended(&ending);
        self.known.entry(id).or_default().asked = Some(asked);
        for place in look.places {
            let is_said = self.known.get(&id).is_some_and(|known| known.said.get(&place) == Some(&text));
            if !is_said {
                if let Some(at) = self.turn(Writing::Edit, place.chat) {
                    return Step::At(at);
                }
                let edited = self.shared.bot.edit(place.chat, place.message, &text, None).await;
                self.meter.wrote(Writing::Edit, Instant::now());
                match edited {
                    Ok(()) => self.backoff = Backoff::default(),
                    // A message of a chat that moved away cannot be reached; nor one that was deleted.
                    Err(Failure::Harmless(_) | Failure::Moved(_)) => {}
                    Err(Failure::Refused(_)) if self.due.get(&id).is_some_and(|due| due.tries + 1 >= TRIES) => {
                        tracing::warn!(gate = %id, "a card cannot be edited; it stays as it is");
                    }
                    Err(failure) => return self.failed(&failure),
                }
                self.known.entry(id).or_default().said.insert(place, text.clone());
            }
            if look.is_final {
                let updated =
                    gate::Command::Updated { gate: id, surface: SURFACE.to_owned(), reference: place.to_string() };
                if let Err(error) = self.source.send_command(Command::Gate(updated)).await {
                    tracing::warn!(gate = %id, %error, "a card was edited and that could not be recorded");
                    return Step::Later;
                }
            }
        }
        if look.is_final {
            self.known.remove(&id);
        }
        Step::Settled
    }

    /// Somebody wants to see a whole text.
    fn order(&mut self, gate: GateId) {
        let asked = self.known.get(&gate).and_then(|known| known.asked.as_ref());
        let is_on_its_way = self.wholes.iter().any(|whole| whole.gate == gate);
        if is_on_its_way {
            return;
        }
        // After a restart it is made from the record, with the first part.
        let parts = asked.and_then(Asked::parts).unwrap_or_default().into();
        self.wholes.push_back(Whole { gate, parts, at: Instant::now() });
    }

    /// Sends the next part of a whole text; behind the last the card gets its other buttons.
    async fn send_part(&mut self) -> bool {
        let Some(mut whole) = self.wholes.pop_front() else { return true };
        let look = match self.look(whole.gate).await {
            Ok(Some(look)) if look.gate.is_pending() => look,
            // Nobody needs it any more.
            Ok(_) => return true,
            Err(Step::Over) => return false,
            Err(_) => {
                whole.at = Instant::now() + Duration::from_secs(1);
                self.wholes.push_front(whole);
                return true;
            }
        };
        let Some((asked, place)) = look.asked.zip(look.places.last().copied()) else { return true };
        let is_new = self.known.get(&whole.gate).is_none_or(|known| known.asked.is_none());
        if is_new || whole.parts.is_empty() {
            whole.parts = asked.parts().unwrap_or_default().into();
            self.known.entry(whole.gate).or_default().asked = Some(asked.clone());
        }
        let Some(part) = whole.parts.front() else { return true };
        if let Some(at) = self.turn(Writing::Message, place.chat) {
            whole.at = at;
            self.wholes.push_front(whole);
            return true;
        }
        let to = self.shared.target(place.chat, Some(place.message));
        let sent = self.shared.bot.send(to, part, None).await;
        self.meter.wrote(Writing::Message, Instant::now());
        let result = match sent {
            Ok(_) => {
                whole.parts.pop_front();
                if !whole.parts.is_empty() {
                    self.wholes.push_front(whole);
                    return true;
                }
                let text = asked.waiting(Stage::ShownWhole, self.shared.clock.now(), time_of_day);
                let keys = asked.keys(&self.shared.refs, true);
                self.known.entry(whole.gate).or_default().is_whole = true;
                self.shared.bot.edit(place.chat, place.message, &text, Some(&keys)).await
            }
            Err(failure) => Err(failure),
        };
        match result {
            Ok(()) | Err(Failure::Harmless(_) | Failure::Refused(_) | Failure::Moved(_)) => true,
            Err(Failure::Token(_)) => false,
            Err(failure) => {
                let _ = self.failed(&failure);
                whole.at = self.quiet;
                self.wholes.push_front(whole);
                true
            }
        }
    }

    /// When it may be written, if not now.
    fn turn(&mut self, writing: Writing, chat: i64) -> Option<Instant> {
        let now = Instant::now();
        let at = self.meter.ready(writing, chat < 0, now);
        (at > now).then_some(at)
    }

    /// What a failure means for what was tried, and for everything else.
    fn failed(&mut self, failure: &Failure) -> Step {
        match failure {
            Failure::Token(_) => Step::Over,
            Failure::Moved(chat) => {
                self.shared.moved(*chat);
                Step::At(Instant::now())
            }
            Failure::Refused(_) | Failure::Harmless(_) => Step::Later,
            Failure::Wait(wait) => {
                // The server counts from when it said so; half a second is for the way.
                self.quiet = Instant::now() + *wait + Duration::from_millis(500);
                Step::At(self.quiet)
            }
            Failure::Conflict(_) | Failure::Unreachable(_) => {
                self.quiet = Instant::now() + self.backoff.next();
                Step::At(self.quiet)
            }
        }
    }
}

impl Seen {
    /// Whether there is nothing more to say than that it was allowed.
    const fn is_plain(self) -> bool {
        matches!(self.end, CallEnd::Done { error: false }) && !self.away
    }
}
