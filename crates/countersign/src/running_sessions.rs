//! `sessions running`: the sessions of gjc that run on this machine, as programs find them.

use std::{io::Write as _, path::Path, process::ExitCode};

use anyhow::Context as _;
use countersign_adapter_gjc::SessionRegistry;
use countersign_agent_dir::{AgentDir, AgentProduct, ProcessEnvironment};
use countersign_protocol::gjc::registry::SessionTransport;
use countersign_view::{LineMode, escape};

use crate::{
    audit::OutputFormat,
    style::{ColourMode, TextStyle},
};

/// Prints them, the one that began first at the front.
pub(crate) fn print_running(form: OutputFormat) -> anyhow::Result<ExitCode> {
    let cwd = std::env::current_dir()?;
    let directory = AgentDir::resolve(AgentProduct::Gjc, &ProcessEnvironment::of_process(), &cwd, Path::exists)?;
    let running =
        SessionRegistry::for_agent_dir(&directory).list_sessions().context("cannot list the running sessions")?;
    let mut out = std::io::stdout().lock();
    if form == OutputFormat::Json {
        writeln!(out, "{}", serde_json::to_string_pretty(&running)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if running.is_empty() {
        writeln!(out, "No running sessions.")?;
    }
    let paint = ColourMode::for_stdout();
    for session in running {
        let reached = match (session.transport, session.endpoint) {
            (_, Some(endpoint)) => endpoint,
            (SessionTransport::Stdio, None) => "stdio".to_owned(),
            (SessionTransport::Socket, None) => "socket".to_owned(),
            (SessionTransport::Bridge, None) => "bridge".to_owned(),
        };
        let id = paint.apply_style(TextStyle::Strong, escape(&session.session_id, LineMode::One));
        let rest = format!("process {}, since {}, in {}", session.pid, session.started_at, session.cwd);
        let rest = paint.apply_style(TextStyle::Faint, escape(&rest, LineMode::One));
        writeln!(out, "{id}  {}  {rest}", escape(&reached, LineMode::One))?;
    }
    Ok(ExitCode::SUCCESS)
}
