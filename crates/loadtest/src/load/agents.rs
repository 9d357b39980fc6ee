//! Agents on untrusted devices: each asks for something now and then, and knows what it got.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use anyhow::{Context as _, bail};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::Instant};
use tokio_tungstenite::{WebSocketStream, tungstenite::Message};

use crate::{
    fixture::socket::tool_request,
    load::{
        load_fixture::{EffectCounts, agent_credentials},
        tally::{ActivityKind, LoadTally},
    },
};

/// Number of requests of which one requires approval.
const ONE_ASKS: u64 = 4;
/// Time after which a reply counts as missing.
const PATIENCE: Duration = Duration::from_secs(60);

/// Plays one agent until the load is over. It asks for something every `pace`, the first time after `after`.
pub(crate) async fn run_agent(
    address: SocketAddr,
    number: usize,
    (after, pace): (Duration, Duration),
    done: EffectCounts,
    tally: Arc<LoadTally>,
) {
    tokio::time::sleep(after).await;
    // Not all ask at the same time.
    let mut served = number as u64;
    while !tally.is_over() {
        if let Err(error) = run_connection(address, number, pace, &done, &tally, &mut served).await {
            tally.record_failure(format!("an agent lost its connection: {error:#}"));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

async fn run_connection(
    address: SocketAddr,
    number: usize,
    pace: Duration,
    done: &EffectCounts,
    tally: &LoadTally,
    served: &mut u64,
) -> anyhow::Result<()> {
    let (name, token) = agent_credentials(number);
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut socket, _) = tokio_tungstenite::client_async(format!("ws://{address}/"), stream).await?;
    let auth = json!({ "jsonrpc": "2.0", "method": "auth", "params": { "token": token }, "id": "auth-1" });
    socket.send(Message::text(auth.to_string())).await?;
    if read_reply(&mut socket).await?["result"]["status"] != "authenticated" {
        bail!("the agent was not authenticated");
    }
    let mut next = Instant::now();
    while !tally.is_over() {
        *served += 1;
        let (asks, thing) = (served.is_multiple_of(ONE_ASKS), format!("{name}_{served}"));
        let begun = Instant::now();
        let tool = if asks { "turn" } else { "look" };
        socket.send(Message::text(tool_request(*served, tool, &json!({ "thing": thing })))).await?;
        let answer = read_reply(&mut socket).await?;
        if answer["id"] != *served {
            bail!("the reply has another id than the request");
        }
        let (status, code) = (answer["result"]["status"].as_str(), answer["error"]["code"].as_i64());
        match (asks, status, code) {
            (false, Some("executed"), _) => tally.record_success(ActivityKind::Allowed, begun.elapsed()),
            (true, Some("executed"), _) if done.times_done(&thing) == 1 => {
                tally.record_success(ActivityKind::Countersigned, begun.elapsed())
            }
            (true, None, Some(-32001)) if done.times_done(&thing) == 0 => {
                tally.record_success(ActivityKind::Countersigned, begun.elapsed())
            }
            (true, None, Some(-32003)) if done.times_done(&thing) == 0 && is_breaker(&answer) => {
                tally.limited.fetch_add(1, Ordering::Relaxed);
            }
            (true, Some("executed"), _) => {
                tally.record_failure("a call was reported as executed and was not done once")
            }
            (true, None, Some(-32001)) => tally.record_failure("a call was reported as denied but was done"),
            (_, _, code) => tally.record_failure(format!("an agent received the error {code:?}")),
        }
        next = (next + pace).max(Instant::now());
        tokio::time::sleep_until(next).await;
    }
    Ok(socket.close(None).await?)
}

async fn read_reply(socket: &mut WebSocketStream<TcpStream>) -> anyhow::Result<Value> {
    loop {
        let message = tokio::time::timeout(PATIENCE, socket.next()).await.context("no reply within a minute")?;
        match message.context("the connection ended")?? {
            Message::Text(text) => return Ok(serde_json::from_str(&text)?),
            Message::Close(frame) => bail!("the connection was closed: {frame:?}"),
            // Pings are answered with the next read.
            Message::Ping(_) | Message::Pong(_) | Message::Binary(_) | Message::Frame(_) => {}
        }
    }
}

/// Reports whether a refusal is that of an agent with too many denials, as `docs/protocol/agent-gate.md` states.
fn is_breaker(answer: &Value) -> bool {
    answer["error"]["data"]["reason"].as_str().is_some_and(|reason| reason.contains("in a row"))
}
