//! The calls that a node has in hand: each noted before it begins, and its end noted before anybody hears of it.
//!
//! It must not know connections: what came of a call is told to whoever listens, and stays in the journal.

use std::{sync::Arc, time::Instant};

use countersign_protocol::{
    RawJson,
    gsv::tool::{NoResultReason, ToolInvokeEvent, ToolResultParams},
};
use countersign_tools::node::NodeToolRunner;
use serde_json::{Map, Value};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

use super::journal::{Journal, Known};

/// How many calls are in hand at once.
pub(crate) const IN_HAND: usize = 256;
/// How many events of commands in the background may wait for the gateway.
const OUTBOX: usize = 2048;
/// The events that commands which run already may still have, and those that start now.
const COMING: usize = 256;

/// The calls. Clones share them.
#[derive(Clone)]
pub(crate) struct Calls {
    toolbox: Arc<NodeToolRunner>,
    journal: Journal,
    room: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
    tell: mpsc::UnboundedSender<ToolResultParams>,
}

impl Calls {
    /// None yet. What comes of calls goes to the receiver, each once.
    pub(crate) fn new(
        toolbox: Arc<NodeToolRunner>,
        journal: Journal,
    ) -> (Self, mpsc::UnboundedReceiver<ToolResultParams>) {
        // Bounded by how many calls there may be at once.
        let (tell, told) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(IN_HAND));
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        (Self { toolbox, journal, room, tasks, stop, tell }, told)
    }

    /// Begins a call, unless it is known already: then what is known of it is told.
    pub(crate) fn begin(&self, call: ToolInvokeEvent) {
        let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() else {
            let this = self.clone();
            self.tasks.spawn(async move {
                let told = format!("Not run: the node has {IN_HAND} calls in hand");
                if let Some(outcome) = this.turn_away(call.call_id, told).await {
                    this.tell(outcome);
                }
            });
            return;
        };
        let this = self.clone();
        self.tasks.spawn(async move {
            let outcome = this.work(call).await;
            drop(permit);
            if let Some(outcome) = outcome {
                this.tell(outcome);
            }
        });
    }

    /// Tells what became of a call that may have begun, now or when it ends.
    pub(crate) fn resume(&self, call: String) {
        let this = self.clone();
        self.tasks.spawn(async move {
            match this.journal.resume(&call).await {
                Ok(Known::Over(outcome)) => this.tell(outcome),
                Ok(Known::New | Known::Working) => {}
                // The gateway asks again over its next connection.
                Err(error) => warn!(%error, call, "what became of a call is not known now"),
            }
        });
    }

    /// What comes of a call; `None` if it works already and will tell itself.
    async fn work(&self, ToolInvokeEvent { call_id, tool, args }: ToolInvokeEvent) -> Option<ToolResultParams> {
        if self.stop.is_cancelled() {
            return self.turn_away(call_id, "Not run: the node ends".to_owned()).await;
        }
        if self.journal.waiting() + COMING > OUTBOX && (tool == "Bash" || tool == "Process") {
            let count = self.journal.waiting();
            let told =
                format!("Not run: {count} events of commands in the background wait for the gateway to take them");
            return self.turn_away(call_id, told).await;
        }
        let Ok(arguments) = args.decode_as::<Option<Map<String, Value>>>() else {
            return Some(refused(call_id, "Invalid arguments: they must be an object".to_owned()));
        };
        match self.journal.begin(&call_id, &tool).await {
            Ok(Known::New) => {}
            Ok(Known::Working) => return None,
            Ok(Known::Over(outcome)) => return Some(outcome),
            Err(error) => return Some(refused(call_id, format!("Not run: {error}"))),
        }
        let begun = Instant::now();
        let outcome = self.run(call_id, &tool, arguments.unwrap_or_default()).await;
        let (call, is_error) = (outcome.call_id.as_str(), outcome.error.is_some());
        let took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        info!(call, tool, took_ms, is_error, "a call is done");
        match self.journal.end(outcome.clone()).await {
            Ok(()) => Some(outcome),
            // Only where the process ends: the next one finds a call that broke off.
            Err(error) => {
                warn!(%error, call, "the end of a call is not noted");
                None
            }
        }
    }

    /// What is told of a call that cannot begin now, and never will under this id. One that is known has its own answer.
    async fn turn_away(&self, call: String, why: String) -> Option<ToolResultParams> {
        match self.journal.resume(&call).await {
            Ok(Known::Over(outcome)) if outcome.fate == Some(NoResultReason::NotBegun) => Some(refused(call, why)),
            Ok(Known::Over(outcome)) => Some(outcome),
            Ok(Known::New | Known::Working) => None,
            Err(_) => Some(refused(call, why)),
        }
    }

    async fn run(&self, call: String, tool: &str, arguments: Map<String, Value>) -> ToolResultParams {
        let (toolbox, stop) = (Arc::clone(&self.toolbox), self.stop.child_token());
        let (id, name) = (call.clone(), tool.to_owned());
        // In a task of its own, so that one that breaks off is told as well.
        let running = tokio::spawn(async move { toolbox.call(&id, &name, arguments, stop).await });
        let done = running.await.unwrap_or_else(|error| Err(format!("The tool broke off: {error}")));
        match done {
            Ok(result) => {
                ToolResultParams { call_id: call, result: Some(RawJson::from(result)), error: None, fate: None }
            }
            Err(error) => refused(call, error),
        }
    }

    /// Ends all of them and every command, and waits until that is noted.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        self.toolbox.end_commands().await;
        self.tasks.close();
        self.tasks.wait().await;
        self.journal.flush().await;
    }

    fn tell(&self, outcome: ToolResultParams) {
        // Nobody listens any more only when the process ends.
        let _ = self.tell.send(outcome);
    }
}

fn refused(call_id: String, error: String) -> ToolResultParams {
    ToolResultParams { call_id, result: None, error: Some(error), fate: None }
}
