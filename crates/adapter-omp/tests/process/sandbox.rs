//! Commands in a sandbox, as a host and its model see them.

use std::{io::Write as _, net::TcpListener, thread};

use countersign_testkit::process::{
    HostFixture,
    provider::{Part, Reply, bash, call, say},
    sandbox_gap,
};
use serde_json::{Value, json};

/// No folders for temporary files: the places of a test lie in one.
const CONFIG: &str = "countersign: { sandbox: { temporary: [], network: off } }\n";

/// Has the model want `part` and gives what it was told of it.
fn call_result(place: &HostFixture, part: Part, answer: Option<&Value>) -> String {
    let mut host = place.start(&[]);
    place.provider.script([Reply::new(vec![part]), say("done")]);
    let from = host.prompt("go");
    if let Some(answer) = answer {
        let dialog = host.dialog(from);
        let shown = dialog.to_string();
        assert!(shown.contains("needs more than the sandbox gives: to write to "), "{shown}");
        assert_eq!(dialog["method"], "confirm", "it is offered once: {shown}");
        host.reply(&dialog, answer.clone());
    }
    host.settled(from);
    host.close_cleanly();
    place.provider.last().result("k").unwrap()
}

#[test]
fn a_command_is_held_and_asks_for_exactly_what_it_needs() {
    let place = HostFixture::with_config(CONFIG);
    let outside = place.home.join("made");
    let command = format!("echo a >{}", outside.display());
    let result = call_result(&place, bash("k", &command), None);
    if let Some(lacks) = sandbox_gap() {
        assert!(result.contains("no command is run here") && result.contains(&lacks), "{result}");
        assert!(!outside.exists());
        return;
    }
    assert!(result.contains("Permission denied") && result.contains("call again with needs"), "{result}");
    assert!(!outside.exists());
    // What is known of the text of a command does not matter: the kernel knows the file.
    let hidden =
        format!("d={}; echo a >$d/age''nt/planted; cat $d/agent/*.yml", place.agent.parent().unwrap().display());
    call_result(&place, bash("k", &hidden), None);
    assert!(!place.agent.join("planted").exists());

    let needs = json!({ "command": command, "needs": { "write": [place.home] } });
    call_result(&place, call("k", "bash", &needs), Some(&json!({ "confirmed": false })));
    assert!(!outside.exists());
    call_result(&place, call("k", "bash", &needs), Some(&json!({ "confirmed": true })));
    assert!(outside.exists());
    let again = call_result(&place, bash("k", &format!("echo b >>{}", outside.display())), None);
    assert!(again.contains("Permission denied"), "{again}");
}

/// A server that answers every client, once named hosts can be shown here.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let _ = client.unwrap().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nhere");
        }
    });
    port
}

#[test]
fn the_host_is_asked_for_another_machine_while_the_command_waits() {
    for (confirmed, want) in [(true, "here"), (false, "a person refused it")] {
        let place = HostFixture::with_config("countersign: { sandbox: { network: { hosts: [crates.io] } } }\n");
        let mut host = place.start(&[]);
        let address = format!("127.0.0.1:{}", server());
        let command = format!(
            "p=${{http_proxy#http://}}; exec 3<>/dev/tcp/${{p/://}} && printf 'GET http://{address}/ HTTP/1.1\\r\\n\\r\\n' >&3 && cat <&3"
        );
        place.provider.script([Reply::new(vec![bash("first", "echo $http_proxy")]), say("done")]);
        let from = host.prompt("is there one?");
        host.settled(from);
        if !place.provider.last().result("first").unwrap().contains("http://127.0.0.1:") {
            return;
        }
        place.provider.script([Reply::new(vec![bash("k", &command)]), say("done")]);
        let from = host.prompt("go");
        let dialog = host.dialog(from);
        assert_eq!(dialog["method"], "confirm", "{dialog}");
        let message = dialog["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("May this command reach {address} while it runs?")), "{message}");
        assert!(message.contains("cat <&3") && message.contains("sandbox.network.hosts"), "{message}");
        host.reply(&dialog, json!({ "confirmed": confirmed }));
        host.settled(from);
        host.close_cleanly();
        let result = place.provider.last().result("k").unwrap();
        assert!(result.contains(want), "{result}");
    }
}

#[test]
fn a_question_whose_command_has_ended_is_taken_away_from_the_host() {
    let place = HostFixture::with_config("countersign: { sandbox: { network: { hosts: [crates.io] } } }\n");
    let mut host = place.start(&[]);
    place.provider.script([Reply::new(vec![bash("first", "echo $http_proxy")]), say("done")]);
    let from = host.prompt("is there one?");
    host.settled(from);
    if !place.provider.last().result("first").unwrap().contains("http://127.0.0.1:") {
        return;
    }
    let command = "p=${http_proxy#http://}; exec 3<>/dev/tcp/${p/://}; \
         printf 'CONNECT 192.0.2.1:443 HTTP/1.1\\r\\n\\r\\n' >&3; until [ -e go ]; do sleep 0.1; done; echo over";
    place.provider.script([Reply::new(vec![bash("k", command)]), say("done")]);
    let from = host.prompt("go");
    let dialog = host.dialog(from);
    place.put("go", "");
    let taken = host.wait(from, "the end of the dialog", |frame| frame["method"] == "cancel");
    assert_eq!((&taken["type"], &taken["targetId"]), (&"extension_ui_request".into(), &dialog["id"]), "{taken}");
    host.settled(from);
    host.close_cleanly();
    let result = place.provider.last().result("k").unwrap();
    assert!(result.contains("over") && result.contains("gave up before a person had answered"), "{result}");
}

#[test]
fn files_are_changed_where_commands_may_change_them() {
    let place = HostFixture::with_config(CONFIG);
    for (path, is_made) in [(place.work.join("made"), true), (place.home.join("made"), false)] {
        let result = call_result(&place, call("k", "write", &json!({ "path": path, "content": "a" })), None);
        assert_eq!(path.exists(), is_made, "{result}");
        assert_eq!(result.contains("the sandbox lets tools write"), !is_made, "{result}");
    }
}

#[test]
fn without_the_setting_commands_have_the_rights_of_the_user() {
    let place = HostFixture::new();
    let outside = place.home.join("made");
    let result = call_result(
        &place,
        bash("k", &format!("echo a >{}; grep NoNewPrivs: /proc/self/status", outside.display())),
        None,
    );
    assert!(outside.exists() && result.contains("NoNewPrivs:\t0"), "{result}");
}
