//! One example of every frame that we write, compared whole with `omp/frames.jsonl`.

use countersign_protocol::gjc::state::{ContextUsage, TodoPhase};
use countersign_protocol::omp::command::SubscriptionLevel;
use countersign_protocol::omp::event::{CompactionAction, CompactionReason, TodoItem, TodoStatus};
use countersign_protocol::omp::message::{OmpContentBlock, TextContent, ToolCallContent, ToolOutput};
use countersign_protocol::omp::state::*;
use countersign_protocol::omp::ui::{NotifyType, WidgetPlacement};
use countersign_protocol::omp::{BlockChange, OmpEvent, OmpRequestId, OmpResponse, UiMethod, UiRequest};
use countersign_protocol::{ExtraMembers, JsNumber, RawJson, WireValue, encode_line};

const GOLDEN: &str = include_str!("omp/frames.jsonl");

fn json(text: &str) -> RawJson {
    RawJson::parse(text.to_owned()).expect("the test gives JSON")
}

fn id() -> Option<OmpRequestId> {
    Some("req_1".into())
}

fn message(text: &str) -> RawJson {
    json(&format!(r#"{{"role":"assistant","content":[{{"type":"text","text":"{text}"}}]}}"#))
}

fn call() -> ToolCallContent {
    ToolCallContent {
        id: "call_1".to_owned(),
        name: "bash".to_owned(),
        arguments: json(r#"{"command":"ls","_i":"look"}"#),
        thought_signature: None,
        intent: Some("look".to_owned()),
        extra: ExtraMembers::default(),
    }
}

fn output(text: &str, details: Option<RawJson>) -> ToolOutput {
    ToolOutput { content: vec![OmpContentBlock::Text(TextContent::from(text.to_owned()))], details }
}

fn model() -> OmpModel {
    OmpModel {
        id: "small-1".to_owned(),
        name: "Small One".to_owned(),
        api: "openai-completions".to_owned(),
        provider: "local".to_owned(),
        base_url: "http://127.0.0.1:11434/v1".to_owned(),
        reasoning: true,
        input: vec![ModelInput::Text, ModelInput::Image],
        cost: ModelCost {
            input: JsNumber(1.0),
            output: JsNumber(2.0),
            cache_read: JsNumber(0.1),
            cache_write: JsNumber(0.0),
        },
        context_window: 128_000,
        max_tokens: 8192,
        ..OmpModel::default()
    }
}

fn compaction() -> CompactionResult {
    CompactionResult {
        summary: "## Goal".to_owned(),
        short_summary: Some("goal".to_owned()),
        first_kept_entry_id: "0000000a".to_owned(),
        tokens_before: 100_000,
        details: Some(CompactionDetails { read_files: vec!["a".to_owned()], modified_files: vec!["b".to_owned()] }),
        preserve_data: None,
    }
}

fn state() -> RpcSessionState {
    RpcSessionState {
        model: Some(model()),
        thinking_level: Some("high".to_owned()),
        is_streaming: false,
        is_compacting: false,
        steering_mode: "one-at-a-time".to_owned(),
        follow_up_mode: "one-at-a-time".to_owned(),
        interrupt_mode: "immediate".to_owned(),
        session_file: Some("/s.jsonl".to_owned()),
        session_id: "0123456789abcdef".to_owned(),
        session_name: Some("name".to_owned()),
        auto_compaction_enabled: true,
        message_count: 2,
        queued_message_count: 1,
    }
}

fn bare_state() -> RpcSessionState {
    RpcSessionState { model: None, thinking_level: None, session_file: None, session_name: None, ..state() }
}

fn full_model() -> OmpModel {
    OmpModel {
        thinking: Some(ModelThinking {
            mode: ModelThinkingMode::AnthropicBudgetEffort,
            min_level: "minimal".to_owned(),
            max_level: "xhigh".to_owned(),
        }),
        headers: Some([("x-team".to_owned(), "a".to_owned())].into()),
        premium_multiplier: Some(JsNumber(0.33)),
        prefer_websockets: Some(false),
        context_promotion_target: Some("local/large-1".to_owned()),
        priority: Some(JsNumber(1.0)),
        compat: Some(json(r#"{"supportsStore":false}"#)),
        ..model()
    }
}

fn bash(exit_code: Option<i32>) -> BashResult {
    BashResult {
        exit_code,
        cancelled: exit_code.is_none(),
        output: "done\n".to_owned(),
        truncated: false,
        total_lines: 2,
        total_bytes: 5,
        output_lines: 2,
        output_bytes: 5,
        artifact_id: None,
    }
}

fn responses() -> Vec<OmpResponse> {
    let stats = SessionStats {
        session_file: Some("/s.jsonl".to_owned()),
        session_id: "0123456789abcdef".to_owned(),
        user_messages: 1,
        assistant_messages: 1,
        total_messages: 2,
        tokens: TokenSums { input: 60, output: 50, cache_read: 40, cache_write: 0, total: 150 },
        cost: JsNumber(0.000_164),
        ..SessionStats::default()
    };
    let cycled = CycledModel { model: model(), thinking_level: Some("low".to_owned()), is_scoped: false };
    let branchable = BranchMessage { entry_id: "0000000a".to_owned(), text: "hello".to_owned() };
    vec![
        OmpResponse::ack(id(), "prompt"),
        OmpResponse::ack(None, "abort"),
        OmpResponse::failure(id(), "set_model", "Model not found: no/such"),
        OmpResponse::parse_failure(id(), "Nothing to compact (session too small)"),
        OmpResponse::parse_failure(None, "a command is an object"),
        OmpResponse::unknown_command(Some("nonsense".to_owned())),
        OmpResponse::unknown_command(None),
        OmpResponse::success(id(), "new_session", &SessionSwitchResult { cancelled: false }),
        OmpResponse::success(id(), "get_state", &state()),
        OmpResponse::success(id(), "get_state", &bare_state()),
        OmpResponse::success(id(), "set_model", &full_model()),
        OmpResponse::success(id(), "cycle_model", &cycled),
        OmpResponse::success(id(), "cycle_model", &()),
        OmpResponse::success(id(), "get_available_models", &AvailableModels { models: vec![model()] }),
        OmpResponse::success(id(), "cycle_thinking_level", &CycledThinkingLevel { level: "low".to_owned() }),
        OmpResponse::success(id(), "compact", &compaction()),
        OmpResponse::success(id(), "bash", &bash(Some(0))),
        OmpResponse::success(id(), "bash", &bash(None)),
        OmpResponse::success(id(), "get_session_stats", &stats),
        OmpResponse::success(id(), "export_html", &ExportedHtml { path: "omp-session-s.html".to_owned() }),
        OmpResponse::success(id(), "branch", &BranchResult { text: "hello".to_owned(), cancelled: false }),
        OmpResponse::success(id(), "get_branch_messages", &BranchMessages { messages: vec![branchable] }),
        OmpResponse::success(id(), "get_last_assistant_text", &LastAssistantText { text: Some("hi".to_owned()) }),
        OmpResponse::success(id(), "get_last_assistant_text", &LastAssistantText::default()),
        OmpResponse::success(id(), "get_messages", &ContextMessages { messages: vec![message("hi")] }),
    ]
    .into_iter()
    .chain(later())
    .collect()
}

/// Answers to commands of later versions and of pi.
fn later() -> Vec<OmpResponse> {
    let text = |text: &str| text.to_owned();
    let template = |source, source_info| SlashCommand {
        name: text("review"),
        description: Some(text("Looks it over")),
        source,
        source_info,
    };
    let place = SourceInfo { path: text("/c/review.md"), source: "auto", scope: "project", origin: "top-level" };
    let page = |next: Option<&str>| MessagesPage {
        messages: vec![message("hi")],
        next_cursor: next.map(text),
        total_messages: 2,
    };
    let extended = ExtendedState {
        shared: bare_state(),
        todo_phases: vec![TodoPhase { id: Some(text("phase-1")), name: text("All"), tasks: Vec::new() }],
        context_usage: Some(ContextUsage {
            tokens: Some(64),
            context_window: 128,
            percent: Some(JsNumber(50.0)),
            source: None,
        }),
        pending_message_count: 1,
        fast_mode_enabled: false,
        fast_mode_active: false,
    };
    vec![
        OmpResponse::success(id(), "get_state", &extended),
        OmpResponse::success(id(), "negotiate_protocol", &ProtocolVersion { protocol_version: 1 }),
        OmpResponse::success(id(), "set_fast_mode", &FastMode { enabled: false, active: false }),
        OmpResponse::success(
            id(),
            "set_subagent_subscription",
            &SubagentSubscription { level: SubscriptionLevel::Progress },
        ),
        OmpResponse::success(id(), "get_subagents", &SubagentList::default()),
        OmpResponse::success(id(), "get_available_thinking_levels", &ThinkingLevels { levels: vec![text("off")] }),
        OmpResponse::success(id(), "get_available_commands", &SlashCommands { commands: vec![template("file", None)] }),
        OmpResponse::success(id(), "get_commands", &SlashCommands { commands: vec![template("prompt", Some(place))] }),
        OmpResponse::success(id(), "get_messages_page", &page(Some("1-2-61-62"))),
        OmpResponse::success(id(), "get_messages_page", &page(None)),
        OmpResponse::coded_failure(id(), "get_messages_page", "RPC message cursor is stale", "stale_cursor"),
    ]
}

fn changes() -> Vec<BlockChange> {
    let text = || "hi".to_owned();
    vec![
        BlockChange::TextStart { content_index: 0 },
        BlockChange::TextDelta { content_index: 0, delta: text() },
        BlockChange::TextEnd { content_index: 0, content: text() },
        BlockChange::ThinkingStart { content_index: 0 },
        BlockChange::ThinkingDelta { content_index: 0, delta: text() },
        BlockChange::ThinkingEnd { content_index: 0, content: text() },
        BlockChange::ToolcallStart { content_index: 1 },
        BlockChange::ToolcallDelta { content_index: 1, delta: r#"{"comm"#.to_owned() },
        BlockChange::ToolcallEnd { content_index: 1, tool_call: call() },
    ]
}

fn events() -> Vec<OmpEvent> {
    let (call_id, tool) = (|| "call_1".to_owned(), || "bash".to_owned());
    let args = || json("{\n  \"command\": \"ls\"\n}");
    let failure = || "overloaded".to_owned();
    let mut events = vec![
        OmpEvent::Ready,
        OmpEvent::AgentStart,
        OmpEvent::TurnStart,
        OmpEvent::MessageStart { message: message("") },
        OmpEvent::MessageEnd { message: message("hi") },
        OmpEvent::TurnEnd { message: message("hi"), tool_results: Vec::new() },
        OmpEvent::AgentEnd { messages: vec![message("hi"), message("ho")] },
        OmpEvent::AgentSettled,
        OmpEvent::ToolExecutionStart {
            tool_call_id: call_id(),
            tool_name: tool(),
            args: args(),
            intent: Some("look".to_owned()),
        },
        OmpEvent::ToolExecutionStart { tool_call_id: call_id(), tool_name: tool(), args: args(), intent: None },
        OmpEvent::ToolExecutionUpdate {
            tool_call_id: call_id(),
            tool_name: tool(),
            args: args(),
            partial_result: output("a", Some(json("{}"))),
        },
        OmpEvent::ToolExecutionEnd {
            tool_call_id: call_id(),
            tool_name: tool(),
            result: output("a\n", None),
            is_error: false,
        },
        OmpEvent::AutoCompactionStart { reason: CompactionReason::Threshold, action: CompactionAction::ContextFull },
        OmpEvent::AutoCompactionEnd {
            action: CompactionAction::ContextFull,
            result: Some(compaction()),
            aborted: false,
            will_retry: false,
            error_message: None,
            skipped: None,
        },
        OmpEvent::AutoCompactionEnd {
            action: CompactionAction::Handoff,
            result: None,
            aborted: false,
            will_retry: false,
            error_message: Some(failure()),
            skipped: Some(true),
        },
        OmpEvent::AutoRetryStart { attempt: 1, max_attempts: 3, delay_ms: 2000, error_message: failure() },
        OmpEvent::AutoRetryEnd { success: true, attempt: 1, final_error: None },
        OmpEvent::AutoRetryEnd { success: false, attempt: 3, final_error: Some(failure()) },
        OmpEvent::RetryFallbackApplied { from: "a/b".to_owned(), to: "a/c".to_owned(), role: "default".to_owned() },
        OmpEvent::RetryFallbackSucceeded { model: "a/c".to_owned(), role: "default".to_owned() },
        OmpEvent::TtsrTriggered { rules: vec![json(r#"{"name":"r"}"#)] },
        OmpEvent::TodoReminder {
            todos: vec![TodoItem { id: "t1".to_owned(), content: "test".to_owned(), status: TodoStatus::InProgress }],
            attempt: 1,
            max_attempts: 3,
        },
        OmpEvent::TodoAutoClear,
        OmpEvent::ExtensionError {
            extension_path: "/e.ts".to_owned(),
            event: "agent_end".to_owned(),
            error: "no".to_owned(),
        },
    ];
    events.extend(changes().into_iter().map(|change| OmpEvent::message_update(change, message("hi"))));
    events
}

fn dialogs() -> Vec<UiRequest> {
    let (title, text) = (|| "Run it?".to_owned(), || "rm -r target".to_owned());
    [
        UiMethod::Select {
            title: title(),
            options: vec!["Allow".to_owned(), "Deny".to_owned()],
            timeout: Some(30_000),
        },
        UiMethod::Confirm { title: title(), message: text(), timeout: Some(30_000) },
        UiMethod::Confirm { title: title(), message: text(), timeout: None },
        UiMethod::Input { title: title(), placeholder: Some("feature/...".to_owned()), timeout: None },
        UiMethod::Editor { title: title(), prefill: Some(text()), prompt_style: None },
        UiMethod::Notify { message: text(), notify_type: Some(NotifyType::Warning) },
        UiMethod::SetStatus { status_key: "k".to_owned(), status_text: Some(text()) },
        UiMethod::SetStatus { status_key: "k".to_owned(), status_text: None },
        UiMethod::SetWidget {
            widget_key: "k".to_owned(),
            widget_lines: Some(vec![text()]),
            widget_placement: Some(WidgetPlacement::BelowEditor),
        },
        UiMethod::SetTitle { title: title() },
        UiMethod::SetEditorText { text: text() },
        UiMethod::Cancel { target_id: "ui_1".to_owned() },
    ]
    .into_iter()
    .map(|method| UiRequest { id: "ui_1".to_owned(), method })
    .collect()
}

fn lines(frames: &[impl WireValue]) -> Vec<String> {
    frames.iter().map(|frame| String::from_utf8(encode_line(frame).to_vec()).expect("JSON is UTF-8")).collect()
}

#[test]
fn every_frame_is_written_as_in_the_golden() {
    let written = [lines(&responses()), lines(&events()), lines(&dialogs())].concat();
    let golden: Vec<&str> = GOLDEN.split_inclusive('\n').collect();
    assert_eq!(written, golden);
}

/// Breaks the build when an event is added, so that the golden gets one too.
#[test]
fn the_golden_has_every_event() {
    let name = |event: &OmpEvent| match event {
        OmpEvent::Ready => "ready",
        OmpEvent::AgentStart => "agent_start",
        OmpEvent::AgentEnd { .. } => "agent_end",
        OmpEvent::AgentSettled => "agent_settled",
        OmpEvent::TurnStart => "turn_start",
        OmpEvent::TurnEnd { .. } => "turn_end",
        OmpEvent::MessageStart { .. } => "message_start",
        OmpEvent::MessageUpdate { .. } => "message_update",
        OmpEvent::MessageEnd { .. } => "message_end",
        OmpEvent::ToolExecutionStart { .. } => "tool_execution_start",
        OmpEvent::ToolExecutionUpdate { .. } => "tool_execution_update",
        OmpEvent::ToolExecutionEnd { .. } => "tool_execution_end",
        OmpEvent::AutoCompactionStart { .. } => "auto_compaction_start",
        OmpEvent::AutoCompactionEnd { .. } => "auto_compaction_end",
        OmpEvent::AutoRetryStart { .. } => "auto_retry_start",
        OmpEvent::AutoRetryEnd { .. } => "auto_retry_end",
        OmpEvent::RetryFallbackApplied { .. } => "retry_fallback_applied",
        OmpEvent::RetryFallbackSucceeded { .. } => "retry_fallback_succeeded",
        OmpEvent::TtsrTriggered { .. } => "ttsr_triggered",
        OmpEvent::TodoReminder { .. } => "todo_reminder",
        OmpEvent::TodoAutoClear => "todo_auto_clear",
        OmpEvent::ExtensionError { .. } => "extension_error",
    };
    let mut names: Vec<&str> = events().iter().map(name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 22);
}
