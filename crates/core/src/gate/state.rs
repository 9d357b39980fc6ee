//! The state of a gate, and the answers that count.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    command::{AnswerError, GateReply},
    event::{ApprovalScope, Event, Fallback, GateResolution, GateStage, Kind},
    step::{ApprovalStep, IdentityMap, OnExpiry, Vote},
    text_answers,
};
use crate::{
    digest::Digest,
    id::{CallId, GateId, Lsn, PrincipalId, RunId, SessionId},
    time::Millis,
};

/// Maximum number of times one gate can be shown. A surface that loses its cards does not show them for ever.
const MOST_SHOWN: usize = 32;

/// Phase of a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GatePhase {
    /// Pending.
    Pending,
    /// Resolved.
    Resolved {
        /// The outcome.
        resolution: GateResolution,
        /// The resolver.
        by: Option<PrincipalId>,
        /// Time of the resolution.
        at: Millis,
        /// The idempotency key of the answer that counted.
        key: Option<String>,
        /// The record that resolved it, with the answer's text.
        lsn: Lsn,
        /// Digest of the answer in the form of its adapter.
        #[serde(default)]
        form: Option<Digest>,
    },
}

/// Place where people see a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateSurface {
    /// The surface.
    pub surface: String,
    /// The surface's name for the gate.
    pub reference: String,
    /// True if it shows the outcome of the gate.
    pub is_final: bool,
    /// The gate's round when it was shown.
    #[serde(default)]
    pub round: u32,
    /// The gate's revision when it was shown.
    #[serde(default)]
    pub revision: u32,
}

/// One wait for a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    pub(crate) id: GateId,
    pub(crate) session: Option<SessionId>,
    pub(crate) kind: Kind,
    pub(crate) ordinal: u32,
    #[serde(default)]
    pub(crate) number: u32,
    pub(crate) stage: GateStage,
    pub(crate) run: Option<RunId>,
    pub(crate) call: Option<CallId>,
    pub(crate) subject: Digest,
    pub(crate) scopes: Vec<ApprovalScope>,
    pub(crate) opened_at: Millis,
    pub(crate) deadline: Option<Millis>,
    pub(crate) fallback: Fallback,
    /// Time at which approvers are reminded of it; none after the reminder.
    #[serde(default)]
    pub(crate) remind_at: Option<Millis>,
    pub(crate) content: Lsn,
    pub(crate) phase: GatePhase,
    #[serde(default)]
    pub(crate) shown: Vec<GateSurface>,
    #[serde(default)]
    pub(crate) steps: Vec<ApprovalStep>,
    #[serde(default)]
    pub(crate) step: u32,
    /// Number of times the approvers of this step were asked again.
    #[serde(default)]
    pub(crate) again: u32,
    #[serde(default)]
    pub(crate) round: u32,
    #[serde(default)]
    pub(crate) revision: u32,
    #[serde(default)]
    pub(crate) votes: Vec<Vote>,
}

impl Gate {
    pub(crate) fn from_opened(event: &Event, session: Option<SessionId>, lsn: Lsn, at: Millis) -> Option<Self> {
        let Event::Opened {
            gate,
            kind,
            ordinal,
            number,
            stage,
            run,
            call,
            subject,
            scopes,
            deadline,
            fallback,
            remind_at,
            steps,
        } = event
        else {
            return None;
        };
        Some(Self {
            id: *gate,
            session,
            kind: *kind,
            ordinal: *ordinal,
            number: *number,
            stage: stage.unwrap_or_else(|| kind.unsaid_stage()),
            run: *run,
            call: *call,
            subject: *subject,
            scopes: scopes.clone(),
            opened_at: at,
            deadline: *deadline,
            fallback: *fallback,
            remind_at: *remind_at,
            content: lsn,
            phase: GatePhase::Pending,
            shown: Vec::new(),
            steps: steps.clone(),
            step: 0,
            again: 0,
            round: 0,
            revision: 0,
            votes: Vec::new(),
        })
    }

    /// Returns its id.
    pub fn id(&self) -> GateId {
        self.id
    }

    /// Returns the session that it belongs to.
    pub fn session(&self) -> Option<&SessionId> {
        self.session.as_ref()
    }

    /// Returns the kind of its decision.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns its number among the gates of its session, from 1.
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Returns its number among those of its session in the same stage, from 1; 0 if it is not counted.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the stage in which it is counted, if it is.
    pub fn stage(&self) -> GateStage {
        self.stage
    }

    /// Returns the digest of its content, or of the action that it decides about.
    pub fn subject_digest(&self) -> Digest {
        self.subject
    }

    /// Returns the fallback at its deadline.
    pub fn fallback(&self) -> Fallback {
        self.fallback
    }

    /// Returns the run that waits.
    pub fn run(&self) -> Option<RunId> {
        self.run
    }

    /// Returns the call that waits.
    pub fn call(&self) -> Option<CallId> {
        self.call
    }

    /// Returns the scopes that an approval may have.
    pub fn scopes(&self) -> &[ApprovalScope] {
        &self.scopes
    }

    /// Returns the time at which it was opened.
    pub fn opened_at(&self) -> Millis {
        self.opened_at
    }

    /// Returns the time at which it expires.
    pub fn deadline(&self) -> Option<Millis> {
        self.deadline
    }

    /// Returns the time of its next timed event: a reminder, or its expiry. None once it is resolved.
    pub fn due_at(&self) -> Option<Millis> {
        let times = [self.deadline, self.remind_at].into_iter().flatten();
        if self.is_pending() { times.min() } else { None }
    }

    /// Returns the position of its content.
    pub fn content_lsn(&self) -> Lsn {
        self.content
    }

    /// Returns its phase.
    pub fn phase(&self) -> &GatePhase {
        &self.phase
    }

    /// Returns the outcome, if it was resolved.
    pub fn resolution(&self) -> Option<&GateResolution> {
        match &self.phase {
            GatePhase::Pending => None,
            GatePhase::Resolved { resolution, .. } => Some(resolution),
        }
    }

    /// Returns the resolver, if it has one.
    pub fn resolved_by(&self) -> Option<&PrincipalId> {
        match &self.phase {
            GatePhase::Pending => None,
            GatePhase::Resolved { by, .. } => by.as_ref(),
        }
    }

    /// Returns the position of the text of its answer, if it was answered.
    pub fn answer_content(&self) -> Option<Lsn> {
        match &self.phase {
            GatePhase::Pending => None,
            GatePhase::Resolved { lsn, .. } => Some(*lsn),
        }
    }

    /// Reports whether it is pending.
    pub fn is_pending(&self) -> bool {
        self.phase == GatePhase::Pending
    }

    /// Returns the step whose approvers have to allow now; none if any one approver can.
    pub fn current_step(&self) -> Option<&ApprovalStep> {
        self.steps.get(usize::try_from(self.step).ok()?)
    }

    /// Reports whether the approvers who allowed it under its own steps satisfy `steps` as well, which rules require now.
    pub(crate) fn satisfies_steps(&self, steps: &[ApprovalStep]) -> bool {
        let Some(required) = steps.first() else { return true };
        let is_stricter = |own: &ApprovalStep| {
            let is_among = match (&own.from, &required.from) {
                (_, None) => true,
                (Some(own), Some(required)) => own.is_subset(required),
                (None, Some(_)) => false,
            };
            own.approvals >= required.approvals && is_among
        };
        self.steps == steps || self.current_step().is_some_and(is_stricter)
    }

    /// Returns the number of votes that count: those whose identities still belong to the same person.
    pub fn count_votes(&self, people: &IdentityMap) -> usize {
        self.votes.iter().filter(|vote| vote.person.as_deref() == people.person_of(&vote.by)).count()
    }

    /// Returns the current step, from 1, and the number of steps.
    pub fn step_of(&self) -> (u32, usize) {
        (self.step + 1, self.steps.len().max(1))
    }

    /// Returns the votes of the current step.
    pub fn votes(&self) -> &[Vote] {
        &self.votes
    }

    /// Returns the number of its round, from 0. A surface that shows an earlier round has not shown this one.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// Returns the number of visible changes since it was opened: votes, deadlines, steps.
    pub fn revision(&self) -> u32 {
        self.revision
    }

    /// Returns the surfaces that show it, in the order in which it was shown.
    pub fn shown_surfaces(&self) -> &[GateSurface] {
        &self.shown
    }

    /// Reports whether a surface does not show the outcome yet.
    pub fn owes_update(&self) -> bool {
        !self.is_pending() && self.shown.iter().any(|showing| !showing.is_final)
    }

    /// Decides whether the report of a surface that it shows the gate is new.
    pub fn record_shown(&self, surface: &str, reference: &str) -> Option<Event> {
        let has_room = self.shown.len() < MOST_SHOWN || self.shown.iter().any(|showing| showing.round < self.round);
        let is_new = self.find_surface(surface, reference).is_none() && has_room;
        let (surface, reference) = (surface.to_owned(), reference.to_owned());
        is_new.then_some(Event::Shown { gate: self.id, surface, reference })
    }

    /// Decides whether the report of a surface that it shows the outcome is new.
    pub fn record_updated(&self, surface: &str, reference: &str) -> Option<Event> {
        let is_new =
            !self.is_pending() && self.find_surface(surface, reference).is_some_and(|showing| !showing.is_final);
        let (surface, reference) = (surface.to_owned(), reference.to_owned());
        is_new.then_some(Event::Updated { gate: self.id, surface, reference })
    }

    fn find_surface(&self, surface: &str, reference: &str) -> Option<&GateSurface> {
        self.shown.iter().find(|showing| showing.surface == surface && showing.reference == reference)
    }

    /// Decides whether an answer of `by` counts, changing nothing. Returns the event: nothing if it was counted
    /// before.
    ///
    /// # Errors
    /// [`AnswerError::AlreadyResolved`] for every answer after the first, but not for the key of the first; every other error leaves
    /// the gate pending.
    pub fn decide_answer(
        &self,
        answer: &GateReply,
        by: &PrincipalId,
        people: &IdentityMap,
        key: Option<&str>,
    ) -> Result<Vec<Event>, AnswerError> {
        let is_repeated = |first: &Option<String>| key.is_some() && key == first.as_deref();
        if let GatePhase::Resolved { resolution, by, key: first, form, .. } = &self.phase {
            if is_repeated(first) || self.votes.iter().any(|vote| is_repeated(&vote.key)) {
                let is_other = answer.form_digest().is_some_and(|given| *form != Some(given));
                return if is_other { Err(AnswerError::KeyTaken(self.id)) } else { Ok(Vec::new()) };
            }
            return Err(AnswerError::AlreadyResolved { gate: self.id, resolution: resolution.clone(), by: by.clone() });
        }
        let refuse = |problem| Err(AnswerError::NotOffered { gate: self.id, problem });
        let resolution = match (self.kind, answer.without_form()) {
            (Kind::Question | Kind::Plan | Kind::Execution, _) => match text_answers::answer_words(self.kind, answer) {
                Ok(Some(_)) => GateResolution::Answered,
                Ok(None) => GateResolution::Declined,
                Err(problem) => return refuse(problem),
            },
            (_, GateReply::Say(_) | GateReply::Form(_)) => return refuse("an approval is allowed or denied"),
            (_, GateReply::Deny { .. } | GateReply::Decline) => GateResolution::Denied,
            (_, GateReply::Grant(grant)) if grant.scope == ApprovalScope::Once => {
                return refuse("once is nothing to grant");
            }
            (_, GateReply::Allow(_) | GateReply::Grant(_)) => {
                match answer.approval_scope().filter(|scope| self.scopes.contains(scope)) {
                    Some(scope) => GateResolution::Allowed { scope },
                    None => return refuse("this reach is not offered"),
                }
            }
        };
        let resolved = |resolution| Event::Resolved {
            gate: self.id,
            resolution,
            by: Some(by.clone()),
            key: key.map(str::to_owned),
            form: answer.form_digest(),
            decision: None,
        };
        match (resolution, self.current_step()) {
            (GateResolution::Allowed { scope }, Some(step)) => self.decide_vote(step, scope, by, people, key, resolved),
            (resolution, _) => Ok(vec![resolved(resolution)]),
        }
    }

    /// Decides one more vote if a rule names the approvers.
    fn decide_vote(
        &self,
        step: &ApprovalStep,
        scope: ApprovalScope,
        by: &PrincipalId,
        people: &IdentityMap,
        key: Option<&str>,
        resolved: impl Fn(GateResolution) -> Event,
    ) -> Result<Vec<Event>, AnswerError> {
        let person = people.person_of(by);
        if step.from.as_ref().is_some_and(|from| !person.is_some_and(|person| from.contains(person))) {
            return Err(AnswerError::NotAmong { gate: self.id, by: by.clone() });
        }
        let is_same = |vote: &Vote| vote.by == *by || vote.person.is_some() && vote.person.as_deref() == person;
        if self.votes.iter().any(is_same) {
            return Ok(Vec::new());
        }
        if person.is_none() && !self.votes.is_empty() {
            return Err(AnswerError::Nobody { gate: self.id, by: by.clone() });
        }
        let mut events = Vec::new();
        if step.approvals > 1 {
            let (by, person, key) = (by.clone(), person.map(str::to_owned), key.map(str::to_owned));
            events.push(Event::Voted { gate: self.id, by, person, scope, key });
        }
        let votes = u32::try_from(self.count_votes(people)).unwrap_or(u32::MAX).saturating_add(1);
        if votes >= step.approvals {
            // The grant has the narrowest scope of all votes.
            let least = self.votes.iter().map(|vote| vote.scope).chain([scope]).min().unwrap_or(scope);
            events.push(resolved(GateResolution::Allowed { scope: least }));
        }
        Ok(events)
    }

    /// Decides the event at `now` if time has run out: it expires, or approvers are asked again, who then have
    /// `otherwise` if their step has no time limit. The deadline itself is too late. Before it, a reminder may be
    /// due.
    pub fn check_expiry(&self, now: Millis, otherwise: Duration) -> Option<Event> {
        let has_come = |time: Option<Millis>| self.is_pending() && time.is_some_and(|time| time <= now);
        if !has_come(self.deadline) {
            return has_come(self.remind_at).then_some(Event::Reminded { gate: self.id });
        }
        let number = match self.current_step().map(|step| step.on_expiry) {
            Some(OnExpiry::Again(times)) if self.again < times => Some(self.step),
            Some(OnExpiry::Next) => Some(self.step + 1),
            Some(OnExpiry::Again(_) | OnExpiry::Deny) | None => None,
        };
        let next = number.and_then(|number| Some((number, self.steps.get(usize::try_from(number).ok()?)?)));
        Some(match next {
            Some((number, step)) => {
                let deadline = now + step.within.unwrap_or(otherwise);
                Event::Escalated { gate: self.id, step: number, deadline }
            }
            None => Event::auto_resolved(self.id, GateResolution::Expired),
        })
    }

    /// Applies a recorded event. Cannot fail, so replay cannot fail.
    pub(crate) fn apply_event(&mut self, event: &Event, lsn: Lsn, now: Millis) {
        match event {
            Event::Opened { .. } => {}
            Event::Reminded { .. } => {
                self.remind_at = None;
                self.round += 1;
                self.revision += 1;
            }
            Event::Extended { deadline, .. } => {
                self.deadline = Some(*deadline);
                self.revision += 1;
            }
            Event::Voted { by, person, scope, key, .. } => {
                let (by, person, key) = (by.clone(), person.clone(), key.clone());
                self.votes.push(Vote { by, person, scope: *scope, at: now, key });
                self.revision += 1;
            }
            Event::Escalated { step, deadline, .. } => {
                if *step == self.step {
                    self.again += 1;
                } else {
                    // Other approvers are asked, who have not agreed to anything.
                    self.votes.clear();
                    self.again = 0;
                }
                self.step = *step;
                self.deadline = Some(*deadline);
                self.round += 1;
                self.revision += 1;
            }
            Event::Resolved { resolution, by, key, form, .. } => {
                let (resolution, by, key, form) = (resolution.clone(), by.clone(), key.clone(), *form);
                self.phase = GatePhase::Resolved { resolution, by, at: now, key, lsn, form };
            }
            Event::Shown { surface, reference, .. } => {
                let (surface, reference) = (surface.clone(), reference.clone());
                let (round, revision) = (self.round, self.revision);
                // A surface that showed an earlier round shows that another follows; more updates of it are not needed.
                if self.shown.len() >= MOST_SHOWN
                    && let Some(old) = self.shown.iter().position(|showing| showing.round < round)
                {
                    self.shown.remove(old);
                }
                self.shown.push(GateSurface { surface, reference, is_final: false, round, revision });
            }
            Event::Updated { surface, reference, .. } => {
                let of = |showing: &&mut GateSurface| showing.surface == *surface && showing.reference == *reference;
                if let Some(showing) = self.shown.iter_mut().find(of) {
                    showing.is_final = true;
                }
            }
        }
    }
}
