//! Every frame that is sent, byte for byte, and every form in which one comes.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::collections::BTreeMap;

use countersign_protocol::gsv::channel::{
    self, AccountStatus, Outbound, OutboundMessage, Peer, PeerKind, Taken, Typing,
};
use countersign_protocol::gsv::chat::{CANCELLED, Directives, Event, Sent, State};
use countersign_protocol::gsv::directive::{Level, Model};
use countersign_protocol::gsv::frame::{Id, answer, ask, event, refusal};
use countersign_protocol::gsv::message::{AssistantPart, Message, TextPart, Usage, UserContent, UserPart};
use countersign_protocol::gsv::node::{ExecEvent, ExecState, Logs, LogsResult, LogsWanted, Probe, Probed};
use countersign_protocol::gsv::runtime::{Capability, HostRole};
use countersign_protocol::gsv::session::{self, ResetMode, ResetPolicy, Tokens};
use countersign_protocol::gsv::settings::{Done, Got, Path};
use countersign_protocol::gsv::skill::{Entry, Node, Requirements, Status, Updated};
use countersign_protocol::gsv::tool::{Ack, Asked, Call, Definition, Fate, Invoked, Listed, Outcome, Resume};
use countersign_protocol::gsv::{Fault, Incoming, Method, cron, heartbeat, pairing, read, receive, workspace};
use countersign_protocol::{Json, Wire};
use serde_json::{Map, Value, json};

fn text(text: &str) -> String {
    text.to_owned()
}

fn model() -> Model {
    Model { provider: text("anthropic"), id: text("claude") }
}

fn dm() -> Peer {
    Peer { kind: PeerKind::Dm, id: text("7"), name: Some(text("Ana")), handle: None }
}

fn said() -> Message {
    Message::Assistant {
        content: vec![
            AssistantPart::Text { text: text("Looking.") },
            AssistantPart::Thinking { thinking: text("hm") },
            AssistantPart::ToolCall { id: text("c1"), name: text("macbook__Bash"), arguments: Map::new() },
        ],
        usage: Some(Usage { input: 10, output: 5, total_tokens: 15 }),
        stop_reason: Some(text("toolUse")),
        error_message: None,
        timestamp: 1,
    }
}

fn job() -> cron::Job {
    cron::Job {
        id: text("j"),
        agent_id: text("main"),
        name: text("n"),
        description: None,
        enabled: true,
        delete_after_run: Some(true),
        created_at_ms: 1,
        updated_at_ms: 2,
        schedule: cron::Schedule::At { at_ms: 3 },
        spec: cron::Spec::SystemEvent { text: text("t") },
        state: cron::State { next_run_at_ms: Some(3), last_status: Some(cron::Status::Ok), ..cron::State::default() },
    }
}

fn task() -> cron::Job {
    let task = cron::Task {
        message: text("m"),
        model: Some(text("p/x")),
        thinking: Some(Level::High),
        timeout_seconds: Some(5),
        deliver: Some(true),
        channel: Some(text("discord")),
        to: Some(text("7")),
        best_effort_deliver: Some(false),
    };
    cron::Job {
        schedule: cron::Schedule::Cron { expr: text("0 4 * * *"), tz: Some(text("Europe/Berlin")) },
        spec: cron::Spec::Task(task),
        ..job()
    }
}

fn skills() -> Status {
    Status {
        agent_id: text("main"),
        refreshed_at: 5,
        required_bins: vec![text("git")],
        nodes: vec![Node {
            node_id: text("macbook"),
            host_role: Some(HostRole::Execution),
            host_capabilities: vec![Capability::ShellExec],
            host_os: Some(text("macos")),
            host_env: vec![text("PATH")],
            host_bins: vec![text("git")],
            host_bin_status_updated_at: Some(4),
            can_probe_bins: true,
        }],
        skills: vec![Entry {
            name: text("git"),
            description: text("Use git"),
            location: text("skills/git/SKILL.md"),
            always: false,
            eligible: false,
            eligible_hosts: vec![],
            reasons: vec![text("requires bins: git")],
            requirements: Some(Requirements { bins: vec![text("git")], ..Requirements::default() }),
        }],
    }
}

fn frames() -> Vec<String> {
    let tokens = Tokens { input: 1, output: 2, total: 3 };
    let run_result = cron::RunResult {
        job_id: text("j"),
        status: cron::Status::Error,
        error: Some(text("e")),
        summary: Some(text("s")),
        duration_ms: Some(4),
        next_run_at_ms: Some(5),
    };
    let ok = |payload: &dyn Fn(&Id) -> String| payload(&Id::of("1"));
    fn res<T: Wire>(payload: T) -> impl Fn(&Id) -> String {
        move |id| answer(id, &payload)
    }
    let chat = |run: Option<&str>, state| {
        event("chat", &Event { run_id: run, session_key: "agent:main:cli:dm:main", state }, Some(7))
    };
    vec![
        ok(&res(Sent::Started { run_id: text("r"), queued: false, directives: Directives::default() })),
        ok(&res(Sent::Started {
            run_id: text("r"),
            queued: true,
            directives: Directives { think_level: Some(Level::XHigh), model: Some(model()) },
        })),
        ok(&res(Sent::Command { command: "reset", response: Some(text("Done.")), error: None })),
        ok(&res(Sent::Command { command: "think", response: None, error: Some(text("Invalid level: x")) })),
        ok(&res(Sent::DirectiveOnly { response: None, directives: Directives::default() })),
        ok(&res(Got::All { config: json!({"a": 1}) })),
        ok(&res(Got::One { path: text("a"), value: Some(json!(1)) })),
        ok(&res(Got::One { path: text("a"), value: None })),
        ok(&res(Done::of(&Path::read("a.b").unwrap()))),
        ok(&res(Listed {
            tools: vec![Definition { name: text("macbook__Bash"), description: text("Run"), input_schema: Map::new() }],
        })),
        ok(&res(Invoked { result: Json::from(json!({"b": 1, "a": 2})) })),
        ok(&res(Ack::TAKEN)),
        ok(&res(Ack::DROPPED)),
        ok(&res(Asked::default())),
        ok(&res(Logs { node_id: text("macbook"), lines: vec![text("a")], count: 1, truncated: true })),
        ok(&res(session::Listed {
            sessions: vec![session::Entry { session_key: text("k"), created_at: 1, last_active_at: 2, label: None }],
            count: 9,
        })),
        ok(&res(session::Session {
            session_id: text("s"),
            session_key: text("k"),
            created_at: 1,
            updated_at: 2,
            message_count: 3,
            tokens,
            settings: session::Settings {
                model: Some(model()),
                thinking_level: Some(Level::None),
                system_prompt: Some(text("p")),
                max_tokens: Some(9),
            },
            reset_policy: Some(ResetPolicy { mode: ResetMode::Daily, at_hour: Some(4), idle_minutes: None }),
            last_reset_at: Some(1),
            previous_session_ids: vec![text("o")],
            label: Some(text("l")),
        })),
        ok(&res(session::Stats {
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
        ok(&res(session::Reset {
            ok: true,
            session_key: text("k"),
            old_session_id: text("o"),
            new_session_id: text("s"),
            archived_messages: 2,
            archived_to: Some(session::archive("main", "o")),
            tokens_cleared: tokens,
            media_deleted: 0,
        })),
        ok(&res(session::Done::OK)),
        ok(&res(session::Compacted {
            ok: true,
            trimmed_messages: 2,
            kept_messages: 20,
            archived_to: Some(session::archive_part("main", "s", 5)),
        })),
        ok(&res(session::History {
            session_key: text("k"),
            current_session_id: text("s"),
            previous_session_ids: vec![text("o")],
        })),
        ok(&res(session::Previewed {
            session_key: text("k"),
            session_id: text("s"),
            message_count: 4,
            messages: vec![
                Message::User { content: UserContent::Text(text("hi")), timestamp: 1 },
                Message::User {
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
                said(),
                Message::ToolResult {
                    tool_call_id: text("c1"),
                    tool_name: text("macbook__Bash"),
                    content: vec![TextPart { text: text("ok") }],
                    is_error: false,
                    timestamp: 3,
                },
            ],
        })),
        ok(&res(channel::Listed {
            channels: vec![channel::Entry {
                channel: text("discord"),
                account_id: text("bot"),
                connected_at: 1,
                last_message_at: Some(2),
            }],
            count: 1,
        })),
        ok(&res(Taken::Started { session_key: text("k"), run_id: text("r"), directives: Directives::default() })),
        ok(&res(Taken::Command { session_key: text("k"), command: "help", response: text("…") })),
        ok(&res(Taken::DirectiveOnly { session_key: text("k"), response: Some(text("_Thinking: high_")) })),
        ok(&res(Taken::PendingPairing { sender_id: text("u") })),
        ok(&res(Taken::Blocked { reason: text("not on the list") })),
        ok(&res(channel::Done {
            ok: true,
            channel: text("discord"),
            account_id: text("bot"),
            qr_data_url: None,
            message: None,
        })),
        ok(&res(channel::Status {
            channel: text("discord"),
            accounts: vec![AccountStatus { account_id: text("bot"), connected: true, ..AccountStatus::default() }],
        })),
        ok(&res(heartbeat::Status {
            message: Some(text(heartbeat::STARTED)),
            agents: BTreeMap::from([(
                text("main"),
                heartbeat::State {
                    agent_id: text("main"),
                    next_heartbeat_at: Some(5),
                    last_active: Some(heartbeat::LastActive {
                        channel: text("discord"),
                        account_id: text("bot"),
                        peer: dm(),
                        timestamp: 3,
                    }),
                    ..heartbeat::State::default()
                },
            )]),
        })),
        ok(&res(heartbeat::Triggered::ran("main", "agent:main:heartbeat:system:internal"))),
        ok(&res(heartbeat::Triggered::skipped("main", "session_busy"))),
        ok(&res(heartbeat::Triggered::failed("main", "no model"))),
        ok(&res(cron::Scheduler {
            enabled: true,
            count: 2,
            due_count: 1,
            running_count: 0,
            next_run_at_ms: Some(5),
            max_jobs: 200,
            max_concurrent_runs: 4,
        })),
        ok(&res(cron::Listed { jobs: vec![job(), task()], count: 2 })),
        ok(&res(cron::Saved { ok: true, job: job() })),
        ok(&res(cron::Removed { ok: true, removed: false })),
        ok(&res(cron::Ran { ok: true, ran: 1, results: vec![run_result.clone()] })),
        ok(&res(cron::PastRuns { runs: vec![cron::Past { id: 1, ts: 2, result: run_result }], count: 1 })),
        ok(&res(pairing::Listed {
            pairs: BTreeMap::from([(
                pairing::key("whatsapp", "491701234567@s.whatsapp.net"),
                pairing::Pending {
                    channel: text("whatsapp"),
                    sender_id: text("491701234567@s.whatsapp.net"),
                    sender_name: Some(text("Ana")),
                    requested_at: 1,
                    first_message: Some(text("hi")),
                },
            )]),
        })),
        ok(&res(pairing::Approved { approved: true, sender_id: text("u"), sender_name: None })),
        ok(&res(pairing::Rejected { rejected: true, sender_id: text("u") })),
        ok(&res(skills())),
        ok(&res(Updated {
            status: skills(),
            updated_node_count: 1,
            skipped_node_ids: vec![text("pi")],
            errors: vec![text("e")],
        })),
        ok(&res(workspace::Listed {
            path: text("/"),
            files: vec![text("SOUL.md")],
            directories: vec![text("memory/")],
        })),
        ok(&res(workspace::Content {
            path: text("SOUL.md"),
            content: text("…"),
            size: 3,
            last_modified: Some(text("2026-02-20T00:00:00.000Z")),
        })),
        ok(&res(workspace::Written { path: text("SOUL.md"), size: 1, written: true })),
        ok(&res(workspace::Deleted { path: text("SOUL.md"), deleted: true })),
        refusal(&Id::of("1"), &Fault::not_connected()),
        refusal(
            &Id::of("1"),
            &Fault { details: Some(json!({"a": 1})), retryable: Some(true), ..Fault::node_disconnected("macbook") },
        ),
        chat(Some("r"), State::partial(&said())),
        chat(Some("r"), State::Delta { text: text("He") }),
        chat(Some("r"), State::last(&Message::said("Hello", 1))),
        chat(None, State::Error { error: text(CANCELLED) }),
        event(
            "tool.invoke",
            &Call { call_id: text("c"), tool: text("Bash"), args: Json::from(json!({"command": "ls"})) },
            None,
        ),
        event(
            "node.probe",
            &Probe { probe_id: text("p"), kind: text("bins"), bins: vec![text("git")], timeout_ms: 15_000 },
            None,
        ),
        event("tool.resume", &Resume { call_id: text("c") }, None),
        event("logs.get", &LogsWanted { call_id: text("c"), lines: 100 }, None),
        event(
            "channel.outbound",
            &Outbound {
                channel: "discord",
                account_id: "bot",
                peer: &dm(),
                session_key: "",
                message: OutboundMessage::new("\n \n  Hi\n", Some("m"), None).unwrap(),
            },
            None,
        ),
        event(
            "channel.typing",
            &Typing { channel: "discord", account_id: "bot", peer: &dm(), session_key: "k", typing: true },
            None,
        ),
        ask("1", Method::ToolsList, None::<&()>),
        ask(
            "1",
            Method::ToolResult,
            Some(&Outcome { call_id: text("c"), result: Some(Json::from(json!("ok"))), error: None, fate: None }),
        ),
        ask(
            "1",
            Method::ToolResult,
            Some(&Outcome { call_id: text("c"), result: None, error: Some(text("lost")), fate: Some(Fate::Unknown) }),
        ),
        ask(
            "1",
            Method::NodeProbeResult,
            Some(&Probed {
                probe_id: text("p"),
                ok: true,
                bins: Some(BTreeMap::from([(text("git"), true)])),
                error: None,
            }),
        ),
        ask(
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
        ask(
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
        match read(&frame) {
            Incoming::Request { method, .. } => assert_eq!(value["method"], method),
            Incoming::Response { outcome, .. } => assert_eq!(value["ok"], outcome.is_ok()),
            Incoming::Event { event, seq, .. } => {
                assert_eq!((value["event"].as_str(), value["seq"].as_u64()), (Some(event.as_str()), seq));
            }
            other @ (Incoming::Malformed { .. } | Incoming::Ignored { .. }) => panic!("{frame}: {other:?}"),
        }
    }
}

fn ignored(why: &'static str) -> Incoming {
    Incoming::Ignored { why }
}

#[test]
fn a_frame_that_cannot_be_read_is_answered_if_it_has_an_id() {
    let malformed = |message: &str| Incoming::Malformed { id: Id::of("1"), fault: Fault::invalid(message) };
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
        assert_eq!(read(frame), want, "{frame}");
    }
}

#[test]
fn a_gateway_answers_what_it_is_not_asked_if_that_has_an_id() {
    let malformed = |message: &str| Incoming::Malformed { id: Id::of("1"), fault: Fault::invalid(message) };
    let passed_over = || ignored("a gateway is neither answered nor told");
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
        assert_eq!(receive(frame), want, "{frame}");
    }
}

#[test]
fn an_id_is_repeated_as_it_was_written() {
    for id in ["\"a\\u0041\"", "7.50", "true", "{\"a\": 1}"] {
        let frame = format!("{{\"type\":\"req\",\"id\":{id},\"method\":\"x\",\"params\":null,\"later\":[1]}}");
        let Incoming::Request { id: read, method, params: None } = read(&frame) else { panic!("{frame}") };
        let want = format!(
            "{{\"type\":\"res\",\"id\":{id},\"ok\":false,\"error\":{{\"code\":404,\"message\":\"Unknown method: x\"}}}}"
        );
        assert_eq!(refusal(&read, &Fault::unknown_method(&method)), want);
    }
}

#[test]
fn an_answer_is_read_with_null_for_what_is_not_there() {
    let outcome = |frame: &str| match read(frame) {
        Incoming::Response { outcome, .. } => outcome,
        other => panic!("{other:?}"),
    };
    assert_eq!(outcome(r#"{"type":"res","id":"1","ok":true,"payload":null,"error":null}"#), Ok(None));
    let fault = Fault { retryable: Some(true), ..Fault::new(503, "gone") };
    assert_eq!(
        outcome(r#"{"type":"res","id":"1","ok":false,"error":{"code":503,"message":"gone","retryable":true,"x":1}}"#),
        Err(fault)
    );
    assert_eq!(
        outcome(r#"{"type":"res","id":"1","ok":false,"error":"gone"}"#),
        Err(Fault::new(500, "the error cannot be read"))
    );
}
