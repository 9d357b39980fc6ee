//! Lookup of the gateway by the commands.

use std::{fs, os::unix::fs::PermissionsExt as _};

use countersign_testkit::process::{
    AGENT_TOKEN, CommandOutput, GatewayFixture, GatewayServer, RULES, agent_gate::AgentClient, eventually, run_command,
};
use serde_json::json;

/// Runs with nothing in the environment that the configuration could need.
fn run(place: &GatewayFixture, arguments: &[&str]) -> CommandOutput {
    let mut command = place.binary_command();
    command.args(arguments).env_remove("SERVICE_TOKEN");
    run_command(command)
}

#[test]
fn a_gateway_is_found_by_its_configuration_or_its_data_before_and_behind_the_subcommand() {
    let place = GatewayFixture::new();
    let config = place.config_text("").replace("data/countersign.db", "state/decisions.db");
    place.write_file("config.yaml", &config.replace("token: sec-service-77f0", "token: \"${SERVICE_TOKEN}\""));
    let mut command = place.binary_command();
    command.args(["serve", "--config", "config.yaml"]).env("SERVICE_TOKEN", "s");
    let mut gateway = GatewayServer::spawn(command);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let by_data = ["--data", "state"];
    let ways: [&[&str]; 4] = [
        &["--config", "config.yaml", "gates", "list", "--json"],
        &["gates", "--config", "config.yaml", "list", "--json"],
        &["gates", "list", "--json", "--config", "config.yaml"],
        &["gates", "list", "--json", "--config", "nowhere/../config.yaml", "--data", "state"],
    ];
    fs::create_dir(place.folder.join("nowhere")).unwrap();
    eventually("the gate", || {
        let output = run(&place, &[&["gates", "list", "--json"][..], &by_data].concat());
        (output.code == Some(0) && output.json().as_array().unwrap().len() == 1).then_some(())
    });
    for way in ways {
        let output = run(&place, way);
        assert_eq!(
            (output.code, output.json()[0]["subject"].clone()),
            (Some(0), json!("turn(door, )")),
            "{way:?}: {output:?}"
        );
    }
    assert_eq!(run(&place, &["--config", "config.yaml", "grants", "list"]).out, "No standing approvals.\n");
    drop(agent);
    gateway.stop();
    // No gateway runs, and the record is read: under the name that the configuration gives it.
    for way in ways {
        assert_eq!(run(&place, way).json()[0]["subject"], json!("turn(door, )"), "{way:?}");
    }
    let tail = run(&place, &["--data", "state", "audit", "tail", "--config", "config.yaml"]);
    assert!(tail.out.contains("waiting for an approver: turn(door, )"), "{tail:?}");
}

#[test]
fn a_record_that_is_not_there_is_named_once() {
    let place = GatewayFixture::new();
    for arguments in [&["gates", "list"][..], &["grants", "list"]] {
        let output = run(&place, &[arguments, &["--config", "config.yaml"]].concat());
        assert_eq!((output.code, output.err.matches("data directory").count()), (Some(1), 1), "{output:?}");
        let want = "data, which does not exist (from config.yaml): start one with `countersign serve --config /";
        assert!(output.err.contains(want), "{output:?}");
    }
    for arguments in [&["audit", "tail"][..], &["sessions", "list"]] {
        let output = run(&place, &[arguments, &["--config", "config.yaml"]].concat());
        assert_eq!((output.code, output.err.matches("countersign.db").count()), (Some(1), 1), "{output:?}");
        assert!(output.err.contains("data/countersign.db does not exist: start `countersign serve`, or"), "{output:?}");
        let named = run(&place, &[arguments, &["--log", "none.db"]].concat());
        assert_eq!((named.code, named.err.as_str()), (Some(1), "countersign: none.db does not exist\n"));
    }
    assert!(!place.data_dir().exists());
    place.write_file("plain", "");
    for arguments in [&["gates", "list"][..], &["tokens", "list"], &["secret", "list"], &["restore", "kept"]] {
        let output = run(&place, &[arguments, &["--data", "plain"]].concat());
        assert!(output.code == Some(1) && output.err.contains("plain is a file, not a folder"), "{output:?}");
    }
    let output = run(&place, &["gates", "allow", "zzzzzzzz", "--for", "8h"]);
    assert!(output.code == Some(2) && output.err.contains("--for needs --scope session or always"), "{output:?}");
    let wrong = run(&place, &["gates", "list", "--config", "other.yaml"]);
    assert_eq!((wrong.code, wrong.err.contains("other.yaml: cannot be read: file not found")), (Some(1), true));
    place.write_file("config.yaml", "storage: { type: tape }\n");
    let wrong = run(&place, &["gates", "list", "--config", "config.yaml"]);
    assert_eq!((wrong.code, wrong.err.contains("config.yaml:1: storage.type")), (Some(1), true), "{wrong:?}");
}

#[test]
fn a_configuration_of_another_program_in_the_folder_is_named() {
    let place = GatewayFixture::new();
    place.write_file("config.yaml", "title: My site\nstorage: { path: site/x.db }\nport: 80\n");
    for arguments in [
        &["gates", "list"][..],
        &["grants", "list"],
        &["audit", "tail"],
        &["tokens", "list"],
        &["log-level"],
        &["mcp"],
        &["agents", "add", "desk"],
        &["mcp-servers", "revoke", "files"],
    ] {
        let output = run(&place, arguments);
        let want =
            "config.yaml is no configuration of Countersign, or has an error: unknown sections `title`, `port`; ";
        assert!(output.code == Some(1) && output.err.contains(want), "{arguments:?}: {output:?}");
        let file = place.folder.join("config.yaml").display().to_string();
        assert!(output.err.contains(&file) && output.err.contains("with --config or --data"), "{output:?}");
        let named = run(&place, &[arguments, &["--data", "state"]].concat());
        assert!(!named.err.contains("config.yaml"), "{arguments:?}: {named:?}");
    }
}

#[test]
fn a_data_directory_is_named_with_its_source() {
    let place = GatewayFixture::new();
    let data = place.folder.join("data").display().to_string();
    let watch = |arguments: &[&str]| run(&place, &[&["gates", "watch"], arguments].concat()).err;
    for (arguments, path, source) in [
        (&[][..], data.as_str(), "from config.yaml in this folder"),
        (&["--config", "./config.yaml"], &data, "from ./config.yaml"),
        (&["--data", "data"], &data, "from --data"),
    ] {
        let want =
            format!("no gateway runs with the data directory {path}, which does not exist ({source}): start one");
        let error = watch(arguments);
        assert!(error.contains(&want) && error.contains("select another with --config or --data"), "{error}");
    }
    fs::remove_file(place.folder.join("config.yaml")).unwrap();
    let error = watch(&[]);
    assert!(error.contains("(the default of this user): start one"), "{error}");
}

#[test]
fn an_error_in_a_configuration_does_not_hide_the_gateway_that_runs() {
    let place = GatewayFixture::new();
    let _gateway = GatewayServer::start(&place);
    let config = fs::read_to_string(place.folder.join("config.yaml")).unwrap();
    place.write_file("config.yaml", &format!("{config}\nretntion: {{}}\n"));
    let output = run(&place, &["gates", "list"]);
    assert_eq!(output.code, Some(0), "{output:?}");
}

#[test]
fn a_record_in_which_a_running_gateway_has_recorded_nothing_is_empty() {
    let place = GatewayFixture::new();
    let _gateway = GatewayServer::start(&place);
    if place.log_path().exists() {
        return;
    }
    let run = |arguments: &[&str]| run(&place, &[arguments, &["--config", "config.yaml"]].concat());
    let head = format!("1:{}", "0".repeat(64));
    let text = "countersign: the record is empty: the gateway has recorded nothing yet\n";
    for (arguments, code) in [
        (&["audit", "tail"][..], 0),
        (&["audit", "verify"], 0),
        (&["audit", "verify", "--head", head.as_str()], 1),
        (&["sessions", "show", "x"], 1),
    ] {
        let output = run(arguments);
        assert_eq!((output.code, output.out.as_str(), output.err.as_str()), (Some(code), "", text), "{arguments:?}");
    }
    let output = run(&["sessions", "list"]);
    assert_eq!((output.code, output.out.as_str(), output.err.as_str()), (Some(0), "No sessions.\n", ""));
}

#[test]
fn a_data_directory_of_another_user_is_named_as_such() {
    let place = GatewayFixture::new();
    fs::create_dir(place.data_dir()).unwrap();
    fs::set_permissions(place.data_dir(), fs::Permissions::from_mode(0o000)).unwrap();
    // Root may read every folder.
    if fs::read_dir(place.data_dir()).is_err() {
        for arguments in [&["gates", "list"][..], &["gates", "watch"], &["grants", "list"]] {
            let output = run(&place, &[arguments, &["--config", "config.yaml"]].concat());
            let want = "data: permission denied; run as the user of the gateway, or add this user";
            assert_eq!((output.code, output.err.contains(want)), (Some(1), true), "{arguments:?}: {output:?}");
        }
    }
    fs::set_permissions(place.data_dir(), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_command_that_is_about_no_gateway_takes_no_place() {
    let place = GatewayFixture::with_config_and_rules("", RULES);
    let output = run(&place, &["--data", "x", "demo", "--no"]);
    assert_eq!((output.code, output.out.as_str()), (Some(2), ""), "{output:?}");
}
