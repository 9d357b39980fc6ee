//! Every frame that is sent, byte for byte, and every form in which one comes.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::collections::BTreeMap;

use countersign_protocol::gsv::channel::{
    self, AccountStatus, ChannelInboundResult, ChannelOutboundEvent, ChannelOutboundMessage, ChannelTypingEvent,
    ChatPeer, PeerKind,
};
use countersign_protocol::gsv::chat::{CANCELLED, ChatEvent, ChatEventState, ChatSendResult, Directives};
use countersign_protocol::gsv::directive::{ModelSelector, ThinkLevel};
use countersign_protocol::gsv::frame::{GsvRequestId, encode_error, encode_event, encode_request, encode_response};
use countersign_protocol::gsv::message::{AssistantPart, GsvMessage, MessageUsage, TextPart, UserContent, UserPart};
use countersign_protocol::gsv::node::{
    ExecEvent, ExecState, LogsGetEvent, LogsGetResult, LogsResult, NodeProbe, NodeProbeResult,
};
use countersign_protocol::gsv::runtime::{HostRole, MachineCapability};
use countersign_protocol::gsv::session::{self, ResetMode, ResetPolicy, SessionTokens};
use countersign_protocol::gsv::settings::{ConfigGetResult, ConfigSetResult, SettingPath};
use countersign_protocol::gsv::skill::{
    SkillEntry, SkillNode, SkillRequirements, SkillsStatusResult, SkillsUpdateResult,
};
use countersign_protocol::gsv::tool::{
    AckResult, NoResultReason, ToolDefinition, ToolInvokeEvent, ToolInvokeResult, ToolRequestResult, ToolResultParams,
    ToolResumeEvent, ToolsListResult,
};
use countersign_protocol::gsv::{
    GsvError, GsvInboundFrame, Method, cron, heartbeat, pairing, read_frame, receive_frame, workspace,
};
use countersign_protocol::{RawJson, WireValue};
use serde_json::{Map, Value, json};

fn text(text: &str) -> String {
    text.to_owned()
}

fn model() -> ModelSelector {
    ModelSelector { provider: text("anthropic"), id: text("claude") }
}

fn dm() -> ChatPeer {
    ChatPeer { kind: PeerKind::Dm, id: text("7"), name: Some(text("Ana")), handle: None }
}

fn sample_message() -> GsvMessage {
    GsvMessage::Assistant {
        content: vec![
            AssistantPart::Text { text: text("Looking.") },
            AssistantPart::Thinking { thinking: text("hm") },
            AssistantPart::ToolCall { id: text("c1"), name: text("macbook__Bash"), arguments: Map::new() },
        ],
        usage: Some(MessageUsage { input: 10, output: 5, total_tokens: 15 }),
        stop_reason: Some(text("toolUse")),
        error_message: None,
        timestamp: 1,
    }
}

fn job() -> cron::CronJob {
    cron::CronJob {
        id: text("j"),
        agent_id: text("main"),
        name: text("n"),
        description: None,
        enabled: true,
        delete_after_run: Some(true),
        created_at_ms: 1,
        updated_at_ms: 2,
        schedule: cron::CronSchedule::At { at_ms: 3 },
        spec: cron::CronSpec::SystemEvent { text: text("t") },
        state: cron::CronJobState {
            next_run_at_ms: Some(3),
            last_status: Some(cron::CronRunStatus::Ok),
            ..cron::CronJobState::default()
        },
    }
}

fn task() -> cron::CronJob {
    let task = cron::CronTask {
        message: text("m"),
        model: Some(text("p/x")),
        thinking: Some(ThinkLevel::High),
        timeout_seconds: Some(5),
        deliver: Some(true),
        channel: Some(text("discord")),
        to: Some(text("7")),
        best_effort_deliver: Some(false),
    };
    cron::CronJob {
        schedule: cron::CronSchedule::Cron { expr: text("0 4 * * *"), tz: Some(text("Europe/Berlin")) },
        spec: cron::CronSpec::Task(task),
        ..job()
    }
}

fn skills() -> SkillsStatusResult {
    SkillsStatusResult {
        agent_id: text("main"),
        refreshed_at: 5,
        required_bins: vec![text("git")],
        nodes: vec![SkillNode {
            node_id: text("macbook"),
            host_role: Some(HostRole::Execution),
            host_capabilities: vec![MachineCapability::ShellExec],
            host_os: Some(text("macos")),
            host_env: vec![text("PATH")],
            host_bins: vec![text("git")],
            host_bin_status_updated_at: Some(4),
            can_probe_bins: true,
        }],
        skills: vec![SkillEntry {
            name: text("git"),
            description: text("Use git"),
            location: text("skills/git/SKILL.md"),
            always: false,
            eligible: false,
            eligible_hosts: vec![],
            reasons: vec![text("requires bins: git")],
            requirements: Some(SkillRequirements { bins: vec![text("git")], ..SkillRequirements::default() }),
        }],
    }
}

fn frames() -> Vec<String> {
    let tokens = SessionTokens { input: 1, output: 2, total: 3 };
    let run_result = cron::JobRunResult {
        job_id: text("j"),
        status: cron::CronRunStatus::Error,
        error: Some(text("e")),
        summary: Some(text("s")),
        duration_ms: Some(4),
        next_run_at_ms: Some(5),
    };
    let ok = |payload: &dyn Fn(&GsvRequestId) -> String| payload(&GsvRequestId::from_text("1"));
    fn res<T: WireValue>(payload: T) -> impl Fn(&GsvRequestId) -> String {
        move |id| encode_response(id, &payload)
    }
    let chat = |run: Option<&str>, state| {
        encode_event("chat", &ChatEvent { run_id: run, session_key: "agent:main:cli:dm:main", state }, Some(7))
    };
    vec![
        ok(&res(ChatSendResult::Started { run_id: text("r"), queued: false, directives: Directives::default() })),
        ok(&res(ChatSendResult::Started {
            run_id: text("r"),
            queued: true,
            directives: Directives { think_level: Some(ThinkLevel::XHigh), model: Some(model()) },
        })),
        ok(&res(ChatSendResult::Command { command: "reset", response: Some(text("Done.")), error: None })),
        ok(&res(ChatSendResult::Command { command: "think", response: None, error: Some(text("Invalid level: x")) })),
        ok(&res(ChatSendResult::DirectiveOnly { response: None, directives: Directives::default() })),
        ok(&res(ConfigGetResult::All { config: json!({"a": 1}) })),
        ok(&res(ConfigGetResult::One { path: text("a"), value: Some(json!(1)) })),
        ok(&res(ConfigGetResult::One { path: text("a"), value: None })),
        ok(&res(ConfigSetResult::for_path(&SettingPath::from_text("a.b").unwrap()))),
        ok(&res(ToolsListResult {
            tools: vec![ToolDefinition {
                name: text("macbook__Bash"),
                description: text("Run"),
                input_schema: Map::new(),
            }],
        })),
        ok(&res(ToolInvokeResult { result: RawJson::from(json!({"b": 1, "a": 2})) })),
        ok(&res(AckResult::TAKEN)),
        ok(&res(AckResult::DROPPED)),
        ok(&res(ToolRequestResult::default())),
        ok(&res(LogsGetResult { node_id: text("macbook"), lines: vec![text("a")], count: 1, truncated: true })),
        ok(&res(session::SessionsListResult {
            sessions: vec![session::SessionListEntry {
                session_key: text("k"),
                created_at: 1,
                last_active_at: 2,
                label: None,
            }],
            count: 9,
        })),
        ok(&res(session::SessionGetResult {
            session_id: text("s"),
            session_key: text("k"),
            created_at: 1,
            updated_at: 2,
            message_count: 3,
            tokens,
            settings: session::GsvSessionSettings {
                model: Some(model()),
                thinking_level: Some(ThinkLevel::None),
                system_prompt: Some(text("p")),
                max_tokens: Some(9),
            },
            reset_policy: Some(ResetPolicy { mode: ResetMode::Daily, at_hour: Some(4), idle_minutes: None }),
            last_reset_at: Some(1),
            previous_session_ids: vec![text("o")],
            label: Some(text("l")),
        })),
        ok(&res(session::SessionStatsResult {
            session_key: text("k"),
            session_id: text("s"),
            message_count: 3,
            tokens,
            created_at: 1,
            updated_at: 2,
            uptime: 1,
            is_processing: true,
            queue_size: 1,
        })),
        ok(&res(session::SessionResetResult {
            ok: true,
            session_key: text("k"),
            old_session_id: text("o"),
            new_session_id: text("s"),
            archived_messages: 2,
            archived_to: Some(session::archive_path("main", "o")),
            tokens_cleared: tokens,
            media_deleted: 0,
        })),
        ok(&res(session::OkResult::OK)),
        ok(&res(session::SessionCompactResult {
            ok: true,
            trimmed_messages: 2,
            kept_messages: 20,
            archived_to: Some(session::archive_part("main", "s", 5)),
        })),
        ok(&res(session::SessionHistoryResult {
            session_key: text("k"),
            current_session_id: text("s"),
            previous_session_ids: vec![text("o")],
        })),
        ok(&res(session::SessionPreviewResult {
            session_key: text("k"),
            session_id: text("s"),
            message_count: 4,
            messages: vec![
                GsvMessage::User { content: UserContent::Text(text("hi")), timestamp: 1 },
                GsvMessage::User {
                    content: UserContent::Parts(vec![
                        UserPart::Text { text: text("see") },
                        UserPart::Image {
                            data: None,
                            r2_key: Some(text("media/k/u.png")),
                            mime_type: text("image/png"),
                        },
                    ]),
                    timestamp: 2,
                },
                sample_message(),
                GsvMessage::ToolResult {
                    tool_call_id: text("c1"),
                    tool_name: text("macbook__Bash"),
                    content: vec![TextPart { text: text("ok") }],
                    is_error: false,
                    timestamp: 3,
                },
            ],
        })),
        ok(&res(channel::ChannelsListResult {
            channels: vec![channel::ChannelEntry {
                channel: text("discord"),
                account_id: text("bot"),
                connected_at: 1,
                last_message_at: Some(2),
            }],
            count: 1,
        })),
        ok(&res(ChannelInboundResult::Started {
            session_key: text("k"),
            run_id: text("r"),
            directives: Directives::default(),
        })),
        ok(&res(ChannelInboundResult::Command { session_key: text("k"), command: "help", response: text("…") })),
        ok(&res(ChannelInboundResult::DirectiveOnly {
            session_key: text("k"),
            response: Some(text("_Thinking: high_")),
        })),
        ok(&res(ChannelInboundResult::PendingPairing { sender_id: text("u") })),
        ok(&res(ChannelInboundResult::Blocked { reason: text("not on the list") })),
        ok(&res(channel::ChannelAccountResult {
            ok: true,
            channel: text("discord"),
            account_id: text("bot"),
            qr_data_url: None,
            message: None,
        })),
        ok(&res(channel::ChannelStatusResult {
            channel: text("discord"),
            accounts: vec![AccountStatus { account_id: text("bot"), connected: true, ..AccountStatus::default() }],
        })),
        ok(&res(heartbeat::HeartbeatStatusResult {
            message: Some(text(heartbeat::STARTED)),
            agents: BTreeMap::from([(
                text("main"),
                heartbeat::AgentHeartbeat {
                    agent_id: text("main"),
                    next_heartbeat_at: Some(5),
                    last_active: Some(heartbeat::LastActive {
                        channel: text("discord"),
                        account_id: text("bot"),
                        peer: dm(),
                        timestamp: 3,
                    }),
                    ..heartbeat::AgentHeartbeat::default()
                },
            )]),
        })),
        ok(&res(heartbeat::HeartbeatTriggerResult::started_in("main", "agent:main:heartbeat:system:internal"))),
        ok(&res(heartbeat::HeartbeatTriggerResult::skipped("main", "session_busy"))),
        ok(&res(heartbeat::HeartbeatTriggerResult::failed("main", "no model"))),
        ok(&res(cron::CronStatusResult {
            enabled: true,
            count: 2,
            due_count: 1,
            running_count: 0,
            next_run_at_ms: Some(5),
            max_jobs: 200,
            max_concurrent_runs: 4,
        })),
        ok(&res(cron::CronListResult { jobs: vec![job(), task()], count: 2 })),
        ok(&res(cron::CronSaveResult { ok: true, job: job() })),
        ok(&res(cron::CronRemoveResult { ok: true, removed: false })),
        ok(&res(cron::CronRunResult { ok: true, ran: 1, results: vec![run_result.clone()] })),
        ok(&res(cron::CronRunsResult { runs: vec![cron::PastRun { id: 1, ts: 2, result: run_result }], count: 1 })),
        ok(&res(pairing::PairListResult {
            pairs: BTreeMap::from([(
                pairing::pairing_key("whatsapp", "491701234567@s.whatsapp.net"),
                pairing::PendingPairing {
                    channel: text("whatsapp"),
                    sender_id: text("491701234567@s.whatsapp.net"),
                    sender_name: Some(text("Ana")),
                    requested_at: 1,
                    first_message: Some(text("hi")),
                },
            )]),
        })),
        ok(&res(pairing::PairApproveResult { approved: true, sender_id: text("u"), sender_name: None })),
        ok(&res(pairing::PairRejectResult { rejected: true, sender_id: text("u") })),
        ok(&res(skills())),
        ok(&res(SkillsUpdateResult {
            status: skills(),
            updated_node_count: 1,
            skipped_node_ids: vec![text("pi")],
            errors: vec![text("e")],
        })),
        ok(&res(workspace::WorkspaceListResult {
            path: text("/"),
            files: vec![text("SOUL.md")],
            directories: vec![text("memory/")],
        })),
        ok(&res(workspace::WorkspaceReadResult {
            path: text("SOUL.md"),
            content: text("…"),
            size: 3,
            last_modified: Some(text("2026-02-20T00:00:00.000Z")),
        })),
        ok(&res(workspace::WorkspaceWriteResult { path: text("SOUL.md"), size: 1, written: true })),
        ok(&res(workspace::WorkspaceDeleteResult { path: text("SOUL.md"), deleted: true })),
        encode_error(&GsvRequestId::from_text("1"), &GsvError::not_connected()),
        encode_error(
            &GsvRequestId::from_text("1"),
            &GsvError {
                details: Some(json!({"a": 1})),
                retryable: Some(true),
                ..GsvError::node_disconnected("macbook")
            },
        ),
        chat(Some("r"), ChatEventState::partial_message(&sample_message())),
        chat(Some("r"), ChatEventState::Delta { text: text("He") }),
        chat(Some("r"), ChatEventState::final_message(&GsvMessage::gateway_message("Hello", 1))),
        chat(None, ChatEventState::Error { error: text(CANCELLED) }),
        encode_event(
            "tool.invoke",
            &ToolInvokeEvent { call_id: text("c"), tool: text("Bash"), args: RawJson::from(json!({"command": "ls"})) },
            None,
        ),
        encode_event(
            "node.probe",
            &NodeProbe { probe_id: text("p"), kind: text("bins"), bins: vec![text("git")], timeout_ms: 15_000 },
            None,
        ),
        encode_event("tool.resume", &ToolResumeEvent { call_id: text("c") }, None),
        encode_event("logs.get", &LogsGetEvent { call_id: text("c"), lines: 100 }, None),
        encode_event(
            "channel.outbound",
            &ChannelOutboundEvent {
                channel: "discord",
                account_id: "bot",
                peer: &dm(),
                session_key: "",
                message: ChannelOutboundMessage::new("\n \n  Hi\n", Some("m"), None).unwrap(),
            },
            None,
        ),
        encode_event(
            "channel.typing",
            &ChannelTypingEvent { channel: "discord", account_id: "bot", peer: &dm(), session_key: "k", typing: true },
            None,
        ),
        encode_request("1", Method::ToolsList, None::<&()>),
        encode_request(
            "1",
            Method::ToolResult,
            Some(&ToolResultParams {
                call_id: text("c"),
                result: Some(RawJson::from(json!("ok"))),
                error: None,
                fate: None,
            }),
        ),
        encode_request(
            "1",
            Method::ToolResult,
            Some(&ToolResultParams {
                call_id: text("c"),
                result: None,
                error: Some(text("lost")),
                fate: Some(NoResultReason::Unknown),
            }),
        ),
        encode_request(
            "1",
            Method::NodeProbeResult,
            Some(&NodeProbeResult {
                probe_id: text("p"),
                ok: true,
                bins: Some(BTreeMap::from([(text("git"), true)])),
                error: None,
            }),
        ),
        encode_request(
            "1",
            Method::NodeExecEvent,
            Some(&ExecEvent {
                event_id: text("e"),
                session_id: text("s"),
                event: ExecState::Finished,
                call_id: None,
                exit_code: Some(0),
                signal: None,
                output_tail: Some(text("done")),
                started_at: Some(1),
                ended_at: Some(2),
            }),
        ),
        encode_request(
            "1",
            Method::LogsResult,
            Some(&LogsResult { call_id: text("c"), lines: vec![text("a")], truncated: false, error: None }),
        ),
    ]
}

#[test]
fn every_frame_is_written_as_the_golden_one() {
    const GOLDEN: &str = include_str!("gsv/frames.jsonl");
    let frames = frames();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gsv/frames.jsonl");
        std::fs::write(file, frames.join("\n") + "\n").unwrap();
        return;
    }
    for (frame, golden) in frames.iter().zip(GOLDEN.lines()) {
        assert_eq!(frame, golden);
    }
    assert_eq!(frames.len(), GOLDEN.lines().count());
}

#[test]
fn whatever_we_write_can_be_read() {
    for frame in frames() {
        let value: Value = serde_json::from_str(&frame).unwrap();
        match read_frame(&frame) {
            GsvInboundFrame::Request { method, .. } => assert_eq!(value["method"], method),
            GsvInboundFrame::Response { outcome, .. } => assert_eq!(value["ok"], outcome.is_ok()),
            GsvInboundFrame::Event { event, seq, .. } => {
                assert_eq!((value["event"].as_str(), value["seq"].as_u64()), (Some(event.as_str()), seq));
            }
            other @ (GsvInboundFrame::Malformed { .. } | GsvInboundFrame::Ignored { .. }) => {
                panic!("{frame}: {other:?}")
            }
        }
    }
}

fn ignored(why: &'static str) -> GsvInboundFrame {
    GsvInboundFrame::Ignored { why }
}

#[test]
fn a_frame_that_cannot_be_read_is_answered_if_it_has_an_id() {
    let malformed = |message: &str| GsvInboundFrame::Malformed {
        id: GsvRequestId::from_text("1"),
        fault: GsvError::bad_request(message),
    };
    for (frame, want) in [
        ("", ignored("not an object")),
        ("hello", ignored("not an object")),
        ("[]", ignored("not an object")),
        ("{\"type\":", ignored("not JSON")),
        ("{\"type\":\"req\",\"id\":\"2\",\"id\":\"1\"}", malformed("A member is there twice")),
        ("{\"type\":\"req\",\"id\":\"1\",\"method\":\"a\",\"method\":\"b\"}", malformed("A member is there twice")),
        ("{\"type\":\"req\",\"method\":\"a\",\"method\":\"b\"}", ignored("a member is there twice")),
        ("{}", ignored("a frame of an unknown type")),
        ("{\"type\":\"req\",\"method\":\"tools.list\"}", ignored("a request without an id")),
        ("{\"type\":\"req\",\"id\":null,\"method\":\"tools.list\"}", ignored("a request without an id")),
        ("{\"type\":\"res\",\"ok\":true}", ignored("a response without an id")),
        ("{\"type\":\"res\",\"id\":\"1\"}", ignored("a response that is neither ok nor not")),
        ("{\"type\":\"evt\",\"id\":\"1\"}", ignored("an event without a name")),
        ("{\"id\":\"1\"}", malformed("Unknown frame type: undefined")),
        ("{\"id\":\"1\",\"type\":\"ping\"}", malformed("Unknown frame type: ping")),
        ("{\"id\":\"1\",\"type\":5}", malformed("Unknown frame type: 5")),
        ("{\"id\":\"1\",\"type\":\"req\"}", malformed("method required")),
        ("{\"id\":\"1\",\"type\":\"req\",\"method\":\"\"}", malformed("method required")),
        ("{\"id\":\"1\",\"type\":\"req\",\"method\":7}", malformed("method must be a string")),
    ] {
        assert_eq!(read_frame(frame), want, "{frame}");
    }
}

#[test]
fn a_gateway_answers_unknown_frames_that_have_an_id() {
    let malformed = |message: &str| GsvInboundFrame::Malformed {
        id: GsvRequestId::from_text("1"),
        fault: GsvError::bad_request(message),
    };
    let passed_over = || ignored("a gateway accepts neither responses nor events");
    for (frame, want) in [
        ("{\"type\":\"res\",\"id\":\"1\",\"ok\":true}", malformed("Unexpected frame type: res")),
        ("{\"type\":\"res\",\"id\":\"1\"}", malformed("Unexpected frame type: res")),
        ("{\"type\":\"res\",\"ok\":true}", passed_over()),
        ("{\"type\":\"evt\",\"id\":\"1\",\"event\":\"chat\"}", malformed("Unexpected frame type: evt")),
        ("{\"type\":\"evt\",\"id\":null,\"event\":\"chat\"}", passed_over()),
        ("{\"id\":\"1\",\"type\":\"ping\"}", malformed("Unknown frame type: ping")),
        ("{\"id\":\"1\",\"type\":\"req\"}", malformed("method required")),
        ("", ignored("not an object")),
    ] {
        assert_eq!(receive_frame(frame), want, "{frame}");
    }
}

#[test]
fn an_id_is_repeated_as_it_was_written() {
    for id in ["\"a\\u0041\"", "7.50", "true", "{\"a\": 1}"] {
        let frame = format!("{{\"type\":\"req\",\"id\":{id},\"method\":\"x\",\"params\":null,\"later\":[1]}}");
        let GsvInboundFrame::Request { id: read, method, params: None } = read_frame(&frame) else { panic!("{frame}") };
        let want = format!(
            "{{\"type\":\"res\",\"id\":{id},\"ok\":false,\"error\":{{\"code\":404,\"message\":\"Unknown method: x\"}}}}"
        );
        assert_eq!(encode_error(&read, &GsvError::unknown_method(&method)), want);
    }
}

#[test]
fn an_answer_is_read_with_null_for_what_is_not_there() {
    let outcome = |frame: &str| match read_frame(frame) {
        GsvInboundFrame::Response { outcome, .. } => outcome,
        other => panic!("{other:?}"),
    };
    assert_eq!(outcome(r#"{"type":"res","id":"1","ok":true,"payload":null,"error":null}"#), Ok(None));
    let fault = GsvError { retryable: Some(true), ..GsvError::new(503, "gone") };
    assert_eq!(
        outcome(r#"{"type":"res","id":"1","ok":false,"error":{"code":503,"message":"gone","retryable":true,"x":1}}"#),
        Err(fault)
    );
    assert_eq!(
        outcome(r#"{"type":"res","id":"1","ok":false,"error":"gone"}"#),
        Err(GsvError::new(500, "the error cannot be read"))
    );
}
