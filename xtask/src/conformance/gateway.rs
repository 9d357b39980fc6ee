//! The gateway that the suites test: the real binary in a scratch folder, with the fixture servers approved, behind a proxy.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, bail};
use serde_json::Value;

/// Line of a gateway that is ready, up to its address.
const READY: &str = "countersign ready on ";
/// Rules: the tools of the fixtures run without an approval, everything else needs one.
const RULES: &str =
    "rules:\n  - { pattern: \"mcp__*\", action: allow }\ndefaults:\n  - { pattern: \"*\", action: ask }\n";

/// Running gateway with its proxy. Both processes end with this value.
pub(super) struct ConformanceGateway {
    /// Address of MCP, behind the proxy.
    pub(super) url: String,
    _gateway: EndingProcess,
    _proxy: EndingProcess,
}

/// Process that ends with this value.
struct EndingProcess(Child);

impl Drop for EndingProcess {
    fn drop(&mut self) {
        // One that has ended by itself cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Means of starting processes in the folder of a gateway.
struct GatewayFolder<'a> {
    path: &'a Path,
    binary: &'a Path,
}

impl ConformanceGateway {
    /// Starts `binary` in `folder`, which is emptied, and the proxy of the folder `tests` before it.
    pub(super) fn start(node: &Path, tests: &Path, binary: &Path, folder: &Path) -> anyhow::Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder)?;
        let path = folder.canonicalize()?;
        let folder = GatewayFolder { path: &path, binary };
        folder.write_file("config.yaml", &config_text(node, tests))?;
        folder.write_file("permissions.yaml", RULES)?;
        for server in ["fixtures", "spare"] {
            folder.output(&["mcp-servers", "approve", server, "--yes"])?;
        }
        let gateway = EndingProcess(folder.command(&["serve"]).stdout(Stdio::piped()).spawn()?);
        let (gateway, address) = read_line(gateway, READY)?;
        let added = folder.output(&["tokens", "add", "conformance", "--scope", "call", "--json"])?;
        let added: Value = serde_json::from_str(&added).context("tokens add printed no JSON")?;
        let token = added["token"].as_str().context("tokens add printed no token")?;
        let mut proxy = Command::new(node);
        proxy.arg(tests.join("proxy.mjs")).arg(format!("{address}/mcp")).current_dir(&path);
        proxy.env("TOKEN", token).env("COUNTERSIGN_BINARY", binary);
        let proxy = EndingProcess(proxy.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?);
        let (proxy, url) = read_line(proxy, "")?;
        Ok(Self { url, _gateway: gateway, _proxy: proxy })
    }
}

impl GatewayFolder<'_> {
    fn write_file(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.path.join(name);
        let mut file = fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&path)?;
        std::io::Write::write_all(&mut file, text.as_bytes()).with_context(|| path.display().to_string())
    }

    /// Returns a command of the program, with its log next to the configuration.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.binary);
        command.args(arguments).args(["--config", "config.yaml"]).current_dir(self.path).stdin(Stdio::null());
        if let Ok(log) = fs::OpenOptions::new().create(true).append(true).open(self.path.join("log.txt")) {
            command.stderr(log);
        }
        command
    }

    fn output(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self.command(arguments).output().with_context(|| self.binary.display().to_string())?;
        if !output.status.success() {
            let log = self.path.join("log.txt");
            bail!("countersign {} ended with {}: {}", arguments.join(" "), output.status, log.display());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Reads the first line of a process, and returns the rest of it after `beginning`.
fn read_line(mut process: EndingProcess, beginning: &str) -> anyhow::Result<(EndingProcess, String)> {
    let mut line = String::new();
    let mut output = BufReader::new(process.0.stdout.take().context("no standard output")?);
    output.read_line(&mut line)?;
    // A process that writes later must find its pipe open.
    process.0.stdout = Some(output.into_inner());
    let rest = line.trim().strip_prefix(beginning).filter(|rest| !rest.is_empty());
    let rest = rest.with_context(|| format!("it did not start: {line:?}"))?.to_owned();
    Ok((process, rest))
}

fn config_text(node: &Path, tests: &Path) -> String {
    let node = quote(node);
    let fixtures = quote(&tests.join("fixtures.mjs"));
    format!(
        "gateway: {{ host: 127.0.0.1, port: 0 }}
storage: {{ type: sqlite, path: data/countersign.db }}
rate_limit: {{ max_requests_per_minute: 100000 }}
mcp:
  servers:
    fixtures: {{ command: {node}, args: [{fixtures}] }}
    spare: {{ command: {node}, args: [{fixtures}, spare] }}
"
    )
}

/// Returns a path as a text of YAML.
fn quote(path: &Path) -> String {
    Value::from(AsRef::<OsStr>::as_ref(path).to_string_lossy()).to_string()
}
