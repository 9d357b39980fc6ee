//! The program that the tests run.
//!
//! `CARGO_BIN_EXE_countersign` exists for the tests of its own package alone. Those of other packages find the program beside
//! themselves, and must not run one that was built before the last change.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
    time::SystemTime,
};

const NAME: &str = "countersign";
const REMEDY: &str = "run cargo build -p countersign";

static BINARY: LazyLock<Result<PathBuf, String>> = LazyLock::new(find);

/// Returns the program `countersign` of the target folder that the running test lies in.
///
/// # Panics
///
/// If it is not there, was built from another folder, or is older than a source that it was built from.
pub fn binary() -> &'static Path {
    match &*BINARY {
        Ok(path) => path,
        Err(reason) => panic!("{reason}"),
    }
}

fn find() -> Result<PathBuf, String> {
    let test = std::env::current_exe().map_err(|error| format!("the running test has no path: {error}"))?;
    // target/PROFILE/deps/TEST
    let folder = test.parent().and_then(Path::parent).ok_or("the running test is not in a target folder")?;
    let path = folder.join(NAME);
    let modified = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let built = modified(&path).ok_or_else(|| format!("{} is not there: {REMEDY}", path.display()))?;
    let listing = path.with_extension("d");
    let listed = fs::read_to_string(&listing).map_err(|error| format!("{}: {error}: {REMEDY}", listing.display()))?;
    let main = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name(NAME).join("src/main.rs");
    if !sources(&listed).any(|source| source == main) {
        return Err(format!("{} was built from another folder: {REMEDY}", path.display()));
    }
    match newer_source(&listed, built, modified) {
        None => Ok(path),
        Some(source) => Err(format!("{} is older than {}: {REMEDY}", path.display(), source.display())),
    }
}

/// Returns a source of the list that cargo wrote that changed after `built`, or that is gone.
fn newer_source(listed: &str, built: SystemTime, modified: impl Fn(&Path) -> Option<SystemTime>) -> Option<PathBuf> {
    sources(listed).find(|source| modified(source).is_none_or(|modified| modified > built))
}

/// Returns the paths behind the colon. A space in a path has a backslash before it.
fn sources(listed: &str) -> impl Iterator<Item = PathBuf> {
    const SPACE: &str = "\u{0}";
    let (_, paths) = listed.split_once(": ").unwrap_or_default();
    let paths = paths.lines().next().unwrap_or_default().replace("\\ ", SPACE);
    let paths: Vec<PathBuf> = paths.split_whitespace().map(|path| path.replace(SPACE, " ").into()).collect();
    paths.into_iter()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_source_that_is_newer_than_the_program_or_gone_is_found() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let modified = |path: &Path| match path.to_str().unwrap() {
            "/a.rs" => Some(at(1)),
            "/b c.rs" => Some(at(2)),
            "/d.rs" => Some(at(3)),
            _ => None,
        };
        for (listed, want) in [
            ("/countersign: /a.rs /b\\ c.rs\n", None),
            ("/countersign: /a.rs /d.rs\n", Some("/d.rs")),
            ("/countersign: /gone.rs /a.rs\n", Some("/gone.rs")),
            ("/countersign:\n", None),
        ] {
            assert_eq!(newer_source(listed, at(2), modified), want.map(PathBuf::from), "{listed}");
        }
        assert_eq!(newer_source("/countersign: /b\\ c.rs\n", at(1), modified), Some("/b c.rs".into()));
    }
}
