//! Case that runs: its program, its gateway, the person at it, and what comes out.

use std::{thread, time::Duration};

use anyhow::Context as _;
use countersign_scripted_model::{MessageScript, ScriptId};

use crate::agents::{
    case_context::CaseContext,
    case_outcome::{CaseOutcome, model_text},
    guarded_program::GuardedProgram,
    process::{ProcessGroup, wait_for},
    scratch_gateway::{GateAnswer, PendingGate, ScratchGateway},
};

/// Longest time for a step of a program.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);
/// Time in which a program that runs calls side by side asks about both.
const SECOND_CALL: Duration = Duration::from_secs(6);
/// Choices of the question about a call that ran and was not allowed. A program asks no such question.
const INCIDENT: &str = "\"choices\":[\"Noted\"]";

/// Case that runs.
pub(crate) struct CaseRun<'a> {
    pub(crate) context: &'a CaseContext<'a>,
    pub(crate) guarded: GuardedProgram<'a>,
    pub(crate) gateway: ScratchGateway,
    /// What the model got for each call.
    pub(crate) model: Vec<String>,
    pub(crate) notes: Vec<String>,
}

impl CaseRun<'_> {
    /// Adds a script with these words, the calls of a message each.
    pub(crate) fn add_script(&self, messages: &[&[&str]]) -> ScriptId {
        let call = |word: &&str| self.guarded.arguments(&format!("./mark {word}"));
        let messages = messages.iter().map(|words| words.iter().map(call).collect()).collect();
        self.context.stub.add_script(MessageScript { tool: self.guarded.shell_tool(), messages })
    }

    /// Waits until the program ends, and takes down what the model got for so many calls.
    pub(crate) fn finish(&mut self, script: ScriptId, host: &mut ProcessGroup, calls: usize) -> anyhow::Result<()> {
        host.wait(LIMIT).context("the program did not end")?;
        for number in self.model.len() + 1..=calls {
            self.note_result(script, number, Duration::ZERO);
        }
        Ok(())
    }

    pub(crate) fn note_result(&mut self, script: ScriptId, number: usize, limit: Duration) {
        let result = self.context.stub.wait_result(script, number, limit);
        let text = result
            .map_or_else(|_| "nothing".to_owned(), |text| model_text(&text, &self.context.folder, self.context.binary));
        self.model.push(text);
    }

    pub(crate) fn described_script(&self, command: &str) -> MessageScript {
        let arguments = self.guarded.described_arguments(command);
        MessageScript { tool: self.guarded.shell_tool(), messages: vec![vec![arguments]] }
    }

    /// Answers two calls that the program asks about, side by side or one after the other.
    pub(crate) fn answer_two(&mut self) -> anyhow::Result<()> {
        let first = self.wait_gates(1, LIMIT)?;
        let both = self.wait_gates(2, SECOND_CALL).unwrap_or(first);
        self.notes.push(if both.len() == 2 { "asked side by side" } else { "asked one after the other" }.to_owned());
        self.answer_by_word(&both)?;
        if both.len() < 2 {
            let next = self.wait_gates(1, LIMIT)?;
            self.answer_by_word(&next)?;
        }
        Ok(())
    }

    fn answer_by_word(&self, gates: &[PendingGate]) -> anyhow::Result<()> {
        for gate in gates {
            let answer = if gate.subject.contains("ask-1") { GateAnswer::Allow } else { GateAnswer::Deny };
            self.gateway.answer_gate(&gate.id, answer)?;
        }
        Ok(())
    }

    pub(crate) fn wait_gates(&self, count: usize, limit: Duration) -> anyhow::Result<Vec<PendingGate>> {
        wait_for("pending gate", limit, || Ok(Some(self.gateway.list_gates()?).filter(|gates| gates.len() >= count)))
    }

    /// Takes down what is left after the program has ended.
    pub(crate) fn outcome(mut self) -> anyhow::Result<CaseOutcome> {
        if !self.gateway.is_running() {
            self.gateway.restart()?;
        }
        // A hook after the call may outlive its program.
        thread::sleep(Duration::from_millis(500));
        let gates = self.gateway.list_gates()?;
        let (incidents, open) = gates.into_iter().partition(|gate| gate.row.contains(INCIDENT));
        Ok(CaseOutcome { ran: self.guarded.effects(), model: self.model, notes: self.notes, incidents, open })
    }
}
