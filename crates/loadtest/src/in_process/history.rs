//! A long history as real runs leave it: prompts, answers, calls that ran, and some gates that still wait.

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
    tool::{Lane, RepeatMode, ToolEffect},
};
use serde_json::{Map, Value};

/// How many sessions there are.
const SESSIONS: usize = 20;
/// How many of them end in a gate that waits.
pub(super) const GATES: usize = 10;

struct Author {
    engine: Engine,
    now: Millis,
    drawn: u128,
    recorded: Vec<RecordedFact>,
}

/// Makes about `events` facts, ending at about `now`. Deterministic but for the time.
pub(super) fn make(rules: ActiveRules, now: Millis, events: usize) -> anyhow::Result<Vec<RecordedFact>> {
    let mut author =
        Author { engine: Engine::new(rules.clone()), now, drawn: 0, recorded: Vec::with_capacity(events + 64) };
    author.tell(Command::UseRules(Box::new(rules)))?;
    author.tell(Command::Recover(ResumeMode::Wait))?;
    let sessions: Vec<SessionId> = (0..SESSIONS).map(|number| SessionId::new(format!("session-{number}"))).collect();
    for id in &sessions {
        author.open(id)?;
    }
    // A gate that waits takes nine facts.
    for round in 0.. {
        if author.recorded.len() + 10 * GATES >= events {
            break;
        }
        author.exchange(&sessions[round % SESSIONS])?;
    }
    for id in &sessions[..GATES] {
        let run = author.prompt(id)?;
        author.answer(run, &[("bash", "rm -rf ../elsewhere")])?;
    }
    while author.recorded.len() < events {
        let name = format!("name {}", author.recorded.len());
        author.tell(Command::Session(sessions[SESSIONS - 1].clone(), session::Command::Name { name }))?;
    }
    Ok(author.recorded)
}

impl Author {
    fn tell(&mut self, command: Command) -> anyhow::Result<EngineReply> {
        self.drawn += 1;
        let mut context = DecisionContext { now: self.now, fresh: IdGenerator::new(self.drawn.to_be_bytes()) };
        let (facts, reply) = self.engine.handle_command(command, &mut context)?;
        self.recorded.extend(facts);
        Ok(reply)
    }

    fn open(&mut self, id: &SessionId) -> anyhow::Result<()> {
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
        self.tell(Command::Session(id.clone(), open))?;
        Ok(())
    }

    /// A prompt, an answer with two calls that run, and an answer without.
    fn exchange(&mut self, id: &SessionId) -> anyhow::Result<()> {
        let run = self.prompt(id)?;
        self.answer(run, &[("read", "src/lib.rs"), ("read", "src/main.rs")])?;
        let calls = self.engine.state().run(run).context("the run has ended")?.calls().to_vec();
        for call in calls {
            let said = said(&StoredMessage::ToolResult(ToolResult {
                tool_name: "read".to_owned(),
                content: vec![MessageBlock::from_text("use std::fmt;\n".repeat(20))],
                ..ToolResult::default()
            }))?;
            let returned = CallResult {
                message: said,
                error: false,
                open_tasks: None,
                folder: None,
                prunable: true,
                left_behind: None,
            };
            let progress = CallProgress::Returned(Box::new(returned));
            self.tell(Command::Call(call::Command::Ended { call, progress }))?;
        }
        self.answer(run, &[])
    }

    fn prompt(&mut self, id: &SessionId) -> anyhow::Result<RunId> {
        let said = said(&StoredMessage::User(Spoken {
            content: vec![MessageBlock::from_text("Please look at the two files and say what they do.")],
            ..Spoken::default()
        }))?;
        let prompt = session::Command::Prompt { message: said, with: Vec::new(), when_busy: WhenBusy::Refuse };
        match self.tell(Command::Session(id.clone(), prompt))? {
            EngineReply::Started(run) => Ok(run),
            other => bail!("a prompt came to {other:?}"),
        }
    }

    fn answer(&mut self, run: RunId, calls: &[(&str, &str)]) -> anyhow::Result<()> {
        let epoch = self.engine.state().run(run).context("the run has ended")?.epoch();
        let stop = if calls.is_empty() { StopReason::Stop } else { StopReason::ToolUse };
        let said = said(&StoredMessage::Assistant(AssistantReply {
            content: vec![MessageBlock::from_text(
                "Both files hold little: one names the modules, the other starts the program. ".repeat(3),
            )],
            stop_reason: stop,
            ..AssistantReply::default()
        }))?;
        let wanted = calls.iter().map(|(tool, argument)| wanted(tool, argument)).collect();
        let answer = Box::new(ModelAnswer {
            message: said,
            stop,
            total_tokens: 1000,
            calls: wanted,
            failure: None,
            others: Vec::new(),
            spent: None,
        });
        self.tell(Command::Run(run::Command::Answered { run, epoch, answer }))?;
        Ok(())
    }
}

fn wanted(tool: &str, argument: &str) -> ResolvedCall {
    let name = if tool == "bash" { "command" } else { "path" };
    ResolvedCall {
        tool_call_id: "call_1".into(),
        tool: tool.into(),
        arguments: Map::from_iter([(name.to_owned(), Value::from(argument))]),
        intent: None,
        signature: format!("{tool}({argument})"),
        named: vec![name.to_owned()],
        lane: Lane::Shared,
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

fn said(message: &StoredMessage) -> anyhow::Result<MessageContent> {
    let content = serde_json::to_string(message)?;
    Ok(MessageContent { tokens: estimate_tokens(content.len()), content: content.into() })
}
