//! Effect of a rule or a grant on the calls in the record.

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
    ConsoleState,
    history::{CallVerdict, PastCall},
    labels::{count_text, escape_line},
    page::PageError,
};

/// Most calls that are listed as examples.
const EXAMPLES: usize = 8;

/// Number of recorded calls by action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ActionCounts {
    pub(super) allowed: u64,
    pub(super) gated: u64,
    pub(super) denied: u64,
}

impl ActionCounts {
    pub(super) fn add(&mut self, action: policy::RuleAction) {
        match action {
            policy::RuleAction::Allow => self.allowed += 1,
            policy::RuleAction::Ask => self.gated += 1,
            policy::RuleAction::Deny => self.denied += 1,
        }
    }

    fn total_calls(&self) -> u64 {
        self.allowed + self.gated + self.denied
    }
}

/// Effect of a rule.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleEffect {
    pub(super) now: ActionCounts,
    pub(super) then: ActionCounts,
    /// Calls whose action would change, the newest first.
    pub(super) changed: Vec<(PastCall, policy::RuleAction, policy::RuleAction)>,
    pub(super) changes: u64,
    /// Number of calls that would be allowed and that an approver denied.
    pub(super) against: u64,
}

/// Rules and grants to decide by.
pub(super) struct PolicySnapshot {
    pub(super) rules: ActiveRules,
    pub(super) grants: GrantSet,
}

impl PolicySnapshot {
    /// Returns the policy in force.
    pub(super) fn from_engine(engine: &Engine) -> Self {
        Self { rules: engine.rules().clone(), grants: engine.state().policy().grants().clone() }
    }

    /// Returns the same grants with other rules.
    pub(super) fn with_rules(&self, rules: ActiveRules) -> Self {
        Self { rules, grants: self.grants.clone() }
    }

    /// Returns the same with one grant more.
    fn with_grant(&self, grant: Grant) -> Self {
        let mut state = policy::State::default();
        for known in self.grants.iter().cloned().chain([grant]) {
            state.apply(&policy::Event::Granted(known));
        }
        Self { rules: self.rules.clone(), grants: state.grants().clone() }
    }

    fn action_for(&self, subject: &PolicySubject, now: Millis) -> policy::RuleAction {
        verdict_action(&self.verdict_for(subject, now))
    }

    /// Returns the verdict on a call, without denials of approvers.
    pub(super) fn verdict_for(&self, subject: &PolicySubject, now: Millis) -> policy::Verdict {
        let layers = PolicyLayers {
            compiled: &self.rules.compiled,
            // An earlier denial of an approver has no meaning for a rule.
            constraints: &Constraints::default(),
            contract: None,
            grants: &self.grants,
            default_policy: self.rules.default_policy,
            path_context: &self.rules.path_context,
        };
        evaluate(&layers, subject, now)
    }
}

/// Decides about each of `calls` by both policies.
pub(super) fn compare_policies(
    now: &PolicySnapshot,
    then: &PolicySnapshot,
    calls: &[PastCall],
    at: Millis,
) -> RuleEffect {
    let mut effect = RuleEffect::default();
    for made in calls.iter().rev() {
        let Some(subject) = &made.subject else { continue };
        let (before, after) = (now.action_for(subject, at), then.action_for(subject, at));
        effect.now.add(before);
        effect.then.add(after);
        if before != after {
            effect.changes += 1;
            effect.against +=
                u64::from(after == policy::RuleAction::Allow && made.verdict == CallVerdict::RefusedByPerson);
            if effect.changed.len() < EXAMPLES {
                effect.changed.push((made.clone(), before, after));
            }
        }
    }
    effect
}

/// Offered grant, and the effect that it would have had.
pub(super) struct GrantOffer {
    pub(super) pattern: Option<String>,
    pub(super) effect: RuleEffect,
}

/// Returns the proposals of a pending gate, each with its effect on the same caller's calls of the same tool.
pub(super) async fn grant_offers(console: &ConsoleState, gate: GateId) -> Result<Vec<GrantOffer>, PageError> {
    let read = move |engine: &Engine| {
        let gate = engine.state().gate(gate)?;
        let content = engine.admitted().call_content(gate.call()?)?;
        let to =
            content.request.as_ref().map_or_else(|| PrincipalId::new("agent"), |request| request.principal.clone());
        let tool = Arc::clone(&content.tool);
        Some((engine.grant_proposals(gate), PolicySnapshot::from_engine(engine), to, tool))
    };
    let read = console
        .context
        .handle
        .source(InboxLane::Request)
        .read_state(read)
        .await
        .ok_or_else(PageError::gateway_closing)?
        .0;
    let Some((proposals, law, to, tool)) = read else { return Ok(Vec::new()) };
    let past = console.history.upto_now(&console.context.handle).await.map_err(PageError::unreadable_record)?;
    let fits = |made: &&PastCall| {
        made.verdict != CallVerdict::Open
            && made.tool == tool
            && made.subject.as_ref().is_some_and(|it| it.principal == to)
    };
    let calls: Vec<PastCall> = past.calls().filter(fits).cloned().collect();
    drop(past);
    let at = console.context.clock.now();
    let reckon = move || {
        let offered = |proposal: GrantProposal| {
            let grant = hypothetical_grant(&proposal, &to);
            let effect = compare_policies(&law, &law.with_grant(grant), &calls, at);
            let pattern = match proposal.covers {
                GrantCoverage::Pattern(pattern) => Some(pattern),
                GrantCoverage::Exact(_) => None,
            };
            GrantOffer { pattern, effect }
        };
        proposals.into_iter().map(offered).collect()
    };
    tokio::task::spawn_blocking(reckon).await.map_err(PageError::unreadable_record)
}

/// Returns the grant that a proposal would become, for a trial.
fn hypothetical_grant(proposal: &GrantProposal, to: &PrincipalId) -> Grant {
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

impl GrantOffer {
    /// Renders it as one of the choices of a form.
    pub(super) fn render_choice(&self, is_first: bool) -> Markup {
        let value = self.pattern.as_ref().map_or_else(|| "exact".to_owned(), |pattern| format!("pattern:{pattern}"));
        html! {
            label.choice.offered {
                input type="radio" name="covers" value=(value) checked[is_first];
                span {
                    span.rule {
                        @match &self.pattern {
                            Some(pattern) => { "Anything like " code { (escape_line(pattern)) } }
                            None => { "This call with exactly these arguments" }
                        }
                    }
                    span.effect { (self.effect.summary_sentence()) }
                }
            }
        }
    }
}

impl RuleEffect {
    /// Renders it in one sentence.
    pub(super) fn summary_sentence(&self) -> Markup {
        let ActionCounts { allowed, gated, denied } = self.then;
        html! {
            @if self.now.total_calls() == 0 { "The record has no calls to compare with yet." }
            @else {
                "Of " (count_text(self.now.total_calls(), "recorded call")) " "
                strong { (allowed) " would be allowed" } ", " (gated) " would need approval, " (denied) " would be denied"
                @if self.changes == 0 { ", the same as now." }
                @else { "; under the current rules: " (self.now.allowed) ", " (self.now.gated) " and " (self.now.denied) "." }
                @if self.against > 0 {
                    " " strong.warn { (count_text(self.against, "call")) " that would be allowed " @if self.against == 1 { "was" } @else { "were" } " denied by an approver." }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ActionCounts;

    #[test]
    fn sums_count_each_call_once() {
        let mut sums = ActionCounts::default();
        for action in
            [super::policy::RuleAction::Allow, super::policy::RuleAction::Ask, super::policy::RuleAction::Allow]
        {
            sums.add(action);
        }
        assert_eq!((sums, sums.total_calls()), (ActionCounts { allowed: 2, gated: 1, denied: 0 }, 3));
    }
}
