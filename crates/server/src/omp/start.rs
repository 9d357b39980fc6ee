//! Starting the door: from flags, files and the environment to a session that is open.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use countersign_core::{
    id::EntryId,
    session::{Retry, Settings, Thresholds},
};
use countersign_runtime::{
    Clock,
    models::{Api, Entry, Model, Providers, catalogue, demo},
    tools::{self, EditMode, Registry, Roots},
};
use parking_lot::Mutex;
use serde_json::Value;
use tracing::info;

use super::{
    commands,
    door::{Door, Input, Output},
    flags::Flags,
    models, rules,
    seat::{Beginning, Seat, SeatError, Shelf, first_entries, read_file},
    unwritten,
    workshop::Common,
};
use crate::{
    agent_dir::{
        self, AgentDir, Choice, Environment, Keys, ModelsFile, Product, Roster,
        keys::variables,
        roster::{ChooseError, Wish},
    },
    paths,
    session_file::{Opened, find, name},
};

/// How the program around the door is started again, for the children that run commands.
pub struct Program {
    /// The binary.
    pub path: PathBuf,
}

/// Why the door did not open. The text is for a person.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(String);

impl StartError {
    fn new(problem: impl ToString) -> Self {
        Self(problem.to_string())
    }
}

/// What the door takes from the process and the machine around it. Whoever brings another time and other models drives it in process.
pub struct Surroundings {
    /// The variables that settings, keys and folders are read from. Commands of the agent inherit those of the process.
    pub environment: Environment,
    /// What starts the child that runs commands.
    pub launcher: tools::exec::Launcher,
    /// Where `now` comes from.
    pub clock: Clock,
    /// What reaches the models of every provider, the demo's apart.
    pub models: Arc<dyn Model>,
}

impl Surroundings {
    /// Those of this process: its variables, the machine's clock, providers over HTTP.
    pub fn of_process(program: &Program) -> Self {
        Self {
            environment: Environment::of_process(),
            launcher: tools::exec::Launcher::new(&program.path),
            clock: Clock::system(),
            models: Arc::new(Providers::default()),
        }
    }
}

/// How long deltas are gathered.
const MERGE: Duration = Duration::from_millis(50);

/// Opens the door and runs it until the host has gone or `stop` is ready. Notices for a person go to `notice`, one line each.
///
/// # Errors
/// [`StartError`], before anything was read or written.
pub async fn start(
    flags: Flags,
    program: Program,
    input: Input,
    output: Output,
    notice: impl Fn(&str),
    stop: impl Future<Output = ()>,
) -> Result<(), StartError> {
    start_in(flags, Surroundings::of_process(&program), input, output, notice, stop).await
}

/// As [`start`], with surroundings of one's own.
///
/// # Errors
/// [`StartError`], before anything was read or written.
pub async fn start_in(
    flags: Flags,
    surroundings: Surroundings,
    input: Input,
    output: Output,
    notice: impl Fn(&str),
    stop: impl Future<Output = ()>,
) -> Result<(), StartError> {
    let Surroundings { mut environment, launcher, clock, models } = surroundings;
    if let Some(file) = flags.files.first() {
        return Err(StartError(format!("{file}: files cannot be given on the command line in rpc mode")));
    }
    for not_run in &flags.not_run {
        notice(&format!("{not_run}: JavaScript extensions and hooks are not run"));
    }
    for unknown in &flags.unknown {
        notice(&format!("{unknown} is not a flag of this door and was ignored"));
    }
    let cwd = working_folder(&flags, &environment).map_err(StartError::new)?;
    let folder = AgentDir::resolve(Product::Omp, &environment, &cwd, Path::exists).map_err(StartError::new)?;
    for file in folder.env_files(&cwd) {
        environment.add_file(&file);
    }
    let settings = agent_dir::Settings::load(&folder, &cwd).map_err(StartError::new)?;
    let kept = flags.session_dir.as_deref().filter(|_| !flags.no_session);
    if let Some(dir) = kept.filter(|dir| holds(&cwd.join(dir), &cwd)) {
        let problem = "the working folder lies in it, and tools may not write where session files are";
        return Err(StartError(format!("--session-dir {}: {problem}", dir.display())));
    }
    let temporary = std::env::temp_dir();
    let loaded = rules::load(&folder, &cwd, flags.permissions.as_deref(), kept, &temporary).map_err(StartError::new)?;
    info!("commands of the agent have the rights of this user: there is no sandbox (docs/protocol/omp.md)");
    for warning in &loaded.warnings {
        notice(warning);
    }
    let mut roster = Roster::new(ModelsFile::load(&folder), Keys::new(environment), catalogue::builtin);
    for problem in roster.problems() {
        notice(problem);
    }
    let scoped = scope(&flags, &settings, &roster, &notice);
    let choice = initial(&flags, &settings, &mut roster, &scoped).map_err(StartError::new)?;

    let common = Arc::new(common(&flags, &settings, folder, roster, Kit { launcher, clock, models }, &cwd));
    let sessions = flags.session_dir.as_ref().map_or_else(
        || common.folder.sessions().join(name::folder(&cwd, common.folder.home(), &std::env::temp_dir())),
        |dir| cwd.join(dir),
    );
    let shelf = Shelf {
        common,
        rules: loaded.rules,
        folder: (!flags.no_session).then_some(sessions),
        cwd,
        merge: if flags.no_merge { Duration::ZERO } else { MERGE },
        reminders: if settings.todo_reminders.enabled { settings.todo_reminders.max } else { 0 },
    };
    let modes = [settings.steering_mode.clone(), settings.follow_up_mode.clone(), settings.interrupt_mode.clone()];
    let wanted = flags
        .thinking
        .clone()
        .or_else(|| choice.level.map(|level| level.as_str().to_owned()))
        .unwrap_or_else(|| settings.thinking_level.as_str().to_owned());
    let session = session_settings(&settings, &modes, &choice.entry, &wanted, shelf.reminders);
    let seat = open_seat(&flags, &shelf, session, &choice).await.map_err(StartError::new)?;
    let session = seat.id.clone();
    let level = seat.requests.read(move |engine| engine.state().session(&session)?.settings().thinking.clone()).await;
    let wanted = level.and_then(|(level, _)| level).unwrap_or(wanted);
    let mut door = Door::new(shelf, seat, output);
    door.modes = modes;
    door.scoped = scoped;
    door.wanted_level = Some(wanted);
    door.run(input, stop).await.map_err(StartError::new)
}

/// Whether `folder` is `inner` or above it.
fn holds(folder: &Path, inner: &Path) -> bool {
    paths::resolved(folder).zip(paths::resolved(inner)).is_some_and(|(folder, inner)| inner.starts_with(folder))
}

fn working_folder(flags: &Flags, environment: &Environment) -> std::io::Result<PathBuf> {
    let cwd = std::env::current_dir()?;
    let cwd = flags.cwd.as_ref().map_or_else(|| cwd.clone(), |named| cwd.join(named));
    let home = environment.get("HOME").map(PathBuf::from);
    if home.is_some_and(|home| home == cwd) && !flags.allow_home {
        let scratch = std::env::temp_dir().join("countersign-home");
        std::fs::create_dir_all(&scratch)?;
        return Ok(scratch);
    }
    Ok(cwd)
}

fn scope(flags: &Flags, settings: &agent_dir::Settings, roster: &Roster, notice: &impl Fn(&str)) -> Vec<Choice> {
    let named = if flags.models.is_empty() { &settings.enabled_models } else { &flags.models };
    let patterns: Vec<&str> = named.iter().map(String::as_str).collect();
    let (scoped, unmatched) = roster.scope(&patterns);
    for pattern in unmatched {
        notice(&format!("no usable model fits {pattern}"));
    }
    scoped
}

/// The model to begin with. A key from the command line is for its provider.
fn initial(
    flags: &Flags,
    settings: &agent_dir::Settings,
    roster: &mut Roster,
    scoped: &[Choice],
) -> Result<Choice, ChooseError> {
    let is_demo = flags.provider.as_deref() == Some(demo::PROVIDER)
        || flags.model.as_deref().is_some_and(|model| model.split('/').next() == Some(demo::PROVIDER));
    if is_demo {
        return Ok(Choice { entry: demo::entry(), level: None });
    }
    let wish = Wish {
        provider: flags.provider.as_deref(),
        model: flags.model.as_deref(),
        scoped,
        saved: settings.default_model(),
    };
    let choice = roster.initial(wish)?;
    if let Some(key) = &flags.api_key {
        roster.give_key(&choice.entry.provider, secrecy::SecretString::from(key.clone()));
    }
    if roster.credential(&choice.entry.provider).is_none() && choice.entry.api != Api::Demo {
        return Err(ChooseError::None);
    }
    Ok(choice)
}

/// What sessions work with and the flags do not say.
struct Kit {
    launcher: tools::exec::Launcher,
    clock: Clock,
    models: Arc<dyn Model>,
}

fn common(
    flags: &Flags,
    settings: &agent_dir::Settings,
    folder: AgentDir,
    roster: Roster,
    kit: Kit,
    cwd: &Path,
) -> Common {
    let mode = match settings.edit_mode {
        agent_dir::settings::EditMode::Replace => EditMode::Replace,
        agent_dir::settings::EditMode::Hashline => EditMode::Hashline,
        agent_dir::settings::EditMode::Patch => EditMode::Patch,
    };
    let registry = Registry::with_edit(mode);
    let registry = match (&flags.tools, flags.no_tools) {
        (_, true) => registry.only(&[]),
        (Some(names), false) => registry.only(&names.iter().map(String::as_str).collect::<Vec<_>>()),
        (None, false) => registry,
    };
    let withheld: BTreeSet<String> = variables().map(str::to_owned).chain(roster.key_variables()).collect();
    let kept = flags.session_dir.as_deref().filter(|_| !flags.no_session);
    let denied = rules::protected(&folder, cwd, flags.permissions.as_deref(), kept);
    Common {
        roster: Mutex::new(roster),
        models: kit.models,
        registry: Arc::new(registry),
        environment: tools::Environment::inherit_less(move |name| withheld.contains(name)),
        roots: Roots::whole(denied),
        launcher: kit.launcher,
        system_prompt: flags.system_prompt.clone(),
        append_system_prompt: flags.append_system_prompt.clone(),
        clock: kit.clock,
        bash_timeout: settings.ours.bash_timeout,
        edit_mode: mode,
        block_images: settings.block_images,
        folder,
    }
}

fn session_settings(
    settings: &agent_dir::Settings,
    modes: &[String; 3],
    entry: &Entry,
    wanted: &str,
    reminders: u32,
) -> Settings {
    let compaction = &settings.compaction;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 1 and 99")]
    let at_percent = compaction.threshold_percent.map(|percent| percent.clamp(1.0, 99.0) as u8);
    Settings {
        model: Some(models::reference(entry)),
        thinking: models::level(entry, Some(wanted)).map(|level| level.as_str().to_owned()),
        modes: commands::meaning(modes),
        retry: Retry {
            enabled: settings.retry.enabled,
            max: settings.retry.max_retries,
            base: settings.retry.base_delay,
        },
        thresholds: Thresholds {
            auto: compaction.enabled,
            reserve: compaction.reserve_tokens,
            keep_recent: compaction.keep_recent_tokens,
            at_tokens: compaction.threshold_tokens,
            at_percent,
        },
        approval_timeout: settings.ours.approval_timeout,
        clarify_timeout: settings.ours.clarify_timeout,
        todo_reminders: reminders,
        ..Settings::default()
    }
}

/// Opens the session that the flags name, or begins one.
async fn open_seat(flags: &Flags, shelf: &Shelf, settings: Settings, choice: &Choice) -> Result<Seat, String> {
    let Some(folder) = &shelf.folder else { return begin(shelf, settings).await };
    let sessions = shelf.common.folder.sessions();
    let named = |wanted: &str| find::named(wanted, &shelf.cwd, folder, Some(&sessions)).map(|found| found.path);
    if let Some(wanted) = &flags.fork {
        let path = named(wanted).ok_or_else(|| format!("{wanted}: there is no such session"))?;
        return fork(shelf, &path, settings).await;
    }
    let path = match &flags.resume {
        Some(wanted) => match named(wanted) {
            Some(path) => Some(path),
            None if find::is_path(wanted) => Some(shelf.cwd.join(wanted)),
            None => match unwritten::of_id(shelf, wanted).await {
                Some(path) => Some(path),
                None => return Err(format!("{wanted}: there is no such session")),
            },
        },
        None if flags.continues => shelf.newest().await,
        None => None,
    };
    let Some(path) = path else { return begin(shelf, settings).await };
    // A model that the command line names is stronger than the one that the session had.
    let is_named = flags.model.is_some() || flags.provider.is_some();
    let named_level = flags.thinking.clone().or_else(|| choice.level.map(|level| level.as_str().to_owned()));
    let restore = |settings: Settings, notes: &[(EntryId, String)]| {
        let level = named_level.or_else(|| last_level(notes)).or_else(|| settings.thinking.clone());
        let restored = restored(shelf, settings, notes);
        let model = restored.model.clone();
        let entry = model.and_then(|model| shelf.common.entry(&model.provider, &model.id));
        let entry = if is_named { Some(choice.entry.clone()) } else { entry };
        match entry {
            Some(entry) => with_model(restored, &entry, level.as_deref()),
            None => restored,
        }
    };
    let fallback = settings.clone();
    let opened = Seat::reopen(shelf, &path, move |_, notes| restore(settings, notes)).await;
    let opened = match opened {
        Err(SeatError::Copy(copy)) => return fork_of(shelf, copy, fallback).await,
        opened => opened.map_err(|error| error.to_string())?,
    };
    match opened {
        Some(seat) => Ok(seat),
        None => {
            let entries = first_entries(&fallback);
            let beginning = Beginning { path: Some(path), parent: None, settings: fallback, entries };
            Seat::begin(shelf, beginning).await.map_err(|error| error.to_string())
        }
    }
}

fn with_model(mut settings: Settings, entry: &Entry, thinking: Option<&str>) -> Settings {
    settings.model = Some(models::reference(entry));
    settings.thinking = models::level(entry, thinking).map(|level| level.as_str().to_owned());
    settings
}

async fn begin(shelf: &Shelf, settings: Settings) -> Result<Seat, String> {
    let entries = first_entries(&settings);
    let beginning = Beginning { path: None, parent: None, settings, entries };
    Seat::begin(shelf, beginning).await.map_err(|error| error.to_string())
}

/// A new session with the conversation of another, without its decisions.
async fn fork(shelf: &Shelf, path: &Path, settings: Settings) -> Result<Seat, String> {
    let opened = read_file(path).await.map_err(|error| error.to_string())?;
    let opened = opened.ok_or_else(|| format!("{}: there is no such session", path.display()))?;
    fork_of(shelf, opened, settings).await
}

/// A new session with the conversation of a file that was read.
pub(crate) async fn fork_of(shelf: &Shelf, opened: Arc<Opened>, settings: Settings) -> Result<Seat, String> {
    let parent = Some(opened.path.display().to_string());
    let blobs = shelf.blobs();
    let entries = tokio::task::spawn_blocking(move || {
        opened.file.entries.iter().map(|entry| super::entries::from_file(entry, &blobs)).collect()
    });
    let entries = entries.await.map_err(|error| error.to_string())?;
    let beginning = Beginning { path: None, parent, settings, entries };
    Seat::begin(shelf, beginning).await.map_err(|error| error.to_string())
}

/// The thinking level that a session had last.
fn last_level(notes: &[(EntryId, String)]) -> Option<String> {
    let mut values = notes.iter().rev().filter_map(|(_, text)| serde_json::from_str::<Value>(text).ok());
    values.find_map(|value| value.get("thinkingLevel")?.as_str().map(str::to_owned))
}

/// The settings of a session that is opened again: the model and the level that it had last, where they can still be had.
pub(crate) fn restored(shelf: &Shelf, mut settings: Settings, notes: &[(EntryId, String)]) -> Settings {
    let values: Vec<Value> = notes.iter().filter_map(|(_, text)| serde_json::from_str(text).ok()).collect();
    let last = |key: &str| values.iter().rev().find_map(|value| value.get(key)).and_then(Value::as_str);
    let model = last("model").and_then(|model| model.split_once('/'));
    let entry = model
        .and_then(|(provider, id)| shelf.common.entry(provider, id))
        .filter(|entry| entry.api == Api::Demo || shelf.common.roster.lock().credential(&entry.provider).is_some());
    let level = last("thinkingLevel").map(str::to_owned).or_else(|| settings.thinking.clone());
    if let Some(entry) = entry {
        settings = with_model(settings, &entry, level.as_deref());
    }
    settings
}
