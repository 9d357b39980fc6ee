//! Where a gate stands, and which answers count.

use serde::{Deserialize, Serialize};

use super::{
    command::{Answer, AnswerRefusal},
    event::{Event, Fallback, Kind, Resolution, Scope},
};
use crate::{
    digest::Digest,
    id::{CallId, GateId, Lsn, PrincipalId, RunId, SessionId},
    time::Millis,
};

/// How often one gate can be shown. A surface that loses what it showed does not do so for ever.
const MOST_SHOWN: usize = 32;

/// Whether a gate waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It waits.
    Pending,
    /// It does not wait any more.
    Resolved {
        /// How it was resolved.
        resolution: Resolution,
        /// By whom.
        by: Option<PrincipalId>,
        /// When.
        at: Millis,
        /// The key of the answer that counted.
        key: Option<String>,
        /// The record that resolved it, with the answer's text.
        lsn: Lsn,
    },
}

/// Where people can see a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Showing {
    /// The surface.
    pub surface: String,
    /// What the surface calls it.
    pub reference: String,
    /// Whether it says how the gate ended.
    pub is_final: bool,
}

/// One wait for a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    pub(crate) id: GateId,
    pub(crate) session: Option<SessionId>,
    pub(crate) kind: Kind,
    pub(crate) ordinal: u32,
    pub(crate) run: Option<RunId>,
    pub(crate) call: Option<CallId>,
    pub(crate) subject: Digest,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) opened_at: Millis,
    pub(crate) deadline: Option<Millis>,
    pub(crate) fallback: Fallback,
    pub(crate) content: Lsn,
    pub(crate) phase: Phase,
    #[serde(default)]
    pub(crate) shown: Vec<Showing>,
}

impl Gate {
    pub(crate) fn open(event: &Event, session: Option<SessionId>, lsn: Lsn, at: Millis) -> Option<Self> {
        let Event::Opened { gate, kind, ordinal, run, call, subject, scopes, deadline, fallback } = event else {
            return None;
        };
        Some(Self {
            id: *gate,
            session,
            kind: *kind,
            ordinal: *ordinal,
            run: *run,
            call: *call,
            subject: *subject,
            scopes: scopes.clone(),
            opened_at: at,
            deadline: *deadline,
            fallback: *fallback,
            content: lsn,
            phase: Phase::Pending,
            shown: Vec::new(),
        })
    }

    /// Its id.
    pub fn id(&self) -> GateId {
        self.id
    }

    /// The session that it belongs to.
    pub fn session(&self) -> Option<&SessionId> {
        self.session.as_ref()
    }

    /// What it decides.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Counts the gates of its session from 1.
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// The call that waits.
    pub fn call(&self) -> Option<CallId> {
        self.call
    }

    /// What an approval may reach.
    pub fn scopes(&self) -> &[Scope] {
        &self.scopes
    }

    /// When it was opened.
    pub fn opened_at(&self) -> Millis {
        self.opened_at
    }

    /// When it expires.
    pub fn deadline(&self) -> Option<Millis> {
        self.deadline
    }

    /// Where its content lies.
    pub fn content(&self) -> Lsn {
        self.content
    }

    /// Whether it waits.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// How it was resolved, if it was.
    pub fn resolution(&self) -> Option<&Resolution> {
        match &self.phase {
            Phase::Pending => None,
            Phase::Resolved { resolution, .. } => Some(resolution),
        }
    }

    /// Where the text of its answer lies, if it was answered.
    pub fn answer_content(&self) -> Option<Lsn> {
        match &self.phase {
            Phase::Pending => None,
            Phase::Resolved { lsn, .. } => Some(*lsn),
        }
    }

    /// Whether it waits.
    pub fn is_pending(&self) -> bool {
        self.phase == Phase::Pending
    }

    /// Where people can see it, in the order in which it was shown.
    pub fn shown(&self) -> &[Showing] {
        &self.shown
    }

    /// Whether something that people see does not say yet how it ended.
    pub fn owes_update(&self) -> bool {
        !self.is_pending() && self.shown.iter().any(|showing| !showing.is_final)
    }

    /// Decides whether a surface that says that it shows the gate says something new.
    pub fn show(&self, surface: &str, reference: &str) -> Option<Event> {
        let is_new = self.showing(surface, reference).is_none() && self.shown.len() < MOST_SHOWN;
        let (surface, reference) = (surface.to_owned(), reference.to_owned());
        is_new.then_some(Event::Shown { gate: self.id, surface, reference })
    }

    /// Decides whether a surface that says that it shows the end says something new.
    pub fn update(&self, surface: &str, reference: &str) -> Option<Event> {
        let is_new = !self.is_pending() && self.showing(surface, reference).is_some_and(|showing| !showing.is_final);
        let (surface, reference) = (surface.to_owned(), reference.to_owned());
        is_new.then_some(Event::Updated { gate: self.id, surface, reference })
    }

    fn showing(&self, surface: &str, reference: &str) -> Option<&Showing> {
        self.shown.iter().find(|showing| showing.surface == surface && showing.reference == reference)
    }

    /// Decides whether an answer counts, changing nothing.
    ///
    /// # Errors
    /// [`AnswerRefusal::AlreadyResolved`] for everyone after the first, but the key of the first gets its result again as `Ok(None)`; [`AnswerRefusal::NotOffered`] leaves the gate
    /// pending.
    pub fn answer(&self, answer: &Answer, by: &PrincipalId, key: Option<&str>) -> Result<Option<Event>, AnswerRefusal> {
        match &self.phase {
            Phase::Resolved { resolution, by, key: first, .. } => {
                if key.is_some() && key == first.as_deref() {
                    return Ok(None);
                }
                Err(AnswerRefusal::AlreadyResolved { gate: self.id, resolution: resolution.clone(), by: by.clone() })
            }
            Phase::Pending => {
                let refuse = |problem| Err(AnswerRefusal::NotOffered { gate: self.id, problem });
                let resolution = match (self.kind, answer) {
                    (Kind::Question, Answer::Say(said))
                        if said.is_empty() || said.iter().any(|said| said.trim().is_empty()) =>
                    {
                        return refuse("an answer is empty");
                    }
                    (Kind::Question, Answer::Say(_)) => Resolution::Answered,
                    (Kind::Question, Answer::Decline | Answer::Deny { .. }) => Resolution::Declined,
                    (Kind::Question, Answer::Allow(_)) => return refuse("a question is not allowed or denied"),
                    (_, Answer::Say(_)) => return refuse("an approval is allowed or denied"),
                    (_, Answer::Deny { .. } | Answer::Decline) => Resolution::Denied,
                    (_, Answer::Allow(scope)) if self.scopes.contains(scope) => Resolution::Allowed { scope: *scope },
                    (_, Answer::Allow(_)) => return refuse("this reach is not offered"),
                };
                Ok(Some(Event::Resolved {
                    gate: self.id,
                    resolution,
                    by: Some(by.clone()),
                    key: key.map(str::to_owned),
                }))
            }
        }
    }

    /// Decides whether time has run out at `now`. The deadline itself is too late.
    pub fn expire(&self, now: Millis) -> Option<Event> {
        match (&self.phase, self.deadline) {
            (Phase::Pending, Some(deadline)) if deadline <= now => {
                Some(Event::Resolved { gate: self.id, resolution: Resolution::Expired, by: None, key: None })
            }
            (Phase::Pending, _) | (Phase::Resolved { .. }, _) => None,
        }
    }

    /// Folds a recorded event in. Cannot fail, so replay cannot fail.
    pub(crate) fn apply(&mut self, event: &Event, lsn: Lsn, now: Millis) {
        match event {
            Event::Opened { .. } => {}
            Event::Extended { deadline, .. } => self.deadline = Some(*deadline),
            Event::Resolved { resolution, by, key, .. } => {
                self.phase =
                    Phase::Resolved { resolution: resolution.clone(), by: by.clone(), at: now, key: key.clone(), lsn };
            }
            Event::Shown { surface, reference, .. } => {
                let (surface, reference) = (surface.clone(), reference.clone());
                self.shown.push(Showing { surface, reference, is_final: false });
            }
            Event::Updated { surface, reference, .. } => {
                let of = |showing: &&mut Showing| showing.surface == *surface && showing.reference == *reference;
                if let Some(showing) = self.shown.iter_mut().find(of) {
                    showing.is_final = true;
                }
            }
        }
    }
}
