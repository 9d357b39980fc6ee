//! Lifecycle of a simulated process: it starts from the log, dies, or closes.
//!
//! It must not know when a process is to die: the steps and the batches plan that.

use countersign_core::{
    OwedWork, call,
    engine::{Command, DecisionContext, ResumeMode},
    id::{IdGenerator, SessionId},
};

use super::{BatchMishap, SimOwner};
use crate::sim::{
    PlantedFault, commands, hosts, rules,
    world::{SimWorld, WorkProgress},
};

impl SimOwner {
    /// Starts a new process from the durable log.
    pub(in crate::sim) fn start_process(&mut self) -> Result<(), String> {
        self.coming = None;
        self.owes_time = false;
        self.world.line = None;
        self.hosts.restart();
        if self.rng.chance(20) {
            self.rules = rules::rule_set(self.rng.below(rules::SETS));
        }
        let snapshot = self.snapshot.clone().filter(|_| self.rng.chance(50));
        self.engine = self.log.replay_engine_from(snapshot.as_ref(), self.rules.clone())?.with_bound(self.bound);
        self.now = self.now.max(self.engine.state().last_fact_at());
        let before: Vec<OwedWork> = self
            .engine
            .state()
            .calls()
            .filter(|call| matches!(call.phase(), call::CallPhase::Started { .. }))
            .map(|call| OwedWork::Call { call: call.id(), start: call.start_count() })
            .collect();
        let resume = self.rng.pick(self.resumes);
        self.has_waited |= resume == ResumeMode::Wait && self.audit.boot_number() > 0;
        let head = self.log.head_lsn();
        self.push_trace(|| format!("-- a process opens the log at {head}: {resume:?}"));
        let mut batch = Vec::new();
        for command in [Command::UseRules(Box::new(self.rules.clone())), Command::Recover(resume)] {
            batch.extend(self.handle_command(command).map_err(|refusal| format!("recovery is refused: {refusal}"))?.0);
        }
        self.append_batch(batch)?;
        if let Some(work) = before.first().cloned().filter(|_| self.plant_fault(PlantedFault::StartTwice)) {
            let job = SimWorld::begin_work(&self.engine, &self.log, &self.audit, &work, None)?;
            self.jobs.insert(work, job);
        }
        if self.audit.boot_number() == 1 {
            let comes = hosts::attach_command(&mut self.rng);
            self.push_request(comes);
            for session in commands::SESSIONS.into_iter().chain([commands::AGENT]) {
                self.push_request(commands::open_command(session));
            }
        } else if self.plant_fault(PlantedFault::RulesForHost) {
            let rules = Box::new(self.rules.clone());
            let planted = Command::UseRulesFor(SessionId::new(hosts::SESSION), rules);
            let mut context = DecisionContext { now: self.now, fresh: IdGenerator::new(self.rng.random_bytes()) };
            let planted = self.engine.handle_command(planted, &mut context);
            self.append_batch(planted.map(|(facts, _)| facts).unwrap_or_default())?;
        }
        self.reconcile()
    }

    pub(super) fn crash_process(&mut self, how: &str) -> Result<(), String> {
        self.push_trace(|| format!("-- the process dies {how}"));
        self.stats.crashes += 1;
        self.jobs.clear();
        self.line.clear();
        // The waiters get the end of their connections.
        self.open.clear();
        self.start_process()
    }

    /// Closes the process normally: nothing new begins, and work in flight is stopped and reports that.
    pub(super) fn close_process(&mut self) -> Result<(), String> {
        self.push_trace(|| "-- the process closes".to_owned());
        self.engine.quiesce();
        for _ in 0..20 {
            for work in self.jobs.keys().cloned().collect::<Vec<_>>() {
                if let Some(job) = self.jobs.get_mut(&work).filter(|job| job.doing != WorkProgress::Reported) {
                    job.cancelled = true;
                    self.advance_work(&work)?;
                }
            }
            self.run_batch(64, BatchMishap::None)?;
        }
        self.crash_process("after a clean shutdown")
    }
}
