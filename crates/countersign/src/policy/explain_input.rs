//! A request to explain, and its arguments.

use anyhow::{Context as _, bail};
use countersign_view::shell_quote;
use serde_json::{Map, Value};

use super::one_line;
use crate::agent;

/// Request to explain, as it is on the command line.
pub(crate) struct ExplainInput {
    pub(crate) tool: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) args: Option<String>,
    pub(crate) agent: String,
}

impl ExplainInput {
    pub(super) fn parse_arguments(&self) -> anyhow::Result<Map<String, Value>> {
        let mut all = agent::parse_arguments(&self.arguments)
            .map_err(|failed| anyhow::anyhow!("{}{}", failed.message, self.command_example()))?;
        if let Some(text) = &self.args {
            let more: Map<String, Value> = serde_json::from_str(text).context("--args: expected a JSON object")?;
            for (key, value) in more {
                if all.contains_key(&key) {
                    bail!("the argument {key} is given twice");
                }
                all.insert(key, value);
            }
        }
        Ok(all)
    }

    /// Returns the form of a command that was passed as words, as an addition to an error.
    fn command_example(&self) -> String {
        if self.tool != "bash" || self.arguments.iter().any(|argument| argument.starts_with("command=")) {
            return String::new();
        }
        format!(", for example command={}", one_line(&shell_quote(self.arguments.join(" "))))
    }
}
