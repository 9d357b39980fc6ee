//! Browser that chats: it opens sessions, sends messages, and reads its turns.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::AsyncBufReadExt as _;

use crate::{
    fixture::{HistoryFixture, MessageOutcome},
    http,
};

/// Sends a message in an existing session, or in a new one. Its turn is read in the background.
pub(crate) async fn say(world: &HistoryFixture, address: SocketAddr) {
    let known = world.with_ledger(|ledger| ledger.chats.clone());
    let session = match known.len() {
        count if count > 0 && world.chance(70) => known[usize::try_from(world.below(count as u64)).unwrap()].clone(),
        _ => {
            let Some((200, opened)) = http::post(address, "/api/session/new", &json!({}), None).await else { return };
            let session = opened["session"]["session_id"].as_str().unwrap().to_owned();
            world.with_ledger(|ledger| ledger.chats.push(session.clone()));
            session
        }
    };
    let text = world.with_ledger(|ledger| ledger.next_name("browser"));
    world.with_ledger(|ledger| ledger.messages.insert(text.clone(), MessageOutcome::Nothing));
    let body = json!({ "session_id": session, "message": format!("{text}.") });
    let Some((status, started)) = http::post(address, "/api/chat/start", &body, None).await else { return };
    let outcome = match status {
        200 => MessageOutcome::Taken,
        400..500 => MessageOutcome::Refused,
        _ => MessageOutcome::Nothing,
    };
    world.with_ledger(|ledger| ledger.messages.insert(text, outcome));
    let Some(stream) = started["stream_id"].as_str() else { return };
    let (world, path) = (world.clone(), format!("/api/chat/stream?stream_id={stream}"));
    tokio::spawn(async move { read(&world, address, &path).await.ok() });
}

/// Reads a turn to its end: its numbers only grow, and nothing comes after the end.
async fn read(world: &HistoryFixture, address: SocketAddr, path: &str) -> std::io::Result<()> {
    let Some(mut stream) = http::open(address, path).await? else { return Ok(()) };
    let (mut line, mut last, mut is_over) = (String::new(), 0, false);
    while stream.read_line(&mut line).await? > 0 {
        if let Some(id) = line.strip_prefix("id: ") {
            let number = id.trim().rsplit(':').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or_default();
            if number <= last || is_over {
                world.report_violation(format!("{path}: {number} comes behind {last}, over: {is_over}"));
            }
            last = number;
        }
        is_over |= line.starts_with("event: stream_end");
        line.clear();
    }
    Ok(())
}

/// Returns the messages of users in a session, as browsers see them. `None` if they cannot be read now.
pub(crate) async fn user_messages(address: SocketAddr, session: &str) -> Option<Vec<String>> {
    let (status, shown) = http::get(address, &format!("/api/session?session_id={session}")).await?;
    let messages = shown["session"]["messages"].as_array().filter(|_| status == 200)?;
    Some(messages.iter().filter(|message| message["role"] == "user").map(text).collect())
}

fn text(message: &Value) -> String {
    match &message["content"] {
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        content => content.as_str().unwrap_or_default().to_owned(),
    }
}
