//! Session files whose context related programs have cut: by compactions that are not in words, and by resets.

use countersign_testkit::process::{HostFixture, RpcHost, lines_with, provider::text_reply};
use serde_json::{Value, json};

use super::foreign_files::{AT, header, message, open, says, user, write};

const KEEP: &str = "compaction: { keepRecentTokens: 30 }\n";

/// Returns a compaction that keeps what is after `kept`.
fn compaction(id: &str, parent: &str, kept: &str, members: Value) -> Value {
    let mut line = json!({ "type": "compaction", "id": id, "parentId": parent, "timestamp": AT,
        "summary": "what was said before", "firstKeptEntryId": kept, "tokensBefore": 50 });
    line.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    line
}

fn pictures() -> Value {
    let frame = json!({ "data": "blob:sha256:00", "mimeType": "image/png", "cols": 196, "rows": 71, "chars": 13916 });
    json!({ "summary": "see the pictures", "method": "snapcompact", "fromExtension": false, "preserveData": {
        "snapcompact": { "frames": [frame], "totalChars": 13916, "truncatedChars": 0, "textHead": "a", "textTail": "b" } } })
}

fn remote() -> Value {
    let item = json!({ "type": "compaction", "encrypted_content": "x" });
    json!({ "summary": "kept by the provider", "method": "remote", "preserveData": {
        "openaiRemoteCompaction": { "provider": "openai", "replacementHistory": [item], "compactionItem": item } } })
}

fn native() -> Value {
    json!({ "method": "remote", "preserveData": { "anthropicCompaction": {
        "provider": "claude", "content": "what was said before", "encryptedContent": "x" } } })
}

/// Returns a conversation of three turns with a compaction after the second, which it keeps.
fn compacted(members: Value) -> Vec<Value> {
    vec![
        header(3),
        message("00000001", None, user("first question")),
        message("00000002", Some("00000001"), says("first answer")),
        message("00000003", Some("00000002"), user("second question")),
        message("00000004", Some("00000003"), says("second answer")),
        compaction("00000005", "00000004", "00000003", members),
        message("00000006", Some("00000005"), user("third question")),
        message("00000007", Some("00000006"), says("third answer")),
    ]
}

fn notice(host: &RpcHost) -> String {
    let notice = host.wait_frame(0, "a notice", |frame| frame["method"] == "notify");
    assert_eq!(notice["notifyType"], "warning");
    notice["message"].as_str().unwrap().to_owned()
}

fn has_notice(host: &RpcHost) -> bool {
    host.frames_since(0).iter().any(|frame| frame["method"] == "notify")
}

#[test]
fn what_a_compaction_that_is_not_in_words_stands_for_is_sent_in_full() {
    for members in [pictures(), remote()] {
        let place = HostFixture::new();
        let lines = compacted(members);
        let (mut host, path) = open(&place, &lines, "");
        let before = std::fs::read(&path).unwrap();
        let text = notice(&host);
        assert!(text.ends_with(&format!(
            "{path}: 1 compaction has no summary in words; the messages that it stands for are kept in full"
        )));
        let all =
            ["first question", "first answer", "second question", "second answer", "third question", "third answer"];
        assert_eq!(host.message_texts(), all);
        host.run_turn("next");
        let request_text = place.provider.last_request().messages_text();
        for text in all {
            assert!(request_text.contains(text), "{text}");
        }
        assert!(!request_text.contains(lines[5]["summary"].as_str().unwrap()), "{request_text}");
        lines_with(path.as_ref(), "next");
        assert!(std::fs::read(&path).unwrap().starts_with(&before), "what was there is unchanged");
        assert_eq!(host.close().code, Some(0));
        let mut again = place.start(&["--session", &path]);
        assert_eq!(again.message_texts()[..6], all);
        assert_eq!(again.close().code, Some(0));
        let mut fork = place.start(&["--fork", &path]);
        assert_eq!(fork.message_texts()[..6], all);
        notice(&fork);
        fork.run_turn("elsewhere");
        let forked = lines_with(&fork.session_file(), "elsewhere");
        assert!(forked.contains(&lines[5]), "{forked:?}");
        assert_eq!(fork.close().code, Some(0));
    }
}

#[test]
fn a_compaction_in_words_stands_for_what_is_before_it_also_where_one_without_words_follows() {
    let place = HostFixture::new();
    let mut lines = compacted(native());
    lines.push(compaction("00000008", "00000007", "00000006", pictures()));
    lines.push(message("00000009", Some("00000008"), user("fourth question")));
    lines.push(message("0000000a", Some("00000009"), says("fourth answer")));
    let (mut host, _) = open(&place, &lines, "");
    assert!(notice(&host).contains("1 compaction has no summary in words"));
    host.run_turn("next");
    let request_text = place.provider.last_request().messages_text();
    for text in ["what was said before", "second question", "third answer", "fourth question"] {
        assert!(request_text.contains(text), "{text}");
    }
    for text in ["first question", "first answer", "see the pictures"] {
        assert!(!request_text.contains(text), "{text}");
    }
    assert_eq!(host.close().code, Some(0));
}

#[test]
fn the_summary_that_a_provider_wrote_itself_is_words() {
    let place = HostFixture::new();
    let (mut host, _) = open(&place, &compacted(native()), "");
    assert_eq!(host.session_messages()[0]["summary"], "what was said before");
    host.run_turn("next");
    assert!(!place.provider.last_request().messages_text().contains("first question"));
    assert!(!has_notice(&host));
    assert_eq!(host.close().code, Some(0));
}

#[test]
fn a_summary_takes_in_what_an_archive_stood_for_and_has_no_archive_itself() {
    let place = HostFixture::with_config(KEEP);
    let (mut host, path) = open(&place, &compacted(pictures()), "");
    for turn in 0..2 {
        host.run_turn(&format!("message {turn} ").repeat(20));
    }
    let count = place.provider.request_count();
    place.provider.script_replies([text_reply("the whole of it")]);
    let result = host.command_data(json!({ "type": "compact" }));
    assert_eq!(result.get("preserveData"), None);
    let request = place.provider.wait_request(count).messages_text();
    assert!(request.contains("first question") && request.contains("third answer"), "{request}");
    let lines = lines_with(path.as_ref(), "the whole of it");
    assert_eq!(lines.iter().rfind(|line| line["type"] == "compaction").unwrap().get("preserveData"), None);
    assert_eq!(host.close().code, Some(0));
    let mut again = place.start(&["--session", &path]);
    assert_eq!(again.session_messages()[0]["role"], "compactionSummary");
    assert!(!has_notice(&again));
    assert_eq!(again.close().code, Some(0));
}

#[test]
fn a_fork_keeps_the_method_that_says_that_a_summary_is_words() {
    let place = HostFixture::new();
    let mut members = pictures();
    members["method"] = "soft".into();
    members["summary"] = "in short".into();
    let path = write(&place, &compacted(members), "");
    let mut fork = place.start(&["--fork", &path]);
    // The first one is the summary, which has no blocks.
    let all = ["", "second question", "second answer", "third question", "third answer"];
    assert_eq!(fork.message_texts(), all);
    let forked = fork.session_state()["sessionFile"].as_str().unwrap().to_owned();
    fork.run_turn("next");
    fork.close_cleanly();
    let line = std::fs::read_to_string(&forked).unwrap();
    assert!(line.contains(r#""method":"soft""#), "{line}");
    let mut again = place.start(&["--session", &forked]);
    assert_eq!(again.message_texts(), [&all[..], &["next", "ok"]].concat());
    assert!(!has_notice(&again));
    again.close_cleanly();
}

#[test]
fn nothing_before_the_newest_reset_is_sent() {
    let reset =
        |id: &str, parent: &str| json!({ "type": "reset_boundary", "id": id, "parentId": parent, "timestamp": AT });
    let turn = |lines: &mut Vec<Value>| {
        lines.push(message("0000000a", Some("00000008"), user("fourth question")));
        lines.push(message("0000000b", Some("0000000a"), says("fourth answer")));
    };
    for (case, members, has_more) in
        [("behind a summary", native(), true), ("behind an archive", pictures(), true), ("at the end", native(), false)]
    {
        let place = HostFixture::new();
        let mut lines = compacted(members);
        lines.push(reset("00000008", "00000007"));
        if has_more {
            turn(&mut lines);
        }
        let (mut host, path) = open(&place, &lines, "");
        let want: &[&str] = if has_more { &["fourth question", "fourth answer"] } else { &[] };
        assert_eq!(host.message_texts(), want, "{case}");
        host.run_turn("next");
        let request_text = place.provider.last_request().messages_text();
        for text in ["first question", "second answer", "third answer", "what was said before", "see the pictures"] {
            assert!(!request_text.contains(text), "{case}: {text}");
        }
        assert_eq!(request_text.contains("fourth question"), has_more, "{case}");
        let after = lines_with(path.as_ref(), "next");
        assert_eq!(after[..lines.len()], lines, "{case}");
        assert!(!has_notice(&host), "{case}");
        assert_eq!(host.close().code, Some(0));
        let mut again = place.start(&["--session", &path]);
        assert_eq!(again.message_texts(), [want, &["next", "ok"]].concat(), "{case}");
        assert_eq!(again.close().code, Some(0));
    }
}
