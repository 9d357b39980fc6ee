//! The function that decides. The order of its steps is the policy.

mod possible_denials;

use crate::{
    gate::ApprovalStep,
    policy::{
        approval::ApprovalMode,
        compile::CompiledRules,
        constraints::Constraints,
        contract::{Contract, ContractGap},
        floor,
        grants::GrantSet,
        narrow::NarrowPath,
        obeyed, path,
        rule_scope::CallerScope,
        sandbox_needs, secrets,
        shell::{self, LineAnalysis, LinePart},
        signature,
        spelling::{CallSpelling, CallSpellings},
        subject::{EffectReach, PolicySubject},
        table::{RuleLookup, RuleTable},
        verdict::{Verdict, VerdictCause, VerdictReason},
    },
    time::Millis,
    tool::{ShellInput, ToolEffect},
};

/// Policy for calls that no rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultPolicy {
    /// Policy under `serve` and `demo`: calls that only read inside the workspace are allowed, others require an approval.
    Gateway,
    /// Policy of the stdio adapters: tools run without approval, as their hosts expect, except those that the floor holds.
    Stdio,
}

/// Folders with a meaning for every call. All absolute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathContext {
    /// The home folder that `~` and `$HOME` stand for in the shell; none makes them unknown.
    pub home: Option<String>,
    /// Folders for temporary files, where deleting is harmless.
    pub temporary: Vec<String>,
    /// Files and folders of the gateway itself that no governed tool may write, whether they exist or not.
    pub protected: Vec<String>,
    /// Those of them that no governed tool may read either: locations of keys and rules.
    pub unreadable: Vec<String>,
    /// The adapter of calls that do not name one, such as that of a process with only one.
    pub door: Option<String>,
    /// Realm of the permanent grants, if sessions of several agent directories share a log. None means
    /// the grants of the log itself.
    pub realm: Option<String>,
    /// Approval mode: the calls of the agent that a person approves each time.
    pub approval: ApprovalMode,
    /// Tools that a person approves each time, whatever rules and grants allow, each with the reason in words that follow "because it".
    pub always_asked: Vec<(String, String)>,
}

/// Input of a decision, besides its subject.
#[derive(Clone, Copy, Debug)]
pub struct PolicyLayers<'a> {
    /// The rules.
    pub compiled: &'a CompiledRules,
    /// Denials in force.
    pub constraints: &'a Constraints,
    /// The contract of an unattended run.
    pub contract: Option<&'a Contract>,
    /// Grants of approvers.
    pub grants: &'a GrantSet,
    /// Policy for calls that no rule matches.
    pub default_policy: DefaultPolicy,
    /// Folders with a meaning.
    pub path_context: &'a PathContext,
}

/// Decides about `subject` at `now`.
///
/// In this order: protected paths and deny rules, a person's denial, the unattended contract, the floor, allow rules, grants,
/// ask rules, defaults in order, the default policy.
/// A service call that may affect the target of a deny rule, through an area or another selector, asks in any case.
/// A change of a file that other programs obey is allowed by rules and grants alone that name it.
/// An allow or ask verdict becomes a single approval if the approval mode requires one.
/// A shell line is judged by every simple command in it. If a call uses secrets, the use of each is judged in addition, and the strictest
/// verdict counts.
pub fn evaluate(layers: &PolicyLayers<'_>, subject: &PolicySubject, now: Millis) -> Verdict {
    secrets::with_secrets(layers, subject, evaluate_without_secrets(layers, subject, now), now)
}

fn evaluate_without_secrets(layers: &PolicyLayers<'_>, subject: &PolicySubject, now: Millis) -> Verdict {
    let line = shell::line_of(subject, layers.path_context);
    let obeyed = obeyed::of_subject(subject, layers.path_context.home.as_deref());
    let lists = signature::of_lists(&subject.tool, &subject.named, &subject.arguments, &subject.signature);
    let spellings = CallSpellings::from_subject(subject, layers.path_context.home.as_deref());
    let judge = PolicyEvaluator { layers, subject, line: line.as_ref(), obeyed, lists, spellings, is_of_secret: false };
    let why = |cause| VerdictReason { cause, policy: layers.compiled.digest() };
    judge
        .denial_cause(now)
        .map(|cause| Verdict::Deny(why(cause)))
        .or_else(|| {
            let reason = judge.floor_reason()?;
            Some(Verdict::Ask(why(VerdictCause::Floor { reason, steps: judge.approval_steps() })))
        })
        .unwrap_or_else(|| match (judge.covered_outcome(now), layers.path_context.approval.approval_reason(subject)) {
            (PolicyOutcome::Deny(cause), _) => Verdict::Deny(why(cause)),
            // Like the floor: one answer for this call only, despite rules and grants.
            (_, Some(reason)) => Verdict::Ask(why(VerdictCause::Floor { reason, steps: judge.approval_steps() })),
            (PolicyOutcome::Allow(cause), None) => Verdict::Allow(why(cause)),
            (PolicyOutcome::Ask(cause), None) => Verdict::Ask(why(cause)),
        })
}

pub(super) struct PolicyEvaluator<'a> {
    layers: &'a PolicyLayers<'a>,
    subject: &'a PolicySubject,
    line: Option<&'a LineAnalysis>,
    /// Files that other programs obey and that the call would change, except those of a shell line.
    obeyed: Vec<NarrowPath>,
    /// Signatures to which lists among the arguments may expand. Rules that deny or ask see them too.
    lists: Vec<String>,
    /// The other spellings of the paths that such a call names.
    spellings: CallSpellings<'a>,
    /// True if the subject is the use of a secret, which only rules that name secrets allow.
    is_of_secret: bool,
}

pub(super) enum PolicyOutcome {
    Allow(VerdictCause),
    Deny(VerdictCause),
    Ask(VerdictCause),
}

impl<'a> PolicyEvaluator<'a> {
    /// Creates the evaluator for the use of a secret.
    pub(super) fn for_secret(layers: &'a PolicyLayers<'a>, subject: &'a PolicySubject) -> Self {
        let (obeyed, lists, spellings) = (Vec::new(), Vec::new(), CallSpellings::default());
        Self { layers, subject, line: None, obeyed, lists, spellings, is_of_secret: true }
    }

    /// Returns the outcome of rules and defaults for the use of a secret. Without a match it asks.
    pub(super) fn secret_outcome(&self) -> PolicyOutcome {
        let tables = self.layers.compiled.tables();
        match self.first_match(&tables.deny) {
            Some(rank) => PolicyOutcome::Deny(VerdictCause::Rule(tables.named_rule(rank))),
            None => self.rules_outcome(),
        }
    }
}

impl PolicyEvaluator<'_> {
    fn denial_cause(&self, now: Millis) -> Option<VerdictCause> {
        let tables = self.layers.compiled.tables();
        self.protected_path()
            .map(|path| VerdictCause::Protected { path })
            .or_else(|| self.unreadable_path().map(|path| VerdictCause::Unreadable { path }))
            .or_else(|| self.first_match(&tables.deny).map(|rank| VerdictCause::Rule(tables.named_rule(rank))))
            .or_else(|| {
                let stop = self.layers.constraints.find_stopping(self.subject, now)?;
                let session = stop.session.clone();
                Some(VerdictCause::Constraint {
                    by: stop.by.clone(),
                    reason: stop.reason.clone(),
                    until: stop.until,
                    session,
                })
            })
            .or_else(|| Some(VerdictCause::Contract { lacks: self.contract_gap()? }))
    }

    /// Returns the part that the contract does not cover. It knows no folders in which deleting is harmless.
    fn contract_gap(&self) -> Option<ContractGap> {
        let contract = self.layers.contract?;
        let path_context = self.layers.path_context;
        if path_context.temporary.is_empty() || self.line.is_none() {
            return contract.first_gap(self.subject, self.line);
        }
        let place = shell::ShellContext { temporary: Vec::new(), ..shell::context_of(self.subject, path_context) };
        contract.first_gap(self.subject, shell::line_in(self.subject, &place).as_ref())
    }

    fn protected_path(&self) -> Option<String> {
        match self.line {
            Some(line) => line.protected.clone(),
            None => floor::protected_path(self.subject, self.layers.path_context),
        }
    }

    fn unreadable_path(&self) -> Option<String> {
        match self.line {
            Some(line) => line.unreadable.clone(),
            None => floor::unreadable_path(self.subject, self.layers.path_context),
        }
    }

    fn floor_reason(&self) -> Option<String> {
        match self.line {
            Some(line) => line.floor.clone().or_else(|| sandbox_needs::needs_reason(self.subject)),
            None => floor::floor_reason(self.subject, self.layers.path_context),
        }
    }

    /// Returns the required approvals, from rules alone. Another reason for an approval must not make it easier.
    fn approval_steps(&self) -> Vec<ApprovalStep> {
        if !self.layers.compiled.tables().has_steps {
            return Vec::new();
        }
        match self.rules_outcome() {
            PolicyOutcome::Ask(VerdictCause::Rule(rule) | VerdictCause::Default(rule)) => rule.steps,
            PolicyOutcome::Ask(_) | PolicyOutcome::Allow(_) | PolicyOutcome::Deny(_) => Vec::new(),
        }
    }

    fn covered_outcome(&self, now: Millis) -> PolicyOutcome {
        let outcome = self.rules_outcome();
        let may_reach = self.may_reach(&outcome);
        match &outcome {
            PolicyOutcome::Allow(VerdictCause::Rule(_)) if may_reach.is_none() => outcome,
            // An approval by particular people, or by several, is not covered by one person's earlier approval.
            PolicyOutcome::Ask(VerdictCause::Rule(rule) | VerdictCause::Default(rule)) if !rule.steps.is_empty() => {
                outcome
            }
            _ => match (self.granted_outcome(may_reach.as_ref(), now), may_reach, outcome) {
                (Some(granted), _, _) => granted,
                (None, Some(cause), PolicyOutcome::Allow(_) | PolicyOutcome::Ask(_)) => PolicyOutcome::Ask(cause),
                (None, _, outcome) => outcome,
            },
        }
    }

    /// Returns the outcome of grants. If the call may violate a denial, only a grant of this very call counts.
    fn granted_outcome(&self, may_reach: Option<&VerdictCause>, now: Millis) -> Option<PolicyOutcome> {
        let grants = self.layers.grants;
        let realm = self.layers.path_context.realm.as_deref();
        let exact = grants.exact_grant(self.subject, realm, now);
        let by_pattern =
            || grants.by_pattern(self.subject, self.line, &self.narrow_paths(), &self.spellings, realm, now);
        let is_covered = || may_reach.is_none() && self.perhaps_denied().is_none();
        let grant = exact.or_else(|| by_pattern().filter(|_| is_covered()))?;
        Some(PolicyOutcome::Allow(VerdictCause::Grant { id: grant.id, by: grant.by.clone() }))
    }

    /// Returns the outcome of rules, defaults and the default policy, without grants.
    fn rules_outcome(&self) -> PolicyOutcome {
        let tables = self.layers.compiled.tables();
        let tightened = self.first_match(&tables.tighten);
        let (allowed, uncovered) = match self.covering_rank(&tables.allow) {
            Ok(rank) => (Some(rank), None),
            Err(uncovered) => (None, uncovered),
        };
        if let Some(rank) = allowed.filter(|_| tightened.is_none()) {
            return PolicyOutcome::Allow(VerdictCause::Rule(tables.named_rule(rank)));
        }
        if let Some(rank) = self.first_match(&tables.tighten_deny).filter(|_| allowed.is_none()) {
            return PolicyOutcome::Deny(VerdictCause::Default(tables.named_rule(rank)));
        }
        let ask_rank = match tightened {
            // Nor the required approvers, if the owner's rules name them.
            Some(rank) if tables.has_steps && !tables.has_approval_steps(rank) => {
                let own = self.first_match(&tables.ask).filter(|_| allowed.is_none());
                own.filter(|own| tables.has_approval_steps(*own)).or(Some(rank))
            }
            Some(rank) => Some(rank),
            None => self.first_match(&tables.ask),
        };
        let default = self.default_outcome();
        match (ask_rank, default) {
            // A repository's ask must not soften a deny among the owner's defaults.
            (Some(_), Some(PolicyOutcome::Deny(cause))) if tightened.is_some() && allowed.is_none() => {
                PolicyOutcome::Deny(cause)
            }
            (Some(rank), _) => PolicyOutcome::Ask(VerdictCause::Rule(tables.named_rule(rank))),
            // An ask for everything has no details, so approvers get them here.
            (None, Some(PolicyOutcome::Ask(VerdictCause::Default(rule))))
                if rule.steps.is_empty() && self.obeyed_change().is_some() =>
            {
                self.unmatched_outcome(self.obeyed_change())
            }
            (None, Some(outcome)) => outcome,
            (None, None) => self.unmatched_outcome(self.obeyed_change().or(uncovered)),
        }
    }

    /// Returns the paths that a rule has to name, except those of a shell line.
    fn narrow_paths(&self) -> Vec<&NarrowPath> {
        self.obeyed.iter().collect()
    }

    /// Returns the change that no broad rule covers, for display: a change of a file that other programs obey.
    fn obeyed_change(&self) -> Option<String> {
        let narrow = self.line.and_then(LineAnalysis::obeyed_path).or_else(|| self.obeyed.first());
        narrow.map(ToString::to_string)
    }

    /// Returns the first default that matches. Each command of a shell line has its own; the strictest counts.
    fn default_outcome(&self) -> Option<PolicyOutcome> {
        let tables = self.layers.compiled.tables();
        let deny = self.first_match(&tables.default_deny);
        let ask = self.first_match(&tables.default_ask);
        let allow = self.covering_rank(&tables.default_allow).ok();
        match self.line {
            None => [(allow, 0), (deny, 1), (ask, 2)].into_iter().filter_map(|(rank, kind)| Some((rank?, kind))).min(),
            Some(line) => self.strictest_default(line),
        }
        .map(|(rank, kind)| {
            let cause = VerdictCause::Default(tables.named_rule(rank));
            match kind {
                0 => PolicyOutcome::Allow(cause),
                1 => PolicyOutcome::Deny(cause),
                _ => PolicyOutcome::Ask(cause),
            }
        })
    }

    fn strictest_default(&self, line: &LineAnalysis) -> Option<(usize, u8)> {
        let tables = self.layers.compiled.tables();
        let (allow, deny, ask) = (
            self.lookup_for(&tables.default_allow),
            self.lookup_for(&tables.default_deny),
            self.lookup_for(&tables.default_ask),
        );
        let everything = self.everything_rank(&allow);
        let structured = [(self.structured_rank(&deny, |_| true), 1), (self.structured_rank(&ask, |_| true), 2)];
        let mut all_allowed = true;
        let mut strictest: Option<(usize, u8)> = None;
        for command in line.line_parts() {
            // A call that may be denied once its words are known is allowed by no default but a bare `*`.
            let may_be_denied = command.begun_forms().iter().any(|begun| deny.may_go_on(begun))
                || command.glob_forms().iter().any(|wild| deny.may_match(wild));
            let covered = command.covered_by(&|text, paths| self.first_allowing(&allow, text, paths), everything);
            let patterns = [
                (covered.filter(|rank| !may_be_denied || everything == Some(*rank)), 0),
                (self.piece_match(&command, &deny), 1),
                (self.piece_match(&command, &ask), 2),
            ];
            let found = patterns.into_iter().chain(structured).filter_map(|(rank, kind)| Some((rank?, kind))).min();
            let strictness = |kind: u8| [0, 2, 1][usize::from(kind)];
            match found {
                Some((_, 0)) => strictest = strictest.or(found),
                Some((_, kind)) => {
                    all_allowed = false;
                    if strictest.is_none_or(|(_, known)| strictness(known) < strictness(kind)) {
                        strictest = found;
                    }
                }
                None => {
                    all_allowed = false;
                }
            }
        }
        strictest.filter(|(_, kind)| *kind != 0 || all_allowed)
    }

    /// Returns the rules of `table` that are bound to this caller, or to none.
    fn lookup_for<'t>(&self, table: &'t RuleTable) -> RuleLookup<'t> {
        table.lookup_for(CallerScope::from_subject(self.subject, self.layers.path_context.door.as_deref()))
    }

    fn piece_match(&self, piece: &LinePart<'_>, table: &RuleLookup<'_>) -> Option<usize> {
        let whole = table.first_match(&self.subject.signature).filter(|_| piece.is_opaque());
        whole.into_iter().chain(piece.touched_by(&|text| table.first_match(text))).min()
    }

    fn unmatched_outcome(&self, uncovered: Option<String>) -> PolicyOutcome {
        if !self.is_of_secret && !self.layers.compiled.has_rules() {
            match self.layers.default_policy {
                DefaultPolicy::Stdio => return PolicyOutcome::Allow(VerdictCause::NoRules),
                DefaultPolicy::Gateway if self.reads_inside() => {
                    return PolicyOutcome::Allow(VerdictCause::ReadsInside);
                }
                DefaultPolicy::Gateway => {}
            }
        }
        PolicyOutcome::Ask(VerdictCause::Unmatched { uncovered })
    }

    fn reads_inside(&self) -> bool {
        let subject = self.subject;
        subject.shell == ShellInput::Nothing
            && subject.effect == ToolEffect::Reads
            && subject.reach == EffectReach::Files
            && subject.paths.iter().chain(&subject.leads_to).all(|path| {
                !path.starts_with('~')
                    && path::is_within(&path::resolve("/", &subject.cwd), &path::resolve(&subject.cwd, path))
            })
    }

    /// Returns the first deny or ask rule that matches any part of the subject.
    fn first_match(&self, table: &RuleTable) -> Option<usize> {
        let table = self.lookup_for(table);
        let whole = self.subject.all_signatures().filter_map(|signature| table.first_match(signature)).min();
        let lists = self.lists.iter().filter_map(|text| table.first_that_may(text));
        let parts = self.line.and_then(|line| line.touched_by(&|text| table.first_match(text)));
        let spelled = self.spellings.first_in(&table);
        whole.into_iter().chain(lists).chain(parts).chain(self.structured_rank(&table, |_| true)).chain(spelled).min()
    }

    /// Returns the last of the allow rules that together cover the whole subject, or the part that they leave uncovered.
    fn covering_rank(&self, table: &RuleTable) -> Result<usize, Option<String>> {
        let table = self.lookup_for(table);
        let narrow = self.narrow_paths();
        let names = |rank: usize| self.layers.compiled.tables().names_paths(rank, &narrow);
        let structured = || self.structured_rank(&table, |rank| self.may_allow(rank) && names(rank));
        if let Some(rank) = self.line.is_none().then(structured).flatten() {
            return self.reached_rank(&table).map(|reached| rank.max(reached)).map_err(Some);
        }
        match self.line {
            Some(line) => {
                let everything = self.everything_rank(&table);
                if let Some(rule) = self.perhaps_denied().filter(|_| everything.is_none()) {
                    return Err(Some(rule));
                }
                let first = |text: &str, paths: &[&NarrowPath]| self.first_allowing(&table, text, paths);
                line.covered_by(&first, everything).map_err(Some)
            }
            None => {
                let first = |text: &str| self.first_allowing(&table, text, &[]);
                let ranks: Option<Vec<usize>> = self.subject.all_signatures().map(first).collect();
                let rank = ranks.and_then(|ranks| ranks.into_iter().max()).ok_or(None)?;
                self.reached_rank(&table).map(|reached| rank.max(reached)).map_err(Some)
            }
        }
    }

    /// Returns the last of the allow rules that together cover the files of paths that are not plain.
    fn reached_rank(&self, table: &RuleLookup<'_>) -> Result<usize, String> {
        let (tables, narrow) = (self.layers.compiled.tables(), self.narrow_paths());
        self.spellings.covered_by(&|spelled: &CallSpelling| {
            let predicate = |rank: usize| {
                self.may_allow(rank) && tables.names_paths(rank, &narrow) && tables.steps_up(rank) >= spelled.steps_up
            };
            self.spellings.first_for(table, spelled, predicate)
        })
    }

    fn structured_rank(&self, table: &RuleLookup<'_>, predicate: impl Fn(usize) -> bool) -> Option<usize> {
        table.first_structured(&self.subject.tool, &self.subject.arguments, predicate)
    }

    /// Returns the first rule with a bare `*` that allows. None for a change of a file that other programs obey.
    fn everything_rank(&self, table: &RuleLookup<'_>) -> Option<usize> {
        table.everything_rank().filter(|rank| self.may_allow(*rank) && self.obeyed.is_empty())
    }

    /// Returns the first rule that matches `text` and allows it, and names `paths` and the files of the call that other programs obey.
    fn first_allowing(&self, table: &RuleLookup<'_>, text: &str, paths: &[&NarrowPath]) -> Option<usize> {
        let (tables, narrow) = (self.layers.compiled.tables(), self.narrow_paths());
        let names = |rank: usize| tables.names_paths(rank, paths) && tables.names_paths(rank, &narrow);
        table.first_where(text, |rank| self.may_allow(rank) && names(rank))
    }

    /// Reports whether a rule that allows and matches was meant for this.
    fn may_allow(&self, rank: usize) -> bool {
        let tables = self.layers.compiled.tables();
        (!self.is_of_secret || tables.names_secrets(rank))
            && (self.subject.undeclared.is_empty() || tables.covers_undeclared(rank))
    }
}

#[cfg(test)]
mod tests;
