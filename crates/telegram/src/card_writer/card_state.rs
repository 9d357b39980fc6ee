//! State of a gate, with the texts of its card.

use std::sync::Arc;

use countersign_core::{
    call::{self, CallEnd},
    engine::{Engine, ResidencyScope as At},
    gate::{self, Gate, GateResolution},
    id::GateId,
};
use countersign_view::{GateRequest, GateSummary, gate_summary::proposal_patterns};
use tokio::time::Instant;

use super::{
    super::{
        SHUTDOWN, SURFACE,
        refs::CardLocation,
        telegram_card::{CardContent, CardEnding, CardOutcome},
        time_of_day,
    },
    AttemptResult, CardWriter,
};

/// End of an allowed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallEnding {
    pub(super) end: CallEnd,
    /// True if the agent was not there to receive it.
    pub(super) away: bool,
}

/// One gate.
pub(super) struct CardSnapshot {
    pub(super) gate: Gate,
    /// Its request; absent if this surface cannot show it.
    pub(super) request: Option<CardContent>,
    /// The cards that do not say how it ended.
    pub(super) places: Vec<CardLocation>,
    /// Cards that show an earlier round, and those whose last change is not shown.
    pub(super) earlier: Vec<CardLocation>,
    pub(super) changed: Vec<CardLocation>,
    /// Cards that the record does not know.
    pub(super) unrecorded: Vec<CardLocation>,
    /// Its end, if it did.
    pub(super) ending: Option<CardEnding>,
    /// True if its card will not change any more.
    pub(super) is_final: bool,
}

/// State of a gate in the engine.
struct CardState {
    gate: Gate,
    /// Tool and arguments of the call, as long as it is open.
    call: Option<Arc<call::CallDetails>>,
    is_open: bool,
    /// End of the call, as long as the agent has not received that.
    end: Option<CallEnding>,
    /// The rules that are proposed for it.
    rules: Vec<String>,
    /// Folder in which it would run.
    folder: Option<String>,
}

impl CardWriter {
    /// Looks at a gate; `None` if there is nothing to do for it.
    pub(super) async fn card_snapshot(&self, id: GateId) -> Result<Option<CardSnapshot>, AttemptResult> {
        let presence = Arc::clone(&self.shared.presence);
        let read = self.source.read_of(At::Gate(id), move |engine| read_card_state(engine, id, &*presence));
        let Some((found, _)) = read.await else { return Err(AttemptResult::Later) };
        let Some(CardState { gate, call, is_open, end, rules, folder }) = found else { return Ok(None) };
        let known = self.known.get(&id);
        let of = |showing: &gate::GateSurface| (showing.surface == SURFACE).then(|| showing.reference.parse().ok())?;
        let recorded: Vec<CardLocation> = gate.shown_surfaces().iter().filter_map(of).collect();
        let open = gate.shown_surfaces().iter().filter(|showing| !showing.is_final).filter_map(of);
        let sent = known.map(|known| known.sent.as_slice()).unwrap_or_default();
        let unrecorded: Vec<CardLocation> = sent.iter().copied().filter(|place| !recorded.contains(place)).collect();
        let places: Vec<CardLocation> = open.chain(unrecorded.iter().copied()).collect();
        if !gate.is_pending() && places.is_empty() {
            return Ok(None);
        }
        let request = match known.and_then(|known| known.request.clone()) {
            Some(request) => Some(request.updated_for(&gate)),
            None => self.card_request(&gate, call.as_deref(), rules, folder.as_deref()).await?,
        };
        let showings = gate.shown_surfaces().iter().filter_map(|showing| Some((of(showing)?, showing)));
        let earlier: Vec<CardLocation> =
            showings.clone().filter(|(_, showing)| showing.round < gate.round()).map(|(place, _)| place).collect();
        let shown_revision = |place: &CardLocation| known.and_then(|known| known.revisions.get(place).copied());
        let changed = showings
            .filter(|(place, showing)| shown_revision(place).unwrap_or(showing.revision) < gate.revision())
            .map(|(place, _)| place)
            .collect();
        let end = known.and_then(|known| known.end).or(end);
        let ending = match gate.phase() {
            gate::GatePhase::Pending => None,
            gate::GatePhase::Resolved { resolution, by, at, .. } => {
                let lets_run = matches!(resolution, GateResolution::Allowed { .. } | GateResolution::Granted);
                Some(CardEnding {
                    resolution: resolution.clone(),
                    by: by.as_ref().map(|by| self.shared.display_name(by)),
                    shutdown: by.as_ref().is_some_and(|by| by.as_str() == SHUTDOWN),
                    at: time_of_day(*at),
                    reason: self.answer_reason(&gate).await?,
                    outcome: end.filter(|end| lets_run && !end.is_plain()).map(card_outcome),
                })
            }
        };
        Ok(Some(CardSnapshot { gate, request, places, earlier, changed, unrecorded, ending, is_final: !is_open }))
    }

    async fn card_request(
        &self,
        gate: &Gate,
        call: Option<&call::CallDetails>,
        rules: Vec<String>,
        folder: Option<&str>,
    ) -> Result<Option<CardContent>, AttemptResult> {
        let Ok(mut texts) = self.shared.handle.contents().get(&[gate.content_lsn()]).await else {
            return Err(AttemptResult::Later);
        };
        let request = texts.pop().flatten().and_then(|text| GateRequest::from_record(&text));
        Ok(request.map(|request| CardContent::new(gate, &request, call, rules, folder)))
    }

    /// Returns a person's text with a denial, or as an answer.
    async fn answer_reason(&self, gate: &Gate) -> Result<Option<String>, AttemptResult> {
        let says = matches!(gate.resolution(), Some(GateResolution::Denied | GateResolution::Answered));
        let Some(at) = gate.answer_content().filter(|_| says) else { return Ok(None) };
        let texts = self.shared.handle.contents().get(&[at]).await;
        let mut texts = texts.map_err(|_| AttemptResult::At(Instant::now() + std::time::Duration::from_secs(1)))?;
        let text = texts.pop().flatten();
        let text =
            text.map(|text| gate::parse_words(&text).map_or_else(|| text.to_string(), |parts| parts.join(" + ")));
        Ok(text.filter(|reason| !reason.trim().is_empty()))
    }
}

fn read_card_state(
    engine: &Engine,
    id: GateId,
    is_present: &(dyn Fn(&countersign_core::id::SessionId) -> bool + Send + Sync),
) -> Option<CardState> {
    let state = engine.state();
    let gate = state.gate(id)?.clone();
    let call = gate.call().and_then(|call| state.call(call)).filter(|call| !call.is_over());
    let requester = gate.session().and_then(|session| state.session(session)?.agent_requests());
    let outcome = gate.call().and_then(|call| requester?.results().get(&call));
    let end = outcome.map(|outcome| {
        // An agent that has not received it and is not here was away.
        let away = gate.session().is_some_and(|session| !is_present(session));
        CallEnding { end: outcome.end, away }
    });
    let content = call.and_then(|call| engine.admitted().call_content(call.id()).cloned());
    let rules = proposal_patterns(engine, &gate);
    let folder = GateSummary::at_hand(engine, &gate).and_then(|summary| summary.folder);
    Some(CardState { is_open: call.is_some(), call: content, end, rules, folder, gate })
}

fn card_outcome(seen: CallEnding) -> CardOutcome {
    match seen.end {
        CallEnd::Done { error: false } => CardOutcome::DoneWhileAway,
        CallEnd::Done { error: true } => CardOutcome::Failed,
        CallEnd::Unknown => CardOutcome::Unknown,
        CallEnd::Failed
        | CallEnd::Denied
        | CallEnd::Refused
        | CallEnd::Expired
        | CallEnd::Limited
        | CallEnd::Skipped
        | CallEnd::Cancelled => CardOutcome::NotRun,
    }
}
