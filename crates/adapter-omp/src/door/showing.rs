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
use countersign_view::{GateRequest, Lines, escape, gate_request::RequestKind};
use tokio::time::sleep;

use super::{Door, Then};
use crate::{
    dialogs::{self, Draft, Shown, Step},
    teller::{Left, stands},
};

/// How long the log has before an answer that it did not take is asked for again.
const BEFORE_AGAIN: Duration = Duration::from_secs(1);

/// Told where the last process ended while a run worked, and nothing goes on by itself.
const STANDS: &str = "The last process ended while a run worked, and the run stands: the next prompt goes on with it. What \
                      its last calls came to is in the conversation.";

/// A gate that waits, what it asks, and what is around it.
type Waiting = (Gate, GateRequest, Around);

/// What is around a gate.
struct Around {
    /// The folder of its session.
    cwd: String,
    /// The id that its call has for the model.
    tool_call: Option<Arc<str>>,
}

fn waiting(engine: &Engine, gate: GateId) -> Option<Waiting> {
    let found = engine.state().gate(gate).filter(|gate| gate.is_pending())?.clone();
    let request = GateRequest::at_hand(engine, gate)?;
    let cwd = found.session().and_then(|session| engine.state().session(session)).map(|session| session.cwd());
    let cwd = cwd.unwrap_or_default().to_owned();
    let call = found.call().and_then(|call| engine.admitted().call_content(call));
    let tool_call = call.map(|call| Arc::clone(&call.tool_call_id));
    Some((found, request, Around { cwd, tool_call }))
}

/// Whether an answer is lost that may count another time.
const fn is_not_recorded(refused: &OwnerError) -> bool {
    match refused {
        OwnerError::NotRecorded(_) | OwnerError::Unsure(_) | OwnerError::Unreadable(_) | OwnerError::Panicked => true,
        OwnerError::Refusal(_) | OwnerError::TooLarge | OwnerError::Closed => false,
    }
}

impl Door {
    /// Takes up what another process left: a run that waits, and the gates that it waits for. What goes on by itself starts behind
    /// that, so that the host hears all of it.
    pub(crate) async fn take_up(&mut self) {
        self.tell_where_it_stands().await;
        if let Some(seat) = &self.seat {
            seat.handle.start_work().await;
        }
    }

    async fn tell_where_it_stands(&mut self) {
        self.dialogs.clear();
        self.tell_damage();
        self.dialect.hooks.on_open(self).await;
        let Some(seat) = &self.seat else { return };
        let id = seat.id.clone();
        let read = seat.requests.read_state(move |engine| {
            let Some(left) = Left::of(engine, &id) else { return Err(stands(engine, &id)) };
            let gates = engine.state().pending_gates().filter(|gate| gate.session() == Some(&id));
            let gates: Vec<_> = gates.filter_map(|gate| waiting(engine, gate.id())).collect();
            Ok((left, gates))
        });
        let Some((found, position)) = read.await else { return };
        // What was released until then is in what was read.
        self.pass_over(position).await;
        let (left, gates) = match found {
            Ok(found) => found,
            Err(stands) => {
                // Hosts of omp expect nothing before their first prompt.
                if stands && self.shelf.common.dialect.reminders {
                    self.notify(STANDS.to_owned(), NotifyType::Warning);
                }
                return;
            }
        };
        let contents = match &self.seat {
            Some(seat) => seat.handle.contents().get(&left.contents()).await,
            None => return,
        };
        let contents = contents.unwrap_or_else(|error| {
            tracing::warn!(%error, "what a run has said so far cannot be read");
            Vec::new()
        });
        let mut frames = Vec::new();
        let next_attempt = left.next_attempt();
        self.teller.resume(left, contents, self.shelf.common.clock.now(), &mut frames);
        self.tell(frames);
        if let Some(until) = next_attempt {
            self.tell_next_attempt(until);
        }
        for waiting in gates {
            self.dialog(waiting, Draft::default());
        }
    }

    /// Shows a gate that was just opened.
    pub(crate) async fn show(&mut self, id: GateId) {
        let Some(seat) = &self.seat else { return };
        if let Some((Some(found), _)) = seat.requests.read_state(move |engine| waiting(engine, id)).await {
            self.dialog(found, Draft::default());
        }
    }

    /// Reminds a host that expects it of a gate that still waits: as what it was shown, or in a notice beside its dialog.
    pub(crate) async fn remind(&mut self, id: GateId) {
        let Some(seat) = self.seat.as_ref().filter(|_| self.shelf.common.dialect.reminders) else { return };
        let Some((Some((gate, request, _)), _)) = seat.requests.read_state(move |engine| waiting(engine, id)).await
        else {
            return;
        };
        if !self.dialect.hooks.on_gate_shown(self, &gate, &request) {
            let what = escape(request.headline(), Lines::One).into_owned();
            self.notify(format!("An answer is still waited for: {what}"), NotifyType::Warning);
        }
    }

    /// Shows a gate, a question with what was chosen so far.
    fn dialog(&mut self, (gate, request, Around { cwd, tool_call }): Waiting, draft: Draft) {
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
            let Some(id) = self.dialogs.open(Shown { gate: gate.id(), draft, may_pass }) else { return };
            return self.write(&PermissionFrame { id, payload });
        }
        let now = self.shelf.common.clock.now();
        let Some(method) = dialogs::method(&gate, &request, &draft, &cwd, now) else { return };
        let Some(id) = self.dialogs.open(Shown { gate: gate.id(), draft, may_pass }) else { return };
        self.write(&omp::UiRequest { id, method });
    }

    /// An answer to a dialog. One that nobody waits for is ignored; one that does not count, or could not be recorded, has the gate
    /// shown again.
    pub(crate) async fn answered(&mut self, id: &str, answer: &omp::UiAnswer) {
        let Some((Shown { gate, draft, .. }, seat)) = self.dialogs.take(id).zip(self.seat.as_ref()) else { return };
        let read = seat.requests.read_state(move |engine| waiting(engine, gate));
        let Some((Some(found), _)) = read.await else { return };
        let said = self.dialect.hooks.permission_answer(self, answer, &found.1, found.0.scopes());
        let of_dialog = || dialogs::answer(answer, found.0.kind(), &found.1, &draft, found.0.scopes());
        let answer = match said.map_or_else(of_dialog, Step::Answer) {
            Step::Answer(answer) => answer,
            Step::Ask(draft) => return self.dialog(found, draft),
        };
        let answer = gate::Command::Answer { gate, answer, by: PrincipalId::new("host"), key: None };
        let replied = seat.answers.submit_command(EngineCommand::Gate(answer)).await;
        self.later(async move {
            let refused = replied.await.unwrap_or(Err(OwnerError::Closed)).err();
            let not_recorded = refused.as_ref().filter(|refused| is_not_recorded(refused)).map(OwnerError::to_string);
            let then: Then = Box::new(move |door| {
                match (refused, not_recorded) {
                    (Some(OwnerError::Refusal(CommandError::Answer(AnswerError::NotOffered { .. }))), _) => {
                        door.show_again(gate, Duration::ZERO);
                    }
                    (_, Some(why)) => {
                        let told = format!("The answer does not count, and will be asked for again: {why}");
                        door.notify(told, NotifyType::Error);
                        // Whoever answers by itself would be asked again and again until the log takes something.
                        door.show_again(gate, BEFORE_AGAIN);
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
            let (found, position) = requests.read_state(move |engine| waiting(engine, gate)).await.unwrap_or((None, 0));
            let then: Then = Box::new(move |door| {
                if let Some(found) = found.filter(|_| door.seat().is_some_and(|seat| seat.id == session)) {
                    door.dialog(found, Draft::default());
                }
            });
            (position, then)
        });
    }
}
