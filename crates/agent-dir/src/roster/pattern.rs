//! Queries that a person writes for a model: ids, `provider/id`, parts of names, and patterns.
//!
//! It must not know keys or files: the caller gives it the models to choose from.

use countersign_runtime::models::entry::{ModelEntry, ThinkingLevel};

use super::ModelChoice;
use crate::wildcard::matches;

/// Returns the model that `query` names exactly. A level after a colon is looked for only if the whole is no id, for ids
/// have colons too.
pub(super) fn exact_match(entries: &[&ModelEntry], provider: Option<&str>, query: &str) -> Option<ModelChoice> {
    let named = |name: &str| {
        let of_provider =
            |entry: &&&ModelEntry| provider.is_none_or(|provider| entry.provider.eq_ignore_ascii_case(provider));
        let full = |entry: &ModelEntry| {
            name.split_once('/')
                .is_some_and(|(provider, id)| entry.provider.eq_ignore_ascii_case(provider) && entry.id == id)
        };
        let candidates = || entries.iter().filter(of_provider);
        candidates().find(|entry| full(entry)).or_else(|| candidates().find(|entry| entry.id == name)).copied()
    };
    with_level(query, named).map(|(entry, level)| ModelChoice { entry: entry.clone(), level })
}

/// Returns the model of which `query` is a part.
pub(super) fn fuzzy_match(entries: &[&ModelEntry], provider: Option<&str>, query: &str) -> Option<ModelChoice> {
    with_level(query, |name| match name.split_once('/') {
        Some((before, id)) if provider.is_none() && entries.iter().any(|entry| entry.provider == before) => {
            best_match(entries, Some(before), id)
        }
        Some(_) | None => best_match(entries, provider, name),
    })
    .map(|(entry, level)| ModelChoice { entry: entry.clone(), level })
}

/// Returns all models that a pattern means; one with wildcards may mean many.
pub(super) fn all_matches(entries: &[&ModelEntry], query: &str) -> Vec<ModelChoice> {
    if !query.contains(['*', '?', '[']) {
        return exact_match(entries, None, query).or_else(|| fuzzy_match(entries, None, query)).into_iter().collect();
    }
    let fit = |name: &str| -> Vec<&ModelEntry> {
        let pattern = name.to_lowercase();
        let full = |entry: &ModelEntry| format!("{}/{}", entry.provider, entry.id).to_lowercase();
        entries
            .iter()
            .copied()
            .filter(|entry| matches(&pattern, &full(entry)) || matches(&pattern, &entry.id.to_lowercase()))
            .collect()
    };
    let found = fit(query);
    let (found, level) = match split_level(query) {
        Some((name, level)) if found.is_empty() => (fit(name), Some(level)),
        Some(_) | None => (found, None),
    };
    found.into_iter().map(|entry| ModelChoice { entry: entry.clone(), level }).collect()
}

/// Returns the best of the models whose id or name has `part` in it: that id itself, an id without a date before one with, the
/// greatest id.
pub(super) fn best_match<'a>(entries: &[&'a ModelEntry], provider: Option<&str>, part: &str) -> Option<&'a ModelEntry> {
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

fn with_level<T>(query: &str, find: impl Fn(&str) -> Option<T>) -> Option<(T, Option<ThinkingLevel>)> {
    if let Some(found) = find(query) {
        return Some((found, None));
    }
    let (name, level) = split_level(query)?;
    find(name).map(|found| (found, Some(level)))
}

fn split_level(query: &str) -> Option<(&str, ThinkingLevel)> {
    let (name, level) = query.rsplit_once(':')?;
    Some((name, ThinkingLevel::parse(level)?))
}

#[cfg(test)]
mod tests {
    use super::{ThinkingLevel, split_level};

    #[test]
    fn a_level_may_stand_behind_the_name_of_a_model() {
        for (query, want) in [
            ("p/m:high", Some(("p/m", ThinkingLevel::High))),
            ("p/m:max", Some(("p/m", ThinkingLevel::Xhigh))),
            ("p/m:free", None),
            ("p/m", None),
        ] {
            assert_eq!(split_level(query), want, "{query}");
        }
    }
}
