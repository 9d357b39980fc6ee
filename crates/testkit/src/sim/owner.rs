//! Small owner around the engine: a batch is decided, recorded and released, and then the owed work is reconciled. It dies at
//! planned points.

mod invariants;
mod peers;
mod planted_facts;
mod process_lifecycle;
mod reconcile;
mod residency;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use countersign_core::{
    OwedWork,
    engine::{
        ActiveRules, Command, CommandError, DecisionContext, Engine, EngineReply, Event, Fact, FactMeta, RecordedFact,
        ResumeMode,
    },
    gate::{self, AnswerError},
    id::{GateId, IdGenerator, Lsn},
    time::Millis,
};

use super::{
    PlantedFault, SimStats,
    audit::LogAudit,
    channels, commands,
    hosts::HostRulesAudit,
    jobs,
    rng::SimRng,
    rules,
    sim_log::SimLog,
    world::{InFlightWork, SimWorld, WorkProgress},
};

/// Failure of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchMishap {
    None,
    /// The disk is full: nothing is written, the process lives.
    NotRecorded,
    DiesBeforeAppend,
    DiesAfterAppend,
    /// The process dies after so many releases.
    DiesReleasing(usize),
}

/// Waiter for the result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyTarget {
    Request(u64),
    Work,
}

/// Mode that records events for a reader, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraceMode {
    Off,
    On,
}

struct SimCommand {
    command: Command,
    from: ReplyTarget,
}

/// Reply that is to leave.
struct DueReply {
    request: u64,
    /// Last fact that was decided before it or for it.
    upto: Lsn,
    /// Reason why the request had no effect, if it had none.
    refusal: Option<CommandError>,
}

pub(super) struct SimOwner {
    rng: SimRng,
    now: Millis,
    /// Fault that is still to be planted.
    fault: Option<PlantedFault>,
    log: SimLog,
    audit: LogAudit,
    hosts: HostRulesAudit,
    world: SimWorld,
    /// Recorded rules in force.
    rules: ActiveRules,
    /// Rules of the batch that is being decided, if it brings some.
    coming: Option<ActiveRules>,
    /// True if deadlines passed while nothing could be recorded.
    owes_time: bool,
    /// Number of facts of a batch that are not cut: often so few that every rule is in a batch of its own.
    bound: usize,
    resumes: &'static [ResumeMode],
    has_waited: bool,
    engine: Engine,
    /// Engine that follows the log alone, and never drops anything.
    shadow: Engine,
    /// Snapshot with which a process may begin in place of the beginning of the log.
    snapshot: Option<(Lsn, String)>,
    jobs: BTreeMap<OwedWork, InFlightWork>,
    line: VecDeque<SimCommand>,
    /// Requests without a reply.
    open: BTreeSet<u64>,
    request_count: u64,
    /// Number of connections of the peer.
    lines: u64,
    stats: SimStats,
    trace_mode: TraceMode,
    pub(super) trace: Vec<String>,
}

impl SimOwner {
    pub(super) fn new(seed: u64, fault: Option<PlantedFault>, trace_mode: TraceMode) -> Self {
        let mut rng = SimRng::new(seed);
        let rules = rules::rule_set(rng.below(rules::SETS));
        let resumes: &[ResumeMode] =
            rng.pick(&[&[ResumeMode::Go][..], &[ResumeMode::Wait], &[ResumeMode::Go, ResumeMode::Wait]]);
        let bound = rng.pick(&[1, 2, 4, 8, 30, 1024]);
        Self {
            bound,
            now: Millis(1_700_000_000_000),
            fault,
            log: SimLog::default(),
            audit: LogAudit::default(),
            hosts: HostRulesAudit::default(),
            world: SimWorld::default(),
            engine: Engine::new(rules.clone()).with_bound(bound),
            shadow: Engine::new(rules.clone()),
            snapshot: None,
            rules,
            coming: None,
            owes_time: false,
            resumes,
            has_waited: false,
            jobs: BTreeMap::new(),
            line: VecDeque::new(),
            open: BTreeSet::new(),
            request_count: 0,
            lines: 0,
            stats: SimStats::default(),
            trace_mode,
            trace: Vec::new(),
            rng,
        }
    }

    pub(super) fn collect_stats(&self) -> SimStats {
        SimStats {
            facts: self.log.head_lsn().0,
            effects: self.world.effect_count(),
            kinds: self.audit.kinds.clone(),
            ..self.stats.clone()
        }
    }

    fn push_trace(&mut self, what: impl FnOnce() -> String) {
        if self.trace_mode == TraceMode::On {
            self.trace.push(what());
        }
    }

    /// Returns true once, at one of the occasions for the fault of this run: a crash soon after would repair it.
    fn plant_fault(&mut self, fault: PlantedFault) -> bool {
        let is_due = self.fault == Some(fault) && self.rng.chance(20);
        if is_due {
            self.fault = None;
            self.push_trace(|| format!("-- planted: {fault:?}"));
        }
        is_due
    }

    fn push_request(&mut self, command: Command) {
        self.request_count += 1;
        self.open.insert(self.request_count);
        self.line.push_back(SimCommand { command, from: ReplyTarget::Request(self.request_count) });
    }

    pub(super) fn run_step(&mut self) -> Result<(), String> {
        for _ in 0..self.rng.index(3) {
            let command = match self.rng.below(100) {
                0..8 => jobs::random_command(&mut self.rng, self.now),
                8..16 => channels::random_command(&mut self.rng, &self.audit.networks),
                _ => commands::random_command(&mut self.rng, &self.shadow, &self.audit),
            };
            self.push_request(command);
        }
        self.peer_moves();
        let span = self.rng.pick(&[0, 1, 50, 1_000, 20_000, 20_000, 400_000]);
        self.now = self.now + Duration::from_millis(span);
        self.advance_world()?;
        if self.rng.chance(3) {
            return self.crash_process("between two batches");
        }
        if self.rng.chance(2) {
            return self.close_process();
        }
        let mishap = match self.rng.below(100) {
            0..3 => BatchMishap::DiesBeforeAppend,
            3..6 => BatchMishap::DiesAfterAppend,
            6..9 => BatchMishap::DiesReleasing(self.rng.index(4)),
            9..12 => BatchMishap::NotRecorded,
            _ => BatchMishap::None,
        };
        let most = 1 + self.rng.index(6);
        self.run_batch(most, mishap)?;
        if self.rng.chance(10) { self.same_as_the_log() } else { Ok(()) }
    }

    fn advance_world(&mut self) -> Result<(), String> {
        for _ in 0..=self.rng.index(3) {
            let open: Vec<OwedWork> = self
                .jobs
                .iter()
                .filter(|(_, job)| job.doing != WorkProgress::Reported)
                .map(|(work, _)| work.clone())
                .collect();
            if open.is_empty() {
                return Ok(());
            }
            let work = open[self.rng.index(open.len())].clone();
            self.advance_work(&work)?;
        }
        Ok(())
    }

    fn advance_work(&mut self, work: &OwedWork) -> Result<(), String> {
        let Some(mut job) = self.jobs.remove(work) else { return Ok(()) };
        let outcome = self.world.advance_work(&mut self.rng, &self.engine, &self.audit, &self.log, work, &mut job)?;
        self.jobs.insert(work.clone(), job);
        let Some(mut command) = outcome else { return Ok(()) };
        self.denies_sending(&mut command);
        if matches!(work, OwedWork::Call { .. }) && self.plant_fault(PlantedFault::ForgetResult) {
            return Ok(());
        }
        if self.rng.chance(5) {
            self.line.push_back(SimCommand { command: command.clone(), from: ReplyTarget::Work });
        }
        self.line.push_back(SimCommand { command, from: ReplyTarget::Work });
        Ok(())
    }

    fn handle_command(&mut self, command: Command) -> Result<(Vec<RecordedFact>, EngineReply), CommandError> {
        self.push_trace(|| commands::describe_command(&command));
        if let Command::UseRules(rules) = &command {
            self.coming = Some((**rules).clone());
        }
        self.fetch_for(&command);
        let mut context = DecisionContext { now: self.now, fresh: IdGenerator::new(self.rng.random_bytes()) };
        let host_command = matches!(command, Command::UseRulesFor(..) | Command::Leave(_)).then(|| command.clone());
        let outcome = self.engine.handle_command(command, &mut context);
        if let Some(host_command) = host_command.filter(|_| outcome.is_ok()) {
            self.hosts.record_command(&host_command);
        }
        match &outcome {
            Ok((facts, reply)) => {
                self.push_trace(|| format!("   {reply:?}: {} facts", facts.len()));
                for fact in facts.iter().take(25) {
                    self.push_trace(|| format!("     {:.110}", format!("{:?}", fact.fact.event)));
                }
            }
            Err(refusal) => self.push_trace(|| format!("   refused: {refusal}")),
        }
        outcome
    }

    fn run_batch(&mut self, most: usize, mishap: BatchMishap) -> Result<(), String> {
        let mut batch = Vec::new();
        let mut releases: Vec<DueReply> = Vec::new();
        let mut results = Vec::new();
        if self.owes_time {
            let extended = self.handle_command(Command::Extend).map_err(|refusal| refusal.to_string())?;
            batch.extend(extended.0);
        }
        for _ in 0..most {
            let Some(SimCommand { command, from }) = self.line.pop_front() else { break };
            let expected = self.expected_answer(&command);
            let copy = command.clone();
            let allows =
                matches!(command, Command::Gate(gate::Command::Answer { answer: gate::GateReply::Allow(_), .. }));
            if allows && expected.is_none() && self.plant_fault(PlantedFault::StartTooEarly) {
                self.engine.mark_durable(Lsn(u64::MAX));
            }
            let outcome = self.handle_command(command);
            invariants::check_answer(&expected, &outcome)?;
            let refused_again = matches!(outcome, Err(CommandError::Answer(AnswerError::AlreadyResolved { .. })));
            let refusal = match outcome {
                Ok((facts, _)) => {
                    batch.extend(facts);
                    None
                }
                Err(refusal) => Some(refusal),
            };
            if let Command::Gate(gate::Command::Answer { gate, .. }) = &copy
                && refused_again
                && self.plant_fault(PlantedFault::SecondAnswer)
            {
                batch.push(self.resolved_again(*gate));
            }
            match from {
                ReplyTarget::Request(request) => {
                    releases.push(DueReply { request, upto: self.engine.state().head_lsn(), refusal });
                }
                ReplyTarget::Work => results.push(copy),
            }
        }
        if let Some((session, breach)) = self.awaiting_extension()
            && self.plant_fault(PlantedFault::MoreForNothing)
        {
            batch.push(self.more_for_nothing(session, breach));
        }
        // Time passes after the commands that came before.
        if self.engine.is_unsettled() || self.engine.state().next_deadline().is_some_and(|at| at <= self.now) {
            let ticked = self.handle_command(Command::Tick).map_err(|refusal| refusal.to_string())?;
            batch.extend(ticked.0);
        }
        let head = self.engine.state().head_lsn();
        let again = batch.iter().find_map(|fired| jobs::fire_again(fired, head));
        if let Some(again) = again.filter(|_| self.plant_fault(PlantedFault::FireTwice)) {
            self.engine.replay_fact(&again.fact.event, &again.meta);
            batch.push(again);
        }
        self.plant_second_receipt(&mut batch);
        if releases.first().is_some_and(|first| first.upto > self.log.head_lsn())
            && self.plant_fault(PlantedFault::ReplyBeforeAppend)
        {
            let first = releases.remove(0);
            self.send_reply(&first)?;
        }
        // Batches with the facts that are most often reported wrongly are rare, and would seldom fail.
        let is_telling = self.coming.is_some() || releases.iter().any(|release| !self.is_so(release));
        let fails = mishap == BatchMishap::None && is_telling && self.rng.chance(30);
        let mishap = if fails { BatchMishap::NotRecorded } else { mishap };
        match mishap {
            BatchMishap::DiesBeforeAppend => return self.crash_process("before the append"),
            BatchMishap::NotRecorded if !batch.is_empty() => return self.not_recorded(releases, results),
            BatchMishap::NotRecorded
            | BatchMishap::None
            | BatchMishap::DiesAfterAppend
            | BatchMishap::DiesReleasing(_) => {}
        }
        if batch.len() > 3 && self.plant_fault(PlantedFault::LoseFact) {
            batch.pop();
        }
        self.append_batch(batch)?;
        self.owes_time = false;
        if mishap == BatchMishap::DiesAfterAppend {
            return self.crash_process("after the append");
        }
        for (at, release) in releases.iter().enumerate() {
            if mishap == BatchMishap::DiesReleasing(at) {
                return self.crash_process("between two releases");
            }
            self.send_reply(release)?;
            if self.plant_fault(PlantedFault::ReplyTwice) {
                self.send_reply(release)?;
            }
        }
        self.let_go();
        self.reconcile()
    }

    /// Handles a failed append: requests get an error, results are offered again.
    fn not_recorded(&mut self, releases: Vec<DueReply>, results: Vec<Command>) -> Result<(), String> {
        self.push_trace(|| "-- not recorded".to_owned());
        self.stats.failures += 1;
        self.owes_time = true;
        self.hosts.is_there = false;
        let coming = self.coming.take().filter(|rules| rules.digest() != self.rules.digest());
        let keeps = coming.filter(|_| self.plant_fault(PlantedFault::KeepRules));
        let rules = keeps.unwrap_or_else(|| self.rules.clone());
        self.engine = self.log.replay_engine(rules)?.in_place_of(&self.engine);
        invariants::rules_are_recorded(&self.engine)?;
        for mut release in releases {
            // A refusal after a fact that is gone may rest on it.
            let is_behind = release.upto > self.log.head_lsn();
            let stays = !self.is_so(&release) && self.plant_fault(PlantedFault::RefuseForNothing);
            release.refusal = release.refusal.filter(|_| !is_behind || stays);
            release.upto = Lsn(0);
            self.send_reply(&release)?;
        }
        for command in results.into_iter().rev() {
            self.line.push_front(SimCommand { command, from: ReplyTarget::Work });
        }
        self.reconcile()
    }

    fn append_batch(&mut self, batch: Vec<RecordedFact>) -> Result<(), String> {
        let before = self.log.head_lsn();
        self.log.append_records(&batch)?;
        for line in self.log.records_after(before) {
            let event = line.decode_event()?;
            self.audit.read_record(&line.meta, &event)?;
            self.hosts.read_record(&line.meta, &event)?;
            self.shadow.replay_fact(&event, &line.meta);
        }
        invariants::starts_behind_its_decision(&batch, &self.audit)?;
        self.engine.mark_durable(self.log.head_lsn());
        if let Some(rules) = self.coming.take() {
            self.rules = rules;
        }
        if *self.engine.state() != *self.shadow.state() {
            return Err("the state differs from that of the log".to_owned());
        }
        invariants::rules_are_recorded(&self.engine)?;
        if self.rng.chance(5) {
            self.snapshot = Some((self.log.head_lsn(), self.engine.to_snapshot()));
        }
        Ok(())
    }

    fn send_reply(&mut self, release: &DueReply) -> Result<(), String> {
        let DueReply { request, upto, refusal } = release;
        self.stats.replies += 1;
        if *upto > self.log.head_lsn() {
            return Err(format!("a reply depends on record {upto}, but the log ends at {}", self.log.head_lsn()));
        }
        invariants::refusal_is_so(refusal.as_ref(), self.shadow.state())?;
        if self.open.remove(request) { Ok(()) } else { Err("a request gets two replies".to_owned()) }
    }

    /// Reports whether the log agrees with a refusal.
    fn is_so(&self, release: &DueReply) -> bool {
        invariants::refusal_is_so(release.refusal.as_ref(), self.shadow.state()).is_ok()
    }

    /// Plants the fault of an owner that lets the last answer win.
    fn resolved_again(&mut self, id: GateId) -> RecordedFact {
        let resolution = gate::GateResolution::Allowed { scope: gate::ApprovalScope::Once };
        let event = Event::Gate(gate::Event::auto_resolved(id, resolution));
        let session = self.engine.state().gate(id).and_then(|gate| gate.session().cloned());
        let meta = FactMeta {
            lsn: self.engine.state().head_lsn().next(),
            at: self.engine.state().last_fact_at(),
            session: session.clone(),
        };
        self.engine.replay_fact(&event, &meta);
        RecordedFact { meta, fact: Fact { event, session, content: None } }
    }
}
