//! No agent answers its own gate: commands that an agent runs are refused on every surface.

use std::{fs, os::unix::process::CommandExt as _, path::Path, process::Command};

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayOptions, GatewayServer, agent_gate::AgentClient, api::send_request,
    binary_path, eventually, http::HttpClient, provider, service::ServiceBehavior,
};
use serde_json::{Value, json};

const RULES: &str = r#"
defaults:
  - { pattern: "*", action: allow }
rules:
  - { pattern: "turn(*)", action: ask }
"#;
const MODEL: &str = "/v1/chat/completions";
const REFUSAL_TEXT: &str = "This comes from a command of an agent, which may not decide";

/// Returns the stream of a provider.
fn stream(delta: &Value, stop: &str) -> ServiceBehavior {
    let chunk = |choice: Value| {
        let chunk = json!({ "id": "c1", "object": "chat.completion.chunk", "model": "small-1", "choices": [choice] });
        format!("data: {chunk}\n\n")
    };
    let text = chunk(json!({ "index": 0, "delta": delta, "finish_reason": null }))
        + &chunk(json!({ "index": 0, "delta": {}, "finish_reason": stop }))
        + "data: [DONE]\n\n";
    ServiceBehavior::Answer(200, "text/event-stream", text)
}

fn bash(command: &str) -> ServiceBehavior {
    let function = json!({ "name": "bash", "arguments": json!({ "command": command, "_i": "a test" }).to_string() });
    let call = json!({ "index": 0, "id": "call_1", "type": "function", "function": function });
    stream(&json!({ "role": "assistant", "tool_calls": [call] }), "tool_calls")
}

fn say(text: &str) -> ServiceBehavior {
    stream(&json!({ "role": "assistant", "content": text }), "stop")
}

/// Returns a gateway with a model that is at the place's service.
fn place() -> GatewayFixture {
    place_with("")
}

/// Creates the same with more in its configuration.
fn place_with(more: &str) -> GatewayFixture {
    let place = GatewayFixture::with_config_and_rules("", RULES);
    let more = format!(
        "{more}agents_dir: rooms\nmodel: {{ provider: local, id: small-1 }}\nproviders: {{ local: {{ api: openai-completions, base_url: '{}/v1', api_key: k, models: [ {{ id: small-1, context_window: 128000, max_tokens: 8192 }} ] }} }}",
        place.service.url
    );
    place.write_file("config.yaml", &place.config_text(&more));
    place
}

/// Has a run work to its end on what the model wants.
fn run(place: &GatewayFixture, gateway: &GatewayServer, command: &str) {
    run_of(place, gateway, command, &[]);
}

/// Runs the same with credentials.
fn run_of(place: &GatewayFixture, gateway: &GatewayServer, command: &str, shown: &[(&str, &str)]) {
    let requests_before = place.service.request_count(MODEL);
    place.service.set_behavior(MODEL, bash(command));
    let body = json!({ "message": "go" });
    let opened = send_request(&gateway.address, ("POST", "/api/v1/sessions"), shown, Some(&body)).unwrap();
    assert_eq!(opened.status, 201, "{opened:?}");
    let session = format!("/api/v1/sessions/{}", opened.body["id"].as_str().unwrap());
    // A model that wants nothing more ends the run.
    place.service.wait_requests(MODEL, requests_before + 1);
    place.service.set_behavior(MODEL, say("done"));
    eventually("the end of the run", || {
        let reply = send_request(&gateway.address, ("GET", &session), shown, None).unwrap();
        (reply.body["state"] == "resting").then_some(())
    });
}

#[test]
fn a_command_of_a_run_can_approve_nothing_and_a_person_over_the_same_port_can() {
    let place = place();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let gate = place.wait_gate();
    let room = place.folder.join("rooms/main");
    fs::create_dir_all(&room).unwrap();
    std::os::unix::fs::symlink(place.data_dir(), room.join("here")).unwrap();
    let port = gateway.address.rsplit_once(':').unwrap().1;
    let post = |path: &str| {
        format!(
            "exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'POST {path} HTTP/1.1\\r\\nhost: 127.0.0.1\\r\\ncontent-length: 0\\r\\nconnection: close\\r\\n\\r\\n' >&3"
        )
    };
    let allow = format!("/api/v1/gates/{gate}/allow");
    let countersign = binary_path().display();
    let (answer, login) = (post(&allow), post("/login"));
    let (rule, reload) = (post("/console/rules"), post("/console/reload"));
    let rules = fs::read_to_string(place.folder.join("permissions.yaml")).unwrap();
    let attempts = [
        format!("{answer}; cat <&3 >http.txt"),
        format!("{login}; cat <&3 >login.txt"),
        format!("{rule}; cat <&3 >rule.txt"),
        format!("{reload}; cat <&3 >reload.txt"),
        format!("setsid bash -c \"{}\" & wait", format!("{answer}; cat <&3 >apart.txt").replace('$', "\\$")),
        format!("(bash -c \"{answer}; cat <&3 >orphan.txt\" &) ; until [ -s orphan.txt ]; do sleep 0.05; done"),
        format!(
            "{countersign} gates list --data here >list.txt 2>&1; {countersign} gates allow {gate} --data here >allow.txt 2>&1; true"
        ),
        // It does not wait for the answer.
        format!("bash -c \"{answer}\""),
    ];
    for attempt in &attempts {
        run(&place, &gateway, attempt);
    }
    for (file, status) in [
        ("http.txt", "HTTP/1.1 403 "),
        ("login.txt", "HTTP/1.1 403 "),
        ("rule.txt", "HTTP/1.1 403 "),
        ("reload.txt", "HTTP/1.1 403 "),
        ("apart.txt", "HTTP/1.1 403 "),
        ("orphan.txt", "HTTP/1.1 403 "),
    ] {
        let response = fs::read_to_string(room.join(file)).unwrap();
        assert!(response.starts_with(status) && response.contains(REFUSAL_TEXT), "{file}: {response}");
    }
    for file in ["list.txt", "allow.txt"] {
        let output = fs::read_to_string(room.join(file)).unwrap();
        assert!(output.contains(REFUSAL_TEXT) && !output.contains("turn(door)"), "{file}: {output}");
    }
    // One that leaves its session, and ends what would have kept it, is ended by the gateway.
    let away = format!("echo $$ >away.new; mv away.new away.pid; kill -9 $1; while :; do {answer}; sleep 0.05; done");
    fs::write(room.join("away.sh"), away).unwrap();
    run(&place, &gateway, "setsid bash away.sh $PPID $$ & wait");
    let pid = eventually("that it began", || fs::read_to_string(room.join("away.pid")).ok());
    let at = Path::new("/proc").join(pid.trim());
    eventually("that it has ended, and somebody waited for it", || (!at.exists()).then_some(()));
    assert_eq!(fs::read_to_string(place.folder.join("permissions.yaml")).unwrap(), rules);
    // Had one of them counted, this would come too late. Shells of runs are still there.
    let reply = send_request(&gateway.address, ("POST", &allow), &[], Some(&json!({}))).unwrap();
    assert_eq!((reply.status, &reply.body["resolution"]), (200, &json!("allowed")), "{reply:?}");
    assert_eq!(agent.wait_reply(&json!(1))["result"]["status"], "executed");
    // So is a person's command line.
    agent.request_tool(2, "turn", json!({ "thing": "window" }));
    place.allow_gate(&place.wait_gate());
    assert_eq!(agent.wait_reply(&json!(2))["result"]["status"], "executed");
}

/// A browser sends it to every port of the same name, also to one at which an agent serves something.
#[test]
fn a_persons_login_opens_nothing_for_a_command() {
    let place = place_with("web: { password: correct-horse }\n");
    let gateway = GatewayServer::start(&place);
    let http = HttpClient::new(&gateway.address);
    let login = http.post("/api/auth/login", &json!({ "password": "correct-horse" }));
    let cookie = login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let port = gateway.address.rsplit_once(':').unwrap().1;
    let get = |path: &str, file: &str| {
        format!(
            "exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET {path} HTTP/1.1\\r\\nhost: 127.0.0.1\\r\\ncookie: {cookie}\\r\\nconnection: close\\r\\n\\r\\n' >&3; cat <&3 >{file}"
        )
    };
    let paths = ["/api/sessions", "/api/v1/gates", "/console/policy", "/api/sessions/events", "/api/auth/status"];
    let read_response =
        |index: usize| fs::read_to_string(place.folder.join(format!("rooms/main/{index}.txt"))).unwrap();
    for (index, path) in paths.iter().enumerate() {
        run_of(&place, &gateway, &get(path, &format!("{index}.txt")), &[("cookie", &cookie)]);
        let (response, is_for_all) = (read_response(index), *path == "/api/auth/status");
        assert_eq!(response.starts_with("HTTP/1.1 403 "), !is_for_all, "{path}: {response}");
        let says = if is_for_all { "\"logged_in\":false" } else { "for which nobody's login opens anything" };
        assert!(response.contains(says), "{path}: {response}");
    }
    let known = http.with_header("cookie", &cookie);
    for path in ["/api/sessions", "/api/v1/gates", "/console/policy"] {
        assert_eq!(known.get(path).status, 200, "{path}");
    }
}

#[test]
fn what_a_wrapper_started_before_it_became_the_gateway_is_nobodys_command() {
    let place = place();
    let mut wrapper = Command::new("bash");
    let usual = place.binary_command();
    wrapper.envs(usual.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(&place.folder);
    // It stays until it gets its request, and then sends it over the port.
    let script =
        "(until [ -e ask ]; do sleep 0.02; done; . ./ask) & echo $! > side; exec \"$0\" serve --config config.yaml";
    wrapper.args(["-c", script]).arg(binary_path());
    wrapper.process_group(0);
    let gateway = GatewayServer::spawn(wrapper);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let gate = place.wait_gate();
    // An exec child ends, and one of its commands lives on in its shell.
    let room = place.folder.join("rooms/main");
    run(&place, &gateway, "kill -9 $PPID");
    run(&place, &gateway, "echo there > there");
    assert!(room.join("there").exists());
    let side = fs::read_to_string(place.folder.join("side")).unwrap();
    assert!(Path::new("/proc").join(side.trim()).join("cwd").exists(), "it was killed");
    let port = gateway.address.rsplit_once(':').unwrap().1;
    place.write_file(
        "ask.new",
        &format!(
            "exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'POST /api/v1/gates/{gate}/allow HTTP/1.1\\r\\nhost: 127.0.0.1\\r\\ncontent-length: 0\\r\\nconnection: close\\r\\n\\r\\n' >&3; cat <&3 > told.new; mv told.new told\n"
        ),
    );
    fs::rename(place.folder.join("ask.new"), place.folder.join("ask")).unwrap();
    let response = eventually("it was told", || fs::read_to_string(place.folder.join("told")).ok());
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    assert_eq!(agent.wait_reply(&json!(1))["result"]["status"], "executed");
}

#[test]
fn a_variable_from_an_earlier_command_needs_approval() {
    let left = || provider::bash_part("c1", "for x in ../../config.yaml; do echo; done");
    let taken = || provider::bash_part("c2", "cat \"$x\"");
    let apart = vec![vec![left()], vec![taken()]];
    // Both are judged before either begins, and the second again when it does.
    let together = vec![vec![left(), taken()]];
    for messages in [apart, together] {
        let scene = GatewayOptions::for_models().with_config("").create();
        let allowed =
            ["bash(echo*)", "bash(cat *)"].map(|pattern| format!("  - {{ pattern: '{pattern}', action: allow }}\n"));
        scene.write_file("permissions.yaml", &format!("rules:\n{}", allowed.concat()));
        let gateway = scene.start();
        let replies = messages.into_iter().map(provider::ProviderReply::new);
        scene.provider.script_replies(replies.chain([provider::text_reply("done")]));
        send_request(&gateway.address, ("POST", "/api/v1/sessions"), &[], Some(&json!({ "message": "go" }))).unwrap();
        let gate = scene.wait_gate();
        let shown = scene.run_as_person(&["gates", "show", &gate]).out;
        assert!(shown.contains("an earlier line of this shell may have set"), "{shown}");
        assert_eq!(scene.run_as_person(&["gates", "deny", &gate]).code, Some(0));
    }
}
