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
            "approv*",
            "permi*",
            "confirm*",
            "ask",
            "polic*",
            "safe*",
            "secur*",
            "guard*",
            "protect*",
            "strict*",
            "trust*",
            "untrust*",
            "requir*",
            "review*",
            "rule*",
            "manual*",
            "supervis*",
            "attended",
            "veto*",
            "consent*",
        ],
        RestrictionKind::Approvals,
    ),
    (
        &[
            "sandbox*",
            "readonly",
            "ro",
            "only",
            "isolat*",
            "jail*",
            "access*",
            "dry",
            "dryrun",
            "airgap*",
            "gapped",
            "confin*",
            "contain",
            "containment",
        ],
        RestrictionKind::Reach,
    ),
    (&["max", "limit*", "budget*", "quota*"], RestrictionKind::Amount),
];

/// Words that say it only together: an original plans before it runs without approvals (`--plan-yolo`).
const PHRASES: [(&str, &str, RestrictionKind); 1] = [("plan", "mode", RestrictionKind::Reach)];

/// Words that take away what another word of the name says.
pub(super) const NEGATIONS: [&str; 5] = ["no", "not", "without", "disable*", "prevent*"];

/// Words for what an agent can do. With one of [`NEGATIONS`] they restrict.
pub(super) const ABILITIES: [&str; 10] =
    ["bash", "shell*", "exec*", "command*", "writ*", "edit*", "net", "network*", "internet", "web*"];

/// Words for running without approvals. With one of [`NEGATIONS`] they restrict.
const UNATTENDED: [&str; 8] =
    ["yolo", "unattended", "autonomous", "accept*", "autoaccept*", "autopilot", "autorun", "autoexec*"];

/// Returns what a flag called `name` says that it restricts, if one of its words says so.
pub fn restriction_of(name: &str) -> Option<RestrictionKind> {
    let words = flag_words(name);
    let by_word = WORDS.iter().find(|(patterns, _)| has_word(&words, patterns)).map(|(_, what)| *what);
    let has_both = |first, second| has_word(&words, &[first]) && has_word(&words, &[second]);
    let by_phrase = PHRASES.iter().find(|(first, second, _)| has_both(*first, *second)).map(|(_, _, what)| *what);
    // A name with nothing but a negation takes away what its value names.
    let is_bare = !words.is_empty() && words.iter().all(|word| has_word(std::slice::from_ref(word), &NEGATIONS));
    let is_negated = |objects: &[&str]| has_word(&words, &NEGATIONS) && has_word(&words, objects);
    by_word
        .or(by_phrase)
        .or_else(|| (is_bare || is_negated(&ABILITIES)).then_some(RestrictionKind::Tools))
        .or_else(|| is_negated(&UNATTENDED).then_some(RestrictionKind::Approvals))
}

/// Returns the words of a flag's name. A `no` that is written together with an ability, or with a word for running without
/// approvals, is a word of its own.
fn flag_words(name: &str) -> Vec<String> {
    let apart = |word: String| match word.strip_prefix("no") {
        Some(rest) if has_word(&[rest.to_owned()], &ABILITIES) || has_word(&[rest.to_owned()], &UNATTENDED) => {
            vec!["no".to_owned(), rest.to_owned()]
        }
        Some(_) | None => vec![word],
    };
    name_words(name).into_iter().flat_map(apart).collect()
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
            ("disable", Some(RestrictionKind::Tools)),
            ("without", Some(RestrictionKind::Tools)),
            ("noexec", Some(RestrictionKind::Tools)),
            ("noNetwork", Some(RestrictionKind::Tools)),
            ("no-yolo", Some(RestrictionKind::Approvals)),
            ("noyolo", Some(RestrictionKind::Approvals)),
            ("manual", Some(RestrictionKind::Approvals)),
            ("manual-mode", Some(RestrictionKind::Approvals)),
            ("ro", Some(RestrictionKind::Reach)),
            ("no-auto-accept", Some(RestrictionKind::Approvals)),
            ("supervised", Some(RestrictionKind::Approvals)),
            ("plan-mode", Some(RestrictionKind::Reach)),
            ("air-gapped", Some(RestrictionKind::Reach)),
            ("accept-edits", None),
            ("planner", None),
            ("plan-yolo", None),
            ("no-color", None),
            ("disable-telemetry", None),
            ("notebook", None),
            ("node", None),
            ("no-auto-update", None),
            ("yolo", None),
            ("rocket", None),
            ("masked", None),
            ("bash", None),
            ("", None),
        ] {
            assert_eq!(restriction_of(name), want, "{name}");
        }
    }
}
