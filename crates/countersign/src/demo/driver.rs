//! The run as it happens: released output goes to the printer, pending gates to the user, and the user's answers to the gate.
//!
//! It must not decide anything: it answers as the user did, or that there was no user to ask.

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
    person::{ApprovalReply, DemoPerson, parse_reason, parse_reply},
    printer::DemoPrinter,
};

/// Id in the record if no user could or did answer.
pub(super) const NO_USER: &str = "demo";
/// Resolver of a gate that `--no` denies.
pub(super) const BY_FLAG: &str = "flag:--no";
/// Id of the user at the terminal.
pub(super) const PERSON: &str = "person:terminal";

/// Outcome of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DemoOutcome {
    /// The model had no more to do.
    Completed,
    /// It failed.
    Failed,
    /// A signal stopped the program.
    Interrupted,
}

/// A call as far as it is known.
pub(super) struct KnownCall {
    pub(super) content: call::CallDetails,
    /// Set once it may run.
    pub(super) allowed: Option<AllowedBy>,
}

/// Why a call may run.
pub(super) struct AllowedBy {
    pub(super) why: String,
    /// The approver; absent if a rule allowed it.
    pub(super) by: Option<PrincipalId>,
}

/// Current question to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PromptState {
    /// Nothing.
    Nothing,
    /// The question whether it may happen.
    Leave(GateId),
    /// Why not.
    Reason(GateId),
}

struct DemoDriver<'a> {
    answers: CommandSource,
    cwd: &'a Path,
    person: DemoPerson,
    printer: &'a mut DemoPrinter,
    calls: BTreeMap<CallId, KnownCall>,
    /// The last result that was recorded; the end of its call stands in the next record.
    result: Option<ToolResult>,
    asking: PromptState,
}

/// Gives the model its task and follows the run to its end, or until `stop` is ready.
pub(super) async fn run_prompt(
    handle: &OwnerHandle,
    session: &SessionId,
    cwd: &Path,
    person: DemoPerson,
    printer: &mut DemoPrinter,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<DemoOutcome> {
    let closed = || anyhow::anyhow!("the session is closed");
    // Not the facts alone: what the model says is shown as it comes.
    let mut subscriber = handle.subscribe().await.ok_or_else(closed)?;
    let prompt =
        StoredMessage::User(Spoken { content: vec![MessageBlock::from_text(script::PROMPT)], ..Spoken::default() });
    let content = serde_json::to_string(&prompt)?;
    let message = MessageContent { tokens: estimate_tokens(content.len()), content: content.into() };
    let prompt = session::Command::Prompt { message, with: Vec::new(), when_busy: WhenBusy::Refuse };
    printer.print_prompt(script::PROMPT)?;
    handle.source(InboxLane::Request).send_command(Command::Session(session.clone(), prompt)).await?;
    let mut play = DemoDriver {
        answers: handle.source(InboxLane::Result),
        cwd,
        person,
        printer,
        calls: BTreeMap::new(),
        result: None,
        asking: PromptState::Nothing,
    };
    tokio::pin!(stop);
    loop {
        tokio::select! {
            biased;
            () = &mut stop => return Ok(DemoOutcome::Interrupted),
            released = subscriber.next() => match released.ok_or_else(closed)? {
                ReleasedItem::Live(live) => play.handle_live(&live.kind)?,
                ReleasedItem::Fact(recorded) => {
                    if let Some(end) = play.handle_fact(&recorded).await? {
                        return Ok(end);
                    }
                }
            },
            line = next_reply_line(&mut play.person, play.asking) => play.handle_line(line).await?,
        }
    }
}

/// Returns the next line of the user, once there is a question. `None` if there will be none.
async fn next_reply_line(person: &mut DemoPerson, asking: PromptState) -> Option<String> {
    match (person, asking) {
        (DemoPerson::AtTheTerminal(lines), PromptState::Leave(_) | PromptState::Reason(_)) => lines.recv().await,
        (_, _) => std::future::pending().await,
    }
}

impl DemoDriver<'_> {
    fn handle_live(&mut self, live: &LiveKind) -> std::io::Result<()> {
        match live {
            LiveKind::MessageStarted { model, .. } => self.printer.begin_message(model),
            LiveKind::PartStarted { part: LivePartKind::Text, .. } => self.printer.text_begins(),
            // The text of a call while its arguments come is not of interest before it is whole.
            LiveKind::Delta { text, .. } => self.printer.print_text(text),
            LiveKind::PartEnded { .. } => self.printer.text_ends(),
            LiveKind::PartStarted {
                part: LivePartKind::Thinking | LivePartKind::Redacted | LivePartKind::ToolCall { .. },
                ..
            }
            | LiveKind::Idle { .. }
            | LiveKind::CallProgress { .. } => Ok(()),
        }
    }

    async fn handle_fact(&mut self, recorded: &RecordedFact) -> anyhow::Result<Option<DemoOutcome>> {
        let content = recorded.fact.content.as_deref();
        match &recorded.fact.event {
            Event::Session(session::Event::Entry { kind: SessionEntryKind::ToolResult { .. }, .. }) => {
                if let Some(StoredMessage::ToolResult(result)) =
                    content.and_then(|text| serde_json::from_str(text).ok())
                {
                    self.result = Some(result);
                }
            }
            Event::Call(event) => self.handle_call(event, content)?,
            Event::Gate(gate::Event::Opened { gate, .. }) => {
                if let Some(request) = content.and_then(GateRequest::from_record) {
                    self.handle_opened_gate(*gate, &request).await?;
                }
            }
            Event::Gate(gate::Event::Resolved { gate, resolution, by, .. }) => {
                if matches!(self.asking, PromptState::Leave(awaited) | PromptState::Reason(awaited) if awaited == *gate)
                {
                    self.asking = PromptState::Nothing;
                }
                self.printer.print_resolution(resolution, by.as_ref())?;
            }
            Event::Run(run::Event::Ended { end, .. }) => {
                let finish = if *end == RunOutcome::Completed { DemoOutcome::Completed } else { DemoOutcome::Failed };
                self.printer.print_end(finish == DemoOutcome::Completed)?;
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

    fn handle_call(&mut self, event: &call::Event, content: Option<&str>) -> std::io::Result<()> {
        match event {
            call::Event::Proposed { call, .. } => {
                if let Some(content) = content.and_then(|text| serde_json::from_str(text).ok()) {
                    self.calls.insert(*call, KnownCall { content, allowed: None });
                }
            }
            call::Event::Allowed { call, why, by, .. } => {
                if let Some(known) = self.calls.get_mut(call) {
                    known.allowed = Some(AllowedBy { why: why.clone(), by: by.clone() });
                }
            }
            call::Event::Ended { call, end, .. } => {
                if let Some(known) = self.calls.remove(call) {
                    self.printer.print_call(&known, *end, self.result.take().as_ref())?;
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

    async fn handle_opened_gate(&mut self, gate: GateId, request: &GateRequest) -> anyhow::Result<()> {
        let cwd = self.cwd.to_string_lossy();
        let Some(call) = request.call() else {
            return self.answer_gate(gate, GateReply::Decline, NO_USER).await;
        };
        self.printer.print_card(&GateCard::new(&GateCardInput::of_agent(call, &cwd, &["Allow once", "Deny"])))?;
        let denied = |reason: &str| GateReply::Deny { reason: Some(reason.to_owned()) };
        match &mut self.person {
            DemoPerson::Yes => self.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), "flag:--yes").await,
            DemoPerson::No => self.answer_gate(gate, denied("the demo was started with --no"), BY_FLAG).await,
            DemoPerson::Nobody => {
                self.printer.print_no_terminal()?;
                self.answer_gate(gate, denied("no terminal is attached, so no user could answer"), NO_USER).await
            }
            DemoPerson::AtTheTerminal(lines) => {
                // A line typed before the card was there is no answer to it.
                while lines.try_recv().is_ok() {}
                self.asking = PromptState::Leave(gate);
                Ok(self.printer.ask_approval()?)
            }
        }
    }

    async fn handle_line(&mut self, line: Option<String>) -> anyhow::Result<()> {
        match (self.asking, line) {
            (PromptState::Nothing, _) => Ok(()),
            // The denial was given; only its reason is missing.
            (PromptState::Reason(gate), None) => {
                self.printer.line_ends()?;
                self.answer_gate(gate, GateReply::Deny { reason: None }, PERSON).await
            }
            (PromptState::Leave(gate), None) => {
                self.printer.line_ends()?;
                let reason = Some("the terminal was closed before an answer came".to_owned());
                self.answer_gate(gate, GateReply::Deny { reason }, NO_USER).await
            }
            (PromptState::Leave(gate), Some(line)) => match parse_reply(&line) {
                ApprovalReply::Yes => self.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), PERSON).await,
                ApprovalReply::No(Some(reason)) => {
                    self.answer_gate(gate, GateReply::Deny { reason: Some(reason) }, PERSON).await
                }
                ApprovalReply::No(None) => {
                    self.asking = PromptState::Reason(gate);
                    Ok(self.printer.ask_why()?)
                }
                ApprovalReply::Unclear => Ok(self.printer.ask_again()?),
            },
            (PromptState::Reason(gate), Some(line)) => {
                self.answer_gate(gate, GateReply::Deny { reason: parse_reason(&line) }, PERSON).await
            }
        }
    }

    async fn answer_gate(&mut self, gate: GateId, answer: GateReply, by: &str) -> anyhow::Result<()> {
        self.asking = PromptState::Nothing;
        let by = PrincipalId::new(Arc::from(by));
        let answer = gate::Command::Answer { gate, answer, by, key: None };
        if let Err(refused) = self.answers.send_command(Command::Gate(answer)).await {
            self.printer.print_refusal(&refused.to_string())?;
        }
        Ok(())
    }
}
