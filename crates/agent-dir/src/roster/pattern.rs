//! What a person writes for a model: ids, `provider/id`, parts of names, and patterns.
//!
//! It must not know keys or files: it is given the models to choose from.

use countersign_runtime::models::entry::{Entry, Level};

use super::Choice;

/// The model that `wanted` names exactly. A level behind a colon is looked for only where the whole is no id, for ids
/// have colons too.
pub(super) fn exact(entries: &[&Entry], provider: Option<&str>, wanted: &str) -> Option<Choice> {
    let named = |wanted: &str| {
        let of_provider =
            |entry: &&&Entry| provider.is_none_or(|provider| entry.provider.eq_ignore_ascii_case(provider));
        let full = |entry: &Entry| {
            wanted
                .split_once('/')
                .is_some_and(|(provider, id)| entry.provider.eq_ignore_ascii_case(provider) && entry.id == id)
        };
        let candidates = || entries.iter().filter(of_provider);
        candidates().find(|entry| full(entry)).or_else(|| candidates().find(|entry| entry.id == wanted)).copied()
    };
    with_level(wanted, named).map(|(entry, level)| Choice { entry: entry.clone(), level })
}

/// The model of which `wanted` is a part.
pub(super) fn fuzzy(entries: &[&Entry], provider: Option<&str>, wanted: &str) -> Option<Choice> {
    with_level(wanted, |wanted| match wanted.split_once('/') {
        Some((before, id)) if provider.is_none() && entries.iter().any(|entry| entry.provider == before) => {
            best(entries, Some(before), id)
        }
        Some(_) | None => best(entries, provider, wanted),
    })
    .map(|(entry, level)| Choice { entry: entry.clone(), level })
}

/// All models that a pattern means; one with wildcards may mean many.
pub(super) fn all(entries: &[&Entry], wanted: &str) -> Vec<Choice> {
    if !wanted.contains(['*', '?', '[']) {
        return exact(entries, None, wanted).or_else(|| fuzzy(entries, None, wanted)).into_iter().collect();
    }
    let fit = |wanted: &str| -> Vec<&Entry> {
        let wanted = wanted.to_lowercase();
        let full = |entry: &Entry| format!("{}/{}", entry.provider, entry.id).to_lowercase();
        entries
            .iter()
            .copied()
            .filter(|entry| matches(&wanted, &full(entry)) || matches(&wanted, &entry.id.to_lowercase()))
            .collect()
    };
    let found = fit(wanted);
    let (found, level) = match split_level(wanted) {
        Some((name, level)) if found.is_empty() => (fit(name), Some(level)),
        Some(_) | None => (found, None),
    };
    found.into_iter().map(|entry| Choice { entry: entry.clone(), level }).collect()
}

/// The best of the models whose id or name has `part` in it: that id itself, an id without a date before one with, the
/// greatest id.
pub(super) fn best<'a>(entries: &[&'a Entry], provider: Option<&str>, part: &str) -> Option<&'a Entry> {
    let part = part.to_lowercase();
    entries
        .iter()
        .copied()
        .filter(|entry| provider.is_none_or(|provider| entry.provider.eq_ignore_ascii_case(provider)))
        .filter(|entry| entry.id.to_lowercase().contains(&part) || entry.name.to_lowercase().contains(&part))
        .max_by_key(|entry| (entry.id.eq_ignore_ascii_case(&part), !is_dated(&entry.id), &entry.id))
}

fn is_dated(id: &str) -> bool {
    id.rsplit('-').next().is_some_and(|end| end.len() == 8 && end.bytes().all(|digit| digit.is_ascii_digit()))
}

fn with_level<T>(wanted: &str, find: impl Fn(&str) -> Option<T>) -> Option<(T, Option<Level>)> {
    if let Some(found) = find(wanted) {
        return Some((found, None));
    }
    let (name, level) = split_level(wanted)?;
    find(name).map(|found| (found, Some(level)))
}

fn split_level(wanted: &str) -> Option<(&str, Level)> {
    let (name, level) = wanted.rsplit_once(':')?;
    Some((name, Level::parse(level)?))
}

/// Whether `text` is what `pattern` means: `*` any letters, `?` any one letter, `[…]` one of them (`[!…]` none of
/// them).
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    // Only the last star is ever tried again: with it all earlier ones have what they need.
    let (mut at, mut from, mut star) = (0, 0, None);
    while from < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, from));
                at += 1;
                continue;
            }
            Some(_) => {
                if let Some(next) = one(&pattern, at, text[from]) {
                    (at, from) = (next, from + 1);
                    continue;
                }
            }
            None => {}
        }
        let Some((star_at, star_from)) = star else { return false };
        star = Some((star_at, star_from + 1));
        (at, from) = (star_at + 1, star_from + 1);
    }
    pattern[at..].iter().all(|letter| *letter == '*')
}

/// Where the pattern goes on if its part at `at` means `letter`.
fn one(pattern: &[char], at: usize, letter: char) -> Option<usize> {
    if pattern[at] == '?' {
        return Some(at + 1);
    }
    let close = (pattern[at] == '[')
        .then(|| pattern.iter().skip(at + 2).position(|letter| *letter == ']'))
        .flatten()
        .map(|behind| at + 2 + behind);
    let Some(close) = close else { return (pattern[at] == letter).then_some(at + 1) };
    let inside = &pattern[at + 1..close];
    let (inside, wanted) = match inside.split_first() {
        Some(('!' | '^', rest)) => (rest, false),
        Some(_) | None => (inside, true),
    };
    let mut found = false;
    let mut rest = inside;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match behind {
            ['-', last, tail @ ..] => {
                found |= (*first..=*last).contains(&letter);
                rest = tail;
            }
            _ => found |= *first == letter,
        }
    }
    (found == wanted).then_some(close + 1)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_pattern_means_what_a_shell_would_say() {
        for (pattern, text, want) in [
            ("*", "", true),
            ("claude-*", "claude-1", true),
            ("claude-*", "a/claude-1", false),
            ("*/claude-*-5", "a/claude-x-4-5", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[!a-c]x", "dx", true),
            ("[x", "[x", true),
            ("*a*b", "aab", true),
            ("*a*b", "aba", false),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, text), want, "{pattern} {text}");
        }
    }
}
