//! Modules of a crate that a file names by a path from the crate's root: `crate::a::B`, `use crate::{a, b::C}`, `super::a`.
//!
//! It reads blanked code, see [`RustSource`](super::source::RustSource), and follows no path beyond its first name.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use crate::tidy::source::is_word;

const TEST: &str = "#[cfg(test)]";

/// One name after the root of the crate, with its line from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RootName {
    pub(crate) line: usize,
    pub(crate) name: String,
}

/// Returns `code` with every item blanked that is compiled for tests only, and the names of such modules in files of their own.
pub(crate) fn without_tests(code: &str) -> (String, BTreeSet<String>) {
    let (mut kept, mut modules) = (String::with_capacity(code.len()), BTreeSet::new());
    let mut rest = code;
    while let Some(at) = rest.find(TEST) {
        let item = &rest[at..];
        let length = item_length(item);
        let words: Vec<&str> = item[..length].split(|c: char| !is_word(c)).filter(|word| !word.is_empty()).collect();
        if let Some([_, name]) =
            words.windows(2).find(|pair| pair[0] == "mod").filter(|_| item[..length].ends_with(';'))
        {
            modules.insert((*name).to_owned());
        }
        kept.push_str(&rest[..at]);
        kept.extend(item[..length].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = &item[length..];
    }
    kept.push_str(rest);
    (kept, modules)
}

/// Returns the length of an item with its attributes: up to its semicolon or the brace that closes its body.
fn item_length(item: &str) -> usize {
    let is_import = item.split_once(']').is_some_and(|(_, rest)| {
        let rest = rest.trim_start();
        rest.starts_with("use ") || rest.starts_with("pub use ") || rest.starts_with("pub(crate) use ")
    });
    let (mut depth, mut brackets) = (0_usize, 0_usize);
    for (at, c) in item.char_indices() {
        match c {
            '[' | '(' => brackets += 1,
            ']' | ')' => brackets = brackets.saturating_sub(1),
            ';' if depth == 0 && brackets == 0 => return at + 1,
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && !is_import {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    item.len()
}

/// Returns every name that `code`, which lies `depth` modules below the root, names directly after the root.
pub(crate) fn root_names(code: &str, depth: usize) -> Vec<RootName> {
    let mut found = Vec::new();
    for path in root_paths(code, depth) {
        let line = |at: usize| code[..at].matches('\n').count() + 1;
        let names = first_names(code, path);
        found.extend(names.into_iter().map(|at| RootName { line: line(at.start), name: code[at].to_owned() }));
    }
    found
}

/// Returns the positions at which paths continue after `crate::` or as many `super::` as lead to the root.
fn root_paths(code: &str, depth: usize) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = next_word(code, at) {
        at = next.end;
        if code[..next.start].ends_with("::") {
            continue;
        }
        let mut supers = 0;
        let mut end = next.end;
        let mut word = &code[next.clone()];
        if word == "self" && code[end..].starts_with("::super") {
            end += "::super".len();
            word = "super";
        }
        while word == "super" {
            supers += 1;
            match code[end..].strip_prefix("::super") {
                Some(rest) if !rest.starts_with(is_word) => end += "::super".len(),
                Some(_) | None => word = "",
            }
        }
        let is_root = word == "crate" || supers > 0 && supers >= depth;
        if is_root && code[end..].starts_with("::") {
            found.push(end + 2);
        }
        at = end;
    }
    found
}

fn next_word(code: &str, from: usize) -> Option<Range<usize>> {
    let start = from + code[from..].find(is_word)?;
    let length = code[start..].find(|c| !is_word(c)).unwrap_or(code.len() - start);
    Some(start..start + length)
}

/// Returns the first names of the path, or of each path in braces, that begins at `at`.
fn first_names(code: &str, at: usize) -> Vec<Range<usize>> {
    let Some(inside) = code[at..].strip_prefix('{') else {
        return next_word(code, at).filter(|word| word.start == at).into_iter().collect();
    };
    let begin = code.len() - inside.len();
    let mut found = Vec::new();
    let (mut depth, mut is_first) = (0_usize, true);
    let mut here = begin;
    while let Some(c) = code[here..].chars().next() {
        if is_word(c) {
            let Some(word) = next_word(code, here) else { break };
            here = word.end;
            if depth == 0 && std::mem::take(&mut is_first) && code[word.clone()] != *"self" {
                found.push(word);
            }
            continue;
        }
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => is_first = true,
            _ => {}
        }
        here += c.len_utf8();
    }
    found
}

/// Returns the names that the root file `code` gives to items of its modules: name to module.
pub(crate) fn re_exports(code: &str, modules: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut rest = code;
    while let Some(at) = rest.find("use ") {
        let is_item = !rest[..at].ends_with(is_word);
        let tree = &rest[at + "use ".len()..];
        let end = tree.find(';').unwrap_or(tree.len());
        if is_item {
            add_import_names(&tree[..end], None, modules, &mut found);
        }
        rest = &tree[end..];
    }
    found
}

/// Adds the names that the tree `tree` of an import brings in, where it leads through a module of the crate.
fn add_import_names(
    tree: &str,
    module: Option<&str>,
    modules: &BTreeSet<String>,
    found: &mut BTreeMap<String, String>,
) {
    let tree = tree.trim();
    let tree = tree.strip_prefix("self::").or_else(|| tree.strip_prefix("crate::")).unwrap_or(tree);
    if let Some(group) = tree.strip_prefix('{') {
        let group = group.strip_suffix('}').unwrap_or(group);
        return split_group(group).into_iter().for_each(|part| add_import_names(part, module, modules, found));
    }
    if let Some((first, rest)) = tree.split_once("::") {
        let module = module.or_else(|| modules.get(first.trim()).map(String::as_str));
        return add_import_names(rest, module, modules, found);
    }
    let mut words = tree.split_whitespace();
    let first = words.next().unwrap_or_default();
    if let Some(module) = module.or_else(|| modules.get(first).map(String::as_str)) {
        found.insert(words.last().unwrap_or(first).to_owned(), module.to_owned());
    }
}

/// Returns the parts of `group` between its own commas.
fn split_group(group: &str) -> Vec<&str> {
    let (mut depth, mut from) = (0_usize, 0);
    let mut found = Vec::new();
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                found.push(&group[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    found.push(&group[from..]);
    found.retain(|part| !part.trim().is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(code: &str, depth: usize) -> Vec<(usize, String)> {
        root_names(code, depth).into_iter().map(|found| (found.line, found.name)).collect()
    }

    #[test]
    fn names_behind_the_root_are_found_in_every_form() {
        for (code, depth, want) in [
            ("use crate::a::B;", 1, vec![(1, "a")]),
            ("use crate::{\n    a::{self, B},\n    c,\n    d as e,\n};", 1, vec![(2, "a"), (3, "c"), (4, "d")]),
            ("let x = crate::a::b(crate::c());", 1, vec![(1, "a"), (1, "c")]),
            ("pub(crate) use crate::a;", 1, vec![(1, "a")]),
            ("use super::a::B;", 1, vec![(1, "a")]),
            ("use super::a::B;", 2, vec![]),
            ("use super::super::{a, b};\nself::super::super::c();", 2, vec![(1, "a"), (1, "b"), (2, "c")]),
            ("pub(crate) fn f(x: &mut crate::a::B<crate::c::D>) {}", 1, vec![(1, "a"), (1, "c")]),
            ("use std::a; use a::crate_b::c; super_::d();", 1, vec![]),
        ] {
            let want: Vec<(usize, String)> = want.into_iter().map(|(line, name)| (line, name.to_owned())).collect();
            assert_eq!(names(code, depth), want, "{code}");
        }
    }

    #[test]
    fn items_for_tests_are_blanked_and_modules_of_them_are_named() {
        let code = "use a;\n#[cfg(test)]\nuse b::{c, d};\n#[cfg(test)]\n#[allow(x)]\nmod testing;\n#[cfg(test)]\nfn e() {\n}\nuse f;\n#[cfg(test)]\nmod tests {\n    use g;\n}\n";
        let (kept, modules) = without_tests(code);
        let kept: Vec<&str> = kept.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert_eq!(kept, ["use a;", "use f;"]);
        assert_eq!(modules, BTreeSet::from(["testing".to_owned()]));
    }

    #[test]
    fn names_of_the_root_file_lead_to_their_modules() {
        let modules = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        let code =
            "mod a;\nmod b;\npub use a::One;\npub use self::{a::two::Three, b::{Four as Five, Six}};\nuse std::fmt;";
        let found = re_exports(code, &modules);
        let found: Vec<(&str, &str)> = found.iter().map(|(name, module)| (name.as_str(), module.as_str())).collect();
        assert_eq!(found, [("Five", "b"), ("One", "a"), ("Six", "b"), ("Three", "a")]);
    }
}
