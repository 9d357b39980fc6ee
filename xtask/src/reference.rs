//! `cargo xtask reference`: the pages of the book that are made of the code: every key of the configuration, every error of every
//! door. `tidy` finds pages that say something else.

mod errors;
mod keys;

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::Context as _;

use crate::workspace::Workspace;

/// Writes the pages.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<ExitCode> {
    for (path, text) in reference_pages(workspace)? {
        fs::write(&path, text).with_context(|| path.display().to_string())?;
        println!("{}", workspace.relative_path(&path).display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Every page with its text.
pub(crate) fn reference_pages(workspace: &Workspace) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let folder = workspace.root.join("docs/reference");
    Ok(vec![
        (folder.join("configuration.md"), keys::keys_page(workspace)?),
        (folder.join("errors.md"), errors::errors_page(workspace)?),
    ])
}

/// What of a cell would end it.
fn escape_cell(text: &str) -> String {
    text.replace('|', "\\|")
}
