//! Gateway of a run: the program in a folder of its own, and a person at its command line.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use countersign_scripted_model::SERVICE_PATH;
use serde_json::Value;

use crate::agents::process::{ProcessGroup, bounded_command, wait_for};

/// Longest time for a start, and for a gate.
const LIMIT: Duration = Duration::from_secs(60);
const CONFIG: &str = "config.yaml";
/// Rules with which everything needs approval.
pub(crate) const ASK_ALL: &str = "defaults:\n  - { pattern: \"*\", action: ask }\n";

/// Answer of a person at a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateAnswer {
    Allow,
    Deny,
}

/// Pending gate, as the command line lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PendingGate {
    pub(crate) id: String,
    /// What would run, or what a question is about.
    pub(crate) subject: String,
    /// Everything that is listed about it.
    pub(crate) row: String,
}

/// Gateway whose tool `turn` needs approval.
pub(crate) struct ScratchGateway {
    binary: PathBuf,
    folder: PathBuf,
    address: String,
    process: Option<ProcessGroup>,
}

impl ScratchGateway {
    /// Writes its folder, with the service at `service_url`, and starts it.
    pub(crate) fn start(binary: &Path, folder: &Path, service_url: &str) -> anyhow::Result<Self> {
        let mut gateway = Self::prepare(binary, folder, service_url, ASK_ALL)?;
        gateway.restart()?;
        Ok(gateway)
    }

    /// Writes its folder, with the service at `service_url` and the rules.
    pub(crate) fn prepare(binary: &Path, folder: &Path, service_url: &str, rules: &str) -> anyhow::Result<Self> {
        fs::create_dir_all(folder)?;
        // Hosts over HTTP find the port again after a restart.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let config = format!(
            "gateway: {{ host: {}, port: {} }}\nservices:\n  house:\n    url: {service_url:?}\n    \
             auth: {{ type: bearer, token: scratch }}\n    tools: tools.yaml\n",
            address.ip(),
            address.port(),
        );
        let tools = format!(
            "tools:\n  turn:\n    description: Turns a thing\n    signature: \"{{thing}}\"\n    \
             args: {{ thing: {{ required: true }} }}\n    request: {{ method: POST, path: \"{SERVICE_PATH}{{thing}}\" }}\n"
        );
        for (name, text) in [(CONFIG, config.as_str()), ("tools.yaml", &tools), ("permissions.yaml", rules)] {
            let path = folder.join(name);
            fs::write(&path, text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        }
        let (binary, folder) = (binary.to_owned(), folder.to_owned());
        Ok(Self { binary, folder, address: address.to_string(), process: None })
    }

    /// Starts it again in the same folder, and waits until it is ready.
    pub(crate) fn restart(&mut self) -> anyhow::Result<()> {
        let log = File::options().append(true).create(true).open(self.folder.join("stderr.log"))?;
        let mut command = self.command(&["serve"]);
        let mut process = ProcessGroup::spawn(command.stdout(Stdio::piped()).stderr(log))?;
        let output = process.leader().stdout.take().context("no standard output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        if !line.starts_with("countersign ready") {
            bail!("the gateway did not start: see {}", self.folder.join("stderr.log").display());
        }
        self.process = Some(process);
        Ok(())
    }

    /// Reports whether it was started and not killed.
    pub(crate) const fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Ends it as a power cut would.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Returns the path of its configuration.
    pub(crate) fn config(&self) -> PathBuf {
        self.folder.join(CONFIG)
    }

    /// Adds the model that needs neither a key nor a network.
    pub(crate) fn add_demo_model(&self) -> anyhow::Result<()> {
        let mut config = File::options().append(true).open(self.config())?;
        Ok(config.write_all(b"model: { provider: demo }\n")?)
    }

    /// Returns the command that connects a host.
    pub(crate) fn mcp_command(&self) -> Vec<String> {
        self.pipe_command("mcp")
    }

    /// Returns the command that is the agent of an editor.
    pub(crate) fn acp_command(&self) -> Vec<String> {
        self.pipe_command("acp")
    }

    fn pipe_command(&self, name: &str) -> Vec<String> {
        let config = self.config();
        [self.binary.as_path(), Path::new(name), Path::new("--config"), &config]
            .map(|word| word.to_string_lossy().into_owned())
            .to_vec()
    }

    /// Returns the address of `/mcp`.
    pub(crate) fn mcp_url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Makes a token for `/mcp`.
    pub(crate) fn create_token(&self) -> anyhow::Result<String> {
        let reply = self.run(&["tokens", "add", "host", "--scope", "call", "--json"])?;
        reply["token"].as_str().map(str::to_owned).context("no token")
    }

    /// Returns the ids of the pending gates.
    pub(crate) fn pending_gates(&self) -> anyhow::Result<Vec<String>> {
        Ok(self.list_gates()?.into_iter().map(|gate| gate.id).collect())
    }

    /// Returns the pending gates, the oldest first.
    pub(crate) fn list_gates(&self) -> anyhow::Result<Vec<PendingGate>> {
        let listed = self.run(&["gates", "list", "--json"])?;
        let rows = listed.as_array().context("gates list printed no list")?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let gate =
            |row: &Value| PendingGate { id: text(&row["id"]), subject: text(&row["subject"]), row: row.to_string() };
        Ok(rows.iter().map(gate).collect())
    }

    /// Returns the id of the one gate, as soon as it is pending.
    pub(crate) fn wait_gate(&self) -> anyhow::Result<String> {
        wait_for("pending gate", LIMIT, || match self.pending_gates()?.as_slice() {
            [] => Ok(None),
            [gate] => Ok(Some(gate.clone())),
            several => bail!("{} pending gates: {}", several.len(), several.join(", ")),
        })
    }

    /// Returns the principal of the newest request in the record.
    pub(crate) fn newest_requester(&self) -> anyhow::Result<Option<String>> {
        let output = self.command(&["audit", "export"]).output()?;
        let lines = String::from_utf8(output.stdout).context("audit export printed no text")?;
        let principal = |line: &str| -> Option<String> {
            let record: Value = serde_json::from_str(line).ok()?;
            let content: Value = serde_json::from_str(record["content"].as_str()?).ok()?;
            Some(content["request"]["principal"].as_str()?.to_owned())
        };
        Ok(lines.lines().rev().find_map(principal))
    }

    /// Answers a gate as a person does.
    pub(crate) fn answer_gate(&self, gate: &str, answer: GateAnswer) -> anyhow::Result<()> {
        let verb = match answer {
            GateAnswer::Allow => "allow",
            GateAnswer::Deny => "deny",
        };
        self.run(&["gates", verb, gate, "--json"]).map(drop)
    }

    /// Runs a command to its end and returns the JSON that it prints.
    fn run(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        let output = self.command(arguments).output()?;
        let shown = || format!("countersign {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            bail!(shown());
        }
        serde_json::from_slice(&output.stdout).with_context(shown)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bounded_command(&self.binary, &self.folder);
        command.args(arguments).args(["--config", CONFIG]).current_dir(&self.folder);
        command
    }
}
