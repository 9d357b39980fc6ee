//! Wildcards of the shell in the parts of a path.
//!
//! It must not know what is on the disk.

use super::word::GLOB;
use crate::fnmatch::GlobPattern;

/// Treatment of names that begin with a dot by wildcards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HiddenNames {
    /// One at the beginning may match them.
    Matched,
    /// One at the beginning matches none of them.
    PassedOver,
}

/// Reports whether a part of a path, perhaps with wildcards, may be `name`.
pub(super) fn matches_part(part: &str, name: &str, hidden: HiddenNames) -> bool {
    let Some(first) = part.find(GLOB) else { return part == name };
    let passes_over = first == 0 && name.starts_with('.') && hidden == HiddenNames::PassedOver;
    if passes_over || !name.starts_with(&part[..first]) {
        return false;
    }
    // Brackets are not kept apart from the text after them.
    let pattern = match part.rfind(']').filter(|end| first < *end) {
        Some(end) => format!("{}*{}", &part[..first], &part[end + 1..]),
        None => part.to_owned(),
    };
    GlobPattern::new(&pattern.replace(GLOB, "*")).matches(name)
}
