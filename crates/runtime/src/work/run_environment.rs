//! Interface of work to the program around it.

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

/// A model that is ready for requests.
#[derive(Clone)]
pub struct ResolvedModel {
    /// Its entry in the catalogue.
    pub entry: Arc<ModelEntry>,
    /// The key, where its provider wants one.
    pub key: Option<SecretString>,
    /// Its client.
    pub model: Arc<dyn LanguageModel>,
}

/// Returns the facts about a model that the engine needs. Prices are rounded up; input is priced at its dearest.
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

/// Request to a model for memories of a conversation before a part of it is summed up.
#[derive(Clone, Debug)]
pub struct MemoryRequest {
    /// The system prompt.
    pub system: String,
    /// The request.
    pub request: String,
}

/// Progress of a request to a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceOutcome {
    /// The service did it. Its answer, as JSON text.
    Done(String),
    /// The service answered that it did not; the text is for the agent.
    Failed(String),
    /// Nothing left this machine; the text is for the agent.
    NotBegun(String),
    /// The request left, or may have, and no answer came. The service and the reason, for the agent and the log.
    InDoubt(String),
}

/// Environment that works for a session of this process.
pub enum EnvironmentFor {
    /// The environment whose method was called.
    Here,
    /// Another environment: the session has its own way of working.
    Other(Arc<dyn RunEnvironment>),
    /// An environment that is not there yet. Until then nothing of the session is begun.
    NotYet,
}

/// A firing of a job that has to be carried out.
#[derive(Clone, Debug)]
pub struct DueFiring {
    /// The job, as it is now.
    pub job: Job,
    /// The firing.
    pub firing: Firing,
    /// Next step of the firing.
    pub step: FiringStep,
}

impl DueFiring {
    /// Returns the id of the firing.
    pub fn id(&self) -> FiringId {
        FiringId { job: self.job.id().clone(), number: self.firing.number }
    }

    /// Returns the command that ends it badly, with the reason.
    pub fn failed_command(&self, why: impl Into<String>) -> schedule::Command {
        let outcome = FiringOutcome { error: Some(why.into()), summary: None };
        let ending = FiringResult { status: FiringStatus::Failed, reported: false, outcome };
        schedule::Command::End { firing: self.id(), ending }
    }
}

/// Models, tools and texts for the sessions of one owner. Nothing here may wait: the owner calls it on its own path to work.
///
/// # Example
///
/// ```
/// use std::{path::Path, sync::Arc};
///
/// use countersign_core::{id::SessionId, session::ModelRef, tool::ToolSpec};
/// use countersign_runtime::models::{demo, scripted::ScriptedModel};
/// use countersign_runtime::tools::{
///     AllowedRoots, CommandEnvironment, SessionShell, ToolContext, ToolRegistry, exec::ExecLauncher,
/// };
/// use countersign_runtime::{ResolvedModel, RunEnvironment, model_ref};
///
/// /// Every session has one model, and only tools that read.
/// struct ReadOnly(ScriptedModel);
///
/// impl RunEnvironment for ReadOnly {
///     fn resolve_model(&self, model: &ModelRef) -> Result<ResolvedModel, String> {
///         let entry = Arc::new(demo::model_entry());
///         if *model != model_ref(&entry) {
///             return Err(format!("unknown model {}", model.id));
///         }
///         Ok(ResolvedModel { entry, key: None, model: Arc::new(self.0.clone()) })
///     }
///
///     fn tool_registry(&self, _session: &SessionId) -> Arc<ToolRegistry> {
///         Arc::new(ToolRegistry::standard().only_named(&["read", "grep", "find", "ls"]))
///     }
///
///     fn system_prompt(&self, _session: &SessionId, cwd: &str, _tools: &[&ToolSpec]) -> String {
///         format!("You answer questions about the files in {cwd}.")
///     }
///
///     fn tool_context(&self, _session: &SessionId, cwd: &str) -> ToolContext {
///         let shell = SessionShell::new(ExecLauncher::new(Path::new("/bin/false")));
///         let environment = CommandEnvironment::clean_with([]);
///         ToolContext::new(cwd.into(), AllowedRoots::whole_filesystem([]), environment, shell)
///     }
/// }
///
/// let environment = ReadOnly(ScriptedModel::new([]));
/// let session = SessionId::new("s1");
/// assert!(environment.resolve_model(&model_ref(&demo::model_entry())).is_ok());
/// assert!(environment.tool_registry(&session).get("write").is_none());
/// assert_eq!(environment.no_tool(&session, "write"), "Tool write not found");
/// ```
pub trait RunEnvironment: Send + Sync + 'static {
    /// Reports whether this process may still begin effects. It is false at a node of a cluster whose lease has ended, for example because
    /// the process was stopped: another node owns the record then, and takes what was begun here for a call with an unknown outcome.
    fn may_act(&self) -> bool {
        true
    }

    /// Returns the environment of a session whose host brought its own models, tools and folders. None while the host is away, and
    /// then nothing of the session is begun.
    fn hosted_environment(&self, _session: &SessionId) -> Option<Arc<dyn RunEnvironment>> {
        None
    }

    /// Returns the environment of a session that no host brought, in this run if one works.
    fn environment_for(&self, _session: &SessionId, _run: Option<RunId>) -> EnvironmentFor {
        EnvironmentFor::Here
    }

    /// Finds a model, with its key.
    ///
    /// # Errors
    /// The reason why the model is not available, for people.
    fn resolve_model(&self, model: &ModelRef) -> Result<ResolvedModel, String>;

    /// Returns the models that people may choose for a session, the best first. `model` may be among them.
    fn usable_models(&self, _session: &SessionId, _model: &ModelRef) -> Vec<ModelRef> {
        Vec::new()
    }

    /// Returns the tools that runs of a session have.
    fn tool_registry(&self, session: &SessionId) -> Arc<ToolRegistry>;

    /// Returns the text for the model about a call of a tool that the session does not have.
    fn no_tool(&self, _session: &SessionId, name: &str) -> String {
        format!("Tool {name} not found")
    }

    /// Reports whether a model reads the results of a message in the order of its calls, and not in that in which they came.
    fn reads_in_order(&self, _session: &SessionId) -> bool {
        false
    }

    /// Writes the system prompt for a request that is sent now. It may read files: it is called outside the owner.
    fn system_prompt(&self, session: &SessionId, cwd: &str, tools: &[&ToolSpec]) -> String;

    /// Sends an agent's request to a service, with credentials that only the gateway holds.
    fn call_service<'a>(
        &'a self,
        content: &'a CallDetails,
        _cancel: CancellationToken,
    ) -> BoxFuture<'a, ServiceOutcome> {
        Box::pin(async move { ServiceOutcome::NotBegun(format!("Unknown tool: {}", content.tool)) })
    }

    /// Carries out a firing of a job: returns its message, or reports it to people. The returned command goes to the owner
    /// until it is recorded. Called again by another process, if this one ends before.
    fn fire_job<'a>(&'a self, fired: &'a DueFiring) -> BoxFuture<'a, schedule::Command> {
        Box::pin(async move { fired.failed_command("nothing is planned here") })
    }

    /// Returns the peers that do calls of its sessions.
    fn peer_registry(&self) -> PeerRegistry {
        PeerRegistry::default()
    }

    /// Returns the folders and limits in which tools of a session work.
    fn tool_context(&self, session: &SessionId, cwd: &str) -> ToolContext;

    /// Returns a picture that is kept outside the log, as base64: `_reference` stands for it in a message. None if it no longer exists.
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

    /// Returns the attempts at a request before a failure is reported.
    fn silent_retries(&self) -> SilentRetries {
        SilentRetries::default()
    }

    /// Returns who writes the requests for summaries, and puts the answers together.
    fn summary_prompts(&self) -> &dyn SummaryPrompts {
        &NoSummaries
    }

    /// Archives the messages that a compaction is about to take out of a session: everything before the entry `first_kept`.
    ///
    /// # Errors
    /// Why it cannot be kept. Nothing is taken out then.
    fn put_away<'a>(&'a self, _session: &'a SessionId, _first_kept: &'a EntryId) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    /// Returns the request for memories of messages that a compaction takes out; `None` if it takes none.
    fn memory_request(&self, _history: &[StoredMessage], _turn: &[StoredMessage]) -> Option<MemoryRequest> {
        None
    }

    /// Saves the text that the model wrote for [`RunEnvironment::memory_request`]. Called again for the same entry, it is there already.
    fn save_memories<'a>(&'a self, _first_kept: &'a EntryId, _text: String) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }
}
