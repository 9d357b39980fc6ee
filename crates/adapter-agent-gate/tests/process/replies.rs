//! Every reply to a request, and every invalid form.

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayServer, RULES, SERVICE_TOKEN,
    agent_gate::{AgentClient, AgentSocketEvent, error_body, executed_result},
    service::{ServiceBehavior, ServiceRequest},
};
use serde_json::{Value, json};

#[test]
fn each_malformed_frame_has_its_error_and_the_connection_stays() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let request = |params: &str| format!(r#"{{"method":"tool_request","params":{params},"id":4}}"#);
    for (frame, id, code, message) in [
        ("{{{".to_owned(), Value::Null, -32700, "Parse error"),
        (String::new(), Value::Null, -32700, "Parse error"),
        ("[]".to_owned(), Value::Null, -32600, ""),
        ("7".to_owned(), Value::Null, -32600, ""),
        ("null".to_owned(), Value::Null, -32600, ""),
        (r#""tool_request""#.to_owned(), Value::Null, -32600, ""),
        (r#"[{"id":4,"method":"list_tools"}]"#.to_owned(), Value::Null, -32600, ""),
        (r#"{"id":4}"#.to_owned(), 4.into(), -32600, "Missing method"),
        (r#"{"id":4,"method":5}"#.to_owned(), 4.into(), -32600, ""),
        (r#"{"id":4,"method":null}"#.to_owned(), 4.into(), -32600, "Missing method"),
        (r#"{"id":4,"method":""}"#.to_owned(), 4.into(), -32600, "Missing method"),
        (r#"{"id":4,"method":"nope"}"#.to_owned(), 4.into(), -32601, "Unknown method: nope"),
        (r#"{"method":"tool_request","params":{"tool":"look"}}"#.to_owned(), Value::Null, -32600, "Missing request id"),
        (
            r#"{"id":null,"method":"tool_request","params":{"tool":"look"}}"#.to_owned(),
            Value::Null,
            -32600,
            "Missing request id",
        ),
        (request("{}"), 4.into(), -32600, "Missing tool name"),
        (request(r#"{"tool":""}"#), 4.into(), -32600, "Missing tool name"),
        (request(r#"{"tool":5}"#), 4.into(), -32600, ""),
        (request(r#"{"tool":null}"#), 4.into(), -32600, "Missing tool name"),
        (request(r#"{"tool":["look"]}"#), 4.into(), -32600, ""),
        (request("[1]"), 4.into(), -32600, ""),
        (request("\"look\""), 4.into(), -32600, ""),
        (request("null"), 4.into(), -32600, ""),
        (request(r#"{"tool":"look","args":[]}"#), 4.into(), -32600, ""),
        (request(r#"{"tool":"look","args":"x"}"#), 4.into(), -32600, ""),
        (request(r#"{"tool":"look","args":7}"#), 4.into(), -32600, ""),
        (request(r#"{"tool":"look","args":{}}"#), 4.into(), -32600, "Missing required argument: thing"),
        (request(r#"{"tool":"look","args":{"thing":"A"}}"#), 4.into(), -32600, "Invalid value for thing: 'A'"),
        (
            request(r#"{"tool":"look","args":{"thing":"a\u0000"}}"#),
            4.into(),
            -32600,
            "Argument 'thing' contains forbidden characters",
        ),
        (request(r#"{"tool":"look","args":{"thing":"a"},"idempotency_key":7}"#), 4.into(), -32600, ""),
    ] {
        agent.send_frame(&frame);
        let AgentSocketEvent::Frame(reply) = agent.next() else { panic!("no reply to {frame}") };
        assert_eq!((&reply["id"], reply["error"]["code"].as_i64()), (&id, Some(code)), "{frame}");
        assert!(message.is_empty() || reply["error"]["message"] == message, "{frame}: {reply}");
    }
    agent.send_binary([0xff, 0xfe]);
    assert!(matches!(agent.next(), AgentSocketEvent::Frame(reply) if reply["error"]["code"] == -32700));
    assert_eq!(place.service.received_requests(), []);
}

#[test]
fn an_id_of_any_kind_comes_back() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    for id in [json!("s"), json!(""), json!(0), json!(-3), json!(1.5), json!({"a": [1]}), json!([2]), json!(true)] {
        assert_eq!(
            agent.call_tool(id.clone(), "look", json!({ "thing": "a" })),
            executed_result(json!({ "did": "/look/a" })),
            "{id}"
        );
    }
}

#[test]
fn policy_decides_what_reaches_the_service() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let refused = |reply: &Value| (reply["code"].clone(), reply["message"].clone());
    for (case, tool, args, want) in [
        ("allowed", "look", json!({ "thing": "a" }), Ok(json!({ "did": "/look/a" }))),
        (
            "allowed and wrapped",
            "turn",
            json!({ "thing": "lamp", "way": "on" }),
            Ok(json!({ "result": { "did": "/turn/lamp" } })),
        ),
        ("denied", "turn", json!({ "thing": "lock", "way": "open" }), Err((-32003, "Denied by policy"))),
        ("denied in a list", "turn", json!({ "thing": ["lamp", "lock"] }), Err((-32003, "Denied by policy"))),
        ("defined nowhere", "nobody_defined", json!({}), Err((-32004, "Unknown tool: nobody_defined"))),
        ("required and missing", "look", json!({}), Err((-32600, "Missing required argument: thing"))),
        ("not as declared", "look", json!({ "thing": "A" }), Err((-32600, "Invalid value for thing: 'A'"))),
        (
            "not as declared in a list",
            "look",
            json!({ "thing": ["a", "B"] }),
            Err((-32600, "Invalid value for thing: 'B'")),
        ),
        (
            "a bracket",
            "turn",
            json!({ "thing": "la(mp" }),
            Err((-32600, "Argument 'thing' contains forbidden characters")),
        ),
        (
            "a comma in a list",
            "turn",
            json!({ "thing": ["a,b"] }),
            Err((-32600, "Argument 'thing' contains forbidden characters")),
        ),
        (
            "a line break in an object",
            "turn",
            json!({ "way": { "k": "a\nb" } }),
            Err((-32600, "Argument 'way' contains forbidden characters")),
        ),
        (
            "only a dot segment",
            "lookup",
            json!({ "path": ".." }),
            Err((-32600, "Argument 'path' would change the path of the request")),
        ),
        (
            "a dot segment",
            "turn",
            json!({ "thing": "lamp/../lock" }),
            Err((-32600, "Argument 'thing' would change the path of the request")),
        ),
    ] {
        let reply = agent.call_tool(1, tool, args);
        match want {
            Ok(data) => assert_eq!(reply, executed_result(data), "{case}"),
            Err((code, message)) => assert_eq!(refused(&reply), (code.into(), message.into()), "{case}"),
        }
    }
    let turned: Vec<ServiceRequest> =
        place.service.received_requests().into_iter().filter(|request| request.path == "/turn/lamp").collect();
    let want = ServiceRequest {
        method: "POST".to_owned(),
        path: "/turn/lamp".to_owned(),
        authorization: format!("Bearer {SERVICE_TOKEN}"),
        body: json!({ "way": "on" }),
    };
    assert_eq!(turned, [want]);
}

#[test]
fn the_outcome_of_the_service_is_sent_without_its_secret() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let json = |status, body: &str| ServiceBehavior::Answer(status, "application/json", body.to_owned());
    let html = format!("<html>{SERVICE_TOKEN}</html>");
    for (id, thing, manner, want) in [
        (1, "busy", json(409, "later"), "Busy: later"),
        (2, "gone", json(404, "x"), "Resource not found"),
        (3, "closed", json(401, "x"), "Service authentication failed"),
        (4, "broken", json(500, "oops"), "API error 500: oops"),
        (5, "web", ServiceBehavior::Answer(500, "text/html", html), "API error 500:"),
    ] {
        place.service.set_behavior(&format!("/look/{thing}"), manner);
        let reply = agent.call_tool(id, "look", json!({ "thing": thing }));
        assert_eq!(reply["code"], -32004, "{thing}: {reply}");
        assert!(reply["message"].as_str().unwrap().starts_with(want), "{thing}: {reply}");
        assert!(!reply.to_string().contains(SERVICE_TOKEN), "{thing}: {reply}");
    }
    for (id, thing, form, body, want) in [
        (6, "text", "text/plain", "hello", json!("hello")),
        (7, "page", "text/html", "<p>hi</p>", json!("<p>hi</p>")),
        (8, "empty", "application/json", "", Value::Null),
    ] {
        place.service.set_behavior(&format!("/look/{thing}"), ServiceBehavior::Answer(200, form, body.to_owned()));
        assert_eq!(agent.call_tool(id, "look", json!({ "thing": thing })), executed_result(want), "{thing}");
    }
    let large = json!("x".repeat(1 << 20)).to_string();
    place.service.set_behavior("/look/large", json(200, &large));
    let reply = agent.call_tool(9, "look", json!({ "thing": "large" }));
    assert_eq!(reply["code"], -32004);
    assert!(reply["message"].as_str().unwrap().contains("too large"), "{reply}");
}

#[test]
fn a_change_that_broke_off_is_unknown_and_never_repeated() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    for (id, thing, manner) in [(1, "lamp1", ServiceBehavior::BreakOff), (2, "lamp2", ServiceBehavior::Lie)] {
        place.service.set_behavior(&format!("/turn/{thing}"), manner);
        let reply = agent.call_tool(id, "turn", json!({ "thing": thing }));
        assert_eq!(reply["code"], -32004, "{reply}");
        assert!(reply["message"].as_str().unwrap().to_lowercase().contains("unknown"), "{reply}");
        assert_eq!(reply.get("data"), None, "no gate decided it: {reply}");
        agent.confirm_received();
        assert_eq!(place.service.request_count(&format!("/turn/{thing}")), 1);
    }
}

#[test]
fn a_frame_over_a_mebibyte_closes_with_1009() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let frame = |length: usize| {
        let empty = json!({ "method": "list_tools", "id": 1, "x": "" }).to_string().len();
        json!({ "method": "list_tools", "id": 1, "x": "x".repeat(length - empty) }).to_string()
    };
    agent.send_frame(frame(1 << 20));
    assert!(matches!(agent.next(), AgentSocketEvent::Frame(reply) if reply["result"]["tools"].is_array()));
    agent.try_send_frame(frame((1 << 20) + 1));
    assert!(matches!(agent.next(), AgentSocketEvent::Closed(1009, _)));
}

#[test]
fn tools_are_listed_in_the_order_of_the_file() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.send_frame(json!({ "method": "list_tools" }));
    let AgentSocketEvent::Frame(reply) = agent.next() else { panic!("no reply") };
    assert_eq!(reply["id"], Value::Null);
    let look = json!({
        "name": "look", "description": "Looks at a thing", "service": "desk",
        "args": { "thing": { "required": true, "validate": "^[a-z][a-z0-9_.]*$" } },
    });
    assert_eq!(reply["result"]["tools"][0], look);
    let names: Vec<&Value> = reply["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["look", "turn", "lookup"]);
}

#[test]
fn undeclared_arguments_need_approval() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    // The bare rule of `look*` does not check arguments; the one of lamps does.
    assert_eq!(
        agent.call_tool(1, "look", json!({ "thing": "a", "more": 1 })),
        executed_result(json!({ "did": "/look/a" }))
    );
    agent.request_tool(2, "turn", json!({ "thing": "lamp", "colour": "red" }));
    let gate = &place.wait_gates(1)[0];
    assert_eq!(gate["arguments"], json!({ "thing": "lamp", "colour": "red" }));
    place.allow_gate(gate["id"].as_str().unwrap());
    agent.wait_reply(&json!(2));
    assert_eq!(place.service.received_requests().last().unwrap().body, json!({ "colour": "red" }));
    // A deny rule ignores them.
    assert_eq!(agent.call_tool(3, "turn", json!({ "thing": "lock", "colour": "red" }))["code"], -32003);
}

#[test]
fn the_same_key_again_is_the_same_request() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let mut keyed = |id: u32| {
        let params = json!({ "tool": "turn", "args": { "thing": "lamp" }, "idempotency_key": "k" });
        agent.exchange_frame(json!({ "method": "tool_request", "params": params, "id": id }))["result"].take()
    };
    let done = executed_result(json!({ "result": { "did": "/turn/lamp" } }));
    assert_eq!([keyed(1), keyed(2)], [done.clone(), done]);
    assert_eq!(place.service.request_count("/turn/lamp"), 1);
}

#[test]
fn too_many_requests_in_a_minute_are_refused_exactly() {
    let place = GatewayFixture::with_config_and_rules("rate_limit: { max_requests_per_minute: 5 }", RULES);
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let replies: Vec<Value> = (0..8).map(|id| agent.call_tool(id, "look", json!({ "thing": "a" }))).collect();
    let refused = error_body(-32006, "Rate limit exceeded");
    assert!(replies[..5].iter().all(|reply| reply["status"] == "executed"), "{replies:?}");
    assert_eq!(replies[5..], [refused.clone(), refused.clone(), refused]);
    assert_eq!(place.service.request_count("/look/a"), 5);
    // A frame without a tool request is not counted.
    agent.confirm_received();
}

#[test]
fn a_dead_service_leaves_the_gateway_healthy() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    for (manner, is_well) in [
        (ServiceBehavior::Answer(200, "application/json", "{}".to_owned()), true),
        (ServiceBehavior::Answer(500, "application/json", "{}".to_owned()), false),
    ] {
        place.service.set_behavior("/", manner);
        let (status, body) = gateway.get_json("/healthz");
        let want = json!({ "status": "healthy", "checks": { "database": true, "services": { "desk": is_well } } });
        assert_eq!((status, body), (200, want));
    }
}
