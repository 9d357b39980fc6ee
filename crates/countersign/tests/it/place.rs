//! The folders that one host works in.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{host::Host, provider::Provider};

/// An agent directory, a working folder and a home, all of them new.
pub(crate) struct Place {
    _root: TempDir,
    pub(crate) agent: PathBuf,
    pub(crate) work: PathBuf,
    pub(crate) home: PathBuf,
    pub(crate) provider: Provider,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with_config("")
    }

    pub(crate) fn with_config(config: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().canonicalize().unwrap();
        let provider = Provider::start();
        let [agent, work, home] = ["agent", "work", "home"].map(|name| path.join(name));
        for folder in [&agent, &work, &home] {
            fs::create_dir(folder).unwrap();
        }
        let place = Self { _root: root, agent, work, home, provider };
        fs::write(place.agent.join("models.yml"), models(&place.provider.url)).unwrap();
        fs::write(place.agent.join("config.yml"), config).unwrap();
        place
    }

    /// Every call of `bash` asks.
    pub(crate) fn asking() -> Self {
        let place = Self::new();
        place.rules("rules:\n  - { pattern: \"bash(*)\", action: ask }\n");
        place
    }

    pub(crate) fn rules(&self, rules: &str) {
        fs::write(self.agent.join("permissions.yaml"), rules).unwrap();
    }

    /// Starts a host on the usual model, with more flags.
    pub(crate) fn start(&self, flags: &[&str]) -> Host {
        let usual = ["--model", "fake/fake-1"];
        Host::start(self, &[&usual[..], flags].concat())
    }

    /// The binary with nothing of this machine around it.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", &self.home).current_dir(&self.home);
        command
    }

    /// Starts a host that goes on with the newest session.
    pub(crate) fn resume(&self) -> Host {
        Host::start(self, &["--continue"])
    }

    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.work.join(name);
        fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn get(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.work.join(name)).ok()
    }

    /// The content of a file of the working folder, once it has some.
    pub(crate) fn wait_for(&self, name: &str) -> String {
        crate::host::soon(&format!("the file {name}"), || self.get(name).filter(|text| text.ends_with('\n')))
    }
}

/// A session file once `fits` holds for its lines, each of which is whole, and one JSON object.
pub(crate) fn lines_when(path: &Path, what: &str, fits: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    crate::host::soon(&format!("a session file with {what}"), || {
        let text = fs::read_to_string(path).ok().filter(|text| text.ends_with('\n'))?;
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        fits(&lines).then_some(lines)
    })
}

/// A session file once a line of it says `text`.
pub(crate) fn lines_with(path: &Path, text: &str) -> Vec<Value> {
    lines_when(path, text, |lines| lines.iter().any(|line| line.to_string().contains(text)))
}

/// Checks what holds for every session file: a header, unique ids, parents that came before.
pub(crate) fn check_chain(lines: &[Value]) {
    assert_eq!((&lines[0]["type"], &lines[0]["version"]), (&"session".into(), &3.into()));
    let mut known: Vec<&str> = Vec::new();
    for line in &lines[1..] {
        let id = line["id"].as_str().unwrap();
        assert!(!known.contains(&id), "{id} is there twice");
        assert!(line["timestamp"].is_string() && line.get("parentId").is_some(), "{line}");
        assert!(line["parentId"].is_null() || known.contains(&line["parentId"].as_str().unwrap()), "{line}");
        known.push(id);
    }
}

/// The text of the messages of a session file, in order.
pub(crate) fn texts(lines: &[Value]) -> Vec<String> {
    lines.iter().filter(|line| line["type"] == "message").map(|line| crate::host::text(&line["message"])).collect()
}

fn models(url: &str) -> String {
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
