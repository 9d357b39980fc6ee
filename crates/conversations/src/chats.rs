//! The gateway's own conversations: sessions that the console and the hermes adapter open, and their prompts.
//!
//! It decides nothing: each prompt becomes a command, and every follower of the log sees its outcome.

mod edits;
mod models;
mod prompts;
mod request_key;
mod session_workspaces;
mod workspace_folders;

use std::{path::PathBuf, sync::Arc, time::Duration};

use countersign_config::MAIN;
use countersign_core::{
    engine::{Command, CommandError, Engine, EngineReply, ResidencyScope},
    id::{Lsn, RunId, SessionId},
    policy::ApprovalMode,
    run,
    session::{
        self, CompactError, CompactionTiming, DenialReach, ModelRef, PromptError, RetryPolicy, Settings, StoppedRun,
    },
};
use countersign_runtime::{InboxLane, OwnerError, OwnerHandle};

use crate::sessions::{find_session, is_agents, is_spoken_for};

pub use edits::{ConversationCopy, CopyExtent};
pub use models::GatewayModels;
pub use request_key::RequestKey;
pub use session_workspaces::SessionWorkspaces;

/// Longest message, in bytes.
const LONGEST: usize = 1 << 20;
/// Longest title taken from a first message, in characters.
const TITLE: usize = 64;

/// Why something did not happen in a conversation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChatError {
    /// The session does not exist.
    #[error("Session not found")]
    Unknown,
    /// The session belongs to an agent or to a host that sends its prompts itself.
    #[error("This session cannot be spoken in from here")]
    NotOurs,
    /// A run works in it.
    #[error("session already has an active stream")]
    Busy,
    /// The same key was used for another request.
    #[error("This key was used for something else")]
    KeyTaken,
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// The command was not recorded, so it did not happen.
    #[error("{0}")]
    Failed(String),
}

/// Work that was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopOutcome {
    /// A run that works, or that waited to begin.
    Run(RunId),
    /// Something else that would have gone on, such as a summary.
    Other,
    /// Nothing worked.
    Nothing,
}

/// Settings of a new conversation.
#[derive(Clone, Debug, Default)]
pub struct NewConversation {
    /// A folder below that of agents, by name or whole path.
    pub workspace: Option<String>,
    /// An existing folder of this machine in the place of a workspace, from a client that has the rights of the gateway's user.
    pub folder: Option<PathBuf>,
    /// Calls that a person approves each time.
    pub approval: ApprovalMode,
    /// The model's provider and id, or its id alone.
    pub model: Option<(Option<String>, String)>,
    /// The session that it came from.
    pub parent: Option<String>,
    /// Text for the model about a run in it that was stopped.
    pub stopped: StoppedRun,
    /// Sessions that a denial in it binds.
    pub denials: DenialReach,
    /// Its first message. If it is refused, nothing is opened.
    pub message: Option<String>,
    /// Key of the request: a repeated request returns the session that was opened first.
    pub key: Option<RequestKey>,
}

/// Opens conversations and speaks in them.
#[derive(Clone)]
pub struct Conversations {
    handle: OwnerHandle,
    models: Arc<GatewayModels>,
    folder: PathBuf,
    timeouts: (Duration, Duration),
    retry: RetryPolicy,
}

impl Conversations {
    /// Makes conversations in workspaces below `folder`; `timeouts` are those of approvals and questions, `retry` is the policy for
    /// failures of providers.
    pub fn new(
        handle: OwnerHandle,
        models: Arc<GatewayModels>,
        folder: PathBuf,
        timeouts: (Duration, Duration),
        retry: RetryPolicy,
    ) -> Self {
        Self { handle, models, folder, timeouts, retry }
    }

    /// Returns the models that can be chosen.
    pub fn models(&self) -> &GatewayModels {
        &self.models
    }

    /// Returns the workspaces that are there, by name.
    pub async fn list_workspaces(&self) -> Vec<PathBuf> {
        let root = self.folder.clone();
        let main = self.folder.join(MAIN);
        tokio::task::spawn_blocking(move || workspace_folders::list_folders(&root)).await.unwrap_or_else(|_| vec![main])
    }

    /// Opens a session through the adapter `door`.
    ///
    /// # Errors
    /// [`ChatError::Invalid`] for a workspace or a model that is not there, [`ChatError::Failed`] if nothing was recorded.
    pub async fn open_session(&self, door: &str, wish: NewConversation) -> Result<SessionId, ChatError> {
        let cwd = match &wish.folder {
            Some(folder) => workspace_folders::check_folder(folder.clone()).await?,
            None => self.ensure_workspace(wish.workspace.as_deref()).await?,
        };
        let model = match &wish.model {
            Some((provider, id)) => Some(self.find_model(provider.as_deref(), id)?),
            None => self.models.default_model(),
        };
        if let Some(message) = &wish.message
            && !self.is_there(wish.key.as_ref()).await
        {
            check_message(message, "message")?;
            if model.is_none() {
                return Err(no_model());
            }
        }
        let settings = Settings {
            model,
            approval_timeout: self.timeouts.0,
            clarify_timeout: self.timeouts.1,
            retry: self.retry,
            stopped: wish.stopped,
            denials: wish.denials,
            approval: wish.approval,
            // A reader of an answer may send the next message at once.
            sums: CompactionTiming::BeforeRuns,
            ..Settings::default()
        };
        // The client was given its id: it has to be there after a crash.
        self.handle.record_all();
        let source = self.handle.source(InboxLane::Request);
        for attempt in 0.. {
            let id = match &wish.key {
                // A repeated request gets the same id, and so the session that is there.
                Some(key) => key.session_id(attempt),
                None => fresh_id()?,
            };
            let open = session::Command::Open {
                cwd: cwd.display().to_string(),
                name: None,
                parent: wish.parent.clone(),
                door: Some(door.to_owned()),
                settings: Box::new(settings.clone()),
            };
            match source.send_command(Command::Session(id.clone(), keyed_command(wish.key.as_ref(), open))).await {
                Ok(_) => return Ok(id),
                // One in 2⁴⁸: another id is free.
                Err(OwnerError::Refusal(CommandError::SessionExists(_))) => {}
                Err(refused) => return Err(chat_error(refused)),
            }
        }
        Err(ChatError::Failed("no id is free".to_owned()))
    }

    /// Reports whether this is a repeated request: the session that was opened then is the answer.
    async fn is_there(&self, key: Option<&RequestKey>) -> bool {
        match key {
            Some(key) => self.read_session(&key.session_id(0), |_| ()).await.is_ok(),
            None => false,
        }
    }

    /// Returns a model by name.
    ///
    /// # Errors
    /// [`ChatError::Invalid`].
    pub fn find_model(&self, provider: Option<&str>, id: &str) -> Result<ModelRef, ChatError> {
        self.models.find_model(provider, id).ok_or_else(|| ChatError::Invalid(format!("Unknown model: {id}")))
    }

    /// Returns the folder that `requested` names, as `Conversations::open_session` takes it.
    ///
    /// # Errors
    /// As there.
    pub async fn workspace_folder(&self, requested: Option<&str>) -> Result<PathBuf, ChatError> {
        self.ensure_workspace(requested).await
    }

    /// Returns the folder that `requested` names, made if it is not there.
    async fn ensure_workspace(&self, requested: Option<&str>) -> Result<PathBuf, ChatError> {
        let name = requested.map(str::trim).filter(|name| !name.is_empty()).unwrap_or(MAIN).to_owned();
        let root = self.folder.clone();
        let made = tokio::task::spawn_blocking(move || workspace_folders::ensure_folder(&root, &name)).await;
        made.unwrap_or_else(|error| Err(ChatError::Failed(error.to_string())))
    }

    /// Stops the work in a session: the run, the one that waits for a compaction to begin, or a compaction after which the
    /// agent would continue.
    ///
    /// # Errors
    /// [`ChatError`], with nothing stopped.
    pub async fn stop_session(&self, session: &SessionId) -> Result<StopOutcome, ChatError> {
        self.read_session(session, |_| ()).await?;
        let abort = Command::Run(run::Command::Abort { session: session.clone() });
        Ok(match self.handle.source(InboxLane::Result).send_command(abort).await.map_err(chat_error)?.outcome {
            EngineReply::Stopping(run) => StopOutcome::Run(run),
            EngineReply::Done => StopOutcome::Other,
            _ => StopOutcome::Nothing,
        })
    }

    /// Stops `run` and no other: if it works in a session, or waits for a compaction to begin. True if it is stopped.
    ///
    /// # Errors
    /// [`ChatError`], with nothing stopped.
    pub async fn stop_run(&self, session: &SessionId, run: RunId) -> Result<bool, ChatError> {
        self.read_session(session, |_| ()).await?;
        let stop = Command::Run(run::Command::Stop { session: session.clone(), run });
        let stopped = self.handle.source(InboxLane::Result).send_command(stop).await.map_err(chat_error)?;
        Ok(stopped.outcome == EngineReply::Stopping(run))
    }

    /// Takes queued messages of a session back, and returns the position of each.
    ///
    /// # Errors
    /// [`ChatError`], with nothing taken back.
    pub async fn take_back(&self, session: &SessionId) -> Result<Vec<Lsn>, ChatError> {
        let waiting: Vec<Lsn> = self.read_own(session, |session| session.queued_contents().collect()).await?;
        let clear = Command::Session(session.clone(), session::Command::Clear);
        self.handle.source(InboxLane::Result).send_command(clear).await.map_err(chat_error)?;
        Ok(waiting)
    }

    /// Checks that a session takes prompts, and neither a run nor a compaction works in it.
    ///
    /// # Errors
    /// [`ChatError::Busy`] if one does.
    pub async fn at_rest(&self, session: &SessionId) -> Result<(), ChatError> {
        match self.read_own(session, |session| session.run().is_some() || session.active_compaction().is_some()).await?
        {
            true => Err(ChatError::Busy),
            false => Ok(()),
        }
    }

    /// Gives a session another model.
    ///
    /// # Errors
    /// [`ChatError`].
    pub async fn use_model(&self, session: &SessionId, model: ModelRef) -> Result<(), ChatError> {
        if self.read_own(session, |session| session.settings().model.clone()).await? == Some(model.clone()) {
            return Ok(());
        }
        let setting = session::SessionSetting::Model(model);
        let set = Command::Session(session.clone(), session::Command::Set { setting, entry: None });
        self.handle.source(InboxLane::Request).send_command(set).await.map(drop).map_err(chat_error)
    }

    /// Returns the model of a session that takes prompts, and its thinking level.
    ///
    /// # Errors
    /// [`ChatError`].
    pub async fn thinking_level(&self, session: &SessionId) -> Result<(Option<ModelRef>, Option<String>), ChatError> {
        self.read_own(session, |session| (session.settings().model.clone(), session.settings().thinking.clone())).await
    }

    /// Returns the name of the adapter through which a session that takes prompts was opened.
    ///
    /// # Errors
    /// [`ChatError`].
    pub async fn door_of(&self, session: &SessionId) -> Result<Option<String>, ChatError> {
        self.read_own(session, |session| session.door().map(str::to_owned)).await
    }

    /// Gives a session another name.
    ///
    /// # Errors
    /// [`ChatError`].
    pub async fn rename_session(&self, session: &SessionId, name: &str) -> Result<(), ChatError> {
        self.read_own(session, |_| ()).await?;
        let name = session::Command::Name { name: name.to_owned() };
        let named = self.handle.source(InboxLane::Request).send_command(Command::Session(session.clone(), name)).await;
        named.map(drop).map_err(chat_error)
    }

    /// Reads something of a session that can be spoken in: its own host's are for that host alone.
    async fn read_own<T: Send + 'static>(
        &self,
        session: &SessionId,
        read: impl FnOnce(&session::Session) -> T + Send + 'static,
    ) -> Result<T, ChatError> {
        self.read_session(
            session,
            |session| if is_spoken_for(session) { Err(ChatError::NotOurs) } else { Ok(read(session)) },
        )
        .await?
    }

    /// Reads something of a session that is no agent's, fetched from the log if it rests there.
    async fn read_session<T: Send + 'static>(
        &self,
        session: &SessionId,
        read: impl FnOnce(&session::Session) -> T + Send + 'static,
    ) -> Result<T, ChatError> {
        let id = session.clone();
        let found = move |engine: &Engine| {
            let session = find_session(engine, &id).ok_or(ChatError::Unknown)?;
            if is_agents(session.id()) {
                return Err(ChatError::NotOurs);
            }
            Ok(read(session))
        };
        let source = self.handle.source(InboxLane::Request);
        let read = source.read_of(ResidencyScope::Session(session.clone()), found).await;
        read.ok_or_else(|| ChatError::Failed("the gateway is closing".to_owned()))?.0
    }
}

/// Checks that a message can be sent; `what` is its name in the request.
pub fn check_message(text: &str, what: &str) -> Result<(), ChatError> {
    match text.trim().is_empty() {
        true => Err(ChatError::Invalid(format!("{what} is required"))),
        false if text.len() > LONGEST => Err(ChatError::Invalid(format!("{what} is longer than {LONGEST} bytes"))),
        false => Ok(()),
    }
}

fn fresh_id() -> Result<SessionId, ChatError> {
    let mut seed = [0; 6];
    getrandom::fill(&mut seed).map_err(|error| ChatError::Failed(error.to_string()))?;
    Ok(SessionId::new(hex::encode(seed)))
}

/// Returns a command that happens once, if it has a key.
fn keyed_command(key: Option<&RequestKey>, command: session::Command) -> session::Command {
    match key {
        Some(key) => session::Command::Once { key: key.engine_key(), command: Box::new(command) },
        None => command,
    }
}

fn chat_error(refused: OwnerError) -> ChatError {
    match refused {
        OwnerError::Refusal(CommandError::KeyTaken(_)) => ChatError::KeyTaken,
        OwnerError::Refusal(CommandError::NoSession(_)) => ChatError::Unknown,
        OwnerError::Refusal(CommandError::Prompt(PromptError::Busy(_)) | CommandError::Busy(_)) => ChatError::Busy,
        OwnerError::Refusal(
            CommandError::Prompt(PromptError::NoModel(_)) | CommandError::Compact(CompactError::NoModel),
        ) => no_model(),
        OwnerError::Refusal(CommandError::Compact(CompactError::Busy | CompactError::UnderWay)) => ChatError::Busy,
        OwnerError::Refusal(CommandError::Compact(refusal)) => ChatError::Invalid(refusal.to_string()),
        refused @ (OwnerError::Refusal(CommandError::TooLong { .. }) | OwnerError::TooLarge) => {
            ChatError::Invalid(refused.to_string())
        }
        refused => ChatError::Failed(refused.to_string()),
    }
}

fn no_model() -> ChatError {
    let text = "No model is configured: set `model` in the configuration, or choose one for this session";
    ChatError::Invalid(text.to_owned())
}

/// Returns the title of a session by its first message: the beginning of its first line.
fn title_of(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("Untitled");
    if line.chars().count() <= TITLE {
        return line.to_owned();
    }
    let cut: String = line.chars().take(TITLE - 1).collect();
    format!("{}…", cut.trim_end())
}

#[cfg(test)]
mod tests {
    use super::title_of;

    #[test]
    fn a_session_is_called_by_the_first_line_that_says_something() {
        assert_eq!(title_of("\n  hello there \nmore"), "hello there");
        assert_eq!(title_of(" \n "), "Untitled");
        let long = title_of(&"word ".repeat(40));
        assert!(long.chars().count() <= 64 && long.ends_with('…'), "{long}");
    }
}
