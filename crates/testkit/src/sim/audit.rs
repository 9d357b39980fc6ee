//! Reads the log as an outsider would, from facts alone, and reports the rule that a record breaks.
//!
//! It must not ask the engine: the engine's own state is in question.

mod gates;
mod peer_lines;
mod votes;

use std::collections::{BTreeMap, BTreeSet};

use countersign_core::{
    call::{self, CallEnd, Executor},
    digest::Digest,
    engine::{Event, FactMeta},
    gate::{self, ApprovalScope, ApprovalStep, GateResolution},
    id::{CallId, EntryId, GateId, Lsn, PeerId, RunId, SessionId},
    message::StopReason,
    peer::{PeerLine, PeerMemory},
    run,
    session::{self, AfterCompaction, MessageQueue},
    tool::RepeatMode,
};

use super::{channels::ChannelAudit, contracts::ContractAudit, jobs::JobAudit};

/// Stage of a call in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AuditedCallStage {
    Requested,
    Gated,
    Ready,
    Started(u32),
    InDoubt,
    Over(CallEnd),
}

/// State of a call by the record.
#[derive(Clone, Debug)]
pub(super) struct AuditedCall {
    pub(super) run: Option<RunId>,
    pub(super) executor: Executor,
    pub(super) repeat: RepeatMode,
    pub(super) arguments: Digest,
    pub(super) content: Lsn,
    pub(super) stage: AuditedCallStage,
    pub(super) again: usize,
    /// Connection of the peer to which it was started last.
    pub(super) line: Option<PeerLine>,
    /// Journal of that peer.
    memory: PeerMemory,
    gates: Vec<GateId>,
    is_gated: bool,
}

#[derive(Clone, Debug)]
struct AuditedGate {
    call: Option<CallId>,
    scopes: Vec<ApprovalScope>,
    resolution: Option<GateResolution>,
    /// Steps of approval, the current step, and those who have allowed.
    steps: Vec<ApprovalStep>,
    step: usize,
    votes: Vec<Option<String>>,
}

#[derive(Clone, Debug)]
struct AuditedRun {
    session: SessionId,
    epoch: u32,
    awaits_model: bool,
    owes: u32,
    calls: Vec<CallId>,
    /// End of its last message.
    stop: Option<StopReason>,
    /// True if nothing follows it by itself.
    is_last: bool,
}

#[derive(Clone, Debug, Default)]
struct AuditedSession {
    entries: BTreeSet<EntryId>,
    gathered: Option<BTreeSet<EntryId>>,
    queues: BTreeMap<MessageQueue, usize>,
    run: Option<RunId>,
    compaction: Option<u32>,
    /// Idempotency keys.
    keys: BTreeSet<String>,
}

/// State of the record so far.
#[derive(Clone, Debug, Default)]
pub(super) struct LogAudit {
    boot: u32,
    sessions: BTreeMap<SessionId, AuditedSession>,
    runs: BTreeMap<RunId, AuditedRun>,
    pub(super) calls: BTreeMap<CallId, AuditedCall>,
    gates: BTreeMap<GateId, AuditedGate>,
    /// Connections of peers.
    lines: BTreeMap<PeerId, PeerLine>,
    /// Peers that can be asked about calls of earlier connections.
    memories: BTreeMap<PeerId, PeerMemory>,
    /// Number of gates that the runs of each session opened in each stage.
    numbers: BTreeMap<(Option<SessionId>, gate::GateStage), u32>,
    /// Keys of agents' requests, and results that they received.
    keys: BTreeSet<(SessionId, String)>,
    received: BTreeSet<CallId>,
    contracts: ContractAudit,
    pub(super) jobs: JobAudit,
    pub(super) networks: ChannelAudit,
    /// Every kind of fact that came, as a measure of coverage.
    pub(super) kinds: BTreeSet<String>,
}

impl LogAudit {
    pub(super) fn boot_number(&self) -> u32 {
        self.boot
    }

    pub(super) fn gate_ids(&self) -> impl Iterator<Item = GateId> {
        self.gates.keys().copied()
    }

    /// Reports whether a gate decided on it.
    pub(super) fn was_gated(&self, call: CallId) -> bool {
        self.calls.get(&call).is_some_and(|call| call.is_gated)
    }

    /// Counts messages that wait in a queue of some session `of` those.
    pub(super) fn waiting_messages(&self, queue: MessageQueue, of: impl Fn(&SessionId) -> bool) -> usize {
        let sessions = self.sessions.iter().filter(|(id, _)| of(id));
        sessions.filter_map(|(_, session)| session.queues.get(&queue)).sum()
    }

    pub(super) fn read_record(&mut self, meta: &FactMeta, event: &Event) -> Result<(), String> {
        let outcome = match event {
            Event::Booted => {
                self.boot += 1;
                self.lines.clear();
                Ok(())
            }
            Event::Session(event) => self.read_session_event(meta, event),
            Event::Run(event) => self.read_run_event(meta, event),
            Event::Call(event) => self.read_call_event(meta, event),
            Event::Gate(event) => self.read_gate_event(meta, event),
            Event::Peer(event) => self.read_peer_event(event),
            Event::Channel(_) | Event::Policy(_) | Event::Settings(_) | Event::Unattended(_) | Event::Schedule(_) => {
                Ok(())
            }
        };
        let outcome = outcome.and_then(|()| self.contracts.read_record(meta, event));
        let outcome = outcome.and_then(|()| self.jobs.read_record(meta, event));
        let outcome = outcome.and_then(|()| self.networks.read_record(event));
        let text = format!("{event:?}");
        let names = text.split(['(', '{', ' ']).filter(|name| !name.is_empty()).take(2);
        self.kinds.insert(names.collect::<Vec<_>>().join(" "));
        outcome.map_err(|broken| format!("{broken}, in record {}: {event:?}", meta.lsn))
    }

    fn read_session_event(&mut self, meta: &FactMeta, event: &session::Event) -> Result<(), String> {
        let id = meta.session.clone().ok_or("a session fact without a session")?;
        if let session::Event::Opened { .. } = event {
            ensure(self.sessions.insert(id, AuditedSession::default()).is_none(), "a session is opened twice")?;
            return Ok(());
        }
        let session = self.sessions.get_mut(&id).ok_or("a fact about a session that was not opened")?;
        match event {
            session::Event::Entry { id, parent, .. } => {
                let is_known = parent.as_ref().is_none_or(|parent| session.entries.contains(parent));
                ensure(is_known, "an entry whose parent does not exist")?;
                ensure(session.entries.insert(id.clone()), "an entry with an id that is in use")
            }
            session::Event::Gathering => {
                session.gathered = Some(BTreeSet::new());
                Ok(())
            }
            session::Event::Kept { entries } => {
                let gathered =
                    session.gathered.as_mut().ok_or("entries are kept outside of a replacement of the tree")?;
                entries.iter().try_for_each(|id| {
                    ensure(session.entries.contains(id), "a kept entry does not exist")?;
                    ensure(gathered.insert(id.clone()), "an entry is kept twice")
                })
            }
            session::Event::Gathered { id, parent, .. } => {
                let gathered =
                    session.gathered.as_mut().ok_or("entries are gathered outside of a replacement of the tree")?;
                let is_known = parent.as_ref().is_none_or(|parent| gathered.contains(parent));
                ensure(is_known, "a gathered entry whose parent does not exist")?;
                ensure(gathered.insert(id.clone()), "an entry is gathered twice")
            }
            session::Event::Replaced { leaf } => {
                session.entries = session.gathered.take().ok_or("a tree is replaced without gathered entries")?;
                ensure(leaf.as_ref().is_none_or(|leaf| session.entries.contains(leaf)), "a leaf that does not exist")
            }
            session::Event::Moved { leaf, .. } => {
                ensure(leaf.as_ref().is_none_or(|leaf| session.entries.contains(leaf)), "a leaf that does not exist")
            }
            session::Event::Queued { queue, .. } => {
                *session.queues.entry(*queue).or_default() += 1;
                Ok(())
            }
            session::Event::Dequeued { queue } => {
                let waiting = session.queues.entry(*queue).or_default();
                *waiting = waiting.checked_sub(1).ok_or("a message is dequeued from an empty queue")?;
                Ok(())
            }
            session::Event::Cleared => {
                session.queues.retain(|queue, _| *queue == MessageQueue::Held);
                Ok(())
            }
            session::Event::Renewed => {
                ensure(
                    session.run.is_none() && session.compaction.is_none(),
                    "a conversation is renewed during a run or compaction",
                )?;
                session.entries.clear();
                Ok(())
            }
            // Owed work is for the readers of the record.
            session::Event::Remembered { .. } => Ok(()),
            session::Event::Trimmed { first_kept } => {
                ensure(session.entries.contains(first_kept), "a kept entry does not exist")
            }
            session::Event::CompactionStarted { epoch, .. } => {
                ensure(session.compaction.replace(*epoch).is_none(), "two compactions at once")?;
                ensure(session.run.is_none(), "a compaction starts during a run")
            }
            session::Event::CompactionEnded { epoch, then, ok, .. } => {
                ensure(session.compaction.take() == Some(*epoch), "the end of another compaction")?;
                ensure(
                    *ok || !matches!(then, AfterCompaction::Again),
                    "a request is repeated although the compaction failed",
                )
            }
            session::Event::Opened { .. }
            | session::Event::Hosted { .. }
            | session::Event::LeftFor { .. }
            | session::Event::CameFrom { .. }
            | session::Event::Set(_)
            | session::Event::Named { .. }
            | session::Event::Dropped { .. }
            | session::Event::Pruned { .. }
            | session::Event::CompactionAborting
            | session::Event::CompactionDropped { .. }
            | session::Event::SequenceRecorded { .. }
            | session::Event::FileWritten { .. }
            | session::Event::Folder { .. }
            | session::Event::Relocated { .. }
            | session::Event::Tasks { .. }
            | session::Event::Reminded { .. } => Ok(()),
            session::Event::Keyed { name, .. } => {
                ensure(session.keys.insert(name.clone()), "a key of a session is used twice")
            }
        }
    }

    fn read_run_event(&mut self, meta: &FactMeta, event: &run::Event) -> Result<(), String> {
        let id = event.run();
        if let run::Event::Started { .. } = event {
            let session = meta.session.clone().ok_or("a run without a session")?;
            let seen = self.sessions.get_mut(&session).ok_or("a run in a session that was not opened")?;
            ensure(seen.run.replace(id).is_none(), "two runs in one session")?;
            ensure(seen.compaction.is_none(), "a run starts during a compaction")?;
            let run = AuditedRun {
                session,
                epoch: 0,
                awaits_model: false,
                owes: 0,
                calls: Vec::new(),
                stop: None,
                is_last: false,
            };
            ensure(self.runs.insert(id, run).is_none(), "a run begins twice")?;
            return Ok(());
        }
        if let run::Event::ResultDropped { .. } = event {
            return Ok(());
        }
        let run = self.runs.get_mut(&id).ok_or("a run that does not exist")?;
        let all_over = run.owes == 0
            && run
                .calls
                .iter()
                .all(|call| self.calls.get(call).is_some_and(|call| matches!(call.stage, AuditedCallStage::Over(_))));
        match event {
            run::Event::ModelRequested { epoch, boot, .. } => {
                ensure(*boot == self.boot, "a model is requested by an earlier process")?;
                ensure(!run.awaits_model, "two requests to the model of one run at the same time")?;
                ensure(*epoch == run.epoch + 1, "the number of an attempt is skipped or used twice")?;
                ensure(all_over, "a model is requested while calls have no result")?;
                (run.epoch, run.awaits_model) = (*epoch, true);
                run.calls.clear();
                Ok(())
            }
            run::Event::Answered { epoch, calls, stop, .. } => {
                ensure(run.awaits_model && *epoch == run.epoch, "an answer without a request")?;
                (run.awaits_model, run.owes, run.stop) = (false, *calls, Some(*stop));
                Ok(())
            }
            run::Event::Interrupted { .. } => {
                run.awaits_model = false;
                Ok(())
            }
            run::Event::TurnClosed { .. } => {
                ensure(all_over && !run.awaits_model, "a turn closes while calls are open")
            }
            run::Event::Ended { end, .. } => {
                ensure(all_over, "a run ends while calls are open")?;
                let session = self.sessions.get_mut(&run.session).ok_or("a run without a session")?;
                // An edited file may remove the message of a run while a model works on it.
                ensure(!run.awaits_model || session.gathered.is_some(), "a run ends during a request to its model")?;
                session.run = None;
                let waits = [MessageQueue::Steering, MessageQueue::FollowUp]
                    .iter()
                    .any(|queue| session.queues.get(queue).is_some_and(|n| *n > 0));
                // A waiting message is no part of a run after which nothing follows.
                let is_left = waits && !run.is_last;
                self.runs.remove(&id);
                ensure(*end != run::RunOutcome::Completed || !is_left, "a run completes although messages are queued")
            }
            run::Event::Marked { marks, .. } => {
                run.is_last = marks.last;
                Ok(())
            }
            run::Event::TurnOpened { .. } => ensure(all_over && !run.awaits_model, "a turn opens while calls are open"),
            run::Event::Started { .. }
            | run::Event::BackedOff { .. }
            | run::Event::Resumed { .. }
            | run::Event::Denied { .. }
            | run::Event::DenialsForgiven { .. }
            | run::Event::Aborting { .. }
            | run::Event::ResultDropped { .. } => Ok(()),
        }
    }

    fn read_call_event(&mut self, meta: &FactMeta, event: &call::Event) -> Result<(), String> {
        let id = event.call();
        if let call::Event::Proposed { run, executor, repeat, arguments, .. } = event {
            let seen = AuditedCall {
                run: *run,
                executor: executor.clone(),
                repeat: *repeat,
                arguments: *arguments,
                content: meta.lsn,
                stage: AuditedCallStage::Requested,
                again: 0,
                line: None,
                memory: PeerMemory::Forgets,
                gates: Vec::new(),
                is_gated: false,
            };
            ensure(self.calls.insert(id, seen).is_none(), "a call is proposed twice")?;
            if let Some(run) = run {
                let run = self.runs.get_mut(run).ok_or("a call of a run that does not exist")?;
                run.owes = run.owes.checked_sub(1).ok_or("a call that is in no message")?;
                run.calls.push(id);
            }
            return Ok(());
        }
        match event {
            call::Event::ResultDropped { .. } => return Ok(()),
            call::Event::Requested { key: Some(key), .. } => {
                let session = meta.session.clone().ok_or("a request without a session")?;
                return ensure(self.keys.insert((session, key.clone())), "a request is made twice under one key");
            }
            call::Event::Requested { .. } => return Ok(()),
            call::Event::Received { .. } => {
                let call = self.calls.get(&id).ok_or("a result of a call that was not proposed")?;
                ensure(matches!(call.stage, AuditedCallStage::Over(_)), "a result was received before the call ended")?;
                return ensure(self.received.insert(id), "a result was received twice");
            }
            _ => {}
        }
        let boot = self.boot;
        let call = self.calls.get_mut(&id).ok_or("a fact about a call that was not proposed")?;
        let resolved = |gate: &GateId| self.gates.get(gate).and_then(|gate| gate.resolution.as_ref());
        match (event, call.stage) {
            (call::Event::Allowed { by, .. }, AuditedCallStage::Requested | AuditedCallStage::Gated) => {
                let refused = call.gates.iter().filter_map(resolved).any(|resolution| {
                    matches!(resolution, GateResolution::Denied | GateResolution::Expired | GateResolution::Withdrawn)
                });
                ensure(!refused, "a call is allowed after it was refused")?;
                if by.is_some() || call.stage == AuditedCallStage::Gated {
                    let last = call.gates.last().and_then(resolved);
                    let allows = matches!(last, Some(GateResolution::Allowed { .. } | GateResolution::Granted));
                    ensure(allows || call.run.is_none(), "a call is allowed although its gate was not")?;
                }
                call.stage = AuditedCallStage::Ready;
                Ok(())
            }
            (call::Event::Gated { .. }, AuditedCallStage::Requested | AuditedCallStage::Ready) => {
                call.stage = AuditedCallStage::Gated;
                call.is_gated = true;
                Ok(())
            }
            (call::Event::Waits { .. }, AuditedCallStage::Ready) => {
                ensure(matches!(call.executor, Executor::Peer(_)), "a call that no peer executes waits for a peer")
            }
            (call::Event::Started { boot: by, line, memory, .. }, AuditedCallStage::Ready) => {
                ensure(*by == boot, "a call is started by an earlier process")?;
                let has = match &call.executor {
                    Executor::Peer(peer) => Some(self.lines.get(peer).copied()),
                    Executor::Builtin | Executor::Person | Executor::Shell | Executor::Service => None,
                };
                ensure(has.is_none_or(|has| has.is_some()), "a call is started for a disconnected peer")?;
                ensure(has.flatten() == *line, "a call is started on another connection than that of its peer")?;
                call.line = *line;
                call.memory = *memory;
                let stop = call.run.and_then(|run| self.runs.get(&run)?.stop);
                let is_whole = !matches!(stop, Some(StopReason::Error | StopReason::Aborted));
                ensure(is_whole, "a call of an incomplete message is started")?;
                call.stage = AuditedCallStage::Started(boot);
                Ok(())
            }
            (call::Event::Aborting { .. }, AuditedCallStage::Started(_)) => Ok(()),
            (call::Event::AskedAgain { boot: by, line, .. }, AuditedCallStage::InDoubt) => {
                ensure(*by == boot, "an earlier process asks for the outcome of a call")?;
                let Executor::Peer(peer) = &call.executor else {
                    return Err("the outcome of a call that no peer executes is asked for".to_owned());
                };
                let has = self.lines.get(peer).filter(|_| {
                    self.memories.get(peer).is_some_and(|now| {
                        *now == call.memory || call.memory == PeerMemory::Keeps && matches!(now, PeerMemory::Journal(_))
                    })
                });
                ensure(call.memory != PeerMemory::Forgets, "the outcome is asked of a peer that remembers no calls")?;
                ensure(
                    has == Some(line),
                    "the outcome of a call is asked for on another connection than that of its peer, or from another journal",
                )?;
                call.line = Some(*line);
                call.stage = AuditedCallStage::Started(boot);
                Ok(())
            }
            (call::Event::LeftBehind { .. }, AuditedCallStage::Over(CallEnd::Done { .. })) => Ok(()),
            (call::Event::InDoubt { .. }, AuditedCallStage::Started(_) | AuditedCallStage::InDoubt) => {
                call.stage = AuditedCallStage::InDoubt;
                Ok(())
            }
            (call::Event::Again { .. }, AuditedCallStage::InDoubt) => {
                ensure(call.repeat == RepeatMode::Idempotent, "a call that is not idempotent is repeated")?;
                call.again += 1;
                call.stage = AuditedCallStage::Ready;
                Ok(())
            }
            // It had not left for its peer: only the world knows whether that is true.
            (call::Event::Again { .. }, AuditedCallStage::Started(_)) => {
                ensure(call.line.is_some(), "a started call is repeated although it may have been sent")?;
                call.stage = AuditedCallStage::Ready;
                Ok(())
            }
            (call::Event::Ended { end, entry, .. }, stage) => {
                let fits = match end {
                    CallEnd::Done { .. } => matches!(stage, AuditedCallStage::Started(_) | AuditedCallStage::InDoubt),
                    CallEnd::Unknown => stage == AuditedCallStage::InDoubt,
                    CallEnd::Denied | CallEnd::Skipped => {
                        matches!(stage, AuditedCallStage::Requested | AuditedCallStage::Gated | AuditedCallStage::Ready)
                    }
                    CallEnd::Refused | CallEnd::Expired => stage == AuditedCallStage::Gated && call.run.is_none(),
                    CallEnd::Limited => stage == AuditedCallStage::Requested && call.run.is_none(),
                    CallEnd::Cancelled => {
                        !matches!(stage, AuditedCallStage::Started(_)) || call.executor == Executor::Person
                    }
                    CallEnd::Failed => !matches!(stage, AuditedCallStage::Over(_)),
                };
                ensure(
                    fits && !matches!(stage, AuditedCallStage::Over(_)),
                    "a call ends in a way that its stage does not allow",
                )?;
                // A file that replaces the tree leaves no place for the result of a call whose message it lacks.
                let is_replaced = meta.session.as_ref().and_then(|id| self.sessions.get(id));
                let is_replaced = is_replaced.is_some_and(|session| session.gathered.is_some());
                // Nor has a message that ended in an error, which no model is ever shown.
                let is_broken =
                    call.run.and_then(|run| self.runs.get(&run)).is_some_and(|run| run.stop == Some(StopReason::Error));
                ensure(!is_broken || entry.is_none(), "a result for a message that no model receives")?;
                let may_lack = is_broken || is_replaced && matches!(end, CallEnd::Cancelled | CallEnd::Unknown);
                ensure(call.run.is_none() || entry.is_some() || may_lack, "a call of a run ends without a result")?;
                let open = call.gates.iter().any(|gate| resolved(gate).is_none());
                ensure(!open, "a call ends and leaves its gate open")?;
                call.stage = AuditedCallStage::Over(*end);
                Ok(())
            }
            (_, stage) => Err(format!("the fact is not allowed for a call that is {stage:?}")),
        }
    }
}

fn ensure(holds: bool, broken: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(broken.to_owned()) }
}
