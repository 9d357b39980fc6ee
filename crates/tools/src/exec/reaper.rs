//! Those whom a gateway takes in: what its commands left behind when even their exec child was gone. It ends them.
//!
//! Without that they would be children of the system's first process, and go on for ever although nobody could tell any more that an
//! agent runs them. It must not touch what this process started itself: whoever started that asks how it ended.

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

/// What passes between two looks at all processes, however many of them end.
const PAUSE: Duration = Duration::from_millis(50);

/// How often children are listed at most before all processes are.
const MOST_HOPS: usize = 1000;

/// What this process started and may still ask about.
static OWN: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Children that this process had before it was ours: whoever became it by an `exec` started them.
static BEFORE: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Whether a child of this process was there before [`take_in`].
pub(super) fn was_before(pid: i32) -> bool {
    lock_before().contains(&pid)
}

fn lock_before() -> MutexGuard<'static, BTreeSet<i32>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lock_own() -> MutexGuard<'static, BTreeSet<i32>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a process that [`bury`] leaves to whoever holds it. A process that takes others in starts all of its own here.
pub(crate) fn spawn_tracked(command: &mut Command) -> io::Result<Child> {
    // Held over the start: nobody may take for a stranger what ends before it is noted.
    let mut own = lock_own();
    let child = command.spawn()?;
    own.extend(child.id().map(u32::cast_signed));
    Ok(child)
}

/// Has every orphan among what this process starts, directly or not, become its child, and lets no process of the same user look into
/// this one: a command could read its keys, or have it act. To be called before it starts anything, and followed by [`bury`]. Children
/// that are there already are left alone: a wrapper that became this program started them.
///
/// # Errors
/// What the system says.
pub fn become_subreaper() -> io::Result<()> {
    mark::unmarked_limit();
    lock_before().extend(descendants::child_processes().into_iter().map(|child| child.pid.as_raw()));
    prctl::set_dumpable(false)?;
    Ok(prctl::set_child_subreaper(true)?)
}

/// Kills all that this process started or took in and that is there still, but for what was there before. For its end, when nobody asks
/// about any of it any more: an exec child that a command has stopped does not end by itself.
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

/// Kills those whom [`take_in`] made children of this process, and waits for them, for ever. Inside a Tokio runtime.
pub async fn reap() {
    if let Err(error) = until_refused().await {
        tracing::error!(%error, "what commands leave behind goes on until this process ends");
    }
}

async fn until_refused() -> io::Result<()> {
    let mut ends = signal(SignalKind::child())?;
    while ends.recv().await.is_some() {
        tokio::task::spawn_blocking(reap_strangers).await?;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Kills children again and again until none is left but those that are left alone. What goes from one process to the next, each with a
/// short life, has gone before a list of all processes tells of it; the list of children alone is read faster.
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
    // A number that nobody has belongs to nobody any more. That it is in no list would not say so: lists can fail.
    own.retain(|pid| kill(Pid::from_raw(*pid), None) != Err(Errno::ESRCH));
    kill_hoppers(|pid| own.contains(&pid) || was_before(pid));
    for child in descendants::child_processes() {
        if own.contains(&child.pid.as_raw()) {
            continue;
        }
        let pid = child.pid.as_raw();
        if was_before(pid) {
            // Its number may mean another as soon as somebody waited for it.
            if child.ended && lock_before().remove(&pid) {
                let _ = waitpid(child.pid, Some(WaitPidFlag::WNOHANG));
            }
            continue;
        }
        if !child.ended {
            // What hangs below it comes here in its turn.
            let _ = kill(child.pid, Signal::SIGKILL);
        }
        let _ = waitpid(child.pid, Some(WaitPidFlag::WNOHANG));
    }
}
