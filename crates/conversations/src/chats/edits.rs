//! Changes of a conversation other than prompts: undo, copy, clear, compaction, listing.
//!
//! The log keeps the removed messages of a conversation; the model and people no longer see them.

use countersign_core::{
    engine::{Command, EngineReply},
    id::{EntryId, PrincipalId, SessionId},
    message::{StoredMessage, text_of},
    run,
    session::{
        self, CompactionTiming, DenialReach, ImportedEntry, ListingFlags, MessageContent, SessionEntryKind,
        SessionSetting, Settings, StoppedRun,
    },
};
use countersign_runtime::InboxLane;

use super::{ChatError, Conversations, chat_error, fresh_id, title_of};

/// Messages that were undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoneMessages {
    /// The text of the person's message that was taken back.
    pub text: String,
    /// The number of messages that were.
    pub messages: usize,
}

/// Part of a conversation that a copy has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyExtent {
    /// The whole conversation.
    Whole,
    /// Everything up to an entry; nothing where there is none.
    UpTo(Option<EntryId>),
}

/// Copy of a conversation, by the adapter that makes it. Everything that is not here is as in the original.
#[derive(Clone, Copy, Debug)]
pub struct ConversationCopy<'a> {
    /// Name of the adapter.
    pub door: &'static str,
    /// Part of the conversation that it has.
    pub extent: &'a CopyExtent,
    /// Its name for people.
    pub name: &'a str,
    /// Text for the model about a run in it that was stopped.
    pub stopped: StoppedRun,
    /// Sessions that a denial in it binds.
    pub denials: DenialReach,
}

impl Conversations {
    /// Takes the last message of a person back, and everything after it. `None` if there is no such message.
    ///
    /// # Errors
    /// [`ChatError::Busy`] while work runs in the session; otherwise [`ChatError`], with nothing taken back.
    pub async fn undo_last(&self, session: &SessionId) -> Result<Option<UndoneMessages>, ChatError> {
        let look = |session: &session::Session| {
            let path = session.path_entries();
            let at = path.iter().rposition(|entry| entry.kind == SessionEntryKind::User)?;
            let messages = path[at..].iter().filter(|entry| entry.kind.is_message()).count();
            Some((path[at].parent.clone(), path[at].content, messages))
        };
        let Some((parent, content, messages)) = self.read_own(session, look).await? else { return Ok(None) };
        let text =
            self.handle.contents().get(&[content]).await.map_err(|error| ChatError::Failed(error.to_string()))?;
        let text = text.into_iter().flatten().next();
        let text = match text.as_deref().map(serde_json::from_str::<StoredMessage>) {
            Some(Ok(StoredMessage::User(message))) => text_of(&message.content),
            _ => String::new(),
        };
        self.end_at(session, parent).await?;
        Ok(Some(UndoneMessages { text, messages }))
    }

    /// Repeats the request of the last answer, if that request followed calls: the new answer replaces the old one, no call is repeated,
    /// and the model gets their results as before. `None` if it followed a message of a person, which can be sent again.
    ///
    /// # Errors
    /// [`ChatError::Busy`] while work runs or waits in the session; otherwise [`ChatError`], with nothing changed.
    pub async fn ask_after_calls(&self, session: &SessionId) -> Result<Option<EngineReply>, ChatError> {
        let look = |session: &session::Session| {
            let path = session.path_entries();
            let at = path.iter().rposition(|entry| matches!(entry.kind, SessionEntryKind::Assistant { .. }))?;
            let before = path[..at].iter().rfind(|entry| {
                entry.shown && (entry.kind.is_message() || matches!(entry.kind, SessionEntryKind::Compaction { .. }))
            })?;
            (before.kind != SessionEntryKind::User).then(|| path[at].id.clone())
        };
        let Some(answer) = self.read_own(session, look).await? else { return Ok(None) };
        let command = Command::Session(session.clone(), session::Command::AskAgain { answer });
        let reply = self.handle.source(InboxLane::Request).send_command(command).await.map_err(chat_error)?;
        Ok(Some(reply.outcome))
    }

    /// Ends the conversation at an entry and the results of its calls; before the first if it is absent.
    ///
    /// # Errors
    /// [`ChatError::Busy`] while work runs in the session; otherwise [`ChatError`].
    pub async fn end_at(&self, session: &SessionId, leaf: Option<EntryId>) -> Result<(), ChatError> {
        let leaf = match leaf {
            None => None,
            Some(last) => {
                let entry_id = last.clone();
                let look = move |session: &session::Session| {
                    let path: Vec<session::SessionEntry> = session.path_entries().into_iter().cloned().collect();
                    let end = end_of(&path, &entry_id).checked_sub(1)?;
                    path.get(end).map(|entry| entry.id.clone())
                };
                // An entry that is not on the path is refused by the engine.
                Some(self.read_own(session, look).await?.unwrap_or(last))
            }
        };
        self.send_command(session, session::Command::Move { leaf }).await
    }

    /// Begins the conversation again, under no name.
    ///
    /// # Errors
    /// [`ChatError::Busy`] while work runs in the session; otherwise [`ChatError`].
    pub async fn clear_session(&self, session: &SessionId, by: &PrincipalId) -> Result<(), ChatError> {
        self.send_command(session, session::Command::Renew { by: by.clone(), owed: None }).await?;
        self.send_command(session, session::Command::Name { name: UNTITLED.to_owned() }).await
    }

    /// Begins to sum up the old part of a conversation.
    ///
    /// # Errors
    /// [`ChatError::Busy`] while work runs in the session, [`ChatError::Invalid`] if there is nothing to sum up.
    pub async fn compact_session(&self, session: &SessionId, topic: Option<&str>) -> Result<(), ChatError> {
        self.at_rest(session).await?;
        self.send_command(session, session::Command::Compact { instructions: topic.map(Into::into) }).await
    }

    /// Moves the tools of a session to another folder, named as `Conversations::open_session` takes it.
    ///
    /// # Errors
    /// [`ChatError::Invalid`] for a folder that is none, [`ChatError::Busy`] while work runs in the session.
    pub async fn relocate_session(&self, session: &SessionId, workspace: &str) -> Result<(), ChatError> {
        let known = self.read_own(session, |session| session.cwd().to_owned()).await?;
        let folder = self.workspace_folder(Some(workspace)).await?.display().to_string();
        if folder == known {
            Ok(())
        } else {
            self.send_command(session, session::Command::Relocate { cwd: folder }).await
        }
    }

    /// Names a session by the first message of a person in it, and returns the name. `None` where there is no such message.
    ///
    /// # Errors
    /// [`ChatError`], with no name given.
    pub async fn rename_by_first(&self, session: &SessionId) -> Result<Option<String>, ChatError> {
        let first = |session: &session::Session| {
            session
                .path_entries()
                .into_iter()
                .find(|entry| entry.kind == SessionEntryKind::User)
                .map(|entry| entry.content)
        };
        let Some(content) = self.read_own(session, first).await? else { return Ok(None) };
        let text =
            self.handle.contents().get(&[content]).await.map_err(|error| ChatError::Failed(error.to_string()))?;
        let Some(Ok(StoredMessage::User(message))) =
            text.into_iter().flatten().next().map(|text| serde_json::from_str(&text))
        else {
            return Ok(None);
        };
        let name = title_of(&text_of(&message.content));
        self.rename_session(session, &name).await?;
        Ok(Some(name))
    }

    /// Changes how lists show a session. One that is deleted stops working, and is known to the record alone from then on.
    ///
    /// # Errors
    /// [`ChatError`], with nothing changed.
    pub async fn list_as(
        &self,
        session: &SessionId,
        change: impl FnOnce(&mut ListingFlags) + Send,
    ) -> Result<(), ChatError> {
        let known = self.read_own(session, |session| session.settings().listing).await?;
        let mut listing = known;
        change(&mut listing);
        if listing.deleted {
            self.stop_session(session).await?;
        }
        if listing != known {
            self.change_setting(session, SessionSetting::Listing(listing)).await?;
        }
        if listing.deleted {
            // A message may have come between the two.
            let abort = Command::Run(run::Command::Abort { session: session.clone() });
            self.handle.source(InboxLane::Result).send_command(abort).await.map_err(chat_error)?;
        }
        Ok(())
    }

    /// Changes a setting of a session.
    ///
    /// # Errors
    /// [`ChatError`], with nothing changed.
    pub async fn change_setting(&self, session: &SessionId, setting: SessionSetting) -> Result<(), ChatError> {
        self.send_command(session, session::Command::Set { setting, entry: None }).await
    }

    /// Opens a session with a copy of another's conversation, its folder and its settings.
    ///
    /// # Errors
    /// [`ChatError::Invalid`] for a conversation that is too large to be copied; otherwise [`ChatError`].
    pub async fn copy_session(&self, source: &SessionId, copy: ConversationCopy<'_>) -> Result<SessionId, ChatError> {
        let look = |session: &session::Session| {
            let path: Vec<session::SessionEntry> = session.path_entries().into_iter().cloned().collect();
            (session.cwd().to_owned(), session.settings().clone(), path)
        };
        let (cwd, settings, mut path) = self.read_session(source, look).await?;
        match copy.extent {
            CopyExtent::Whole => {}
            CopyExtent::UpTo(None) => path.clear(),
            CopyExtent::UpTo(Some(last)) => path.truncate(end_of(&path, last)),
        }
        let lsns: Vec<_> = path.iter().map(|entry| entry.content).collect();
        let texts = self.handle.contents().get(&lsns).await.map_err(|error| ChatError::Failed(error.to_string()))?;
        let mut leaf: Option<EntryId> = None;
        let mut entries = Vec::new();
        for (entry, text) in path.into_iter().zip(texts) {
            // Redacted text is in no copy.
            let Some(content) = text else { continue };
            let message = MessageContent { content, tokens: entry.tokens };
            let parent = leaf.replace(entry.id.clone());
            entries.push(ImportedEntry { id: entry.id, parent, kind: entry.kind, message, made_at: Some(entry.at) });
        }
        let open = session::Command::Open {
            cwd,
            name: Some(copy.name.to_owned()),
            parent: Some(source.to_string()),
            door: Some(copy.door.to_owned()),
            settings: Box::new(Settings {
                listing: ListingFlags::default(),
                stopped: copy.stopped,
                denials: copy.denials,
                sums: CompactionTiming::BeforeRuns,
                ..settings
            }),
        };
        let id = fresh_id()?;
        let source = self.handle.source(InboxLane::Request);
        source.send_command(Command::Session(id.clone(), open)).await.map_err(chat_error)?;
        if !entries.is_empty() {
            let import = session::Command::Import { entries, leaf };
            if let Err(refused) = source.send_command(Command::Session(id.clone(), import)).await {
                // Half a copy is none.
                self.list_as(&id, |listing| listing.deleted = true).await?;
                return Err(chat_error(refused));
            }
        }
        Ok(id)
    }

    async fn send_command(&self, session: &SessionId, command: session::Command) -> Result<(), ChatError> {
        self.read_own(session, |_| ()).await?;
        let result =
            self.handle.source(InboxLane::Request).send_command(Command::Session(session.clone(), command)).await;
        result.map(drop).map_err(chat_error)
    }
}

/// The name of a conversation that begins again: the next message gives it another.
pub(super) const UNTITLED: &str = "Untitled";

/// Returns the length of `path` up to `last`, with the results of the calls of `last`: a model gets no call without its result.
fn end_of(path: &[session::SessionEntry], last: &EntryId) -> usize {
    let Some(at) = path.iter().position(|entry| entry.id == *last) else { return 0 };
    let results =
        path[at + 1..].iter().take_while(|entry| matches!(entry.kind, SessionEntryKind::ToolResult { .. })).count();
    at + 1 + results
}
