//! Decides whether an answer to a gate counts, and its immediate consequences.

use std::sync::Arc;

use crate::{
    call_subject,
    decision::{CommandError, DecisionContext, DecisionResult, DecisionView, EngineReply, Event, Fact},
    gate::{
        AnswerError, ApprovalScope, Event as Happened, Gate, GateContent, GateReply, GateResolution, Kind, sign_off,
        text_answers,
    },
    id::{GateId, PrincipalId},
    policy::{self, Constraint, DENIAL_LASTS, DefaultPolicy, Grant, GrantAuth, GrantCoverage, GrantId, PolicySubject},
    principal, run,
    session::Session,
    settle,
};

pub(super) fn answer_gate(
    view: DecisionView<'_>,
    id: GateId,
    answer: &GateReply,
    by: &PrincipalId,
    key: Option<&str>,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    let gate = view.state.gate(id).ok_or(AnswerError::Unknown(id))?;
    // Principals cannot sign off their own requests.
    let subject = call_subject::subject_of_gate(view, gate);
    let request = gate.call().and_then(|call| view.admitted.call_content(call)?.request.as_deref());
    let is_of_requester = subject.as_ref().is_some_and(|subject| subject.principal == *by)
        || request.is_some_and(|request| request.for_principals.contains(by));
    if *by == principal::agent_principal() || is_of_requester {
        return Err(AnswerError::NotAllowed { gate: id, by: by.clone() }.into());
    }
    let events = gate.decide_answer(answer, by, &view.rules.people, key)?;
    // A choice that is not among those offered is free text.
    if let GateReply::Say(texts) = answer.without_form()
        && gate.kind() == Kind::Question
        && !events.is_empty()
        && texts.len() > 1
        && matches!(
            view.admitted.gate_content(id).map(|shown| &**shown),
            Some(GateContent::Question { multi: false, .. })
        )
    {
        return Err(AnswerError::NotOffered { gate: id, problem: "the question takes one answer" }.into());
    }
    if let Ok(Some(texts)) = text_answers::answer_words(gate.kind(), answer)
        && !events.is_empty()
        && view.admitted.gate_content(id).is_some_and(|shown| is_closed(shown) && shown.chosen_index(&texts).is_none())
    {
        return Err(AnswerError::NotOffered { gate: id, problem: "only its choices answer it" }.into());
    }
    let resolved = events.iter().find_map(|event| match event {
        Happened::Resolved { resolution, .. } => Some(resolution.clone()),
        _ => None,
    });
    let reply = match resolved.as_ref().or_else(|| gate.resolution()) {
        Some(resolution) => EngineReply::Resolved(resolution.clone()),
        None => {
            let have = gate.count_votes(&view.rules.people) + events.len();
            let need = gate.current_step().map_or(1, |step| step.approvals);
            EngineReply::Voted { have: u32::try_from(have).unwrap_or(u32::MAX), need }
        }
    };
    let session = gate.session().cloned();
    let mut facts = Vec::new();
    for mut event in events {
        if let Happened::Resolved { resolution, decision, .. } = &mut event
            && let Some(shown) = view.admitted.gate_content(id)
        {
            let texts = text_answers::answer_words(gate.kind(), answer).ok().flatten().unwrap_or_default();
            *decision = sign_off::sign_off_outcome(gate.kind(), shown, resolution, &texts);
        }
        let content = if let Happened::Resolved { .. } = &event { answer_text(gate.kind(), answer) } else { None };
        facts.push(Fact { event: Event::Gate(event), session: session.clone(), content });
    }
    // A request that a call made while it ran counts for its run as any other call of it: repeated denials trip the breaker.
    if gate.kind() == Kind::Budget
        && let Some(run) = gate.call().and_then(|call| view.state.call(call)?.run()).and_then(|run| view.state.run(run))
    {
        let by = Some(by.clone());
        let event = match &resolved {
            Some(GateResolution::Denied) => Some(run::Event::Denied { run: run.id(), in_a_row: run.denials + 1, by }),
            Some(GateResolution::Allowed { .. }) => by
                .filter(|by| run.denials > 0 && run.was_denied_by(by))
                .map(|by| run::Event::DenialsForgiven { run: run.id(), of: Some(by.clone()), by: Some(by) }),
            Some(_) | None => None,
        };
        facts.extend(event.map(|event| Fact::without_content(Event::Run(event), session.clone())));
    }
    if let Some((subject, resolution)) = subject.zip(resolved) {
        let event = match &resolution {
            GateResolution::Allowed { scope } => {
                let lifted = lifted_denials(view, &subject, by);
                facts.extend(lifted.map(|event| Fact::without_content(Event::Policy(event), session.clone())));
                grant_event(view, gate, &subject, answer, *scope, by, context)?
            }
            GateResolution::Denied => Some(policy::Event::Constrained(Constraint {
                principal: subject.principal.clone(),
                session: settle::denial_session(view, gate),
                key: subject.constraint_key(),
                by: by.clone(),
                tool: subject.tool.chars().take(200).collect(),
                gate: Some(gate.id()),
                reason: denial_reason(answer),
                until: context.now + DENIAL_LASTS,
            })),
            GateResolution::Answered
            | GateResolution::Declined
            | GateResolution::Granted
            | GateResolution::Expired
            | GateResolution::Withdrawn => None,
        };
        facts.extend(event.map(|event| Fact::without_content(Event::Policy(event), session.clone())));
    }
    Ok(DecisionResult { facts, reply })
}

fn is_closed(shown: &GateContent) -> bool {
    matches!(shown, GateContent::Question { .. }) && !shown.takes_own_words()
}

/// Returns the text that is recorded for an answer.
fn answer_text(kind: Kind, answer: &GateReply) -> Option<Arc<str>> {
    if kind.takes_words()
        && let Ok(Some(texts)) = text_answers::answer_words(kind, answer)
    {
        return Some(text_answers::words_text(texts, answer));
    }
    match answer.without_form() {
        GateReply::Deny { reason } => reason.clone().map(Into::into),
        GateReply::Allow(_) | GateReply::Grant(_) | GateReply::Say(_) | GateReply::Form(_) | GateReply::Decline => None,
    }
}

/// Withdraws a pending gate. Any other gate is left as it is.
pub(super) fn withdraw_gate(
    view: DecisionView<'_>,
    id: GateId,
    by: PrincipalId,
) -> Result<DecisionResult, CommandError> {
    let gate = view.state.gate(id).ok_or(AnswerError::Unknown(id))?;
    let resolution = gate.resolution().cloned().unwrap_or(GateResolution::Withdrawn);
    let mut facts = Vec::new();
    if gate.is_pending() {
        let event = Happened::Resolved {
            gate: id,
            resolution: resolution.clone(),
            by: Some(by),
            key: None,
            form: None,
            decision: None,
        };
        facts.push(Fact::without_content(Event::Gate(event), gate.session().cloned()));
    }
    Ok(DecisionResult { facts, reply: EngineReply::Resolved(resolution) })
}

/// Returns the reason of a denial, as far as a fact may hold it; the whole text is the content of the resolution.
fn denial_reason(answer: &GateReply) -> Option<String> {
    match answer.without_form() {
        GateReply::Deny { reason } => reason.as_ref().map(|reason| reason.chars().take(500).collect()),
        GateReply::Allow(_) | GateReply::Grant(_) | GateReply::Say(_) | GateReply::Form(_) | GateReply::Decline => None,
    }
}

/// Returns the denials that the same person's approval revokes.
fn lifted_denials<'a>(
    view: DecisionView<'a>,
    subject: &'a PolicySubject,
    by: &'a PrincipalId,
) -> impl Iterator<Item = policy::Event> + use<'a> {
    let people = &view.rules.people;
    let is_same = move |other: &PrincipalId| {
        other == by || people.person_of(by).is_some() && people.person_of(other) == people.person_of(by)
    };
    let constraints = view.state.policy().constraints().iter();
    constraints.filter(move |one| is_same(&one.by) && one.is_about(subject)).map(|one| policy::Event::Lifted {
        principal: one.principal.clone(),
        key: one.key,
        session: one.session.clone(),
        by: by.clone(),
    })
}

fn grant_event(
    view: DecisionView<'_>,
    gate: &Gate,
    subject: &PolicySubject,
    answer: &GateReply,
    scope: ApprovalScope,
    by: &PrincipalId,
    context: &mut DecisionContext,
) -> Result<Option<policy::Event>, CommandError> {
    let session = gate.session().and_then(|session| view.state.session(session));
    let hosted = session.and_then(Session::hosted_state);
    let scope = match scope {
        ApprovalScope::Once => return Ok(None),
        ApprovalScope::Session => policy::GrantReach::Session(subject.session.clone()),
        ApprovalScope::Always => match hosted {
            Some(hosted) => policy::GrantReach::Realm(hosted.realm.clone()),
            None => policy::GrantReach::Always,
        },
    };
    let requested = match answer.without_form() {
        GateReply::Grant(grant) => grant.pattern.as_ref(),
        GateReply::Allow(_) | GateReply::Deny { .. } | GateReply::Say(_) | GateReply::Form(_) | GateReply::Decline => {
            None
        }
    };
    // Only proposals that were shown to the person: nothing else was shown as covered.
    let mut proposals = policy::propose_grants(subject).into_iter();
    let proposal = proposals.find(|one| match (&one.covers, requested) {
        (GrantCoverage::Exact(_), None) => true,
        (GrantCoverage::Pattern(pattern), Some(requested)) => pattern == requested,
        (GrantCoverage::Exact(_), Some(_)) | (GrantCoverage::Pattern(_), None) => false,
    });
    let Some(proposal) = proposal else {
        return Err(AnswerError::NotOffered { gate: gate.id(), problem: "this rule was not proposed" }.into());
    };
    let label = match &proposal.covers {
        GrantCoverage::Exact(_) => subject.signature.chars().take(500).collect(),
        GrantCoverage::Pattern(_) => proposal.label,
    };
    let lasts = match answer.without_form() {
        GateReply::Grant(grant) => grant.lasts,
        GateReply::Allow(_) | GateReply::Deny { .. } | GateReply::Say(_) | GateReply::Form(_) | GateReply::Decline => {
            None
        }
    };
    Ok(Some(policy::Event::Granted(Grant {
        id: GrantId::new(context.fresh.next_uuid(context.now)),
        by: by.clone(),
        to: subject.principal.clone(),
        scope,
        covers: proposal.covers,
        label,
        until: lasts.map(|lasts| context.now + lasts),
        // A stdio adapter does not authenticate its users, wherever its session lives; a gateway authenticates users if it is
        // configured to.
        door: match view.rules.default_policy {
            DefaultPolicy::Gateway if !by.is_open() && (hosted.is_none() || *by != principal::host_principal()) => {
                GrantAuth::Authenticated
            }
            DefaultPolicy::Gateway | DefaultPolicy::Stdio => GrantAuth::Open,
        },
    })))
}
