//! No circle between the top-level modules of a crate: what two modules need of each other lies in a third below both.
//!
//! An edge is a path from the crate's root in code that is no test. `lib.rs` and `main.rs` are no modules: a name that they re-export
//! is one of the module that it comes from.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
};

use crate::tidy::{
    TidyFinding,
    imports::{re_exports, root_names, without_tests},
    source::RustSource,
};

const WHY: &str = "modules of one crate form no circle: move what both need below both";

/// Edges between modules, each with the first place that makes it.
type ModuleEdges = BTreeMap<(String, String), (PathBuf, usize)>;

/// Finds every edge that is part of a circle, in the package with the folder `folder`.
pub(crate) fn findings(folder: &Path, sources: &[RustSource<'_>]) -> Vec<TidyFinding> {
    let edges = module_edges(folder, sources);
    let circles = find_cycles(edges.keys());
    let found = edges.iter().filter_map(|((from, to), (file, line))| {
        let circle = circles.iter().find(|circle| circle.contains(from) && circle.contains(to))?;
        let circle: Vec<&str> = circle.iter().map(String::as_str).collect();
        let what = format!("{from} → {to}, in the circle of {}", circle.join(", "));
        Some(TidyFinding { file: file.clone(), line: *line, what, why: WHY })
    });
    found.collect()
}

/// Returns a file below `src` with its modules from the top.
fn module_path(folder: &Path, file: &Path) -> Option<Vec<String>> {
    let below = file.strip_prefix(folder.join("src")).ok()?.with_extension("");
    let parts = below.components().filter_map(|part| match part {
        Component::Normal(name) => name.to_str().map(str::to_owned),
        _ => None,
    });
    Some(parts.collect())
}

fn module_edges(folder: &Path, sources: &[RustSource<'_>]) -> ModuleEdges {
    let mut files = Vec::new();
    let mut tests: BTreeSet<Vec<String>> = BTreeSet::new();
    for source in sources.iter().filter(|source| source.lines_without_tests > 0) {
        let Some(path) = module_path(folder, source.file) else { continue };
        let (code, modules) = without_tests(&source.code);
        let is_root = is_root(&path);
        let base = if is_root { &[][..] } else { &path[..] };
        tests.extend(modules.into_iter().map(|module| [base, &[module]].concat()));
        files.push((source.file, path, code));
    }
    files.retain(|(_, path, _)| !(1..=path.len()).any(|length| tests.contains(&path[..length])));
    let modules: BTreeSet<String> =
        files.iter().filter(|(_, path, _)| !is_root(path)).map(|(_, path, _)| path[0].clone()).collect();
    let roots = files.iter().filter(|(_, path, _)| is_root(path));
    let re_exported: BTreeMap<String, String> = roots.flat_map(|(_, _, code)| re_exports(code, &modules)).collect();
    let mut edges = ModuleEdges::new();
    for (file, path, code) in files.iter().filter(|(_, path, _)| !is_root(path)) {
        for found in root_names(code, path.len()) {
            let to = modules.get(&found.name).or_else(|| re_exported.get(&found.name));
            if let Some(to) = to.filter(|to| **to != path[0]) {
                let place = (file.to_path_buf(), found.line);
                edges.entry((path[0].clone(), to.clone())).or_insert(place);
            }
        }
    }
    edges
}

fn is_root(path: &[String]) -> bool {
    matches!(path, [only] if only == "lib" || only == "main")
}

/// Returns the sets of several modules of which each reaches each.
fn find_cycles<'e>(edges: impl Iterator<Item = &'e (String, String)>) -> Vec<BTreeSet<String>> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in edges {
        next.entry(from).or_default().insert(to);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> = next.keys().map(|from| (*from, reached_from(from, &next))).collect();
    let mut found: BTreeSet<BTreeSet<String>> = BTreeSet::new();
    for (from, to) in &reached {
        let back = |other: &&&str| reached.get(**other).is_some_and(|back| back.contains(from));
        let circle: BTreeSet<String> = to.iter().filter(back).map(|name| (*name).to_owned()).collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

/// Returns every module that `from` needs, itself included where it needs itself through others.
fn reached_from<'e>(from: &str, next: &BTreeMap<&'e str, BTreeSet<&'e str>>) -> BTreeSet<&'e str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = next.get(from).into_iter().flatten().copied().collect();
    while let Some(name) = open.pop() {
        if let Some((name, behind)) = next.get_key_value(name)
            && reached.insert(*name)
        {
            open.extend(behind);
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::workspace::rust_files;

    /// Writes `files` into a folder of their own and returns what is found in them.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join("src").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let paths = rust_files(folder.path()).unwrap();
        let sources: Vec<RustSource<'_>> =
            paths.iter().map(|path| RustSource::new(path, &fs::read_to_string(path).unwrap())).collect();
        let found = findings(folder.path(), &sources);
        let shown = |finding: &TidyFinding| {
            let file = finding.file.strip_prefix(folder.path()).unwrap_or(&finding.file);
            format!("{}:{}: {}", file.display(), finding.line, finding.what)
        };
        found.iter().map(shown).collect()
    }

    const TREE: &[(&str, &str)] = &[
        ("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\npub use c::Item;\nuse a::x;"),
        ("a.rs", "//! crate::d\nuse crate::b;\n"),
        ("b.rs", "mod deep;\n"),
        ("b/deep.rs", "use std::fmt;\n\nuse super::super::Item;\n"),
        ("c.rs", "fn f() { crate::a::x() }\n#[cfg(test)]\nmod testing;\n"),
        ("c/testing.rs", "use crate::d::y;\n"),
        ("d.rs", "use crate::{a, b};\n#[cfg(test)]\nmod tests {\n    use crate::d;\n}\n"),
    ];

    #[test]
    fn a_circle_is_found_with_one_place_for_each_edge() {
        let circle = "in the circle of a, b, c";
        let want = [
            format!("src/a.rs:2: a → b, {circle}"),
            format!("src/b/deep.rs:3: b → c, {circle}"),
            format!("src/c.rs:1: c → a, {circle}"),
        ];
        assert_eq!(found(TREE), want);
    }

    #[test]
    fn without_one_edge_of_it_there_is_no_circle() {
        let open: Vec<_> = TREE.iter().filter(|(name, _)| *name != "b/deep.rs").copied().collect();
        assert_eq!(found(&open), [""; 0]);
    }
}
