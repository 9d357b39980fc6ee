//! A batch that could not be recorded: none of it is so, and nobody is told otherwise.

use countersign_core::{
    engine::{Command, Resume},
    gate::{self, Answer},
    id::PrincipalId,
    policy::Posture,
};
use countersign_runtime::{
    Lane, Refused,
    models::scripted::{Reply, Scripted},
    store::{Fault, MemoryLog},
};
use serde_json::json;

use crate::stage::{allow, begin, open, pending, prompt, rules};

fn writes() -> Reply {
    Reply::use_tool("c1", "write", &json!({ "path": "/nowhere/x", "content": "x" }).to_string())
}

#[tokio::test]
async fn rules_that_were_not_recorded_are_not_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let log = MemoryLog::new();
    let owner = open(log.clone(), &Scripted::default(), Posture::Gateway, Resume::Wait).await;
    let requests = begin(&owner, folder.path()).await;
    log.fail_next(Fault::Io);
    let prompted = requests.send(prompt()).await;
    let reloaded = requests.send(Command::UseRules(Box::new(rules(Posture::Stdio)))).await;
    assert!(matches!(prompted.await, Ok(Err(Refused::NotRecorded(_)))));
    assert!(matches!(reloaded.await, Ok(Err(Refused::NotRecorded(_)))));
    let posture = requests.read(|engine| engine.rules().posture).await.unwrap().0;
    assert_eq!(posture, Posture::Gateway);
    owner.close().await;
}

#[tokio::test]
async fn nobody_is_told_of_an_answer_that_was_not_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let log = MemoryLog::new();
    let owner = open(log.clone(), &Scripted::new([writes()]), Posture::Gateway, Resume::Wait).await;
    begin(&owner, folder.path()).await.ask(prompt()).await.unwrap();
    let gate = pending(&owner).await;
    log.fail_next(Fault::Io);
    let answers = owner.source(Lane::Result);
    let ana = answers.send(allow(gate)).await;
    let by = PrincipalId::new("ben");
    let deny = gate::Command::Answer { gate, answer: Answer::Deny { reason: None }, by, key: None };
    let ben = answers.send(Command::Gate(deny)).await;
    assert!(matches!(ana.await, Ok(Err(Refused::NotRecorded(_)))));
    let ben = ben.await;
    assert!(matches!(ben, Ok(Err(Refused::NotRecorded(_)))), "{ben:?}");
    owner.close().await;
}
