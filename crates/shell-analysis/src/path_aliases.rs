//! Paths that go through names which lead elsewhere on every machine: what the kernel tells of processes, and folders that moved.

use super::{
    path_globs::{HiddenNames, matches_part},
    word::{GLOB, UNKNOWN},
};
use crate::path;

/// The most such names that are followed in one path.
pub(super) const MOST_WAYS: usize = 8;

/// Target of a path that goes through such a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AliasTarget {
    /// To this path, which has fewer parts.
    To(String),
    /// Unknown: into the folder of another process, or through a descriptor.
    Anywhere,
}

impl AliasTarget {
    /// Returns the path, if it is known.
    pub(super) fn known_path(&self) -> Option<&str> {
        match self {
            Self::To(text) => Some(text),
            Self::Anywhere => None,
        }
    }
}

/// Returns the way that `text` takes from `dir` if it goes through such a name. `dir` is where the shell really is.
pub(super) fn alias_target(hidden: HiddenNames, dir: &str, text: &str) -> Option<AliasTarget> {
    const NAMES: [&str; 3] = ["proc", "dev", "var"];
    let base = if text.starts_with('/') { "" } else { dir };
    let may_pass = |text: &str| NAMES.iter().any(|name| text.contains(name)) || text.contains(GLOB);
    if !may_pass(text) && !may_pass(base) {
        return None;
    }
    let is = |part: &str, name: &str| part == name || part.contains(GLOB) && matches_part(part, name, hidden);
    let is_any_link =
        |part: &str| part.contains(UNKNOWN) || part.contains(GLOB) && (is(part, "cwd") || is(part, "root"));
    let is_real = |part: &&str| !matches!(*part, "" | ".");
    let mut way: Vec<&str> = base.split('/').filter(is_real).collect();
    let mut left = text.split('/').filter(is_real);
    while let Some(part) = left.next() {
        if part == ".." {
            way.pop();
            continue;
        }
        way.push(part);
        let goes_on = left.clone().next().is_some();
        let (start, is_sure) = match way.as_slice() {
            [first, "self" | "thread-self", .., "cwd"] if is(first, "proc") => (".", true),
            [first, _, .., "root"] if is(first, "proc") => ("", true),
            [first, _, .., "cwd"] if is(first, "proc") => ("", false),
            [first, who, .., "fd", _] if is(first, "proc") && (goes_on || *who != "self") => ("", false),
            [first, _, .., link] if is(first, "proc") && goes_on && is_any_link(link) => ("", false),
            [first, link, _] if is(first, "dev") && is(link, "fd") && goes_on => ("", false),
            [first, link] if is(first, "dev") && goes_on && link.starts_with("std") => ("", false),
            ["var", "run"] if goes_on => ("/run", true),
            ["var", "lock"] if goes_on => ("/run/lock", true),
            _ => continue,
        };
        let rest = || left.clone().collect::<Vec<_>>().join("/");
        return Some(if is_sure { AliasTarget::To(format!("{start}/{}", rest())) } else { AliasTarget::Anywhere });
    }
    None
}

/// Returns every path that `text` may lead to from `dir`, as far as it can be determined.
pub(super) fn reached_paths(hidden: HiddenNames, dir: &str, text: &str) -> Vec<String> {
    let mut reached = vec![path::resolve(dir, text)];
    let mut way = alias_target(hidden, dir, text);
    while let Some(AliasTarget::To(text)) = way.filter(|_| reached.len() < MOST_WAYS) {
        reached.push(path::resolve(dir, &text));
        way = alias_target(hidden, dir, &text);
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::{AliasTarget, HiddenNames, alias_target, reached_paths};

    #[test]
    fn a_way_through_processes_leads_back() {
        for (dir, text, want) in [
            ("/w", "/proc/self/cwd/../x", Some("./../x")),
            ("/w", "/proc/self/task/12/cwd/x", Some("./x")),
            ("/w", "//proc/./self/root/etc/x", Some("/etc/x")),
            ("/w", "/proc/12/root/etc/x", Some("/etc/x")),
            ("/w", "/usr/../proc/self/cwd/x", Some("./x")),
            ("/w/a", "../../proc/self/cwd/../x", Some("./../x")),
            ("/w", "/proc/self/cwd", Some("./")),
            ("/w", "/var/run/../x", Some("/run/../x")),
            ("/w", "/proc/12/cwd/x", Some("anywhere")),
            ("/w", "/proc/*/cwd/x", Some("anywhere")),
            ("/w", "/proc/self/c[w]d/x", Some("anywhere")),
            ("/w", "/proc/self/fd/7/x", Some("anywhere")),
            ("/w", "/proc/12/fd/7", Some("anywhere")),
            ("/w", "/dev/fd/7/x", Some("anywhere")),
            ("/w", "/dev/stdin/x", Some("anywhere")),
            ("/w", "/proc/self/../cpuinfo", None),
            ("/w", "/proc/self/fd/7", None),
            ("/w", "/dev/stdin", None),
            ("/w", "/proc/cpuinfo", None),
            ("/w", "/home/ana", None),
            ("/w", "proc/self/cwd/x", None),
        ] {
            let text_of = |way: AliasTarget| match way {
                AliasTarget::To(text) => text,
                AliasTarget::Anywhere => "anywhere".to_owned(),
            };
            let text = text.replace('*', &super::GLOB.to_string()).replace('[', &super::GLOB.to_string());
            assert_eq!(alias_target(HiddenNames::PassedOver, dir, &text).map(text_of).as_deref(), want, "{dir} {text}");
        }
        let hidden = HiddenNames::PassedOver;
        let found = reached_paths(hidden, "/w/a", "/proc/self/cwd/../proc/self/cwd/x");
        assert_eq!(found, ["/proc/self/proc/self/cwd/x", "/w/proc/self/cwd/x"]);
        assert_eq!(reached_paths(hidden, "/w/a", "../b"), ["/w/b"]);
    }

    #[test]
    fn a_folder_that_is_such_a_name_is_gone_on_from_as_it_is() {
        for dir in ["/proc/self/cwd", "/proc/self/cwd/sub", "/proc/self/fd/3", "/dev/fd/3", "/var/run"] {
            let hidden = HiddenNames::PassedOver;
            for text in ["../x", "a", "."] {
                assert_eq!(alias_target(hidden, dir, text), None, "{dir} {text}");
                assert_eq!(reached_paths(hidden, dir, text).len(), 1, "{dir} {text}");
            }
        }
    }
}
