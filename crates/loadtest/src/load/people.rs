//! Approvers: they follow the events, and allow or deny every new pending approval. Some answer twice, some at the same time as
//! another.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::{
    sync::{Mutex, mpsc},
    time::Instant,
};

use crate::{
    fixture::http::AsyncHttpClient,
    load::tally::{ActivityKind, LoadTally},
};

/// Number of approvers that answer at the same time.
const PEOPLE: usize = 8;
/// Of how many gates one is denied, and one is answered by two people at once.
const ONE_DENIED: u64 = 10;
const ONE_DOUBLE: u64 = 20;

/// Follows and answers until no agent is left.
pub(crate) async fn run_people(address: SocketAddr, tally: Arc<LoadTally>) {
    let (tell, gates) = mpsc::channel::<(u64, String)>(4096);
    let gates = Arc::new(Mutex::new(gates));
    let mut people = tokio::task::JoinSet::new();
    for _ in 0..PEOPLE {
        people.spawn(answer_all(address, Arc::clone(&gates), Arc::clone(&tally)));
    }
    let mut seen = 0;
    let mut after = "now".to_owned();
    while follow_gates(address, &mut after, &mut seen, &tell, &tally).await.is_err() {
        tally.record_failure("the stream of events was interrupted");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn follow_gates(
    address: SocketAddr,
    after: &mut String,
    seen: &mut u64,
    tell: &mpsc::Sender<(u64, String)>,
    tally: &LoadTally,
) -> anyhow::Result<()> {
    let mut client = AsyncHttpClient::connect(address).await?;
    client.open_stream(&format!("/api/v1/events?after={after}")).await?;
    let mut line = String::new();
    loop {
        line.clear();
        client.next_line(&mut line).await?;
        if let Some(id) = line.strip_prefix("id: ") {
            id.trim().clone_into(after);
        }
        let Some(data) = line.strip_prefix("data: ").filter(|data| data.contains(r#""kind":"gate","event":"opened""#))
        else {
            continue;
        };
        let event: Value = serde_json::from_str(data)?;
        let Some(gate) = event["facts"]["opened"]["gate"].as_str() else { continue };
        *seen += 1;
        if tell.try_send((*seen, gate.to_owned())).is_err() {
            tally.record_failure("the approvers have a backlog of 4,096 gates");
        }
    }
}

async fn answer_all(address: SocketAddr, gates: Arc<Mutex<mpsc::Receiver<(u64, String)>>>, tally: Arc<LoadTally>) {
    let (Ok(mut one), Ok(mut other)) =
        (AsyncHttpClient::connect(address).await, AsyncHttpClient::connect(address).await)
    else {
        return tally.record_failure("an approver could not connect");
    };
    loop {
        let next = gates.lock().await.recv().await;
        let Some((number, gate)) = next else { return };
        let verb = if number.is_multiple_of(ONE_DENIED) { "deny" } else { "allow" };
        let path = format!("/api/v1/gates/{gate}/{verb}");
        let begun = Instant::now();
        let is_double = number.is_multiple_of(ONE_DOUBLE);
        let nothing = json!({});
        let (mine, theirs) = (format!("one-{gate}"), format!("other-{gate}"));
        let (first, second) = tokio::join!(one.post_once(&path, &nothing, &mine), async {
            if is_double { Some(other.post_once(&path, &nothing, &theirs).await) } else { None }
        });
        let statuses = [Some(first), second].map(|reply| reply.map(|reply| reply.map(|(status, _)| status)));
        match statuses {
            [Some(Ok(200)), None] | [Some(Ok(200)), Some(Ok(409))] | [Some(Ok(409)), Some(Ok(200))] => {
                tally.record_success(ActivityKind::Answered, begun.elapsed());
            }
            [Some(Ok(200)), Some(Ok(200))] => tally.record_failure("the gateway accepted two answers to one gate"),
            [Some(Ok(status)), _] => tally.record_failure(format!("an answer returned {status}")),
            [_, _] => tally.record_failure("an answer got no reply"),
        }
    }
}
