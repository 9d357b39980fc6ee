//! The folder of one gateway: its configuration, rules and tools, and the command line that is used on it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::service::Service;

/// What the agent called `default` shows.
pub(crate) const TOKEN: &str = "tok-default-5d1e";
/// What the agent called `kitchen` shows.
pub(crate) const KITCHEN: &str = "tok-kitchen-90ab";
/// What the gateway shows the service.
pub(crate) const SECRET: &str = "sec-service-77f0";

/// The rules of most tests: reading is free, lamps may be turned, locks not, everything else is asked about.
pub(crate) const RULES: &str = r#"
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

/// What a command said and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

pub(crate) struct Place {
    _root: TempDir,
    pub(crate) folder: PathBuf,
    pub(crate) service: Service,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with("", RULES)
    }

    /// A folder with more lines in its configuration, and its own rules.
    pub(crate) fn with(more: &str, rules: &str) -> Self {
        Self::within(&std::env::temp_dir(), more, rules)
    }

    /// The same in a folder below `parent`.
    pub(crate) fn within(parent: &Path, more: &str, rules: &str) -> Self {
        let root = tempfile::tempdir_in(parent).unwrap();
        let folder = root.path().canonicalize().unwrap();
        let place = Self { _root: root, folder, service: Service::start() };
        place.write("permissions.yaml", rules);
        place.write("tools.yaml", TOOLS);
        place.write("config.yaml", &place.config(more));
        place
    }

    /// A configuration of the gateway with `more` lines.
    pub(crate) fn config(&self, more: &str) -> String {
        format!(
            "gateway: {{ host: 127.0.0.1, port: 0 }}
agent: {{ token: {TOKEN} }}
agents: [ {{ id: kitchen, token: {KITCHEN} }} ]
services:
  desk:
    url: {}
    auth: {{ type: bearer, token: {SECRET} }}
    tools: tools.yaml
    errors: [ {{ status: 409, message: \"Busy: {{body}}\" }} ]
storage: {{ type: sqlite, path: data/countersign.db }}
{more}\n",
            self.service.url
        )
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.data().join("countersign.db")
    }

    /// The binary with nothing of this machine around it.
    pub(crate) fn command(&self) -> Command {
        self.command_at(Path::new(env!("CARGO_BIN_EXE_countersign")))
    }

    pub(crate) fn command_at(&self, binary: &Path) -> Command {
        let mut command = Command::new(binary);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", &self.folder).current_dir(&self.folder);
        command
    }

    /// Runs a command line to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        let mut command = self.command();
        command.args(arguments);
        said(command)
    }

    /// Runs a command about gates or grants.
    pub(crate) fn people(&self, arguments: &[&str]) -> Said {
        let data = self.data();
        self.run(&[arguments, &["--data", data.to_str().unwrap()]].concat())
    }

    /// What waits, as `gates list` has it.
    pub(crate) fn gates(&self) -> Vec<Value> {
        self.people(&["gates", "list", "--json"]).json().as_array().unwrap().clone()
    }

    /// The gates, once so many wait.
    pub(crate) fn waits(&self, count: usize) -> Vec<Value> {
        let mut watch = self.watch();
        let rows = watch.rows(|rows| rows.len() == count);
        drop(watch);
        rows
    }

    /// The only gate, once it waits.
    pub(crate) fn gate(&self) -> String {
        self.waits(1)[0]["id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn allow(&self, gate: &str) {
        self.answer("allow", gate);
    }

    pub(crate) fn deny(&self, gate: &str) {
        self.answer("deny", gate);
    }

    fn answer(&self, verb: &str, gate: &str) {
        let said = self.people(&["gates", verb, gate]);
        assert_eq!(said.code, Some(0), "{said:?}");
    }

    pub(crate) fn watch(&self) -> Watch {
        Watch::start(self)
    }

    /// Checks the chain of the log.
    pub(crate) fn verify(&self) {
        let log = self.log();
        let said = self.run(&["audit", "verify", "--json", "--log", log.to_str().unwrap()]);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(said.json()["flaw"], Value::Null, "{said:?}");
    }
}

pub(crate) fn said(mut command: Command) -> Said {
    let output = command.stdin(Stdio::null()).output().unwrap();
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A person who watches.
pub(crate) struct Watch {
    child: std::process::Child,
    lines: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
}

impl Watch {
    fn start(place: &Place) -> Self {
        use std::io::BufRead as _;
        let mut command = place.command();
        command.args(["gates", "watch", "--json", "--data"]).arg(place.data());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// What waits, once it is as wanted.
    pub(crate) fn rows(&mut self, fits: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        loop {
            let line = self.lines.next().expect("the gateway is there").unwrap();
            let Value::Array(rows) = serde_json::from_str(&line).unwrap() else { panic!("no rows: {line}") };
            if fits(&rows) {
                return rows;
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
