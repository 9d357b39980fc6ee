//! Names and values of settings that say that they take tools, commands, files, the network or approvals away, whichever program they
//! belong to.
//!
//! It must not know which settings there are. Source: docs/protocol/omp.md, Fields that restrict.

use countersign_config::yaml::YamlField;

use super::names::{ABILITIES, NEGATIONS, RestrictionKind, has_word, name_words};

/// Restriction that a setting's name claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RestrictionClaim {
    /// Object that it restricts.
    pub(super) what: RestrictionKind,
    /// Meaning of its value.
    pub(super) sense: SwitchSense,
}

/// Meaning of a setting that is switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SwitchSense {
    /// Something is taken away.
    Takes,
    /// Something is given: it is taken away where the setting is switched off, or lists what is given.
    Gives,
}

/// Words for approvals.
const APPROVALS: [&str; 3] = ["approv*", "permission*", "permit*"];

/// Words for what can be reached.
const REACH: [&str; 4] = ["sandbox*", "readonly", "jail*", "dryrun"];

/// Words for lists of unavailable things.
const LISTS: [&str; 9] =
    ["disallow*", "deny*", "denied", "forbid*", "restrict*", "whitelist*", "blacklist*", "allowlist*", "blocklist*"];

/// Two words that say together what one of the others says.
const PHRASES: [(&str, &str, RestrictionKind); 4] = [
    ("read", "only", RestrictionKind::Reach),
    ("dry", "run", RestrictionKind::Reach),
    ("allow", "list*", RestrictionKind::Tools),
    ("block", "list*", RestrictionKind::Tools),
];

/// Words that take away the object that the next word names.
const TAKING: [&str; 12] = [
    "no", "not", "without", "disable*", "exclud*", "block", "blocked", "prevent*", "protect*", "require*", "confirm*",
    "polic*",
];

/// Words that give the object that the next word names.
const GIVING: [&str; 5] = ["allow", "allowed", "enable*", "writable", "access*"];

/// Objects that an agent uses or reaches.
const OBJECTS: [&str; 17] = [
    "tool*", "command*", "bash", "shell*", "exec*", "writ*", "edit*", "net", "network*", "internet", "web", "file*",
    "path*", "dir*", "folder*", "host*", "domain*",
];

/// Words that take a restriction back.
const UNDOING: [&str; 8] = ["no", "not", "without", "disable*", "skip*", "bypass*", "auto", "never"];

/// Words for a limit.
const LIMITS: [&str; 5] = ["max", "maximum", "limit*", "budget*", "quota*"];

/// Resources that a whole session uses up.
const SPENT: [&str; 14] = [
    "turn*",
    "step*",
    "iteration*",
    "round*",
    "request*",
    "call*",
    "tool",
    "cost*",
    "spend*",
    "usd",
    "budget*",
    "quota*",
    "time",
    "duration",
];

/// Returns what a setting called `key` says that it restricts, if it stands for access.
pub(super) fn setting_claim(key: &str) -> Option<RestrictionClaim> {
    let words = name_words(key);
    let pair = |(first, second): (&[&str], &[&str])| {
        words.windows(2).any(|pair| has_word(&pair[..1], first) && has_word(&pair[1..], second))
    };
    let phrase = PHRASES.iter().find(|(first, second, _)| pair((&[first], &[second])));
    let found = [
        (&APPROVALS[..], RestrictionKind::Approvals),
        (&REACH, RestrictionKind::Reach),
        (&LISTS, RestrictionKind::Tools),
    ];
    let found = found.into_iter().find(|(patterns, _)| has_word(&words, patterns)).map(|(_, what)| what);
    if let Some(what) = found.or_else(|| phrase.map(|(_, _, what)| *what)) {
        let sense = if has_word(&words, &UNDOING) { SwitchSense::Gives } else { SwitchSense::Takes };
        return Some(RestrictionClaim { what, sense });
    }
    names_object(&words).then(|| RestrictionClaim { what: RestrictionKind::Tools, sense: word_sense(&words) })
}

/// Returns what the switch of a section about tools says: a word that takes or gives, an ability, or one of `tools`.
pub(super) fn switch_claim(name: &str, tools: &[String]) -> Option<RestrictionClaim> {
    let words = name_words(name);
    let is_switch = |word: &String| {
        let one = std::slice::from_ref(word);
        [&TAKING[..], &GIVING, &NEGATIONS, &ABILITIES].iter().any(|patterns| has_word(one, patterns))
            || tools.contains(word)
    };
    let is_one = !words.is_empty() && words.iter().all(is_switch);
    is_one.then(|| RestrictionClaim { what: RestrictionKind::Tools, sense: word_sense(&words) })
}

/// Returns what a setting at the top level says whose whole name is a limit of a session.
pub(super) fn limit_claim(key: &str) -> Option<RestrictionClaim> {
    let words = name_words(key);
    let all = words.iter().all(|word| has_word(std::slice::from_ref(word), &[&LIMITS[..], &SPENT].concat()));
    let is_limit = all && has_word(&words, &LIMITS) && has_word(&words, &SPENT);
    is_limit.then_some(RestrictionClaim { what: RestrictionKind::Amount, sense: SwitchSense::Takes })
}

/// Returns what a setting at the top level says that is only a switch for an ability (`network: false`), or that lists commands to run
/// before and after calls (`hooks`), which may deny them.
pub(super) fn bare_claim(place: &YamlField<'_>) -> Option<RestrictionClaim> {
    let key = place.key();
    let is_switch = || place.flag().is_ok_and(|on| on.is_some()) || is_off_word(place);
    if key.eq_ignore_ascii_case("hooks") && place.members().is_ok_and(|members| !members.is_empty()) {
        return Some(RestrictionClaim { what: RestrictionKind::Approvals, sense: SwitchSense::Takes });
    }
    switch_claim(key, &[]).filter(|_| is_switch())
}

/// Returns what a member of a section about tools says that lists names: these are the only ones, or none of them is.
pub(super) fn list_claim(place: &YamlField<'_>) -> Option<RestrictionClaim> {
    let is_list = place.items().is_ok_and(|items| items.is_some_and(|items| !items.is_empty()));
    is_list.then_some(RestrictionClaim { what: RestrictionKind::Tools, sense: SwitchSense::Takes })
}

fn is_off_word(place: &YamlField<'_>) -> bool {
    let word = place.text().ok().flatten().map(|text| text.trim().to_lowercase());
    word.is_some_and(|word| ["off", "no", "none", "false"].contains(&word.as_str()))
}

/// Reports whether the value here takes something away, as its name means it.
pub(super) fn value_restricts(place: &YamlField<'_>, sense: SwitchSense) -> bool {
    if is_nothing(place) {
        return false;
    }
    if let Ok(Some(on)) = place.flag() {
        return on == (sense == SwitchSense::Takes);
    }
    if let Ok(Some(text)) = place.text() {
        return match text.trim().to_lowercase().as_str() {
            "on" | "yes" | "true" => sense == SwitchSense::Takes,
            "off" | "no" | "none" | "false" => sense == SwitchSense::Gives,
            _ => true,
        };
    }
    let Ok(members) = place.members() else { return !place.is_negative() };
    match (members.iter().find_map(switch_state), sense) {
        (Some(is_on), SwitchSense::Takes) => is_on,
        (Some(is_on), SwitchSense::Gives) => !is_on,
        (None, SwitchSense::Takes) => true,
        // Each member gives its own.
        (None, SwitchSense::Gives) => false,
    }
}

/// Reports whether there is nothing here, or nothing but empty lists, mappings and texts.
fn is_nothing(place: &YamlField<'_>) -> bool {
    let is_empty_list = || place.items().is_ok_and(|items| items.is_some_and(|items| items.is_empty()));
    let is_empty_map = || place.members().is_ok_and(|members| members.iter().all(|(_, member)| is_nothing(member)));
    let is_empty_text = || place.text().is_ok_and(|text| text.is_some_and(|text| text.trim().is_empty()));
    place.is_absent() || is_empty_list() || is_empty_map() || is_empty_text()
}

/// Returns whether a member of a mapping switches the whole of it on or off, if it is a switch.
fn switch_state((key, member): &(&str, YamlField<'_>)) -> Option<bool> {
    let on = member.flag().ok().flatten()?;
    match key.to_lowercase().as_str() {
        "enable" | "enabled" => Some(on),
        "disable" | "disabled" => Some(!on),
        _ => None,
    }
}

fn word_sense(words: &[String]) -> SwitchSense {
    if has_word(words, &TAKING) || has_word(words, &NEGATIONS) { SwitchSense::Takes } else { SwitchSense::Gives }
}

/// Reports whether a name ends with an object and says before it, or with its last word, that it is taken or given.
fn names_object(words: &[String]) -> bool {
    let is_verb =
        |word: &String| [&TAKING[..], &GIVING].iter().any(|verbs| has_word(std::slice::from_ref(word), verbs));
    let is_object = |word: &String| has_word(std::slice::from_ref(word), &OBJECTS);
    let Some((last, before)) = words.split_last() else { return false };
    if is_verb(last) && before.last().is_some_and(is_object) {
        return true;
    }
    // "disabled built in tools": a participle belongs to what follows, another verb to its neighbour.
    let participle = before.iter().any(|word| is_verb(word) && word.ends_with("ed"));
    let neighbour = before.iter().rev().find(|word| is_verb(word) || !is_object(word)).is_some_and(is_verb);
    is_object(last) && (participle || neighbour)
}

#[cfg(test)]
mod tests {
    use super::{RestrictionClaim, RestrictionKind, SwitchSense, limit_claim, setting_claim, switch_claim};

    #[test]
    fn a_name_stands_for_access_by_words_that_belong_together() {
        let takes = |what| Some(RestrictionClaim { what, sense: SwitchSense::Takes });
        let gives = |what| Some(RestrictionClaim { what, sense: SwitchSense::Gives });
        for (name, want) in [
            ("approvalMode", takes(RestrictionKind::Approvals)),
            ("skip-permissions", gives(RestrictionKind::Approvals)),
            ("SANDBOX", takes(RestrictionKind::Reach)),
            ("read_only", takes(RestrictionKind::Reach)),
            ("toolAllowList", takes(RestrictionKind::Tools)),
            ("disabledMcpTools", takes(RestrictionKind::Tools)),
            ("execPolicy", takes(RestrictionKind::Tools)),
            ("enabledTools", gives(RestrictionKind::Tools)),
            ("allowedBashCommands", gives(RestrictionKind::Tools)),
            ("codeBlockIndent", None),
            ("enableSkillCommands", None),
            ("readAhead", None),
            ("retryPolicy", None),
            ("maxTurns", None),
            ("", None),
        ] {
            assert_eq!(setting_claim(name), want, "{name}");
        }
    }

    #[test]
    fn a_switch_has_no_other_words() {
        let tools = ["read".to_owned()];
        for (name, want) in [
            ("bash", Some(SwitchSense::Gives)),
            ("read", Some(SwitchSense::Gives)),
            ("disabled", Some(SwitchSense::Takes)),
            ("enabledRead", Some(SwitchSense::Gives)),
            ("no-write", Some(SwitchSense::Takes)),
            ("intentTracing", None),
            ("readAhead", None),
            ("", None),
        ] {
            assert_eq!(switch_claim(name, &tools).map(|claim| claim.sense), want, "{name}");
        }
    }

    #[test]
    fn a_limit_is_one_by_its_whole_name() {
        for (name, want) in [
            ("maxTurns", true),
            ("max-tool-calls", true),
            ("costLimit", true),
            ("thinkingBudgets", false),
            ("maxTokens", false),
            ("max", false),
            ("turns", false),
            ("", false),
        ] {
            assert_eq!(limit_claim(name).is_some(), want, "{name}");
        }
    }
}
