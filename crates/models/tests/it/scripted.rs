//! The model for tests keeps to its script.

use std::sync::Arc;

use countersign_models::{
    FailureKind, FinishReason, LanguageModel, ModelApi, ModelEvent,
    scripted::{ReplyStep, ScriptedModel, ScriptedReply},
};
use futures_util::{FutureExt, StreamExt};
use tokio::sync::Notify;

use crate::{entry, request};

#[tokio::test]
async fn replies_come_in_their_order_and_then_no_more() {
    let model = ScriptedModel::new([ScriptedReply::from_text("one"), ScriptedReply::use_tool("a", "read", "{}")]);
    let mut ends = Vec::new();
    for _ in 0..3 {
        let items: Vec<_> = model.stream(request(entry(ModelApi::Demo, ""))).collect().await;
        ends.push(items.into_iter().next_back().unwrap().map_err(|failure| failure.kind));
    }
    assert_eq!(
        ends,
        [
            Ok(ModelEvent::Stop(FinishReason::Stop)),
            Ok(ModelEvent::Stop(FinishReason::ToolUse)),
            Err(FailureKind::Refused)
        ]
    );
    assert_eq!((model.requests().len(), model.open_count(), model.replies_left()), (3, 0, 0));
}

#[tokio::test]
async fn a_held_reply_waits_for_its_release_and_a_dropped_one_is_not_open() {
    let go = Arc::new(Notify::new());
    let model = ScriptedModel::new([
        ScriptedReply::new().add_text(["a"]).add_step(ReplyStep::Wait(Arc::clone(&go))).end(),
        ScriptedReply::new().add_step(ReplyStep::Hang),
    ]);
    let mut stream = model.stream(request(entry(ModelApi::Demo, "")));
    for _ in 0..4 {
        stream.next().await.unwrap().unwrap();
    }
    assert_eq!(stream.next().now_or_never(), None);
    go.notify_one();
    assert!(stream.next().now_or_never().is_some());
    let mut hanging = model.stream(request(entry(ModelApi::Demo, "")));
    hanging.next().await.unwrap().unwrap();
    assert_eq!((hanging.next().now_or_never(), model.open_count()), (None, 2));
    drop((stream, hanging));
    assert_eq!(model.open_count(), 0);
}
