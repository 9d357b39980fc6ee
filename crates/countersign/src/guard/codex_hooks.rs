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
    let folder = ProofFolder::create()?;
    fs::write(folder.path().join(HOOKS), hooks)?;
    fs::write(folder.path().join(CONFIG), config)?;
    let listed = list_hooks(folder.path(), command)?;
    ensure!(
        !listed.is_empty(),
        "Codex would run no hooks with {}: is `features.hooks` false in it?",
        places.codex_folder().join(CONFIG).display()
    );
    // Codex names a hook by the real path of its file.
    let scratch = real_path(folder.path()).join(HOOKS);
    let real = real_path(&places.codex_folder()).join(HOOKS);
    let mut trust = Vec::new();
    for hook in listed {
        let rest = hook.key.strip_prefix(&*scratch.to_string_lossy());
        let rest = rest.with_context(|| format!("unknown form of the key of a hook: {}", hook.key))?;
        trust.push(HookTrust { key: format!("{}{rest}", real.display()), hash: hook.hash });
    }
    Ok(trust)
}

/// Checks that Codex runs our hooks with its files as they are.
///
/// # Errors
/// The reason why it would not.
pub(super) fn check_trust(places: &GuardPlaces, command: &str) -> anyhow::Result<()> {
    // A managed guard needs no folder of the user.
    let (home, scratch) = (places.codex_folder(), ProofFolder::create()?);
    let listed = list_hooks(if home.is_dir() { &home } else { scratch.path() }, command)?;
    ensure!(!listed.is_empty(), "Codex would not run the hooks: is `features.hooks` false, or another CODEX_HOME set?");
    match listed.iter().find(|hook| !hook.is_enabled || !matches!(&*hook.trust, "trusted" | "managed")) {
        None => Ok(()),
        Some(hook) if !hook.is_enabled => bail!("Codex would not run {}: it is disabled", hook.key),
        Some(hook) => bail!("Codex would not run {}: it is {}", hook.key, hook.trust),
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
