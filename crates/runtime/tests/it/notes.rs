//! Notes of a whole conversation, in as many requests as that takes.

use std::{sync::Arc, time::Duration};

use countersign_core::{
    message::{InputMessage, MessageBlock, StoredMessage},
    session::RetryPolicy,
};
use countersign_runtime::{
    MemoryRequest, ResolvedModel,
    metrics::RuntimeMetrics,
    models::{
        FailureKind, ModelFailure, demo,
        scripted::{ScriptedModel, ScriptedReply},
    },
    note_down,
};

fn user_message(words: usize) -> StoredMessage {
    StoredMessage::User(InputMessage {
        content: vec![MessageBlock::from_text("word ".repeat(words))],
        ..InputMessage::default()
    })
}

async fn noted(replies: Vec<ScriptedReply>, messages: &[StoredMessage]) -> (Result<String, String>, Vec<String>) {
    let model = ScriptedModel::new(replies);
    let mut entry = demo::model_entry();
    entry.context_window = 1_700;
    let chosen = ResolvedModel { entry: Arc::new(entry), key: None, model: Arc::new(model.clone()) };
    let part_sizes = parking_lot::Mutex::new(Vec::new());
    let request = |part: &[StoredMessage]| {
        part_sizes.lock().push(part.len().to_string());
        MemoryRequest { system: "s".to_owned(), request: "r".to_owned() }
    };
    let retry = RetryPolicy { enabled: false, max: 0, base: Duration::ZERO, ..RetryPolicy::default() };
    let noted = note_down(&chosen, messages, request, retry, Duration::from_secs(9), &RuntimeMetrics::new()).await;
    (noted, part_sizes.into_inner())
}

#[tokio::test]
async fn a_long_conversation_is_noted_part_by_part_and_a_part_may_fail() {
    let refuse = || ScriptedReply::from_failure(ModelFailure::new(FailureKind::Refused, "no"));
    let long = [
        user_message(160),
        user_message(160),
        user_message(160),
        user_message(160),
        user_message(160),
        user_message(160),
        user_message(160),
        user_message(160),
    ];
    let three = vec![
        ScriptedReply::from_text("- a"),
        refuse(),
        ScriptedReply::from_text("- c\n"),
        ScriptedReply::from_text("- d"),
    ];
    let (notes, part_sizes) = noted(three, &long).await;
    assert_eq!((notes.as_deref(), part_sizes), (Ok("- a\n- c\n- d"), ["2", "2", "2", "2"].map(str::to_owned).to_vec()));
    let (notes, part_sizes) = noted(vec![refuse()], &[user_message(3)]).await;
    assert_eq!((notes, part_sizes.len()), (Err("no".to_owned()), 1));
}
