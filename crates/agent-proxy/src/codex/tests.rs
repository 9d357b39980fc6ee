//! Transcripts: lines of both sides, decisions, and what the proxy does.

use std::time::Instant;

use serde_json::{Value, json};

use super::{CodexOptions, CodexProxy};
use crate::{
    agent_call::CallDecision,
    interceptor::{CallToken, Interceptor as _, OpenSettings, ProxyAction, ProxyActions},
};

struct Transcript(CodexProxy);

fn shown(actions: ProxyActions) -> Value {
    let line = |line: Vec<u8>| serde_json::from_slice::<Value>(&line).unwrap();
    let shown = actions.into_iter().filter_map(|action| {
        Some(match action {
            ProxyAction::ToClient(bytes) => json!(["client", line(bytes)]),
            ProxyAction::ToAgent(bytes) => json!(["agent", line(bytes)]),
            ProxyAction::Decide { call, .. } => json!(["decide", call.tool, call.arguments]),
            ProxyAction::Abandon(_) => json!(["abandon"]),
            ProxyAction::Report(call) => json!(["report", call.tool, call.arguments]),
            ProxyAction::Answer { .. } | ProxyAction::Notice(_) => return None,
            ProxyAction::End(_) => json!(["end"]),
        })
    });
    shown.collect()
}

impl Transcript {
    fn new() -> Self {
        Self(CodexProxy::new(CodexOptions { open: OpenSettings::Refuse, cwd: "/w".to_owned() }))
    }

    fn client(&mut self, message: Value) -> Value {
        let mut actions = ProxyActions::new();
        self.0.client_line(message.to_string().into_bytes(), Instant::now(), &mut actions);
        shown(actions)
    }

    fn codex(&mut self, message: Value) -> Value {
        let mut actions = ProxyActions::new();
        self.0.agent_line(message.to_string().into_bytes(), Instant::now(), &mut actions);
        shown(actions)
    }

    fn decide(&mut self, token: u64, decision: CallDecision) -> Value {
        let mut actions = ProxyActions::new();
        self.0.decided(CallToken(token), decision, Instant::now(), &mut actions);
        shown(actions)
    }

    fn ask(&mut self, id: Value) -> Value {
        self.codex(json!({"id": id, "method": "item/commandExecution/requestApproval", "params": {
            "threadId": "t", "turnId": "u", "itemId": "i", "command": "/bin/bash -lc 'touch x'",
            "availableDecisions": ["acceptForSession", "accept", "cancel"],
        }}))
    }
}

fn denied() -> CallDecision {
    CallDecision::Deny("no".to_owned())
}

#[test]
fn an_approval_is_answered_once_and_never_passed_on() {
    for (decision, word) in [(CallDecision::Allow, "accept"), (denied(), "decline")] {
        for id in [json!(0), json!("0")] {
            let mut transcript = Transcript::new();
            assert_eq!(transcript.ask(id.clone()), json!([["decide", "exec_command", {"command": "touch x"}]]));
            let answer = json!({"id": id, "result": {"decision": word}});
            assert_eq!(transcript.decide(0, decision.clone()), json!([["agent", answer]]));
        }
    }
}

#[test]
fn all_files_of_a_change_must_be_allowed() {
    let started = json!({"method": "item/started", "params": {"threadId": "t", "item": {"type": "fileChange", "id": "i",
        "changes": [{"path": "/a", "kind": {"type": "add"}, "diff": "x"}, {"path": "/b", "kind": {"type": "update"}, "diff": "y"}]}}});
    let ask = json!({"id": 1, "method": "item/fileChange/requestApproval", "params": {"threadId": "t", "itemId": "i"}});
    let mut transcript = Transcript::new();
    assert_eq!(transcript.codex(started.clone()), json!([["client", started]]));
    assert_eq!(
        transcript.codex(ask.clone()),
        json!([["decide", "write", {"path": "/a", "diff": "x"}], ["decide", "edit", {"path": "/b", "diff": "y"}]])
    );
    assert_eq!(transcript.decide(1, CallDecision::Allow), json!([]));
    assert_eq!(transcript.decide(0, CallDecision::Allow)[0][1]["result"], json!({"decision": "accept"}));
    transcript.codex(ask);
    assert_eq!(
        transcript.decide(2, denied()),
        json!([["abandon"], ["agent", {"id": 1, "result": {"decision": "decline"}}]])
    );
}

#[test]
fn threads_are_kept_in_settings_with_which_codex_asks() {
    let mut transcript = Transcript::new();
    let started = transcript.client(json!({"id": 1, "method": "thread/start", "params": {"cwd": "/x"}}));
    assert_eq!(
        started[0][1]["params"],
        json!({"cwd": "/x", "approvalsReviewer": "user", "approvalPolicy": "on-request"})
    );
    let open = json!({"id": 1, "result": {"thread": {"id": "t"}, "cwd": "/x", "approvalPolicy": "on-request",
        "approvalsReviewer": "user", "sandbox": {"type": "dangerFullAccess"}}});
    assert_eq!(transcript.codex(open)[0][1]["error"]["code"], -32003, "its configuration has loosened it");
    let turn = json!({"id": 2, "method": "turn/start", "params": {"threadId": "t", "input": []}});
    assert_eq!(transcript.client(turn)[0][1]["error"]["code"], -32003);
}

#[test]
fn a_client_that_loosens_codex_needs_an_approval() {
    let mut transcript = Transcript::new();
    let start = json!({"id": 1, "method": "thread/start", "params": {"approvalPolicy": "never"}});
    assert_eq!(
        transcript.client(start.clone()),
        json!([["decide", "thread_settings", {"method": "thread/start", "approvalPolicy": "never"}]])
    );
    assert_eq!(transcript.decide(0, CallDecision::Allow)[0][1]["params"]["approvalPolicy"], "never");
    let opened = json!({"id": 1, "result": {"thread": {"id": "t"}, "approvalPolicy": "never"}});
    assert_eq!(transcript.codex(opened.clone()), json!([["client", opened]]));
    transcript.client(json!({"id": 2, "method": "config/value/write", "params": {"keyPath": "x", "value": 1}}));
    assert_eq!(transcript.decide(1, denied())[0][1]["error"], json!({"code": -32003, "message": "no"}));
}

#[test]
fn questions_pass_and_unknown_requests_are_refused() {
    let mut transcript = Transcript::new();
    let question = json!({"id": 1, "method": "item/tool/requestUserInput", "params": {"threadId": "t"}});
    assert_eq!(transcript.codex(question.clone()), json!([["client", question]]));
    let answer = json!({"id": 1, "result": {"answers": {}}});
    assert_eq!(transcript.client(answer.clone()), json!([["agent", answer]]));
    let unknown = json!({"id": 2, "method": "item/new/requestApproval", "params": {}});
    assert_eq!(transcript.codex(unknown)[0][1]["error"]["code"], -32003);
}

#[test]
fn a_message_without_an_id_passes_only_if_it_is_a_notification() {
    let notification = |method: &str| json!({"method": method, "params": {"threadId": "t"}});
    for method in [
        "item/commandExecution/requestApproval",
        "item/fileChange/requestApproval",
        "item/permissions/requestApproval",
        "mcpServer/elicitation/request",
        "item/tool/call",
        "item/tool/requestUserInput",
        "execCommandApproval",
        "applyPatchApproval",
        "account/chatgptAuthTokens/refresh",
        "item/future/requestApproval",
    ] {
        let mut actions = ProxyActions::new();
        let line = notification(method).to_string().into_bytes();
        Transcript::new().0.agent_line(line, Instant::now(), &mut actions);
        assert!(matches!(actions[..], [ProxyAction::Notice(_)]), "{method}");
    }
    for method in ["thread/start", "turn/start", "config/value/write", "command/exec", "initialize", "item/started"] {
        let mut actions = ProxyActions::new();
        let line = notification(method).to_string().into_bytes();
        Transcript::new().0.client_line(line, Instant::now(), &mut actions);
        assert!(matches!(actions[..], [ProxyAction::Notice(_)]), "{method}");
    }
    for method in ["item/agentMessage/delta", "turn/diff/updated", "error", "warning", "account/updated"] {
        let passed = notification(method);
        assert_eq!(Transcript::new().codex(passed.clone()), json!([["client", passed]]), "{method}");
    }
    let initialized = json!({"method": "initialized"});
    assert_eq!(Transcript::new().client(initialized.clone()), json!([["agent", initialized]]));
}

#[test]
fn a_request_that_codex_settles_by_itself_waits_no_longer() {
    let mut transcript = Transcript::new();
    transcript.ask(json!(4));
    let resolved = json!({"method": "serverRequest/resolved", "params": {"threadId": "t", "requestId": 4}});
    assert_eq!(transcript.codex(resolved), json!([["abandon"]]));
    assert_eq!(transcript.decide(0, CallDecision::Allow), json!([]));
}

fn completed(kind: &str, status: &str, more: Value) -> Value {
    let mut item = json!({"type": kind, "id": "i", "status": status});
    item.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"method": "item/completed", "params": {"threadId": "t", "item": item}})
}

/// Reports of a message that passes.
fn reports(transcript: &mut Transcript, message: Value) -> Value {
    let mut actions = transcript.codex(message.clone());
    let passed = actions.as_array_mut().unwrap().pop().unwrap();
    assert_eq!(passed, json!(["client", message]));
    actions
}

#[test]
fn a_command_that_ran_in_another_form_is_reported() {
    let report = |command: &str, workdir: Option<&str>| {
        let mut arguments = json!({"command": command});
        if let Some(workdir) = workdir {
            arguments["workdir"] = workdir.into();
        }
        json!([["report", "exec_command", arguments]])
    };
    for (case, decision, status, command, cwd, want) in [
        ("the same", Some(CallDecision::Allow), "completed", "touch x", Some("/w"), json!([])),
        ("the same that failed", Some(CallDecision::Allow), "failed", "touch x", None, json!([])),
        ("another", Some(CallDecision::Allow), "completed", "rm x", None, report("rm x", None)),
        ("another that failed", Some(CallDecision::Allow), "failed", "rm x", None, report("rm x", None)),
        ("elsewhere", Some(CallDecision::Allow), "completed", "touch x", Some("/etc"), report("touch x", Some("/etc"))),
        ("denied", Some(denied()), "completed", "touch x", None, report("touch x", None)),
        ("denied, and failed", Some(denied()), "failed", "touch x", None, json!([])),
        ("declined", Some(denied()), "declined", "touch x", None, json!([])),
        ("not decided", None, "completed", "touch x", None, report("touch x", None)),
    ] {
        let mut transcript = Transcript::new();
        transcript.ask(json!(0));
        if let Some(decision) = decision {
            transcript.decide(0, decision);
        }
        let mut ran = json!({"command": format!("/bin/bash -lc '{command}'")});
        if let Some(cwd) = cwd {
            ran["cwd"] = cwd.into();
        }
        let done = completed("commandExecution", status, ran);
        assert_eq!(reports(&mut transcript, done.clone()), want, "{case}");
        assert_eq!(reports(&mut transcript, done), json!([]), "{case}, again");
    }
    let mut late = Transcript::new();
    late.ask(json!(0));
    late.decide(0, denied());
    let done = |status| completed("commandExecution", status, json!({"command": "touch x"}));
    assert_eq!(reports(&mut late, done("failed")), json!([]));
    assert_eq!(reports(&mut late, done("completed")), report("touch x", None), "denied, failed, and ran after that");
}

#[test]
fn a_change_of_files_that_ran_in_another_form_is_reported() {
    let change = |path: &str, kind: &str, diff: &str| json!({"path": path, "kind": {"type": kind}, "diff": diff});
    let asked = change("/a", "add", "x");
    for (case, decision, status, changes, want) in [
        ("the same", Some(CallDecision::Allow), "completed", json!([asked]), json!([])),
        ("no list", Some(CallDecision::Allow), "completed", json!([]), json!([])),
        (
            "another file",
            Some(CallDecision::Allow),
            "completed",
            json!([asked, change("/etc/x", "add", "x")]),
            json!([["report", "write", {"path": "/etc/x", "diff": "x"}]]),
        ),
        (
            "another text",
            Some(CallDecision::Allow),
            "failed",
            json!([change("/a", "add", "y")]),
            json!([["report", "write", {"path": "/a", "diff": "y"}]]),
        ),
        (
            "another kind",
            Some(CallDecision::Allow),
            "completed",
            json!([change("/a", "delete", "x")]),
            json!([["report", "delete", {"path": "/a", "diff": "x"}]]),
        ),
        ("denied", Some(denied()), "completed", json!([]), json!([["report", "write", {"path": "/a", "diff": "x"}]])),
        ("denied, and failed", Some(denied()), "failed", json!([asked]), json!([])),
        ("not decided", None, "completed", json!([asked]), json!([["report", "write", {"path": "/a", "diff": "x"}]])),
    ] {
        let mut transcript = Transcript::new();
        let item = json!({"type": "fileChange", "id": "i", "changes": [asked]});
        transcript.codex(json!({"method": "item/started", "params": {"threadId": "t", "item": item}}));
        let params = json!({"threadId": "t", "itemId": "i"});
        transcript.codex(json!({"id": 1, "method": "item/fileChange/requestApproval", "params": params}));
        if let Some(decision) = decision {
            transcript.decide(0, decision);
        }
        let done = completed("fileChange", status, json!({"changes": changes}));
        assert_eq!(reports(&mut transcript, done), want, "{case}");
    }
    let mut updated = Transcript::new();
    let item = json!({"type": "fileChange", "id": "i", "changes": [asked]});
    updated.codex(json!({"method": "item/started", "params": {"threadId": "t", "item": item}}));
    let params = json!({"threadId": "t", "itemId": "i"});
    updated.codex(json!({"id": 1, "method": "item/fileChange/requestApproval", "params": params}));
    let params = json!({"threadId": "t", "itemId": "i", "changes": [change("/etc/x", "add", "E")]});
    updated.codex(json!({"method": "item/fileChange/patchUpdated", "params": params}));
    updated.decide(0, CallDecision::Allow);
    let done = completed("fileChange", "completed", json!({}));
    assert_eq!(reports(&mut updated, done), json!([["report", "write", {"path": "/etc/x", "diff": "E"}]]));
}

fn open_thread(transcript: &mut Transcript) {
    transcript.client(json!({"id": 1, "method": "thread/start", "params": {}}));
    transcript.codex(json!({"id": 1, "result": {"thread": {"id": "t"}, "approvalPolicy": "on-request"}}));
}

fn settings(policy: &str, sandbox: &str) -> Value {
    json!({"method": "thread/settings/updated", "params": {"threadId": "t", "threadSettings": {
        "approvalPolicy": policy, "sandboxPolicy": {"type": sandbox},
    }}})
}

#[test]
fn a_thread_that_was_loosened_elsewhere_is_stopped_with_its_turn() {
    let mut transcript = Transcript::new();
    open_thread(&mut transcript);
    let started = json!({"method": "turn/started", "params": {"threadId": "t", "turn": {"id": "u"}}});
    assert_eq!(transcript.codex(started.clone()), json!([["client", started]]));
    let updated = settings("never", "readOnly");
    let interrupt =
        json!({"id": "countersign-1", "method": "turn/interrupt", "params": {"threadId": "t", "turnId": "u"}});
    let problem = "its approval policy is \"never\": expected \"on-request\"";
    assert_eq!(
        transcript.codex(updated.clone()),
        json!([["agent", interrupt], ["report", "thread_settings", {"problem": problem}], ["client", updated]])
    );
    assert_eq!(transcript.codex(json!({"id": "countersign-1", "result": {}})), json!([]), "the client asked nothing");
    let turn = json!({"id": 2, "method": "turn/start", "params": {"threadId": "t", "input": []}});
    assert_eq!(transcript.client(turn)[0][1]["error"]["code"], -32003);
    let taken = json!({"id": "countersign-2", "method": "turn/interrupt", "params": {"threadId": "t"}});
    assert_eq!(transcript.client(taken)[0][1]["error"]["code"], -32600);
}

#[test]
fn an_approval_of_one_loosening_is_none_of_another() {
    let approved = |request: Value, updated: Value| {
        let mut transcript = Transcript::new();
        open_thread(&mut transcript);
        transcript.client(request);
        assert_eq!(transcript.decide(0, CallDecision::Allow)[0][0], "agent");
        transcript.codex(updated)
    };
    let turn = json!({"id": 2, "method": "turn/start", "params": {"threadId": "t", "approvalPolicy": "never"}});
    let (policy, sandbox) = (settings("never", "readOnly"), settings("never", "dangerFullAccess"));
    assert_eq!(approved(turn.clone(), policy.clone()), json!([["client", policy]]));
    assert_eq!(approved(turn, sandbox)[0][0], "report");
    let plugin = json!({"id": 2, "method": "plugin/install", "params": {"threadId": "t", "name": "x"}});
    assert_eq!(approved(plugin, policy)[0][0], "report", "a plugin is no setting of the thread");
}
