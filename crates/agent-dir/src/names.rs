//! Names of flags that say that they restrict, whichever program they belong to, and the words of names.
//!
//! It must not know which flags there are. Source: docs/protocol/omp.md, Fields that restrict.

/// What a name says that it restricts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restricts {
    /// Which tools and abilities there are.
    Tools,
    /// What needs an approval.
    Approvals,
    /// What can be reached or changed.
    Reach,
    /// How much of something there is.
    Amount,
}

/// Words of a name that say that it restricts. A star stands for any end of the word.
const WORDS: [(&[&str], Restricts); 4] = [
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
        Restricts::Tools,
    ),
    (
        &[
            "approv*", "permi*", "confirm*", "ask", "polic*", "safe*", "secur*", "guard*", "protect*", "strict*",
            "trust*", "untrust*", "requir*", "review*", "rule*",
        ],
        Restricts::Approvals,
    ),
    (&["sandbox*", "readonly", "only", "isolat*", "jail*", "access*", "dry", "dryrun"], Restricts::Reach),
    (&["max", "limit*", "budget*", "quota*"], Restricts::Amount),
];

/// Words that take away what another word of the name says.
pub(super) const NEGATIONS: [&str; 5] = ["no", "not", "without", "disable*", "prevent*"];

/// Words for what an agent can do. With one of [`NEGATIONS`] they restrict.
pub(super) const ABILITIES: [&str; 10] =
    ["bash", "shell*", "exec*", "command*", "writ*", "edit*", "net", "network*", "internet", "web*"];

/// Returns what a flag called `name` says that it restricts, if one of its words says so.
pub fn restricts(name: &str) -> Option<Restricts> {
    let words = words(name);
    let by_word = WORDS.iter().find(|(patterns, _)| has(&words, patterns)).map(|(_, what)| *what);
    by_word.or_else(|| (has(&words, &NEGATIONS) && has(&words, &ABILITIES)).then_some(Restricts::Tools))
}

/// Returns the words of a name in small letters: apart at dashes, underscores, dots and capitals.
pub(super) fn words(name: &str) -> Vec<String> {
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

/// Whether one of `words` fits one of `patterns`.
pub(super) fn has(words: &[String], patterns: &[&str]) -> bool {
    words.iter().any(|word| patterns.iter().any(|pattern| fits(word, pattern)))
}

fn fits(word: &str, pattern: &str) -> bool {
    pattern.strip_suffix('*').map_or(word == pattern, |begin| word.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::{Restricts, restricts};

    #[test]
    fn a_name_restricts_by_one_of_its_words() {
        for (name, want) in [
            ("allowed-tools", Some(Restricts::Tools)),
            ("disallowedTools", Some(Restricts::Tools)),
            ("no-bash", Some(Restricts::Tools)),
            ("disable_network", Some(Restricts::Tools)),
            ("approvalMode", Some(Restricts::Approvals)),
            ("permission", Some(Restricts::Approvals)),
            ("readOnly", Some(Restricts::Reach)),
            ("SANDBOX", Some(Restricts::Reach)),
            ("max-turns", Some(Restricts::Amount)),
            ("no-color", None),
            ("masked", None),
            ("bash", None),
            ("", None),
        ] {
            assert_eq!(restricts(name), want, "{name}");
        }
    }
}
