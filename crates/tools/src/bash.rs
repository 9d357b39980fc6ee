//! `bash`: commands in the session's shell, of a run or of a person.
//!
//! It must not judge a command. Of a long output the end is shown and the whole kept in a file.

pub(crate) mod output;
mod variables;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use countersign_core::{
    call::Pins,
    secret,
    tool::{CallConcurrency, RepeatMode, ToolEffect, ToolSpec},
};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{
    arguments,
    outcome::{CallFailure, CallOutput},
    pins,
    sandbox::{CallNeeds, NetworkAccess, Sandbox, UnlistedHosts},
    secrets::GatewaySecrets,
    shell::{ShellError, ShellEvent, ShellJob, ShellLoss},
    text,
    tool::{AgentTool, ToolContext},
};
use output::{LineWindow, OutputCollector, ShownOutput};
use variables::{check_variable, resolve_variables};

/// The shortest time between two updates.
const PACE: Duration = Duration::from_millis(50);
/// The code of a command that was killed: 128 and the number of the signal.
const KILLED: i32 = 137;
/// The tool `bash`.
pub struct BashTool {
    spec: ToolSpec,
    /// Secrets that calls may request by name, before any approval. The inserted values come from the call's context.
    secrets: GatewaySecrets,
    /// Sandbox of commands, before any approval of needs beyond it.
    sandbox: Sandbox,
}

impl BashTool {
    /// Returns the same tool, whose variables may be given secrets.
    #[must_use]
    pub fn with_secrets(mut self, secrets: GatewaySecrets) -> Self {
        if secrets.is_kept() {
            self.spec.description.push_str(
                " A secret is used by its name, as {{secret:NAME}} in a value of env, and nowhere else; its value is put in when the command starts, \
                is never shown, and needs a person's consent unless rules give it. Such a command runs in a shell of its own, in the same folder.",
            );
        }
        self.secrets = secrets;
        self
    }

    /// Returns the same tool, whose calls declare their needs beyond the sandbox.
    #[must_use]
    pub fn in_sandbox(mut self, sandbox: &Sandbox) -> Self {
        self.sandbox = sandbox.clone();
        if let NetworkAccess::Hosts(hosts) = sandbox.network() {
            let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
            self.spec.description.push_str(&format!(
                " They reach these hosts alone, through the proxy that http_proxy and https_proxy name: {}.",
                hosts.join(", ")
            ));
            if sandbox.unlisted() == UnlistedHosts::Ask {
                self.spec.description.push_str(" A person is asked about another one while the command waits for it.");
            }
        }
        self.spec.description.push_str(
            " Commands run in a sandbox that bounds where they write, and perhaps the network; what does not work for that reason needs a person's \
            consent, which the argument needs asks for.",
        );
        if let Some(properties) = self.spec.schema.get_mut("properties").and_then(Value::as_object_mut) {
            properties.insert(
                "needs".to_owned(),
                json!({"type": "object", "additionalProperties": false, "description": "Only for a command that the sandbox made fail: exactly what it needs beyond. A person is asked; it then runs in a shell of its own, in the same folder", "properties": {
                    "write": {"type": "array", "items": {"type": "string"}, "description": "Files or folders to write. A file that is not there is made, empty"},
                    "hosts": {"type": "array", "items": {"type": "string"}, "description": "Hosts to reach, each such as crates.io or api.example.com:8443; without a port 80 and 443 are meant"},
                    "network": {"type": "boolean", "description": "Reach every other machine; ask for hosts instead where they are known"},
                }}),
            );
        }
        self
    }
}

impl Default for BashTool {
    fn default() -> Self {
        let description = "Runs a command in the session's shell. The working folder, variables and functions are kept between commands; \
            the command has no input. Output and error output are shown together; of a long output the last 50 KiB are shown and the rest is kept \
            in a file that the result names. A non-zero exit code is an error result. At the time-out the command is ended with everything that it \
            started, and the next command gets a new shell in the same folder. Prefer read, grep, find and ls to commands that do the same.";
        Self {
            spec: ToolSpec {
                name: "bash".to_owned(),
                description: description.to_owned(),
                schema: json!({"type": "object", "required": ["command"], "properties": {
                    "command": {"type": "string", "description": "Shell command to run"},
                    "timeout": {"type": "integer", "minimum": 1, "maximum": 3600, "description": "Seconds (default: 300, unless the person set something else)"},
                    "cwd": {"type": "string", "description": "Folder for this command alone (default: where the shell is)"},
                    "head": {"type": "integer", "minimum": 1, "description": "Show the first N lines of the output only; with tail, both ends"},
                    "tail": {"type": "integer", "minimum": 1, "description": "Show the last N lines of the output only; with head, both ends"},
                    "env": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Variables for this command alone"},
                    "pty": {"type": "boolean", "description": "Ignored: commands have no terminal"},
                }}),
                concurrency: CallConcurrency::Exclusive,
                repeat: RepeatMode::Once,
                effect: ToolEffect::Changes,
                signature: &["command"],
            },
            secrets: GatewaySecrets::default(),
            sandbox: Sandbox::default(),
        }
    }
}

#[derive(Deserialize)]
struct BashArguments {
    command: String,
    timeout: Option<u64>,
    cwd: Option<String>,
    head: Option<usize>,
    tail: Option<usize>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    pty: Option<bool>,
    #[serde(default)]
    needs: CallNeeds,
}

impl AgentTool for BashTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn check_arguments(&self, arguments: &Value) -> Result<Map<String, Value>, CallFailure> {
        let arguments = crate::validate_arguments(&self.spec, arguments)?;
        self.sandbox.check_needs(arguments.get("needs")).map_err(CallFailure::Invalid)?;
        let names = arguments.get("env").and_then(Value::as_object).into_iter().flat_map(Map::keys);
        names.map(String::as_str).try_for_each(check_variable)?;
        match arguments.get("env").map(|variables| self.secrets.check_fillable(variables)) {
            Some(Err(problem)) => Err(CallFailure::Invalid(format!("env: {problem}"))),
            Some(Ok(())) | None => Ok(arguments),
        }
    }

    fn pin_files<'a>(
        &'a self,
        arguments: &'a Map<String, Value>,
        cx: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Option<Pins>, CallFailure>> {
        Box::pin(async move {
            let arguments: BashArguments = arguments::parse_arguments(&self.spec.name, arguments.clone())?;
            cx.interceptor.check_command(&arguments.command).map_err(CallFailure::Invalid)?;
            let at = cx.pinned.clone().or_else(|| cx.shells.last_folder()).unwrap_or_else(|| cx.cwd.clone());
            let folder = match arguments.cwd.as_deref().map(|cwd| cx.roots.resolve_path(&at, Path::new(cwd))) {
                None => at.clone(),
                Some(Ok(place)) => place.path().to_owned(),
                // It is refused when it is to run.
                Some(Err(_)) => return Ok(None),
            };
            let named = arguments.cwd.as_deref().map_or_else(|| at.clone(), |cwd| at.join(cwd));
            if !arguments.needs.is_empty() {
                let (sandbox, environment, needs) =
                    (self.sandbox.clone(), cx.environment.clone(), arguments.needs.clone());
                // A disk that hangs holds up no other task.
                let check = move || sandbox.check_written(&named, &environment, &needs);
                let broke_off = |_| CallFailure::Invalid("cannot check the paths in needs.write".to_owned());
                let written = tokio::task::spawn_blocking(check).await.map_err(broke_off)?;
                written.map_err(|refused| CallFailure::Invalid(refused.to_string()))?;
            }
            let is_apart = arguments.env.values().any(|value| secret::is_asked_for(value))
                || cx.shells.sandbox().is_on() && !arguments.needs.is_empty();
            let given = |name: &str| cx.environment.get(name).and_then(|value| value.to_str()).map(str::to_owned);
            let path = if is_apart { given("PATH") } else { cx.shells.search_path(&cx.environment) };
            let home = arguments.env.get("HOME").cloned().or_else(|| given("HOME"));
            let nothing = pins::unexamined_pins(&at, &folder);
            let look = move || {
                pins::take_pins(&pins::ShellLine {
                    command: &arguments.command,
                    at: &at,
                    folder: &folder,
                    home: home.as_deref(),
                    path: path.as_deref(),
                })
            };
            // After an interruption nothing is left that could be approved.
            Ok(Some(tokio::task::spawn_blocking(look).await.unwrap_or(nothing)))
        })
    }

    fn run<'a>(
        &'a self,
        arguments: Map<String, Value>,
        cx: &'a ToolContext,
    ) -> BoxFuture<'a, Result<CallOutput, CallFailure>> {
        Box::pin(async move {
            let arguments: BashArguments = arguments::parse_arguments(&self.spec.name, arguments)?;
            cx.interceptor.check_command(&arguments.command).map_err(CallFailure::Invalid)?;
            for name in arguments.env.keys() {
                check_variable(name)?;
            }
            let cwd = arguments.cwd.as_deref().map(|cwd| command_folder(cwd, cx)).transpose()?;
            if let Some((given, real)) = arguments.cwd.as_deref().zip(cwd.as_deref()) {
                let named = cx.pinned.as_deref().unwrap_or(&cx.cwd).join(given);
                let seen = self.sandbox.check_folder(&named, real, &arguments.needs);
                seen.map_err(|refused| CallFailure::NotBegun(refused.to_string()))?;
            }
            let timeout =
                arguments.timeout.map_or(cx.bash_timeout, |seconds| Duration::from_secs(seconds.clamp(1, 3600)));
            let timeout = timeout.min(cx.bash_longest);
            let (env, uses_secrets) = resolve_variables(arguments.env, &cx.secrets)?;
            let job = ShellJob {
                command: arguments.command,
                cwd,
                at: cx.pinned.clone(),
                env,
                input: false,
                needs: arguments.needs,
                // In the session's shell it could stay in a variable.
                alone: uses_secrets,
                pins: cx.pins.clone(),
                call: cx.call.clone(),
                asks: cx.asks.clone(),
            };
            let window = LineWindow { head: arguments.head, tail: arguments.tail };
            let mut done = follow_job(job, timeout, window, cx).await?;
            if arguments.pty == Some(true) {
                done.notes.insert(0, "[pty was ignored: the command had no terminal]".to_owned());
            }
            if matches!(done.end, CommandEnd::Exited(1..)) {
                done.notes.extend(cx.shells.sandbox().failure_hint(&done.shown.text, &cx.cwd));
            }
            done.into_result(timeout)
        })
    }
}

/// Outcome of a person's command, as reported to hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BashOutcome {
    /// Absent if it was stopped.
    pub exit_code: Option<i32>,
    /// True if it was stopped; a time-out is not that.
    pub cancelled: bool,
    /// True if it was stopped because it took too long.
    pub timed_out: bool,
    /// Output and error output, interleaved; the last 50 KiB of them.
    pub output: String,
    /// True if the beginning is missing in `output`.
    pub truncated: bool,
    /// Lines of the whole output; a trailing line end counts one more, and an empty output has none.
    pub total_lines: usize,
    /// Bytes of the whole output.
    pub total_bytes: u64,
    /// Lines of `output`, counted the same way.
    pub output_lines: usize,
    /// Bytes of `output`.
    pub output_bytes: usize,
    /// The file that holds the whole output, where it was too long and there is a folder for it.
    pub artifact: Option<PathBuf>,
}

/// Runs a command of a person in the session's shell, after the commands of a run.
///
/// *Cancellation*: `cx.cancel` stops it, which is an outcome; dropping the future kills it.
///
/// # Errors
/// [`CallFailure::NotBegun`] if no shell could be started, [`CallFailure::InDoubt`] if it broke off.
pub async fn execute_command(command: &str, cx: &ToolContext) -> Result<BashOutcome, CallFailure> {
    let job = ShellJob { command: command.to_owned(), ..ShellJob::default() };
    // Stopping runs does not stop a person's command.
    let cx = ToolContext { halt: CancellationToken::new(), ..cx.clone() };
    let done = follow_job(job, cx.bash_timeout, LineWindow::default(), &cx).await?;
    let ShownOutput { text, truncated, total_lines, total_bytes, artifact, .. } = done.shown;
    Ok(BashOutcome {
        exit_code: match done.end {
            CommandEnd::Exited(code) => Some(code),
            CommandEnd::Cancelled | CommandEnd::TimedOut => None,
        },
        cancelled: done.end == CommandEnd::Cancelled,
        timed_out: done.end == CommandEnd::TimedOut,
        truncated,
        total_lines,
        total_bytes,
        output_lines: text::count_lines(&text),
        output_bytes: text.len(),
        output: text,
        artifact,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommandEnd {
    Exited(i32),
    Cancelled,
    TimedOut,
}

/// A command that ended one way or another.
struct CompletedCommand {
    end: CommandEnd,
    shown: ShownOutput,
    notes: Vec<String>,
}

impl CompletedCommand {
    fn into_result(self, timeout: Duration) -> Result<CallOutput, CallFailure> {
        let mut text = self.shown.text.clone();
        if text.trim().is_empty() {
            "(no output)".clone_into(&mut text);
        }
        let mut paragraphs = self.notes;
        paragraphs.splice(0..0, self.shown.truncation_note());
        let is_error = self.end != CommandEnd::Exited(0);
        match self.end {
            CommandEnd::Exited(0) => {}
            // Exit code of a shell for SIGKILL, which the kernel sends if memory runs out.
            CommandEnd::Exited(code @ KILLED) => paragraphs.push(format!(
                "Command exited with code {code}: it was killed with SIGKILL, for example because memory ran out"
            )),
            CommandEnd::Exited(code) => paragraphs.push(format!("Command exited with code {code}")),
            CommandEnd::Cancelled => paragraphs.push("Command aborted".to_owned()),
            CommandEnd::TimedOut => {
                paragraphs.push(format!("Command timed out after {} seconds", timeout.as_secs_f64()))
            }
        }
        for paragraph in paragraphs {
            let gap = if text.ends_with('\n') { "\n" } else { "\n\n" };
            text.push_str(gap);
            text.push_str(&paragraph);
        }
        if self.end == CommandEnd::Cancelled {
            return Err(CallFailure::Cancelled(text));
        }
        Ok(CallOutput { is_error, ..CallOutput::from_text(text).with_details(self.shown.truncation_details()) })
    }
}

/// Runs `job` and follows it to its end, with updates on the way.
async fn follow_job(
    job: ShellJob,
    timeout: Duration,
    window: LineWindow,
    cx: &ToolContext,
) -> Result<CompletedCommand, CallFailure> {
    let mut collector = OutputCollector::new(window, cx.artifacts.clone());
    // Of every command: one without secrets may read a value that another left.
    let mut veiled = cx.secrets.redactor().redacting_stream();
    let mut running = tokio::select! {
        biased;
        () = cx.wait_stopped() => {
            return Ok(CompletedCommand { end: CommandEnd::Cancelled, shown: collector.finish().await, notes: Vec::new() });
        }
        running = cx.shells.run(job, &cx.cwd, &cx.environment) => running?,
    };
    let mut notes: Vec<String> = running.shell_loss().map(fresh_note).into_iter().collect();
    let (began, deadline) = (Instant::now(), sleep(timeout));
    tokio::pin!(deadline);
    let mut stopped = None;
    let mut last_update: Option<Instant> = None;
    let mut owed = false;
    let end = loop {
        let due = last_update.map_or_else(Instant::now, |last| last + PACE);
        tokio::select! {
            biased;
            () = cx.wait_stopped(), if stopped.is_none() => {
                stopped = Some(CommandEnd::Cancelled);
                running.stop().await;
            }
            () = &mut deadline, if stopped.is_none() => {
                // Time that people take for an answer is not the command's.
                let left = (began + timeout + cx.asks.time_waited()).saturating_duration_since(Instant::now());
                if !left.is_zero() {
                    deadline.as_mut().reset(Instant::now() + left.max(PACE));
                    continue;
                }
                stopped = Some(CommandEnd::TimedOut);
                running.stop().await;
            }
            () = sleep_until(due), if owed => {
                cx.updates.send_update(|| collector.partial_output());
                last_update = Some(Instant::now());
                owed = false;
            }
            event = running.next() => match event? {
                ShellEvent::Output(bytes) => {
                    collector.push(&veiled.push(&bytes)).await;
                    owed = cx.updates.has_listener();
                }
                // It was given nothing.
                ShellEvent::Taken(_) => {}
                ShellEvent::Exited(code) => break CommandEnd::Exited(code),
                ShellEvent::Stopped => break stopped.unwrap_or(CommandEnd::Cancelled),
            },
        }
    };
    collector.push(&veiled.finish()).await;
    notes.extend(running.take_notes());
    if running.shell_is_gone() {
        let place = running.next_cwd().unwrap_or(&cx.cwd).display().to_string();
        notes.push(format!(
            "[The shell ended with this command: the next one starts in a new shell in {place}, without the variables and functions of this one]"
        ));
    }
    Ok(CompletedCommand { end, shown: collector.finish().await, notes })
}

impl From<ShellError> for CallFailure {
    fn from(error: ShellError) -> Self {
        match &error {
            ShellError::Start(_) | ShellError::Moved(_) | ShellError::Sandbox(_) | ShellError::Changed(_) => {
                Self::NotBegun(error.to_string())
            }
            ShellError::Broken(source) => {
                Self::InDoubt(format!("{error}: {source}; the outcome of the command is unknown"))
            }
        }
    }
}

fn fresh_note(lost: ShellLoss) -> String {
    let why = match lost {
        ShellLoss::Stopped => "the previous command was stopped",
        ShellLoss::Exited => "the shell of the previous command ended",
    };
    format!("[This ran in a new shell, because {why}: earlier variables and functions are lost]")
}

fn command_folder(given: &str, cx: &ToolContext) -> Result<PathBuf, CallFailure> {
    let base = cx.pinned.as_deref().unwrap_or(&cx.cwd);
    let place =
        cx.roots.resolve_path(base, Path::new(given)).map_err(|error| CallFailure::NotBegun(error.to_string()))?;
    if place.path().is_dir() {
        Ok(place.path().to_owned())
    } else {
        Err(CallFailure::NotBegun(format!("cwd: {given} is not a folder")))
    }
}

#[cfg(test)]
mod tests;
