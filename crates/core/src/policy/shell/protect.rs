//! The gateway's own files: which words of a command lead there.

use super::{
    here::Here,
    line::Place,
    word::{GLOB, UNKNOWN, Word},
};
use crate::policy::{fnmatch::Pattern, path};

/// A protected path that a word leads to.
pub(super) enum Found {
    /// It does.
    Surely(String),
    /// It may, depending on what is only known when the line runs.
    Perhaps(String),
}

/// The protected path that an argument of a command that may write leads to.
pub(super) fn written(place: &Place, here: &Here, argv: &[Word]) -> Option<Found> {
    argv.iter().skip(1).find_map(|word| {
        let behind_equals = word.value.split_once('=').map(|(_, path)| path);
        let option = word.value.strip_prefix('-');
        let behind_slash = option.and_then(|rest| rest.find('/').map(|at| &rest[at..]));
        let behind_letter = option.and_then(|rest| rest.char_indices().nth(1)).map(|(at, _)| &word.value[at + 1..]);
        [Some(word.value.as_str()), behind_equals, behind_slash, behind_letter]
            .into_iter()
            .flatten()
            .find_map(|text| leads(place, here, text))
    })
}

/// The protected path that `text` leads to.
pub(super) fn leads(place: &Place, here: &Here, text: &str) -> Option<Found> {
    if place.protected.is_empty() || text.is_empty() {
        return None;
    }
    let unknown = text.contains(UNKNOWN) || (here.is_unknown() && !text.starts_with('/'));
    for dir in here.dirs() {
        let target = path::resolve(dir, text);
        for root in &place.protected {
            if !unknown && (path::is_within(root, &target) || matches_into(&target, root)) {
                return Some(Found::Surely(root.clone()));
            }
        }
    }
    // Of an unknown folder the last part of the path tells at least that it may be ours.
    let last = text.rsplit('/').next().unwrap_or(text);
    let same_name = |root: &&String| !last.is_empty() && root.rsplit('/').next() == Some(last);
    place.protected.iter().find(same_name).filter(|_| unknown).map(|root| Found::Perhaps(root.clone()))
}

/// True if the parts of a path with wildcards can lead to `root` or into it.
fn matches_into(target: &str, root: &str) -> bool {
    if !target.contains(GLOB) {
        return false;
    }
    let mut parts = target.split('/');
    root.split('/')
        .all(|wanted| parts.next().is_some_and(|part| Pattern::new(&part.replace(GLOB, "*")).matches(wanted)))
}
