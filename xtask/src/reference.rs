//! `cargo xtask reference`: the pages of the book that are made of the code: every key of the configuration, every error of every
//! adapter. `tidy` finds pages that differ.

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

/// Returns every page with its text.
pub(crate) fn reference_pages(workspace: &Workspace) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let folder = workspace.root.join("docs/reference");
    Ok(vec![
        (folder.join("configuration.md"), keys::keys_page(workspace)?),
        (folder.join("errors.md"), errors::errors_page(workspace)?),
    ])
}

/// Escapes the character that would end a cell.
fn escape_cell(text: &str) -> String {
    text.replace('|', "\\|")
}
