//! Accepted parameters of each method.

use super::*;

#[test]
fn every_method_is_read() {
    let page = |offset, limit| PageParams { offset, limit };
    let table = [
        (
            "chat.send",
            json!({"sessionKey": "k", "message": "hi", "runId": "r"}),
            GsvRequest::ChatSend(ChatSendParams {
                session_key: text("k"),
                message: text("hi"),
                run_id: Some(text("r")),
            }),
        ),
        ("config.get", json!({}), GsvRequest::ConfigGet(ConfigGetParams { path: None })),
        (
            "config.get",
            json!({"path": "a.b"}),
            GsvRequest::ConfigGet(ConfigGetParams { path: Some(SettingPath::from_text("a.b").unwrap()) }),
        ),
        (
            "config.set",
            json!({"path": "a", "value": null}),
            GsvRequest::ConfigSet(ConfigSetParams { path: SettingPath::from_text("a").unwrap(), value: Value::Null }),
        ),
        ("tools.list", Value::Null, GsvRequest::ToolsList),
        (
            "tool.invoke",
            json!({"tool": "t", "args": {"a": 1}}),
            GsvRequest::ToolInvoke(ToolInvokeParams { tool: text("t"), args: args() }),
        ),
        (
            "tool.invoke",
            json!({"tool": "t"}),
            GsvRequest::ToolInvoke(ToolInvokeParams { tool: text("t"), args: Map::new() }),
        ),
        (
            "tool.result",
            json!({"callId": "c", "result": null}),
            GsvRequest::ToolResult(ToolResultParams {
                call_id: text("c"),
                result: Some(RawJson::from(Value::Null)),
                error: None,
                fate: None,
            }),
        ),
        (
            "tool.result",
            json!({"callId": "c", "error": "no"}),
            GsvRequest::ToolResult(ToolResultParams {
                call_id: text("c"),
                result: None,
                error: Some(text("no")),
                fate: None,
            }),
        ),
        (
            "tool.result",
            json!({"callId": "c", "fate": "not_begun"}),
            GsvRequest::ToolResult(ToolResultParams {
                call_id: text("c"),
                result: None,
                error: None,
                fate: Some(NoResultReason::NotBegun),
            }),
        ),
        (
            "tool.request",
            json!({"callId": "c", "tool": "t", "args": {"a": 1}, "sessionKey": "k"}),
            GsvRequest::ToolRequest(ToolRequestParams {
                call_id: text("c"),
                tool: text("t"),
                args: args(),
                session_key: text("k"),
            }),
        ),
        (
            "node.probe.result",
            json!({"probeId": "p", "ok": true, "bins": {"git": true}}),
            GsvRequest::NodeProbeResult(NodeProbeResult {
                probe_id: text("p"),
                ok: true,
                bins: Some(BTreeMap::from([(text("git"), true)])),
                error: None,
            }),
        ),
        (
            "node.exec.event",
            json!({"eventId": "e", "sessionId": "s", "event": "timed_out", "exitCode": null, "signal": "SIG15", "startedAt": 1.5}),
            GsvRequest::NodeExecEvent(ExecReport::Event(ExecEvent {
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
        ("logs.get", json!({}), GsvRequest::LogsGet(LogsGet { node_id: None, lines: 100 })),
        (
            "logs.get",
            json!({"nodeId": "n", "lines": 9999.9}),
            GsvRequest::LogsGet(LogsGet { node_id: Some(text("n")), lines: 5000 }),
        ),
        (
            "logs.result",
            json!({"callId": "c", "lines": ["a"], "truncated": true}),
            GsvRequest::LogsResult(LogsResult {
                call_id: text("c"),
                lines: vec![text("a")],
                truncated: true,
                error: None,
            }),
        ),
        (
            "sessions.list",
            json!({"offset": 5}),
            GsvRequest::SessionsList(session::SessionsListParams { page: page(5, 100) }),
        ),
        ("session.get", json!({"sessionKey": "k"}), GsvRequest::SessionGet(session_params())),
        ("session.stats", json!({"sessionKey": "k"}), GsvRequest::SessionStats(session_params())),
        ("session.reset", json!({"sessionKey": "k"}), GsvRequest::SessionReset(session_params())),
        (
            "session.patch",
            json!({"sessionKey": "k"}),
            GsvRequest::SessionPatch(SessionPatchParams { session_key: text("k"), ..SessionPatchParams::default() }),
        ),
        (
            "session.patch",
            json!({"sessionKey": "k", "settings": {"model": {"provider": "p"}, "thinkingLevel": "xhigh", "systemPrompt": null, "maxTokens": 5}, "label": "L", "resetPolicy": {"mode": "idle", "idleMinutes": 0}}),
            GsvRequest::SessionPatch(SessionPatchParams {
                session_key: text("k"),
                provider: Some(text("p")),
                thinking_level: FieldPatch::Set(ThinkLevel::XHigh),
                system_prompt: FieldPatch::Unset,
                max_tokens: FieldPatch::Set(5),
                label: FieldPatch::Set(text("L")),
                reset_mode: Some(ResetMode::Idle),
                idle_minutes: Some(0),
                ..SessionPatchParams::default()
            }),
        ),
        (
            "session.patch",
            json!({"sessionKey": "k", "settings": {"model": null}}),
            GsvRequest::SessionPatch(SessionPatchParams {
                session_key: text("k"),
                unset_model: true,
                ..SessionPatchParams::default()
            }),
        ),
        (
            "session.compact",
            json!({"sessionKey": "k"}),
            GsvRequest::SessionCompact(SessionCompactParams { session_key: text("k"), keep: 20 }),
        ),
        ("session.history", json!({"sessionKey": "k"}), GsvRequest::SessionHistory(session_params())),
        (
            "session.preview",
            json!({"sessionKey": "k", "limit": 0}),
            GsvRequest::SessionPreview(SessionPreviewParams { session_key: text("k"), limit: None }),
        ),
        ("channels.list", json!({}), GsvRequest::ChannelsList),
        (
            "channel.inbound",
            json!({"channel": "discord", "accountId": "a", "peer": {"kind": "dm", "id": "7"}, "sender": {"id": "u"}, "message": {"id": "m", "text": "hi", "replyToId": "l", "timestamp": 5, "location": {"lat": 1}, "media": [{"type": "image", "mimeType": "image/png", "data": "aGk="}]}, "mentionedIds": ["x"]}),
            GsvRequest::ChannelInbound(Box::new(ChannelInboundParams {
                channel: text("discord"),
                account: text("a"),
                peer: ChatPeer { kind: PeerKind::Dm, id: text("7"), name: None, handle: None },
                sender: Some(MessageSender { id: text("u"), name: None, handle: None }),
                message_id: Some(text("m")),
                text: text("hi"),
                reply_to: Some(text("l")),
                media: vec![MediaAttachment {
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
        (
            "channel.start",
            json!({"channel": "discord", "accountId": "a"}),
            GsvRequest::ChannelStart(account(Some("a"))),
        ),
        ("channel.stop", json!({"channel": "discord"}), GsvRequest::ChannelStop(account(None))),
        ("channel.status", json!({"channel": "discord", "accountId": ""}), GsvRequest::ChannelStatus(account(None))),
        (
            "channel.login",
            json!({"channel": "discord", "force": true}),
            GsvRequest::ChannelLogin(ChannelAccountParams { force: true, ..account(None) }),
        ),
        ("channel.logout", json!({"channel": "discord"}), GsvRequest::ChannelLogout(account(None))),
        ("heartbeat.status", json!({}), GsvRequest::HeartbeatStatus),
        ("heartbeat.start", json!({}), GsvRequest::HeartbeatStart),
        ("heartbeat.trigger", json!({}), GsvRequest::HeartbeatTrigger(HeartbeatTriggerParams { agent: text("main") })),
        ("cron.status", json!({}), GsvRequest::CronStatus),
        (
            "cron.list",
            json!({"limit": 10_000}),
            GsvRequest::CronList(CronListParams { agent: None, include_disabled: true, page: page(0, 500) }),
        ),
        (
            "cron.add",
            json!({"name": " n ", "schedule": {"kind": "every", "everyMs": 60_000}, "spec": {"mode": "task", "message": "m", "thinking": "max", "deliver": false}}),
            GsvRequest::CronAdd(Box::new(CronAddParams {
                agent: None,
                name: text("n"),
                description: None,
                enabled: true,
                delete_after_run: None,
                schedule: CronSchedule::Every { every_ms: 60_000, anchor_ms: None },
                spec: CronSpec::Task(CronTask {
                    message: text("m"),
                    model: None,
                    thinking: Some(ThinkLevel::XHigh),
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
            GsvRequest::CronAdd(Box::new(CronAddParams {
                agent: Some(text("b")),
                name: text("n"),
                description: None,
                enabled: false,
                delete_after_run: None,
                schedule: CronSchedule::Cron { expr: text("* * * * *"), tz: Some(text("Europe/Berlin")) },
                spec: CronSpec::SystemEvent { text: text("t") },
            })),
        ),
        ("cron.remove", json!({"id": "j"}), GsvRequest::CronRemove(CronRemoveParams { id: text("j") })),
        ("cron.run", json!({}), GsvRequest::CronRun(CronRunParams::Due)),
        ("cron.run", json!({"id": "j"}), GsvRequest::CronRun(CronRunParams::IfDue(text("j")))),
        ("cron.run", json!({"id": "j", "mode": "force"}), GsvRequest::CronRun(CronRunParams::Force(text("j")))),
        (
            "cron.runs",
            json!({"jobId": "j"}),
            GsvRequest::CronRuns(CronRunsParams { job: Some(text("j")), page: page(0, 200) }),
        ),
        ("pair.list", json!({}), GsvRequest::PairList),
        (
            "pair.approve",
            json!({"channel": "c", "senderId": "s"}),
            GsvRequest::PairApprove(PairDecisionParams { channel: text("c"), sender_id: text("s") }),
        ),
        (
            "pair.reject",
            json!({"channel": "c", "senderId": "s"}),
            GsvRequest::PairReject(PairDecisionParams { channel: text("c"), sender_id: text("s") }),
        ),
        (
            "skills.status",
            json!({"agentId": "b"}),
            GsvRequest::SkillsStatus(skill::SkillsStatusParams { agent: text("b") }),
        ),
        (
            "skills.update",
            json!({"timeoutMs": 5}),
            GsvRequest::SkillsUpdate(skill::SkillsUpdateParams {
                agent: text("main"),
                force: false,
                timeout_ms: 1_000,
            }),
        ),
        (
            "workspace.list",
            json!({}),
            GsvRequest::WorkspaceList(workspace::WorkspaceListParams {
                agent: None,
                path: WorkspacePath::default(),
                echo: text("/"),
            }),
        ),
        (
            "workspace.read",
            json!({"path": "/a//./b.md"}),
            GsvRequest::WorkspaceRead(workspace::WorkspaceFileParams {
                path: WorkspacePath::from_text("a/b.md").unwrap(),
                ..file("/a//./b.md")
            }),
        ),
        (
            "workspace.write",
            json!({"path": "a", "content": ""}),
            GsvRequest::WorkspaceWrite(workspace::WorkspaceWriteParams { file: file("a"), content: String::new() }),
        ),
        ("workspace.delete", json!({"path": "a"}), GsvRequest::WorkspaceDelete(file("a"))),
    ];
    for (method, params, want) in table {
        assert_eq!(read(method, params.clone()), Ok(want), "{method} {params}");
    }
}
