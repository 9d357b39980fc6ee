//! Folder of one gateway: its configuration, rules and tools, and the command line that is used on it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{
    FakeProvider, GatewayServer, binary_path,
    gsv::{self, GsvPeer},
    hermes,
    http::HttpClient,
    service::FakeService,
};

/// Token of the agent called `default`.
pub const AGENT_TOKEN: &str = "tok-default-5d1e";
/// Token of the agent called `kitchen`.
pub const KITCHEN_TOKEN: &str = "tok-kitchen-90ab";
/// Token that the gateway shows to the service.
pub const SERVICE_TOKEN: &str = "sec-service-77f0";

/// Rules of most tests: reading is free, lamps may be turned, locks not, everything else needs approval.
pub const RULES: &str = r#"
defaults:
  - { pattern: "look*", action: allow }
  - { pattern: "*", action: ask }
rules:
  - { pattern: "turn(lamp*", action: allow }
  - { pattern: "turn(lock*", action: deny }
  - { pattern: "nobody_defined*", action: allow }
"#;

const TOOLS: &str = r#"
tools:
  look:
    description: Looks at a thing
    signature: "{thing}"
    args: { thing: { required: true, validate: "^[a-z][a-z0-9_.]*$" } }
    request: { method: GET, path: "/look/{thing}" }
  turn:
    description: Turns a thing
    signature: "{thing}, {way}"
    args: { thing: { required: true }, way: {} }
    request: { method: POST, path: "/turn/{thing}", body_exclude: [thing] }
    response: { wrap: result }
  lookup:
    args: { path: {} }
    request: { method: GET, path: "/files/{path}" }
"#;

/// Output of a command and its exit code.
#[derive(Debug)]
pub struct CommandOutput {
    /// Exit code. Absent if a signal ended it.
    pub code: Option<i32>,
    /// Text on stdout.
    pub out: String,
    /// Text on stderr.
    pub err: String,
}

impl CommandOutput {
    /// Returns the JSON on stdout.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("the output is not JSON: {self:?}"))
    }
}

/// Runs a command line to its end.
pub fn run_command(mut command: Command) -> CommandOutput {
    let output = command.stdin(Stdio::null()).output().unwrap();
    CommandOutput {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Options of a gateway's configuration.
pub struct GatewayOptions {
    parent: PathBuf,
    provider: FakeProvider,
    config: String,
    rules: String,
}

impl GatewayOptions {
    /// Creates options of a gateway with two agents, one service and the rules [`RULES`], and no model.
    pub fn new() -> Self {
        let provider = FakeProvider::start();
        Self { parent: std::env::temp_dir(), provider, config: String::new(), rules: RULES.to_owned() }
    }

    /// Creates options with models for runs and the rules [`gsv::RULES`].
    pub fn for_models() -> Self {
        let options = Self::new().with_rules(gsv::RULES);
        let models = gsv::model_config(&options.provider);
        options.with_config(&models)
    }

    /// Creates the same, and admits gsv peers that show [`gsv::TOKEN`].
    pub fn for_peers() -> Self {
        Self::for_models().with_config(&format!("clients: {{ token: {} }}\n", gsv::TOKEN))
    }

    /// Creates options with a model for the clients of hermes and the rules [`hermes::RULES`].
    pub fn for_web() -> Self {
        let options = Self::new().with_rules(hermes::RULES);
        let models = hermes::model_config(&options.provider);
        options.with_config(&models)
    }

    /// Creates the gateway below this folder instead of the system's temporary one.
    #[must_use]
    pub fn with_parent(self, parent: &Path) -> Self {
        Self { parent: parent.to_owned(), ..self }
    }

    /// Adds lines to the configuration.
    #[must_use]
    pub fn with_config(mut self, lines: &str) -> Self {
        self.config.push_str(lines);
        self
    }

    /// Replaces the rules.
    #[must_use]
    pub fn with_rules(self, rules: &str) -> Self {
        Self { rules: rules.to_owned(), ..self }
    }

    /// Replaces the provider of models.
    #[must_use]
    pub fn with_provider(self, provider: FakeProvider) -> Self {
        Self { provider, ..self }
    }

    /// Writes the folder.
    pub fn create(self) -> GatewayFixture {
        let root = tempfile::tempdir_in(self.parent).unwrap();
        let folder = root.path().canonicalize().unwrap();
        let service = FakeService::start();
        let fixture = GatewayFixture { _root: Some(root), folder, service, provider: self.provider };
        fixture.write_file("permissions.yaml", &self.rules);
        fixture.write_file("tools.yaml", TOOLS);
        fixture.write_file("config.yaml", &fixture.config_text(&self.config));
        fixture
    }
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Folder of one gateway, with the service and the provider of models that it uses.
pub struct GatewayFixture {
    _root: Option<TempDir>,
    /// Path of the folder, without links in it.
    pub folder: PathBuf,
    /// Service whose tools agents use.
    pub service: FakeService,
    /// Provider of models. Only the options with models have it in the configuration.
    pub provider: FakeProvider,
}

impl GatewayFixture {
    /// Creates a gateway with [`GatewayOptions::new`].
    pub fn new() -> Self {
        GatewayOptions::new().create()
    }

    /// Creates one with more lines in its configuration, and its own rules.
    pub fn with_config_and_rules(config: &str, rules: &str) -> Self {
        GatewayOptions::new().with_config(config).with_rules(rules).create()
    }

    /// Creates one with [`GatewayOptions::for_peers`].
    pub fn for_peers() -> Self {
        GatewayOptions::for_peers().create()
    }

    /// Creates one with [`GatewayOptions::for_web`].
    pub fn for_web() -> Self {
        GatewayOptions::for_web().create()
    }

    /// Creates one in the new folder `folder` that has neither agents nor rules.
    pub(crate) fn new_bare(folder: &Path, config: &str) -> Self {
        fs::create_dir(folder).unwrap();
        let (service, provider) = (FakeService::start(), FakeProvider::start());
        let fixture = Self { _root: None, folder: folder.to_owned(), service, provider };
        let base = "gateway: { host: 127.0.0.1, port: 0 }\nstorage: { type: sqlite, path: data/countersign.db }\n";
        fixture.write_file("config.yaml", &format!("{base}{config}"));
        fixture
    }

    /// Starts the gateway.
    pub fn start(&self) -> GatewayServer {
        GatewayServer::start(self)
    }

    /// Starts the gateway with a client of its port.
    pub fn start_web(&self) -> (GatewayServer, HttpClient) {
        let gateway = self.start();
        let http = gateway.http_client();
        (gateway, http)
    }

    /// Starts the gateway with a gsv client that is connected.
    pub fn start_peer(&self) -> (GatewayServer, GsvPeer) {
        let gateway = self.start();
        let client = GsvPeer::connect_client(&gateway, "tester");
        (gateway, client)
    }

    /// Returns a configuration with more lines.
    pub fn config_text(&self, more: &str) -> String {
        format!(
            "gateway: {{ host: 127.0.0.1, port: 0 }}
agent: {{ token: {AGENT_TOKEN} }}
agents: [ {{ id: kitchen, token: {KITCHEN_TOKEN} }} ]
services:
  desk:
    url: {}
    auth: {{ type: bearer, token: {SERVICE_TOKEN} }}
    tools: tools.yaml
    errors: [ {{ status: 409, message: \"Busy: {{body}}\" }} ]
storage: {{ type: sqlite, path: data/countersign.db }}
{more}\n",
            self.service.url
        )
    }

    /// Writes a file that only its owner reads.
    pub fn write_file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// Returns the path of the data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Returns the path of the log.
    pub fn log_path(&self) -> PathBuf {
        self.data_dir().join("countersign.db")
    }

    /// Returns a command of the program in this folder, with nothing of this machine around it.
    pub fn binary_command(&self) -> Command {
        self.command_at(binary_path())
    }

    /// Returns the same for another path of the program.
    pub fn command_at(&self, binary: &Path) -> Command {
        let mut command = Command::new(binary);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", &self.folder).current_dir(&self.folder);
        command
    }

    /// Runs a command line to its end.
    pub fn run(&self, arguments: &[&str]) -> CommandOutput {
        let mut command = self.binary_command();
        command.args(arguments);
        run_command(command)
    }

    /// Runs a command of a person, for example about gates or grants.
    pub fn run_as_person(&self, arguments: &[&str]) -> CommandOutput {
        let data = self.data_dir();
        self.run(&[arguments, &["--data", data.to_str().unwrap()]].concat())
    }

    /// Returns the gates that wait, as `gates list` has them.
    pub fn pending_gates(&self) -> Vec<Value> {
        self.run_as_person(&["gates", "list", "--json"]).json().as_array().unwrap().clone()
    }

    /// Returns the gates, as soon as so many wait.
    pub fn wait_gates(&self, count: usize) -> Vec<Value> {
        let mut watch = self.watch_gates();
        let rows = watch.wait_rows(|rows| rows.len() == count);
        drop(watch);
        rows
    }

    /// Returns the id of the only gate, as soon as it waits.
    pub fn wait_gate(&self) -> String {
        self.wait_gates(1)[0]["id"].as_str().unwrap().to_owned()
    }

    /// Allows a gate at the command line.
    pub fn allow_gate(&self, gate: &str) {
        self.answer_gate("allow", gate);
    }

    /// Denies a gate at the command line.
    pub fn deny_gate(&self, gate: &str) {
        self.answer_gate("deny", gate);
    }

    fn answer_gate(&self, verb: &str, gate: &str) {
        let output = self.run_as_person(&["gates", verb, gate]);
        assert_eq!(output.code, Some(0), "{output:?}");
    }

    /// Starts to watch the gates.
    pub fn watch_gates(&self) -> GateWatch {
        GateWatch::start(self)
    }

    /// Checks the chain of the log.
    pub fn verify_log(&self) {
        let log = self.log_path();
        let output = self.run(&["audit", "verify", "--json", "--log", log.to_str().unwrap()]);
        assert_eq!(output.code, Some(0), "{output:?}");
        assert_eq!(output.json()["flaw"], Value::Null, "{output:?}");
    }
}

impl Default for GatewayFixture {
    fn default() -> Self {
        Self::new()
    }
}

/// Person who watches the gates.
pub struct GateWatch {
    child: std::process::Child,
    lines: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
}

impl GateWatch {
    fn start(fixture: &GatewayFixture) -> Self {
        use std::io::BufRead as _;
        let mut command = fixture.binary_command();
        command.args(["gates", "watch", "--json", "--data"]).arg(fixture.data_dir());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Returns the gates that wait, as soon as they fit.
    pub fn wait_rows(&mut self, fits: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        loop {
            let line = self.lines.next().expect("the gateway is there").unwrap();
            let Value::Array(rows) = serde_json::from_str(&line).unwrap() else { panic!("no rows: {line}") };
            if fits(&rows) {
                return rows;
            }
        }
    }
}

impl Drop for GateWatch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
