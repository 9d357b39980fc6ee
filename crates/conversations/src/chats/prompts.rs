//! Prompts and messages on their way to a run.

use countersign_core::{
    engine::{Command, EngineReply},
    id::{RunId, SessionId},
    message::{self, MessageBlock, StoredMessage, estimate_tokens},
    session::{self, CompactionTiming, WhenBusy},
};
use countersign_runtime::{InboxLane, estimate_message_tokens};

use super::{
    ChatError, Conversations, RequestKey, chat_error, check_message, edits::UNTITLED, keyed_command, title_of,
};

impl Conversations {
    /// Sends a prompt to a session. The first message names it.
    ///
    /// # Errors
    /// [`ChatError`], with nothing sent.
    pub async fn send_prompt(
        &self,
        session: &SessionId,
        text: &str,
        when_busy: WhenBusy,
    ) -> Result<EngineReply, ChatError> {
        self.prompt_once(session, text, when_busy, None).await
    }

    /// Does the same under a key: repeated, it has happened already, and the answer is the first.
    ///
    /// # Errors
    /// [`ChatError`], with nothing sent.
    pub async fn prompt_once(
        &self,
        session: &SessionId,
        text: &str,
        when_busy: WhenBusy,
        key: Option<&RequestKey>,
    ) -> Result<EngineReply, ChatError> {
        check_message(text, "message")?;
        self.prompt_blocks(session, vec![MessageBlock::from_text(text)], when_busy, key).await
    }

    /// Sends a prompt of several blocks, whose sizes were checked. The first text names the session.
    ///
    /// # Errors
    /// [`ChatError`], with nothing sent.
    pub async fn prompt_blocks(
        &self,
        session: &SessionId,
        blocks: Vec<MessageBlock>,
        when_busy: WhenBusy,
        key: Option<&RequestKey>,
    ) -> Result<EngineReply, ChatError> {
        let text = blocks.iter().find_map(MessageBlock::as_text).unwrap_or_default().to_owned();
        let source = self.handle.source(InboxLane::Request);
        let look =
            |session: &session::Session| (session.name().is_none_or(|name| name == UNTITLED), session.settings().sums);
        let (is_unnamed, sums) = self.read_own(session, look).await?;
        if sums == CompactionTiming::AfterRuns {
            // An earlier version opened it.
            let setting = session::SessionSetting::Sums(CompactionTiming::BeforeRuns);
            let set = Command::Session(session.clone(), session::Command::Set { setting, entry: None });
            source.send_command(set).await.map_err(chat_error)?;
        }
        let prompt = session::Command::Prompt { message: blocks_content(blocks), with: Vec::new(), when_busy };
        let prompt = Command::Session(session.clone(), keyed_command(key, prompt));
        let outcome = source.send_command(prompt).await.map(|reply| reply.outcome).map_err(chat_error)?;
        if is_unnamed {
            let name = title_of(&text);
            let named = source.send_command(Command::Session(session.clone(), session::Command::Name { name })).await;
            if let Err(refused) = named {
                tracing::warn!(%session, %refused, "cannot name a conversation after its first message");
            }
        }
        Ok(outcome)
    }

    /// Gives the run that works, or waits for a compaction to begin, a message on its way, and returns which run that is. `None` if
    /// none does.
    ///
    /// # Errors
    /// [`ChatError`], with nothing sent.
    pub async fn steer_run(
        &self,
        session: &SessionId,
        text: &str,
        key: Option<&RequestKey>,
    ) -> Result<Option<RunId>, ChatError> {
        check_message(text, "text")?;
        self.read_own(session, |_| ()).await?;
        let steer = keyed_command(key, session::Command::Steer { message: user_content(text) });
        let source = self.handle.source(InboxLane::Request);
        match source.send_command(Command::Session(session.clone(), steer)).await.map_err(chat_error)?.outcome {
            EngineReply::Steering(run) => Ok(Some(run)),
            _ => Ok(None),
        }
    }
}

/// Returns a message of a person, as content.
fn user_content(text: &str) -> session::MessageContent {
    blocks_content(vec![MessageBlock::from_text(text)])
}

fn blocks_content(content: Vec<MessageBlock>) -> session::MessageContent {
    let message = StoredMessage::User(message::InputMessage { content, ..message::InputMessage::default() });
    let content = serde_json::to_string(&message).unwrap_or_default();
    let tokens = estimate_message_tokens(&message).unwrap_or_else(|| estimate_tokens(content.len()));
    session::MessageContent { content: content.into(), tokens }
}
