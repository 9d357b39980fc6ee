//! `log-level`: what a gateway that runs says on stderr, and how to have it say more.

use std::{io::Write as _, process::ExitCode};

use anyhow::bail;
use countersign_gateway::control::Request;
use serde_json::json;

use crate::{audit::Form, local::Local, place::Place};

pub(crate) fn run(place: &Place, wanted: Option<String>, form: Form) -> anyhow::Result<ExitCode> {
    let Some(mut local) = Local::connect(&place.folder) else {
        bail!(
            "no gateway runs with the data directory {}: name it with --config or --data; for the next start set `log.level`, or COUNTERSIGN_LOG where it starts",
            place.folder.display()
        );
    };
    let told = local.ask(&Request::LogLevel { level: wanted })?;
    let level = told["level"].as_str().unwrap_or_default();
    let mut out = std::io::stdout().lock();
    match form {
        Form::Json => writeln!(out, "{}", json!({ "level": level }))?,
        Form::Text => writeln!(out, "{level}")?,
    }
    Ok(ExitCode::SUCCESS)
}
