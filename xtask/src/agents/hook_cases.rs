//! Cases of a program that asks the gateway before each call, through its hook.
//!
//! Source of the expectations: docs/protocol/hooks.md. A case fails if a call ran that had to be blocked, or the other way round.

use std::fs;

use anyhow::{Context as _, ensure};
use countersign_scripted_model::{MessageScript, ScriptId};
use serde_json::{Value, json};

use crate::agents::{
    case_context::CaseContext,
    case_outcome::CaseOutcome,
    case_run::{CaseRun, LIMIT},
    guarded_program::{GuardedProgram, Prompt},
    host_program::HostProgram,
    process::{ProcessGroup, wait_for},
    scratch_gateway::{GateAnswer, ScratchGateway},
};

/// Wait of a hook for a person in the cases with a deadline, in seconds.
const SHORT_WAIT: u64 = 4;
const RULES: &str = "defaults:
  - { pattern: \"bash(./mark allowed-*)\", action: allow }
  - { pattern: \"bash(./mark denied-*)\", action: deny }
  - { pattern: \"claude__Agent*\", action: allow }
  - { pattern: \"*\", action: ask }
";

/// Case of one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookCase {
    AllowedByRule,
    /// The call has a description too, which models mostly write.
    AllowedWithDescription,
    DeniedByRule,
    AllowedByPerson,
    DeniedByPerson,
    /// A person allows to write a file.
    FileWritten,
    /// Nobody decides in time; a person allows the call, and it is repeated.
    Deadline,
    KilledBeforeCall,
    /// The gateway ends while the hook waits; a person allows the call after the restart, and it is repeated.
    KilledInWait,
    /// The gateway ends while the allowed call runs.
    KilledAfterDecision,
    /// A decision that no hook has taken is kept over the end of the gateway.
    KilledBeforeRepeat,
    /// The gateway was never started.
    Absent,
    /// Another program in place of our hook prints no JSON.
    Garbage,
    /// Two calls in one message: a person allows one and denies the other.
    TwoAtOnce,
    Subagent,
    /// Nobody decides in time about the call of a subagent.
    SubagentDeadline,
    /// The settings of a repository switch off hooks.
    DisabledByRepository,
    /// Another hook rewrites the call after the decision.
    Rewritten,
}

impl HookCase {
    const ALL: [Self; 18] = [
        Self::AllowedByRule,
        Self::AllowedWithDescription,
        Self::DeniedByRule,
        Self::AllowedByPerson,
        Self::DeniedByPerson,
        Self::FileWritten,
        Self::Deadline,
        Self::KilledBeforeCall,
        Self::KilledInWait,
        Self::KilledAfterDecision,
        Self::KilledBeforeRepeat,
        Self::Absent,
        Self::Garbage,
        Self::TwoAtOnce,
        Self::Subagent,
        Self::SubagentDeadline,
        Self::DisabledByRepository,
        Self::Rewritten,
    ];

    /// Returns the cases of a program, in order.
    pub(crate) fn for_program(program: HostProgram) -> Vec<Self> {
        Self::ALL.into_iter().filter(|case| case.skip_reason(program).is_none()).collect()
    }

    /// Returns the cases that a program cannot have, with the reasons.
    pub(crate) fn skipped(program: HostProgram) -> Vec<(&'static str, &'static str)> {
        Self::ALL.into_iter().filter_map(|case| Some((case.name(), case.skip_reason(program)?))).collect()
    }

    const fn skip_reason(self, program: HostProgram) -> Option<&'static str> {
        match (self, program) {
            (Self::AllowedWithDescription, HostProgram::Codex) => Some("its tool has no description"),
            (Self::FileWritten, HostProgram::Codex) => Some("it writes files with commands"),
            (
                Self::Subagent | Self::SubagentDeadline,
                HostProgram::Codex | HostProgram::Gemini | HostProgram::Copilot | HostProgram::Opencode,
            ) => Some("the scripted model knows the subagents of Claude Code only"),
            (Self::DisabledByRepository, HostProgram::Codex | HostProgram::Copilot) => {
                Some("no setting of a repository that switches off hooks is known")
            }
            (Self::DisabledByRepository, HostProgram::Opencode) => {
                Some("no setting of a repository that switches off a plugin of the user is known")
            }
            _ => None,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::AllowedByRule => "hook-allowed-by-rule",
            Self::AllowedWithDescription => "hook-allowed-with-description",
            Self::DeniedByRule => "hook-denied-by-rule",
            Self::AllowedByPerson => "hook-allowed-by-person",
            Self::DeniedByPerson => "hook-denied-by-person",
            Self::FileWritten => "hook-file-written",
            Self::Deadline => "hook-deadline",
            Self::KilledBeforeCall => "hook-killed-before-call",
            Self::KilledInWait => "hook-killed-in-wait",
            Self::KilledAfterDecision => "hook-killed-after-decision",
            Self::KilledBeforeRepeat => "hook-killed-before-repeat",
            Self::Absent => "hook-absent",
            Self::Garbage => "hook-garbage",
            Self::TwoAtOnce => "hook-two-at-once",
            Self::Subagent => "hook-subagent",
            Self::SubagentDeadline => "hook-subagent-deadline",
            Self::DisabledByRepository => "hook-disabled-by-repository",
            Self::Rewritten => "hook-rewritten",
        }
    }

    /// Returns the words that have to run, in order, and the number of incidents.
    const fn expectation(self, program: HostProgram) -> (&'static [&'static str], usize) {
        match self {
            // The plugin takes no answer for an allowance.
            Self::Garbage if matches!(program, HostProgram::Opencode) => (&[], 0),
            Self::AllowedByRule | Self::AllowedWithDescription => (&["allowed-1"], 0),
            Self::AllowedByPerson => (&["ask-1"], 0),
            Self::FileWritten => (&["note-1"], 0),
            Self::DeniedByRule | Self::DeniedByPerson | Self::Absent => (&[], 0),
            Self::Deadline | Self::KilledInWait | Self::KilledBeforeRepeat => (&["ask-1"], 0),
            Self::KilledBeforeCall => (&["allowed-1"], 0),
            Self::KilledAfterDecision => (&["ask-slow-1"], 0),
            // The two known holes: docs/protocol/hooks.md, Limits.
            Self::Garbage | Self::DisabledByRepository => (&["denied-1"], 0),
            Self::TwoAtOnce => (&["ask-1"], 0),
            Self::Subagent => (&["ask-1"], 0),
            Self::SubagentDeadline => (&[], 0),
            Self::Rewritten => (&["rewritten-1"], 1),
        }
    }

    /// Runs the case, and returns what happened.
    ///
    /// # Errors
    /// A step failed, or another call ran than the expectation has.
    pub(crate) fn run(self, context: &CaseContext<'_>) -> anyhow::Result<CaseOutcome> {
        fs::create_dir_all(&context.folder)?;
        let gateway =
            ScratchGateway::prepare(context.binary, &context.folder.join("gateway"), &context.stub.url, RULES)?;
        let guarded = GuardedProgram {
            program: context.program,
            programs: context.programs,
            folder: &context.folder,
            model_url: &context.stub.url,
        };
        let mut run = CaseRun { context, guarded, gateway, model: Vec::new(), notes: Vec::new() };
        run.prepare(self)?;
        run.execute(self)?;
        let outcome = run.outcome()?;
        let (ran, incidents) = self.expectation(context.program);
        ensure!(outcome.ran == ran, "{ran:?} had to run; {outcome}");
        ensure!(outcome.incidents.len() == incidents, "{incidents} incidents expected; {outcome}; {}", outcome.rows());
        Ok(outcome)
    }
}

impl CaseRun<'_> {
    fn prepare(&mut self, case: HookCase) -> anyhow::Result<()> {
        self.guarded.prepare()?;
        if case != HookCase::Absent {
            self.gateway.restart()?;
        }
        self.guarded.install_guard(self.context.binary, &self.gateway.config())?;
        match case {
            HookCase::Deadline | HookCase::KilledBeforeRepeat | HookCase::SubagentDeadline => {
                let mark = format!(" hook {} ", self.context.program.name());
                let with_wait = format!("{mark}--wait {SHORT_WAIT} ");
                self.guarded.edit_commands(|command| command.replace(&mark, &with_wait))
            }
            HookCase::Garbage => self.guarded.edit_commands(|_| "echo this is no document".to_owned()),
            HookCase::DisabledByRepository => self.guarded.disable_hooks(),
            HookCase::Rewritten => self.guarded.add_rewriting_hook("./mark rewritten-1"),
            HookCase::AllowedByRule
            | HookCase::AllowedWithDescription
            | HookCase::DeniedByRule
            | HookCase::AllowedByPerson
            | HookCase::DeniedByPerson
            | HookCase::FileWritten
            | HookCase::KilledBeforeCall
            | HookCase::KilledInWait
            | HookCase::KilledAfterDecision
            | HookCase::Absent
            | HookCase::TwoAtOnce
            | HookCase::Subagent => Ok(()),
        }
    }

    fn execute(&mut self, case: HookCase) -> anyhow::Result<()> {
        match case {
            HookCase::AllowedByRule | HookCase::Absent | HookCase::Rewritten => self.run_turn("allowed-1"),
            HookCase::AllowedWithDescription => self.run_described(),
            HookCase::DeniedByRule | HookCase::Garbage | HookCase::DisabledByRepository => self.run_turn("denied-1"),
            HookCase::AllowedByPerson => self.ask_person(GateAnswer::Allow),
            HookCase::DeniedByPerson => self.ask_person(GateAnswer::Deny),
            HookCase::FileWritten => {
                let (tool, arguments) = self.guarded.write_note("note-1")?;
                self.ask_about(MessageScript { tool, messages: vec![vec![arguments]] }, GateAnswer::Allow)
            }
            HookCase::Deadline => self.pass_deadline(false),
            HookCase::KilledBeforeRepeat => self.pass_deadline(true),
            HookCase::KilledBeforeCall => self.kill_before_call(),
            HookCase::KilledInWait => self.kill_in_wait(),
            HookCase::KilledAfterDecision => self.kill_after_decision(),
            HookCase::TwoAtOnce => self.decide_two(),
            HookCase::Subagent => self.ask_for_subagent(),
            HookCase::SubagentDeadline => self.pass_deadline_of_subagent(),
        }
    }

    fn start(&self, messages: &[&[&str]]) -> anyhow::Result<(ScriptId, ProcessGroup)> {
        let script = self.add_script(messages);
        Ok((script, self.guarded.start("run", Prompt::Text(&script.prompt()))?))
    }

    fn run_turn(&mut self, word: &str) -> anyhow::Result<()> {
        let (script, mut host) = self.start(&[&[word]])?;
        self.finish(script, &mut host, 1)
    }

    fn run_described(&mut self) -> anyhow::Result<()> {
        let script = self.described_script("./mark allowed-1");
        let script = self.context.stub.add_script(script);
        let mut host = self.guarded.start("run", Prompt::Text(&script.prompt()))?;
        // A call that waits for a person does not end by itself.
        wait_for("end of the program without a gate", LIMIT, || {
            let gates = self.gateway.list_gates()?;
            ensure!(gates.is_empty(), "the rule does not cover the call: {}", gates[0].row);
            Ok(host.leader().try_wait()?)
        })?;
        self.finish(script, &mut host, 1)
    }

    fn ask_person(&mut self, answer: GateAnswer) -> anyhow::Result<()> {
        self.ask_about(self.described_script("./mark ask-1"), answer)
    }

    fn ask_about(&mut self, script: MessageScript, answer: GateAnswer) -> anyhow::Result<()> {
        let script = self.context.stub.add_script(script);
        let mut host = self.guarded.start("run", Prompt::Text(&script.prompt()))?;
        let gate = self.gateway.wait_gate()?;
        ensure!(self.guarded.effects().is_empty(), "the call ran before the answer");
        self.gateway.answer_gate(&gate, answer)?;
        self.finish(script, &mut host, 1)
    }

    /// Lets the hook's wait pass, allows the call, and repeats it. The gateway ends before the repetition if `is_killed`.
    fn pass_deadline(&mut self, is_killed: bool) -> anyhow::Result<()> {
        let (script, mut host) = self.start(&[&["ask-1"], &["ask-1"]])?;
        let gate = self.gateway.wait_gate()?;
        let is_resumed = self.context.program == HostProgram::Claude;
        if is_resumed {
            // It ends, and its next start makes the same call.
            host.wait(LIMIT).context("the program did not end after the deadline")?;
            self.model.push("nothing: the program ended".to_owned());
        } else {
            self.note_result(script, 1, LIMIT);
        }
        ensure!(self.guarded.effects().is_empty(), "the call ran without a decision");
        ensure!(self.gateway.pending_gates()? == [gate.clone()], "the gate did not stay pending");
        self.gateway.answer_gate(&gate, GateAnswer::Allow)?;
        if is_killed {
            self.gateway.kill();
            self.gateway.restart()?;
        }
        if is_resumed {
            let session = claude_session(&self.guarded.output("run")?)?;
            host = self.guarded.start("resumed", Prompt::Resume(&session))?;
            self.note_result(script, 1, LIMIT);
            // The second message of the script is the call after the decision was taken.
            self.context.stub.release_call(script);
            host.wait(LIMIT).context("the resumed program did not end")?;
            self.model.push("nothing: the program ended".to_owned());
        } else {
            self.context.stub.release_call(script);
            self.finish(script, &mut host, 2)?;
        }
        Ok(())
    }

    fn kill_before_call(&mut self) -> anyhow::Result<()> {
        let (script, mut host) = self.start(&[&["allowed-1"], &["allowed-2"]])?;
        self.note_result(script, 1, LIMIT);
        self.gateway.kill();
        self.context.stub.release_call(script);
        self.finish(script, &mut host, 2)
    }

    fn kill_in_wait(&mut self) -> anyhow::Result<()> {
        let (script, mut host) = self.start(&[&["ask-1"], &["ask-1"]])?;
        let gate = self.gateway.wait_gate()?;
        self.gateway.kill();
        self.note_result(script, 1, LIMIT);
        ensure!(self.guarded.effects().is_empty(), "the call ran without a decision");
        self.gateway.restart()?;
        ensure!(self.gateway.pending_gates()? == [gate.clone()], "the gate did not survive");
        self.gateway.answer_gate(&gate, GateAnswer::Allow)?;
        self.context.stub.release_call(script);
        self.finish(script, &mut host, 2)
    }

    fn kill_after_decision(&mut self) -> anyhow::Result<()> {
        let (script, mut host) = self.start(&[&["ask-slow-1"]])?;
        let gate = self.gateway.wait_gate()?;
        self.gateway.answer_gate(&gate, GateAnswer::Allow)?;
        wait_for("start of the call", LIMIT, || Ok((!self.guarded.effects().is_empty()).then_some(())))?;
        self.gateway.kill();
        self.finish(script, &mut host, 1)
    }

    fn decide_two(&mut self) -> anyhow::Result<()> {
        let (script, mut host) = self.start(&[&["ask-1", "ask-2"]])?;
        self.answer_two()?;
        self.finish(script, &mut host, 2)
    }

    fn ask_for_subagent(&mut self) -> anyhow::Result<()> {
        let (script, mut host) = self.start_subagent()?;
        let gate = self.wait_gate_of_agent()?;
        self.gateway.answer_gate(&gate, GateAnswer::Allow)?;
        self.finish(script, &mut host, 1)
    }

    fn pass_deadline_of_subagent(&mut self) -> anyhow::Result<()> {
        let (script, mut host) = self.start_subagent()?;
        self.wait_gate_of_agent()?;
        self.finish(script, &mut host, 1)
    }

    /// Starts Claude Code, whose model gives a task to a subagent. Returns the script of the subagent.
    fn start_subagent(&self) -> anyhow::Result<(ScriptId, ProcessGroup)> {
        let script = self.add_script(&[&["ask-1"]]);
        let task = json!({
            "description": "leaves a mark", "prompt": script.prompt(), "subagent_type": "general-purpose",
            "run_in_background": false,
        });
        let outer = self.context.stub.add_script(MessageScript { tool: "Agent", messages: vec![vec![task]] });
        Ok((script, self.guarded.start("run", Prompt::Text(&outer.prompt()))?))
    }

    /// Waits for a gate, and notes which agent has asked.
    fn wait_gate_of_agent(&mut self) -> anyhow::Result<String> {
        let gate = self.wait_gates(1, LIMIT)?.remove(0);
        let requester = self.gateway.newest_requester()?.unwrap_or_default();
        let agent = requester.split_once('/').map(|(_, agent)| agent.to_owned());
        let kind = agent.as_deref().and_then(|agent| agent.split(':').next()).unwrap_or("the main agent");
        self.notes.push(format!("asked as {kind}"));
        Ok(gate.id)
    }
}

/// Finds the session in the stream of Claude Code.
fn claude_session(output: &str) -> anyhow::Result<String> {
    let messages = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let session = messages.filter_map(|message| message["session_id"].as_str().map(str::to_owned)).next();
    session.context("Claude Code named no session")
}
