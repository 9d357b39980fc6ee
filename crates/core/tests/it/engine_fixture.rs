//! A small fixture: an engine with one session, in whose log facts are read as short words.

use std::{sync::Arc, time::Duration};

use countersign_core::{
    call::{self, CallProgress, CallResult, Executor},
    engine::{
        ActiveRules, Command, CommandError, DecisionContext, Engine, EngineReply, Event, RecordedFact, ResumeMode,
    },
    gate::{self, GateReply},
    id::{CallId, EntryId, GateId, IdGenerator, Lsn, PrincipalId, RunId, SessionId},
    message::StopReason,
    policy::{CompiledRules, DefaultPolicy, PathContext, RuleLayer, RuleSource, compile_rules},
    run::{self, ProviderFailure, ResolvedCall},
    session::{
        self, ImportedEntry, MessageContent, ModelRef, Session, SessionEntryKind, SessionSetting, Settings, WhenBusy,
    },
    time::Millis,
    tool::{CallConcurrency, RepeatMode, ToolEffect},
};
use serde_json::{Value, json};

/// Outcome of a command: its facts in words, and its reply.
#[derive(Debug, PartialEq)]
pub(crate) struct EngineOutcome(pub(crate) Vec<String>, pub(crate) Result<EngineReply, CommandError>);

impl EngineOutcome {
    /// Returns both as the cell of a table: the reply's name or the error, then the facts.
    pub(crate) fn table_cell(&self) -> String {
        let reply = match &self.1 {
            Ok(EngineReply::Resolved(resolution)) => format!("Resolved {}", value_word(&json!(resolution))),
            Ok(EngineReply::Compacting { epoch }) => format!("Compacting {epoch}"),
            Ok(reply) => format!("{reply:?}").split(['(', ' ']).next().unwrap_or_default().to_owned(),
            Err(refusal) => format!("refused: {refusal}"),
        };
        if self.0.is_empty() { reply } else { format!("{reply}: {}", self.0.join(", ")) }
    }
}

#[derive(Clone)]
pub(crate) struct EngineFixture {
    pub(crate) engine: Engine,
    pub(crate) now: Millis,
    drawn: u16,
    log: Vec<RecordedFact>,
    /// Positions in the log at which batches end.
    batches: Vec<usize>,
}

/// Returns rules under which changing calls ask, and reading ones run.
pub(crate) fn asking_rules() -> ActiveRules {
    ActiveRules {
        compiled: CompiledRules::default(),
        default_policy: DefaultPolicy::Gateway,
        path_context: PathContext::default(),
        people: gate::IdentityMap::default(),
    }
}

/// Returns rules under which everything runs except what the floor holds.
pub(crate) fn open_rules() -> ActiveRules {
    ActiveRules { default_policy: DefaultPolicy::Stdio, ..asking_rules() }
}

/// Returns rules as people write them, such as `deny write(a)`; calls that no rule matches run.
pub(crate) fn rules_from(texts: &[&str]) -> ActiveRules {
    let rule = |text: &&str| {
        let (action, pattern) = text.split_once(' ').expect("an action and a pattern");
        json!({ "action": action, "pattern": pattern })
    };
    let rules: Vec<Value> = texts.iter().map(rule).collect();
    let rules = json!({ "rules": rules, "defaults": [{ "action": "allow", "pattern": "*" }] });
    let rules = serde_json::from_value(rules).expect("the form of a permissions file");
    let source = RuleSource { name: "permissions.yaml".to_owned(), layer: RuleLayer::Main, rules };
    ActiveRules { compiled: compile_rules(vec![source]).expect("the stage's rules make sense"), ..open_rules() }
}

pub(crate) fn session_id() -> SessionId {
    SessionId::new("s")
}

pub(crate) fn sample_message(tokens: u64) -> MessageContent {
    MessageContent { content: r#"{"role":"user","content":[]}"#.into(), tokens }
}

/// Returns a call of `tool` on `path`; `look` only reads and runs with others.
pub(crate) fn tool_call(tool: &str, path: &str) -> ResolvedCall {
    let reads = tool == "look";
    let arguments = match tool {
        "bash" => json!({ "command": path }),
        "ask" => json!({"questions": [{"question": "Which?"}, {"question": "Why?"}]}),
        "plan" => json!({"plan": "Move it.", "title": "The move"}),
        "execution" => json!({"execution": "It was moved."}),
        _ => json!({ "path": path }),
    };
    ResolvedCall {
        tool_call_id: "c".into(),
        tool: tool.into(),
        arguments: arguments.as_object().cloned().expect("the stage has it"),
        intent: None,
        signature: format!("{tool}({path})"),
        named: vec![if tool == "bash" { "command" } else { "path" }.to_owned()],
        concurrency: if reads { CallConcurrency::Shared } else { CallConcurrency::Exclusive },
        repeat: if reads { RepeatMode::Idempotent } else { RepeatMode::Once },
        effect: if reads { ToolEffect::Reads } else { ToolEffect::Changes },
        executor: if ["ask", "plan", "execution"].contains(&tool) { Executor::Person } else { Executor::Builtin },
        class: None,
        shell: None,
        problem: None,
        pins: None,
        leads_to: None,
    }
}

impl EngineFixture {
    /// Creates a fixture without a session.
    pub(crate) fn without_session(rules: ActiveRules) -> Self {
        let mut stage =
            Self { engine: Engine::new(rules), now: Millis(1_000), drawn: 0, log: Vec::new(), batches: Vec::new() };
        stage.send_command(Command::Recover(ResumeMode::Go));
        stage
    }

    pub(crate) fn new(rules: ActiveRules) -> Self {
        let mut stage = Self::without_session(rules);
        stage.open_session();
        stage
    }

    /// Creates a fixture with a session whose host brought rules of its own.
    pub(crate) fn with_host_rules(rules: ActiveRules, of_host: ActiveRules) -> Self {
        let mut stage = Self::without_session(rules);
        stage.send_command(Command::UseRulesFor(session_id(), Box::new(of_host)));
        stage.open_session();
        stage
    }

    fn open_session(&mut self) {
        let settings = Settings {
            model: Some(ModelRef {
                provider: "p".to_owned(),
                id: "m".to_owned(),
                context_window: 1_000,
                max_tokens: 10,
                price: None,
            }),
            thresholds: session::CompactionThresholds {
                auto: true,
                reserve: 100,
                keep_recent: 50,
                at_tokens: None,
                at_percent: None,
            },
            ..Settings::default()
        };
        let open = session::Command::Open {
            cwd: "/w".to_owned(),
            name: None,
            parent: None,
            door: None,
            settings: Box::new(settings),
        };
        self.send_command(Command::Session(session_id(), open));
    }

    /// Starts a new process over the same log.
    pub(crate) fn restart(&mut self, rules: ActiveRules, resume: ResumeMode) -> EngineOutcome {
        let engine = self.replay_log(rules);
        assert_eq!((engine.state(), engine.admitted()), (self.engine.state(), self.engine.admitted()));
        self.engine = engine;
        self.send_command(Command::Recover(resume))
    }

    fn replay_log(&self, rules: ActiveRules) -> Engine {
        let mut engine = Engine::new(rules);
        for recorded in &self.log {
            engine.replay_fact(&recorded.fact.event, &recorded.meta);
        }
        // In parts, as an owner reads them.
        let wanted = engine.wanted_contents();
        for part in wanted.lsns().chunks(2) {
            let contents = part.iter().filter_map(|lsn| Some((*lsn, self.content(*lsn)?)));
            engine.admit_parsed(wanted.parse_contents(contents).expect("the stage has it"));
        }
        engine
    }

    /// Returns the engine of a new process over the log with `change` applied to it.
    pub(crate) fn read_with(&self, rules: ActiveRules, change: impl Fn(&mut Event)) -> Engine {
        let mut engine = Engine::new(rules);
        for recorded in &self.log {
            let mut event = recorded.fact.event.clone();
            change(&mut event);
            engine.replay_fact(&event, &recorded.meta);
        }
        engine
    }

    /// Returns the number of recorded batches.
    pub(crate) fn batches(&self) -> usize {
        self.batches.len()
    }

    /// Starts a new process over the log as it was when the process before died after its first `batches` batches.
    pub(crate) fn die_after(&mut self, batches: usize, rules: ActiveRules, resume: ResumeMode) {
        self.batches.truncate(batches);
        self.log.truncate(self.batches.last().copied().unwrap_or_default());
        self.engine = self.replay_log(rules);
        self.send_command(Command::Recover(resume));
    }

    /// Returns the number of resolutions of each gate.
    pub(crate) fn resolutions(&self) -> Vec<(GateId, usize)> {
        let mut counts: Vec<(GateId, usize)> = Vec::new();
        for recorded in &self.log {
            match &recorded.fact.event {
                Event::Gate(gate::Event::Opened { gate, .. }) => counts.push((*gate, 0)),
                Event::Gate(gate::Event::Resolved { gate, .. }) => {
                    if let Some((_, count)) = counts.iter_mut().find(|(known, _)| known == gate) {
                        *count += 1;
                    }
                }
                _ => {}
            }
        }
        counts
    }

    /// Returns the number of facts with these words in the log.
    pub(crate) fn count_of(&self, fact: &str) -> usize {
        self.log.iter().filter(|recorded| event_words(&recorded.fact.event) == fact).count()
    }

    /// Returns the outcomes of runs, in order.
    pub(crate) fn run_ends(&self) -> Vec<String> {
        let facts = self.log.iter().map(|recorded| event_words(&recorded.fact.event));
        facts.filter(|fact| fact.starts_with("run ended")).collect()
    }

    /// Returns the texts of all results of calls, in order.
    pub(crate) fn call_results(&self) -> Vec<String> {
        let is_result = |recorded: &&RecordedFact| event_words(&recorded.fact.event) == "session entry tool_result";
        self.log.iter().filter(is_result).map(text_of).collect()
    }

    /// Returns each fact as the log keeps it: its kind, the version of its form, and its members as JSON.
    pub(crate) fn stored(&self) -> impl Iterator<Item = (&'static str, u16, String)> + '_ {
        self.log.iter().map(|recorded| recorded.fact.event.encode())
    }

    /// Rebuilds the state of the same process from the log without its last facts, which were not recorded.
    pub(crate) fn lose_facts(&mut self, facts: usize) {
        self.log.truncate(self.log.len() - facts);
        let mut engine = Engine::new(self.engine.rules().clone());
        for recorded in &self.log {
            engine.replay_fact(&recorded.fact.event, &recorded.meta);
        }
        self.engine = engine.in_place_of(&self.engine);
    }

    pub(crate) fn content(&self, lsn: Lsn) -> Option<Arc<str>> {
        self.log.iter().find(|recorded| recorded.meta.lsn == lsn)?.fact.content.clone()
    }

    pub(crate) fn send_command(&mut self, command: Command) -> EngineOutcome {
        self.drawn += 1;
        let [high, low] = self.drawn.to_be_bytes();
        let mut seed = [low; 16];
        seed[0] ^= high;
        let mut context = DecisionContext { now: self.now, fresh: IdGenerator::new(seed) };
        match self.engine.handle_command(command, &mut context) {
            Ok((mut facts, reply)) => {
                // Facts that follow in a later batch are part of the outcome of the command.
                loop {
                    if !facts.is_empty() && self.batches.last() != Some(&(self.log.len() + facts.len())) {
                        self.batches.push(self.log.len() + facts.len());
                    }
                    self.engine.mark_durable(self.engine.state().head_lsn());
                    if !self.engine.is_unsettled() {
                        break;
                    }
                    facts.extend(self.engine.settle(&mut context));
                }
                let words = facts.iter().map(|recorded| event_words(&recorded.fact.event)).collect();
                self.log.extend(facts);
                EngineOutcome(words, Ok(reply))
            }
            Err(refusal) => EngineOutcome(Vec::new(), Err(refusal)),
        }
    }

    pub(crate) fn session_command(&mut self, command: session::Command) -> EngineOutcome {
        self.send_command(Command::Session(session_id(), command))
    }

    pub(crate) fn change_setting(&mut self, setting: SessionSetting) {
        self.session_command(session::Command::Set { setting, entry: None });
    }

    /// Adds imported entries after the leaf, one after the other: their names, kinds and tokens.
    pub(crate) fn import<const N: usize>(&mut self, entries: [(&str, SessionEntryKind, u64); N]) -> EngineOutcome {
        let mut parent = self.current_session().leaf().cloned();
        let entries = entries.map(|(id, kind, tokens)| {
            let id = EntryId::new(id);
            let parent = parent.replace(id.clone());
            ImportedEntry { id, parent, kind, message: sample_message(tokens), made_at: None }
        });
        self.session_command(session::Command::Import { entries: entries.into(), leaf: parent })
    }

    /// Returns the session as it stands.
    pub(crate) fn current_session(&self) -> &Session {
        self.engine.state().session(&session_id()).expect("the stage has it")
    }

    /// Returns the text of the newest result of a call.
    pub(crate) fn last_result(&self) -> String {
        let is_result = |recorded: &&RecordedFact| event_words(&recorded.fact.event) == "session entry tool_result";
        text_of(self.log.iter().rev().find(is_result).expect("the stage has it"))
    }

    /// Returns the details of the newest result of a call.
    pub(crate) fn last_details(&self) -> Value {
        let is_result = |recorded: &&RecordedFact| event_words(&recorded.fact.event) == "session entry tool_result";
        message_of(self.log.iter().rev().find(is_result).expect("the stage has it"))["details"].take()
    }

    pub(crate) fn send_prompt(&mut self, when_busy: WhenBusy) -> EngineOutcome {
        self.send_command(Command::Session(
            session_id(),
            session::Command::Prompt { message: sample_message(1), with: Vec::new(), when_busy },
        ))
    }

    pub(crate) fn current_run(&self) -> RunId {
        self.engine.state().session(&session_id()).expect("the stage has it").run().expect("the stage has it")
    }

    pub(crate) fn answer(
        &mut self,
        stop: StopReason,
        calls: Vec<ResolvedCall>,
        failure: Option<ProviderFailure>,
    ) -> EngineOutcome {
        let (run, epoch) =
            (self.current_run(), self.engine.state().run(self.current_run()).expect("the stage has it").epoch());
        let answer = run::ModelAnswer {
            message: sample_message(1),
            stop,
            total_tokens: 0,
            calls,
            failure,
            others: Vec::new(),
            spent: None,
        };
        self.answer_run(run, epoch, answer)
    }

    /// Answers without later batches of consequences.
    pub(crate) fn answer_only(&mut self, stop: StopReason, calls: Vec<ResolvedCall>, failure: Option<ProviderFailure>) {
        let (run, epoch) =
            (self.current_run(), self.engine.state().run(self.current_run()).expect("the stage has it").epoch());
        let answer = Box::new(run::ModelAnswer {
            message: sample_message(1),
            stop,
            total_tokens: 0,
            calls,
            failure,
            others: Vec::new(),
            spent: None,
        });
        let mut context = DecisionContext { now: self.now, fresh: IdGenerator::new([250; 16]) };
        let answered = Command::Run(run::Command::Answered { run, epoch, answer });
        self.log.extend(self.engine.handle_command(answered, &mut context).expect("the stage has it").0);
    }

    pub(crate) fn answer_run(&mut self, run: RunId, epoch: u32, answer: run::ModelAnswer) -> EngineOutcome {
        self.send_command(Command::Run(run::Command::Answered { run, epoch, answer: Box::new(answer) }))
    }

    pub(crate) fn request_calls<const N: usize>(&mut self, calls: [ResolvedCall; N]) -> EngineOutcome {
        self.answer(StopReason::ToolUse, calls.into(), None)
    }

    pub(crate) fn fail_request(&mut self, failure: ProviderFailure) -> EngineOutcome {
        self.answer(StopReason::Error, Vec::new(), Some(failure))
    }

    pub(crate) fn abort(&mut self) -> EngineOutcome {
        self.send_command(Command::Run(run::Command::Abort { session: session_id() }))
    }

    pub(crate) fn calls(&self) -> Vec<CallId> {
        self.engine.state().run(self.current_run()).expect("the stage has it").calls().to_vec()
    }

    pub(crate) fn end_call(&mut self, at: usize) -> EngineOutcome {
        self.end_with(at, returned_result())
    }

    pub(crate) fn end_with(&mut self, at: usize, progress: CallProgress) -> EngineOutcome {
        self.send_command(Command::Call(call::Command::Ended { call: self.calls()[at], progress }))
    }

    /// Returns the oldest pending gate, in its current state, if there is one.
    pub(crate) fn first_gate(&self) -> Option<gate::Gate> {
        self.engine.state().pending_gates().next().cloned()
    }

    /// Returns the oldest pending gate.
    pub(crate) fn oldest_gate(&self) -> GateId {
        self.engine.state().pending_gates().min_by_key(|gate| gate.content_lsn()).expect("the stage has it").id()
    }

    pub(crate) fn answer_gate(
        &mut self,
        gate: GateId,
        answer: GateReply,
        by: &str,
        key: Option<&str>,
    ) -> EngineOutcome {
        let (by, key) = (PrincipalId::new(by), key.map(str::to_owned));
        self.send_command(Command::Gate(gate::Command::Answer { gate, answer, by, key }))
    }
}

fn message_of(recorded: &RecordedFact) -> Value {
    let content = recorded.fact.content.as_deref().expect("the stage has it");
    serde_json::from_str(content).expect("the stage has it")
}

fn text_of(recorded: &RecordedFact) -> String {
    message_of(recorded)["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}

/// Returns a fact in the words of its form in the log, without random parts.
fn event_words(event: &Event) -> String {
    let (kind, _, facts) = event.encode();
    let facts: Value = serde_json::from_str(&facts).expect("the stage has it");
    let (name, members) = match &facts {
        Value::Object(map) => map.iter().next().map_or(("", &Value::Null), |(name, members)| (name.as_str(), members)),
        Value::String(name) => (name.as_str(), &Value::Null),
        _ => ("", &Value::Null),
    };
    let mut words = format!("{kind} {name}").trim_end().to_owned();
    let telling = ["kind", "end", "resolution", "scopes", "queue", "then", "attempt", "delay", "in_a_row", "trigger"];
    for member in telling.iter().filter_map(|member| members.get(member)) {
        words.push(' ');
        words.push_str(&value_word(member));
    }
    words
}

fn value_word(value: &Value) -> String {
    match value {
        Value::Object(map) if map.contains_key("secs") => format!("{} s", map["secs"]),
        Value::Object(map) => map.keys().cloned().collect(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns the result of an executor that succeeded.
pub(crate) fn returned_result() -> CallProgress {
    let returned = CallResult {
        message: sample_message(1),
        error: false,
        open_tasks: None,
        folder: None,
        prunable: false,
        left_behind: None,
    };
    CallProgress::Returned(Box::new(returned))
}

pub(crate) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}
