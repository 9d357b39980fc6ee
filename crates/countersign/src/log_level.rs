//! `log-level`: the level of a running gateway's log on stderr, and its change.

use std::{io::Write as _, process::ExitCode};

use anyhow::bail;
use countersign_gateway::control::Request;
use serde_json::json;

use crate::{audit::OutputFormat, control_client::ControlClient, data_dir::DataDir};

pub(crate) fn run(place: &DataDir, requested: Option<String>, form: OutputFormat) -> anyhow::Result<ExitCode> {
    let Some(mut local) = ControlClient::connect(&place.folder) else {
        bail!(
            "{}: select another with --config or --data; for the next start set `log.level`, or COUNTERSIGN_LOG in its environment",
            place.no_gateway()
        );
    };
    let response = local.send_request(&Request::LogLevel { level: requested })?;
    let level = response["level"].as_str().unwrap_or_default();
    let mut out = std::io::stdout().lock();
    match form {
        OutputFormat::Json => writeln!(out, "{}", json!({ "level": level }))?,
        OutputFormat::Text => writeln!(out, "{level}")?,
    }
    Ok(ExitCode::SUCCESS)
}
