//! `doctor`: whether a gateway would start and reach what it needs, and what to do where not.
//!
//! It changes nothing, and a check that cannot be made is a finding too.

mod cluster;
mod database;
mod mcp;
mod record;
mod servers;
mod sockets;

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use countersign_config::{BindError, Config, ConfigFault, FileFinding, LoadedConfig};
use countersign_gateway::{checkup, control::Request};
use countersign_http::tokens;
use countersign_policy_admin::malformed::MalformedRule;
use countersign_runtime::{
    Clock,
    tools::{
        CommandEnvironment, SessionShell,
        exec::ExecLauncher,
        sandbox::{NetworkAccess, OnMissingKernel},
    },
};
use countersign_store::NodeRow;
use countersign_view::{LineMode, escape};
use serde::Serialize;
use serde_json::json;

use crate::{
    audit::{OutputFormat, block_on},
    config,
    control_client::ControlClient,
    data_dir::DataDir,
    error_text::chain_text,
    style::{ColourMode, TextStyle, terminal_columns},
    wrap::wrap_text,
};

/// Maximum wait for a running gateway.
const PATIENCE: Duration = Duration::from_secs(5);

/// State of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckState {
    /// As it should be.
    Ok,
    /// Worth knowing, and nothing to do.
    Note,
    /// Something to do.
    Fix,
}

/// Result of one check.
#[derive(Debug, Serialize)]
struct DoctorCheck {
    check: String,
    state: CheckState,
    what: String,
    /// Suggested fix.
    advice: Option<String>,
}

impl DoctorCheck {
    fn ok(check: &str, what: impl Into<String>) -> Self {
        Self { check: check.to_owned(), state: CheckState::Ok, what: what.into(), advice: None }
    }

    fn note(check: &str, what: impl Into<String>) -> Self {
        Self { state: CheckState::Note, ..Self::ok(check, what) }
    }

    /// Returns a warning about a setting that its author may not expect, and that `serve` takes: no fault, here as in `config check` and
    /// `policy check`.
    fn warn(check: &str, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..Self::note(check, what) }
    }

    fn fix(check: &str, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { state: CheckState::Fix, advice: Some(advice.into()), ..Self::ok(check, what) }
    }
}

pub(crate) fn run(file: Option<&Path>, data: Option<&Path>, form: OutputFormat) -> anyhow::Result<ExitCode> {
    let mut checks = Vec::new();
    let loaded = config::load_config(file, data.map(Path::to_owned));
    let is_loaded = loaded.is_ok();
    match loaded {
        Err(errors) => {
            checks.extend(errors.0.iter().map(|problem| {
                let advice = match &problem.fault {
                    ConfigFault::Variable(name) | ConfigFault::Empty { variable: name } => {
                        format!("set {name} here as in the environment of `serve`")
                    }
                    ConfigFault::Io(_) => "pass a readable file with --config".to_owned(),
                    _ => "correct it, then run `countersign config check`".to_owned(),
                };
                DoctorCheck::fix("configuration", problem.to_string(), advice)
            }));
            let rest = "not checked until the configuration is valid: rules, sandbox, files, services, providers, messenger, port";
            checks.push(DoctorCheck::note("the rest", rest));
        }
        Ok(loaded) if !loaded.config.realms.is_empty() => {
            let warnings = loaded.warnings.into_iter();
            checks.extend(
                warnings.map(|text| DoctorCheck::warn("configuration", text, "correct it, if it is not intended")),
            );
            for realm in &loaded.config.realms {
                let (file, warnings) = (realm.config.file.as_deref(), Vec::new());
                let alone = LoadedConfig { config: realm.config.clone(), warnings };
                let own = check_configuration(file, &alone).into_iter().chain(check_data(file, None, true));
                checks.extend(
                    own.map(|check| DoctorCheck { check: format!("{}: {}", realm.name, check.check), ..check }),
                );
            }
            checks.extend(check_traces());
            return print_checks(&checks, form);
        }
        Ok(loaded) => checks.extend(check_configuration(file, &loaded)),
    }
    checks.extend(check_data(file, data, is_loaded));
    checks.extend(check_traces());
    print_checks(&checks, form)
}

/// Checks the data directory and the record in it.
fn check_data(file: Option<&Path>, data: Option<&Path>, is_loaded: bool) -> Vec<DoctorCheck> {
    let mut checks = Vec::new();
    match DataDir::find(file, data) {
        // The fault of the file is reported above; the place of the record is known once that is fixed.
        Err(_) if !is_loaded => {
            checks.push(DoctorCheck::note("data", "not checked: its path comes from the configuration"))
        }
        Err(error) => checks.push(DoctorCheck::fix(
            "data",
            chain_text(&error),
            "correct `storage`, or pass the folder with --data",
        )),
        Ok(place) => {
            checks.push(check_gateway(&place));
            checks.extend(if place.folder.is_file() { None } else { check_tokens(&place) });
            checks.extend(record::record_checks(&place, &config::gateway_flags(file, data), Clock::system().now()));
        }
    }
    checks
}

/// Checks a well-formed configuration, and the files that it names.
fn check_configuration(file: Option<&Path>, LoadedConfig { config, warnings }: &LoadedConfig) -> Vec<DoctorCheck> {
    let what =
        file.map_or_else(|| "none: all settings have their defaults".to_owned(), |file| file.display().to_string());
    let mut checks = vec![DoctorCheck::ok("configuration", what)];
    let exposed = config.exposed_files();
    // Credentials that others can read are reported as a file below.
    let is_told = |warning: &&String| !exposed.iter().any(|finding| warning.contains(&finding.advice()));
    let warnings = warnings.iter().filter(is_told);
    checks.extend(
        warnings.map(|warning| {
            DoctorCheck::warn("configuration", warning.clone(), "see docs/protocol/agent-gate.md, Files")
        }),
    );
    let advice = |problem: &str| match config.check_binding().err() {
        Some(open @ BindError::Open) if open.to_string() == problem => {
            "set one of them, or listen on 127.0.0.1: `serve` does not start until this is fixed"
        }
        Some(plain @ BindError::Plaintext) if plain.to_string() == problem => {
            "give gateway.tls a certificate, listen on 127.0.0.1, or start `serve --insecure` behind a TLS proxy"
        }
        Some(node @ (BindError::NodeWithoutTls | BindError::NodeWithTls | BindError::PlaintextNodes))
            if node.to_string() == problem =>
        {
            "correct cluster.advertise or gateway.tls: `serve` does not start until this is fixed"
        }
        Some(_) | None => "correct it: `serve` does not start until this is fixed",
    };
    let unusable = checkup::config_problems(config).into_iter();
    checks.extend(unusable.map(|problem| DoctorCheck::fix("configuration", problem.clone(), advice(&problem))));
    if config.agents.is_empty() {
        let what = "none: no agent can connect; add one with `countersign agents add ID --config FILE`";
        checks.push(DoctorCheck::note("agents", what));
    } else {
        checks.push(DoctorCheck::ok("agents", format!("{} configured", config.agents.len())));
    }
    if !config.web.is_guarded() {
        checks.push(DoctorCheck::note(
            "console",
            "open to every user of this machine; set web.password to require a login",
        ));
    }
    checks.extend(check_rules(config));
    checks.push(check_sandbox(config));
    checks.extend(check_crowded_paths(config));
    checks.extend(check_processes());
    checks.extend(check_named_hosts(config));
    checks.extend(mcp::check_servers(config, file));
    checks.extend(sockets::check_sockets(config));
    checks.extend(exposed.iter().map(check_file));
    if exposed.is_empty() {
        checks.push(DoctorCheck::ok("files", "no secret or rule is exposed to other users"));
    }
    checks.extend(servers::check_servers(config));
    let cluster = cluster::check_cluster(config);
    checks.extend(cluster.checks);
    checks.extend(check_port(config, cluster.own_node.as_ref()));
    checks
}

/// Reports a file. `serve` starts although others can read or change it, so that this is a warning.
fn check_file(finding: &FileFinding) -> DoctorCheck {
    if finding.prevents_start() {
        DoctorCheck::fix("files", finding.to_string(), finding.advice())
    } else {
        DoctorCheck::warn("files", finding.to_string(), finding.advice())
    }
}

fn check_rules(config: &Config) -> Vec<DoctorCheck> {
    let file = config.permissions.display();
    let found = match checkup::check_rules(config) {
        Err(error) => {
            let advice = "correct them: an invalid rules file does not apply";
            return vec![DoctorCheck::fix("rules", error.to_string(), advice)];
        }
        Ok(found) => found,
    };
    let to_check = |rule: &MalformedRule| {
        let advice = format!("{}, then run `countersign policy check`", rule.advice());
        DoctorCheck::fix("rules", rule.effect_warning(), advice)
    };
    let mut checks: Vec<DoctorCheck> = found.without_effect.iter().map(to_check).collect();
    if !found.warnings.is_empty() {
        let advice = "correct the rules that do not say what you intend";
        checks.push(DoctorCheck::warn("rules", found.warnings.join("\n"), advice));
    }
    if checks.is_empty() && !config.permissions.exists() {
        let what =
            format!("{file} does not exist: agents may read in their workspace, and everything else requires approval");
        checks.push(DoctorCheck::note("rules", what));
    } else if checks.is_empty() {
        checks.push(DoctorCheck::ok("rules", file.to_string()));
    }
    checks
}

/// Checks the sandbox of commands, and whether this kernel supports it.
fn check_sandbox(config: &Config) -> DoctorCheck {
    let sandbox = checkup::build_sandbox(config);
    let what = sandbox.settings_summary();
    match sandbox.missing_support() {
        None if sandbox.is_on() => DoctorCheck::ok("sandbox", what),
        None => DoctorCheck::note("sandbox", what),
        Some(lacks) if config.sandbox.on_missing == OnMissingKernel::Refuse => {
            let advice = "use a kernel that supports it, or set sandbox.on_missing: warn";
            DoctorCheck::fix("sandbox", format!("{what}; but {lacks}, so no command runs"), advice)
        }
        Some(lacks) => {
            DoctorCheck::note("sandbox", format!("{what}; but {lacks}, so commands are confined less than this"))
        }
    }
}

/// Folders that commands would expect to make files in and cannot, one for each.
fn check_crowded_paths(config: &Config) -> Vec<DoctorCheck> {
    let to_check = |(tree, own): (PathBuf, PathBuf)| {
        let (tree, own) = (tree.display(), own.display());
        let what = format!("commands cannot create files in {tree}, because {own} is in it");
        let advice = format!("keep the configuration and data outside {tree} (--config, --data)");
        DoctorCheck::warn("sandbox", what, advice)
    };
    checkup::build_sandbox(config).crowded_folders().into_iter().map(to_check).collect()
}

/// Checks whether this machine shows which process answers.
fn check_processes() -> Option<DoctorCheck> {
    // The first process is another user's, and always exists.
    let hides = std::fs::metadata("/proc/self/stat").is_ok() && std::fs::read("/proc/1/stat").is_err();
    let what = "/proc hides processes of other users (hidepid): the gateway cannot always identify the process that answers over \
        the port, and refuses answers over SSH as the gateway's user while commands of agents run";
    let advice =
        "mount /proc with gid= set to a group of the gateway's user, or answer as another user (docs/security.md)";
    hides.then(|| DoctorCheck::fix("processes", what, advice))
}

/// Checks whether commands can have a network of named hosts here; None if the configuration names none.
fn check_named_hosts(config: &Config) -> Option<DoctorCheck> {
    let sandbox = checkup::build_sandbox(config);
    // A gateway that runs no commands needs no network for them, as the check of the sandbox says.
    let is_refused = config.sandbox.on_missing == OnMissingKernel::Refuse && sandbox.missing_support().is_some();
    if !matches!(sandbox.network(), NetworkAccess::Hosts(_)) || is_refused {
        return None;
    }
    let lacks = block_on(async {
        let shells = SessionShell::with_sandbox(ExecLauncher::new(&std::env::current_exe()?), sandbox);
        Ok(shells.lacks_named_hosts(&std::env::temp_dir(), &CommandEnvironment::clean_with([])).await)
    });
    let lacks = lacks.unwrap_or_else(|error| Some(chain_text(&error)));
    let Some(lacks) = lacks else {
        return Some(DoctorCheck::ok("named hosts", "commands reach only the hosts in sandbox.network.hosts"));
    };
    let end = match config.sandbox.on_missing {
        OnMissingKernel::Refuse => "no command runs",
        OnMissingKernel::Warn => "commands have no network at all",
    };
    let advice =
        "permit this user to create user and network namespaces (docs/sandbox.md), or set sandbox.network to on or off";
    Some(DoctorCheck::fix("named hosts", format!("{lacks}, so {end}"), advice))
}

/// Checks whether the environment's settings of traces can be used; None if they name no collector.
fn check_traces() -> Option<DoctorCheck> {
    match checkup::check_traces() {
        Ok(false) => None,
        Ok(true) => Some(DoctorCheck::ok("traces", "exported to the collector that the environment names")),
        Err(problem) => {
            let advice = "correct or unset the variable for `serve`, which does not start until this is fixed";
            Some(DoctorCheck::fix("traces", problem, advice))
        }
    }
}

/// Checks whether the address is free, or taken by the running gateway. `own_node` is this node of a cluster, if it is alive.
fn check_port(config: &Config, own_node: Option<&NodeRow>) -> Option<DoctorCheck> {
    let shown = format!("{}:{}", config.gateway.host, config.gateway.port);
    match ControlClient::connect(&config.storage.folder) {
        Some(_) => None,
        None if config.gateway.port == 0 => None,
        None => Some(match (checkup::check_port(config), own_node) {
            (Ok(()), _) => DoctorCheck::ok("address", format!("{shown} is free")),
            (Err(_), Some(node)) => {
                let name = &node.name;
                DoctorCheck::note(
                    "address",
                    format!("{shown} is in use, and node {name} runs; pass its data directory with --data to check it"),
                )
            }
            (Err(problem), None) => DoctorCheck::fix(
                "address",
                problem,
                "stop the program that listens there, or choose another gateway.host or gateway.port; if it is a gateway, pass its data \
                 directory with --data",
            ),
        }),
    }
}

/// Checks whether a gateway runs with this data directory, and answers.
fn check_gateway(place: &DataDir) -> DoctorCheck {
    let shown = display_folder(&place.folder);
    let Some(local) = ControlClient::connect(&place.folder) else {
        return DoctorCheck::note("gateway", format!("not running with the data directory {shown}"));
    };
    match local.with_timeout(PATIENCE).and_then(|mut local| local.send_request(&Request::Gates)) {
        Ok(waiting) => {
            let count = waiting.as_array().map_or(0, Vec::len);
            let pending = if count == 1 { "pending approval" } else { "pending approvals" };
            DoctorCheck::ok("gateway", format!("runs with the data directory {shown}; {count} {pending}"))
        }
        Err(problem) => DoctorCheck::fix("gateway", format!("runs but does not answer: {problem:#}"), "restart it"),
    }
}

/// Checks whether the tokens of programs are known; None if there are none.
fn check_tokens(place: &DataDir) -> Option<DoctorCheck> {
    let now = Clock::system().now();
    match tokens::list_tokens(&place.folder) {
        Ok(listed) if listed.is_empty() => None,
        Ok(listed) => {
            let good = listed.iter().filter(|token| token.is_good(now)).count();
            let old = listed.len() - good;
            Some(DoctorCheck::ok("tokens", format!("{good} valid, {old} expired")))
        }
        Err(error) => Some(DoctorCheck::fix(
            "tokens",
            error.to_string(),
            "restore the file, or delete it and add new tokens: all tokens are rejected until then",
        )),
    }
}

/// Returns a folder as people read it.
fn display_folder(folder: &Path) -> String {
    if folder.as_os_str().is_empty() { ".".to_owned() } else { folder.display().to_string() }
}

fn print_checks(checks: &[DoctorCheck], form: OutputFormat) -> anyhow::Result<ExitCode> {
    let findings = checks.iter().filter(|check| check.state == CheckState::Fix).count();
    let code = if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    let mut out = std::io::stdout().lock();
    if form == OutputFormat::Json {
        writeln!(out, "{}", serde_json::to_string_pretty(&json!({ "findings": findings, "checks": checks }))?)?;
        return Ok(code);
    }
    let (paint, columns) = (ColourMode::for_stdout(), terminal_columns());
    let width = checks.iter().map(|check| check.check.chars().count()).max().unwrap_or_default();
    for check in checks {
        let state = match check.state {
            CheckState::Ok => paint.apply_style(TextStyle::Good, "ok  "),
            CheckState::Note => paint.apply_style(TextStyle::Faint, "note"),
            CheckState::Fix => paint.apply_style(TextStyle::Bad, "fix "),
        };
        let name = paint.apply_style(TextStyle::Strong, format!("{:<width$}", check.check));
        let indent = width + 8;
        let pad = " ".repeat(indent);
        let what = escape(&check.what, LineMode::Many);
        let what = match columns {
            Some(columns) => wrap_text(&what, indent, indent, columns),
            None => what.replace('\n', &format!("\n{pad}")),
        };
        writeln!(out, "{state}  {name}  {what}")?;
        // A command in it is to be copied as it is.
        if let Some(advice) = &check.advice {
            writeln!(out, "{pad}→ {}", escape(advice, LineMode::One))?;
        }
    }
    match findings {
        0 if checks.iter().any(|check| check.advice.is_some()) => {
            writeln!(out, "\nNothing to fix. Consider the advice of the notes.")?
        }
        0 => writeln!(out, "\nNothing to do.")?,
        1 => writeln!(out, "\n1 thing to do.")?,
        count => writeln!(out, "\n{count} things to do.")?,
    }
    Ok(code)
}
