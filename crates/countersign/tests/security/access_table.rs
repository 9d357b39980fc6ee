//! Access rights: the tables of the code, row by row, against callers of every kind. A request without a row is refused.

use std::{collections::BTreeSet, fs};

use countersign_http::web::access::{RouteAccess, RouteEffect, RouteEntry, TABLE, TokenScope};
use countersign_protocol::gsv::method::{self, Method};
use countersign_testkit::process::{
    AGENT_TOKEN as AGENT, GatewayOptions, KITCHEN_TOKEN,
    agent_gate::{AgentClient, AgentSocketEvent},
    eventually,
    gsv::{self, GsvPeer, TOKEN},
};
use serde_json::{Value, json};

use crate::fixture::{ResponseHead, SecurityFixture};

/// Returns a row's path with something in its places.
fn concrete(path: &str) -> String {
    let filled = path.split('/').map(|part| if part.starts_with('{') { "1" } else { part });
    filled.collect::<Vec<_>>().join("/")
}

fn may(who: RouteAccess, has: &[TokenScope]) -> bool {
    match who {
        RouteAccess::Anybody => true,
        RouteAccess::Person => false,
        RouteAccess::Scope(scope) => has.contains(&scope),
    }
}

/// Sends the request of a row, and reports whether the caller was let through.
fn is_let_through(stage: &SecurityFixture, row: &RouteEntry, headers: &[(&str, &str)]) -> (bool, ResponseHead) {
    let (method, path, ..) = *row;
    let answered = stage.request_head(method, &concrete(path), headers);
    // Requests to the login are refused by the login itself, for there is no password in it.
    let is_login = path.ends_with("/login");
    (is_login && answered.status != 403 || !answered.is_refused(), answered)
}

#[test]
fn privileged_mutation_without_auth() {
    let stage = SecurityFixture::with_front();
    let all = [TokenScope::Read, TokenScope::Answer, TokenScope::Chat, TokenScope::Admin];
    let mut programs: Vec<(String, String, Vec<TokenScope>)> = Vec::new();
    for scope in all {
        programs.push((
            format!("only {}", scope.as_str()),
            stage.create_program_token(scope.as_str(), scope.as_str()),
            vec![scope],
        ));
    }
    programs.push(("all scopes".to_owned(), stage.create_program_token("all", "read,answer,chat,admin"), all.to_vec()));
    let old = stage.create_program_token("old", "read,answer,chat,admin");
    let gone = stage.create_program_token("gone", "read,answer,chat,admin");
    let gates =
        |token: &str| stage.request_head("GET", "/api/v1/gates", &[("authorization", &format!("Bearer {token}"))]);
    eventually("both tokens", || (gates(&old).status == 200 && gates(&gone).status == 200).then_some(()));
    assert_eq!(stage.scene.run_as_person(&["tokens", "remove", "gone"]).code, Some(0));
    // It was good for a while, which is over.
    let file = stage.scene.data_dir().join("tokens.json");
    let mut kept: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let of_old = kept["tokens"].as_array_mut().unwrap().iter_mut().find(|token| token["name"] == "old").unwrap();
    of_old["expires"] = 1.into();
    fs::write(file.with_extension("new"), kept.to_string()).unwrap();
    fs::rename(file.with_extension("new"), &file).unwrap();
    eventually("their end", || (gates(&old).status == 401 && gates(&gone).status == 401).then_some(()));
    for token in [&old, &gone] {
        programs.push(("a token that was".to_owned(), token.clone(), vec![]));
    }
    for (case, token) in
        [("an agent", AGENT), ("another agent", KITCHEN_TOKEN), ("a client of gsv", TOKEN), ("nobody", "x")]
    {
        programs.push((case.to_owned(), token.to_owned(), vec![]));
    }
    let (mut let_in, mut refused) = (0, 0);
    for row in TABLE {
        let (method, path, who, effect) = *row;
        let (passed, answered) = is_let_through(&stage, row, &[]);
        assert_eq!(passed, who == RouteAccess::Anybody, "{method} {path} of nobody: {answered:?}");
        for (case, token, has) in &programs {
            let bearer = format!("Bearer {token}");
            let (passed, answered) = is_let_through(&stage, row, &[("authorization", &bearer)]);
            assert_eq!(passed, may(who, has), "{method} {path} of {case}: {answered:?}");
            if passed { let_in += 1 } else { refused += 1 }
        }
        let program = format!("Bearer {}", programs[4].1);
        let foreign = [("authorization", program.as_str()), ("origin", "https://evil.example")];
        let named = [("authorization", program.as_str()), ("host", "evil.example")];
        let crossing = [("authorization", program.as_str()), ("sec-fetch-site", "cross-site")];
        for headers in [&foreign[..], &named] {
            let answered = stage.request_head(method, &concrete(path), headers);
            assert_eq!(answered.status, 403, "{method} {path} {headers:?}: {answered:?}");
        }
        let answered = stage.request_head(method, &concrete(path), &crossing);
        assert_eq!(
            answered.status == 403,
            effect == RouteEffect::Acts || !may(who, &all),
            "{method} {path}: {answered:?}"
        );
    }
    // Else the table would be of callers who are all the same.
    assert!(let_in > 150 && refused > 500, "{let_in} {refused}");
}

/// A person's own browser, with pages that do not have the token of its forms.
#[test]
fn a_page_without_its_token_acts_nowhere() {
    let stage = SecurityFixture::new();
    let (cookie, own) = (stage.login_cookie(), format!("http://{}", stage.gateway.address));
    let acting =
        TABLE.iter().filter(|row| row.3 == RouteEffect::Acts && row.0 != "GET" && row.2 != RouteAccess::Anybody);
    for (method, path, ..) in acting {
        for csrf in ["", "0000"] {
            let headers = [("cookie", cookie.as_str()), ("origin", &own), ("x-csrf-token", csrf)];
            let answered = stage.request_head(method, &concrete(path), &headers);
            assert_eq!(answered.status, 403, "{method} {path}: {answered:?}");
        }
    }
}

/// Tests that every route is in the table: another would be unchecked.
#[test]
fn every_route_over_http_has_a_row() {
    // Those that look for themselves who asks: whether the gateway is well, messages that are signed, the bridge.
    let known = BTreeSet::from([
        ("adapter-gjc/src/bridge.rs", "fallback(routes::answer_request)"),
        ("adapter-gsv/src/channels/webhook.rs", "route(PATH, post(at_default))"),
        ("adapter-gsv/src/channels/webhook.rs", "route(\"/channels/webhook/{account}\", post(at_account))"),
        ("http/src/listen.rs", "route(\"/healthz\", get(answer_health))"),
        ("http/src/listen.rs", "route(LIVEZ, get(async || ALIVE))"),
        ("http/src/listen.rs", "route(\"/readyz\", get(answer_ready))"),
        // Each realm of a port has routes of its own, and its own table.
        ("http/src/listen/realm_routes.rs", "fallback(move |request: Request|"),
        // Paths below `/api/` without a route are 401 for a caller that has to authenticate.
        ("http/src/web/routes.rs", "fallback(nothing.layer(known()))"),
        ("http/src/web/routes.rs", "route(path, on(filter, handler)"),
    ]);
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeSet::new();
    // Programs that test a gateway serve routes of their own.
    let is_product = |name: &std::ffi::OsStr| name != "testkit" && name != "loadtest";
    let crates = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap());
    let mut folders: Vec<_> =
        crates.filter(|entry| is_product(&entry.file_name())).map(|entry| entry.path().join("src")).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
                continue;
            }
            let text = fs::read_to_string(&entry).unwrap();
            let text = text.split("#[cfg(test)]").next().unwrap();
            if !text.contains("Router") {
                continue;
            }
            let file = entry.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            for form in ["route(", "route_service(", "nest(", "nest_service(", "fallback(", "fallback_service("] {
                for (at, _) in text.match_indices(form).filter(|(at, _)| text[..*at].ends_with('.')) {
                    found.insert((file.clone(), text[at..].lines().next().unwrap().to_owned()));
                }
            }
        }
    }
    for (file, line) in &found {
        let is_known = known.iter().any(|(known, form)| file == known && line.starts_with(form));
        assert!(is_known, "{file} mounts what has no row in the table: {line}");
    }
    assert_eq!(found.iter().map(|(file, _)| file).collect::<BTreeSet<_>>().len(), 5, "{found:?}");
}

#[test]
fn every_method_of_the_gsv_wire_is_refused_to_whom_its_row_does_not_name() {
    let stage = SecurityFixture::new();
    let hello = GsvPeer::open_connection(&stage.gateway).expect_ok("connect", gsv::connect_params("client", "c"));
    let listed: BTreeSet<&str> =
        hello["features"]["methods"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let rows: BTreeSet<&str> = method::TABLE.iter().map(|row| row.name).collect();
    assert_eq!(listed, rows);
    let mut nobody = GsvPeer::open_connection(&stage.gateway);
    let mut peers = [
        ("client", GsvPeer::connect_client(&stage.gateway, "one")),
        ("node", GsvPeer::connect_node(&stage.gateway, "two", &["A"])),
        ("channel", GsvPeer::connect_channel(&stage.gateway, "wx", "three")),
    ];
    for row in method::TABLE.iter().filter(|row| row.method != Method::Connect) {
        assert_eq!(nobody.expect_error(row.name, json!({}))["code"], 101, "{}", row.name);
        for (mode, peer) in &mut peers {
            let is_named = row.modes.iter().any(|named| named.name() == *mode);
            let answer = peer.call_method(row.name, json!({ "lines": 0 }));
            let is_refused = answer["error"]["code"] == 403
                && answer["error"]["message"].as_str().unwrap().contains("not allowed for mode");
            assert_eq!(is_refused, !is_named, "{} of a {mode}: {answer}", row.name);
        }
    }
    for name in ["", "Connect", "config.set ", "exec", "cron", "system.run"] {
        assert_eq!(peers[0].1.expect_error(name, json!({}))["code"].as_i64().map(|code| code / 100), Some(4), "{name}");
    }
}

/// Tests that ids of one agent are unknown to another, which gets none of its results.
#[test]
fn wrong_connection_answers() {
    let scene = GatewayOptions::for_peers().with_rules("defaults:\n  - { pattern: '*', action: ask }\n").create();
    let stage = SecurityFixture { gateway: scene.start(), scene };
    let place = &stage.scene;
    let mut one = AgentClient::connect_authenticated(&stage.gateway, AGENT);
    let mut other = AgentClient::connect_authenticated(&stage.gateway, KITCHEN_TOKEN);
    one.request_tool("same", "turn", json!({ "thing": "door", "way": "mine" }));
    let gate = place.wait_gate();
    other.request_tool("same", "turn", json!({ "thing": "window", "way": "theirs" }));
    place.wait_gates(2);
    let nothing = json!({ "results": [], "queued": [] });
    assert_eq!(other.pending_results("p1")["results"], json!([]));
    for id in [gate.as_str(), &gate[gate.len() - 10..], "agent:default"] {
        let reply = other
            .exchange_frame(json!({ "method": "get_pending_results", "params": { "id": id, "agent": id }, "id": "q" }));
        assert!(!reply.to_string().contains("door"), "{reply}");
    }
    // Methods of an agent answer no gate, its own or another's.
    for method in ["gate.answer", "approval.respond", "tool.result", "chat.send", "auth", "connect"] {
        let params = json!({ "id": gate, "gate": gate, "approval_id": gate, "choice": "once", "token": AGENT });
        let reply = other.exchange_frame(json!({ "method": method, "params": params, "id": method }));
        assert_eq!(reply["error"]["code"], -32601, "{reply}");
    }
    // Their answer is theirs alone, though both call it the same.
    place.allow_gate(&gate);
    let reply = one.wait_reply(&json!("same"));
    assert!(reply.to_string().contains("/turn/door"), "{reply}");
    let rows = place.wait_gates(1);
    assert_eq!(rows[0]["session"], "agent:kitchen");
    drop(one);
    // Neither is what was missed.
    other.request_tool("x", "look", json!({ "thing": "a" }));
    assert_eq!(other.pending_results("p2"), nothing);
    let mut nobody = AgentClient::connect(&stage.gateway);
    nobody.send_frame(json!({ "method": "get_pending_results", "id": 1 }));
    let AgentSocketEvent::Frame(frame) = nobody.next() else { panic!("no answer") };
    assert_eq!(frame["error"]["code"], -32005, "{frame}");
}
