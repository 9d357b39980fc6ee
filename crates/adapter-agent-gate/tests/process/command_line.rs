//! The agent's own command line, under both of its names, and its files.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use countersign_testkit::process::{
    AGENT_TOKEN, CommandOutput, GatewayFixture, GatewayServer, KITCHEN_TOKEN, RULES, SERVICE_TOKEN,
    agent_gate::AgentClient, binary_path, eventually, run_command, service::ServiceBehavior,
};
use serde_json::{Value, json};

fn run_agent(place: &GatewayFixture, gateway: &GatewayServer, arguments: &[&str]) -> CommandOutput {
    let mut command = place.binary_command();
    command.args(arguments).env("AGENTPASS_URL", gateway.websocket_url()).env("AGENT_TOKEN", AGENT_TOKEN);
    run_command(command)
}

#[test]
fn each_end_has_its_exit_code_and_its_words() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    place.service.set_behavior("/look/gone", ServiceBehavior::Answer(404, "application/json", String::new()));
    let done = |value: Value| format!("{value:#}\n");
    for (case, arguments, code, out, err) in [
        ("done", &["request", "look", "thing=a"][..], 0, done(json!({ "did": "/look/a" })), ""),
        (
            "wrapped",
            &["request", "turn", "thing=lamp", "way=a=b"],
            0,
            done(json!({ "result": { "did": "/turn/lamp" } })),
            "",
        ),
        ("denied", &["request", "turn", "thing=lock"], 1, String::new(), "Error: Denied (-32003): Denied by policy\n"),
        (
            "failed",
            &["request", "look", "thing=gone"],
            1,
            String::new(),
            "Error: Gateway error (-32004): Resource not found\n",
        ),
        (
            "not as declared",
            &["request", "look", "thing=A"],
            1,
            String::new(),
            "Error: Gateway error (-32600): Invalid value for thing: 'A'\n",
        ),
    ] {
        let output = run_agent(&place, &gateway, arguments);
        let (message, reason) = output.err.split_once("Reason: ").unwrap_or((&output.err, ""));
        assert_eq!((output.code, output.out.as_str(), message), (Some(code), out.as_str(), err), "{case}");
        assert_eq!(reason.contains("turn(lock*") && reason.lines().count() == 1, case == "denied", "{reason}");
    }
    let turned = place.service.received_requests().into_iter().find(|request| request.path == "/turn/lamp").unwrap();
    assert_eq!(turned.body, json!({ "way": "a=b" }));
    for (case, arguments, code) in [
        ("nobody answers in time", &["request", "turn", "thing=door", "--timeout", "0.1"][..], 2),
        ("no tool", &["request"], 2),
        ("an unknown flag", &["tools", "--nope"], 2),
        ("nobody listens", &["tools", "--url", "ws://127.0.0.1:1"], 3),
        ("no address", &["tools", "--url", "nonsense"], 3),
        ("a wrong token", &["tools", "--token", "wrong"], 3),
        ("an argument without a value", &["request", "look", "thing"], 4),
        ("an argument without a name", &["request", "look", "=a"], 4),
    ] {
        let output = run_agent(&place, &gateway, arguments);
        assert_eq!(
            (output.code, output.out.as_str(), output.err.is_empty()),
            (Some(code), "", false),
            "{case}: {output:?}"
        );
    }
    for arguments in [&["tools", "--url", &gateway.websocket_url()][..], &["tools", "--token", AGENT_TOKEN]] {
        assert_eq!(place.run(arguments).code, Some(3), "{arguments:?}");
    }
}

#[test]
fn an_approval_that_timed_out_ends_with_2_and_a_denial_with_1() {
    let place = GatewayFixture::with_config_and_rules("approval_timeout: 1", RULES);
    let gateway = GatewayServer::start(&place);
    let output = run_agent(&place, &gateway, &["request", "turn", "thing=door"]);
    assert_eq!((output.code, output.err.contains("(-32002): Approval timed out")), (Some(2), true), "{output:?}");
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut command = place.binary_command();
    command.args(["request", "turn", "thing=door", "--url", &gateway.websocket_url(), "--token", AGENT_TOKEN]);
    let asking = std::thread::spawn(move || run_command(command));
    let gate = place.wait_gate();
    let second = place.run(&["tools", "--url", &gateway.websocket_url(), "--token", AGENT_TOKEN]);
    assert_eq!(
        (second.code, second.err.contains("`countersign agents add NAME --config FILE`")),
        (Some(3), true),
        "{second:?}"
    );
    let denial = place.run_as_person(&["gates", "deny", &gate, "--reason", "they\nsleep"]);
    assert_eq!(denial.code, Some(0), "{denial:?}");
    let output = asking.join().unwrap();
    let (error, reason) = output.err.split_once('\n').unwrap();
    assert_eq!((output.code, error), (Some(1), "Error: Denied (-32001): Denied by user"), "{output:?}");
    assert!(
        reason.starts_with("Reason: Denied by local:")
            && reason.contains(": they; sleep;")
            && reason.lines().count() == 1,
        "{output:?}"
    );
}

#[test]
fn a_request_for_an_unknown_tool_is_refused() {
    let place = GatewayFixture::with_config_and_rules("", "rules: [ { pattern: 'turn(lock*', action: deny } ]");
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "trun", json!({ "thing": "door" }));
    let gate = place.wait_gate();
    let shown = place.run_as_person(&["gates", "show", &gate]);
    assert!(shown.out.contains("this gateway has no tool trun: allowing it runs nothing"), "{shown:?}");
    assert!(!shown.out.contains("--scope always"), "{shown:?}");
    place.allow_gate(&gate);
    assert!(agent.wait_reply(&json!(1)).to_string().contains("Unknown tool: trun"));
}

#[test]
fn tools_and_missed_results_are_printed_as_json() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let tools = run_agent(&place, &gateway, &["tools"]);
    assert_eq!(tools.code, Some(0), "{tools:?}");
    assert_eq!(tools.json()[0]["name"], "look");
    assert!(tools.out.starts_with("[\n  {\n    \""), "{}", tools.out);
    let pending = |want: Value| {
        let output = run_agent(&place, &gateway, &["pending"]);
        assert_eq!((output.code, output.json()), (Some(0), want), "{output:?}");
    };
    pending(json!([]));
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool("x", "turn", json!({ "thing": "door" }));
    let gate = place.wait_gate();
    drop(agent);
    place.allow_gate(&gate);
    place.wait_gates(0);
    place.service.wait_requests("/turn/door", 1);
    let missed = eventually("the result", || {
        let output = run_agent(&place, &gateway, &["pending"]);
        let rows = output.json().as_array().unwrap().clone();
        (!rows.is_empty()).then_some(rows)
    });
    // The id of its command is new, so that the reply to the own id follows: the row has the gate's.
    assert_eq!((missed.len(), &missed[0]["request_id"], &missed[0]["tool_name"]), (1, &json!(gate), &json!("turn")));
    pending(json!([]));
}

#[test]
fn an_error_that_was_printed_is_not_listed_as_missed() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    assert_eq!(run_agent(&place, &gateway, &["request", "turn", "thing=lock"]).code, Some(1));
    let output = run_agent(&place, &gateway, &["pending"]);
    assert_eq!((output.code, output.json()), (Some(0), json!([])), "{output:?}");
}

#[test]
fn under_the_name_agentpass_it_serves_and_asks() {
    let place = GatewayFixture::new();
    let name = place.folder.join("agentpass");
    symlink(binary_path(), &name).unwrap();
    let agentpass = |arguments: &[&str]| -> Command {
        let mut command = place.command_at(&name);
        command.args(arguments);
        command
    };
    for arguments in [
        &["--config", "config.yaml", "--permissions", "permissions.yaml"][..],
        &["--insecure", "--config", "config.yaml"],
        &["serve", "--config", "config.yaml"],
    ] {
        let mut gateway = GatewayServer::spawn(agentpass(arguments));
        let url = gateway.websocket_url();
        let allowed = run_command(agentpass(&["request", "look", "thing=a", "--url", &url, "--token", AGENT_TOKEN]));
        assert_eq!((allowed.code, allowed.json()), (Some(0), json!({ "did": "/look/a" })), "{allowed:?}");
        let denied = run_command(agentpass(&["request", "turn", "thing=lock", "--url", &url, "--token", AGENT_TOKEN]));
        assert_eq!(denied.code, Some(1), "{denied:?}");
        assert_eq!(gateway.stop().code, Some(0), "{arguments:?}");
    }
    fs::remove_file(&name).unwrap();
}

#[test]
fn no_token_lies_in_any_file_but_the_configuration() {
    let place = GatewayFixture::new();
    let mut gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let mut kitchen = AgentClient::connect_authenticated(&gateway, KITCHEN_TOKEN);
    // A service that echoes the credential, and a token that is wrong.
    let body = json!({ "authorization": format!("Bearer {SERVICE_TOKEN}") }).to_string();
    place.service.set_behavior("/look/mirror", ServiceBehavior::Answer(200, "application/json", body.clone()));
    place.service.set_behavior("/look/wall", ServiceBehavior::Answer(500, "application/json", body));
    for thing in ["mirror", "wall"] {
        let reply = agent.call_tool(thing, "look", json!({ "thing": thing }));
        assert!(!reply.to_string().contains(SERVICE_TOKEN), "{reply}");
    }
    kitchen.request_tool(1, "turn", json!({ "thing": "door" }));
    place.allow_gate(&place.wait_gate());
    kitchen.wait_reply(&json!(1));
    AgentClient::connect(&gateway).authenticate("wrong-token-33c1");
    drop((agent, kitchen));
    let end = gateway.stop();
    assert_eq!(end.code, Some(0));
    let files = files(&place.folder);
    assert!(files.iter().any(|(name, _)| name.ends_with("countersign.db")), "{files:?}");
    for (name, bytes) in files.iter().filter(|(name, _)| !name.ends_with("config.yaml")) {
        for token in [AGENT_TOKEN, KITCHEN_TOKEN, SERVICE_TOKEN, "wrong-token-33c1"] {
            let is_in = bytes.windows(token.len()).any(|window| window == token.as_bytes());
            assert!(!is_in, "{token} lies in {name}");
        }
    }
    for token in [AGENT_TOKEN, KITCHEN_TOKEN, SERVICE_TOKEN, "wrong-token-33c1"] {
        assert!(!gateway.log_text().contains(token), "{}", gateway.log_text());
    }
    place.verify_log();
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files(&path));
        } else if kind.is_file() {
            found.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
    found
}

#[test]
fn a_closed_pipe_ends_the_output_without_an_error() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    for arguments in [&["tools"][..], &["request", "look", "thing=a"], &["pending"]] {
        let mut command = place.binary_command();
        command.args(arguments).env("AGENTPASS_URL", gateway.websocket_url()).env("AGENT_TOKEN", AGENT_TOKEN);
        let mut child =
            command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!((ended.status.code(), err.as_str()), (Some(0), ""), "{arguments:?}");
    }
    let output = place.run(&["tools", "--url", "http://127.0.0.1:1", "--token", "t"]);
    assert!(output.code == Some(3) && output.err.contains("use ws://127.0.0.1:1"), "{output:?}");
}
