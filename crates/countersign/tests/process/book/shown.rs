//! The other pages: what they say to write is accepted, and the commands that they name do what they say.

use std::fs;

use super::{blocks, docs, pages};
use countersign_testkit::process::{
    AGENT_TOKEN, CERTIFICATE, CERTIFICATE_KEY, GatewayFixture, GatewayServer, agent_gate::AgentClient, binary_path,
};

/// Returns blocks of the form `yaml check`, `yaml rules` of all pages, with the page's name.
fn marked(mark: &str) -> Vec<(String, String)> {
    let docs = docs();
    let texts = pages(&docs).into_iter().map(|path| {
        let name = path.strip_prefix(&docs).unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(path).unwrap())
    });
    let of_page = |(name, text): (String, String)| {
        let found = blocks(&text).into_iter().filter(|block| block.head == format!("yaml {mark}"));
        found.map(|block| (name.clone(), block.body)).collect::<Vec<_>>()
    };
    texts.flat_map(of_page).collect()
}

#[test]
fn configurations_that_pages_show_are_accepted() {
    let place = GatewayFixture::new();
    let found = marked("check");
    assert!(found.len() > 4, "{found:?}");
    // The files next to them.
    for (name, pem) in [("cert.pem", CERTIFICATE), ("key.pem", CERTIFICATE_KEY)] {
        place.write_file(name, &fs::read_to_string(pem).unwrap());
    }
    for (page, text) in found {
        place.write_file("shown.yaml", &text);
        let mut command = place.binary_command();
        command.args(["config", "check", "--config", "shown.yaml"]);
        command.env("WEB_PASSWORD", "pw-web-0").env("CLIENT_TOKEN", "tok-clients-0");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{page}: {text}\n{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn rules_that_pages_show_are_accepted() {
    let place = GatewayFixture::with_config_and_rules(
        "people: [{ id: ana, local: [1] }, { id: ben, local: [2] }, { id: cleo, local: [3] }]",
        "",
    );
    let found = marked("rules");
    assert!(found.len() > 2, "{found:?}");
    for (page, text) in found {
        place.write_file("shown.yaml", &text);
        let output = place.run(&["policy", "check", "shown.yaml"]);
        assert_eq!(output.code, Some(0), "{page}: {text}\n{output:?}");
    }
}

/// Returns the commands of a page, with what cannot be had here put in.
fn commands(page: &str) -> String {
    let text = fs::read_to_string(docs().join(page)).unwrap();
    let run = blocks(&text).into_iter().filter(|block| block.head == "sh" && block.why_not.is_none());
    run.map(|block| block.body).collect()
}

fn runs(place: &GatewayFixture, script: &str, environment: &[(&str, &str)]) -> String {
    let mut command = place.command_at("bash".as_ref());
    let binary = binary_path();
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    command.args(["-ec", script]).env("PATH", path).envs(environment.iter().copied());
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}\n{out}\n{err}");
    format!("{out}{err}")
}

#[test]
fn the_commands_of_operations_work() {
    let place = GatewayFixture::new();
    let mut gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.call_tool(serde_json::json!(1), "look", serde_json::json!({ "thing": "lamp" }));
    let script = commands("operations.md");
    let (running, at_rest) = script.split_once("countersign restore ").unwrap();
    let here = |text: &str| text.replace("/var/backups/", "").replace(" --data data\n", " --data restored\n");
    let output = runs(&place, &here(running), &[]);
    assert!(output.contains("cst_") && output.contains("countersign_runtime=debug,warn"), "{output}");
    gateway.stop();
    runs(&place, &here(&format!("countersign restore {at_rest}")), &[]);
    assert!(place.folder.join("restored/countersign.db").exists());
}

#[test]
fn a_program_is_let_in_as_the_page_says() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", serde_json::json!({ "thing": "stove", "way": "on" }));
    let gate = place.wait_gate();
    let script = commands("protocol/api.md").replace("127.0.0.1:8443", &gateway.address);
    let output = runs(&place, &script, &[("GATE", &gate)]);
    assert!(output.contains(&gate), "{output}");
    assert!(agent.wait_reply(&serde_json::json!(1)).to_string().contains("not today"));
}
