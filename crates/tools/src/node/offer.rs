//! Offer of a node: names and arguments of its tools, and their requirements on the machine.
//!
//! It must not do anything.

use std::sync::LazyLock;

use countersign_core::tool::{CallConcurrency, RepeatMode, ToolEffect, ToolSpec};
use serde_json::{Map, Value, json};

use crate::schema::validate_arguments;

/// The tools by what they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeToolKind {
    /// A command.
    Bash,
    /// Commands in the background.
    Process,
    /// A part of a file.
    Read,
    /// A whole file.
    Write,
    /// A part of a file, changed.
    Edit,
    /// Names of files.
    Glob,
    /// Lines of files.
    Grep,
}

/// Capability of the machine that a tool needs. The wire has a name for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeCapability {
    /// Listing files.
    List,
    /// Reading files.
    Read,
    /// Writing files.
    Write,
    /// Changing files.
    Edit,
    /// Searching in files.
    Search,
    /// Running commands.
    Exec,
}

/// One tool as it is offered.
#[derive(Debug)]
pub struct NodeToolOffer {
    /// Kind of the tool.
    pub sort: NodeToolKind,
    /// Its name, what it does and takes.
    pub spec: ToolSpec,
    /// Capabilities that it needs.
    pub needs: &'static [NodeCapability],
}

/// Every tool, always in the same order.
pub static OFFERED: LazyLock<[NodeToolOffer; 7]> = LazyLock::new(|| {
    [
        NodeToolOffer {
            sort: NodeToolKind::Bash,
            needs: &[NodeCapability::Exec],
            spec: tool_spec(
                "Bash",
                "Runs a command in a new shell in the workspace. A code other than 0 is a result with status failed. With background it is \
                 answered at once with a sessionId for Process, with yieldMs after so many milliseconds if the command still runs then. \
                 What a command leaves running ends with it: what is to go on needs background.",
                json!({"type": "object", "required": ["command"], "properties": {
                    "command": {"type": "string", "description": "Shell command to run"},
                    "workdir": {"type": "string", "description": "Folder to run it in (default: the workspace)"},
                    "timeout": {"type": "integer", "minimum": 0, "description": "Milliseconds after which it is ended (default 300000, 0 for never)"},
                    "background": {"type": "boolean", "description": "Answer at once and let it run"},
                    "yieldMs": {"type": "integer", "minimum": 0, "description": "Let it run on in the background after so many milliseconds (10 to 120000)"},
                }}),
                ToolEffect::Changes,
                &["command"],
            ),
        },
        NodeToolOffer {
            sort: NodeToolKind::Process,
            needs: &[NodeCapability::Exec],
            spec: tool_spec(
                "Process",
                "Looks after commands in the background: list them, poll one, read its log, write to its input (submit adds a line end), kill it.",
                json!({"type": "object", "required": ["action"], "properties": {
                    "action": {"type": "string", "description": "One of list, poll, log, write, submit, kill"},
                    "sessionId": {"type": "string", "description": "Which command, for all but list"},
                    "data": {"type": "string", "description": "What to write, for write and submit"},
                    "offset": {"type": "integer", "minimum": 0, "description": "Lines of the log to skip"},
                    "limit": {"type": "integer", "minimum": 1, "description": "Lines of the log to show (default 200)"},
                }}),
                ToolEffect::Changes,
                &["action", "sessionId", "data"],
            ),
        },
        NodeToolOffer {
            sort: NodeToolKind::Read,
            needs: &[NodeCapability::Read],
            spec: tool_spec(
                "Read",
                "Reads a text file of the workspace, with line numbers.",
                json!({"type": "object", "required": ["path"], "properties": {
                    "path": {"type": "string", "description": "File, relative to the workspace or absolute within it"},
                    "offset": {"type": "integer", "minimum": 0, "description": "Lines to skip"},
                    "limit": {"type": "integer", "minimum": 1, "description": "Lines to show (default: all)"},
                }}),
                ToolEffect::Reads,
                &["path"],
            ),
        },
        NodeToolOffer {
            sort: NodeToolKind::Write,
            needs: &[NodeCapability::Write],
            spec: tool_spec(
                "Write",
                "Writes a whole file of the workspace; missing folders are made, a file that is there is replaced.",
                json!({"type": "object", "required": ["path", "content"], "properties": {
                    "path": {"type": "string", "description": "File, relative to the workspace or absolute within it"},
                    "content": {"type": "string", "description": "All that the file is to hold"},
                }}),
                ToolEffect::Changes,
                &["path"],
            ),
        },
        NodeToolOffer {
            sort: NodeToolKind::Edit,
            needs: &[NodeCapability::Read, NodeCapability::Edit],
            spec: tool_spec(
                "Edit",
                "Replaces exact text in a file of the workspace. oldString must occur exactly once, unless replaceAll is set.",
                json!({"type": "object", "required": ["path", "oldString", "newString"], "properties": {
                    "path": {"type": "string", "description": "File, relative to the workspace or absolute within it"},
                    "oldString": {"type": "string", "description": "Text to replace, exactly as in the file"},
                    "newString": {"type": "string", "description": "Text to put in its place"},
                    "replaceAll": {"type": "boolean", "description": "Replace every occurrence (default false)"},
                }}),
                ToolEffect::Changes,
                &["path"],
            ),
        },
        NodeToolOffer {
            sort: NodeToolKind::Glob,
            needs: &[NodeCapability::List],
            spec: tool_spec(
                "Glob",
                "Finds files and folders of the workspace by a glob, the last changed first. Links are shown and not followed; .git is left out.",
                json!({"type": "object", "required": ["pattern"], "properties": {
                    "pattern": {"type": "string", "description": "Glob, such as **/*.md or src/**/*.rs"},
                    "path": {"type": "string", "description": "Folder that the pattern starts from (default: the workspace)"},
                }}),
                ToolEffect::Reads,
                &["pattern", "path"],
            ),
        },
        NodeToolOffer {
            sort: NodeToolKind::Grep,
            needs: &[NodeCapability::Read, NodeCapability::Search],
            spec: tool_spec(
                "Grep",
                "Searches text files of the workspace for lines that match a regular expression (Rust syntax). At most 100 lines are shown.",
                json!({"type": "object", "required": ["pattern"], "properties": {
                    "pattern": {"type": "string", "description": "Regular expression"},
                    "path": {"type": "string", "description": "File or folder to search in (default: the workspace)"},
                    "include": {"type": "string", "description": "Only files whose name matches, such as *.md or *.{rs,ts}"},
                }}),
                ToolEffect::Reads,
                &["pattern", "path"],
            ),
        },
    ]
});

fn tool_spec(
    name: &str,
    description: &str,
    schema: Value,
    effect: ToolEffect,
    signature: &'static [&'static str],
) -> ToolSpec {
    let (concurrency, repeat) = match effect {
        ToolEffect::Reads => (CallConcurrency::Shared, RepeatMode::Idempotent),
        ToolEffect::Changes => (CallConcurrency::Exclusive, RepeatMode::Once),
    };
    ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        schema,
        concurrency,
        repeat,
        effect,
        signature,
    }
}

impl NodeToolOffer {
    /// Returns the tool of this name.
    pub(super) fn by_name(name: &str) -> Option<&'static Self> {
        OFFERED.iter().find(|offer| offer.spec.name == name)
    }

    /// The arguments, ready to be read.
    ///
    /// # Errors
    /// All that is wrong with them, on one line.
    pub(super) fn check_arguments(&self, arguments: Map<String, Value>) -> Result<Map<String, Value>, String> {
        validate_arguments(&self.spec, &Value::Object(arguments)).map_err(|failure| {
            let text = failure.to_string();
            let problems = text.split_once(":\n- ").map_or(text.as_str(), |(_, problems)| problems);
            format!("Invalid arguments: {}", problems.replace("\n- ", "; "))
        })
    }
}
