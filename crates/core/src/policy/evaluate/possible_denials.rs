//! Denials that a call may violate although its signatures do not show it.
//!
//! It must not know grants, or the verdict that follows from such a denial.

use super::{PolicyEvaluator, PolicyOutcome};
use crate::policy::{indirect, shell::GlobForm, table::RuleLookup, verdict::VerdictCause};

impl PolicyEvaluator<'_> {
    /// Returns the denial that a call may violate though its signatures do not show it. Such a call asks in any case.
    /// A default denies calls that no default before it allows.
    pub(super) fn may_reach(&self, outcome: &PolicyOutcome) -> Option<VerdictCause> {
        let tables = self.layers.compiled.tables();
        let denying = [self.lookup_for(&tables.deny), self.lookup_for(&tables.tighten_deny)];
        let default_deny = self.lookup_for(&tables.default_deny);
        let default_allow = match outcome {
            PolicyOutcome::Allow(VerdictCause::Default(_)) => self.covering_rank(&tables.default_allow).ok(),
            _ => None,
        };
        let denial = |find: &dyn Fn(&RuleLookup<'_>) -> Option<usize>| {
            let by_default = || find(&default_deny).filter(|denied| default_allow.is_some_and(|allow| *denied < allow));
            denying.iter().filter_map(find).min().or_else(by_default)
        };
        let (tool, arguments) = (&self.subject.tool, &self.subject.arguments);
        let by_service = indirect::possible_calls(self.subject).into_iter().find_map(|possible| {
            Some((denial(&|table| table.first_possible(tool, arguments, &possible))?, possible.through))
        });
        // For a shell line: the words that are only known at run time.
        let by_line = || {
            self.line?.begun_forms().find_map(|begun| {
                let rank = denial(&|table| table.first_going_on(begun))?;
                Some((rank, format!("{begun}…, which goes on with what is only known when it runs,")))
            })
        };
        // For a program that may run others: the commands in its arguments and its input, and in values that the shell computes.
        let by_wrapper = || {
            self.line?.wrapped_forms().find_map(|form| {
                let rank = denial(&|table| table.first_match(form))?;
                Some((rank, format!("{form}, which a program of the line may run,")))
            })
        };
        let (rank, through) = by_service.or_else(by_line).or_else(by_wrapper)?;
        Some(VerdictCause::MayReach { denial: tables.named_rule(rank), through })
    }

    /// Returns the deny rule that may match a line with words that are only known at run time, such as `git $X` if
    /// `git push*` is denied. Only a person, or a bare `*`, lets that pass.
    pub(super) fn perhaps_denied(&self) -> Option<String> {
        let tables = self.layers.compiled.tables();
        let denying = [self.lookup_for(&tables.deny), self.lookup_for(&tables.tighten_deny)];
        let line = self.line?;
        let begun = line.begun_forms().find(|begun| denying.iter().any(|table| table.may_go_on(begun)));
        if let Some(found) = begun {
            return Some(format!("{found}…, which goes on with what is only known when it runs, and may be denied"));
        }
        let wild = line.glob_forms().find(|wild| denying.iter().any(|table| table.may_match(wild)))?;
        Some(format!("{}, which may be denied once files give it names", wild.text.replace(GlobForm::SIGN, "*")))
    }
}
