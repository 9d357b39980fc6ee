//! The page of errors, from the constants, enums and replies of the adapters' sources.

mod enums;
mod replies;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use anyhow::{Context as _, ensure};

use super::escape_cell;
use crate::workspace::{Workspace, rust_files};

const HEAD: &str = "\
# Every error of every door

Made of the code by `cargo xtask reference`. `…` stands for what the error names. When each of them comes is in the pages of the
doors; what a person is told beside it is in the record (`countersign audit tail`).
";

/// Source of errors.
enum ErrorSource {
    /// `pub mod code` with a documented constant each.
    Codes(&'static str),
    /// A documented enum; codes and statuses from its `code`, `body` and `status`.
    Enum(&'static str, &'static str),
    /// Replies over HTTP, made in a folder and the file of the same name, or in the source of a crate.
    Replies(&'static [&'static str]),
}

const DOORS: &[(&str, &str, &[ErrorSource])] = &[
    (
        "agent-gate",
        "The `code` of a JSON-RPC error. The connection is closed with 1000 if it did not show who it is in time.",
        &[ErrorSource::Codes("protocol/src/agent_gate.rs")],
    ),
    ("gsv", "The `code` of a frame's `error`.", &[ErrorSource::Codes("protocol/src/gsv/fault.rs")]),
    (
        "omp",
        "Errors have no codes: a command that fails is answered with `success: false` and a text. These are the answers to lines \
         that are no command; the stream goes on.",
        &[
            ErrorSource::Enum("protocol/src/omp/command/malformed.rs", "OmpParseError"),
            ErrorSource::Enum("protocol/src/omp/command/malformed.rs", "FieldFault"),
        ],
    ),
    (
        "gjc",
        "As at the omp door, and these: of workflow gates, of runs without people, of tools and URIs of hosts, and of the bridge \
         with their status.",
        &[
            ErrorSource::Enum("protocol/src/gjc/workflow.rs", "GateError"),
            ErrorSource::Enum("answer-schema/src/schema/construct.rs", "SchemaError"),
            ErrorSource::Enum("protocol/src/gjc/unattended/declaration.rs", "RefusalCode"),
            ErrorSource::Enum("protocol/src/omp/host_tool.rs", "ToolsError"),
            ErrorSource::Enum("protocol/src/omp/host_uri.rs", "SchemeError"),
            ErrorSource::Enum("protocol/src/gjc/bridge.rs", "BridgeError"),
            ErrorSource::Enum("protocol/src/gjc/bridge.rs", "ExpectedInput"),
        ],
    ),
    (
        "hermes",
        "`{\"error\": …}` with a status.",
        &[ErrorSource::Replies(&["adapter-hermes/src", "http/src", "gateway/src/websockets"])],
    ),
    (
        "The interface for programs",
        "A problem document (`application/problem+json`) with a status; these are its `detail`. What is wrong with a time, an id or \
         another value is said in words of its own behind the name of the parameter, with status 400.",
        &[
            ErrorSource::Replies(&["api/src", "http/src", "gateway/src/websockets"]),
            ErrorSource::Enum("core/src/gate/command.rs", "AnswerError"),
            ErrorSource::Enum("conversations/src/chats.rs", "ChatError"),
        ],
    ),
];

pub(super) fn errors_page(workspace: &Workspace) -> anyhow::Result<String> {
    let crates = workspace.root.join("crates");
    let mut page = HEAD.to_owned();
    for (door, what, sources) in DOORS {
        write!(page, "\n## {door}\n\n{what}\n\n")?;
        for source in *sources {
            let rows = error_rows(&crates, source)?;
            if let ErrorSource::Enum(file, name) = source {
                let text = fs::read_to_string(crates.join(file)).with_context(|| (*file).to_owned())?;
                writeln!(page, "{}\n", enums::enum_description(&text, name))?;
            }
            let names = match source {
                ErrorSource::Codes(_) => "code | when",
                ErrorSource::Enum(..) => "code | text | when",
                ErrorSource::Replies(_) => "status | text",
            };
            let columns = names.split(" | ").count();
            writeln!(page, "| {names} |\n|{}", "---|".repeat(columns))?;
            for row in &rows {
                ensure!(row.len() == columns, "{row:?}");
                let cells: Vec<String> = row.iter().map(|text| escape_cell(text)).collect();
                writeln!(page, "| {} |", cells.join(" | "))?;
            }
            page.push('\n');
        }
    }
    Ok(page.replace("\n\n\n", "\n\n").trim_end().to_owned() + "\n")
}

fn error_rows(crates: &Path, source: &ErrorSource) -> anyhow::Result<Vec<Vec<String>>> {
    let read = |path: &Path| fs::read_to_string(path).with_context(|| path.display().to_string());
    let rows = match source {
        ErrorSource::Codes(file) => enums::code_rows(&read(&crates.join(file))?),
        ErrorSource::Enum(file, name) => {
            enums::variant_rows(&read(&crates.join(file))?, name).with_context(|| format!("{name} in {file}"))?
        }
        ErrorSource::Replies(folders) => {
            let mut sources = Vec::new();
            for folder in *folders {
                let folder = crates.join(folder);
                // The source of a crate has no such file, and some modules have no folder.
                let beside = Some(folder.with_extension("rs")).filter(|path| path.exists());
                let within = if folder.is_dir() { rust_files(&folder)? } else { Vec::new() };
                ensure!(beside.is_some() || !within.is_empty(), "{} has no source", folder.display());
                for path in within.into_iter().chain(beside) {
                    sources.push(read(&path)?);
                }
            }
            let named: BTreeMap<String, String> =
                sources.iter().flat_map(|source| replies::text_constants(source)).collect();
            let found: BTreeSet<(u16, String)> =
                sources.iter().flat_map(|source| replies::error_replies(source, &named)).collect();
            found.into_iter().map(|(status, text)| vec![status.to_string(), text]).collect()
        }
    };
    ensure!(!rows.is_empty(), "no errors were found: the sources have another form now");
    Ok(rows)
}
