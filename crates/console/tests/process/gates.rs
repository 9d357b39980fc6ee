//! Console without script: pending gates are read and decided by forms.

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayServer, RULES,
    agent_gate::AgentClient,
    browser::{BrowserClient, BrowserPage},
    eventually,
};
use serde_json::json;

fn answer(visitor: &BrowserClient, gateway: &GatewayServer, gate: &str, fields: &[(&str, &str)]) -> BrowserPage {
    let path = format!("/console/gates/{gate}");
    let shown = visitor.get_page(gateway, &path);
    let (csrf, digest) = (shown.field_value("csrf"), shown.field_value("digest"));
    let fields = [&[("csrf", csrf.as_str()), ("digest", &digest)][..], fields].concat();
    visitor.post_form(gateway, &path, &fields)
}

/// Connects an agent whose call waits; returns it with the gate.
fn waiting(place: &GatewayFixture, gateway: &GatewayServer, thing: &str) -> (AgentClient, String) {
    let mut agent = AgentClient::connect_authenticated(gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": thing, "way": "open" }));
    (agent, place.wait_gate())
}

#[test]
fn what_waits_is_listed_whole_and_allowed_by_a_form() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let (mut agent, gate) = waiting(&place, &gateway, "door\u{202e}<b>&\"");
    let visitor = BrowserClient::default();
    let root = visitor.get_page(&gateway, "/");
    assert_eq!((root.status, root.header("location")), (303, Some("/console/")));
    let inbox = visitor.get_page(&gateway, "/console/");
    assert_eq!(inbox.status, 200);
    for want in [
        &gate[..],
        "door<mark title=\"Invisible character\">\\u{202e}</mark>&lt;b&gt;&amp;&quot;",
        "via agent-gate",
        "by default &quot;*&quot; (",
        "1 pending approval,",
    ] {
        assert!(inbox.text.contains(want), "{want}: {}", inbox.text);
    }
    assert!(!inbox.text.contains("<b>") && !inbox.text.contains('\u{202e}'));
    let done = answer(&visitor, &gateway, &gate, &[("answer", "once"), ("key", "k1")]);
    assert_eq!((done.status, done.header("location")), (303, Some(&*format!("/console/?done={gate}"))));
    assert_eq!(agent.wait_reply(&json!(1))["result"]["status"], "executed");
    let after = visitor.get_page(&gateway, &format!("/console/?done={gate}"));
    assert!(after.text.contains("Allowed once") && after.text.contains("by a local user"), "{}", after.text);
    assert!(after.text.contains("No pending approvals."));
    let record = visitor.get_page(&gateway, &format!("/console/record/{gate}"));
    for want in ["requested: ", "waiting for an approver", "once by web:open", ">done</span> turn("] {
        assert!(record.text.contains(want), "{want}: {}", record.text);
    }
    place.verify_log();
}

#[test]
fn a_denial_has_its_reason_and_a_late_answer_gets_the_first_approver() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let (mut agent, gate) = waiting(&place, &gateway, "door");
    let visitor = BrowserClient::default();
    let path = format!("/console/gates/{gate}");
    let digest = visitor.get_page(&gateway, &path).field_value("digest");
    let done = answer(&visitor, &gateway, &gate, &[("answer", "deny"), ("reason", "it <rains>"), ("key", "first")]);
    assert_eq!(done.status, 303);
    let reply = agent.wait_reply(&json!(1)).to_string();
    assert!(reply.contains("it <rains>") || reply.contains("denied"), "{reply}");
    let late = [("digest", digest.as_str()), ("answer", "once"), ("key", "second")];
    let refused = visitor.post_form(&gateway, &path, &late);
    assert_eq!(refused.status, 409);
    assert!(refused.text.contains("A local user was first: denied."), "{}", refused.text);
    assert!(refused.text.contains("<q>it &lt;rains&gt;</q>"), "{}", refused.text);
    // The same form, sent twice, is no second answer.
    let again = [("answer", "deny"), ("reason", "it <rains>"), ("key", "first")];
    assert_eq!(visitor.post_form(&gateway, &path, &again).status, 303);
    assert_eq!(place.service.request_count("/turn/door"), 0);
}

#[test]
fn only_what_was_shown_is_allowed_and_only_what_is_offered() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let (_agent, gate) = waiting(&place, &gateway, "door");
    let visitor = BrowserClient::default();
    let path = format!("/console/gates/{gate}");
    for (fields, expected) in [
        (&[("answer", "once")][..], "has changed since this page was loaded"),
        (&[("answer", "once"), ("digest", "00")], "has changed since this page was loaded"),
        (&[("answer", "maybe")], "Choose one of the answers"),
        (&[("answer", "say"), ("text", "x")], "not a question"),
    ] {
        let page = visitor.post_form(&gateway, &path, fields);
        assert_eq!((page.status, page.text.contains(expected)), (400, true), "{fields:?}: {}", page.text);
    }
    let fields = [("answer", "grant"), ("reach", "always"), ("lasts", "0"), ("covers", "pattern:*")];
    let page = answer(&visitor, &gateway, &gate, &fields);
    assert_eq!((page.status, page.text.contains("not offered")), (400, true), "{}", page.text);
    let nobody = visitor.get_page(&gateway, "/console/gates/gate_00000000000000000000000000000000");
    assert_eq!(nobody.status, 404);
    assert_eq!(place.pending_gates().len(), 1);
    let fields = [("answer", "grant"), ("reach", "always"), ("lasts", "3600"), ("covers", "pattern:turn(door, *)")];
    assert_eq!(answer(&visitor, &gateway, &gate, &fields).status, 303);
    let policy = visitor.get_page(&gateway, "/console/policy");
    assert!(policy.text.contains("anything like turn(door, *)"), "{}", policy.text);
    let (_, rest) = policy.text.split_once("action=\"/console/revoke/").unwrap();
    let grant = rest.split('"').next().unwrap();
    assert_eq!(visitor.post_form(&gateway, &format!("/console/revoke/{grant}"), &[]).status, 303);
    assert!(visitor.get_page(&gateway, "/console/policy").text.contains("No standing approvals."));
}

#[test]
fn several_are_denied_at_once() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    for (id, thing) in [(1, "door"), (2, "gate")] {
        agent.request_tool(id, "turn", json!({ "thing": thing }));
    }
    let gates: Vec<String> = place.wait_gates(2).iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect();
    let visitor = BrowserClient::default();
    let inbox = visitor.get_page(&gateway, "/console/");
    let names: Vec<String> = gates.iter().map(|gate| format!("gate.{gate}")).collect();
    let digests: Vec<String> = names.iter().map(|name| inbox.field_value(name)).collect();
    let mut fields = vec![("answer", "deny")];
    fields.extend(names.iter().map(String::as_str).zip(digests.iter().map(String::as_str)));
    assert_eq!(visitor.post_form(&gateway, "/console/answers", &fields).status, 303);
    for id in [1, 2] {
        assert_ne!(agent.wait_reply(&json!(id))["result"]["status"], "executed");
    }
    assert_eq!(visitor.post_form(&gateway, "/console/answers", &[("answer", "deny")]).status, 400);
}

#[test]
fn a_window_that_reconnects_gets_the_missed_frames_or_reloads() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let visitor = BrowserClient::default();
    let inbox = visitor.get_page(&gateway, "/console/");
    let (_, rest) = inbox.text.split_once("data-after=\"").unwrap();
    let after = rest.split('"').next().unwrap();
    let live = format!("/console/live?after={after}");
    // Frames are encoded while a window is open.
    let (_, window) = visitor.read_until(&gateway, &live, "event: hello");
    let (_agent, gate) = waiting(&place, &gateway, "door");
    let (frames, _) = visitor.read_until(&gateway, &live, &gate);
    assert!(frames.contains("event: gate\ndata: {") && frames.contains("\"isNew\":true,\"waiting\":1"), "{frames}");
    assert_eq!(answer(&visitor, &gateway, &gate, &[("answer", "deny")]).status, 303);
    let (frames, _) = visitor.read_until(&gateway, &live, "\"state\":\"over\"");
    assert_eq!(frames.matches("event: gate\n").count(), 2, "{frames}");
    for (after, why) in [("0", "of before it began"), ("99999999", "of another record")] {
        let (frames, _) = visitor.read_until(&gateway, &format!("/console/live?after={after}"), "event: reload");
        assert!(!frames.contains("event: gate\n"), "{why}: {frames}");
    }
    drop(window);
}

#[test]
fn other_sites_and_windows_without_the_token_change_nothing() {
    let place = GatewayFixture::with_config_and_rules("web: { password: open-sesame }", RULES);
    let gateway = GatewayServer::start(&place);
    let (_agent, gate) = waiting(&place, &gateway, "door");
    let path = format!("/console/gates/{gate}");
    let stranger = BrowserClient::default();
    let redirect = stranger.get_page(&gateway, &path);
    assert_eq!(redirect.status, 302);
    assert!(redirect.header("location").unwrap().starts_with("/login?next=%2Fconsole%2Fgates%2F"));
    assert_eq!(stranger.get_page(&gateway, "/console/style.css").status, 200);
    let entered = stranger.post_form(&gateway, "/login", &[("password", "open-sesame"), ("next", &path)]);
    assert_eq!((entered.status, entered.header("location")), (303, Some(&*path)));
    let cookie = entered.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let visitor = BrowserClient { cookie: Some(cookie), ..BrowserClient::default() };
    let page = visitor.get_page(&gateway, &path);
    let (csrf, digest) = (page.field_value("csrf"), page.field_value("digest"));
    assert_eq!(csrf.len(), 64);
    let without = [("answer", "once"), ("digest", digest.as_str())];
    assert_eq!(visitor.post_form(&gateway, &path, &without).status, 403);
    let whole = [("answer", "once"), ("digest", digest.as_str()), ("csrf", csrf.as_str())];
    let foreign = BrowserClient { headers: vec![("origin", "https://evil.example".to_owned())], ..visitor.clone() };
    assert_eq!(foreign.post_form(&gateway, &path, &whole).status, 403);
    assert_eq!(stranger.post_form(&gateway, &path, &whole).status, 302);
    assert_eq!(place.pending_gates().len(), 1);
    assert_eq!(visitor.post_form(&gateway, &path, &whole).status, 303);
    let done = visitor.get_page(&gateway, &path);
    assert!(done.text.contains("by a console user"), "{}", done.text);
}

#[test]
fn every_page_is_there_and_small_and_what_is_not_is_not_found() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let visitor =
        BrowserClient { headers: vec![("accept-encoding", "identity".to_owned())], ..BrowserClient::default() };
    for path in [
        "/console/",
        "/console/sessions",
        "/console/sessions/agent%3Adefault",
        "/console/record",
        "/console/figures",
        "/console/policy",
        "/console/agents",
        "/console/mcp",
        "/console/try?pattern=look*&action=deny",
        "/console/explain?as=agent:default&tool=turn&arguments=thing%3Dlock",
    ] {
        let page = visitor.get_page(&gateway, path);
        assert_eq!(page.status, 200, "{path}");
        assert!(page.text.contains("<h1>") && page.text.contains("</html>"), "{path}");
        assert!(!page.text.contains("<script>") && !page.text.contains(" style="), "{path}");
        assert_eq!(page.header("cache-control"), Some("no-store"), "{path}");
        assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'self'"), "{path}");
    }
    for path in ["/console/sessions/nobody", "/console/record/gate_1", "/console/gates/x", "/console/nothing"] {
        assert_eq!(visitor.get_page(&gateway, path).status, 404, "{path}");
    }
    let inbox = visitor.get_page(&gateway, "/console/");
    let style = inbox.text.split("href=\"").find(|part| part.starts_with("/console/style.css?")).unwrap();
    let style = visitor.get_page(&gateway, style.split('"').next().unwrap());
    assert!(style.header("cache-control").unwrap().contains("immutable"));
    assert_eq!(visitor.get_page(&gateway, "/console/app.js").header("cache-control"), Some("no-cache"));
}

#[test]
fn an_unknown_action_is_refused() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let page = BrowserClient::default().get_page(&gateway, "/console/try?pattern=look*&action=alow");
    assert_eq!(page.status, 200);
    assert!(page.text.contains("Unknown action: alow.") && !page.text.contains(">Apply<"), "{}", page.text);
}

#[test]
fn a_rule_is_explained_and_read_again() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let visitor = BrowserClient::default();
    let explained = visitor.get_page(&gateway, "/console/explain?as=agent:default&tool=turn&arguments=thing%3Dlock");
    assert!(explained.text.contains("Denied") && explained.text.contains("turn(lock*"), "{}", explained.text);
    let refused = visitor.get_page(&gateway, "/console/explain?as=agent:default&tool=turn&arguments=");
    assert!(refused.text.contains("Missing required argument: thing"), "{}", refused.text);
    let before_policy = "refused before policy evaluates it";
    assert!(refused.text.contains(before_policy), "{}", refused.text);
    for query in ["tool=&arguments=", "tool=turn&arguments=thing"] {
        let invalid = visitor.get_page(&gateway, &format!("/console/explain?as=agent:default&{query}"));
        assert!(invalid.text.contains("Invalid request") && !invalid.text.contains(before_policy), "{}", invalid.text);
    }
    place.write_file("permissions.yaml", "rules: [ { pattern: 5 } ]\n");
    let reloaded = visitor.post_form(&gateway, "/console/reload", &[]);
    assert!(
        reloaded.text.contains("were not loaded") && reloaded.text.contains("permissions.yaml"),
        "{}",
        reloaded.text
    );
    place.write_file("permissions.yaml", "rules:\n  - { pattern: 'turn(lock*', action: allow }\n");
    assert!(visitor.post_form(&gateway, "/console/reload", &[]).text.contains("are in force"));
    let explained = visitor.get_page(&gateway, "/console/explain?as=agent:default&tool=turn&arguments=thing%3Dlock");
    assert!(explained.text.contains("Allowed"), "{}", explained.text);
}

#[test]
fn a_chat_is_started_and_read_without_script() {
    let place = GatewayFixture::with_config_and_rules("model: { provider: demo, id: scripted-1 }", RULES);
    let gateway = GatewayServer::start(&place);
    let visitor = BrowserClient::default();
    assert_eq!(visitor.post_form(&gateway, "/console/sessions", &[]).status, 400);
    let opened = visitor.post_form(&gateway, "/console/sessions", &[("message", "hello <you>")]);
    assert_eq!(opened.status, 303, "{}", opened.text);
    let path = opened.header("location").unwrap().to_owned();
    eventually("the answer", || visitor.get_page(&gateway, &path).text.contains("I am a scripted model").then_some(()));
    let page = visitor.get_page(&gateway, &path);
    assert!(page.text.contains("hello &lt;you&gt;") && page.text.contains("via console"), "{}", page.text);
    assert!(visitor.get_page(&gateway, "/console/sessions").text.contains("hello &lt;you&gt;"));
    let wrong = visitor.post_form(&gateway, &format!("{path}/model"), &[("model", "demo/none")]);
    assert_eq!((wrong.status, wrong.text.contains("Unknown model")), (400, true));
    let foreign = visitor.post_form(&gateway, "/console/sessions/agent%3Adefault/say", &[("message", "x")]);
    assert_eq!(foreign.status, 403, "{}", foreign.text);
}

#[test]
fn an_invalid_time_is_reported() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let visitor = BrowserClient::default();
    for (query, is_told) in [("since=gestern", true), ("until=31.1.2026", true), ("since=2026-01-31", false)] {
        let page = visitor.get_page(&gateway, &format!("/console/record?{query}"));
        assert_eq!((page.status, page.text.contains("is not a valid time")), (200, is_told), "{query}");
    }
}

#[test]
fn an_active_denial_shows_the_calls_that_it_covers() {
    let place = GatewayFixture::new();
    let mut gateway = GatewayServer::start(&place);
    let (_agent, gate) = waiting(&place, &gateway, "door");
    assert_eq!(place.run_as_person(&["gates", "deny", &gate]).code, Some(0));
    let page = BrowserClient::default().get_page(&gateway, "/console/policy").text;
    assert!(page.contains("<td>turn(door, open)</td>") && page.contains("Lift: turn(door, open)"), "{page}");
    assert_eq!(place.run_as_person(&["grants", "denials", "--json"]).json()[0]["covers"], "turn(door, open)");
    let printed = place.run_as_person(&["grants", "denials"]);
    assert!(printed.out.contains("turn(door, open)"), "{printed:?}");
    gateway.stop();
    assert_eq!(place.run_as_person(&["grants", "denials", "--json"]).json()[0]["covers"], "turn(door, open)");
}

#[test]
fn an_unknown_path_is_a_page_and_the_path_of_a_form_redirects() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let visitor = BrowserClient::default();
    let page = visitor.get_page(&gateway, "/console/nope");
    assert_eq!((page.status, page.text.contains("Back to the inbox")), (404, true), "{}", page.text);
    let page = visitor.get_page(&gateway, "/console/rules");
    assert_eq!((page.status, page.header("location")), (303, Some("/console/policy")));
}
