//! Sends a request to a model and hands on its answer, until it is done, fails, or is stopped.

use std::{pin::pin, sync::Arc, time::Duration};

use countersign_core::{
    engine::Command,
    id::{RunId, SessionId},
    ledger::BudgetAmount,
    message::{self, AssistantReply, MessageBlock, StopReason, StoredMessage},
    run::{Command as RunCommand, ModelAnswer, ProviderFailure},
    session::Settings,
    tool::ToolSpec,
};
use countersign_models::{
    self as models, FailureKind, FinishReason, MessagePart, ModelEntry, ModelEvent, ModelRequest, PartKind,
    ThinkingLevel,
};
use countersign_tools::{ToolRegistry, strip_intent, with_intent};
use futures_util::{Stream, StreamExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    RunEnvironment,
    conversation::{self, OutlineEntry, failed_answer},
    resolve_calls::{CallLocation, parse_arguments, resolve_call},
    silent_retries::{BudgetMode, RetryAttempts},
    spent::{message_usage, spent_by_answer, spent_by_failure},
    wait::{self, Stopwatch},
};
use crate::{
    deliver::{ContentCache, LiveKind, LivePartKind as LivePart, LiveUpdate},
    inbox::CommandSource,
    message_content::encode_message,
    metrics::RuntimeMetrics,
};

/// Text of an aborted message.
const ABORTED: &str = "Request was aborted";
/// Cost that a burst of updates may have, as a multiple of the text.
const PROPORTION: usize = 4;
/// Most events of an answer that are handled before the run is looked at again, and the window of the updates.
const BATCH: usize = 64;
/// Bytes of updates that each millisecond earns in addition, so that a paced stream is released as it comes.
const EARNED: usize = 200;

/// Input of a request to a model.
pub(super) struct TurnWork {
    pub(super) run: RunId,
    pub(super) epoch: u32,
    pub(super) session: SessionId,
    pub(super) cwd: String,
    /// Working folder of the session's shell.
    pub(super) folder: String,
    pub(super) settings: Settings,
    pub(super) pieces: Vec<OutlineEntry>,
    /// Most tokens of the answer, if that is fewer than the model can give.
    pub(super) cap: Option<u64>,
    pub(super) merge: Duration,
    /// Mode of counting the cost of requests against a budget.
    pub(super) budget: BudgetMode,
    /// The time since the request was sent.
    pub(super) time: Stopwatch,
    pub(super) meters: Arc<RuntimeMetrics>,
}

impl TurnWork {
    pub(super) async fn run_turn(
        self,
        host: &dyn RunEnvironment,
        contents: &ContentCache,
        results: &CommandSource,
        cancel: CancellationToken,
    ) -> Command {
        let answer = self.request_answer(host, contents, results, cancel).await;
        Command::Run(RunCommand::Answered { run: self.run, epoch: self.epoch, answer: Box::new(answer) })
    }

    /// Returns the system prompt: first the instructions of people for the session, then everything else.
    fn full_system_prompt(&self, host: &dyn RunEnvironment, specs: &[&ToolSpec]) -> String {
        let prompt = host.system_prompt(&self.session, &self.cwd, specs);
        match &self.settings.profile.system_prompt {
            Some(own) => format!("{own}\n\n{prompt}"),
            None => prompt,
        }
    }

    async fn request_answer(
        &self,
        host: &dyn RunEnvironment,
        contents: &ContentCache,
        results: &CommandSource,
        cancel: CancellationToken,
    ) -> ModelAnswer {
        let fail = |message: &str| {
            let failure = ProviderFailure { retryable: false, overflow: false, after: None };
            let answer = failed_answer(&self.settings, message, failure, StopReason::Error);
            // No request was sent.
            ModelAnswer { spent: Some(BudgetAmount::default()), ..answer }
        };
        let Some(model) = &self.settings.model else { return fail("No model selected.") };
        let chosen = match host.resolve_model(model) {
            Ok(chosen) => chosen,
            Err(problem) => return fail(&problem),
        };
        let mut messages = match conversation::read_messages(&self.pieces, contents).await {
            Ok(messages) if host.reads_in_order(&self.session) => conversation::in_order(messages),
            Ok(messages) => messages,
            Err(error) => return fail(&format!("The conversation cannot be read: {error}")),
        };
        conversation::with_pictures(&mut messages, host).await;
        let registry = host.tool_registry(&self.session);
        let specs: Vec<&ToolSpec> = registry.tool_specs().collect();
        let request = ModelRequest {
            entry: Arc::clone(&chosen.entry),
            key: chosen.key,
            system: Some(self.full_system_prompt(host, &specs)),
            messages: conversation::to_model(&messages),
            tools: specs
                .iter()
                .map(|spec| models::ModelTool {
                    name: spec.name.clone(),
                    description: spec.description.clone(),
                    schema: with_intent(&spec.schema),
                })
                .collect(),
            max_tokens: [self.cap, self.settings.profile.max_tokens].into_iter().flatten().min(),
            level: self.settings.thinking.as_deref().and_then(ThinkingLevel::parse),
            session: Some(self.session.to_string()),
            silence: host.silence_timeout(),
        };
        let mut assembler = MessageAssembler::new(self, &chosen.entry, results);
        let mut attempts = RetryAttempts::new(host.silent_retries());
        let outcome = loop {
            let outcome = assembler.read_stream(chosen.model.stream(request.clone()), &cancel).await;
            let Some(wait) = assembler.silent_wait(&outcome, &mut attempts, host) else { break outcome };
            tokio::select! {
                biased;
                () = cancel.cancelled() => break StreamOutcome::Aborted,
                () = tokio::time::sleep(wait) => {}
            }
        };
        let others = match &outcome {
            StreamOutcome::Failed(failure) => {
                wait::other_models(failure, self.settings.retry, model, || host.usable_models(&self.session, model))
            }
            StreamOutcome::Stopped(_) | StreamOutcome::Aborted => Vec::new(),
        };
        let mut answer = assembler.finish_answer(outcome, &registry, host).await;
        answer.others = others;
        let place = CallLocation { session: &self.session, cwd: &self.cwd, folder: &self.folder };
        place.pin_calls(host, &registry, &mut answer.calls, &cancel).await;
        answer
    }
}

enum StreamOutcome {
    Stopped(FinishReason),
    Failed(models::ModelFailure),
    Aborted,
}

/// A part of the message as far as it is known.
struct PartBuffer {
    kind: PartKind,
    text: String,
    whole: Option<MessagePart>,
}

/// Puts a message together from the events of a model, and hands it on as it comes.
struct MessageAssembler<'a> {
    work: &'a TurnWork,
    entry: &'a ModelEntry,
    results: &'a CommandSource,
    parts: Vec<PartBuffer>,
    usage: models::ModelUsage,
    response_id: Option<String>,
    payload: Option<String>,
    requested_at: Instant,
    first: Option<Duration>,
    pending: Option<(usize, String)>,
    sent: Option<Instant>,
    /// Bytes of all parts so far.
    length: usize,
    /// Bytes that updates have cost: each carries the whole message.
    spent: usize,
    is_started: bool,
    /// True if the provider began to answer, so that the request may have cost something.
    is_begun: bool,
    /// True if an attempt before this one may have had a cost, which is unknown.
    is_unknown: bool,
}

impl<'a> MessageAssembler<'a> {
    fn new(work: &'a TurnWork, entry: &'a ModelEntry, results: &'a CommandSource) -> Self {
        Self {
            work,
            entry,
            results,
            parts: Vec::new(),
            usage: models::ModelUsage::default(),
            response_id: None,
            payload: None,
            requested_at: Instant::now(),
            first: None,
            pending: None,
            sent: None,
            length: 0,
            spent: 0,
            is_started: false,
            is_begun: false,
            is_unknown: false,
        }
    }

    /// Hears one attempt to its end.
    async fn read_stream(
        &mut self,
        stream: impl Stream<Item = Result<ModelEvent, models::ModelFailure>> + Unpin,
        cancel: &CancellationToken,
    ) -> StreamOutcome {
        let mut cancelled = pin!(cancel.cancelled());
        // One timer, set again once it has gone off before its time: a new one wakes the thread that keeps the time.
        let mut window = pin!(tokio::time::sleep_until(self.requested_at));
        let mut batches = stream.ready_chunks(BATCH);
        loop {
            let batch = tokio::select! {
                biased;
                () = &mut cancelled => return StreamOutcome::Aborted,
                // Before the window: events that have come belong to the updates.
                batch = batches.next() => batch,
                () = &mut window, if self.pending.is_some() => {
                    if let Some(until) = self.window_end() {
                        window.as_mut().reset(until);
                    }
                    Some(Vec::new())
                }
            };
            let Some(batch) = batch else {
                let message = "stream ended before its end (terminated)";
                return StreamOutcome::Failed(models::ModelFailure::new(FailureKind::Broken, message));
            };
            for event in batch {
                let stop = match event {
                    Ok(event) => self.handle_event(event).await,
                    Err(failure) => return StreamOutcome::Failed(failure),
                };
                if let Some(stop) = stop {
                    return StreamOutcome::Stopped(stop);
                }
            }
            if self.window_end().is_none() {
                self.flush().await;
            }
        }
    }

    /// Returns the wait before another silent attempt; none if the outcome is reported. A budget has to count a
    /// request that may have cost something before another one is sent.
    fn silent_wait(
        &mut self,
        outcome: &StreamOutcome,
        attempts: &mut RetryAttempts,
        host: &dyn RunEnvironment,
    ) -> Option<Duration> {
        let StreamOutcome::Failed(failure) = outcome else { return None };
        let is_free = spent_by_failure(failure, self.is_begun).is_some();
        // A message that was only opened continues with the events of the next attempt.
        if !self.parts.is_empty() || !host.may_retry(failure) || (!is_free && self.work.budget == BudgetMode::Counted) {
            return None;
        }
        let wait = attempts.next(failure)?;
        self.is_unknown |= !is_free;
        self.is_begun = false;
        self.response_id = None;
        self.usage = models::ModelUsage::default();
        tracing::info!(session = %self.work.session, error = %failure, wait = ?wait, "a model request failed; retrying");
        Some(wait)
    }

    async fn send_live(&self, kind: LiveKind) {
        self.results.send_live(LiveUpdate { session: self.work.session.clone(), kind }).await;
    }

    /// Returns when the gathered updates will have waited long enough, or when to look at their cost again. `None` if they are due.
    fn window_end(&self) -> Option<Instant> {
        let now = Instant::now();
        match self.sent.map(|sent| sent + self.work.merge).filter(|until| now < *until) {
            Some(until) => Some(until),
            None if self.is_affordable() => None,
            None => Some(now + self.work.merge),
        }
    }

    /// Reports whether one more update keeps the bytes written in proportion to the text: an adapter repeats the whole message with each.
    fn is_affordable(&self) -> bool {
        let earned =
            usize::try_from(self.requested_at.elapsed().as_millis()).unwrap_or(usize::MAX).saturating_mul(EARNED);
        self.work.merge.is_zero()
            || self.spent.saturating_add(self.length.saturating_mul(2))
                <= self.length.saturating_mul(PROPORTION).saturating_add(earned)
    }

    async fn flush(&mut self) {
        if let Some((index, text)) = self.pending.take() {
            self.spent = self.spent.saturating_add(self.length.saturating_mul(2));
            self.sent = Some(Instant::now());
            self.send_live(LiveKind::Delta { index, text: text.into() }).await;
        }
    }

    async fn start_message(&mut self) {
        if std::mem::replace(&mut self.is_started, true) {
            return;
        }
        let (api, provider) = (self.entry.api.as_str().into(), self.entry.provider.as_str().into());
        let (run, epoch, model) = (self.work.run, self.work.epoch, self.entry.id.as_str().into());
        self.send_live(LiveKind::MessageStarted { run, epoch, api, provider, model }).await;
    }

    async fn handle_event(&mut self, event: ModelEvent) -> Option<FinishReason> {
        if let ModelEvent::Idle { since, limit } = event {
            self.send_live(LiveKind::Idle { since, limit }).await;
            return None;
        }
        self.is_begun = true;
        self.start_message().await;
        match event {
            ModelEvent::Idle { .. } => {}
            ModelEvent::Start { response_id } => self.response_id = response_id,
            ModelEvent::PartStart { index, kind } => {
                self.flush().await;
                self.spent = self.spent.saturating_add(self.length.saturating_mul(2));
                self.send_live(LiveKind::PartStarted { index, part: live_part(&kind) }).await;
                self.parts.push(PartBuffer { kind, text: String::new(), whole: None });
            }
            ModelEvent::Delta { index, text } => {
                self.first.get_or_insert_with(|| self.requested_at.elapsed());
                if let Some(part) = self.parts.get_mut(index) {
                    part.text.push_str(&text);
                }
                self.length += text.len();
                match &mut self.pending {
                    Some((at, gathered)) if *at == index => gathered.push_str(&text),
                    _ => {
                        self.flush().await;
                        self.pending = Some((index, text));
                    }
                }
            }
            ModelEvent::PartEnd { index, part } => {
                self.flush().await;
                let block = Arc::new(part_to_block(&part));
                if let Some(buffer) = self.parts.get_mut(index) {
                    buffer.whole = Some(part);
                }
                self.spent = self.spent.saturating_add(self.length.saturating_mul(2));
                self.send_live(LiveKind::PartEnded { index, block }).await;
            }
            ModelEvent::Usage(usage) => self.usage = usage,
            ModelEvent::Payload(data) => self.payload = Some(data),
            ModelEvent::Stop(stop) => return Some(stop),
        }
        // The first update is not held back, and without a window none is.
        if self.sent.is_none() || self.work.merge.is_zero() {
            self.flush().await;
        }
        None
    }

    async fn finish_answer(
        mut self,
        outcome: StreamOutcome,
        registry: &ToolRegistry,
        host: &dyn RunEnvironment,
    ) -> ModelAnswer {
        self.flush().await;
        let raw: Vec<MessagePart> = self.parts.iter().map(PartBuffer::to_part).collect();
        let calls: Vec<&MessagePart> = raw.iter().filter(|part| matches!(part, MessagePart::ToolCall { .. })).collect();
        let spent = self.spent_amount(&outcome);
        let (stop, error_message, failure) = match outcome {
            StreamOutcome::Aborted => (StopReason::Aborted, Some(ABORTED.to_owned()), None),
            StreamOutcome::Failed(failed) => {
                let failure = ProviderFailure {
                    retryable: host.may_retry(&failed),
                    overflow: failed.kind == FailureKind::Overflow,
                    after: failed.retry_delay(),
                };
                let message = wait::failure_message(&failed, self.work.time.now(), self.work.settings.retry.longest);
                (StopReason::Error, Some(message), Some(failure))
            }
            StreamOutcome::Stopped(_) if !calls.is_empty() => (StopReason::ToolUse, None, None),
            StreamOutcome::Stopped(FinishReason::Length) => (StopReason::Length, None, None),
            StreamOutcome::Stopped(FinishReason::Stop | FinishReason::ToolUse) => (StopReason::Stop, None, None),
        };
        let resolved_calls = match stop {
            // An answer that broke off is requested again; its calls are void.
            StopReason::Error => Vec::new(),
            StopReason::Stop | StopReason::Length | StopReason::ToolUse | StopReason::Aborted => {
                let no_tool = |name: &str| host.no_tool(&self.work.session, name);
                calls.iter().filter_map(|call| resolve_call(call, registry, no_tool)).collect()
            }
        };
        let usage = message_usage(self.entry, &self.usage);
        self.work.meters.add_tokens([usage.input, usage.output, usage.cache_read, usage.cache_write]);
        let assistant = AssistantReply {
            content: raw.iter().map(part_to_block).collect(),
            api: self.entry.api.as_str().to_owned(),
            provider: self.entry.provider.clone(),
            model: self.entry.id.clone(),
            response_id: self.response_id.take(),
            usage,
            stop_reason: stop,
            error_message,
            duration: Some(whole_millis(self.requested_at.elapsed())),
            ttft: self.first.map(whole_millis),
            provider_payload: self.payload.take().and_then(|data| serde_json::from_str(&data).ok()),
            ..AssistantReply::default()
        };
        let total_tokens = usage.total_tokens;
        ModelAnswer {
            message: encode_message(&StoredMessage::Assistant(assistant)),
            stop,
            total_tokens,
            calls: resolved_calls,
            failure,
            others: Vec::new(),
            spent,
        }
    }

    /// Returns the cost of the answer, if it is known: a provider counts an answer that it gave to the end, and nothing if it
    /// refused to begin one.
    fn spent_amount(&self, outcome: &StreamOutcome) -> Option<BudgetAmount> {
        match outcome {
            _ if self.is_unknown => None,
            StreamOutcome::Stopped(_) => spent_by_answer(self.entry, &self.usage),
            StreamOutcome::Failed(failed) => spent_by_failure(failed, self.is_begun),
            StreamOutcome::Aborted => None,
        }
    }
}

impl PartBuffer {
    /// Returns the whole part, or as much of it as came.
    fn to_part(&self) -> MessagePart {
        if let Some(whole) = &self.whole {
            return whole.clone();
        }
        let text = self.text.clone();
        match &self.kind {
            PartKind::Text => MessagePart::Text { text, signature: None },
            PartKind::Thinking => MessagePart::Thinking { text, signature: None },
            PartKind::Redacted => MessagePart::Redacted { data: text },
            PartKind::ToolCall { id, name } => {
                MessagePart::ToolCall { id: id.clone(), name: name.clone(), arguments: text, signature: None }
            }
        }
    }
}

fn live_part(kind: &PartKind) -> LivePart {
    match kind {
        PartKind::Text => LivePart::Text,
        PartKind::Thinking => LivePart::Thinking,
        PartKind::Redacted => LivePart::Redacted,
        PartKind::ToolCall { id, name } => LivePart::ToolCall { id: id.as_str().into(), name: name.as_str().into() },
    }
}

fn part_to_block(part: &MessagePart) -> MessageBlock {
    match part {
        MessagePart::Text { text, signature } => {
            MessageBlock::Text(message::TextBlock { text: text.clone(), text_signature: signature.clone() })
        }
        MessagePart::Thinking { text, signature } => MessageBlock::Thinking(message::ThinkingBlock {
            thinking: text.clone(),
            thinking_signature: signature.clone(),
        }),
        MessagePart::Redacted { data } => MessageBlock::RedactedThinking { data: data.clone() },
        MessagePart::Image { mime_type, data } => {
            MessageBlock::Image(message::ImageBlock { data: data.clone(), mime_type: mime_type.clone() })
        }
        MessagePart::ToolCall { id, name, arguments, signature } => {
            let arguments = parse_arguments(arguments).unwrap_or_default();
            let (_, intent) = strip_intent(arguments.clone());
            MessageBlock::ToolCall(message::ToolCallBlock {
                id: id.clone(),
                name: name.clone(),
                arguments,
                thought_signature: signature.clone(),
                intent,
            })
        }
    }
}

fn whole_millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
