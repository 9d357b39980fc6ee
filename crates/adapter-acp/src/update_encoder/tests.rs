use std::sync::Arc;

use countersign_acp_protocol::{ContentBlock, SessionUpdate, StopReason, UsageCost};
use countersign_core::{
    engine::Event,
    id::{EntryId, RunId},
    message::StopReason as ModelStop,
    run::{self, RunOutcome},
    session::{self, SessionEntryKind},
};
use countersign_runtime::{LiveKind, LivePartKind};
use serde_json::json;

use super::{RunEnd, UpdateEncoder};

fn entry(kind: SessionEntryKind) -> Event {
    let id = EntryId::new("e");
    Event::Session(session::Event::Entry { id, parent: None, kind, tokens: 1, made_at: None, content_at: None })
}

fn answer(stop: &str) -> (Event, String) {
    let content = json!({
        "role": "assistant", "api": "x", "provider": "p", "model": "m", "stopReason": stop,
        "usage": { "input": 7, "output": 3, "cacheRead": 90, "cost": { "total": 0.5 } },
        "content": [{ "type": "thinking", "thinking": "hm" }, { "type": "text", "text": "hello there" }],
    });
    (entry(SessionEntryKind::Assistant { stop: ModelStop::Stop, total_tokens: 3 }), content.to_string())
}

fn texts(encoder: &mut UpdateEncoder) -> Vec<String> {
    let text = |update| match update {
        SessionUpdate::AgentMessageChunk { content: ContentBlock::Text { text } } => format!("text {text}"),
        SessionUpdate::AgentThoughtChunk { content: ContentBlock::Text { text } } => format!("thought {text}"),
        SessionUpdate::UserMessageChunk { content: ContentBlock::Text { text } } => format!("user {text}"),
        other => serde_json::to_string(&other).unwrap(),
    };
    encoder.updates.drain(..).map(text).collect()
}

fn part(index: usize, part: LivePartKind) -> LiveKind {
    LiveKind::PartStarted { index, part }
}

fn delta(index: usize, text: &str) -> LiveKind {
    LiveKind::Delta { index, text: Arc::from(text) }
}

#[test]
fn streamed_text_is_not_repeated_and_nothing_is_lost() {
    for (case, live, want) in [
        ("nothing was streamed", vec![], vec!["thought hm", "text hello there"]),
        (
            "a part was",
            vec![part(0, LivePartKind::Thinking), delta(0, "hm"), part(1, LivePartKind::Text), delta(1, "hello")],
            vec!["thought hm", "text hello", "text  there"],
        ),
        ("the beginning was missed", vec![delta(1, "lo there")], vec!["thought hm", "text hello there"]),
        (
            "another answer was begun before a crash",
            vec![part(1, LivePartKind::Text), delta(1, "other")],
            vec!["text other", "thought hm", "text hello there"],
        ),
    ] {
        let mut encoder = UpdateEncoder::new("/w", false);
        live.iter().for_each(|kind| encoder.encode_live(kind));
        let (event, content) = answer("stop");
        assert_eq!(encoder.encode_fact(&event, Some(&content)), None);
        assert_eq!(texts(&mut encoder), want, "{case}");
    }
}

#[test]
fn use_is_reported_where_the_limit_of_the_model_is_known() {
    let mut encoder = UpdateEncoder::new("/w", false);
    encoder.set_window(Some(1000));
    let (event, content) = answer("stop");
    encoder.encode_fact(&event, Some(&content));
    encoder.encode_fact(&event, Some(&content));
    let usage: Vec<SessionUpdate> =
        encoder.updates.drain(..).filter(|update| matches!(update, SessionUpdate::UsageUpdate { .. })).collect();
    let update = |amount| SessionUpdate::UsageUpdate {
        used: 100,
        size: 1000,
        cost: Some(UsageCost { amount, currency: "USD" }),
    };
    assert_eq!(usage, [update(0.5), update(1.0)]);
}

#[test]
fn a_message_that_the_editor_sent_is_not_sent_back() {
    let mut encoder = UpdateEncoder::new("/w", false);
    encoder.expect_own_message();
    let message = |text: &str| json!({ "role": "user", "content": [{ "type": "text", "text": text }] }).to_string();
    encoder.encode_fact(&entry(SessionEntryKind::User), Some(&message("mine")));
    encoder.encode_fact(&entry(SessionEntryKind::User), Some(&message("from the console")));
    assert_eq!(texts(&mut encoder), ["user from the console"]);
}

#[test]
fn a_run_ends_with_the_reason_that_the_protocol_has_for_it() {
    let run = RunId::parse("00000000000000000000000000000001").unwrap();
    for (stop, end, want) in [
        ("stop", RunOutcome::Completed, RunEnd::Stopped(StopReason::EndTurn)),
        ("length", RunOutcome::Completed, RunEnd::Stopped(StopReason::MaxTokens)),
        ("aborted", RunOutcome::Aborted, RunEnd::Stopped(StopReason::Cancelled)),
        ("error", RunOutcome::RetryCancelled, RunEnd::Stopped(StopReason::Cancelled)),
        ("error", RunOutcome::Failed, RunEnd::Failed("The model failed".to_owned())),
        ("error", RunOutcome::Interrupted, RunEnd::Failed("The gateway was restarted".to_owned())),
    ] {
        let mut encoder = UpdateEncoder::new("/w", false);
        let (event, content) = answer(stop);
        encoder.encode_fact(&event, Some(&content));
        let ended = Event::Run(run::Event::Ended { run, end, attempts: 1 });
        assert_eq!(encoder.encode_fact(&ended, None), Some((run, want)), "{end:?}");
    }
}

#[test]
fn a_notice_is_a_thought_where_the_editor_shows_no_notices() {
    for (has_notices, want) in
        [(true, r#"{"sessionUpdate":"notice","severity":"warning","title":"late"}"#), (false, "thought late\n\n")]
    {
        let mut encoder = UpdateEncoder::new("/w", has_notices);
        encoder.push_notice("warning", "late");
        assert_eq!(texts(&mut encoder), [want]);
    }
}
