//! Session files that others wrote: older forms, unknown lines, more lines than ours.

use std::io::Write as _;

use countersign_testkit::process::{HostFixture, RpcHost, check_chain, line_texts, lines_when, lines_with};
use serde_json::{Value, json};

pub(super) const AT: &str = "2026-01-01T00:00:00.000Z";

pub(super) fn header(version: u8) -> Value {
    json!({ "type": "session", "version": version, "id": "0011223344556677", "timestamp": AT, "cwd": "/" })
}

pub(super) fn user(text: &str) -> Value {
    json!({ "role": "user", "content": [{ "type": "text", "text": text }], "timestamp": 1 })
}

fn assistant(content: Value, stop: &str) -> Value {
    let usage = json!({ "input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 2,
        "cost": { "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0 } });
    json!({ "role": "assistant", "content": content, "api": "openai-completions", "provider": "fake", "model": "fake-1",
        "usage": usage, "stopReason": stop, "timestamp": 2 })
}

pub(super) fn says(text: &str) -> Value {
    assistant(json!([{ "type": "text", "text": text }]), "stop")
}

pub(super) fn message(id: &str, parent: Option<&str>, message: Value) -> Value {
    json!({ "type": "message", "id": id, "parentId": parent, "timestamp": AT, "message": message })
}

pub(super) fn write(place: &HostFixture, lines: &[Value], tail: &str) -> String {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    place.write_file("other.jsonl", text + tail).display().to_string()
}

pub(super) fn open(place: &HostFixture, lines: &[Value], tail: &str) -> (RpcHost, String) {
    let path = write(place, lines, tail);
    (place.start(&["--session", &path]), path)
}

#[test]
fn the_first_form_gets_ids_and_keeps_its_compaction() {
    let place = HostFixture::new();
    let mut first = header(1);
    first.as_object_mut().unwrap().remove("version");
    let line = |message: Value| json!({ "type": "message", "timestamp": AT, "message": message });
    let compaction = json!({ "type": "compaction", "timestamp": AT, "summary": "in short", "firstKeptEntryIndex": 3, "tokensBefore": 9 });
    let (mut host, path) = open(
        &place,
        &[
            first,
            line(user("long gone")),
            line(says("r1")),
            line(user("two")),
            line(says("r2")),
            compaction,
            line(user("three")),
            line(says("r3")),
        ],
        "",
    );
    assert_eq!(host.session_messages()[0]["summary"], "in short");
    assert_eq!(host.message_texts()[1..], ["two", "r2", "three", "r3"]);
    check_chain(&lines_with(path.as_ref(), "r3"));
    host.run_turn("four");
    let request_text = place.provider.last_request().messages_text();
    assert!(request_text.contains("in short") && !request_text.contains("long gone"));
}

#[test]
fn the_second_form_is_brought_up_to_date_and_unknown_lines_stay() {
    let place = HostFixture::new();
    let hook =
        json!({ "role": "hookMessage", "customType": "h", "content": "from a hook", "display": true, "timestamp": 4 });
    let alien = json!({ "type": "alien", "id": "a4", "parentId": "a3", "timestamp": AT, "deep": { "x": [1, 2] } });
    let summary = json!({ "type": "branch_summary", "id": "a5", "parentId": "a4", "timestamp": AT, "fromId": "root", "summary": "of a branch" });
    let custom = json!({ "type": "custom_message", "id": "a6", "parentId": "a5", "timestamp": AT, "customType": "c", "content": "custom text", "display": true });
    let (mut host, path) = open(
        &place,
        &[
            header(2),
            message("a1", None, user("one")),
            message("a2", Some("a1"), says("r1")),
            message("a3", Some("a2"), hook),
            alien.clone(),
            summary,
            custom,
        ],
        "",
    );
    host.run_turn("two");
    let request_text = place.provider.last_request().messages_text();
    for text in ["from a hook", "of a branch", "custom text"] {
        assert!(request_text.contains(text), "{text}");
    }
    let lines = lines_with(path.as_ref(), "two");
    check_chain(&lines);
    assert_eq!(lines[4], alien);
    assert_eq!(lines[3]["message"]["role"], "custom");
}

#[test]
fn every_kind_of_message_is_taken() {
    let place = HostFixture::new();
    let call = json!([{ "type": "toolCall", "id": "k1", "name": "bash", "arguments": { "command": "touch never" } }]);
    let result = json!({ "role": "toolResult", "toolCallId": "k1", "toolName": "bash", "content": [{ "type": "text", "text": "out" }], "isError": false, "timestamp": 3 });
    let command = |command: &str, output: &str, excluded: bool| {
        json!({ "role": "bashExecution", "command": command, "output": output, "exitCode": 2,
        "cancelled": false, "truncated": false, "timestamp": 5, "excludeFromContext": excluded })
    };
    let mention = json!({ "role": "fileMention", "files": [{ "path": "q.txt", "content": "of q" }], "timestamp": 1 });
    let stranger = json!({ "role": "stranger", "x": 1, "timestamp": 1 });
    let all = [
        user("one"),
        assistant(call, "toolUse"),
        result,
        says("r1"),
        command("ls -x", "listed", false),
        command("hush", "kept from the model", true),
        mention,
        stranger,
    ];
    let mut lines = vec![header(3)];
    for (at, one) in all.into_iter().enumerate() {
        let parent = at.checked_sub(1).map(|at| format!("b{at}"));
        lines.push(message(&format!("b{at}"), parent.as_deref(), one));
    }
    let (mut host, path) = open(&place, &lines, "");
    host.run_turn("two");
    let request = place.provider.last_request();
    let text = request.messages_text();
    assert!(
        request.is_paired()
            && text.contains("listed")
            && text.contains("of q")
            && !text.contains("kept from the model"),
        "{text}"
    );
    let after = lines_with(path.as_ref(), "two");
    check_chain(&after);
    assert_eq!((&after[..lines.len()], place.read_file("never")), (&lines[..], None));
}

#[test]
fn calls_without_a_result_are_never_run_and_are_paired_in_the_request() {
    let place = HostFixture::new();
    let call =
        |id: &str| json!({ "type": "toolCall", "id": id, "name": "bash", "arguments": { "command": "touch never" } });
    let lines = [
        header(3),
        message("c1", None, user("go")),
        message("c2", Some("c1"), assistant(json!([call("k1"), call("k2")]), "toolUse")),
    ];
    let (mut host, _) = open(&place, &lines, "");
    assert_eq!(host.session_state()["isStreaming"], false);
    host.run_turn("next");
    assert!(place.provider.last_request().is_paired());
    assert_eq!(place.read_file("never"), None);
}

#[test]
fn the_last_line_is_the_branch_that_goes_on_and_all_branches_are_listed() {
    let place = HostFixture::new();
    let lines = [
        header(3),
        message("d1", None, user("root")),
        message("d2", Some("d1"), says("r1")),
        message("d3", Some("d2"), user("left")),
        message("d4", Some("d3"), says("r2")),
        message("d5", Some("d2"), user("right")),
        message("d6", Some("d5"), says("r3")),
    ];
    let (mut host, _) = open(&place, &lines, "");
    assert_eq!(host.message_texts(), ["root", "r1", "right", "r3"]);
    let users = host.command_data(json!({ "type": "get_branch_messages" }))["messages"].clone();
    assert_eq!([&users[0]["text"], &users[1]["text"], &users[2]["text"]], ["root", "left", "right"]);
    assert_eq!(host.command_data(json!({ "type": "branch", "entryId": "d3" }))["text"], "left");
    assert_eq!(host.message_texts(), ["root", "r1"]);
}

#[test]
fn lines_that_somebody_added_since_are_part_of_the_conversation() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    let path = host.session_file();
    let lines = lines_with(&path, "\"ok\"");
    host.close_cleanly();
    let leaf = lines.last().unwrap()["id"].as_str().unwrap();
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    writeln!(file, "{}", message("f1", Some(leaf), user("theirs"))).unwrap();
    writeln!(file, "{}", message("f2", Some("f1"), says("answered there"))).unwrap();
    drop(file);
    let mut again = place.resume_host();
    assert_eq!(again.message_texts(), ["one", "ok", "theirs", "answered there"]);
    again.run_turn("two");
    let after = lines_with(&path, "two");
    check_chain(&after);
    assert!(after.iter().any(|line| line["parentId"] == "f2"));
}

#[test]
fn an_end_that_was_lost_is_written_again() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    host.run_turn("two");
    let path = host.session_file();
    let before = lines_when(&path, "both turns", |lines| line_texts(lines) == ["one", "ok", "two", "ok"]);
    host.close_cleanly();
    for kept in [before.len() - 1, before.len() - 3] {
        let text = std::fs::read_to_string(&path).unwrap();
        let kept: String = text.split_inclusive('\n').take(kept).collect();
        std::fs::write(&path, kept + "{\"type\":\"mess").unwrap();
        let mut again = place.resume_host();
        assert_eq!(again.message_texts(), ["one", "ok", "two", "ok"]);
        assert_eq!(lines_when(&path, "both turns", |lines| line_texts(lines) == ["one", "ok", "two", "ok"]), before);
        again.close_cleanly();
    }
}

#[test]
fn a_name_and_a_model_that_related_programs_write_in_their_own_way_are_read() {
    let place = HostFixture::new();
    let model = json!({ "type": "model_change", "id": "00000003", "parentId": "00000002", "timestamp": AT,
        "provider": "fake", "modelId": "fake-2" });
    let info = |id: &str, parent: &str, name: &str| json!({ "type": "session_info", "id": id, "parentId": parent, "timestamp": AT, "name": name });
    let lines = [
        header(3),
        message("00000001", None, user("one")),
        message("00000002", Some("00000001"), says("r1")),
        model,
        info("00000004", "00000003", "first name"),
        info("00000005", "00000004", "their name"),
    ];
    let path = write(&place, &lines, "");
    let mut host = RpcHost::start(&place, &["--session", &path]);
    let state = host.session_state();
    assert_eq!((&state["sessionName"], &state["model"]["id"]), (&json!("their name"), &json!("fake-2")));
    host.run_turn("two");
    host.command_data(json!({ "type": "set_session_name", "name": "ours" }));
    assert_eq!(host.close().code, Some(0));
    let mut again = RpcHost::start(&place, &["--session", &path]);
    let state = again.session_state();
    assert_eq!((&state["sessionName"], &state["model"]["id"]), (&json!("ours"), &json!("fake-2")));
    assert_eq!(again.message_texts(), ["one", "r1", "two", "ok"]);
}

/// Returns the line that omp 18 writes before the header, of its fixed length.
fn title_line(title: &str) -> String {
    let mut line = json!({ "type": "title", "v": 1, "title": title, "updatedAt": AT, "pad": "" });
    line["pad"] = " ".repeat(255 - line.to_string().len()).into();
    line.to_string()
}

#[test]
fn a_session_of_omp_18_keeps_the_title_line_before_its_header() {
    let place = HostFixture::new();
    let conversation = [
        header(3),
        json!({ "type": "title_change", "id": "00000001", "parentId": null, "timestamp": AT, "title": "their name", "source": "auto" }),
        message("00000002", Some("00000001"), user("one")),
        message("00000003", Some("00000002"), says("r1")),
    ];
    let rest: String = conversation.iter().map(|line| format!("{line}\n")).collect();
    let path = place.write_file("other.jsonl", format!("{}\n{rest}", title_line("their name"))).display().to_string();
    let mut host = place.start(&[]);
    let switched = host.command_data(json!({ "type": "switch_session", "sessionPath": path }));
    assert_eq!(switched["cancelled"], false);
    assert_eq!(host.session_state()["sessionName"], "their name");
    assert_eq!(host.message_texts(), ["one", "r1"]);
    host.run_turn("two");
    let after = lines_with(path.as_ref(), "two");
    assert_eq!(after[0]["title"], "their name");
    assert_eq!(after[1..5], conversation);
    check_chain(&after[1..]);
    host.command_data(json!({ "type": "set_session_name", "name": "our name" }));
    let after = lines_when(path.as_ref(), "our name", |lines| lines[1]["title"] == "our name");
    assert_eq!(
        (&after[0]["title"], &after[0]["source"], &after[2..5]),
        (&json!("our name"), &json!("user"), &conversation[1..])
    );
    assert_eq!(host.close().code, Some(0));

    // As omp 18 names a session: over the old title line, and nothing else of the file.
    let mut text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.find('\n'), Some(255));
    text.replace_range(..255, &title_line("named there"));
    std::fs::write(&path, &text).unwrap();
    let mut again = place.start(&["--session", &path]);
    assert_eq!(again.session_state()["sessionName"], "named there");
    assert_eq!(again.message_texts(), ["one", "r1", "two", "ok"]);
    again.run_turn("three");
    let lines = lines_with(path.as_ref(), "three");
    check_chain(&lines[1..]);
    again.close_cleanly();

    let mut fork = place.start(&["--fork", &path]);
    assert_eq!(fork.message_texts(), ["one", "r1", "two", "ok", "three", "ok"]);
    fork.close_cleanly();
}

#[test]
fn a_session_does_not_go_on_with_the_model_that_stood_in_for_another() {
    let place = HostFixture::new();
    let change = |id: &str, parent: &str, model: &str, role: &str| {
        json!({ "type": "model_change", "id": id, "parentId": parent,
        "timestamp": AT, "model": format!("fake/{model}"), "role": role })
    };
    for (role, want) in [("fallback", "fake-1"), ("temporary", "fake-2"), ("default", "fake-2")] {
        let lines = [
            header(3),
            message("00000001", None, user("one")),
            message("00000002", Some("00000001"), says("r1")),
            change("00000003", "00000002", "fake-1", "default"),
            change("00000004", "00000003", "fake-2", role),
        ];
        let path = write(&place, &lines, "");
        let mut host = place.start(&["--no-session"]);
        host.command_data(json!({ "type": "switch_session", "sessionPath": path }));
        assert_eq!(host.session_state()["model"]["id"], want, "{role}");
    }
}

#[test]
fn a_session_that_names_no_model_goes_on_with_the_one_of_its_answers() {
    let answer = |model: &str| {
        let mut answer = says("r1");
        answer["model"] = model.into();
        answer
    };
    let fallback = json!({ "type": "model_change", "id": "00000003", "parentId": "00000002",
        "timestamp": AT, "model": "fake/fake-1", "role": "fallback" });
    for (model, want) in [("fake-2", "fake-2"), ("fake-1", "fake-1"), ("", "fake-1"), ("gone", "fake-1")] {
        let place = HostFixture::new();
        let lines = [
            header(3),
            message("00000001", None, user("one")),
            message("00000002", Some("00000001"), answer(model)),
            fallback.clone(),
        ];
        let path = write(&place, &lines, "");
        for flag in ["--session", "--fork"] {
            let mut host = RpcHost::start(&place, &[flag, &path]);
            let start_model = if model == want { want } else { "claude-1" };
            assert_eq!(host.session_state()["model"]["id"], start_model, "{flag} {model}");
        }
        let mut host = place.start(&["--no-session"]);
        host.command_data(json!({ "type": "switch_session", "sessionPath": path }));
        assert_eq!(host.session_state()["model"]["id"], want, "{model}");
    }
}

#[test]
fn an_abandoned_branch_does_not_say_with_what_a_session_goes_on() {
    let place = HostFixture::new();
    let mut other = says("r2");
    other["model"] = "fake-2".into();
    let level = json!({ "type": "thinking_level_change", "id": "00000005", "parentId": "00000004", "timestamp": AT,
        "thinkingLevel": "low" });
    let lines = [
        header(3),
        message("00000001", None, user("one")),
        message("00000002", Some("00000001"), says("r1")),
        message("00000003", Some("00000002"), user("two")),
        message("00000004", Some("00000003"), other),
        level,
        message("00000006", Some("00000002"), user("three")),
    ];
    let path = write(&place, &lines, "");
    for flag in ["--fork", "--session"] {
        let mut host = RpcHost::start(&place, &[flag, &path]);
        let state = host.session_state();
        assert_eq!(state["model"]["id"], "fake-1", "{flag}");
        assert_ne!(state["thinkingLevel"], "low", "{flag}");
    }
}

fn thinking(id: &str, parent: &str, members: Value) -> Value {
    let mut line = json!({ "type": "thinking_level_change", "id": id, "parentId": parent, "timestamp": AT });
    line.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    line
}

#[test]
fn a_thinking_level_that_is_not_there_means_off() {
    let place = HostFixture::new();
    for (members, want) in [
        (json!({ "thinkingLevel": "low" }), "low"),
        (json!({ "thinkingLevel": null, "configured": null }), "off"),
        (json!({}), "off"),
        (json!({ "thinkingLevel": "inherit" }), "high"),
    ] {
        let lines = [
            header(3),
            message("00000001", None, user("one")),
            message("00000002", Some("00000001"), says("r1")),
            thinking("00000003", "00000002", json!({ "thinkingLevel": "medium" })),
            thinking("00000004", "00000003", members.clone()),
        ];
        let path = write(&place, &lines, "");
        let mut host = place.start(&["--fork", &path]);
        assert_eq!(host.session_state()["thinkingLevel"], want, "{members}");
        host.close_cleanly();
    }
}

#[test]
fn a_fork_goes_on_with_the_model_the_level_and_the_name_of_the_session_unless_others_are_named() {
    let place = HostFixture::new();
    let mut first = header(3);
    first["title"] = "their name".into();
    let model = json!({ "type": "model_change", "id": "00000001", "parentId": null, "timestamp": AT,
        "model": "claude/claude-1" });
    let lines = [
        first,
        model,
        thinking("00000002", "00000001", json!({ "thinkingLevel": "low" })),
        message("00000003", Some("00000002"), user("one")),
        message("00000004", Some("00000003"), says("r1")),
    ];
    let path = write(&place, &lines, "");
    for (flags, model, level) in [
        (vec![], "claude-1", "low"),
        (vec!["--model", "fake/fake-1"], "fake-1", "low"),
        (vec!["--thinking", "medium"], "claude-1", "medium"),
        (vec!["--model", "fake/fake-1", "--thinking", "medium"], "fake-1", "medium"),
    ] {
        let mut fork = RpcHost::start(&place, &[&flags[..], &["--fork", path.as_str()]].concat());
        let state = fork.session_state();
        let got = [&state["model"]["id"], &state["thinkingLevel"], &state["sessionName"]];
        assert_eq!(got, [model, level, "their name"], "{flags:?}");
        fork.run_turn("elsewhere");
        assert_eq!(lines_with(&fork.session_file(), "elsewhere")[0]["title"], "their name");
        fork.close_cleanly();
    }
}
