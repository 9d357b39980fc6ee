//! Puts the machines together: one command in, facts and a reply out, then the settle rules to their fixed point.
//!
//! Everything is pure: the same state, command, time and seed give the same facts. Whoever owns an [`Engine`] writes
//! its facts to a log before anything leaves.

mod admitted;
mod command;
mod decide;
mod event;
mod rules;
mod state;
pub(crate) mod texts;
mod tree;

use std::collections::BTreeSet;

pub use admitted::Admitted;
pub use command::{Command, Refusal, Reply, Resume};
pub use event::{Decode, Event, Fact, Meta};
pub use rules::Rules;
pub use state::State;

pub(crate) use decide::compaction_started;
pub(crate) use tree::Branch;

use crate::{
    id::{Fresh, Lsn, SessionId},
    policy, settle,
    time::Millis,
};

/// How many facts one command and what follows from it may put into one batch. What is left goes on in the next.
const MOST_FACTS: usize = 1024;

/// What a decision may use beside the state: the time and ids, handed in.
#[derive(Clone, Debug)]
pub struct Context {
    /// The time.
    pub now: Millis,
    /// Where ids come from.
    pub fresh: Fresh,
}

/// What decisions read.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) state: &'a State,
    pub(crate) admitted: &'a Admitted,
    pub(crate) rules: &'a Rules,
    /// True once nothing new may begin in this process.
    pub(crate) closing: bool,
}

/// What a decider gives back.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) facts: Vec<Fact>,
    pub(crate) reply: Reply,
}

/// A fact with its place in the log, ready to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Its place.
    pub meta: Meta,
    /// What happened.
    pub fact: Fact,
}

/// State, what is admitted beside it, and the rules in force.
#[derive(Clone, Debug)]
pub struct Engine {
    state: State,
    admitted: Admitted,
    rules: Rules,
    closing: bool,
    /// Sessions in which a settle rule may have something to say.
    touched: BTreeSet<SessionId>,
}

impl Engine {
    /// An engine before the first fact.
    pub fn new(rules: Rules) -> Self {
        Self { state: State::default(), admitted: Admitted::default(), rules, closing: false, touched: BTreeSet::new() }
    }

    /// The state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// What is admitted beside the state.
    pub fn admitted(&self) -> &Admitted {
        &self.admitted
    }

    /// The rules in force.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Folds a fact of the log in, before [`Command::Recover`].
    pub fn replay(&mut self, event: &Event, meta: &Meta) {
        self.admitted.forget(event);
        self.state.apply(event, meta);
        // The last process may have died, or a batch may have been full, before the rules had said all.
        if let Some(session) = meta.session.as_ref().filter(|session| !self.touched.contains(*session)) {
            self.touched.insert(session.clone());
        }
    }

    /// The positions whose content has to be [admitted](Engine::admit) before recovery.
    pub fn wants_admitted(&self) -> Vec<Lsn> {
        self.state.unsettled_content()
    }

    /// Takes the content of a gate that waits or of a call that has not started.
    ///
    /// # Errors
    /// The JSON error, where the content is not what its record says.
    pub fn admit(&mut self, lsn: Lsn, content: &str) -> Result<(), serde_json::Error> {
        self.admitted.restore(&self.state, lsn, content)
    }

    /// Decides one command and everything that follows from it, and folds the facts in.
    ///
    /// # Errors
    /// Why the command was refused. Nothing has changed then.
    pub fn handle(&mut self, command: Command, context: &mut Context) -> Result<(Vec<Recorded>, Reply), Refusal> {
        if let Command::UseRules(rules) = command {
            self.rules = *rules;
            let fact = Fact::plain(Event::Policy(policy::Event::Compiled { digest: self.rules.digest() }), None);
            let mut batch = Vec::new();
            if self.state.policy().digest() != Some(self.rules.digest()) {
                self.record(fact, context.now, &mut batch);
            }
            return Ok((batch, Reply::Done));
        }
        if matches!(command, Command::Tick) {
            self.touched.extend(self.state.due(context.now));
            return Ok((self.settle(context), Reply::Done));
        }
        let view = View { state: &self.state, admitted: &self.admitted, rules: &self.rules, closing: self.closing };
        let Decision { facts, reply } = decide::decide(view, command, context)?;
        let mut batch = Vec::with_capacity(facts.len());
        for fact in facts {
            self.record(fact, context.now, &mut batch);
        }
        batch.extend(self.settle(context));
        Ok((batch, reply))
    }

    /// Whether rules may have more to say than fitted into the last batch.
    pub fn is_unsettled(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Runs the settle rules to their fixed point, or to the most facts that one batch may hold.
    pub fn settle(&mut self, context: &mut Context) -> Vec<Recorded> {
        let mut batch = Vec::new();
        while let Some(session) = self.touched.pop_first() {
            loop {
                if batch.len() >= MOST_FACTS {
                    self.touched.insert(session);
                    return batch;
                }
                let view =
                    View { state: &self.state, admitted: &self.admitted, rules: &self.rules, closing: self.closing };
                let Some(facts) = settle::next(view, &session, context) else { break };
                for fact in facts {
                    self.record(fact, context.now, &mut batch);
                }
            }
            self.touched.remove(&session);
        }
        batch
    }

    /// Lets nothing new begin in this process: no call starts and no model is asked. What was decided stays owed to the
    /// next.
    pub fn quiesce(&mut self) {
        self.closing = true;
    }

    /// Forgets what needs no longer be at hand.
    pub fn evict(&mut self, now: Millis) {
        self.state.evict(now);
    }

    fn record(&mut self, fact: Fact, now: Millis, batch: &mut Vec<Recorded>) {
        let meta = Meta { lsn: self.state.head().next(), at: now.max(self.state.at()), session: fact.session.clone() };
        self.admitted.forget(&fact.event);
        self.state.apply(&fact.event, &meta);
        if let Some(content) = &fact.content {
            self.admitted.take(&fact.event, content);
        }
        self.touched.extend(fact.session.clone());
        batch.push(Recorded { meta, fact });
    }
}
