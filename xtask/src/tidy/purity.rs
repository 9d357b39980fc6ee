//! Things that core and the crates below it may not touch: clocks, dice, threads, files, sockets and maps without an order.
//!
//! Tests inside these crates are exempt. Their dependencies are checked with the other edges.

use crate::tidy::{
    TidyFinding,
    forbidden_words::contains_word,
    source::{RustSource, is_word},
};

const WHY: &str = "a pure crate decides and does nothing else: hand it in, or do it a ring further out";

/// Packages that the rule holds for.
const PURE: &[&str] = &["countersign-core", "countersign-shell-analysis", "countersign-answer-schema"];

const FORBIDDEN: &[&str] = &[
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "SystemTime",
    "Instant",
    "Utc::now",
    "chrono::Local",
    "Uuid::new_v4",
    "Uuid::now_v7",
    "HashMap",
    "HashSet",
    "RandomState",
    "async fn",
    "println!",
    "eprintln!",
];

/// Modules of std that are as forbidden inside `use std::{…}`.
const MODULES: &[&str] = &["fs", "net", "env", "process", "thread"];

/// Reports whether the rule holds for `package`.
pub(crate) fn is_pure(package: &str) -> bool {
    PURE.contains(&package)
}

pub(crate) fn findings(source: &RustSource<'_>) -> Vec<TidyFinding> {
    let finding =
        |line, what: &str| TidyFinding { file: source.file.to_path_buf(), line, what: what.to_owned(), why: WHY };
    let mut found = Vec::new();
    let mut depth = 0_usize;
    for (line, code) in source.code_lines().take_while(|(line, _)| *line <= source.lines_without_tests) {
        found.extend(FORBIDDEN.iter().filter(|word| contains_word(code, word)).map(|word| finding(line, word)));
        let mut code = code;
        if depth == 0 {
            let Some((_, group)) = code.split_once("use std::{") else { continue };
            depth = 1;
            code = group;
        }
        for module in forbidden_modules(code, &mut depth) {
            found.push(finding(line, &format!("std::{module}")));
        }
    }
    found
}

/// Returns the forbidden modules that one line of a `use std::{…}` names, `depth` braces deep.
fn forbidden_modules(code: &str, depth: &mut usize) -> Vec<&'static str> {
    let mut found = Vec::new();
    let mut at = 0;
    while *depth > 0 && at < code.len() {
        let here = &code[at..];
        let length = here.find(|c: char| !is_word(c)).unwrap_or(here.len());
        match here.chars().next() {
            Some('{') => *depth += 1,
            Some('}') => *depth -= 1,
            _ => {}
        }
        if *depth == 1 && !code[..at].ends_with("::") {
            found.extend(MODULES.iter().copied().filter(|module| *module == &here[..length]));
        }
        at += length.max(here.chars().next().map_or(1, char::len_utf8));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn core_reads_no_clock_rolls_no_dice_and_touches_no_file() {
        for (text, want) in [
            ("use std::collections::BTreeMap;", vec![]),
            ("use std::fs;\nlet now = std::time::SystemTime::now();", vec![(1, "std::fs"), (2, "SystemTime")]),
            ("use std::{fmt, fs::File, time::Instant};", vec![(1, "Instant"), (1, "std::fs")]),
            ("use std::{\n    fmt::{self, Write},\n    net::IpAddr,\n};\nlet net = 1;", vec![(3, "std::net")]),
            ("use std::{fmt, ops::{Deref}};\nlet process = 1;", vec![]),
            ("a.thread; use std::{collections::btree_map};", vec![]),
            ("let id = Uuid::now_v7();", vec![(1, "Uuid::now_v7")]),
            ("use chrono::NaiveDate;\nlet now = chrono::Utc::now();", vec![(2, "Utc::now")]),
            ("let now = chrono::Local::now();", vec![(1, "chrono::Local")]),
            ("/// Not an Instant, nor std::fs.\nstruct A;", vec![]),
            ("struct A;\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}", vec![]),
        ] {
            let found = findings(&RustSource::new(Path::new("crates/core/src/a.rs"), text));
            let found: Vec<_> = found.iter().map(|finding| (finding.line, finding.what.as_str())).collect();
            assert_eq!(found, want, "{text}");
        }
    }
}
