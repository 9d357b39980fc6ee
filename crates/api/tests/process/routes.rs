//! The gateway's own interface for programs: tokens and what each may do, gates, sessions, the record, policy.

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayServer, RULES,
    agent_gate::AgentClient,
    api::{ApiClient, ApiReply, send_request},
    eventually, http,
};
use serde_json::{Value, json};

const MORE: &str = "web: { password: correct-horse }\nmodel: { provider: demo, id: scripted-1 }";

/// Creates a program with the permissions `scopes`.
fn program<'a>(place: &GatewayFixture, gateway: &'a GatewayServer, name: &str, scopes: &str) -> ApiClient<'a> {
    let made = place.run_as_person(&["tokens", "add", name, "--scope", scopes, "--json"]).json();
    ApiClient { gateway, token: made["token"].as_str().unwrap().to_owned() }
}

fn is_problem(answer: &ApiReply, status: u16, detail: &str) {
    assert_eq!((answer.status, &answer.body["status"]), (status, &json!(status)), "{answer:?}");
    assert!(answer.head.to_lowercase().contains("content-type: application/problem+json"), "{answer:?}");
    assert!(answer.body["detail"].as_str().unwrap().contains(detail), "{answer:?}");
}

#[test]
fn a_token_does_what_its_scopes_say_until_it_is_removed() {
    let place = GatewayFixture::with_config_and_rules(MORE, RULES);
    let gateway = GatewayServer::start(&place);
    let reader = program(&place, &gateway, "reader", "read");
    assert_eq!(reader.get_body("/api/v1/gates")["gates"], json!([]));
    is_problem(&reader.post("/api/v1/gates/gate_00000000/allow", json!({})), 403, "does not have the scope answer");
    is_problem(&reader.post("/api/v1/sessions", json!({})), 403, "does not have the scope chat");
    is_problem(&reader.get("/api/v1/gates/%FF"), 400, "Invalid UTF-8");
    let nobody = send_request(&gateway.address, ("GET", "/api/v1/gates"), &[], None).unwrap();
    is_problem(&nobody, 401, "Authentication required");
    let wrong = ApiClient { gateway: &gateway, token: "cst_wrong".to_owned() };
    is_problem(&wrong.get("/api/v1/gates"), 401, "not known here");
    let listed = place.run_as_person(&["tokens", "list", "--json"]).json();
    assert_eq!(
        (&listed[0]["name"], &listed[0]["scopes"], &listed[0]["good"]),
        (&json!("reader"), &json!(["read"]), &json!(true))
    );
    assert!(!listed.to_string().contains(&reader.token));
    assert_eq!(place.run_as_person(&["tokens", "remove", "reader"]).code, Some(0));
    eventually("the end of the token", || (reader.get("/api/v1/gates").status == 401).then_some(()));
    for (arguments, expected) in [
        (&["tokens", "remove", "reader"][..], "token reader does not exist"),
        (&["tokens", "add", "a b", "--scope", "read"], "invalid token name"),
        (&["tokens", "add", "x", "--scope", "rule"], "invalid value"),
    ] {
        let output = place.run_as_person(arguments);
        assert!(output.code != Some(0) && output.err.contains(expected), "{output:?}");
    }
}

/// Checks that no token can cover a session: the cover would stay after the token was revoked.
#[test]
fn no_token_lets_a_session_through_unasked() {
    let place = GatewayFixture::with_config_and_rules(MORE, RULES);
    let gateway = GatewayServer::start(&place);
    let all = program(&place, &gateway, "all", "read,answer,chat,admin");
    for (path, body) in [
        ("/api/session/yolo", json!({ "session_id": "agent:default" })),
        ("/api/approval/respond", json!({ "session_id": "agent:default", "choice": "once", "yolo": true })),
    ] {
        let refused = all.post(path, body);
        assert_eq!(refused.status, 403, "{path}: {refused:?}");
        assert!(refused.body["error"].as_str().unwrap().contains("a token is not enough"), "{refused:?}");
    }
    assert_eq!(all.get_body("/api/session/yolo?session_id=agent:default")["yolo_enabled"], false);
}

#[test]
fn what_outlives_a_token_takes_the_scope_admin() {
    let place = GatewayFixture::with_config_and_rules(MORE, RULES);
    let gateway = GatewayServer::start(&place);
    let once = program(&place, &gateway, "once", "read,answer");
    let longer = program(&place, &gateway, "longer", "read,answer,admin");
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door", "way": "open" }));
    let id = place.wait_gate();
    let path = format!("/api/v1/gates/{id}/allow");
    for scope in ["session", "always"] {
        is_problem(&once.post(&path, json!({ "scope": scope })), 403, "takes the scope admin");
        let body = json!({ "session_id": "agent:default", "choice": scope, "approval_id": id });
        let refused = once.post("/api/approval/respond", body);
        assert_eq!((refused.status, &refused.body["ok"]), (403, &json!(false)), "{refused:?}");
        assert!(refused.body["error"].as_str().unwrap().contains("takes the scope admin"), "{refused:?}");
    }
    assert_eq!(place.wait_gate(), id, "it waits on");
    assert_eq!(longer.post(&path, json!({ "scope": "session" })).body["scope"], "session");
    assert_eq!(agent.wait_reply(&json!(1))["result"]["status"], "executed");
    agent.request_tool(2, "turn", json!({ "thing": "window" }));
    assert_eq!(once.post(&format!("/api/v1/gates/{}/allow", place.wait_gate()), json!({})).body["scope"], "once");
    assert_eq!(agent.wait_reply(&json!(2))["result"]["status"], "executed");
}

#[test]
fn wrong_tokens_are_counted_and_keep_neither_a_right_one_nor_a_password_out() {
    let place = GatewayFixture::with_config_and_rules(MORE, RULES);
    let gateway = GatewayServer::start(&place);
    let good = program(&place, &gateway, "good", "read");
    let wrong = ApiClient { gateway: &gateway, token: "cst_wrong".to_owned() };
    for _ in 0..5 {
        assert_eq!(wrong.get("/api/v1/gates").status, 401);
    }
    is_problem(&wrong.get("/api/v1/gates"), 429, "Too many");
    let log_in = |password: &str| {
        let body = json!({ "password": password });
        send_request(&gateway.address, ("POST", "/api/auth/login"), &[], Some(&body)).unwrap().status
    };
    assert_eq!(log_in("correct-horse"), 200);
    assert_eq!(good.get("/api/v1/gates").status, 200);
}

#[test]
fn a_gate_is_listed_read_and_answered_once() {
    let place = GatewayFixture::with_config_and_rules(MORE, RULES);
    let gateway = GatewayServer::start(&place);
    let (ana, bo) =
        (program(&place, &gateway, "ana", "read,answer,admin"), program(&place, &gateway, "bo", "read,answer"));
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door", "way": "open" }));
    let id = place.wait_gate();
    let listed = ana.get_body("/api/v1/gates?door=agent-gate&tool=turn");
    let gate = &listed["gates"][0];
    assert_eq!((gate["id"].as_str(), &gate["state"]), (Some(id.as_str()), &json!("pending")));
    assert_eq!(gate["arguments"], json!({ "thing": "door", "way": "open" }));
    assert_eq!((&gate["subject"], &gate["session"]), (&json!("turn(door, open)"), &json!("agent:default")));
    assert_eq!(gate["scopes"], json!(["once", "session", "always"]));
    assert_eq!(ana.get_body("/api/v1/gates?door=hermes")["gates"], json!([]));
    let end = &id[id.len() - 10..];
    assert_eq!(&ana.get_body(&format!("/api/v1/gates/{end}")), gate);
    let path = |what: &str| format!("/api/v1/gates/{end}/{what}");
    is_problem(&ana.post(&path("allow"), json!({ "scope": "forever" })), 400, "once, session or always");
    is_problem(&ana.post(&path("allow"), json!({ "scop": "once" })), 400, "\"scop\"");
    for name in ["scope", "rule"] {
        is_problem(&ana.post(&path("allow"), json!({ name: "" })), 400, &format!("{name} is empty"));
    }
    is_problem(&ana.get("/api/v1/gates?kind=bogus"), 400, "expected one of approval, question, plan,");
    is_problem(
        &ana.get("/api/v1/gates?door=bogus"),
        400,
        "expected one of agent-gate, console, api, gsv, hermes, mcp, claude, codex, gemini, copilot, acp, opencode, omp, gjc",
    );
    is_problem(&ana.post(&path("allow"), json!({ "scope": "always", "rule": "*" })), 422, "not proposed");
    is_problem(&ana.post(&path("answer"), json!({ "answers": ["yes"] })), 422, "allowed or denied");
    is_problem(&ana.post(&path("answer"), json!({ "answers": "yes" })), 400, "a list of texts");
    is_problem(&ana.post("/api/v1/gates/abc/allow", json!({})), 400, "at least its last 8");
    is_problem(&ana.request_with_headers("PUT", &path("allow"), &[], None), 405, "does not take this method");
    is_problem(&ana.get("/api/v1/gate"), 404, "not found");
    let key = [("idempotency-key", "k1")];
    let allow = |program: &ApiClient<'_>, body: Value| {
        let path = format!("/api/v1/gates/{id}/allow");
        program.request_with_headers("POST", &path, &key, Some(&body))
    };
    let first = allow(&ana, json!({}));
    assert_eq!(
        (first.status, &first.body["resolution"], &first.body["scope"]),
        (200, &json!("allowed"), &json!("once"))
    );
    assert_eq!(agent.wait_reply(&json!(1))["result"]["status"], "executed");
    // A repetition by the same caller gets the first result; any other answer gets the name of the approver.
    assert_eq!(allow(&ana, json!({})).body, first.body);
    for late in [
        allow(&bo, json!({})),
        allow(&ana, json!({ "scope": "session" })),
        ana.post(&format!("/api/v1/gates/{id}/deny"), json!({})),
    ] {
        is_problem(&late, 409, "allowed by token:ana");
        assert_eq!(
            (&late.body["by"], &late.body["resolution"], &late.body["scope"]),
            (&json!("token:ana"), &json!("allowed"), &json!("once"))
        );
    }
    let after = ana.get_body(&format!("/api/v1/gates/{id}"));
    assert_eq!(
        (&after["state"], &after["by"], &after["subject"]),
        (&json!("resolved"), &json!("token:ana"), &gate["subject"])
    );
    agent.request_tool(2, "turn", json!({ "thing": "window" }));
    let denied = bo.post(&format!("/api/v1/gates/{}/deny", place.wait_gate()), json!({ "reason": "not at night" }));
    assert_eq!((denied.status, &denied.body["resolution"]), (200, &json!("denied")));
    assert!(agent.wait_reply(&json!(2)).to_string().contains("not at night"));
    let resolved = bo.get_body(&format!("/api/v1/gates/{}", denied.body["id"].as_str().unwrap()));
    assert_eq!(resolved["said"], "not at night");
    is_problem(&bo.get("/api/v1/gates/gate_0193f1b0000070008000000000000001"), 404, "there is no gate");
    assert_eq!(place.service.request_count("/turn/door"), 1);
}

#[test]
fn a_session_is_opened_spoken_in_and_read_page_by_page() {
    let place = GatewayFixture::with_config_and_rules(MORE, RULES);
    let gateway = GatewayServer::start(&place);
    let program = program(&place, &gateway, "chat", "read,chat");
    let opened = program.post("/api/v1/sessions", json!({ "workspace": "garden", "message": "hello there" }));
    assert_eq!((opened.status, &opened.body["state"]), (201, &json!("working")), "{opened:?}");
    let path = format!("/api/v1/sessions/{}", opened.body["id"].as_str().unwrap());
    let rest = || eventually("rest", || Some(program.get_body(&path)).filter(|session| session["state"] == "resting"));
    let session = rest();
    assert_eq!(
        (&session["name"], &session["door"], &session["length"]),
        (&json!("hello there"), &json!("api"), &json!(2))
    );
    assert_eq!(
        (&session["entries"][0]["message"]["role"], &session["entries"][1]["message"]["role"]),
        (&json!("user"), &json!("assistant"))
    );
    let posted = program.post(&format!("{path}/messages"), json!({ "text": "once more" }));
    assert_eq!((posted.status, &posted.body["state"]), (202, &json!("working")));
    assert_eq!(rest()["length"], 4);
    let newest = program.get_body(&format!("{path}?limit=3"));
    let before = newest["earlier"].as_str().unwrap();
    let older = program.get_body(&format!("{path}?limit=3&before={before}"));
    assert_eq!((older["entries"].as_array().unwrap().len(), &older["earlier"]), (1, &Value::Null));
    assert_eq!(older["entries"][0], session["entries"][0]);
    is_problem(&program.post(&format!("{path}/steer"), json!({ "text": "left" })), 409, "no run is active");
    assert_eq!(program.post(&format!("{path}/stop"), json!({})).body, json!({ "run": null, "stopped": false }));
    is_problem(&program.post(&format!("{path}/messages"), json!({})), 400, "text is missing");
    let busy = json!({ "text": "and?", "when_busy": "" });
    is_problem(&program.post(&format!("{path}/messages"), busy), 400, "when_busy is empty");
    for name in ["message", "workspace", "model", "provider"] {
        is_problem(&program.post("/api/v1/sessions", json!({ name: "" })), 400, &format!("{name} is empty"));
    }
    is_problem(&program.get("/api/v1/sessions?door=bogus"), 400, "invalid door \"bogus\"");
    is_problem(&program.get("/api/v1/sessions/nobody"), 404, "no session nobody");
    is_problem(&program.post("/api/v1/sessions/nobody/messages", json!({ "text": "x" })), 404, "not found");
    is_problem(&program.post("/api/v1/sessions", json!({ "workspace": "../.." })), 422, "Workspace");
    is_problem(&program.post("/api/v1/sessions", json!({ "model": "gpt-nothing" })), 422, "Unknown model");
    let listed = program.get_body("/api/v1/sessions?door=api");
    assert_eq!((&listed["sessions"][0]["name"], &listed["next"]), (&json!("hello there"), &Value::Null));
    let first = program.get_body("/api/v1/sessions?limit=1");
    let next = first["next"].as_str().unwrap();
    let second = program.get_body(&format!("/api/v1/sessions?limit=100&after={next}"));
    let ids: Vec<&Value> =
        [&first, &second].iter().flat_map(|page| page["sessions"].as_array().unwrap()).map(|row| &row["id"]).collect();
    assert_eq!(ids.len(), 3, "two agents and a conversation: {ids:?}");
    assert_eq!(ids[0], &opened.body["id"]);
}

#[test]
fn the_record_is_read_by_page_and_filter_and_its_chain_is_checked() {
    let place = GatewayFixture::with_config_and_rules(MORE, RULES);
    let gateway = GatewayServer::start(&place);
    let program = program(&place, &gateway, "auditor", "read");
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    for number in 0..5 {
        agent.call_tool(number, "look", json!({ "thing": format!("a{number}") }));
    }
    agent.call_tool(9, "turn", json!({ "thing": "lock" }));
    agent.confirm_received();
    // The last recorded facts are the receipts of their replies.
    eventually("the receipts", || {
        let entries = program.get_body("/api/v1/audit?kind=call&limit=1000")["entries"].as_array().unwrap().clone();
        (entries.iter().filter(|entry| entry["event"] == "received").count() == 6).then_some(())
    });
    let all = program.get_body("/api/v1/audit?limit=1000");
    let entries = all["entries"].as_array().unwrap();
    assert_eq!(all["next"], Value::Null);
    let lsns: Vec<u64> = entries.iter().map(|entry| entry["lsn"].as_u64().unwrap()).collect();
    assert_eq!(lsns, (1..=lsns.len() as u64).collect::<Vec<_>>());
    // Pages together are the same.
    let (mut paged, mut after) = (Vec::new(), String::new());
    loop {
        let page = program.get_body(&format!("/api/v1/audit?limit=7{after}"));
        paged.extend(page["entries"].as_array().unwrap().clone());
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(&paged, entries);
    // The command line lists the same.
    let tail = place.run_as_person(&["audit", "tail", "--json", "--tool", "turn", "--outcome", "denied"]);
    let mut printed: Vec<Value> = tail.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut denied = program.get_body("/api/v1/audit?tool=turn&outcome=denied")["entries"].as_array().unwrap().clone();
    denied.iter_mut().chain(&mut printed).for_each(|entry| drop(entry.as_object_mut().unwrap().remove("cursor")));
    assert!(!denied.is_empty() && denied == printed, "{denied:?} {printed:?}");
    assert_eq!(
        program.get_body("/api/v1/audit?last=2")["entries"].as_array().unwrap()[..],
        entries[entries.len() - 2..]
    );
    let call_entry = entries.iter().find(|entry| entry["event"] == "wanted").unwrap();
    let one = program.get_body(&format!("/api/v1/audit/{}", call_entry["lsn"]));
    assert!(one["content"]["text"].as_str().unwrap().contains("look(a0)"), "{one}");
    let head = program.get_body("/api/v1/audit/head");
    assert_eq!(head["cursor"], entries.last().unwrap()["cursor"]);
    let checked = program.get_body(&format!("/api/v1/audit/verify?head={}", head["head"].as_str().unwrap()));
    assert_eq!((&checked["ok"], &checked["records"]), (&json!(true), &head["lsn"]));
    let zeros = "0".repeat(64);
    let checked = program.get_body(&format!("/api/v1/audit/verify?head=1:{zeros}"));
    assert!(checked["flaw"].as_str().unwrap().contains("rewritten"), "{checked}");
    for (query, detail) in [
        ("?outcome=great", "unknown outcome \"great\""),
        ("?kind=tool", "unknown kind \"tool\""),
        ("?since=yesterday", "since: expected a time"),
        ("?after=x", "invalid cursor"),
        ("?limit=0", "from 1 to 1000"),
        ("?colour=red", "unknown parameter \"colour\""),
    ] {
        is_problem(&program.get(&format!("/api/v1/audit{query}")), 400, detail);
    }
    is_problem(&program.get("/api/v1/audit?after=1-0123456789abcdef"), 410, "does not belong to this record");
    is_problem(&program.get("/api/v1/audit/999999"), 404, "no entry 999999");
}

#[test]
fn a_request_is_explained_as_the_command_line_does_and_the_interface_describes_itself() {
    let place = GatewayFixture::with_config_and_rules(MORE, RULES);
    let gateway = GatewayServer::start(&place);
    let program = program(&place, &gateway, "looker", "read");
    let explained = program
        .post("/api/v1/policy/explain", json!({ "tool": "turn", "arguments": { "thing": "lock", "way": "open" } }));
    let output =
        place.run(&["policy", "explain", "turn", "thing=lock", "way=open", "--json", "--config", "config.yaml"]);
    let want = output.json();
    assert_eq!(explained.status, 200);
    for name in ["verdict", "signature", "principal", "door", "target", "steps"] {
        assert_eq!(explained.body[name], want[name], "{name}");
    }
    assert_eq!(explained.body["rule"]["pattern"], want["rule"]["pattern"]);
    assert_eq!(explained.body["verdict"], "deny");
    let refused = program.post("/api/v1/policy/explain", json!({ "tool": "look", "arguments": {} }));
    assert_eq!((refused.status, &refused.body["verdict"]), (200, &json!("refused")), "{refused:?}");
    is_problem(&program.post("/api/v1/policy/explain", json!({})), 400, "tool is missing");
    is_problem(&program.post("/api/v1/policy/explain", json!({ "tool": "x", "arguments": [] })), 400, "an object");
    let described = program.get_body("/api/v1/openapi.json");
    assert_eq!(described["openapi"], "3.1.0");
    assert_eq!(described["paths"]["/api/v1/gates/{id}/allow"]["post"]["x-scope"], "answer");
}

#[test]
fn json_sent_as_a_form_gets_an_error_with_the_expected_type() {
    let place = GatewayFixture::with_config_and_rules(MORE, RULES);
    let gateway = GatewayServer::start(&place);
    let program = program(&place, &gateway, "ci", "read,answer");
    let bearer = format!("Bearer {}", program.token);
    let http = http::HttpClient::new(&gateway.address)
        .with_header("authorization", &bearer)
        .with_header("content-type", "application/x-www-form-urlencoded");
    let reply = http.send_request("POST", "/api/v1/gates/gate_00000000/deny", "{\"reason\": \"no\"}");
    assert_eq!(reply.status, 400, "{reply:?}");
    assert!(reply.json()["detail"].as_str().unwrap().contains("send Content-Type: application/json"), "{reply:?}");
}

#[test]
fn mcp_servers_are_listed_and_none_is_started() {
    let servers =
        "files: { command: no-such-program, args: [\"a b\"] }, off: { url: \"https://mcp.example/x\", enabled: false }";
    let place = GatewayFixture::with_config_and_rules(&format!("{MORE}\nmcp: {{ servers: {{ {servers} }} }}"), RULES);
    let gateway = GatewayServer::start(&place);
    let reader = program(&place, &gateway, "reader", "read");
    let listed = reader.get_body("/api/v1/mcp-servers");
    let server = |name: &str, transport: &str, address: &str, approval: &str, state: &str| {
        json!({
            "name": name, "transport": transport, "address": address, "approval": approval, "approved_at": null,
            "approved_by": null, "state": state, "protocol": null, "problem": null, "tools": [],
        })
    };
    let files = |approval: &str| server("files", "stdio", "no-such-program 'a b'", approval, "idle");
    let off = server("off", "http", "https://mcp.example/x", "missing", "disabled");
    assert_eq!(listed, json!({ "servers": [files("missing"), off] }));
    place.deny_gate(&place.wait_gate());
    assert_eq!(reader.get_body("/api/v1/mcp-servers"), json!({ "servers": [files("denied"), off] }));
    let caller = program(&place, &gateway, "caller", "call");
    is_problem(&caller.get("/api/v1/mcp-servers"), 403, "does not have the scope read");
}
