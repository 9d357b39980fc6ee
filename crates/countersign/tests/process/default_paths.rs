//! A gateway, and the commands about it, in the folder where its files lie and nothing is named.

use std::{fs, os::unix::fs::symlink};

use countersign_testkit::process::{
    AGENT_TOKEN, CommandOutput, GatewayFixture, GatewayServer, RULES, agent_gate::AgentClient, binary_path, run_command,
};
use serde_json::json;

#[test]
fn the_configuration_of_the_folder_is_read_where_none_is_named() {
    let place = GatewayFixture::new();
    let name = place.folder.join("agentpass");
    symlink(binary_path(), &name).unwrap();
    for (binary, arguments) in [(None, &["serve"][..]), (Some(&name), &[]), (Some(&name), &["--insecure"])] {
        let mut command = binary.map_or_else(|| place.binary_command(), |name| place.command_at(name));
        command.args(arguments);
        let mut gateway = GatewayServer::spawn(command);
        let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
        agent.request_tool(1, "turn", json!({ "thing": "door" }));
        place.wait_gate();
        // The commands about it find the same one.
        let listed = place.run(&["gates", "list", "--json"]).json();
        assert_eq!(listed[0]["subject"], "turn(door, )", "{listed}");
        place.deny_gate(listed[0]["id"].as_str().unwrap());
        assert_eq!(gateway.stop().code, Some(0), "{arguments:?}");
        fs::remove_dir_all(place.data_dir()).unwrap();
    }
    let shown = place.run(&["config", "show", "--json"]).json();
    assert_eq!(shown["agents"][1]["id"], "kitchen", "{shown}");
    assert_eq!(place.run(&["agents", "list", "--json"]).code, Some(0));
    // A named data directory is the one that counts.
    let elsewhere = place.run(&["gates", "list", "--data", "elsewhere"]);
    let missing = format!("the data directory {}, which does not exist", place.folder.join("elsewhere").display());
    assert!(elsewhere.code == Some(1) && elsewhere.err.contains(&missing), "{elsewhere:?}");
    place.write_file("config.yaml", "gatway: 1\n");
    let refused = place.run(&["serve"]);
    assert!(refused.code == Some(1) && refused.err.contains("config.yaml:1: gatway: unknown key"), "{refused:?}");
    let mut doctor = place.command_at(&name);
    doctor.arg("doctor");
    assert!(run_command(doctor).out.contains("config.yaml:1: gatway"), "every command is known under either name");
}

#[test]
fn a_gateway_for_nobody_and_nothing_says_so() {
    let place = GatewayFixture::new();
    let config = fs::read_to_string(place.folder.join("config.yaml")).unwrap();
    let without = |key: &str| {
        let lines =
            config.lines().filter(|line| !line.starts_with(key) && (key != "services:" || !line.starts_with(' ')));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    for (config, want) in [
        (None, "no configuration is loaded (no --config, and no config.yaml in this folder): there is no agent"),
        (Some("gateway: { port: 0 }\n".to_owned()), "config.yaml configures no agent, no service and no messenger"),
        (Some(without("services:")), "no service is configured"),
        (Some(without("agent")), "no agent is configured"),
    ] {
        let place = GatewayFixture::with_config_and_rules("", RULES);
        match config {
            Some(config) => drop(place.write_file("config.yaml", &config)),
            None => fs::remove_file(place.folder.join("config.yaml")).unwrap(),
        }
        let mut command = place.binary_command();
        command.args(["serve", "--port", "0"]);
        let gateway = GatewayServer::spawn(command);
        gateway.wait_for_log(want);
    }
    let gateway = GatewayServer::start(&place);
    let log = gateway.log_text();
    assert!(!log.contains("no agent") && !log.contains("no service"), "{log}");
}

#[test]
fn an_empty_token_or_address_is_reported_as_empty() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let asks = |url: &str, token: &str| {
        let mut command = place.binary_command();
        command.arg("tools").env("AGENTPASS_URL", url).env("AGENT_TOKEN", token);
        run_command(command)
    };
    let assert_error = |output: CommandOutput, what: &str| {
        assert!(output.code == Some(3) && output.err.contains(what), "{what}: {output:?}")
    };
    assert_error(asks(&gateway.websocket_url(), ""), "the token is empty: AGENT_TOKEN");
    assert_error(asks(&gateway.websocket_url(), " "), "the token is empty: AGENT_TOKEN");
    assert_error(asks("", AGENT_TOKEN), "the address is empty: AGENTPASS_URL");
    assert_error(place.run(&["tools", "--url", &gateway.websocket_url(), "--token", ""]), "the token is empty");
    place.write_file("config.yaml", "agent: { token: \"${AGENT_TOKEN}\" }\n");
    let mut serve = place.binary_command();
    serve.args(["serve"]).env("AGENT_TOKEN", "");
    let refused = run_command(serve);
    assert!(
        refused.code == Some(1) && refused.err.contains("the environment variable AGENT_TOKEN is empty"),
        "{refused:?}"
    );
}
