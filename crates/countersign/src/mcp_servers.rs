//! `mcp-servers`: the MCP servers of a configuration, a trial of them, and their approval.
//!
//! It must not approve by itself: a person sees the command before it starts, and every tool before it is offered.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, IsTerminal as _, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::{Context as _, bail};
use countersign_config::{Config, McpServerConfig};
use countersign_core::id::PrincipalId;
use countersign_gateway::{
    checkup,
    control::Request,
    mcp_approvals::{ApprovalKey, approval_report, find_denied, pending_tools},
    mcp_status::transport_line,
    mcp_tools::{McpTools, server_options},
};
use countersign_mcp_client::{
    ApprovalOrigin, ApprovedServers, ServerApproval, ServerDefinition, ServerListing, ToolApproval, server_arguments,
};
use countersign_policy_admin::tool_catalog::ToolCatalog;
use countersign_runtime::Clock;
use countersign_tools::{GatewaySecrets, ToolRegistry, secrets::FOLDER};
use countersign_view::{
    GateRow, LineMode, escape, escape_json, escape_rest, gate_row::pending_rows, principals, time::format_iso,
};
use serde_json::{Value, json};

use crate::{
    audit::{OutputFormat, block_on, open_record},
    config,
    control_client::ControlClient,
    data_dir::DataDir,
    inspect::inspect_log,
    privileges,
    style::{ColourMode, TextStyle},
};

/// Action on MCP servers.
pub(crate) enum McpServersAction {
    List,
    Test { name: Option<String> },
    Approve { name: String, yes: bool },
    Revoke { name: String },
}

pub(crate) fn run(
    file: Option<&Path>,
    data: Option<PathBuf>,
    what: &McpServersAction,
    form: OutputFormat,
) -> anyhow::Result<ExitCode> {
    let flags = config::gateway_flags(file, data.as_deref());
    let load = || {
        let loaded = config::load_config(file, data.clone());
        loaded.map(|loaded| loaded.config).map_err(|errors| anyhow::anyhow!("Configuration error: {errors}"))
    };
    match what {
        McpServersAction::List => list_servers(&load()?, &flags, form),
        McpServersAction::Test { name } => {
            let config = load()?;
            let names = match name {
                Some(name) => vec![find_server(&config, name)?.name.clone()],
                None => config.mcp_servers.iter().filter(|server| server.enabled).map(|one| one.name.clone()).collect(),
            };
            with_tools(&config, async |tools| test_servers(tools, &names, form).await)
        }
        McpServersAction::Approve { name, yes } => {
            let config = load()?;
            let server = find_server(&config, name)?;
            approve_server(&config, server, *yes, form)
        }
        // A server must be stoppable while the rest of the configuration is broken.
        McpServersAction::Revoke { name } => revoke_server(&DataDir::find(file, data.as_deref())?.folder, name, form),
    }
}

fn find_server<'a>(config: &'a Config, name: &str) -> anyhow::Result<&'a McpServerConfig> {
    let server = config.mcp_servers.iter().find(|server| server.name == name);
    let Some(server) = server else {
        let names: Vec<&str> = config.mcp_servers.iter().map(|server| server.name.as_str()).collect();
        let known = if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
        bail!("the configuration has no MCP server {}; {known}", escape(name, LineMode::One));
    };
    if !server.enabled {
        bail!("MCP server {name} is switched off: set mcp.servers.{name}.enabled: true");
    }
    Ok(server)
}

/// Does something with the servers of a configuration, and ends them after it.
pub(crate) fn with_tools<T>(
    config: &Config,
    work: impl AsyncFnOnce(&McpTools) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let program = std::env::current_exe()?;
    let folder = &config.storage.folder;
    let secrets = GatewaySecrets::from_folder(folder.join(FOLDER), config.secrets.clone());
    let options = server_options(config, &program, checkup::build_server_sandbox(config), secrets);
    block_on(async {
        let own = ToolRegistry::from_tools(Vec::new()).into();
        let tools = McpTools::from_config(config, own, ToolCatalog::default().into(), options, Clock::system())?;
        let outcome = work(&tools).await;
        tools.close().await;
        outcome
    })
}

fn list_servers(config: &Config, flags: &str, form: OutputFormat) -> anyhow::Result<ExitCode> {
    let approved = ApprovedServers::open(&config.storage.folder)?;
    let denied = denied_servers(config, &approved);
    let gates = pending_gates(config, &approved);
    let mut out = std::io::stdout().lock();
    if form == OutputFormat::Json {
        let rows = config.mcp_servers.iter().map(|server| {
            let definition = ServerDefinition::from(server);
            let note = approved.approval_note(&definition);
            json!({
                "server": server.name,
                "state": approval_state(&approved, &denied, server),
                "transport": transport_line(server),
                "tools": approved_names(&approved, server),
                "pending_tools": pending_tools(&gates, &definition),
                "approved_at": note.map(|note| format_iso(note.at)),
                "approved_by": note.and_then(|note| note.by.clone()),
            })
        });
        writeln!(out, "{}", escape_json(&format!("{:#}", rows.collect::<Value>())))?;
        return Ok(ExitCode::SUCCESS);
    }
    if config.mcp_servers.is_empty() {
        writeln!(out, "No MCP servers. Add one under `mcp.servers` in the configuration (docs/start/mcp.md).")?;
    }
    let paint = ColourMode::for_stdout();
    for server in &config.mcp_servers {
        let name = paint.apply_style(TextStyle::Strong, &server.name);
        let state = approval_state(&approved, &denied, server);
        let pending = pending_tools(&gates, &ServerDefinition::from(server));
        let more = match state {
            "approved" if pending.is_empty() => approved_line(&approved, server),
            "approved" => format!("{}, {} pending", approved_line(&approved, server), count_changed(pending.len())),
            "off" => "switched off in the configuration (enabled: false)".to_owned(),
            "denied" => "denied: its approval was requested and denied".to_owned(),
            "changed" => "not approved: its command or address changed since you approved it".to_owned(),
            _ => "not approved yet".to_owned(),
        };
        writeln!(out, "{name}  {more}")?;
        writeln!(out, "    {}", paint.apply_style(TextStyle::Faint, escape(&transport_line(server), LineMode::One)))?;
        match state {
            "approved" => {
                let tools = approved_names(&approved, server);
                writeln!(out, "    {}: {}", count_tools(tools.len()), tools.join(" "))?;
                if !pending.is_empty() {
                    let names: Vec<&str> = pending.iter().map(String::as_str).collect();
                    let names = names.join(" ");
                    writeln!(out, "    Not callable until their gate is allowed: {}", escape(&names, LineMode::One))?;
                }
            }
            "off" => {}
            _ => {
                writeln!(out, "    It does not start, and agents do not get its tools. To approve it, run")?;
                writeln!(out, "    `countersign mcp-servers approve {}{flags}`,", server.name)?;
                writeln!(
                    out,
                    "    or use the console of the running gateway: allow its approval, or request it again after a denial."
                )?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the servers whose approval was denied as they are configured now. None if the record cannot be read.
fn denied_servers(config: &Config, approved: &ApprovedServers) -> BTreeSet<String> {
    let enabled = config.mcp_servers.iter().filter(|server| server.enabled).map(ServerDefinition::from);
    let unapproved = enabled.filter(|definition| !approved.is_approved(definition));
    let keys = unapproved.map(|definition| {
        let arguments = server_arguments(&definition, approved.revocations(&definition.name));
        ApprovalKey::new(&definition.name, &arguments)
    });
    let keys: Vec<ApprovalKey> = keys.collect();
    if keys.is_empty() {
        return BTreeSet::new();
    }
    if let Some(mut gateway) = ControlClient::connect(&config.storage.folder) {
        let denied = gateway.send_request(&Request::DeniedMcp { keys }).ok();
        return denied.and_then(|denied| serde_json::from_value(denied).ok()).unwrap_or_default();
    }
    let read = block_on(async { inspect_log(&open_record(&config.storage.log)?).await });
    read.map(|engine| find_denied(&engine, keys)).unwrap_or_default()
}

/// Returns the pending gates, if an approved server may have one for its tools. None if the record cannot be read.
fn pending_gates(config: &Config, approved: &ApprovedServers) -> Vec<GateRow> {
    let mut enabled = config.mcp_servers.iter().filter(|server| server.enabled).map(ServerDefinition::from);
    if !enabled.any(|definition| approved.is_approved(&definition)) {
        return Vec::new();
    }
    if let Some(mut gateway) = ControlClient::connect(&config.storage.folder) {
        let rows = gateway.send_request(&Request::Gates).ok();
        return rows.and_then(|rows| serde_json::from_value(rows).ok()).unwrap_or_default();
    }
    let read = block_on(async { inspect_log(&open_record(&config.storage.log)?).await });
    read.map(|engine| pending_rows(&engine)).unwrap_or_default()
}

/// Returns the state of a server's approval, as programs read it.
fn approval_state(approved: &ApprovedServers, denied: &BTreeSet<String>, server: &McpServerConfig) -> &'static str {
    match (server.enabled, approved.is_approved(&ServerDefinition::from(server))) {
        (false, _) => "off",
        (true, true) => "approved",
        (true, false) if denied.contains(&server.name) => "denied",
        (true, false) if approved.server_names().any(|name| name == server.name) => "changed",
        (true, false) => "not approved",
    }
}

fn approved_names(approved: &ApprovedServers, server: &McpServerConfig) -> Vec<String> {
    approved.approved_tools(&ServerDefinition::from(server)).into_iter().map(|tool| tool.offered_name).collect()
}

/// Returns the time of an approval and its author, for a person.
fn approved_line(approved: &ApprovedServers, server: &McpServerConfig) -> String {
    let definition = ServerDefinition::from(server);
    let Some(note) = approved.approval_note(&definition) else { return "approved".to_owned() };
    let by =
        note.by.as_ref().map_or_else(|| "by the answer to its pending approval".to_owned(), |by| format!("by {by}"));
    format!("approved {} {}", format_iso(note.at), escape(&by, LineMode::One))
}

/// Returns a number of tools in words.
pub(crate) fn count_tools(count: usize) -> String {
    if count == 1 { "1 tool".to_owned() } else { format!("{count} tools") }
}

/// Returns a number of changed tools in words.
fn count_changed(count: usize) -> String {
    if count == 1 { "1 changed tool".to_owned() } else { format!("{count} changed tools") }
}

async fn test_servers(tools: &McpTools, names: &[String], form: OutputFormat) -> anyhow::Result<ExitCode> {
    let mut reports = Vec::new();
    let mut is_good = true;
    for name in names {
        let begun = Instant::now();
        let compared = tools.compare(name).await;
        let took = begun.elapsed().as_secs_f64();
        let mut out = std::io::stdout().lock();
        match compared {
            Ok((listing, approval)) => {
                let is_approved = is_approved(&approval);
                is_good &= is_approved;
                if form == OutputFormat::Json {
                    let mut report = approval_report(&listing, &approval);
                    report["seconds"] = json!(took);
                    report["approved"] = json!(is_approved);
                    reports.push(report);
                } else {
                    let state = if is_approved {
                        "all approved"
                    } else if approval.is_new {
                        "you have not approved the server yet"
                    } else if approval.definition_changed {
                        "its command or address changed since you approved it"
                    } else {
                        "not as you approved them; the differences are below"
                    };
                    writeln!(out, "{name}: {} in {took:.1} s, {state}", count_tools(listing.tools.len()))?;
                    print_tools(&mut out, &listing, &approval)?;
                }
            }
            Err(error) => {
                is_good = false;
                if form == OutputFormat::Json {
                    reports.push(json!({ "server": name, "error": error.to_string(), "seconds": took }));
                } else {
                    writeln!(out, "{}", escape_rest(&error.to_string(), LineMode::One))?;
                }
            }
        }
    }
    if form == OutputFormat::Json {
        writeln!(std::io::stdout().lock(), "{}", escape_json(&format!("{:#}", Value::Array(reports))))?;
    } else if names.is_empty() {
        writeln!(std::io::stdout().lock(), "No MCP servers. Add one under `mcp.servers` in the configuration.")?;
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reports whether a person approved the server with exactly these tools.
pub(crate) fn is_approved(approval: &ServerApproval) -> bool {
    let is_same = approval.tools.iter().all(|(_, state)| *state == ToolApproval::Approved);
    !approval.is_new && !approval.definition_changed && is_same
}

fn print_tools(out: &mut impl Write, listing: &ServerListing, approval: &ServerApproval) -> std::io::Result<()> {
    let paint = ColourMode::for_stdout();
    for (tool, state) in &approval.tools {
        let word = match state {
            ToolApproval::Approved => "",
            ToolApproval::New => "  (new)",
            ToolApproval::Changed { .. } => "  (changed)",
            ToolApproval::Gone => "  (gone)",
        };
        writeln!(out, "  {}{word}", paint.apply_style(TextStyle::Strong, &tool.offered_name))?;
        for line in tool.description.lines() {
            writeln!(out, "      {}", paint.apply_style(TextStyle::Faint, escape_rest(line, LineMode::One)))?;
        }
        if let ToolApproval::Changed { differences } = state {
            for difference in differences {
                writeln!(out, "      {}", escape_rest(difference, LineMode::One))?;
            }
        }
    }
    for left in &listing.problems {
        writeln!(out, "  {}  left out: {}", left.tool, escape_rest(&left.problem, LineMode::One))?;
    }
    Ok(())
}

fn approve_server(
    config: &Config,
    server: &McpServerConfig,
    yes: bool,
    form: OutputFormat,
) -> anyhow::Result<ExitCode> {
    let folder = &config.storage.folder;
    let by = current_user();
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    privileges::become_owner_of(folder)?;
    let mut err = std::io::stderr();
    writeln!(err, "MCP server {}: {}", server.name, escape(&transport_line(server), LineMode::One))?;
    if !yes && !confirm("Start it and list its tools?")? {
        writeln!(err, "not approved")?;
        return Ok(ExitCode::FAILURE);
    }
    let name = server.name.as_str();
    with_tools(config, async |tools| {
        let (listing, approval) = tools.compare(name).await?;
        if form == OutputFormat::Text {
            print_tools(&mut std::io::stdout().lock(), &listing, &approval)?;
        }
        if !yes && !confirm(&format!("Approve {} of {name}?", count_tools(listing.tools.len())))? {
            writeln!(std::io::stderr(), "not approved")?;
            return Ok(ExitCode::FAILURE);
        }
        tools.approve(name, &listing, &approval, &ApprovalOrigin::Person(by)).await?;
        let is_running = reload_gateway(&config.storage.folder, name)?;
        let mut out = std::io::stdout().lock();
        match form {
            OutputFormat::Json => {
                let mut report = approval_report(&listing, &approval);
                report["approved"] = json!(true);
                writeln!(out, "{}", escape_json(&report.to_string()))?;
            }
            OutputFormat::Text => {
                let next =
                    if is_running { "the gateway offers them" } else { "the gateway offers them when it starts" };
                writeln!(out, "approved {name} with {}; {next}", count_tools(listing.tools.len()))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn revoke_server(folder: &Path, name: &str, form: OutputFormat) -> anyhow::Result<ExitCode> {
    let by = current_user();
    privileges::become_owner_of(folder)?;
    let mut approved = ApprovedServers::open(folder)?;
    if !approved.revoke(name, &by, Clock::system().now())? {
        bail!("MCP server {} is not approved", escape(name, LineMode::One));
    }
    reload_gateway(folder, name)?;
    let mut out = std::io::stdout().lock();
    match form {
        OutputFormat::Json => writeln!(out, "{}", json!({ "revoked": name }))?,
        OutputFormat::Text => writeln!(out, "revoked {}", escape(name, LineMode::One))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the user of this process, as the record knows that user.
fn current_user() -> PrincipalId {
    principals::of_machine(nix::unistd::getuid().as_raw())
}

/// Tells a running gateway that the approvals changed. False if none runs.
///
/// # Errors
/// The gateway did not read them: the change is in the file, and in force when the gateway starts again or gets SIGHUP.
fn reload_gateway(folder: &Path, server: &str) -> anyhow::Result<bool> {
    let reload = || {
        let Some(mut gateway) = ControlClient::connect_if_running(folder)? else { return Ok(false) };
        gateway.send_request(&Request::ReloadMcp { server: server.to_owned() }).map(|_| true)
    };
    reload().context("the change is saved, but the running gateway did not read the approvals again; restart it")
}

/// Asks a question on the terminal. Only `y` and `yes` agree.
pub(crate) fn confirm(question: &str) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("{question} There is no terminal to answer; pass --yes to agree");
    }
    let mut err = std::io::stderr();
    write!(err, "{question} [y/N] ")?;
    err.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
