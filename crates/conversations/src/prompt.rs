//! System prompt of an agent: its identity, its tools, the project's own instructions, place and time.
//!
//! It must not know models or adapters. The same files, tools and time give the same text. Source: docs/protocol/omp.md,
//! Configuration.

use std::path::Path;

use countersign_agent_dir::AgentDir;
use countersign_core::{time::Millis, tool::ToolSpec};

pub mod compaction;
pub mod context;
pub mod files;
pub mod slash_commands;

pub use files::{DiskFiles, PromptFiles};

const ROLE: &str = include_str!("prompt/role.md");
pub const APPROVALS: &str = include_str!("prompt/approvals.md");

/// The longest text that `--system-prompt`, `--append-system-prompt` or a `SYSTEM.md` may have, in bytes.
const LIMIT: usize = 200_000;

/// Input of the system prompt.
#[derive(Clone, Copy, Debug)]
pub struct SystemPromptInput<'a> {
    /// The agent directory, for the user's own instructions.
    pub folder: &'a AgentDir,
    /// Working folder of the agent.
    pub cwd: &'a Path,
    /// The time; only its day is used.
    pub now: Millis,
    /// The tools that it has, in the order in which they are offered.
    pub tools: &'a [ToolSpec],
    /// `--system-prompt`: text, or the path of a file.
    pub replace: Option<&'a str>,
    /// `--append-system-prompt`: text, or the path of a file.
    pub append: Option<&'a str>,
    /// True if instructions are read from `AGENTS.md` and its kin.
    pub reads_context_files: bool,
}

/// The text, and the notices for a person about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemPrompt {
    /// The system prompt.
    pub text: String,
    /// Texts that were cut or left out, one line each.
    pub notices: Vec<String>,
}

/// Builds the system prompt.
///
/// `--system-prompt` takes the place of everything but the project's instructions, the addition and the facts at the
/// end; a `SYSTEM.md` (the project's before the user's) takes the place of the role alone.
pub fn build_prompt(facts: &SystemPromptInput<'_>, files: &dyn PromptFiles) -> SystemPrompt {
    let mut prompt = SystemPrompt::default();
    match facts.replace {
        Some(given) => {
            let text = text_or_file(given, facts.cwd, files, &mut prompt.notices);
            prompt.push_section(&text);
        }
        None => {
            let role = system_file(facts, files, &mut prompt.notices);
            prompt.push_section(role.as_deref().unwrap_or(ROLE));
            prompt.push_section(APPROVALS);
            prompt.push_section(&tools_section(facts.tools));
        }
    }
    if facts.reads_context_files {
        let found = context::gather_files(facts.folder, facts.cwd, files);
        prompt.push_section(&context::files_section(&found.files));
        prompt.notices.extend(found.notices);
    }
    if let Some(given) = facts.append {
        let text = text_or_file(given, facts.cwd, files, &mut prompt.notices);
        prompt.push_section(&text);
    }
    prompt.push_section(&format!(
        "Today is {}.\nThe working directory is {}.",
        format_day(facts.now),
        facts.cwd.display()
    ));
    prompt
}

impl SystemPrompt {
    fn push_section(&mut self, text: &str) {
        let text = text.trim();
        if !text.is_empty() {
            if !self.text.is_empty() {
                self.text.push_str("\n\n");
            }
            self.text.push_str(text);
        }
    }
}

fn system_file(facts: &SystemPromptInput<'_>, files: &dyn PromptFiles, notices: &mut Vec<String>) -> Option<String> {
    [facts.cwd.join(facts.folder.project_folder()), facts.folder.root().to_owned()]
        .iter()
        .find_map(|folder| read_limited(&folder.join("SYSTEM.md"), files, notices))
        .filter(|text| !text.trim().is_empty())
}

fn text_or_file(given: &str, cwd: &Path, files: &dyn PromptFiles, notices: &mut Vec<String>) -> String {
    // A path has one line and is not long; asking the system about anything else is an error of its own.
    let path = (given.len() < 4096 && !given.is_empty() && !given.contains('\n')).then(|| cwd.join(given));
    path.and_then(|path| read_limited(&path, files, notices)).unwrap_or_else(|| given.to_owned())
}

fn read_limited(path: &Path, files: &dyn PromptFiles, notices: &mut Vec<String>) -> Option<String> {
    let found = files.read_head(path, LIMIT)?;
    if found.cut {
        notices.push(format!("{}: only its first {LIMIT} bytes are used", path.display()));
    }
    Some(found.text)
}

fn tools_section(specs: &[ToolSpec]) -> String {
    if specs.is_empty() {
        return "# Tools\n\nYou have no tools in this session. Answer from what you are given.".to_owned();
    }
    let mut text = "# Tools\n\nYou have these tools and no others:\n".to_owned();
    for spec in specs {
        let first = spec.description.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
        text.push_str(&format!("- {}: {first}\n", spec.name));
    }
    let has = |name: &str| specs.iter().any(|spec| spec.name == name);
    let guidance = [
        (has("read") && has("edit"), "Read a file before you change it, and change only what the task needs."),
        (has("edit") && has("write"), "Use edit for a part of a file, write for a new file or a whole one."),
        (
            has("bash") && (has("grep") || has("find")),
            "Search with grep and find rather than with bash: they are quicker to approve.",
        ),
        (
            has("bash"),
            "Commands run in one shell without a terminal. Do not start what waits for input, and give long ones a timeout.",
        ),
        (
            has("todo_write"),
            "Keep a todo list for work of several steps, and close each task when it is done, not before.",
        ),
        (has("ask"), "Ask the person when a decision is theirs; do not ask what you can find out."),
    ];
    let mut guidance = guidance.iter().filter(|(fits, _)| *fits).peekable();
    if guidance.peek().is_some() {
        text.push('\n');
    }
    for (_, line) in guidance {
        text.push_str(&format!("- {line}\n"));
    }
    text
}

fn format_day(now: Millis) -> String {
    i64::try_from(now.0)
        .ok()
        .and_then(chrono::DateTime::from_timestamp_millis)
        .map_or_else(|| now.to_string(), |time| time.format("%A, %Y-%m-%d (UTC)").to_string())
}

#[cfg(test)]
mod tests;
