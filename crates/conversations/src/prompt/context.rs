//! The instructions that people keep with their work: `AGENTS.md` and its relatives.
//!
//! It must not know their meaning. Source: docs/protocol/omp.md, Configuration.

use std::path::{Path, PathBuf};

use countersign_agent_dir::AgentDir;

use super::PromptFiles;

/// The longest part of one file that is used, in bytes.
const FILE_LIMIT: usize = 64 * 1024;
/// The longest part of all files together, in bytes.
const TOTAL_LIMIT: usize = 256 * 1024;

/// Names under which other programs keep the same thing in a folder.
const RELATIVES: [&str; 5] =
    [".agent/AGENTS.md", ".agents/AGENTS.md", ".claude/CLAUDE.md", ".codex/AGENTS.md", ".gemini/GEMINI.md"];

/// One file of instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Used part of its text.
    pub text: String,
    /// True if the file is longer.
    pub cut: bool,
}

/// The files that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContextFiles {
    /// From the farthest to the nearest; no text twice.
    pub files: Vec<ContextFile>,
    /// Texts that were cut or left out, one line each.
    pub notices: Vec<String>,
}

/// Finds the files for an agent in `cwd`: the user's own, then those of each folder from the repository's root (or the
/// home folder) down.
///
/// If two have the same text, the nearer one stays. If they are too long together, the nearest count first.
pub fn gather_files(folder: &AgentDir, cwd: &Path, files: &dyn PromptFiles) -> ContextFiles {
    let mut gathered = ContextFiles::default();
    let mut left = TOTAL_LIMIT;
    for path in candidate_paths(folder, cwd, files).into_iter().rev() {
        let Some(found) = files.read_head(&path, FILE_LIMIT) else { continue };
        let text = found.text.trim();
        if text.is_empty() || gathered.files.iter().any(|file| file.text == text) {
            continue;
        }
        if text.len() > left {
            gathered.notices.push(format!(
                "{}: skipped, the instruction files exceed {TOTAL_LIMIT} bytes in total",
                path.display()
            ));
            continue;
        }
        left -= text.len();
        if found.cut {
            gathered.notices.push(format!("{}: only its first {FILE_LIMIT} bytes are used", path.display()));
        }
        gathered.files.push(ContextFile { path, text: text.to_owned(), cut: found.cut });
    }
    gathered.files.reverse();
    gathered.notices.reverse();
    gathered
}

/// Returns all places to look at, from the farthest to the nearest, each once.
fn candidate_paths(folder: &AgentDir, cwd: &Path, files: &dyn PromptFiles) -> Vec<PathBuf> {
    let mut places = vec![folder.root().join("AGENTS.md")];
    places.extend(RELATIVES.iter().map(|relative| folder.home().join(relative)));
    let ancestors: Vec<&Path> = cwd.ancestors().collect();
    let top = ancestors
        .iter()
        .position(|ancestor| files.path_exists(&ancestor.join(".git")))
        .or_else(|| ancestors.iter().position(|ancestor| *ancestor == folder.home()))
        .unwrap_or(0);
    let own = |ancestor: &&&Path| files.path_exists(&ancestor.join(folder.project_folder()).join("AGENTS.md"));
    let nearest = ancestors[..=top].iter().find(own).copied();
    for ancestor in ancestors[..=top].iter().rev() {
        places.extend(RELATIVES.iter().map(|relative| ancestor.join(relative)));
        places.push(ancestor.join("AGENTS.md"));
        if nearest == Some(ancestor) {
            places.push(ancestor.join(folder.project_folder()).join("AGENTS.md"));
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    places.retain(|place| seen.insert(place.clone()));
    places
}

/// Returns the section of the prompt that holds `files`; empty without any.
pub fn files_section(files: &[ContextFile]) -> String {
    if files.is_empty() {
        return String::new();
    }
    let mut text = "# Project instructions\n\nWritten by the people of this project. Where two differ, the later one is nearer and counts.\n".to_owned();
    for file in files {
        let cut = if file.cut { "\n[The rest of this file is left out: it is too long.]" } else { "" };
        text.push_str(&format!("\n<file path=\"{}\">\n{}{cut}\n</file>\n", file.path.display(), file.text));
    }
    text
}
