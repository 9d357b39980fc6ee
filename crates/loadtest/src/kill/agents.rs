//! Agents that ask until they are answered: whatever is cut off is asked again under the same key, on the next connection.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{WebSocketStream, tungstenite::Message};

use crate::kill::world::{Stage, agent};

/// How long a reply may take on one connection before another is tried.
const PATIENCE: Duration = Duration::from_secs(20);
/// How many connections one request may take before it counts as never answered.
const TRIES: u32 = 200;
/// How long to wait before the next connection.
const PAUSE: Duration = Duration::from_millis(50);
/// How many things are asked for once more at the end: a gateway remembers the keys of the last 4,096 (docs/protocol/agent-gate.md).
const AGAIN: usize = 4_000;

/// What an agent was told of one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Executed,
    Denied,
    Unknown,
}

type Socket = WebSocketStream<TcpStream>;

/// Asks for one thing after the other until it is over. Then the last of them are asked for once more under their keys, which must bring
/// the same answers and have no effect.
pub(crate) async fn play(stage: Arc<Stage>, number: usize) {
    let mut socket = None;
    let mut asked: Vec<(String, Told)> = Vec::new();
    let mut ids = 0;
    while !stage.is_over() {
        let kind = if asked.len().is_multiple_of(2) { "free" } else { "gated" };
        let thing = format!("{kind}_{number}_{}", asked.len());
        let Some(told) = ask(&stage, &mut socket, number, &thing, &mut ids).await else { return };
        check(&stage, &thing, &told);
        stage.did(match told {
            Told::Executed => "requests executed",
            Told::Denied => "requests denied",
            Told::Unknown => "requests in doubt",
        });
        asked.push((thing, told));
    }
    let known = asked.len().saturating_sub(AGAIN);
    for (thing, told) in asked.split_off(known) {
        let Some(again) = ask(&stage, &mut socket, number, &thing, &mut ids).await else { return };
        if again != told {
            stage.wrong(format!("{thing} was {told:?}, and asked for again it is {again:?}"));
        }
        check(&stage, &thing, &told);
        stage.did("requests asked for again at the end");
    }
}

/// What was told must be what happened.
fn check(stage: &Stage, thing: &str, told: &Told) {
    let times = stage.done.times(thing);
    let holds = match told {
        Told::Executed => times == 1,
        Told::Denied => times == 0,
        Told::Unknown => times <= 1,
    };
    if !holds {
        stage.wrong(format!("{thing} is told as {told:?} and was done {times} times"));
    }
}

/// Asks for a thing under its key until there is an answer.
async fn ask(stage: &Stage, socket: &mut Option<Socket>, number: usize, thing: &str, ids: &mut u64) -> Option<Told> {
    let mut last = String::new();
    for _ in 0..TRIES {
        match once(stage, socket, number, thing, ids).await {
            Ok(told) => return Some(told),
            Err(error) => {
                last = format!("{error:#}");
                *socket = None;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    stage.wrong(format!("{thing} got no answer: {last}"));
    None
}

async fn once(
    stage: &Stage,
    socket: &mut Option<Socket>,
    number: usize,
    thing: &str,
    ids: &mut u64,
) -> anyhow::Result<Told> {
    let socket = match socket {
        Some(socket) => socket,
        None => socket.insert(connect(stage, number).await?),
    };
    *ids += 1;
    let id = format!("{thing}-{ids}");
    let params = json!({ "tool": "turn", "args": { "thing": thing }, "idempotency_key": thing });
    let request = json!({ "jsonrpc": "2.0", "method": "tool_request", "params": params, "id": id });
    socket.send(Message::text(request.to_string())).await?;
    let told = loop {
        let told = reply(socket).await?;
        // What came of requests before the last death may be told again on its own.
        if told["id"] == id.as_str() {
            break told;
        }
    };
    let (status, message) = (&told["result"]["status"], told["error"]["message"].as_str().unwrap_or_default());
    match (status.as_str(), told["error"]["code"].as_i64()) {
        (Some("executed"), _) => Ok(Told::Executed),
        (_, Some(-32003..=-32001)) => Ok(Told::Denied),
        (_, Some(-32004)) if message.starts_with("Outcome unknown") => Ok(Told::Unknown),
        // It ends, or could not write it down: nothing happened, and it says so.
        _ => bail!("it was told {told}"),
    }
}

async fn connect(stage: &Stage, number: usize) -> anyhow::Result<Socket> {
    let address = stage.now_at();
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut socket, _) = tokio_tungstenite::client_async(format!("ws://{address}/"), stream).await?;
    let (_, token) = agent(number);
    let auth = json!({ "jsonrpc": "2.0", "method": "auth", "params": { "token": token }, "id": "auth-1" });
    socket.send(Message::text(auth.to_string())).await?;
    if reply(&mut socket).await?["result"]["status"] != "authenticated" {
        bail!("it was not let in");
    }
    Ok(socket)
}

async fn reply(socket: &mut Socket) -> anyhow::Result<Value> {
    loop {
        let message = tokio::time::timeout(PATIENCE, socket.next()).await.context("no reply in time")?;
        match message.context("the connection ended")?? {
            Message::Text(text) => return Ok(serde_json::from_str(&text)?),
            Message::Close(frame) => bail!("it was closed: {frame:?}"),
            // Pings are answered with the next read.
            Message::Ping(_) | Message::Pong(_) | Message::Binary(_) | Message::Frame(_) => {}
        }
    }
}
