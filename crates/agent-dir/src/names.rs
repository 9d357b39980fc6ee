//! Names of flags that say that they restrict, whichever program they belong to, and the words of names.
//!
//! It must not know which flags there are. Source: docs/protocol/omp.md, Fields that restrict.

/// Object that a setting restricts, according to its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestrictionKind {
    /// The available tools and abilities.
    Tools,
    /// The actions that need an approval.
    Approvals,
    /// The things that can be reached or changed.
    Reach,
    /// The amount of something.
    Amount,
}

/// Words of a name that say that it restricts. A star stands for any end of the word.
const WORDS: [(&[&str], RestrictionKind); 4] = [
    (
        &[
            "allow*",
            "disallow*",
            "deny*",
            "denied",
            "block*",
            "forbid*",
            "exclud*",
            "restrict*",
            "tool*",
            "whitelist*",
            "blacklist*",
            "capabilit*",
            "privileg*",
        ],
        RestrictionKind::Tools,
    ),
    (
        &[
            "approv*", "permi*", "confirm*", "ask", "polic*", "safe*", "secur*", "guard*", "protect*", "strict*",
            "trust*", "untrust*", "requir*", "review*", "rule*",
        ],
        RestrictionKind::Approvals,
    ),
    (&["sandbox*", "readonly", "only", "isolat*", "jail*", "access*", "dry", "dryrun"], RestrictionKind::Reach),
    (&["max", "limit*", "budget*", "quota*"], RestrictionKind::Amount),
];

/// Words that take away what another word of the name says.
pub(super) const NEGATIONS: [&str; 5] = ["no", "not", "without", "disable*", "prevent*"];

/// Words for what an agent can do. With one of [`NEGATIONS`] they restrict.
pub(super) const ABILITIES: [&str; 10] =
    ["bash", "shell*", "exec*", "command*", "writ*", "edit*", "net", "network*", "internet", "web*"];

/// Returns what a flag called `name` says that it restricts, if one of its words says so.
pub fn restriction_of(name: &str) -> Option<RestrictionKind> {
    let words = name_words(name);
    let by_word = WORDS.iter().find(|(patterns, _)| has_word(&words, patterns)).map(|(_, what)| *what);
    by_word.or_else(|| (has_word(&words, &NEGATIONS) && has_word(&words, &ABILITIES)).then_some(RestrictionKind::Tools))
}

/// Returns the words of a name in small letters: apart at dashes, underscores, dots and capitals.
pub(super) fn name_words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for letter in name.chars() {
        if !letter.is_alphanumeric() || letter.is_uppercase() && was_small {
            words.push(String::new());
        }
        if letter.is_alphanumeric() {
            words.last_mut().into_iter().for_each(|word| word.extend(letter.to_lowercase()));
        }
        was_small = letter.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Reports whether one of `words` fits one of `patterns`.
pub(super) fn has_word(words: &[String], patterns: &[&str]) -> bool {
    words.iter().any(|word| patterns.iter().any(|pattern| fits_pattern(word, pattern)))
}

fn fits_pattern(word: &str, pattern: &str) -> bool {
    pattern.strip_suffix('*').map_or(word == pattern, |begin| word.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::{RestrictionKind, restriction_of};

    #[test]
    fn a_name_restricts_by_one_of_its_words() {
        for (name, want) in [
            ("allowed-tools", Some(RestrictionKind::Tools)),
            ("disallowedTools", Some(RestrictionKind::Tools)),
            ("no-bash", Some(RestrictionKind::Tools)),
            ("disable_network", Some(RestrictionKind::Tools)),
            ("approvalMode", Some(RestrictionKind::Approvals)),
            ("permission", Some(RestrictionKind::Approvals)),
            ("readOnly", Some(RestrictionKind::Reach)),
            ("SANDBOX", Some(RestrictionKind::Reach)),
            ("max-turns", Some(RestrictionKind::Amount)),
            ("no-color", None),
            ("masked", None),
            ("bash", None),
            ("", None),
        ] {
            assert_eq!(restriction_of(name), want, "{name}");
        }
    }
}
