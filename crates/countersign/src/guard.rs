//! `guard` and `unguard`: the hooks of Countersign in the settings of other agents.

mod binary_owner;
mod codex_hooks;
mod opencode_plugin;
mod prove;
mod version;

use std::{
    io::Write as _,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use countersign_gateway::control::FILE;
use countersign_guard::{
    GuardError, GuardGrade, GuardPlaces, GuardPlan, GuardScope, GuardState, GuardedProgram, ProgramVersion, UndoNote,
    UndoOutcome, apply_guard, guard_state, manual_entries, plan_guard, undo_guard,
};
use countersign_view::{LineMode, escape, shell_quote};
use serde_json::json;
use similar::TextDiff;

use self::version::{check_version, installed_version};
use crate::{
    audit::OutputFormat,
    data_dir::DataDir,
    mcp_servers::confirm,
    user_service::{self, ServiceArgs},
};

/// Options of a guard.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GuardArgs {
    /// Install it in the settings of the machine, which the user cannot change (Claude Code, Codex, opencode; needs root)
    #[arg(long)]
    managed: bool,
    /// Print the change and make none
    #[arg(long)]
    dry_run: bool,
    /// Install it also if the program is missing, its version is not known to block calls when the hook fails, or users can replace our binary (--managed)
    #[arg(long)]
    accept_open: bool,
    /// Make the change without a question
    #[arg(long, short)]
    yes: bool,
}

/// What `guard` is about.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum GuardCommand {
    /// Guard Claude Code
    Claude(GuardArgs),
    /// Guard Codex
    ///
    /// Codex runs only hooks that its user trusts. This grants the trust: it writes the digest of the hooks, as the installed
    /// Codex computes it, into `config.toml`.
    Codex(GuardArgs),
    /// Guard Gemini CLI
    Gemini(GuardArgs),
    /// Guard Copilot CLI
    Copilot(GuardArgs),
    /// Guard opencode
    ///
    /// Adds a plugin that asks the gateway, and the rule that everything asks.
    Opencode(GuardArgs),
    /// Print which programs are guarded, how strongly, and what gets past
    Status,
    /// Prove a guard: the program attempts a call that must be blocked, with the gateway and without one
    ///
    /// The program runs with a scripted model on this machine and a home folder of its own, so that it needs no key and
    /// leaves nothing behind. The first run is without the guard, to show that the call would run.
    Prove {
        /// The program
        program: GuardedName,
    },
}

/// Program whose guard is taken away.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum GuardedName {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
    /// Gemini CLI
    Gemini,
    /// Copilot CLI
    Copilot,
    /// opencode
    Opencode,
}

impl From<GuardedName> for GuardedProgram {
    fn from(name: GuardedName) -> Self {
        match name {
            GuardedName::Claude => Self::Claude,
            GuardedName::Codex => Self::Codex,
            GuardedName::Gemini => Self::Gemini,
            GuardedName::Copilot => Self::Copilot,
            GuardedName::Opencode => Self::Opencode,
        }
    }
}

/// Installs a guard or the service of the user, or prints all guards.
pub(crate) fn run(
    what: Option<&GuardCommand>,
    service: ServiceArgs,
    data: &DataDir,
    config: Option<&Path>,
    form: OutputFormat,
) -> anyhow::Result<ExitCode> {
    let what = match what {
        Some(_) if service.is_given() => bail!("--service guards no program: leave one of them out"),
        Some(what) => what,
        None if service.is_given() => return user_service::install(service, &data.folder, config),
        None => bail!("name a program, status, prove or --service: see `countersign guard --help`"),
    };
    match what {
        GuardCommand::Claude(options) => guard_program(GuardedProgram::Claude, options, data),
        GuardCommand::Codex(options) => guard_program(GuardedProgram::Codex, options, data),
        GuardCommand::Opencode(options) => guard_program(GuardedProgram::Opencode, options, data),
        GuardCommand::Gemini(options) => guard_program(GuardedProgram::Gemini, options, data),
        GuardCommand::Copilot(options) => guard_program(GuardedProgram::Copilot, options, data),
        GuardCommand::Status => print_status(data, form),
        GuardCommand::Prove { program } => {
            prove::prove_guard((*program).into(), &places()?, is_running(data), &mut std::io::stdout().lock())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Takes the guard of a program away, or without a name the service of the user.
pub(crate) fn unguard(name: Option<GuardedName>) -> anyhow::Result<ExitCode> {
    let Some(name) = name else { return user_service::remove() };
    let program = GuardedProgram::from(name);
    let mut out = std::io::stdout().lock();
    let places = places()?;
    let outcomes = undo_guard(program, &places)?;
    for outcome in &outcomes {
        print_outcome(&mut out, program, outcome)?;
    }
    if outcomes.iter().any(UndoOutcome::is_incomplete) {
        bail!(
            "{0} is still guarded in part: remove what is left, then run `countersign unguard {0}` again",
            program.name()
        );
    }
    if let Ok(GuardState::Unrecorded { path, .. }) = guard_state(program, &places) {
        writeln!(out, "{} is still guarded in {}", program.title(), path.display())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_outcome(out: &mut impl std::io::Write, program: GuardedProgram, outcome: &UndoOutcome) -> std::io::Result<()> {
    let (path, notes) = match outcome {
        UndoOutcome::Restored { path } => {
            return writeln!(out, "{} is as it was before the guard of {}", path.display(), program.title());
        }
        UndoOutcome::Removed { path, notes } => (path, notes),
    };
    let verb = if outcome.is_incomplete() { "removed a part of" } else { "removed" };
    writeln!(out, "{verb} the guard of {} from {}, and kept everything else", program.title(), path.display())?;
    for note in notes {
        let (key, text) = match note {
            UndoNote::Gone(key) => (key, "was not there any more, or is not of the guard now: it is left as it is"),
            UndoNote::Edited(key) => (key, "was edited since, and is removed with these edits"),
            UndoNote::Left(key) => {
                (key, "still runs the hook, in a form that this command does not know: remove it yourself")
            }
            UndoNote::Unclear(key) => (key, "may be yours: it is left as it is"),
        };
        writeln!(out, "  {} {text}", escape(key, LineMode::One))?;
    }
    Ok(())
}

fn places() -> anyhow::Result<GuardPlaces> {
    GuardPlaces::from_environment(|name| std::env::var(name).ok()).context("HOME is not set")
}

fn guard_program(program: GuardedProgram, options: &GuardArgs, data: &DataDir) -> anyhow::Result<ExitCode> {
    let scope = if options.managed { GuardScope::Managed } else { GuardScope::User };
    let version = check_version(program, options.accept_open)?;
    if scope == GuardScope::Managed && program != GuardedProgram::Opencode && !options.accept_open {
        check_binary()?;
    }
    let places = places()?;
    let plan = complete_plan(program, scope, data, &places)?;
    print_plan(program, scope, &plan, version)?;
    if options.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let paths: Vec<String> = plan.files().map(|file| file.path().display().to_string()).collect();
    if !options.yes && !confirm(&format!("Change {}?", paths.join(" and ")))? {
        writeln!(std::io::stderr(), "nothing was changed")?;
        return Ok(ExitCode::FAILURE);
    }
    apply_guard(&plan, &places)?;
    let mut out = std::io::stdout().lock();
    if !prove::is_installed(program) {
        writeln!(out, "No proof: {} is not installed", program.name())?;
    } else if let Err(error) = prove::prove_guard(program, &places, is_running(data), &mut out) {
        undo_guard(program, &places)?;
        return Err(error.context(format!("{} is not guarded: the change was undone", program.title())));
    }
    writeln!(out, "{} is guarded. `countersign unguard {}` takes it away.", program.title(), program.name())?;
    if !is_running(data) {
        writeln!(
            out,
            "No gateway runs: {} can do nothing until one runs with the data directory {}: `{}`",
            program.title(),
            data.folder.display(),
            user_service::start_command(data),
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks that only root can replace our binary: a hook of the machine runs for users who must not switch it off.
fn check_binary() -> anyhow::Result<()> {
    let binary = std::env::current_exe().context("cannot find the path of this program")?;
    let part = binary_owner::replaceable_part(&binary).with_context(|| binary.display().to_string())?;
    let Some(part) = part else { return Ok(()) };
    bail!(
        "{} can be replaced by another user than root, and so can the hook {}: install countersign as root, for example in \
         /usr/local/bin, or accept it with --accept-open",
        part.display(),
        binary.display()
    )
}

/// Plans the guard of a program, with all files that it needs.
fn complete_plan(
    program: GuardedProgram,
    scope: GuardScope,
    data: &DataDir,
    places: &GuardPlaces,
) -> anyhow::Result<GuardPlan> {
    let plugin = places.opencode_plugin();
    let words = hook_words(program, data)?;
    let command = match program {
        GuardedProgram::Opencode => plugin.to_str().context("the state directory is not UTF-8")?.to_owned(),
        _ => words
            .iter()
            .map(|word| if word.starts_with("--") { word.clone() } else { shell_quote(word) })
            .collect::<Vec<_>>()
            .join(" "),
    };
    let mut plan = plan_guard(program, scope, &command, places)
        .map_err(|error| with_manual_entries(error, program, scope, &command, places))?;
    match (program, scope) {
        (GuardedProgram::Codex, GuardScope::User) => {
            let config = match std::fs::read_to_string(places.codex_folder().join("config.toml")) {
                Ok(text) => text,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
                Err(error) => return Err(error).context("config.toml of Codex"),
            };
            let command = GuardedProgram::blocking_command(&command);
            let trust = codex_hooks::find_trust(places, plan.settings().after(), &config, &command)?;
            plan.add_trust(&trust, places)?;
        }
        (GuardedProgram::Opencode, GuardScope::User) => plan.add_file(plugin, opencode_plugin::plugin_text(&words))?,
        _ => {}
    }
    Ok(plan)
}

/// Adds to the error about a settings file what its user can put there.
fn with_manual_entries(
    error: GuardError,
    program: GuardedProgram,
    scope: GuardScope,
    command: &str,
    places: &GuardPlaces,
) -> anyhow::Error {
    let entries = match (&error, manual_entries(program, scope, command, places)) {
        (GuardError::Settings { path, .. }, Ok((settings, entries))) if *path == settings => entries,
        _ => return error.into(),
    };
    let entries = entries.trim_end();
    match (program, scope) {
        // The plugin is a file of its own, which only this command writes.
        (GuardedProgram::Opencode, GuardScope::User) => {
            anyhow::anyhow!("{error}\nChange that, and run this command again. It adds:\n{entries}")
        }
        _ => {
            let trust = match (program, scope) {
                (GuardedProgram::Codex, GuardScope::User) => "\nThen trust the hooks in Codex, with `/hooks`.",
                _ => "",
            };
            anyhow::anyhow!(
                "{error}\nChange that and run this command again, or add these entries to those there:\n{entries}{trust}"
            )
        }
    }
}

/// Returns the words of the hook's command. It runs in any folder, so its paths are absolute.
fn hook_words(program: GuardedProgram, data: &DataDir) -> anyhow::Result<[String; 5]> {
    let binary = std::env::current_exe().context("cannot find the path of this program")?;
    let folder = std::path::absolute(&data.folder)?;
    let text = |path: &Path| -> anyhow::Result<String> {
        Ok(path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?.to_owned())
    };
    Ok([text(&binary)?, "hook".to_owned(), program.name().to_owned(), "--data".to_owned(), text(&folder)?])
}

fn print_plan(
    program: GuardedProgram,
    scope: GuardScope,
    plan: &GuardPlan,
    version: Option<ProgramVersion>,
) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let version = version.map(|version| format!(" {version}")).unwrap_or_default();
    writeln!(out, "Guard of {}{version}", program.title())?;
    for file in plan.files() {
        let path = file.path().display().to_string();
        let diff = TextDiff::from_lines(file.before(), file.after());
        let text = diff.unified_diff().header(&path, &path).to_string();
        writeln!(out, "{}", escape(text.trim_end(), LineMode::Many))?;
    }
    if plan.replaces_earlier() {
        writeln!(out, "It replaces the entries of an earlier guard, whose receipt is lost.")?;
    }
    if (program, scope) == (GuardedProgram::Codex, GuardScope::User) {
        writeln!(
            out,
            "The tables [hooks.state…] are your trust: without them Codex skips the hooks, without a message."
        )?;
    }
    print_grade(&mut out, program, scope)?;
    if !plan.own_allowances().is_empty() {
        writeln!(out, "Rules of {} that allow calls as soon as the hook is off:", program.title())?;
        for rule in plan.own_allowances() {
            writeln!(out, "  {}", escape(rule, LineMode::One))?;
        }
    }
    Ok(())
}

fn print_grade(out: &mut impl std::io::Write, program: GuardedProgram, scope: GuardScope) -> std::io::Result<()> {
    writeln!(out, "Grade: {}. These get past it:", grade_text(program.grade(scope)))?;
    program.gaps(scope).iter().try_for_each(|gap| writeln!(out, "  {gap}"))
}

const fn grade_text(grade: GuardGrade) -> &'static str {
    match grade {
        GuardGrade::Enforced => "enforced",
        GuardGrade::Cooperative => "cooperative",
    }
}

fn is_running(data: &DataDir) -> bool {
    UnixStream::connect(data.folder.join(FILE)).is_ok()
}

fn print_status(data: &DataDir, form: OutputFormat) -> anyhow::Result<ExitCode> {
    let places = places()?;
    let mut out = std::io::stdout().lock();
    let (mut rows, mut is_whole) = (Vec::new(), true);
    for program in GuardedProgram::ALL {
        let version = installed_version(program).map(|version| version.to_string());
        let (state, path, problem, scope): (&str, Option<PathBuf>, Option<String>, _) =
            match guard_state(program, &places) {
                Ok(GuardState::Absent) => ("not guarded", None, None, None),
                Ok(GuardState::Installed { path, scope }) => ("guarded", Some(path), None, Some(scope)),
                Ok(GuardState::Unrecorded { path, scope: GuardScope::Managed }) => {
                    ("guarded by the administrator", Some(path), None, Some(GuardScope::Managed))
                }
                Ok(GuardState::Unrecorded { path, scope }) => {
                    ("guarded, without a receipt", Some(path), None, Some(scope))
                }
                Ok(GuardState::Damaged { path, problem }) => ("damaged", Some(path), Some(problem), None),
                Err(error) => ("unknown", None, Some(error.to_string()), None),
            };
        is_whole &= problem.is_none();
        if form == OutputFormat::Json {
            rows.push(json!({
                "program": program.name(), "version": version, "state": state, "path": path, "problem": problem,
                "grade": scope.map(|scope| grade_text(program.grade(scope))),
                "gaps": scope.map(|scope| program.gaps(scope)),
            }));
            continue;
        }
        let unknown = if prove::is_installed(program) { "version unknown" } else { "not installed" };
        let version = version.unwrap_or_else(|| unknown.to_owned());
        writeln!(out, "{} ({version}): {state}", program.title())?;
        if let Some(path) = path {
            writeln!(out, "  in {}", path.display())?;
        }
        if let Some(problem) = problem {
            writeln!(out, "  {}", escape(&problem, LineMode::One))?;
        }
        if let Some(scope) = scope {
            print_grade(&mut out, program, scope)?;
        }
    }
    let running = is_running(data);
    match form {
        OutputFormat::Json => writeln!(out, "{}", json!({ "programs": rows, "gateway": running }))?,
        OutputFormat::Text if running => writeln!(out, "The gateway runs.")?,
        OutputFormat::Text => writeln!(out, "No gateway runs: guarded programs can do nothing.")?,
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
