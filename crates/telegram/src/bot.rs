//! The calls of the Bot API that cards need, and what their errors ask for.
//!
//! It must not know gates.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{
    chat_place::ChatPlace,
    client::{BotResponse, BotTransport},
    health::HealthTracker,
    wire::{InlineKeyboard, ResponseEnvelope, TelegramMessage, TelegramUpdate},
};

/// Time limit of a call that the server answers at once.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time limit of fetching a file.
const FETCHING: Duration = Duration::from_secs(60);
/// Time limit of sending a file.
const SENDING: Duration = Duration::from_secs(180);
/// Longest server text that is kept, in characters.
const WORDS: usize = 300;

/// Failure of a call, by its remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BotCallFailure {
    /// Nothing but another token helps.
    #[error("the bot token was rejected: {0}")]
    Token(String),
    /// The same call again, after that long.
    #[error("rate limited: retry after {} s", .0.as_secs())]
    Wait(Duration),
    /// Another program takes this bot's updates.
    #[error("another program polls with this token: {0}")]
    Conflict(String),
    /// The chat has another id now.
    #[error("the chat became {0}")]
    Moved(i64),
    /// Nothing to do.
    #[error("there was nothing to do: {0}")]
    Harmless(String),
    /// Refused call; another may succeed.
    #[error("refused: {0}")]
    Refused(String),
    /// The server is not there or not well.
    #[error("Bot API not reached: {0}")]
    Unreachable(String),
}

impl BotCallFailure {
    /// Reports whether it is about the topic that a message was for.
    pub(super) fn is_about_topic(&self) -> bool {
        const PHRASES: [&str; 4] = ["message thread not found", "topic_closed", "topic_deleted", "topic_id_invalid"];
        let Self::Refused(words) = self else { return false };
        let words = words.to_lowercase();
        PHRASES.iter().any(|phrase| words.contains(phrase))
    }
}

/// Wait between attempts: one second, half as much again each time, thirty at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryBackoff(Duration);

impl Default for RetryBackoff {
    fn default() -> Self {
        Self(Duration::from_secs(1))
    }
}

impl RetryBackoff {
    /// Returns the wait that is due now.
    pub(super) fn next_wait(&mut self) -> Duration {
        let now = self.0;
        self.0 = (now + now / 2).min(Duration::from_secs(30));
        now
    }
}

/// The place that a message goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageTarget {
    pub(super) chat: i64,
    /// The topic of a forum; without one its General.
    pub(super) topic: Option<i64>,
    /// The message that it answers.
    pub(super) reply_to: Option<i64>,
}

impl MessageTarget {
    /// Returns the chat without the topic, if the failure is about the topic: a message that is not seen is worse than one in the wrong
    /// place.
    pub(super) fn without_topic(self, failure: &BotCallFailure) -> Option<Self> {
        let topic = self.topic.filter(|_| failure.is_about_topic())?;
        tracing::warn!(topic, "the topic accepts no messages; sending to the chat without the topic");
        Some(Self { topic: None, ..self })
    }
}

/// A bot that can be called.
#[derive(Clone)]
pub(super) struct BotClient {
    transport: Arc<dyn BotTransport>,
    health: HealthTracker,
    /// True if a refused call says that the messenger does not work.
    counts_refusals: bool,
}

impl std::fmt::Debug for BotClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BotClient")
    }
}

impl BotClient {
    pub(super) fn new(transport: Arc<dyn BotTransport>, health: HealthTracker) -> Self {
        Self { transport, health, counts_refusals: true }
    }

    /// Returns a client for chats of people: one of them that takes no message says nothing about the messenger.
    pub(super) fn for_chats(&self) -> Self {
        Self { counts_refusals: false, ..self.clone() }
    }

    /// Asks who the bot is, which shows whether its token is good.
    pub(super) async fn get_me(&self) -> Result<(), BotCallFailure> {
        self.call("getMe", &json!({}), PATIENCE).await.map(drop)
    }

    /// Asks under which name the bot is known.
    pub(super) async fn username(&self) -> Result<String, BotCallFailure> {
        let me = self.call("getMe", &json!({}), PATIENCE).await?;
        Ok(shown_name(&me, &["username", "first_name"]))
    }

    /// Looks up a chat's title, which shows whether the bot is in it, and whether it has topics.
    pub(super) async fn look_at(&self, chat: i64) -> Result<ChatInfo, BotCallFailure> {
        let chat = self.call("getChat", &json!({ "chat_id": chat }), PATIENCE).await?;
        let kind = if chat["is_forum"] == true { BotChatKind::Forum } else { BotChatKind::Plain };
        Ok(ChatInfo { title: shown_name(&chat, &["title", "username", "first_name"]), kind })
    }

    /// Shows in a chat or topic that something is being written.
    pub(super) async fn show_typing(&self, place: ChatPlace) -> Result<(), BotCallFailure> {
        let mut action = json!({ "chat_id": place.chat, "action": "typing" });
        if let Some(topic) = place.topic {
            action["message_thread_id"] = json!(topic);
        }
        self.call("sendChatAction", &action, PATIENCE).await.map(drop)
    }

    /// Deletes the webhook: without one updates can be polled for.
    pub(super) async fn delete_webhook(&self) -> Result<(), BotCallFailure> {
        self.call("deleteWebhook", &json!({}), PATIENCE).await.map(drop)
    }

    /// Waits up to `wait` for updates, and confirms those before `offset`.
    pub(super) async fn get_updates(&self, offset: i64, wait: Duration) -> Result<Vec<TelegramUpdate>, BotCallFailure> {
        let request = json!({
            "offset": offset,
            "limit": 100,
            "timeout": wait.as_secs(),
            "allowed_updates": ["callback_query", "message"],
        });
        match self.call("getUpdates", &request, wait + PATIENCE).await? {
            Value::Array(updates) => Ok(updates.into_iter().filter_map(TelegramUpdate::from_value).collect()),
            _ => {
                Err(self
                    .record_failure("getUpdates", BotCallFailure::Unreachable("the updates are not a list".to_owned())))
            }
        }
    }

    /// Sends a message, and returns it as it was sent. If the topic is gone or closed it goes to the chat without one.
    pub(super) async fn send_message(
        &self,
        to: MessageTarget,
        text: &str,
        keys: Option<&InlineKeyboard>,
    ) -> Result<TelegramMessage, BotCallFailure> {
        match self.send_once(to, text, keys).await {
            Err(failure) => match to.without_topic(&failure) {
                Some(to) => self.send_once(to, text, keys).await,
                None => Err(failure),
            },
            Ok(sent) => Ok(sent),
        }
    }

    async fn send_once(
        &self,
        to: MessageTarget,
        text: &str,
        keys: Option<&InlineKeyboard>,
    ) -> Result<TelegramMessage, BotCallFailure> {
        let mut message = json!({ "chat_id": to.chat, "text": text, "link_preview_options": { "is_disabled": true } });
        if let Some(topic) = to.topic {
            message["message_thread_id"] = json!(topic);
        }
        if let Some(keys) = keys {
            message["reply_markup"] = json!(keys);
        }
        if let Some(message_id) = to.reply_to {
            message["reply_parameters"] = json!({ "message_id": message_id, "allow_sending_without_reply": true });
        }
        let sent = self.call("sendMessage", &message, PATIENCE).await?;
        serde_json::from_value(sent).map_err(|_| {
            self.record_failure("sendMessage", BotCallFailure::Unreachable("the answer is not a message".to_owned()))
        })
    }

    /// Changes the text and the buttons of a message; without `keys` it has none any more.
    pub(super) async fn edit_message(
        &self,
        chat: i64,
        message: i64,
        text: &str,
        keys: Option<&InlineKeyboard>,
    ) -> Result<(), BotCallFailure> {
        let mut edit = json!({
            "chat_id": chat,
            "message_id": message,
            "text": text,
            "link_preview_options": { "is_disabled": true },
        });
        if let Some(keys) = keys {
            edit["reply_markup"] = json!(keys);
        }
        self.call("editMessageText", &edit, PATIENCE).await.map(drop)
    }

    /// Ends the wait of the person who tapped, with a text if there is one.
    pub(super) async fn answer_callback(&self, query: &str, notice: &CallbackNotice) -> Result<(), BotCallFailure> {
        let mut answer = json!({ "callback_query_id": query });
        if !notice.text.is_empty() {
            answer["text"] = json!(notice.text);
        }
        if notice.alert {
            answer["show_alert"] = json!(true);
        }
        self.call("answerCallbackQuery", &answer, PATIENCE).await.map(drop)
    }

    /// Fetches the content of a file. `None` if it has more than `most` bytes.
    pub(super) async fn fetch_file(&self, id: &str, most: u64) -> Result<Option<Vec<u8>>, BotCallFailure> {
        let file = self.call("getFile", &json!({ "file_id": id }), PATIENCE).await?;
        if file["file_size"].as_u64().is_some_and(|size| size > most) {
            return Ok(None);
        }
        let Some(path) = file["file_path"].as_str() else {
            return Err(self.record_failure("getFile", BotCallFailure::Refused("it has no path".to_owned())));
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let answer = self.transport.fetch_file(path.to_owned(), most, FETCHING).await;
        let answer =
            answer.map_err(|words| self.record_failure("the content of a file", BotCallFailure::Unreachable(words)))?;
        match answer.status {
            200 => Ok((answer.body.len() <= most).then_some(answer.body)),
            status => {
                Err(self
                    .record_failure("the content of a file", BotCallFailure::Unreachable(format!("answered {status}"))))
            }
        }
    }

    /// Calls a method with a form of this type, which holds a file.
    pub(super) async fn upload_form(
        &self,
        method: &'static str,
        kind: String,
        form: Vec<u8>,
    ) -> Result<(), BotCallFailure> {
        let answered = self.transport.upload_form(method, kind, form, SENDING).await;
        self.call_result(method, answered).map(drop)
    }

    async fn call(&self, method: &'static str, body: &Value, patience: Duration) -> Result<Value, BotCallFailure> {
        let answered = self.transport.call(method, body.to_string(), patience).await;
        self.call_result(method, answered)
    }

    fn call_result(
        &self,
        method: &'static str,
        answered: Result<BotResponse, String>,
    ) -> Result<Value, BotCallFailure> {
        match answered.map_err(BotCallFailure::Unreachable).and_then(|answer| read_result(&answer)) {
            Ok(result) => {
                self.health.record_success();
                Ok(result)
            }
            // The server is there and well.
            Err(failure @ BotCallFailure::Harmless(_)) => {
                self.health.record_success();
                Err(failure)
            }
            Err(failure @ BotCallFailure::Refused(_)) if !self.counts_refusals => {
                tracing::warn!(method, %failure, "a chat refused a Bot API call");
                self.health.record_success();
                Err(failure)
            }
            Err(failure) => Err(self.record_failure(method, failure)),
        }
    }

    fn record_failure(&self, method: &'static str, failure: BotCallFailure) -> BotCallFailure {
        tracing::warn!(method, %failure, "a Bot API call failed");
        self.health.record_failure(format!("{method}: {failure}"));
        failure
    }
}

/// A chat as the bot sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChatInfo {
    pub(super) title: String,
    pub(super) kind: BotChatKind,
}

/// The kinds of chats, by their topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BotChatKind {
    /// A chat without topics.
    Plain,
    /// A chat with topics, General among them.
    Forum,
}

/// Notice for the person who tapped: at most 200 characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CallbackNotice {
    pub(super) text: &'static str,
    /// True if it has to be read: it stays until it is closed.
    pub(super) alert: bool,
}

/// Returns the first of the members that is there, as a person may see it.
fn shown_name(value: &Value, members: &[&str]) -> String {
    let text = members.iter().find_map(|member| value[*member].as_str()).unwrap_or("without a name");
    countersign_view::escape(text, countersign_view::LineMode::One).into_owned()
}

/// Reads the result in an answer.
fn read_result(answer: &BotResponse) -> Result<Value, BotCallFailure> {
    let envelope = serde_json::from_slice::<ResponseEnvelope>(&answer.body);
    let Ok(envelope) = envelope else {
        return Err(classify_failure(answer.status, "its answer is not JSON", None, None));
    };
    if envelope.ok {
        return Ok(envelope.result);
    }
    let words: String = envelope.description.unwrap_or_default().chars().take(WORDS).collect();
    let words = countersign_view::escape(&words, countersign_view::LineMode::One);
    let parameters = envelope.parameters.unwrap_or_default();
    let status = envelope.error_code.unwrap_or(answer.status);
    Err(classify_failure(status, &words, parameters.retry_after, parameters.migrate_to_chat_id))
}

fn classify_failure(status: u16, words: &str, retry_after: Option<u64>, moved: Option<i64>) -> BotCallFailure {
    /// Texts of a 400 that only mean that there was nothing to do.
    const HARMLESS: [&str; 4] =
        ["message is not modified", "message to edit not found", "query is too old", "query id is invalid"];
    let text = format!("{status} {words}");
    if let Some(chat) = moved {
        return BotCallFailure::Moved(chat);
    }
    match status {
        401 | 404 => BotCallFailure::Token(text),
        409 => BotCallFailure::Conflict(text),
        429 => BotCallFailure::Wait(Duration::from_secs(retry_after.unwrap_or(1).clamp(1, 3600))),
        400 if HARMLESS.iter().any(|harmless| words.to_lowercase().contains(harmless)) => {
            BotCallFailure::Harmless(text)
        }
        400 if words.contains("TOPIC_CLOSED") => BotCallFailure::Refused(format!(
            "{text}: this topic is closed; messenger.telegram.message_thread_id names another, and a bot that may manage topics \
             writes into closed ones"
        )),
        400 | 402 | 403 | 405..=499 => BotCallFailure::Refused(text),
        _ => BotCallFailure::Unreachable(text),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BotCallFailure, BotResponse, RetryBackoff, read_result};

    #[test]
    fn an_error_says_what_is_to_be_done() {
        let error = |code: u16, words: &str, more: &str| {
            format!(r#"{{"ok":false,"error_code":{code},"description":"{words}"{more}}}"#)
        };
        for (status, body, want) in [
            (401, error(401, "Unauthorized", ""), BotCallFailure::Token("401 Unauthorized".into())),
            (404, error(404, "Not Found", ""), BotCallFailure::Token("404 Not Found".into())),
            (404, "<html>".into(), BotCallFailure::Token("404 its answer is not JSON".into())),
            (409, error(409, "Conflict", ""), BotCallFailure::Conflict("409 Conflict".into())),
            (
                429,
                error(429, "slow", r#","parameters":{"retry_after":7}"#),
                BotCallFailure::Wait(Duration::from_secs(7)),
            ),
            (429, error(429, "slow", ""), BotCallFailure::Wait(Duration::from_secs(1))),
            (400, error(400, "up", r#","parameters":{"migrate_to_chat_id":-1009}"#), BotCallFailure::Moved(-1009)),
            (
                400,
                error(400, "Bad Request: message is not modified: same", ""),
                BotCallFailure::Harmless("400 Bad Request: message is not modified: same".into()),
            ),
            (
                400,
                error(400, "Bad Request: message to edit not found", ""),
                BotCallFailure::Harmless("400 Bad Request: message to edit not found".into()),
            ),
            (400, error(400, "too long", ""), BotCallFailure::Refused("400 too long".into())),
            (403, error(403, "kicked", ""), BotCallFailure::Refused("403 kicked".into())),
            (502, "Bad Gateway".into(), BotCallFailure::Unreachable("502 its answer is not JSON".into())),
            (200, "{}".into(), BotCallFailure::Unreachable("200 its answer is not JSON".into())),
            (500, error(500, "a\u{202e}b", ""), BotCallFailure::Unreachable("500 a\\u{202e}b".into())),
        ] {
            assert_eq!(
                read_result(&BotResponse { status, body: body.clone().into_bytes() }),
                Err(want),
                "{status} {body}"
            );
        }
        let fine = BotResponse { status: 200, body: br#"{"ok":true,"result":[1]}"#.to_vec() };
        assert_eq!(read_result(&fine), Ok(serde_json::json!([1])));
    }

    #[test]
    fn the_wait_between_attempts_grows_to_thirty_seconds() {
        let mut backoff = RetryBackoff::default();
        let waits: Vec<u128> = (0..12).map(|_| backoff.next_wait().as_millis()).collect();
        assert_eq!(waits[..4], [1_000, 1_500, 2_250, 3_375]);
        assert_eq!(waits[10..], [30_000, 30_000]);
    }
}
