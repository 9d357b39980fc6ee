//! The way out of commands that reach named hosts alone: a proxy of the gateway, one for each shell.
//!
//! It must not know shells or settings: it takes a listener and hosts. Only processes of the shell can connect, since no other
//! process is in the listener's network. Data in a tunnel is not read, and heads are not logged.

mod addresses;
mod head;
mod serve;

pub use addresses::is_ours;

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    net::TcpListener,
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{live_questions::CallQuestions, sandbox::HostPattern};
pub(crate) use serve::ASK;

/// Connections of one shell at a time. More wait until one ends.
const CONNECTIONS: usize = 64;
/// Most further connections of one shell that may wait for a person's answer at a time. Others are refused.
const WAITING: usize = 64;
/// Pause after a connection could not be accepted, before the next try.
const PAUSE: Duration = Duration::from_millis(100);
/// Most refused hosts of one call that are reported.
const MOST_NOTED: usize = 20;

/// A proxy that runs until this is dropped, and serves while a call runs.
#[derive(Debug)]
pub(crate) struct HostProxy {
    desk: CurrentCall,
    _task: AbortOnDropHandle<()>,
}

/// Call that runs, if one does.
#[derive(Clone, Debug, Default)]
struct CurrentCall(Arc<Mutex<Option<ServedCall>>>);

/// A call as its connections know it.
#[derive(Clone, Debug)]
struct ServedCall {
    call: Arc<str>,
    asks: CallQuestions,
    /// Report for each refused host, and whether a call may request it.
    refused: Arc<Mutex<BTreeMap<String, (String, bool)>>>,
    over: CancellationToken,
}

impl HostProxy {
    /// Answers `listener` for those who may reach `hosts`. Inside a Tokio runtime.
    pub(crate) fn start(listener: std::net::TcpListener, hosts: Vec<HostPattern>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let desk = CurrentCall::default();
        let task = tokio::spawn(accept_connections(listener, hosts.into(), desk.clone()));
        Ok(Self { desk, _task: AbortOnDropHandle::new(task) })
    }

    /// Connections from now on are those of `call`.
    pub(crate) fn begin_call(&self, call: &str, asks: CallQuestions) {
        let served = ServedCall { call: call.into(), asks, refused: Arc::default(), over: CancellationToken::new() };
        if let Some(before) = self.desk.lock_call().replace(served) {
            before.over.cancel();
        }
    }

    /// Closes every connection of the call, and returns the hosts that were refused to it, with true for those that another call
    /// may request.
    pub(crate) fn end_call(&self) -> BTreeMap<String, bool> {
        let Some(served) = self.desk.lock_call().take() else { return BTreeMap::new() };
        served.over.cancel();
        std::mem::take(&mut *served.lock_refused()).into_values().collect()
    }
}

impl Drop for HostProxy {
    fn drop(&mut self) {
        self.end_call();
    }
}

impl CurrentCall {
    fn lock_call(&self) -> MutexGuard<'_, Option<ServedCall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServedCall {
    fn lock_refused(&self) -> MutexGuard<'_, BTreeMap<String, (String, bool)>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a refusal, for the log and for the reader of the output.
    fn note_refused(&self, host: String, what: &str, may_ask: bool) {
        tracing::info!(call = %self.call, "refused a connection of a command: {what}");
        let mut refused = self.lock_refused();
        if refused.len() < MOST_NOTED || refused.contains_key(&host) {
            refused.insert(host, (what.to_owned(), may_ask));
        }
    }

    /// Notes the report on a host that is used if no other one is made until the call ends.
    fn note_unanswered(&self, host: String, what: String) {
        let mut refused = self.lock_refused();
        if refused.len() < MOST_NOTED {
            refused.entry(host).or_insert((what, true));
        }
    }

    /// Removes the report on a host that is reached.
    fn forget_refused(&self, host: &str) {
        self.lock_refused().remove(host);
    }
}

/// The place of one connection among those of its shell.
struct ConnectionSlot {
    seats: Arc<Semaphore>,
    rooms: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
}

impl ConnectionSlot {
    /// Gives the place to others until `answered` is there, for a person may take long; `None` if too many wait already.
    async fn leave_until<T>(&mut self, answered: impl Future<Output = T>) -> Option<T> {
        let _room = Arc::clone(&self.rooms).try_acquire_owned().ok()?;
        self.held = None;
        let answer = answered.await;
        self.held = Arc::clone(&self.seats).acquire_owned().await.ok();
        Some(answer)
    }
}

async fn accept_connections(listener: TcpListener, hosts: Arc<[HostPattern]>, desk: CurrentCall) {
    let (seats, rooms) = (Arc::new(Semaphore::new(CONNECTIONS)), Arc::new(Semaphore::new(WAITING)));
    let mut open = JoinSet::new();
    loop {
        let Ok(held) = Arc::clone(&seats).acquire_owned().await else { return };
        let taken = tokio::select! {
            taken = listener.accept() => taken,
            Some(_) = open.join_next() => continue,
        };
        let Ok((client, _)) = taken else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        // Processes left in the background have no call that was approved.
        let Some(served) = desk.lock_call().clone() else { continue };
        let hosts = Arc::clone(&hosts);
        let mut seat = ConnectionSlot { seats: Arc::clone(&seats), rooms: Arc::clone(&rooms), held: Some(held) };
        open.spawn(async move {
            let over = served.over.clone();
            over.run_until_cancelled(serve::serve_client(client, &hosts, &served, &mut seat)).await;
        });
    }
}

#[cfg(test)]
mod tests;
