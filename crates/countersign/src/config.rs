//! `config`: what is wrong with a configuration, and what is in force.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use countersign_config as config;
use countersign_config::{Config, ConfigErrors, ConfigFlags, ExposureKind, LoadedConfig};
use countersign_gateway::checkup;
use countersign_view::shell_quote;
use serde_json::json;

use crate::{
    exit::print_notice,
    style::{ColourMode, TextStyle},
};

/// Reads the configuration as `serve` would.
pub(crate) fn load_config(file: Option<&Path>, data: Option<PathBuf>) -> Result<LoadedConfig, ConfigErrors> {
    let flags = ConfigFlags { data, ..ConfigFlags::default() };
    config::load_config(file, &flags, &|name| std::env::var(name).ok())
}

/// Returns the flags that mean the same place in another command.
pub(crate) fn gateway_flags(file: Option<&Path>, data: Option<&Path>) -> String {
    let flag = |name: &str, path: Option<&Path>| {
        path.map(|path| format!(" {name} {}", shell_quote(path.display()))).unwrap_or_default()
    };
    flag("--config", file) + &flag("--data", data)
}

/// Runs `config check`.
pub(crate) fn check_config(file: Option<&Path>, data: Option<PathBuf>, is_json: bool) -> anyhow::Result<ExitCode> {
    let (problems, warnings) = match load_config(file, data) {
        Err(errors) => (errors.0.iter().map(ToString::to_string).collect(), Vec::new()),
        Ok(LoadedConfig { config, mut warnings }) => {
            let mut problems = Vec::new();
            let realms = config.realms.iter().map(|realm| &realm.config);
            for gateway in realms.chain(config.realms.is_empty().then_some(&config)) {
                check_gateway(gateway, &mut problems, &mut warnings);
            }
            (problems, warnings)
        }
    };
    let code = if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    let mut out = std::io::stdout().lock();
    if is_json {
        writeln!(out, "{}", json!({ "ok": problems.is_empty(), "problems": problems, "warnings": warnings }))?;
        return Ok(code);
    }
    let paint = ColourMode::for_stdout();
    for problem in &problems {
        writeln!(out, "{}  {problem}", paint.apply_style(TextStyle::Bad, "error  "))?;
    }
    for warning in &warnings {
        writeln!(out, "{}  {warning}", paint.apply_style(TextStyle::Asking, "warning"))?;
    }
    if file.is_none() {
        print_notice("no --config, and no config.yaml in this folder: the defaults are checked");
    }
    let what = file.map_or_else(|| "defaults".to_owned(), |file| file.display().to_string());
    match problems.len() {
        0 => writeln!(out, "{what}: {}", paint.apply_style(TextStyle::Good, "valid"))?,
        1 => writeln!(out, "{what}: 1 error")?,
        count => writeln!(out, "{what}: {count} errors")?,
    }
    Ok(code)
}

/// Checks what the files of a gateway name, and its rules.
fn check_gateway(config: &Config, problems: &mut Vec<String>, warnings: &mut Vec<String>) {
    // Files that are absent are errors below, and credentials in the configuration are a warning already.
    let exposed = config.exposed_files().into_iter().filter(|finding| !finding.prevents_start());
    let exposed = exposed.filter(|finding| finding.what != ExposureKind::Credentials);
    warnings.extend(exposed.map(|finding| format!("{finding}; {}", finding.advice())));
    match checkup::check_rules(config) {
        Ok(of_rules) => {
            warnings.extend(of_rules.warnings);
            problems.extend(of_rules.without_effect.into_iter().map(|rule| rule.message));
        }
        Err(error) => problems.extend(error.to_string().lines().map(str::to_owned)),
    }
    problems.extend(checkup::config_problems(config));
}

/// Runs `config show`.
pub(crate) fn show_config(file: Option<&Path>, data: Option<PathBuf>, is_json: bool) -> anyhow::Result<ExitCode> {
    let loaded = load_config(file, data).map_err(|errors| anyhow::anyhow!("Configuration error: {errors}"))?;
    let mut out = std::io::stdout().lock();
    if is_json {
        writeln!(out, "{}", serde_json::to_string_pretty(&loaded.config.redacted_json())?)?;
    } else {
        writeln!(out, "{}", loaded.config.redacted_yaml().trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}
