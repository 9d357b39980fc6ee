//! What a card offers for "always": never more than a person can read off it.

use crate::policy::{evaluate::Surroundings, grants::Covers, shell, subject::Subject};

/// One thing that a person may allow for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// What it would cover.
    pub covers: Covers,
    /// How to name it on a card.
    pub label: String,
}

/// What may be offered for `subject`, the exact thing first. Empty under a verdict of the floor is the caller's business.
pub fn propose(subject: &Subject) -> Vec<Proposal> {
    let exact = Proposal { covers: Covers::Exact(subject.digest()), label: format!("exactly {}", subject.signature) };
    let patterns = subject
        .command()
        .map(|command| shell::patterns(command, &shell::Place::of(subject, &Surroundings::default())))
        .unwrap_or_default();
    let patterns = patterns
        .into_iter()
        .map(|pattern| Proposal { label: format!("anything like {pattern}"), covers: Covers::Pattern(pattern) });
    std::iter::once(exact).chain(patterns).collect()
}

#[cfg(test)]
mod tests {
    use super::{Covers, propose};
    use crate::policy::testing::bash;

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
            let proposals = propose(&bash(command));
            assert!(matches!(proposals[0].covers, Covers::Exact(_)), "{command}");
            let pattern = proposals.get(1).map(|proposal| match &proposal.covers {
                Covers::Pattern(pattern) => pattern.as_str(),
                Covers::Exact(_) => "exact",
            });
            assert_eq!(
                pattern.map(|pattern| pattern.replace(" *)", "*)")),
                want.map(|want| want.replace(" *)", "*)")),
                "{command}"
            );
        }
    }
}
