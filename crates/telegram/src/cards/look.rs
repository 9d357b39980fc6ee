//! How a gate stands, with everything that its card says.

use std::sync::Arc;

use countersign_core::{
    call::{self, CallEnd},
    engine::{Engine, ResidencyScope as At},
    gate::{self, Gate, GateResolution},
    id::GateId,
};
use countersign_view::{GateRequest, GateSummary, gate_summary::proposals};
use tokio::time::Instant;

use super::{
    super::{
        SHUTDOWN, SURFACE,
        card::{Asked, Ending, Outcome},
        refs::Place,
        time_of_day,
    },
    Cards, Step,
};

/// How a call ended that was allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) end: CallEnd,
    /// Whether the agent was not there to hear of it.
    pub(super) away: bool,
}

/// One gate.
pub(super) struct Look {
    pub(super) gate: Gate,
    /// What is asked; absent if this surface cannot show it.
    pub(super) asked: Option<Asked>,
    /// The cards that do not say how it ended.
    pub(super) places: Vec<Place>,
    /// Those of them that show an earlier round, and those whose last change is not shown.
    pub(super) earlier: Vec<Place>,
    pub(super) changed: Vec<Place>,
    /// Those of them that the record does not know.
    pub(super) unrecorded: Vec<Place>,
    /// How it ended, if it did.
    pub(super) ending: Option<Ending>,
    /// Whether nothing more will be said about it.
    pub(super) is_final: bool,
}

/// What the engine says of a gate.
struct Stand {
    gate: Gate,
    /// What the call wants, as long as it is open.
    call: Option<Arc<call::CallDetails>>,
    is_open: bool,
    /// How it ended, as long as the agent has not received that.
    end: Option<Seen>,
    /// The rules that are proposed for it.
    rules: Vec<String>,
    /// Where it would run.
    folder: Option<String>,
}

impl Cards {
    /// Looks at a gate; `None` if there is nothing to do for it.
    pub(super) async fn look(&self, id: GateId) -> Result<Option<Look>, Step> {
        let presence = Arc::clone(&self.shared.presence);
        let read = self.source.read_of(At::Gate(id), move |engine| stand(engine, id, &*presence));
        let Some((found, _)) = read.await else { return Err(Step::Later) };
        let Some(Stand { gate, call, is_open, end, rules, folder }) = found else { return Ok(None) };
        let known = self.known.get(&id);
        let of = |showing: &gate::GateSurface| (showing.surface == SURFACE).then(|| showing.reference.parse().ok())?;
        let recorded: Vec<Place> = gate.shown_surfaces().iter().filter_map(of).collect();
        let open = gate.shown_surfaces().iter().filter(|showing| !showing.is_final).filter_map(of);
        let sent = known.map(|known| known.sent.as_slice()).unwrap_or_default();
        let unrecorded: Vec<Place> = sent.iter().copied().filter(|place| !recorded.contains(place)).collect();
        let places: Vec<Place> = open.chain(unrecorded.iter().copied()).collect();
        if !gate.is_pending() && places.is_empty() {
            return Ok(None);
        }
        let asked = match known.and_then(|known| known.asked.clone()) {
            Some(asked) => Some(asked.at(&gate)),
            None => self.asked(&gate, call.as_deref(), rules, folder.as_deref()).await?,
        };
        let showings = gate.shown_surfaces().iter().filter_map(|showing| Some((of(showing)?, showing)));
        let earlier: Vec<Place> =
            showings.clone().filter(|(_, showing)| showing.round < gate.round()).map(|(place, _)| place).collect();
        let said = |place: &Place| known.and_then(|known| known.revisions.get(place).copied());
        let changed = showings
            .filter(|(place, showing)| said(place).unwrap_or(showing.revision) < gate.revision())
            .map(|(place, _)| place)
            .collect();
        let end = known.and_then(|known| known.end).or(end);
        let ending = match gate.phase() {
            gate::GatePhase::Pending => None,
            gate::GatePhase::Resolved { resolution, by, at, .. } => {
                let lets_run = matches!(resolution, GateResolution::Allowed { .. } | GateResolution::Granted);
                Some(Ending {
                    resolution: resolution.clone(),
                    by: by.as_ref().map(|by| self.shared.name(by)),
                    shutdown: by.as_ref().is_some_and(|by| by.as_str() == SHUTDOWN),
                    at: time_of_day(*at),
                    reason: self.reason(&gate).await?,
                    outcome: end.filter(|end| lets_run && !end.is_plain()).map(outcome),
                })
            }
        };
        Ok(Some(Look { gate, asked, places, earlier, changed, unrecorded, ending, is_final: !is_open }))
    }

    async fn asked(
        &self,
        gate: &Gate,
        call: Option<&call::CallDetails>,
        rules: Vec<String>,
        folder: Option<&str>,
    ) -> Result<Option<Asked>, Step> {
        let Ok(mut texts) = self.shared.handle.contents().get(&[gate.content_lsn()]).await else {
            return Err(Step::Later);
        };
        let request = texts.pop().flatten().and_then(|text| GateRequest::from_record(&text));
        Ok(request.map(|request| Asked::new(gate, &request, call, rules, folder)))
    }

    /// What a person said with a denial, or as an answer.
    async fn reason(&self, gate: &Gate) -> Result<Option<String>, Step> {
        let says = matches!(gate.resolution(), Some(GateResolution::Denied | GateResolution::Answered));
        let Some(at) = gate.answer_content().filter(|_| says) else { return Ok(None) };
        let texts = self.shared.handle.contents().get(&[at]).await;
        let mut texts = texts.map_err(|_| Step::At(Instant::now() + std::time::Duration::from_secs(1)))?;
        let text = texts.pop().flatten();
        let text = text.map(|text| gate::parse_words(&text).map_or_else(|| text.to_string(), |said| said.join(" + ")));
        Ok(text.filter(|reason| !reason.trim().is_empty()))
    }
}

fn stand(
    engine: &Engine,
    id: GateId,
    is_present: &(dyn Fn(&countersign_core::id::SessionId) -> bool + Send + Sync),
) -> Option<Stand> {
    let state = engine.state();
    let gate = state.gate(id)?.clone();
    let call = gate.call().and_then(|call| state.call(call)).filter(|call| !call.is_over());
    let requester = gate.session().and_then(|session| state.session(session)?.agent_requests());
    let outcome = gate.call().and_then(|call| requester?.results().get(&call));
    let end = outcome.map(|outcome| {
        // What it has not received and is not here for, it was away for.
        let away = gate.session().is_some_and(|session| !is_present(session));
        Seen { end: outcome.end, away }
    });
    let content = call.and_then(|call| engine.admitted().call_content(call.id()).cloned());
    let rules = proposals(engine, &gate);
    let folder = GateSummary::at_hand(engine, &gate).and_then(|summary| summary.folder);
    Some(Stand { is_open: call.is_some(), call: content, end, rules, folder, gate })
}

fn outcome(seen: Seen) -> Outcome {
    match seen.end {
        CallEnd::Done { error: false } => Outcome::DoneWhileAway,
        CallEnd::Done { error: true } => Outcome::Failed,
        CallEnd::Unknown => Outcome::Unknown,
        CallEnd::Failed
        | CallEnd::Denied
        | CallEnd::Refused
        | CallEnd::Expired
        | CallEnd::Limited
        | CallEnd::Skipped
        | CallEnd::Cancelled => Outcome::NotRun,
    }
}
