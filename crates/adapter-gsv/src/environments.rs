//! Environment of this adapter's sessions: their models, tools and prompt.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use countersign_conversations::{chats::SessionWorkspaces, prompt::compaction::CompactionPrompts};
use countersign_core::{
    id::{EntryId, RunId, SessionId},
    message::StoredMessage,
    schedule,
    session::ModelRef,
    tool::ToolSpec,
};
use countersign_files::objects::{self, ObjectStore};
use countersign_protocol::gsv::{
    GsvError,
    key::{self, SessionKeyScheme},
};
use countersign_runtime::{
    DueFiring, EnvironmentFor, MemoryRequest, PeerRegistry, ResolvedModel, RunEnvironment, SilentRetries,
    SummaryPrompts,
    models::{FailureKind, ModelFailure},
    tools::{ToolContext, ToolRegistry},
};
use futures_util::{FutureExt as _, future::BoxFuture};

use super::{
    GsvAdapter,
    automation::FiringDispatcher,
    builtin_tools,
    chat::memory,
    nodes,
    prompt::{self, AgentFiles, PromptInput, PromptOccasion},
    registry::key_of,
    skills, workspace,
};

/// Slot for the adapter once it is open. Until then no work of its sessions begins.
#[derive(Default)]
pub struct GsvEnvironments {
    opened: OnceLock<(Arc<GsvAdapter>, Arc<SessionWorkspaces>)>,
    bell: FiringDispatcher,
}

impl GsvEnvironments {
    /// Opens the slot: the adapter works for its sessions from now on.
    pub(super) fn open(&self, door: &Arc<GsvAdapter>, rooms: &Arc<SessionWorkspaces>) {
        // A gateway opens its adapter once.
        let _ = self.opened.set((Arc::clone(door), Arc::clone(rooms)));
        self.bell.open(door);
    }

    /// Handles a firing of a job. It waits until the adapter is open.
    pub async fn fire_job(&self, fired: &DueFiring) -> schedule::Command {
        self.bell.dispatch_firing(fired).await
    }

    /// Returns the environment of a session.
    pub fn environment_for(&self, session: &SessionId, run: Option<RunId>) -> EnvironmentFor {
        // Calls of clients at nodes are in sessions of their own, which have no key.
        let key = match key_of(session) {
            Some(key) => key,
            None if nodes::is_acts(session) => "",
            None => return EnvironmentFor::Here,
        };
        let Some((door, rooms)) = self.opened.get() else { return EnvironmentFor::NotYet };
        let agent = key::agent_of(key).map_or_else(|| door.settings.default_agent(), key::agent_id);
        let place = builtin_tools::RunSession { key: key.to_owned(), agent, run };
        EnvironmentFor::Other(Arc::new(GsvRunEnvironment { door: Arc::clone(door), rooms: Arc::clone(rooms), place }))
    }
}

/// Environment of one session.
struct GsvRunEnvironment {
    door: Arc<GsvAdapter>,
    rooms: Arc<SessionWorkspaces>,
    place: builtin_tools::RunSession,
}

impl RunEnvironment for GsvRunEnvironment {
    fn resolve_model(&self, model: &ModelRef) -> Result<ResolvedModel, String> {
        let key = self.door.settings.secret_at(&format!("apiKeys.{}", model.provider));
        self.door.context.chats.models().choose_with(model, key).map_err(|unasked| unasked.to_string())
    }

    fn usable_models(&self, _: &SessionId, _: &ModelRef) -> Vec<ModelRef> {
        let has_key = |provider: &str| self.door.settings.secret_at(&format!("apiKeys.{provider}")).is_some();
        self.door.context.chats.models().usable_models(has_key)
    }

    fn tool_registry(&self, _: &SessionId) -> Arc<ToolRegistry> {
        let mut tools = builtin_tools::session_tools(&self.door, &self.place);
        // Tools on users' own machines belong to the other adapters: of theirs only `ask` is here.
        tools.extend(self.rooms.registry().get("ask").cloned());
        tools.extend(self.door.toolbox.all_tools());
        if self.door.settings.uses_servers(&self.place.agent) {
            tools.extend((self.door.context.server_tools)());
        }
        Arc::new(ToolRegistry::from_tools(tools))
    }

    fn no_tool(&self, _: &SessionId, name: &str) -> String {
        format!("Error: {}", GsvError::no_node(name).message)
    }

    fn reads_in_order(&self, _: &SessionId) -> bool {
        true
    }

    fn peer_registry(&self) -> PeerRegistry {
        self.door.toolbox.peer_registry().clone()
    }

    fn system_prompt(&self, _: &SessionId, _: &str, tools: &[&ToolSpec]) -> String {
        let builtin_tools::RunSession { key, agent, run } = &self.place;
        let settings = &self.door.settings;
        let (now, zone) = (self.door.context.clock.wall_time(), settings.user_zone());
        let folder = workspace::folder_of(&self.door, Some(agent));
        let occasion = if *key == settings.key_scheme().main_session_key(agent) {
            PromptOccasion::Main
        } else if *key == SessionKeyScheme::heartbeat_session_key(agent) {
            PromptOccasion::Heartbeat
        } else {
            PromptOccasion::Other
        };
        let files = self.door.reading.files_for(*run, || AgentFiles::read_files(&folder, occasion, now, zone));
        let skills = skills::offered_skills(&self.door, &folder, agent);
        let own = settings.own_prompt(agent);
        prompt::build_prompt(&PromptInput {
            own: own.as_deref(),
            agent,
            key,
            tools,
            files: &files,
            skills: &skills,
            now,
            zone,
        })
    }

    fn tool_context(&self, session: &SessionId, cwd: &str) -> ToolContext {
        self.rooms.tool_context(session, cwd)
    }

    fn load_picture<'a>(&'a self, reference: &'a str) -> BoxFuture<'a, Option<String>> {
        let store = ObjectStore::for_data_dir(&self.door.context.config.storage.folder);
        async move { store.read_base64(objects::parse_reference(reference)?).await }.boxed()
    }

    fn silence_timeout(&self) -> Duration {
        self.door.settings.silence_timeout()
    }

    // Clients end a run with the error of an empty answer, and `timeouts.llmMs` is the time of the error after silence.
    fn may_retry(&self, failure: &ModelFailure) -> bool {
        failure.kind.is_retryable() && !matches!(failure.kind, FailureKind::Empty | FailureKind::Silence)
    }

    // The visible attempts, which clients of this protocol do not see, cover failures within an answer too.
    fn silent_retries(&self) -> SilentRetries {
        SilentRetries::NONE
    }

    fn summary_prompts(&self) -> &dyn SummaryPrompts {
        &CompactionPrompts
    }

    fn put_away<'a>(&'a self, _: &'a SessionId, first_kept: &'a EntryId) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(memory::archive_before(&self.door, &self.place.key, first_kept))
    }

    fn memory_request(&self, history: &[StoredMessage], turn: &[StoredMessage]) -> Option<MemoryRequest> {
        memory::is_enabled(&self.door).then(|| memory::memory_request(history, turn))
    }

    fn save_memories<'a>(&'a self, first_kept: &'a EntryId, text: String) -> BoxFuture<'a, ()> {
        Box::pin(async move { memory::append_notes(&self.door, &self.place.agent, first_kept, &text).await })
    }
}
