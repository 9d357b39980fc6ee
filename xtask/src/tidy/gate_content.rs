//! Permitted readers of the display content of a gate: `core`, which decides about it, and `view`, from which every surface has it.
//!
//! It sees the type by its path, an import of it, and the content that the engine has admitted. It does not see a content that is read as
//! plain JSON, nor the type through a renamed module. Tests are exempt: they make gates.

use crate::tidy::{
    TidyFinding,
    source::{RustSource, is_word},
};

const WHY: &str = "surfaces read a gate through `GateRequest` and `GateSummary` of view";

/// The module of core, and the type in it.
const MODULE: &str = "gate";
const TYPE: &str = "GateContent";
/// Expression that gives the contents that the engine holds.
const ADMITTED: &str = "admitted()";

/// Packages that may read it: who decides, who shows, and what only tests depend on.
const READERS: &[&str] = &["countersign-core", "countersign-view", "countersign-testkit"];

/// Returns where a package that may not reads the content of a gate.
pub(crate) fn findings(package: &str, source: &RustSource<'_>) -> Vec<TidyFinding> {
    if READERS.contains(&package) {
        return Vec::new();
    }
    let length: usize = source.code.split_inclusive('\n').take(source.lines_without_tests).map(str::len).sum();
    let code = &source.code[..length];
    let mut places = named_positions(code);
    places.extend(admitted_positions(code));
    places.sort_unstable();
    let finding = |at: usize| TidyFinding {
        file: source.file.to_path_buf(),
        line: code[..at].matches('\n').count() + 1,
        what: "the content of a gate".to_owned(),
        why: WHY,
    };
    places.into_iter().map(finding).collect()
}

/// Returns the positions at which the type is named after its module, alone or in the braces of an import.
fn named_positions(code: &str) -> Vec<usize> {
    let modules = code.match_indices(MODULE).filter(|(at, _)| !code[..*at].ends_with(is_word));
    let behind = modules.filter_map(|(at, _)| {
        let path = at + MODULE.len();
        code[path..].starts_with("::").then_some(path + "::".len())
    });
    behind
        .flat_map(|at| if code[at..].starts_with('{') { grouped_positions(code, at) } else { plain_position(code, at) })
        .collect()
}

fn plain_position(code: &str, at: usize) -> Vec<usize> {
    let is_it = code[at..].strip_prefix(TYPE).is_some_and(|rest| !rest.starts_with(is_word));
    if is_it { vec![at] } else { Vec::new() }
}

/// Returns the positions at which the type is one of the names in the braces that begin at `open`.
fn grouped_positions(code: &str, open: usize) -> Vec<usize> {
    let mut found = Vec::new();
    let mut depth = 0_usize;
    for (at, c) in code[open..].char_indices().map(|(at, c)| (open + at, c)) {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => break,
            '}' => depth -= 1,
            _ if depth == 1 && !code[..at].ends_with(is_word) && !code[..at].ends_with(':') => {
                found.extend(plain_position(code, at));
            }
            _ => {}
        }
    }
    found
}

/// Returns the positions at which a content is taken from the engine.
fn admitted_positions(code: &str) -> Vec<usize> {
    let ends = code.match_indices(ADMITTED).map(|(at, _)| at + ADMITTED.len());
    ends.filter(|end| code[*end..].trim_start().starts_with(".gate_content(")).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn surfaces_do_not_read_what_a_gate_keeps_to_be_shown() {
        for (text, want) in [
            ("use countersign_core::gate::{self, Answer, Gate};", vec![]),
            ("use countersign_core::{\n    call::{self, CallContent},\n    gate::{Gate, Kind},\n};", vec![]),
            ("use countersign_core::{\n    call,\n    gate::{GateContent, GateReply, Gate},\n};", vec![3]),
            ("use countersign_core::gate::{\n    GateReply,\n    GateContent as Shown,\n};", vec![3]),
            ("use countersign_core::gate::GateContent;", vec![1]),
            (
                "fn a(content: &gate::GateContent) {}\nfn b(content: &call::GateContent, _: gate::GateContentKind) {}",
                vec![1],
            ),
            (
                "let a = engine.admitted().gate_content(id);\nlet b = engine\n    .admitted()\n    .gate_content(id);",
                vec![1, 3],
            ),
            ("let a = engine.admitted().call(id);", vec![]),
            ("use countersign_protocol::agent_gate::GateContent;", vec![]),
            ("struct A;\n#[cfg(test)]\nmod tests {\n    use countersign_core::gate::GateContent;\n}", vec![]),
        ] {
            let source = RustSource::new(Path::new("crates/api/src/a.rs"), text);
            let lines = |package| findings(package, &source).into_iter().map(|found| found.line).collect::<Vec<_>>();
            assert_eq!(lines("countersign-api"), want, "{text}");
            assert_eq!(lines("countersign-view"), [0; 0], "{text}");
        }
    }
}
