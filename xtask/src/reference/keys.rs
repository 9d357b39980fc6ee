//! The page of keys, from the lists in the readers of the files.

use std::{fmt::Write as _, fs};

use anyhow::{Context as _, ensure};

use super::escape_cell;
use crate::workspace::Workspace;

const HEAD: &str = "\
# Every key of the configuration

Made of the code by `cargo xtask reference`; a test holds it to what the readers of the files know. How the parts belong together
stands in [agent-gate, and the configuration of `serve`](../protocol/agent-gate.md). `countersign config check` says what is wrong with
a file, `countersign config show` what is in force.

`*` stands for a name of yours, `[]` for each of a list. *needed*: without it the file is refused, if the section is there at all. `${NAME}`
in a value is the variable of the environment. A secret is text that is never shown. Keys that are not here are errors.
";

const FILES: [(&str, &str); 3] = [
    ("configuration", "## `config.yaml`\n\nRelative paths begin at its folder. Every section may be absent.\n"),
    (
        "rules",
        "## `permissions.yaml`\n\n`defaults` has rules of the same form. `permissions.test.yaml` beside it may have more `tests`.\n",
    ),
    ("tools", "## Files of tools\n\nThose that `services.*.tools` names; `examples/homeassistant.yaml` is one.\n"),
];

pub(super) fn keys_page(workspace: &Workspace) -> anyhow::Result<String> {
    let mut page = HEAD.to_owned();
    for (name, head) in FILES {
        let path = workspace.root.join(format!("crates/config/src/reference/{name}.txt"));
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        page += &format!("\n{head}\n{}", key_table(&text)?);
    }
    Ok(page)
}

/// Returns a table of lines of `key | what it takes | what holds without it | what it does`.
fn key_table(lines: &str) -> anyhow::Result<String> {
    let mut table = "| key | takes | without it | what it does |\n|---|---|---|---|\n".to_owned();
    for line in lines.lines() {
        let parts: Vec<&str> = line.split(" | ").map(str::trim).collect();
        ensure!(parts.len() == 4, "a key has four parts: {line}");
        let usual = match parts[2] {
            "" => String::new(),
            "needed" => "needed".to_owned(),
            usual => format!("`{usual}`"),
        };
        writeln!(table, "| `{}` | {} | {usual} | {} |", parts[0], escape_cell(parts[1]), escape_cell(parts[3]))?;
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::key_table;

    #[test]
    fn a_key_is_a_row_and_anything_else_is_refused() {
        let rows = key_table("a.b | text | needed | What.\nc | number |  | More.\n").unwrap();
        assert!(rows.ends_with("| `a.b` | text | needed | What. |\n| `c` | number |  | More. |\n"), "{rows}");
        assert!(key_table("a.b | text").is_err());
    }
}
