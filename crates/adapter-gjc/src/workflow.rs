//! Gates of workflows: what a run asks a person or a program outside, and what those answer.
//!
//! It decides nothing: the engine says whether a gate waits and which answer was first. What is checked here is whether an answer has
//! the form that the gate asks for. Source: docs/protocol/gjc.md, Workflow gates.

mod gate_file_writer;

use countersign_core::{
    engine::{Command as EngineCommand, CommandError, Engine, ResidencyScope as At},
    gate::{self, AnswerError, Gate, GateReply},
    id::{GateId, PrincipalId, SessionId},
    session,
};
use countersign_protocol::{
    RawJson,
    gjc::{
        audit::{AuditEvent, AuditOutcome},
        schema::{SchemaMismatch, canonical_hash},
        workflow::{AnswerResolution, GateError, InvalidAnswer, NOT_AVAILABLE, PendingGates},
    },
    omp::{OmpRequestId, OmpResponse, ui::NotifyType},
};
use countersign_runtime::OwnerError;

pub(crate) use self::gate_file_writer::{FOLDER as RECORDS, follow_gates};
use super::{
    audit::{
        AuditNote,
        gate_note::{dedupe_key, gate_columns},
    },
    audit_writer,
    dialect_state::{GatePresentation, gjc_state, gjc_state_mut},
    gate_form,
};
use countersign_adapter_omp::{OmpAdapter, OutgoingFrame, refusal_text::refusal_message};
use countersign_view::{GateRequest, LineMode, escape, time::format_iso};

const RESPONSE: &str = "workflow_gate_response";
const PENDING: &str = "get_pending_workflow_gates";
/// Answer to a call that asks if its host shows no dialogs and declared no unattended mode.
pub(crate) const NOBODY: &str = "Ask tool requires interactive mode";
/// Notice about a gate that waits and is not shown.
const UNSHOWN: &str = "A question waits that --mode rpc does not show; start with --mode rpc-ui or negotiate unattended mode to answer it, \
                       or send abort";

/// Shows a gate that waits as what it is in this dialect. False if it is to be shown as a dialog.
pub(crate) fn show_gate(adapter: &mut OmpAdapter, gate: &Gate, request: &GateRequest) -> bool {
    let Some(gjc) = gjc_state(adapter) else { return false };
    match gjc.workflow.presentation_for(gate) {
        GatePresentation::Dialog => false,
        GatePresentation::Nowhere => {
            // An earlier process opened it, or an MCP server asks.
            let what = escape(request.headline(), LineMode::One).into_owned();
            adapter.notify_host(format!("{UNSHOWN}: {what}"), NotifyType::Warning);
            true
        }
        GatePresentation::Gate => {
            match gate_form::to_wire(gate, request, gjc.workflow.host.options) {
                Some(Ok(made)) => {
                    adapter.write_frame(OutgoingFrame::Gate(&made));
                    write_audit(adapter, Some(gate), &made.gate_id, AuditEvent::GateEmitted, AuditOutcome::Info, None);
                }
                Some(Err(error)) => tracing::warn!(%error, gate = %gate.id(), "failed to encode a gate for the host"),
                None => {}
            }
            true
        }
    }
}

/// Answers a gate.
pub(super) async fn answer_gate(
    adapter: &mut OmpAdapter,
    id: Option<OmpRequestId>,
    name: String,
    given: RawJson,
    key: Option<String>,
) {
    let is_unattended = gjc_state(adapter).is_some_and(|gjc| gjc.workflow.is_unattended);
    if !is_unattended {
        return adapter.write_frame(&OmpResponse::failure(id, RESPONSE, NOT_AVAILABLE));
    }
    let Some(current) = adapter.current_session() else { return };
    let found = match find_gate(&current.id, &name) {
        Some(find) => current.answers.read_state(find).await.and_then(|(gate, _)| gate),
        None => None,
    };
    let given = gate_form::answer_value(&given);
    let Some(gate) = found else { return reject_unknown(adapter, id, name, &given) };
    let now = adapter.store.common.clock.now();
    let Some((gate, request)) =
        current.answers.read_of(At::Gate(gate), move |engine| at_hand(engine, gate)).await.and_then(|(found, _)| found)
    else {
        return reject_unknown(adapter, id, name, &given);
    };
    if gate.is_pending() && request.is_none() {
        return adapter.write_frame(&OmpResponse::failure(id, RESPONSE, "what the gate asks cannot be read"));
    }
    let answer = match &request {
        Some(request) => gate_form::read_answer(&gate, request, given.clone()),
        // It does not wait: the engine reports whether this is the answer that counted.
        None => Ok(gate_form::unchecked_answer(given.clone())),
    };
    let rejected = move |name: String, errors: Vec<SchemaMismatch>, schema_hash: String| {
        let why = InvalidAnswer { gate_id: name, schema_hash, errors };
        AnswerResolution::rejected(canonical_hash(&given), format_iso(now), why)
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(errors) => {
            let schema_hash =
                request.as_ref().and_then(|request| gate_form::schema_hash(&gate, request)).unwrap_or_default();
            let resolution = rejected(name.clone(), errors, schema_hash);
            let event = AuditEvent::GateResponseRejected;
            write_audit(
                adapter,
                Some(&gate),
                &name,
                event,
                AuditOutcome::Rejected,
                Some(resolution.answer_hash.clone()),
            );
            return adapter.write_frame(&OmpResponse::success(id, RESPONSE, &resolution));
        }
    };
    send_answer(adapter, id, (gate, request), name, answer, key, rejected).await;
}

fn reject_unknown(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, name: String, given: &serde_json::Value) {
    write_audit(
        adapter,
        None,
        &name,
        AuditEvent::GateResponseUnknownGate,
        AuditOutcome::Rejected,
        Some(canonical_hash(given)),
    );
    adapter.write_frame(&typed_failure(id, GateError::Unknown(name)));
}

/// Has the engine decide about an answer of the right form.
async fn send_answer(
    adapter: &mut OmpAdapter,
    id: Option<OmpRequestId>,
    (gate, request): (Gate, Option<GateRequest>),
    name: String,
    answer: GateReply,
    key: Option<String>,
    rejected: impl FnOnce(String, Vec<SchemaMismatch>, String) -> AnswerResolution + Send + 'static,
) {
    let Some(current) = adapter.current_session() else { return };
    let (gate_id, answers, contents) = (gate.id(), current.answers.clone(), current.handle.contents().clone());
    let by = PrincipalId::new("host");
    let given = answer.form_digest().map(|digest| digest.to_string());
    let (shown, waited) = (name.clone(), request.is_some());
    let replied =
        answers.submit_command(EngineCommand::Gate(gate::Command::Answer { gate: gate_id, answer, by, key })).await;
    adapter.reply_in_order(async move {
        let replied = replied.await.unwrap_or(Err(OwnerError::Closed));
        let position = replied.as_ref().map_or(0, |reply| reply.position);
        let audit_outcome = match &replied {
            Ok(_) if waited => Some((AuditEvent::GateResponseAccepted, AuditOutcome::Accepted)),
            Ok(_) => Some((AuditEvent::GateResponseIdempotentReplay, AuditOutcome::Info)),
            Err(OwnerError::Refusal(CommandError::Answer(refusal))) => Some(match refusal {
                refusal if is_unanswered(refusal, &gate) => {
                    (AuditEvent::GateResponseUnknownGate, AuditOutcome::Rejected)
                }
                AnswerError::AlreadyResolved { .. } => {
                    (AuditEvent::GateResponseAlreadyResolved, AuditOutcome::Rejected)
                }
                AnswerError::KeyTaken(_) => (AuditEvent::GateResponseIdempotencyConflict, AuditOutcome::Rejected),
                AnswerError::Unknown(_) => (AuditEvent::GateResponseUnknownGate, AuditOutcome::Rejected),
                _ => (AuditEvent::GateResponseRejected, AuditOutcome::Rejected),
            }),
            Err(_) => None,
        };
        let response = match replied {
            Ok(_) => match stored_resolution(&answers, &contents, gate_id).await {
                Some(resolution) => OmpResponse::success(id, RESPONSE, &resolution),
                None => OmpResponse::failure(id, RESPONSE, "the gate's resolution cannot be read"),
            },
            Err(OwnerError::Refusal(CommandError::Answer(refusal))) => match refusal {
                refusal if is_unanswered(&refusal, &gate) => typed_failure(id, GateError::Unknown(name)),
                AnswerError::AlreadyResolved { .. } => typed_failure(id, GateError::AlreadyResolved(name)),
                AnswerError::KeyTaken(_) => typed_failure(id, GateError::IdempotencyConflict(name)),
                AnswerError::Unknown(_) => typed_failure(id, GateError::Unknown(name)),
                AnswerError::NotOffered { problem, .. } => {
                    let schema = request.as_ref().and_then(|request| gate_form::schema_hash(&gate, request));
                    let error = gate_form::not_offered(problem);
                    OmpResponse::success(id, RESPONSE, &rejected(name, vec![error], schema.unwrap_or_default()))
                }
                AnswerError::NotAmong { .. } | AnswerError::Nobody { .. } | AnswerError::NotAllowed { .. } => {
                    OmpResponse::failure(id, RESPONSE, refusal.to_string())
                }
            },
            Err(refused) => OmpResponse::failure(id, RESPONSE, refusal_message(&refused)),
        };
        let then: Box<dyn FnOnce(&mut OmpAdapter) + Send> = Box::new(move |adapter| {
            if let Some((event, outcome)) = audit_outcome {
                write_audit(adapter, Some(&gate), &shown, event, outcome, given);
            }
            adapter.write_frame(&response);
        });
        (position, then)
    });
}

/// Reports whether the gate ended without an answer and without a default: nothing resolved it.
fn is_unanswered(refusal: &AnswerError, gate: &Gate) -> bool {
    let AnswerError::AlreadyResolved { resolution, .. } = refusal else { return false };
    match resolution {
        gate::GateResolution::Withdrawn => true,
        gate::GateResolution::Expired => !matches!(gate.fallback(), gate::Fallback::Choice(_)),
        _ => false,
    }
}

fn typed_failure(id: Option<OmpRequestId>, error: GateError) -> OmpResponse {
    OmpResponse::typed_failure(id, RESPONSE, &error)
}

/// Returns the resolution of a gate that no longer waits: the same as the first time.
async fn stored_resolution(
    answers: &countersign_runtime::CommandSource,
    contents: &countersign_runtime::ContentCache,
    id: GateId,
) -> Option<AnswerResolution> {
    let read = answers.read_of(At::Gate(id), move |engine| engine.state().gate(id).cloned()).await?;
    let gate = read.0?;
    let lsns: Vec<_> = [Some(gate.content_lsn()), gate.answer_content()].into_iter().flatten().collect();
    let mut texts = contents.get(&lsns).await.ok()?.into_iter();
    let shown = GateRequest::from_record(&texts.next()??)?;
    gate_form::resolved_answer(&gate, &shown, texts.next().flatten().as_deref()).map(|(resolution, _)| resolution)
}

/// Finds the gate of this name in the session.
fn find_gate(session: &SessionId, name: &str) -> Option<impl FnOnce(&Engine) -> Option<GateId> + Send + use<>> {
    let (stage, number) = gate_form::stage_and_number(session, name)?;
    let session = session.clone();
    Some(move |engine: &Engine| engine.state().session(&session)?.gate_at(stage, number))
}

/// Returns a gate, and while it waits what it shows.
fn at_hand(engine: &Engine, id: GateId) -> Option<(Gate, Option<GateRequest>)> {
    let gate = engine.state().gate(id)?.clone();
    let request = GateRequest::at_hand(engine, id).filter(|_| gate.is_pending());
    Some((gate, request))
}

/// Lists the gates that wait.
pub(super) async fn send_pending_gates(adapter: &mut OmpAdapter, id: Option<OmpRequestId>) {
    let (gates, _) = pending_gates(adapter).await;
    let Some(gjc) = gjc_state(adapter) else { return };
    let options = gjc.workflow.host.options;
    let gates = gates.iter().filter_map(|(gate, request)| gate_form::to_wire(gate, request, options)?.ok()).collect();
    adapter.write_frame(&OmpResponse::success(id, PENDING, &PendingGates { gates }));
}

/// Handles the entry into unattended mode: the host can be asked, receives the pending gates, and answers them as such from now on.
pub(super) async fn enter_unattended(adapter: &mut OmpAdapter) {
    let Some(current) = adapter.current_session() else { return };
    let (session, requests) = (current.id.clone(), current.requests.clone());
    let set = session::Command::Set { setting: session::SessionSetting::Nobody(None), entry: None };
    if let Err(refused) = requests.send_command(EngineCommand::Session(session, set)).await {
        tracing::warn!(%refused, "failed to record that the host answers gates");
    }
    let (gates, position) = pending_gates(adapter).await;
    // Gates that were opened until then are shown as before, and then as gates.
    adapter.catch_up(position).await;
    if let Some(gjc) = gjc_state_mut(adapter) {
        gjc.workflow.is_unattended = true;
    }
    for (gate, request) in gates {
        if let Some(taken_away) = adapter.dialogs.forget_gate(gate.id(), true) {
            adapter.write_frame(&taken_away);
        }
        show_gate(adapter, &gate, &request);
    }
}

/// Returns the gates of the session that wait and what they show, oldest first.
async fn pending_gates(adapter: &mut OmpAdapter) -> (Vec<(Gate, GateRequest)>, u64) {
    let Some(current) = adapter.current_session() else { return (Vec::new(), 0) };
    let (session, answers) = (current.id.clone(), current.answers.clone());
    let read = answers.read_state(move |engine| {
        let gates = engine.state().pending_gates().filter(|gate| gate.session() == Some(&session));
        let gates = gates.filter_map(|gate| Some((gate.clone(), GateRequest::at_hand(engine, gate.id())?)));
        gates.collect()
    });
    read.await.unwrap_or_default()
}

/// Writes into the audit what became of an answer, or that a gate was shown.
fn write_audit(
    adapter: &mut OmpAdapter,
    gate: Option<&Gate>,
    name: &str,
    event: AuditEvent,
    outcome: AuditOutcome,
    answer: Option<String>,
) {
    let at = match event {
        AuditEvent::GateEmitted => gate.map(Gate::opened_at),
        _ => None,
    };
    let at = at.unwrap_or_else(|| adapter.store.common.clock.now());
    let key = dedupe_key(event, name, answer.as_deref());
    let gate = gate.map(|gate| gate_columns(name.to_owned(), gate.stage()));
    audit_writer::write_note(
        adapter,
        AuditNote { gate, answer_hash: answer, ..AuditNote::new(at, event, outcome, key) },
    );
}
