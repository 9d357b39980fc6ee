//! Cargo commands in the pages for contributors: packages, test targets and xtask commands that they name exist.

use std::path::Path;

use crate::{
    tidy::TidyFinding,
    workspace::{Package, Workspace},
};

const WHY: &str = "a reader copies it from the page";

pub(crate) fn findings(workspace: &Workspace, file: &Path, page: &str) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    for (line, text) in (1..).zip(page.lines()) {
        for command in text.split("cargo ").skip(1) {
            let command = command.split(['`', '#']).next().unwrap_or_default();
            let whats = unknown_names(workspace, command).into_iter();
            found.extend(whats.map(|what| TidyFinding { file: file.to_path_buf(), line, what, why: WHY }));
        }
    }
    found
}

/// Returns each name in the arguments of cargo that the workspace does not have.
fn unknown_names(workspace: &Workspace, command: &str) -> Vec<String> {
    let mut packages: Vec<&Package> = Vec::new();
    let mut found = Vec::new();
    let mut words = command.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            "xtask" => {
                let name = words.next().unwrap_or_default();
                let is_listed = crate::USAGE.lines().any(|line| line.split_whitespace().next() == Some(name));
                if !is_listed {
                    found.push(format!("no xtask command {name:?}"));
                }
            }
            "-p" | "--package" => {
                let name = words.next().unwrap_or_default();
                match workspace.packages.iter().find(|package| package.name == name) {
                    Some(package) => packages.push(package),
                    // PACKAGE stands for a name.
                    None if name == "PACKAGE" => {}
                    None => found.push(format!("no package {name:?}")),
                }
            }
            "--test" => {
                let name = words.next().unwrap_or_default();
                if !packages.is_empty() && !packages.iter().any(|package| has_test(package, name)) {
                    found.push(format!("no test target {name:?}"));
                }
            }
            _ => {}
        }
    }
    found
}

fn has_test(package: &Package, name: &str) -> bool {
    let folder = package.folder().join("tests");
    folder.join(format!("{name}.rs")).is_file() || folder.join(name).join("main.rs").is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_workspace_lacks_are_found_with_their_line() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let package = |name: &str, folder: &str| Package {
            name: name.to_owned(),
            manifest: root.join(folder).join("Cargo.toml"),
            dependencies: Vec::new(),
        };
        let packages = vec![package("a", "crates/loadtest"), package("b", "xtask")];
        let workspace = Workspace { root: root.into(), target: root.join("target"), packages };
        for (page, want) in [
            ("\n`cargo nextest run -p a --test cli help` and `cargo xtask tidy`", vec![]),
            ("    cargo test -p a  # not -p c", vec![]),
            ("cargo nextest run -p PACKAGE --test TARGET", vec![]),
            ("\n`cargo test -p c`", vec![(2, "no package \"c\"")]),
            ("cargo test -p b --test cli", vec![(1, "no test target \"cli\"")]),
            ("`cargo xtask bench`, `cargo xtask sweep`", vec![(1, "no xtask command \"sweep\"")]),
        ] {
            let found = findings(&workspace, Path::new("page.md"), page);
            let found: Vec<_> = found.iter().map(|finding| (finding.line, finding.what.as_str())).collect();
            assert_eq!(found, want, "{page}");
        }
    }
}
