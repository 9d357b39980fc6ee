//! The calls of the Bot API that cards need, and what their errors ask for.
//!
//! It must not know gates.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{
    client::{Answer, Transport},
    health::Health,
    wire::{Envelope, Keyboard, Message, Update},
};

/// How long a call may take that the server answers at once.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a file may take.
const FETCHING: Duration = Duration::from_secs(60);
/// How long a file may take on its way there.
const SENDING: Duration = Duration::from_secs(180);
/// How much of a server's words is kept.
const WORDS: usize = 300;

/// Why a call came to nothing, by what is to be done about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    /// Nothing but another token helps.
    #[error("the bot's token is refused: {0}")]
    Token(String),
    /// The same call again, after that long.
    #[error("too many requests: to be repeated after {} s", .0.as_secs())]
    Wait(Duration),
    /// Somebody else takes this bot's updates.
    #[error("somebody else polls with this token: {0}")]
    Conflict(String),
    /// The chat has another id now.
    #[error("the chat became {0}")]
    Moved(i64),
    /// There was nothing to do.
    #[error("there was nothing to do: {0}")]
    Harmless(String),
    /// This call is not taken; another may be.
    #[error("refused: {0}")]
    Refused(String),
    /// The server is not there or not well.
    #[error("not reached: {0}")]
    Unreachable(String),
}

/// How long to wait between attempts: one second, half as much again each time, thirty at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(Duration::from_secs(1))
    }
}

impl Backoff {
    /// The wait that is due now.
    pub(super) fn next(&mut self) -> Duration {
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

/// A bot that can be called.
#[derive(Clone)]
pub(super) struct Bot {
    transport: Arc<dyn Transport>,
    health: Health,
}

impl std::fmt::Debug for Bot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bot")
    }
}

impl Bot {
    pub(super) fn new(transport: Arc<dyn Transport>, health: Health) -> Self {
        Self { transport, health }
    }

    /// Asks who the bot is, which shows whether its token is good.
    pub(super) async fn get_me(&self) -> Result<(), Failure> {
        self.call("getMe", &json!({}), PATIENCE).await.map(drop)
    }

    /// Asks under which name the bot is known.
    pub(super) async fn username(&self) -> Result<String, Failure> {
        let me = self.call("getMe", &json!({}), PATIENCE).await?;
        Ok(shown(&me, &["username", "first_name"]))
    }

    /// Asks what a chat is called, which shows whether the bot is in it, and whether it has topics.
    pub(super) async fn look_at(&self, chat: i64) -> Result<ChatInfo, Failure> {
        let chat = self.call("getChat", &json!({ "chat_id": chat }), PATIENCE).await?;
        let kind = if chat["is_forum"] == true { ChatKind::Forum } else { ChatKind::Plain };
        Ok(ChatInfo { title: shown(&chat, &["title", "username", "first_name"]), kind })
    }

    /// Shows in a chat that something is being written.
    pub(super) async fn works(&self, chat: i64) -> Result<(), Failure> {
        let action = json!({ "chat_id": chat, "action": "typing" });
        self.call("sendChatAction", &action, PATIENCE).await.map(drop)
    }

    /// Without a webhook updates can be polled for.
    pub(super) async fn delete_webhook(&self) -> Result<(), Failure> {
        self.call("deleteWebhook", &json!({}), PATIENCE).await.map(drop)
    }

    /// Waits up to `wait` for updates, and confirms those before `offset`.
    pub(super) async fn updates(&self, offset: i64, wait: Duration) -> Result<Vec<Update>, Failure> {
        let asked = json!({
            "offset": offset,
            "limit": 100,
            "timeout": wait.as_secs(),
            "allowed_updates": ["callback_query", "message"],
        });
        match self.call("getUpdates", &asked, wait + PATIENCE).await? {
            Value::Array(updates) => Ok(updates.into_iter().filter_map(Update::read).collect()),
            _ => Err(self.failed("getUpdates", Failure::Unreachable("its updates are no list".to_owned()))),
        }
    }

    /// Sends a message, and gives it as it was sent. Where the topic is gone or closed it goes to the chat without one: a card that
    /// nobody sees is worse than one in the wrong place.
    pub(super) async fn send(
        &self,
        to: MessageTarget,
        text: &str,
        keys: Option<&Keyboard>,
    ) -> Result<Message, Failure> {
        match self.send_once(to, text, keys).await {
            Err(Failure::Refused(words)) if to.topic.is_some() && says_no_topic(&words) => {
                tracing::warn!(topic = to.topic, "the topic takes no messages; this one goes to the chat without it");
                self.send_once(MessageTarget { topic: None, ..to }, text, keys).await
            }
            sent => sent,
        }
    }

    async fn send_once(&self, to: MessageTarget, text: &str, keys: Option<&Keyboard>) -> Result<Message, Failure> {
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
        serde_json::from_value(sent)
            .map_err(|_| self.failed("sendMessage", Failure::Unreachable("what it sent is no message".to_owned())))
    }

    /// Changes the text and the buttons of a message; without `keys` it has none any more.
    pub(super) async fn edit(
        &self,
        chat: i64,
        message: i64,
        text: &str,
        keys: Option<&Keyboard>,
    ) -> Result<(), Failure> {
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

    /// Ends the wait of whoever tapped, with words where there are any.
    pub(super) async fn answer(&self, query: &str, said: &Said) -> Result<(), Failure> {
        let mut answer = json!({ "callback_query_id": query });
        if !said.text.is_empty() {
            answer["text"] = json!(said.text);
        }
        if said.alert {
            answer["show_alert"] = json!(true);
        }
        self.call("answerCallbackQuery", &answer, PATIENCE).await.map(drop)
    }

    /// The content of a file. `None` if it has more than `most` bytes.
    pub(super) async fn file(&self, id: &str, most: u64) -> Result<Option<Vec<u8>>, Failure> {
        let file = self.call("getFile", &json!({ "file_id": id }), PATIENCE).await?;
        if file["file_size"].as_u64().is_some_and(|size| size > most) {
            return Ok(None);
        }
        let Some(path) = file["file_path"].as_str() else {
            return Err(self.failed("getFile", Failure::Refused("it has no path".to_owned())));
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let answer = self.transport.file(path.to_owned(), most, FETCHING).await;
        let answer = answer.map_err(|words| self.failed("the content of a file", Failure::Unreachable(words)))?;
        match answer.status {
            200 => Ok((answer.body.len() <= most).then_some(answer.body)),
            status => Err(self.failed("the content of a file", Failure::Unreachable(format!("answered {status}")))),
        }
    }

    /// Calls a method with a form of this type, which holds a file.
    pub(super) async fn upload(&self, method: &'static str, kind: String, form: Vec<u8>) -> Result<(), Failure> {
        let answered = self.transport.upload(method, kind, form, SENDING).await;
        self.result(method, answered).map(drop)
    }

    async fn call(&self, method: &'static str, body: &Value, patience: Duration) -> Result<Value, Failure> {
        let answered = self.transport.call(method, body.to_string(), patience).await;
        self.result(method, answered)
    }

    fn result(&self, method: &'static str, answered: Result<Answer, String>) -> Result<Value, Failure> {
        match answered.map_err(Failure::Unreachable).and_then(|answer| read(&answer)) {
            Ok(result) => {
                self.health.worked();
                Ok(result)
            }
            // The server is there and well.
            Err(failure @ Failure::Harmless(_)) => {
                self.health.worked();
                Err(failure)
            }
            Err(failure) => Err(self.failed(method, failure)),
        }
    }

    fn failed(&self, method: &'static str, failure: Failure) -> Failure {
        tracing::warn!(method, %failure, "a call of the Bot API failed");
        self.health.failed(format!("{method}: {failure}"));
        failure
    }
}

/// A chat as the bot sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChatInfo {
    pub(super) title: String,
    pub(super) kind: ChatKind,
}

/// The kinds of chats, by their topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChatKind {
    /// It has none.
    Plain,
    /// It has some, General among them.
    Forum,
}

/// What whoever tapped is told: at most 200 characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) text: &'static str,
    /// Whether it has to be read: it stays until it is closed.
    pub(super) alert: bool,
}

/// The first of the members that is there, as a person may see it.
fn shown(value: &Value, members: &[&str]) -> String {
    let text = members.iter().find_map(|member| value[*member].as_str()).unwrap_or("without a name");
    countersign_view::escape(text, countersign_view::Lines::One).into_owned()
}

/// Whether a refusal is about the topic that a message was for.
fn says_no_topic(words: &str) -> bool {
    let words = words.to_lowercase();
    ["message thread not found", "topic_closed", "topic_deleted", "topic_id_invalid"]
        .iter()
        .any(|said| words.contains(said))
}

/// The result in an answer.
fn read(answer: &Answer) -> Result<Value, Failure> {
    let envelope = serde_json::from_slice::<Envelope>(&answer.body);
    let Ok(envelope) = envelope else {
        return Err(failure(answer.status, "its answer is not JSON", None, None));
    };
    if envelope.ok {
        return Ok(envelope.result);
    }
    let words: String = envelope.description.unwrap_or_default().chars().take(WORDS).collect();
    let words = countersign_view::escape(&words, countersign_view::Lines::One);
    let parameters = envelope.parameters.unwrap_or_default();
    let status = envelope.error_code.unwrap_or(answer.status);
    Err(failure(status, &words, parameters.retry_after, parameters.migrate_to_chat_id))
}

fn failure(status: u16, words: &str, retry_after: Option<u64>, moved: Option<i64>) -> Failure {
    /// What a 400 says when it only means that there was nothing to do.
    const HARMLESS: [&str; 4] =
        ["message is not modified", "message to edit not found", "query is too old", "query id is invalid"];
    let said = format!("{status} {words}");
    if let Some(chat) = moved {
        return Failure::Moved(chat);
    }
    match status {
        401 | 404 => Failure::Token(said),
        409 => Failure::Conflict(said),
        429 => Failure::Wait(Duration::from_secs(retry_after.unwrap_or(1).clamp(1, 3600))),
        400 if HARMLESS.iter().any(|harmless| words.to_lowercase().contains(harmless)) => Failure::Harmless(said),
        400 if words.contains("TOPIC_CLOSED") => Failure::Refused(format!(
            "{said}: this topic is closed; messenger.telegram.message_thread_id names another, and a bot that may manage topics \
             writes into closed ones"
        )),
        400 | 402 | 403 | 405..=499 => Failure::Refused(said),
        _ => Failure::Unreachable(said),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Answer, Backoff, Failure, read};

    #[test]
    fn an_error_says_what_is_to_be_done() {
        let error = |code: u16, words: &str, more: &str| {
            format!(r#"{{"ok":false,"error_code":{code},"description":"{words}"{more}}}"#)
        };
        for (status, body, want) in [
            (401, error(401, "Unauthorized", ""), Failure::Token("401 Unauthorized".into())),
            (404, error(404, "Not Found", ""), Failure::Token("404 Not Found".into())),
            (404, "<html>".into(), Failure::Token("404 its answer is not JSON".into())),
            (409, error(409, "Conflict", ""), Failure::Conflict("409 Conflict".into())),
            (429, error(429, "slow", r#","parameters":{"retry_after":7}"#), Failure::Wait(Duration::from_secs(7))),
            (429, error(429, "slow", ""), Failure::Wait(Duration::from_secs(1))),
            (400, error(400, "up", r#","parameters":{"migrate_to_chat_id":-1009}"#), Failure::Moved(-1009)),
            (
                400,
                error(400, "Bad Request: message is not modified: same", ""),
                Failure::Harmless("400 Bad Request: message is not modified: same".into()),
            ),
            (
                400,
                error(400, "Bad Request: message to edit not found", ""),
                Failure::Harmless("400 Bad Request: message to edit not found".into()),
            ),
            (400, error(400, "too long", ""), Failure::Refused("400 too long".into())),
            (403, error(403, "kicked", ""), Failure::Refused("403 kicked".into())),
            (502, "Bad Gateway".into(), Failure::Unreachable("502 its answer is not JSON".into())),
            (200, "{}".into(), Failure::Unreachable("200 its answer is not JSON".into())),
            (500, error(500, "a\u{202e}b", ""), Failure::Unreachable("500 a\\u{202e}b".into())),
        ] {
            assert_eq!(read(&Answer { status, body: body.clone().into_bytes() }), Err(want), "{status} {body}");
        }
        let fine = Answer { status: 200, body: br#"{"ok":true,"result":[1]}"#.to_vec() };
        assert_eq!(read(&fine), Ok(serde_json::json!([1])));
    }

    #[test]
    fn the_wait_between_attempts_grows_to_thirty_seconds() {
        let mut backoff = Backoff::default();
        let waits: Vec<u128> = (0..12).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(waits[..4], [1_000, 1_500, 2_250, 3_375]);
        assert_eq!(waits[10..], [30_000, 30_000]);
    }
}
