//! Sessions of gjc hosts that live in a gateway.

use std::{fs, process::Stdio};

use serde_json::{Value, json};

use crate::{
    gateway::Gateway,
    place::Place,
    provider::{Reply, bash, say},
    speaking::{event, events, start},
};

#[test]
fn an_attached_session_is_decided_at_the_gateway_and_taken_up_again() {
    let place = Place::asking();
    let folder = place.home.join("gate");
    fs::create_dir(&folder).unwrap();
    let config = "gateway: { host: 127.0.0.1, port: 0 }\nstorage: { type: sqlite, path: data/countersign.db }\n";
    fs::write(folder.join("config.yaml"), config).unwrap();
    let mut serve = place.command();
    serve.args(["serve", "--config", "gate/config.yaml"]);
    let _gateway = Gateway::spawn(serve);
    let data = folder.join("data");
    let people = |arguments: &[&str]| -> Value {
        let mut command = place.command();
        command.args(arguments).arg("--data").arg(&data).arg("--json").stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let attach = format!("--attach={}", data.display());
    let mut host = start(&place, &[&attach]);
    let session = host.state()["sessionId"].take();
    place.provider.script([Reply::new(vec![bash("k", "touch ran")]), say("done")]);
    let from = host.prompt("go");
    host.dialog(from);
    let gates = people(&["gates", "list"]);
    assert_eq!(
        (&gates[0]["door"], &gates[0]["session"], gates.as_array().unwrap().len()),
        (&json!("gjc"), &session, 1)
    );
    host.kill();
    let mut host = start(&place, &[&attach, "--continue"]);
    assert_eq!(host.state()["sessionId"], session);
    host.dialog(0);
    people(&["gates", "allow", gates[0]["id"].as_str().unwrap()]);
    event(&host, 0, "agent_end");
    assert!(place.get("ran").is_some(), "it ran in the host's working folder");
    let told = events(&host, 0);
    assert!(told.iter().all(|event| event["session_id"] == session), "{told:?}");
    host.write(b"{\"id\":\"l\",\"type\":\"set_session_name\",\"name\":\"a\xffb\"}\n");
    host.wait(0, "the line that is no text", |frame| frame["id"] == "l" && frame["success"] == true);
    assert_eq!(host.state()["sessionName"], "a\u{fffd}b");
    host.close_cleanly();
}
