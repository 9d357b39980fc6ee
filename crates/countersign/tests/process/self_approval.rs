//! Nobody answers their own gate: commands that an agent runs are refused wherever people answer.

use std::{fs, os::unix::process::CommandExt as _, path::Path, process::Command};

use countersign_testkit::process::{
    AGENT_TOKEN, Gateway, GatewayFixture, GatewayOptions, agent_gate::AgentClient, api::ask, binary, eventually,
    http::Http, provider, service::Behavior,
};
use serde_json::{Value, json};

const RULES: &str = r#"
defaults:
  - { pattern: "*", action: allow }
rules:
  - { pattern: "turn(*)", action: ask }
"#;
const MODEL: &str = "/v1/chat/completions";
const TOLD: &str = "This comes from a command of an agent, which may not decide";

/// What a provider streams.
fn stream(delta: &Value, stop: &str) -> Behavior {
    let chunk = |choice: Value| {
        let chunk = json!({ "id": "c1", "object": "chat.completion.chunk", "model": "small-1", "choices": [choice] });
        format!("data: {chunk}\n\n")
    };
    let text = chunk(json!({ "index": 0, "delta": delta, "finish_reason": null }))
        + &chunk(json!({ "index": 0, "delta": {}, "finish_reason": stop }))
        + "data: [DONE]\n\n";
    Behavior::Answer(200, "text/event-stream", text)
}

fn bash(command: &str) -> Behavior {
    let function = json!({ "name": "bash", "arguments": json!({ "command": command, "_i": "a test" }).to_string() });
    let call = json!({ "index": 0, "id": "call_1", "type": "function", "function": function });
    stream(&json!({ "role": "assistant", "tool_calls": [call] }), "tool_calls")
}

fn say(text: &str) -> Behavior {
    stream(&json!({ "role": "assistant", "content": text }), "stop")
}

/// A gateway with a model that is at the place's service.
fn place() -> GatewayFixture {
    place_with("")
}

/// The same with more in its configuration.
fn place_with(more: &str) -> GatewayFixture {
    let place = GatewayFixture::with("", RULES);
    let more = format!(
        "{more}agents_dir: rooms\nmodel: {{ provider: local, id: small-1 }}\nproviders: {{ local: {{ api: openai-completions, base_url: '{}/v1', api_key: k, models: [ {{ id: small-1, context_window: 128000, max_tokens: 8192 }} ] }} }}",
        place.service.url
    );
    place.write("config.yaml", &place.config(&more));
    place
}

/// Has a run work to its end on what the model wants.
fn run(place: &GatewayFixture, gateway: &Gateway, command: &str) {
    run_of(place, gateway, command, &[]);
}

/// The same for somebody who shows who they are.
fn run_of(place: &GatewayFixture, gateway: &Gateway, command: &str, shown: &[(&str, &str)]) {
    let asked = place.service.count(MODEL);
    place.service.does(MODEL, bash(command));
    let body = json!({ "message": "go" });
    let opened = ask(&gateway.address, ("POST", "/api/v1/sessions"), shown, Some(&body)).unwrap();
    assert_eq!(opened.status, 201, "{opened:?}");
    let session = format!("/api/v1/sessions/{}", opened.body["id"].as_str().unwrap());
    // A model that wants nothing more ends the run.
    place.service.wait(MODEL, asked + 1);
    place.service.does(MODEL, say("done"));
    eventually("the end of the run", || {
        let told = ask(&gateway.address, ("GET", &session), shown, None).unwrap();
        (told.body["state"] == "resting").then_some(())
    });
}

#[test]
fn a_command_of_a_run_can_approve_nothing_and_a_person_over_the_same_port_can() {
    let place = place();
    let gateway = Gateway::start(&place);
    let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
    agent.request(1, "turn", json!({ "thing": "door" }));
    let gate = place.gate();
    let room = place.folder.join("rooms/main");
    fs::create_dir_all(&room).unwrap();
    std::os::unix::fs::symlink(place.data(), room.join("here")).unwrap();
    let port = gateway.address.rsplit_once(':').unwrap().1;
    let post = |path: &str| {
        format!(
            "exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'POST {path} HTTP/1.1\\r\\nhost: 127.0.0.1\\r\\ncontent-length: 0\\r\\nconnection: close\\r\\n\\r\\n' >&3"
        )
    };
    let allow = format!("/api/v1/gates/{gate}/allow");
    let countersign = binary().display();
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
        // It does not wait for what it is told.
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
        let told = fs::read_to_string(room.join(file)).unwrap();
        assert!(told.starts_with(status) && told.contains(TOLD), "{file}: {told}");
    }
    for file in ["list.txt", "allow.txt"] {
        let told = fs::read_to_string(room.join(file)).unwrap();
        assert!(told.contains(TOLD) && !told.contains("turn(door)"), "{file}: {told}");
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
    let told = ask(&gateway.address, ("POST", &allow), &[], Some(&json!({}))).unwrap();
    assert_eq!((told.status, &told.body["resolution"]), (200, &json!("allowed")), "{told:?}");
    assert_eq!(agent.reply(&json!(1))["result"]["status"], "executed");
    // So is a person's command line.
    agent.request(2, "turn", json!({ "thing": "window" }));
    place.allow(&place.gate());
    assert_eq!(agent.reply(&json!(2))["result"]["status"], "executed");
}

/// A browser sends it to every port of the same name, also to one at which an agent serves something.
#[test]
fn a_persons_login_opens_nothing_for_a_command() {
    let place = place_with("web: { password: correct-horse }\n");
    let gateway = Gateway::start(&place);
    let http = Http::new(&gateway.address);
    let login = http.post("/api/auth/login", &json!({ "password": "correct-horse" }));
    let cookie = login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let port = gateway.address.rsplit_once(':').unwrap().1;
    let get = |path: &str, file: &str| {
        format!(
            "exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET {path} HTTP/1.1\\r\\nhost: 127.0.0.1\\r\\ncookie: {cookie}\\r\\nconnection: close\\r\\n\\r\\n' >&3; cat <&3 >{file}"
        )
    };
    let paths = ["/api/sessions", "/api/v1/gates", "/console/policy", "/api/sessions/events", "/api/auth/status"];
    let told = |index: usize| fs::read_to_string(place.folder.join(format!("rooms/main/{index}.txt"))).unwrap();
    for (index, path) in paths.iter().enumerate() {
        run_of(&place, &gateway, &get(path, &format!("{index}.txt")), &[("cookie", &cookie)]);
        let (told, is_for_all) = (told(index), *path == "/api/auth/status");
        assert_eq!(told.starts_with("HTTP/1.1 403 "), !is_for_all, "{path}: {told}");
        let says = if is_for_all { "\"logged_in\":false" } else { "for which nobody's login opens anything" };
        assert!(told.contains(says), "{path}: {told}");
    }
    let known = http.with("cookie", &cookie);
    for path in ["/api/sessions", "/api/v1/gates", "/console/policy"] {
        assert_eq!(known.get(path).status, 200, "{path}");
    }
}

#[test]
fn what_a_wrapper_started_before_it_became_the_gateway_is_nobodys_command() {
    let place = place();
    let mut wrapper = Command::new("bash");
    let usual = place.command();
    wrapper.envs(usual.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(&place.folder);
    // It stays until it is told what to ask for, and then asks over the port.
    let script =
        "(until [ -e ask ]; do sleep 0.02; done; . ./ask) & echo $! > side; exec \"$0\" serve --config config.yaml";
    wrapper.args(["-c", script]).arg(binary());
    wrapper.process_group(0);
    let gateway = Gateway::spawn(wrapper);
    let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
    agent.request(1, "turn", json!({ "thing": "door" }));
    let gate = place.gate();
    // An exec child ends, and one of its commands lives on in its shell.
    let room = place.folder.join("rooms/main");
    run(&place, &gateway, "kill -9 $PPID");
    run(&place, &gateway, "echo there > there");
    assert!(room.join("there").exists());
    let side = fs::read_to_string(place.folder.join("side")).unwrap();
    assert!(Path::new("/proc").join(side.trim()).join("cwd").exists(), "it was killed");
    let port = gateway.address.rsplit_once(':').unwrap().1;
    place.write(
        "ask.new",
        &format!(
            "exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'POST /api/v1/gates/{gate}/allow HTTP/1.1\\r\\nhost: 127.0.0.1\\r\\ncontent-length: 0\\r\\nconnection: close\\r\\n\\r\\n' >&3; cat <&3 > told.new; mv told.new told\n"
        ),
    );
    fs::rename(place.folder.join("ask.new"), place.folder.join("ask")).unwrap();
    let told = eventually("it was told", || fs::read_to_string(place.folder.join("told")).ok());
    assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
    assert_eq!(agent.reply(&json!(1))["result"]["status"], "executed");
}

#[test]
fn what_an_earlier_command_left_in_a_variable_is_asked_about() {
    let left = || provider::bash("c1", "for x in ../../config.yaml; do echo; done");
    let taken = || provider::bash("c2", "cat \"$x\"");
    let apart = vec![vec![left()], vec![taken()]];
    // Both are judged before either begins, and the second again when it does.
    let together = vec![vec![left(), taken()]];
    for messages in [apart, together] {
        let scene = GatewayOptions::for_models().config("").create();
        let allowed =
            ["bash(echo*)", "bash(cat *)"].map(|pattern| format!("  - {{ pattern: '{pattern}', action: allow }}\n"));
        scene.write("permissions.yaml", &format!("rules:\n{}", allowed.concat()));
        let gateway = scene.start();
        let replies = messages.into_iter().map(provider::Reply::new);
        scene.provider.script(replies.chain([provider::say("done")]));
        ask(&gateway.address, ("POST", "/api/v1/sessions"), &[], Some(&json!({ "message": "go" }))).unwrap();
        let gate = scene.gate();
        let shown = scene.people(&["gates", "show", &gate]).out;
        assert!(shown.contains("an earlier line of this shell may have set"), "{shown}");
        assert_eq!(scene.people(&["gates", "deny", &gate]).code, Some(0));
    }
}
