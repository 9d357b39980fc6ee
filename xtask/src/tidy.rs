//! `cargo xtask tidy`: the rules of this project that no lint knows. Each finding is one line: file:line: what, why.

mod banned_words;
mod commands;
mod cycles;
mod edges;
mod forbidden_words;
mod gate_content;
mod imports;
mod manifest;
mod markdown;
mod measure;
mod names;
mod purity;
mod sizes;
mod source;

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;

use crate::{
    budgets, reference,
    tidy::source::RustSource,
    workspace::{Workspace, rust_files},
};

/// Pages whose commands are checked.
const CONTRIBUTOR_PAGES: [&str; 2] = ["CONTRIBUTING.md", "docs/contributing/testing.md"];

/// One thing to put right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TidyFinding {
    file: PathBuf,
    /// From 1.
    line: usize,
    what: String,
    why: &'static str,
}

impl fmt::Display for TidyFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}, {}", self.file.display(), self.line, self.what, self.why)
    }
}

/// Action of the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// True if the figures of names and texts are printed instead of findings.
    pub(crate) measure: bool,
}

impl Options {
    /// Reads the arguments after `tidy`.
    ///
    /// # Errors
    /// An argument is unknown.
    pub(crate) fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let mut options = Self::default();
        for argument in arguments {
            match argument.as_str() {
                "--measure" => options.measure = true,
                unknown => anyhow::bail!("tidy: unknown argument {unknown:?}: only --measure is known"),
            }
        }
        Ok(options)
    }
}

/// Prints what is to be put right, or the figures.
pub(crate) fn run(workspace: &Workspace, options: Options) -> anyhow::Result<ExitCode> {
    if options.measure {
        measure::run(workspace)?;
        return Ok(ExitCode::SUCCESS);
    }
    let found = findings(workspace)?;
    found.iter().for_each(|finding| println!("{finding}"));
    if found.is_empty() {
        println!("tidy");
        return Ok(ExitCode::SUCCESS);
    }
    println!("{} to put right", found.len());
    Ok(ExitCode::FAILURE)
}

/// Returns every finding in the workspace, by package and file.
pub(crate) fn findings(workspace: &Workspace) -> anyhow::Result<Vec<TidyFinding>> {
    let mut found = Vec::new();
    for package in &workspace.packages {
        let manifest = read_text(&package.manifest)?;
        let file = workspace.relative_path(&package.manifest);
        found.extend(edges::findings(workspace, package, file, &manifest));
        found.extend(manifest::findings(file, &manifest));
        let paths = rust_files(package.folder())?;
        let mut sources = Vec::with_capacity(paths.len());
        for path in &paths {
            let text = read_text(path)?;
            let source = RustSource::new(workspace.relative_path(path), &text);
            found.extend(banned_words::findings(&source, &text));
            found.extend(names::findings(&source));
            found.extend(forbidden_words::findings(&source));
            found.extend(gate_content::findings(&package.name, &source));
            if purity::is_pure(&package.name) {
                found.extend(purity::findings(&source));
            }
            sources.push(source);
        }
        found.extend(edges::uses_of_testkit(package, &sources));
        found.extend(cycles::findings(workspace.relative_path(package.folder()), &sources));
        found.extend(sizes::findings(&package.name, file, &sources));
    }
    found.extend(banned_words::workspace_findings(workspace)?);
    found.extend(measure::findings(workspace)?);
    found.extend(budgets::problems(workspace)?.into_iter().map(|what| TidyFinding {
        file: budgets::FILE.into(),
        line: 1,
        what,
        why: "weight grows only with a reason",
    }));
    for page in CONTRIBUTOR_PAGES {
        found.extend(commands::findings(workspace, Path::new(page), &read_text(&workspace.root.join(page))?));
    }
    for (path, text) in reference::reference_pages(workspace)? {
        if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            let file = workspace.relative_path(&path).to_owned();
            let why = "`cargo xtask reference` writes it";
            found.push(TidyFinding { file, line: 1, what: "the page is not what the code says".to_owned(), why });
        }
    }
    Ok(found)
}

fn read_text(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("{} could not be read", path.display()))
}
