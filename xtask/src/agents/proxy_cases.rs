//! Cases of a program behind a proxy, which asks its client before its calls.
//!
//! Source of the expectations: docs/protocol/proxies.md. A case fails if a call ran that had to be blocked, or the other way round.

use std::fs;

use anyhow::ensure;
use countersign_scripted_model::ScriptId;

use crate::agents::{
    case_context::CaseContext,
    case_outcome::CaseOutcome,
    case_run::{CaseRun, LIMIT},
    guarded_program::GuardedProgram,
    host_program::HostProgram,
    process::{ProcessGroup, wait_for},
    proxied_program::{self, EditorAnswer},
    scratch_gateway::{GateAnswer, ScratchGateway},
};

const RULES: &str = "defaults:
  - { pattern: \"bash(./mark allowed-*)\", action: allow }
  - { pattern: \"bash(./mark denied-*)\", action: deny }
  - { pattern: \"*\", action: ask }
";

/// Case of one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyCase {
    AllowedByRule,
    DeniedByRule,
    AllowedByPerson,
    DeniedByPerson,
    AllowedInEditor,
    DeniedInEditor,
    /// The gateway ends before the call, and comes back no more.
    KilledBeforeCall,
    /// The gateway ends while the call waits; a person allows it after the restart.
    KilledInWait,
    /// The gateway ends while the allowed call runs.
    KilledAfterDecision,
    /// The gateway was never started.
    Absent,
    /// Two calls in one message: a person allows one and denies the other.
    TwoAtOnce,
}

impl ProxyCase {
    const ALL: [Self; 11] = [
        Self::AllowedByRule,
        Self::DeniedByRule,
        Self::AllowedByPerson,
        Self::DeniedByPerson,
        Self::AllowedInEditor,
        Self::DeniedInEditor,
        Self::KilledBeforeCall,
        Self::KilledInWait,
        Self::KilledAfterDecision,
        Self::Absent,
        Self::TwoAtOnce,
    ];

    /// Returns the cases of a program, in order.
    pub(crate) fn for_program(program: HostProgram) -> Vec<Self> {
        Self::ALL.into_iter().filter(|case| case.skip_reason(program).is_none()).collect()
    }

    /// Returns the cases that a program cannot have, with the reasons.
    pub(crate) fn skipped(program: HostProgram) -> Vec<(&'static str, &'static str)> {
        Self::ALL.into_iter().filter_map(|case| Some((case.name(), case.skip_reason(program)?))).collect()
    }

    fn skip_reason(self, program: HostProgram) -> Option<&'static str> {
        match (self, program) {
            (_, program) if proxied_program::without_proxy(program).is_some() => {
                proxied_program::without_proxy(program)
            }
            (Self::AllowedInEditor | Self::DeniedInEditor, HostProgram::Codex) => {
                Some("the proxy does not ask its client")
            }
            (Self::AllowedByRule, HostProgram::Gemini) => {
                Some("its requests do not contain the command, so that a person decides")
            }
            _ => None,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::AllowedByRule => "proxy-allowed-by-rule",
            Self::DeniedByRule => "proxy-denied-by-rule",
            Self::AllowedByPerson => "proxy-allowed-by-person",
            Self::DeniedByPerson => "proxy-denied-by-person",
            Self::AllowedInEditor => "proxy-allowed-in-editor",
            Self::DeniedInEditor => "proxy-denied-in-editor",
            Self::KilledBeforeCall => "proxy-killed-before-call",
            Self::KilledInWait => "proxy-killed-in-wait",
            Self::KilledAfterDecision => "proxy-killed-after-decision",
            Self::Absent => "proxy-absent",
            Self::TwoAtOnce => "proxy-two-at-once",
        }
    }

    /// Returns the words that have to run, in order.
    const fn expectation(self) -> &'static [&'static str] {
        match self {
            Self::AllowedByRule => &["allowed-1"],
            Self::AllowedByPerson | Self::AllowedInEditor | Self::KilledInWait | Self::TwoAtOnce => &["ask-1"],
            Self::KilledAfterDecision => &["ask-slow-1"],
            Self::DeniedByRule
            | Self::DeniedByPerson
            | Self::DeniedInEditor
            | Self::KilledBeforeCall
            | Self::Absent => &[],
        }
    }

    const fn editor(self) -> EditorAnswer {
        match self {
            Self::AllowedInEditor => EditorAnswer::Allow,
            Self::DeniedInEditor => EditorAnswer::Deny,
            _ => EditorAnswer::Nothing,
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
        run.guarded.prepare()?;
        if self != Self::Absent {
            run.gateway.restart()?;
        }
        run.execute_proxied(self)?;
        let outcome = run.outcome()?;
        let ran = self.expectation();
        ensure!(outcome.ran == ran, "{ran:?} had to run; {outcome}");
        ensure!(outcome.incidents.is_empty(), "no incident expected; {outcome}; {}", outcome.rows());
        Ok(outcome)
    }
}

impl CaseRun<'_> {
    fn execute_proxied(&mut self, case: ProxyCase) -> anyhow::Result<()> {
        let words: &[&str] = match case {
            ProxyCase::AllowedByRule | ProxyCase::KilledBeforeCall | ProxyCase::Absent => &["allowed-1"],
            ProxyCase::DeniedByRule => &["denied-1"],
            ProxyCase::KilledAfterDecision => &["ask-slow-1"],
            ProxyCase::TwoAtOnce => &["ask-1", "ask-2"],
            ProxyCase::AllowedByPerson
            | ProxyCase::DeniedByPerson
            | ProxyCase::AllowedInEditor
            | ProxyCase::DeniedInEditor
            | ProxyCase::KilledInWait => &["ask-1"],
        };
        if case == ProxyCase::KilledBeforeCall {
            self.gateway.kill();
        }
        let (script, mut host) = self.start_proxied(case, words)?;
        match case {
            ProxyCase::AllowedByPerson => self.answer_proxied(GateAnswer::Allow)?,
            ProxyCase::DeniedByPerson => self.answer_proxied(GateAnswer::Deny)?,
            ProxyCase::KilledInWait => {
                let gate = self.gateway.wait_gate()?;
                self.gateway.kill();
                self.gateway.restart()?;
                ensure!(self.guarded.effects().is_empty(), "the call ran without a decision");
                self.gateway.answer_gate(&gate, GateAnswer::Allow)?;
            }
            ProxyCase::KilledAfterDecision => {
                self.answer_proxied(GateAnswer::Allow)?;
                wait_for("start of the call", LIMIT, || Ok((!self.guarded.effects().is_empty()).then_some(())))?;
                self.gateway.kill();
            }
            ProxyCase::TwoAtOnce => self.answer_two()?,
            ProxyCase::AllowedByRule
            | ProxyCase::DeniedByRule
            | ProxyCase::AllowedInEditor
            | ProxyCase::DeniedInEditor
            | ProxyCase::KilledBeforeCall
            | ProxyCase::Absent => {}
        }
        self.finish(script, &mut host, words.len())
    }

    fn start_proxied(&self, case: ProxyCase, words: &[&str]) -> anyhow::Result<(ScriptId, ProcessGroup)> {
        let script = self.add_script(&[words]);
        let (config, editor) = (self.gateway.config(), case.editor());
        let host = proxied_program::start(&self.guarded, self.context.binary, &config, editor, script.prompt())?;
        Ok((script, host))
    }

    fn answer_proxied(&self, answer: GateAnswer) -> anyhow::Result<()> {
        let gate = self.gateway.wait_gate()?;
        ensure!(self.guarded.effects().is_empty(), "the call ran before the answer");
        self.gateway.answer_gate(&gate, answer)
    }
}
