//! `mcp-servers`: the MCP servers of a configuration, a trial of them, and their approval.
//!
//! It must not approve by itself: a person sees the command before it starts, and every tool before it is offered.

use std::{
    borrow::Cow,
    io::{BufRead as _, IsTerminal as _, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::{Context as _, bail};
use countersign_config::{Config, McpServerConfig, McpTransportConfig};
use countersign_gateway::{
    checkup,
    control::Request,
    mcp_approvals::approval_report,
    mcp_tools::{McpTools, server_options},
};
use countersign_mcp_client::{ApprovedServers, ServerApproval, ServerDefinition, ServerListing, ToolApproval};
use countersign_policy_admin::tool_catalog::ToolCatalog;
use countersign_tools::{GatewaySecrets, ToolRegistry, secrets::FOLDER};
use countersign_view::{LineMode, escape, escape_json};
use serde_json::{Value, json};

use crate::{
    audit::{OutputFormat, block_on},
    config,
    control_client::ControlClient,
    data_dir::DataDir,
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
    let load = || {
        let loaded = config::load_config(file, data.clone());
        loaded.map(|loaded| loaded.config).map_err(|errors| anyhow::anyhow!("Configuration error: {errors}"))
    };
    match what {
        McpServersAction::List => list_servers(&load()?, form),
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
        let tools = McpTools::from_config(config, own, ToolCatalog::default().into(), options)?;
        let outcome = work(&tools).await;
        tools.close().await;
        outcome
    })
}

/// Returns the command or the address of a server in one line, without any value of a variable or a header.
fn transport_line(server: &McpServerConfig) -> String {
    match &server.transport {
        McpTransportConfig::Stdio { command, args, env, cwd } => {
            let variables = env.keys().map(|name| format!("{name}=… "));
            let words = [command].into_iter().chain(args).map(|word| quote_word(word));
            let line = variables.collect::<String>() + &words.collect::<Vec<_>>().join(" ");
            match cwd {
                Some(cwd) => format!("{line}  (in {})", cwd.display()),
                None => line,
            }
        }
        McpTransportConfig::Http { url, headers, auth } => {
            let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
            let headers = if names.is_empty() { String::new() } else { format!("  (with {})", names.join(", ")) };
            let auth = auth.as_ref().map(|auth| format!("  (token from {})", auth.token_url)).unwrap_or_default();
            format!("{url}{headers}{auth}")
        }
    }
}

/// Quotes a word of a command line where a shell needs it.
fn quote_word(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if word.chars().all(is_plain) && !word.is_empty() {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''")).into()
    }
}

fn list_servers(config: &Config, form: OutputFormat) -> anyhow::Result<ExitCode> {
    let approved = ApprovedServers::open(&config.storage.folder)?;
    let rows: Vec<(&McpServerConfig, &str, Vec<String>)> = config
        .mcp_servers
        .iter()
        .map(|server| {
            let definition = ServerDefinition::from(server);
            let state = match (server.enabled, approved.is_approved(&definition)) {
                (false, _) => "off",
                (true, true) => "approved",
                (true, false) if approved.server_names().any(|name| name == server.name) => "changed",
                (true, false) => "not approved",
            };
            let tools = approved.approved_tools(&definition).into_iter().map(|tool| tool.offered_name).collect();
            (server, state, tools)
        })
        .collect();
    let mut out = std::io::stdout().lock();
    if form == OutputFormat::Json {
        let rows = rows.iter().map(|(server, state, tools)| {
            json!({ "server": server.name, "state": state, "transport": transport_line(server), "tools": tools })
        });
        writeln!(out, "{}", escape_json(&format!("{:#}", rows.collect::<Value>())))?;
        return Ok(ExitCode::SUCCESS);
    }
    let paint = ColourMode::for_stdout();
    if rows.is_empty() {
        writeln!(out, "No MCP servers. Add one under `mcp.servers` in the configuration (docs/start/mcp.md).")?;
    }
    for (server, state, tools) in rows {
        let name = paint.apply_style(TextStyle::Strong, &server.name);
        writeln!(out, "{name}  {state}  {}", escape(&transport_line(server), LineMode::One))?;
        match state {
            "approved" => writeln!(out, "    {}", tools.join(" "))?,
            "off" => {}
            _ => writeln!(
                out,
                "    approve it with `countersign mcp-servers approve {}`, or answer its gate",
                server.name
            )?,
        }
    }
    Ok(ExitCode::SUCCESS)
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
                    let state = if is_approved { "approved" } else { "not approved as it is" };
                    writeln!(out, "{name}: {} tools in {took:.1} s, {state}", listing.tools.len())?;
                    print_tools(&mut out, &listing, &approval)?;
                }
            }
            Err(error) => {
                is_good = false;
                if form == OutputFormat::Json {
                    reports.push(json!({ "server": name, "error": error.to_string(), "seconds": took }));
                } else {
                    writeln!(out, "{name}: {}", escape(&error.to_string(), LineMode::One))?;
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
            writeln!(out, "      {}", paint.apply_style(TextStyle::Faint, escape(line, LineMode::One)))?;
        }
        if let ToolApproval::Changed { differences } = state {
            for difference in differences {
                writeln!(out, "      {}", escape(difference, LineMode::One))?;
            }
        }
    }
    for left in &listing.problems {
        writeln!(out, "  {}  left out: {}", left.tool, escape(&left.problem, LineMode::One))?;
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
        if !yes && !confirm(&format!("Approve {} tools of {name}?", listing.tools.len()))? {
            writeln!(std::io::stderr(), "not approved")?;
            return Ok(ExitCode::FAILURE);
        }
        tools.approve(name, &listing).await?;
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
                writeln!(out, "approved {name} with {} tools; {next}", listing.tools.len())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn revoke_server(folder: &Path, name: &str, form: OutputFormat) -> anyhow::Result<ExitCode> {
    privileges::become_owner_of(folder)?;
    let mut approved = ApprovedServers::open(folder)?;
    if !approved.revoke(name)? {
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

/// Tells a running gateway that the approvals changed. False if none runs.
fn reload_gateway(folder: &Path, server: &str) -> anyhow::Result<bool> {
    let Some(mut gateway) = ControlClient::connect(folder) else { return Ok(false) };
    gateway
        .send_request(&Request::ReloadMcp { server: server.to_owned() })
        .context("the running gateway did not read the approvals again")?;
    Ok(true)
}

/// Asks a question on the terminal. Only `y` and `yes` agree.
fn confirm(question: &str) -> anyhow::Result<bool> {
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
