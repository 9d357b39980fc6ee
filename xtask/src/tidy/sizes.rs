//! Maximum size of a crate: a larger one is split.

use std::path::Path;

use crate::tidy::{TidyFinding, source::RustSource};

/// Lines that the source of a crate may have without its tests.
const LIMIT: usize = 15_000;

/// Crates that may be larger, each with the reason. An entry that is not needed any more is a finding.
const LARGER: &[(&str, &str)] = &[("countersign-core", "every decision lies in it")];

/// Finds whether the package `package` with the manifest `manifest` is too large.
pub(crate) fn findings(package: &str, manifest: &Path, sources: &[RustSource<'_>]) -> Vec<TidyFinding> {
    let folder = manifest.parent().unwrap_or(manifest).join("src");
    let of_package = sources.iter().filter(|source| source.file.starts_with(&folder));
    let lines: usize = of_package.map(|source| source.lines_without_tests).sum();
    let is_excepted = LARGER.iter().any(|(name, _)| *name == package);
    let finding = |what, why| vec![TidyFinding { file: manifest.to_path_buf(), line: 1, what, why }];
    match (lines > LIMIT, is_excepted) {
        (true, false) => finding(
            format!("{lines} lines of source without tests"),
            "15,000 is the limit of a crate: split it where its concepts part",
        ),
        (false, true) => finding(
            format!("{lines} lines of source without tests, and an exception in sizes.rs"),
            "the list of exceptions only shrinks: take it out",
        ),
        (true, true) | (false, false) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(package: &str, files: &[(&str, usize)]) -> Vec<String> {
        let texts: Vec<(&Path, String)> =
            files.iter().map(|(file, lines)| (Path::new(*file), "a\n".repeat(*lines))).collect();
        let sources: Vec<RustSource<'_>> = texts.iter().map(|(file, text)| RustSource::new(file, text)).collect();
        let found = findings(package, Path::new("crates/x/Cargo.toml"), &sources);
        found.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn a_crate_has_15000_lines_without_its_tests() {
        let most = [("crates/x/src/a.rs", 10_000), ("crates/x/src/b.rs", 5_000), ("crates/x/tests/it/c.rs", 1)];
        let more = [("crates/x/src/a.rs", 10_000), ("crates/x/src/b.rs", 5_001)];
        assert_eq!(whats("x", &most), [""; 0]);
        assert_eq!(whats("x", &more), ["15001 lines of source without tests"]);
        assert_eq!(whats("countersign-core", &more), [""; 0]);
        assert_eq!(whats("countersign-core", &most).len(), 1);
    }
}
