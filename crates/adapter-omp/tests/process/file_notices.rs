//! Notices for users about the files of a session.

use std::{fs, path::Path, time::Duration};

use countersign_testkit::process::{HostFixture, RpcHost, eventually, lines_with};
use serde_json::{Value, json};

use super::foreign_files::{header, message, open, says, user};

/// Returns the text of the first notice of a host.
fn notice(host: &RpcHost) -> String {
    let notice = host.wait_frame(0, "a notice", |frame| frame["method"] == "notify");
    assert_eq!(notice["notifyType"], "warning");
    notice["message"].as_str().unwrap().to_owned()
}

fn has_notice(host: &RpcHost) -> bool {
    host.frames_since(0).iter().any(|frame| frame["method"] == "notify")
}

/// Returns a conversation of one turn.
fn one_turn() -> Vec<Value> {
    vec![header(3), message("00000001", None, user("one")), message("00000002", Some("00000001"), says("an answer"))]
}

#[test]
fn a_session_file_that_another_program_changed_or_removed_is_reported_once() {
    for is_removed in [false, true] {
        let place = HostFixture::new();
        let mut host = place.start(&[]);
        host.run_turn("one");
        let file = host.session_file();
        lines_with(&file, "\"ok\"");
        if is_removed {
            fs::remove_file(&file).unwrap();
        } else {
            fs::write(&file, "somebody else's\n").unwrap();
        }
        let from = host.frame_position();
        host.run_turn("two");
        let notice = host.wait_frame(from, "a notice", |frame| frame["method"] == "notify");
        assert_eq!(notice["notifyType"], "warning");
        let message = notice["message"].as_str().unwrap();
        assert!(message.contains(file.to_str().unwrap()) && message.contains("not written any more"), "{message}");
        let from = host.frame_position();
        host.run_turn("three");
        host.command_data(json!({ "type": "set_session_name", "name": "x" }));
        let again = host.frames_since(from).into_iter().find(|frame| frame["method"] == "notify");
        assert_eq!(again, None, "it is told once");
        assert_eq!(fs::read_to_string(&file).ok().as_deref(), (!is_removed).then_some("somebody else's\n"));
    }
}

#[test]
fn a_session_file_with_a_damaged_line_keeps_what_came_before_it() {
    for has_mark in [false, true] {
        let place = HostFixture::new();
        let mut host = place.start(&[]);
        for text in ["one", "two", "three"] {
            host.run_turn(text);
        }
        let file = host.session_file();
        lines_with(&file, "three");
        host.close_cleanly();
        // Without its record only the file has the conversation.
        fs::remove_dir_all(place.agent.join("countersign")).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let damaged: Vec<&str> =
            text.lines().map(|line| if line.contains("\"two\"") { &line[..40] } else { line }).collect();
        let mark = if has_mark { "\u{feff}" } else { "" };
        fs::write(&file, format!("{mark}{}\n", damaged.join("\n"))).unwrap();
        let mut again = place.resume_host();
        let notice = again.wait_frame(0, "a notice", |frame| frame["method"] == "notify");
        let message = notice["message"].as_str().unwrap();
        assert!(message.contains(file.to_str().unwrap()) && message.contains("1 line could not be read"), "{message}");
        assert_eq!(again.message_texts(), ["one", "ok", "ok", "three", "ok"]);
        // People who start it by hand read the same on stderr.
        let end = again.close();
        assert!(end.code == Some(0) && end.stderr.contains("1 line could not be read"), "{end:?}");
    }
}

#[test]
fn a_damaged_log_is_named_with_the_session_file_that_is_whole() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    let file = host.session_file();
    lines_with(&file, "\"ok\"");
    host.close_cleanly();
    let logs = || fs::read_dir(place.agent.join("countersign")).unwrap().map(|entry| entry.unwrap().path());
    let log = eventually("the log", || logs().find(|path| path.extension().is_some_and(|end| end == "db")));
    for path in logs() {
        fs::remove_file(path).unwrap();
    }
    fs::write(&log, "this is no database, and long enough to be looked at as one, whatever is in it".repeat(99))
        .unwrap();
    let end = RpcHost::spawn(RpcHost::omp_command(&place, &["--continue"])).wait_end();
    assert_eq!(end.code, Some(1));
    for part in [log.to_str().unwrap(), file.to_str().unwrap(), "is whole", "opens again"] {
        assert!(end.stderr.contains(part), "{part}: {}", end.stderr);
    }
    fs::remove_file(&log).unwrap();
    let mut again = place.resume_host();
    assert_eq!(again.message_texts(), ["one", "ok"]);
}

#[test]
fn a_torn_last_line_of_another_program_is_reported_and_kept() {
    const LEFT_OUT: &str = "1 line could not be read and was left out";
    for tail in ["{\"type\":\"message\",\"id\":\"00000003\",\"parentId\":", "garbage", "\0\0\0\0"] {
        let place = HostFixture::new();
        let (mut host, path) = open(&place, &one_turn(), tail);
        let before = fs::read_to_string(&path).unwrap();
        assert!(notice(&host).ends_with(LEFT_OUT));
        assert_eq!(host.message_texts(), ["one", "an answer"]);
        let end = host.close();
        assert!(end.code == Some(0) && end.stderr.contains(LEFT_OUT), "{end:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), before, "nothing was written");

        let mut fork = place.start(&["--fork", &path]);
        assert!(notice(&fork).ends_with(LEFT_OUT));
        fork.command_data(json!({ "type": "switch_session", "sessionPath": path }));
        let count = |host: &RpcHost| host.frames_since(0).iter().filter(|frame| frame["method"] == "notify").count();
        eventually("a notice about the other session", || (count(&fork) == 2).then_some(()));
        assert_eq!(fs::read_to_string(&path).unwrap(), before);
        fork.run_turn("two");
        let after = eventually("the turn in the file", || {
            fs::read_to_string(&path).ok().filter(|text| text.contains("\"ok\"") && text.ends_with('\n'))
        });
        assert!(after.starts_with(&format!("{before}\n")), "{after}");
        assert_eq!(fork.close().code, Some(0));

        let mut again = place.start(&["--session", &path]);
        assert!(notice(&again).ends_with(LEFT_OUT));
        assert_eq!(again.message_texts(), ["one", "an answer", "two", "ok"]);
        assert_eq!(again.close().code, Some(0));
    }
}

#[test]
fn content_that_cannot_be_read_is_reported() {
    let image = |data: &str| json!({ "type": "image", "data": data, "mimeType": "image/png" });
    let content = |blocks: Value| json!({ "role": "user", "content": blocks, "timestamp": 1 });
    let place = HostFixture::new();
    let mut lines = one_turn();
    let blocks = json!([{ "type": "text", "text": "kept" }, { "text": "lost" }]);
    lines.push(message("00000003", Some("00000002"), content(blocks)));
    let images = json!([image("!!notbase64!!"), image(&format!("blob:sha256:{}", "0".repeat(64)))]);
    lines.push(message("00000004", Some("00000003"), content(images)));
    let mut called = says("");
    called["content"] = json!([{ "type": "toolCall", "id": "k1", "name": "read", "arguments": "{\"path\":\"q\"}" }]);
    called["stopReason"] = "toolUse".into();
    lines.push(message("00000005", Some("00000004"), called));
    let result = json!({ "role": "toolResult", "toolCallId": "k1", "toolName": "read", "isError": false, "timestamp": 3,
        "content": [{ "type": "text", "text": "of q" }] });
    lines.push(message("00000006", Some("00000005"), result));
    let (mut host, path) = open(&place, &lines, "");
    let want = "1 entry has content that could not be understood and was left out; 2 images could not be read and were left out";
    let text = notice(&host);
    assert!(text.ends_with(want), "{text}");
    host.run_turn("next");
    let request = place.provider.last_request();
    let text = request.messages_text();
    assert!(request.is_paired() && text.contains("kept") && text.contains("of q"), "{text}");
    assert!(!text.contains("notbase64") && !text.contains("lost"), "{text}");
    let written = lines_with(path.as_ref(), "next");
    assert_eq!(written[..lines.len()], lines, "what was there is unchanged");
    let end = host.close();
    assert!(end.code == Some(0) && end.stderr.contains(want), "{end:?}");
    let fork = place.start(&["--fork", &path]);
    assert!(notice(&fork).ends_with(want));
    assert_eq!(fork.close().code, Some(0));
}

#[test]
fn a_session_begins_in_a_blank_file_and_is_found_there_again() {
    for text in ["", "\n", "  \r\n\n"] {
        let place = HostFixture::new();
        let path = place.write_file("blank.jsonl", text).display().to_string();
        let mut host = place.start(&["--session", &path]);
        host.run_turn("one");
        lines_with(path.as_ref(), "\"ok\"");
        assert!(!has_notice(&host), "{text:?}");
        assert_eq!(host.close().code, Some(0));
        let mut again = place.start(&["--session", &path]);
        assert_eq!(again.message_texts(), ["one", "ok"], "{text:?}");
        assert_eq!(again.close().code, Some(0));
    }
}

#[test]
fn a_newer_file_that_cannot_be_continued_is_named() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    let file = host.session_file();
    lines_with(&file, "\"ok\"");
    host.close_cleanly();
    let newer = |name: &str, text: &str, seconds: u64| {
        let path = file.with_file_name(name);
        fs::write(&path, text).unwrap();
        let at = fs::metadata(&file).unwrap().modified().unwrap() + Duration::from_secs(seconds);
        fs::File::options().write(true).open(&path).unwrap().set_modified(at).unwrap();
        path
    };
    let told = |path: &Path| format!("{} cannot be read as a session file and was not continued", path.display());
    newer("blank.jsonl", "\n", 5);
    let mut whole = place.start(&["--continue"]);
    assert_eq!((whole.message_texts(), has_notice(&whole)), (vec!["one".to_owned(), "ok".to_owned()], false));
    whole.close_cleanly();
    let cut = newer("cut.jsonl", "{\"type\":\"session\",\"ver", 6);
    let mut again = place.start(&["--continue"]);
    assert_eq!(notice(&again), told(&cut));
    assert_eq!(again.message_texts(), ["one", "ok"]);
    let end = again.close();
    assert!(end.code == Some(0) && end.stderr.contains(&told(&cut)), "{end:?}");
    // Nothing else is there to continue.
    fs::remove_file(&file).unwrap();
    let empty = place.start(&["--continue"]);
    assert_eq!(notice(&empty), told(&cut));
}
