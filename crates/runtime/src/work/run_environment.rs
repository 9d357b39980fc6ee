//! What work needs from the program around it.

use std::{sync::Arc, time::Duration};

use countersign_core::{
    FiringStep,
    call::CallDetails,
    id::{EntryId, RunId, SessionId},
    message::StoredMessage,
    schedule::{self, Firing, FiringId, FiringOutcome, FiringResult, FiringStatus, Job},
    session::{ModelPrice, ModelRef},
    tool::ToolSpec,
};
use countersign_models::{LanguageModel, ModelEntry, ModelFailure, SecretString};
use countersign_tools::{ToolContext, ToolRegistry};
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{
    silent_retries::SilentRetries,
    summary::{NoSummaries, SummaryPrompts},
};
use crate::peers::PeerRegistry;

/// A model that can be asked.
#[derive(Clone)]
pub struct ResolvedModel {
    /// What the catalogue says of it.
    pub entry: Arc<ModelEntry>,
    /// The key, where its provider wants one.
    pub key: Option<SecretString>,
    /// How it is asked.
    pub model: Arc<dyn LanguageModel>,
}

/// What the engine needs to know of a model. Prices are rounded up; what it reads is priced at its dearest.
pub fn model_ref(entry: &ModelEntry) -> ModelRef {
    let micros = |dollars: f64| (dollars * 1_000_000.0).ceil() as u64;
    let cost = &entry.cost;
    let price = ModelPrice { input: micros(cost.input.max(cost.cache_write)), output: micros(cost.output) };
    ModelRef {
        provider: entry.provider.clone(),
        id: entry.id.clone(),
        context_window: entry.context_window,
        max_tokens: entry.max_tokens,
        price: (price != ModelPrice::default()).then_some(price),
    }
}

/// What is asked of a model about a conversation before a part of it is summed up.
#[derive(Clone, Debug)]
pub struct MemoryRequest {
    /// The system prompt.
    pub system: String,
    /// The request.
    pub request: String,
}

/// How far a request to a service got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceOutcome {
    /// The service did it. Its answer, as JSON text.
    Done(String),
    /// The service answered that it did not. What the agent is told.
    Failed(String),
    /// Nothing left this machine. What the agent is told.
    NotBegun(String),
    /// The request left, or may have, and no answer came. Why, for the log.
    InDoubt(String),
}

/// Who works for a session of this process.
pub enum EnvironmentFor {
    /// Whoever is asked.
    Here,
    /// This host: the session has its own way of working.
    Other(Arc<dyn RunEnvironment>),
    /// Somebody who is not there yet. Until then nothing of the session is begun.
    NotYet,
}

/// A firing of a job that somebody has to see to.
#[derive(Clone, Debug)]
pub struct DueFiring {
    /// The job, as it is now.
    pub job: Job,
    /// The firing.
    pub firing: Firing,
    /// What it needs.
    pub step: FiringStep,
}

impl DueFiring {
    /// Which firing it is.
    pub fn id(&self) -> FiringId {
        FiringId { job: self.job.id().clone(), number: self.firing.number }
    }

    /// The command that ends it badly, and says why.
    pub fn failed_command(&self, why: impl Into<String>) -> schedule::Command {
        let outcome = FiringOutcome { error: Some(why.into()), summary: None };
        let ending = FiringResult { status: FiringStatus::Failed, reported: false, outcome };
        schedule::Command::End { firing: self.id(), ending }
    }
}

/// Models, tools and texts for the sessions of one owner. Nothing here may wait: it is asked on the owner's own path to work.
pub trait RunEnvironment: Send + Sync + 'static {
    /// What works for a session whose host brought its own: its models, its tools, its folders. None while it is away, and
    /// then nothing of the session is begun.
    fn hosted_environment(&self, _session: &SessionId) -> Option<Arc<dyn RunEnvironment>> {
        None
    }

    /// Who works for a session that no host brought, in this run if one works.
    fn environment_for(&self, _session: &SessionId, _run: Option<RunId>) -> EnvironmentFor {
        EnvironmentFor::Here
    }

    /// Finds a model, with its key.
    ///
    /// # Errors
    /// Why it cannot be asked, for people.
    fn resolve_model(&self, model: &ModelRef) -> Result<ResolvedModel, String>;

    /// The models that people may choose for a session, the best first. `model` may be among them.
    fn usable_models(&self, _session: &SessionId, _model: &ModelRef) -> Vec<ModelRef> {
        Vec::new()
    }

    /// The tools that runs of a session have.
    fn tool_registry(&self, session: &SessionId) -> Arc<ToolRegistry>;

    /// What the model is told of a call of a tool that the session does not have.
    fn no_tool(&self, _session: &SessionId, name: &str) -> String {
        format!("Tool {name} not found")
    }

    /// Whether a model reads the results of a message in the order of its calls, and not in that in which they came.
    fn reads_in_order(&self, _session: &SessionId) -> bool {
        false
    }

    /// Writes the system prompt for a request that is sent now. It may read files: it is asked outside the owner.
    fn system_prompt(&self, session: &SessionId, cwd: &str, tools: &[&ToolSpec]) -> String;

    /// Asks a service for what an agent requested, with credentials that only the gateway holds.
    fn call_service<'a>(
        &'a self,
        content: &'a CallDetails,
        _cancel: CancellationToken,
    ) -> BoxFuture<'a, ServiceOutcome> {
        Box::pin(async move { ServiceOutcome::NotBegun(format!("Unknown tool: {}", content.tool)) })
    }

    /// Sees to a firing of a job: what its message is, or that people are told of it. What it comes to is said to the owner
    /// until it is recorded. Asked again by another process, if this one ends before.
    fn fire_job<'a>(&'a self, fired: &'a DueFiring) -> BoxFuture<'a, schedule::Command> {
        Box::pin(async move { fired.failed_command("nothing is planned here") })
    }

    /// The peers that do calls of its sessions.
    fn peer_registry(&self) -> PeerRegistry {
        PeerRegistry::default()
    }

    /// Where tools of a session work.
    fn tool_context(&self, session: &SessionId, cwd: &str) -> ToolContext;

    /// A picture that lies beside the log, as base64: `reference` stands for it in a message. None if it is not there any more.
    fn load_picture<'a>(&'a self, _reference: &'a str) -> BoxFuture<'a, Option<String>> {
        Box::pin(async { None })
    }

    /// Returns how long a provider may send nothing of an answer before it counts as gone.
    fn silence_timeout(&self) -> Duration {
        Duration::from_secs(120)
    }

    /// Returns whether a request of a run is sent again after `failure`, silently or visibly. Another one ends the run.
    fn may_retry(&self, failure: &ModelFailure) -> bool {
        failure.kind.is_retryable()
    }

    /// Returns which attempts there are at a request before anybody is told of a failure.
    fn silent_retries(&self) -> SilentRetries {
        SilentRetries::default()
    }

    /// Returns who writes the requests for summaries, and puts the answers together.
    fn summary_prompts(&self) -> &dyn SummaryPrompts {
        &NoSummaries
    }

    /// Keeps what a compaction is about to take out of a session: everything before the entry `first_kept`.
    ///
    /// # Errors
    /// Why it cannot be kept. Nothing is taken out then.
    fn put_away<'a>(&'a self, _session: &'a SessionId, _first_kept: &'a EntryId) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    /// The request for what should be remembered of messages that a compaction takes out; `None` where nothing is.
    fn memory_request(&self, _history: &[StoredMessage], _turn: &[StoredMessage]) -> Option<MemoryRequest> {
        None
    }

    /// Keeps what the model wrote for [`Host::memories`]. Asked once more for the same entry, it is there already.
    fn save_memories<'a>(&'a self, _first_kept: &'a EntryId, _text: String) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }
}
