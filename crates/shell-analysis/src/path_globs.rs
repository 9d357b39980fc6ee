//! Wildcards of the shell in the parts of a path.
//!
//! It must not know what is on the disk.

use super::word::GLOB;
use crate::fnmatch::GlobPattern;

/// What wildcards make of names that begin with a dot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HiddenNames {
    /// One at the beginning may match them.
    Matched,
    /// One at the beginning matches none of them.
    PassedOver,
}

/// Whether a part of a path, perhaps with wildcards, may be `wanted`.
pub(super) fn matches_part(part: &str, name: &str, hidden: HiddenNames) -> bool {
    let Some(first) = part.find(GLOB) else { return part == name };
    let passes_over = first == 0 && name.starts_with('.') && hidden == HiddenNames::PassedOver;
    if passes_over || !name.starts_with(&part[..first]) {
        return false;
    }
    // What stands in brackets is not kept apart from what stands behind them.
    let pattern = match part.rfind(']').filter(|end| first < *end) {
        Some(end) => format!("{}*{}", &part[..first], &part[end + 1..]),
        None => part.to_owned(),
    };
    GlobPattern::new(&pattern.replace(GLOB, "*")).matches(name)
}
