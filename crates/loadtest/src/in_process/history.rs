//! A long history as real runs leave it: prompts, answers, calls that ran, and some gates that still wait.

use std::time::Duration;

use anyhow::{Context as _, bail};
use countersign_core::{
    call::{self, CallProgress, CallResult, Executor},
    engine::{ActiveRules, Command, DecisionContext, Engine, EngineReply, RecordedFact, ResumeMode},
    id::{IdGenerator, RunId, SessionId},
    message::{
        AssistantReply, InputMessage as Spoken, MessageBlock, StopReason, StoredMessage, ToolResult, estimate_tokens,
    },
    run::{self, ModelAnswer, ResolvedCall},
    session::{self, MessageContent, ModelRef, Settings, WhenBusy},
    time::Millis,
    tool::{CallConcurrency, RepeatMode, ToolEffect},
};
use serde_json::{Map, Value};

/// Number of sessions.
const SESSIONS: usize = 20;
/// Number of sessions that end in a pending gate.
pub(super) const GATES: usize = 10;

/// Engine that decides a history, and the facts that were not taken yet.
pub(super) struct HistoryAuthor {
    engine: Engine,
    now: Millis,
    drawn: u128,
    recorded: Vec<RecordedFact>,
}

/// Makes about `events` facts, ending at about `now`. Deterministic but for the time.
pub(super) fn make_history(rules: ActiveRules, now: Millis, events: usize) -> anyhow::Result<Vec<RecordedFact>> {
    let mut author = HistoryAuthor::begin(rules, now)?;
    let sessions: Vec<SessionId> = (0..SESSIONS).map(|number| SessionId::new(format!("session-{number}"))).collect();
    for id in &sessions {
        author.open_session(id)?;
    }
    // A gate that waits takes nine facts.
    for round in 0.. {
        if author.recorded.len() + 10 * GATES >= events {
            break;
        }
        author.add_exchange(&sessions[round % SESSIONS])?;
    }
    for id in &sessions[..GATES] {
        let run = author.send_prompt(id)?;
        author.add_answer(run, &[("bash", "rm -rf ../elsewhere")])?;
    }
    while author.recorded.len() < events {
        let name = format!("name {}", author.recorded.len());
        author.handle_command(Command::Session(sessions[SESSIONS - 1].clone(), session::Command::Name { name }))?;
    }
    Ok(author.recorded)
}

impl HistoryAuthor {
    /// Begins a history at `now`.
    pub(super) fn begin(rules: ActiveRules, now: Millis) -> anyhow::Result<Self> {
        let mut author = Self { engine: Engine::new(rules.clone()), now, drawn: 0, recorded: Vec::new() };
        author.handle_command(Command::UseRules(Box::new(rules)))?;
        author.handle_command(Command::Recover(ResumeMode::Wait))?;
        Ok(author)
    }

    /// Lets `span` pass, and unloads what has rested for `idle`.
    pub(super) fn let_time_pass(&mut self, span: Duration, idle: Duration) {
        self.now = self.now + span;
        self.engine.evict_idle(self.now, Some(idle));
    }

    /// Takes the facts that were decided since the last call.
    pub(super) fn take_facts(&mut self) -> Vec<RecordedFact> {
        std::mem::take(&mut self.recorded)
    }

    /// Adds a prompt and an answer without calls.
    pub(super) fn add_short_exchange(&mut self, id: &SessionId) -> anyhow::Result<()> {
        let run = self.send_prompt(id)?;
        self.add_answer(run, &[])
    }

    fn handle_command(&mut self, command: Command) -> anyhow::Result<EngineReply> {
        self.drawn += 1;
        let mut context = DecisionContext { now: self.now, fresh: IdGenerator::new(self.drawn.to_be_bytes()) };
        let (facts, reply) = self.engine.handle_command(command, &mut context)?;
        self.recorded.extend(facts);
        Ok(reply)
    }

    /// Opens a session.
    pub(super) fn open_session(&mut self, id: &SessionId) -> anyhow::Result<()> {
        let model = ModelRef {
            provider: "demo".to_owned(),
            id: "scripted-1".to_owned(),
            context_window: u64::MAX / 1000,
            max_tokens: 8192,
            price: None,
        };
        let mut settings = Settings { model: Some(model), ..Settings::default() };
        settings.thresholds.auto = false;
        let open = session::Command::Open {
            cwd: "/work".to_owned(),
            name: None,
            parent: None,
            door: None,
            settings: Box::new(settings),
        };
        self.handle_command(Command::Session(id.clone(), open))?;
        Ok(())
    }

    /// Adds a prompt, an answer with two calls that run, and an answer without.
    pub(super) fn add_exchange(&mut self, id: &SessionId) -> anyhow::Result<()> {
        let run = self.send_prompt(id)?;
        self.add_answer(run, &[("read", "src/lib.rs"), ("read", "src/main.rs")])?;
        let calls = self.engine.state().run(run).context("the run has ended")?.calls().to_vec();
        for call in calls {
            let content = message_content(&StoredMessage::ToolResult(ToolResult {
                tool_name: "read".to_owned(),
                content: vec![MessageBlock::from_text("use std::fmt;\n".repeat(20))],
                ..ToolResult::default()
            }))?;
            let returned = CallResult {
                message: content,
                error: false,
                open_tasks: None,
                folder: None,
                prunable: true,
                left_behind: None,
            };
            let progress = CallProgress::Returned(Box::new(returned));
            self.handle_command(Command::Call(call::Command::Ended { call, progress }))?;
        }
        self.add_answer(run, &[])
    }

    fn send_prompt(&mut self, id: &SessionId) -> anyhow::Result<RunId> {
        let content = message_content(&StoredMessage::User(Spoken {
            content: vec![MessageBlock::from_text("Please look at the two files and say what they do.")],
            ..Spoken::default()
        }))?;
        let prompt = session::Command::Prompt { message: content, with: Vec::new(), when_busy: WhenBusy::Refuse };
        match self.handle_command(Command::Session(id.clone(), prompt))? {
            EngineReply::Started(run) => Ok(run),
            other => bail!("a prompt returned {other:?}"),
        }
    }

    fn add_answer(&mut self, run: RunId, calls: &[(&str, &str)]) -> anyhow::Result<()> {
        let epoch = self.engine.state().run(run).context("the run has ended")?.epoch();
        let stop = if calls.is_empty() { StopReason::Stop } else { StopReason::ToolUse };
        let content = message_content(&StoredMessage::Assistant(AssistantReply {
            content: vec![MessageBlock::from_text(
                "Both files hold little: one names the modules, the other starts the program. ".repeat(3),
            )],
            stop_reason: stop,
            ..AssistantReply::default()
        }))?;
        let requested = calls.iter().map(|(tool, argument)| requested_call(tool, argument)).collect();
        let answer = Box::new(ModelAnswer {
            message: content,
            stop,
            total_tokens: 1000,
            calls: requested,
            failure: None,
            others: Vec::new(),
            spent: None,
        });
        self.handle_command(Command::Run(run::Command::Answered { run, epoch, answer }))?;
        Ok(())
    }
}

fn requested_call(tool: &str, argument: &str) -> ResolvedCall {
    let name = if tool == "bash" { "command" } else { "path" };
    ResolvedCall {
        tool_call_id: "call_1".into(),
        tool: tool.into(),
        arguments: Map::from_iter([(name.to_owned(), Value::from(argument))]),
        intent: None,
        signature: format!("{tool}({argument})"),
        named: vec![name.to_owned()],
        concurrency: CallConcurrency::Shared,
        repeat: RepeatMode::Idempotent,
        effect: if tool == "bash" { ToolEffect::Changes } else { ToolEffect::Reads },
        executor: Executor::Builtin,
        class: None,
        shell: None,
        problem: None,
        pins: None,
        leads_to: None,
    }
}

fn message_content(message: &StoredMessage) -> anyhow::Result<MessageContent> {
    let content = serde_json::to_string(message)?;
    Ok(MessageContent { tokens: estimate_tokens(content.len()), content: content.into() })
}
