//! Notices for users about the files of a session.

use std::fs;

use countersign_testkit::process::{HostFixture, RpcHost, eventually, lines_with};
use serde_json::json;

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
