//! What each method takes.

use super::*;

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
