//! Environment of the runs of a session: models, tools, prompts.

use std::{path::PathBuf, sync::Arc, time::Duration};

use countersign_agent_dir::{AgentDir, AgentProduct, ModelRoster, keys::ProviderCredential, settings};
use countersign_conversations::prompt::{self, compaction::CompactionPrompts};
use countersign_core::{call::CallDetails, id::SessionId, session::ModelRef, tool::ToolSpec};
use countersign_runtime::{
    Clock, PeerRegistry, ResolvedModel, RunEnvironment, ServiceOutcome, SilentRetries, SummaryPrompts, model_ref,
    models::{
        self, FailureKind, InputModality, LanguageModel, MessagePart, ModelApi, ModelEntry, ModelEvent, ModelFailure,
        ModelRequest, demo,
    },
    tools::{
        self, AllowedRoots, CommandEnvironment, CommandInterceptor, EditFormat, GatewaySecrets, Sandbox, SessionShell,
        TodoList, ToolContext, ToolRegistry,
    },
};
use futures_util::{
    StreamExt as _,
    future::{self, BoxFuture},
    stream::{self, BoxStream},
};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    dialect_options::DialectOptions,
    host_capabilities::HostCapabilities,
    session_servers::{SessionServers, requesting_session},
};

/// State that all sessions of one process share.
pub struct AdapterContext {
    /// Product of its hosts.
    pub product: AgentProduct,
    pub folder: AgentDir,
    /// Properties of the dialect of its hosts.
    pub dialect: DialectOptions,
    pub(crate) roster: Mutex<ModelRoster>,
    pub models: Arc<dyn LanguageModel>,
    pub registry: Arc<ToolRegistry>,
    /// Capabilities that the host lends in addition.
    pub(crate) host_capabilities: Arc<HostCapabilities>,
    /// MCP servers of the files of the user and of the project.
    pub(crate) servers: Arc<SessionServers>,
    /// Reports whether flags and settings leave a tool to the agent.
    pub(crate) is_tool_left: Box<dyn Fn(&str) -> bool + Send + Sync>,
    pub environment: CommandEnvironment,
    pub(crate) roots: AllowedRoots,
    pub launcher: tools::exec::ExecLauncher,
    pub sandbox: Sandbox,
    /// Secrets that commands may get by name.
    pub secrets: GatewaySecrets,
    pub system_prompt: Option<String>,
    pub(crate) append_system_prompt: Option<String>,
    /// True if instructions are read from `AGENTS.md` and similar files.
    pub(crate) reads_context_files: bool,
    /// True if files stand for slash commands.
    pub(crate) reads_templates: bool,
    pub clock: Clock,
    pub(crate) bash_timeout: Duration,
    /// The longest that a command of the agent may take.
    pub(crate) bash_longest: Option<Duration>,
    /// Commands that are blocked in favour of a tool.
    pub(crate) interceptor: CommandInterceptor,
    /// The form of `edit`, by which `read` marks lines.
    pub(crate) edit_mode: EditFormat,
    /// True if images stay here, whatever a model takes.
    pub(crate) block_images: bool,
    /// Time for which a provider may send nothing of an answer.
    pub(crate) silence: Duration,
    /// Attempts before a failure is reported to the host.
    pub(crate) silent_retries: SilentRetries,
}

/// Environment of one session.
pub struct SessionEnvironment {
    common: Arc<AdapterContext>,
    shells: SessionShell,
    todos: TodoList,
    artifacts: Option<PathBuf>,
    /// Stops current work, and later work while the log cannot be written.
    abort_token: Mutex<CancellationToken>,
}

impl SessionEnvironment {
    pub fn new(common: Arc<AdapterContext>, todos: TodoList, artifacts: Option<PathBuf>) -> Self {
        let shells = SessionShell::with_sandbox(common.launcher.clone(), common.sandbox.clone());
        Self { common, shells, todos, artifacts, abort_token: Mutex::default() }
    }

    /// Returns the environment of a session in place of `before`, whose work continues: in the same shell, with the same list of tasks.
    pub fn continue_from(before: &Self, common: Arc<AdapterContext>) -> Self {
        Self {
            common,
            shells: before.shells.clone(),
            todos: before.todos.clone(),
            artifacts: before.artifacts.clone(),
            abort_token: Mutex::new(before.abort_token.lock().clone()),
        }
    }

    pub fn todo_list(&self) -> &TodoList {
        &self.todos
    }

    /// Stops the requests and commands of a run, now and until [`Self::release_halt`].
    pub(crate) fn halt_models(&self) {
        self.abort_token.lock().cancel();
    }

    /// Lets runs work again.
    pub fn release_halt(&self) {
        let mut abort_token = self.abort_token.lock();
        if abort_token.is_cancelled() {
            *abort_token = CancellationToken::new();
        }
    }

    /// Ends the session's shell, with everything that it started.
    pub async fn close(&self) {
        self.shells.close().await;
    }
}

impl AdapterContext {
    /// Offers the tools of MCP servers as they are approved now, in the open session and in `session`. What was approved there for an
    /// earlier form of them ends before.
    pub(crate) async fn offer_server_tools(&self, session: &SessionId) {
        if self.servers.is_empty() {
            return;
        }
        let tools = self.servers.renew_tools(session).await.unwrap_or_else(|error| {
            tracing::error!(%error, "grants for earlier forms of MCP tools are not revoked; no tool of an MCP server is offered");
            Vec::new()
        });
        let tools = tools.into_iter().filter(|tool| (self.is_tool_left)(&tool.spec().name));
        self.host_capabilities.set_server_tools(tools.collect());
    }

    /// Returns a usable model of the catalogue.
    pub fn model_entry(&self, provider: &str, id: &str) -> Option<ModelEntry> {
        if provider == demo::PROVIDER && id == demo::MODEL {
            return Some(demo::model_entry());
        }
        self.roster.lock().exact_model(provider, id).cloned()
    }
}

/// Returns the form of edits that a setting names.
pub(super) const fn edit_mode(mode: settings::EditToolMode) -> EditFormat {
    match mode {
        settings::EditToolMode::Replace => EditFormat::Replace,
        settings::EditToolMode::Hashline => EditFormat::Hashline,
        settings::EditToolMode::Patch => EditFormat::Patch,
    }
}

/// A model whose answers end when the brake is pulled.
struct AbortableModel {
    inner: Arc<dyn LanguageModel>,
    abort_token: CancellationToken,
    /// True if a setting keeps images from it.
    blocks_images: bool,
}

/// Sent in place of an image where a setting keeps it.
const BLOCKED_IMAGE: &str = "(an image was here; the setting images.blockImages keeps images from models)";

/// Most events of an answer that are passed on at once.
const BATCH: usize = 64;

/// Puts words in place of the images of a conversation.
fn without_images(messages: &mut [models::RequestMessage]) {
    for message in messages {
        use models::RequestMessage::{Developer, ToolResult, User};
        let (User(parts) | Developer(parts) | ToolResult { parts, .. }) = message else {
            continue;
        };
        for part in parts {
            if matches!(part, MessagePart::Image { .. }) {
                *part = MessagePart::Text { text: BLOCKED_IMAGE.to_owned(), signature: None };
            }
        }
    }
}

impl LanguageModel for AbortableModel {
    fn stream(&self, mut request: ModelRequest) -> BoxStream<'static, Result<ModelEvent, ModelFailure>> {
        if self.blocks_images {
            without_images(&mut request.messages);
        }
        let abort_token = self.abort_token.clone();
        // Between events that come together nobody needs to look whether it was aborted.
        let batches = self.inner.stream(request).ready_chunks(BATCH);
        let answer = batches.take_until(abort_token.clone().cancelled_owned()).flat_map(stream::iter);
        // A failure that is not repeated ends the run, whenever it can be recorded.
        let ending = stream::once(async move {
            abort_token.is_cancelled().then(|| Err(ModelFailure::new(FailureKind::Refused, "Request was aborted")))
        });
        answer.chain(ending.filter_map(future::ready)).boxed()
    }
}

impl RunEnvironment for SessionEnvironment {
    fn resolve_model(&self, model: &ModelRef) -> Result<ResolvedModel, String> {
        let mut entry = self
            .common
            .model_entry(&model.provider, &model.id)
            .ok_or_else(|| format!("Model not found: {}/{}", model.provider, model.id))?;
        if self.common.block_images {
            // Tools need not read images that are not sent.
            entry.input.retain(|taken| *taken != InputModality::Image);
        }
        let braked = |inner| {
            Arc::new(AbortableModel {
                inner,
                abort_token: self.abort_token.lock().clone(),
                blocks_images: self.common.block_images,
            })
        };
        if entry.api == ModelApi::Demo {
            return Ok(ResolvedModel { entry: Arc::new(entry), key: None, model: braked(Arc::new(demo::DemoModel)) });
        }
        let key = match self.common.roster.lock().credential(&model.provider) {
            Some(ProviderCredential::Key(key)) => Some(key),
            Some(ProviderCredential::Keyless) => None,
            None => return Err(format!("No API key found for {}", model.provider)),
        };
        Ok(ResolvedModel { entry: Arc::new(entry), key, model: braked(Arc::clone(&self.common.models)) })
    }

    fn usable_models(&self, _: &SessionId, _: &ModelRef) -> Vec<ModelRef> {
        self.common.roster.lock().available_models().into_iter().map(model_ref).collect()
    }

    fn tool_registry(&self, session: &SessionId) -> Arc<ToolRegistry> {
        self.common.host_capabilities.tool_registry(session)
    }

    fn call_service<'a>(
        &'a self,
        content: &'a CallDetails,
        _cancel: CancellationToken,
    ) -> BoxFuture<'a, ServiceOutcome> {
        Box::pin(async move {
            match self.common.servers.carry_out(content).await {
                Some(outcome) => {
                    if let Some(session) = requesting_session(content) {
                        self.common.offer_server_tools(&session).await;
                    }
                    outcome
                }
                None => ServiceOutcome::NotBegun(format!("Unknown tool: {}", content.tool)),
            }
        })
    }

    fn silence_timeout(&self) -> Duration {
        self.common.silence
    }

    fn silent_retries(&self) -> SilentRetries {
        self.common.silent_retries
    }

    fn peer_registry(&self) -> PeerRegistry {
        self.common.host_capabilities.peer_registry().clone()
    }

    fn system_prompt(&self, _: &SessionId, cwd: &str, tools: &[&ToolSpec]) -> String {
        let tools: Vec<ToolSpec> = tools.iter().map(|spec| (*spec).clone()).collect();
        let facts = prompt::SystemPromptInput {
            folder: &self.common.folder,
            cwd: cwd.as_ref(),
            now: self.common.clock.now(),
            tools: &tools,
            replace: self.common.system_prompt.as_deref(),
            append: self.common.append_system_prompt.as_deref(),
            reads_context_files: self.common.reads_context_files,
        };
        let prompt = prompt::build_prompt(&facts, &prompt::DiskFiles);
        for notice in &prompt.notices {
            tracing::warn!("{notice}");
        }
        prompt.text
    }

    fn tool_context(&self, _: &SessionId, cwd: &str) -> ToolContext {
        let mut context = ToolContext::new(
            PathBuf::from(cwd),
            self.common.roots.clone(),
            self.common.environment.clone(),
            self.shells.clone(),
        );
        context.todos = self.todos.clone();
        context.secrets = self.common.secrets.clone();
        context.artifacts.clone_from(&self.artifacts);
        context.bash_timeout = self.common.bash_timeout;
        context.bash_longest = self.common.bash_longest.unwrap_or(context.bash_longest);
        context.interceptor = self.common.interceptor.clone();
        context.edit_mode = self.common.edit_mode;
        context.halt = self.abort_token.lock().clone();
        context
    }

    fn summary_prompts(&self) -> &dyn SummaryPrompts {
        &CompactionPrompts
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    /// Says so many deltas at once, and then nothing more.
    struct SilentAfter(usize);

    impl LanguageModel for SilentAfter {
        fn stream(&self, _: ModelRequest) -> BoxStream<'static, Result<ModelEvent, ModelFailure>> {
            let deltas = (0..self.0).map(|number| Ok(ModelEvent::Delta { index: 0, text: number.to_string() }));
            stream::iter(deltas).chain(stream::pending()).boxed()
        }
    }

    fn request() -> ModelRequest {
        ModelRequest {
            entry: Arc::new(demo::model_entry()),
            key: None,
            system: None,
            messages: Vec::new(),
            tools: Vec::new(),
            max_tokens: None,
            level: None,
            session: None,
            silence: Duration::from_secs(1),
        }
    }

    #[test]
    fn what_came_before_an_answer_was_aborted_is_passed_on_in_its_order() {
        for count in [10, 1_000, 100_000] {
            let abort_token = CancellationToken::new();
            let model = AbortableModel {
                inner: Arc::new(SilentAfter(count)),
                abort_token: abort_token.clone(),
                blocks_images: false,
            };
            let mut answer = model.stream(request());
            for number in 0..count {
                let delta = ModelEvent::Delta { index: 0, text: number.to_string() };
                assert_eq!(answer.next().now_or_never(), Some(Some(Ok(delta))), "of {count}");
            }
            assert_eq!(answer.next().now_or_never(), None, "it is silent");
            abort_token.cancel();
            let failure = answer.next().now_or_never().flatten().and_then(Result::err);
            assert_eq!(failure.map(|failure| failure.kind), Some(FailureKind::Refused));
            assert_eq!(answer.next().now_or_never(), Some(None));
        }
    }
}
