//! Questions of MCP servers to people: each is a request of the server for an answer, with a gate as any other question.
//!
//! It must not read answers: the client of the server checks them. A process that ends takes the calls of its servers with it, and
//! the next one withdraws their questions.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use countersign_core::{
    call::{self, AgentRequest, CallEnd, RequestExecutor},
    engine::{Command, Engine, EngineReply, Event, RecordedFact, ResidencyScope},
    gate::{self, Gate, GateResolution},
    id::{CallId, GateId, PrincipalId, SessionId},
    session::Settings as SessionSettings,
    tool::{RepeatMode, ToolEffect},
};
use countersign_foreign_calls::open_session;
use countersign_mcp_client::{QuestionAnswer, QuestionAsker, ServerQuestion};
use countersign_runtime::{CommandSource, InboxLane, OwnerError, OwnerHandle, tools::GatewaySecrets};
use countersign_view::{Protocol, principals};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Tool of a question, as rules name it.
const TOOL: &str = "mcp_question";
/// Most questions of one server that wait at once.
const MOST_PENDING: u32 = 20;
/// Principal that withdraws what no process waits for.
const WITHDRAWER: &str = "gateway";

/// Way from MCP servers to the people who answer gates.
#[derive(Default)]
pub(crate) struct ServerQuestions(OnceLock<QuestionContext>);

/// Parts of an open gateway that questions need.
struct QuestionContext {
    handle: OwnerHandle,
    requests: CommandSource,
    secrets: GatewaySecrets,
    timeout: Duration,
}

/// Question that was recorded.
struct AskedQuestion {
    session: SessionId,
    call: CallId,
}

impl ServerQuestions {
    /// Opens the way on an owner. A question is open for `timeout`; values of `secrets` are no part of it.
    pub(crate) fn open(&self, handle: &OwnerHandle, secrets: GatewaySecrets, timeout: Duration) {
        let requests = handle.source(InboxLane::Request);
        let context = QuestionContext { handle: handle.clone(), requests, secrets, timeout };
        // A second one would be of the same gateway.
        drop(self.0.set(context));
    }
}

impl std::fmt::Debug for ServerQuestions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ServerQuestions").field(&self.0.get().is_some()).finish()
    }
}

impl QuestionAsker for ServerQuestions {
    fn is_ready(&self) -> bool {
        self.0.get().is_some()
    }

    fn ask(&self, question: ServerQuestion, cancel: CancellationToken) -> BoxFuture<'_, QuestionAnswer> {
        Box::pin(async move {
            let Some(context) = self.0.get() else {
                return unanswered("the gateway has not started");
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
        let principal = principals::of_mcp_server(&question.server);
        let session = SessionId::new(principal.as_str());
        let settings =
            SessionSettings { clarify_timeout: self.timeout, max_pending: MOST_PENDING, ..SessionSettings::default() };
        let name = format!("MCP server {}", question.server);
        open_session(&self.requests, Protocol::Mcp, &session, &name, "", settings).await?;
        // Before the request, so that its end is not missed.
        let mut ends = self.handle.follow_facts(ended_call).await.ok_or(OwnerError::Closed)?;
        let request = self.build_request(question, session.clone(), principal);
        let reply = self.requests.send_command(Command::Call(call::Command::Request(Box::new(request)))).await?;
        let EngineReply::Requested { call, .. } = reply.outcome else { return Err(OwnerError::Closed) };
        let asked = AskedQuestion { session, call };
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
                    self.withdraw(&asked).await?;
                }
            }
        };
        let answer = match end {
            CallEnd::Done { error: false } => self.read_answer(&asked, &content).await?,
            _ => unanswered(if content.is_empty() { "the question was not asked" } else { &content }),
        };
        let received = call::Command::Received { session: asked.session, calls: vec![call] };
        self.requests.send_command(Command::Call(received)).await?;
        Ok(answer)
    }

    fn build_request(&self, question: &ServerQuestion, session: SessionId, principal: PrincipalId) -> AgentRequest {
        let redactor = self.secrets.redactor();
        let options: Vec<Value> =
            question.choices.iter().map(|label| json!({ "label": redactor.redact_text(label) })).collect();
        let mut asked = json!({
            "question": redactor.redact_text(&question.text),
            "options": options,
            "multi": question.is_multi,
            "closed": question.is_closed,
        });
        if let Some(recommended) = question.recommended {
            asked["recommended"] = recommended.into();
        }
        let arguments = Map::from_iter([
            ("server".to_owned(), Value::from(question.server.as_str())),
            ("tools".to_owned(), json!(question.tools)),
            ("questions".to_owned(), json!([asked])),
        ]);
        AgentRequest {
            session,
            principal,
            door: Protocol::Mcp.name().into(),
            wire: json!(format!("question-{}", Uuid::now_v7().simple())).to_string().into(),
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
    async fn withdraw(&self, asked: &AskedQuestion) -> Result<(), OwnerError> {
        let call = asked.call;
        let scope = ResidencyScope::Session(asked.session.clone());
        let read = self.requests.read_of(scope, move |engine| engine.state().gate_of(call).map(Gate::id));
        let (gate, _) = read.await.ok_or(OwnerError::Closed)?;
        match gate {
            Some(gate) => withdraw_gate(&self.handle, gate).await,
            None => Ok(()),
        }
    }

    /// Reads how a person answered, and with which words.
    async fn read_answer(&self, asked: &AskedQuestion, content: &str) -> Result<QuestionAnswer, OwnerError> {
        let (call, session) = (asked.call, asked.session.clone());
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

/// Withdraws the questions of an earlier process: the calls for which its servers asked ended with it.
///
/// # Errors
/// [`OwnerError`] if that cannot be recorded.
pub(crate) async fn withdraw_left_questions(handle: &OwnerHandle) -> Result<(), OwnerError> {
    let requests = handle.source(InboxLane::Request);
    let left = requests.read_state(|engine| engine.state().pending_gates().filter_map(question_of).collect::<Vec<_>>());
    let (left, _) = left.await.ok_or(OwnerError::Closed)?;
    for (gate, session, call) in left {
        withdraw_gate(handle, gate).await?;
        let received = call::Command::Received { session, calls: vec![call] };
        requests.send_command(Command::Call(received)).await?;
    }
    Ok(())
}

/// Returns the question of a server that a gate asks.
fn question_of(gate: &Gate) -> Option<(GateId, SessionId, CallId)> {
    let session = gate.session().filter(|session| principals::is_mcp_server(session))?;
    Some((gate.id(), session.clone(), gate.call()?))
}
