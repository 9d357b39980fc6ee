//! A small owner around the engine: a batch is decided, recorded, released, and then what is owed is seen to. It dies where it is told to.

mod desk;
mod more;
mod peers;
mod promises;
mod residency;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use countersign_core::{
    OwedWork, call,
    engine::{
        ActiveRules, Command, CommandError, DecisionContext, Engine, EngineReply, Event, Fact, FactMeta, RecordedFact,
        ResumeMode,
    },
    gate::{self, AnswerError},
    id::{GateId, IdGenerator, Lsn, SessionId},
    time::Millis,
};

use super::{
    Fault, Figures,
    audit::Audit,
    book::Book,
    dice::Dice,
    hosts::{self, Hosts},
    jobs, networks, people, rules,
    world::{Doing, Job, World},
};

/// Where a batch goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mishap {
    None,
    /// The disk is full: nothing is written, the process lives.
    NotRecorded,
    DiesBeforeAppend,
    DiesAfterAppend,
    /// Behind so many releases.
    DiesReleasing(usize),
}

/// Who waits for what a command comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Request(u64),
    Work,
}

/// Whether what happens is written down for a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Telling {
    Silent,
    Aloud,
}

struct Item {
    command: Command,
    from: From,
}

/// A reply that is to leave.
struct Release {
    request: u64,
    /// The last fact that was decided before it or for it.
    upto: Lsn,
    /// Why the request had no effect, if it had none.
    refusal: Option<CommandError>,
}

pub(super) struct Owner {
    dice: Dice,
    now: Millis,
    /// A mistake that is still to be made.
    fault: Option<Fault>,
    book: Book,
    audit: Audit,
    hosts: Hosts,
    world: World,
    /// The rules that are recorded to be in force.
    rules: ActiveRules,
    /// Those that the batch brings which is being decided, where it brings some.
    coming: Option<ActiveRules>,
    /// Whether deadlines passed while nothing could be recorded.
    owes_time: bool,
    /// How many facts of a batch are not cut: often so few that every rule is in a batch of its own.
    bound: usize,
    resumes: &'static [ResumeMode],
    has_waited: bool,
    engine: Engine,
    /// Follows the log alone, and never lets go of anything.
    shadow: Engine,
    /// What a process may begin with in place of the beginning of the log.
    snapshot: Option<(Lsn, String)>,
    jobs: BTreeMap<OwedWork, Job>,
    line: VecDeque<Item>,
    /// Requests that have no reply yet.
    open: BTreeSet<u64>,
    asked: u64,
    /// How many lines the peer had.
    lines: u64,
    figures: Figures,
    telling: Telling,
    pub(super) told: Vec<String>,
}

impl Owner {
    pub(super) fn new(seed: u64, fault: Option<Fault>, telling: Telling) -> Self {
        let mut dice = Dice::new(seed);
        let rules = rules::numbered(dice.below(rules::SETS));
        let resumes: &[ResumeMode] =
            dice.pick(&[&[ResumeMode::Go][..], &[ResumeMode::Wait], &[ResumeMode::Go, ResumeMode::Wait]]);
        let bound = dice.pick(&[1, 2, 4, 8, 30, 1024]);
        Self {
            bound,
            now: Millis(1_700_000_000_000),
            fault,
            book: Book::default(),
            audit: Audit::default(),
            hosts: Hosts::default(),
            world: World::default(),
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
            asked: 0,
            lines: 0,
            figures: Figures::default(),
            telling,
            told: Vec::new(),
            dice,
        }
    }

    pub(super) fn figures(&self) -> Figures {
        Figures {
            facts: self.book.head().0,
            effects: self.world.effects(),
            kinds: self.audit.kinds.clone(),
            ..self.figures.clone()
        }
    }

    fn tell(&mut self, what: impl FnOnce() -> String) {
        if self.telling == Telling::Aloud {
            self.told.push(what());
        }
    }

    /// A new process begins with what is durable.
    pub(super) fn open(&mut self) -> Result<(), String> {
        self.coming = None;
        self.owes_time = false;
        self.world.line = None;
        self.hosts.restart();
        if self.dice.chance(20) {
            self.rules = rules::numbered(self.dice.below(rules::SETS));
        }
        let snapshot = self.snapshot.clone().filter(|_| self.dice.chance(50));
        self.engine = self.book.replay_behind(snapshot.as_ref(), self.rules.clone())?.with_bound(self.bound);
        self.now = self.now.max(self.engine.state().last_fact_at());
        let before: Vec<OwedWork> = self
            .engine
            .state()
            .calls()
            .filter(|call| matches!(call.phase(), call::CallPhase::Started { .. }))
            .map(|call| OwedWork::Call { call: call.id(), start: call.start_count() })
            .collect();
        let resume = self.dice.pick(self.resumes);
        self.has_waited |= resume == ResumeMode::Wait && self.audit.boot() > 0;
        let head = self.book.head();
        self.tell(|| format!("-- a process opens the log at {head}: {resume:?}"));
        let mut batch = Vec::new();
        for command in [Command::UseRules(Box::new(self.rules.clone())), Command::Recover(resume)] {
            batch.extend(self.handle(command).map_err(|refusal| format!("recovery is refused: {refusal}"))?.0);
        }
        self.append(batch)?;
        if let Some(work) = before.first().cloned().filter(|_| self.make(Fault::StartTwice)) {
            let job = World::begin(&self.engine, &self.book, &self.audit, &work, None)?;
            self.jobs.insert(work, job);
        }
        if self.audit.boot() == 1 {
            let comes = hosts::comes(&mut self.dice);
            self.request(comes);
            for session in people::SESSIONS.into_iter().chain([people::AGENT]) {
                self.request(people::open(session));
            }
        } else if self.make(Fault::RulesForHost) {
            let rules = Box::new(self.rules.clone());
            let planted = Command::UseRulesFor(SessionId::new(hosts::SESSION), rules);
            let mut context = DecisionContext { now: self.now, fresh: IdGenerator::new(self.dice.bytes()) };
            let planted = self.engine.handle_command(planted, &mut context);
            self.append(planted.map(|(facts, _)| facts).unwrap_or_default())?;
        }
        self.reconcile()
    }

    fn dies(&mut self, how: &str) -> Result<(), String> {
        self.tell(|| format!("-- the process dies {how}"));
        self.figures.crashes += 1;
        self.jobs.clear();
        self.line.clear();
        // Whoever waited hears that the line broke off.
        self.open.clear();
        self.open()
    }

    /// The process ends as it should: nothing new begins, what is in flight is stopped and says so.
    fn closes(&mut self) -> Result<(), String> {
        self.tell(|| "-- the process closes".to_owned());
        self.engine.quiesce();
        for _ in 0..20 {
            for work in self.jobs.keys().cloned().collect::<Vec<_>>() {
                if let Some(job) = self.jobs.get_mut(&work).filter(|job| job.doing != Doing::Told) {
                    job.cancelled = true;
                    self.go_on(&work)?;
                }
            }
            self.batch(64, Mishap::None)?;
        }
        self.dies("as it should")
    }

    /// True once, at one of the occasions for the mistake that this run is about: a crash soon after would mend it.
    fn make(&mut self, fault: Fault) -> bool {
        let is_due = self.fault == Some(fault) && self.dice.chance(20);
        if is_due {
            self.fault = None;
            self.tell(|| format!("-- planted: {fault:?}"));
        }
        is_due
    }

    fn request(&mut self, command: Command) {
        self.asked += 1;
        self.open.insert(self.asked);
        self.line.push_back(Item { command, from: From::Request(self.asked) });
    }

    pub(super) fn step(&mut self) -> Result<(), String> {
        for _ in 0..self.dice.index(3) {
            let command = match self.dice.below(100) {
                0..8 => jobs::command(&mut self.dice, self.now),
                8..16 => networks::command(&mut self.dice, &self.audit.networks),
                _ => people::command(&mut self.dice, &self.shadow, &self.audit),
            };
            self.request(command);
        }
        self.peer_moves();
        let span = self.dice.pick(&[0, 1, 50, 1_000, 20_000, 20_000, 400_000]);
        self.now = self.now + Duration::from_millis(span);
        self.world_goes_on()?;
        if self.dice.chance(3) {
            return self.dies("between two batches");
        }
        if self.dice.chance(2) {
            return self.closes();
        }
        let mishap = match self.dice.below(100) {
            0..3 => Mishap::DiesBeforeAppend,
            3..6 => Mishap::DiesAfterAppend,
            6..9 => Mishap::DiesReleasing(self.dice.index(4)),
            9..12 => Mishap::NotRecorded,
            _ => Mishap::None,
        };
        let most = 1 + self.dice.index(6);
        self.batch(most, mishap)?;
        if self.dice.chance(10) { self.same_as_the_log() } else { Ok(()) }
    }

    fn world_goes_on(&mut self) -> Result<(), String> {
        for _ in 0..=self.dice.index(3) {
            let open: Vec<OwedWork> =
                self.jobs.iter().filter(|(_, job)| job.doing != Doing::Told).map(|(work, _)| work.clone()).collect();
            if open.is_empty() {
                return Ok(());
            }
            let work = open[self.dice.index(open.len())].clone();
            self.go_on(&work)?;
        }
        Ok(())
    }

    fn go_on(&mut self, work: &OwedWork) -> Result<(), String> {
        let Some(mut job) = self.jobs.remove(work) else { return Ok(()) };
        let told = self.world.go_on(&mut self.dice, &self.engine, &self.audit, &self.book, work, &mut job)?;
        self.jobs.insert(work.clone(), job);
        let Some(mut command) = told else { return Ok(()) };
        self.denies_sending(&mut command);
        if matches!(work, OwedWork::Call { .. }) && self.make(Fault::ForgetResult) {
            return Ok(());
        }
        if self.dice.chance(5) {
            self.line.push_back(Item { command: command.clone(), from: From::Work });
        }
        self.line.push_back(Item { command, from: From::Work });
        Ok(())
    }

    fn handle(&mut self, command: Command) -> Result<(Vec<RecordedFact>, EngineReply), CommandError> {
        self.tell(|| people::tell(&command));
        if let Command::UseRules(rules) = &command {
            self.coming = Some((**rules).clone());
        }
        self.fetch_for(&command);
        let mut context = DecisionContext { now: self.now, fresh: IdGenerator::new(self.dice.bytes()) };
        let told = matches!(command, Command::UseRulesFor(..) | Command::Leave(_)).then(|| command.clone());
        let outcome = self.engine.handle_command(command, &mut context);
        if let Some(told) = told.filter(|_| outcome.is_ok()) {
            self.hosts.told(&told);
        }
        match &outcome {
            Ok((facts, reply)) => {
                self.tell(|| format!("   {reply:?}: {} facts", facts.len()));
                for fact in facts.iter().take(25) {
                    self.tell(|| format!("     {:.110}", format!("{:?}", fact.fact.event)));
                }
            }
            Err(refusal) => self.tell(|| format!("   refused: {refusal}")),
        }
        outcome
    }

    fn batch(&mut self, most: usize, mishap: Mishap) -> Result<(), String> {
        let mut batch = Vec::new();
        let mut releases: Vec<Release> = Vec::new();
        let mut results = Vec::new();
        if self.owes_time {
            let extended = self.handle(Command::Extend).map_err(|refusal| refusal.to_string())?;
            batch.extend(extended.0);
        }
        for _ in 0..most {
            let Some(Item { command, from }) = self.line.pop_front() else { break };
            let expected = self.expected(&command);
            let copy = command.clone();
            let allows =
                matches!(command, Command::Gate(gate::Command::Answer { answer: gate::GateReply::Allow(_), .. }));
            if allows && expected.is_none() && self.make(Fault::StartTooEarly) {
                self.engine.mark_durable(Lsn(u64::MAX));
            }
            let outcome = self.handle(command);
            promises::fits(&expected, &outcome)?;
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
                && self.make(Fault::SecondAnswer)
            {
                batch.push(self.resolved_again(*gate));
            }
            match from {
                From::Request(request) => {
                    releases.push(Release { request, upto: self.engine.state().head_lsn(), refusal });
                }
                From::Work => results.push(copy),
            }
        }
        if let Some((session, breach)) = self.held()
            && self.make(Fault::MoreForNothing)
        {
            batch.push(self.more_for_nothing(session, breach));
        }
        // Time passes behind what was asked before it did.
        if self.engine.is_unsettled() || self.engine.state().next_deadline().is_some_and(|at| at <= self.now) {
            let ticked = self.handle(Command::Tick).map_err(|refusal| refusal.to_string())?;
            batch.extend(ticked.0);
        }
        let head = self.engine.state().head_lsn();
        let again = batch.iter().find_map(|fired| jobs::again(fired, head));
        if let Some(again) = again.filter(|_| self.make(Fault::FireTwice)) {
            self.engine.replay_fact(&again.fact.event, &again.meta);
            batch.push(again);
        }
        self.hears_twice(&mut batch);
        if releases.first().is_some_and(|first| first.upto > self.book.head()) && self.make(Fault::ReplyBeforeAppend) {
            let first = releases.remove(0);
            self.release(&first)?;
        }
        // What is told most easily in the wrong way is seldom in a batch, and would seldom be in one that fails.
        let is_telling = self.coming.is_some() || releases.iter().any(|release| !self.is_so(release));
        let fails = mishap == Mishap::None && is_telling && self.dice.chance(30);
        let mishap = if fails { Mishap::NotRecorded } else { mishap };
        match mishap {
            Mishap::DiesBeforeAppend => return self.dies("before the append"),
            Mishap::NotRecorded if !batch.is_empty() => return self.not_recorded(releases, results),
            Mishap::NotRecorded | Mishap::None | Mishap::DiesAfterAppend | Mishap::DiesReleasing(_) => {}
        }
        if batch.len() > 3 && self.make(Fault::LoseFact) {
            batch.pop();
        }
        self.append(batch)?;
        self.owes_time = false;
        if mishap == Mishap::DiesAfterAppend {
            return self.dies("after the append");
        }
        for (at, release) in releases.iter().enumerate() {
            if mishap == Mishap::DiesReleasing(at) {
                return self.dies("between two releases");
            }
            self.release(release)?;
            if self.make(Fault::ReplyTwice) {
                self.release(release)?;
            }
        }
        self.let_go();
        self.reconcile()
    }

    /// What came back of a failed append: requests are answered, results are offered again.
    fn not_recorded(&mut self, releases: Vec<Release>, results: Vec<Command>) -> Result<(), String> {
        self.tell(|| "-- not recorded".to_owned());
        self.figures.failures += 1;
        self.owes_time = true;
        self.hosts.is_there = false;
        let coming = self.coming.take().filter(|rules| rules.digest() != self.rules.digest());
        let keeps = coming.filter(|_| self.make(Fault::KeepRules));
        let rules = keeps.unwrap_or_else(|| self.rules.clone());
        self.engine = self.book.replay(rules)?.in_place_of(&self.engine);
        promises::rules_are_recorded(&self.engine)?;
        for mut release in releases {
            // A refusal behind a fact that is gone may rest on it.
            let is_behind = release.upto > self.book.head();
            let stays = !self.is_so(&release) && self.make(Fault::RefuseForNothing);
            release.refusal = release.refusal.filter(|_| !is_behind || stays);
            release.upto = Lsn(0);
            self.release(&release)?;
        }
        for command in results.into_iter().rev() {
            self.line.push_front(Item { command, from: From::Work });
        }
        self.reconcile()
    }

    fn append(&mut self, batch: Vec<RecordedFact>) -> Result<(), String> {
        let before = self.book.head();
        self.book.write(&batch)?;
        for line in self.book.behind(before) {
            let event = line.event()?;
            self.audit.read(&line.meta, &event)?;
            self.hosts.read(&line.meta, &event)?;
            self.shadow.replay_fact(&event, &line.meta);
        }
        promises::starts_behind_its_decision(&batch, &self.audit)?;
        self.engine.mark_durable(self.book.head());
        if let Some(rules) = self.coming.take() {
            self.rules = rules;
        }
        if *self.engine.state() != *self.shadow.state() {
            return Err("the state is not what the log says".to_owned());
        }
        promises::rules_are_recorded(&self.engine)?;
        if self.dice.chance(5) {
            self.snapshot = Some((self.book.head(), self.engine.to_snapshot()));
        }
        Ok(())
    }

    fn release(&mut self, release: &Release) -> Result<(), String> {
        let Release { request, upto, refusal } = release;
        self.figures.replies += 1;
        if *upto > self.book.head() {
            return Err(format!("a reply tells of record {upto}, and the log ends at {}", self.book.head()));
        }
        promises::refusal_is_so(refusal.as_ref(), self.shadow.state())?;
        if self.open.remove(request) { Ok(()) } else { Err("a request gets two replies".to_owned()) }
    }

    /// Whether the log says what a refusal says.
    fn is_so(&self, release: &Release) -> bool {
        promises::refusal_is_so(release.refusal.as_ref(), self.shadow.state()).is_ok()
    }

    /// The mistake of an owner that lets the last answer win.
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
