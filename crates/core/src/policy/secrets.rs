//! Additional approval of a call that uses secrets: one for each of them.
//!
//! The use of a secret is a subject of its own, `secret(NAME, TOOL)`. Only rules that name secrets allow it: one that allows
//! the tool, or everything, was not written with a secret in mind.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{
    digest::{Digest, canonical_json},
    gate::ApprovalStep,
    policy::{
        evaluate::{PolicyEvaluator, PolicyLayers, PolicyOutcome},
        subject::{EffectReach, PolicySubject},
        verdict::{Verdict, VerdictCause, VerdictReason},
    },
    secret::{self, MalformedPlaceholder},
    time::Millis,
    tool::{ShellInput, ShellMachine, ToolEffect},
};

/// Name of the use of a secret in rules.
pub(super) const TOOL: &str = "secret";

impl PolicySubject {
    /// Returns the names of the secrets that the call would get: in every argument of a service's, in the variables of a
    /// command of the own shell. Elsewhere such a text is literal.
    ///
    /// # Errors
    /// [`MalformedPlaceholder`] if a text begins like a placeholder of a secret and is none.
    pub fn secret_names(&self) -> Result<BTreeSet<String>, MalformedPlaceholder> {
        let mut found = BTreeSet::new();
        if self.target.is_some() {
            secret::collect_member_names(&self.arguments, &mut found)?;
        } else if let (ShellInput::Line { machine: ShellMachine::This, .. }, true) =
            (&self.shell, self.classes.is_empty())
            && let Some(variables) = self.arguments.get("env")
        {
            secret::collect_names(variables, &mut found)?;
        }
        Ok(found)
    }

    /// Returns the use of a secret by this call, as a subject for rules.
    fn secret_use(&self, name: &str) -> Self {
        let mut arguments = Map::from_iter([
            ("name".to_owned(), Value::from(name)),
            ("tool".to_owned(), Value::from(self.tool.as_str())),
        ]);
        if let Some(service) = &self.target {
            arguments.insert("service".to_owned(), Value::from(service.as_str()));
        }
        let digest = Digest::hash_bytes(canonical_json(&json!(arguments)).as_bytes());
        Self {
            tool: TOOL.to_owned(),
            signature: format!("{TOOL}({name}, {})", self.tool),
            further_signatures: Vec::new(),
            named: Vec::new(),
            undeclared: Vec::new(),
            arguments,
            arguments_digest: digest,
            effect: ToolEffect::Changes,
            reach: EffectReach::Beyond,
            paths: Vec::new(),
            leads_to: None,
            shell: ShellInput::Nothing,
            classes: BTreeSet::new(),
            ..self.clone()
        }
    }
}

/// Returns the verdict of a call with the secrets that it uses; `verdict` is that of the call alone.
pub(super) fn with_secrets(
    layers: &PolicyLayers<'_>,
    subject: &PolicySubject,
    verdict: Verdict,
    now: Millis,
) -> Verdict {
    if matches!(verdict, Verdict::Deny(_)) {
        return verdict;
    }
    let because = |cause| VerdictReason { cause, policy: layers.compiled.digest() };
    let names = match subject.secret_names() {
        Ok(names) if names.is_empty() => return verdict,
        Ok(names) => names,
        Err(malformed) => return Verdict::Deny(because(VerdictCause::Placeholder { problem: malformed.to_string() })),
    };
    let mut strictest_ask: Option<(String, VerdictCause)> = None;
    for name in names {
        let subject = subject.secret_use(&name);
        match PolicyEvaluator::for_secret(layers, &subject).secret_outcome() {
            PolicyOutcome::Allow(_) => {}
            PolicyOutcome::Ask(cause) => {
                let approvals = |cause: &VerdictCause| cause.approval_steps().first().map_or(0, |step| step.approvals);
                if strictest_ask.as_ref().is_none_or(|(_, known)| approvals(known) < approvals(&cause)) {
                    strictest_ask = Some((name, cause));
                }
            }
            PolicyOutcome::Deny(cause) => {
                let cause = VerdictCause::Secret { name, cause: Box::new(cause), steps: Vec::new() };
                return Verdict::Deny(because(cause));
            }
        }
    }
    let Some((name, cause)) = strictest_ask else { return verdict };
    // An approver of exactly this call for longer saw which secrets it uses.
    let realm = layers.path_context.realm.as_deref();
    if cause.approval_steps().is_empty() && layers.grants.exact_grant(subject, realm, now).is_some() {
        return verdict;
    }
    match verdict {
        // The floor offers only a single approval, and gives more details.
        Verdict::Ask(why) if why.is_floor() => {
            let steps = stricter_steps(why.approval_steps(), cause.approval_steps());
            match why.cause {
                VerdictCause::Floor { reason, .. } => {
                    Verdict::Ask(VerdictReason { cause: VerdictCause::Floor { reason, steps }, ..why })
                }
                _ => Verdict::Ask(why),
            }
        }
        Verdict::Ask(why) => {
            let steps = stricter_steps(why.approval_steps(), cause.approval_steps());
            Verdict::Ask(because(VerdictCause::Secret { name, cause: Box::new(cause), steps }))
        }
        Verdict::Allow(_) | Verdict::Deny(_) => {
            let steps = cause.approval_steps().to_vec();
            Verdict::Ask(because(VerdictCause::Secret { name, cause: Box::new(cause), steps }))
        }
    }
}

/// Returns the stricter of two lists of required approvals; the one for the secret if they are equally strict.
fn stricter_steps(of_call: &[ApprovalStep], of_secret: &[ApprovalStep]) -> Vec<ApprovalStep> {
    let approvals = |steps: &[ApprovalStep]| steps.first().map_or(0, |step| step.approvals);
    if approvals(of_call) > approvals(of_secret) { of_call.to_vec() } else { of_secret.to_vec() }
}
