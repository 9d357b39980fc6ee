//! The token of the gsv door is changed while the record goes wrong.

use std::sync::{Arc, Mutex};

use countersign_runtime::store::{DiskState, LogFault, MemoryLog, UncertainOutcome};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::{
    life::{Gateway, pass, patient, settle, start, within},
    lines::Line,
    outside::World,
    peers::{TOKEN, hello},
};

/// Longer than the owner waits for a disk before it says that it does not know, in milliseconds.
const LONG: u64 = 10_000;
const NEXT: &str = "tok-that-comes-behind-it";

/// A client with this token, and the answers that it got.
async fn client(at: std::net::SocketAddr, id: &str, token: &str) -> (Line, Arc<Mutex<Vec<Value>>>) {
    let answers = Arc::<Mutex<Vec<Value>>>::default();
    let heard = Arc::clone(&answers);
    let line = Line::websocket(at, "/ws", move |frame, _| {
        if frame["type"] == "res" {
            heard.lock().unwrap().push(frame);
        }
    });
    let line = line.await.unwrap();
    let mut said = hello("client", id);
    said["params"]["auth"]["token"] = json!(token);
    line.send(said);
    let told = Arc::clone(&answers);
    let is_told = async {
        while told.lock().unwrap().is_empty() {
            settle().await;
        }
    };
    patient(is_told).await.unwrap();
    (line, answers)
}

/// Waits until the heartbeat of the only agent is planned.
async fn is_planned(line: &Line, told: &Mutex<Vec<Value>>) {
    let last = || told.lock().unwrap().last().cloned().unwrap();
    while !last()["payload"]["agents"]["main"]["nextHeartbeatAt"].is_u64() {
        let before = told.lock().unwrap().len();
        line.send(json!({ "type": "req", "id": "status", "method": "heartbeat.status" }));
        while told.lock().unwrap().len() == before {
            settle().await;
        }
    }
}

#[test]
fn who_showed_the_token_before_is_cut_off_also_where_it_is_not_known_whether_the_next_one_was_recorded() {
    for became in [UncertainOutcome::Written, UncertainOutcome::Lost] {
        let world = World::new(0);
        within(async {
            let (tell, opened) = oneshot::channel();
            let Gateway { serving, ready, end, .. } = start(MemoryLog::new(), &world, tell).await;
            let log = opened.await.unwrap();
            let address = patient(ready).await.unwrap().unwrap().rsplit('/').next().unwrap().parse().unwrap();
            let (bystander, told) = client(address, "bystander", TOKEN).await;
            assert_eq!(told.lock().unwrap()[0]["ok"], true);
            let (setter, heard) = client(address, "setter", TOKEN).await;
            // What the first of them had planned is recorded: the disk breaks for what comes now.
            patient(is_planned(&bystander, &told)).await.unwrap();
            log.fail_after(0, LogFault::Breaks(became));
            let set = json!({ "path": "auth.token", "value": NEXT });
            setter.send(json!({ "type": "req", "id": "set", "method": "config.set", "params": set }));
            // Who asks is looked at first, on another thread.
            let is_broken = async {
                while log.disk() != DiskState::Broken {
                    settle().await;
                }
            };
            patient(is_broken).await.unwrap();
            // Nobody is told anything until the disk works, or it takes too long.
            assert_eq!(heard.lock().unwrap().len(), 1);
            assert!(bystander.is_open());
            pass(LONG).await;
            log.set_disk(DiskState::Works);
            let is_through = async {
                while heard.lock().unwrap().len() < 2 {
                    settle().await;
                }
                settle().await;
            };
            patient(is_through).await.unwrap();
            let told = heard.lock().unwrap().get(1).cloned().unwrap();
            assert!(told["ok"] == false && told["error"]["code"] == 500, "{became:?} {told}");
            let is_lost = became == UncertainOutcome::Lost;
            assert_eq!(bystander.is_open(), is_lost);
            for (token, is_taken) in [(TOKEN, is_lost), (NEXT, !is_lost)] {
                let (_line, told) = client(address, "another", token).await;
                assert_eq!(told.lock().unwrap()[0]["ok"], is_taken, "{token}");
            }
            let _ = end.send(());
            assert!(matches!(patient(serving).await, Some(Ok(Ok(())))));
        });
    }
}
