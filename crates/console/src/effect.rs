//! What a rule or a grant would have done to the calls in the record.

use std::sync::Arc;

use countersign_core::{
    engine::{ActiveRules, Engine},
    id::{GateId, PrincipalId},
    policy::{
        self, Constraints, Grant, GrantAuth, GrantCoverage, GrantId, GrantProposal, GrantSet, PolicyLayers,
        PolicySubject, evaluate,
    },
    time::Millis,
};
use countersign_policy_admin::explained::verdict_action;
use countersign_runtime::InboxLane;
use maud::{Markup, html};

use super::{
    Console,
    history::{Made, Verdict},
    page::Trouble,
    words::{counted, one},
};

/// How many calls are named as examples.
const EXAMPLES: usize = 8;

/// How many of the recorded calls become what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) allowed: u64,
    pub(super) asked: u64,
    pub(super) denied: u64,
}

impl Sums {
    pub(super) fn add(&mut self, action: policy::RuleAction) {
        match action {
            policy::RuleAction::Allow => self.allowed += 1,
            policy::RuleAction::Ask => self.asked += 1,
            policy::RuleAction::Deny => self.denied += 1,
        }
    }

    fn all(&self) -> u64 {
        self.allowed + self.asked + self.denied
    }
}

/// What would be otherwise.
#[derive(Clone, Debug, Default)]
pub(super) struct Effect {
    pub(super) now: Sums,
    pub(super) then: Sums,
    /// Calls of which something else would become, the newest first.
    pub(super) changed: Vec<(Made, policy::RuleAction, policy::RuleAction)>,
    pub(super) changes: u64,
    /// How many of those that would be allowed a person denied.
    pub(super) against: u64,
}

/// Rules and grants to decide by.
pub(super) struct Law {
    pub(super) rules: ActiveRules,
    pub(super) grants: GrantSet,
}

impl Law {
    /// What is in force.
    pub(super) fn of(engine: &Engine) -> Self {
        Self { rules: engine.rules().clone(), grants: engine.state().policy().grants().clone() }
    }

    /// The same grants under other rules.
    pub(super) fn under(&self, rules: ActiveRules) -> Self {
        Self { rules, grants: self.grants.clone() }
    }

    /// The same with one grant more.
    fn with(&self, grant: Grant) -> Self {
        let mut state = policy::State::default();
        for known in self.grants.iter().cloned().chain([grant]) {
            state.apply(&policy::Event::Granted(known));
        }
        Self { rules: self.rules.clone(), grants: state.grants().clone() }
    }

    fn action(&self, subject: &PolicySubject, now: Millis) -> policy::RuleAction {
        verdict_action(&self.verdict(subject, now))
    }

    /// What becomes of a call, whatever people denied.
    pub(super) fn verdict(&self, subject: &PolicySubject, now: Millis) -> policy::Verdict {
        let layers = PolicyLayers {
            compiled: &self.rules.compiled,
            // What somebody denied a while ago says nothing about a rule.
            constraints: &Constraints::default(),
            contract: None,
            grants: &self.grants,
            default_policy: self.rules.default_policy,
            path_context: &self.rules.path_context,
        };
        evaluate(&layers, subject, now)
    }
}

/// Decides about each of `calls` by both laws.
pub(super) fn between(now: &Law, then: &Law, calls: &[Made], at: Millis) -> Effect {
    let mut effect = Effect::default();
    for made in calls.iter().rev() {
        let Some(subject) = &made.subject else { continue };
        let (before, after) = (now.action(subject, at), then.action(subject, at));
        effect.now.add(before);
        effect.then.add(after);
        if before != after {
            effect.changes += 1;
            effect.against += u64::from(after == policy::RuleAction::Allow && made.verdict == Verdict::RefusedByPerson);
            if effect.changed.len() < EXAMPLES {
                effect.changed.push((made.clone(), before, after));
            }
        }
    }
    effect
}

/// Something that may be allowed for longer, and what it would have done.
pub(super) struct Offered {
    pub(super) pattern: Option<String>,
    pub(super) effect: Effect,
}

/// What is proposed for a gate that waits, each with its effect on what the same asker did with the same tool.
pub(super) async fn of_proposals(console: &Console, gate: GateId) -> Result<Vec<Offered>, Trouble> {
    let read = move |engine: &Engine| {
        let gate = engine.state().gate(gate)?;
        let content = engine.admitted().call_content(gate.call()?)?;
        let to = content.request.as_ref().map_or_else(|| PrincipalId::new("agent"), |asked| asked.principal.clone());
        let tool = Arc::clone(&content.tool);
        Some((engine.grant_proposals(gate), Law::of(engine), to, tool))
    };
    let read = console.context.handle.source(InboxLane::Request).read_state(read).await.ok_or_else(Trouble::closing)?.0;
    let Some((proposals, law, to, tool)) = read else { return Ok(Vec::new()) };
    let past = console.history.upto_now(&console.context.handle).await.map_err(Trouble::unread)?;
    let fits = |made: &&Made| {
        made.verdict != Verdict::Open && made.tool == tool && made.subject.as_ref().is_some_and(|it| it.principal == to)
    };
    let calls: Vec<Made> = past.calls().filter(fits).cloned().collect();
    drop(past);
    let at = console.context.clock.now();
    let reckon = move || {
        let offered = |proposal: GrantProposal| {
            let grant = grant(&proposal, &to);
            let effect = between(&law, &law.with(grant), &calls, at);
            let pattern = match proposal.covers {
                GrantCoverage::Pattern(pattern) => Some(pattern),
                GrantCoverage::Exact(_) => None,
            };
            Offered { pattern, effect }
        };
        proposals.into_iter().map(offered).collect()
    };
    tokio::task::spawn_blocking(reckon).await.map_err(Trouble::unread)
}

/// The grant that a proposal would become, for trying it.
fn grant(proposal: &GrantProposal, to: &PrincipalId) -> Grant {
    Grant {
        id: GrantId::parse(&"f".repeat(32)).expect("it is 32 hex digits"),
        by: PrincipalId::new("nobody"),
        to: to.clone(),
        scope: policy::GrantReach::Always,
        covers: proposal.covers.clone(),
        label: proposal.label.clone(),
        until: None,
        door: GrantAuth::Open,
    }
}

impl Offered {
    /// As one of the choices of a form.
    pub(super) fn choice(&self, is_first: bool) -> Markup {
        let value = self.pattern.as_ref().map_or_else(|| "exact".to_owned(), |pattern| format!("pattern:{pattern}"));
        html! {
            label.choice.offered {
                input type="radio" name="covers" value=(value) checked[is_first];
                span {
                    span.rule {
                        @match &self.pattern {
                            Some(pattern) => { "Anything like " code { (one(pattern)) } }
                            None => { "Exactly this, with these arguments" }
                        }
                    }
                    span.effect { (self.effect.sentence()) }
                }
            }
        }
    }
}

impl Effect {
    /// In one sentence.
    pub(super) fn sentence(&self) -> Markup {
        let Sums { allowed, asked, denied } = self.then;
        html! {
            @if self.now.all() == 0 { "No call like this is in the record yet." }
            @else {
                "Of " (counted(self.now.all(), "recorded call")) " it would have "
                strong { "allowed " (allowed) } ", asked " (asked) ", denied " (denied)
                @if self.changes == 0 { ", as the rules do now." }
                @else { "; the rules now allow " (self.now.allowed) ", ask " (self.now.asked) ", deny " (self.now.denied) "." }
                @if self.against > 0 {
                    " " strong.warn { (counted(self.against, "call")) " among those that it would allow " @if self.against == 1 { "was" } @else { "were" } " denied by a person." }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Sums;

    #[test]
    fn sums_count_each_call_once() {
        let mut sums = Sums::default();
        for action in
            [super::policy::RuleAction::Allow, super::policy::RuleAction::Ask, super::policy::RuleAction::Allow]
        {
            sums.add(action);
        }
        assert_eq!((sums, sums.all()), (Sums { allowed: 2, asked: 1, denied: 0 }, 3));
    }
}
