//! The commands of a node: their limit, the running ones, and those that ended recently.
//!
//! It must not know how a command is requested.

use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::execution::{ExecutionEvent, ExecutionSpec, NodeExecution, now_millis};
use crate::{
    environment::CommandEnvironment,
    exec::ExecLauncher,
    shell::{SessionShell, ShellJob},
};

/// Most commands that run at once.
const AT_ONCE: usize = 64;
/// Most ended commands that are remembered.
const REMEMBERED: usize = 64;
/// Time for which an ended command is remembered, in milliseconds.
const REMEMBERED_FOR: u64 = 30 * 60 * 1000;

/// Listener for the events of commands in the background.
#[derive(Clone)]
pub struct ExecutionListener(Arc<dyn Fn(ExecutionEvent) + Send + Sync>);

impl ExecutionListener {
    /// Hands every occurrence to `listener`, in the order of each command. It must not block.
    pub fn new(listener: impl Fn(ExecutionEvent) + Send + Sync + 'static) -> Self {
        Self(Arc::new(listener))
    }

    pub(super) fn send_event(&self, occurrence: ExecutionEvent) {
        (self.0)(occurrence);
    }
}

impl fmt::Debug for ExecutionListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExecutionListener")
    }
}

/// The commands. Clones share them.
#[derive(Clone, Debug)]
pub struct NodeExecutions(Arc<ExecutionsInner>);

#[derive(Debug)]
struct ExecutionsInner {
    launcher: ExecLauncher,
    environment: CommandEnvironment,
    tell: ExecutionListener,
    table: Mutex<ExecutionTable>,
}

#[derive(Debug, Default)]
struct ExecutionTable {
    all: BTreeMap<String, Arc<NodeExecution>>,
    /// Commands that are about to start.
    starting: usize,
    closed: bool,
}

/// Request for a command.
pub(super) struct CommandRequest {
    pub(super) call: String,
    pub(super) command: String,
    /// Resolved and there.
    pub(super) workdir: PathBuf,
    pub(super) timeout: Option<Duration>,
    /// True if it can be given input.
    pub(super) input: bool,
}

impl NodeExecutions {
    pub(super) fn new(launcher: ExecLauncher, environment: CommandEnvironment, tell: ExecutionListener) -> Self {
        Self(Arc::new(ExecutionsInner { launcher, environment, tell, table: Mutex::default() }))
    }

    fn lock_table(&self) -> MutexGuard<'_, ExecutionTable> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a command.
    pub(super) async fn start(&self, request: CommandRequest) -> Result<Arc<NodeExecution>, String> {
        let CommandRequest { call, command, workdir, timeout, input } = request;
        let _start = StartPermit::acquire_from(self)?;
        let id = new_id()?;
        let shells = SessionShell::new(self.0.launcher.clone());
        let job = ShellJob { command: command.clone(), input, ..ShellJob::default() };
        let running =
            shells.run(job, &workdir, &self.0.environment).await.map_err(|error| format!("not run: {error}"))?;
        let begun = ExecutionSpec { id, call, command, workdir };
        let execution = NodeExecution::start_following(begun, running, shells, timeout, self.0.tell.clone());
        if !self.insert_execution(&execution) {
            execution.stop().await;
        }
        Ok(execution)
    }

    /// Lists a command. False if all of them end.
    fn insert_execution(&self, execution: &Arc<NodeExecution>) -> bool {
        let mut table = self.lock_table();
        table.all.insert(execution.id.clone(), Arc::clone(execution));
        !table.closed
    }

    /// Moves a command to the background. False if it has ended.
    pub(super) fn move_to_background(&self, execution: &NodeExecution) -> bool {
        execution.move_to_background(&self.0.tell)
    }

    /// Forgets a command that ended before a caller could ask about it.
    pub(super) fn forget_execution(&self, execution: &NodeExecution) {
        self.lock_table().all.remove(&execution.id);
    }

    /// Returns the command of this id.
    pub(super) fn get(&self, id: &str) -> Option<Arc<NodeExecution>> {
        let mut table = self.lock_table();
        table.prune_ended();
        table.all.get(id).cloned()
    }

    /// Returns all commands in the background and those that ended recently, the newest first.
    pub(super) fn list_background(&self) -> Vec<Arc<NodeExecution>> {
        let mut table = self.lock_table();
        table.prune_ended();
        let mut all: Vec<_> = table.all.values().filter(|one| one.in_background()).cloned().collect();
        all.sort_by(|left, right| right.started_at.cmp(&left.started_at).then_with(|| left.id.cmp(&right.id)));
        all
    }

    /// Ends all of them, starts none any more, and waits until they are over.
    pub(super) async fn end_all(&self) {
        let all: Vec<_> = {
            let mut table = self.lock_table();
            table.closed = true;
            table.all.values().cloned().collect()
        };
        for execution in &all {
            execution.stop().await;
        }
        for execution in &all {
            execution.wait_ended().await;
        }
    }
}

impl ExecutionTable {
    /// Forgets what ended long ago, and the oldest of what ended where that is more than is remembered.
    fn prune_ended(&mut self) {
        let since = now_millis().saturating_sub(REMEMBERED_FOR);
        let mut ended: Vec<(u64, String)> =
            self.all.values().filter_map(|one| Some((one.ended_at()?, one.id.clone()))).collect();
        ended.sort();
        let surplus = ended.len().saturating_sub(REMEMBERED);
        for (at, (ended_at, id)) in ended.into_iter().enumerate() {
            if at < surplus || ended_at < since {
                self.all.remove(&id);
            }
        }
    }

    fn running_count(&self) -> usize {
        self.all.values().filter(|one| one.ended_at().is_none()).count()
    }
}

/// A place among those that run, while a command starts.
struct StartPermit<'a>(&'a NodeExecutions);

impl<'a> StartPermit<'a> {
    fn acquire_from(executions: &'a NodeExecutions) -> Result<Self, String> {
        let mut table = executions.lock_table();
        if table.closed {
            return Err("not run: the node is shutting down".to_owned());
        }
        table.prune_ended();
        if table.running_count() + table.starting >= AT_ONCE {
            return Err(format!(
                "not run: {AT_ONCE} commands are running already; use Process to list and kill those in the background"
            ));
        }
        table.starting += 1;
        drop(table);
        Ok(Self(executions))
    }
}

impl Drop for StartPermit<'_> {
    fn drop(&mut self) {
        self.0.lock_table().starting -= 1;
    }
}

fn new_id() -> Result<String, String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| format!("not run: cannot generate an id: {error}"))?;
    Ok(hex::encode(random))
}
