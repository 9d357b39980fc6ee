//! A small owner around the engine: a batch is decided, recorded, released, and then what is owed is seen to. It dies where it is told to.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use countersign_core::{
    Work,
    call::{self, Progress},
    engine::{Command, Context, Engine, Event, Fact, Meta, Recorded, Refusal, Reply, Resume, Rules},
    gate::{self, AnswerRefusal},
    id::{Fresh, GateId, Lsn},
    owed,
    run,
    session::{self, Compacted, Queue},
    stopping,
    time::Millis,
};

use super::{
    Fault, Figures,
    audit::Audit,
    book::Book,
    dice::Dice,
    people, rules, words,
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

pub(super) struct Owner {
    dice: Dice,
    now: Millis,
    /// A mistake that is still to be made.
    fault: Option<Fault>,
    book: Book,
    audit: Audit,
    world: World,
    rules: Rules,
    resumes: &'static [Resume],
    has_waited: bool,
    engine: Engine,
    /// Follows the log alone.
    shadow: Engine,
    jobs: BTreeMap<Work, Job>,
    line: VecDeque<Item>,
    /// Requests that have no reply yet.
    open: BTreeSet<u64>,
    asked: u64,
    figures: Figures,
    telling: Telling,
    pub(super) told: Vec<String>,
}

impl Owner {
    pub(super) fn new(seed: u64, fault: Option<Fault>, telling: Telling) -> Self {
        let mut dice = Dice::new(seed);
        let rules = rules::numbered(dice.below(4));
        let resumes: &[Resume] = dice.pick(&[&[Resume::Go][..], &[Resume::Wait], &[Resume::Go, Resume::Wait]]);
        Self {
            now: Millis(1_700_000_000_000),
            fault,
            book: Book::default(),
            audit: Audit::default(),
            world: World::default(),
            engine: Engine::new(rules.clone()),
            shadow: Engine::new(rules.clone()),
            rules,
            resumes,
            has_waited: false,
            jobs: BTreeMap::new(),
            line: VecDeque::new(),
            open: BTreeSet::new(),
            asked: 0,
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
        if self.dice.chance(20) {
            self.rules = rules::numbered(self.dice.below(4));
        }
        self.engine = self.book.replay(self.rules.clone())?;
        self.now = self.now.max(self.engine.state().at());
        let before: Vec<Work> = self.engine.state().calls().map(|call| (call.id(), call.phase().clone())).filter_map(|(id, phase)| {
            matches!(phase, call::Phase::Started { .. }).then_some(Work::Call(id))
        }).collect();
        let resume = self.dice.pick(self.resumes);
        self.has_waited |= resume == Resume::Wait && self.audit.boot() > 0;
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
        for session in people::SESSIONS {
            if self.audit.boot() == 1 {
                self.request(people::open(session));
            }
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

    /// True once, for the mistake that this run is about.
    fn make(&mut self, fault: Fault) -> bool {
        let is_due = self.fault == Some(fault);
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
            let command = people::command(&mut self.dice, &self.engine, &self.audit);
            self.request(command);
        }
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
            let open: Vec<Work> =
                self.jobs.iter().filter(|(_, job)| job.doing != Doing::Told).map(|(work, _)| work.clone()).collect();
            if open.is_empty() {
                return Ok(());
            }
            let work = open[self.dice.index(open.len())].clone();
            self.go_on(&work)?;
        }
        Ok(())
    }

    fn go_on(&mut self, work: &Work) -> Result<(), String> {
        let Some(mut job) = self.jobs.remove(work) else { return Ok(()) };
        let told = self.world.go_on(&mut self.dice, &self.engine, &self.audit, &self.book, work, &mut job)?;
        self.jobs.insert(work.clone(), job);
        let Some(command) = told else { return Ok(()) };
        if matches!(work, Work::Call(_)) && self.make(Fault::ForgetResult) {
            return Ok(());
        }
        if self.dice.chance(5) {
            self.line.push_back(Item { command: command.clone(), from: From::Work });
        }
        self.line.push_back(Item { command, from: From::Work });
        Ok(())
    }

    fn handle(&mut self, command: Command) -> Result<(Vec<Recorded>, Reply), Refusal> {
        self.tell(|| people::tell(&command));
        if let Command::UseRules(rules) = &command {
            self.rules = (**rules).clone();
        }
        let mut context = Context { now: self.now, fresh: Fresh::new(self.dice.bytes()) };
        let outcome = self.engine.handle(command, &mut context);
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
        let mut releases: Vec<(u64, Lsn)> = Vec::new();
        let mut results = Vec::new();
        if self.engine.is_unsettled() || self.engine.state().next_deadline().is_some_and(|at| at <= self.now) {
            let ticked = self.handle(Command::Tick).map_err(|refusal| refusal.to_string())?;
            batch.extend(ticked.0);
        }
        for _ in 0..most {
            let Some(Item { command, from }) = self.line.pop_front() else { break };
            let expected = self.expected(&command);
            let copy = command.clone();
            let outcome = self.handle(command);
            fits(&expected, &outcome)?;
            let refused_again = matches!(outcome, Err(Refusal::Answer(AnswerRefusal::AlreadyResolved { .. })));
            if let Ok((facts, _)) = outcome {
                batch.extend(facts);
            }
            if let Command::Gate(gate::Command::Answer { gate, .. }) = &copy
                && refused_again
                && self.make(Fault::SecondAnswer)
            {
                batch.push(self.resolved_again(*gate));
            }
            match from {
                From::Request(id) => releases.push((id, self.engine.state().head())),
                From::Work => results.push(copy),
            }
        }
        if releases.first().is_some_and(|(_, upto)| *upto > self.book.head()) && self.make(Fault::ReplyBeforeAppend) {
            let (request, upto) = releases.remove(0);
            self.release(request, upto)?;
        }
        match mishap {
            Mishap::DiesBeforeAppend => return self.dies("before the append"),
            Mishap::NotRecorded if !batch.is_empty() => return self.not_recorded(releases, results),
            Mishap::NotRecorded | Mishap::None | Mishap::DiesAfterAppend | Mishap::DiesReleasing(_) => {}
        }
        if batch.len() > 3 && self.make(Fault::LoseFact) {
            batch.pop();
        }
        self.append(batch)?;
        if mishap == Mishap::DiesAfterAppend {
            return self.dies("after the append");
        }
        for (at, (request, upto)) in releases.into_iter().enumerate() {
            if mishap == Mishap::DiesReleasing(at) {
                return self.dies("between two releases");
            }
            self.release(request, upto)?;
            if self.make(Fault::ReplyTwice) {
                self.release(request, upto)?;
            }
        }
        self.engine.evict(self.now);
        self.reconcile()
    }

    /// What came back of a failed append: requests are answered, results are offered again.
    fn not_recorded(&mut self, releases: Vec<(u64, Lsn)>, results: Vec<Command>) -> Result<(), String> {
        self.tell(|| "-- not recorded".to_owned());
        self.figures.failures += 1;
        self.engine = self.book.replay(self.rules.clone())?;
        self.rules = self.engine.rules().clone();
        for (request, _) in releases {
            self.release(request, Lsn(0))?;
        }
        for command in results.into_iter().rev() {
            self.line.push_front(Item { command, from: From::Work });
        }
        self.reconcile()
    }

    fn append(&mut self, batch: Vec<Recorded>) -> Result<(), String> {
        let before = self.book.head();
        self.book.write(&batch)?;
        for line in self.book.behind(before) {
            let event = line.event()?;
            self.audit.read(&line.meta, &event)?;
            self.shadow.replay(&event, &line.meta);
        }
        self.shadow.evict(self.now);
        self.engine.evict(self.now);
        if *self.engine.state() == *self.shadow.state() { Ok(()) } else { Err("the state is not what the log says".to_owned()) }
    }

    fn release(&mut self, request: u64, upto: Lsn) -> Result<(), String> {
        self.figures.replies += 1;
        if upto > self.book.head() {
            return Err(format!("a reply tells of record {upto}, and the log ends at {}", self.book.head()));
        }
        if self.open.remove(&request) { Ok(()) } else { Err("a request gets two replies".to_owned()) }
    }

    fn reconcile(&mut self) -> Result<(), String> {
        let owed = owed(self.engine.state());
        self.jobs.retain(|work, job| {
            let is_owed = owed.binary_search(work).is_ok();
            job.cancelled |= !is_owed;
            is_owed || job.doing != Doing::Told
        });
        for work in owed {
            if self.jobs.contains_key(&work) {
                continue;
            }
            let planted = (matches!(work, Work::Call(_)) && self.make(Fault::OtherArguments)).then_some(Fault::OtherArguments);
            let mut job = World::begin(&self.engine, &self.book, &self.audit, &work, planted)?;
            if matches!(work, Work::Turn { .. }) && self.make(Fault::DropTurn) {
                job.doing = Doing::Told;
            }
            self.jobs.insert(work, job);
        }
        for work in stopping(self.engine.state()) {
            if !self.jobs.contains_key(&work) {
                let command = self.never_begun(work);
                if !self.line.iter().any(|item| item.from == From::Work && item.command_is(&command)) {
                    self.line.push_back(Item { command, from: From::Work });
                }
            }
        }
        Ok(())
    }

    /// What is to stop and was never begun says so, for nobody else can.
    fn never_begun(&mut self, work: Work) -> Command {
        match work {
            Work::Turn { run, epoch } => {
                let answer = Box::new(words::stopped(&mut self.dice));
                Command::Run(run::Command::Answered { run, epoch, answer })
            }
            Work::Call(call) => {
                Command::Call(call::Command::Ended { call, progress: Progress::NotBegun("stopped before it began".into()) })
            }
            Work::Compact { session, epoch } => {
                Command::Session(session, session::Command::Compacted { epoch, outcome: Compacted::Aborted })
            }
        }
    }

    /// What an answer must come to, told from the log alone.
    fn expected(&self, command: &Command) -> Option<Result<gate::Resolution, AnswerRefusal>> {
        let Command::Gate(gate::Command::Answer { gate: id, key, .. }) = command else { return None };
        let Some(gate) = self.engine.state().gate(*id) else { return Some(Err(AnswerRefusal::Unknown(*id))) };
        let gate::Phase::Resolved { resolution, by, key: first, .. } = gate.phase() else { return None };
        if key.is_some() && key == first {
            return Some(Ok(resolution.clone()));
        }
        Some(Err(AnswerRefusal::AlreadyResolved { gate: *id, resolution: resolution.clone(), by: by.clone() }))
    }

    /// The mistake of an owner that lets the last answer win.
    fn resolved_again(&mut self, id: GateId) -> Recorded {
        let resolution = gate::Resolution::Allowed { scope: gate::Scope::Once };
        let event = Event::Gate(gate::Event::Resolved { gate: id, resolution, by: None, key: None });
        let session = self.engine.state().gate(id).and_then(|gate| gate.session().cloned());
        let meta = Meta { lsn: self.engine.state().head().next(), at: self.engine.state().at(), session: session.clone() };
        self.engine.replay(&event, &meta);
        Recorded { meta, fact: Fact { event, session, content: None } }
    }

    /// A process that opened the log now would have this very state, and what is admitted beside it.
    fn same_as_the_log(&mut self) -> Result<(), String> {
        let mut again = self.book.replay(self.rules.clone())?;
        again.evict(self.now);
        self.engine.evict(self.now);
        let live = &self.engine;
        if *again.state() != *live.state() {
            return Err("a replay gives another state".to_owned());
        }
        if *again.admitted() != *live.admitted() {
            return Err(format!("a replay admits something else: {:?} is not {:?}", again.admitted(), live.admitted()));
        }
        self.world.confirm(&self.audit)
    }

    /// Lets everything come to rest: nobody asks for anything more, and what is in flight ends.
    pub(super) fn rest(&mut self) -> Result<(), String> {
        self.tell(|| "-- everything comes to rest".to_owned());
        for _ in 0..3_000 {
            self.batch(64, Mishap::None)?;
            let open: Vec<Work> =
                self.jobs.iter().filter(|(_, job)| job.doing != Doing::Told).map(|(work, _)| work.clone()).collect();
            for work in &open {
                self.go_on(work)?;
            }
            if !open.is_empty() || !self.line.is_empty() || self.engine.is_unsettled() {
                continue;
            }
            self.is_at_rest()?;
            let Some(at) = self.engine.state().next_deadline() else { return self.is_done() };
            self.now = self.now.max(at);
        }
        Err("it does not come to rest".to_owned())
    }

    /// Nothing is in flight: every run waits for a person or for a time.
    fn is_at_rest(&self) -> Result<(), String> {
        let state = self.engine.state();
        for run in state.runs() {
            let waits_for_person = run.calls().iter().any(|call| state.gate_of(*call).is_some_and(gate::Gate::is_pending));
            let waits = match run.phase() {
                run::Phase::Calling => waits_for_person,
                run::Phase::Backoff { .. } => true,
                run::Phase::Opening | run::Phase::Thinking { .. } | run::Phase::Between | run::Phase::Ended(_) => false,
            };
            if !waits {
                return Err(format!("{} is forgotten: {run:?}", run.id()));
            }
        }
        match state.sessions().find(|session| session.compaction().is_some() || session.commands().next().is_some()) {
            Some(session) => Err(format!("work in {} is forgotten", session.id())),
            None => Ok(()),
        }
    }

    fn is_done(&mut self) -> Result<(), String> {
        if let Some(run) = self.engine.state().runs().next() {
            return Err(format!("{} waits for nothing that has a deadline", run.id()));
        }
        if !self.open.is_empty() {
            return Err(format!("{} requests have no reply", self.open.len()));
        }
        if !self.has_waited && self.audit.waiting(Queue::Prompt) > 0 {
            return Err("a prompt that was taken is forgotten".to_owned());
        }
        self.same_as_the_log()
    }
}

impl Item {
    fn command_is(&self, other: &Command) -> bool {
        match (&self.command, other) {
            (Command::Run(run::Command::Answered { run, epoch, .. }), Command::Run(run::Command::Answered { run: of, epoch: at, .. })) => {
                run == of && epoch == at
            }
            (Command::Call(call::Command::Ended { call, .. }), Command::Call(call::Command::Ended { call: of, .. })) => call == of,
            (
                Command::Session(session, session::Command::Compacted { epoch, .. }),
                Command::Session(of, session::Command::Compacted { epoch: at, .. }),
            ) => session == of && epoch == at,
            _ => false,
        }
    }
}

fn fits(
    expected: &Option<Result<gate::Resolution, AnswerRefusal>>,
    outcome: &Result<(Vec<Recorded>, Reply), Refusal>,
) -> Result<(), String> {
    let holds = match (expected, outcome) {
        (None, _) => true,
        (Some(Ok(resolution)), Ok((facts, Reply::Resolved(got)))) => facts.is_empty() && got == resolution,
        (Some(Err(refusal)), Err(Refusal::Answer(got))) => got == refusal,
        (Some(_), _) => false,
    };
    if holds { Ok(()) } else { Err(format!("a late answer came to {outcome:?} and not to {expected:?}")) }
}
