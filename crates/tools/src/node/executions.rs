//! The commands of a node: how many there are at once, which still run, and which ended a while ago.
//!
//! It must not know how a command is asked for.

use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::execution::{Begun, Execution, Occurrence, now};
use crate::{
    environment::Environment,
    exec::Launcher,
    shell::{Job, Shells},
};

/// How many commands run at once.
const AT_ONCE: usize = 64;
/// How many that ended are remembered.
const REMEMBERED: usize = 64;
/// How long one that ended is remembered, in milliseconds.
const REMEMBERED_FOR: u64 = 30 * 60 * 1000;

/// Who hears what becomes of commands in the background.
#[derive(Clone)]
pub struct Teller(Arc<dyn Fn(Occurrence) + Send + Sync>);

impl Teller {
    /// Hands every occurrence to `listener`, in the order of each command. It must not block.
    pub fn new(listener: impl Fn(Occurrence) + Send + Sync + 'static) -> Self {
        Self(Arc::new(listener))
    }

    pub(super) fn tell(&self, occurrence: Occurrence) {
        (self.0)(occurrence);
    }
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Teller")
    }
}

/// The commands. Clones share them.
#[derive(Clone, Debug)]
pub struct Executions(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    launcher: Launcher,
    environment: Environment,
    tell: Teller,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    all: BTreeMap<String, Arc<Execution>>,
    /// Commands that are about to start.
    starting: usize,
    closed: bool,
}

/// What a command is to be.
pub(super) struct Wanted {
    pub(super) call: String,
    pub(super) command: String,
    /// Resolved and there.
    pub(super) workdir: PathBuf,
    pub(super) timeout: Option<Duration>,
    /// Whether it can be given something to read.
    pub(super) input: bool,
}

impl Executions {
    pub(super) fn new(launcher: Launcher, environment: Environment, tell: Teller) -> Self {
        Self(Arc::new(Inner { launcher, environment, tell, table: Mutex::default() }))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a command.
    pub(super) async fn start(&self, wanted: Wanted) -> Result<Arc<Execution>, String> {
        let Wanted { call, command, workdir, timeout, input } = wanted;
        let _start = Start::of(self)?;
        let id = new_id()?;
        let shells = Shells::new(self.0.launcher.clone());
        let job = Job { command: command.clone(), input, ..Job::default() };
        let running =
            shells.run(job, &workdir, &self.0.environment).await.map_err(|error| format!("not run: {error}"))?;
        let begun = Begun { id, call, command, workdir };
        let execution = Execution::follow(begun, running, shells, timeout, self.0.tell.clone());
        if !self.enter(&execution) {
            execution.stop().await;
        }
        Ok(execution)
    }

    /// Lists a command. False if all of them end.
    fn enter(&self, execution: &Arc<Execution>) -> bool {
        let mut table = self.table();
        table.all.insert(execution.id.clone(), Arc::clone(execution));
        !table.closed
    }

    /// Has a command go on in the background. False if it has ended.
    pub(super) fn leave(&self, execution: &Execution) -> bool {
        execution.leave(&self.0.tell)
    }

    /// Forgets a command that ended before anybody could ask about it.
    pub(super) fn forget(&self, execution: &Execution) {
        self.table().all.remove(&execution.id);
    }

    /// The command of this name.
    pub(super) fn get(&self, id: &str) -> Option<Arc<Execution>> {
        let mut table = self.table();
        table.prune();
        table.all.get(id).cloned()
    }

    /// All in the background and those that ended a while ago, the newest first.
    pub(super) fn list(&self) -> Vec<Arc<Execution>> {
        let mut table = self.table();
        table.prune();
        let mut all: Vec<_> = table.all.values().filter(|one| one.in_background()).cloned().collect();
        all.sort_by(|left, right| right.started_at.cmp(&left.started_at).then_with(|| left.id.cmp(&right.id)));
        all
    }

    /// Ends all of them, starts none any more, and waits until they are over.
    pub(super) async fn end(&self) {
        let all: Vec<_> = {
            let mut table = self.table();
            table.closed = true;
            table.all.values().cloned().collect()
        };
        for execution in &all {
            execution.stop().await;
        }
        for execution in &all {
            execution.ended().await;
        }
    }
}

impl Table {
    /// Forgets what ended long ago, and the oldest of what ended where that is more than is remembered.
    fn prune(&mut self) {
        let since = now().saturating_sub(REMEMBERED_FOR);
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

    fn running(&self) -> usize {
        self.all.values().filter(|one| one.ended_at().is_none()).count()
    }
}

/// A place among those that run, while a command starts.
struct Start<'a>(&'a Executions);

impl<'a> Start<'a> {
    fn of(executions: &'a Executions) -> Result<Self, String> {
        let mut table = executions.table();
        if table.closed {
            return Err("not run: the node ends".to_owned());
        }
        table.prune();
        if table.running() + table.starting >= AT_ONCE {
            return Err(format!(
                "not run: {AT_ONCE} commands run already; Process lists those in the background and ends them"
            ));
        }
        table.starting += 1;
        drop(table);
        Ok(Self(executions))
    }
}

impl Drop for Start<'_> {
    fn drop(&mut self) {
        self.0.table().starting -= 1;
    }
}

fn new_id() -> Result<String, String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| format!("not run: no random numbers: {error}"))?;
    Ok(hex::encode(random))
}
