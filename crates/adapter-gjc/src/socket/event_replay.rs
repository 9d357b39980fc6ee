//! Events that earlier processes sent about a session, rebuilt from its log for a client that missed them.
//!
//! Content that was sent in pieces, as it came, is not in a log: it comes whole. Facts record which number was reached whenever nothing
//! worked ([`Event::SequenceRecorded`]); a client that has everything up to such a position gets the events after it and nothing twice. It
//! must not know which client asks. Source: docs/protocol/gjc.md, Socket.

use std::collections::VecDeque;

use bytes::Bytes;
use countersign_adapter_omp::{EarlierEvents, EventEncoder, KEPT_EVENTS, OutgoingFrame, for_each_frame};
use countersign_core::{
    engine::{Event as Happened, Fact, FactMeta, RecordedFact},
    id::{Lsn, SessionId},
    ledger::BudgetBreach,
    session::Event,
    unattended::{BreachPoint, Event as Contract},
};
use countersign_protocol::{
    RawJson, encode_line,
    gjc::{GjcEnvelope, bridge::ResetPayload, event::FrameType},
    omp,
};
use countersign_runtime::{
    OwnerHandle,
    store::{Log as _, Partition, ReadScope, StoredRecord},
};
use tokio::sync::OnceCell;

use crate::{
    contract_terms::{ContractIds, phase_of},
    envelope_writer::{EnvelopeWriter, order_run_end},
};

/// Number of records that are read at once.
const PAGE: usize = 512;
/// Maximum number of bytes of events that are kept.
const MOST_BYTES: usize = 64 << 20;

/// Events that earlier processes sent about a session.
pub(super) struct EventReplay {
    handle: OwnerHandle,
    session: SessionId,
    /// Number after which this process counts.
    until: u64,
    replayed: OnceCell<ReplayedFrames>,
}

/// All events that can be replayed.
#[derive(Debug, Default)]
struct ReplayedFrames {
    /// Frames, oldest first, each with the record that it is about and a number of its own, after all numbers that were used.
    frames: Vec<(Lsn, u64, Bytes)>,
    /// Last number that was sent whenever nothing worked, oldest first.
    rests: Vec<(u64, Lsn)>,
    /// True if there were more events than are kept.
    is_cut: bool,
}

/// An event on its way into a frame.
enum ReplayedEvent {
    Event(omp::OmpEvent),
    Pause(Vec<RawJson>),
    /// The end of a run whose budget was used up, and how it was.
    Broken(omp::OmpEvent, RawJson),
}

impl EventReplay {
    /// Reads `events` when a client first asks for them.
    pub(super) fn new(events: EarlierEvents) -> Self {
        let EarlierEvents { handle, session, until } = events;
        Self { handle, session, until, replayed: OnceCell::new() }
    }

    /// Returns all frames after the event `after`. If these cannot be determined exactly, a frame that reports it comes first, and then
    /// all frames that may be missing.
    pub(super) async fn frames_after(&self, after: u64) -> Vec<Bytes> {
        let replayed = self.replayed.get_or_init(|| async {
            self.read_log().await.unwrap_or_else(|problem| {
                tracing::warn!(%problem, "failed to replay earlier events");
                ReplayedFrames { is_cut: true, ..ReplayedFrames::default() }
            })
        });
        replayed.await.frames_after(after, |first| self.reset_frame(first, self.until))
    }

    fn reset_frame(&self, first: Option<u64>, until: u64) -> Bytes {
        reset_frame(self.session.as_str(), first.unwrap_or(until + 1))
    }

    async fn read_log(&self) -> Result<ReplayedFrames, String> {
        let problem = |error: &dyn std::fmt::Display| format!("the log cannot be read: {error}");
        let (mut builder, mut after) = (ReplayBuilder::default(), Lsn(0));
        loop {
            let page =
                self.handle.log().read_scope(Partition::ZERO, ReadScope::Session(&self.session), after, PAGE).await;
            let page = page.map_err(|error| problem(&error))?;
            for stored in &page {
                let event = Happened::decode(&stored.kind, stored.version, &stored.facts);
                let event = event.map_err(|error| problem(&error))?;
                if let Happened::Session(Event::SequenceRecorded { number, upto }) = &event {
                    if *number == self.until {
                        return Ok(builder.into_frames(&self.session, self.until));
                    }
                    builder.rests.push((*number, upto.unwrap_or(stored.lsn)));
                    continue;
                }
                let content = self.read_content(&event, stored).await.map_err(|error| problem(&error))?;
                builder.apply_event(event, content.as_deref(), stored);
            }
            match page.last() {
                Some(last) if page.len() == PAGE => after = last.lsn,
                _ => return Ok(builder.into_frames(&self.session, self.until)),
            }
        }
    }

    async fn read_content(
        &self,
        event: &Happened,
        stored: &StoredRecord,
    ) -> Result<Option<std::sync::Arc<str>>, impl std::fmt::Display + use<>> {
        let at = match event {
            Happened::Session(Event::Entry { content_at: Some(at), .. }) => Some(*at),
            _ => stored.content_digest.map(|_| stored.lsn),
        };
        match at {
            Some(at) => self.handle.contents().get(&[at]).await.map(|mut texts| texts.pop().flatten()),
            None => Ok(None),
        }
    }
}

/// The telling of a log, as far as it has been read.
#[derive(Default)]
struct ReplayBuilder {
    encoder: EventEncoder,
    kept: VecDeque<(Lsn, ReplayedEvent)>,
    rests: Vec<(u64, Lsn)>,
    is_cut: bool,
    /// The session that the contract was first declared in.
    under: String,
    /// The breach with a pending approval, and the one for which the run is being ended.
    pending_breach: Option<(BudgetBreach, BreachPoint)>,
    breach: Option<RawJson>,
}

impl ReplayBuilder {
    /// Notes what a contract does to the run that works.
    fn apply_contract(&mut self, event: &Contract, session: &SessionId) {
        let over = match event {
            Contract::Declared { under, .. } => {
                self.under = under.to_string();
                None
            }
            Contract::Breached { breach, place, gate: Some(_) } => {
                self.pending_breach = Some((*breach, place.clone()));
                None
            }
            Contract::Breached { breach, place, gate: None } => Some((*breach, place.clone())),
            Contract::Extended { .. } => {
                self.pending_breach = None;
                None
            }
            Contract::Ended => self.pending_breach.take(),
            _ => None,
        };
        if let Some((breach, place)) = over.filter(|_| self.encoder.is_running()) {
            let of = ContractIds { run: self.under.clone(), session: session.to_string() };
            self.breach = Some(of.exceeded_error(breach, phase_of(&place)));
        }
    }

    fn apply_event(&mut self, event: Happened, content: Option<&str>, stored: &StoredRecord) {
        if let (Happened::Unattended(event), Some(session)) = (&event, &stored.session) {
            self.apply_contract(event, session);
        }
        let fact = Fact { event, session: stored.session.clone(), content: None };
        let meta = FactMeta { lsn: stored.lsn, at: stored.at, session: stored.session.clone() };
        let mut events = Vec::new();
        self.encoder.encode_fact(&RecordedFact { fact, meta }, content, &mut events);
        order_run_end(&mut events);
        for_each_frame(&events, |frame| {
            let kept = match frame {
                OutgoingFrame::Event(omp::OmpEvent::AgentSettled) => return,
                OutgoingFrame::Event(event) => {
                    match self.breach.take_if(|_| matches!(event, omp::OmpEvent::AgentEnd { .. })) {
                        Some(error) => ReplayedEvent::Broken(event.clone(), error),
                        None => ReplayedEvent::Event(event.clone()),
                    }
                }
                OutgoingFrame::Pause { messages } => ReplayedEvent::Pause(messages.to_vec()),
                _ => return,
            };
            self.kept.push_back((stored.lsn, kept));
        });
        while self.kept.len() as u64 > KEPT_EVENTS {
            self.kept.pop_front();
            self.is_cut = true;
        }
    }

    /// Puts everything into frames, of which the last has the number `until`.
    fn into_frames(self, session: &SessionId, until: u64) -> ReplayedFrames {
        let Self { kept, rests, mut is_cut, .. } = self;
        let mut writer = EnvelopeWriter::default();
        writer.set_session(session);
        writer.continue_after(until.saturating_sub(kept.len() as u64));
        let mut frames = VecDeque::with_capacity(kept.len());
        let mut bytes = 0;
        for (lsn, kept) in kept {
            let line = match &kept {
                ReplayedEvent::Event(event) => writer.encode_frame(OutgoingFrame::Event(event)),
                ReplayedEvent::Pause(messages) => writer.encode_frame(OutgoingFrame::Pause { messages }),
                ReplayedEvent::Broken(event, error) => {
                    writer.set_breach(error.clone());
                    writer.encode_frame(OutgoingFrame::Event(event))
                }
            };
            let Some(line) = line else { continue };
            bytes += line.len();
            frames.push_back((lsn, writer.last_seq(), line));
            while bytes > MOST_BYTES
                && let Some((_, _, line)) = frames.pop_front()
            {
                bytes -= line.len();
                is_cut = true;
            }
        }
        ReplayedFrames { frames: frames.into(), rests, is_cut }
    }
}

impl ReplayedFrames {
    fn frames_after(&self, after: u64, reset: impl FnOnce(Option<u64>) -> Bytes) -> Vec<Bytes> {
        let again = self.frames.first().is_some_and(|(_, first, _)| *first <= after);
        let (from, is_exact) = if again {
            // This process sent it.
            (self.frames.partition_point(|(_, number, _)| *number <= after), true)
        } else {
            let at = self.rests.partition_point(|(number, _)| *number <= after);
            let (number, lsn) = at.checked_sub(1).map_or((0, Lsn(0)), |at| self.rests[at]);
            let from = self.frames.partition_point(|(about, ..)| *about <= lsn);
            (from, number == after && !(self.is_cut && from == 0))
        };
        let frames = &self.frames[from..];
        let first = frames.first().map(|(_, number, _)| *number);
        let says = (!is_exact && (first.is_some() || self.is_cut)).then(|| reset(first));
        says.into_iter().chain(frames.iter().map(|(.., line)| line.clone())).collect()
    }
}

/// Returns the frame that precedes frames of which a client may know some, or before which it misses some.
pub(super) fn reset_frame(session: &str, first: u64) -> Bytes {
    let reset = ResetPayload::new(first);
    let (id, seq) = reset.frame_id_and_seq();
    encode_line(&GjcEnvelope::new(FrameType::Reset, session.to_owned(), seq, id, reset))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use countersign_core::id::Lsn;

    use super::ReplayedFrames;

    fn replayed_frames(is_cut: bool) -> ReplayedFrames {
        let frame = |at: u64, number: u64| (Lsn(at), number, Bytes::from(number.to_string()));
        // Two runs; the process that had the second sent it from 8 on.
        let frames = vec![frame(2, 96), frame(4, 97), frame(4, 98), frame(7, 99), frame(9, 100)];
        ReplayedFrames { frames, rests: vec![(7, Lsn(5)), (50, Lsn(6))], is_cut }
    }

    fn lines_after(replayed: &ReplayedFrames, after: u64) -> Vec<String> {
        let reset = |first: Option<u64>| Bytes::from(format!("reset {}", first.unwrap_or_default()));
        replayed.frames_after(after, reset).iter().map(|line| String::from_utf8(line.to_vec()).unwrap()).collect()
    }

    #[test]
    fn a_client_with_a_known_position_gets_the_rest_and_any_other_gets_a_notice_and_all_that_may_be_missing() {
        for (case, after, want) in [
            ("nothing yet", 0, &["96", "97", "98", "99", "100"][..]),
            ("within the first run", 3, &["reset 96", "96", "97", "98", "99", "100"]),
            ("at its end", 7, &["99", "100"]),
            ("within the second", 9, &["reset 99", "99", "100"]),
            ("behind a process that told nothing else", 50, &["99", "100"]),
            ("told again by this process", 98, &["99", "100"]),
            ("all of it", 100, &[]),
        ] {
            assert_eq!(lines_after(&replayed_frames(false), after), want, "{case}");
        }
        assert_eq!(lines_after(&replayed_frames(true), 0)[0], "reset 96", "what is not kept");
        assert_eq!(lines_after(&replayed_frames(true), 7), ["99", "100"]);
    }
}
