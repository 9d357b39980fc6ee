//! Verdicts and their causes, in words for people and agents.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    gate::{self, ApprovalStep, SignOffDecision},
    id::{PrincipalId, SessionId},
    policy::{contract::ContractGap, grants::GrantId, rules::RuleOrigin},
    time::Millis,
};

/// A decision about one subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The call is allowed.
    Allow(VerdictReason),
    /// The call is denied.
    Deny(VerdictReason),
    /// A person decides.
    Ask(VerdictReason),
}

/// Reason of a verdict, and the policy that led to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerdictReason {
    /// The cause.
    pub cause: VerdictCause,
    /// The digest of the compiled policy.
    pub policy: Digest,
}

/// Cause of a verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictCause {
    /// A rule.
    Rule(NamedRule),
    /// One of the ordered defaults.
    Default(NamedRule),
    /// A grant.
    Grant {
        /// Id of the grant.
        id: GrantId,
        /// The person who gave it.
        by: PrincipalId,
    },
    /// A person denied the same thing a short while ago.
    Constraint {
        /// The person who denied.
        by: PrincipalId,
        /// Reason that the person gave.
        reason: Option<String>,
        /// Time at which it ends.
        until: Millis,
        /// The only session in which it applies, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<SessionId>,
    },
    /// The contract of an unattended run does not cover it.
    Contract {
        /// The missing part.
        lacks: ContractGap,
    },
    /// The person did not approve a plan or an execution, and wrote nothing since.
    Unapproved {
        /// [`gate::Kind::Plan`] or [`gate::Kind::Execution`].
        of: gate::Kind,
        /// The decision.
        decision: SignOffDecision,
    },
    /// The call destroys beyond the working folder, or may do so, or the approval mode requires an approval each time.
    Floor {
        /// The effect, in words.
        reason: String,
        /// Required approvals, if a rule that would ask names them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        steps: Vec<ApprovalStep>,
    },
    /// The call would write to a location of the gateway's own rules and records.
    Protected {
        /// The path.
        path: String,
    },
    /// The call would read from a location of the gateway's keys and rules.
    Unreadable {
        /// The path.
        path: String,
    },
    /// The call may affect the target of a deny rule, in a way that the rule's own words do not show.
    MayReach {
        /// The deny rule.
        denial: NamedRule,
        /// The part of the call that makes it possible, such as `area_id cellar`.
        through: String,
    },
    /// The call uses a secret, and that decided.
    Secret {
        /// Its name.
        name: String,
        /// Cause of the decision about its use.
        cause: Box<VerdictCause>,
        /// Required approvals, if a rule for the call or for the secret names them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        steps: Vec<ApprovalStep>,
    },
    /// A text in it begins like a placeholder of a secret and is none.
    Placeholder {
        /// The problem.
        problem: String,
    },
    /// There are no rules, and it only reads inside the workspace.
    ReadsInside,
    /// There are no rules, and the host expects its tools to run.
    NoRules,
    /// No rule, grant or default covers it.
    Unmatched {
        /// Reason for which no allow covers it, if there is one.
        uncovered: Option<String>,
    },
}

impl VerdictCause {
    /// Returns the required approvals, if a rule names them.
    pub fn approval_steps(&self) -> &[ApprovalStep] {
        match self {
            Self::Rule(rule) | Self::Default(rule) => &rule.steps,
            Self::Floor { steps, .. } | Self::Secret { steps, .. } => steps,
            _ => &[],
        }
    }

    /// Returns the rule of a file that decided, if it was one, and whether it is a default.
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
    /// Its origin.
    pub origin: RuleOrigin,
    /// Its author's description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Required approvals, if it names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<ApprovalStep>,
}

impl Verdict {
    /// Returns the reason.
    pub const fn why(&self) -> &VerdictReason {
        match self {
            Self::Allow(why) | Self::Deny(why) | Self::Ask(why) => why,
        }
    }

    /// Reports whether the floor asks: nothing but one person's answer for this call covers it.
    pub const fn is_floor(&self) -> bool {
        self.why().is_floor()
    }
}

impl VerdictReason {
    /// Reports whether it is the floor.
    pub const fn is_floor(&self) -> bool {
        matches!(self.cause, VerdictCause::Floor { .. })
    }

    /// Returns the required approvals, if a rule names them.
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
            Self::Constraint { by, reason, until, session } => {
                // It ends within minutes, so its time needs no day.
                let minutes = until.0 / 60_000 % (24 * 60);
                let end = format!("{:02}:{:02} UTC", minutes / 60, minutes % 60);
                match session {
                    Some(_) => write!(f, "because {by} denied it in this conversation, which holds there until {end}")?,
                    None => write!(f, "because {by} denied it, which holds in all sessions until {end}")?,
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
