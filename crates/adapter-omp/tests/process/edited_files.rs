//! Session files that were changed by hand: the conversation is the file's, decisions stay the log's.

use std::{fs, path::Path};

use countersign_testkit::process::{
    FramePosition, HostFixture, RpcHost, check_chain, eventually, line_texts, lines_when, lines_with, message_text,
    of_type,
    provider::{ProviderReply, bash_part, text_reply},
};
use serde_json::{Value, json};

/// Returns the lines of a session file.
fn lines(path: &Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Puts other lines into a session file.
fn put(path: &Path, lines: &[Value]) {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(path, text).unwrap();
}

/// Changes what a message of a session file says.
fn edit(path: &Path, from: &str, to: &str) {
    let mut lines = lines(path);
    let found =
        lines.iter_mut().find(|line| line["type"] == "message" && message_text(&line["message"]) == from).unwrap();
    found["message"]["content"] = json!([{ "type": "text", "text": to }]);
    put(path, &lines);
}

fn message(id: &str, parent: &Value, text: &str) -> Value {
    let message = json!({ "role": "user", "content": [{ "type": "text", "text": text }], "timestamp": 1 });
    json!({ "type": "message", "id": id, "parentId": parent, "timestamp": "2026-01-01T00:00:00.000Z", "message": message })
}

/// Returns a session whose last call waits to be allowed, after one turn.
fn waiting(place: &HostFixture) -> (RpcHost, std::path::PathBuf, Value) {
    let mut host = place.start(&[]);
    host.run_turn("one");
    place
        .provider
        .script_replies([ProviderReply::new(vec![bash_part("k1", "echo ran >> count")]), text_reply("after it")]);
    let from = host.send_prompt("two");
    let dialog = host.wait_dialog(from);
    let path = host.session_file();
    lines_with(&path, "\"k1\"");
    (host, path, dialog)
}

/// Returns the only log of the place.
fn log(place: &HostFixture) -> std::path::PathBuf {
    let files = fs::read_dir(place.agent.join("countersign")).unwrap().map(|entry| entry.unwrap().path());
    let mut logs: Vec<_> = files.filter(|path| path.extension().is_some_and(|extension| extension == "db")).collect();
    assert_eq!(logs.len(), 1, "{logs:?}");
    logs.remove(0)
}

fn dialogs(host: &RpcHost, from: FramePosition) -> usize {
    of_type(&host.frames_since(from), "extension_ui_request").len()
}

#[test]
fn a_message_that_was_edited_is_what_it_says_now_and_its_id_stays() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    host.run_turn("two");
    let path = host.session_file();
    lines_when(&path, "both turns", |lines| line_texts(lines) == ["one", "ok", "two", "ok"]);
    host.close_cleanly();
    for (from, to) in [("one", "something else and longer"), ("something else and longer", "1"), ("ok", "fine")] {
        let ids: Vec<Value> = lines(&path).iter().map(|line| line["id"].clone()).collect();
        edit(&path, from, to);
        let edited = lines(&path);
        let mut again = place.resume_host();
        let messages = again.message_texts();
        assert_eq!(messages, line_texts(&edited), "{to}");
        let users = again.command_data(json!({ "type": "get_branch_messages" }))["messages"].clone();
        assert_eq!([&users[0]["text"], &users[1]["text"]], [&messages[0], "two"]);
        again.close_cleanly();
        assert_eq!((lines(&path), lines(&path).iter().map(|line| line["id"].clone()).collect()), (edited, ids));
    }
    let mut last = place.resume_host();
    last.run_turn("three");
    let request_text = place.provider.last_request().messages_text();
    assert!(request_text.contains("fine") && !request_text.contains("longer"), "{request_text}");
    check_chain(&lines_with(&path, "three"));
    log(&place);
}

#[test]
fn lines_that_were_put_in_and_taken_out_are_so_in_the_conversation() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    for turn in ["one", "two", "three"] {
        host.run_turn(turn);
    }
    let path = host.session_file();
    lines_when(&path, "all turns", |lines| line_texts(lines).len() == 6);
    host.close_cleanly();
    // The turn in the middle goes, and a line comes in its place.
    let mut edited = lines(&path);
    let two = edited.iter().position(|line| message_text(&line["message"]) == "two").unwrap();
    let before = edited[two - 1]["id"].clone();
    edited.splice(two..two + 2, [message("put in", &before, "between")]);
    edited[two + 1]["parentId"] = "put in".into();
    put(&path, &edited);
    let want = ["one", "ok", "between", "three", "ok"];
    for _ in 0..2 {
        let mut again = place.resume_host();
        assert_eq!(again.message_texts(), want);
        again.close_cleanly();
        assert_eq!(lines(&path), edited);
    }
    let mut last = place.resume_host();
    let users = last.command_data(json!({ "type": "get_branch_messages" }))["messages"].clone();
    let users: Vec<&str> = users.as_array().unwrap().iter().map(|user| user["text"].as_str().unwrap()).collect();
    assert_eq!(users, ["one", "between", "three"]);
    last.run_turn("four");
    check_chain(&lines_with(&path, "four"));
}

#[test]
fn a_line_that_was_taken_out_stays_out_and_what_followed_it_follows_what_stood_before() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    host.run_turn("two");
    let path = host.session_file();
    let mut edited = lines_when(&path, "both turns", |lines| line_texts(lines).len() == 4);
    host.close_cleanly();
    edited.retain(|line| message_text(&line["message"]) != "two");
    put(&path, &edited);
    for _ in 0..2 {
        let mut again = place.resume_host();
        assert_eq!(again.message_texts(), ["one", "ok", "ok"]);
        let end = again.close();
        assert!(end.code == Some(0) && end.stderr.contains("1 entry whose parent is not in the file"), "{end:?}");
        assert_eq!(lines(&path), edited);
    }
}

#[test]
fn a_line_that_could_not_be_written_is_not_one_that_was_taken_out() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    let blobs = place.agent.join("blobs");
    fs::write(&blobs, "in the way").unwrap();
    let image = json!({ "type": "image", "data": "AAAA".repeat(1000), "mimeType": "image/png" });
    let from = host.frame_position();
    host.command_data(json!({ "type": "prompt", "message": "look", "images": [image] }));
    host.wait_settled(from);
    host.run_turn("three");
    let path = host.session_file();
    lines_when(&path, "all but one line", |lines| line_texts(lines) == ["one", "ok", "ok", "three", "ok"]);
    host.close();
    fs::remove_file(&blobs).unwrap();
    let mut again = place.resume_host();
    assert_eq!(again.message_texts(), ["one", "ok", "look", "ok", "three", "ok"]);
    lines_with(&path, "look");
}

#[test]
fn a_gate_whose_message_is_still_there_is_shown_again_after_an_edit() {
    let place = HostFixture::with_ask_rule();
    let (host, path, dialog) = waiting(&place);
    host.kill();
    edit(&path, "one", "uno");
    edit(&path, "two", "dos");
    let mut again = place.resume_host();
    let shown = again.wait_dialog(0);
    assert_eq!((&shown["title"], again.session_state()["isStreaming"].clone()), (&dialog["title"], json!(true)));
    assert_eq!(again.message_texts()[..3], ["uno", "ok", "dos"]);
    again.answer_dialog(&shown, json!({ "value": "Allow once" }));
    again.wait_settled(0);
    assert_eq!(place.read_file("count").unwrap(), "ran\n");
    let request = place.provider.last_request();
    assert!(request.is_paired() && request.messages_text().contains("dos") && !request.messages_text().contains("two"));
    check_chain(&lines_with(&path, "after it"));
}

#[test]
fn a_gate_whose_message_is_gone_is_withdrawn_and_its_run_is_over() {
    for put_behind in [true, false] {
        let place = HostFixture::with_ask_rule();
        let (host, path, _) = waiting(&place);
        host.kill();
        let mut edited = lines(&path);
        let call = edited.pop().unwrap();
        assert!(call.to_string().contains("k1"));
        if put_behind {
            edited.push(message("behind", &call["parentId"], "never mind"));
        } else {
            // The prompt changes too: an end that is only missing would be one that a crash took.
            let prompt = edited.last_mut().unwrap();
            prompt["message"]["content"][0]["text"] = "never mind".into();
        }
        put(&path, &edited);
        for _ in 0..2 {
            let mut again = place.resume_host();
            assert_eq!(again.session_state()["isStreaming"], false);
            assert_eq!(again.message_texts(), line_texts(&edited));
            // Nothing is asked. The message at the end has no answer, which is told once.
            let requests = of_type(&again.frames_since(0), "extension_ui_request");
            let [notice] = &requests[..] else { panic!("{requests:?}") };
            assert!(notice["message"].as_str().unwrap().starts_with("The last message has no answer"), "{notice}");
            again.close_cleanly();
            assert_eq!(lines(&path), edited);
        }
        let mut last = place.resume_host();
        place.provider.script_replies([text_reply("gone on")]);
        last.run_turn("three");
        assert!(place.provider.last_request().is_paired());
        assert_eq!((place.read_file("count"), last.message_texts().last().unwrap().as_str()), (None, "gone on"));
        check_chain(&lines_with(&path, "gone on"));
    }
}

#[test]
fn a_line_behind_a_message_that_waits_leaves_its_gate_in_force() {
    let place = HostFixture::with_ask_rule();
    let (host, path, dialog) = waiting(&place);
    host.kill();
    let mut edited = lines(&path);
    let leaf = edited.last().unwrap()["id"].clone();
    edited.push(message("behind", &leaf, "put behind"));
    put(&path, &edited);
    let mut again = place.resume_host();
    let shown = again.wait_dialog(0);
    assert_eq!((&shown["title"], again.message_texts().last().unwrap().as_str()), (&dialog["title"], "put behind"));
    again.answer_dialog(&shown, json!({ "value": "Allow once" }));
    again.wait_settled(0);
    let request = place.provider.last_request();
    assert!(request.is_paired() && request.messages_text().contains("put behind"), "{request:?}");
    assert_eq!(place.read_file("count").unwrap(), "ran\n");
    check_chain(&lines_with(&path, "after it"));
}

#[test]
fn an_end_that_is_missing_is_written_again_and_its_gate_still_waits() {
    let place = HostFixture::with_ask_rule();
    let (host, path, dialog) = waiting(&place);
    host.kill();
    let whole = lines(&path);
    put(&path, &whole[..whole.len() - 2]);
    let again = place.resume_host();
    assert_eq!(again.wait_dialog(0)["title"], dialog["title"]);
    assert_eq!(lines_with(&path, "k1"), whole);
}

#[test]
fn what_a_person_denied_and_granted_stays_in_force_after_an_edit() {
    let place = HostFixture::with_ask_rule();
    let mut host = place.start(&[]);
    for (command, answer) in [("touch denied", "Deny"), ("echo ran >> granted", "Allow for this session")] {
        place.provider.script_replies([ProviderReply::new(vec![bash_part("k", command)]), text_reply("done")]);
        let from = host.send_prompt(command);
        let dialog = host.wait_dialog(from);
        host.answer_dialog(&dialog, json!({ "value": answer }));
        host.wait_settled(from);
    }
    let path = host.session_file();
    lines_when(&path, "both turns", |lines| line_texts(lines).iter().filter(|text| *text == "done").count() == 2);
    host.close_cleanly();
    edit(&path, "touch denied", "please");
    let mut again = place.resume_host();
    for command in ["touch denied", "echo ran >> granted"] {
        place.provider.script_replies([ProviderReply::new(vec![bash_part("k", command)]), text_reply("done")]);
        again.run_turn("again");
    }
    assert_eq!(dialogs(&again, 0), 0);
    assert_eq!((place.read_file("denied"), place.read_file("granted").unwrap().as_str()), (None, "ran\nran\n"));
    assert!(place.provider.last_request().messages_text().contains("please"));
}

#[test]
fn a_file_of_ones_own_making_takes_the_ids_that_the_log_has() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    let path = host.session_file();
    let before = lines_with(&path, "\"ok\"");
    host.close_cleanly();
    // The ids of the old entries, in another order, for other things.
    let mut ids: Vec<Value> = before[1..].iter().map(|line| line["id"].clone()).collect();
    ids.reverse();
    let mut made = vec![before[0].clone()];
    let mut parent = Value::Null;
    for (id, text) in ids.iter().zip(["a", "b", "c", "d"]) {
        made.push(message(id.as_str().unwrap(), &parent, text));
        parent = id.clone();
    }
    put(&path, &made);
    let mut again = place.resume_host();
    assert_eq!(again.message_texts(), ["a", "b", "c", "d"]);
    let branched = again.command_data(json!({ "type": "branch", "entryId": ids[2] }));
    assert_eq!((&branched["text"], again.message_texts()), (&json!("c"), vec!["a".to_owned(), "b".to_owned()]));
    again.close_cleanly();
    assert_eq!(lines(&path), made);
}

#[test]
fn a_process_that_dies_while_a_large_edit_is_imported_leaves_the_old_tree_or_the_new_one() {
    let place = HostFixture::with_ask_rule();
    let (host, path, dialog) = waiting(&place);
    host.kill();
    let mut edited = lines(&path);
    let first = edited[1]["id"].clone();
    let filler = "f".repeat(30_000);
    let large = |at: usize| {
        json!({ "type": "custom", "id": format!("large{at}"), "parentId": first, "timestamp": "2026-01-01T00:00:00.000Z",
            "customType": "large", "data": filler })
    };
    edited.splice(2..2, (0..100).map(large));
    put(&path, &edited);
    edit(&path, "one", "uno");
    let log = log(&place);
    let journal = log.with_extension("db-wal");
    let size = || [&log, &journal].map(|path| fs::metadata(path).map_or(0, |found| found.len())).iter().sum::<u64>();
    for round in 1..3 {
        let from = size();
        let host = RpcHost::spawn(RpcHost::omp_command(&place, &["--continue"]));
        // Each time it gets further before it dies.
        eventually("some of the import", || (size() > from + (round << 19)).then_some(()));
        host.kill();
        assert!(size() < from + (3 << 20) - (1 << 18), "it did not die in the middle");
    }
    let mut again = place.resume_host();
    assert_eq!(again.wait_dialog(0)["title"], dialog["title"]);
    assert_eq!(again.message_texts()[..3], ["uno", "ok", "two"]);
    again.close_cleanly();
    assert_eq!(lines(&path).len(), edited.len());
    let whole = size();
    let last = place.resume_host();
    assert_eq!(last.wait_dialog(0)["title"], dialog["title"]);
    last.close_cleanly();
    assert!(size() < whole + (1 << 20), "what was imported was imported again");
}
