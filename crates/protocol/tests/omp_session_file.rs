//! Session files: what is read is written back as it was.

use countersign_protocol::omp::message::{AssistantBlock, OmpContent, OmpContentBlock};
use countersign_protocol::omp::session_file::{
    FileForm, NotASession, SessionEntryBody, SessionFile, SessionFileEntry, read_session_file,
};
use countersign_protocol::omp::{AgentMessage, session_file};
use countersign_protocol::{WireValue, encode_line};
use proptest::prelude::*;

const SESSION: &str = include_str!("omp/session.jsonl");

fn no_ids() -> String {
    unreachable!("nothing needs an id")
}

fn line(value: &impl WireValue) -> String {
    String::from_utf8(encode_line(value).to_vec()).expect("JSON is UTF-8")
}

fn written(file: &SessionFile) -> Vec<String> {
    std::iter::once(line(&file.header)).chain(file.entries.iter().map(line)).collect()
}

#[test]
fn every_entry_is_written_back_as_it_was_read() {
    let file = read_session_file(SESSION, no_ids).unwrap();
    assert_eq!(written(&file), SESSION.split_inclusive('\n').collect::<Vec<_>>());
    assert_eq!((file.unreadable, file.form), (0, FileForm::Current));
}

#[test]
fn only_what_we_do_not_know_is_kept_raw() {
    let kind = |entry: &SessionFileEntry| match &entry.body {
        SessionEntryBody::Unknown(_) => Some("entry"),
        SessionEntryBody::Message(entry) => match &entry.message {
            AgentMessage::Other(_) => Some("message"),
            AgentMessage::User(message) => match &message.content {
                OmpContent::Blocks(blocks) => {
                    blocks.iter().any(|block| matches!(block, OmpContentBlock::Other(_))).then_some("block")
                }
                OmpContent::Text(_) => None,
            },
            AgentMessage::Assistant(message) => {
                message.content.iter().any(|block| matches!(block, AssistantBlock::Other(_))).then_some("block")
            }
            _ => None,
        },
        _ => None,
    };
    let file = read_session_file(SESSION, no_ids).unwrap();
    let raw: Vec<_> = file.entries.iter().filter_map(|entry| Some((entry.id.as_str(), kind(entry)?))).collect();
    assert_eq!(
        raw,
        [
            ("00000004", "block"),
            ("00000007", "block"),
            ("0000000f", "message"),
            ("00000019", "entry"),
            ("0000001a", "message")
        ]
    );
}

#[test]
fn of_two_members_of_one_name_the_last_counts() {
    let twice =
        r#"{"type":"label","id":"a","parentId":null,"timestamp":"t","targetId":"x","label":"l","targetId":"y"}"#;
    let once = r#"{"type":"label","id":"a","parentId":null,"timestamp":"t","targetId":"y","label":"l"}"#;
    assert_eq!(SessionFileEntry::parse(twice).unwrap(), SessionFileEntry::parse(once).unwrap());
    // One that does not count may be a number that no number of ours can hold.
    let beyond = twice.replace(r#""targetId":"x""#, r#""targetId":1e999"#);
    assert_eq!(SessionFileEntry::parse(&beyond).unwrap(), SessionFileEntry::parse(once).unwrap());
    // Those that every entry has, too.
    for more in [r#""id":"z","#, r#""parentId":"z","#, r#""type":"message","#, r#""timestamp":7,"#, r#""id":1e999,"#] {
        let line = format!("{{{more}{}", &once[1..]);
        assert_eq!(SessionFileEntry::parse(&line).unwrap(), SessionFileEntry::parse(once).unwrap(), "{line}");
    }
}

#[test]
fn a_file_without_the_header_of_a_session_is_no_session() {
    for (case, text) in [
        ("empty", ""),
        ("blank", "\n \n"),
        ("text", "hello\n"),
        ("another object", "{\"type\":\"message\",\"id\":\"a\"}\n"),
        ("no id", "{\"type\":\"session\",\"version\":3}\n"),
        ("an array", "[]\n"),
    ] {
        assert_eq!(read_session_file(text, no_ids), Err(NotASession), "{case}");
    }
}

#[test]
fn lines_that_cannot_be_read_are_counted_and_left_out() {
    let text = "\n{\"type\":\"session\",\"version\":3,\"id\":\"s\"}\r\nbroken\n{\"type\":\"label\"}\n\
                [\"label\",\"a\"]\n{\"type\":\"session_info\",\"id\":\"a\",\"name\":\"cut \\ud83d\"}\n{\"type\":\"session\",\"version\":3,\"id\":\"t\"}\n\
                {\"type\":\"message\",\"id\":\"b\",\"mess";
    let file = read_session_file(text, no_ids).unwrap();
    // A list is no entry, although its members are at the positions of an entry's.
    assert_eq!((file.unreadable, file.entries.len()), (5, 1));
    assert_eq!(
        written(&file)[1],
        "{\"type\":\"session_info\",\"id\":\"a\",\"parentId\":null,\"timestamp\":\"\",\"name\":\"cut \u{fffd}\"}\n"
    );
}

#[test]
fn an_older_file_is_read_as_the_current_form() {
    let old = r#"{"type":"session","id":"s","timestamp":"t","cwd":"/w","provider":"p"}
{"type":"message","timestamp":"t","message":{"role":"hookMessage","customType":"n","content":"x","display":true,"timestamp":1}}
broken
{"type":"model_change","timestamp":"t","model":"p/m"}"#;
    let mut ids = ["header", "a", "b"].into_iter().map(str::to_owned);
    let file = read_session_file(old, || ids.next().unwrap()).unwrap();
    assert_eq!(
        written(&file).concat(),
        r#"{"type":"session","version":3,"id":"s","timestamp":"t","cwd":"/w","provider":"p"}
{"type":"message","id":"a","parentId":null,"timestamp":"t","message":{"role":"custom","customType":"n","content":"x","display":true,"timestamp":1}}
{"type":"model_change","id":"b","parentId":"a","timestamp":"t","model":"p/m"}
"#
    );
    assert_eq!((file.unreadable, file.form), (1, FileForm::Older));
}

proptest! {
    #[test]
    fn a_message_survives_writing_and_reading(
        text in any::<String>(), command in any::<String>(), code in any::<Option<i32>>(),
        cost in 0.0..1e6f64, tokens in any::<u64>(), ms in any::<Option<f32>>(), stamp in any::<u64>(),
    ) {
        let ms = ms.filter(|ms| ms.is_finite()).map(f64::from);
        let messages = [
            serde_json::json!({"role": "user", "content": text, "timestamp": stamp}),
            serde_json::json!({"role": "bashExecution", "command": command, "output": text, "exitCode": code,
                "cancelled": false, "truncated": true, "timestamp": stamp}),
            serde_json::json!({"role": "assistant", "content": [{"type": "text", "text": text},
                {"type": "toolCall", "id": text, "name": command, "arguments": {"x": text}}], "api": "", "provider": "",
                "model": command, "usage": {"input": tokens, "output": 0, "cacheRead": 0, "cacheWrite": 0,
                "totalTokens": tokens, "cost": {"input": cost, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": cost}},
                "stopReason": "aborted", "timestamp": stamp, "duration": ms, "unknown": [cost]}),
        ];
        for json in messages {
            let read: AgentMessage = serde_json::from_value(json).unwrap();
            let again: AgentMessage = serde_json::from_str(&line(&read)).unwrap();
            prop_assert!(!matches!(read, AgentMessage::Other(_)));
            prop_assert_eq!(again, read);
        }
    }

    #[test]
    fn a_file_cut_anywhere_is_read_up_to_the_cut(at in 0..SESSION.len()) {
        let file = session_file::read_session_file(&SESSION[..at], no_ids);
        let whole = SESSION[..at].matches('\n').count();
        let complete = SESSION.as_bytes()[at] == b'\n';
        match file {
            Ok(file) => {
                prop_assert_eq!(1 + file.entries.len(), whole + usize::from(complete));
                prop_assert!(file.unreadable <= 1);
            }
            Err(NotASession) => prop_assert_eq!(whole + usize::from(complete), 0),
        }
    }
}

/// Returns a file of two lines after `title_line`, with `title` in its header.
fn behind(title_line: &str, version: u32, title: &str) -> String {
    let header = format!(r#"{{"type":"session","version":{version},"id":"s","timestamp":"","cwd":"/"{title}}}"#);
    let entry = r#"{"type":"label","id":"a","parentId":null,"timestamp":"","targetId":"x"}"#;
    format!("{title_line}\n{header}\n{entry}\n")
}

#[test]
fn a_title_line_before_the_header_names_the_session_and_stays() {
    let title_line = |title: &str| {
        format!(r#"{{"type":"title","v":1,"title":{title},"source":"auto","updatedAt":"u","pad":"{}"}}"#, " ".repeat(9))
    };
    let own = r#","title":"of the header""#;
    for (title, header, want) in [
        (r#""of the line""#, "", Some("of the line")),
        (r#""of the line""#, own, Some("of the line")),
        (r#""""#, own, None),
        ("7", own, Some("of the header")),
        ("null", "", None),
    ] {
        for version in 1..=4 {
            for before in ["", "\u{feff}", "\n  \n"] {
                let text = before.to_owned() + &behind(&title_line(title), version, header);
                let mut count = 0;
                let fresh = || {
                    count += 1;
                    format!("{count}")
                };
                let file = read_session_file(&text, fresh).unwrap_or_else(|error| panic!("{error}: {text}"));
                assert_eq!(file.header.title.as_deref(), want, "{text}");
                assert_eq!((file.unreadable, file.entries.len()), (0, 1), "{text}");
                let written = String::from_utf8(file.header.encode()).unwrap();
                let (first, second) = written.split_once('\n').unwrap();
                assert!(
                    first.starts_with(&title_line(title)[..30]) && second.contains(r#""type":"session""#),
                    "{written}"
                );
                assert_eq!(read_session_file(&written, no_ids).unwrap().header, file.header);
            }
        }
    }
}

#[test]
fn a_title_line_alone_is_no_session() {
    let line = r#"{"type":"title","v":1,"title":"t","updatedAt":"","pad":""}"#;
    for text in [line.to_owned(), format!("{line}\n"), behind(line, 3, "").replacen("session", "other", 1)] {
        assert_eq!(read_session_file(&text, no_ids), Err(NotASession), "{text}");
    }
    assert_eq!(read_session_file(&format!("{line}\n{}", behind(line, 3, "")), no_ids), Err(NotASession), "two of them");
}
