//! `agents`: who may ask a gateway, as its configuration file has it.
//!
//! A token is printed once, when it is made, and never again.

use std::{io::Write as _, os::unix::fs::MetadataExt as _, path::Path, process::ExitCode};

use anyhow::Context as _;
use countersign_config::{AgentChange, AgentsError, TokenSource, change_agents, list_agents, new_token};
use countersign_view::{LineMode, escape, shell_quote};
use serde_json::json;

use crate::{
    audit::OutputFormat,
    control_client::ControlClient,
    data_dir::DataDir,
    style::{ColourMode, TextStyle},
};

/// Action on agents.
pub(crate) enum AgentsAction {
    List,
    Add { id: String, variable: Option<String> },
    Rotate { id: String, variable: Option<String> },
    Remove { id: String },
}

/// Reads the name of a variable.
///
/// # Errors
/// The name is invalid; the error has the rules of names.
pub(crate) fn parse_variable(name: &str) -> Result<String, String> {
    let is_name = name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    if is_name {
        Ok(name.to_owned())
    } else {
        Err("expected letters, digits and _, without a digit at the beginning".to_owned())
    }
}

pub(crate) fn run(
    config: Option<&Path>,
    data: Option<&Path>,
    what: &AgentsAction,
    form: OutputFormat,
) -> anyhow::Result<ExitCode> {
    let file = config.context("the configuration lists the agents: pass it with --config FILE")?;
    match what {
        AgentsAction::List => print_agents(file, form),
        AgentsAction::Add { id, variable } => {
            let token = AgentToken::new(variable.clone())?;
            let tightened = change_agents(file, AgentChange::Add { id, token: &token.in_file() })?;
            AgentChangeReport { word: "added", id, token: Some(&token), tightened }.print_change(file, data, form)
        }
        AgentsAction::Rotate { id, variable } => {
            let known = list_agents(file)?.into_iter().find(|agent| agent.id == *id);
            let known = known.ok_or_else(|| AgentsError::Unknown(id.clone()))?;
            let named = match &known.token {
                TokenSource::Variable(name) => Some(name.clone()),
                TokenSource::File => None,
            };
            let token = AgentToken::new(variable.clone().or_else(|| named.clone()))?;
            // The file says already where the token comes from.
            let stays = token.variable.is_some() && token.variable == named;
            let tightened = !stays && change_agents(file, AgentChange::Rotate { id, token: &token.in_file() })?;
            AgentChangeReport { word: "rotated the token of", id, token: Some(&token), tightened }
                .print_change(file, data, form)
        }
        AgentsAction::Remove { id } => {
            change_agents(file, AgentChange::Remove { id })?;
            AgentChangeReport { word: "removed", id, token: None, tightened: false }.print_change(file, data, form)
        }
    }
}

fn print_agents(file: &Path, form: OutputFormat) -> anyhow::Result<ExitCode> {
    let agents = list_agents(file)?;
    let mut out = std::io::stdout().lock();
    if form == OutputFormat::Json {
        let rows: Vec<_> = agents
            .iter()
            .map(|agent| match &agent.token {
                TokenSource::Variable(name) => json!({ "id": agent.id, "token": "variable", "variable": name }),
                TokenSource::File => json!({ "id": agent.id, "token": "file", "variable": null }),
            })
            .collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&rows)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let paint = ColourMode::for_stdout();
    if agents.is_empty() {
        writeln!(out, "No agents. Add one with `countersign agents add ID --config {}`.", shell_quote(file.display()))?;
    }
    let width = agents.iter().map(|agent| agent.id.chars().count()).max().unwrap_or_default();
    for agent in agents {
        let from = match &agent.token {
            TokenSource::Variable(name) => format!("token from ${name}"),
            TokenSource::File => "token in the file".to_owned(),
        };
        let id = format!("{:<width$}", escape(&agent.id, LineMode::One));
        writeln!(
            out,
            "{}  {}",
            paint.apply_style(TextStyle::Strong, id),
            paint.apply_style(TextStyle::Faint, escape(&from, LineMode::One))
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A token that was just made.
struct AgentToken {
    text: String,
    /// The variable that is to hold it; absent where the file does.
    variable: Option<String>,
}

impl AgentToken {
    fn new(variable: Option<String>) -> anyhow::Result<Self> {
        Ok(Self { text: new_token()?, variable })
    }

    /// Returns the token as the file stores it.
    fn in_file(&self) -> String {
        self.variable.as_ref().map_or_else(|| self.text.clone(), |name| format!("${{{name}}}"))
    }
}

/// Change that was made, for the report.
struct AgentChangeReport<'a> {
    word: &'static str,
    id: &'a str,
    token: Option<&'a AgentToken>,
    /// Others could read the file before.
    tightened: bool,
}

impl AgentChangeReport<'_> {
    fn print_change(&self, file: &Path, data: Option<&Path>, form: OutputFormat) -> anyhow::Result<ExitCode> {
        let runs = DataDir::find(Some(file), data).is_ok_and(|place| ControlClient::connect(&place.folder).is_some());
        let mut out = std::io::stdout().lock();
        let variable = self.token.and_then(|token| token.variable.as_deref());
        if form == OutputFormat::Json {
            let token = self.token.map(|token| token.text.as_str());
            let summary = json!({ "id": self.id, "token": token, "variable": variable, "restart_needed": runs });
            writeln!(out, "{summary}")?;
            return Ok(ExitCode::SUCCESS);
        }
        let paint = ColourMode::for_stdout();
        writeln!(out, "{} {} in {}", self.word, paint.apply_style(TextStyle::Strong, self.id), file.display())?;
        match (self.token, variable) {
            (Some(token), Some(name)) => {
                writeln!(out, "\n  {name}={}\n", token.text)?;
                writeln!(
                    out,
                    "The token is shown only once. Set the variable where the gateway runs, and give the token to the agent."
                )?;
            }
            (Some(token), None) => {
                writeln!(out, "\n  {}\n", token.text)?;
                writeln!(out, "Give the token to the agent, for example in AGENT_TOKEN. It is also in the file.")?;
            }
            (None, _) => {}
        }
        if self.tightened {
            let is_its_groups = file.metadata().is_ok_and(|found| found.mode() & 0o040 != 0);
            let who = if is_its_groups {
                "only root and the group that root gave it to can read it now."
            } else {
                "only its owner can read it now, and not its group."
            };
            writeln!(out, "The file contains a token: {who}")?;
        }
        let restart = match (runs, self.token.is_some()) {
            (true, true) => "The running gateway does not know this token yet: restart it.",
            (true, false) => "The running gateway still accepts this agent: restart it.",
            (false, _) => return Ok(ExitCode::SUCCESS),
        };
        writeln!(out, "{}", paint.apply_style(TextStyle::Asking, restart))?;
        Ok(ExitCode::SUCCESS)
    }
}
