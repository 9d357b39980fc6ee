//! The gateway's own conversations: sessions that the console and the hermes door open, and what is said in them.
//!
//! It decides nothing: what is said becomes a command, and everybody who follows the log learns what came of it.

mod models;
mod workroom;

use std::{
    path::{Component, Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use countersign_core::{
    engine::{Command, Engine, Refusal, Reply, Scope},
    id::{RunId, SessionId},
    message::{self, Block, Message, estimate_tokens},
    run,
    session::{self, ModelRef, PromptRefusal, Settings, WhenBusy},
};
use countersign_runtime::{Handle, Lane, Refused};

use crate::sessions::{is_agents, is_spoken_for};

pub(crate) use models::Models;
pub(crate) use workroom::Workrooms;

/// The workspace of those who name none.
pub(crate) const MAIN: &str = "main";
/// How long a message may be, in bytes.
const LONGEST: usize = 1 << 20;
/// How much of a first message becomes the title, in characters.
const TITLE: usize = 64;

/// Why something did not happen in a conversation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChatError {
    /// There is no such session.
    #[error("Session not found")]
    Unknown,
    /// It belongs to an agent or to a host that speaks in it itself.
    #[error("This session cannot be spoken in from here")]
    NotOurs,
    /// A run works in it.
    #[error("session already has an active stream")]
    Busy,
    /// What was asked for makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// It was not recorded, so it did not happen.
    #[error("{0}")]
    Failed(String),
}

/// What a new conversation is to be like.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wish {
    /// A folder below that of agents, by name or whole path.
    pub(crate) workspace: Option<String>,
    /// The model's provider and id, or its id alone.
    pub(crate) model: Option<(Option<String>, String)>,
    /// The session that it came from.
    pub(crate) parent: Option<String>,
}

/// Opens conversations and speaks in them.
#[derive(Clone)]
pub(crate) struct Chats {
    handle: Handle,
    models: Arc<Models>,
    folder: PathBuf,
    timeouts: (Duration, Duration),
}

impl Chats {
    /// In workspaces below `folder`; `timeouts` are those of approvals and questions.
    pub(crate) fn new(handle: Handle, models: Arc<Models>, folder: PathBuf, timeouts: (Duration, Duration)) -> Self {
        Self { handle, models, folder, timeouts }
    }

    /// The models that can be chosen.
    pub(crate) fn models(&self) -> &Models {
        &self.models
    }

    /// The workspaces that are there, by name.
    pub(crate) fn workspaces(&self) -> Vec<PathBuf> {
        let Ok(listed) = std::fs::read_dir(&self.folder) else { return vec![self.folder.join(MAIN)] };
        let folders = listed.flatten().filter(|one| one.file_type().is_ok_and(|kind| kind.is_dir()));
        let mut folders: Vec<PathBuf> = folders.map(|one| one.path()).collect();
        folders.push(self.folder.join(MAIN));
        folders.sort_unstable();
        folders.dedup();
        folders
    }

    /// Opens a session through `door`.
    ///
    /// # Errors
    /// [`ChatError::Invalid`] for a workspace or a model that is not there, [`ChatError::Failed`] if nothing was recorded.
    pub(crate) async fn open(&self, door: &str, wish: Wish) -> Result<SessionId, ChatError> {
        let cwd = self.workspace(wish.workspace.as_deref())?;
        let model = match &wish.model {
            Some((provider, id)) => Some(self.model(provider.as_deref(), id)?),
            None => self.models.usual(),
        };
        let settings = Settings {
            model,
            approval_timeout: self.timeouts.0,
            clarify_timeout: self.timeouts.1,
            ..Settings::default()
        };
        let source = self.handle.source(Lane::Request);
        loop {
            let mut seed = [0; 6];
            getrandom::fill(&mut seed).map_err(|error| ChatError::Failed(error.to_string()))?;
            let id = SessionId::new(hex::encode(seed));
            let open = session::Command::Open {
                cwd: cwd.display().to_string(),
                name: None,
                parent: wish.parent.clone(),
                door: Some(door.to_owned()),
                settings: Box::new(settings.clone()),
            };
            match source.ask(Command::Session(id.clone(), open)).await {
                Ok(_) => return Ok(id),
                // One in 2⁴⁸: another id is free.
                Err(Refused::Refusal(Refusal::SessionExists(_))) => {}
                Err(refused) => return Err(ChatError::Failed(refused.to_string())),
            }
        }
    }

    /// A model by name.
    ///
    /// # Errors
    /// [`ChatError::Invalid`].
    pub(crate) fn model(&self, provider: Option<&str>, id: &str) -> Result<ModelRef, ChatError> {
        self.models.find(provider, id).ok_or_else(|| ChatError::Invalid(format!("Unknown model: {id}")))
    }

    /// The folder that `wanted` names, made if it is not there. It lies below that of agents, whatever links say.
    fn workspace(&self, wanted: Option<&str>) -> Result<PathBuf, ChatError> {
        let wanted = wanted.map(str::trim).filter(|wanted| !wanted.is_empty()).unwrap_or(MAIN);
        let refused = || ChatError::Invalid(format!("Workspace is not a folder of this gateway: {wanted}"));
        let path = Path::new(wanted);
        let inner = path.strip_prefix(&self.folder).unwrap_or(path);
        let is_plain = inner.components().all(|part| matches!(part, Component::Normal(_)));
        if !is_plain || inner.as_os_str().is_empty() || wanted.contains('\0') {
            return Err(refused());
        }
        let folder = self.folder.join(inner);
        std::fs::create_dir_all(&folder)
            .map_err(|error| ChatError::Failed(format!("{}: {error}", folder.display())))?;
        let inside = |path: &Path| std::fs::canonicalize(path).ok();
        match (inside(&folder), inside(&self.folder)) {
            (Some(folder), Some(root)) if folder.starts_with(&root) && folder != root => Ok(folder),
            _ => Err(refused()),
        }
    }

    /// Says something in a session. The first message names it.
    ///
    /// # Errors
    /// [`ChatError`], with nothing said.
    pub(crate) async fn prompt(
        &self,
        session: &SessionId,
        text: &str,
        when_busy: WhenBusy,
    ) -> Result<Reply, ChatError> {
        if text.trim().is_empty() {
            return Err(ChatError::Invalid("message is required".to_owned()));
        }
        if text.len() > LONGEST {
            return Err(ChatError::Invalid(format!("message is longer than {LONGEST} bytes")));
        }
        let source = self.handle.source(Lane::Request);
        let is_unnamed = self.ours(session, |session| session.name().is_none()).await?;
        if is_unnamed {
            let name = title(text);
            source.ask(Command::Session(session.clone(), session::Command::Name { name })).await.map_err(failed)?;
        }
        let prompt = session::Command::Prompt { said: said(text), with: Vec::new(), when_busy };
        source.ask(Command::Session(session.clone(), prompt)).await.map(|reply| reply.outcome).map_err(failed)
    }

    /// Gives a run that works a message on its way. `None` where none works.
    ///
    /// # Errors
    /// [`ChatError`], with nothing said.
    pub(crate) async fn steer(&self, session: &SessionId, text: &str) -> Result<Option<RunId>, ChatError> {
        if text.trim().is_empty() {
            return Err(ChatError::Invalid("text is required".to_owned()));
        }
        let Some(run) = self.ours(session, session::Session::run).await? else { return Ok(None) };
        self.prompt(session, text, WhenBusy::Steer).await?;
        Ok(Some(run))
    }

    /// Stops the run that works in a session. `None` where none does.
    ///
    /// # Errors
    /// [`ChatError`], with nothing stopped.
    pub(crate) async fn stop(&self, session: &SessionId) -> Result<Option<RunId>, ChatError> {
        self.known(session, |_| ()).await?;
        let abort = Command::Run(run::Command::Abort { session: session.clone() });
        match self.handle.source(Lane::Result).ask(abort).await.map_err(failed)?.outcome {
            Reply::Stopping(run) => Ok(Some(run)),
            _ => Ok(None),
        }
    }

    /// Stops `run` if it is what works in a session: another one that works there goes on. True if it is stopped.
    ///
    /// # Errors
    /// [`ChatError`], with nothing stopped.
    pub(crate) async fn stop_run(&self, session: &SessionId, run: RunId) -> Result<bool, ChatError> {
        // What begins between the look and the stop is stopped instead: a stop names a session, not a run.
        if self.known(session, session::Session::run).await? != Some(run) {
            return Ok(false);
        }
        Ok(self.stop(session).await? == Some(run))
    }

    /// That nothing works in a session that can be spoken in.
    ///
    /// # Errors
    /// [`ChatError::Busy`] if something does.
    pub(crate) async fn at_rest(&self, session: &SessionId) -> Result<(), ChatError> {
        match self.ours(session, session::Session::run).await? {
            Some(_) => Err(ChatError::Busy),
            None => Ok(()),
        }
    }

    /// Gives a session another model.
    ///
    /// # Errors
    /// [`ChatError`].
    pub(crate) async fn use_model(&self, session: &SessionId, model: ModelRef) -> Result<(), ChatError> {
        if self.ours(session, |session| session.settings().model.clone()).await? == Some(model.clone()) {
            return Ok(());
        }
        let setting = session::Setting::Model(model);
        let set = Command::Session(session.clone(), session::Command::Set { setting, entry: None });
        self.handle.source(Lane::Request).ask(set).await.map(drop).map_err(failed)
    }

    /// Gives a session another name.
    ///
    /// # Errors
    /// [`ChatError`].
    pub(crate) async fn rename(&self, session: &SessionId, name: &str) -> Result<(), ChatError> {
        self.ours(session, |_| ()).await?;
        let name = session::Command::Name { name: name.to_owned() };
        let named = self.handle.source(Lane::Request).ask(Command::Session(session.clone(), name)).await;
        named.map(drop).map_err(failed)
    }

    /// Reads something of a session that can be spoken in: its own host's are for that host alone.
    async fn ours<T: Send + 'static>(
        &self,
        session: &SessionId,
        read: impl FnOnce(&session::Session) -> T + Send + 'static,
    ) -> Result<T, ChatError> {
        self.known(session, |session| if is_spoken_for(session) { Err(ChatError::NotOurs) } else { Ok(read(session)) })
            .await?
    }

    /// Reads something of a session that is no agent's, fetched from the log if it rests there.
    async fn known<T: Send + 'static>(
        &self,
        session: &SessionId,
        read: impl FnOnce(&session::Session) -> T + Send + 'static,
    ) -> Result<T, ChatError> {
        let id = session.clone();
        let found = move |engine: &Engine| {
            let session = engine.state().session(&id).ok_or(ChatError::Unknown)?;
            if is_agents(session.id()) {
                return Err(ChatError::NotOurs);
            }
            Ok(read(session))
        };
        let source = self.handle.source(Lane::Request);
        let read = source.read_of(Scope::Session(session.clone()), found).await;
        read.ok_or_else(|| ChatError::Failed("the gateway is closing".to_owned()))?.0
    }
}

fn failed(refused: Refused) -> ChatError {
    match refused {
        Refused::Refusal(Refusal::NoSession(_)) => ChatError::Unknown,
        Refused::Refusal(Refusal::Prompt(PromptRefusal::Busy(_)) | Refusal::Busy(_)) => ChatError::Busy,
        Refused::Refusal(Refusal::Prompt(PromptRefusal::NoModel(_))) => ChatError::Invalid(
            "No model is configured: set `model` in the configuration, or choose one for this session".to_owned(),
        ),
        refused => ChatError::Failed(refused.to_string()),
    }
}

/// A message of a person, as content.
fn said(text: &str) -> session::Said {
    let message = Message::User(message::Said { content: vec![Block::text(text)], ..message::Said::default() });
    let content = serde_json::to_string(&message).unwrap_or_default();
    session::Said { content: content.into(), tokens: estimate_tokens(text.len()) }
}

/// What a session is called by its first message: the beginning of its first line.
fn title(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("Untitled");
    if line.chars().count() <= TITLE {
        return line.to_owned();
    }
    let cut: String = line.chars().take(TITLE - 1).collect();
    format!("{}…", cut.trim_end())
}

#[cfg(test)]
mod tests {
    use super::title;

    #[test]
    fn a_session_is_called_by_the_first_line_that_says_something() {
        assert_eq!(title("\n  hello there \nmore"), "hello there");
        assert_eq!(title(" \n "), "Untitled");
        let long = title(&"word ".repeat(40));
        assert!(long.chars().count() <= 64 && long.ends_with('…'), "{long}");
    }
}
