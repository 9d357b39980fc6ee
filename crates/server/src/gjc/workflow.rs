//! Gates of workflows: what a run asks a person or a program outside, and what those answer.
//!
//! It decides nothing: the engine says whether a gate waits and which answer was first. What is checked here is whether an answer has
//! the form that the gate asks for. Source: docs/protocol/gjc.md, Workflow gates.

mod file;
mod form;

use countersign_core::{
    engine::{Command as EngineCommand, Engine, Refusal, Scope as At},
    gate::{self, Answer, AnswerRefusal, Content, Gate},
    id::{GateId, PrincipalId, SessionId},
};
use countersign_protocol::{
    Json,
    gjc::{
        schema::{Mismatch, hash},
        workflow::{GateError, InvalidAnswer, NOT_AVAILABLE, PendingGates, Resolution, WorkflowGate},
    },
    omp::{Id, Response},
};
use countersign_runtime::Refused;

pub(crate) use self::{
    file::{Projection, Readers},
    form::Options,
};
use crate::{
    omp::{Dialect, Door, Frame, commands::problem},
    session_file::time::iso,
};

const RESPONSE: &str = "workflow_gate_response";
const PENDING: &str = "get_pending_workflow_gates";
/// What a call that asks is told where its host shows no dialogs and declared no unattended mode.
pub(crate) const NOBODY: &str = "Ask tool requires interactive mode";

/// What a host said of itself when it started the door.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manner {
    /// Whether it shows the questions of tools as dialogs.
    pub(crate) dialogs: bool,
    /// Whether it is shown the choices of gates.
    pub(crate) options: Options,
}

/// How a door shows gates.
#[derive(Debug, Default)]
pub(crate) struct Workflow {
    manner: Manner,
    /// Whether its host answers gates as such: it entered unattended mode in this process.
    is_unattended: bool,
}

/// How a gate is shown.
enum Showing {
    Gate,
    Dialog,
    /// It waits, and is listed.
    Nowhere,
}

impl Workflow {
    pub(crate) const fn new(manner: Manner) -> Self {
        Self { manner, is_unattended: false }
    }

    fn of(&self, gate: &Gate) -> Showing {
        if self.is_unattended && gate.number() > 0 {
            Showing::Gate
        } else if gate.kind().takes_words() && !self.manner.dialogs {
            Showing::Nowhere
        } else {
            Showing::Dialog
        }
    }
}

/// Shows a gate that waits as what it is in this dialect. False if it is to be shown as a dialog.
pub(crate) fn show(door: &mut Door, gate: &Gate, content: &Content) -> bool {
    let Dialect::Gjc(gjc) = &door.dialect else { return false };
    match gjc.workflow.of(gate) {
        Showing::Dialog => false,
        Showing::Nowhere => true,
        Showing::Gate => {
            match form::wire(gate, content, gjc.workflow.manner.options) {
                Some(Ok(made)) => door.write(Frame::Gate(&made)),
                Some(Err(error)) => tracing::warn!(%error, gate = %gate.id(), "a gate cannot be told of"),
                None => {}
            }
            true
        }
    }
}

/// Answers a gate.
pub(super) async fn answer(door: &mut Door, id: Option<Id>, name: String, given: Json, key: Option<String>) {
    let is_unattended = matches!(&door.dialect, Dialect::Gjc(gjc) if gjc.workflow.is_unattended);
    if !is_unattended {
        return door.write(&Response::failure(id, RESPONSE, NOT_AVAILABLE));
    }
    let Some(seat) = door.seat() else { return };
    let found = match find(&seat.id, &name) {
        Some(find) => seat.answers.read(find).await.and_then(|(gate, _)| gate),
        None => None,
    };
    let Some(gate) = found else {
        return door.write(&Response::typed_failure(id, RESPONSE, &GateError::Unknown(name)));
    };
    let (given, now) = (form::value(&given), door.shelf.common.clock.now());
    let Some((gate, content)) =
        seat.answers.read_of(At::Gate(gate), move |engine| at_hand(engine, gate)).await.and_then(|(found, _)| found)
    else {
        return door.write(&Response::typed_failure(id, RESPONSE, &GateError::Unknown(name)));
    };
    if gate.is_pending() && content.is_none() {
        return door.write(&Response::failure(id, RESPONSE, "what the gate asks cannot be read"));
    }
    let answer = match &content {
        Some(content) => form::read(&gate, content, given.clone()),
        // It does not wait: whatever it was, the engine says whether it is the answer that counted.
        None => Ok(form::unread(given.clone())),
    };
    let rejected = move |name: String, errors: Vec<Mismatch>, schema_hash: String| {
        let why = InvalidAnswer { gate_id: name, schema_hash, errors };
        Resolution::rejected(hash(&given), iso(now), why)
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(errors) => {
            let schema_hash =
                content.as_ref().and_then(|content| form::schema_hash(&gate, content)).unwrap_or_default();
            return door.write(&Response::success(id, RESPONSE, &rejected(name, errors, schema_hash)));
        }
    };
    send(door, id, (gate, content), name, answer, key, rejected).await;
}

/// Has the engine decide about an answer of the right form.
async fn send(
    door: &mut Door,
    id: Option<Id>,
    (gate, content): (Gate, Option<Content>),
    name: String,
    answer: Answer,
    key: Option<String>,
    rejected: impl FnOnce(String, Vec<Mismatch>, String) -> Resolution + Send + 'static,
) {
    let Some(seat) = door.seat() else { return };
    let (gate_id, answers, contents) = (gate.id(), seat.answers.clone(), seat.handle.contents().clone());
    let by = PrincipalId::new("host");
    let replied = answers.send(EngineCommand::Gate(gate::Command::Answer { gate: gate_id, answer, by, key })).await;
    door.later(async move {
        let replied = replied.await.unwrap_or(Err(Refused::Closed));
        let position = replied.as_ref().map_or(0, |reply| reply.position);
        let response = match replied {
            Ok(_) => match told(&answers, &contents, gate_id).await {
                Some(resolution) => Response::success(id, RESPONSE, &resolution),
                None => Response::failure(id, RESPONSE, "the gate's resolution cannot be read"),
            },
            Err(Refused::Refusal(Refusal::Answer(refusal))) => match refusal {
                AnswerRefusal::AlreadyResolved { .. } => typed(id, GateError::AlreadyResolved(name)),
                AnswerRefusal::KeyTaken(_) => typed(id, GateError::IdempotencyConflict(name)),
                AnswerRefusal::Unknown(_) => typed(id, GateError::Unknown(name)),
                AnswerRefusal::NotOffered { problem, .. } => {
                    let schema = content.as_ref().and_then(|content| form::schema_hash(&gate, content));
                    let error = form::not_offered(problem);
                    Response::success(id, RESPONSE, &rejected(name, vec![error], schema.unwrap_or_default()))
                }
                AnswerRefusal::NotAmong { .. } | AnswerRefusal::Nobody { .. } | AnswerRefusal::NotAllowed { .. } => {
                    Response::failure(id, RESPONSE, refusal.to_string())
                }
            },
            Err(refused) => Response::failure(id, RESPONSE, problem(&refused)),
        };
        let then: Box<dyn FnOnce(&mut Door) + Send> = Box::new(move |door| door.write(&response));
        (position, then)
    });
}

fn typed(id: Option<Id>, error: GateError) -> Response {
    Response::typed_failure(id, RESPONSE, &error)
}

/// What an answer to a gate that does not wait any more is told: the same as the first time.
async fn told(
    answers: &countersign_runtime::Source,
    contents: &countersign_runtime::Contents,
    id: GateId,
) -> Option<Resolution> {
    let read = answers.read_of(At::Gate(id), move |engine| engine.state().gate(id).cloned()).await?;
    let gate = read.0?;
    let lsns: Vec<_> = [Some(gate.content()), gate.answer_content()].into_iter().flatten().collect();
    let mut texts = contents.get(&lsns).await.ok()?.into_iter();
    let shown: Content = serde_json::from_str(&texts.next()??).ok()?;
    form::resolved(&gate, &shown, texts.next().flatten().as_deref()).map(|(resolution, _)| resolution)
}

/// Finds the gate of this name in the session.
fn find(session: &SessionId, name: &str) -> Option<impl FnOnce(&Engine) -> Option<GateId> + Send + use<>> {
    let (stage, number) = form::place(session, name)?;
    let session = session.clone();
    Some(move |engine: &Engine| engine.state().session(&session)?.gate(stage, number))
}

/// A gate, and while it waits what it shows.
fn at_hand(engine: &Engine, id: GateId) -> Option<(Gate, Option<Content>)> {
    let gate = engine.state().gate(id)?.clone();
    let content = engine.admitted().gate(id).filter(|_| gate.is_pending()).map(|content| (**content).clone());
    Some((gate, content))
}

/// Lists the gates that wait.
pub(super) async fn pending(door: &mut Door, id: Option<Id>) {
    let gates = waiting(door).await;
    door.write(&Response::success(id, PENDING, &PendingGates { gates }));
}

/// The host has entered unattended mode: it is told of the gates that wait, and answers them as such from now on.
pub(super) async fn enter(door: &mut Door) {
    if let Dialect::Gjc(gjc) = &mut door.dialect {
        gjc.workflow.is_unattended = true;
    }
    for gate in waiting(door).await {
        door.write(Frame::Gate(&gate));
    }
}

/// The gates of the session that wait, oldest first.
async fn waiting(door: &mut Door) -> Vec<WorkflowGate> {
    let Dialect::Gjc(gjc) = &door.dialect else { return Vec::new() };
    let options = gjc.workflow.manner.options;
    let Some((session, answers)) = door.seat().map(|seat| (seat.id.clone(), seat.answers.clone())) else {
        return Vec::new();
    };
    let read = answers.read(move |engine| {
        let gates = engine.state().pending_gates().filter(|gate| gate.session() == Some(&session));
        let gates = gates.filter_map(|gate| Some((gate.clone(), (**engine.admitted().gate(gate.id())?).clone())));
        gates.collect::<Vec<_>>()
    });
    let gates = read.await.map(|(gates, _)| gates).unwrap_or_default();
    gates.iter().filter_map(|(gate, content)| form::wire(gate, content, options)?.ok()).collect()
}
