//! Start of the adapter: from flags, files and the environment to a session that is open.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use countersign_agent_dir::{
    self as agent_dir, AgentDir, AgentProduct, ModelRoster, ModelsFile, ProcessEnvironment, ProviderKeys,
    keys::key_variables,
};
use countersign_config::RulesText;
use countersign_core::session::{RetryPolicy, Settings};
use countersign_files::paths;
use countersign_protocol::gjc::{
    bridge::TOKEN_VARIABLE,
    registry::{SessionRecord, SessionTransport},
};
use countersign_runtime::{
    Clock, SilentRetries,
    models::{LanguageModel, ProviderClient, catalogue},
    tools::{self, AllowedRoots, Sandbox, ToolRegistry},
};
use countersign_view::time;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use super::{
    adapter::{
        FrameSender, OmpAdapter,
        dialect::{ConfiguredDialect, ExtensionFactory},
    },
    client_input::{ClientInput, InputSource, LineReceiver},
    dialect_options::DialectOptions,
    event_sequence::{EarlierEvents, initial_sequence, record_sequence},
    flags::AdapterFlags,
    host_capabilities::HostCapabilities,
    model_scope::{initial_model, scope_models},
    question_settings, rights, rules, sandbox_settings,
    select_session::open_session,
    session_environment::{AdapterContext, edit_mode},
    session_listing::SessionListing,
    session_servers::{ServerContext, SessionServers},
    session_settings,
    session_store::{AttachTarget, SessionStore},
    start_error::StartError,
    working_dir,
};
use crate::session_file::name;

/// Program around the adapter, which is started again for the children that run commands.
pub struct ProgramInfo {
    /// The binary.
    pub path: PathBuf,
}

/// Process and machine around the adapter. A caller that brings another time and other models drives it in process.
pub struct ProcessContext {
    /// The variables that settings, keys and folders are read from. Commands of the agent inherit those of the process.
    pub environment: ProcessEnvironment,
    /// Launcher of the child that runs commands.
    pub launcher: tools::exec::ExecLauncher,
    /// Source of `now`.
    pub clock: Clock,
    /// Client of the models of every provider, the demo's apart.
    pub models: Arc<dyn LanguageModel>,
    /// The process that the host started.
    pub process: LaunchEnvironment,
}

/// Environment of a process from its parent, in addition to its arguments.
#[derive(Clone, Default)]
pub struct LaunchEnvironment {
    /// Its working folder.
    pub cwd: PathBuf,
    /// Its folder for temporary files.
    pub temporary: PathBuf,
    /// Its environment, which commands of the agent inherit, less keys.
    pub variables: Vec<(OsString, OsString)>,
}

impl LaunchEnvironment {
    /// Returns the program of this process.
    ///
    /// # Errors
    /// Error of the system for its working folder.
    pub fn from_current() -> std::io::Result<Self> {
        let cwd = std::env::current_dir()?;
        Ok(Self { cwd, temporary: std::env::temp_dir(), variables: std::env::vars_os().collect() })
    }
}

/// Request that a session live in a gateway.
pub(super) struct AttachRequest {
    pub(super) attach_target: AttachTarget,
    pub(super) rules: Vec<RulesText>,
}

impl ProcessContext {
    /// Returns the context of this process: its variables, the machine's clock, providers over HTTP.
    ///
    /// # Errors
    /// Error of the system for the working folder.
    pub fn from_process(program: &ProgramInfo) -> std::io::Result<Self> {
        Ok(Self {
            environment: ProcessEnvironment::of_process(),
            launcher: tools::exec::ExecLauncher::new(&program.path),
            clock: Clock::system(),
            models: Arc::new(ProviderClient::default()),
            process: LaunchEnvironment::from_current()?,
        })
    }
}

/// Time for which deltas are gathered.
const MERGE: Duration = Duration::from_millis(50);

/// Opens the adapter in surroundings of one's own and runs it until the host has gone or `stop` is ready. Notices for a person go to
/// `notice`, one line each.
///
/// # Errors
/// [`StartError`], before anything was read or written.
pub async fn start_in(
    flags: AdapterFlags,
    surroundings: ProcessContext,
    extend: ExtensionFactory,
    input: LineReceiver,
    output: FrameSender,
    notice: impl Fn(&str),
    stop: impl Future<Output = ()>,
) -> Result<(), StartError> {
    open_in(flags, surroundings, extend, None, output, notice).await?.run(input, stop).await
}

/// Opens the adapter, to be run.
///
/// # Errors
/// [`StartError`], before anything was read or written.
pub async fn open_adapter(
    flags: AdapterFlags,
    program: ProgramInfo,
    extend: ExtensionFactory,
    output: FrameSender,
    notice: impl Fn(&str),
) -> Result<OpenAdapter, StartError> {
    let surroundings = ProcessContext::from_process(&program).map_err(StartError::new)?;
    open_in(flags, surroundings, extend, None, output, notice).await
}

/// An adapter whose session is open.
pub struct OpenAdapter {
    adapter: OmpAdapter,
    /// `provider/id`, as the session began.
    model: Option<String>,
    /// Events of the session that earlier processes sent, if clients may request them.
    earlier_events: Option<EarlierEvents>,
}

impl OpenAdapter {
    /// Runs it until the host has gone or `stop` is ready.
    ///
    /// # Errors
    /// [`StartError`] if the session's log ended before that.
    pub async fn run(self, input: LineReceiver, stop: impl Future<Output = ()>) -> Result<(), StartError> {
        self.adapter.run(InputSource::Host(input), stop).await.map_err(StartError::new)
    }

    /// Runs it for clients that come and go until `stop` is ready.
    ///
    /// # Errors
    /// [`StartError`] if the session's log ended before that.
    pub async fn run_for(
        self,
        clients: mpsc::Receiver<ClientInput>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), StartError> {
        self.adapter.run(InputSource::Clients(clients), stop).await.map_err(StartError::new)
    }

    /// Returns a receiver of the id of the open session, updated when the host switches sessions.
    pub fn current_session(&self) -> watch::Receiver<String> {
        self.adapter.current.subscribe()
    }

    /// Returns the number of the last event that was sent.
    pub fn last_seq(&self) -> u64 {
        self.adapter.dialect.hooks.event_sequence(&self.adapter)
    }

    /// Takes the events of the session that earlier processes sent.
    pub fn take_earlier_events(&mut self) -> Option<EarlierEvents> {
        self.earlier_events.take()
    }

    /// Describes its session as other programs find it.
    pub fn session_listing(&self) -> SessionListing {
        SessionListing {
            agent_dir: self.adapter.store.common.folder.clone(),
            record: SessionRecord {
                session_id: self.adapter.current.borrow().clone(),
                pid: std::process::id(),
                transport: SessionTransport::Stdio,
                cwd: self.adapter.store.cwd.display().to_string(),
                model: self.model.clone(),
                started_at: time::format_iso(self.adapter.store.common.clock.now()),
                endpoint: None,
            },
            current: self.current_session(),
        }
    }

    /// Reports whether lines of its host that are not UTF-8 are read as well as they can be.
    pub(crate) fn reads_lossy(&self) -> bool {
        self.adapter.store.common.dialect.lossy_lines
    }

    /// Lists its session where other programs look for it, until what is returned is dropped.
    pub fn list_session(&self) -> Option<Box<dyn Send>> {
        self.adapter.dialect.hooks.list_session(self.session_listing())
    }

    /// Leaves without having taken input.
    pub async fn leave_session(mut self) {
        // There was no message in it.
        if let Some(seat) = self.adapter.seat.take() {
            let _ = seat.close().await;
        }
    }
}

/// Opens the adapter: from flags, files and the environment to a session, which `request` may have live in a gateway.
pub(super) async fn open_in(
    flags: AdapterFlags,
    surroundings: ProcessContext,
    extend: ExtensionFactory,
    request: Option<AttachRequest>,
    output: FrameSender,
    notice: impl Fn(&str),
) -> Result<OpenAdapter, StartError> {
    let ProcessContext { mut environment, launcher, clock, models, process } = surroundings;
    let begun = clock.now();
    if let Some(file) = flags.files.first() {
        return Err(StartError::new(format!("{file}: files cannot be given on the command line in rpc mode")));
    }
    flags.not_run.iter().for_each(|name| notice(&format!("{name}: JavaScript extensions and hooks are not run")));
    // Hosts of gjc pass what they like, and expect silence.
    for unknown in flags.unknown.iter().filter(|_| flags.product == AgentProduct::Omp) {
        notice(&format!("{unknown} is not a known flag and was ignored"));
    }
    let LaunchEnvironment { cwd, temporary, variables } = process;
    let cwd = working_dir::working_folder(&flags, &environment, cwd, &temporary).map_err(StartError::new)?;
    let folder = AgentDir::resolve(flags.product, &environment, &cwd, Path::exists).map_err(StartError::new)?;
    // A repository's `.env` must not choose values in the user's files of servers.
    let of_process = environment.clone();
    for file in folder.env_files(&cwd) {
        environment.add_file(&file);
    }
    let ConfiguredDialect { options, dialect } = extend(&flags, &environment).map_err(StartError::new)?;
    let overlays = flags.config_overlays(&environment);
    let mut settings = agent_dir::AgentSettings::load_with(&folder, &cwd, &overlays).map_err(StartError::new)?;
    rights::report_settings(&folder, &environment, &settings, &notice);
    if options.hosts_keep_tasks {
        settings.reset_for_hosts();
    }
    let kept = flags.session_dir.as_deref().filter(|_| !flags.no_session);
    if let Some(dir) = kept.filter(|dir| paths::contains_path(&cwd.join(dir), &cwd)) {
        let problem = "the working folder is inside it, and tools must not write next to session files";
        return Err(StartError::new(format!("--session-dir {}: {problem}", dir.display())));
    }
    let named = flags.permissions.as_deref();
    let (attach_target, files) = match request {
        Some(AttachRequest { attach_target, rules }) => (Some(attach_target), rules),
        None => (None, rules::read_rule_files(&folder, &cwd, named).map_err(StartError::new)?),
    };
    let place = rules::RulesContext {
        product: flags.product,
        folder: &folder,
        cwd: &cwd,
        named,
        sessions: kept,
        temporary: &temporary,
        gateway: attach_target.as_ref().map(|attach_target| &attach_target.server.path_context),
        asks: options.asking_tools,
        records: options.record_folders,
        restrictions: &settings.restrictions,
        approval: rights::approval_mode(&flags, &settings, &notice),
    };
    let loaded = rules::compile_rules(&files, &place).map_err(StartError::new)?;
    for warning in &loaded.warnings {
        notice(warning);
    }
    let mut roster =
        ModelRoster::new(ModelsFile::load(&folder), ProviderKeys::new(environment), catalogue::builtin_models)
            .with_restrictions(settings.restrictions.clone());
    for problem in roster.problems() {
        notice(problem);
    }
    let scoped = scope_models(&flags, &settings, &mut roster, &notice).map_err(StartError::new)?;
    let choice = initial_model(&flags, &settings, &mut roster, &scoped)
        .map_err(|error| StartError::new(error.text_for(&folder)))?;

    let of_gateway =
        attach_target.iter().flat_map(|attach_target| &attach_target.server.path_context.protected).map(PathBuf::from);
    let denied = rules::protected_paths(options.record_folders, &folder, &cwd, named, kept);
    let denied: Vec<PathBuf> = denied.into_iter().chain(of_gateway).collect();
    let sandbox = sandbox_settings::build_sandbox(&settings.ours.sandbox, &folder, &cwd, &denied);
    let started_by = attach_target.as_ref().map(|attach_target| attach_target.server.folder.clone());
    let server_context = ServerContext {
        folder: &folder,
        cwd: &cwd,
        launcher: &launcher,
        sandbox: sandbox_settings::build_server_sandbox(&settings.ours.sandbox, &folder, &cwd, &denied),
        secrets: folder.secrets(),
        clock: &clock,
        started_by: started_by.unwrap_or_else(|| folder.root().join("countersign")),
        door: flags.product.name(),
    };
    let servers = read_servers(&flags, &settings, &of_process, &server_context, &notice);
    let kit = ContextParts { launcher, sandbox, clock, models, variables, denied, dialect: options, servers };
    let common = Arc::new(build_context(&flags, &settings, folder, roster, kit, &notice)?);
    // A file may bring tasks to a model that has no tool for them; its host may keep the list itself.
    let can_tick = options.hosts_keep_tasks || common.registry.tool_specs().any(|spec| spec.name == "todo_write");
    let sessions = flags.session_dir.as_ref().map_or_else(
        || common.folder.sessions_dir().join(name::folder_name(&cwd, common.folder.home(), &temporary)),
        |dir| cwd.join(dir),
    );
    let session_store = SessionStore {
        common,
        rules: loaded.rules,
        folder: (!flags.no_session).then_some(sessions),
        cwd,
        merge: if flags.no_merge { Duration::ZERO } else { MERGE },
        reminders: if can_tick && settings.todo_reminders.enabled { settings.todo_reminders.max } else { 0 },
        temporary,
        attach_target,
    };
    let modes = [settings.steering_mode.clone(), settings.follow_up_mode.clone(), settings.interrupt_mode.clone()];
    let thinking_level = flags
        .thinking
        .clone()
        .or_else(|| choice.level.map(|level| level.as_str().to_owned()))
        .unwrap_or_else(|| settings.thinking_level.as_str().to_owned());
    let asking = question_settings::question_settings(&settings, &options);
    let session =
        session_settings::build_settings(&settings, &modes, &choice.entry, &thinking_level, session_store.reminders);
    // A host without dialogs may have no user who reads one: its setting bounds the wait.
    let retry = RetryPolicy { ask_beyond: flags.shows_dialogs(), ..session.retry };
    let session = Settings { asking, retry, ..session };
    let seat = open_session(&flags, &session_store, session, &choice).await?;
    let session = seat.id.clone();
    let found = seat.requests.read_state(move |engine| {
        let settings = engine.state().session(&session)?.settings();
        let model = settings.model.as_ref().map(|model| format!("{}/{}", model.provider, model.id));
        Some((settings.thinking.clone(), model, engine.state().session(&session)?.opened_at()))
    });
    let (level, model, opened) = found.await.and_then(|(found, _)| found).unwrap_or_default();
    let thinking_level = level.unwrap_or(thinking_level);
    let mut adapter = OmpAdapter::new(session_store, seat, dialect, output);
    adapter.modes = modes;
    adapter.scoped = scoped;
    adapter.requested_level = Some(thinking_level);
    if options.changing_clients {
        adapter.host_calls.expect_host();
    }
    let mut earlier_events = None;
    if options.lasting_numbers {
        let counted = initial_sequence(opened, begun, adapter.store.common.clock.now());
        adapter.dialect.hooks.continue_sequence(&mut adapter, counted);
        earlier_events = record_sequence(&mut adapter, counted).await.map_err(StartError::new)?;
    }
    Ok(OpenAdapter { adapter, model, earlier_events })
}

/// Returns the MCP servers that the files of the user and the project define, if sessions of the product start any.
fn read_servers(
    flags: &AdapterFlags,
    settings: &agent_dir::AgentSettings,
    environment: &ProcessEnvironment,
    context: &ServerContext<'_>,
    notice: &impl Fn(&str),
) -> SessionServers {
    // Hosts of gjc have MCP servers of their own.
    let is_usual = flags.product == AgentProduct::Omp;
    if !settings.ours.mcp.unwrap_or(is_usual) || flags.no_tools {
        return SessionServers::new(&agent_dir::McpServers::default(), context, notice);
    }
    let files = agent_dir::McpServers::load(context.folder, context.cwd, environment, settings.project_servers);
    files.problems.iter().for_each(|problem| notice(problem));
    SessionServers::new(&files, context, notice)
}

/// Settings of sessions that are not in the flags.
struct ContextParts {
    launcher: tools::exec::ExecLauncher,
    sandbox: Sandbox,
    clock: Clock,
    models: Arc<dyn LanguageModel>,
    variables: Vec<(OsString, OsString)>,
    /// Paths that no tool may write to.
    denied: Vec<PathBuf>,
    dialect: DialectOptions,
    servers: SessionServers,
}

fn build_context(
    flags: &AdapterFlags,
    settings: &agent_dir::AgentSettings,
    folder: AgentDir,
    roster: ModelRoster,
    kit: ContextParts,
    notice: &impl Fn(&str),
) -> Result<AdapterContext, StartError> {
    let mode = edit_mode(settings.edit_mode);
    let secrets = folder.secrets();
    let registry = ToolRegistry::with_edit(mode);
    let registry = if kit.dialect.workflow_tools { registry.with_workflow() } else { registry };
    let registry = rights::allowed_tools(flags, settings, &registry, notice).map_err(StartError::new)?;
    let withheld = key_variables().chain([TOKEN_VARIABLE]).map(str::to_owned);
    let withheld: BTreeSet<String> = withheld.chain(roster.key_variables()).collect();
    let registry = Arc::new(registry.with_bash(&kit.sandbox, secrets.clone()));
    let interceptor = settings.restrictions.interceptor(|tool| registry.get(tool).is_some());
    Ok(AdapterContext {
        product: flags.product,
        dialect: kit.dialect,
        roster: Mutex::new(roster),
        models: kit.models,
        host_capabilities: Arc::new(
            HostCapabilities::new(Arc::clone(&registry)).excluding_tools(flags.excluded_tools.clone()),
        ),
        registry,
        servers: Arc::new(kit.servers),
        is_tool_left: {
            let (flags, settings) = (flags.clone(), settings.clone());
            Box::new(move |name| rights::is_tool_left(&flags, &settings, name))
        },
        environment: tools::CommandEnvironment::inherit_from(kit.variables, move |name| withheld.contains(name)),
        roots: AllowedRoots::whole_filesystem(kit.denied),
        launcher: kit.launcher,
        sandbox: kit.sandbox,
        secrets,
        system_prompt: flags.system_prompt.clone(),
        append_system_prompt: flags.append_system_prompt.clone(),
        reads_context_files: !flags.no_context_files,
        reads_templates: !flags.no_templates,
        clock: kit.clock,
        bash_timeout: settings.ours.bash_timeout,
        bash_longest: settings.restrictions.longest,
        interceptor,
        edit_mode: mode,
        block_images: settings.restrictions.blocks_images,
        silence: settings.silence,
        silent_retries: SilentRetries { max: settings.retry.silent, ..SilentRetries::default() },
        folder,
    })
}
