//! What was decided and why, in words for people and agents.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    gate::{self, ApprovalStep, SignOffDecision},
    id::{PrincipalId, SessionId},
    policy::{constraints::DENIAL_LASTS, contract::ContractGap, grants::GrantId, rules::RuleOrigin},
    time::Millis,
};

/// A decision about one subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It may happen.
    Allow(VerdictReason),
    /// It may not happen.
    Deny(VerdictReason),
    /// A person decides.
    Ask(VerdictReason),
}

/// Why a decision fell, and under which policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerdictReason {
    /// What decided.
    pub cause: VerdictCause,
    /// The digest of the compiled policy.
    pub policy: Digest,
}

/// What decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictCause {
    /// A rule.
    Rule(NamedRule),
    /// One of the ordered defaults.
    Default(NamedRule),
    /// A grant.
    Grant {
        /// Which.
        id: GrantId,
        /// Who gave it.
        by: PrincipalId,
    },
    /// A person denied the same thing a short while ago.
    Constraint {
        /// Who denied.
        by: PrincipalId,
        /// What that person said, if anything.
        reason: Option<String>,
        /// When it ends.
        until: Millis,
        /// The session in which alone it holds, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<SessionId>,
    },
    /// The contract of an unattended run does not cover it.
    Contract {
        /// What it lacks.
        lacks: ContractGap,
    },
    /// The person did not approve a plan or an execution, and said nothing since.
    Unapproved {
        /// [`gate::Kind::Plan`] or [`gate::Kind::Execution`].
        of: gate::Kind,
        /// What was decided.
        decision: SignOffDecision,
    },
    /// It destroys beyond the working folder, or cannot be told not to, or the approval mode has it asked each time.
    Floor {
        /// What it would do.
        reason: String,
        /// Who has to allow, if a rule that would ask says so.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        steps: Vec<ApprovalStep>,
    },
    /// It would write where the gateway keeps its own rules and records.
    Protected {
        /// What it would write.
        path: String,
    },
    /// It would read where the gateway keeps its keys and rules.
    Unreadable {
        /// Where they lie.
        path: String,
    },
    /// It may reach what a rule denies, in a way that the rule's own words do not show.
    MayReach {
        /// The rule that denies.
        denial: NamedRule,
        /// The part of the call through which it may, such as `area_id cellar`.
        through: String,
    },
    /// It uses a secret, and that decided.
    Secret {
        /// Its name.
        name: String,
        /// What decided about its use.
        cause: Box<VerdictCause>,
        /// Who has to allow, where a rule for the call or for the secret says so.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        steps: Vec<ApprovalStep>,
    },
    /// A text in it begins like the place of a secret and is none.
    Placeholder {
        /// What is wrong with it.
        problem: String,
    },
    /// There are no rules, and it only reads inside the workspace.
    ReadsInside,
    /// There are no rules, and the host expects its tools to run.
    NoRules,
    /// No rule, grant or default covers it.
    Unmatched {
        /// What kept an allow from covering it, if something did.
        uncovered: Option<String>,
    },
}

impl VerdictCause {
    /// Who has to allow, where a rule says so.
    pub fn approval_steps(&self) -> &[ApprovalStep] {
        match self {
            Self::Rule(rule) | Self::Default(rule) => &rule.steps,
            Self::Floor { steps, .. } | Self::Secret { steps, .. } => steps,
            _ => &[],
        }
    }

    /// The rule of a file that decided, if it was one, and whether it is a default.
    pub fn deciding_rule(&self) -> Option<(&NamedRule, bool)> {
        match self {
            Self::Rule(rule) => Some((rule, false)),
            Self::Default(rule) => Some((rule, true)),
            Self::Secret { cause, .. } => cause.deciding_rule(),
            Self::Placeholder { .. }
            | Self::Grant { .. }
            | Self::Constraint { .. }
            | Self::Contract { .. }
            | Self::Unapproved { .. }
            | Self::Floor { .. }
            | Self::Protected { .. }
            | Self::Unreadable { .. }
            | Self::MayReach { .. }
            | Self::ReadsInside
            | Self::NoRules
            | Self::Unmatched { .. } => None,
        }
    }
}

/// A rule as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedRule {
    /// Its pattern, or its tool and arguments.
    pub pattern: String,
    /// Where it was written.
    pub origin: RuleOrigin,
    /// What its author says of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Who has to allow, if it says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<ApprovalStep>,
}

impl Verdict {
    /// Why it fell.
    pub const fn why(&self) -> &VerdictReason {
        match self {
            Self::Allow(why) | Self::Deny(why) | Self::Ask(why) => why,
        }
    }

    /// True if it is the floor that asks: nothing but one person's answer for this once covers it.
    pub const fn is_floor(&self) -> bool {
        self.why().is_floor()
    }
}

impl VerdictReason {
    /// True for the floor.
    pub const fn is_floor(&self) -> bool {
        matches!(self.cause, VerdictCause::Floor { .. })
    }

    /// Who has to allow, where a rule says so.
    pub fn approval_steps(&self) -> &[ApprovalStep] {
        self.cause.approval_steps()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self {
            Self::Allow(_) => "allowed",
            Self::Deny(_) => "denied",
            Self::Ask(_) => "needs approval",
        };
        write!(f, "{word} {}", self.why())
    }
}

impl fmt::Display for VerdictReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause)
    }
}

impl fmt::Display for VerdictCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => write!(f, "by rule {rule}"),
            Self::Default(rule) => write!(f, "by default {rule}"),
            Self::Grant { id, by } => write!(f, "by {id} of {by}"),
            Self::Constraint { by, reason, session, .. } => {
                write!(f, "because {by} denied it")?;
                if session.is_some() {
                    let minutes = DENIAL_LASTS.as_secs() / 60;
                    write!(
                        f,
                        " in this conversation less than {minutes} minutes ago, which holds for {minutes} minutes"
                    )?;
                }
                reason.as_ref().map_or(Ok(()), |reason| write!(f, ": {reason}"))
            }
            Self::Contract { lacks } => write!(f, "because the unattended contract does not cover {lacks}"),
            Self::Unapproved { of, decision } => {
                let what = if *of == gate::Kind::Execution { "execution" } else { "plan" };
                let how = match decision {
                    SignOffDecision::Change => "must be changed first",
                    SignOffDecision::Approve | SignOffDecision::Refuse => "is not approved",
                };
                write!(
                    f,
                    "because the {what} {how}: calls that change something wait until the person approves a plan or sends a \
                     message. Reading is allowed"
                )
            }
            Self::Floor { reason, .. } => write!(f, "because it {reason}"),
            Self::Protected { path } => write!(f, "because it would change {path}, which belongs to the gateway"),
            Self::Unreadable { path } => write!(f, "because the keys and rules of the gateway lie in {path}"),
            Self::MayReach { denial, through } => {
                write!(f, "because {through} may reach what the rule {denial} denies")
            }
            Self::Secret { name, cause, .. } => write!(f, "for its use of the secret {name}, {cause}"),
            Self::Placeholder { problem } => write!(f, "because {problem}"),
            Self::ReadsInside => f.write_str("because it only reads inside the workspace"),
            Self::NoRules => f.write_str("because there are no rules"),
            Self::Unmatched { uncovered: Some(what) } => write!(f, "because no rule covers {what}"),
            Self::Unmatched { uncovered: None } => f.write_str("because no rule covers it"),
        }
    }
}

impl fmt::Display for NamedRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" ({})", self.pattern, self.origin)
    }
}

#[cfg(test)]
mod tests {
    use super::{NamedRule, Verdict, VerdictCause, VerdictReason};
    use crate::{digest::Digest, policy::rules::RuleOrigin};

    #[test]
    fn a_deny_by_rule_names_the_rule_and_its_line() {
        let rule = NamedRule {
            pattern: "bash(rm *)".to_owned(),
            origin: RuleOrigin { file: "permissions.yaml".to_owned(), line: 12 },
            description: None,
            steps: Vec::new(),
        };
        let verdict = Verdict::Deny(VerdictReason { cause: VerdictCause::Rule(rule), policy: Digest::hash_bytes(b"") });
        assert_eq!(verdict.to_string(), "denied by rule \"bash(rm *)\" (permissions.yaml:12)");
    }
}
