//! Programs that people run: their versions, their configuration and their command line.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::bail;
use serde_json::{Value, json};

use crate::agents::{pinned_program::PinnedProgram, process::bounded_command};

/// Time limit of a call, in seconds: longer than a person needs.
const TOOL_TIMEOUT: u64 = 86_400;
/// Name of the gateway in the configuration of each program.
const SERVER: &str = "countersign";

/// Program with an MCP client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostProgram {
    Claude,
    Codex,
    Gemini,
    Copilot,
    Opencode,
}

/// Connection of a program to the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum McpConnection {
    /// Command of a server on standard input and output.
    Stdio(Vec<String>),
    /// Address and bearer token.
    Http { url: String, token: String },
}

/// Tools that a program may use without its own question to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostPermissions {
    /// Those of the gateway.
    GatewayTools,
    /// None: it asks the tool `permission_prompt` of the gateway.
    PermissionPrompt,
}

/// Run of a program.
pub(crate) struct HostSetup<'a> {
    /// Folder with the installed programs.
    pub(crate) programs: &'a Path,
    /// Folder for its home and its files.
    pub(crate) folder: &'a Path,
    pub(crate) model_url: &'a str,
    pub(crate) connection: &'a McpConnection,
    pub(crate) permissions: HostPermissions,
    pub(crate) prompt: &'a str,
}

impl HostProgram {
    pub(crate) const ALL: [Self; 5] = [Self::Claude, Self::Codex, Self::Gemini, Self::Copilot, Self::Opencode];

    /// Returns its package in the version that is tried.
    pub(crate) const fn pinned(self) -> PinnedProgram {
        let (name, package, version, file) = match self {
            Self::Claude => ("claude", "@anthropic-ai/claude-code", "2.1.332", ".bin/claude"),
            Self::Codex => ("codex", "@openai/codex", "0.171.0", ".bin/codex"),
            Self::Gemini => ("gemini", "@google/gemini-cli", "0.61.0", ".bin/gemini"),
            Self::Copilot => ("copilot", "@github/copilot", "1.0.102", ".bin/copilot"),
            Self::Opencode => ("opencode", "opencode-ai", "1.18.33", ".bin/opencode"),
        };
        PinnedProgram { name, package, version, file }
    }

    pub(crate) const fn name(self) -> &'static str {
        self.pinned().name
    }

    /// Returns the path of the installed program.
    pub(crate) fn path(self, programs: &Path) -> PathBuf {
        self.pinned().path(programs)
    }

    /// Sets the variables with which the program asks the model at `url`, and calls nobody else.
    pub(crate) fn set_model(self, command: &mut Command, url: &str) {
        match self {
            Self::Claude => command
                .env("ANTHROPIC_BASE_URL", url)
                .env("ANTHROPIC_API_KEY", "sk-ant-dummy")
                .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
                .env("DISABLE_AUTOUPDATER", "1"),
            // The address is in its configuration.
            Self::Codex => command.env("STUB_KEY", "dummy"),
            Self::Gemini => command
                .env("GEMINI_API_KEY", "dummy")
                .env("GOOGLE_GEMINI_BASE_URL", url)
                .env("GEMINI_CLI_TRUST_WORKSPACE", "true"),
            Self::Copilot => command
                .env("COPILOT_OFFLINE", "true")
                .env("COPILOT_PROVIDER_BASE_URL", format!("{url}/v1"))
                .env("COPILOT_PROVIDER_API_KEY", "dummy")
                .env("COPILOT_MODEL", "scripted"),
            Self::Opencode => command.env("OPENCODE_DISABLE_MODELS_FETCH", "1").env("OPENCODE_DISABLE_AUTOUPDATE", "1"),
        };
    }

    /// Writes the configuration of an MCP host and returns the command, whose model is the scripted one.
    pub(crate) fn command(self, setup: &HostSetup<'_>) -> anyhow::Result<Command> {
        let home = setup.folder.join("home");
        let work = setup.folder.join("work");
        fs::create_dir_all(&work)?;
        fs::create_dir_all(&home)?;
        let mut command = bounded_command(&self.path(setup.programs), &home);
        command.current_dir(&work);
        self.set_model(&mut command, setup.model_url);
        match self {
            Self::Claude => configure_claude(&mut command, setup, &home)?,
            Self::Codex => configure_codex(&mut command, setup, &home, &work)?,
            Self::Gemini => configure_gemini(&mut command, setup, &home)?,
            Self::Copilot => bail!("Copilot CLI is tried with hooks only"),
            Self::Opencode => configure_opencode(&mut command, setup, &home)?,
        }
        Ok(command)
    }
}

fn configure_claude(command: &mut Command, setup: &HostSetup<'_>, home: &Path) -> anyhow::Result<()> {
    let mut server = match setup.connection {
        McpConnection::Stdio(words) => json!({ "command": words[0], "args": words[1..] }),
        McpConnection::Http { url, token } => json!({ "type": "http", "url": url, "headers": bearer(token) }),
    };
    server["timeout"] = (TOOL_TIMEOUT * 1000).into();
    let file = write_json(&home.join("mcp.json"), &json!({ "mcpServers": { SERVER: server } }))?;
    command.env("CLAUDE_CONFIG_DIR", home.join(".claude"));
    command
        .args(["-p", "--output-format", "stream-json", "--verbose", "--strict-mcp-config", "--mcp-config"])
        .arg(file);
    match setup.permissions {
        HostPermissions::GatewayTools => command.args(["--allowedTools", &format!("mcp__{SERVER}")]),
        HostPermissions::PermissionPrompt => {
            command.args(["--permission-prompt-tool", &format!("mcp__{SERVER}__permission_prompt")])
        }
    };
    command.args(["--", setup.prompt]);
    Ok(())
}

fn configure_codex(command: &mut Command, setup: &HostSetup<'_>, home: &Path, work: &Path) -> anyhow::Result<()> {
    let folder = home.join(".codex");
    fs::create_dir_all(&folder)?;
    // Strings of TOML have the escapes of JSON.
    let text = |value: &str| Value::from(value).to_string();
    let server = match setup.connection {
        McpConnection::Stdio(words) => {
            format!("command = {}\nargs = {}\n", text(&words[0]), Value::from(words[1..].to_vec()))
        }
        McpConnection::Http { url, token } => {
            command.env("COUNTERSIGN_TOKEN", token);
            format!("url = {}\nbearer_token_env_var = \"COUNTERSIGN_TOKEN\"\n", text(url))
        }
    };
    let config = format!(
        "{}[mcp_servers.{SERVER}]\n{server}default_tools_approval_mode = \"approve\"\ntool_timeout_sec = {TOOL_TIMEOUT}\n",
        codex_config(setup.model_url, work),
    );
    fs::write(folder.join("config.toml"), config)?;
    command.env("CODEX_HOME", folder);
    command.args(["exec", "--json", "--skip-git-repo-check", setup.prompt]);
    Ok(())
}

/// Returns the configuration of Codex with the model at `model_url`, in which the folder `work` is trusted.
pub(crate) fn codex_config(model_url: &str, work: &Path) -> String {
    let text = |value: &str| Value::from(value).to_string();
    format!(
        "model = \"scripted\"\nmodel_provider = \"stub\"\n\
         [model_providers.stub]\nname = \"stub\"\nbase_url = {}\nwire_api = \"responses\"\nenv_key = \"STUB_KEY\"\n\
         [projects.{}]\ntrust_level = \"trusted\"\n",
        text(&format!("{model_url}/v1")),
        text(&work.to_string_lossy()),
    )
}

fn configure_gemini(command: &mut Command, setup: &HostSetup<'_>, home: &Path) -> anyhow::Result<()> {
    let mut server = match setup.connection {
        McpConnection::Stdio(words) => {
            json!({ "command": words[0], "args": words[1..], "timeout": TOOL_TIMEOUT * 1000 })
        }
        // Only the limit ends a call whose connection was lost.
        McpConnection::Http { url, token } => json!({ "httpUrl": url, "headers": bearer(token) }),
    };
    server["trust"] = true.into();
    let settings = json!({
        "security": { "auth": { "selectedType": "gemini-api-key" } },
        "mcpServers": { SERVER: server },
    });
    write_json(&home.join(".gemini/settings.json"), &settings)?;
    command.args(["-m", "gemini-2.5-pro", "--output-format", "json", "-p", setup.prompt]);
    Ok(())
}

fn configure_opencode(command: &mut Command, setup: &HostSetup<'_>, home: &Path) -> anyhow::Result<()> {
    let mut server = match setup.connection {
        McpConnection::Stdio(words) => json!({ "type": "local", "command": words }),
        McpConnection::Http { url, token } => {
            json!({ "type": "remote", "url": url, "headers": bearer(token), "oauth": false })
        }
    };
    // Without a limit: each progress notification extends it.
    server["enabled"] = true.into();
    let mut config = opencode_config(setup.model_url);
    config["mcp"] = json!({ SERVER: server });
    write_json(&home.join(".config/opencode/opencode.json"), &config)?;
    command.args(["run", "--format", "json", setup.prompt]);
    Ok(())
}

/// Returns the configuration of opencode with the model at `model_url`.
pub(crate) fn opencode_config(model_url: &str) -> Value {
    let options = json!({ "baseURL": format!("{model_url}/v1"), "apiKey": "dummy" });
    let models = json!({ "scripted": { "tool_call": true } });
    json!({
        "provider": { "stub": { "npm": "@ai-sdk/openai-compatible", "options": options, "models": models } },
        "model": "stub/scripted",
    })
}

fn bearer(token: &str) -> Value {
    json!({ "Authorization": format!("Bearer {token}") })
}

/// Writes a file, and the folders above it.
pub(crate) fn write_json(file: &Path, value: &Value) -> anyhow::Result<PathBuf> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(file, value.to_string())?;
    Ok(file.to_owned())
}
