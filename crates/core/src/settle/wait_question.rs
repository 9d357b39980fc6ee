//! A run whose provider asks for a long wait asks people about it: to wait, to use another model, or to stop.
//!
//! The wait continues meanwhile. Without an answer it is as without the question: a wait of at most the configured maximum
//! is completed, and a longer one ends the run.

use super::RunContext;
use crate::{
    decision::{BranchBuilder, DecisionContext, DecisionView, Event, Fact},
    digest::Digest,
    gate::{self, Fallback, GateContent, GateResolution, Kind},
    id::GateId,
    run::{Event as Happened, ProviderFailure, Run, RunOutcome, RunPhase},
    schedule::Zone,
    session::{self, Event as InSession, ModelRef, SessionSetting},
    time::Millis,
};

/// Reports whether people are asked about the wait after this failure. No person attends a job, nor a session with a contract,
/// which defines the work without approvers.
pub(super) fn is_due(scene: RunContext<'_>, failure: ProviderFailure) -> bool {
    let (session, settings) = (scene.session, scene.session.settings());
    settings.asking.nobody.is_none()
        && session.unattended().is_none()
        && scene.run.run_metadata().firing.is_none()
        && failure.after.is_some_and(|after| settings.retry.asks_about(after))
}

/// Opens the question about the wait that has just begun.
pub(super) fn open_question(
    scene: RunContext<'_>,
    branch: &mut BranchBuilder<'_>,
    gate: GateId,
    until: Millis,
    now: Millis,
) {
    let longest = now + scene.session.settings().retry.longest;
    let others = &scene.run.others;
    let is_waited_for = until <= longest;
    let model = scene.run.last_model.as_ref().map_or_else(|| "The model".to_owned(), model_name);
    let end = Zone::UTC.minute_text(until, now);
    let otherwise = if is_waited_for {
        "Without an answer it is asked again then.".to_owned()
    } else {
        format!("Without an answer by {} the run ends.", Zone::UTC.minute_text(longest, now))
    };
    let question = format!("{model} cannot be asked again before {end}. {otherwise}");
    let fallback = if is_waited_for { 0 } else { others.len() + 1 };
    let wait = format!("Wait until {end}");
    let labels = [wait].into_iter().chain(others.iter().map(|other| format!("Use {}", model_name(other))));
    let content = GateContent::closed_question(question, labels.chain(["Stop".to_owned()]), fallback);
    let content = serde_json::to_string(&content).expect("content is plain data with text keys");
    let (stage, number) = scene.session.next_place(Kind::Question.stage());
    let opened = gate::Event::Opened {
        gate,
        kind: Kind::Question,
        ordinal: scene.view.state.next_ordinal(scene.session.id()),
        number,
        stage,
        run: Some(scene.run.id()),
        call: None,
        subject: Digest::hash_bytes(content.as_bytes()),
        scopes: Vec::new(),
        deadline: Some(until.min(longest)),
        fallback: Fallback::Choice(fallback),
        remind_at: None,
        steps: Vec::new(),
    };
    branch.push_with(Event::Gate(opened), Some(content.into()));
}

/// Executes the answer. To wait is the behaviour of the run in any case.
pub(super) fn due_facts(scene: RunContext<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    let RunPhase::Backoff { .. } = scene.run.phase() else { return None };
    let at = chosen_option(scene)?.checked_sub(1)?;
    let mut branch = BranchBuilder::new(scene.session);
    let run = scene.run.id();
    match scene.run.others.get(at) {
        Some(model) => {
            branch.push_event(Event::Session(InSession::Set(SessionSetting::Model(model.clone()))));
            branch.push_message(
                session::SessionEntryKind::ModelChange,
                session::model_change(&model.provider, &model.id),
                context,
            );
            if scene.run.run_metadata().model.is_some() {
                let mut marks = Box::new(scene.run.run_metadata().clone());
                marks.model = Some(model.clone());
                branch.push_event(Event::Run(Happened::Marked { run, marks }));
            }
            branch.push_event(Event::Run(Happened::Resumed { run }));
        }
        None => {
            branch.push_event(Event::Run(Happened::Ended { run, end: RunOutcome::Failed, attempts: scene.run.attempt }))
        }
    }
    Some(branch.into_facts())
}

/// Returns the choice that counts, once the question is resolved.
fn chosen_option(scene: RunContext<'_>) -> Option<usize> {
    let gate = scene.view.state.gate(scene.run.gate?)?;
    match gate.resolution()? {
        GateResolution::Answered => {
            let answers = gate::parse_words(scene.view.admitted.answer_text(gate.id())?)?;
            scene.view.admitted.gate_content(gate.id())?.chosen_index(&answers)
        }
        GateResolution::Allowed { .. }
        | GateResolution::Denied
        | GateResolution::Declined
        | GateResolution::Granted
        | GateResolution::Expired
        | GateResolution::Withdrawn => match gate.fallback() {
            Fallback::Choice(at) => Some(at),
            Fallback::Deny | Fallback::NoAnswer => None,
        },
    }
}

/// Returns the end of the question of a run, if it is pending: the wait that it is about is over.
pub(crate) fn withdraw_question(view: DecisionView<'_>, run: &Run) -> Option<Event> {
    let gate = view.state.gate(run.gate?).filter(|gate| gate.is_pending())?;
    Some(Event::Gate(gate::Event::auto_resolved(gate.id(), GateResolution::Withdrawn)))
}

fn model_name(model: &ModelRef) -> String {
    format!("{}/{}", model.provider, model.id)
}
