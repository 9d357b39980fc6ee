//! Transcripts: lines of both sides, decisions, and what the proxy does.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{AcpOptions, AcpProxy, EditorApprovals, GuardedAgent};
use crate::{
    agent_call::{CallDecision, GateNotice},
    interceptor::{CallToken, Interceptor as _, OpenSettings, ProxyAction, ProxyActions},
};

struct Transcript {
    proxy: AcpProxy,
    now: Instant,
}

/// Actions in a short form: `[side, message]`, `["decide", tool, arguments]` and so on. Texts for the user are left out.
fn shown(actions: ProxyActions) -> Value {
    let line = |line: Vec<u8>| serde_json::from_slice::<Value>(&line).unwrap();
    let shown = actions.into_iter().filter_map(|action| {
        Some(match action {
            ProxyAction::ToClient(bytes) => json!(["client", line(bytes)]),
            ProxyAction::ToAgent(bytes) => json!(["agent", line(bytes)]),
            ProxyAction::Decide { call, .. } => json!(["decide", call.tool, call.arguments]),
            ProxyAction::Answer { answer, .. } => json!(["answer", answer.gate, answer.allow, answer.surface]),
            ProxyAction::Abandon(_) => json!(["abandon"]),
            ProxyAction::Report(call) => json!(["report", call.tool, call.arguments]),
            ProxyAction::Notice(_) => return None,
            ProxyAction::End(_) => json!(["end"]),
        })
    });
    shown.collect()
}

impl Transcript {
    fn new(approvals: EditorApprovals, open: OpenSettings) -> Self {
        let options = AcpOptions { approvals, open, agent: GuardedAgent::Other, cwd: "/w".to_owned() };
        Self { proxy: AcpProxy::new(options), now: Instant::now() }
    }

    fn asking() -> Self {
        Self::new(EditorApprovals::Editor, OpenSettings::Refuse)
    }

    fn client(&mut self, message: Value) -> Value {
        let mut actions = ProxyActions::new();
        self.proxy.client_line(message.to_string().into_bytes(), self.now, &mut actions);
        shown(actions)
    }

    fn agent(&mut self, message: Value) -> Value {
        let mut actions = ProxyActions::new();
        self.proxy.agent_line(message.to_string().into_bytes(), self.now, &mut actions);
        shown(actions)
    }

    fn decide(&mut self, token: u64, decision: CallDecision) -> Value {
        let mut actions = ProxyActions::new();
        self.proxy.decided(CallToken(token), decision, self.now, &mut actions);
        shown(actions)
    }

    fn gate(&mut self, token: u64) -> Value {
        let mut actions = ProxyActions::new();
        let gate = GateNotice { gate: "g".to_owned(), title: "t".to_owned() };
        self.proxy.gate_opened(CallToken(token), gate, self.now, &mut actions);
        shown(actions)
    }

    /// Asks for a command, with the options in an order that is no help.
    fn ask(&mut self, id: Value, command: &str) -> Value {
        self.agent(json!({"id": id, "method": "session/request_permission", "params": {
            "sessionId": "s",
            "toolCall": {"toolCallId": "c", "kind": "execute", "title": "t", "rawInput": {"command": command}},
            "options": [
                {"optionId": "1", "kind": "allow_always"}, {"optionId": "2", "kind": "reject_always"},
                {"optionId": "3", "kind": "allow_once"}, {"optionId": "4", "kind": "reject_once"},
            ],
        }}))
    }
}

fn denied() -> CallDecision {
    CallDecision::Deny("no".to_owned())
}

#[test]
fn a_permission_is_answered_once_and_never_passed_on() {
    for (decision, want) in [(CallDecision::Allow, "3"), (denied(), "4")] {
        for id in [json!(0), json!("0")] {
            let mut transcript = Transcript::asking();
            assert_eq!(transcript.ask(id.clone(), "ls"), json!([["decide", "bash", {"command": "ls"}]]));
            let answered = transcript.decide(0, decision.clone());
            assert_eq!(answered[0][1]["id"], id);
            assert_eq!(answered[0][1]["result"]["outcome"], json!({"outcome": "selected", "optionId": want}));
            assert_eq!(answered.as_array().unwrap().len(), 1);
        }
    }
}

#[test]
fn a_permission_without_an_option_for_once_is_denied() {
    for (options, decision, want) in [
        (json!([{"optionId": "a", "kind": "allow_always"}]), CallDecision::Allow, json!({"outcome": "cancelled"})),
        (
            json!([{"optionId": "a", "kind": "allow_once"}, {"optionId": "b", "kind": "allow_once"},
                {"optionId": "r", "kind": "reject_once"}]),
            CallDecision::Allow,
            json!({"outcome": "selected", "optionId": "r"}),
        ),
        (json!([{"optionId": "r", "kind": "reject_always"}]), denied(), json!({"outcome": "cancelled"})),
    ] {
        let mut transcript = Transcript::asking();
        transcript.agent(json!({"id": 1, "method": "session/request_permission", "params": {
            "sessionId": "s", "toolCall": {"toolCallId": "c", "kind": "execute", "rawInput": {"command": "ls"}},
            "options": options,
        }}));
        assert_eq!(transcript.decide(0, decision)[0][1]["result"]["outcome"], want, "{options}");
    }
}

#[test]
fn the_first_answer_of_a_person_counts_and_a_machine_is_no_person() {
    let outcome = |outcome: Value| json!({"id": "countersign-1", "result": {"outcome": outcome}});
    let selected = |option: &str| outcome(json!({"outcome": "selected", "optionId": option}));
    for (case, answer, delay, want) in [
        ("allowed", selected("allow"), 400, json!([["answer", "g", true, "editor Zed"]])),
        ("denied", selected("reject"), 400, json!([["answer", "g", false, "editor Zed"]])),
        ("too fast", selected("allow"), 10, json!([])),
        ("closed", outcome(json!({"outcome": "cancelled"})), 400, json!([])),
        ("failed", json!({"id": "countersign-1", "error": {"code": 1, "message": "x"}}), 400, json!([])),
    ] {
        let mut transcript = Transcript::asking();
        transcript.client(json!({"id": 0, "method": "initialize", "params": {"clientInfo": {"name": "Zed"}}}));
        transcript.ask(json!(0), "ls");
        let requested = transcript.gate(0);
        assert_eq!(requested[0][1]["params"]["toolCall"]["rawInput"], json!({"command": "ls"}), "{case}");
        let kinds: Value = requested[0][1]["params"]["options"]
            .as_array()
            .unwrap()
            .iter()
            .map(|option| option["kind"].clone())
            .collect();
        assert_eq!(kinds, json!(["allow_once", "reject_once"]));
        transcript.now += Duration::from_millis(delay);
        assert_eq!(transcript.client(answer), want, "{case}");
        let decided = transcript.decide(0, CallDecision::Allow);
        assert_eq!(decided.as_array().unwrap().last().unwrap()[1]["id"], 0, "{case}");
    }
    let mut elsewhere = Transcript::new(EditorApprovals::Gateway, OpenSettings::Refuse);
    elsewhere.ask(json!(0), "ls");
    assert_eq!(elsewhere.gate(0), json!([]));
}

#[test]
fn a_cancelled_turn_answers_cancelled_and_ends_only_the_wait() {
    let mut transcript = Transcript::asking();
    transcript.ask(json!(0), "ls");
    let cancel = json!({"method": "session/cancel", "params": {"sessionId": "s"}});
    let cancelled = json!({"jsonrpc": "2.0", "id": 0, "result": {"outcome": {"outcome": "cancelled"}}});
    assert_eq!(transcript.client(cancel.clone()), json!([["agent", cancel], ["abandon"], ["agent", cancelled]]));
    assert_eq!(transcript.decide(0, CallDecision::Allow), json!([]));
}

#[test]
fn two_calls_at_once_are_decided_apart() {
    let mut transcript = Transcript::asking();
    transcript.ask(json!(0), "a");
    transcript.ask(json!("0"), "b");
    assert_eq!(transcript.decide(1, denied())[0][1]["id"], json!("0"));
    assert_eq!(transcript.decide(0, CallDecision::Allow)[0][1]["id"], json!(0));
    transcript.ask(json!(7), "c");
    assert_eq!(transcript.ask(json!(7), "d")[0][1]["error"]["code"], -32600, "an id that is open already");
}

#[test]
fn a_file_is_written_with_exactly_the_decided_content() {
    let params = json!({"sessionId": "s", "path": "/w/a", "content": "é\u{0}\n\r\\"});
    let request = json!({"jsonrpc": "2.0", "id": 3, "method": "fs/write_text_file", "params": params});
    let mut transcript = Transcript::asking();
    let decided = json!([["decide", "write", {"path": "/w/a", "content": "é\u{0}\n\r\\"}]]);
    assert_eq!(transcript.agent(request.clone()), decided);
    let early = json!({"id": 3, "result": {}});
    assert_eq!(transcript.client(early.clone()), json!([]), "an answer before the decision does not count");
    assert_eq!(transcript.decide(0, CallDecision::Allow), json!([["client", request]]));
    assert_eq!(transcript.client(early.clone()), json!([["agent", early]]));
    transcript.agent(request);
    assert_eq!(transcript.decide(1, denied())[0][1]["error"], json!({"code": -32003, "message": "no"}));
}

#[test]
fn requests_of_an_agent_become_calls_and_unknown_ones_too() {
    for (method, params, want) in [
        (
            "terminal/create",
            json!({"sessionId": "s", "command": "cp", "args": ["a b", "c"], "cwd": "/x", "env": [{"name": "T_KEY", "value": "k"}]}),
            json!([["decide", "bash", {"command": "cp 'a b' c", "cwd": "/x", "env": [{"name": "T_KEY", "value": "(hidden)"}]}]]),
        ),
        (
            "fs/read_text_file",
            json!({"sessionId": "s", "path": "/a", "line": 2}),
            json!([["decide", "read", {"path": "/a", "line": 2}]]),
        ),
        ("fs/delete", json!({"path": "/a"}), json!([["decide", "fs_delete", {"path": "/a"}]])),
        ("_x/run", json!({"a": 1}), json!([["decide", "_x_run", {"a": 1}]])),
    ] {
        let mut transcript = Transcript::asking();
        assert_eq!(transcript.agent(json!({"id": 0, "method": method, "params": params})), want, "{method}");
    }
    let mut transcript = Transcript::asking();
    let relative = json!({"id": 0, "method": "fs/write_text_file", "params": {"path": "a", "content": "x"}});
    assert_eq!(transcript.agent(relative)[0][1]["error"]["code"], -32602);
    let waits = json!({"id": 1, "method": "terminal/wait_for_exit", "params": {"sessionId": "s"}});
    assert_eq!(transcript.agent(waits.clone()), json!([["client", waits]]));
}

#[test]
fn members_that_the_proxy_does_not_know_are_decided_too() {
    for (method, params, tool, members) in [
        ("terminal/create", json!({"command": "ls", "shell": "/tmp/evil"}), "bash", json!({"shell": "/tmp/evil"})),
        ("terminal/create", json!({"command": "ls", "Cwd": "/etc"}), "bash", json!({"Cwd": "/etc"})),
        ("terminal/create", json!({"command": "ls", "_meta": {"x": 1}}), "bash", json!({"_meta": {"x": 1}})),
        ("fs/read_text_file", json!({"path": "/w/a", "paths": ["/b"]}), "read", json!({"paths": ["/b"]})),
        ("fs/write_text_file", json!({"path": "/w/a", "content": "", "mode": 511}), "write", json!({"mode": 511})),
        (
            "session/request_permission",
            json!({"toolCall": {"toolCallId": "c", "kind": "execute", "rawInput": {"command": "ls"}, "stdin": "x"},
                "options": [], "env": {"A": "b"}}),
            "bash",
            json!({"env": {"A": "b"}, "stdin": "x"}),
        ),
    ] {
        let mut transcript = Transcript::asking();
        let decided = transcript.agent(json!({"id": 0, "method": method, "params": params}));
        assert_eq!((&decided[0][1], &decided[1][1]), (&json!(tool), &json!("unknown_members")), "{params}");
        assert_eq!(decided[1][2]["members"], members, "{params}");
        assert_eq!(transcript.decide(0, CallDecision::Allow), json!([]), "{params}");
        assert_eq!(transcript.decide(1, denied())[0][0], "agent", "{params}");
    }
    for params in [
        json!({"command": "ls", "shell": null, "env": [], "stdin": ""}),
        json!({"command": "ls", "_meta": {"traceparent": "00-1"}, "outputByteLimit": 9}),
    ] {
        let decided = Transcript::asking().agent(json!({"id": 0, "method": "terminal/create", "params": params}));
        assert_eq!(decided, json!([["decide", "bash", {"command": "ls"}]]), "{params}");
    }
}

#[test]
fn a_call_that_runs_before_its_decision_is_reported() {
    let done = json!({"method": "session/update", "params": {"sessionId": "s",
        "update": {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed"}}});
    let report = json!(["report", "bash", {"command": "ls"}]);
    for decision in [None, Some(denied()), Some(CallDecision::Allow)] {
        let mut transcript = Transcript::asking();
        transcript.ask(json!(0), "ls");
        assert_eq!(transcript.agent(done.clone()), json!([report, ["client", done]]));
        if let Some(decision) = decision {
            transcript.decide(0, decision);
            assert_eq!(transcript.agent(done.clone()), json!([["client", done]]), "reported already");
        }
    }
    let mut cancelled = Transcript::asking();
    cancelled.ask(json!(0), "ls");
    cancelled.client(json!({"method": "session/cancel", "params": {"sessionId": "s"}}));
    assert_eq!(cancelled.agent(done.clone()), json!([report, ["client", done]]));
}

fn opened(mode: &str) -> Value {
    let available = json!([{"id": "auto", "name": "Auto"}, {"id": "default", "name": "Default"}]);
    json!({"id": 1, "result": {"sessionId": "s", "modes": {"currentModeId": mode, "availableModes": available}}})
}

#[test]
fn a_session_reaches_the_client_only_in_a_mode_in_which_the_agent_asks() {
    let open = json!({"id": 1, "method": "session/new", "params": {"cwd": "/x", "mcpServers": []}});
    let update = json!({"method": "session/update", "params": {"sessionId": "s", "update": {"sessionUpdate": "plan"}}});
    let mut transcript = Transcript::asking();
    assert_eq!(transcript.client(open.clone()), json!([["agent", open]]));
    let forced = transcript.agent(opened("auto"));
    assert_eq!(forced[0][1]["method"], "session/set_mode");
    assert_eq!(forced[0][1]["params"], json!({"sessionId": "s", "modeId": "default"}));
    assert_eq!(transcript.agent(update.clone()), json!([]), "it waits for the answer");
    let answered = transcript.agent(json!({"id": "countersign-1", "result": {}}));
    assert_eq!(answered[0][1]["result"]["modes"]["currentModeId"], "default");
    assert_eq!(answered[1], json!(["client", update]));
    let mode = json!({"method": "session/update", "params": {"sessionId": "s",
        "update": {"sessionUpdate": "current_mode_update", "currentModeId": "auto"}}});
    let restored = transcript.agent(mode);
    let kinds: Vec<&Value> = restored.as_array().unwrap().iter().map(|action| &action[0]).collect();
    assert_eq!(kinds, ["report", "client", "agent"]);
    assert_eq!(restored[2][1]["params"]["modeId"], "default");
}

#[test]
fn a_session_of_an_agent_that_will_not_ask_is_refused() {
    let open = json!({"id": 1, "method": "session/new", "params": {"cwd": "/x", "mcpServers": []}});
    let refusal = json!({"id": "countersign-1", "error": {"code": 1, "message": "no such mode"}});
    let prompt = json!({"id": 2, "method": "session/prompt", "params": {"sessionId": "s"}});
    let mut transcript = Transcript::asking();
    transcript.client(open.clone());
    transcript.agent(opened("auto"));
    let update = json!({"method": "session/update", "params": {"sessionId": "s", "update": {}}});
    assert_eq!(transcript.agent(update), json!([]), "it waits for the session");
    assert_eq!(transcript.ask(json!(7), "ls"), json!([]));
    let refused = transcript.agent(refusal.clone());
    assert_eq!(refused[0][1]["error"]["code"], -32003);
    let answer = (&refused[1][0], &refused[1][1]["id"], &refused[1][1]["error"]["code"]);
    assert_eq!(answer, (&json!("agent"), &json!(7), &json!(-32003)), "{refused}");
    assert_eq!(refused.as_array().unwrap().len(), 2, "{refused}");
    assert_eq!(transcript.client(prompt.clone())[0][1]["error"]["code"], -32003);
    let mut late = Transcript::asking();
    late.client(open.clone());
    late.agent(opened("auto"));
    let mut actions = ProxyActions::new();
    late.proxy.time_passed(late.proxy.deadline().unwrap(), &mut actions);
    assert_eq!(shown(actions)[0][1]["error"]["code"], -32003);
    let mut accepted = Transcript::new(EditorApprovals::Editor, OpenSettings::Accept);
    accepted.client(open);
    accepted.agent(opened("auto"));
    assert_eq!(accepted.agent(refusal)[0][1]["result"]["sessionId"], "s");
    assert_eq!(accepted.client(prompt.clone()), json!([["agent", prompt]]));
}

#[test]
fn a_client_that_loosens_the_agent_needs_an_approval() {
    let change = |id: Value, mode: Value| json!({"jsonrpc": "2.0", "id": id, "method": "session/set_mode", "params": {"sessionId": "s", "modeId": mode}});
    let mut transcript = Transcript::asking();
    let early = transcript.client(change(json!("e"), json!("default")));
    assert_eq!(early[0][1]["error"]["code"], -32602, "nothing is announced yet");
    transcript.client(json!({"id": 1, "method": "session/new", "params": {"cwd": "/x", "mcpServers": []}}));
    transcript.agent(opened("default"));
    let auto = change(json!("m"), json!("auto"));
    assert_eq!(transcript.client(auto.clone()), json!([["decide", "set_mode", {"mode": "auto"}]]));
    assert_eq!(transcript.decide(0, CallDecision::Allow), json!([["agent", auto]]));
    transcript.client(change(json!(9), json!("auto")));
    assert_eq!(transcript.decide(1, denied())[0][1]["error"]["code"], -32003);
    for mode in [json!("trust"), json!("yolo"), json!(5), json!(null)] {
        let refused = transcript.client(change(json!("u"), mode.clone()));
        assert_eq!(refused[0][1]["error"]["code"], -32602, "{mode}");
        assert_eq!(refused.as_array().unwrap().len(), 1, "{mode}");
    }
    let server = json!({"jsonrpc": "2.0", "id": 2, "method": "session/new",
        "params": {"cwd": "/x", "mcpServers": [{"name": "x", "command": "/x"}], "_meta": {"a": 1}}});
    assert_eq!(transcript.client(server.clone())[1][1], "set_meta");
    assert_eq!(transcript.decide(2, CallDecision::Allow), json!([]), "both must be allowed");
    assert_eq!(transcript.decide(3, CallDecision::Allow), json!([["agent", server]]));
}

#[test]
fn a_call_that_ran_in_another_form_is_reported() {
    let completed = |input: Value| {
        json!({"method": "session/update", "params": {"sessionId": "s",
            "update": {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed", "rawInput": input}}})
    };
    for (ran, want) in [("ls", json!([])), ("rm x", json!([["report", "bash", {"command": "rm x"}]]))] {
        let mut transcript = Transcript::asking();
        transcript.ask(json!(0), "ls");
        transcript.decide(0, CallDecision::Allow);
        let done = completed(json!({"command": ran}));
        let mut want = want;
        want.as_array_mut().unwrap().push(json!(["client", done]));
        assert_eq!(transcript.agent(done), want, "{ran}");
    }
}

#[test]
fn garbage_passes_from_neither_side() {
    let mut transcript = Transcript::asking();
    let mut actions = ProxyActions::new();
    transcript.proxy.client_line(b"garbage\n".to_vec(), transcript.now, &mut actions);
    assert_eq!(shown(actions)[0][1]["error"]["code"], -32700);
    let mut actions = ProxyActions::new();
    transcript.proxy.agent_line(b"Starting\xff\n".to_vec(), transcript.now, &mut actions);
    transcript.proxy.agent_line(b"\n".to_vec(), transcript.now, &mut actions);
    assert_eq!(shown(actions), json!([]));
    let other = transcript.agent(json!({"id": 5, "result": {}}));
    assert_eq!(other, json!([]), "an answer to no request");
}

#[test]
fn an_agent_that_ends_leaves_no_request_open() {
    let mut transcript = Transcript::asking();
    for id in [json!(0), json!("0")] {
        transcript.client(json!({"id": id, "method": "session/prompt", "params": {"sessionId": "s"}}));
    }
    let mut actions = ProxyActions::new();
    transcript.proxy.agent_ended("gone", &mut actions);
    let answered = shown(actions);
    let mut ids: Vec<String> = answered.as_array().unwrap().iter().map(|line| line[1]["id"].to_string()).collect();
    ids.sort();
    assert_eq!(ids, ["\"0\"", "0"]);
    assert!(answered.as_array().unwrap().iter().all(|line| line[1]["error"]["message"] == "gone"));
}

#[test]
fn a_message_without_an_id_passes_only_if_it_is_a_notification() {
    let notification = |method: &str| json!({"jsonrpc": "2.0", "method": method, "params": {"sessionId": "s"}});
    for method in [
        "fs/write_text_file",
        "fs/read_text_file",
        "terminal/create",
        "terminal/kill",
        "session/request_permission",
        "elicitation/create",
        "session/prompt",
        "fs/delete",
        "future/run",
        "",
    ] {
        let mut transcript = Transcript::asking();
        assert_eq!(transcript.agent(notification(method)), json!([]), "{method}");
        let mut actions = ProxyActions::new();
        transcript.proxy.agent_line(notification(method).to_string().into_bytes(), transcript.now, &mut actions);
        assert!(matches!(actions[..], [ProxyAction::Notice(_)]), "{method}");
    }
    for method in ["session/set_mode", "session/new", "session/prompt", "initialize", "session/update", "mcp/message"] {
        let mut transcript = Transcript::asking();
        assert_eq!(transcript.client(notification(method)), json!([]), "{method}");
        let mut actions = ProxyActions::new();
        transcript.proxy.client_line(notification(method).to_string().into_bytes(), transcript.now, &mut actions);
        assert!(matches!(actions[..], [ProxyAction::Notice(_)]), "{method}");
    }
    for method in ["session/update", "elicitation/complete", "$/cancel_request", "_x/progress"] {
        let passed = notification(method);
        assert_eq!(Transcript::asking().agent(passed.clone()), json!([["client", passed]]), "{method}");
    }
    for method in ["session/cancel", "$/cancel_request", "_x/progress"] {
        let passed = notification(method);
        assert_eq!(Transcript::asking().client(passed.clone()), json!([["agent", passed]]), "{method}");
    }
}

#[test]
fn an_update_that_can_be_read_in_two_ways_is_not_passed_on() {
    for params in [
        r#"{"sessionId":"s","update":{"sessionUpdate":"plan","sessionUpdate":"current_mode_update","currentModeId":"yolo"}}"#,
        r#"{"sessionId":"s","sessionId":"t","update":{"sessionUpdate":"plan"}}"#,
        r#"{"sessionId":"s","update":7}"#,
    ] {
        let mut transcript = Transcript::asking();
        let line = format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{params}}}"#);
        let mut actions = ProxyActions::new();
        transcript.proxy.agent_line(line.into_bytes(), transcript.now, &mut actions);
        assert!(actions.iter().any(|action| matches!(action, ProxyAction::Notice(_))), "{params}");
        assert_eq!(shown(actions), json!([]), "{params}");
    }
}
