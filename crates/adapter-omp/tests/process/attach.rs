//! Sessions that live in a gateway, while their hosts speak to the process that they started.

use std::{
    fs,
    path::{Path, PathBuf},
};

use countersign_testkit::process::{
    AttachFixture, Latch, RpcHost, binary_path, check_chain, eventually,
    http::HttpClient,
    lines_with, message_text, of_type,
    provider::{ProviderReply, ReplyPart, bash_part, call_part, text_part as say_part, text_reply},
    session_id,
};
use serde_json::{Value, json};

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}

#[test]
fn an_approval_of_an_attached_session_is_answered_at_the_gateway() {
    let attached = AttachFixture::new();
    let _gateway = attached.start_gateway();
    let mut host = attached.start_host(&[]);
    let (from, dialog) = attached.ask_about(&mut host, "touch ran");
    let gates = attached.gateway.pending_gates();
    assert_eq!((gates.len(), &gates[0]["door"], &gates[0]["title"]), (1, &json!("omp"), &json!("bash")), "{gates:?}");
    assert_eq!(gates[0]["session"], session_id(&mut host).as_str());
    attached.gateway.allow_gate(gates[0]["id"].as_str().unwrap());
    let frames = host.wait_settled(from);
    let taken_away = frames.iter().find(|frame| frame["method"] == "cancel").expect("the dialog is taken away");
    assert_eq!(taken_away["targetId"], dialog["id"]);
    assert_eq!(host.message_texts().last().unwrap(), "done");
    assert!(attached.host.read_file("ran").is_some(), "it ran in the host's working folder");
    assert_eq!(attached.gateway.pending_gates(), Vec::<Value>::new());
    let file = host.session_file();
    host.close_cleanly();
    lines_with(&file, "done");
    assert_eq!(
        files(&attached.host.agent.join("countersign"), "db"),
        Vec::<PathBuf>::new(),
        "it has no log of its own"
    );
    assert_eq!(attached.home_files().len(), 1);
}

#[test]
fn a_gate_survives_the_gateway_and_its_session_goes_on() {
    let attached = AttachFixture::new();
    let gateway = attached.start_gateway();
    let mut host = attached.start_host(&[]);
    let id = session_id(&mut host);
    attached.ask_about(&mut host, "touch ran");
    let gate = attached.gateway.pending_gates().remove(0);
    let unanswered = host.send_command(json!({ "type": "bash", "command": "sleep 60" }));
    assert_eq!(session_id(&mut host), id, "what was asked later was answered");
    gateway.kill();
    let end = host.wait_end();
    assert_eq!((end.code, end.junk.len()), (Some(1), 0), "{end:?}");
    let refused = &end.frames[end.frames.len() - 2];
    assert_eq!((&refused["id"], &refused["success"]), (&json!(unanswered.id), &json!(false)), "{refused}");
    assert!(refused["error"].as_str().unwrap().contains("has gone"), "{refused}");
    let notice = end.frames.last().unwrap();
    assert_eq!((&notice["method"], &notice["notifyType"]), (&json!("notify"), &json!("error")), "{notice}");
    assert!(end.stderr.contains("has gone. The session is whole"), "{}", end.stderr);

    let _gateway = attached.start_gateway();
    assert_eq!(attached.gateway.pending_gates()[0]["id"], gate["id"]);
    let waits = || attached.gateway.run_as_person(&["sessions", "list", "--json"]).json()[0]["waits_for_host"].clone();
    assert_eq!(waits(), true);
    attached.host.provider.script_replies([text_reply("done")]);
    let mut host = attached.start_host(&["--continue"]);
    assert_eq!(session_id(&mut host), id);
    let dialog = host.wait_dialog(0);
    assert_eq!(waits(), false);
    assert_eq!(attached.host.read_file("ran"), None);
    let from = host.frame_position();
    host.answer_dialog(&dialog, json!({ "value": "Allow once" }));
    host.wait_settled(from);
    assert_eq!(host.message_texts().last().unwrap(), "done");
    assert!(attached.host.read_file("ran").is_some());
    host.close_cleanly();
}

#[test]
fn an_answer_that_comes_before_the_host_is_back_waits_for_its_rules() {
    let attached = AttachFixture::new();
    let gateway = attached.start_gateway();
    let mut host = attached.start_host(&[]);
    attached.ask_about(&mut host, "touch ran");
    gateway.kill();
    host.wait_end();
    let _gateway = attached.start_gateway();
    let gate = attached.gateway.pending_gates().remove(0);
    assert_eq!(gate["waits_for_host"], true, "{gate}");
    attached.gateway.allow_gate(gate["id"].as_str().unwrap());
    assert_eq!((attached.gateway.pending_gates(), attached.host.read_file("ran")), (Vec::new(), None));
    attached.host.provider.script_replies([text_reply("done")]);
    let mut host = attached.start_host(&["--continue"]);
    // It continues as soon as its rules are there, which may be before the host gets any frame.
    eventually("the end of the run", || (host.message_texts().last().unwrap() == "done").then_some(()));
    assert!(attached.host.read_file("ran").is_some());
    // Entries that were added while the session was opened are in its file too.
    let file = host.session_file();
    host.close_cleanly();
    check_chain(&lines_with(&file, "done"));
}

#[test]
fn what_a_host_leaves_goes_on_without_it() {
    let attached = AttachFixture::new();
    let _gateway = attached.start_gateway();
    let mut host = attached.start_host(&[]);
    attached.ask_about(&mut host, "touch ran");
    let file = host.session_file();
    host.close_cleanly();
    let gate = attached.gateway.pending_gates().remove(0);
    attached.gateway.allow_gate(gate["id"].as_str().unwrap());
    lines_with(&file, "done");
    assert!(attached.host.read_file("ran").is_some());
    let mut host = attached.start_host(&["--continue"]);
    assert_eq!(host.message_texts().last().unwrap(), "done");
    host.close_cleanly();
}

#[test]
fn a_host_that_reconnects_in_the_middle_of_an_answer_gets_all_of_it() {
    let attached = AttachFixture::new();
    let _gateway = attached.start_gateway();
    let mut host = attached.start_host(&[]);
    let latch = Latch::default();
    attached.host.provider.script_replies([ProviderReply::new(vec![
        say_part("half "),
        ReplyPart::Until(latch.clone()),
        say_part("whole"),
    ])]);
    let from = host.send_prompt("go");
    host.wait_frame(from, "the first half", |frame| frame["type"] == "message_update");
    host.close_cleanly();
    let mut host = attached.start_host(&["--continue"]);
    latch.open();
    let frames = host.wait_settled(0);
    let ends = of_type(&frames, "message_end");
    assert_eq!(message_text(&ends.last().unwrap()["message"]), "half whole");
    assert_eq!(host.message_texts(), ["go", "half whole"]);
    host.close_cleanly();
}

#[test]
fn a_session_whose_home_cannot_be_reached_does_not_open_elsewhere() {
    let attached = AttachFixture::new();
    let mut gateway = attached.start_gateway();
    let mut host = attached.start_host(&[]);
    attached.host.provider.script_replies([text_reply("first")]);
    host.run_turn("go");
    let id = session_id(&mut host);
    host.close_cleanly();
    // Its home is found without being named.
    let mut host = attached.host.start(&["--resume", &id]);
    assert_eq!(host.message_texts(), ["go", "first"]);
    host.close_cleanly();
    assert_eq!(gateway.stop().code, Some(0));

    let refusal = attached.refuse_host(&["--resume", &id]);
    let data = attached.gateway.data_dir().display().to_string();
    assert!(
        refusal.contains(&format!("session {id} lives in the gateway with the data directory {data}")),
        "{refusal}"
    );
    let refusal = attached.refuse_host(&[&attached.attach_flag(), "--resume", &id]);
    assert!(refusal.contains(&format!("--attach: no gateway runs with the data directory {data}: start")), "{refusal}");
    let mut fork = attached.host.start(&["--fork", &id]);
    assert_eq!(fork.message_texts(), ["go", "first"]);
    assert_ne!(session_id(&mut fork), id);
    fork.close_cleanly();
}

#[test]
fn a_session_has_one_host() {
    let attached = AttachFixture::new();
    let _gateway = attached.start_gateway();
    let mut host = attached.start_host(&[]);
    attached.host.provider.script_replies([text_reply("first")]);
    host.run_turn("go");
    let id = session_id(&mut host);
    let refusal = attached.refuse_host(&[&attached.attach_flag(), "--resume", &id]);
    assert!(
        refusal.contains(&format!("session {id} is open in another host, process {}", host.process_id())),
        "{refusal}"
    );
    attached.host.provider.script_replies([text_reply("second")]);
    host.run_turn("on");
    host.close_cleanly();
    let mut host = attached.start_host(&["--resume", &id]);
    assert_eq!(host.message_texts(), ["go", "first", "on", "second"]);
    host.close_cleanly();
}

#[test]
fn messages_of_an_attached_host_come_from_no_other_client() {
    let attached = AttachFixture::new();
    let gateway = attached.start_gateway();
    let http = HttpClient::new(&gateway.address);
    let mut host = attached.start_host(&[]);
    let id = session_id(&mut host);
    attached.ask_about(&mut host, "touch ran");
    let named = host.session_state()["sessionName"].clone();
    for (path, body) in [
        ("/api/chat/start", json!({ "session_id": id, "message": "mine now" })),
        ("/api/chat/steer", json!({ "session_id": id, "text": "mine now" })),
        ("/api/session/rename", json!({ "session_id": id, "title": "mine now" })),
    ] {
        let reply = http.post(path, &body);
        assert_eq!(
            (reply.status, &reply.json()["error"]),
            (403, &json!("This session cannot be spoken in from here")),
            "{path}"
        );
    }
    let detail = http.get(&format!("/api/session?session_id={id}")).json();
    let listed = http.get("/api/sessions").json();
    assert_eq!((&detail["session"]["read_only"], &listed["sessions"][0]["read_only"]), (&json!(true), &json!(true)));
    assert_eq!(host.session_state()["sessionName"], named);
    let stream = detail["session"]["active_stream_id"].as_str().unwrap();
    let stopped = http.get(&format!("/api/chat/cancel?stream_id={stream}")).json();
    assert_eq!(stopped["cancelled"], true, "a person may always stop what works: {stopped}");
    host.wait_settled(0);
    assert_eq!(attached.host.read_file("ran"), None);
    host.close_cleanly();
}

#[test]
fn a_host_that_may_attach_does_so_while_a_gateway_runs() {
    let attached = AttachFixture::new();
    let config = |when: &str| {
        let text = format!("countersign: {{ attach: {when}, data: {} }}\n", attached.gateway.data_dir().display());
        fs::write(attached.host.agent.join("config.yml"), text).unwrap();
    };
    config("auto");
    let turn = || {
        attached.host.provider.script_replies([text_reply("done")]);
        let mut host = attached.host.start(&[]);
        host.run_turn("go");
        host.close_cleanly();
        (files(&attached.host.agent.join("countersign"), "db").len(), attached.home_files().len())
    };
    assert_eq!(turn(), (1, 0), "without a gateway it has a log of its own");
    let gateway = attached.start_gateway();
    assert_eq!(turn(), (1, 1), "with one it lives there");
    gateway.kill();
    config("always");
    let refusal = attached.refuse_host(&[]);
    assert!(refusal.contains("no gateway runs with the data directory"), "{refusal}");
    config("sometimes");
    let refusal = attached.refuse_host(&[]);
    assert!(refusal.contains("countersign.attach: expected auto, always or never"), "{refusal}");
}

#[test]
fn a_session_moves_with_its_conversation_and_from_rest_only() {
    let attached = AttachFixture::new();
    let _gateway = attached.start_gateway();
    let mut host = attached.host.start(&[]);
    attached.host.provider.script_replies([text_reply("first")]);
    host.run_turn("go");
    let id = session_id(&mut host);
    attached.ask_about(&mut host, "touch ran");
    host.close_cleanly();
    let refusal = attached.refuse_host(&[&attached.attach_flag(), "--resume", &id]);
    assert!(refusal.contains("waits for an answer in its own log and cannot move"), "{refusal}");

    let mut host = attached.host.start(&["--resume", &id]);
    attached.host.provider.script_replies([text_reply("done")]);
    let dialog = host.wait_dialog(0);
    host.answer_dialog(&dialog, json!({ "value": "Deny" }));
    host.wait_settled(0);
    host.close_cleanly();
    let mut host = attached.start_host(&["--resume", &id]);
    assert_eq!(session_id(&mut host), id);
    assert_eq!(host.message_texts().last().unwrap(), "done");
    attached.host.provider.script_replies([text_reply("there")]);
    host.run_turn("and here?");
    host.close_cleanly();
    fs::remove_file(attached.home_files().remove(0)).unwrap();
    let own = attached.host.agent.join(format!("countersign/{id}.db"));
    let trail = attached.host.binary_command().args(["audit", "tail", "--log"]).arg(&own).output().unwrap();
    let trail = String::from_utf8(trail.stdout).unwrap();
    assert!(trail.contains(&format!("continues in {}", attached.gateway.data_dir().display())), "{trail}");
    // Its own log knows, too.
    let mut host = attached.host.start(&["--resume", &id]);
    assert_eq!(host.message_texts().last().unwrap(), "there");
    host.close_cleanly();
}

#[test]
fn rules_and_environment_are_those_of_the_hosts_process() {
    let attached = AttachFixture::new();
    let _gateway = attached.start_gateway();
    attached.host.write_rules("");
    fs::create_dir(attached.host.work.join(".countersign")).unwrap();
    attached
        .host
        .write_file(".countersign/permissions.yaml", "rules:\n  - { pattern: \"bash(touch*)\", action: deny }\n");
    let flags = ["--model", "fake/fake-1", &attached.attach_flag()];
    let mut command = RpcHost::omp_command(&attached.host, &flags);
    command.env("ANTHROPIC_API_KEY", "sk-hidden").env("OWN", "kept");
    let mut host = RpcHost::spawn(command);
    let calls = vec![bash_part("k", "touch ran"), bash_part("l", "echo $OWN; env; pwd")];
    attached.host.provider.script_replies([ProviderReply::new(calls), text_reply("done")]);
    let frames = host.run_turn("go");
    let ends = of_type(&frames, "tool_execution_end");
    let [denied, output] = [0, 1].map(|at| message_text(&ends[at]["result"]));
    assert!(denied.contains("Denied by policy") && attached.host.read_file("ran").is_none(), "{denied}");
    let work = attached.host.work.display().to_string();
    assert!(
        output.starts_with("kept\n") && output.trim_end().ends_with(&work) && !output.contains("sk-hidden"),
        "{output}"
    );
    let gate = attached.gateway.data_dir().join("countersign.db").display().to_string();
    attached.host.provider.script_replies([
        ProviderReply::new(vec![call_part("m", "read", &json!({ "path": gate }))]),
        text_reply("done"),
    ]);
    let frames = host.run_turn("and the gateway's own files?");
    let end = of_type(&frames, "tool_execution_end").remove(0);
    assert_eq!(end["isError"], true, "{end}");
    host.close_cleanly();
}

#[test]
fn commands_of_an_agent_do_not_reach_the_gateway() {
    let attached = AttachFixture::new();
    let _gateway = attached.start_gateway();
    attached.host.write_rules("");
    let mut host = attached.start_host(&[]);
    let binary = binary_path().display();
    let data = attached.gateway.data_dir();
    let data = data.display();
    let command = format!("(setsid -w {binary} gates list --data {data} 2>&1; echo $?) > said; cat said");
    attached.host.provider.script_replies([ProviderReply::new(vec![bash_part("k", &command)]), text_reply("done")]);
    let frames = host.run_turn("go");
    let end = of_type(&frames, "tool_execution_end").remove(0);
    let output = message_text(&end["result"]);
    assert!(output.contains("This comes from a command of an agent, which may not decide"), "{output}");
    host.close_cleanly();
}

#[test]
fn what_is_allowed_for_good_anywhere_is_so_for_the_agent_directory() {
    let attached = AttachFixture::new();
    let gateway = attached.start_gateway();
    let mut host = attached.start_host(&[]);
    attached.ask_about(&mut host, "touch ran");
    let gate = attached.gateway.pending_gates().remove(0);
    let allowed =
        attached.gateway.run_as_person(&["gates", "allow", gate["id"].as_str().unwrap(), "--scope", "always"]);
    assert_eq!(allowed.code, Some(0), "{allowed:?}");
    host.wait_settled(0);
    host.close_cleanly();
    let kept = attached.host.agent.join("grants.jsonl");
    eventually("the grant in its file", || fs::read_to_string(&kept).ok().filter(|text| text.contains("always")));
    gateway.kill();
    // The next session has a log of its own, and asks no more.
    attached.host.provider.script_replies([ProviderReply::new(vec![bash_part("k", "touch ran")]), text_reply("done")]);
    let mut host = attached.host.start(&[]);
    let frames = host.run_turn("go");
    assert_eq!(of_type(&frames, "extension_ui_request"), Vec::<Value>::new());
    host.close_cleanly();
}

#[test]
fn a_host_that_only_looks_leaves_nothing_behind() {
    let attached = AttachFixture::new();
    let _gateway = attached.start_gateway();
    let mut host = attached.start_host(&[]);
    host.session_state();
    host.close_cleanly();
    eventually("the end of what it left", || attached.home_files().is_empty().then_some(()));
    assert!(attached.refuse_host(&[&attached.attach_flag(), "--no-session"]).contains("cannot be used with --attach"));
}
