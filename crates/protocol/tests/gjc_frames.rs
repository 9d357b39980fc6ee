//! One example of every frame that we write, compared whole with `gjc/frames.jsonl`.

use countersign_protocol::gjc::audit::{self, AuditEvent, AuditLine, AuditOutcome};
use countersign_protocol::gjc::bridge::{
    BridgeEndpoint, BridgeError, DialogPayload, EnabledEndpoints, ExpectedInput, HandshakeRequest, PermissionKind,
    PermissionOption, PermissionRequest, ResetPayload, StatusBody, ToolCallCard,
};
use countersign_protocol::gjc::event::{CompactUpdate, EventPayload, FrameType, OwnEvent, RunEnd};
use countersign_protocol::gjc::gate_file::{GateFile, GateRecord, GateStatus};
use countersign_protocol::gjc::host_tool::{HostToolFrame, ToolNames, frame_id};
use countersign_protocol::gjc::host_uri::{HostUriFrame, SchemeNames, UriOperation};
use countersign_protocol::gjc::registry::{SessionRecord, SessionTransport};
use countersign_protocol::gjc::schema::{self, meaning, shapes};
use countersign_protocol::gjc::state::*;
use countersign_protocol::gjc::ui::{GjcUiMethod, GjcUiRequest, NotifyType, OwnMethod, asks_for_titles};
use countersign_protocol::gjc::unattended::{
    Action, ActionDenied, BudgetExceeded, BudgetMetric, CommandScope, DeclarationAccepted, DeclarationRefusal,
    ScopeDenied, UnattendedDeclaration, UsageMetering, phase,
};
use countersign_protocol::gjc::workflow::{
    AnswerResolution, GateError, InvalidAnswer, PendingGates, WorkflowContext, WorkflowGate, WorkflowStage,
};
use countersign_protocol::gjc::{GjcEnvelope, GjcEvent, OmpRequestId, OmpResponse};
use countersign_protocol::omp::event::{TodoItem, TodoStatus};
use countersign_protocol::omp::state::RpcSessionState;
use countersign_protocol::{JsNumber, RawJson, WireValue, encode_line, omp};
use serde_json::json;

const GOLDEN: &str = include_str!("gjc/frames.jsonl");

const AT: &str = "2026-06-05T05:00:00.000Z";

const SESSION: &str = "0199aa48-45";

fn json(text: &str) -> RawJson {
    RawJson::parse(text.to_owned()).expect("the test gives JSON")
}

fn id() -> Option<OmpRequestId> {
    Some("req_1".into())
}

fn session() -> String {
    SESSION.to_owned()
}

fn message(text: &str) -> RawJson {
    json(&format!(r#"{{"role":"assistant","content":[{{"type":"text","text":"{text}"}}]}}"#))
}

fn state() -> GjcSessionState {
    GjcSessionState {
        shared: RpcSessionState {
            model: None,
            thinking_level: Some("high".to_owned()),
            is_streaming: false,
            is_compacting: false,
            steering_mode: "one-at-a-time".to_owned(),
            follow_up_mode: "one-at-a-time".to_owned(),
            interrupt_mode: "immediate".to_owned(),
            session_file: None,
            session_id: session(),
            session_name: None,
            auto_compaction_enabled: true,
            message_count: 0,
            queued_message_count: 0,
        },
        todo_phases: phases(),
        context_usage: Some(ContextUsage {
            tokens: Some(0),
            context_window: 200_000,
            percent: Some(JsNumber(0.0)),
            source: None,
        }),
        system_prompt: None,
        dump_tools: None,
    }
}

fn phases() -> Vec<TodoPhase> {
    let task = TodoTask {
        id: Some("task-1".to_owned()),
        content: "Map the tool surface".to_owned(),
        status: TodoStatus::InProgress,
        notes: None,
    };
    vec![TodoPhase { id: Some("phase-1".to_owned()), name: "Todos".to_owned(), tasks: vec![task] }]
}

fn gate() -> WorkflowGate {
    let context = WorkflowContext { summary: Some("Two steps.".to_owned()), ..WorkflowContext::default() };
    shapes::approval_gate(context).into_gate("wg_99aa4845_ralplan_000001".to_owned(), AT.to_owned())
}

fn question_gate() -> WorkflowGate {
    let question = shapes::AgentQuestion {
        id: "q1".to_owned(),
        text: "Which?".to_owned(),
        options: vec!["A".to_owned(), "B".to_owned()],
        recommended: Some(1),
        ..shapes::AgentQuestion::default()
    };
    let id = "wg_99aa4845_deep-interview_000001".to_owned();
    shapes::question_gate(&question).expect("two options fit").into_gate(id, AT.to_owned())
}

fn declaration() -> UnattendedDeclaration {
    let declared = json!({
        "actor": "openclaw/hermes",
        "budget": {"max_tokens": 2_000_000, "max_tool_calls": 5000, "max_wall_time_ms": 3_600_000, "max_cost_usd": 20},
        "scopes": ["prompt", "control", "bash"],
        "action_allowlist": ["bash.readonly", "file.write"],
    });
    UnattendedDeclaration::from_json(Some(&declared), UsageMetering::Reported).expect("the declaration is whole")
}

fn invalid() -> InvalidAnswer {
    let gate = gate();
    let answer = json!({"decision": 1});
    let schema = schema::AnswerSchema::new(gate.schema.decode_as().expect("it is JSON")).expect("it was one");
    let mut errors = schema.check_answer(&answer);
    errors.push(
        meaning::plan_decision(&json!({"decision": "request-changes"}))
            .expect_err("changes need comments")
            .to_mismatch(),
    );
    InvalidAnswer { gate_id: gate.gate_id, schema_hash: gate.schema_hash, errors }
}

fn responses() -> Vec<OmpResponse> {
    let hash = schema::canonical_hash(&json!({"decision": "approve"}));
    let gate_id = gate().gate_id;
    let breach = BudgetExceeded::new(
        BudgetMetric::ToolCalls,
        (JsNumber(5.0), JsNumber(6.0)),
        phase::preflight("prompt"),
        session(),
        session(),
    );
    let full = GjcSessionState {
        system_prompt: Some(vec!["You are".to_owned()]),
        dump_tools: Some(vec![DumpedTool {
            name: "read".to_owned(),
            description: "Reads".to_owned(),
            parameters: json("{}"),
        }]),
        context_usage: Some(ContextUsage {
            tokens: None,
            context_window: 200_000,
            percent: None,
            source: Some(UsageSource::Unknown),
        }),
        ..state()
    };
    vec![
        OmpResponse::success(id(), "get_state", &state()),
        OmpResponse::success(id(), "get_state", &full),
        OmpResponse::success(id(), "set_todos", &SetTodosResult { todo_phases: phases() }),
        OmpResponse::success(id(), "set_host_tools", &ToolNames { tool_names: vec!["echo_host".to_owned()] }),
        OmpResponse::success(id(), "set_host_uri_schemes", &SchemeNames { schemes: vec!["db".to_owned()] }),
        OmpResponse::success(id(), "handoff", &HandoffResult { saved_path: Some("handoff.md".to_owned()) }),
        OmpResponse::success(id(), "handoff", &()),
        OmpResponse::success(
            id(),
            "get_login_providers",
            &LoginProviders {
                providers: vec![LoginProvider {
                    id: "anthropic".to_owned(),
                    name: "Anthropic".to_owned(),
                    available: true,
                    authenticated: false,
                }],
            },
        ),
        OmpResponse::success(id(), "login", &LoginResult { provider_id: "anthropic".to_owned() }),
        OmpResponse::failure(id(), "login", "Unknown OAuth provider: x"),
        OmpResponse::success(
            id(),
            "negotiate_unattended",
            &DeclarationAccepted { run_id: session(), declaration: declaration(), accepted_at: AT.to_owned() },
        ),
        OmpResponse::typed_failure(
            id(),
            "negotiate_unattended",
            &UnattendedDeclaration::from_json(None, UsageMetering::Reported).expect_err("nothing is declared"),
        ),
        OmpResponse::typed_failure(
            id(),
            "negotiate_unattended",
            &DeclarationRefusal::for_widening(&["admin".to_owned()]),
        ),
        OmpResponse::success(id(), "get_pending_workflow_gates", &PendingGates { gates: vec![gate()] }),
        OmpResponse::success(
            id(),
            "workflow_gate_response",
            &AnswerResolution::accepted(gate_id.clone(), hash.clone(), AT.to_owned()),
        ),
        OmpResponse::success(
            id(),
            "workflow_gate_response",
            &AnswerResolution::rejected(hash, AT.to_owned(), invalid()),
        ),
        OmpResponse::typed_failure(id(), "workflow_gate_response", &GateError::Unknown("wg_x".to_owned())),
        OmpResponse::typed_failure(id(), "workflow_gate_response", &GateError::AlreadyResolved(gate_id.clone())),
        OmpResponse::typed_failure(id(), "workflow_gate_response", &GateError::IdempotencyConflict(gate_id)),
        OmpResponse::typed_failure(
            id(),
            "workflow_gate_response",
            &WorkflowStage::from_name("team").expect_err("it is reserved"),
        ),
        OmpResponse::typed_failure(
            id(),
            "workflow_gate_response",
            &GateError::from(schema::AnswerSchema::new(json!({"$ref": "#"})).expect_err("it is unsupported")),
        ),
        OmpResponse::typed_failure(
            id(),
            "bash",
            &ScopeDenied::new(CommandScope::Bash, Some("rm x".to_owned()), session(), session()),
        ),
        OmpResponse::typed_failure(
            id(),
            "bash",
            &ActionDenied::new(Action::FileDelete, Some("rm x".to_owned()), session(), session()),
        ),
        OmpResponse::typed_failure(id(), "login", &ScopeDenied::new(CommandScope::Admin, None, session(), session())),
        OmpResponse::typed_failure(id(), "prompt", &breach),
        OmpResponse::success(
            id(),
            "set_capabilities",
            &AcceptedCapabilities::for_requested(vec!["compact_message_update".to_owned(), "telepathy".to_owned()]),
        ),
        OmpResponse::success(
            id(),
            "set_default_model_selection",
            &DefaultModel { provider: "local".to_owned(), model_id: "small-1".to_owned(), thinking_level: None },
        ),
        OmpResponse::unknown_command_with_id(Some(json("7").into()), Some("nonsense".to_owned())),
        OmpResponse::unknown_command_with_id(None, None),
    ]
}

fn envelope(payload: impl Into<EventPayload>, seq: u64) -> GjcEnvelope<EventPayload> {
    GjcEnvelope::new(
        FrameType::Event,
        session(),
        seq,
        "00000000-0000-4000-8000-000000000001".to_owned(),
        payload.into(),
    )
}

fn events() -> Vec<GjcEnvelope<EventPayload>> {
    let shared = |event| GjcEvent::from_omp(event, RunEnd::Completed).expect("it is an event of a session");
    let own = GjcEvent::Own;
    let change = omp::BlockChange::TextDelta { content_index: 0, delta: "hi".to_owned() };
    let update = omp::OmpEvent::message_update(change.clone(), message("hi"));
    let todo = TodoItem { id: "t1".to_owned(), content: "test".to_owned(), status: TodoStatus::Pending };
    let events = vec![
        shared(omp::OmpEvent::AgentStart),
        shared(omp::OmpEvent::AgentEnd { messages: vec![message("hi")] }),
        GjcEvent::from_omp(omp::OmpEvent::AgentEnd { messages: vec![] }, RunEnd::Paused).expect("it is one"),
        shared(omp::OmpEvent::TurnStart),
        shared(omp::OmpEvent::TurnEnd { message: message("hi"), tool_results: vec![] }),
        shared(omp::OmpEvent::MessageStart { message: message("") }),
        shared(update),
        shared(omp::OmpEvent::MessageEnd { message: message("hi") }),
        shared(omp::OmpEvent::ToolExecutionStart {
            tool_call_id: "call_1".to_owned(),
            tool_name: "bash".to_owned(),
            args: json(r#"{"command":"ls"}"#),
            intent: None,
        }),
        shared(omp::OmpEvent::RetryFallbackApplied {
            from: "a/b".to_owned(),
            to: "a/c".to_owned(),
            role: "default".to_owned(),
        }),
        shared(omp::OmpEvent::RetryFallbackSucceeded { model: "a/c".to_owned(), role: "default".to_owned() }),
        shared(omp::OmpEvent::TtsrTriggered { rules: vec![json(r#"{"name":"r"}"#)] }),
        shared(omp::OmpEvent::TodoReminder { todos: vec![todo], attempt: 1, max_attempts: 3 }),
        shared(omp::OmpEvent::TodoAutoClear),
        own(OwnEvent::IrcMessage { message: json(r#"{"role":"custom","content":"hi"}"#) }),
        own(OwnEvent::SubagentSteerMessage { message: json(r#"{"role":"custom","content":"left"}"#) }),
        own(OwnEvent::Notice { level: NotifyType::Warning, message: "careful".to_owned(), source: None }),
        own(OwnEvent::ThinkingLevelChanged { thinking_level: Some("high".to_owned()) }),
        own(OwnEvent::ThinkingLevelChanged { thinking_level: None }),
        own(OwnEvent::GoalUpdated { goal: None }),
    ];
    let compact = [1, 32].map(|number| {
        let update = CompactUpdate::new(Some("m1".to_owned()), change.clone(), number, &message("hi"));
        EventPayload::Compact(Box::new(update))
    });
    events
        .into_iter()
        .map(EventPayload::from)
        .chain(compact)
        .zip(1..)
        .map(|(event, seq)| envelope(event, seq))
        .collect()
}

fn flat() -> Vec<RawJson> {
    let call = HostToolFrame::HostToolCall {
        id: frame_id(0xabc),
        tool_call_id: "toolu_123".to_owned(),
        tool_name: "echo_host".to_owned(),
        arguments: json(r#"{"message":"hello"}"#),
    };
    let request = |operation, content: Option<&str>| HostUriFrame::HostUriRequest {
        id: "uri_1".to_owned(),
        operation,
        url: "db://users/42".to_owned(),
        content: content.map(str::to_owned),
    };
    let open =
        GjcUiMethod::Own(OwnMethod::OpenUrl { url: "https://x".to_owned(), instructions: Some("Log in".to_owned()) });
    let record = SessionRecord {
        session_id: session(),
        pid: 42,
        transport: SessionTransport::Socket,
        cwd: "/w".to_owned(),
        model: Some("local/small-1".to_owned()),
        started_at: AT.to_owned(),
        endpoint: Some("/run/s.sock".to_owned()),
    };
    let audit = AuditLine {
        event_id: audit::event_id(1_780_635_600_000, 1),
        schema_version: audit::SCHEMA_VERSION,
        category: audit::CATEGORY.to_owned(),
        timestamp: AT.to_owned(),
        run_id: session(),
        session_id: Some(session()),
        actor: Some("openclaw/hermes".to_owned()),
        event: AuditEvent::GateResponseAccepted,
        outcome: AuditOutcome::Accepted,
        dedupe_key: "gate_response:wg_1".to_owned(),
        gate_id: Some("wg_1".to_owned()),
        stage: Some(WorkflowStage::Ralplan),
        kind: None,
        scope: None,
        action: None,
        budget: None,
        answer_hash: Some(schema::canonical_hash(&json!("approve"))),
        error: None,
    };
    let failed = omp::OmpEvent::ExtensionError {
        extension_path: "/e.ts".to_owned(),
        event: "agent_end".to_owned(),
        error: "no".to_owned(),
    };
    vec![
        RawJson::from_wire(&omp::OmpEvent::Ready),
        RawJson::from_wire(&failed),
        RawJson::from_wire(&gate()),
        RawJson::from_wire(&question_gate()),
        RawJson::from_wire(&WorkflowGate { options: None, ..gate() }),
        RawJson::from_wire(&call),
        RawJson::from_wire(&HostToolFrame::HostToolCancel { id: frame_id(0xdef), target_id: frame_id(0xabc) }),
        RawJson::from_wire(&request(UriOperation::Read, None)),
        RawJson::from_wire(&request(UriOperation::Write, Some("id=42\n"))),
        RawJson::from_wire(&HostUriFrame::HostUriCancel {
            id: "uri_cancel_1".to_owned(),
            target_id: "uri_1".to_owned(),
        }),
        RawJson::from_wire(&GjcUiRequest { id: "ui_1".to_owned(), method: open }),
        RawJson::from_wire(&GjcUiRequest {
            id: "ui_2".to_owned(),
            method: omp::UiMethod::Confirm {
                title: "Confirm".to_owned(),
                message: "Continue?".to_owned(),
                timeout: Some(30_000),
            }
            .into(),
        }),
        RawJson::from_wire(&record),
        RawJson::from_wire(&audit),
    ]
}

fn bridge() -> Vec<RawJson> {
    let handshake = HandshakeRequest::from_body(
        r#"{"protocol_version_range":{"min":1,"max":2},"capabilities":["events","workflow_gate","ui.editor"],
            "requested_scopes":["prompt","bash","nonsense"]}"#,
    )
    .expect("it is whole");
    let old = HandshakeRequest::from_body(
        r#"{"protocol_version_range":{"min":3,"max":4},"capabilities":[],"requested_scopes":[]}"#,
    )
    .expect("it is whole");
    let endpoints = EnabledEndpoints::from_names("events,commands").expect("they are known");
    let welcome = handshake.accept_client(
        session(),
        &[CommandScope::Prompt, CommandScope::Bash],
        endpoints.session_paths(SESSION),
        Some(RawJson::from_wire(&declaration())),
    );
    let (frame_id, seq) = ResetPayload::new(501).frame_id_and_seq();
    let reset = GjcEnvelope::new(FrameType::Reset, session(), seq, frame_id, ResetPayload::new(501));
    let permission = PermissionRequest {
        tool_call: ToolCallCard {
            tool_call_id: "call_1".to_owned(),
            tool_name: "bash".to_owned(),
            title: "rm x".to_owned(),
            kind: Some("execute".to_owned()),
            status: "pending".to_owned(),
            raw_input: json(r#"{"command":"rm x"}"#),
            content: None,
            locations: vec![],
        },
        options: vec![PermissionOption::new(PermissionKind::AllowOnce, "Allow once")],
    };
    let permission = GjcEnvelope::new(FrameType::PermissionRequest, session(), 7, "f".to_owned(), permission);
    let dialog =
        |method: GjcUiMethod| RawJson::from_wire(&DialogPayload::from_ui_method(method).expect("the bridge shows it"));
    let methods: Vec<GjcUiMethod> = vec![
        omp::UiMethod::Select { title: "t".to_owned(), options: vec!["a".to_owned()], timeout: None }.into(),
        omp::UiMethod::Confirm { title: "t".to_owned(), message: "m".to_owned(), timeout: Some(1) }.into(),
        omp::UiMethod::Input { title: "t".to_owned(), placeholder: None, timeout: None }.into(),
        omp::UiMethod::Editor { title: "t".to_owned(), prefill: None, prompt_style: Some(true) }.into(),
        omp::UiMethod::Notify { message: "m".to_owned(), notify_type: Some(NotifyType::Info) }.into(),
        omp::UiMethod::SetStatus { status_key: "k".to_owned(), status_text: Some("s".to_owned()) }.into(),
        omp::UiMethod::SetWidget { widget_key: "k".to_owned(), widget_lines: None, widget_placement: None }.into(),
        omp::UiMethod::SetTitle { title: "t".to_owned() }.into(),
        omp::UiMethod::SetEditorText { text: "x".to_owned() }.into(),
        GjcUiMethod::Own(OwnMethod::OpenUrl { url: "https://x".to_owned(), instructions: None }),
    ];
    let unsupported = DialogPayload::Unsupported { capability: "ui.custom".to_owned(), reason: "none".to_owned() };
    let errors = [
        BridgeError::Unauthorized,
        BridgeError::NotFound,
        BridgeError::EndpointDisabled(BridgeEndpoint::UiResponses),
        BridgeError::ScopeDenied(CommandScope::MessageRead),
        BridgeError::InvalidJson,
        BridgeError::Invalid { what: ExpectedInput::Command, message: "bash: `command` is required".to_owned() },
        BridgeError::EventsUnavailable,
        BridgeError::ControllerBusy,
        BridgeError::NotController,
        BridgeError::UnknownRequest,
        BridgeError::AlreadyResolved,
        BridgeError::UnknownCall,
        BridgeError::IdempotencyConflict,
    ];
    let mut all = vec![
        RawJson::from_wire(&welcome),
        RawJson::from_wire(&old.speaks_ours().expect_err("it is too new")),
        RawJson::from_wire(&endpoints.help_body()),
        RawJson::from_wire(&StatusBody::Ok),
        RawJson::from_wire(&StatusBody::Accepted),
        RawJson::from_wire(&StatusBody::Claimed { owner_token: "t".to_owned() }),
        RawJson::from_wire(&StatusBody::Released),
        RawJson::from_wire(&reset),
        RawJson::from_wire(&permission.with_correlation_id("call_1".to_owned())),
        RawJson::from_wire(&unsupported),
    ];
    all.extend(methods.into_iter().map(dialog));
    all.extend(
        errors
            .iter()
            .map(|error| RawJson::from_wire(&json!({"status": error.status_code(), "body": error.error_body()}))),
    );
    all
}

#[test]
fn every_frame_is_written_as_the_golden_has_it() {
    fn line(frame: &(impl WireValue + ?Sized)) -> String {
        String::from_utf8(encode_line(frame).to_vec()).expect("JSON is UTF-8")
    }
    let mut written: Vec<String> = responses().iter().map(line).collect();
    written.extend(events().iter().map(line));
    written.extend(flat().iter().chain(&bridge()).map(line));
    for (at, (written, golden)) in written.iter().zip(GOLDEN.split_inclusive('\n')).enumerate() {
        assert_eq!(written, golden, "line {}", at + 1);
    }
    assert_eq!(written.len(), GOLDEN.lines().count());
}

#[test]
fn a_host_asks_for_titles_in_four_words() {
    for (value, want) in [("1", true), ("true", true), (" YES ", true), ("on", true), ("0", false), ("", false)] {
        assert_eq!(asks_for_titles(value), want, "{value:?}");
    }
}

#[test]
fn older_clients_are_shown_no_level_that_they_do_not_know() {
    let shown: Vec<Option<&str>> = THINKING_LEVELS.iter().map(|level| shown_level(level)).collect();
    let want =
        [None, Some("off"), Some("minimal"), Some("low"), Some("medium"), Some("high"), Some("xhigh"), Some("xhigh")];
    assert_eq!(shown, want);
}

#[test]
fn what_is_no_event_of_a_session_is_in_no_envelope() {
    for flat in [omp::OmpEvent::Ready, omp::OmpEvent::AgentSettled] {
        assert_eq!(GjcEvent::from_omp(flat, RunEnd::Completed), None);
    }
}

#[test]
fn the_gate_file_reads_back() {
    let gate = gate();
    let hash = schema::canonical_hash(&json!("approve"));
    let record = GateRecord {
        status: GateStatus::Accepted,
        idempotency_key: Some("k1".to_owned()),
        response_hash: Some(hash.clone()),
        answer: Some(json!("approve")),
        resolution: Some(AnswerResolution::accepted(gate.gate_id.clone(), hash, AT.to_owned())),
        advanced: true,
        gate: gate.clone(),
    };
    let mut file = GateFile::default();
    file.counters.next_number(WorkflowStage::Ralplan);
    file.gates.insert(gate.gate_id, record);
    let text = file.to_pretty_json();
    assert!(text.starts_with("{\n  \"counters\": {\n    \"ralplan\": 1\n  },\n  \"gates\": {\n"), "{text}");
    assert_eq!(serde_json::from_str::<GateFile>(&text).unwrap(), file);
}

#[test]
fn records_and_audit_lines_read_back() {
    let lines: Vec<String> = flat().iter().rev().take(2).map(|json| json.as_text().to_owned()).collect();
    assert_eq!(encode_line(&serde_json::from_str::<AuditLine>(&lines[0]).unwrap()), format!("{}\n", lines[0]));
    assert_eq!(encode_line(&serde_json::from_str::<SessionRecord>(&lines[1]).unwrap()), format!("{}\n", lines[1]));
}
