//! A transcript for each method: its answer when it works, and each of its errors.
//!
//! `transcripts/METHOD.txt` is played against the gateway. The rows here are those of the protocol's reference: a transcript that
//! does not show one of them fails.

mod player;

use std::{collections::BTreeSet, fs, path::PathBuf};

use countersign_protocol::gsv::method;

use player::TranscriptOutcome;

/// Method that never works: no network logs in over the wire here, so it has only an error: see channel.login in docs/protocol/gsv.md.
const NEVER_WORKS: &str = "channel.login";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/process/transcripts")
}

/// Plays the transcript of a method, and looks for the rows. A row that ends in `…` is the beginning of an error.
fn shows(method: &str, errors: &[&str]) {
    let text = fs::read_to_string(folder().join(format!("{method}.txt"))).unwrap();
    let outcomes: Vec<TranscriptOutcome> =
        player::play(&text).into_iter().filter(|outcome| outcome.method == method).collect();
    let works = outcomes.iter().any(|outcome| outcome.error.is_none());
    assert_eq!(works, method != NEVER_WORKS, "whether {method} works");
    for row in errors {
        let is_row = |error: &String| match row.strip_suffix('…') {
            Some(beginning) => error.starts_with(beginning),
            None => error == row,
        };
        assert!(
            outcomes.iter().filter_map(|outcome| outcome.error.as_ref()).any(is_row),
            "{method} never fails with {row}"
        );
    }
}

macro_rules! transcripts {
    ($($test:ident $method:literal [$($error:literal),*];)*) => {
        $(#[test] fn $test() { shows($method, &[$($error),*]); })*

        const SHOWN: &[&str] = &[$($method),*];
    };
}

#[test]
fn every_method_has_its_transcript() {
    let methods: BTreeSet<&str> = method::TABLE.iter().map(|row| row.name).collect();
    assert_eq!((methods.len(), SHOWN.iter().copied().collect::<BTreeSet<_>>()), (46, methods.clone()));
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let files: BTreeSet<String> = files.filter(|name| name.ends_with(".txt")).collect();
    assert_eq!(files, methods.iter().map(|method| format!("{method}.txt")).collect());
}

transcripts! {
    connect "connect" [
        "102 Unsupported protocol version", "401 Unauthorized: invalid or missing token", "103 Invalid client mode",
        "103 Node mode requires tools", "103 Invalid nodeRuntime: …", "103 Channel mode requires channel field"
    ];
    chat_send "chat.send" ["400 sessionKey and message required"];
    config_get "config.get" [];
    config_set "config.set" ["400 path required"];
    tools_list "tools.list" [];
    tool_invoke "tool.invoke" [
        "400 tool required", "404 No node provides tool: pi__Nope", "404 No node provides tool: gsv__ReadFile",
        "500 disk on fire", "503 Node disconnected: pi", "503 Node not connected", "403 Method tool.invoke not allowed for mode"
    ];
    tool_result "tool.result" [
        "400 callId required", "404 Unknown callId", "403 Node not authorized for this call",
        "403 Method tool.result not allowed for mode"
    ];
    tool_request "tool.request" [
        "400 callId, tool, and sessionKey required", "404 No node provides tool: pi__Nope",
        "403 Method tool.request not allowed for mode"
    ];
    node_probe_result "node.probe.result" ["403 Method node.probe.result not allowed for mode"];
    node_exec_event "node.exec.event" ["403 Method node.exec.event not allowed for mode"];
    logs_get "logs.get" [
        "400 lines must be a positive number", "503 No nodes connected", "503 Node not connected",
        "400 nodeId required when multiple nodes are connected", "500 no such file", "503 Node disconnected: pi",
        "503 Node replaced during log request: pi", "403 Method logs.get not allowed for mode"
    ];
    logs_result "logs.result" [
        "400 callId required", "404 Unknown callId", "403 Node not authorized for this call",
        "403 Method logs.result not allowed for mode"
    ];
    sessions_list "sessions.list" [];
    session_get "session.get" ["400 sessionKey required"];
    session_stats "session.stats" ["400 sessionKey required"];
    session_reset "session.reset" ["400 sessionKey required"];
    session_patch "session.patch" ["400 sessionKey required"];
    session_compact "session.compact" ["400 sessionKey required"];
    session_history "session.history" ["400 sessionKey required"];
    session_preview "session.preview" ["400 sessionKey required"];
    channels_list "channels.list" [];
    channel_inbound "channel.inbound" [
        "400 channel, accountId, peer, and message required", "403 Method channel.inbound not allowed for mode"
    ];
    channel_start "channel.start" ["400 channel required", "404 Unknown channel: nope", "400 The driver of whatsapp is left out…"];
    channel_stop "channel.stop" ["400 channel required", "404 Unknown channel: nope"];
    channel_status "channel.status" ["400 channel required", "404 Unknown channel: nope"];
    channel_login "channel.login" ["400 channel required", "404 Unknown channel: nope", "400 The driver of whatsapp is left out…"];
    channel_logout "channel.logout" ["400 channel required", "404 Unknown channel: nope"];
    heartbeat_status "heartbeat.status" [];
    heartbeat_start "heartbeat.start" [];
    heartbeat_trigger "heartbeat.trigger" [];
    cron_status "cron.status" [];
    cron_list "cron.list" [];
    cron_add "cron.add" ["400 name, schedule, and spec are required", "500 …"];
    cron_update "cron.update" ["400 id and patch are required", "500 Unknown cron job id: x"];
    cron_remove "cron.remove" ["400 id is required"];
    cron_run "cron.run" ["500 cron.run with mode=force requires id", "500 Unknown cron job id: x"];
    cron_runs "cron.runs" [];
    pair_list "pair.list" [];
    pair_approve "pair.approve" ["400 channel and senderId required", "404 No pending pairing for wx:bob"];
    pair_reject "pair.reject" ["400 channel and senderId required", "404 No pending pairing for wx:bob"];
    skills_status "skills.status" [];
    skills_update "skills.update" [];
    workspace_list "workspace.list" ["500 Path traversal not allowed"];
    workspace_read "workspace.read" ["400 path required", "404 File not found: no.md", "500 Path traversal not allowed"];
    workspace_write "workspace.write" ["400 path required", "400 content is required", "500 Path traversal not allowed"];
    workspace_delete "workspace.delete" [
        "400 path required", "404 File not found: no.md", "500 Path traversal not allowed"
    ];
}
