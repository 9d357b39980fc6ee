//! Workspaces of the gateway's own runs: each session's shell and list of tasks, confined to its workspace.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use countersign_agent_dir::AgentDir;
use countersign_core::{id::SessionId, tool::ToolSpec};
use countersign_runtime::{
    Clock,
    tools::{
        AllowedRoots, CommandEnvironment, GatewaySecrets, Sandbox, SessionShell, TodoList, ToolContext, ToolRegistry,
        exec::ExecLauncher,
    },
};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::prompt;

/// Time for which an unused shell is kept.
const IDLE: Duration = Duration::from_secs(1800);

struct SessionWorkspace {
    shells: SessionShell,
    todos: TodoList,
    used: Instant,
}

/// The rooms of all sessions.
pub struct SessionWorkspaces {
    launcher: ExecLauncher,
    sandbox: Sandbox,
    environment: CommandEnvironment,
    secrets: GatewaySecrets,
    registry: Arc<ToolRegistry>,
    instructions: AgentDir,
    clock: Clock,
    rooms: Mutex<BTreeMap<SessionId, SessionWorkspace>>,
}

impl SessionWorkspaces {
    /// Makes workspaces with the program's own binary for commands, which `sandbox` holds and which may use `secrets`, and instructions of
    /// people from `folder`.
    pub fn new(program: &Path, sandbox: Sandbox, secrets: GatewaySecrets, folder: &Path, clock: Clock) -> Self {
        Self {
            launcher: ExecLauncher::new(program),
            environment: CommandEnvironment::clean_with([]),
            registry: Arc::new(ToolRegistry::standard().with_bash(&sandbox, secrets.clone())),
            sandbox,
            secrets,
            instructions: AgentDir::at_root(folder.to_owned()),
            clock,
            rooms: Mutex::default(),
        }
    }

    /// Returns the tools that runs have.
    pub fn registry(&self) -> &Arc<ToolRegistry> {
        &self.registry
    }

    /// Returns the system prompt.
    pub fn system_prompt(&self, cwd: &str, tools: &[&ToolSpec]) -> String {
        let tools: Vec<ToolSpec> = tools.iter().map(|spec| (*spec).clone()).collect();
        let facts = prompt::SystemPromptInput {
            folder: &self.instructions,
            cwd: cwd.as_ref(),
            now: self.clock.now(),
            tools: &tools,
            replace: None,
            append: None,
            reads_context_files: true,
        };
        let prompt = prompt::build_prompt(&facts, &prompt::DiskFiles);
        prompt.notices.iter().for_each(|notice| tracing::warn!("{notice}"));
        prompt.text
    }

    /// Returns the folders and limits for the tools of a session. A workspace that is gone confines them to nothing.
    pub fn tool_context(&self, session: &SessionId, cwd: &str) -> ToolContext {
        let (shells, todos) = self.workspace_tools(session);
        let roots = AllowedRoots::new(Path::new(cwd), []).unwrap_or_else(|error| {
            tracing::error!(%error, cwd, "cannot open the workspace of a session; its tools can access no files");
            AllowedRoots::whole_filesystem([PathBuf::from("/")])
        });
        let mut context = ToolContext::new(cwd.into(), roots, self.environment.clone(), shells);
        context.todos = todos;
        context.secrets = self.secrets.clone();
        context
    }

    fn workspace_tools(&self, session: &SessionId) -> (SessionShell, TodoList) {
        let now = Instant::now();
        let mut rooms = self.rooms.lock();
        // Dropping a shell ends its processes in the background.
        rooms.retain(|id, room| id == session || now.duration_since(room.used) < IDLE);
        let room = rooms.entry(session.clone()).or_insert_with(|| SessionWorkspace {
            shells: SessionShell::with_sandbox(self.launcher.clone(), self.sandbox.clone()),
            todos: TodoList::default(),
            used: now,
        });
        room.used = now;
        (room.shells.clone(), room.todos.clone())
    }

    /// Ends every shell, with everything that it started.
    pub async fn close(&self) {
        let rooms = std::mem::take(&mut *self.rooms.lock());
        for room in rooms.into_values() {
            room.shells.close().await;
        }
    }
}
