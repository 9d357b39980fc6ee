//! The run as it happens: what is released goes to the stage, what waits for a decision to the person, and what the person says to the gate.
//!
//! It must not decide anything: what it answers is what the person said, or that nobody could be asked.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use countersign_core::{
    call,
    engine::{Command, Event, RecordedFact},
    gate::{self, ApprovalScope, GateReply},
    id::{CallId, GateId, PrincipalId, SessionId},
    message::{InputMessage as Spoken, MessageBlock, StoredMessage, ToolResult, estimate_tokens},
    run::{self, RunOutcome},
    session::{self, MessageContent, SessionEntryKind, WhenBusy},
};
use countersign_models::demo as script;
use countersign_runtime::{CommandSource, InboxLane, LiveKind, LivePartKind, OwnerHandle, ReleasedItem};
use countersign_view::{GateCard, GateRequest, gate_card::GateCardInput};

use super::{
    person::{Person, Word, reason, word},
    stage::Stage,
};

/// Who denies where no person could or did.
pub(super) const NOBODY: &str = "nobody";

/// How the run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// The model had no more to do.
    Completed,
    /// It failed.
    Failed,
    /// Somebody stopped the program.
    Interrupted,
}

/// A call as far as it is known.
pub(super) struct Known {
    pub(super) content: call::CallDetails,
    /// Set once it may run.
    pub(super) allowed: Option<Allowed>,
}

/// Why a call may run.
pub(super) struct Allowed {
    pub(super) why: String,
    /// The person who said so; absent where a rule did.
    pub(super) by: Option<PrincipalId>,
}

/// What the person is being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asking {
    /// Nothing.
    Nothing,
    /// Whether it may happen.
    Leave(GateId),
    /// Why not.
    Reason(GateId),
}

struct Play<'a> {
    answers: CommandSource,
    cwd: &'a Path,
    person: Person,
    stage: &'a mut Stage,
    calls: BTreeMap<CallId, Known>,
    /// The last result that was recorded; the end of its call stands in the next record.
    result: Option<ToolResult>,
    asking: Asking,
}

/// Gives the model its task and follows the run to its end, or until `stop` is ready.
pub(super) async fn play(
    handle: &OwnerHandle,
    session: &SessionId,
    cwd: &Path,
    person: Person,
    stage: &mut Stage,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<Finish> {
    let closed = || anyhow::anyhow!("the session is closed");
    // Not the facts alone: what the model says is shown as it comes.
    let mut subscriber = handle.subscribe().await.ok_or_else(closed)?;
    let prompt =
        StoredMessage::User(Spoken { content: vec![MessageBlock::from_text(script::PROMPT)], ..Spoken::default() });
    let content = serde_json::to_string(&prompt)?;
    let said = MessageContent { tokens: estimate_tokens(content.len()), content: content.into() };
    let prompt = session::Command::Prompt { message: said, with: Vec::new(), when_busy: WhenBusy::Refuse };
    stage.prompt(script::PROMPT)?;
    handle.source(InboxLane::Request).send_command(Command::Session(session.clone(), prompt)).await?;
    let mut play = Play {
        answers: handle.source(InboxLane::Result),
        cwd,
        person,
        stage,
        calls: BTreeMap::new(),
        result: None,
        asking: Asking::Nothing,
    };
    tokio::pin!(stop);
    loop {
        tokio::select! {
            biased;
            () = &mut stop => return Ok(Finish::Interrupted),
            released = subscriber.next() => match released.ok_or_else(closed)? {
                ReleasedItem::Live(live) => play.live(&live.kind)?,
                ReleasedItem::Fact(recorded) => {
                    if let Some(end) = play.fact(&recorded).await? {
                        return Ok(end);
                    }
                }
            },
            line = spoken(&mut play.person, play.asking) => play.line(line).await?,
        }
    }
}

/// The next line of the person, once something is asked. `None` if there will be none.
async fn spoken(person: &mut Person, asking: Asking) -> Option<String> {
    match (person, asking) {
        (Person::AtTheTerminal(lines), Asking::Leave(_) | Asking::Reason(_)) => lines.recv().await,
        (_, _) => std::future::pending().await,
    }
}

impl Play<'_> {
    fn live(&mut self, live: &LiveKind) -> std::io::Result<()> {
        match live {
            LiveKind::MessageStarted { model, .. } => self.stage.message(model),
            LiveKind::PartStarted { part: LivePartKind::Text, .. } => self.stage.text_begins(),
            // What a call says of itself while its arguments come is not of interest before it is whole.
            LiveKind::Delta { text, .. } => self.stage.text(text),
            LiveKind::PartEnded { .. } => self.stage.text_ends(),
            LiveKind::PartStarted {
                part: LivePartKind::Thinking | LivePartKind::Redacted | LivePartKind::ToolCall { .. },
                ..
            }
            | LiveKind::Idle { .. }
            | LiveKind::CallProgress { .. } => Ok(()),
        }
    }

    async fn fact(&mut self, recorded: &RecordedFact) -> anyhow::Result<Option<Finish>> {
        let content = recorded.fact.content.as_deref();
        match &recorded.fact.event {
            Event::Session(session::Event::Entry { kind: SessionEntryKind::ToolResult { .. }, .. }) => {
                if let Some(StoredMessage::ToolResult(result)) =
                    content.and_then(|text| serde_json::from_str(text).ok())
                {
                    self.result = Some(result);
                }
            }
            Event::Call(event) => self.call(event, content)?,
            Event::Gate(gate::Event::Opened { gate, .. }) => {
                if let Some(request) = content.and_then(GateRequest::from_record) {
                    self.opened(*gate, &request).await?;
                }
            }
            Event::Gate(gate::Event::Resolved { gate, resolution, by, .. }) => {
                if matches!(self.asking, Asking::Leave(asked) | Asking::Reason(asked) if asked == *gate) {
                    self.asking = Asking::Nothing;
                }
                self.stage.resolved(resolution, by.as_ref())?;
            }
            Event::Run(run::Event::Ended { end, .. }) => {
                let finish = if *end == RunOutcome::Completed { Finish::Completed } else { Finish::Failed };
                self.stage.ended(finish == Finish::Completed)?;
                return Ok(Some(finish));
            }
            Event::Booted
            | Event::Session(_)
            | Event::Run(_)
            | Event::Gate(
                gate::Event::Extended { .. }
                | gate::Event::Voted { .. }
                | gate::Event::Escalated { .. }
                | gate::Event::Reminded { .. }
                | gate::Event::Shown { .. }
                | gate::Event::Updated { .. },
            )
            | Event::Peer(_)
            | Event::Channel(_)
            | Event::Policy(_)
            | Event::Settings(_)
            | Event::Unattended(_)
            | Event::Schedule(_) => {}
        }
        Ok(None)
    }

    fn call(&mut self, event: &call::Event, content: Option<&str>) -> std::io::Result<()> {
        match event {
            call::Event::Proposed { call, .. } => {
                if let Some(content) = content.and_then(|text| serde_json::from_str(text).ok()) {
                    self.calls.insert(*call, Known { content, allowed: None });
                }
            }
            call::Event::Allowed { call, why, by, .. } => {
                if let Some(known) = self.calls.get_mut(call) {
                    known.allowed = Some(Allowed { why: why.clone(), by: by.clone() });
                }
            }
            call::Event::Ended { call, end, .. } => {
                if let Some(known) = self.calls.remove(call) {
                    self.stage.called(&known, *end, self.result.take().as_ref())?;
                }
            }
            call::Event::Requested { .. }
            | call::Event::Received { .. }
            | call::Event::Waits { .. }
            | call::Event::Gated { .. }
            | call::Event::Started { .. }
            | call::Event::Aborting { .. }
            | call::Event::InDoubt { .. }
            | call::Event::AskedAgain { .. }
            | call::Event::LeftBehind { .. }
            | call::Event::Again { .. }
            | call::Event::ResultDropped { .. } => {}
        }
        Ok(())
    }

    async fn opened(&mut self, gate: GateId, request: &GateRequest) -> anyhow::Result<()> {
        let cwd = self.cwd.to_string_lossy();
        let Some(call) = request.call() else {
            return self.answer(gate, GateReply::Decline, NOBODY).await;
        };
        self.stage.card(&GateCard::new(&GateCardInput::of_agent(call, &cwd, &["Allow once", "Deny"])))?;
        let denied = |reason: &str| GateReply::Deny { reason: Some(reason.to_owned()) };
        match &mut self.person {
            Person::Yes => self.answer(gate, GateReply::Allow(ApprovalScope::Once), "flag:--yes").await,
            Person::No => self.answer(gate, denied("the demo was started with --no"), "flag:--no").await,
            Person::Nobody => self.answer(gate, denied("there is no terminal to ask a person on"), NOBODY).await,
            Person::AtTheTerminal(lines) => {
                // What was typed before the card was there is no answer to it.
                while lines.try_recv().is_ok() {}
                self.asking = Asking::Leave(gate);
                Ok(self.stage.ask()?)
            }
        }
    }

    async fn line(&mut self, line: Option<String>) -> anyhow::Result<()> {
        let person = "person:terminal";
        match (self.asking, line) {
            (Asking::Nothing, _) => Ok(()),
            // The denial was said; only its reason is missing.
            (Asking::Reason(gate), None) => {
                self.stage.line_ends()?;
                self.answer(gate, GateReply::Deny { reason: None }, person).await
            }
            (Asking::Leave(gate), None) => {
                self.stage.line_ends()?;
                let reason = Some("the terminal was closed before an answer came".to_owned());
                self.answer(gate, GateReply::Deny { reason }, NOBODY).await
            }
            (Asking::Leave(gate), Some(line)) => match word(&line) {
                Word::Yes => self.answer(gate, GateReply::Allow(ApprovalScope::Once), person).await,
                Word::No(Some(reason)) => self.answer(gate, GateReply::Deny { reason: Some(reason) }, person).await,
                Word::No(None) => {
                    self.asking = Asking::Reason(gate);
                    Ok(self.stage.ask_why()?)
                }
                Word::Unclear => Ok(self.stage.ask_again()?),
            },
            (Asking::Reason(gate), Some(line)) => {
                self.answer(gate, GateReply::Deny { reason: reason(&line) }, person).await
            }
        }
    }

    async fn answer(&mut self, gate: GateId, answer: GateReply, by: &str) -> anyhow::Result<()> {
        self.asking = Asking::Nothing;
        let by = PrincipalId::new(Arc::from(by));
        let answer = gate::Command::Answer { gate, answer, by, key: None };
        if let Err(refused) = self.answers.send_command(Command::Gate(answer)).await {
            self.stage.refused(&refused.to_string())?;
        }
        Ok(())
    }
}
