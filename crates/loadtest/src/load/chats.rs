//! Browsers that chat: one run after the other, each read to the end of its stream.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    fixture::http::AsyncHttpClient,
    load::tally::{ActivityKind, LoadTally},
};

/// Time after which a run counts as lost.
const PATIENCE: Duration = Duration::from_secs(120);
/// Number of messages in one session before a new one is opened.
const TURNS: usize = 20;

/// Chats until the load is over; the first time after `after`.
pub(crate) async fn run_chat(address: SocketAddr, after: Duration, tally: Arc<LoadTally>) {
    tokio::time::sleep(after).await;
    while !tally.is_over() {
        if let Err(error) = run_session(address, &tally).await {
            tally.record_failure(format!("a chat failed: {error:#}"));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

async fn run_session(address: SocketAddr, tally: &LoadTally) -> anyhow::Result<()> {
    let mut client = AsyncHttpClient::connect(address).await?;
    let (status, session) = client.post_json("/api/session/new", &json!({})).await?;
    if status != 200 {
        bail!("{status} for a new session");
    }
    let session = session["session"]["session_id"].as_str().context("the new session has no id")?.to_owned();
    for _ in 0..TURNS {
        if tally.is_over() {
            break;
        }
        // A browser takes a new connection where the old one has been idle for as long as a turn takes.
        client = AsyncHttpClient::connect(address).await?;
        let begun = Instant::now();
        let message = json!({ "session_id": session, "message": "What is here?" });
        let (status, started) = client.post_json("/api/chat/start", &message).await?;
        if status != 200 {
            bail!("{status} for a message");
        }
        let stream = started["stream_id"].as_str().context("a turn without a stream")?;
        tokio::time::timeout(PATIENCE, read_turn(address, stream)).await.context("a run did not end")??;
        tally.record_success(ActivityKind::Run, begun.elapsed());
    }
    Ok(())
}

/// Reads a turn to its end, which has to be one that succeeded.
async fn read_turn(address: SocketAddr, stream: &str) -> anyhow::Result<()> {
    let mut client = AsyncHttpClient::connect(address).await?;
    client.open_stream(&format!("/api/chat/stream?stream_id={stream}")).await?;
    let (mut line, mut is_done) = (String::new(), false);
    loop {
        line.clear();
        client.next_line(&mut line).await?;
        match line.strip_prefix("event: ").map(str::trim) {
            Some("done") => is_done = true,
            Some("stream_end") if is_done => return Ok(()),
            Some("stream_end") => bail!("a stream ended before its run was done"),
            Some(failed @ ("apperror" | "cancel")) => bail!("a run ended as {failed}"),
            _ => {}
        }
    }
}
