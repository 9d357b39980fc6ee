//! Programs that open sessions and speak in them. What was taken must be in the conversation at the end, once.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::{fixture::http::AsyncHttpClient, kill::restarting_gateway::KillRunState};

/// Time for a reply on one connection before another is tried.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of connections for one message before it counts as never taken.
const TRIES: u32 = 200;
/// Pause before the next connection, and before the next message.
const PAUSE: Duration = Duration::from_millis(50);
/// Number of messages in one session. Of a session the last 128 keys are known.
const TURNS: usize = 60;

/// Speaks until it is over, then looks for everything that was taken.
pub(crate) async fn run_chat_client(stage: Arc<KillRunState>, number: usize) {
    let mut client = None;
    let mut sent: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut session = String::new();
    let mut count = 0;
    while !stage.is_over() {
        if count % TURNS == 0 {
            match post_until_replied(
                &stage,
                &mut client,
                "/api/v1/sessions",
                &json!({}),
                &format!("open-{number}-{count}"),
            )
            .await
            {
                Ok(opened) => opened["id"].as_str().unwrap_or_default().clone_into(&mut session),
                Err(error) => return stage.record_failure(format!("a session was not opened: {error:#}")),
            }
        }
        let text = format!("message {count} of program {number}");
        let body = json!({ "text": text, "when_busy": "queue" });
        let path = format!("/api/v1/sessions/{session}/messages");
        match post_until_replied(&stage, &mut client, &path, &body, &format!("say-{number}-{count}")).await {
            Ok(_) => {
                stage.record_success("messages accepted");
                sent.entry(session.clone()).or_default().push(text);
            }
            Err(error) => return stage.record_failure(format!("a message was not accepted: {error:#}")),
        }
        count += 1;
        tokio::time::sleep(PAUSE).await;
    }
    for (session, texts) in sent {
        if let Err(error) = check_messages(&stage, &session, &texts).await {
            stage.record_failure(format!("{session}: {error:#}"));
        }
    }
}

/// Posts under a key until there is a reply.
async fn post_until_replied(
    stage: &KillRunState,
    client: &mut Option<AsyncHttpClient>,
    path: &str,
    body: &Value,
    key: &str,
) -> anyhow::Result<Value> {
    let mut last = anyhow::anyhow!("no request was sent");
    for _ in 0..TRIES {
        match try_post(stage, client, path, body, key).await {
            Ok(reply) => return Ok(reply),
            Err(error) => {
                last = error;
                *client = None;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    Err(last)
}

async fn try_post(
    stage: &KillRunState,
    client: &mut Option<AsyncHttpClient>,
    path: &str,
    body: &Value,
    key: &str,
) -> anyhow::Result<Value> {
    let client = match client {
        Some(client) => client,
        None => client.insert(stage.connect_client().await?),
    };
    let (status, reply) = tokio::time::timeout(PATIENCE, client.post_under(path, body, key)).await??;
    if matches!(status, 200..=202) { Ok(reply) } else { bail!("{status} {reply}") }
}

/// Checks that a session has each of these texts once, in the order in which they were sent.
async fn check_messages(stage: &KillRunState, session: &str, texts: &[String]) -> anyhow::Result<()> {
    let mut found = Vec::new();
    for _ in 0..TRIES {
        found = user_messages(stage, session).await?;
        // A queued message is sent when the run before it is over.
        if found.len() >= texts.len() {
            break;
        }
        tokio::time::sleep(PAUSE * 4).await;
    }
    if found == texts {
        return Ok(());
    }
    let lost = texts.iter().filter(|text| !found.contains(text)).count();
    bail!(
        "{} messages were accepted, {} are in the session, {lost} are missing; the first is {:?}",
        texts.len(),
        found.len(),
        found.first()
    )
}

/// Returns the user messages of a session, in order.
async fn user_messages(stage: &KillRunState, session: &str) -> anyhow::Result<Vec<String>> {
    let mut client = stage.connect_client().await?;
    let mut pages = Vec::new();
    let mut before = String::new();
    loop {
        let (status, shown) = client.get(&format!("/api/v1/sessions/{session}?limit=200{before}")).await?;
        if status != 200 {
            bail!("{status} {shown}");
        }
        let entries = shown["entries"].as_array().context("a session without entries")?;
        let texts = entries
            .iter()
            .filter(|entry| entry["message"]["role"] == "user")
            .map(|entry| message_text(&entry["message"]));
        pages.push(texts.collect::<Vec<_>>());
        match shown["earlier"].as_str() {
            Some(earlier) => before = format!("&before={earlier}"),
            None => break,
        }
    }
    Ok(pages.into_iter().rev().flatten().collect())
}

fn message_text(message: &Value) -> String {
    match &message["content"] {
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        content => content.as_str().unwrap_or_default().to_owned(),
    }
}
