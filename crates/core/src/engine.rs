//! Connects the machines: one command in, facts and a reply out, then the settle rules to their fixed point.
//!
//! Everything is pure: the same state, command, time and seed give the same facts. The owner of an [`Engine`] writes
//! its facts to a log before anything leaves.

mod decide;

use std::{collections::BTreeSet, time::Duration};

pub use crate::decision::{
    ActiveRules, AdmittedContent, Command, CommandError, DecisionContext, EngineReply, Event, EventDecodeError, Fact,
    FactMeta, ParsedContents, ResidencyScope, ResumeMode, SNAPSHOT_VERSION, State, WantedContents,
};

use crate::{
    call, call_subject,
    decision::{DecisionResult, DecisionView, FetchTimes, HostedRules, scope_of},
    gate::{self, Gate},
    id::{Lsn, SessionId},
    policy::{self, GrantProposal},
    session::{self, Session},
    settle,
    time::Millis,
};

/// Maximum number of facts that one command and its consequences may put into one batch. The rest follows in the next.
const MOST_FACTS: usize = 1024;

/// Minimum time between two checks for state that may be unloaded.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// A fact with its position in the log, ready to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedFact {
    /// Its position.
    pub meta: FactMeta,
    /// The fact.
    pub fact: Fact,
}

/// State, the admitted content, and the rules in force.
///
/// # Example
///
/// ```
/// # use countersign_core::{gate::IdentityMap, policy::{CompiledRules, DefaultPolicy, PathContext}};
/// use countersign_core::engine::{ActiveRules, Command, DecisionContext, Engine, EngineReply, ResumeMode};
/// use countersign_core::{id::{IdGenerator, SessionId}, session, time::Millis};
///
/// # let rules = ActiveRules {
/// #     compiled: CompiledRules::default(),
/// #     default_policy: DefaultPolicy::Gateway,
/// #     path_context: PathContext::default(),
/// #     people: IdentityMap::default(),
/// # };
/// let mut engine = Engine::new(rules.clone());
/// let mut context = DecisionContext { now: Millis(1_000), fresh: IdGenerator::new([7; 16]) };
/// let (mut log, _) = engine.handle_command(Command::Recover(ResumeMode::Go), &mut context)?;
///
/// let (cwd, settings) = ("/home/ana".to_owned(), Box::default());
/// let open = session::Command::Open { cwd, name: None, parent: None, door: None, settings };
/// let (facts, reply) = engine.handle_command(Command::Session(SessionId::new("s1"), open), &mut context)?;
/// assert_eq!(reply, EngineReply::Done);
/// log.extend(facts);
///
/// // A later process replays the facts, not the commands, and gets the same state.
/// let mut replayed = Engine::new(rules);
/// for recorded in &log {
///     replayed.replay_fact(&recorded.fact.event, &recorded.meta);
/// }
/// assert_eq!(replayed.state(), engine.state());
/// # Ok::<(), countersign_core::engine::CommandError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    state: State,
    admitted: AdmittedContent,
    rules: ActiveRules,
    guests: HostedRules,
    closing: bool,
    /// True if this process has recovered the work of the last one.
    recovered: bool,
    durable: Lsn,
    /// Sessions in which a settle rule may have work.
    touched: BTreeSet<SessionId>,
    /// Sessions in which a call was let through its gate by a record that may not be durable yet.
    let_through: BTreeSet<SessionId>,
    fetched: FetchTimes,
    /// Times of the next checks for gates, and for sessions, that may be unloaded.
    look_after: [Millis; 2],
    /// Maximum number of facts in one batch.
    most: usize,
}

impl Engine {
    /// Creates an engine before the first fact.
    pub fn new(rules: ActiveRules) -> Self {
        Self {
            state: State::default(),
            admitted: AdmittedContent::default(),
            rules,
            guests: HostedRules::default(),
            closing: false,
            recovered: false,
            durable: Lsn(0),
            touched: BTreeSet::new(),
            let_through: BTreeSet::new(),
            fetched: FetchTimes::default(),
            look_after: [Millis(0); 2],
            most: MOST_FACTS,
        }
    }

    /// Returns the same with another bound on the facts that one command and its consequences put into a batch. The facts of
    /// the command and those of one rule are not cut.
    #[must_use]
    pub fn with_bound(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// Creates an engine with the state of a snapshot, to be brought up to the log with [`Engine::replay_fact`].
    ///
    /// # Errors
    /// The JSON error, if the text is no snapshot of this version. The log makes the same state.
    pub fn from_snapshot(rules: ActiveRules, snapshot: &str) -> Result<Self, serde_json::Error> {
        let state = State::from_snapshot(snapshot)?;
        let requests = state.calls().map(|call| call.session().clone());
        let waits = state.sessions().filter(|session| session.queued_count() > 0).map(|session| session.id().clone());
        let fired = state.schedule().sessions().cloned();
        let touched = state.runs().map(|run| run.session().clone()).chain(requests).chain(waits).chain(fired).collect();
        Ok(Self { state, touched, ..Self::new(rules) })
    }

    /// Returns the state as a text that a later process can begin with.
    pub fn to_snapshot(&self) -> String {
        self.state.to_snapshot()
    }

    /// Carries over the process-local data of `before`, when the state was rebuilt from the log.
    #[must_use]
    pub fn in_place_of(mut self, before: &Self) -> Self {
        self.guests = before.guests.clone();
        self.closing = before.closing;
        self.recovered = before.recovered;
        self.most = before.most;
        self
    }

    /// Returns the state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Returns the sessions in which work would continue if their hosts brought their rules, which are not loaded here.
    pub fn waiting_for_hosts(&self) -> impl Iterator<Item = &Session> {
        let view = self.decision_view();
        let owes = |session: &Session| !session.is_at_rest() || session.queued_count() > 0;
        self.state.sessions().filter(move |session| view.for_session(session).is_none() && owes(session))
    }

    /// Returns the admitted content.
    pub fn admitted(&self) -> &AdmittedContent {
        &self.admitted
    }

    /// Returns the grants that a pending gate offers: exactly the action that it shows, then rules that cover more. Empty if
    /// it offers only a single approval.
    pub fn grant_proposals(&self, gate: &Gate) -> Vec<GrantProposal> {
        let subject = call_subject::subject_of_gate(self.decision_view(), gate);
        let offers_more = gate.is_pending() && gate.scopes().iter().any(|scope| *scope != gate::ApprovalScope::Once);
        subject.filter(|_| offers_more).map(|subject| policy::propose_grants(&subject)).unwrap_or_default()
    }

    /// Returns the reason for which rules, the floor or a denial now forbid a request that an earlier decision allowed. None if nothing
    /// forbids it.
    pub fn denial_now(&self, request: call::AgentRequest, now: Millis) -> Option<String> {
        decide::denial_now(self.decision_view(), request, now)
    }

    /// Returns the rules in force.
    pub fn rules(&self) -> &ActiveRules {
        &self.rules
    }

    /// Reports whether a session waits until its host brings its rules.
    pub fn waits_for_host(&self, session: &Session) -> bool {
        self.decision_view().for_session(session).is_none()
    }

    /// Applies a fact of the log, before [`Command::Recover`]. The data of its session has to be loaded, see
    /// [`Engine::needs_fetch`].
    pub fn replay_fact(&mut self, event: &Event, meta: &FactMeta) {
        self.fold_fact(event, meta);
        // The last process may have died, or a batch may have been full, before the rules had added all facts.
        if let Some(session) = meta.session.as_ref().filter(|session| !self.touched.contains(*session)) {
            self.touched.insert(session.clone());
        }
    }

    /// Returns the positions whose content has to be [admitted](Engine::admit_content) before recovery.
    pub fn wants_admitted(&self) -> Vec<Lsn> {
        self.wanted_contents().lsns()
    }

    /// Returns the same with what each content belongs to, to [parse](WantedContents::parse_contents) and
    /// [admit](Engine::admit_parsed) them in parts.
    pub fn wanted_contents(&self) -> WantedContents {
        WantedContents::from_state(&self.state)
    }

    /// Admits contents of pending gates and of calls that have not ended, each with its position.
    ///
    /// # Errors
    /// The position of the first content that does not match its record, and the JSON error.
    pub fn admit_content<T: AsRef<str>>(
        &mut self,
        contents: impl IntoIterator<Item = (Lsn, T)>,
    ) -> Result<(), (Lsn, serde_json::Error)> {
        let parsed = self.wanted_contents().parse_contents(contents)?;
        self.admit_parsed(parsed);
        Ok(())
    }

    /// Admits some of the wanted contents.
    pub fn admit_parsed(&mut self, parsed: ParsedContents) {
        self.admitted.admit_parsed(&self.state, parsed);
    }

    /// Records that everything up to `head` is durable. A call that a person let through its gate starts only after that: a
    /// crash in between then finds it decided and not started, and it is run once.
    pub fn mark_durable(&mut self, head: Lsn) {
        self.durable = head;
        self.touched.append(&mut self.let_through);
    }

    /// Returns the scope that has to be loaded when `command` is decided.
    pub fn scope_of(&self, command: &Command) -> Option<ResidencyScope> {
        scope_of(command)
    }

    /// Reports whether `scope` may be in the log, is not loaded, and so has to be [fetched](Engine::fetch_scope) before anything is
    /// decided or read of it.
    pub fn needs_fetch(&self, scope: &ResidencyScope) -> bool {
        self.state.needs_fetch(scope)
    }

    /// Loads `scope` from its records in the log, all of them and in order.
    pub fn fetch_scope(
        &mut self,
        scope: &ResidencyScope,
        records: impl IntoIterator<Item = (Event, FactMeta)>,
        now: Millis,
    ) {
        self.state.fetch_records(scope, records);
        self.fetched.note_fetch(scope, now);
    }

    /// Decides one command and everything that follows from it, and applies the facts.
    ///
    /// # Errors
    /// Why the command was refused. Nothing has changed then.
    pub fn handle_command(
        &mut self,
        command: Command,
        context: &mut DecisionContext,
    ) -> Result<(Vec<RecordedFact>, EngineReply), CommandError> {
        if let Command::UseRules(rules) = command {
            self.rules = *rules;
            let fact =
                Fact::without_content(Event::Policy(policy::Event::Compiled { digest: self.rules.digest() }), None);
            let mut batch = Vec::new();
            if self.state.policy().digest() != Some(self.rules.digest()) {
                self.record_fact(fact, context.now, &mut batch);
            }
            return Ok((batch, EngineReply::Done));
        }
        if let Command::UseRulesFor(session, rules) = command {
            return self.use_rules_for(session, *rules, context);
        }
        if let Command::Leave(session) = command {
            if self.state.session(&session).is_some_and(|session| !session.is_at_rest()) {
                return Err(CommandError::Busy(session));
            }
            self.guests.remove_rules(&session);
            return Ok((Vec::new(), EngineReply::Done));
        }
        if matches!(command, Command::Tick) {
            self.touched.extend(self.state.sessions_due(context.now));
            let mut batch = Vec::new();
            if self.state.policy().is_untidy(context.now) {
                let tidied = policy::Event::Tidied { at: context.now };
                self.record_fact(Fact::without_content(Event::Policy(tidied), None), context.now, &mut batch);
            }
            for fired in self.state.schedule().due_events(context.now) {
                self.record_fact(Fact::without_content(Event::Schedule(fired), None), context.now, &mut batch);
            }
            self.settle_into(&mut batch, context);
            return Ok((batch, EngineReply::Done));
        }
        if matches!(command, Command::Recover(_)) && std::mem::replace(&mut self.recovered, true) {
            return Err(CommandError::OutOfPlace("a process recovers once"));
        }
        let DecisionResult { facts, reply } = decide::decide_command(self.decision_view(), command, context)?;
        let mut batch = Vec::with_capacity(facts.len());
        for fact in facts {
            self.record_fact(fact, context.now, &mut batch);
        }
        self.settle_into(&mut batch, context);
        Ok((batch, reply))
    }

    fn use_rules_for(
        &mut self,
        session: SessionId,
        rules: ActiveRules,
        context: &mut DecisionContext,
    ) -> Result<(Vec<RecordedFact>, EngineReply), CommandError> {
        let hosted = self.state.session(&session).map(Session::hosted_state);
        if hosted.is_some_and(|hosted| hosted.is_none()) {
            return Err(CommandError::OutOfPlace("the session has the rules of this process"));
        }
        let realm = rules.path_context.realm.clone().unwrap_or_default();
        let digest = self.guests.insert_rules(session.clone(), rules);
        let mut batch = Vec::new();
        if let Some(hosted) = hosted.flatten() {
            if hosted.rules != digest || hosted.realm != realm {
                let event = Event::Session(session::Event::Hosted { realm, rules: digest });
                self.record_fact(Fact::without_content(event, Some(session.clone())), context.now, &mut batch);
            }
            self.touched.insert(session);
            self.settle_into(&mut batch, context);
        }
        Ok((batch, EngineReply::Done))
    }

    /// Reports whether rules may have more facts than fitted into the last batch.
    pub fn is_unsettled(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Runs the settle rules to their fixed point, or to the maximum number of facts in one batch.
    pub fn settle(&mut self, context: &mut DecisionContext) -> Vec<RecordedFact> {
        let mut batch = Vec::new();
        self.settle_into(&mut batch, context);
        batch
    }

    fn settle_into(&mut self, batch: &mut Vec<RecordedFact>, context: &mut DecisionContext) {
        while let Some(session) = self.touched.pop_first() {
            while let Some(facts) = settle::next_facts(self.decision_view(), &session, context) {
                // The facts of one rule stay together, so that the rest can still be derived.
                if !batch.is_empty() && batch.len() + facts.len() > self.most {
                    self.touched.insert(session);
                    return;
                }
                for fact in facts {
                    self.record_fact(fact, context.now, batch);
                }
            }
            self.touched.remove(&session);
        }
    }

    /// Lets nothing new begin in this process: no call starts and no model request is sent. Decided work stays owed to the
    /// next.
    pub fn quiesce(&mut self) {
        self.closing = true;
    }

    /// Unloads state that only the log has to keep: gates resolved a while ago, and with `idle` the sessions in which nothing
    /// works, waits or has happened for so long. It visits all of them, and therefore runs at intervals.
    pub fn evict_idle(&mut self, now: Millis, idle: Option<Duration>) {
        let [gates, sessions] = &mut self.look_after;
        if now >= *gates {
            *gates = now + LOOK_EVERY;
            self.state.evict_gates(now);
            self.admitted.forget_gates(&self.state);
        }
        if let Some(idle) = idle.filter(|_| now >= *sessions) {
            *sessions = now + (idle / 10).min(LOOK_EVERY);
            self.state.park_sessions(now, idle, &self.guests, &mut self.fetched);
        }
    }

    fn decision_view(&self) -> DecisionView<'_> {
        DecisionView {
            state: &self.state,
            admitted: &self.admitted,
            rules: &self.rules,
            hosted_rules: &self.guests,
            closing: self.closing,
            durable: self.durable,
        }
    }

    /// Applies one fact, decided or read.
    fn fold_fact(&mut self, event: &Event, meta: &FactMeta) {
        self.admitted.forget_after(&self.state, event);
        self.state.apply(event, meta);
        if let Event::Call(call::Event::Allowed { call, .. }) = event
            && self.state.call(*call).is_some_and(|call| call.let_through == Some(meta.lsn))
        {
            self.let_through.extend(meta.session.clone());
        }
        if let Event::Peer(event) = event {
            self.touched.extend(self.state.waiting_for(event.peer()).cloned());
        }
        // A change of grants may matter for any pending gate.
        if matches!(event, Event::Policy(_)) {
            self.touched.extend(self.state.sessions_with_pending_gates());
        }
    }

    fn record_fact(&mut self, fact: Fact, now: Millis, batch: &mut Vec<RecordedFact>) {
        let meta = FactMeta {
            lsn: self.state.head_lsn().next(),
            at: now.max(self.state.last_fact_at()),
            session: fact.session.clone(),
        };
        self.fold_fact(&fact.event, &meta);
        if let Some(content) = &fact.content {
            self.admitted.admit_content(&fact.event, content);
        }
        self.touched.extend(fact.session.clone());
        batch.push(RecordedFact { meta, fact });
    }
}
