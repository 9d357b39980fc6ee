//! What each method takes, and what it says to anything else.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::collections::BTreeMap;

use countersign_protocol::Json;
use countersign_protocol::gsv::channel::{Account, Inbound, Media, MediaKind, Peer, PeerKind, Sender};
use countersign_protocol::gsv::chat::Send;
use countersign_protocol::gsv::cron::{Create, List, Remove, Run, Runs, Schedule, Spec, Task};
use countersign_protocol::gsv::directive::Level;
use countersign_protocol::gsv::heartbeat::Trigger;
use countersign_protocol::gsv::node::{ExecEvent, ExecReport, ExecState, LogsGet, LogsResult, Probed};
use countersign_protocol::gsv::pairing::Decide;
use countersign_protocol::gsv::session::{Change, Compact, Of, Page, Patch, Preview, ResetMode};
use countersign_protocol::gsv::settings::{Get, Path as SettingPath, Set};
use countersign_protocol::gsv::tool::{Ask, Fate, Invoke, Outcome};
use countersign_protocol::gsv::workspace::{self, Path};
use countersign_protocol::gsv::{Fault, Method, Request, session, skill};
use serde_json::{Map, Value, json};

fn read(method: &str, params: Value) -> Result<Request, Fault> {
    Request::read(Method::named(method).unwrap(), Some(&Json::from(params)))
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn args() -> Map<String, Value> {
    json!({"a": 1}).as_object().unwrap().clone()
}

fn of() -> Of {
    Of { session_key: text("k") }
}

fn file(path: &str) -> workspace::File {
    workspace::File { agent: None, path: Path::read(path).unwrap(), echo: text(path) }
}

fn account(account: Option<&str>) -> Account {
    Account { channel: text("discord"), account: account.map(str::to_owned), config: Map::new(), force: false }
}

#[test]
fn every_method_is_read() {
    let page = |offset, limit| Page { offset, limit };
    let table = [
        (
            "chat.send",
            json!({"sessionKey": "k", "message": "hi", "runId": "r"}),
            Request::ChatSend(Send { session_key: text("k"), message: text("hi"), run_id: Some(text("r")) }),
        ),
        ("config.get", json!({}), Request::ConfigGet(Get { path: None })),
        (
            "config.get",
            json!({"path": "a.b"}),
            Request::ConfigGet(Get { path: Some(SettingPath::read("a.b").unwrap()) }),
        ),
        (
            "config.set",
            json!({"path": "a", "value": null}),
            Request::ConfigSet(Set { path: SettingPath::read("a").unwrap(), value: Value::Null }),
        ),
        ("tools.list", Value::Null, Request::ToolsList),
        (
            "tool.invoke",
            json!({"tool": "t", "args": {"a": 1}}),
            Request::ToolInvoke(Invoke { tool: text("t"), args: args() }),
        ),
        ("tool.invoke", json!({"tool": "t"}), Request::ToolInvoke(Invoke { tool: text("t"), args: Map::new() })),
        (
            "tool.result",
            json!({"callId": "c", "result": null}),
            Request::ToolResult(Outcome {
                call_id: text("c"),
                result: Some(Json::from(Value::Null)),
                error: None,
                fate: None,
            }),
        ),
        (
            "tool.result",
            json!({"callId": "c", "error": "no"}),
            Request::ToolResult(Outcome { call_id: text("c"), result: None, error: Some(text("no")), fate: None }),
        ),
        (
            "tool.result",
            json!({"callId": "c", "fate": "not_begun"}),
            Request::ToolResult(Outcome { call_id: text("c"), result: None, error: None, fate: Some(Fate::NotBegun) }),
        ),
        (
            "tool.request",
            json!({"callId": "c", "tool": "t", "args": {"a": 1}, "sessionKey": "k"}),
            Request::ToolRequest(Ask { call_id: text("c"), tool: text("t"), args: args(), session_key: text("k") }),
        ),
        (
            "node.probe.result",
            json!({"probeId": "p", "ok": true, "bins": {"git": true}}),
            Request::NodeProbeResult(Probed {
                probe_id: text("p"),
                ok: true,
                bins: Some(BTreeMap::from([(text("git"), true)])),
                error: None,
            }),
        ),
        (
            "node.exec.event",
            json!({"eventId": "e", "sessionId": "s", "event": "timed_out", "exitCode": null, "signal": "SIG15", "startedAt": 1.5}),
            Request::NodeExecEvent(ExecReport::Event(ExecEvent {
                event_id: text("e"),
                session_id: text("s"),
                event: ExecState::TimedOut,
                call_id: None,
                exit_code: None,
                signal: Some(text("SIG15")),
                output_tail: None,
                started_at: Some(1),
                ended_at: None,
            })),
        ),
        ("logs.get", json!({}), Request::LogsGet(LogsGet { node_id: None, lines: 100 })),
        (
            "logs.get",
            json!({"nodeId": "n", "lines": 9999.9}),
            Request::LogsGet(LogsGet { node_id: Some(text("n")), lines: 5000 }),
        ),
        (
            "logs.result",
            json!({"callId": "c", "lines": ["a"], "truncated": true}),
            Request::LogsResult(LogsResult {
                call_id: text("c"),
                lines: vec![text("a")],
                truncated: true,
                error: None,
            }),
        ),
        ("sessions.list", json!({"offset": 5}), Request::SessionsList(session::List { page: page(5, 100) })),
        ("session.get", json!({"sessionKey": "k"}), Request::SessionGet(of())),
        ("session.stats", json!({"sessionKey": "k"}), Request::SessionStats(of())),
        ("session.reset", json!({"sessionKey": "k"}), Request::SessionReset(of())),
        (
            "session.patch",
            json!({"sessionKey": "k"}),
            Request::SessionPatch(Patch { session_key: text("k"), ..Patch::default() }),
        ),
        (
            "session.patch",
            json!({"sessionKey": "k", "settings": {"model": {"provider": "p"}, "thinkingLevel": "xhigh", "systemPrompt": null, "maxTokens": 5}, "label": "L", "resetPolicy": {"mode": "idle", "idleMinutes": 0}}),
            Request::SessionPatch(Patch {
                session_key: text("k"),
                provider: Some(text("p")),
                thinking_level: Change::Set(Level::XHigh),
                system_prompt: Change::Unset,
                max_tokens: Change::Set(5),
                label: Change::Set(text("L")),
                reset_mode: Some(ResetMode::Idle),
                idle_minutes: Some(0),
                ..Patch::default()
            }),
        ),
        (
            "session.patch",
            json!({"sessionKey": "k", "settings": {"model": null}}),
            Request::SessionPatch(Patch { session_key: text("k"), unset_model: true, ..Patch::default() }),
        ),
        (
            "session.compact",
            json!({"sessionKey": "k"}),
            Request::SessionCompact(Compact { session_key: text("k"), keep: 20 }),
        ),
        ("session.history", json!({"sessionKey": "k"}), Request::SessionHistory(of())),
        (
            "session.preview",
            json!({"sessionKey": "k", "limit": 0}),
            Request::SessionPreview(Preview { session_key: text("k"), limit: None }),
        ),
        ("channels.list", json!({}), Request::ChannelsList),
        (
            "channel.inbound",
            json!({"channel": "discord", "accountId": "a", "peer": {"kind": "dm", "id": "7"}, "sender": {"id": "u"}, "message": {"id": "m", "text": "hi", "replyToId": "l", "timestamp": 5, "location": {"lat": 1}, "media": [{"type": "image", "mimeType": "image/png", "data": "aGk="}]}, "mentionedIds": ["x"]}),
            Request::ChannelInbound(Box::new(Inbound {
                channel: text("discord"),
                account: text("a"),
                peer: Peer { kind: PeerKind::Dm, id: text("7"), name: None, handle: None },
                sender: Some(Sender { id: text("u"), name: None, handle: None }),
                message_id: Some(text("m")),
                text: text("hi"),
                reply_to: Some(text("l")),
                media: vec![Media {
                    kind: MediaKind::Image,
                    mime_type: text("image/png"),
                    data: Some(text("aGk=")),
                    r2_key: None,
                    url: None,
                    filename: None,
                    duration: None,
                    transcription: None,
                }],
                was_mentioned: None,
            })),
        ),
        ("channel.start", json!({"channel": "discord", "accountId": "a"}), Request::ChannelStart(account(Some("a")))),
        ("channel.stop", json!({"channel": "discord"}), Request::ChannelStop(account(None))),
        ("channel.status", json!({"channel": "discord", "accountId": ""}), Request::ChannelStatus(account(None))),
        (
            "channel.login",
            json!({"channel": "discord", "force": true}),
            Request::ChannelLogin(Account { force: true, ..account(None) }),
        ),
        ("channel.logout", json!({"channel": "discord"}), Request::ChannelLogout(account(None))),
        ("heartbeat.status", json!({}), Request::HeartbeatStatus),
        ("heartbeat.start", json!({}), Request::HeartbeatStart),
        ("heartbeat.trigger", json!({}), Request::HeartbeatTrigger(Trigger { agent: text("main") })),
        ("cron.status", json!({}), Request::CronStatus),
        (
            "cron.list",
            json!({"limit": 10_000}),
            Request::CronList(List { agent: None, include_disabled: true, page: page(0, 500) }),
        ),
        (
            "cron.add",
            json!({"name": " n ", "schedule": {"kind": "every", "everyMs": 60_000}, "spec": {"mode": "task", "message": "m", "thinking": "max", "deliver": false}}),
            Request::CronAdd(Box::new(Create {
                agent: None,
                name: text("n"),
                description: None,
                enabled: true,
                delete_after_run: None,
                schedule: Schedule::Every { every_ms: 60_000, anchor_ms: None },
                spec: Spec::Task(Task {
                    message: text("m"),
                    model: None,
                    thinking: Some(Level::XHigh),
                    timeout_seconds: None,
                    deliver: Some(false),
                    channel: None,
                    to: None,
                    best_effort_deliver: None,
                }),
            })),
        ),
        (
            "cron.add",
            json!({"name": "n", "agentId": "b", "enabled": false, "schedule": {"kind": "cron", "expr": "* * * * *", "tz": "Europe/Berlin"}, "spec": {"mode": "systemEvent", "text": "t"}}),
            Request::CronAdd(Box::new(Create {
                agent: Some(text("b")),
                name: text("n"),
                description: None,
                enabled: false,
                delete_after_run: None,
                schedule: Schedule::Cron { expr: text("* * * * *"), tz: Some(text("Europe/Berlin")) },
                spec: Spec::SystemEvent { text: text("t") },
            })),
        ),
        ("cron.remove", json!({"id": "j"}), Request::CronRemove(Remove { id: text("j") })),
        ("cron.run", json!({}), Request::CronRun(Run::Due)),
        ("cron.run", json!({"id": "j"}), Request::CronRun(Run::IfDue(text("j")))),
        ("cron.run", json!({"id": "j", "mode": "force"}), Request::CronRun(Run::Force(text("j")))),
        ("cron.runs", json!({"jobId": "j"}), Request::CronRuns(Runs { job: Some(text("j")), page: page(0, 200) })),
        ("pair.list", json!({}), Request::PairList),
        (
            "pair.approve",
            json!({"channel": "c", "senderId": "s"}),
            Request::PairApprove(Decide { channel: text("c"), sender_id: text("s") }),
        ),
        (
            "pair.reject",
            json!({"channel": "c", "senderId": "s"}),
            Request::PairReject(Decide { channel: text("c"), sender_id: text("s") }),
        ),
        ("skills.status", json!({"agentId": "b"}), Request::SkillsStatus(skill::Of { agent: text("b") })),
        (
            "skills.update",
            json!({"timeoutMs": 5}),
            Request::SkillsUpdate(skill::Update { agent: text("main"), force: false, timeout_ms: 1_000 }),
        ),
        (
            "workspace.list",
            json!({}),
            Request::WorkspaceList(workspace::List { agent: None, path: Path::default(), echo: text("/") }),
        ),
        (
            "workspace.read",
            json!({"path": "/a//./b.md"}),
            Request::WorkspaceRead(workspace::File { path: Path::read("a/b.md").unwrap(), ..file("/a//./b.md") }),
        ),
        (
            "workspace.write",
            json!({"path": "a", "content": ""}),
            Request::WorkspaceWrite(workspace::Write { file: file("a"), content: String::new() }),
        ),
        ("workspace.delete", json!({"path": "a"}), Request::WorkspaceDelete(file("a"))),
    ];
    for (method, params, want) in table {
        assert_eq!(read(method, params.clone()), Ok(want), "{method} {params}");
    }
}

#[test]
fn what_is_missing_or_wrong_is_said_in_the_words_that_clients_know() {
    let job = |schedule: Value, spec: Value| json!({"name": "n", "schedule": schedule, "spec": spec});
    let event = json!({"mode": "systemEvent", "text": "t"});
    let every = json!({"kind": "every", "everyMs": 1});
    let inbound =
        |peer: Value, message: Value| json!({"channel": "c", "accountId": "a", "peer": peer, "message": message});
    for (method, params, code, want) in [
        ("connect", json!({}), 400, "Already connected"),
        ("chat.send", json!([]), 400, "params must be an object"),
        ("chat.send", json!({}), 400, "sessionKey and message required"),
        ("chat.send", json!({"sessionKey": "k", "message": ""}), 400, "sessionKey and message required"),
        ("chat.send", json!({"sessionKey": 5, "message": "m"}), 400, "sessionKey must be a string"),
        ("config.get", json!({"path": "a..b"}), 400, "Invalid config path: a..b"),
        ("config.set", json!({"value": 1}), 400, "path required"),
        ("config.set", json!({"path": "a"}), 400, "value required"),
        ("config.set", json!({"path": "__proto__.x", "value": 1}), 400, "Invalid config path: __proto__.x"),
        ("tool.invoke", json!({}), 400, "tool required"),
        ("tool.invoke", json!({"tool": "t", "args": []}), 400, "args must be an object"),
        ("tool.result", json!({"result": 1}), 400, "callId required"),
        ("tool.result", json!({"callId": "c", "fate": "x"}), 400, "fate must be one of not_begun, unknown"),
        ("tool.request", json!({"callId": "c", "tool": "t"}), 400, "callId, tool, and sessionKey required"),
        ("node.probe.result", json!({}), 400, "probeId required"),
        ("node.probe.result", json!({"probeId": "p"}), 400, "ok required"),
        ("logs.get", json!({"lines": 0}), 400, "lines must be a positive number"),
        ("logs.get", json!({"lines": -5}), 400, "lines must be a positive number"),
        ("logs.get", json!({"lines": "all"}), 400, "lines must be a positive number"),
        ("logs.result", json!({"callId": "c", "lines": [1]}), 400, "lines must be an array of strings"),
        ("sessions.list", json!({"limit": -1}), 400, "limit must be a whole number from 0 up"),
        ("session.get", json!({}), 400, "sessionKey required"),
        ("session.stats", json!({}), 400, "sessionKey required"),
        ("session.reset", json!({}), 400, "sessionKey required"),
        ("session.history", json!({}), 400, "sessionKey required"),
        ("session.preview", json!({}), 400, "sessionKey required"),
        (
            "session.compact",
            json!({"sessionKey": "k", "keepMessages": 0}),
            400,
            "keepMessages must be a positive number",
        ),
        ("session.patch", json!({"sessionKey": "k", "settings": 1}), 400, "settings must be an object"),
        (
            "session.patch",
            json!({"sessionKey": "k", "settings": {"model": "p/id"}}),
            400,
            "settings.model must be an object",
        ),
        (
            "session.patch",
            json!({"sessionKey": "k", "settings": {"model": {"id": " "}}}),
            400,
            "settings.model.id must not be empty",
        ),
        (
            "session.patch",
            json!({"sessionKey": "k", "settings": {"thinkingLevel": "off"}}),
            400,
            "settings.thinkingLevel must be one of none, minimal, low, medium, high, xhigh",
        ),
        (
            "session.patch",
            json!({"sessionKey": "k", "settings": {"maxTokens": 0}}),
            400,
            "settings.maxTokens must be at least 1",
        ),
        ("session.patch", json!({"sessionKey": "k", "label": 1}), 400, "label must be a string"),
        (
            "session.patch",
            json!({"sessionKey": "k", "resetPolicy": {"atHour": 24}}),
            400,
            "resetPolicy.atHour must be from 0 to 23",
        ),
        (
            "session.patch",
            json!({"sessionKey": "k", "resetPolicy": {"mode": "weekly"}}),
            400,
            "resetPolicy.mode must be one of manual, daily, idle",
        ),
        ("channel.inbound", json!({"channel": "c"}), 400, "channel, accountId, peer, and message required"),
        ("channel.inbound", inbound(json!({"id": "7"}), json!({})), 400, "peer.kind required"),
        (
            "channel.inbound",
            inbound(json!({"kind": "crowd", "id": "7"}), json!({})),
            400,
            "peer.kind must be one of dm, group, channel, thread",
        ),
        (
            "channel.inbound",
            inbound(json!({"kind": "dm", "id": "7"}), json!({"media": [{"type": "image"}]})),
            400,
            "message.media[0].mimeType required",
        ),
        ("channel.start", json!({}), 400, "channel required"),
        ("channel.stop", json!({}), 400, "channel required"),
        ("channel.status", json!({}), 400, "channel required"),
        ("channel.login", json!({"channel": "c", "force": "yes"}), 400, "force must be true or false"),
        ("channel.logout", json!({}), 400, "channel required"),
        ("heartbeat.trigger", json!({"agentId": 5}), 400, "agentId must be a string"),
        ("cron.add", json!({"name": "n"}), 400, "name, schedule, and spec are required"),
        ("cron.add", json!({"name": " ", "schedule": {}, "spec": {}}), 500, "Cron job name must not be empty"),
        ("cron.add", job(json!({}), event.clone()), 500, "schedule.kind required"),
        (
            "cron.add",
            job(json!({"kind": "sometimes"}), event.clone()),
            400,
            "schedule.kind must be one of at, every, cron",
        ),
        ("cron.add", job(json!({"kind": "at"}), event.clone()), 500, "schedule.atMs required"),
        (
            "cron.add",
            job(json!({"kind": "every", "everyMs": 0}), event.clone()),
            500,
            "schedule.everyMs must be a positive number",
        ),
        ("cron.add", job(json!({"kind": "cron", "expr": " "}), event), 500, "schedule.expr required"),
        ("cron.add", job(every.clone(), json!({})), 500, "spec.mode required"),
        ("cron.add", job(every.clone(), json!({"mode": "systemEvent"})), 500, "spec.text required"),
        ("cron.add", job(every.clone(), json!({"mode": "task"})), 500, "spec.message required"),
        (
            "cron.add",
            job(every, json!({"mode": "task", "message": "m", "thinking": "hard"})),
            500,
            "Invalid level: hard\nLevels: off, minimal, low, medium, high, xhigh",
        ),
        ("cron.update", json!({"id": "j"}), 400, "id and patch are required"),
        ("cron.update", json!({"id": "j", "patch": {"enabled": "no"}}), 400, "patch.enabled must be true or false"),
        ("cron.update", json!({"id": "j", "patch": {"spec": {"text": "t"}}}), 500, "spec.mode required"),
        ("cron.remove", json!({}), 400, "id is required"),
        ("cron.run", json!({"mode": "force"}), 500, "cron.run with mode=force requires id"),
        ("cron.run", json!({"mode": "now"}), 400, "mode must be one of due, force"),
        ("cron.runs", json!({"limit": "x"}), 400, "limit must be a whole number from 0 up"),
        ("pair.approve", json!({"channel": "c"}), 400, "channel and senderId required"),
        ("pair.reject", json!({"senderId": "s"}), 400, "channel and senderId required"),
        ("skills.update", json!({"force": 1}), 400, "force must be true or false"),
        ("workspace.list", json!({"path": "a/../.."}), 500, "Path traversal not allowed"),
        ("workspace.read", json!({}), 400, "path required"),
        ("workspace.read", json!({"path": "/"}), 400, "path required"),
        ("workspace.read", json!({"path": "..\\x"}), 500, "Path traversal not allowed"),
        ("workspace.read", json!({"path": "C:/x"}), 500, "Path traversal not allowed"),
        ("workspace.read", json!({"path": "a\0b"}), 400, "path must not contain NUL"),
        ("workspace.write", json!({"path": "a"}), 400, "content is required"),
        ("workspace.delete", json!({"path": "memory/../../x"}), 500, "Path traversal not allowed"),
    ] {
        let fault = read(method, params.clone()).unwrap_err();
        assert_eq!((fault.code, fault.message.as_str()), (code, want), "{method}");
    }
}

/// Parameters with a value at one place of them.
type With = Box<dyn Fn(Value) -> Value>;

/// Every parameter that is a whole number, by its method, its place and its name in errors.
fn integers() -> Vec<(&'static str, With, &'static str)> {
    let session = |name: &'static str| move |value: Value| json!({"sessionKey": "k", name: value});
    let plain = |name: &'static str| move |value: Value| json!({name: value});
    let job = |schedule: Value, spec: Value| json!({"name": "n", "schedule": schedule, "spec": spec});
    let event = || json!({"mode": "systemEvent", "text": "t"});
    let at = || json!({"kind": "at", "atMs": 1});
    vec![
        ("sessions.list", Box::new(plain("limit")), "limit"),
        ("sessions.list", Box::new(plain("offset")), "offset"),
        ("cron.list", Box::new(plain("limit")), "limit"),
        ("cron.list", Box::new(plain("offset")), "offset"),
        ("cron.runs", Box::new(plain("limit")), "limit"),
        ("cron.runs", Box::new(plain("offset")), "offset"),
        ("session.preview", Box::new(session("limit")), "limit"),
        ("session.compact", Box::new(session("keepMessages")), "keepMessages"),
        (
            "session.patch",
            Box::new(|value| json!({"sessionKey": "k", "settings": {"maxTokens": value}})),
            "settings.maxTokens",
        ),
        (
            "session.patch",
            Box::new(|value| json!({"sessionKey": "k", "resetPolicy": {"atHour": value}})),
            "resetPolicy.atHour",
        ),
        (
            "session.patch",
            Box::new(|value| json!({"sessionKey": "k", "resetPolicy": {"idleMinutes": value}})),
            "resetPolicy.idleMinutes",
        ),
        ("skills.update", Box::new(plain("timeoutMs")), "timeoutMs"),
        ("cron.add", Box::new(move |value| job(json!({"kind": "at", "atMs": value}), event())), "schedule.atMs"),
        (
            "cron.add",
            Box::new(move |value| job(json!({"kind": "every", "everyMs": value}), event())),
            "schedule.everyMs",
        ),
        (
            "cron.add",
            Box::new(move |value| job(json!({"kind": "every", "everyMs": 1000, "anchorMs": value}), event())),
            "schedule.anchorMs",
        ),
        (
            "cron.add",
            Box::new(move |value| job(at(), json!({"mode": "task", "message": "m", "timeoutSeconds": value}))),
            "spec.timeoutSeconds",
        ),
        (
            "cron.update",
            Box::new(|value| json!({"id": "j", "patch": {"schedule": {"kind": "at", "atMs": value}}})),
            "patch.schedule.atMs",
        ),
        (
            "cron.update",
            Box::new(|value| json!({"id": "j", "patch": {"spec": {"mode": "task", "timeoutSeconds": value}}})),
            "patch.spec.timeoutSeconds",
        ),
    ]
}

#[test]
fn a_whole_number_is_no_fraction_no_negative_and_no_text() {
    for (method, params, name) in integers() {
        for wrong in
            [json!(1.5), json!(1.001), json!(-1), json!(-0.5), json!("7"), json!(true), json!([1]), json!(1e300)]
        {
            let fault = read(method, params(wrong.clone())).unwrap_err();
            let want = format!("{name} must be a whole number from 0 up");
            assert_eq!((fault.code, fault.message), (400, want), "{method} {wrong}");
        }
        // Some languages write every number with a point, and floats miss whole numbers by a little.
        for same in [json!(7.0), json!(7.000_000_000_000_001), json!(6.999_999_999_999_999)] {
            assert_eq!(read(method, params(same.clone())), read(method, params(json!(7))), "{method} {name} {same}");
        }
        assert!(read(method, params(json!(7))).is_ok(), "{method} {name}");
    }
}

#[test]
fn a_setting_that_there_is_not_is_refused_by_its_name() {
    let patch = |members: Value| {
        let mut params = json!({"sessionKey": "k"});
        params.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        params
    };
    let job = |schedule: Value, spec: Value| json!({"name": "n", "schedule": schedule, "spec": spec});
    let at = || json!({"kind": "at", "atMs": 1});
    let event = |more: Value| {
        let mut spec = json!({"mode": "systemEvent", "text": "t"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let (settings, model) = ("model, thinkingLevel, systemPrompt, maxTokens", "provider, id");
    let (top, jobs) = (
        "sessionKey, settings, label, resetPolicy",
        "agentId, name, description, enabled, deleteAfterRun, schedule, spec",
    );
    let task = "mode, message, model, thinking, timeoutSeconds, deliver, channel, to, bestEffortDeliver";
    for (method, params, name, takes) in [
        ("session.patch", patch(json!({"settings": {"toolPolicy": "ask"}})), "settings.toolPolicy", settings),
        // Null takes a setting away, and there is none to take.
        ("session.patch", patch(json!({"settings": {"temperature": null}})), "settings.temperature", settings),
        ("session.patch", patch(json!({"settings": {"model": {"name": "x"}}})), "settings.model.name", model),
        ("session.patch", patch(json!({"model": "p/x"})), "model", top),
        ("session.patch", patch(json!({"resetPolicy": {"hour": 4}})), "resetPolicy.hour", "mode, atHour, idleMinutes"),
        ("cron.add", job(at(), event(json!({"deliver": false}))), "spec.deliver", "mode, text"),
        ("cron.add", job(at(), event(json!({"channel": "wx"}))), "spec.channel", "mode, text"),
        ("cron.add", job(at(), event(json!({"to": "ana"}))), "spec.to", "mode, text"),
        ("cron.add", job(at(), event(json!({"timeoutSeconds": 5}))), "spec.timeoutSeconds", "mode, text"),
        ("cron.add", job(at(), json!({"mode": "task", "message": "m", "tools": []})), "spec.tools", task),
        (
            "cron.add",
            job(json!({"kind": "at", "atMs": 1, "everyMs": 5}), event(json!({}))),
            "schedule.everyMs",
            "kind, atMs, tz",
        ),
        (
            "cron.add",
            job(json!({"kind": "every", "everyMs": 1000, "until": 5}), event(json!({}))),
            "schedule.until",
            "kind, everyMs, anchorMs, tz",
        ),
        (
            "cron.add",
            json!({"name": "n", "schedule": at(), "spec": event(json!({})), "deliver": false}),
            "deliver",
            jobs,
        ),
        (
            "cron.update",
            json!({"id": "j", "patch": {"spec": event(json!({"deliver": false}))}}),
            "patch.spec.deliver",
            "mode, text",
        ),
        ("cron.update", json!({"id": "j", "patch": {"enabeld": false}}), "patch.enabeld", jobs),
        ("cron.update", json!({"id": "j", "patch": {}, "enabled": false}), "enabled", "id, patch"),
    ] {
        let fault = read(method, params.clone()).unwrap_err();
        let want = format!("Unknown setting: {name}; accepted: {takes}");
        assert_eq!((fault.code, fault.message), (400, want), "{method} {params}");
    }
    // Null counts as absent in a job.
    assert!(read("cron.add", job(at(), event(json!({"deliver": null, "to": null})))).is_ok());
}

#[test]
fn an_exec_event_is_taken_whatever_it_is() {
    let event = |params: Value| match read("node.exec.event", params) {
        Ok(Request::NodeExecEvent(report)) => report,
        other => panic!("{other:?}"),
    };
    let why = |params: Value| match event(params) {
        ExecReport::Unreadable(why) => why,
        ExecReport::Event(event) => panic!("{event:?}"),
    };
    let kinds = "event must be one of started, finished, failed, timed_out";
    for (params, want) in [
        (json!({"eventId": "e", "sessionId": "s", "event": "melted"}), kinds),
        (json!({"eventId": "e", "sessionId": "s", "event": 7}), kinds),
        (json!({"eventId": "e", "sessionId": "s"}), "event required"),
        (json!({"eventId": "e", "event": "failed"}), "sessionId required"),
        (json!({"eventId": "e", "sessionId": ["s"], "event": "failed"}), "sessionId must be a string"),
        (json!([1]), "params must be an object"),
        (Value::Null, "sessionId required"),
    ] {
        assert_eq!(why(params.clone()), want, "{params}");
    }
    let odd = json!({"eventId": "e", "sessionId": "s", "event": "failed", "exitCode": "one", "signal": 9, "endedAt": -1, "callId": 5});
    let ExecReport::Event(odd) = event(odd) else { panic!("it is an event") };
    let (code, signal, ended, call) = (odd.exit_code, odd.signal, odd.ended_at, odd.call_id);
    assert_eq!((code, signal, ended, call), (None, None, None, None));
    // Without an id it is known by what it says.
    let nameless = |at: u64| match event(json!({"sessionId": "s", "event": "failed", "endedAt": at})) {
        ExecReport::Event(event) => event.event_id,
        ExecReport::Unreadable(why) => panic!("{why}"),
    };
    assert!(nameless(1) == nameless(1) && nameless(1) != nameless(2));
}

#[test]
fn what_stands_among_facts_has_a_length() {
    let prompt = |prompt: String| json!({"sessionKey": "k", "settings": {"systemPrompt": prompt}});
    let longest = 48 << 10;
    assert!(read("session.patch", prompt("p".repeat(longest - 2))).is_ok());
    for (params, why) in [
        (prompt("p".repeat(longest - 1)), "settings.systemPrompt has 49153 bytes, at most 49152 are taken"),
        // As JSON it is twice as long.
        (prompt("\n".repeat(longest / 2)), "settings.systemPrompt has 49154 bytes, at most 49152 are taken"),
        (json!({"sessionKey": "k", "label": "l".repeat(1023)}), "label has 1025 bytes, at most 1024 are taken"),
        (
            json!({"sessionKey": "k", "settings": {"model": {"id": "m".repeat(2000)}}}),
            "settings.model.id has 2002 bytes, at most 1024 are taken",
        ),
    ] {
        assert_eq!(read("session.patch", params).unwrap_err().message, why);
    }
}

#[test]
fn a_result_is_passed_on_as_it_was_written_and_read_like_everything() {
    let read = |params: &str| Request::read(Method::ToolResult, Some(&Json::parse(params.to_owned()).unwrap()));
    let result = |params: &str| match read(params) {
        Ok(Request::ToolResult(outcome)) => Ok(outcome.result.map(|result| result.text().to_owned())),
        Ok(other) => panic!("{other:?}"),
        Err(fault) => Err(fault.message),
    };
    for (params, want) in [
        (r#"{"callId":"c","result":{"b":1.50, "a":null}}"#, Some(r#"{"b":1.50, "a":null}"#)),
        (r#"{"result":1,"callId":"c","result":"2"}"#, Some(r#""2""#)),
        (r#"{"callId":"c","result":null}"#, Some("null")),
        (r#"{"callId":"c"}"#, None),
    ] {
        assert_eq!(result(params), Ok(want.map(str::to_owned)), "{params}");
    }
    let deep = format!(r#"{{"callId":"c","result":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    for (params, why) in [
        (deep.as_str(), "params cannot be read: recursion limit exceeded"),
        (r#"{"callId":"c","result":"\ud800"}"#, "params cannot be read: "),
        (r#"{"callId":"c","result":[1e999]}"#, "params cannot be read: number out of range"),
        (r#"{"result":[1]}"#, "callId required"),
        ("[1]", "params must be an object"),
        ("null", "callId required"),
    ] {
        let told = result(params).unwrap_err();
        assert!(told.starts_with(why), "{params}: {told}");
    }
}

#[test]
fn an_attachment_may_have_25_mb() {
    let inbound = |bytes: usize| {
        let data = "A".repeat(bytes / 3 * 4 + 4);
        let text = format!(
            r#"{{"channel":"c","accountId":"a","peer":{{"kind":"dm","id":"7"}},"message":{{"media":[{{"type":"image","mimeType":"image/png","data":"{data}"}}]}}}}"#
        );
        Request::read(Method::ChannelInbound, Some(&Json::parse(text).unwrap()))
    };
    assert!(inbound((25 << 20) - 3).is_ok());
    let refused = inbound(25 << 20).unwrap_err();
    assert_eq!(refused.message, "message.media[0] has 26214402 bytes, at most 26214400 are taken");
}

#[test]
fn a_patch_of_a_job_keeps_what_it_does_not_name() {
    let update = |spec: Value| {
        let Ok(Request::CronUpdate(update)) = read("cron.update", json!({"id": "j", "patch": {"spec": spec}})) else {
            panic!("not an update")
        };
        update.spec.unwrap()
    };
    let task = Task {
        message: text("m"),
        model: Some(text("p/x")),
        thinking: None,
        timeout_seconds: Some(5),
        deliver: None,
        channel: None,
        to: None,
        best_effort_deliver: None,
    };
    let before = Spec::Task(task.clone());
    let patched = update(json!({"mode": "task", "timeoutSeconds": 9})).applied(Some(&before)).unwrap();
    assert_eq!(patched, Spec::Task(Task { timeout_seconds: Some(9), ..task }));
    let other = update(json!({"mode": "systemEvent"})).applied(Some(&before)).unwrap_err();
    assert_eq!((other.code, other.message.as_str()), (500, "spec.text required"));
}

#[test]
fn the_node_whose_log_is_wanted_is_the_only_one_or_named() {
    let node = |id: Option<&str>, connected: &[&str]| {
        let wanted = LogsGet { node_id: id.map(str::to_owned), lines: 1 };
        wanted.node(connected).map(str::to_owned).map_err(|fault| (fault.code, fault.message))
    };
    assert_eq!(node(None, &["a"]), Ok(text("a")));
    assert_eq!(node(Some("b"), &["a", "b"]), Ok(text("b")));
    assert_eq!(node(Some("c"), &["a", "b"]), Err((503, text("Node not connected"))));
    assert_eq!(node(None, &[]), Err((503, text("No nodes connected"))));
    assert_eq!(node(None, &["a", "b"]), Err((400, text("nodeId required when multiple nodes are connected"))));
}
