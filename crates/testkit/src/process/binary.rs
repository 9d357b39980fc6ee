//! The program that the tests run.
//!
//! `CARGO_BIN_EXE_countersign` exists for the tests of its own package alone. Those of other packages find the program next to
//! themselves, and must not run one that was built before the last change.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
    time::SystemTime,
};

const NAME: &str = "countersign";
const REMEDY: &str = "run cargo build -p countersign";
/// Crates that are no part of the program.
const TOOLS: [&str; 2] = ["loadtest", "testkit"];

static BINARY: LazyLock<Result<PathBuf, String>> = LazyLock::new(find_binary);

/// Returns the program `countersign` of the target folder that the running test lies in.
///
/// # Panics
///
/// If it is not there, or older than a source that it was built from.
pub fn binary_path() -> &'static Path {
    match &*BINARY {
        Ok(path) => path,
        Err(reason) => panic!("{reason}"),
    }
}

fn find_binary() -> Result<PathBuf, String> {
    let test = std::env::current_exe().map_err(|error| format!("the running test has no path: {error}"))?;
    // target/PROFILE/deps/TEST
    let folder = test.parent().and_then(Path::parent).ok_or("the running test is not in a target folder")?;
    let path = folder.join(NAME);
    let built = modified_at(&path).ok_or_else(|| format!("{} does not exist: {REMEDY}", path.display()))?;
    // Cargo writes the list if it was asked for the program, and not if the tests of the program's package needed it.
    let sources = fs::read_to_string(path.with_extension("d"))
        .map_or_else(|_| workspace_sources(), |listed| listed_sources(&listed));
    match newer_source(sources, built, modified_at) {
        None => Ok(path),
        Some(source) => Err(format!("{} is older than {}: {REMEDY}", path.display(), source.display())),
    }
}

fn modified_at(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// Returns the first source that changed after `built`. One that is gone was included by another, which changed.
fn newer_source(
    sources: Vec<PathBuf>,
    built: SystemTime,
    modified: impl Fn(&Path) -> Option<SystemTime>,
) -> Option<PathBuf> {
    sources.into_iter().find(|source| modified(source).is_some_and(|modified| modified > built))
}

/// Returns the paths after the colon. A space in a path has a backslash before it.
fn listed_sources(listed: &str) -> Vec<PathBuf> {
    const SPACE: &str = "\u{0}";
    let (_, paths) = listed.split_once(": ").unwrap_or_default();
    let paths = paths.lines().next().unwrap_or_default().replace("\\ ", SPACE);
    paths.split_whitespace().map(|path| path.replace(SPACE, " ").into()).collect()
}

/// Returns every file of the crates of the workspace that the program is made of, without their tests.
fn workspace_sources() -> Vec<PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("");
    let is_part = |path: &PathBuf| path.file_name().is_none_or(|name| TOOLS.iter().all(|tool| name != *tool));
    let mut folders: Vec<PathBuf> =
        folder_entries(&crates).into_iter().filter(is_part).map(|path| path.join("src")).collect();
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in folder_entries(&folder) {
            if path.file_stem().is_some_and(|name| name == "tests") {
                continue;
            }
            if path.is_dir() { folders.push(path) } else { sources.push(path) }
        }
    }
    sources
}

fn folder_entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_source_that_is_newer_than_the_program_is_found() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let modified = |path: &Path| match path.to_str().unwrap() {
            "/a.rs" => Some(at(1)),
            "/b c.rs" => Some(at(2)),
            "/d.rs" => Some(at(3)),
            _ => None,
        };
        for (listed, built, want) in [
            ("/countersign: /a.rs /b\\ c.rs\n", 2, None),
            ("/countersign: /a.rs /b\\ c.rs\n", 1, Some("/b c.rs")),
            ("/countersign: /a.rs /d.rs\n", 2, Some("/d.rs")),
            ("/countersign: /gone.rs /a.rs\n", 2, None),
            ("/countersign:\n", 2, None),
        ] {
            assert_eq!(newer_source(listed_sources(listed), at(built), modified), want.map(PathBuf::from), "{listed}");
        }
    }

    #[test]
    fn the_sources_of_the_workspace_are_those_of_the_program() {
        let sources = workspace_sources();
        let has = |name: &str| sources.iter().any(|path| path.ends_with(name));
        assert!(has("countersign/src/main.rs") && has("core/src/lib.rs"), "{sources:?}");
        assert!(!has("testkit/src/lib.rs") && !has("policy/evaluate/tests.rs"), "{sources:?}");
    }
}
