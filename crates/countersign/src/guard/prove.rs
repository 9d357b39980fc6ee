//! Proof of a guard: the installed program, with a scripted model, attempts a call that must be blocked.
//!
//! It runs with a home folder of its own, into which the settings are copied: the user's home stays as it is, and no login is used.

use std::{
    fs,
    os::unix::{fs::DirBuilderExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use countersign_gateway::control::{PROOF_MARK, PROOF_REASON};
use countersign_guard::{
    GuardPlaces, GuardScope, GuardState, GuardedProgram, guard_command, guard_state, trust_tables,
};
use countersign_scripted_model::{ModelScript, StubServer};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use serde_json::{Value, json};

use super::{codex_hooks, version::command_at_home};
use crate::hook::{NO_GATEWAY, PROOF_VARIABLE};

/// Variable with the key for the scripted model in Codex.
const CODEX_KEY: &str = "COUNTERSIGN_PROOF_KEY";
/// Longest time for one run of the program.
const LIMIT: Duration = Duration::from_secs(120);
/// Interval at which its end is checked.
const CHECK: Duration = Duration::from_millis(50);

/// Condition under which the program attempts the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProofRun {
    /// Without the guard: the call has to run, or the proof would prove nothing.
    Unguarded,
    /// With the guard and the gateway.
    Running,
    /// With the guard, and as if no gateway ran.
    Absent,
}

impl ProofRun {
    const fn title(self) -> &'static str {
        match self {
            Self::Unguarded => "without the guard",
            Self::Running => "with the gateway",
            Self::Absent => "without a gateway",
        }
    }

    const fn must_block(self) -> bool {
        !matches!(self, Self::Unguarded)
    }
}

/// Proves the guard of a program, and writes a line for each run. `is_running` says whether a gateway runs.
///
/// # Errors
/// The guard is not installed, the program could not be run, or a call ran that had to be blocked.
pub(crate) fn prove_guard(
    program: GuardedProgram,
    places: &GuardPlaces,
    is_running: bool,
    out: &mut impl std::io::Write,
) -> anyhow::Result<()> {
    let (path, scope) = match guard_state(program, places)? {
        GuardState::Installed { path, scope } => (path, scope),
        GuardState::Unrecorded { path, .. } => {
            bail!(
                "the guard in {} has no receipt here: prove it as the user who installed it, or install it again with `countersign guard {}`",
                path.display(),
                program.name()
            )
        }
        GuardState::Absent => bail!("{0} is not guarded: run `countersign guard {0}`", program.name()),
        GuardState::Damaged { path, problem } => bail!("the guard in {} is damaged: {problem}", path.display()),
    };
    let settings = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    writeln!(out, "Proof: {} attempts a call that must be blocked", program.title())?;
    let command = guard_command(program, places)?;
    if program == GuardedProgram::Codex {
        codex_hooks::check_trust(places, &GuardedProgram::blocking_command(&command))?;
        writeln!(out, "  Codex lists the hooks as trusted")?;
    }
    for run in [ProofRun::Unguarded, ProofRun::Running, ProofRun::Absent] {
        if run == ProofRun::Running && !is_running {
            writeln!(out, "  {}: not tried, because no gateway runs", run.title())?;
            continue;
        }
        // Managed settings hold in each home folder.
        if run == ProofRun::Unguarded && scope == GuardScope::Managed {
            continue;
        }
        let settings = (scope == GuardScope::User).then_some(settings.as_str());
        let attempt = Attempt::prepare(program, run, settings, &command)?;
        let (has_run, answer) = attempt.execute()?;
        writeln!(out, "  {}: the call {}", run.title(), if has_run { "ran" } else { "was blocked" })?;
        // A hook that cannot even be started blocks too.
        let asks_gateway = program != GuardedProgram::Opencode || scope == GuardScope::User;
        if run == ProofRun::Running && asks_gateway && !has_run && !answer.contains(PROOF_REASON) {
            bail!("the call was blocked, but not by the gateway: {answer}");
        }
        if has_run == run.must_block() {
            bail!(match run {
                ProofRun::Unguarded => "the call did not even run without the guard, so nothing is proved",
                ProofRun::Running | ProofRun::Absent => "the guard does not hold",
            });
        }
    }
    Ok(())
}

/// One run of the program in a folder of its own.
struct Attempt {
    program: GuardedProgram,
    run: ProofRun,
    folder: ProofFolder,
    model: StubServer,
}

/// Folder that is removed at the end.
pub(super) struct ProofFolder(PathBuf);

impl ProofFolder {
    /// Creates it, for the user alone: settings may have secrets in them.
    pub(super) fn create() -> anyhow::Result<Self> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).context("no random number")?;
        let name = bytes.map(|byte| format!("{byte:02x}")).concat();
        let folder = std::env::temp_dir().join(format!("countersign-proof-{name}"));
        let created = fs::DirBuilder::new().mode(0o700).create(&folder);
        created.with_context(|| folder.display().to_string())?;
        Ok(Self(folder))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ProofFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Attempt {
    fn prepare(program: GuardedProgram, run: ProofRun, settings: Option<&str>, command: &str) -> anyhow::Result<Self> {
        let folder = ProofFolder::create()?;
        for inner in ["home", "work"] {
            fs::create_dir(folder.0.join(inner))?;
        }
        let attempt = Self { program, run, folder, model: StubServer::start()? };
        attempt.write_settings(settings.filter(|_| run != ProofRun::Unguarded), command)?;
        Ok(attempt)
    }

    fn home(&self) -> PathBuf {
        self.folder.0.join("home")
    }

    /// Returns the file that the call makes, in the folder in which the program may write.
    fn effect(&self) -> PathBuf {
        self.folder.0.join("work/ran")
    }

    fn write_settings(&self, settings: Option<&str>, command: &str) -> anyhow::Result<()> {
        let (path, text) = match self.program {
            GuardedProgram::Claude => (".claude/settings.json", settings.map(str::to_owned)),
            GuardedProgram::Codex => {
                self.write_file(".codex/config.toml", &self.codex_config())?;
                (".codex/hooks.json", settings.map(str::to_owned))
            }
            GuardedProgram::Gemini => (".gemini/settings.json", Some(with_api_key(settings)?)),
            GuardedProgram::Copilot => (".copilot/hooks/countersign.json", settings.map(str::to_owned)),
            GuardedProgram::Opencode => {
                (".config/opencode/opencode.json", Some(with_scripted_model(settings, command, &self.model.url)?))
            }
        };
        let Some(text) = text else { return Ok(()) };
        self.write_file(path, &text)?;
        if self.program == GuardedProgram::Codex {
            // Codex knows a hook by its path, so that it trusts the copy by an entry of its own.
            let codex = self.home().join(".codex");
            let places = GuardPlaces { codex: Some(codex), ..self.places() };
            let command = GuardedProgram::blocking_command(command);
            let trust = codex_hooks::find_trust(&places, &text, &self.codex_config(), &command)?;
            let trusted = trust_tables(&self.codex_config(), &trust).map_err(anyhow::Error::msg)?;
            self.write_file(".codex/config.toml", &trusted)?;
        }
        Ok(())
    }

    fn places(&self) -> GuardPlaces {
        GuardPlaces { home: self.home(), claude: None, codex: None, config: None, state: None, system: "/etc".into() }
    }

    fn write_file(&self, path: &str, text: &str) -> anyhow::Result<()> {
        let path = self.home().join(path);
        fs::create_dir_all(path.parent().context("a path without a folder")?)?;
        Ok(fs::write(path, text)?)
    }

    /// Returns a configuration of Codex with the scripted model. Texts of TOML have the escapes of JSON.
    fn codex_config(&self) -> String {
        format!(
            "model = \"scripted\"\nmodel_provider = \"scripted\"\n[model_providers.scripted]\nname = \"scripted\"\n\
             base_url = {}\nwire_api = \"responses\"\nenv_key = \"{CODEX_KEY}\"\n",
            Value::from(format!("{}/v1", self.model.url))
        )
    }

    /// Runs the program to its end, and reports whether the call ran, and what the model got for it.
    fn execute(&self) -> anyhow::Result<(bool, String)> {
        let command = format!("touch {} # {PROOF_MARK}", self.effect().display());
        let tool = match self.program {
            GuardedProgram::Claude => "Bash",
            GuardedProgram::Codex => "exec_command",
            GuardedProgram::Gemini => "run_shell_command",
            GuardedProgram::Copilot | GuardedProgram::Opencode => "bash",
        };
        let arguments = match self.program {
            GuardedProgram::Codex => json!({ "cmd": command }),
            _ => json!({ "command": command, "description": "proves the guard" }),
        };
        let script = self.model.add_script(ModelScript { tool, arguments, calls: 1 });
        let mut process = self.program_command(&script.prompt());
        if self.run == ProofRun::Absent {
            process.env(PROOF_VARIABLE, NO_GATEWAY);
        }
        process.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let name = self.program.name();
        let mut child = process.spawn().with_context(|| format!("cannot start {name}"))?;
        wait_for_end(&mut child, name)?;
        let has_run = self.effect().exists();
        // A program that never made the call proves nothing.
        let result = self.model.wait_result(script, 1, Duration::ZERO);
        match result {
            Ok(answer) => Ok((has_run, answer)),
            Err(_) if has_run => Ok((has_run, String::new())),
            Err(_) => {
                let output = error_output(&mut child);
                // `opencode run` rejects what managed rules ask about, and ends without a word to the model.
                let is_rejected = self.program == GuardedProgram::Opencode
                    && output.contains("permission requested")
                    && output.contains(&self.effect().display().to_string());
                if is_rejected { Ok((has_run, output)) } else { bail!("{name} did not attempt the call{output}") }
            }
        }
    }

    fn program_command(&self, prompt: &str) -> Command {
        let (home, url) = (self.home(), self.model.url.as_str());
        let mut command = command_at_home(self.program, &home);
        command.current_dir(self.folder.0.join("work"));
        match self.program {
            GuardedProgram::Claude => {
                command
                    .env("ANTHROPIC_BASE_URL", url)
                    .env("ANTHROPIC_API_KEY", "sk-ant-none")
                    .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
                    .env("DISABLE_AUTOUPDATER", "1");
                command.args(["-p", prompt, "--allowedTools", "Bash"]);
            }
            GuardedProgram::Codex => {
                command.env(CODEX_KEY, "none").env("CODEX_HOME", home.join(".codex"));
                let words = ["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"];
                command.args(words).arg(prompt);
            }
            GuardedProgram::Opencode => {
                command.env("OPENCODE_DISABLE_MODELS_FETCH", "1").env("OPENCODE_DISABLE_AUTOUPDATE", "1");
                command.args(["run", "--format", "json", prompt]);
            }
            GuardedProgram::Gemini => {
                command
                    .env("GEMINI_API_KEY", "none")
                    .env("GOOGLE_GEMINI_BASE_URL", url)
                    .env("GEMINI_CLI_TRUST_WORKSPACE", "true");
                command.args(["-m", "gemini-2.5-pro", "--approval-mode", "yolo", "-p", prompt]);
            }
            GuardedProgram::Copilot => {
                command
                    .env("COPILOT_OFFLINE", "true")
                    .env("COPILOT_PROVIDER_BASE_URL", format!("{url}/v1"))
                    .env("COPILOT_PROVIDER_API_KEY", "none")
                    .env("COPILOT_MODEL", "scripted");
                command.args(["--allow-all-tools", "-p", prompt]);
            }
        }
        command
    }
}

/// Returns settings of Gemini CLI with which it takes a key: a login of the user is not used.
fn with_api_key(settings: Option<&str>) -> anyhow::Result<String> {
    let mut settings: Value = serde_json::from_str(settings.unwrap_or("{}"))?;
    settings["security"]["auth"]["selectedType"] = "gemini-api-key".into();
    Ok(settings.to_string())
}

/// Returns settings of opencode with the scripted model, and of the user's plugins the one of the guard alone: others may be downloaded.
fn with_scripted_model(settings: Option<&str>, plugin: &str, url: &str) -> anyhow::Result<String> {
    let mut settings: Value = serde_json::from_str(settings.filter(|text| !text.trim().is_empty()).unwrap_or("{}"))?;
    if let Some(plugins) = settings.get_mut("plugin").and_then(Value::as_array_mut) {
        plugins.retain(|one| one == plugin);
    }
    let options = json!({ "baseURL": format!("{url}/v1"), "apiKey": "none" });
    let models = json!({ "scripted": { "tool_call": true } });
    settings["provider"]["scripted"] =
        json!({ "npm": "@ai-sdk/openai-compatible", "options": options, "models": models });
    settings["model"] = "scripted/scripted".into();
    settings.as_object_mut().context("the settings are no object")?.remove("mcp");
    Ok(settings.to_string())
}

/// Waits until the program has ended, and then ends whatever it left. Programs start further processes.
fn wait_for_end(child: &mut Child, name: &str) -> anyhow::Result<()> {
    let begun = Instant::now();
    let outcome = loop {
        match child.try_wait()? {
            Some(_) => break Ok(()),
            None if begun.elapsed() < LIMIT => std::thread::sleep(CHECK),
            None => break Err(anyhow::anyhow!("{name} did not end within {} s", LIMIT.as_secs())),
        }
    };
    if let Ok(group) = i32::try_from(child.id()) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    let _ = child.wait();
    outcome
}

fn error_output(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(mut pipe) = child.stderr.take() {
        let _ = std::io::Read::read_to_string(&mut pipe, &mut text);
    }
    let shown: String = text.trim().chars().take(400).collect();
    if shown.is_empty() { shown } else { format!(": {shown}") }
}

/// Reports whether a program can be run by its name.
pub(crate) fn is_installed(program: GuardedProgram) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder: PathBuf| Path::new(&folder).join(program.name()).is_file())
}

#[cfg(test)]
mod tests {
    use super::{with_api_key, with_scripted_model};

    #[test]
    fn rules_and_the_plugin_of_the_guard_stay_and_nothing_else_starts() {
        let settings = r#"{"permission":{"*":"ask"},"plugin":["x@1","/p.mjs"],"mcp":{"x":{}},"model":"a/b"}"#;
        let with = with_scripted_model(Some(settings), "/p.mjs", "http://127.0.0.1:1").unwrap();
        let with: serde_json::Value = serde_json::from_str(&with).unwrap();
        assert_eq!((&with["permission"]["*"], &with["plugin"]), (&"ask".into(), &serde_json::json!(["/p.mjs"])));
        assert_eq!((with["model"].as_str(), with.get("mcp")), (Some("scripted/scripted"), None));
    }

    #[test]
    fn other_settings_of_the_user_stay() {
        for (settings, want) in [
            (None, r#"{"security":{"auth":{"selectedType":"gemini-api-key"}}}"#),
            (
                Some(r#"{"a":1,"security":{"auth":{"selectedType":"oauth","x":2},"y":3}}"#),
                r#"{"a":1,"security":{"auth":{"selectedType":"gemini-api-key","x":2},"y":3}}"#,
            ),
        ] {
            assert_eq!(with_api_key(settings).unwrap(), want);
        }
    }
}
