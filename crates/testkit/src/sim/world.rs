//! World outside: it counts the effects that happened, and checks each piece of work.

use std::collections::{BTreeMap, BTreeSet};

use countersign_core::{
    OwedWork,
    call::{self, CallDetails, CallProgress, DoubtCause},
    digest::{Digest, canonical_json},
    engine::{Command, Engine},
    gate,
    id::{CallId, GateId},
    message::{MessageBlock, StopReason, StoredMessage},
    peer::PeerLine,
    run,
    session::{self, CompactionOutcome, Session},
    tool::RepeatMode,
};
use serde_json::Value;

use super::{
    PlantedFault,
    audit::{AuditedCallStage, LogAudit},
    jobs, messages,
    rng::SimRng,
    sim_log::SimLog,
};

/// Progress of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkProgress {
    Begun,
    /// Effect that was not reported yet.
    Effected,
    Reported,
}

/// Piece of work in flight.
#[derive(Clone, Debug)]
pub(super) struct InFlightWork {
    pub(super) doing: WorkProgress,
    pub(super) cancelled: bool,
    /// Digest of the arguments that it runs with.
    arguments: Option<Digest>,
}

/// Effects, beyond any process.
#[derive(Clone, Debug, Default)]
pub(super) struct SimWorld {
    effects: BTreeMap<CallId, usize>,
    /// Calls that were stopped and confirmed it.
    stopped: BTreeSet<CallId>,
    /// Connection of the peer, while it has one.
    pub(super) line: Option<PeerLine>,
}

impl SimWorld {
    pub(super) fn effect_count(&self) -> u32 {
        u32::try_from(self.effects.values().sum::<usize>()).unwrap_or(u32::MAX)
    }

    /// Begins a piece of work, if it may begin.
    pub(super) fn begin_work(
        engine: &Engine,
        log: &SimLog,
        audit: &LogAudit,
        work: &OwedWork,
        fault: Option<PlantedFault>,
    ) -> Result<InFlightWork, String> {
        let mut arguments = None;
        match work {
            OwedWork::Turn { run, .. } => {
                let run = engine.state().run(*run).ok_or("a turn of a run that does not exist")?;
                let session = engine.state().session(run.session()).ok_or("a run without a session")?;
                check_pairs(session, log)?;
            }
            OwedWork::Compact { .. } | OwedWork::Fire { .. } => {}
            OwedWork::Call { call: id, start } => {
                let seen = audit.calls.get(id).ok_or("a call runs that is not in the log")?;
                if engine.state().call(*id).map(call::Call::start_count) != Some(*start) {
                    return Err("work runs for a start of a call that is not its last".to_owned());
                }
                if seen.stage != AuditedCallStage::Started(audit.boot_number()) {
                    return Err(format!("a call runs that the log says is {:?}", seen.stage));
                }
                let content = log.content_at(seen.content).ok_or("a call without content")?;
                let content: CallDetails = serde_json::from_str(content).map_err(|error| error.to_string())?;
                let mut given = content.arguments.clone();
                if fault == Some(PlantedFault::OtherArguments) {
                    given.insert("path".to_owned(), Value::from("elsewhere"));
                }
                let given = Digest::hash_bytes(canonical_json(&Value::Object(given)).as_bytes());
                if given != seen.arguments {
                    return Err("a call runs with other arguments than were decided".to_owned());
                }
                check_shown(engine, log, *id, &content)?;
                arguments = Some(given);
            }
        }
        Ok(InFlightWork { doing: WorkProgress::Begun, cancelled: false, arguments })
    }

    /// Records the effect of a call.
    fn record_effect(&mut self, audit: &LogAudit, id: CallId) -> Result<(), String> {
        let seen = audit.calls.get(&id).ok_or("an effect of a call that is not in the log")?;
        let done = self.effects.entry(id).or_default();
        *done += 1;
        let most = if seen.repeat == RepeatMode::Idempotent { 1 + seen.again } else { 1 };
        if *done > most { Err(format!("a call was done {done} times")) } else { Ok(()) }
    }

    /// Advances a piece of work. The command is its report.
    pub(super) fn advance_work(
        &mut self,
        rng: &mut SimRng,
        engine: &Engine,
        audit: &LogAudit,
        log: &SimLog,
        work: &OwedWork,
        job: &mut InFlightWork,
    ) -> Result<Option<Command>, String> {
        let command = match work {
            OwedWork::Turn { run, epoch } => {
                let answer = if job.cancelled { messages::stopped_answer(rng) } else { messages::random_answer(rng) };
                Some(Command::Run(run::Command::Answered { run: *run, epoch: *epoch, answer: Box::new(answer) }))
            }
            OwedWork::Compact { session, epoch } => {
                let outcome = match rng.below(10) {
                    _ if job.cancelled => CompactionOutcome::Aborted,
                    0 | 1 => CompactionOutcome::Failed { message: "the provider failed".into() },
                    _ => CompactionOutcome::Done { summary: messages::summary_message(), spent: None },
                };
                Some(Command::Session(session.clone(), session::Command::Compacted { epoch: *epoch, outcome }))
            }
            // A cancelled firing is not reported.
            OwedWork::Fire { .. } if job.cancelled => {
                job.doing = WorkProgress::Reported;
                None
            }
            OwedWork::Fire { firing, step } => Some(jobs::firing_result(rng, firing.clone(), *step)),
            // It works on during a gate, and may end before the decision.
            OwedWork::Call { call, .. } if !job.cancelled && rng.below(8) == 0 && may_ask_host(engine, *call) => {
                let gate = GateId::parse(&format!("{:032x}", u128::from_be_bytes(rng.random_bytes())));
                let gate = gate.ok_or("invalid gate id")?;
                return Ok(Some(Command::Call(call::Command::Reach { call: *call, gate, host: "a.org:443".into() })));
            }
            OwedWork::Call { call: id, .. } => self
                .advance_call(rng, engine, audit, log, *id, job)?
                .map(|progress| Command::Call(call::Command::Ended { call: *id, progress })),
        };
        if command.is_some() {
            job.doing = WorkProgress::Reported;
        }
        Ok(command)
    }

    fn advance_call(
        &mut self,
        rng: &mut SimRng,
        engine: &Engine,
        audit: &LogAudit,
        log: &SimLog,
        id: CallId,
        job: &mut InFlightWork,
    ) -> Result<Option<CallProgress>, String> {
        let seen = audit.calls.get(&id).ok_or("a call in flight that is not in the log")?;
        let content = log.content_at(seen.content).ok_or("a call without content")?;
        let content: CallDetails = serde_json::from_str(content).map_err(|error| error.to_string())?;
        // A call that its peer is only asked about may have been done before.
        let is_asking = engine.state().call(id).is_some_and(call::Call::is_asking);
        let has_effect = job.doing == WorkProgress::Effected || is_asking;
        let is_away = matches!(seen.executor, call::Executor::Peer(_));
        // A peer without a connection reports nothing, and neither does stopped work; work that never reached it waits.
        if is_away && (job.cancelled || self.line != seen.line) {
            let since = if job.cancelled { DoubtCause::Stopped } else { DoubtCause::LineGone };
            return Ok(Some(match (has_effect, job.cancelled) {
                (true, _) => CallProgress::Left { text: "nobody knows".into(), since },
                (false, true) => CallProgress::NotBegun("stopped before it was sent".into()),
                (false, false) => {
                    CallProgress::Unsent { start: engine.state().call(id).map_or(0, call::Call::start_count) }
                }
            }));
        }
        if job.cancelled {
            self.stopped.insert(id);
            return Ok(Some(CallProgress::Returned(Box::new(messages::call_result(
                rng,
                &content,
                &seen.executor,
                "stopped",
            )))));
        }
        let ended = engine.state().call(id).is_none_or(call::Call::is_over);
        if ended {
            return Err("a call ended while its work runs, and the work was not cancelled".to_owned());
        }
        if is_asking {
            return Ok(self.peer_answer(rng, &content, &seen.executor, id));
        }
        let roll = rng.below(100);
        match (has_effect, roll) {
            (false, 0..10) => Ok(Some(CallProgress::NotBegun("it could not begin".into()))),
            (false, 10..18) | (true, 0..10) => Ok(Some(CallProgress::Broke)),
            (true, _) => {
                Ok(Some(CallProgress::Returned(Box::new(messages::call_result(rng, &content, &seen.executor, "done")))))
            }
            (false, _) => {
                if job.arguments != Some(seen.arguments) {
                    return Err("a call was done with other arguments than were decided".to_owned());
                }
                self.record_effect(audit, id)?;
                job.doing = WorkProgress::Effected;
                Ok(None)
            }
        }
    }

    /// Returns the answer of a peer that is asked about a call, if it answers now.
    fn peer_answer(
        &self,
        rng: &mut SimRng,
        content: &CallDetails,
        executor: &call::Executor,
        id: CallId,
    ) -> Option<CallProgress> {
        match (rng.below(10), self.effects.contains_key(&id)) {
            (0..2, _) => None,
            (2..9, true) => {
                Some(CallProgress::Returned(Box::new(messages::call_result(rng, content, executor, "was done"))))
            }
            (2..9, false) => Some(CallProgress::NotBegun("it never came".into())),
            (_, _) => Some(CallProgress::Left { text: "it broke off".into(), since: DoubtCause::PeerLost }),
        }
    }

    /// Checks that a call that is done by the log has really been done.
    pub(super) fn confirm_done(&self, audit: &LogAudit) -> Result<(), String> {
        for (id, seen) in &audit.calls {
            let done = self.effects.get(id).copied().unwrap_or(0);
            let is_done = matches!(seen.stage, AuditedCallStage::Over(call::CallEnd::Done { .. }));
            let is_ours = seen.executor != call::Executor::Person;
            if is_done && is_ours && done == 0 && !self.stopped.contains(id) {
                return Err(format!("{id} is recorded as done, but was not done"));
            }
            let never = matches!(
                seen.stage,
                AuditedCallStage::Over(
                    call::CallEnd::Denied
                        | call::CallEnd::Refused
                        | call::CallEnd::Expired
                        | call::CallEnd::Limited
                        | call::CallEnd::Skipped
                        | call::CallEnd::Cancelled
                        | call::CallEnd::Failed
                ) | AuditedCallStage::Requested
                    | AuditedCallStage::Gated
            );
            if never && seen.again == 0 && done > 0 {
                return Err(format!("{id} is {:?}, but was done", seen.stage));
            }
        }
        Ok(())
    }
}

/// Reports whether a call requests a host while it works.
fn may_ask_host(engine: &Engine, call: CallId) -> bool {
    let state = engine.state();
    let is_ours = |call: &call::Call| *call.executor() == call::Executor::Builtin && call.run().is_some();
    state.call(call).is_some_and(is_ours) && !state.gate_of(call).is_some_and(gate::Gate::is_pending)
}

/// Checks that the arguments that an approver saw are those that run.
fn check_shown(engine: &Engine, log: &SimLog, call: CallId, content: &CallDetails) -> Result<(), String> {
    for gate in engine.admitted().gates_of(call).iter().filter_map(|gate| engine.state().gate(*gate)) {
        let text = log.content_at(gate.content_lsn()).ok_or("a gate without content")?;
        match serde_json::from_str(text).map_err(|error| error.to_string())? {
            gate::GateContent::Approval { tool, arguments, .. } => {
                if tool != content.tool || arguments != content.arguments {
                    return Err("an approver was shown other arguments than those that run".to_owned());
                }
            }
            gate::GateContent::Question { .. } | gate::GateContent::GoOn { .. } => {}
        }
    }
    Ok(())
}

/// Checks that every call of every message for the model has exactly one result, right after the message.
fn check_pairs(session: &Session, log: &SimLog) -> Result<(), String> {
    let mut open: Vec<String> = Vec::new();
    for piece in session.model_context() {
        let entry = piece.entry();
        let content = log.content_at(entry.content).ok_or_else(|| format!("entry {} has no content", entry.id))?;
        let message: StoredMessage = serde_json::from_str(content).map_err(|error| error.to_string())?;
        if let StoredMessage::ToolResult(result) = &message {
            let at = open.iter().position(|id| *id == result.tool_call_id);
            let at =
                at.ok_or_else(|| format!("a model is shown a result of {} without its call", result.tool_call_id))?;
            open.swap_remove(at);
            continue;
        }
        if !open.is_empty() {
            return Err(format!("a model is shown {} calls without a result before {:?}", open.len(), entry.kind));
        }
        if let StoredMessage::Assistant(assistant) = &message
            && assistant.stop_reason != StopReason::Error
        {
            open.extend(assistant.content.iter().filter_map(|block| match block {
                MessageBlock::ToolCall(call) => Some(call.id.clone()),
                MessageBlock::Text(_)
                | MessageBlock::Thinking(_)
                | MessageBlock::RedactedThinking { .. }
                | MessageBlock::Image(_) => None,
            }));
        }
    }
    if open.is_empty() {
        Ok(())
    } else {
        Err(format!("a model is shown {} calls without a result at the end", open.len()))
    }
}
