//! The folders of one host that embeds an agent, and the session files in them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{FakeProvider, RpcHost, binary_path, eventually, message_text};

/// Agent directory, working folder and home, all of them new, with a provider of models.
pub struct HostFixture {
    _root: TempDir,
    /// Agent directory.
    pub agent: PathBuf,
    /// Working folder.
    pub work: PathBuf,
    /// Home of the user.
    pub home: PathBuf,
    /// Provider of the models `fake-1`, `fake-2` and `claude-1`.
    pub provider: FakeProvider,
}

impl Default for HostFixture {
    fn default() -> Self {
        Self::new()
    }
}

impl HostFixture {
    /// Creates folders without settings or rules.
    pub fn new() -> Self {
        Self::with_config("")
    }

    /// Creates folders with this `config.yml`.
    pub fn with_config(config: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().canonicalize().unwrap();
        let provider = FakeProvider::start();
        let [agent, work, home] = ["agent", "work", "home"].map(|name| path.join(name));
        for folder in [&agent, &work, &home] {
            fs::create_dir(folder).unwrap();
        }
        let fixture = Self { _root: root, agent, work, home, provider };
        fs::write(fixture.agent.join("models.yml"), model_config(&fixture.provider.url)).unwrap();
        fs::write(fixture.agent.join("config.yml"), config).unwrap();
        fixture
    }

    /// Creates folders with a rule that requires approval of every call of `bash`.
    pub fn with_ask_rule() -> Self {
        let fixture = Self::new();
        fixture.write_rules("rules:\n  - { pattern: \"bash(*)\", action: ask }\n");
        fixture
    }

    /// Writes the rules of the agent directory.
    pub fn write_rules(&self, rules: &str) {
        fs::write(self.agent.join("permissions.yaml"), rules).unwrap();
    }

    /// Starts omp with the usual model and more flags.
    pub fn start(&self, flags: &[&str]) -> RpcHost {
        let usual = ["--model", "fake/fake-1"];
        RpcHost::start(self, &[&usual[..], flags].concat())
    }

    /// Returns a command of the program in the home, with nothing of this machine around it.
    pub fn binary_command(&self) -> Command {
        let mut command = Command::new(binary_path());
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", &self.home).current_dir(&self.home);
        command
    }

    /// Starts omp, which resumes the newest session.
    pub fn resume_host(&self) -> RpcHost {
        RpcHost::start(self, &["--continue"])
    }

    /// Writes a file of the working folder.
    pub fn write_file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.work.join(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// Returns the content of a file of the working folder.
    pub fn read_file(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.work.join(name)).ok()
    }

    /// Returns the content of a file of the working folder, as soon as it ends with a line break.
    pub fn wait_for(&self, name: &str) -> String {
        eventually(&format!("the file {name}"), || self.read_file(name).filter(|text| text.ends_with('\n')))
    }
}

/// Returns the lines of a session file, as soon as they fit. Each is one JSON object.
pub fn lines_when(path: &Path, what: &str, fits: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    eventually(&format!("a session file with {what}"), || {
        let text = fs::read_to_string(path).ok().filter(|text| text.ends_with('\n'))?;
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        fits(&lines).then_some(lines)
    })
}

/// Returns the lines of a session file, as soon as one of them has `text`.
pub fn lines_with(path: &Path, text: &str) -> Vec<Value> {
    lines_when(path, text, |lines| lines.iter().any(|line| line.to_string().contains(text)))
}

/// Checks that a session file has a header, unique ids, and parents before their children.
pub fn check_chain(lines: &[Value]) {
    assert_eq!((&lines[0]["type"], &lines[0]["version"]), (&"session".into(), &3.into()));
    let mut known: Vec<&str> = Vec::new();
    for line in &lines[1..] {
        let id = line["id"].as_str().unwrap();
        assert!(!known.contains(&id), "{id} occurs twice");
        assert!(line["timestamp"].is_string() && line.get("parentId").is_some(), "{line}");
        assert!(line["parentId"].is_null() || known.contains(&line["parentId"].as_str().unwrap()), "{line}");
        known.push(id);
    }
}

/// Returns the texts of the messages of a session file, in order.
pub fn line_texts(lines: &[Value]) -> Vec<String> {
    lines.iter().filter(|line| line["type"] == "message").map(|line| message_text(&line["message"])).collect()
}

fn model_config(url: &str) -> String {
    let cost = "cost: { input: 1, output: 2, cacheRead: 0.1, cacheWrite: 0.2 }";
    format!(
        "providers:
  fake:
    baseUrl: {url}/v1
    apiKey: sk-fake
    api: openai-completions
    models:
      - {{ id: fake-1, name: One, reasoning: true, input: [text, image], {cost}, contextWindow: 128000, maxTokens: 8192 }}
      - {{ id: fake-2, name: Two, reasoning: false, input: [text], {cost}, contextWindow: 64000, maxTokens: 4096 }}
  claude:
    baseUrl: {url}
    apiKey: sk-claude
    api: anthropic-messages
    models:
      - {{ id: claude-1, reasoning: true, input: [text, image], {cost}, contextWindow: 200000, maxTokens: 64000 }}
"
    )
}
