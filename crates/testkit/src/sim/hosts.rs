//! Hosts that bring the rules of their sessions, and the invariants while those are away.
//!
//! It must not know the engine: the commands and the log suffice.

use std::collections::{BTreeMap, BTreeSet};

use countersign_core::{
    call,
    digest::Digest,
    engine::{ActiveRules, Command, Event, FactMeta},
    id::SessionId,
    policy::PathContext,
    run, session,
};

use super::{rng::SimRng, rules};

/// Session whose rules its host brings.
pub(super) const SESSION: &str = "h1";

/// Rules that hosts brought to this process.
#[derive(Clone, Debug, Default)]
pub(super) struct HostRulesAudit {
    brought: BTreeSet<Digest>,
    /// True if rules were brought and not withdrawn since.
    pub(super) is_there: bool,
    recorded: BTreeMap<SessionId, Digest>,
}

/// Attaches a host with rules to its session.
pub(super) fn attach_command(rng: &mut SimRng) -> Command {
    Command::UseRulesFor(SessionId::new(SESSION), Box::new(random_rules(rng)))
}

fn random_rules(rng: &mut SimRng) -> ActiveRules {
    let rules = rules::rule_set(rng.below(rules::SETS));
    let realm = Some(rng.pick(&["/a", "/b"]).to_owned());
    ActiveRules { path_context: PathContext { realm, ..rules.path_context }, ..rules }
}

impl HostRulesAudit {
    /// Forgets everything that was brought to the process before.
    pub(super) fn restart(&mut self) {
        self.brought.clear();
        self.is_there = false;
    }

    /// Notes a command that this process took.
    pub(super) fn record_command(&mut self, command: &Command) {
        match command {
            Command::UseRulesFor(_, rules) => {
                self.brought.insert(rules.digest_of_all());
                self.is_there = true;
            }
            Command::Leave(_) => self.is_there = false,
            _ => {}
        }
    }

    /// Checks one fact: in a session with a host each verdict, start and gate needs rules that it brought to
    /// this process.
    pub(super) fn read_record(&mut self, meta: &FactMeta, event: &Event) -> Result<(), String> {
        let Some(session) = &meta.session else { return Ok(()) };
        if let Event::Session(session::Event::Hosted { rules, .. }) = event {
            self.recorded.insert(session.clone(), *rules);
        }
        let needs_rules = match event {
            Event::Call(event) => {
                matches!(event, call::Event::Allowed { .. } | call::Event::Gated { .. } | call::Event::Started { .. })
            }
            Event::Run(event) => matches!(event, run::Event::ModelRequested { .. }),
            Event::Session(event) => matches!(event, session::Event::CompactionStarted { .. }),
            Event::Booted
            | Event::Gate(_)
            | Event::Peer(_)
            | Event::Channel(_)
            | Event::Policy(_)
            | Event::Settings(_)
            | Event::Unattended(_)
            | Event::Schedule(_) => false,
        };
        match self.recorded.get(session).filter(|_| needs_rules) {
            Some(rules) if !self.brought.contains(rules) => {
                Err(format!("{session} continues without the rules of its host: {event:?}"))
            }
            Some(_) | None => Ok(()),
        }
    }
}
