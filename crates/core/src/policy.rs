//! Decides what may happen: rules, denials, contracts, a floor and grants, in that order, without side effects.
//!
//! It must not know who asks the person, how a card looks, or where rules are stored: [`evaluate`] sees a [`Subject`] and the [`Layers`], nothing else, so that a replay over
//! recorded subjects decides alike.

mod approval;
pub mod arguments;
mod bound;
mod compile;
mod constraints;
mod contract;
mod demand;
mod effort;
mod evaluate;
mod floor;
#[cfg(feature = "fuzzing")]
mod fuzz;
mod grants;
mod indirect;
mod lint;
mod near;
mod needs;
mod obeyed;
mod patterns;
mod precedence;
mod propose;
mod rules;
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

use countersign_shell_analysis::{fnmatch, narrow_path as narrow, path};

#[cfg(feature = "fuzzing")]
pub use self::fuzz::fuzz;
pub use self::{
    approval::ApprovalMode,
    bound::Side,
    compile::{CompileError, Compiled, Listed, Slip, Warning, compile},
    constraints::{Constraint, Constraints, DENIAL_LASTS},
    contract::{Class, Contract, Lack, Scope as ContractScope, only_reads},
    effort::Effort,
    evaluate::{Layers, Posture, Surroundings, evaluate},
    fnmatch::matches,
    grants::{Covers, Door, Grant, GrantId, Grants, Scope},
    lint::Oddity,
    near::{Miss, Near, near},
    obeyed::obeyed_by,
    precedence::{Precedence, Unchecked},
    propose::{Proposal, propose},
    rules::{Action, Any, Args, Layer, Matcher, NoMatcher, Operator, Origin, Rule, Rules, Source},
    shell::{Classes, files},
    state::{Event, State},
    subject::{Reach, Subject},
    verdict::{Cause, Named, Verdict, Why},
};
