//! Names of files and modules, and their lengths.

use crate::tidy::{TidyFinding, measure::type_name, source::RustSource};

/// Lines that a file may have without its tests.
const LIMIT: usize = 500;

const VAGUE: &[&str] = &["util", "utils", "helper", "helpers", "common", "misc"];

/// Type names that name no thing: participles, verbs, and metaphors that stood for several things each.
const BANNED_TYPES: &[&str] = &[
    "Answered",
    "Asked",
    "Book",
    "Crowd",
    "Desk",
    "Dice",
    "Done",
    "Errand",
    "Fate",
    "Found",
    "Ground",
    "Guest",
    "Hall",
    "Heard",
    "Held",
    "House",
    "Household",
    "Keeper",
    "Kept",
    "Knock",
    "Known",
    "Lent",
    "Letter",
    "Listed",
    "Manner",
    "Named",
    "Place",
    "Posture",
    "Pulse",
    "Room",
    "Rooms",
    "Said",
    "Seat",
    "Seen",
    "Shelf",
    "Stage",
    "Stranger",
    "Surroundings",
    "Teller",
    "Told",
    "Tone",
    "Veil",
    "Voice",
    "Wanted",
    "Whereabouts",
    "Wing",
    "Wings",
    "Wish",
    "Workroom",
    "World",
];

pub(crate) fn findings(source: &RustSource<'_>) -> Vec<TidyFinding> {
    let finding = |line, what, why| TidyFinding { file: source.file.to_path_buf(), line, what, why };
    let mut found = Vec::new();
    if source.file.file_name().is_some_and(|name| name == "mod.rs") {
        let what = "mod.rs".to_owned();
        found.push(finding(1, what, "a module is foo.rs beside foo/, so that tabs and searches tell files apart"));
    }
    if source.lines_without_tests > LIMIT {
        let what = format!("{} lines without tests", source.lines_without_tests);
        found.push(finding(LIMIT + 1, what, "500 is the limit: split it where its concepts part"));
    }
    for part in source.file.with_extension("").components().filter_map(|part| part.as_os_str().to_str()) {
        if VAGUE.contains(&part) {
            found.push(finding(1, format!("a path with {part:?}"), WHY));
        }
    }
    for (line, code) in source.code_lines() {
        if let Some(name) = type_name(code).filter(|name| BANNED_TYPES.contains(name)) {
            found.push(finding(
                line,
                format!("a type called {name}"),
                "a type is named after what it is: docs/glossary.md has the terms",
            ));
        }
        let mut words = code.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty());
        if words.any(|word| word == "mod")
            && let Some(name) = words.next().filter(|name| VAGUE.contains(name))
        {
            found.push(finding(line, format!("a module called {name}"), WHY));
        }
    }
    found
}

const WHY: &str = "a name that says nothing collects everything: call it by what it holds";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn whats(file: &str, text: &str) -> Vec<(usize, String)> {
        findings(&RustSource::new(Path::new(file), text))
            .into_iter()
            .map(|finding| (finding.line, finding.what))
            .collect()
    }

    #[test]
    fn files_and_modules_are_named_for_what_they_hold() {
        for (file, text, want) in [
            ("crates/a/src/gate.rs", "mod answer;", vec![]),
            ("crates/a/src/gate/mod.rs", "", vec![(1, "mod.rs")]),
            ("crates/a/src/utils.rs", "", vec![(1, "a path with \"utils\"")]),
            ("crates/a/tests/common/a.rs", "", vec![(1, "a path with \"common\"")]),
            ("crates/a/src/gate.rs", "\npub(crate) mod helpers {}", vec![(2, "a module called helpers")]),
            (
                "crates/a/src/gate.rs",
                "struct Told;\nenum Toldness {}\nlet told = Told;",
                vec![(1, "a type called Told")],
            ),
            ("crates/a/src/gate.rs", "// mod misc;\nlet common = \"mod util\";", vec![]),
        ] {
            let want: Vec<_> = want.into_iter().map(|(line, what): (usize, &str)| (line, what.to_owned())).collect();
            assert_eq!(whats(file, text), want, "{file}: {text}");
        }
    }

    #[test]
    fn a_file_has_at_most_500_lines_without_its_tests() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "x\n".repeat(900));
        for (case, text, want) in [
            ("at", "x\n".repeat(500), vec![]),
            ("above", "x\n".repeat(501), vec![(501, "501 lines without tests".to_owned())]),
            ("at, with tests", "x\n".repeat(500) + &tests, vec![]),
        ] {
            assert_eq!(whats("src/a.rs", &text), want, "{case}");
        }
    }
}
