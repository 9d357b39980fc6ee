//! One open session of an editor: it sends prompts, follows the record, and asks for what waits.
//!
//! One task does all of it, so that updates, requests and the end of a prompt leave in the order of the record.

use std::{collections::BTreeMap, sync::Arc};

use countersign_acp_protocol::{
    AvailableCommand, ErrorCode, PromptReply, RequestId, SessionUpdate, StopReason, ToolCall, ToolCallFields, methods,
};
use countersign_conversations::chats::ChatError;
use countersign_core::{
    engine::{Command, CommandError, EngineReply, Event, RecordedFact, ResidencyScope},
    gate::{self, AnswerError, GateReply},
    id::{GateId, Lsn, RunId, SessionId},
    message::MessageBlock,
    session::{self, SessionSetting, WhenBusy},
};
use countersign_runtime::{InboxLane, OwnerError, ReleasedItem, Subscriber};
use countersign_view::{LineMode, escape};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::{
    config_options::{config_options, context_window, mode_id},
    connection_context::ConnectionContext,
    feed_command::FeedCommand,
    gate_answers::{ReplyMeaning, read_reply},
    gate_requests::{GateRequestFrame, PendingGate, pending_gates},
    output::{Output, RequestFailure},
    session_replay::replay_messages,
    session_snapshot::{SessionSnapshot, read_choices, read_snapshot},
    update_encoder::{RunEnd, UpdateEncoder},
};

/// The command that summarises a conversation.
pub(crate) const COMPACT: &str = "compact";

/// Work of a request that waits for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TurnWork {
    Run(RunId),
    Compaction,
}

struct OpenTurn {
    id: RequestId,
    work: TurnWork,
}

struct ShownGate {
    gate: PendingGate,
    frame: GateRequestFrame,
    /// The request, until it has a reply.
    request: Option<u64>,
}

/// Feed of one session.
pub(crate) struct SessionFeed {
    context: Arc<ConnectionContext>,
    session: SessionId,
    subscriber: Subscriber,
    /// Facts up to it are known. None once a later one has come.
    known: Option<Lsn>,
    encoder: UpdateEncoder,
    turn: Option<OpenTurn>,
    requested: BTreeMap<GateId, ShownGate>,
}

impl SessionFeed {
    /// Opens the feed of a session with its state. `None` if there is no such session, or the gateway closes.
    pub(crate) async fn open(context: &Arc<ConnectionContext>, session: &SessionId) -> Option<(Self, SessionSnapshot)> {
        let subscriber = context.adapter.handle.subscribe().await?;
        let id = session.clone();
        subscriber.wake_for(move |released| session_of(released) == Some(&id));
        let snapshot = read_snapshot(&context.adapter.handle, session).await?;
        let mut encoder = UpdateEncoder::new(&snapshot.cwd, context.features.notices);
        encoder.set_window(context_window(&snapshot.settings));
        let feed = Self {
            context: Arc::clone(context),
            session: session.clone(),
            subscriber,
            known: Some(snapshot.head),
            encoder,
            turn: None,
            requested: BTreeMap::new(),
        };
        Some((feed, snapshot))
    }

    /// Sends the conversation of the record, and the calls that work.
    ///
    /// # Errors
    /// The record cannot be read.
    pub(crate) async fn replay(&mut self, snapshot: &SessionSnapshot) -> Result<(), RequestFailure> {
        let (handle, output) = (&self.context.adapter.handle, &self.context.output);
        let wire_id = self.session.as_str();
        let replayed = replay_messages(handle, wire_id, snapshot, &mut self.encoder, output).await;
        replayed.map_err(|error| {
            RequestFailure::new(ErrorCode::Internal, format!("the conversation cannot be read: {error}"))
        })?;
        for (_, view, status) in &snapshot.calls {
            let fields = ToolCallFields { status: Some(*status), ..ToolCallFields::default() };
            let update = SessionUpdate::ToolCallUpdate(ToolCall { tool_call_id: view.id.clone(), fields });
            output.send_update(wire_id, &update).await;
        }
        Ok(())
    }

    /// Works until the connection leaves the session, or the record has ended.
    pub(crate) async fn run(
        mut self,
        calls: SessionSnapshot,
        own: mpsc::WeakSender<FeedCommand>,
        mut commands: mpsc::Receiver<FeedCommand>,
    ) {
        for (call, view, _) in calls.calls {
            self.encoder.add_call(call, view);
        }
        let available_commands = vec![AvailableCommand {
            name: COMPACT,
            description: "Summarise the conversation so far; words after the command say what matters",
        }];
        self.send_update(&SessionUpdate::AvailableCommandsUpdate { available_commands }).await;
        self.refresh_gates(&own).await;
        loop {
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => self.handle_command(command).await,
                    None => break,
                },
                released = self.subscriber.next() => match released {
                    Some(released) => self.handle_released(released, &own).await,
                    None => break,
                },
            }
        }
        for requested in std::mem::take(&mut self.requested).into_values() {
            self.withdraw(&requested).await;
        }
        if let Some(OpenTurn { id, .. }) = self.turn.take() {
            let reply = PromptReply { stop_reason: StopReason::Cancelled };
            self.context.output.send_reply(&id, Ok(&reply)).await;
        }
    }

    fn output(&self) -> &Output {
        &self.context.output
    }

    async fn send_update(&self, update: &SessionUpdate) {
        self.output().send_update(self.session.as_str(), update).await;
    }

    async fn flush(&mut self) {
        while let Some(update) = self.encoder.updates.pop_front() {
            self.send_update(&update).await;
        }
    }

    async fn refuse(&self, id: &RequestId, failure: &RequestFailure) {
        self.output().send_fault(Some(id), failure).await;
    }

    async fn handle_command(&mut self, command: FeedCommand) {
        match command {
            FeedCommand::Prompt { id, .. } | FeedCommand::Compact { id, .. } if self.turn.is_some() => {
                let text = "the session has an open prompt: wait for its reply, or send session/cancel";
                self.refuse(&id, &RequestFailure::new(ErrorCode::InvalidRequest, text)).await;
            }
            FeedCommand::Prompt { id, blocks } => self.start_prompt(id, blocks).await,
            FeedCommand::Compact { id, topic } => {
                match self.context.adapter.chats.compact_session(&self.session, topic.as_deref()).await {
                    Ok(()) => self.turn = Some(OpenTurn { id, work: TurnWork::Compaction }),
                    Err(error) => self.refuse(&id, &chat_failure(&error)).await,
                }
            }
            FeedCommand::Cancel => self.stop_work().await,
            FeedCommand::CancelRequest(request) => {
                if self.turn.as_ref().is_some_and(|turn| turn.id == request) {
                    self.stop_work().await;
                }
            }
            FeedCommand::Replied { gate, result } => self.handle_reply(gate, result).await,
        }
    }

    async fn start_prompt(&mut self, id: RequestId, blocks: Vec<MessageBlock>) {
        // Its entry may be in the record before the reply to the command is.
        self.encoder.expect_own_message();
        let sent = self.context.adapter.chats.prompt_blocks(&self.session, blocks, WhenBusy::Refuse, None).await;
        let failure = match sent {
            Ok(EngineReply::Started(run) | EngineReply::BehindCompaction(run)) => {
                self.turn = Some(OpenTurn { id, work: TurnWork::Run(run) });
                return;
            }
            Ok(other) => {
                tracing::error!(?other, "a prompt of an editor began no run");
                RequestFailure::new(ErrorCode::Internal, "the prompt began no run")
            }
            Err(error) => chat_failure(&error),
        };
        self.encoder.forget_own_message();
        self.refuse(&id, &failure).await;
    }

    async fn stop_work(&mut self) {
        if let Err(error) = self.context.adapter.chats.stop_session(&self.session).await {
            tracing::warn!(session = %self.session, %error, "the work of a session was not stopped");
        }
    }

    async fn handle_released(&mut self, released: ReleasedItem, own: &mpsc::WeakSender<FeedCommand>) {
        let recorded = match released {
            // What was streamed before the snapshot cannot be told from what was streamed after it.
            ReleasedItem::Live(_) if self.known.is_some() => return,
            ReleasedItem::Live(live) => {
                if live.session == self.session {
                    self.encoder.encode_live(&live.kind);
                    self.flush().await;
                }
                return;
            }
            ReleasedItem::Fact(recorded) => recorded,
        };
        if self.known.is_some_and(|known| recorded.meta.lsn <= known) {
            return;
        }
        self.known = None;
        if recorded.meta.session.as_ref() != Some(&self.session) {
            return;
        }
        let content = self.fact_content(&recorded).await;
        let event = &recorded.fact.event;
        let ended = self.encoder.encode_fact(event, content.as_deref());
        self.flush().await;
        match event {
            Event::Gate(gate::Event::Shown { .. } | gate::Event::Updated { .. }) => {}
            Event::Gate(_) => self.refresh_gates(own).await,
            Event::Session(session::Event::Set(setting)) if is_choice(setting) => self.send_choices().await,
            Event::Session(session::Event::CompactionEnded { ok, aborted, .. }) => {
                self.end_compaction(*ok, *aborted).await;
            }
            _ => {}
        }
        if let Some((run, end)) = ended {
            self.end_run(run, end).await;
        }
    }

    /// Reads the content of a fact. An entry made from a queued message has its content in another record.
    async fn fact_content(&self, recorded: &RecordedFact) -> Option<Arc<str>> {
        match &recorded.fact.event {
            Event::Session(session::Event::Entry { content_at: Some(at), .. }) => {
                self.context.adapter.handle.contents().get(&[*at]).await.ok()?.pop()?
            }
            _ => recorded.fact.content.clone(),
        }
    }

    async fn end_compaction(&mut self, ok: bool, aborted: bool) {
        let Some(OpenTurn { id, .. }) = self.turn.take_if(|turn| turn.work == TurnWork::Compaction) else { return };
        let stopped = |stop_reason| Ok(PromptReply { stop_reason });
        let reply = match (ok, aborted) {
            (true, _) => stopped(StopReason::EndTurn),
            (false, true) => stopped(StopReason::Cancelled),
            (false, false) => Err(RequestFailure::new(ErrorCode::Internal, "the conversation was not summarised")),
        };
        self.output().send_reply(&id, reply.as_ref()).await;
    }

    async fn end_run(&mut self, run: RunId, end: RunEnd) {
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.work == TurnWork::Run(run)) else { return };
        let reply = match end {
            RunEnd::Stopped(stop_reason) => Ok(PromptReply { stop_reason }),
            RunEnd::Failed(text) => Err(RequestFailure::new(ErrorCode::Internal, text)),
            RunEnd::Overflowed(text) => {
                let id = self.session.clone();
                let source = self.context.adapter.handle.source(InboxLane::Request);
                let next = source.read_of(ResidencyScope::Session(id.clone()), move |engine| {
                    let session = engine.state().session(&id)?;
                    session.awaited_run().or_else(|| session.run())
                });
                if let Some((Some(next), _)) = next.await {
                    // The same message is answered after a summary.
                    turn.work = TurnWork::Run(next);
                    return;
                }
                Err(RequestFailure::new(ErrorCode::Internal, text))
            }
        };
        if let Some(OpenTurn { id, .. }) = self.turn.take() {
            self.output().send_reply(&id, reply.as_ref()).await;
        }
    }

    /// Sends the mode and the options after a change, by whomever.
    async fn send_choices(&mut self) {
        let ConnectionContext { adapter, options, .. } = &*self.context;
        let Some(choices) = read_choices(&adapter.handle, &self.session).await else { return };
        self.encoder.set_window(context_window(&choices));
        let mode = SessionUpdate::CurrentModeUpdate { current_mode_id: mode_id(choices.approval).to_owned() };
        let config_options = config_options(&choices, options.approval, adapter.chats.models());
        self.send_update(&mode).await;
        self.send_update(&SessionUpdate::ConfigOptionUpdate { config_options }).await;
    }

    /// Asks about gates that opened, and withdraws the requests about those that are decided.
    async fn refresh_gates(&mut self, own: &mpsc::WeakSender<FeedCommand>) {
        let id = self.session.clone();
        let source = self.context.adapter.handle.source(InboxLane::Result);
        let Some((pending, _)) = source.read_state(move |engine| pending_gates(engine, &id)).await else { return };
        let is_pending = |id: &GateId| pending.iter().any(|gate| gate.id() == *id);
        let over: Vec<GateId> = self.requested.keys().filter(|id| !is_pending(id)).copied().collect();
        for gate in over {
            if let Some(requested) = self.requested.remove(&gate) {
                self.withdraw(&requested).await;
            }
        }
        for gate in pending {
            if !self.requested.contains_key(&gate.id()) {
                self.ask(gate, own).await;
            }
        }
    }

    async fn withdraw(&self, requested: &ShownGate) {
        if let Some(request) = requested.request {
            self.context.requests.forget(request);
            self.output().withdraw_request(request).await;
        }
    }

    async fn ask(&mut self, gate: PendingGate, own: &mpsc::WeakSender<FeedCommand>) {
        let frame = gate.request(self.session.as_str(), self.encoder.cwd(), self.context.features);
        let id = gate.id();
        let begin = || own.upgrade().map(|own| self.context.requests.begin(id, &own));
        let request = match &frame {
            GateRequestFrame::Permission(params) => {
                let request = begin();
                if let Some(request) = request {
                    self.output().send_request(request, methods::REQUEST_PERMISSION, params).await;
                }
                request
            }
            GateRequestFrame::Form(params) => {
                let request = begin();
                if let Some(request) = request {
                    self.output().send_request(request, methods::CREATE_ELICITATION, params).await;
                }
                request
            }
            GateRequestFrame::Nothing => {
                let text = escape(gate.summary.request.headline(), LineMode::Many);
                self.encoder.push_notice("warning", &format!("{text}\n{}", elsewhere(id)));
                self.flush().await;
                None
            }
        };
        self.requested.insert(id, ShownGate { gate, frame, request });
    }

    async fn handle_reply(&mut self, gate: GateId, result: Result<Value, String>) {
        let Some(requested) = self.requested.get_mut(&gate) else { return };
        requested.request = None;
        let why = match read_reply(&requested.gate, &requested.frame, result) {
            ReplyMeaning::Answer(answer) => match self.answer_gate(gate, answer).await {
                Ok(()) => return,
                Err(why) => why,
            },
            ReplyMeaning::Nothing(why) => why,
        };
        self.encoder.push_notice("warning", &format!("{}: {why}", elsewhere(gate)));
        self.flush().await;
    }

    /// Answers a gate as the person at the editor. An answer after the first is no error.
    async fn answer_gate(&self, gate: GateId, answer: GateReply) -> Result<(), String> {
        let ConnectionContext { adapter, person, .. } = &*self.context;
        let answer = gate::Command::Answer { gate, answer, by: person.clone(), key: None };
        match adapter.handle.source(InboxLane::Result).send_command(Command::Gate(answer)).await {
            Ok(_)
            | Err(OwnerError::Refusal(CommandError::Answer(
                AnswerError::AlreadyResolved { .. } | AnswerError::Unknown(_),
            ))) => Ok(()),
            Err(refused) => Err(refused.to_string()),
        }
    }
}

/// Returns where a gate can be answered that the editor did not answer.
fn elsewhere(gate: GateId) -> String {
    format!("{gate} stays open. Answer it in the console, in a messenger or with `countersign gates`")
}

/// Returns a refusal of the conversation as the error of a request.
pub(crate) fn chat_failure(error: &ChatError) -> RequestFailure {
    let code = match error {
        ChatError::Unknown => ErrorCode::NotFound,
        ChatError::NotOurs | ChatError::Busy | ChatError::KeyTaken | ChatError::Invalid(_) => ErrorCode::InvalidRequest,
        ChatError::Failed(_) => ErrorCode::Internal,
    };
    let text = match error {
        ChatError::Busy => "the session works on another message: wait for its end, or send session/cancel".to_owned(),
        other => other.to_string(),
    };
    RequestFailure::new(code, text)
}

fn is_choice(setting: &SessionSetting) -> bool {
    matches!(
        setting,
        SessionSetting::Model(_) | SessionSetting::Thinking(_) | SessionSetting::Approval(_) | SessionSetting::All(_)
    )
}

fn session_of(released: &ReleasedItem) -> Option<&SessionId> {
    match released {
        ReleasedItem::Fact(recorded) => recorded.meta.session.as_ref(),
        ReleasedItem::Live(live) => Some(&live.session),
    }
}
