//! Gates shown as dialogs, and the answers that come back.

use std::{sync::Arc, time::Duration};

use countersign_core::{
    engine::{Command as EngineCommand, CommandError, Engine},
    gate::{self, AnswerError, Gate},
    id::{GateId, PrincipalId},
};
use countersign_protocol::{
    gjc::bridge::PermissionFrame,
    omp::{self, ui::NotifyType},
};
use countersign_runtime::OwnerError;
use countersign_view::{GateRequest, LineMode, escape, gate_request::RequestKind};
use tokio::time::sleep;

use super::{AdapterCallback, OmpAdapter};
use crate::{
    dialogs::{self, AnswerDraft, DialogStep, OpenDialog},
    event_encoder::{OpenEnd, UnfinishedRun, open_end},
    outdated_approvals::SessionLog,
};

/// Time for the log before an answer that it did not take is requested again.
const BEFORE_AGAIN: Duration = Duration::from_secs(1);

/// Notice if the last process ended while a run worked, and nothing continues by itself.
const INTERRUPTED_RUN: &str = "The last process ended while a run worked, and the run stands: the next prompt goes on with it. What \
                      its last calls came to is in the conversation.";

/// Notice if a conversation ends with a message, and nothing works on an answer.
const UNANSWERED: &str = "The last message has no answer: the process that worked on it ended, or another program wrote it. Nothing runs \
                          now, and the next prompt continues from there.";

/// A gate that waits, what it asks, and what is around it.
type PendingGate = (Gate, GateRequest, GateContext);

/// Context of a gate.
struct GateContext {
    /// The folder of its session.
    cwd: String,
    /// The id that its call has for the model.
    tool_call: Option<Arc<str>>,
}

fn pending_gate(engine: &Engine, gate: GateId) -> Option<PendingGate> {
    let found = engine.state().gate(gate).filter(|gate| gate.is_pending())?.clone();
    let request = GateRequest::at_hand(engine, gate)?;
    let cwd = found.session().and_then(|session| engine.state().session(session)).map(|session| session.cwd());
    let cwd = cwd.unwrap_or_default().to_owned();
    let call = found.call().and_then(|call| engine.admitted().call_content(call));
    let tool_call = call.map(|call| Arc::clone(&call.tool_call_id));
    Some((found, request, GateContext { cwd, tool_call }))
}

/// Reports whether an answer is lost that may count another time.
const fn is_not_recorded(refused: &OwnerError) -> bool {
    match refused {
        OwnerError::NotRecorded(_) | OwnerError::Unsure(_) | OwnerError::Unreadable(_) | OwnerError::Panicked => true,
        OwnerError::Refusal(_) | OwnerError::TooLarge | OwnerError::Closed => false,
    }
}

impl OmpAdapter {
    /// Resumes the work of another process: a run that waits, and its pending gates. Work that continues by itself starts after that, so
    /// that the host gets all of it.
    pub(crate) async fn resume_session(&mut self) {
        // Before the gates are shown: questions that an earlier process left are none any more, nor are gates of calls of tools that
        // have another form by now.
        let log = self.seat.as_ref().map(|seat| SessionLog {
            handle: seat.handle.clone(),
            session: seat.id.clone(),
            lasting: self.store.lasting_reach(),
        });
        if let Some(log) = log {
            let session = log.session.clone();
            self.store.common.servers.ask_in(log).await;
            self.store.common.offer_server_tools(&session).await;
        }
        self.report_state().await;
        if let Some(seat) = &self.seat {
            seat.handle.start_work().await;
        }
        self.request_servers();
    }

    async fn report_state(&mut self) {
        self.dialogs.clear();
        self.report_damage();
        self.dialect.hooks.on_open(self).await;
        let Some(seat) = &self.seat else { return };
        let id = seat.id.clone();
        let read = seat.requests.read_state(move |engine| {
            let gates = engine.state().pending_gates().filter(|gate| gate.session() == Some(&id));
            let gates: Vec<_> = gates.filter_map(|gate| pending_gate(engine, gate.id())).collect();
            (UnfinishedRun::from_engine(engine, &id).ok_or_else(|| open_end(engine, &id)), gates)
        });
        let Some(((left, gates), position)) = read.await else { return };
        // Facts released until then are in the state that was read.
        self.pass_over(position).await;
        match left {
            Ok(left) => self.report_run(left).await,
            Err(Some(OpenEnd::Result)) => self.notify_host(INTERRUPTED_RUN.to_owned(), NotifyType::Warning),
            Err(Some(OpenEnd::Message)) => self.notify_host(UNANSWERED.to_owned(), NotifyType::Warning),
            Err(None) => {}
        }
        for waiting in gates {
            self.open_dialog(waiting, AnswerDraft::default());
        }
    }

    /// Reports a run of another process that has not ended.
    async fn report_run(&mut self, left: UnfinishedRun) {
        let contents = match &self.seat {
            Some(seat) => seat.handle.contents().get(&left.content_lsns()).await,
            None => return,
        };
        let contents = contents.unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to read the earlier output of a run");
            Vec::new()
        });
        let mut frames = Vec::new();
        let next_attempt = left.next_attempt();
        self.encoder.resume_run(left, contents, self.store.common.clock.now(), &mut frames);
        self.write_events(frames);
        if let Some(until) = next_attempt {
            self.report_next_attempt(until);
        }
    }

    /// Shows a gate that was just opened.
    pub(crate) async fn show_gate(&mut self, id: GateId) {
        let Some(seat) = &self.seat else { return };
        if let Some((Some(found), _)) = seat.requests.read_state(move |engine| pending_gate(engine, id)).await {
            self.open_dialog(found, AnswerDraft::default());
        }
    }

    /// Reminds a host that expects it of a gate that is still pending: in its original form, or in a notice in addition to its dialog.
    pub(crate) async fn remind_gate(&mut self, id: GateId) {
        let Some(seat) = self.seat.as_ref().filter(|_| self.store.common.dialect.reminders) else { return };
        let Some((Some((gate, request, _)), _)) =
            seat.requests.read_state(move |engine| pending_gate(engine, id)).await
        else {
            return;
        };
        if !self.dialect.hooks.on_gate_shown(self, &gate, &request) {
            let what = escape(request.headline(), LineMode::One).into_owned();
            self.notify_host(format!("An answer is still waited for: {what}"), NotifyType::Warning);
        }
    }

    /// Shows a gate, a question with what was chosen so far.
    fn open_dialog(&mut self, (gate, request, GateContext { cwd, tool_call }): PendingGate, draft: AnswerDraft) {
        if self.dialect.hooks.on_gate_shown(self, &gate, &request) {
            return;
        }
        let may_pass = match request.kind() {
            RequestKind::GoOn(_) => gate.call().is_some(),
            // The wait that it is about may end in other ways.
            RequestKind::Question(_) => gate.call().is_none(),
            RequestKind::Call(_) => false,
        };
        if let Some(call) = tool_call
            && let Some(payload) = self.dialect.hooks.permission_request(self, &call, &request, gate.scopes())
        {
            let Some(id) = self.dialogs.open(OpenDialog { gate: gate.id(), draft, may_pass }) else { return };
            return self.write_frame(&PermissionFrame { id, payload });
        }
        let now = self.store.common.clock.now();
        let Some(method) = dialogs::dialog_method(&gate, &request, &draft, &cwd, now) else { return };
        let Some(id) = self.dialogs.open(OpenDialog { gate: gate.id(), draft, may_pass }) else { return };
        self.write_frame(&omp::UiRequest { id, method });
    }

    /// Handles an answer to a dialog. One without an open dialog is ignored; one that does not count, or could not be recorded, has the
    /// gate shown again.
    pub(crate) async fn handle_answer(&mut self, id: &str, answer: &omp::UiAnswer) {
        let Some((OpenDialog { gate, draft, .. }, seat)) = self.dialogs.take_dialog(id).zip(self.seat.as_ref()) else {
            return;
        };
        let read = seat.requests.read_state(move |engine| pending_gate(engine, gate));
        let Some((Some(found), _)) = read.await else { return };
        let permission = self.dialect.hooks.permission_answer(self, answer, &found.1, found.0.scopes());
        let of_dialog = || dialogs::answer_step(answer, found.0.kind(), &found.1, &draft, found.0.scopes());
        let answer = match permission.map_or_else(of_dialog, DialogStep::Answer) {
            DialogStep::Answer(answer) => answer,
            DialogStep::Ask(draft) => return self.open_dialog(found, draft),
        };
        let answer = gate::Command::Answer { gate, answer, by: PrincipalId::new("host"), key: None };
        let replied = seat.answers.submit_command(EngineCommand::Gate(answer)).await;
        self.reply_in_order(async move {
            let refused = replied.await.unwrap_or(Err(OwnerError::Closed)).err();
            let not_recorded = refused.as_ref().filter(|refused| is_not_recorded(refused)).map(OwnerError::to_string);
            let then: AdapterCallback = Box::new(move |adapter| {
                match (refused, not_recorded) {
                    (Some(OwnerError::Refusal(CommandError::Answer(AnswerError::NotOffered { .. }))), _) => {
                        adapter.show_again(gate, Duration::ZERO);
                    }
                    (_, Some(why)) => {
                        let text = format!("The answer does not count, and will be asked for again: {why}");
                        adapter.notify_host(text, NotifyType::Error);
                        // A host that answers by itself would be asked again and again until the log takes something.
                        adapter.show_again(gate, BEFORE_AGAIN);
                    }
                    _ => {}
                }
            });
            (0, then)
        });
    }

    /// Shows a gate once more if it still waits: after a while, and as soon as the log can be written.
    fn show_again(&mut self, gate: GateId, after: Duration) {
        let Some((session, requests)) = self.seat.as_ref().map(|seat| (seat.id.clone(), seat.requests.clone())) else {
            return;
        };
        self.show_later(async move {
            sleep(after).await;
            let (found, position) =
                requests.read_state(move |engine| pending_gate(engine, gate)).await.unwrap_or((None, 0));
            let then: AdapterCallback = Box::new(move |adapter| {
                if let Some(found) = found.filter(|_| adapter.current_session().is_some_and(|seat| seat.id == session))
                {
                    adapter.open_dialog(found, AnswerDraft::default());
                }
            });
            (position, then)
        });
    }
}
