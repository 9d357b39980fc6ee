//! Paths that lead through what the kernel tells of processes, back to where the shell is.

use super::{
    here::Here,
    protect::matches_part,
    word::{GLOB, UNKNOWN},
};
use crate::policy::path;

/// Where `text` leads from `dir` if it goes through what the kernel tells of a process: behind the working folder of one it counts
/// from `dir` again, behind its root from the root, and behind a descriptor nobody can tell. None if it goes no such way.
pub(super) fn straight(here: &Here, dir: &str, text: &str) -> Option<String> {
    let base = if text.starts_with('/') { "" } else { dir };
    let may_pass = |text: &str| ["proc", "dev"].iter().any(|name| text.contains(name)) || text.contains(GLOB);
    if !may_pass(text) && !may_pass(base) {
        return None;
    }
    let is = |part: &str, wanted: &str| part == wanted || part.contains(GLOB) && matches_part(part, wanted, here);
    let mut way: Vec<&str> = Vec::new();
    let mut left = base.split('/').chain(text.split('/')).filter(|part| !matches!(*part, "" | "."));
    while let Some(part) = left.next() {
        if part == ".." {
            way.pop();
            continue;
        }
        way.push(part);
        let start = match way.as_slice() {
            [first, _, .., link] if is(first, "proc") && is(link, "cwd") => ".".to_owned(),
            [first, _, .., link] if is(first, "proc") && is(link, "root") => String::new(),
            [first, _, .., link, _] if is(first, "proc") && is(link, "fd") => UNKNOWN.to_string(),
            [first, link, _] if is(first, "dev") && is(link, "fd") => UNKNOWN.to_string(),
            _ => continue,
        };
        return Some(format!("{start}/{}", left.collect::<Vec<_>>().join("/")));
    }
    None
}

/// Every path that `text` may lead to from `dir`, as far as that can be told.
pub(super) fn reached(here: &Here, dir: &str, text: &str) -> Vec<String> {
    let mut reached = vec![path::resolve(dir, text)];
    let mut way = straight(here, dir, text);
    while let Some(text) = way.filter(|text| !text.contains(UNKNOWN)) {
        reached.push(path::resolve(dir, &text));
        way = straight(here, dir, &text);
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::{Here, UNKNOWN, reached, straight};

    #[test]
    fn a_way_through_processes_leads_back() {
        let unknown = format!("{UNKNOWN}/x");
        for (dir, text, want) in [
            ("/w", "/proc/self/cwd/../x", Some("./../x")),
            ("/w", "/proc/12/task/12/cwd/x", Some("./x")),
            ("/w", "//proc/./self/root/etc/x", Some("/etc/x")),
            ("/w", "/usr/../proc/self/cwd/x", Some("./x")),
            ("/w/a", "../../proc/self/cwd/../x", Some("./../x")),
            ("/proc/self", "cwd/../x", Some("./../x")),
            ("/w", "/proc/self/cwd", Some("./")),
            ("/w", "/proc/self/fd/7/x", Some(unknown.as_str())),
            ("/w", "/dev/fd/7/x", Some(unknown.as_str())),
            ("/w", "/proc/self/../cpuinfo", None),
            ("/w", "/proc/cpuinfo", None),
            ("/w", "/home/ana", None),
            ("/w", "proc/self/cwd/x", None),
        ] {
            assert_eq!(straight(&Here::at(dir, false), dir, text).as_deref(), want, "{dir} {text}");
        }
        let here = Here::at("/w/a", false);
        let found = reached(&here, "/w/a", "/proc/self/cwd/../proc/self/cwd/x");
        assert_eq!(found, ["/proc/self/proc/self/cwd/x", "/w/proc/self/cwd/x"]);
        assert_eq!(reached(&here, "/w/a", "../b"), ["/w/b"]);
    }
}
