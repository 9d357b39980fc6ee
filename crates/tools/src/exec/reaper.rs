//! Orphans that a gateway adopts: processes that its commands left when even their exec child was gone. It ends them.
//!
//! Without that they would be children of the system's first process, and run for ever, no longer recognisable as an agent's. It
//! must not touch processes that this process started itself: their starter waits for their end.

use std::{
    collections::BTreeSet,
    io,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::{
        prctl,
        signal::{Signal, kill},
        wait::{WaitPidFlag, waitpid},
    },
    unistd::Pid,
};
use tokio::{
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
};

use super::{descendants, mark};

/// Pause between two examinations of all processes, for any number of ended ones.
const PAUSE: Duration = Duration::from_millis(50);

/// Most listings of children before all processes are listed.
const MOST_HOPS: usize = 1000;

/// Processes that this process started and may still wait for.
static OWN: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Children that this process had before it ran our program: the process that became it by an `exec` started them.
static BEFORE: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Returns true if a child of this process existed before [`become_subreaper`].
pub(super) fn was_before(pid: i32) -> bool {
    lock_before().contains(&pid)
}

fn lock_before() -> MutexGuard<'static, BTreeSet<i32>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lock_own() -> MutexGuard<'static, BTreeSet<i32>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a process that [`reap`] leaves to its holder. A process that adopts orphans starts all of its own here.
pub(crate) fn spawn_tracked(command: &mut Command) -> io::Result<Child> {
    // Held over the start: a process that ends before it is noted must not be taken for an orphan.
    let mut own = lock_own();
    let child = command.spawn()?;
    own.extend(child.id().map(u32::cast_signed));
    Ok(child)
}

/// Makes every orphan among the processes that this one starts, directly or not, its child, and lets no process of the same user
/// look into this one: a command could read its keys, or have it act. To be called before it starts anything, and followed by
/// [`reap`]. Children that are there already are left alone: a wrapper that became this program started them.
///
/// # Errors
/// Errors of the system.
pub fn become_subreaper() -> io::Result<()> {
    mark::unmarked_limit();
    lock_before().extend(descendants::child_processes().into_iter().map(|child| child.pid.as_raw()));
    prctl::set_dumpable(false)?;
    Ok(prctl::set_child_subreaper(true)?)
}

/// Kills all remaining processes that this one started or adopted, except those that existed before. To be called at the end,
/// when none of them is waited for any more: an exec child that a command has stopped does not end by itself.
pub fn kill_remaining() {
    kill_hoppers(was_before);
    let started = Instant::now();
    while started.elapsed() < descendants::PATIENCE {
        let left: Vec<Pid> = descendants::child_processes()
            .into_iter()
            .filter(|child| !child.ended && !was_before(child.pid.as_raw()))
            .map(|child| child.pid)
            .collect();
        if left.is_empty() {
            return;
        }
        for pid in left {
            // It may have ended meanwhile. What hangs below it comes here in its turn.
            let _ = kill(pid, Signal::SIGKILL);
            let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Kills those whom [`become_subreaper`] made children of this process, and waits for them, for ever. Inside a Tokio runtime.
pub async fn reap() {
    if let Err(error) = until_refused().await {
        tracing::error!(%error, "cannot reap leftover processes of commands: they run until this process ends");
    }
}

async fn until_refused() -> io::Result<()> {
    let mut ends = signal(SignalKind::child())?;
    while ends.recv().await.is_some() {
        match tokio::task::spawn_blocking(reap_strangers).await {
            // The process ends, and kills the rest itself.
            Err(error) if error.is_cancelled() => return Ok(()),
            reaped => reaped?,
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Kills children repeatedly until only those that are left alone remain. Work that moves from one short-lived process to the
/// next is gone before it appears in a list of all processes; the list of children alone is read faster.
fn kill_hoppers(is_left_alone: impl Fn(i32) -> bool) {
    for _ in 0..MOST_HOPS {
        let mut strangers = descendants::named_as_children();
        strangers.retain(|pid| !is_left_alone(pid.as_raw()));
        if strangers.is_empty() {
            return;
        }
        for pid in strangers {
            // It may have ended meanwhile.
            let _ = kill(pid, Signal::SIGKILL);
            let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
        }
    }
}

fn reap_strangers() {
    let mut own = lock_own();
    // A number without a process can be forgotten. Absence from a list would not prove that: lists can fail.
    own.retain(|pid| kill(Pid::from_raw(*pid), None) != Err(Errno::ESRCH));
    kill_hoppers(|pid| own.contains(&pid) || was_before(pid));
    for child in descendants::child_processes() {
        if own.contains(&child.pid.as_raw()) {
            continue;
        }
        let pid = child.pid.as_raw();
        if was_before(pid) {
            // Its number may mean another process as soon as it was waited for.
            if child.ended && lock_before().remove(&pid) {
                let _ = waitpid(child.pid, Some(WaitPidFlag::WNOHANG));
            }
            continue;
        }
        if !child.ended {
            // Processes below it come here in their turn.
            let _ = kill(child.pid, Signal::SIGKILL);
        }
        let _ = waitpid(child.pid, Some(WaitPidFlag::WNOHANG));
    }
}
