//! Parts outside of a signature: free text, undeclared arguments, and their use by Home Assistant's own tools.

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayServer,
    agent_gate::{AgentClient, error_body, executed_result},
    service::ServiceBehavior,
};
use serde_json::{Value, json};

const TOOLS: &str = r#"
tools:
  say:
    signature: "{device}"
    args: { device: { required: true }, text: { required: true, free_text: true } }
    request: { method: POST, path: "/say/{device}", body_exclude: [device] }
  render:
    args: { template: { required: true, free_text: true } }
    request: { method: POST, path: /render }
    response: { wrap: rendered }
  plain:
    args: { template: { required: true } }
    request: { method: POST, path: /plain }
"#;

#[test]
fn free_text_holds_anything_is_shown_whole_and_runs_as_it_was_shown() {
    let place = GatewayFixture::with_config_and_rules("", "rules: [ { pattern: 'say(attic)', action: deny } ]");
    place.write_file("tools.yaml", TOOLS);
    place
        .service
        .set_behavior("/render", ServiceBehavior::Answer(200, "text/plain; charset=utf-8", "21.5 (warm)".to_owned()));
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let text = "{{ states('sensor.a') }}, say(attic)\n[*]?";
    agent.request_tool(1, "say", json!({ "device": "hall", "text": text }));
    let row = place.wait_gates(1).remove(0);
    assert_eq!((&row["subject"], &row["beside"]), (&json!("say(hall)"), &json!(["text"])), "{row}");
    let listed = place.run_as_person(&["gates", "list"]).out;
    assert!(listed.contains(r"say(hall)  with text: {{ states('sensor.a') }}, say(attic)\u{a}[*]?"), "{listed}");
    assert!(place.run_as_person(&["gates", "show", row["id"].as_str().unwrap()]).out.contains("    | [*]?"));
    // That text was allowed and no other.
    let output = place.run_as_person(&["gates", "allow", row["id"].as_str().unwrap(), "--scope", "always"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(agent.wait_reply(&json!(1))["result"], executed_result(json!({ "did": "/say/hall" })));
    assert_eq!(place.service.received_requests()[0].body, json!({ "text": text }));
    assert_eq!(agent.call_tool(2, "say", json!({ "device": "hall", "text": text }))["status"], "executed");
    agent.request_tool(3, "say", json!({ "device": "hall", "text": format!("{text}!") }));
    place.deny_gate(&place.wait_gate());
    assert_eq!(agent.wait_reply(&json!(3))["error"]["code"], -32001);
    // Everything else is checked as usual, and rules see no text.
    let forbidden = |name: &str| error_body(-32600, &format!("Argument '{name}' contains forbidden characters"));
    assert_eq!(agent.call_tool(4, "say", json!({ "device": "hall(", "text": "x" })), forbidden("device"));
    assert_eq!(agent.call_tool(5, "say", json!({ "device": "hall", "text": "x", "more": "(" })), forbidden("more"));
    assert_eq!(agent.call_tool(6, "plain", json!({ "template": "{{ states('a') }}" })), forbidden("template"));
    assert_eq!(agent.call_tool(7, "say", json!({ "device": "attic", "text": "x" }))["code"], -32003);
    // A text that the tool's own name contains is shown too.
    agent.request_tool(8, "render", json!({ "template": "render" }));
    let row = place.wait_gates(1).remove(0);
    assert_eq!((&row["subject"], &row["beside"]), (&json!("render"), &json!(["template"])), "{row}");
    place.allow_gate(row["id"].as_str().unwrap());
    assert_eq!(agent.wait_reply(&json!(8))["result"], executed_result(json!({ "rendered": "21.5 (warm)" })));
    drop(gateway);
    place.verify_log();
}

#[test]
fn a_list_of_what_waits_shows_what_its_signatures_do_not() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let long = "y".repeat(300);
    agent.request_tool(1, "turn", json!({ "thing": "door", "way": "open", "force": [1, true], "note": long }));
    let row = place.wait_gates(1).remove(0);
    assert_eq!(row["beside"], json!(["force", "note"]), "{row}");
    let listed = place.run_as_person(&["gates", "list"]).out;
    let want = format!(
        "turn(door, open)  with force: [1,true], note: {}… (300 characters: see `gates show`)",
        "y".repeat(200)
    );
    assert!(listed.contains(&want) && listed.lines().count() == 1, "{listed}");
}

#[test]
fn the_first_form_of_home_assistant_has_its_texts_and_its_services_that_answer() {
    let place = GatewayFixture::with_config_and_rules("", "defaults: [ { pattern: '*', action: allow } ]");
    let config = format!(
        "gateway: {{ port: 0 }}\nagent: {{ token: {AGENT_TOKEN} }}\nservices: {{ homeassistant: {{ url: '{}', token: sec-house-11aa }} }}\n",
        place.service.url
    );
    place.write_file("config.yaml", &config);
    let json_answer = |status, body: &str| ServiceBehavior::Answer(status, "application/json", body.to_owned());
    place.service.set_behavior("/api/states/light.nowhere", json_answer(404, r#"{"message":"Entity not found."}"#));
    place.service.set_behavior("/api/states/light.broken", json_answer(500, "no"));
    let forecast = json!({ "changed_states": [], "service_response": { "weather.home": { "forecast": [] } } });
    place.service.set_behavior(
        "/api/services/weather/get_forecasts?return_response=true",
        json_answer(200, &forecast.to_string()),
    );
    place
        .service
        .set_behavior("/api/services/weather/get_forecasts", json_answer(400, "Service call requires responses"));
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let mut look = |id: u32, entity: &str| agent.call_tool(id, "ha_get_state", json!({ "entity_id": entity }));
    assert_eq!(look(1, "light.nowhere"), error_body(-32004, "Entity not found: light.nowhere"));
    assert_eq!(look(2, "light.broken"), error_body(-32004, "Home Assistant API error 500: no"));
    let call = |more: Value| {
        let mut args = json!({ "domain": "weather", "service": "get_forecasts", "entity_id": "weather.home" });
        args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        args
    };
    for (id, more) in [(3, json!({ "return_response": true })), (4, json!({ "return_response": "true" }))] {
        let reply = agent.call_tool(id, "ha_call_service", call(more));
        assert_eq!(reply, executed_result(json!({ "result": forecast })), "{id}");
    }
    assert_eq!(place.service.received_requests().last().unwrap().body, json!({ "entity_id": "weather.home" }));
    let plain = error_body(-32004, "Home Assistant API error 400: Service call requires responses");
    for (id, more) in [(5, json!({})), (6, json!({ "return_response": false }))] {
        assert_eq!(agent.call_tool(id, "ha_call_service", call(more)), plain, "{id}");
    }
    let refused = agent.call_tool(7, "ha_call_service", call(json!({ "return_response": "false" })));
    assert_eq!(refused, error_body(-32600, "Invalid value for return_response: 'false'"));
}
