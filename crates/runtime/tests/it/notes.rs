//! Notes of a whole conversation, in as many requests as that takes.

use std::{sync::Arc, time::Duration};

use countersign_core::{
    message::{InputMessage, MessageBlock, StoredMessage},
    session::RetryPolicy,
};
use countersign_runtime::{
    Chosen, Memories,
    meters::Meters,
    models::{
        Failure, FailureKind, demo,
        scripted::{Reply, Scripted},
    },
    note_down,
};

fn said(words: usize) -> StoredMessage {
    StoredMessage::User(InputMessage {
        content: vec![MessageBlock::from_text("word ".repeat(words))],
        ..InputMessage::default()
    })
}

async fn noted(replies: Vec<Reply>, messages: &[StoredMessage]) -> (Result<String, String>, Vec<String>) {
    let model = Scripted::new(replies);
    let mut entry = demo::entry();
    entry.context_window = 1_700;
    let chosen = Chosen { entry: Arc::new(entry), key: None, model: Arc::new(model.clone()) };
    let asked = parking_lot::Mutex::new(Vec::new());
    let request = |part: &[StoredMessage]| {
        asked.lock().push(part.len().to_string());
        Memories { system: "s".to_owned(), request: "r".to_owned() }
    };
    let retry = RetryPolicy { enabled: false, max: 0, base: Duration::ZERO, ..RetryPolicy::default() };
    let noted = note_down(&chosen, messages, request, retry, Duration::from_secs(9), &Meters::new()).await;
    (noted, asked.into_inner())
}

#[tokio::test]
async fn a_long_conversation_is_noted_part_by_part_and_a_part_may_fail() {
    let refuse = || Reply::fail(Failure::new(FailureKind::Refused, "no"));
    let long = [said(160), said(160), said(160), said(160), said(160), said(160), said(160), said(160)];
    let three = vec![Reply::say("- a"), refuse(), Reply::say("- c\n"), Reply::say("- d")];
    let (notes, asked) = noted(three, &long).await;
    assert_eq!((notes.as_deref(), asked), (Ok("- a\n- c\n- d"), ["2", "2", "2", "2"].map(str::to_owned).to_vec()));
    let (notes, asked) = noted(vec![refuse()], &[said(3)]).await;
    assert_eq!((notes, asked.len()), (Err("no".to_owned()), 1));
}
