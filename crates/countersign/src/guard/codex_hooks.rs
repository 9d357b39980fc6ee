//! Hooks of Codex as the installed program sees them: whether it would run ours, and the digest under which it trusts them.
//!
//! It is asked in a folder of its own, into which both files are copied. So the result is known before anything changes, a file that
//! Codex would not read is refused with its own words, and its folder stays as it is.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use countersign_guard::{GuardPlaces, HookTrust};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use serde_json::{Value, json};

use super::prove::ProofFolder;

/// Longest time for an answer.
const LIMIT: Duration = Duration::from_secs(60);
/// Names of its two files.
const HOOKS: &str = "hooks.json";
const CONFIG: &str = "config.toml";
/// Number of the request.
const REQUEST: u64 = 1;

/// Hook that Codex knows.
struct ListedHook {
    key: String,
    hash: String,
    trust: String,
    is_enabled: bool,
}

/// Asks Codex for the trust that our hooks in the text `hooks` need. `command` is their shell command, `config` the text of the configuration.
///
/// # Errors
/// Codex cannot be asked, reads the files otherwise, or would run no hooks with this configuration.
pub(super) fn find_trust(
    places: &GuardPlaces,
    hooks: &str,
    config: &str,
    command: &str,
) -> anyhow::Result<Vec<HookTrust>> {
    let copy = FolderCopy::create(&places.codex_folder(), Some(hooks), Some(config))?;
    let listed = copy.list_hooks(command)?;
    ensure!(
        !listed.is_empty(),
        "Codex would run no hooks with {}: is `features.hooks` false in it?",
        places.codex_folder().join(CONFIG).display()
    );
    let mut trust = Vec::new();
    for hook in listed {
        let rest = hook.key.strip_prefix(&copy.copied_hooks());
        let rest = rest.with_context(|| format!("unknown form of the key of a hook: {}", hook.key))?;
        trust.push(HookTrust { key: format!("{}{rest}", copy.real_hooks()), hash: hook.hash });
    }
    Ok(trust)
}

/// Checks that Codex runs our hooks with its files as they are.
///
/// # Errors
/// The reason why it would not.
pub(super) fn check_trust(places: &GuardPlaces, command: &str) -> anyhow::Result<()> {
    let folder = places.codex_folder();
    let (hooks, config) = (read_text(&folder.join(HOOKS))?, read_text(&folder.join(CONFIG))?);
    let copy = FolderCopy::create(&folder, hooks.as_deref(), None)?;
    if let Some(config) = config {
        copy.write(CONFIG, &copy.with_copied_trust(&config))?;
    }
    let listed = copy.list_hooks(command)?;
    ensure!(!listed.is_empty(), "Codex would not run the hooks: is `features.hooks` false, or another CODEX_HOME set?");
    match listed.iter().find(|hook| !hook.is_enabled || !matches!(&*hook.trust, "trusted" | "managed")) {
        None => Ok(()),
        Some(hook) if !hook.is_enabled => bail!("Codex would not run {}: it is disabled", hook.key),
        Some(hook) => bail!("Codex would not run {}: it is {}", hook.key, hook.trust),
    }
}

/// Copy of the folder of Codex. Codex writes its state into the folder in which it runs, which must not be the user's.
struct FolderCopy {
    folder: ProofFolder,
    /// Real path of the user's.
    original: PathBuf,
}

impl FolderCopy {
    fn create(original: &Path, hooks: Option<&str>, config: Option<&str>) -> anyhow::Result<Self> {
        let copy = Self { folder: ProofFolder::create()?, original: real_path(original) };
        for (name, text) in [(HOOKS, hooks), (CONFIG, config)] {
            if let Some(text) = text {
                copy.write(name, text)?;
            }
        }
        Ok(copy)
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        Ok(fs::write(self.folder.path().join(name), text)?)
    }

    /// Codex names a hook by the real path of its file.
    fn copied_hooks(&self) -> String {
        real_path(self.folder.path()).join(HOOKS).to_string_lossy().into_owned()
    }

    fn real_hooks(&self) -> String {
        self.original.join(HOOKS).to_string_lossy().into_owned()
    }

    /// Returns a configuration in which the trust in the user's hooks is that in the copies.
    fn with_copied_trust(&self, config: &str) -> String {
        let (from, to) = (self.real_hooks(), self.copied_hooks());
        // Texts of TOML have the escapes of JSON, or none.
        let quoted = |path: &str| Value::from(format!("{path}:")).to_string().trim_end_matches('"').to_owned();
        config.replace(&quoted(&from), &quoted(&to)).replace(&format!("'{from}:"), &format!("'{to}:"))
    }

    /// Lists the hooks with our command. Errors name the user's files.
    fn list_hooks(&self, command: &str) -> anyhow::Result<Vec<ListedHook>> {
        list_hooks(self.folder.path(), command).map_err(|error| {
            let (mut text, original) = (format!("{error:#}"), self.original.to_string_lossy());
            for folder in [real_path(self.folder.path()), self.folder.path().to_owned()] {
                text = text.replace(&*folder.to_string_lossy(), &original);
            }
            anyhow::anyhow!(text)
        })
    }
}

fn read_text(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// Returns the real path of a folder, also of one that does not exist yet.
fn real_path(folder: &Path) -> PathBuf {
    for above in folder.ancestors() {
        if let Ok(real) = fs::canonicalize(above) {
            return folder.strip_prefix(above).map_or_else(|_| real.clone(), |rest| real.join(rest));
        }
    }
    folder.to_owned()
}

/// Lists the hooks with our command that Codex finds with its folder at `home`.
fn list_hooks(home: &Path, command: &str) -> anyhow::Result<Vec<ListedHook>> {
    let mut server = Command::new("codex");
    server.arg("app-server").current_dir(home).env("CODEX_HOME", home).process_group(0);
    server.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = server.spawn().context("cannot start codex")?;
    let answer = ask_for_hooks(&mut server, home);
    // It starts further processes.
    if let Ok(group) = i32::try_from(server.id()) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    let _ = server.wait();
    let mut listed = Vec::new();
    for folder in answer?["data"].as_array().context("`codex app-server` listed no folder")? {
        let errors = folder["errors"].as_array().into_iter().flatten();
        if let Some(error) = errors.map(|error| error["message"].as_str().unwrap_or("unknown error")).next() {
            bail!("Codex does not read its files: {error}");
        }
        for hook in folder["hooks"].as_array().into_iter().flatten().filter(|hook| hook["command"] == command) {
            let text = |name: &str| {
                hook[name].as_str().map(str::to_owned).with_context(|| format!("a hook of Codex without {name}"))
            };
            let is_enabled = hook["enabled"] != Value::Bool(false);
            listed.push(ListedHook {
                key: text("key")?,
                hash: text("currentHash")?,
                trust: text("trustStatus")?,
                is_enabled,
            });
        }
    }
    Ok(listed)
}

fn ask_for_hooks(server: &mut std::process::Child, home: &Path) -> anyhow::Result<Value> {
    let mut input = server.stdin.take().context("no standard input")?;
    let output = server.stdout.take().context("no standard output")?;
    let client = json!({ "name": "countersign", "title": "Countersign", "version": env!("CARGO_PKG_VERSION") });
    let initialize = json!({ "clientInfo": client, "capabilities": { "experimentalApi": true } });
    for message in [
        json!({ "id": 0, "method": "initialize", "params": initialize }),
        json!({ "method": "initialized" }),
        json!({ "id": REQUEST, "method": "hooks/list", "params": { "cwds": [home] } }),
    ] {
        writeln!(input, "{message}").context("cannot write to `codex app-server`")?;
    }
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let end = Instant::now() + LIMIT;
    loop {
        let line = lines.recv_timeout(end.saturating_duration_since(Instant::now()));
        let line = line.context("`codex app-server` did not list its hooks")?;
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        if message["id"] == REQUEST && message.get("method").is_none() {
            return match message.get("result") {
                Some(result) => Ok(result.clone()),
                None => bail!("`codex app-server` refused to list its hooks: {}", message["error"]["message"]),
            };
        }
    }
}
