//! Questions of servers as requests in the record: each has a gate as any other question to people.
//!
//! It must not read answers: the client of the server checks them. A process that ends takes the calls of its servers with it, and
//! the next one withdraws their questions.

use std::{fmt, sync::Arc};

use countersign_core::{
    call::{self, AgentRequest, CallEnd, RequestExecutor},
    engine::{Command, Engine, EngineReply, Event, RecordedFact, ResidencyScope},
    gate::{self, Gate, GateResolution},
    id::{CallId, GateId, PrincipalId, SessionId},
    tool::{RepeatMode, ToolEffect},
};
use countersign_runtime::{CommandSource, InboxLane, OwnerError, OwnerHandle, tools::GatewaySecrets};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::questions::{QuestionAnswer, QuestionAsker, ServerQuestion};

/// Tool of a question, as rules name it.
const TOOL: &str = "mcp_question";
/// Beginning of the ids of the requests, as their sessions know them.
const ID_PREFIX: &str = "question-";
/// Principal that withdraws what no process waits for.
const WITHDRAWER: &str = "gateway";

/// Session of the questions of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionPlace {
    /// The session. It is open.
    pub session: SessionId,
    /// Principal of the questions.
    pub principal: PrincipalId,
    /// Adapter of the questions, as rules name it.
    pub door: Arc<str>,
}

/// Sessions in which servers ask.
pub trait QuestionPlaces: fmt::Debug + Send + Sync {
    /// Opens the session of the questions of `server`, if it is not open.
    fn open<'a>(
        &'a self,
        requests: &'a CommandSource,
        server: &'a str,
    ) -> BoxFuture<'a, Result<QuestionPlace, OwnerError>>;
}

/// Way from servers to the people who answer gates. It leads nowhere before [`Self::open`].
#[derive(Default)]
pub struct QuestionRequests(Mutex<Option<Arc<QuestionContext>>>);

/// Parts of a running program that questions need.
struct QuestionContext {
    handle: OwnerHandle,
    requests: CommandSource,
    secrets: GatewaySecrets,
    places: Arc<dyn QuestionPlaces>,
}

/// Question that was recorded.
struct RecordedQuestion {
    session: SessionId,
    call: CallId,
}

impl QuestionRequests {
    /// Leads new questions to an owner. Values of `secrets` are no part of them.
    pub fn open(&self, handle: &OwnerHandle, secrets: GatewaySecrets, places: Arc<dyn QuestionPlaces>) {
        let requests = handle.source(InboxLane::Request);
        *self.0.lock() = Some(Arc::new(QuestionContext { handle: handle.clone(), requests, secrets, places }));
    }
}

impl fmt::Debug for QuestionRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QuestionRequests").field(&self.is_ready()).finish()
    }
}

impl QuestionAsker for QuestionRequests {
    fn is_ready(&self) -> bool {
        self.0.lock().is_some()
    }

    fn ask(&self, question: ServerQuestion, cancel: CancellationToken) -> BoxFuture<'_, QuestionAnswer> {
        let context = self.0.lock().clone();
        Box::pin(async move {
            let Some(context) = context else {
                return unanswered("no approver can be asked yet");
            };
            match context.ask(&question, cancel).await {
                Ok(answer) => answer,
                Err(error) => {
                    tracing::warn!(server = question.server, %error, "a question of an MCP server was not asked");
                    unanswered(&error.to_string())
                }
            }
        })
    }
}

fn unanswered(reason: &str) -> QuestionAnswer {
    QuestionAnswer::Unanswered { reason: reason.to_owned() }
}

impl QuestionContext {
    async fn ask(&self, question: &ServerQuestion, cancel: CancellationToken) -> Result<QuestionAnswer, OwnerError> {
        let place = self.places.open(&self.requests, &question.server).await?;
        let session = place.session.clone();
        // Before the request, so that its end is not missed.
        let mut ends = self.handle.follow_facts(ended_call).await.ok_or(OwnerError::Closed)?;
        let request = self.build_request(question, place);
        let reply = self.requests.send_command(Command::Call(call::Command::Request(Box::new(request)))).await?;
        let EngineReply::Requested { call, .. } = reply.outcome else { return Err(OwnerError::Closed) };
        let recorded = RecordedQuestion { session, call };
        let mut is_withdrawn = false;
        let (end, content) = loop {
            tokio::select! {
                biased;
                fact = ends.next() => match fact {
                    Some((ended, end, content)) if ended == call => break (end, content),
                    Some(_) => {}
                    None => return Err(OwnerError::Closed),
                },
                () = cancel.cancelled(), if !is_withdrawn => {
                    is_withdrawn = true;
                    self.withdraw(&recorded).await?;
                }
            }
        };
        let answer = match end {
            CallEnd::Done { error: false } => self.read_answer(&recorded, &content).await?,
            _ => unanswered(if content.is_empty() { "the question was not asked" } else { &content }),
        };
        let received = call::Command::Received { session: recorded.session, calls: vec![call] };
        self.requests.send_command(Command::Call(received)).await?;
        Ok(answer)
    }

    fn build_request(&self, question: &ServerQuestion, place: QuestionPlace) -> AgentRequest {
        let redactor = self.secrets.redactor();
        let options: Vec<Value> =
            question.choices.iter().map(|label| json!({ "label": redactor.redact_text(label) })).collect();
        let mut form = json!({
            "question": redactor.redact_text(&question.text),
            "options": options,
            "multi": question.is_multi,
            "closed": question.is_closed,
        });
        if let Some(recommended) = question.recommended {
            form["recommended"] = recommended.into();
        }
        let arguments = Map::from_iter([
            ("server".to_owned(), Value::from(question.server.as_str())),
            ("tools".to_owned(), json!(question.tools)),
            ("questions".to_owned(), json!([form])),
        ]);
        AgentRequest {
            session: place.session,
            principal: place.principal,
            door: place.door,
            wire: json!(format!("{ID_PREFIX}{}", Uuid::now_v7().simple())).to_string().into(),
            key: None,
            tool: TOOL.into(),
            arguments,
            signatures: vec![format!("{TOOL}({})", question.server)],
            named: vec!["server".to_owned()],
            undeclared: Vec::new(),
            service: Some(format!("mcp:{}", question.server).into()),
            executor: RequestExecutor::Person,
            paths: Vec::new(),
            cwd: String::new(),
            leads_to: None,
            for_principals: question.callers.clone(),
            effect: ToolEffect::Reads,
            repeat: RepeatMode::Idempotent,
        }
    }

    /// Withdraws a question for which the server does not wait any more.
    async fn withdraw(&self, recorded: &RecordedQuestion) -> Result<(), OwnerError> {
        let call = recorded.call;
        let scope = ResidencyScope::Session(recorded.session.clone());
        let read = self.requests.read_of(scope, move |engine| engine.state().gate_of(call).map(Gate::id));
        let (gate, _) = read.await.ok_or(OwnerError::Closed)?;
        match gate {
            Some(gate) => withdraw_gate(&self.handle, gate).await,
            None => Ok(()),
        }
    }

    /// Reads how a person answered, and with which words.
    async fn read_answer(&self, recorded: &RecordedQuestion, content: &str) -> Result<QuestionAnswer, OwnerError> {
        let (call, session) = (recorded.call, recorded.session.clone());
        let scope = ResidencyScope::Session(session.clone());
        let read = self.requests.read_of(scope, move |engine| gate_resolution(engine, &session, call));
        let (resolution, _) = read.await.ok_or(OwnerError::Closed)?;
        Ok(match resolution {
            Some(GateResolution::Answered) => QuestionAnswer::Answered(answer_words(content)),
            Some(GateResolution::Declined | GateResolution::Denied) => QuestionAnswer::Declined,
            Some(GateResolution::Expired) => unanswered("no approver answered in time"),
            Some(GateResolution::Withdrawn) => unanswered("the question was withdrawn"),
            Some(GateResolution::Allowed { .. } | GateResolution::Granted) | None => {
                unanswered("the question has no answer")
            }
        })
    }
}

fn gate_resolution(engine: &Engine, session: &SessionId, call: CallId) -> Option<GateResolution> {
    let gate = engine.state().session(session)?.agent_requests()?.gate_of(call)?;
    engine.state().gate(gate)?.resolution().cloned()
}

/// Returns the words of an answer: labels of choices first.
fn answer_words(content: &str) -> Vec<String> {
    let details: Value = serde_json::from_str(content).unwrap_or_default();
    let answer = &details["results"][0];
    let chosen = answer["selectedOptions"].as_array().into_iter().flatten().filter_map(Value::as_str);
    chosen.chain(answer["customInput"].as_str()).map(str::to_owned).collect()
}

/// Returns the end of a request, with its content.
fn ended_call(recorded: &Arc<RecordedFact>) -> Option<(CallId, CallEnd, Arc<str>)> {
    match &recorded.fact.event {
        Event::Call(call::Event::Ended { call, end, entry: None }) => {
            Some((*call, *end, recorded.fact.content.clone().unwrap_or_default()))
        }
        _ => None,
    }
}

async fn withdraw_gate(handle: &OwnerHandle, gate: GateId) -> Result<(), OwnerError> {
    let withdraw = gate::Command::Withdraw { gate, by: PrincipalId::new(WITHDRAWER) };
    match handle.source(InboxLane::Result).send_command(Command::Gate(withdraw)).await {
        Ok(_) | Err(OwnerError::Refusal(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Withdraws the questions of an earlier process in the sessions that `is_meant` accepts: the calls for which its servers asked ended
/// with it.
///
/// # Errors
/// [`OwnerError`] if that cannot be recorded.
pub async fn withdraw_left_questions(
    handle: &OwnerHandle,
    is_meant: impl Fn(&SessionId) -> bool + Send + 'static,
) -> Result<(), OwnerError> {
    let requests = handle.source(InboxLane::Request);
    let left = requests.read_state(move |engine| {
        let pending = engine.state().pending_gates();
        pending.filter_map(|gate| question_of(engine, gate, &is_meant)).collect::<Vec<_>>()
    });
    let (left, _) = left.await.ok_or(OwnerError::Closed)?;
    for (gate, session, call) in left {
        withdraw_gate(handle, gate).await?;
        let received = call::Command::Received { session, calls: vec![call] };
        requests.send_command(Command::Call(received)).await?;
    }
    Ok(())
}

/// Returns the question of a server that a gate asks.
fn question_of(
    engine: &Engine,
    gate: &Gate,
    is_meant: &impl Fn(&SessionId) -> bool,
) -> Option<(GateId, SessionId, CallId)> {
    let (session, call) = (gate.session().filter(|session| is_meant(session))?, gate.call()?);
    let request = engine.state().session(session)?.agent_requests()?.open_requests().get(&call)?;
    let id: String = serde_json::from_str(&request.wire).ok()?;
    id.starts_with(ID_PREFIX).then(|| (gate.id(), session.clone(), call))
}
