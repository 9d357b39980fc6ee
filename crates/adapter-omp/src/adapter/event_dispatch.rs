//! Dispatch of the session's events: frames for the host, and results for waiting commands.

use std::time::Duration;

use countersign_core::{
    call,
    engine::{Command, Event as Happened},
    gate,
    id::{CallId, Lsn},
    message::StoredMessage,
    policy, run,
    schedule::Zone,
    session,
    time::Millis,
};
use countersign_protocol::omp::{
    OmpEvent, OmpResponse, UiMethod, UiRequest,
    event::{TodoItem, TodoStatus},
    state::CompactionResult,
    ui::NotifyType,
};
use countersign_runtime::{ReleasedItem, tools::todo};
use tracing::warn;

use super::{ActiveOperation, OmpAdapter};
use crate::{
    bash_result::bash_result,
    dialogs,
    event_encoder::{EndedOperation, EventEncoder},
    frame::OutgoingFrame,
    grants, todos,
};

/// Minimum length of a wait for another attempt whose end is reported to users.
const LONG: Duration = Duration::from_secs(60);

impl OmpAdapter {
    /// Reports whether it is about another session of the same log.
    fn is_of_others(&self, released: &ReleasedItem) -> bool {
        let Some(seat) = self.seat.as_ref().filter(|seat| seat.attach_guard.is_some()) else { return false };
        match released {
            ReleasedItem::Live(live) => live.session != seat.id,
            ReleasedItem::Fact(recorded) => recorded.meta.session.as_ref() != Some(&seat.id),
        }
    }

    pub(crate) async fn handle_released(&mut self, released: ReleasedItem) {
        if self.is_of_others(&released) {
            return;
        }
        let mut events = Vec::new();
        let ended = match &released {
            ReleasedItem::Live(live) => {
                let now = self.store.common.clock.now();
                self.encoder.encode_live(live, now, &mut events);
                if let Some(notice) = live.kind.idle_notice() {
                    self.notify_host(notice, NotifyType::Info);
                }
                None
            }
            ReleasedItem::Fact(recorded) => {
                let content = match &recorded.fact.event {
                    Happened::Session(session::Event::Entry { content_at: Some(at), .. }) => {
                        self.read_content(*at).await
                    }
                    _ => recorded.fact.content.clone(),
                };
                if let Happened::Call(call::Event::Ended { call, .. } | call::Event::InDoubt { call, .. }) =
                    &recorded.fact.event
                {
                    self.host_calls.stop_awaiting(*call);
                }
                self.handle_side_effects(&recorded.fact.event, content.as_deref());
                self.dialect.hooks.on_fact(self, recorded);
                let ended = self.encoder.encode_fact(recorded, content.as_deref(), &mut events);
                match &recorded.fact.event {
                    Happened::Gate(gate::Event::Opened { gate, .. }) => self.show_gate(*gate).await,
                    Happened::Gate(gate::Event::Reminded { gate }) => self.remind_gate(*gate).await,
                    _ => {}
                }
                ended
            }
        };
        self.write_events(events);
        if let ReleasedItem::Fact(recorded) = &released {
            self.report_wait(&recorded.fact.event);
        }
        match ended {
            Some(EndedOperation::Run) => {
                if let Some(seat) = &self.seat {
                    seat.environment.release_halt();
                }
                if let ReleasedItem::Fact(recorded) = &released {
                    self.record_sequence_number(recorded.meta.lsn).await;
                }
            }
            None => {}
            Some(EndedOperation::Compaction(outcome)) => self.finish_compaction(outcome),
            Some(EndedOperation::Command(call, _)) => self.command_ended(call),
        }
        self.run_waiters();
    }

    /// Tells when a run continues that waits for long: a host sees a number of milliseconds in its event, people want the time.
    fn report_wait(&mut self, event: &Happened) {
        // The question to the approver has it too.
        let Happened::Run(run::Event::BackedOff { delay, until, gate: None, .. }) = event else { return };
        if *delay >= LONG {
            self.report_next_attempt(*until);
        }
    }

    /// Tells when a run that waits for its next attempt continues.
    pub(super) fn report_next_attempt(&mut self, until: Millis) {
        let until = Zone::UTC.date_and_time(until);
        self.notify_host(
            format!("The model did not answer; the next attempt is at {until}. Choose another model to go on at once."),
            NotifyType::Warning,
        );
    }

    /// Tells of what happens at once.
    pub(crate) fn write_events(&mut self, mut events: Vec<OmpEvent>) {
        self.dialect.hooks.arrange_events(&mut events);
        for_each_frame(&events, |frame| self.write_frame(frame));
    }

    /// Tells of nothing that was released before `position`, but does what follows of it.
    pub(crate) async fn pass_over(&mut self, position: u64) {
        loop {
            let Some(seat) = self.seat.as_mut().filter(|seat| seat.subscriber.position() < position) else { return };
            let Some(released) = seat.subscriber.next().await else { return };
            if let ReleasedItem::Fact(recorded) = &released
                && !self.is_of_others(&released)
            {
                self.handle_side_effects(&recorded.fact.event, recorded.fact.content.as_deref());
                self.dialect.hooks.on_fact(self, recorded);
            }
        }
    }

    async fn read_content(&mut self, at: Lsn) -> Option<std::sync::Arc<str>> {
        let contents = self.seat.as_ref()?.handle.contents().clone();
        contents.get(&[at]).await.ok()?.pop().flatten()
    }

    /// Applies the effects of facts other than their frames.
    fn handle_side_effects(&mut self, event: &Happened, content: Option<&str>) {
        match event {
            // Grants that were adopted existed before the adapter read events: this one comes from an answer.
            Happened::Policy(policy::Event::Granted(grant)) if grant.scope == policy::GrantReach::Always => {
                self.keep_grant(grant.clone());
            }
            Happened::Gate(gate::Event::Resolved { gate, .. }) => {
                let elsewhere = self.seat.as_ref().is_some_and(|seat| seat.attach_guard.is_some());
                let elsewhere = elsewhere || self.store.common.dialect.changing_clients;
                if let Some(taken_away) = self.dialogs.forget_gate(*gate, elsewhere) {
                    self.write_frame(&taken_away);
                }
            }
            Happened::Session(session::Event::Set(session::SessionSetting::Thinking(level))) => {
                self.write_frame(OutgoingFrame::Level(level.as_deref()));
            }
            Happened::Session(session::Event::Named { name }) => self.set_title(name),
            Happened::Session(session::Event::Reminded { attempt }) => {
                let todos = self.seat.as_ref().map(|seat| seat.sent_tasks.open_tasks().iter().map(wire_todo).collect());
                let reminder = EventEncoder::todo_reminder(todos.unwrap_or_default(), *attempt, self.store.reminders);
                self.write_frame(&reminder);
            }
            Happened::Session(session::Event::Entry {
                kind: session::SessionEntryKind::ToolResult { .. } | session::SessionEntryKind::Other,
                ..
            }) => {
                if let (Some(phases), Some(seat)) = (content.and_then(written_tasks), &self.seat) {
                    seat.sent_tasks.set(phases);
                }
            }
            Happened::Session(
                session::Event::Entry { kind: session::SessionEntryKind::Bash { .. }, .. }
                | session::Event::Queued { kind: session::SessionEntryKind::Bash { .. }, .. },
            ) => {
                if let Some(Ok(StoredMessage::BashExecution(bash))) = content.map(serde_json::from_str) {
                    self.last_command = Some(bash_result(&bash));
                }
            }
            _ => {}
        }
    }

    /// Tells what the session is called, where the host wants to know.
    fn set_title(&mut self, name: &str) {
        let wants = self.store.common.dialect.titles;
        if let Some(id) = dialogs::fresh_id().filter(|_| wants) {
            self.write_frame(&UiRequest { id, method: UiMethod::SetTitle { title: name.to_owned() } });
        }
    }

    /// Keeps a grant beyond its session, off the loop: the file may be locked by another process.
    fn keep_grant(&mut self, grant: policy::Grant) {
        if self.store.folder.is_none() {
            return;
        }
        let path = self.store.common.folder.grants_path();
        self.grant_writes.spawn_blocking(move || {
            if let Err(failed) = grants::save_grant(&path, &grant) {
                warn!(error = %failed, "failed to save a grant; it applies to this session only");
            }
        });
    }

    /// Waits for the grants that are being written; each takes a bounded time.
    pub(crate) async fn grants_written(&mut self) {
        while self.grant_writes.join_next().await.is_some() {}
    }

    /// Notes in the log the last number of a run that has ended, if clients may request missed events of the next.
    async fn record_sequence_number(&mut self, ended: Lsn) {
        let number = self.dialect.hooks.event_sequence(self);
        let is_recorded = self.store.common.dialect.lasting_numbers;
        let Some(seat) = self.current_session().filter(|_| is_recorded) else { return };
        let command = session::Command::RecordSequence { number, upto: Some(ended) };
        // The result is not awaited: without it a client is sent more than it missed.
        drop(seat.requests.submit_command(Command::Session(seat.id.clone(), command)).await);
    }

    fn finish_compaction(&mut self, outcome: Result<CompactionResult, String>) {
        if !matches!(self.operation, ActiveOperation::Compaction(_)) {
            return;
        }
        if let ActiveOperation::Compaction(id) = std::mem::replace(&mut self.operation, ActiveOperation::Free) {
            match outcome {
                Ok(result) => self.write_frame(&OmpResponse::success(id, "compact", &result)),
                Err(problem) => self.write_frame(&self.dialect.hooks.broken_off(id, "compact", problem)),
            }
        }
    }

    fn command_ended(&mut self, call: CallId) {
        if !matches!(self.operation, ActiveOperation::Command(running, _) if running == call) {
            return;
        }
        if let ActiveOperation::Command(_, id) = std::mem::replace(&mut self.operation, ActiveOperation::Free) {
            match self.last_command.take() {
                Some(result) => self.write_frame(&OmpResponse::success(id, "bash", &result)),
                None => self.write_frame(&OmpResponse::failure(id, "bash", "the command's result cannot be read")),
            }
        }
    }
}

/// Emits the frames of events that happened at once, in their order.
pub fn for_each_frame<'a>(events: &'a [OmpEvent], mut emit: impl FnMut(OutgoingFrame<'a>)) {
    let mut events = events.iter().peekable();
    while let Some(event) = events.next() {
        emit(match (event, events.peek()) {
            (OmpEvent::AgentEnd { messages }, Some(OmpEvent::AutoRetryStart { .. })) => {
                OutgoingFrame::Pause { messages }
            }
            _ => OutgoingFrame::Event(event),
        });
    }
}

/// Returns the list of tasks that a call left, if it was one that writes it, or that a person set.
fn written_tasks(content: &str) -> Option<Vec<todo::TaskPhase>> {
    if !content.contains("todo_write") {
        return todos::stored_phases_in(content);
    }
    match serde_json::from_str(content) {
        Ok(StoredMessage::ToolResult(result)) if result.tool_name == "todo_write" && !result.is_error => {
            todo::TodoList::phases_of(&result.details?)
        }
        _ => None,
    }
}

fn wire_todo(task: &todo::PhaseTask) -> TodoItem {
    TodoItem {
        id: task.id.clone(),
        content: task.content.clone(),
        status: match task.status {
            todo::TaskStatus::Pending => TodoStatus::Pending,
            todo::TaskStatus::InProgress => TodoStatus::InProgress,
            todo::TaskStatus::Completed => TodoStatus::Completed,
            todo::TaskStatus::Abandoned => TodoStatus::Abandoned,
        },
    }
}
