//! Names and values of settings that say that they take tools, commands, files, the network or approvals away, whichever program they
//! belong to.
//!
//! It must not know which settings there are. Source: docs/protocol/omp.md, Fields that restrict.

use countersign_config::yaml::Place;

use super::names::{ABILITIES, NEGATIONS, Restricts, has, words};

/// What a setting says by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// What it restricts.
    pub(super) what: Restricts,
    /// What its value says.
    pub(super) sense: Sense,
}

/// What it means that a setting is switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sense {
    /// Something is taken away.
    Takes,
    /// Something is given: it is taken away where the setting is switched off, or lists what is given.
    Gives,
}

/// Words for approvals.
const APPROVALS: [&str; 3] = ["approv*", "permission*", "permit*"];

/// Words for what can be reached.
const REACH: [&str; 4] = ["sandbox*", "readonly", "jail*", "dryrun"];

/// Words for lists of what is not to be had.
const LISTS: [&str; 9] =
    ["disallow*", "deny*", "denied", "forbid*", "restrict*", "whitelist*", "blacklist*", "allowlist*", "blocklist*"];

/// Two words that say together what one of the others says.
const PHRASES: [(&str, &str, Restricts); 4] = [
    ("read", "only", Restricts::Reach),
    ("dry", "run", Restricts::Reach),
    ("allow", "list*", Restricts::Tools),
    ("block", "list*", Restricts::Tools),
];

/// Words that take away what the object beside them stands for.
const TAKING: [&str; 12] = [
    "no", "not", "without", "disable*", "exclud*", "block", "blocked", "prevent*", "protect*", "require*", "confirm*",
    "polic*",
];

/// Words that give what the object beside them stands for.
const GIVING: [&str; 5] = ["allow", "allowed", "enable*", "writable", "access*"];

/// What an agent uses or reaches.
const OBJECTS: [&str; 17] = [
    "tool*", "command*", "bash", "shell*", "exec*", "writ*", "edit*", "net", "network*", "internet", "web", "file*",
    "path*", "dir*", "folder*", "host*", "domain*",
];

/// Words that take a restriction back.
const UNDOING: [&str; 8] = ["no", "not", "without", "disable*", "skip*", "bypass*", "auto", "never"];

/// Words for a limit.
const LIMITS: [&str; 5] = ["max", "maximum", "limit*", "budget*", "quota*"];

/// What a whole session uses up.
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
pub(super) fn claim(key: &str) -> Option<Claim> {
    let words = words(key);
    let pair = |(first, second): (&[&str], &[&str])| {
        words.windows(2).any(|pair| has(&pair[..1], first) && has(&pair[1..], second))
    };
    let phrase = PHRASES.iter().find(|(first, second, _)| pair((&[first], &[second])));
    let found = [(&APPROVALS[..], Restricts::Approvals), (&REACH, Restricts::Reach), (&LISTS, Restricts::Tools)];
    let found = found.into_iter().find(|(patterns, _)| has(&words, patterns)).map(|(_, what)| what);
    if let Some(what) = found.or_else(|| phrase.map(|(_, _, what)| *what)) {
        let sense = if has(&words, &UNDOING) { Sense::Gives } else { Sense::Takes };
        return Some(Claim { what, sense });
    }
    names_object(&words).then(|| Claim { what: Restricts::Tools, sense: sense(&words) })
}

/// Returns what the switch of a section about tools says: a word that takes or gives, an ability, or one of `tools`.
pub(super) fn switch(name: &str, tools: &[String]) -> Option<Claim> {
    let words = words(name);
    let is_switch = |word: &String| {
        let one = std::slice::from_ref(word);
        [&TAKING[..], &GIVING, &NEGATIONS, &ABILITIES].iter().any(|patterns| has(one, patterns)) || tools.contains(word)
    };
    let is_one = !words.is_empty() && words.iter().all(is_switch);
    is_one.then(|| Claim { what: Restricts::Tools, sense: sense(&words) })
}

/// Returns what a setting at the top level says whose whole name is a limit of a session.
pub(super) fn limit(key: &str) -> Option<Claim> {
    let words = words(key);
    let all = words.iter().all(|word| has(std::slice::from_ref(word), &[&LIMITS[..], &SPENT].concat()));
    let is_limit = all && has(&words, &LIMITS) && has(&words, &SPENT);
    is_limit.then_some(Claim { what: Restricts::Amount, sense: Sense::Takes })
}

/// Whether the value here takes something away, as its name means it.
pub(super) fn restricts(place: &Place<'_>, sense: Sense) -> bool {
    if is_nothing(place) {
        return false;
    }
    if let Ok(Some(on)) = place.flag() {
        return on == (sense == Sense::Takes);
    }
    if let Ok(Some(text)) = place.text() {
        return match text.trim().to_lowercase().as_str() {
            "on" | "yes" | "true" => sense == Sense::Takes,
            "off" | "no" | "none" | "false" => sense == Sense::Gives,
            _ => true,
        };
    }
    let Ok(members) = place.members() else { return !place.is_negative() };
    match (members.iter().find_map(switched), sense) {
        (Some(is_on), Sense::Takes) => is_on,
        (Some(is_on), Sense::Gives) => !is_on,
        (None, Sense::Takes) => true,
        // Each member says what it gives.
        (None, Sense::Gives) => false,
    }
}

/// Whether there is nothing here, or nothing but empty lists, mappings and texts.
fn is_nothing(place: &Place<'_>) -> bool {
    let is_empty_list = || place.items().is_ok_and(|items| items.is_some_and(|items| items.is_empty()));
    let is_empty_map = || place.members().is_ok_and(|members| members.iter().all(|(_, member)| is_nothing(member)));
    let is_empty_text = || place.text().is_ok_and(|text| text.is_some_and(|text| text.trim().is_empty()));
    place.is_absent() || is_empty_list() || is_empty_map() || is_empty_text()
}

/// Whether a member of a mapping switches the whole of it on or off, if it is a switch.
fn switched((key, member): &(&str, Place<'_>)) -> Option<bool> {
    let on = member.flag().ok().flatten()?;
    match key.to_lowercase().as_str() {
        "enable" | "enabled" => Some(on),
        "disable" | "disabled" => Some(!on),
        _ => None,
    }
}

fn sense(words: &[String]) -> Sense {
    if has(words, &TAKING) || has(words, &NEGATIONS) { Sense::Takes } else { Sense::Gives }
}

/// Whether a name ends with an object and says before it, or with its last word, that it is taken or given.
fn names_object(words: &[String]) -> bool {
    let is_verb = |word: &String| [&TAKING[..], &GIVING].iter().any(|verbs| has(std::slice::from_ref(word), verbs));
    let is_object = |word: &String| has(std::slice::from_ref(word), &OBJECTS);
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
    use super::{Claim, Restricts, Sense, claim, limit, switch};

    #[test]
    fn a_name_stands_for_access_by_words_that_belong_together() {
        let takes = |what| Some(Claim { what, sense: Sense::Takes });
        let gives = |what| Some(Claim { what, sense: Sense::Gives });
        for (name, want) in [
            ("approvalMode", takes(Restricts::Approvals)),
            ("skip-permissions", gives(Restricts::Approvals)),
            ("SANDBOX", takes(Restricts::Reach)),
            ("read_only", takes(Restricts::Reach)),
            ("toolAllowList", takes(Restricts::Tools)),
            ("disabledMcpTools", takes(Restricts::Tools)),
            ("execPolicy", takes(Restricts::Tools)),
            ("enabledTools", gives(Restricts::Tools)),
            ("allowedBashCommands", gives(Restricts::Tools)),
            ("codeBlockIndent", None),
            ("enableSkillCommands", None),
            ("readAhead", None),
            ("retryPolicy", None),
            ("maxTurns", None),
            ("", None),
        ] {
            assert_eq!(claim(name), want, "{name}");
        }
    }

    #[test]
    fn a_switch_has_no_other_words() {
        let tools = ["read".to_owned()];
        for (name, want) in [
            ("bash", Some(Sense::Gives)),
            ("read", Some(Sense::Gives)),
            ("disabled", Some(Sense::Takes)),
            ("enabledRead", Some(Sense::Gives)),
            ("no-write", Some(Sense::Takes)),
            ("intentTracing", None),
            ("readAhead", None),
            ("", None),
        ] {
            assert_eq!(switch(name, &tools).map(|claim| claim.sense), want, "{name}");
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
            assert_eq!(limit(name).is_some(), want, "{name}");
        }
    }
}
