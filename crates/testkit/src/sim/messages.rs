//! Messages of users, models and tools in a simulation, as content.

use countersign_core::{
    call::{CallDetails, CallResult, Executor},
    id::PeerId,
    ledger::BudgetAmount,
    message::{
        AssistantReply, BashMessage, InputMessage as Text, MessageBlock, StopReason, StoredMessage, SummaryMessage,
        ToolCallBlock, ToolResult,
    },
    policy::Class,
    run::{ModelAnswer, ProviderFailure, ResolvedCall},
    session::{MessageContent, ModelRef},
    tool::{CallConcurrency, RepeatMode, ToolEffect},
};
use serde_json::{Map, Value, json};

use super::rng::SimRng;

/// Peer that runs some of the calls at the other end of a connection.
pub(super) const PEER: &str = "peer";

pub(super) fn message_content(message: &StoredMessage, tokens: u64) -> MessageContent {
    let content = serde_json::to_string(message).expect("messages are plain data with text keys");
    MessageContent { content: content.into(), tokens }
}

pub(super) fn user_message(rng: &mut SimRng) -> MessageContent {
    let message = StoredMessage::User(Text { content: vec![MessageBlock::from_text("go on")], ..Text::default() });
    message_content(&message, 1 + rng.below(120))
}

pub(super) fn summary_message() -> MessageContent {
    message_content(
        &StoredMessage::CompactionSummary(SummaryMessage { summary: "before".to_owned(), ..SummaryMessage::default() }),
        20,
    )
}

fn json_object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Returns a call of a model; its id is unique within its message only.
fn random_call(rng: &mut SimRng, at: usize) -> ResolvedCall {
    let path = rng.pick(&["a1", "a2", "b1", "c1"]);
    let command = rng.pick(&["ls -l", "make all", "rm -rf /", "rm -rf build"]);
    let (tool, arguments, named, concurrency, repeat, effect) = match rng.below(10) {
        0..3 => {
            ("look", json!({"path": path}), "path", CallConcurrency::Shared, RepeatMode::Idempotent, ToolEffect::Reads)
        }
        3..6 => (
            "write",
            json!({"path": path, "text": "x"}),
            "path",
            CallConcurrency::Exclusive,
            RepeatMode::Once,
            ToolEffect::Changes,
        ),
        6 => ("note", json!({"path": path}), "path", CallConcurrency::Shared, RepeatMode::Once, ToolEffect::Changes),
        7 | 8 => (
            "bash",
            json!({"command": command}),
            "command",
            CallConcurrency::Exclusive,
            RepeatMode::Once,
            ToolEffect::Changes,
        ),
        _ => {
            let questions = if rng.chance(10) {
                json!("what?")
            } else {
                json!([
                    {"id": "one", "question": "Which?", "options": [{"label": "left"}, {"label": "right"}]},
                    {"question": "Why?"},
                ])
            };
            let arguments = match rng.below(4) {
                0 => json!({"plan": "Move it.", "title": "Move"}),
                1 => json!({"execution": "It was moved."}),
                _ => json!({"questions": questions}),
            };
            ("ask", arguments, "questions", CallConcurrency::Exclusive, RepeatMode::Once, ToolEffect::Reads)
        }
    };
    // A long line must not make a fact that fits into no log.
    let command = (tool == "bash" && rng.chance(1)).then(|| format!("echo '{}'", "\u{1}".repeat(15_000)));
    let arguments =
        command.map_or_else(|| json_object(arguments), |command| json_object(json!({ "command": command })));
    let is_away = matches!(tool, "look" | "write" | "note") && rng.chance(30);
    let signature = format!("{tool}({})", arguments.get(named).and_then(Value::as_str).unwrap_or_default());
    ResolvedCall {
        tool_call_id: format!("c{at}").into(),
        tool: tool.into(),
        arguments,
        intent: None,
        signature,
        named: vec![named.to_owned()],
        concurrency,
        repeat: if is_away { RepeatMode::Once } else { repeat },
        effect,
        executor: match tool {
            "ask" => Executor::Person,
            _ if is_away => Executor::Peer(PeerId::new(PEER)),
            _ => Executor::Builtin,
        },
        class: is_away.then_some(Class::HostToolInvoke),
        shell: None,
        problem: rng.chance(5).then(|| "no such tool".into()),
        pins: None,
        leads_to: None,
    }
}

fn build_answer(
    rng: &mut SimRng,
    stop: StopReason,
    resolved_calls: Vec<ResolvedCall>,
    failure: Option<ProviderFailure>,
) -> ModelAnswer {
    let calls = resolved_calls.iter().map(|call| {
        MessageBlock::ToolCall(ToolCallBlock {
            id: call.tool_call_id.to_string(),
            name: call.tool.to_string(),
            arguments: call.arguments.clone(),
            ..ToolCallBlock::default()
        })
    });
    let content = std::iter::once(MessageBlock::from_text("I will")).chain(calls).collect();
    let message = StoredMessage::Assistant(AssistantReply { content, stop_reason: stop, ..AssistantReply::default() });
    let total_tokens = if failure.is_none() && rng.chance(40) { 200 + rng.below(2_500) } else { 0 };
    let spent = rng.chance(70).then(|| BudgetAmount { tokens: total_tokens.max(50), ..BudgetAmount::default() });
    let other =
        ModelRef { provider: "q".to_owned(), id: "n".to_owned(), context_window: 2_000, max_tokens: 100, price: None };
    let others = failure.and_then(|failure| failure.after).map(|_| other).into_iter().collect();
    ModelAnswer {
        message: message_content(&message, 5 + rng.below(80)),
        stop,
        total_tokens,
        calls: resolved_calls,
        failure,
        others,
        spent,
    }
}

/// Returns an answer of a model.
pub(super) fn random_answer(rng: &mut SimRng) -> ModelAnswer {
    let most = if rng.chance(2) { 12 } else { 4 };
    match rng.below(100) {
        0..40 => build_answer(rng, StopReason::Stop, Vec::new(), None),
        40..78 => {
            let resolved_calls = (0..=rng.index(most)).map(|at| random_call(rng, at)).collect();
            build_answer(rng, StopReason::ToolUse, resolved_calls, None)
        }
        78..80 => build_answer(rng, StopReason::Length, Vec::new(), None),
        roll => {
            // Some delays are so long that a gate opens, and some of these are longer than the limit.
            let seconds = |roll: u64| if roll >= 80 { roll * 20 } else { roll };
            let after = rng.chance(30).then(|| std::time::Duration::from_secs(seconds(rng.below(100))));
            let failure = ProviderFailure { retryable: roll < 90, overflow: roll >= 95, after };
            // The received part of a broken message may hold calls, and the reason of the break may be missing.
            let resolved_calls = if rng.chance(20) { vec![random_call(rng, 0)] } else { Vec::new() };
            let failure = (!rng.chance(5)).then_some(failure);
            build_answer(rng, StopReason::Error, resolved_calls, failure)
        }
    }
}

/// Returns the partial answer of a model that was stopped.
pub(super) fn stopped_answer(rng: &mut SimRng) -> ModelAnswer {
    let resolved_calls = (0..rng.index(3)).map(|at| random_call(rng, at)).collect();
    build_answer(rng, StopReason::Aborted, resolved_calls, None)
}

/// Returns the result of a tool or the shell.
pub(super) fn call_result(rng: &mut SimRng, content: &CallDetails, executor: &Executor, text: &str) -> CallResult {
    let message = match executor {
        Executor::Shell => {
            StoredMessage::BashExecution(BashMessage { output: text.to_owned(), ..BashMessage::default() })
        }
        Executor::Builtin | Executor::Person | Executor::Service | Executor::Peer(_) => {
            StoredMessage::ToolResult(ToolResult {
                tool_call_id: content.tool_call_id.to_string(),
                tool_name: content.tool.to_string(),
                content: vec![MessageBlock::from_text(text)],
                ..ToolResult::default()
            })
        }
    };
    // Old results are worth pruning only when there are tens of thousands of tokens of them.
    let tokens = if rng.chance(4) { 30_000 } else { rng.below(60) };
    CallResult {
        message: message_content(&message, tokens),
        error: rng.chance(20),
        open_tasks: rng.chance(10).then(|| u32::try_from(rng.below(3)).unwrap_or(0)),
        folder: rng.chance(5).then(|| "/work/sub".to_owned()),
        prunable: rng.chance(70),
        left_behind: None,
    }
}
