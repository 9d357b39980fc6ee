//! The token of the gsv adapter is changed while the record has faults.

use std::sync::{Arc, Mutex};

use countersign_runtime::store::{DiskState, LogFault, MemoryLog, UncertainOutcome};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::{
    connection::JsonConnection,
    fixture::HistoryFixture,
    lifetime::{RunningGateway, advance_time, block_on_paused, settle, start, wait_for},
    peers::{TOKEN, hello},
};

/// Time longer than the owner waits for a disk before it replies that the outcome is unknown, in milliseconds.
const LONG: u64 = 10_000;
const NEXT: &str = "tok-that-comes-behind-it";

/// Connects a client with this token; returns the answers that it got.
async fn client(at: std::net::SocketAddr, id: &str, token: &str) -> (JsonConnection, Arc<Mutex<Vec<Value>>>) {
    let answers = Arc::<Mutex<Vec<Value>>>::default();
    let received = Arc::clone(&answers);
    let line = JsonConnection::websocket(at, "/ws", move |frame, _| {
        if frame["type"] == "res" {
            received.lock().unwrap().push(frame);
        }
    });
    let line = line.await.unwrap();
    let mut connect_request = hello("client", id);
    connect_request["params"]["auth"]["token"] = json!(token);
    line.send(connect_request);
    let arrived = Arc::clone(&answers);
    let is_told = async {
        while arrived.lock().unwrap().is_empty() {
            settle().await;
        }
    };
    wait_for(is_told).await.unwrap();
    (line, answers)
}

/// Waits until the heartbeat of the only agent is planned.
async fn is_planned(line: &JsonConnection, answers: &Mutex<Vec<Value>>) {
    let last = || answers.lock().unwrap().last().cloned().unwrap();
    while !last()["payload"]["agents"]["main"]["nextHeartbeatAt"].is_u64() {
        let before = answers.lock().unwrap().len();
        line.send(json!({ "type": "req", "id": "status", "method": "heartbeat.status" }));
        while answers.lock().unwrap().len() == before {
            settle().await;
        }
    }
}

#[test]
fn who_showed_the_token_before_is_cut_off_also_where_it_is_not_known_whether_the_next_one_was_recorded() {
    for became in [UncertainOutcome::Written, UncertainOutcome::Lost] {
        let world = HistoryFixture::new(0);
        block_on_paused(async {
            let (tell, opened) = oneshot::channel();
            let RunningGateway { serving, ready, end, .. } = start(MemoryLog::new(), &world, tell).await;
            let log = opened.await.unwrap();
            let address = wait_for(ready).await.unwrap().unwrap().rsplit('/').next().unwrap().parse().unwrap();
            let (bystander, bystander_answers) = client(address, "bystander", TOKEN).await;
            assert_eq!(bystander_answers.lock().unwrap()[0]["ok"], true);
            let (setter, setter_answers) = client(address, "setter", TOKEN).await;
            // The first plan is recorded: the disk breaks for later records.
            wait_for(is_planned(&bystander, &bystander_answers)).await.unwrap();
            log.fail_after(0, LogFault::Breaks(became));
            let set = json!({ "path": "auth.token", "value": NEXT });
            setter.send(json!({ "type": "req", "id": "set", "method": "config.set", "params": set }));
            // The caller is checked first, on another thread.
            let is_broken = async {
                while log.disk() != DiskState::Broken {
                    settle().await;
                }
            };
            wait_for(is_broken).await.unwrap();
            // No client gets an answer until the disk works, or it takes too long.
            assert_eq!(setter_answers.lock().unwrap().len(), 1);
            assert!(bystander.is_open());
            advance_time(LONG).await;
            log.set_disk(DiskState::Works);
            let is_through = async {
                while setter_answers.lock().unwrap().len() < 2 {
                    settle().await;
                }
                settle().await;
            };
            wait_for(is_through).await.unwrap();
            let answer = setter_answers.lock().unwrap().get(1).cloned().unwrap();
            assert!(answer["ok"] == false && answer["error"]["code"] == 500, "{became:?} {answer}");
            let is_lost = became == UncertainOutcome::Lost;
            assert_eq!(bystander.is_open(), is_lost);
            for (token, is_taken) in [(TOKEN, is_lost), (NEXT, !is_lost)] {
                let (_line, answers) = client(address, "another", token).await;
                assert_eq!(answers.lock().unwrap()[0]["ok"], is_taken, "{token}");
            }
            let _ = end.send(());
            assert!(matches!(wait_for(serving).await, Some(Ok(Ok(())))));
        });
    }
}
