//! Grants that a card offers for "always": never more than a person can see on it.

use crate::{
    policy::{
        evaluate::PathContext,
        grants::GrantCoverage,
        obeyed, shell,
        subject::{EffectReach, PolicySubject},
    },
    tool::ShellInput,
};

/// One grant that a person may give permanently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantProposal {
    /// Its coverage.
    pub covers: GrantCoverage,
    /// Its name on a card.
    pub label: String,
}

/// Returns the grants that may be offered for `subject`, the exact one first. The caller must not offer them under a floor verdict.
pub fn propose_grants(subject: &PolicySubject) -> Vec<GrantProposal> {
    let exact = GrantProposal {
        covers: GrantCoverage::Exact(subject.digest()),
        label: format!("exactly {}", subject.signature),
    };
    let patterns = match (subject.shell_line(), &subject.shell) {
        // A pattern does not show which secrets it would release.
        _ if subject.secret_names().is_ok_and(|used| !used.is_empty()) => Vec::new(),
        // Nor which obeyed file.
        _ if !obeyed::of_subject(subject, None).is_empty() => Vec::new(),
        (Some((_, line)), _) => shell::allow_patterns(line, &shell::context_of(subject, &PathContext::default())),
        (None, ShellInput::Nothing) if subject.reach == EffectReach::Beyond => wider_patterns(subject),
        // For a call that a shell may read, the free part would be a line like any other.
        (None, _) => Vec::new(),
    };
    let patterns = patterns.into_iter().map(|pattern| GrantProposal {
        label: format!("anything like {pattern}"),
        covers: GrantCoverage::Pattern(pattern),
    });
    std::iter::once(exact).chain(patterns).collect()
}

/// Returns the call with its last argument free, and then with all but its first: the part of a signature before the first free
/// argument is the part that a person recognises.
fn wider_patterns(subject: &PolicySubject) -> Vec<String> {
    // A list has more than one signature, and undeclared arguments are covered by no pattern.
    if !subject.further_signatures.is_empty() || !subject.undeclared.is_empty() {
        return Vec::new();
    }
    let Some(arguments) = subject.signature.strip_prefix(&subject.tool) else { return Vec::new() };
    let Some(arguments) = arguments.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) else {
        return Vec::new();
    };
    let parts: Vec<&str> = arguments.split(", ").collect();
    // Characters with a meaning in a pattern would not match themselves.
    if arguments.is_empty() || format!("{}{arguments}", subject.tool).contains(['*', '?', '[', ']']) {
        return Vec::new();
    }
    let free = |kept: usize| {
        let kept = parts[..kept].join(", ");
        let comma = if kept.is_empty() { "" } else { ", " };
        format!("{}({kept}{comma}*)", subject.tool)
    };
    let mut patterns = vec![free(parts.len() - 1)];
    if parts.len() > 2 {
        patterns.push(free(1));
    }
    patterns
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{EffectReach, GrantCoverage, propose_grants};
    use crate::policy::{
        PolicySubject,
        testing::{bash, subject},
    };

    #[test]
    fn a_call_of_a_service_offers_itself_with_free_arguments_from_behind() {
        let of = |signature: &str| PolicySubject {
            signature: signature.to_owned(),
            reach: EffectReach::Beyond,
            ..subject("pay", json!({}))
        };
        for (signature, want) in [
            ("pay(acme)", vec!["pay(*)"]),
            ("pay(acme, 5)", vec!["pay(acme, *)"]),
            ("pay(acme, 5, eur)", vec!["pay(acme, 5, *)", "pay(acme, *)"]),
            ("pay", vec![]),
            ("pay()", vec![]),
            ("pay(a*)", vec![]),
        ] {
            let proposals = propose_grants(&of(signature)).into_iter().skip(1);
            let patterns: Vec<String> = proposals
                .filter_map(|proposal| match proposal.covers {
                    GrantCoverage::Pattern(pattern) => Some(pattern),
                    GrantCoverage::Exact(_) => None,
                })
                .collect();
            assert_eq!(patterns, want, "{signature}");
        }
        let list = PolicySubject { further_signatures: vec!["pay(b)".to_owned()], ..of("pay(a)") };
        let stray = PolicySubject { undeclared: vec!["x".to_owned()], ..of("pay(a)") };
        assert_eq!((propose_grants(&list).len(), propose_grants(&stray).len()), (1, 1));
    }

    #[test]
    fn only_a_plain_command_without_power_over_others_offers_a_pattern() {
        for (command, want) in [
            ("npm test", Some("bash(npm test*)")),
            ("npm test -- --watch a", Some("bash(npm test *)")),
            ("cargo build --release", Some("bash(cargo build *)")),
            ("git status", Some("bash(git status*)")),
            ("ls", Some("bash(ls*)")),
            ("python x.py", None),
            ("sudo npm test", None),
            ("timeout 5 npm test", None),
            ("npm test $(id)", None),
            ("npm test $X", None),
            ("npm test; ls", None),
            ("npm test > x", None),
            ("FOO=1 npm test", None),
            ("./run test", None),
            ("rm -r build", None),
            ("bash -c 'npm test'", None),
            ("npm 'te*st'", None),
        ] {
            let proposals = propose_grants(&bash(command));
            assert!(matches!(proposals[0].covers, GrantCoverage::Exact(_)), "{command}");
            let pattern = proposals.get(1).map(|proposal| match &proposal.covers {
                GrantCoverage::Pattern(pattern) => pattern.as_str(),
                GrantCoverage::Exact(_) => "exact",
            });
            assert_eq!(
                pattern.map(|pattern| pattern.replace(" *)", "*)")),
                want.map(|want| want.replace(" *)", "*)")),
                "{command}"
            );
        }
    }
}
