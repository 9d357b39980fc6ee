//! The current calls of a node: each noted before it begins, and its end noted before it is reported.
//!
//! It must not know connections: the outcome of a call goes to the current receiver, and stays in the journal.

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

use super::journal::{JournalHandle, JournaledCall};

/// Maximum number of calls at once.
pub(crate) const IN_HAND: usize = 256;
/// Maximum number of events of commands in the background that wait for the gateway.
const OUTBOX: usize = 2048;
/// The events that commands which run already may still have, and those that start now.
const COMING: usize = 256;

/// The calls. Clones share them.
#[derive(Clone)]
pub(crate) struct CallRunner {
    toolbox: Arc<NodeToolRunner>,
    journal: JournalHandle,
    room: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
    outcome_sender: mpsc::UnboundedSender<ToolResultParams>,
}

impl CallRunner {
    /// Creates it without calls. Outcomes of calls go to the receiver, each once.
    pub(crate) fn new(
        toolbox: Arc<NodeToolRunner>,
        journal: JournalHandle,
    ) -> (Self, mpsc::UnboundedReceiver<ToolResultParams>) {
        // Bounded by how many calls there may be at once.
        let (outcome_sender, outcome_receiver) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(IN_HAND));
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        (Self { toolbox, journal, room, tasks, stop, outcome_sender }, outcome_receiver)
    }

    /// Begins a call, unless it is known already: then its known state is reported.
    pub(crate) fn begin_call(&self, call: ToolInvokeEvent) {
        let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() else {
            let this = self.clone();
            self.tasks.spawn(async move {
                let reason = format!("Not run: the node has {IN_HAND} calls in hand");
                if let Some(outcome) = this.decline_call(call.call_id, reason).await {
                    this.send_outcome(outcome);
                }
            });
            return;
        };
        let this = self.clone();
        self.tasks.spawn(async move {
            let outcome = this.execute_call(call).await;
            drop(permit);
            if let Some(outcome) = outcome {
                this.send_outcome(outcome);
            }
        });
    }

    /// Tells what became of a call that may have begun, now or when it ends.
    pub(crate) fn resume_call(&self, call: String) {
        let this = self.clone();
        self.tasks.spawn(async move {
            match this.journal.resume_call(&call).await {
                Ok(JournaledCall::Over(outcome)) => this.send_outcome(outcome),
                Ok(JournaledCall::New | JournaledCall::Working) => {}
                // The gateway asks again over its next connection.
                Err(error) => warn!(%error, call, "cannot look up the outcome of a call"),
            }
        });
    }

    /// Returns the outcome of a call; `None` if it works already and will report by itself.
    async fn execute_call(&self, ToolInvokeEvent { call_id, tool, args }: ToolInvokeEvent) -> Option<ToolResultParams> {
        if self.stop.is_cancelled() {
            return self.decline_call(call_id, "Not run: the node ends".to_owned()).await;
        }
        if self.journal.waiting_count() + COMING > OUTBOX && (tool == "Bash" || tool == "Process") {
            let count = self.journal.waiting_count();
            let reason =
                format!("Not run: {count} events of commands in the background wait for the gateway to take them");
            return self.decline_call(call_id, reason).await;
        }
        let Ok(arguments) = args.decode_as::<Option<Map<String, Value>>>() else {
            return Some(refused_outcome(call_id, "Invalid arguments: they must be an object".to_owned()));
        };
        match self.journal.begin_call(&call_id, &tool).await {
            Ok(JournaledCall::New) => {}
            Ok(JournaledCall::Working) => return None,
            Ok(JournaledCall::Over(outcome)) => return Some(outcome),
            Err(error) => return Some(refused_outcome(call_id, format!("Not run: {error}"))),
        }
        let begun = Instant::now();
        let outcome = self.run(call_id, &tool, arguments.unwrap_or_default()).await;
        let (call, is_error) = (outcome.call_id.as_str(), outcome.error.is_some());
        let took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        info!(call, tool, took_ms, is_error, "call completed");
        match self.journal.end_call(outcome.clone()).await {
            Ok(()) => Some(outcome),
            // Only where the process ends: the next one finds a call that broke off.
            Err(error) => {
                warn!(%error, call, "cannot record the end of a call in the journal");
                None
            }
        }
    }

    /// Reports a call that cannot begin now, and never will under this id. One that is known has its own answer.
    async fn decline_call(&self, call: String, why: String) -> Option<ToolResultParams> {
        match self.journal.resume_call(&call).await {
            Ok(JournaledCall::Over(outcome)) if outcome.fate == Some(NoResultReason::NotBegun) => {
                Some(refused_outcome(call, why))
            }
            Ok(JournaledCall::Over(outcome)) => Some(outcome),
            Ok(JournaledCall::New | JournaledCall::Working) => None,
            Err(_) => Some(refused_outcome(call, why)),
        }
    }

    async fn run(&self, call: String, tool: &str, arguments: Map<String, Value>) -> ToolResultParams {
        let (toolbox, stop) = (Arc::clone(&self.toolbox), self.stop.child_token());
        let (id, name) = (call.clone(), tool.to_owned());
        // In a task of its own, so that a panic is reported as well.
        let running = tokio::spawn(async move { toolbox.call(&id, &name, arguments, stop).await });
        let done = running.await.unwrap_or_else(|error| Err(format!("The tool broke off: {error}")));
        match done {
            Ok(result) => {
                ToolResultParams { call_id: call, result: Some(RawJson::from(result)), error: None, fate: None }
            }
            Err(error) => refused_outcome(call, error),
        }
    }

    /// Ends all of them and every command, and waits until that is noted.
    pub(crate) async fn end_all(&self) {
        self.stop.cancel();
        self.toolbox.end_commands().await;
        self.tasks.close();
        self.tasks.wait().await;
        self.journal.flush().await;
    }

    fn send_outcome(&self, outcome: ToolResultParams) {
        // There is no receiver only when the process ends.
        let _ = self.outcome_sender.send(outcome);
    }
}

fn refused_outcome(call_id: String, error: String) -> ToolResultParams {
    ToolResultParams { call_id, result: None, error: Some(error), fate: None }
}
