//! Commands in a sandbox, as a host and its model see them.

use std::{io::Write as _, net::TcpListener, thread};

use countersign_testkit::process::{
    HostFixture,
    provider::{ProviderReply, ReplyPart, bash_part, call_part, text_reply},
    sandbox_gap,
};
use serde_json::{Value, json};

/// No folders for temporary files: the places of a test lie in one.
const CONFIG: &str = "countersign: { sandbox: { temporary: [], network: off } }\n";

/// Has the model request `part` and returns the result that it got.
fn call_result(place: &HostFixture, part: ReplyPart, answer: Option<&Value>) -> String {
    let mut host = place.start(&[]);
    place.provider.script_replies([ProviderReply::new(vec![part]), text_reply("done")]);
    let from = host.send_prompt("go");
    if let Some(answer) = answer {
        let dialog = host.wait_dialog(from);
        let shown = dialog.to_string();
        assert!(shown.contains("needs more than the sandbox gives: to write to "), "{shown}");
        assert_eq!(dialog["method"], "confirm", "it is offered once: {shown}");
        host.answer_dialog(&dialog, answer.clone());
    }
    host.wait_settled(from);
    host.close_cleanly();
    place.provider.last_request().call_result("k").unwrap()
}

#[test]
fn a_command_is_held_and_asks_for_exactly_what_it_needs() {
    let place = HostFixture::with_config(CONFIG);
    let outside = place.home.join("made");
    let command = format!("echo a >{}", outside.display());
    let result = call_result(&place, bash_part("k", &command), None);
    if let Some(lacks) = sandbox_gap() {
        assert!(result.contains("no command is run here") && result.contains(&lacks), "{result}");
        assert!(!outside.exists());
        return;
    }
    assert!(result.contains("Permission denied") && result.contains("call again with needs"), "{result}");
    assert!(!outside.exists());
    // The analysis of the text of a command does not matter: the kernel knows the file.
    let hidden =
        format!("d={}; echo a >$d/age''nt/planted; cat $d/agent/*.yml", place.agent.parent().unwrap().display());
    call_result(&place, bash_part("k", &hidden), None);
    assert!(!place.agent.join("planted").exists());

    let needs = json!({ "command": command, "needs": { "write": [place.home] } });
    call_result(&place, call_part("k", "bash", &needs), Some(&json!({ "confirmed": false })));
    assert!(!outside.exists());
    call_result(&place, call_part("k", "bash", &needs), Some(&json!({ "confirmed": true })));
    assert!(outside.exists());
    let again = call_result(&place, bash_part("k", &format!("echo b >>{}", outside.display())), None);
    assert!(again.contains("Permission denied"), "{again}");
}

/// Starts a server that answers every client, once named hosts can be shown here.
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
fn the_host_is_asked_about_a_machine_while_the_command_waits() {
    for (confirmed, want) in [(true, "here"), (false, "a person refused it")] {
        let place = HostFixture::with_config("countersign: { sandbox: { network: { hosts: [crates.io] } } }\n");
        let mut host = place.start(&[]);
        let address = format!("127.0.0.1:{}", server());
        let command = format!(
            "p=${{http_proxy#http://}}; exec 3<>/dev/tcp/${{p/://}} && printf 'GET http://{address}/ HTTP/1.1\\r\\n\\r\\n' >&3 && cat <&3"
        );
        place
            .provider
            .script_replies([ProviderReply::new(vec![bash_part("first", "echo $http_proxy")]), text_reply("done")]);
        let from = host.send_prompt("is there one?");
        host.wait_settled(from);
        if !place.provider.last_request().call_result("first").unwrap().contains("http://127.0.0.1:") {
            return;
        }
        place.provider.script_replies([ProviderReply::new(vec![bash_part("k", &command)]), text_reply("done")]);
        let from = host.send_prompt("go");
        let dialog = host.wait_dialog(from);
        assert_eq!(dialog["method"], "confirm", "{dialog}");
        let message = dialog["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("May this command reach {address} while it runs?")), "{message}");
        assert!(message.contains("cat <&3") && message.contains("sandbox.network.hosts"), "{message}");
        host.answer_dialog(&dialog, json!({ "confirmed": confirmed }));
        host.wait_settled(from);
        host.close_cleanly();
        let result = place.provider.last_request().call_result("k").unwrap();
        assert!(result.contains(want), "{result}");
    }
}

#[test]
fn a_question_whose_command_has_ended_is_taken_away_from_the_host() {
    let place = HostFixture::with_config("countersign: { sandbox: { network: { hosts: [crates.io] } } }\n");
    let mut host = place.start(&[]);
    place
        .provider
        .script_replies([ProviderReply::new(vec![bash_part("first", "echo $http_proxy")]), text_reply("done")]);
    let from = host.send_prompt("is there one?");
    host.wait_settled(from);
    if !place.provider.last_request().call_result("first").unwrap().contains("http://127.0.0.1:") {
        return;
    }
    let command = "p=${http_proxy#http://}; exec 3<>/dev/tcp/${p/://}; \
         printf 'CONNECT 192.0.2.1:443 HTTP/1.1\\r\\n\\r\\n' >&3; until [ -e go ]; do sleep 0.1; done; echo over";
    place.provider.script_replies([ProviderReply::new(vec![bash_part("k", command)]), text_reply("done")]);
    let from = host.send_prompt("go");
    let dialog = host.wait_dialog(from);
    place.write_file("go", "");
    let taken = host.wait_frame(from, "the end of the dialog", |frame| frame["method"] == "cancel");
    assert_eq!((&taken["type"], &taken["targetId"]), (&"extension_ui_request".into(), &dialog["id"]), "{taken}");
    host.wait_settled(from);
    host.close_cleanly();
    let result = place.provider.last_request().call_result("k").unwrap();
    assert!(result.contains("over") && result.contains("gave up before a person had answered"), "{result}");
}

#[test]
fn files_are_changed_where_commands_may_change_them() {
    let place = HostFixture::with_config(CONFIG);
    for (path, is_made) in [(place.work.join("made"), true), (place.home.join("made"), false)] {
        let result = call_result(&place, call_part("k", "write", &json!({ "path": path, "content": "a" })), None);
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
        bash_part("k", &format!("echo a >{}; grep NoNewPrivs: /proc/self/status", outside.display())),
        None,
    );
    assert!(outside.exists() && result.contains("NoNewPrivs:\t0"), "{result}");
}
