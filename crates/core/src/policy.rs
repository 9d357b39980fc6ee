//! Decides whether a call is allowed: rules, denials, contracts, a floor and grants, in that order, without side effects.
//!
//! It must not know which surface asks the person, the layout of a card, or the storage of rules: [`evaluate`] sees a
//! [`PolicySubject`] and the [`PolicyLayers`], nothing else, so that a replay over
//! recorded subjects decides alike.

mod approval;
mod arg_condition;
pub mod arguments;
mod compile;
mod constraints;
mod contract;
mod evaluate;
mod floor;
#[cfg(feature = "fuzzing")]
mod fuzz;
mod grants;
mod indirect;
mod lint;
mod near_miss;
mod obeyed;
mod patterns;
mod precedence;
mod propose;
mod rule_scope;
mod rules;
mod rules_digest;
mod sandbox_needs;
mod search_budget;
mod secrets;
mod shell;
pub mod signature;
mod spelling;
mod state;
mod subject;
mod table;
mod verdict;

#[cfg(test)]
mod testing;

pub use countersign_shell_analysis::path::resolve as join_folder;
use countersign_shell_analysis::{fnmatch, narrow_path as narrow, path};

#[cfg(feature = "fuzzing")]
pub use self::fuzz::fuzz;
pub use self::{
    approval::ApprovalMode,
    compile::{CompileError, CompiledRules, PatternFault, RuleRef, RuleWarning, compile_rules},
    constraints::{Constraint, Constraints, DENIAL_LASTS},
    contract::{Class, Contract, ContractGap, ContractScope, only_reads},
    evaluate::{DefaultPolicy, PathContext, PolicyLayers, evaluate},
    fnmatch::pattern_matches,
    grants::{Grant, GrantAuth, GrantCoverage, GrantId, GrantReach, GrantSet},
    lint::PatternOddity,
    near_miss::{MissReason, NearMiss, near_misses},
    obeyed::{PathText, obeyed_by, path_spellings, path_texts},
    precedence::{PrecedenceCheck, SearchLimitReached},
    propose::{GrantProposal, propose_grants},
    rule_scope::RuleScopeKey,
    rules::{
        AnyArgs, ArgConditions, ArgMatcher, MatchOperator, MatcherError, Rule, RuleAction, RuleLayer, RuleOrigin,
        RuleSet, RuleSource,
    },
    search_budget::SearchBudget,
    shell::{LineClasses, files, reads_open_input},
    state::{Event, ServerChange, State},
    subject::{EffectReach, PolicySubject},
    verdict::{NamedRule, Verdict, VerdictCause, VerdictReason},
};
