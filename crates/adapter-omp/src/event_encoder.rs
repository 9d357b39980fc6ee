//! Tells a host what happens: facts and live frames in, frames of the wire out, in the order of docs/protocol/omp.md, Events.
//!
//! It does no input or output and decides nothing.

mod aborted;
mod call_frames;
mod partial_message;
mod shown_call;
mod unfinished_run;

use std::collections::BTreeMap;

use countersign_core::{
    engine::{Event as Happened, RecordedFact},
    id::CallId,
    message::{AssistantReply, StopReason, StoredMessage},
    run::{self, RunOutcome},
    session::{self, AfterCompaction, CompactionCause, SessionEntryKind},
    time::Millis,
};
use countersign_protocol::{
    RawJson,
    omp::{
        OmpEvent,
        event::{CompactionAction, CompactionReason, TodoItem},
        state::CompactionResult,
    },
};
use countersign_runtime::{LiveKind, LiveUpdate};
use serde_json::{Value, json};

pub(crate) use unfinished_run::{OpenEnd, UnfinishedRun, open_end};

use self::{
    aborted::{TurnState, message_identity},
    partial_message::{PartialMessage, apply_change},
    shown_call::ShownCall,
};
use super::entries;
use crate::{refusal_text::CANCELLED, session_file::convert};

/// State of the frames of a session, as far as later frames need it.
#[derive(Default)]
pub struct EventEncoder {
    /// True if a run works: between `agent_start` and the end of it, waits included.
    is_running: bool,
    is_compacting: bool,
    /// True if it waits before another attempt.
    is_waiting: bool,
    /// True if the end of the run is not sent any more.
    is_detached: bool,
    /// True if the session is being closed: work that begins then need not continue.
    is_closing: bool,
    /// True if a turn has begun that was not sent yet.
    owes_turn: bool,
    /// True if an operation has ended and no frame has reported yet that the session is idle.
    owes_settled: bool,
    added: Vec<RawJson>,
    partial: Option<PartialMessage>,
    /// Time of the last request to the model: the time of its message, from its beginning to its record.
    requested_at: Option<Millis>,
    turn_message: Option<RawJson>,
    turn_results: Vec<RawJson>,
    turn: TurnState,
    /// The last answer of the run, without its content.
    last: Option<AssistantReply>,
    calls: BTreeMap<CallId, ShownCall>,
    result: Option<(Value, RawJson)>,
    attempt: u32,
    error: String,
    compacted: Option<CompactionResult>,
    reason: Option<CompactionCause>,
}

/// End of an operation for the code that waits for it, in addition to the frames.
#[derive(Clone, Debug, PartialEq)]
pub enum EndedOperation {
    /// The run is over, and its last frame was sent.
    Run,
    /// A requested compaction is over.
    Compaction(Result<CompactionResult, String>),
    /// A person's command is over. Its message is the content of the entry before.
    Command(CallId, Option<String>),
}

impl EventEncoder {
    /// Reports whether a run works or waits for another attempt.
    pub fn is_running(&self) -> bool {
        self.is_running
    }

    /// Reports whether a context is being summarised.
    pub(crate) fn is_compacting(&self) -> bool {
        self.is_compacting
    }

    /// Tells of nothing more of the run that is being stopped.
    pub(crate) fn detach(&mut self) {
        self.is_detached = self.is_running;
    }

    /// Tells of the run again, which was not stopped after all.
    pub fn attach(&mut self) {
        self.is_detached = false;
    }

    /// Says once that nothing will happen any more by itself, if that is so.
    pub(crate) fn take_settled(&mut self) -> Option<OmpEvent> {
        (self.is_settling()).then(|| {
            self.owes_settled = false;
            OmpEvent::AgentSettled
        })
    }

    /// Returns the encoder of the session that replaces this one. It still has to report as idle a run that was stopped for it.
    pub(crate) fn successor_encoder(&self) -> Self {
        Self { owes_settled: self.owes_settled || self.is_running, ..Self::default() }
    }

    /// Reports whether the session is to be reported as idle, as soon as it has been for a while.
    pub(crate) fn is_settling(&self) -> bool {
        self.owes_settled && !self.is_running && !self.is_compacting
    }

    /// Tells from here on of no turn in which nothing happens any more.
    pub fn close(&mut self) {
        self.is_closing = true;
    }

    /// Tells of the turn that the frames from `mark` on belong to, if that is still due.
    fn owed_turn(&mut self, mark: usize, frames: &mut Vec<OmpEvent>) {
        if self.owes_turn && frames.len() > mark {
            self.owes_turn = false;
            frames.insert(mark, OmpEvent::TurnStart);
        }
    }

    /// Encodes a committed fact. `content` is that of the fact, or of the entry that it points to.
    pub fn encode_fact(
        &mut self,
        recorded: &RecordedFact,
        content: Option<&str>,
        frames: &mut Vec<OmpEvent>,
    ) -> Option<EndedOperation> {
        let mark = frames.len();
        let ended = match &recorded.fact.event {
            Happened::Session(event) => self.encode_session(event, recorded, content, frames),
            Happened::Run(event) => {
                if let run::Event::ModelRequested { .. } = event {
                    self.requested_at = Some(recorded.meta.at);
                }
                self.encode_run(event, recorded.meta.at, frames)
            }
            Happened::Call(event) => self.encode_call(event, content, frames),
            Happened::Booted
            | Happened::Gate(_)
            | Happened::Peer(_)
            | Happened::Policy(_)
            | Happened::Settings(_)
            | Happened::Channel(_)
            | Happened::Unattended(_)
            | Happened::Schedule(_) => None,
        };
        self.owed_turn(mark, frames);
        ended
    }

    fn encode_session(
        &mut self,
        event: &session::Event,
        recorded: &RecordedFact,
        content: Option<&str>,
        frames: &mut Vec<OmpEvent>,
    ) -> Option<EndedOperation> {
        match event {
            session::Event::Entry { id: _, kind, made_at, .. } => {
                let at = made_at.unwrap_or(recorded.meta.at);
                self.encode_entry(kind, at, content.unwrap_or_default(), frames);
                None
            }
            session::Event::CompactionStarted { reason, .. } => {
                self.is_compacting = true;
                self.reason = Some(*reason);
                self.compacted = None;
                let reason = match reason {
                    CompactionCause::Manual => return None,
                    CompactionCause::Threshold => CompactionReason::Threshold,
                    CompactionCause::Overflow => CompactionReason::Overflow,
                };
                frames.push(OmpEvent::AutoCompactionStart { reason, action: CompactionAction::ContextFull });
                None
            }
            session::Event::CompactionEnded { ok, aborted, then, .. } => {
                self.is_compacting = false;
                // Work that waited for it begins with the next fact.
                self.is_running = *then == AfterCompaction::Prompt;
                self.owes_settled = true;
                let result = self.compacted.take().filter(|_| *ok);
                let problem = content.map(str::to_owned);
                if self.reason.take() == Some(CompactionCause::Manual) {
                    let failed = || if *aborted { CANCELLED.to_owned() } else { problem.unwrap_or_default() };
                    return Some(EndedOperation::Compaction(result.ok_or_else(failed)));
                }
                frames.push(OmpEvent::AutoCompactionEnd {
                    action: CompactionAction::ContextFull,
                    result,
                    aborted: *aborted,
                    will_retry: *then == AfterCompaction::Again,
                    error_message: problem,
                    skipped: None,
                });
                None
            }
            _ => None,
        }
    }

    fn encode_entry(&mut self, kind: &SessionEntryKind, at: Millis, content: &str, frames: &mut Vec<OmpEvent>) {
        match kind {
            SessionEntryKind::Assistant { stop, .. } => self.encode_answer(*stop, at, content, frames),
            SessionEntryKind::ToolResult { .. } => {
                let wire = entries::content_to_wire(content, at);
                let value: Option<Value> = serde_json::from_str(content).ok();
                self.result = value.zip(wire);
            }
            SessionEntryKind::Compaction { first_kept, tokens_before } => {
                if let Ok(StoredMessage::CompactionSummary(summary)) = serde_json::from_str(content) {
                    let extra = |key: &str| summary.extra.get(key).cloned();
                    self.compacted = Some(CompactionResult {
                        summary: summary.summary,
                        short_summary: summary.short_summary,
                        first_kept_entry_id: first_kept.to_string(),
                        tokens_before: *tokens_before,
                        details: extra("details").and_then(|details| serde_json::from_value(details).ok()),
                        preserve_data: extra("preserveData").map(RawJson::from),
                    });
                }
            }
            SessionEntryKind::User | SessionEntryKind::Developer | SessionEntryKind::Custom if self.is_running => {
                if let Some(message) = entries::content_to_wire(content, at) {
                    frames.push(OmpEvent::MessageStart { message: message.clone() });
                    frames.push(OmpEvent::MessageEnd { message: message.clone() });
                    self.added.push(message);
                }
            }
            SessionEntryKind::User
            | SessionEntryKind::Developer
            | SessionEntryKind::Custom
            | SessionEntryKind::Bash { .. }
            | SessionEntryKind::BranchSummary
            | SessionEntryKind::ModelChange
            | SessionEntryKind::ThinkingChange
            | SessionEntryKind::ContextReset
            | SessionEntryKind::Other => {}
        }
    }

    fn encode_answer(&mut self, stop: StopReason, at: Millis, content: &str, frames: &mut Vec<OmpEvent>) {
        let Ok(StoredMessage::Assistant(assistant)) = serde_json::from_str(content) else { return };
        if !self.is_running {
            return;
        }
        self.error = assistant.error_message.clone().unwrap_or_default();
        let message = wire_of(&assistant, at);
        if self.partial.take().is_none() && !self.is_detached {
            // Nothing of it was streamed: it begins as it ends.
            frames.push(OmpEvent::MessageStart { message: message.clone() });
        }
        self.turn = TurnState::Answered;
        self.last = Some(message_identity(&assistant));
        self.added.push(message.clone());
        self.turn_message = Some(message.clone());
        if self.is_detached {
            return;
        }
        frames.push(OmpEvent::MessageEnd { message });
        if self.attempt > 0 && stop != StopReason::Error {
            let attempt = std::mem::take(&mut self.attempt);
            frames.push(OmpEvent::AutoRetryEnd { success: true, attempt, final_error: None });
        }
    }

    fn encode_run(&mut self, event: &run::Event, at: Millis, frames: &mut Vec<OmpEvent>) -> Option<EndedOperation> {
        let mark = frames.len();
        let mut ended = None;
        match event {
            run::Event::Started { .. } => {
                self.is_running = true;
                self.owes_settled = false;
                self.attempt = 0;
                self.begin_run(frames);
            }
            run::Event::Resumed { .. } => {
                self.is_waiting = false;
                self.begin_run(frames);
            }
            run::Event::TurnOpened { .. } => {
                self.turn_message = None;
                self.turn_results.clear();
                self.turn = TurnState::Empty;
                if self.is_closing {
                    self.owes_turn = true;
                } else {
                    frames.push(OmpEvent::TurnStart);
                }
            }
            run::Event::TurnClosed { .. } => {
                if let Some(message) = self.turn_message.take() {
                    let tool_results = std::mem::take(&mut self.turn_results);
                    frames.push(OmpEvent::TurnEnd { message, tool_results });
                    self.turn = TurnState::Closed;
                }
            }
            run::Event::BackedOff { attempt, max, delay, .. } => {
                self.is_waiting = true;
                self.attempt = *attempt;
                frames.push(OmpEvent::AgentEnd { messages: std::mem::take(&mut self.added) });
                frames.push(OmpEvent::AutoRetryStart {
                    attempt: *attempt,
                    max_attempts: *max,
                    delay_ms: u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
                    error_message: self.error.clone(),
                });
            }
            run::Event::Ended { end, attempts, .. } => {
                if *end == RunOutcome::Aborted {
                    self.abort_turn(at, frames);
                }
                self.owes_turn = false;
                self.end_run(*end, *attempts, frames);
                ended = Some(EndedOperation::Run);
            }
            run::Event::ModelRequested { .. }
            | run::Event::Marked { .. }
            | run::Event::Answered { .. }
            | run::Event::Interrupted { .. }
            | run::Event::Denied { .. }
            | run::Event::DenialsForgiven { .. }
            | run::Event::Aborting { .. }
            | run::Event::ResultDropped { .. } => {}
        }
        if self.is_detached {
            frames.truncate(mark);
            self.is_detached = self.is_running;
        }
        ended
    }

    fn begin_run(&mut self, frames: &mut Vec<OmpEvent>) {
        self.added.clear();
        self.partial = None;
        self.turn = TurnState::Closed;
        self.last = None;
        frames.push(OmpEvent::AgentStart);
    }

    fn end_run(&mut self, end: RunOutcome, attempts: u32, frames: &mut Vec<OmpEvent>) {
        if std::mem::take(&mut self.is_waiting) {
            // An approver was asked about the wait and stopped it, or there was no answer.
            let is_failed = end == RunOutcome::Failed;
            let final_error = if is_failed { self.error.clone() } else { "Retry cancelled".to_owned() };
            frames.push(OmpEvent::AutoRetryEnd {
                success: false,
                attempt: self.attempt,
                final_error: Some(final_error),
            });
        } else {
            frames.push(OmpEvent::AgentEnd { messages: std::mem::take(&mut self.added) });
            if end == RunOutcome::Failed && attempts > 0 {
                let final_error = Some(self.error.clone());
                frames.push(OmpEvent::AutoRetryEnd { success: false, attempt: attempts, final_error });
            }
        }
        self.attempt = 0;
        self.is_running = false;
        self.owes_settled = true;
        self.partial = None;
        self.calls.clear();
    }

    /// Encodes a live frame.
    pub fn encode_live(&mut self, live: &LiveUpdate, now: Millis, frames: &mut Vec<OmpEvent>) {
        if !self.is_running || self.is_detached {
            return;
        }
        let mark = frames.len();
        match &live.kind {
            LiveKind::MessageStarted { api, provider, model, .. } => {
                let partial = AssistantReply {
                    api: api.to_string(),
                    provider: provider.to_string(),
                    model: model.to_string(),
                    ..AssistantReply::default()
                };
                let partial = PartialMessage::new(partial, self.requested_at.unwrap_or(now));
                frames.push(OmpEvent::MessageStart { message: partial.to_wire() });
                self.partial = Some(partial);
            }
            LiveKind::CallProgress { call, content, details } => {
                let Some(shown) = self.calls.get(call).filter(|shown| shown.is_started) else { return };
                let output = json!({ "content": content, "details": details.as_deref().unwrap_or(&json!({})) });
                let Ok(partial_result) = serde_json::from_value(output) else { return };
                frames.push(OmpEvent::ToolExecutionUpdate {
                    tool_call_id: shown.tool_call_id.clone(),
                    tool_name: shown.tool.clone(),
                    args: shown.arguments.clone(),
                    partial_result,
                });
            }
            // It is no event of a run.
            LiveKind::Idle { .. } => {}
            LiveKind::PartStarted { .. } | LiveKind::Delta { .. } | LiveKind::PartEnded { .. } => {
                let Some(partial) = &mut self.partial else { return };
                if let Some(change) = apply_change(partial, &live.kind) {
                    frames.push(OmpEvent::message_update(change, partial.to_wire()));
                }
            }
        }
        self.owed_turn(mark, frames);
    }

    /// Tells of a reminder of open tasks.
    pub(crate) fn todo_reminder(todos: Vec<TodoItem>, attempt: u32, max_attempts: u32) -> OmpEvent {
        OmpEvent::TodoReminder { todos, attempt, max_attempts }
    }
}

fn wire_of(assistant: &AssistantReply, at: Millis) -> RawJson {
    RawJson::from_wire(&convert::to_wire(&StoredMessage::Assistant(assistant.clone()), at))
}

#[cfg(test)]
mod tests {
    use super::{EventEncoder, OmpEvent};

    #[test]
    fn the_end_of_a_run_that_another_session_stopped_is_sent_once() {
        for (case, encoder, want) in [
            ("quiet", EventEncoder::default(), None),
            ("stopped", EventEncoder { owes_settled: true, ..EventEncoder::default() }, Some(OmpEvent::AgentSettled)),
            ("cut off", EventEncoder { is_running: true, ..EventEncoder::default() }, Some(OmpEvent::AgentSettled)),
        ] {
            let mut next = encoder.successor_encoder();
            assert_eq!((next.take_settled(), next.take_settled()), (want, None), "{case}");
        }
    }
}
