//! Approvers: they answer pending gates, at any surface, and one of them follows all facts from one cursor over all lives.

use std::{net::SocketAddr, path::Path};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
};

use crate::{fixture::HistoryFixture, http};

/// Returns every pending gate, oldest first. `None` if they cannot be read now.
pub(crate) async fn waiting_gates(address: SocketAddr) -> Option<Vec<Value>> {
    let (status, reply) = http::get(address, "/api/v1/gates").await?;
    (status == 200).then(|| reply["gates"].as_array().unwrap().clone())
}

/// Reports whether no session works or waits. `None` if that cannot be read now.
pub(crate) async fn is_at_rest(address: SocketAddr) -> Option<bool> {
    Some(at_work(address).await?.is_empty())
}

/// Returns the sessions that wait or work.
pub(crate) async fn at_work(address: SocketAddr) -> Option<Vec<Value>> {
    let (status, reply) = http::get(address, "/api/v1/sessions?limit=100").await?;
    let sessions = reply["sessions"].as_array().filter(|_| status == 200)?;
    Some(sessions.iter().filter(|session| session["state"] != "resting").cloned().collect())
}

/// Answers one gate at some surface; now and then twice, and by two at once.
pub(crate) async fn answer(world: &HistoryFixture, address: SocketAddr, socket: &Path, gate: &Value) {
    let allows = world.chance(75);
    let mut one = Box::pin(at_some_door(world, address, socket, gate, allows));
    match world.below(10) {
        0 => {
            let other = at_some_door(world, address, socket, gate, world.chance(50));
            tokio::join!(one, other);
        }
        // It disconnects before the reply, so the answer may count or not.
        1 => {
            for _ in 0..world.below(40) {
                if futures_util::poll!(&mut one).is_ready() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        }
        _ => one.await,
    }
}

async fn at_some_door(world: &HistoryFixture, address: SocketAddr, socket: &Path, gate: &Value, allows: bool) {
    let id = gate["id"].as_str().unwrap();
    let became = match world.below(3) {
        0 => over_api(address, id, allows).await,
        1 => over_socket(socket, id, allows).await,
        _ => over_browser(address, gate, id, allows).await,
    };
    if let Some(became) = became {
        world.with_ledger(|ledger| ledger.record_answer(id, &became));
    }
}

const fn word(allows: bool) -> &'static str {
    if allows { "allowed" } else { "denied" }
}

/// Returns the resolution of the gate, if the reply has it.
async fn over_api(address: SocketAddr, gate: &str, allows: bool) -> Option<String> {
    let path = format!("/api/v1/gates/{gate}/{}", if allows { "allow" } else { "deny" });
    let (status, reply) = http::post(address, &path, &json!({}), Some(&format!("{gate}-{allows}"))).await?;
    matches!(status, 200 | 409).then(|| reply["resolution"].as_str().map(str::to_owned)).flatten()
}

async fn over_socket(socket: &Path, gate: &str, allows: bool) -> Option<String> {
    let request = match allows {
        true => json!({ "ask": "allow", "id": gate, "scope": "once" }),
        false => json!({ "ask": "deny", "id": gate, "reason": null }),
    };
    let mut stream = UnixStream::connect(socket).await.ok()?;
    stream.write_all(format!("{request}\n").as_bytes()).await.ok()?;
    let line = BufReader::new(stream).lines().next_line().await.ok()??;
    let reply: Value = serde_json::from_str(&line).unwrap();
    reply.get("ok").map(|_| word(allows).to_owned())
}

async fn over_browser(address: SocketAddr, gate: &Value, id: &str, allows: bool) -> Option<String> {
    let choice = if allows { "once" } else { "deny" };
    let body = json!({ "session_id": gate["session"], "choice": choice, "approval_id": id });
    let (status, reply) = http::post(address, "/api/approval/respond", &body, None).await?;
    let counted = status == 200 && reply["ok"] == true && reply.get("stale_cleared").is_none();
    counted.then(|| word(allows).to_owned())
}

/// Follows from its cursor until its connection ends.
pub(crate) async fn follow(world: HistoryFixture, address: SocketAddr) {
    let after = world.with_ledger(|ledger| ledger.cursor.clone()).unwrap_or_else(|| "start".to_owned());
    let Ok(Some(mut stream)) = http::open(address, &format!("/api/v1/events?after={after}")).await else { return };
    let (mut line, mut id) = (String::new(), String::new());
    while matches!(stream.read_line(&mut line).await, Ok(count) if count > 0) {
        if line.starts_with("event: reset") {
            world.report_violation("a cursor that was told was refused");
        }
        if let Some(value) = line.strip_prefix("id: ") {
            value.trim().clone_into(&mut id);
        }
        if let Some(data) = line.strip_prefix("data: ")
            && let Ok(event) = serde_json::from_str::<Value>(data)
            && let Some(lsn) = event["lsn"].as_u64()
        {
            world.with_ledger(|ledger| {
                let last = ledger.seen.keys().next_back().copied().unwrap_or(0);
                if lsn != last + 1 {
                    ledger.report_violation(format!("the follower saw {lsn} behind {last}"));
                }
                ledger.seen.insert(lsn, event["facts"].clone());
                ledger.cursor = Some(id.clone());
            });
        }
        line.clear();
    }
}
